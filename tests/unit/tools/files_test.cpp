#include <files.hpp>

#include <doctest/doctest.h>

#include <cstdlib>
#include <filesystem>
#include <unistd.h>

using namespace nsbox::tool;

TEST_CASE("files: an absolute path has no links on the way, but keeps one at its end")
{
    namespace fs = std::filesystem;
    char name[] = "/tmp/nsbox-files-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    const std::string base = fs::canonical(name);
    fs::create_directories(base + "/real/inner");
    fs::create_directory_symlink("real", base + "/link");
    const std::string before = fs::current_path();
    fs::current_path(base + "/real");
    CHECK(absolute(".") == base + "/real");
    CHECK(absolute("..") == base);
    CHECK(absolute("inner") == base + "/real/inner");
    CHECK(absolute("./inner/") == base + "/real/inner");
    CHECK(absolute(base + "/link/inner") == base + "/real/inner");
    CHECK(absolute(base + "/link") == base + "/link");
    CHECK(absolute("/") == "/");
    CHECK(absolute("//") == "/");
    CHECK(absolute("/tmp").has_value());
    CHECK_FALSE(absolute("missing").has_value());
    CHECK_FALSE(absolute("").has_value());
    fs::current_path(before);
    fs::remove_all(base);
}

TEST_CASE("files: a file is read whole, and one that is missing says why")
{
    CHECK(read_file("/proc/self/comm").value_or("").size() > 1);
    CHECK_FALSE(read_file("/nonexistent").has_value());
    CHECK(errno == ENOENT);
}
