#include "sys/helper_program.hpp"

#include "sys/raw.hpp"

#include <array>
#include <unistd.h>

namespace nsbox::sys {

Result<std::string> find_helper(const std::string& name, Literal op)
{
    std::array<char, 4096> text;
    const long got = raw::readlinkat(AT_FDCWD, "/proc/self/exe", text.data(), text.size());
    const std::string own(text.data(), got > 0 ? static_cast<std::size_t>(got) : 0);
    const std::string beside = own.substr(0, own.rfind('/') + 1) + name;
    const std::string installed = NSBOX_HELPER_DIR "/" + name;
    for (const std::string& path : {beside, installed})
        if (raw::faccessat(AT_FDCWD, path.c_str(), X_OK) == 0)
            return path;
    return fail(op, ENOENT, beside, "nor is it " + installed);
}

}  // namespace nsbox::sys
