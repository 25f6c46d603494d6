#include "runtime/init_image.hpp"

#include "sys/raw.hpp"

#include "init_bytes.hpp"  // Generated: the program of src/runtime/init/.

#include <algorithm>
#include <cstring>
#include <linux/memfd.h>

namespace nsbox::runtime {

namespace {

namespace raw = sys::raw;

constexpr unsigned mfd_exec = 0x10;  // MFD_EXEC, Linux 6.3.
constexpr int f_add_seals = 1033;    // F_ADD_SEALS and its seals: fcntl(2).
constexpr long all_seals = 0x1 | 0x2 | 0x4 | 0x8;

int write_all(int fd, const unsigned char* data, std::size_t size)
{
    while (size > 0) {
        const long put = raw::write(fd, data, size);
        if (put == -EINTR)
            continue;
        if (put < 0)
            return static_cast<int>(put);
        data += put;
        size -= static_cast<std::size_t>(put);
    }
    return 0;
}

sys::Fd make_memfd(const char* name, unsigned flags)
{
    return sys::Fd{static_cast<int>(raw::call(SYS_memfd_create, name, flags))};
}

/// A block that is filled from the front; tables are aligned to 8 bytes.
class Block {
public:
    explicit Block(std::size_t header) : bytes_(header) {}

