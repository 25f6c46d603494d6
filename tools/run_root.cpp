#include "run_root.hpp"

#include "nsbox/rootfs.hpp"

namespace nsbox::tool {

Result<> open_root(RunRequest& run)
{
    run.base.as_root = run.as_root;
    if (!run.rootfs)
        return {};
    // Never destroyed: it is in use until the end.
    static Result<Rootfs> rootfs = Rootfs::open(*run.rootfs);
    if (!rootfs)
        return tl::make_unexpected(rootfs.error());
    run.base.use(*rootfs);
    run.request.held = rootfs->descriptors();
    return {};
}

}  // namespace nsbox::tool
