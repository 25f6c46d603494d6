#include "rootfs/unpack.hpp"

#include "rootfs/image.hpp"
#include "rootfs/lower.hpp"
#include "rootfs/names.hpp"
#include "rootfs/pipeline.hpp"
#include "rootfs/walk.hpp"
#include "sys/packing.hpp"
#include "sys/raw.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>
#include <utility>

namespace nsbox::rootfs {

namespace {

namespace raw = sys::raw;
using sys::Fd;
using sys::pack;
using Type = Entry::Type;

constexpr Literal cannot_unpack{"Can't unpack"};

Result<> write_fully(int fd, std::string_view data, const std::string& called)
{
    while (!data.empty()) {
        const long put = raw::write(fd, data.data(), data.size());
        if (put == -EINTR)
            continue;
        if (put < 0)
            return fail("Can't write", static_cast<int>(-put), called);
        data.remove_prefix(static_cast<std::size_t>(put));
    }
    return {};
}

/// What makes the tree, and what all sources count.
struct Work {
    Work(const Job& job_, const Site& site_)
        : job(job_), site(site_), tree(site_.root, job_.ownership, job_.limits.size),
          pipeline(tree, job_.ownership), budget(job_.limits)
    {}

    const Job& job;
    const Site& site;
    Tree tree;
    Pipeline pipeline;
    Budget budget;
    Omissions omissions;
    Outcome outcome;
};

// Images.

/// The files of an image: those of a layout's folder, or those that an archive had.
class Parts {
public:
    explicit Parts(const Job& job) : job_(job) {}

    /// Takes one from an archive.
    Result<> take(Archive& archive, const Entry& entry)
    {
        constexpr std::size_t most = 4096;
        if (entry.type == Type::symlink || entry.type == Type::hard_link) {
            const std::string above =
                entry.type == Type::symlink ? std::string{folder_of(entry.path)} : "";
            aliases_[entry.path] = resolve(above, entry.target);
            return {};
        }
        if (entry.type != Type::file)
            return {};
        if (files_.size() >= most)
            return refuse(cannot_unpack, job_.called, "an image of so many parts is none");
        Fd file{raw::openat(job_.spool, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)};
        if (!file) {
            const char* const name = "spool";
            file = Fd{raw::openat(job_.spool, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600)};
            raw::unlinkat(job_.spool, name, 0);
        }
        if (!file)
            return fail(cannot_unpack, -file.error(), job_.called);
        TRY(archive.read([&](std::uint64_t, std::string_view data) {
            return write_fully(file.get(), data, "the parts of the image");
        }));
        files_[entry.path] = std::move(file);
        return {};
    }
    bool has(const std::string& path) const { return files_.count(path) != 0; }

    /// Its offset is at the beginning.
    Result<Fd> open(const std::string& path)
    {
        if (job_.kind == Job::Kind::layout) {
            Fd file{raw::openat2(job_.input, path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK,
                                 RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS)};
            if (!file)
                return fail(cannot_unpack, -file.error(), job_.called + ": " + in_quotes(path));
            return file;
        }
        const auto alias = aliases_.find(path);
        const auto found = files_.find(alias != aliases_.end() ? alias->second : path);
        if (found == files_.end())
            return refuse(cannot_unpack, job_.called, in_quotes(path) + " is missing in it");
        Fd copy{raw::fcntl(found->second.get(), F_DUPFD_CLOEXEC, 3)};
        if (!copy || ::lseek(copy.get(), 0, SEEK_SET) < 0)
            return fail(cannot_unpack, EMFILE, job_.called);
        return copy;
    }
    Result<std::string> text(const std::string& path)
    {
        constexpr std::size_t most = std::size_t{16} << 20;
        const Fd file = TRY(open(path));
        std::string all;
        std::array<char, 65536> part;
        for (long got = 1; got != 0;) {
            got = raw::read(file.get(), part.data(), part.size());
            if (got == -EINTR)
                continue;
            if (got < 0)
                return fail(cannot_unpack, static_cast<int>(-got), in_quotes(path));
            all.append(part.data(), static_cast<std::size_t>(got));
            if (all.size() > most)
                return refuse(cannot_unpack, in_quotes(path), "it is too large for what it is");
        }
        return all;
    }
    /// With its digest, where it has one, checked.
    Result<std::string> text_of(const Blob& blob)
    {
        std::string all = TRY(text(blob.path));
        if (!blob.digest.empty() && blob.digest != "sha256:" + sha256_of(all))
            return wrong_digest(blob.path);
        return all;
    }
    static tl::unexpected<Error> wrong_digest(const std::string& path)
    {
        return refuse(cannot_unpack, in_quotes(path), "it is damaged: its SHA-256 is another");
    }

private:
    /// Lexically; what leads out is found nowhere.
    static std::string resolve(const std::string& above, const std::string& target)
    {
        std::vector<std::string> parts;
        const std::string path = above.empty() ? target : above + "/" + target;
        for (std::size_t at = 0; at < path.size();) {
            const std::size_t end = std::min(path.find('/', at), path.size());
            const std::string part = path.substr(at, end - at);
            at = end + 1;
            if (part == ".." && !parts.empty())
                parts.pop_back();
            else if (!part.empty() && part != ".")
                parts.push_back(part);
        }
        std::string out;
        for (const std::string& part : parts)
            out += (out.empty() ? "" : "/") + part;
        return out;
    }

