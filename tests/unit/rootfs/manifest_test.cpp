// The manifest's text, and what the processes and files of the store say.

#include "rootfs/info.hpp"
#include "rootfs/manifest.hpp"
#include "rootfs/sha256.hpp"
#include "rootfs/unpack.hpp"

#include <doctest/doctest.h>

using namespace nsbox;
using namespace nsbox::rootfs;
using Type = Entry::Type;

namespace {

Entry entry(Type type, std::string path)
{
    Entry made;
    made.type = type;
    made.path = std::move(path);
    if (type != Type::hard_link)
        made.mode = 0755;
    return made;
}

Manifest one_of_each()
{
    Manifest all;
    all.push_back(entry(Type::directory, "."));
    Entry device = entry(Type::character_device, "c");
    device.major = 1;
    device.minor = 3;
    all.push_back(device);
    Entry file = entry(Type::file, "f \n\\\xff");
    file.mode = 04755;
    file.uid = 1000;
    file.gid = 4294967295;
    file.seconds = -5;
    file.nanoseconds = 7;
    file.size = 3;
    file.content = std::string(64, 'a');
    file.attributes = {{"user.a b", std::string{"\0\xff", 2}}, {"user.empty", ""}};
    all.push_back(file);
    Entry hard = entry(Type::hard_link, "h");
    hard.target = file.path;
    all.push_back(hard);
    Entry link = entry(Type::symlink, "l");
    link.target = "../x y";
    all.push_back(link);
    all.push_back(entry(Type::fifo, "p"));
    return all;
}

}  // namespace

TEST_CASE("a manifest's text says all that is in it, and is read again")
{
    const std::string text = to_text(one_of_each());
    CHECK(text == "nsbox manifest 1\n"
                  "d 0755 0 0 0.000000000 .\n"
                  "c 0755 0 0 0.000000000 1:3 c\n"
                  "f 4755 1000 4294967295 -5.000000007 3 " +
                      std::string(64, 'a') +
                      " f\\040\\012\\134\\377\n"
                      "x user.a\\040b 00ff\n"
                      "x user.empty \n"
                      "h h f\\040\\012\\134\\377\n"
                      "l 0755 0 0 0.000000000 l ../x\\040y\n"
                      "p 0755 0 0 0.000000000 p\n");
    const Result<Manifest> again = parse_manifest(text, "m");
    REQUIRE(again);
    CHECK(to_text(*again) == text);
    CHECK(again->at(2).attributes == one_of_each().at(2).attributes);
}

TEST_CASE("a manifest that nobody could have written is refused")
{
    const std::string good = "nsbox manifest 1\nd 0755 0 0 0.000000000 a\n";
    REQUIRE(parse_manifest(good, "m"));
    for (const std::string& bad :
         {std::string{}, std::string{"nsbox manifest 2\n"}, good.substr(0, good.size() - 1),
          good + "\n", good + "d 0755 0 0 0.000000000 a\n", good + "d 0755 0 0 0.000000000 ../b\n",
          good + "d 0755 0 0 0.000000000 /b\n", good + "d 0755 0 0 0.000000000 b extra\n",
          good + "d 00755 0 0 0.000000000 b\n", good + "d 0755 00 0 0.000000000 b\n",
          good + "d 0755 0 0 0.0 b\n", good + "d 0755 0 0 0.000000000 \\142\n",
          good + "d 10755 0 0 0.000000000 b\n", good + "q 0755 0 0 0.000000000 b\n",
          good + "f 0644 0 0 0.000000000 1 abc b\n", std::string{"nsbox manifest 1\nx user.a 00\n"},
          good + "x user.a 0\n", good + "d 0755 0 0 0.000000000 \\1\n"})
        CHECK_FALSE(parse_manifest(bad, "m"));
}

TEST_CASE("what the store knows about a root is read again, and nothing else is taken for it")
{
    Info info;
    info.digest = std::string(64, 'd');
    info.digest_of = "file";
    info.manifest = std::string(64, 'e');
    info.source = "a \"b\"";
    info.imported = 1234567890;
    info.members = 5;
    info.size = std::uint64_t{1} << 40;
    info.owners = Owners::subordinate;
    info.subordinate = {100000, 200000, 65536};
    info.image = {{"A=b"}, {"/e"}, {"c", "d"}, "1:2", "/w"};
    info.notes = {"one"};
    const std::string text = to_json(info);
    const Result<Info> again = parse_info(text, "i");
    REQUIRE(again);
    CHECK(to_json(*again) == text);
    CHECK(again->subordinate.first_gid == 200000);
    CHECK(again->image.command == info.image.command);
    for (const char* const bad :
         {"", "{", "[]", "null", "{}", R"({"version": 2})",
          R"({"version": 1, "digest": "x", "owners": "recorded"})", R"({"version": "1"})"})
        CHECK_FALSE(parse_info(bad, "i"));
    info.source = "\xff";
    CHECK(parse_info(to_json(info), "i"));
}

TEST_CASE("the process that unpacks tells what became of it, or why nothing did")
{
    Outcome outcome;
    outcome.members = 2;
    outcome.content = std::string(64, 'a');
    outcome.image.environment = {"A=b", "C=d"};
    outcome.notes = {"note"};
    const std::string bytes = encode(outcome);
    const Result<Outcome> again = decode(bytes);
    REQUIRE(again);
    CHECK(again->image.environment == outcome.image.environment);
    CHECK(again->notes == outcome.notes);
    CHECK(decode(encode(fail("Can't do", ENOENT, "it"))).error().message() ==
          "Can't do it: No such file or directory");
    for (std::size_t size = 0; size < bytes.size(); ++size)
        CHECK_FALSE(decode(bytes.substr(0, size)));
    CHECK_FALSE(decode(bytes + "x"));
}

TEST_CASE("SHA-256 is that of FIPS 180-4, and starts anew each time")
{
    Sha256 sum;
    sum.add("a", 1);
    sum.add("bc", 2);
    CHECK(sum.take().size() == 32);
    CHECK(sha256_of("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    CHECK(sha256_of("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    sum.add("abc", 3);
    CHECK(sum.take()[0] == '\xba');
}
