#include "rootfs/import.hpp"

#include "rootfs/confine.hpp"
#include "rootfs/names.hpp"
#include "rootfs/sha256.hpp"
#include "rootfs/stack.hpp"
#include "rootfs/unpack.hpp"
#include "rootfs/walk.hpp"
#include "sys/raw.hpp"

#include <array>
#include <ctime>
#include <unistd.h>

namespace nsbox::rootfs {

namespace {

namespace raw = sys::raw;
using sys::Fd;

constexpr Literal cannot_import{"Can't import"};
constexpr int open_folder = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;

/// What is to be imported, open.
struct Input {
    Fd fd;
    Job::Kind kind = Job::Kind::archive;
    bool is_file = false;
    struct ::stat status {};
    std::string called;
    std::vector<std::string> stack;  ///< In place of all that: folders to be mounted as one.
    const Manifest* lower = nullptr;
    Image image;
};

/// The `dir:` of skopeo and podman: no layout, and as a folder of files nothing that anybody wants.
bool is_transport_directory(const Fd& folder)
{
    constexpr std::string_view start = "Directory Transport Version:";
    const Fd file{
        raw::openat(folder.get(), "version", O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK)};
    char text[start.size()];
    return file && ::read(file.get(), text, sizeof text) == ssize_t{sizeof text} &&
           std::string_view{text, sizeof text} == start &&
           raw::faccessat(folder.get(), "manifest.json", F_OK) == 0;
}

Result<Input> open_input(const std::string& source)
{
    Input input;
    if (source == "-") {
        input.called = "standard input";
        input.fd = Fd{raw::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)};
    } else {
        input.called = source;
        input.fd = Fd{raw::openat(AT_FDCWD, source.c_str(), O_RDONLY | O_CLOEXEC)};
    }
    const int rc = input.fd ? raw::fstat(input.fd.get(), &input.status) : input.fd.error();
    if (rc < 0)
        return fail(cannot_import, -rc, input.called);
    if (source == "-") {
        if (::isatty(STDIN_FILENO) != 0)
            return refuse(cannot_import, input.called, "it is a terminal",
                          "an archive comes through a pipe, or from a file that is named");
        return input;
    }
    if (S_ISDIR(input.status.st_mode)) {
        if (is_transport_directory(input.fd))
            return refuse(cannot_import, input.called, "it is an image in the form dir:",
                          "skopeo copy dir:FOLDER oci:OTHER makes a layout of it");
        const bool is_layout = raw::faccessat(input.fd.get(), "oci-layout", F_OK) == 0;
        input.kind = is_layout ? Job::Kind::layout : Job::Kind::folder;
        // What a layout has changes with its index only.
        if (is_layout)
            (void)raw::fstatat(input.fd.get(), "index.json", &input.status, AT_SYMLINK_NOFOLLOW);
    }
    input.is_file = S_ISREG(input.status.st_mode) && input.kind == Job::Kind::archive;
    return input;
}

bool is_same(const struct ::stat& one, const struct ::stat& other)
{
    const auto same = [](const timespec& a, const timespec& b) {
        return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
    };
    return one.st_size == other.st_size && one.st_ino == other.st_ino &&
           one.st_dev == other.st_dev && same(one.st_mtim, other.st_mtim) &&
           same(one.st_ctim, other.st_ctim);
}

/// Whether a change from now on would show in the times: they are those of the last tick of the
/// clock, and of whole seconds on some file systems. Waits for a tick, not for a second.
bool can_tell_changes(const struct ::stat& file)
{
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    const std::int64_t age =
        (now.tv_sec - file.st_ctim.tv_sec) * 1000 + (now.tv_nsec - file.st_ctim.tv_nsec) / 1000000;
    constexpr std::int64_t tick = 20;
    constexpr std::int64_t coarse = 2100;
    if (age > coarse)
        return true;
    if (age < 0 || file.st_ctim.tv_nsec == 0)
        return false;
    if (age < tick) {
        const timespec pause{0, tick * 1000000};
        ::nanosleep(&pause, nullptr);
    }
    return true;
}

Result<Ownership> ownership_for(std::optional<Owners> wish, std::vector<std::string>& notes)
{
    Ownership ownership = best_ownership();
    const bool is_root = raw::call(SYS_geteuid) == 0;
    if (!wish) {
        if (ownership.owners == Owners::recorded)
            notes.push_back("all files belong to you, their owners are in the manifest only: " +
                            why_no_subordinate_ids(ownership.ids));
        return ownership;
    }
    if (*wish == Owners::subordinate) {
        if (is_root)
            return refuse(cannot_import, "with subordinate ids", "root has all ids",
                          "--owners auto, or as an ordinary user");
        if (const std::string why = why_no_subordinate_ids(ownership.ids); !why.empty())
            return refuse(cannot_import, "with subordinate ids", why,
                          "usermod --add-subuids and --add-subgids, or --owners recorded");
    }
    ownership.owners = *wish;
    return ownership;
}

/// A new root in a staging folder, with all its files.
struct Build {
    const Store& store;
    Staging staging;
    bool is_published = false;