    const Job& job_;
    std::map<std::string, Fd> files_;
    std::map<std::string, std::string> aliases_;
};

/// What the layer's digest says of its end, where there is one to compare with.
Result<Ending> check_layer(Parts& parts, const Blob& layer, const std::string& diff)
{
    const Fd file = TRY(parts.open(layer.path));
    const std::string plain = "sha256:" + TRY(sha256_of_file(file.get(), layer.path));
    if (layer.digest.empty() ? plain == diff : plain == layer.digest)
        return Ending::may_be_missing;
    // The name of an older archive's layer may be any; what counts is what it holds.
    if (!diff.empty() && "sha256:" + TRY(sha256_of_content(file.get(), layer.path)) == diff)
        return Ending::may_be_missing;
    if (layer.digest.empty() && diff.empty())
        return Ending::required;
    return Parts::wrong_digest(layer.path);
}

Result<ImageParts> find_docker_image(Work& work, Parts& parts)
{
    const std::string text = TRY(parts.text("manifest.json"));
    return choose_docker_image(text, work.job.image);
}

Result<ImageParts> find_oci_image(Work& work, Parts& parts)
{
    constexpr int most_levels = 4;
    const std::string top = TRY(parts.text("index.json"));
    OciChoice choice = TRY(choose_oci_image(top, work.job.image));
    for (int level = 0; choice.is_index; ++level) {
        if (level == most_levels)
            return refuse(cannot_unpack, work.job.called, "an index in an index in an index");
        const std::string index = TRY(parts.text_of(choice.blob));
        choice = TRY(choose_oci_image(index, ""));
    }
    work.outcome.image_digest = choice.blob.digest;
    const std::string manifest = TRY(parts.text_of(choice.blob));
    return parse_oci_manifest(manifest);
}

Result<> unpack_image(Work& work, Parts& parts)
{
    const bool is_docker = work.job.kind == Job::Kind::archive && parts.has("manifest.json");
    const ImageParts image =
        is_docker ? TRY(find_docker_image(work, parts)) : TRY(find_oci_image(work, parts));
    const std::string config_text = TRY(parts.text_of(image.config));
    ImageConfig config = TRY(parse_image_config(config_text));
    const bool has_diffs = config.diffs.size() == image.layers.size();
    if (!config.architecture.empty() && config.architecture != own_architecture())
        work.outcome.notes.push_back("the image is for " + in_quotes(config.architecture) +
                                     ", this machine is " + std::string{own_architecture()});
    for (std::string& note : config.notes)
        work.outcome.notes.push_back(std::move(note));
    work.outcome.image = std::move(config.image);
    for (std::size_t i = 0; i < image.layers.size(); ++i) {
        const Blob& layer = image.layers[i];
        const Ending ending = TRY(check_layer(parts, layer, has_diffs ? config.diffs[i] : ""));
        const Fd file = TRY(parts.open(layer.path));
        Archive archive{file.get(), work.job.called + ": " + in_quotes(layer.path), nullptr,
                        ending};
        TRY(archive.open());
        TRY(work.pipeline.begin_layer());
        TRY(unpack_archive(archive, Whiteouts::hide, work.pipeline, work.budget, work.omissions));
    }
    return {};
}

// Archives.

Result<> unpack_plain(Work& work, Archive& archive)
{
    TRY(unpack_archive(archive, Whiteouts::are_files, work.pipeline, work.budget, work.omissions));
    return work.job.is_file ? Result<>{} : archive.drain();
}

Result<> start_again(const Job& job)
{
    if (!job.is_file)
        return refuse(cannot_unpack, job.called,
                      "it begins like an image, and only a file can be looked at twice",
                      "give it as a file");
    if (::lseek(job.input, 0, SEEK_SET) < 0)
        return fail("Can't read", errno, job.called);
    return {};
}

Result<> unpack_input(Work& work)
{
    Progress progress{work.job.total};
    {
        Archive archive{work.job.input, work.job.called, &progress};
        TRY(archive.open());
        Entry entry;
        if (!TRY(archive.next(entry)))
            return refuse(cannot_unpack, work.job.called, "there is nothing in it");
        const bool may_be_image = looks_like_image(entry);
        archive.unread(entry);
        if (!may_be_image)
            return unpack_plain(work, archive);
        Parts parts{work.job};
        Budget budget{work.job.limits};
        bool is_image = true;
        while (is_image && TRY(archive.next(entry))) {
            is_image = looks_like_image(entry);
            TRY(budget.take(entry, archive.claim()));
            if (is_image)
                TRY(parts.take(archive, entry));
        }
        if (is_image &&
            (parts.has("manifest.json") || (parts.has("index.json") && parts.has("oci-layout"))))
            return unpack_image(work, parts);
    }
    // It only looked like one.
    TRY(start_again(work.job));
    Archive archive{work.job.input, work.job.called, &progress};
    TRY(archive.open());
    return unpack_plain(work, archive);
}

// Folders.

std::uint64_t owner_of(std::uint32_t id, std::uint32_t own, const Job& job, const Site& site)
{
    constexpr std::uint32_t nobody_known = 65534;
    if (job.ownership.owners == Owners::as_they_are)
        return id;
    if (job.ownership.owners == Owners::subordinate)
        return id < nobody_known ? id : 0;
    return site.walled || id == own ? 0 : id;
}

Entry entry_from(const Found& found, const Job& job, const Site& site)
{
    const struct ::stat& status = found.status;
    Entry entry;
    entry.path = found.path;
    entry.mode = status.st_mode & 07777;
    entry.uid =
        owner_of(status.st_uid, static_cast<std::uint32_t>(raw::call(SYS_geteuid)), job, site);
    entry.gid =
        owner_of(status.st_gid, static_cast<std::uint32_t>(raw::call(SYS_getegid)), job, site);
    entry.seconds = status.st_mtim.tv_sec;
    entry.nanoseconds = static_cast<std::uint32_t>(status.st_mtim.tv_nsec);
    return entry;
}

Entry::Attributes attributes_of(int fd)
{
    Entry::Attributes all;
    std::vector<char> names(65536);
    const ssize_t size = ::flistxattr(fd, names.data(), names.size());
    for (ssize_t at = 0; at < size;) {
        const std::string name = names.data() + at;
        at += static_cast<ssize_t>(name.size()) + 1;
        if (!name.starts_with("user.") && name != "security.capability")
            continue;
        std::string value(65536, '\0');
        const ssize_t got = ::fgetxattr(fd, name.c_str(), value.data(), value.size());
        if (got < 0)
            continue;
        value.resize(static_cast<std::size_t>(got));
        all.emplace_back(name, value);
    }
    return all;
}

class FolderSource {
public:
    FolderSource(Work& work, Progress& progress) : work_(work), progress_(progress)
    {
        const Job& job = work.job;
        if (job.lower != nullptr)
            lower_.emplace(*job.lower, job.upper, job.ownership.owners == Owners::recorded);
    }

