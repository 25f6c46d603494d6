#include "run_root.hpp"

#include "files.hpp"

#include <cerrno>

namespace nsbox::tool {

Result<RunRoot> open_root(RunRequest& run)
{
    RunRoot root;
    if (!run.rootfs)
        return root;
    const std::optional<std::string> folder = absolute(*run.rootfs);
    if (!folder)
        return tl::make_unexpected(
            Error{errno, "Can't open the root filesystem", *run.rootfs, {}, {}});
    run.base.root = *folder;
    return root;
}

}  // namespace nsbox::tool
