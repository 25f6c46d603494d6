#include "rootfs/manifest.hpp"

#include "rootfs/names.hpp"

#include <array>
#include <charconv>
#include <climits>
#include <cstdio>

namespace nsbox::rootfs {

namespace {

using Type = Entry::Type;

constexpr std::string_view first_line = "nsbox manifest 1\n";
constexpr std::uint32_t second = 1000000000;

void add_numbers(std::string& out, const Entry& entry)
{
    std::array<char, 128> text;
    std::snprintf(text.data(), text.size(), " %04o %llu %llu %lld.%09u", entry.mode,
                  static_cast<unsigned long long>(entry.uid),
                  static_cast<unsigned long long>(entry.gid), static_cast<long long>(entry.seconds),
                  entry.nanoseconds);
    out += text.data();
}

void add_line(std::string& out, const Entry& entry)
{
    out += static_cast<char>(entry.type);
    if (entry.type != Type::hard_link)
        add_numbers(out, entry);
    if (entry.type == Type::file)
        out += " " + std::to_string(entry.size) + " " + entry.content;
    if (entry.type == Type::character_device || entry.type == Type::block_device)
        out += " " + std::to_string(entry.major) + ":" + std::to_string(entry.minor);
    out += " " + escape(entry.path);
    if (entry.type == Type::symlink || entry.type == Type::hard_link)
        out += " " + escape(entry.target);
    out += '\n';
    for (const auto& [name, value] : entry.attributes)
        out += "x " + escape(name) + " " + to_hex(value) + "\n";
}

/// Takes the fields of a line one after the other. Once one is wrong, so is all.
class Fields {
public:
    explicit Fields(std::string_view line) : rest_(line) {}

    std::string_view word()
    {
        const std::size_t blank = rest_.find(' ');
        const std::string_view found = rest_.substr(0, blank);
        is_at_end_ = blank == std::string_view::npos;
        rest_ = is_at_end_ ? std::string_view{} : rest_.substr(blank + 1);
        return found;
    }
    template <class T>
    T number(int base = 10)
    {
        return parse<T>(word(), base);
    }
    void time(Entry& entry)
    {
        constexpr std::size_t digits = 9;
        const std::string_view text = word();
        const std::size_t dot = text.find('.');
        if (dot == std::string_view::npos || text.size() - dot - 1 != digits) {
            ok_ = false;
            return;
        }
        entry.seconds = parse<std::int64_t>(text.substr(0, dot));
        entry.nanoseconds = parse<std::uint32_t>(text.substr(dot + 1));
    }
    void device(Entry& entry)
    {
        const std::string_view text = word();
        const std::size_t colon = text.find(':');
        entry.major = parse<std::uint32_t>(text.substr(0, colon));
        entry.minor =
            parse<std::uint32_t>(colon == std::string_view::npos ? "" : text.substr(colon + 1));
    }
    std::string text()
    {
        const std::string_view from = word();
        std::string out;
        for (std::size_t at = 0; at < from.size(); ++at) {
            if (from[at] != '\\') {
                out += from[at];
                continue;
            }
            out += static_cast<char>(parse<unsigned char>(from.substr(at + 1, 3), 8));
            at += 3;
        }
        return out;
    }
    std::string bytes()
    {
        const std::string_view from = word();
        std::string out;
        for (std::size_t at = 0; at + 1 < from.size(); at += 2)
            out += static_cast<char>(parse<unsigned char>(from.substr(at, 2), 16));
        return out;
    }
    bool is_done() const { return ok_ && is_at_end_; }

private:
    template <class T>
    T parse(std::string_view from, int base = 10)
    {
        T value{};
        const char* const end = from.data() + from.size();
        const auto [rest, error] = std::from_chars(from.data(), end, value, base);
        if (error != std::errc{} || rest != end)
            ok_ = false;
        return value;
    }

    std::string_view rest_;
    bool is_at_end_ = false;
    bool ok_ = true;
};

bool parse_entry(std::string_view line, Entry& entry)
{
    Fields fields{line};
    const std::string_view kind = fields.word();
    if (kind.size() != 1 || std::string_view{"dflphcb"}.find(kind[0]) == std::string_view::npos)
        return false;
    entry.type = static_cast<Type>(kind[0]);
    if (entry.type != Type::hard_link) {
        entry.mode = fields.number<unsigned>(8);
        entry.uid = fields.number<std::uint64_t>();
        entry.gid = fields.number<std::uint64_t>();
        fields.time(entry);
    }
    if (entry.type == Type::file) {
        entry.size = fields.number<std::uint64_t>();
        entry.content = fields.word();
    }
    if (entry.type == Type::character_device || entry.type == Type::block_device)
        fields.device(entry);
    entry.path = fields.text();
    if (entry.type == Type::symlink || entry.type == Type::hard_link)
        entry.target = fields.text();
    return fields.is_done();
}

/// Canonical: the only text for what it says, so that what is read is also what was written.
bool is_canonical(const Entry& entry, std::string_view lines)
{
    if (entry.type == Type::file && !is_digest(entry.content))
        return false;
    if (entry.mode > 07777 || entry.nanoseconds >= second)
        return false;
    std::string text;
    add_line(text, entry);
    return text == lines;
}

}  // namespace

std::string escape(std::string_view text)
{
    std::string out;
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte > 0x20 && byte < 0x7f && c != '\\') {
            out += c;
            continue;
        }
        out += '\\';
        out += static_cast<char>('0' + (byte >> 6));
        out += static_cast<char>('0' + (byte >> 3 & 7));
        out += static_cast<char>('0' + (byte & 7));
    }
    return out;
}

std::string to_text(const Manifest& manifest)
{
    std::string out{first_line};
    for (const Entry& entry : manifest)
        add_line(out, entry);
    return out;
}

Result<Manifest> parse_manifest(std::string_view text, const std::string& path)
{
    const auto damaged = [&] { return refuse("Can't read", path, "it is damaged"); };
    Manifest manifest;
    if (!text.starts_with(first_line))
        return damaged();
    for (std::size_t at = first_line.size(); at < text.size();) {
        const std::size_t begin = at;
        Entry entry;
        bool is_first = true;
        // A line, and those of its attributes.
        while (at < text.size() && (is_first || text[at] == 'x')) {
            const std::size_t end = text.find('\n', at);
            if (end == std::string_view::npos)
                return damaged();
            const std::string_view line = text.substr(at, end - at);
            at = end + 1;
            if (is_first) {
                is_first = false;
                if (!parse_entry(line, entry))
                    return damaged();
                continue;
            }
            Fields fields{line};
            (void)fields.word();
            std::string name = fields.text();
            entry.attributes.emplace_back(std::move(name), fields.bytes());
            if (!fields.is_done())
                return damaged();
        }
        if (!is_canonical(entry, text.substr(begin, at - begin)))
            return damaged();
        if (!manifest.empty() && manifest.back().path >= entry.path)
            return damaged();
        const Result<std::string> clean = member_path(entry.path);
        if (!clean || *clean != entry.path)
            return damaged();
        manifest.push_back(std::move(entry));
    }
    return manifest;
}

}  // namespace nsbox::rootfs