    Result<> unpack()
    {
        struct ::stat top;
        if (const int rc = raw::fstat(work_.job.input, &top); rc < 0)
            return fail("Can't read", -rc, work_.job.called);
        Visitor visitor;
        visitor.before = [&](const Found& found) -> Result<bool> {
            TRY(take(found));
            // Another file system is not part of the tree.
            return found.status.st_dev == top.st_dev;
        };
        TRY(walk(work_.job.input, visitor));
        if (!lower_)
            return {};
        for (Entry& device : lower_->devices(work_.job.input)) {
            Member member;
            member.entry = std::move(device);
            TRY(work_.pipeline.add(std::move(member)));
        }
        return {};
    }

private:
    Result<> take(const Found& found)
    {
        Entry entry = entry_from(found, work_.job, work_.site);
        const mode_t type = found.status.st_mode & S_IFMT;
        TRY(work_.budget.take(
            entry, type == S_IFREG ? static_cast<std::uint64_t>(found.status.st_size) : 0));
        if (type == S_IFSOCK) {
            ++work_.omissions.sockets;
            return {};
        }
        if (type != S_IFDIR && found.status.st_nlink > 1) {
            // The layers of an overlay have numbers of their own.
            const auto [first, is_new] =
                links_.emplace(std::pair{found.status.st_dev, found.status.st_ino}, found.path);
            if (!is_new) {
                entry.type = Type::hard_link;
                entry.target = first->second;
            }
        }
        if (type == S_IFREG && entry.type != Type::hard_link)
            return take_file(found, std::move(entry));
        if (entry.type != Type::hard_link)
            TRY(complete(found, entry));
        if (lower_)
            lower_->complete(entry);
        Member member;
        member.entry = std::move(entry);
        return work_.pipeline.add(std::move(member));
    }

