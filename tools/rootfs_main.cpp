#include "rootfs_main.hpp"

#include "control_main.hpp"
#include "messages.hpp"

#include "nsbox/rootfs.hpp"

#include <cerrno>
#include <unistd.h>

namespace nsbox::tool {

int rootfs_main(const std::vector<std::string>& words)
{
    const Messages messages{"nsbox"};
    const Result<std::string> path = rootfs_program();
    if (!path) {
        messages.error(path.error().message());
        return control_failed;
    }
    std::vector<std::string> copies{"nsbox-rootfs"};
    copies.insert(copies.end(), words.begin(), words.end());
    std::vector<char*> argv;
    argv.reserve(copies.size() + 1);
    for (std::string& word : copies)
        argv.push_back(word.data());
    argv.push_back(nullptr);
    ::execv(path->c_str(), argv.data());
    messages.error(Error{errno, "Can't execute", *path, {}, {}}.message());
    return control_failed;
}

}  // namespace nsbox::tool
