#include "rootfs/names.hpp"

#include <array>
#include <charconv>
#include <climits>
#include <cstdio>

namespace nsbox::rootfs {

namespace {

constexpr std::size_t digest_size = 64;

bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

bool is_all_hex(std::string_view text)
{
    for (const char c : text)
        if (!is_hex(c))
            return false;
    return true;
}

bool is_word_character(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

constexpr Literal cannot_unpack{"Can't unpack"};

/// What is wrong with a path, or an empty text; else `out` is it without what says nothing.
std::string clean_path(const std::string& name, std::string& out)
{
    if (name.find('\0') != std::string::npos)
        return "its name holds a byte 0";
    if (name.empty())
        return "its name is empty";
    if (name[0] == '/')
        return "its name begins with \"/\"";
    if (name.size() >= PATH_MAX)
        return "its name is longer than 4095 bytes";
    out.clear();
    for (std::size_t at = 0; at < name.size();) {
        const std::size_t slash = std::min(name.find('/', at), name.size());
        const std::string_view part = std::string_view{name}.substr(at, slash - at);
        at = slash + 1;
        if (part == "..")
            return "its name has \"..\" in it";
        if (part.size() > NAME_MAX)
            return "a part of its name is longer than 255 bytes";
        if (part.empty() || part == ".")
            continue;
        if (!out.empty())
            out += '/';
        out += part;
    }
    if (out.empty())
        out = ".";
    return {};
}

}  // namespace

bool is_name(std::string_view text)
{
    constexpr std::size_t most = 128;
    if (text.empty() || text.size() > most || !is_word_character(text[0]))
        return false;
    for (const char c : text)
        if (!is_word_character(c) && c != '.' && c != '_' && c != '-')
            return false;
    return true;
}

Result<> check_name(const std::string& text)
{
    if (is_name(text))
        return {};
    return refuse("Can't call a root filesystem", in_quotes(text), "this is no name",
                  "a name has up to 128 letters, digits, \".\", \"_\" and \"-\", and begins with a "
                  "letter or digit");
}

bool is_digest(std::string_view text)
{
    return text.size() == digest_size && is_all_hex(text);
}

bool is_digest_prefix(std::string_view text)
{
    constexpr std::size_t least = 8;
    return text.size() >= least && text.size() <= digest_size && is_all_hex(text);
}

std::string to_hex(std::string_view bytes)
{
    constexpr const char* digits = "0123456789abcdef";
    std::string text;
    text.reserve(2 * bytes.size());
    for (const char c : bytes) {
        const auto byte = static_cast<unsigned char>(c);
        text += digits[byte >> 4];
        text += digits[byte & 15];
    }
    return text;
}

Result<std::string> member_path(const std::string& name)
{
    std::string path;
    const std::string wrong = clean_path(name, path);
    if (wrong.empty())
        return path;
    return refuse(cannot_unpack, "the member " + in_quotes(name), wrong,
                  "make the archive with names relative to the root, as in: tar -C TREE -c .");
}

Result<std::string> link_path(const std::string& name, const std::string& member)
{
    std::string path;
    if (clean_path(name, path).empty() && path != ".")
        return path;
    return refuse(cannot_unpack, "the member " + in_quotes(member),
                  "it is a hard link to " + in_quotes(name) + ", which is not in the tree",
                  "make the archive of the whole tree, as in: tar -C TREE -c .");
}

std::string_view folder_of(std::string_view path)
{
    const std::size_t slash = path.rfind('/');
    return slash == std::string_view::npos ? std::string_view{} : path.substr(0, slash);
}

std::string_view last_of(std::string_view path)
{
    const std::size_t slash = path.rfind('/');
    return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

std::string in_quotes(std::string_view text)
{
    constexpr std::size_t most = 300;
    std::string out = "\"";
    for (const char c : text.substr(0, most)) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte >= 0x20 && byte < 0x7f && c != '"' && c != '\\') {
            out += c;
        } else {
            std::array<char, 8> escape;
            std::snprintf(escape.data(), escape.size(), "\\%03o", byte);
            out += escape.data();
        }
    }
    if (text.size() > most)
        out += "...";
    return out + '"';
}

Result<std::uint64_t> parse_size(const std::string& text)
{
    std::uint64_t value = 0;
    const char* const end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, value);
    unsigned shift = 0;
    const std::string_view unit(rest, static_cast<std::size_t>(end - rest));
    if (unit == "k" || unit == "K")
        shift = 10;
    else if (unit == "M")
        shift = 20;
    else if (unit == "G")
        shift = 30;
    if (error != std::errc{} || (shift == 0 && !unit.empty()) || value == 0 ||
        value > (std::uint64_t{1} << 62) >> shift)
        return refuse("Can't take", in_quotes(text) + " as a size", "it is none",
                      "a number of bytes, with k, M or G behind it for more, as in 500M");
    return value << shift;
}

std::string size_text(std::uint64_t bytes)
{
    constexpr std::array units{"B", "kB", "MB", "GB", "TB", "PB", "EB"};
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    for (; value >= 999.95 && unit + 1 < units.size(); ++unit)
        value /= 1000;
    std::array<char, 32> text;
    std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.1f %s", value, units[unit]);
    return text.data();
}

}  // namespace nsbox::rootfs
