#include "runtime/init_image.hpp"

#include "sys/raw.hpp"
#include "tests/unit/support/files.hpp"

#include <doctest/doctest.h>

#include <cerrno>
#include <cstring>
#include <string>

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace nsbox;

namespace {

std::string tried(long rc)
{
    return rc < 0 ? ::strerrorname_np(errno) : "done";
}

/// What happens on every way to change a file.
std::string attempts_on(int fd)
{
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    const sys::Fd again{::open(path.c_str(), O_RDWR | O_CLOEXEC)};
    std::string text = "write " + tried(::pwrite(fd, "x", 1, 0));
    text += ", write by name " +
            (again ? tried(::pwrite(again.get(), "x", 1, 0)) : std::string{"not opened"});
    text += ", truncate " + tried(::ftruncate(fd, 1));
    text += ", grow " + tried(::ftruncate(fd, 1 << 20));
    void* const memory = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    text += ", map " + tried(memory == MAP_FAILED ? -1 : 0);
    if (memory != MAP_FAILED)
        ::munmap(memory, 4096);
    text += ", add a seal " + tried(::fcntl(fd, F_ADD_SEALS, F_SEAL_GROW));
    return text;
}

}  // namespace

TEST_CASE("init image: it is an executable in memory that nobody can change")
{
    const Result<sys::Fd> image = runtime::make_init_image();
    REQUIRE(image.has_value());
    const int fd = image->get();
    CHECK(::fcntl(fd, F_GETFD) == FD_CLOEXEC);
    CHECK(::fcntl(fd, F_GET_SEALS) == (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE));
    const std::string before = tests::contents_of(fd);
    CHECK(before.compare(0, 4,
                         "\x7f"
                         "ELF") == 0);
    // It may only be executed, which root's rights overrule.
    struct ::stat status {};
    REQUIRE(::fstat(fd, &status) == 0);
    CHECK((status.st_mode & 07777) == 0111);
    const std::string by_name = ::geteuid() == 0 ? "EPERM" : "not opened";
    CHECK(attempts_on(fd) == "write EPERM, write by name " + by_name +
                                 ", truncate EPERM, grow EPERM, map EPERM, add a seal EPERM");
    CHECK(tests::contents_of(fd) == before);
    // The same attempts on a file that is not sealed.
    const sys::Fd open_file{::memfd_create("open", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
    REQUIRE(::ftruncate(open_file.get(), 4096) == 0);
    CHECK(attempts_on(open_file.get()) ==
          "write done, write by name done, truncate done, grow done, map done, add a seal done");
}

TEST_CASE("init image: it needs nothing and ends at once when it is given nothing")
{
    Result<sys::Fd> image = runtime::make_init_image();
    REQUIRE(image.has_value());
    const std::string bytes = tests::contents_of(image->get());
    CHECK(bytes.size() < 16384);
    CHECK(bytes.find("/lib64/ld-linux") == std::string::npos);
}

TEST_CASE("init image: a copy of this program is sealed too")
{
    const Result<sys::Fd> image = runtime::make_own_image();
    REQUIRE(image.has_value());
    CHECK(::fcntl(image->get(), F_GETFD) == FD_CLOEXEC);
    const sys::Fd self{::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)};
    CHECK(tests::contents_of(image->get()) == tests::contents_of(self.get()));
    CHECK(::pwrite(image->get(), "x", 1, 0) < 0);
    CHECK(::fcntl(image->get(), F_GET_SEALS) ==
          (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE));
}
