#include "rootfs/stack.hpp"

#include "sys/raw.hpp"

#include <cerrno>

namespace nsbox::rootfs {

namespace {

namespace raw = sys::raw;
using sys::Fd;

constexpr Literal cannot_mount{"Can't mount the overlay of"};

/// A layer by its descriptor: a name that needs no escaping.
std::string layer_name(const Fd& folder)
{
    return "/proc/self/fd/" + std::to_string(folder.get());
}

int configure(const Fd& fs, const char* key, const std::string& value)
{
    return raw::fsconfig(fs.get(), FSCONFIG_SET_STRING, key, value.c_str(), 0);
}

int configure_layers(const Fd& fs, const std::vector<Fd>& layers)
{
    std::string all;
    bool has_single = true;
    for (std::size_t i = 0; i < layers.size(); ++i) {
        const std::string name = layer_name(layers[i]);
        all += (i == 0 ? "" : ":") + name;
        if (!has_single)
            continue;
        const int rc = configure(fs, "lowerdir+", name);
        // Linux before 6.7 takes them in one text only.
        if (rc == -EINVAL && i == 0)
            has_single = false;
        else if (rc < 0)
            return rc;
    }
    return has_single ? 0 : configure(fs, "lowerdir", all);
}

int configure_all(const Fd& fs, const std::vector<Fd>& layers)
{
    int rc = configure_layers(fs, layers);
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