    Result<> complete(const Found& found, Entry& entry)
    {
        switch (found.status.st_mode & S_IFMT) {
        case S_IFDIR:
            entry.type = Type::directory;
            entry.attributes = attributes_of(found.open);
            return {};
        case S_IFLNK: {
            std::array<char, 4096> text;
            const long got =
                raw::readlinkat(found.folder, found.name.c_str(), text.data(), text.size());
            if (got < 0)
                return fail("Can't read", static_cast<int>(-got), in_quotes(found.path));
            entry.type = Type::symlink;
            entry.target.assign(text.data(), static_cast<std::size_t>(got));
            return {};
        }
        case S_IFIFO:
            entry.type = Type::fifo;
            return {};
        default:
            entry.type =
                S_ISCHR(found.status.st_mode) ? Type::character_device : Type::block_device;
            entry.major = major(found.status.st_rdev);
            entry.minor = minor(found.status.st_rdev);
            return {};
        }
    }

    Result<> take_file(const Found& found, Entry entry)
    {
        const Fd file{raw::openat(found.folder, found.name.c_str(),
                                  O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)};
        if (!file)
            return fail("Can't read", -file.error(), in_quotes(found.path),
                        file.error() == -EACCES ? "only who may read all of it can import a folder"
                                                : "");
        const auto size = static_cast<std::uint64_t>(found.status.st_size);
        entry.type = Type::file;
        entry.size = size;
        entry.attributes = attributes_of(file.get());
        if (lower_)
            lower_->complete(entry);
        TRY(work_.pipeline.begin_file(std::move(entry)));
        std::uint64_t offset = 0;
        while (offset < size) {
            const off_t data = ::lseek(file.get(), static_cast<off_t>(offset), SEEK_DATA);
            if (data < 0 && errno == ENXIO)
                break;  // The rest is a hole.
            if (data >= 0)
                offset = static_cast<std::uint64_t>(data);
            const long got =
                raw::call(SYS_pread64, file.get(), part_.data(),
                          std::min<std::uint64_t>(part_.size(), size - offset), offset);
            if (got == -EINTR)
                continue;
            if (got < 0)
                return fail("Can't read", static_cast<int>(-got), in_quotes(found.path));
            if (got == 0)
                return refuse("Can't read", in_quotes(found.path), "it changed while it was read");
            const auto count = static_cast<std::size_t>(got);
            TRY(work_.pipeline.write(offset, {part_.data(), count}));
            progress_.add(count);
            offset += count;
        }
        return work_.pipeline.end_file();
    }