    Build(const Store& store_, Staging staging_) : store(store_), staging(std::move(staging_)) {}
    Build(const Build&) = delete;
    Build& operator=(const Build&) = delete;
    ~Build()
    {
        if (!is_published)
            (void)discard(store, staging);
    }
};

Result<Outcome> run_unpacking(const Build& build, Job job, const std::vector<std::string>& stack)
{
    const int at = build.staging.folder.get();
    if (const int rc = raw::mkdirat(at, "tree", 0700); rc < 0)
        return fail(cannot_import, -rc, "tree");
    const Fd tree{raw::openat(at, "tree", open_folder)};
    const Fd manifest{raw::openat(at, "manifest", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600)};
    if (!tree || !manifest)
        return fail(cannot_import, -(tree ? manifest.error() : tree.error()), "a staging folder");
    job.spool = at;
    job.manifest = manifest.get();
    Fd mounted;
    Fd upper;
    std::optional<Error> wrong;
    std::function<void()> before;
    if (!stack.empty())
        before = [&] {
            Result<Fd> mount = mount_stack(stack);
            if (mount)
                mounted = std::move(*mount);
            else
                wrong = std::move(mount).error();
            job.input = mounted.get();
            upper = Fd{raw::openat(AT_FDCWD, stack.front().c_str(), open_folder)};
            if (!upper && !wrong)
                wrong = Error{-upper.error(), "Can't open", stack.front(), {}, {}};
            job.upper = upper.get();
        };
    const auto run = [&](const Site& site) {
        return encode(wrong ? Result<Outcome>{tl::make_unexpected(*wrong)} : unpack(job, site));
    };
    const std::string said =
        TRY(in_tree(tree.get(), job.ownership, {job.input, job.spool, job.manifest}, run, before));
    return decode(said);
}

bool says_something(const Image& image)
{
    return !image.environment.empty() || !image.entrypoint.empty() || !image.command.empty() ||
           !image.user.empty() || !image.working_directory.empty();
}

/// The same for the same settings, on every machine.
std::string sha256_with(const std::string& content, const Image& image)
{
    std::string text = "settings " + content;
    const auto add = [&](const std::string& value) {
        text += "\n" + std::to_string(value.size()) + " " + value;
    };
    for (const auto* values : {&image.environment, &image.entrypoint, &image.command}) {
        add(std::to_string(values->size()));
        for (const std::string& value : *values)
            add(value);
    }
    add(image.user);
    add(image.working_directory);
    return sha256_of(text);
}

struct Address {
    std::string digest;  ///< Empty where only the manifest will tell.
    std::string of;
    bool is_remembered = false;
};

Result<Address> address_of(const Store& store, const Input& input, const std::string& image)
{
    Address address{"", "manifest"};
    if (input.kind == Job::Kind::layout && image.empty()) {
        if (const std::optional<std::string> known = store.remembered(input.status))
            return Address{*known, "image", true};
        return address;
    }
    if (!input.is_file)
        return address;
    address.of = "file";
    if (const std::optional<std::string> known = store.remembered(input.status)) {
        address.digest = *known;
        address.is_remembered = true;
    } else {
        address.digest = TRY(sha256_of_file(input.fd.get(), input.called));
    }
    if (!image.empty()) {
        address.digest = sha256_of(address.digest + "\n" + image);
        address.of = "image";
        address.is_remembered = true;  // Not by the file alone.
    }
    return address;
}

/// What is there already fits, or an error.
Result<> check_owners(const Store& store, const std::string& digest, std::optional<Owners> wish)
{
    const std::optional<Use> use = TRY(store.use(digest));
    if (!use || !wish || use->info.owners == *wish)
        return {};
    return refuse(cannot_import, digest,
                  std::string{"it is in the store with --owners "} + name_of(use->info.owners),
                  "nsbox rootfs rm removes that");
}

Result<std::string> unpack_and_publish(const Store& store, const ImportRequest& request,
                                       const Input& input, const Address& address,
                                       const Ownership& ownership, Imported& imported)
{
    Build build{store, TRY(store.stage())};
    Job job;
    job.kind = input.kind;
    job.input = input.fd.get();
    job.is_file = input.is_file;
    job.called = input.called;
    job.total = input.is_file ? static_cast<std::uint64_t>(input.status.st_size) : 0;
    job.limits = request.limits;
    job.image = request.image;
    job.ownership = ownership;
    job.lower = input.lower;
    Outcome outcome = TRY(run_unpacking(build, job, input.stack));

    struct ::stat now;
    if (input.is_file && (raw::fstat(input.fd.get(), &now) < 0 || !is_same(now, input.status)))
        return refuse(cannot_import, input.called, "it changed while it was read");
    Info info;
    info.digest = address.digest;
    info.digest_of = address.of;
    if (info.digest.empty() && input.kind == Job::Kind::layout) {
        info.digest = sha256_of("image " + outcome.image_digest);
        info.digest_of = "image";
    }
    if (says_something(input.image)) {
        info.digest = sha256_with(outcome.content, input.image);
        info.digest_of = "image";
        outcome.image = input.image;
    }
    if (info.digest.empty())
        info.digest = outcome.content;
    info.manifest = outcome.content;
    info.source = input.called;
    info.imported = ::time(nullptr);
    info.members = outcome.members;
    info.size = outcome.size;
    info.owners = ownership.owners;
    info.subordinate = ownership.ids;
    info.image = std::move(outcome.image);
    info.notes = outcome.notes;
    TRY(write_all(build.staging.folder.get(), "info.json", to_json(info)));
    TRY(write_all(build.staging.folder.get(), "lock", ""));
    build.is_published = TRY(store.publish(build.staging, info.digest));
    imported.was_there = !build.is_published;
    for (std::string& note : outcome.notes)
        imported.notes.push_back(std::move(note));
    return info.digest;
}

/// With the owners that were asked for, or the best that are to be had.
Result<std::string> unpack_with_owners(const Store& store, const ImportRequest& request,
                                       const Input& input, const Address& address,
                                       Imported& imported)
{
    Ownership ownership = TRY(ownership_for(request.owners, imported.notes));
    Result<std::string> done =
        unpack_and_publish(store, request, input, address, ownership, imported);
    // That the ids are there does not mean that they can be used. Nothing was read then.
    if (!done && !request.owners && ownership.owners == Owners::subordinate &&
        done.error().op.view() == cannot_confine.view()) {
        imported.notes.push_back("all files belong to you, their owners are in the manifest "
                                 "only: " +
                                 done.error().message());
        ownership = {Owners::recorded, {}};
        done = unpack_and_publish(store, request, input, address, ownership, imported);
    }
    return done;
}

}  // namespace

