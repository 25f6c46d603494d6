#include "nsbox/rootfs.hpp"

#include "rootfs/names.hpp"
#include "rootfs/store.hpp"
#include "sys/helper_program.hpp"
#include "sys/raw.hpp"

#include <array>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace nsbox {

struct Rootfs::State {
    std::string tree;
    std::string digest;
    Image image;
    Owners owners = Owners::as_they_are;
    StoredIds ids;
    sys::Fd lock;
};

namespace {

namespace raw = sys::raw;
using rootfs::Store;
using rootfs::Use;
using sys::Fd;

constexpr Literal cannot_open{"Can't open the root filesystem"};
constexpr Literal cannot_import{"Can't import the root filesystem"};

/// Executes nsbox-rootfs; its standard output.
Result<std::string> execute(const std::vector<std::string>& words)
{
    const std::string path = TRY(rootfs_program());
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) < 0)
        return fail(cannot_import, errno, "pipe2");
    const Fd ours{ends[0]};
    Fd theirs{ends[1]};
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    // Through a number above the standard ones: it may be one of them.
    ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), STDOUT_FILENO);
    ::posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
    std::vector<std::string> copies{"nsbox-rootfs"};
    copies.insert(copies.end(), words.begin(), words.end());
    std::vector<char*> argv;
    argv.reserve(copies.size() + 1);
    for (std::string& word : copies)
        argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_t pid = -1;
    const int rc = ::posix_spawn(&pid, path.c_str(), &actions, nullptr, argv.data(), environ);
    ::posix_spawn_file_actions_destroy(&actions);
    if (rc != 0)
        return fail(cannot_import, rc, path);
    theirs.reset();
    constexpr std::size_t most = 4096;
    std::string text;
    std::array<char, 512> part;
    for (long got = 1; got > 0 || got == -EINTR;) {
        got = raw::read(ours.get(), part.data(), part.size());
        if (got > 0 && text.size() < most)
            text.append(part.data(), static_cast<std::size_t>(got));
    }
    int status = 0;
    while (raw::wait4(pid, &status, 0) == -EINTR) {
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return refuse(cannot_import, words.back(), "nsbox-rootfs failed");
    return text;
}

Result<std::optional<Use>> use_known_file(const Store& store, const std::string& path)
{
    struct ::stat status;
    int rc = raw::fstatat(AT_FDCWD, path.c_str(), &status, 0);
    // What an image layout has changes with its index only.
    if (rc == 0 && S_ISDIR(status.st_mode))
        rc = raw::fstatat(AT_FDCWD, (path + "/index.json").c_str(), &status, 0);
    if (rc < 0)
        return std::nullopt;
    const std::optional<std::string> digest = store.remembered(status);
    if (!digest)
        return std::nullopt;
    return store.use(*digest);
}

Result<Use> use_imported(const std::string& path, const std::string& folder)
{
    // Whoever removes roots may be as quick as this.
    constexpr int most_attempts = 3;
    for (int attempt = 0; attempt < most_attempts; ++attempt) {
        if (const Result<Store> store = Store::open(folder, Store::IfMissing::fail))
            if (std::optional<Use> use = TRY(use_known_file(*store, path)))
                return std::move(*use);
        std::string text = TRY(execute({"--store", folder, "import", "--", path}));
        while (!text.empty() && text.back() == '\n')
            text.pop_back();
        const Store store = TRY(Store::open(folder, Store::IfMissing::fail));
        if (!rootfs::is_digest(text))
            return refuse(cannot_import, path, "nsbox-rootfs named no digest");
        if (std::optional<Use> use = TRY(store.use(text)))
            return std::move(*use);
    }
    return refuse(cannot_open, path, "it is removed again and again");
}

Result<std::optional<Use>> use_named(const std::string& word, const std::string& folder)
{
    if (word.find('/') != std::string::npos)
        return std::nullopt;
    const Result<Store> store = Store::open(folder, Store::IfMissing::fail);
    if (!store) {
        if (store.error().err == ENOENT)
            return std::nullopt;
        return tl::make_unexpected(store.error());
    }
    const std::optional<std::string> digest = TRY(store->find(word));
    if (!digest)
        return std::nullopt;
    return store->use(*digest);
}

}  // namespace

Result<std::string> rootfs_program()
{
    return sys::find_helper("nsbox-rootfs", "Can't start the importer of root filesystems");
}

Result<Rootfs> Rootfs::open(const std::string& what, const RootfsOptions& options)
{
    const std::string folder = TRY(store_folder(options));
    auto state = std::make_unique<State>();
    std::optional<Use> use = TRY(use_named(what, folder));
    if (!use) {
        struct ::stat status;
        const int rc = raw::fstatat(AT_FDCWD, what.c_str(), &status, 0);
        if (rc == -ENOENT)
            return refuse(cannot_open, rootfs::in_quotes(what),
                          "the store has none of this name, and there is no such file or folder",
                          "nsbox rootfs ls lists those of the store");
        if (rc < 0)
            return fail(cannot_open, -rc, what);
        if (S_ISDIR(status.st_mode) &&
            raw::faccessat(AT_FDCWD, (what + "/oci-layout").c_str(), F_OK) < 0) {
            std::array<char, PATH_MAX> path;
            if (::realpath(what.c_str(), path.data()) == nullptr)
                return fail(cannot_open, errno, what);
            state->tree = path.data();
            return Rootfs{std::move(state)};
        }
        use = TRY(use_imported(what, folder));
    }
    state->tree = use->path + "/tree";
    state->digest = use->info.digest;
    state->image = std::move(use->info.image);
    state->owners = use->info.owners;
    state->ids = use->info.subordinate;
    state->lock = std::move(use->lock);
    return Rootfs{std::move(state)};
}

Rootfs::Rootfs(std::unique_ptr<State> state) noexcept : state_(std::move(state)) {}
Rootfs::Rootfs(Rootfs&&) noexcept = default;
Rootfs& Rootfs::operator=(Rootfs&&) noexcept = default;
Rootfs::~Rootfs() = default;

const std::string& Rootfs::tree() const noexcept
{
    return state_->tree;
}

const std::string& Rootfs::digest() const noexcept
{
    return state_->digest;
}

const Image& Rootfs::image() const noexcept
{
    return state_->image;
}

Owners Rootfs::owners() const noexcept
{
    return state_->owners;
}

const StoredIds& Rootfs::subordinate_ids() const noexcept
{
    return state_->ids;
}

std::vector<int> Rootfs::descriptors() const
{
    if (!state_->lock)
        return {};
    return {state_->lock.get()};
}

}  // namespace nsbox
