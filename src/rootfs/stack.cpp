#include "rootfs/stack.hpp"

#include "sys/raw.hpp"

#include <cerrno>

namespace nsbox::rootfs {

namespace {

namespace raw = sys::raw;
using sys::Fd;

constexpr Literal cannot_mount{"Can't mount the overlay of"};

int configure(const Fd& fs, const char* key, const std::string& value)
{
    return raw::fsconfig(fs.get(), FSCONFIG_SET_STRING, key, value.c_str(), 0);
}

int configure_all(const Fd& fs, const std::vector<Fd>& layers)
{
    // By their descriptors: such names are short, the kernel takes 255 bytes, and need no escaping.
    // "lowerdir+" has no advantage for so few and is not known before Linux 6.7.
    std::string names;
    for (const Fd& layer : layers)
        names += (names.empty() ? "" : ":") + ("/proc/self/fd/" + std::to_string(layer.get()));
    int rc = configure(fs, "lowerdir", names);
    if (rc == 0)
        rc = raw::fsconfig(fs.get(), FSCONFIG_SET_FLAG, "userxattr", nullptr, 0);
    for (const char* const key : {"index", "xino"})
        if (rc == 0)
            rc = configure(fs, key, "off");
    return rc == 0 ? raw::fsconfig(fs.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) : rc;
}

}  // namespace

Result<Fd> mount_stack(const std::vector<std::string>& folders)
{
    std::vector<Fd> layers;
    for (const std::string& path : folders) {
        layers.emplace_back(raw::openat(AT_FDCWD, path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
        if (!layers.back())
            return fail("Can't open", -layers.back().error(), path);
    }
    const std::string& top = folders.front();
    const Fd fs{raw::fsopen("overlay")};
    if (!fs)
        return fail(cannot_mount, -fs.error(), top,
                    fs.error() == -ENODEV ? "this kernel has no overlayfs"
                                          : "user namespaces have to be allowed, or run this as "
                                            "root");
    if (const int rc = configure_all(fs, layers); rc < 0)
        return fail(cannot_mount, -rc, top,
                    rc == -EPERM ? "before Linux 5.11 only root can do that" : "");
    const Fd mount{
        raw::fsmount(fs.get(), MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)};
    Fd root{mount ? raw::openat(mount.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                  : mount.error()};
    if (!root)
        return fail(cannot_mount, -root.error(), top);
    return root;
}

}  // namespace nsbox::rootfs