    std::uint32_t add_text(const char* text)
    {
        const auto offset = static_cast<std::uint32_t>(bytes_.size());
        bytes_.insert(bytes_.end(), text, text + std::strlen(text) + 1);
        return offset;
    }
    std::uint32_t add_bytes(const void* data, std::size_t size)
    {
        bytes_.resize((bytes_.size() + 7) & ~std::size_t{7});
        const auto offset = static_cast<std::uint32_t>(bytes_.size());
        const auto* from = static_cast<const unsigned char*>(data);
        bytes_.insert(bytes_.end(), from, from + size);
        return offset;
    }
    /// A table of the texts' offsets, ended by zero, as is a table of pointers by null.
    std::uint32_t add_texts(const std::vector<const char*>& texts)
    {
        std::vector<std::uint64_t> table;
        for (const char* text : texts)
            if (text != nullptr)
                table.push_back(add_text(text));
        table.push_back(0);
        return add_bytes(table.data(), table.size() * sizeof table[0]);
    }
    std::vector<unsigned char>& bytes() { return bytes_; }

private:
    std::vector<unsigned char> bytes_;
};

std::uint32_t add_filters(Block& block, const std::vector<std::vector<std::uint8_t>>& filters)
{
    std::vector<std::uint64_t> table;
    for (const std::vector<std::uint8_t>& program : filters) {
        table.push_back(block.add_bytes(program.data(), program.size()));
        table.push_back(program.size() / 8);
    }
    return block.add_bytes(table.data(), table.size() * sizeof(std::uint64_t));
}

PacketHeader fill(Block& block, const Plan& plan, int channel)
{
    PacketHeader header{};
    // First, so that its place does not depend on anything that follows: see lock_offset().
    std::vector<std::int32_t> keep(plan.keep_in_init.begin(), plan.keep_in_init.end());
    keep.resize(keep.size() + plan.lock_steps.size(), -1);
    header.keep = block.add_bytes(keep.data(), keep.size() * sizeof keep[0]);
    header.keep_count = static_cast<std::uint32_t>(keep.size());
    if (plan.init_enters_groups) {
        const std::vector<std::int32_t> lists(plan.entrances.begin(), plan.entrances.end());
        header.entrances = block.add_bytes(lists.data(), lists.size() * sizeof lists[0]);
        header.entrance_count = static_cast<std::uint32_t>(lists.size());
    }
    header.magic = packet_magic;
    header.channel = channel;
    const bool dies = plan.die_with_parent || plan.dies_with_starter;
    header.flags =
        (dies ? packet_die_with_parent : 0U) | (plan.through_init ? packet_only_command : 0U) |
        (plan.ends_with_command ? packet_end_with_command : 0U) |
        (plan.tells_command ? packet_tell_command : 0U) | (plan.subreaper ? packet_subreaper : 0U) |
        (plan.terminal ? packet_terminal : 0U) | (plan.filters_early ? packet_filter_early : 0U) |
        (plan.serves ? packet_serve : 0U) | (plan.is_bare ? packet_bare : 0U);
    header.supervisor = plan.supervisor ? plan.supervisor.get() : -1;
    header.children = header.proc = -1;  // The set-up child says where it is.
    header.program = plan.program.get();
    header.registry = -1;
    header.group = plan.group;
    header.group_name = plan.group_name.empty() ? 0 : block.add_text(plan.group_name.c_str());
    header.lifeline = plan.lifeline;
    header.helper = plan.helper;
    header.ruleset = -1;  // So does it here.
    header.ambient = plan.ambient;
    header.candidates = block.add_texts(plan.candidates);
    header.candidate_count = static_cast<std::uint32_t>(plan.candidates.size());
    header.argv = block.add_texts(plan.argv);
    header.envp = block.add_texts(plan.envp);
    header.shell_argv = block.add_texts(plan.shell_argv);
    header.filters = add_filters(block, plan.filters);
    header.filter_count = static_cast<std::uint32_t>(plan.filters.size());
    header.logged = add_filters(block, plan.logged_filters);
    header.logged_count = static_cast<std::uint32_t>(plan.logged_filters.size());
    std::copy(plan.pass.begin(), plan.pass.end(), header.pass);
    header.pwd_slot = static_cast<std::uint32_t>(plan.pwd_slot);
    for (std::size_t i = 0; i < pwd_choices; ++i)
        header.pwd[i] = block.add_text(plan.pwd[i]);
    for (std::size_t i = 0; i < pwd_choices; ++i)
        if (plan.directory[i] != nullptr)
            header.directory[i] = block.add_text(plan.directory[i]);
    header.size = static_cast<std::uint32_t>(block.bytes().size());
    return header;
}

}  // namespace

namespace {

sys::Fd make_executable_memfd(const char* name)
{
    const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    sys::Fd image = make_memfd(name, flags | mfd_exec);
    if (image.error() == -EINVAL)
        image = make_memfd(name, flags);
    return image;
}

}  // namespace

Result<sys::Fd> make_init_image()
{
    sys::Fd image = make_executable_memfd("init");
    if (!image)
        return fail("memfd_create", -image.error(), "init");
    int rc = write_all(image.get(), init_bytes, sizeof init_bytes);
    // A program that may not be read is not "dumpable" from its first instruction on: prctl(2).
    // One whose owner has no number in the sandbox is not even for those who have every capability
    // there: the kernel takes its memory for that of an outer user namespace.
    constexpr unsigned execute_only = 0111;
    constexpr unsigned nobody = 65534;
    if (rc == 0)
        rc = raw::fchmod(image.get(), execute_only);
    if (rc == 0 && raw::getuid() == 0) {
        rc = static_cast<int>(raw::call(SYS_fchown, image.get(), nobody, nobody));
        // Root without CAP_CHOWN, or in a user namespace that has no such id: then there is the
        // mode alone, and nothing of the caller in that memory.
        if (rc == -EPERM || rc == -EINVAL)
            rc = 0;
    }
    if (rc == 0)
        rc = raw::fcntl(image.get(), f_add_seals, all_seals);
    if (rc < 0)
        return fail("Can't make the init program", -rc);
    return image;
}

Result<sys::Fd> make_own_image()
{
    const sys::Fd self{raw::openat(AT_FDCWD, "/proc/self/exe", O_RDONLY | O_CLOEXEC)};
    if (!self)
        return fail("open", -self.error(), "/proc/self/exe");
    sys::Fd image = make_executable_memfd("self");
    if (!image)
        return fail("memfd_create", -image.error(), "self");
    std::vector<unsigned char> buffer(std::size_t{1} << 16);
    for (;;) {
        const long got = raw::read(self.get(), buffer.data(), buffer.size());
        if (got == -EINTR)
            continue;
        if (got < 0)
            return fail("read", static_cast<int>(-got), "/proc/self/exe");
        if (got == 0)
            break;
        const int rc = write_all(image.get(), buffer.data(), static_cast<std::size_t>(got));
        if (rc < 0)
            return fail("Can't copy this program", -rc);
    }
    const int rc = raw::fcntl(image.get(), f_add_seals, all_seals);
    if (rc < 0)
        return fail("Can't seal a copy of this program", -rc);
    return image;
}

Result<sys::Fd> make_packet()
{
    sys::Fd packet = make_memfd("packet", MFD_CLOEXEC);
    if (!packet)
        return fail("memfd_create", -packet.error(), "packet");
    return packet;
}

Result<sys::Fd> make_text_file(const std::string& text)
{
    sys::Fd file = make_memfd("text", MFD_CLOEXEC);
    if (!file)
        return fail("memfd_create", -file.error(), "text");
    int rc =
        write_all(file.get(), reinterpret_cast<const unsigned char*>(text.data()), text.size());
    if (rc == 0)
        rc = static_cast<int>(raw::call(SYS_lseek, file.get(), 0, SEEK_SET));
    if (rc < 0)
        return fail("write", -rc, "text");
    return file;
}

std::vector<unsigned char> packet_bytes(const Plan& plan, int channel)
{
    Block block{(sizeof(PacketHeader) + 7) & ~std::size_t{7}};
    const PacketHeader header = fill(block, plan, channel);
    std::memcpy(block.bytes().data(), &header, sizeof header);
    return std::move(block.bytes());
}

Result<> fill_packet(const Plan& plan, int channel, int packet)
{
    const std::vector<unsigned char> bytes = packet_bytes(plan, channel);
    long rc = raw::call(SYS_lseek, packet, 0, SEEK_SET);
    if (rc == 0)
        rc = write_all(packet, bytes.data(), bytes.size());
    if (rc < 0)
        return fail("Can't write what init is given", static_cast<int>(-rc));
    return {};
}

Result<> fill_clear_up_packet(const ClearUp& what, int supervisor, int packet)
{
    Block block{(sizeof(PacketHeader) + 7) & ~std::size_t{7}};
    PacketHeader header{};
    header.magic = packet_magic;
    header.keep = block.add_bytes(what.groups.data(), what.groups.size() * sizeof(std::int32_t));
    header.keep_count = static_cast<std::uint32_t>(what.groups.size());
    const bool is_guard = what.lifeline >= 0 || !what.groups.empty();
    header.flags = (!what.groups.empty() ? packet_limits
                    : is_guard           ? packet_guard
                                         : packet_clear_up) |
                   (what.at_once ? packet_die_with_parent : 0U);
    header.channel = header.program = header.children = header.proc = -1;
    header.supervisor = supervisor;
    header.registry = is_guard ? -1 : what.folder;
    header.group = is_guard ? what.folder : -1;
    header.lifeline = what.lifeline;
    header.ruleset = header.helper = -1;
    (is_guard ? header.group_name : header.socket) = block.add_text(what.name.c_str());
    struct ::stat status {};
    if (what.this_one &&
        raw::fstatat(what.folder, what.name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0) {
        header.socket_inode = status.st_ino;
        header.socket_made = nanoseconds_of(status.st_mtim);
    }
    header.size = static_cast<std::uint32_t>(block.bytes().size());
    std::memcpy(block.bytes().data(), &header, sizeof header);
    if (const int rc = write_all(packet, block.bytes().data(), block.bytes().size()); rc < 0)
        return fail("Can't write what the process that clears up is given", -rc);
    return {};
}

std::size_t lock_offset(const Plan& plan)
{
    const std::size_t header = (sizeof(PacketHeader) + 7) & ~std::size_t{7};
    return header + plan.keep_in_init.size() * sizeof(std::int32_t);
}

}  // namespace nsbox::runtime
