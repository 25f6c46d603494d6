// A store made by hand: what Rootfs::open() finds in it, and what keeps it there.

#include "nsbox/rootfs.hpp"
#include "rootfs/store.hpp"
#include "sys/raw.hpp"

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

using namespace nsbox;
using namespace nsbox::rootfs;

namespace {

/// A folder of its own, gone at the end.
class Folder {
public:
    Folder()
    {
        std::string text = "/tmp/nsbox-store-XXXXXX";
        REQUIRE(::mkdtemp(text.data()) != nullptr);
        path = text;
    }
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    ~Folder() { std::filesystem::remove_all(path); }

    std::string path;
};

void make_root(const Store& store, const std::string& digest)
{
    Result<Staging> staging = store.stage();
    REQUIRE(staging);
    Info info;
    info.digest = digest;
    info.image.working_directory = "/w";
    const int at = staging->folder.get();
    REQUIRE(sys::raw::mkdirat(at, "tree", 0755) == 0);
    REQUIRE(write_all(at, "info.json", to_json(info)));
    REQUIRE(write_all(at, "lock", ""));
    const Result<bool> is_new = store.publish(*staging, digest);
    REQUIRE(is_new);
    CHECK(*is_new);
}

}  // namespace

TEST_CASE("a root is found by name and by the beginning of its digest, and stays while it is held")
{
    const Folder folder;
    const RootfsOptions options{folder.path + "/a/store"};
    const Result<Store> store = Store::open(options.store, Store::IfMissing::make);
    REQUIRE(store);
    const std::string digest = "01234567" + std::string(56, 'f');
    make_root(*store, digest);
    REQUIRE(store->set_name("name", digest));
    for (const std::string& word : {std::string{"name"}, digest, digest.substr(0, 8)}) {
        const Result<Rootfs> root = Rootfs::open(word, options);
        REQUIRE(root);
        CHECK(root->digest() == digest);
        CHECK(root->tree() == options.store + "/roots/" + digest + "/tree");
        CHECK(root->image().working_directory == "/w");
        CHECK(root->descriptors().size() == 1);
        CHECK(store->take_out(digest, "it").error().reason == "it is in use");
    }
    CHECK_FALSE(Rootfs::open("other", options));
    CHECK_FALSE(Rootfs::open("name", RootfsOptions{folder.path + "/none"}));
    const Result<Staging> removed = store->take_out(digest, "it");
    REQUIRE(removed);
    CHECK_FALSE(store->has(digest));
    CHECK_FALSE(Rootfs::open("name", options));
}

TEST_CASE("a beginning that two digests have is refused")
{
    const Folder folder;
    const RootfsOptions options{folder.path};
    const Result<Store> store = Store::open(options.store, Store::IfMissing::make);
    REQUIRE(store);
    make_root(*store, "01234567a" + std::string(55, 'f'));
    make_root(*store, "01234567b" + std::string(55, 'f'));
    CHECK(Rootfs::open("01234567b", options));
    CHECK(Rootfs::open("01234567", options).error().reason == "several begin like that");
}

TEST_CASE("a folder is used as it is, and a name of the store goes before it")
{
    const Folder folder;
    const RootfsOptions options{folder.path + "/store"};
    const Result<Store> store = Store::open(options.store, Store::IfMissing::make);
    REQUIRE(store);
    const std::string tree = folder.path + "/tree";
    std::filesystem::create_directory(tree);
    const Result<Rootfs> root = Rootfs::open(tree + "/../tree", options);
    REQUIRE(root);
    CHECK(root->tree() == tree);
    CHECK(root->digest().empty());
    CHECK(root->owners() == Owners::as_they_are);
    CHECK(root->descriptors().empty());

    const std::string digest(64, '5');
    make_root(*store, digest);
    REQUIRE(store->set_name("tree", digest));
    const std::filesystem::path before = std::filesystem::current_path();
    std::filesystem::current_path(folder.path);
    CHECK(Rootfs::open("tree", options)->digest() == digest);
    CHECK(Rootfs::open("./tree", options)->tree() == tree);
    std::filesystem::current_path(before);
}

TEST_CASE("a file whose digest is remembered needs no importer, until it changes")
{
    const Folder folder;
    const RootfsOptions options{folder.path + "/store"};
    const Result<Store> store = Store::open(options.store, Store::IfMissing::make);
    REQUIRE(store);
    const std::string path = folder.path + "/archive";
    std::ofstream{path} << "what it holds does not matter";
    struct ::stat status;
    REQUIRE(sys::raw::fstatat(AT_FDCWD, path.c_str(), &status, 0) == 0);
    const std::string digest(64, '6');
    make_root(*store, digest);
    store->remember(status, digest);
    CHECK(Rootfs::open(path, options)->digest() == digest);
    std::ofstream{path, std::ios::app} << "!";
    REQUIRE(sys::raw::fstatat(AT_FDCWD, path.c_str(), &status, 0) == 0);
    CHECK_FALSE(store->remembered(status));
}

TEST_CASE("a store that others may write to is refused")
{
    const Folder folder;
    REQUIRE(Store::open(folder.path, Store::IfMissing::make));
    std::filesystem::permissions(folder.path, std::filesystem::perms{0777});
    CHECK_FALSE(Store::open(folder.path, Store::IfMissing::make));
}

TEST_CASE("a staging folder is dead when nobody has its lock")
{
    const Folder folder;
    const Result<Store> store = Store::open(folder.path, Store::IfMissing::make);
    REQUIRE(store);
    {
        const Result<Staging> staging = store->stage();
        REQUIRE(staging);
        CHECK(store->dead_stagings().empty());
    }
    const std::vector<Staging> dead = store->dead_stagings();
    REQUIRE(dead.size() == 1);
    store->remove_staging(dead[0]);
    CHECK(store->dead_stagings().empty());
}
