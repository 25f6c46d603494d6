#include "runtime/denials/process.hpp"

#include "sys/raw.hpp"
#include "sys/read_file.hpp"

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <sys/uio.h>
#include <unistd.h>
#include <utility>

namespace nsbox::runtime {

namespace {

namespace raw = sys::raw;

constexpr unsigned dac_override = 1;     // CAP_DAC_OVERRIDE, capabilities(7)
constexpr unsigned dac_read_search = 2;  // CAP_DAC_READ_SEARCH

/// The numbers of a line of proc_pid_status(5), after "\nName:".
std::vector<std::uint64_t> numbers_of(const std::string& status, const char* name, int base = 10)
{
    std::vector<std::uint64_t> numbers;
    const std::size_t found = status.find(name);
    if (found == std::string::npos)
        return numbers;
    const char* at = status.c_str() + found + std::char_traits<char>::length(name);
    while (*at == '\t' || *at == ' ' || (*at != '\n' && *at != '\0')) {
        char* end = nullptr;
        const std::uint64_t number = std::strtoull(at, &end, base);
        if (end == at)
            break;
        numbers.push_back(number);
        at = end;
        while (*at == ' ' || *at == '\t')
            ++at;
    }
    return numbers;
}

std::string link_of(const std::string& path)
{
    char target[PATH_MAX];
    const ssize_t size = ::readlink(path.c_str(), target, sizeof target);
    return size > 0 ? std::string{target, static_cast<std::size_t>(size)} : std::string{};
}

}  // namespace

std::string Process::name() const
{
    std::string text = sys::read_file(place() + "comm");
    if (text.ends_with('\n'))
        text.pop_back();
    return text;
}

std::string Process::executable() const
{
    return link_of(place() + "exe");
}

void Process::read_status() const
{
    if (std::exchange(is_read_, true))
        return;
    status_ = sys::read_file(place() + "status");
    constexpr std::size_t of_files = 3;  // The one that counts for files comes last.
    if (const auto ids = numbers_of(status_, "\nUid:"); ids.size() > of_files)
        uid_ = static_cast<std::uint32_t>(ids[of_files]);
    if (const auto ids = numbers_of(status_, "\nGid:"); ids.size() > of_files)
        groups_.push_back(static_cast<std::uint32_t>(ids[of_files]));
    for (const std::uint64_t group : numbers_of(status_, "\nGroups:"))
        groups_.push_back(static_cast<std::uint32_t>(group));
    if (const auto sets = numbers_of(status_, "\nCapEff:", 16); !sets.empty())
        capabilities_ = sets.front();
}

pid_t Process::number_inside() const
{
    read_status();
    const std::vector<std::uint64_t> numbers = numbers_of(status_, "\nNStgid:");
    return numbers.empty() ? 0 : static_cast<pid_t>(numbers.back());
}

bool Process::has_capability(unsigned number) const
{
    read_status();
    return (capabilities_ >> number & 1) != 0;
}

bool Process::has_other_rights() const
{
    read_status();
    return uid_ != ::geteuid() || has_capability(dac_override) || has_capability(dac_read_search);
}

bool Process::may(const struct stat& file, unsigned wanted) const
{
    // What everybody may needs no look at who it is, which takes longer than all else.
    if ((file.st_mode >> 6 & file.st_mode >> 3 & file.st_mode & wanted) == wanted)
        return true;
    read_status();
    // Whether the capability holds for the file's owner is beyond this.
    if (status_.empty() || has_capability(dac_override) ||
        (has_capability(dac_read_search) && (wanted & 2) == 0))
        return true;
    const bool in_group = std::find(groups_.begin(), groups_.end(), file.st_gid) != groups_.end();
    const unsigned shift = file.st_uid == uid_ ? 6 : in_group ? 3 : 0;
    return (file.st_mode >> shift & wanted) == wanted;
}

std::optional<std::string> Process::memory(std::uint64_t address, std::size_t size) const
{
    std::string bytes(size, '\0');
    const iovec ours{bytes.data(), size};
    const iovec theirs{reinterpret_cast<void*>(address), size};
    if (::process_vm_readv(thread_, &ours, 1, &theirs, 1, 0) != static_cast<ssize_t>(size))
        return std::nullopt;
    return bytes;
}

std::optional<std::string> Process::text(std::uint64_t address) const
{
    // What lies behind the end may be another page, which is not there.
    constexpr std::uint64_t page = 4096;
    std::string text;
    while (text.size() < PATH_MAX) {
        const std::optional<std::string> part = memory(address, page - address % page);
        if (!part)
            return std::nullopt;
        if (const std::size_t end = part->find('\0'); end != std::string::npos)
            return text + part->substr(0, end);
        text += *part;
        address += part->size();
    }
    return std::nullopt;
}

std::string Process::absolute(int folder, const std::string& path) const
{
    if (path.empty() || path[0] == '/')
        return path;
    const std::string base =
        link_of(place() + (folder == AT_FDCWD ? "cwd" : "fd/" + std::to_string(folder)));
    if (!base.starts_with('/') || base.ends_with(" (deleted)"))
        return {};
    return base + (base.ends_with('/') ? "" : "/") + path;
}

sys::Fd Process::open(const std::string& path, int flags) const
{
    const sys::Fd root{
        raw::openat(AT_FDCWD, (place() + "root").c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)};
    if (!root)
        return sys::Fd{-ESRCH};
    return sys::Fd{raw::openat2(root.get(), path.c_str(),
                                static_cast<unsigned>(O_PATH | O_CLOEXEC | flags),
                                RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS)};
}

}  // namespace nsbox::runtime