Result<std::string> in_tree(int tree, const Ownership& ownership, std::vector<int> keep,
                            const std::function<std::string(const Site&)>& function,
                            const std::function<void()>& before)
{
    constexpr std::size_t most = std::size_t{64} << 20;
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) < 0)
        return fail("Can't start a process", errno, "pipe2");
    const Fd ours{ends[0]};
    Fd theirs{ends[1]};
    keep.push_back(theirs.get());
    const auto run = [&](const Site& site) {
        const std::string text = function(site);
        for (std::size_t at = 0; at < text.size();) {
            const long put = raw::write(theirs.get(), text.data() + at, text.size() - at);
            if (put == -EINTR)
                continue;
            if (put < 0)
                return 1;
            at += static_cast<std::size_t>(put);
        }
        return 0;
    };
    Confined confined = TRY(Confined::start(tree, ownership, std::move(keep), run, before));
    theirs.reset();
    std::string text;
    std::array<char, 65536> part;
    for (long got = 1; got > 0 || got == -EINTR;) {
        got = raw::read(ours.get(), part.data(), part.size());
        if (got > 0 && text.size() < most)
            text.append(part.data(), static_cast<std::size_t>(got));
    }
    if (const int status = confined.wait(); status != 0)
        return refuse("The process that works on the tree failed", {},
                      status > 128 ? "signal " + std::to_string(status - 128)
                                   : "status " + std::to_string(status));
    return text;
}

