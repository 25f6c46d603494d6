// Names of root filesystems, of members of archives, and of layers' whiteouts.

#include "rootfs/archive.hpp"
#include "rootfs/names.hpp"

#include <doctest/doctest.h>

using namespace nsbox::rootfs;

TEST_CASE("a name has letters, digits and a few marks, and does not begin with one of these")
{
    for (const char* const good : {"a", "A9", "debian-12", "a.b_c-d", "0"})
        CHECK(is_name(good));
    for (const char* const bad : {"", ".", "..", "-a", "_a", ".a", "a/b", "a b", "\xc3\xa4", "a\n"})
        CHECK_FALSE(is_name(bad));
    CHECK(is_name(std::string(128, 'x')));
    CHECK_FALSE(is_name(std::string(129, 'x')));
    CHECK(check_name("a/b").error().reason == "this is no name");
}

TEST_CASE("a digest has 64 lower-case digits, the beginning of one eight at least")
{
    const std::string digest(64, 'a');
    CHECK(is_digest(digest));
    CHECK_FALSE(is_digest(digest + "a"));
    CHECK_FALSE(is_digest(std::string(64, 'A')));
    CHECK_FALSE(is_digest("../" + std::string(61, 'a')));
    CHECK(is_digest_prefix("01234567"));
    CHECK_FALSE(is_digest_prefix("0123456"));
    CHECK_FALSE(is_digest_prefix("0123456g"));
    CHECK(to_hex(std::string{"\x00\xff\x10", 3}) == "00ff10");
}

TEST_CASE("a member's name becomes a path below the root, or is refused")
{
    CHECK(member_path("a/b").value() == "a/b");
    CHECK(member_path("./a//b/./").value() == "a/b");
    CHECK(member_path(".").value() == ".");
    CHECK(member_path("./").value() == ".");
    CHECK(member_path("a/..b/...").value() == "a/..b/...");
    for (const char* const bad : {"", "/", "/a", "..", "../a", "a/..", "a/../b", "./.."})
        CHECK_FALSE(member_path(bad));
    CHECK_FALSE(member_path(std::string{"a\0b", 3}));
    CHECK(member_path(std::string(255, 'x')));
    CHECK(member_path(std::string(256, 'x')).error().reason ==
          "a part of its name is longer than 255 bytes");
    std::string longest;
    while (longest.size() + 101 < 4096)
        longest += std::string(100, 'd') + "/";
    CHECK(member_path(longest));
    CHECK(member_path(longest + std::string(100, 'd')).error().reason ==
          "its name is longer than 4095 bytes");
    CHECK(
        member_path("../x").error().message() ==
        "Can't unpack the member \"../x\": its name has \"..\" in it (hint: make the archive with "
        "names relative to the root, as in: tar -C TREE -c .)");
}

TEST_CASE("a hard link names a path below the root, or what is not in the tree")
{
    CHECK(link_path("./a", "h").value() == "a");
    for (const char* const bad : {"", ".", "/a", "../a"})
        CHECK_FALSE(link_path(bad, "h"));
}

TEST_CASE("a path ends in two")
{
    CHECK(folder_of("a/b/c") == "a/b");
    CHECK(last_of("a/b/c") == "c");
    CHECK(folder_of("c").empty());
    CHECK(last_of("c") == "c");
}

TEST_CASE("what a terminal could take as an order is escaped")
{
    CHECK(in_quotes("a b") == "\"a b\"");
    CHECK(in_quotes("\x1b[0m\n") == "\"\\033[0m\\012\"");
    CHECK(in_quotes("\"\\") == "\"\\042\\134\"");
    CHECK(in_quotes(std::string(1000, 'x')).size() < 400);
}

TEST_CASE("a size has a unit of 1024, or none")
{
    CHECK(parse_size("1").value() == 1);
    CHECK(parse_size("2k").value() == 2048);
    CHECK(parse_size("2K").value() == 2048);
    CHECK(parse_size("3M").value() == 3145728);
    CHECK(parse_size("1G").value() == 1073741824);
    for (const char* const bad :
         {"", "0", "k", "-1", "1T", "1kk", " 1", "1 ", "0x1", "9999999999G"})
        CHECK_FALSE(parse_size(bad));
    CHECK(size_text(999) == "999 B");
    CHECK(size_text(1000) == "1.0 kB");
    CHECK(size_text(999960) == "1.0 MB");
    CHECK(size_text(230'000'000) == "230.0 MB");
}

TEST_CASE("a layer's name may hide another, or all of a folder")
{
    const auto meaning = [](std::string path) {
        const Member::Kind kind = kind_of_layer_name(path);
        return std::pair{kind, path};
    };
    CHECK(meaning("a/b") == std::pair{Member::Kind::entry, std::string{"a/b"}});
    CHECK(meaning("a/.wh.b") == std::pair{Member::Kind::whiteout, std::string{"a/b"}});
    CHECK(meaning(".wh.b") == std::pair{Member::Kind::whiteout, std::string{"b"}});
    CHECK(meaning("a/.wh..wh..opq") == std::pair{Member::Kind::opaque, std::string{"a"}});
    CHECK(meaning(".wh..wh..opq") == std::pair{Member::Kind::opaque, std::string{"."}});
    CHECK(meaning(".wh.a/b") == std::pair{Member::Kind::entry, std::string{".wh.a/b"}});
}

TEST_CASE("the members of an image archive have names of their own kind")
{
    const auto looks = [](std::string path) {
        Entry entry;
        entry.path = std::move(path);
        return looks_like_image(entry);
    };
    const std::string digest(64, 'd');
    for (const std::string& path :
         {std::string{"manifest.json"}, std::string{"oci-layout"}, "blobs/sha256/" + digest,
          digest + "/layer.tar", digest, digest + ".json", digest + ".tar"})
        CHECK(looks(path));
    for (const std::string& path : {std::string{"."}, std::string{"bin"}, std::string{"etc/passwd"},
                                    digest + "/bin", "a" + digest + ".json"})
        CHECK_FALSE(looks(path));
}
