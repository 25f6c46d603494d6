#include "rootfs/export.hpp"

#include "rootfs/import.hpp"
#include "rootfs/manifest.hpp"
#include "rootfs/names.hpp"
#include "sys/raw.hpp"

#include <algorithm>
#include <archive.h>
#include <archive_entry.h>
#include <cerrno>
#include <csignal>
#include <memory>
#include <sys/sysmacros.h>
#include <unordered_map>
#include <vector>

namespace nsbox::rootfs {

namespace {

namespace raw = sys::raw;
using sys::Fd;
using Type = Entry::Type;

constexpr Literal cannot_export{"Can't export"};

struct FreeArchive {
    void operator()(struct ::archive* archive) const { ::archive_write_free(archive); }
};
struct FreeEntry {
    void operator()(struct ::archive_entry* entry) const { ::archive_entry_free(entry); }
};

class Writer {
public:
    Writer(int root, int output) : root_(root), output_(output), archive_(::archive_write_new()) {}

    Result<> open(Compression compression)
    {
        struct ::archive* const archive = archive_.get();
        ::archive_write_set_format_pax(archive);
        // Else it depends on what the output is.
        ::archive_write_set_bytes_in_last_block(archive, 1);
        if (compression == Compression::gzip) {
            ::archive_write_add_filter_gzip(archive);
            // Else the time of this moment is in it.
            ::archive_write_set_filter_option(archive, "gzip", "timestamp", nullptr);
        } else if (compression == Compression::xz) {
            ::archive_write_add_filter_xz(archive);
        } else if (compression == Compression::zstd) {
            ::archive_write_add_filter_zstd(archive);
        }
        return check(::archive_write_open_fd(archive, output_));
    }

    Result<> add(const Entry& entry)
    {
        const std::unique_ptr<struct ::archive_entry, FreeEntry> header{::archive_entry_new()};
        struct ::archive_entry* const its = header.get();
        ::archive_entry_copy_pathname(its, (entry.path == "." ? "./" : "./" + entry.path).c_str());
        ::archive_entry_set_perm(its, entry.mode);
        ::archive_entry_set_uid(its, static_cast<la_int64_t>(entry.uid));
        ::archive_entry_set_gid(its, static_cast<la_int64_t>(entry.gid));
        ::archive_entry_set_mtime(its, entry.seconds, entry.nanoseconds);
        ::archive_entry_set_size(its, 0);
        for (const auto& [name, value] : entry.attributes)
            ::archive_entry_xattr_add_entry(its, name.c_str(), value.data(), value.size());
        set_type(its, entry);
        TRY(check(::archive_write_header(archive_.get(), its)));
        return entry.type == Type::file ? add_content(entry) : Result<>{};
    }

    Result<> close() { return check(::archive_write_close(archive_.get())); }

private:
    static void set_type(struct ::archive_entry* its, const Entry& entry)
    {
        switch (entry.type) {
        case Type::directory:
            ::archive_entry_set_filetype(its, AE_IFDIR);
            break;
        case Type::file:
            ::archive_entry_set_filetype(its, AE_IFREG);
            ::archive_entry_set_size(its, static_cast<la_int64_t>(entry.size));
            break;
        case Type::symlink:
            ::archive_entry_set_filetype(its, AE_IFLNK);
            ::archive_entry_copy_symlink(its, entry.target.c_str());
            break;
        case Type::hard_link:
            ::archive_entry_set_filetype(its, AE_IFREG);
            ::archive_entry_copy_hardlink(its, ("./" + entry.target).c_str());
            break;
        case Type::fifo:
            ::archive_entry_set_filetype(its, AE_IFIFO);
            break;
        case Type::character_device:
        case Type::block_device:
            ::archive_entry_set_filetype(its,
                                         entry.type == Type::block_device ? AE_IFBLK : AE_IFCHR);
            ::archive_entry_set_rdev(its, ::makedev(entry.major, entry.minor));
            break;
        }
    }

