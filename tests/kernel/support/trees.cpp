#include "tests/kernel/support/trees.hpp"

#include "tests/unit/support/files.hpp"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <stdexcept>
#include <system_error>

#include <sys/mount.h>
#include <sys/stat.h>

namespace nsbox::tests {

namespace {

namespace fs = std::filesystem;

void require(int rc, const std::string& what)
{
    if (rc < 0)
        throw std::system_error{errno, std::generic_category(), what};
}

/// Few names, so that random paths meet random files; one is as long as a name may be.
const std::vector<std::string>& names()
{
    static const std::vector<std::string> list{"a", "b", "c", "d", "e", std::string(255, 'n')};
    return list;
}

std::string random_text(Random& random, std::size_t most)
{
    const std::vector<std::string> odd{"..", ".", "..", "", "missing", std::string(256, 'n'),
                                       "..."};
    std::string text = random.one_in(3) ? "/" : "";
    for (std::size_t n = 1 + random.below(most); n > 0; --n) {
        text += random.one_in(3) ? random.of(odd) : random.of(names());
        if (n > 1)
            text += "/";
    }
    if (random.one_in(12))
        text += "/";
    if (random.one_in(20))
        text = "/outside" + text;
    return text.empty() ? "." : text;
}

void grow(const std::string& top, Random& random, int depth)
{
    for (const std::string& name : names()) {
        const std::string path = top + "/" + name;
        switch (random.below(depth > 0 ? 8 : 5)) {
        case 0:
            make_file(path);
            break;
        case 1:
        case 2:
            make_link(random_text(random, 4), path);
            break;
        case 3:
            break;
        case 4:
            make_folder(path);
            break;
        default:
            make_folder(path);
            grow(path, random, depth - 1);
            break;
        }
    }
}

}  // namespace

std::string listing(const std::string& top)
{
    std::vector<std::string> lines;
    for (const auto& entry : fs::recursive_directory_iterator{top}) {
        struct ::stat status {};
        require(::lstat(entry.path().c_str(), &status), entry.path());
        std::string line = entry.path().lexically_relative(top).string();
        char mode[16];
        std::snprintf(mode, sizeof mode, " %o", status.st_mode);
        line += mode;
        if (S_ISLNK(status.st_mode))
            line += " -> " + fs::read_symlink(entry.path()).string();
        lines.push_back(line);
    }
    std::sort(lines.begin(), lines.end());
    std::string text;
    for (const std::string& line : lines)
        text += line + "\n";
    return text;
}

void make_folder(const std::string& path)
{
    require(::mkdir(path.c_str(), 0755), path);
}

void make_file(const std::string& path)
{
    const sys::Fd file{::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0644)};
    require(file ? 0 : -1, path);
}

void make_link(const std::string& text, const std::string& path)
{
    require(::symlink(text.c_str(), path.c_str()), path);
}

void enter_arena()
{
    require(::mount("tmpfs", "/tmp", "tmpfs", 0, nullptr), "tmpfs");
    require(::chdir("/tmp"), "/tmp");
    ::umask(0);
    make_folder("root");
    make_folder("outside");
}

void grow_tree(const std::string& top, unsigned long seed)
{
    Random random{seed};
    grow(top, random, 3);
    // A name that leads to a tree beside the root, for those who are let out of it.
    if (random.one_in(2))
        make_link("../outside", top + "/missing");
}

std::vector<std::string> random_paths(unsigned long seed, std::size_t count)
{
    Random random{seed + 1000};
    std::vector<std::string> paths;
    for (std::size_t i = 0; i < count; ++i) {
        std::string path = random_text(random, 6);
        // Destinations reach the resolver without slashes at their end.
        while (path.size() > 1 && path.back() == '/')
            path.pop_back();
        paths.push_back(path);
    }
    return paths;
}

}  // namespace nsbox::tests