Result<> discard(const Store& store, const Staging& staging)
{
    // What belongs to subordinate ids, their owner alone can remove.
    int rc = remove_content(staging.folder.get());
    if (rc < 0 && raw::call(SYS_geteuid) != 0) {
        const std::string said =
            TRY(in_tree(staging.folder.get(), best_ownership(), {}, [](const Site& site) {
                drop_other_capabilities();
                return std::to_string(remove_content(site.root));
            }));
        rc = said == "0" ? 0 : rc;
    }
    if (rc < 0)
        return fail("Can't remove all of", -rc, store.path() + "/staging/" + staging.name);
    store.remove_staging(staging);
    return {};
}

std::size_t discard_dead(const Store& store)
{
    std::size_t count = 0;
    for (const Staging& dead : store.dead_stagings())
        count += discard(store, dead) ? 1 : 0;
    return count;
}

Result<Imported> import(const Store& store, const ImportRequest& request)
{
    Imported imported;
    if (request.name)
        TRY(check_name(*request.name));
    Input input = TRY(open_input(request.source));
    if (!request.called.empty())
        input.called = request.called;
    const bool can_remember =
        (input.is_file || input.kind == Job::Kind::layout) && can_tell_changes(input.status);
    (void)discard_dead(store);
    const Address address = TRY(address_of(store, input, request.image));
    Fd lock;
    if (!address.digest.empty())
        lock = TRY(store.lock_import(address.digest));
    imported.digest = address.digest;
    imported.was_there = !address.digest.empty() && store.has(address.digest);
    if (!imported.was_there) {
        imported.digest = TRY(unpack_with_owners(store, request, input, address, imported));
    }
    if (imported.was_there)
        TRY(check_owners(store, imported.digest, request.owners));
    if (can_remember && !address.is_remembered && request.image.empty())
        store.remember(input.status, imported.digest);
    if (request.name)
        TRY(store.set_name(*request.name, imported.digest));
    return imported;
}

Result<Imported> import_stack(const Store& store, const StackRequest& request)
{
    Imported imported;
    if (request.name)
        TRY(check_name(*request.name));
    (void)discard_dead(store);
    Input input;
    input.kind = Job::Kind::folder;
    input.called = request.called;
    input.stack = request.folders;
    input.image = request.image;
    input.lower = request.lower;
    const Address address{"", "manifest"};
    if (request.ownership)
        imported.digest =
            TRY(unpack_and_publish(store, {}, input, address, *request.ownership, imported));
    else
        imported.digest = TRY(unpack_with_owners(store, {}, input, address, imported));
    if (imported.was_there && request.ownership)
        TRY(check_owners(store, imported.digest, request.ownership->owners));
    if (request.name)
        TRY(store.set_name(*request.name, imported.digest));
    return imported;
}

}  // namespace nsbox::rootfs