    Result<> add_content(const Entry& entry)
    {
        const auto changed = [&] {
            return refuse(cannot_export, in_quotes(entry.path), "it is not as it was imported",
                          "nsbox rootfs verify names what has changed");
        };
        const Fd file{raw::openat2(root_, entry.path.c_str(),
                                   O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
                                   RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS)};
        struct ::stat status;
        if (!file || raw::fstat(file.get(), &status) < 0 || !S_ISREG(status.st_mode) ||
            static_cast<std::uint64_t>(status.st_size) != entry.size)
            return changed();
        for (std::uint64_t left = entry.size; left > 0;) {
            const long got =
                raw::read(file.get(), part_.data(), std::min<std::uint64_t>(left, part_.size()));
            if (got == -EINTR)
                continue;
            if (got <= 0)
                return changed();
            const la_ssize_t put =
                ::archive_write_data(archive_.get(), part_.data(), static_cast<std::size_t>(got));
            if (put != got)
                return check(ARCHIVE_FATAL);
            left -= static_cast<std::uint64_t>(got);
        }
        return {};
    }

    Result<> check(int rc)
    {
        // A warning is about a name that is no UTF-8; it is written as it is.
        if (rc == ARCHIVE_OK || rc == ARCHIVE_WARN)
            return {};
        // The library has these two for what is wrong with an entry; others are of the output.
        if (const int err = ::archive_errno(archive_.get());
            err > 0 && err != EILSEQ && err != EINVAL)
            return fail(cannot_export, err);
        const char* const said = ::archive_error_string(archive_.get());
        return refuse(cannot_export, {}, said != nullptr ? said : "the archive cannot be written");
    }

    int root_;
    int output_;
    std::unique_ptr<struct ::archive, FreeArchive> archive_;
    std::vector<char> part_ = std::vector<char>(std::size_t{1} << 18);
};

Result<> write_archive(const Manifest& manifest, int root, int output, Compression compression)
{
    Writer writer{root, output};
    TRY(writer.open(compression));
    std::unordered_map<std::string, const Entry*> files;
    for (const Entry& entry : manifest) {
        if (entry.type != Type::hard_link) {
            files.emplace(entry.path, &entry);
            TRY(writer.add(entry));
            continue;
        }
        // Other programs take a link's mode and owner from its own header.
        const auto target = files.find(entry.target);
        if (target == files.end())
            return refuse(cannot_export, in_quotes(entry.path), "the manifest is damaged");
        Entry link = *target->second;
        link.type = entry.type;
        link.path = entry.path;
        link.target = entry.target;
        link.attributes.clear();
        TRY(writer.add(link));
    }
    return writer.close();
}

}  // namespace

Result<> export_tar(const Use& use, int output, Compression compression)
{
    const Fd folder{raw::openat(AT_FDCWD, use.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
    const Fd tree{
        folder ? raw::openat(folder.get(), "tree", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
               : folder.error()};
    if (!tree)
        return fail("Can't open", -tree.error(), use.path + "/tree");
    const std::string text = TRY(read_all(folder.get(), "manifest", use.path + "/manifest"));
    const Manifest manifest = TRY(parse_manifest(text, use.path + "/manifest"));
    const std::string said = TRY(in_tree(
        tree.get(), {use.info.owners, use.info.subordinate}, {output}, [&](const Site& site) {
            drop_other_capabilities();
            // The process that was started is to end by it, not this one.
            std::signal(SIGPIPE, SIG_IGN);
            const Result<> done = write_archive(manifest, site.root, output, compression);
            if (!done && done.error().err == EPIPE)
                return std::string{"pipe"};
            return done ? std::string{"done"} : done.error().message();
        }));
    if (said == "pipe")
        return fail(cannot_export, EPIPE);
    if (said != "done")
        return refuse("", said.empty() ? "Can't export: the process that does it has ended" : said);
    return {};
}

}  // namespace nsbox::rootfs