    Work& work_;
    Progress& progress_;
    std::optional<Lower> lower_;
    std::map<std::pair<dev_t, ino_t>, std::string> links_;
    std::vector<char> part_ = std::vector<char>(std::size_t{1} << 18);
};

Result<> unpack_source(Work& work)
{
    if (work.job.kind == Job::Kind::archive)
        return unpack_input(work);
    if (work.job.kind == Job::Kind::layout) {
        Parts parts{work.job};
        return unpack_image(work, parts);
    }
    Progress progress{0};
    return FolderSource{work, progress}.unpack();
}

void add_notes(Work& work)
{
    std::vector<std::string>& notes = work.outcome.notes;
    for (std::string& note : work.tree.notes())
        notes.push_back(std::move(note));
    if (work.omissions.sockets > 0)
        notes.push_back(std::to_string(work.omissions.sockets) +
                        " sockets and things of unknown kinds left out");
    if (work.omissions.lists > 0)
        notes.push_back(std::to_string(work.omissions.lists) + " access control lists left out");
    if (!work.site.walled)
        notes.push_back("unpacked without namespaces, which are not to be had here");
}

}  // namespace

Result<Outcome> unpack(const Job& job, const Site& site)
{
    raise_descriptor_limit();
    Work work{job, site};
    // The other thread has what it needs of them.
    drop_other_capabilities();
    Result<> read = unpack_source(work);
    // What the other thread says comes first: it may be why this one stopped.
    TRY(work.pipeline.finish());
    TRY(std::move(read));
    const Manifest manifest = TRY(work.tree.finish());
    const std::string text = to_text(manifest);
    TRY(write_fully(job.manifest, text, "the manifest"));
    work.outcome.content = sha256_of(text);
    work.outcome.members = manifest.size();
    for (const Entry& entry : manifest)
        work.outcome.size += entry.type == Type::file ? entry.size : 0;
    add_notes(work);
    if (manifest.size() <= 1)
        return refuse(cannot_unpack, job.called, "there is nothing in it");
    return std::move(work.outcome);
}

// What the two processes tell each other.

std::string encode(const Result<Outcome>& outcome)
{
    std::string out;
    pack(out, outcome ? 1 : 0);
    if (!outcome) {
        pack(out, outcome.error().message());
        return out;
    }
    pack(out, outcome->members);
    pack(out, outcome->size);
    for (const std::string* text : {&outcome->content, &outcome->image_digest, &outcome->image.user,
                                    &outcome->image.working_directory})
        pack(out, *text);
    for (const std::vector<std::string>* texts :
         {&outcome->image.environment, &outcome->image.entrypoint, &outcome->image.command,
          &outcome->notes}) {
        pack(out, texts->size());
        for (const std::string& text : *texts)
            pack(out, text);
    }
    return out;
}

Result<Outcome> decode(const std::string& bytes)
{
    sys::Unpacker from{bytes};
    if (from.number() != 1) {
        const std::string why = from.text();
        if (!from.is_done() || why.empty())
            return refuse(cannot_unpack, {}, "the process that does it has ended");
        return refuse("", why);
    }
    Outcome outcome;
    outcome.members = from.number();
    outcome.size = from.number();
    for (std::string* text : {&outcome.content, &outcome.image_digest, &outcome.image.user,
                              &outcome.image.working_directory})
        *text = from.text();
    for (std::vector<std::string>* texts : {&outcome.image.environment, &outcome.image.entrypoint,
                                            &outcome.image.command, &outcome.notes})
        for (std::uint64_t left = from.count(); left > 0; --left)
            texts->push_back(from.text());
    if (!from.is_done() || !is_digest(outcome.content))
        return refuse(cannot_unpack, {}, "the process that does it said something strange");
    return outcome;
}

}  // namespace nsbox::rootfs
