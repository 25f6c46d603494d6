#include "rootfs/archive.hpp"

#include "rootfs/names.hpp"
#include "sys/raw.hpp"

#include <algorithm>
#include <archive.h>
#include <archive_entry.h>
#include <array>
#include <cstdio>
#include <unistd.h>

namespace nsbox::rootfs {

namespace {

bool has(const Entry& entry, const char* attribute)
{
    return std::any_of(entry.attributes.begin(), entry.attributes.end(),
                       [&](const auto& it) { return it.first == attribute; });
}

namespace raw = sys::raw;
using Type = Entry::Type;

constexpr Literal cannot_unpack{"Can't unpack"};
constexpr std::size_t part_size = std::size_t{1} << 18;
constexpr std::size_t block = 512;

}  // namespace

// Progress.

Progress::Progress(std::uint64_t total)
    : total_(total), is_terminal_(::isatty(STDERR_FILENO) != 0), begin_(Clock::now()),
      next_(begin_ + std::chrono::milliseconds{500})
{}

Progress::~Progress()
{
    if (is_shown_)
        (void)raw::write(STDERR_FILENO, "\r\033[K", 4);
}

void Progress::add(std::uint64_t bytes)
{
    done_ += bytes;
    if (!is_terminal_)
        return;
    const Clock::time_point now = Clock::now();
    if (now >= next_)
        show(now);
}

void Progress::show(Clock::time_point now)
{
    next_ = now + std::chrono::milliseconds{100};
    is_shown_ = true;
    const double seconds = std::chrono::duration<double>(now - begin_).count();
    const auto rate = static_cast<std::uint64_t>(static_cast<double>(done_) / seconds);
    std::string line = "\r\033[K";
    if (total_ > 0) {
        constexpr std::uint64_t width = 30;
        const std::uint64_t share = std::min(done_, total_);
        const std::uint64_t full = share * width / total_;
        line += "[" + std::string(full, '#') + std::string(width - full, ' ') + "] " +
                std::to_string(share * 100 / total_) + "%  ";
    }
    line += size_text(done_) + "  " + size_text(rate) + "/s";
    (void)raw::write(STDERR_FILENO, line.data(), line.size());
}

// Archives.

Archive::Archive(int fd, std::string called, Progress* progress, Ending ending)
    : fd_(fd), called_(std::move(called)), progress_(progress), ending_(ending),
      archive_(::archive_read_new()), buffer_(part_size)
{}

Archive::~Archive()
{
    ::archive_read_free(archive_);
}

long Archive::read_part(struct ::archive*, void* self, const void** data)
{
    auto& own = *static_cast<Archive*>(self);
    long got = 0;
    do {
        got = raw::read(own.fd_, own.buffer_.data(), own.buffer_.size());
    } while (got == -EINTR);
    *data = own.buffer_.data();
    if (got < 0) {
        own.error_ = static_cast<int>(-got);
        ::archive_set_error(own.archive_, own.error_, "it cannot be read");
        return ARCHIVE_FATAL;
    }
    const auto size = static_cast<std::size_t>(got);
    own.taken_ += size;
    if (size > 0) {
        const char* const end = own.buffer_.data() + size;
        own.ends_in_zeros_ =
            std::all_of(end - std::min(size, block), end, [](char c) { return c == '\0'; });
        if (own.progress_ != nullptr)
            own.progress_->add(size);
    }
    return got;
}

Result<> Archive::damaged() const
{
    if (error_ != 0)
        return fail("Can't read", error_, called_);
    const char* const said = ::archive_error_string(archive_);
    std::string reason = said != nullptr ? said : "";
    if (reason.starts_with("Unrecognized archive format"))
        return refuse(
            cannot_unpack, called_, "it is no archive that nsbox knows",
            "a tar archive, plain or by gzip, bzip2, xz or zstd, an image of docker save, "
            "or an OCI image layout");
    for (char& c : reason)
        if (c < ' ' || c > '~')
            c = '?';
    return refuse(cannot_unpack, called_, "it is damaged or cut off: " + reason);
}

/// Whether all that is missing is what fills up the last member's block. libarchive says so in
/// words alone; with others in a later version, such an archive is refused.
bool Archive::stops_behind_a_member() const
{
    const char* const said = ::archive_error_string(archive_);
    unsigned long wanted = 0;
    unsigned long got = 1;
    return said != nullptr && error_ == 0 &&
           std::sscanf(said, "Truncated input file (needed %lu bytes, only %lu available)", &wanted,
                       &got) == 2 &&
           wanted < block && got == 0;
}

Result<> Archive::open()
{
    ::archive_read_support_filter_gzip(archive_);
    ::archive_read_support_filter_bzip2(archive_);
    ::archive_read_support_filter_xz(archive_);
    ::archive_read_support_filter_zstd(archive_);
    ::archive_read_support_format_tar(archive_);
    const auto read = [](struct ::archive* archive, void* self, const void** data) -> la_ssize_t {
        return read_part(archive, self, data);
    };
    if (::archive_read_open(archive_, this, nullptr, read, nullptr) != ARCHIVE_OK) {
        if (taken_ == 0 && error_ == 0)
            return refuse(cannot_unpack, called_, "it is empty");
        return damaged();
    }
    return {};
}

void Archive::take_times_and_owner(Entry& entry) const
{
    entry.mode = ::archive_entry_perm(entry_);
    entry.uid = static_cast<std::uint64_t>(std::max<la_int64_t>(0, ::archive_entry_uid(entry_)));
    entry.gid = static_cast<std::uint64_t>(std::max<la_int64_t>(0, ::archive_entry_gid(entry_)));
    entry.seconds = ::archive_entry_mtime(entry_);
    entry.nanoseconds = static_cast<std::uint32_t>(
        std::clamp<long>(::archive_entry_mtime_nsec(entry_), 0, 999999999));
}

void Archive::unread(const Entry& entry)
{
    is_unread_ = true;
    unread_ = entry;
}

// One field of an entry after the other.
// NOLINTNEXTLINE(readability-function-size)
Result<bool> Archive::next(Entry& entry)
{
    if (is_unread_) {
        is_unread_ = false;
        entry = std::move(unread_);
        return true;
    }
    if (is_over_)
        return false;
    const int rc = ::archive_read_next_header(archive_, &entry_);
    if (rc == ARCHIVE_EOF) {
        // Where nothing else would notice that the rest is missing.
        if (ending_ == Ending::required && ::archive_filter_count(archive_) == 1 && !ends_in_zeros_)
            return refuse(cannot_unpack, called_, "it is cut off: its end is missing");
        return false;
    }
    if (rc != ARCHIVE_OK && rc != ARCHIVE_WARN) {
        if (ending_ == Ending::required || !stops_behind_a_member())
            TRY(damaged());
        return false;
    }
    const char* name = ::archive_entry_pathname(entry_);
    if (name == nullptr)
        name = ::archive_entry_pathname_utf8(entry_);
    if (name == nullptr)
        return refuse(cannot_unpack, called_, "a member's name cannot be read");
    entry = Entry{};
    entry.path = TRY(member_path(name));
    take_times_and_owner(entry);
    const la_int64_t size_said = ::archive_entry_size(entry_);
    if (size_said < 0)
        return refuse(cannot_unpack, "the member " + in_quotes(entry.path),
                      "it says that its size is negative");
    claim_ = static_cast<std::uint64_t>(size_said);
    has_lists_ = (::archive_entry_acl_types(entry_) & ARCHIVE_ENTRY_ACL_TYPE_POSIX1E) != 0;
    is_strange_ = false;
    if (const char* const target = ::archive_entry_hardlink(entry_)) {
        entry.type = Type::hard_link;
        entry.target = TRY(link_path(target, entry.path));
        return true;
    }
    switch (::archive_entry_filetype(entry_)) {
    case AE_IFREG:
        entry.type = Type::file;
        entry.size = claim_;
        break;
    case AE_IFDIR:
        entry.type = Type::directory;
        break;
    case AE_IFLNK: {
        const char* const text = ::archive_entry_symlink(entry_);
        entry.type = Type::symlink;
        entry.target = text != nullptr ? text : "";
        entry.mode = 0777;
        if (entry.target.empty())
            return refuse(cannot_unpack, "the member " + in_quotes(entry.path),
                          "it is a symbolic link to nothing");
        break;
    }
    case AE_IFIFO:
        entry.type = Type::fifo;
        break;
    case AE_IFCHR:
    case AE_IFBLK:
        entry.type = ::archive_entry_filetype(entry_) == AE_IFCHR ? Type::character_device
                                                                  : Type::block_device;
        entry.major = static_cast<std::uint32_t>(::archive_entry_rdevmajor(entry_));
        entry.minor = static_cast<std::uint32_t>(::archive_entry_rdevminor(entry_));
        break;
    default:
        is_strange_ = true;
    }
    const char* attribute = nullptr;
    const void* value = nullptr;
    std::size_t size = 0;
    ::archive_entry_xattr_reset(entry_);
    while (::archive_entry_xattr_next(entry_, &attribute, &value, &size) == ARCHIVE_OK)
        // An archive may have each in two forms, of which either is read.
        if (attribute != nullptr && attribute[0] != '\0' && !has(entry, attribute))
            entry.attributes.emplace_back(attribute,
                                          std::string{static_cast<const char*>(value), size});
    return true;
}

Result<> Archive::read(const std::function<Result<>(std::uint64_t, std::string_view)>& take)
{
    for (;;) {
        const void* data = nullptr;
        std::size_t size = 0;
        la_int64_t offset = 0;
        const int rc = ::archive_read_data_block(archive_, &data, &size, &offset);
        if (rc == ARCHIVE_EOF)
            return {};
        is_over_ =
            rc == ARCHIVE_FATAL && ending_ == Ending::may_be_missing && stops_behind_a_member();
        if (is_over_)
            return {};
        if (rc != ARCHIVE_OK && rc != ARCHIVE_WARN)
            return damaged();
        TRY(take(static_cast<std::uint64_t>(offset), {static_cast<const char*>(data), size}));
    }
}

Result<> Archive::drain()
{
    // Padding is short; who writes without an end is not waited for.
    constexpr int most_parts = 4096;
    long got = 1;
    for (int part = 0; part < most_parts && (got > 0 || got == -EINTR); ++part)
        got = raw::read(fd_, buffer_.data(), buffer_.size());
    return got < 0 ? fail("Can't read", static_cast<int>(-got), called_) : Result<>{};
}

Result<> Budget::take(const Entry& entry, std::uint64_t claim)
{
    const auto too_large = [&] {
        return refuse(cannot_unpack, "the member " + in_quotes(entry.path),
                      "all together is larger than " + size_text(limits_.size),
                      "--max-size allows more");
    };
    if (++members_ > limits_.members)
        return refuse(cannot_unpack, {},
                      "there are more than " + std::to_string(limits_.members) + " members");
    std::uint64_t size = claim;
    for (const auto& [name, value] : entry.attributes)
        size += name.size() + value.size();
    if (size > limits_.size - size_)
        return too_large();
    size_ += size;
    return {};
}

Member::Kind kind_of_layer_name(std::string& path)
{
    constexpr std::string_view prefix = ".wh.";
    constexpr std::string_view opaque = ".wh..wh..opq";
    const std::string folder{folder_of(path)};
    const std::string last{last_of(path)};
    if (!last.starts_with(prefix))
        return Member::Kind::entry;
    if (last == opaque) {
        path = folder.empty() ? "." : folder;
        return Member::Kind::opaque;
    }
    const std::string hidden = last.substr(prefix.size());
    path = (folder.empty() ? "" : folder + "/") + hidden;
    return Member::Kind::whiteout;
}

namespace {

/// Names that nothing in a folder can have.
bool is_bad_whiteout(const std::string& path)
{
    const std::string_view last = last_of(path);
    return last.empty() || last == "." || last == "..";
}

}  // namespace

Result<> unpack_archive(Archive& archive, Whiteouts whiteouts, Pipeline& into, Budget& budget,
                        Omissions& omissions)
{
    for (Entry entry; TRY(archive.next(entry));) {
        TRY(budget.take(entry, archive.claim()));
        omissions.lists += archive.has_lists() ? 1 : 0;
        if (archive.is_strange()) {
            ++omissions.sockets;
            continue;
        }
        Member member;
        const std::string name = entry.path;
        if (whiteouts == Whiteouts::hide)
            member.kind = kind_of_layer_name(entry.path);
        if (member.kind == Member::Kind::whiteout && is_bad_whiteout(entry.path))
            return refuse(cannot_unpack, "the member " + in_quotes(name), "it hides no name");
        if (member.kind == Member::Kind::entry && entry.type == Type::file) {
            TRY(into.begin_file(std::move(entry)));
            TRY(archive.read([&](std::uint64_t offset, std::string_view data) {
                return into.write(offset, data);
            }));
            TRY(into.end_file());
            continue;
        }
        member.entry = std::move(entry);
        TRY(into.add(std::move(member)));
    }
    return {};
}

bool looks_like_image(const Entry& entry)
{
    const std::string& path = entry.path;
    constexpr std::size_t digits = 64;
    for (const char* const known :
         {"oci-layout", "index.json", "manifest.json", "repositories", "blobs", "blobs/sha256"})
        if (path == known)
            return true;
    if (path.starts_with("blobs/"))
        return true;
    const std::string first = path.substr(0, path.find('/'));
    const std::string rest = path.substr(first.size());
    if (is_digest(first))
        return rest.empty() || rest == "/layer.tar" || rest == "/json" || rest == "/VERSION";
    const std::string behind = first.substr(std::min(first.size(), digits));
    return rest.empty() && (behind == ".tar" || behind == ".json") &&
           is_digest(first.substr(0, digits));
}

Result<std::string> sha256_of_content(int fd, const std::string& called)
{
    struct Free {
        void operator()(struct ::archive* archive) const { ::archive_read_free(archive); }
    };
    const std::unique_ptr<struct ::archive, Free> archive{::archive_read_new()};
    ::archive_read_support_filter_gzip(archive.get());
    ::archive_read_support_filter_bzip2(archive.get());
    ::archive_read_support_filter_xz(archive.get());
    ::archive_read_support_filter_zstd(archive.get());
    ::archive_read_support_format_raw(archive.get());
    const auto wrong = [&] { return refuse(cannot_unpack, called, "it is damaged or cut off"); };
    struct ::archive_entry* entry = nullptr;
    if (::lseek(fd, 0, SEEK_SET) < 0 ||
        ::archive_read_open_fd(archive.get(), fd, part_size) != ARCHIVE_OK ||
        ::archive_read_next_header(archive.get(), &entry) != ARCHIVE_OK)
        return wrong();
    Sha256 sum;
    std::vector<char> part(part_size);
    for (;;) {
        const la_ssize_t got = ::archive_read_data(archive.get(), part.data(), part.size());
        if (got < 0)
            return wrong();
        if (got == 0)
            return to_hex(sum.take());
        sum.add(part.data(), static_cast<std::size_t>(got));
    }
}

}  // namespace nsbox::rootfs
