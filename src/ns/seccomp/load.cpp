#include "default_policy.hpp"
#include "ns/seccomp/compile.hpp"
#include "ns/seccomp/disassemble.hpp"
#include "ns/seccomp/oci.hpp"
#include "ns/seccomp/own.hpp"
#include "ns/seccomp/parse.hpp"
#include "nsbox/seccomp.hpp"
#include "precompiled_policies.hpp"
#include "strict_policy.hpp"
#include "sys/error.hpp"
#include "sys/fd.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace nsbox {

namespace {

using ns::seccomp::Included;
using ns::seccomp::Policy;

template <std::size_t N>
std::string text_of(const unsigned char (&bytes)[N])
{
    return {reinterpret_cast<const char*>(bytes), N};
}

Result<Included> read_policy_file(const std::string& path)
{
    constexpr Literal cannot{"Can't read the system call policy"};
    // Nobody waits for whoever may write to a FIFO some day; what has a writer is read to its end.
    const sys::Fd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)};
    if (!file || ::fcntl(file.get(), F_SETFL, 0) < 0)
        return fail(cannot, errno, path,
                    path.find('/') == std::string::npos
                        ? "there are default, strict, and files of your own"
                        : "");
    Included read{{}, path};
    constexpr std::size_t most = 4U << 20U;
    char buffer[16384];
    while (read.text.size() <= most) {
        const ssize_t size = ::read(file.get(), buffer, sizeof buffer);
        if (size < 0 && errno == EINTR)
            continue;
        if (size < 0)
            return fail(cannot, errno, path);
        if (size == 0)
            return read;
        read.text.append(buffer, static_cast<std::size_t>(size));
    }
    return fail(cannot, EFBIG, path);
}

/// By name, or a file; a relative one is looked for from `folder`, which ends in a slash or is empty.
Result<Included> find_policy(const std::string& name, const std::string& folder)
{
    if (name == "default")
        return Included{text_of(default_policy), "default"};
    if (name == "strict")
        return Included{text_of(strict_policy), "strict"};
    return read_policy_file(name.starts_with('/') ? name : folder + name);
}

Result<Policy> read_policy(const FilterWish& wish)
{
    const ns::seccomp::Circumstances circumstances{wish.user_namespaces, wish.tracing,
                                                   wish.capabilities};
    const Included file = TRY(find_policy(wish.policy, {}));
    const std::size_t first = file.text.find_first_not_of(" \t\r\n");
    if (first != std::string::npos && file.text[first] == '{')
        return ns::seccomp::read_oci_profile(file.text, file.origin, circumstances);
    const std::size_t slash = wish.policy.rfind('/');
    const std::string folder =
        slash == std::string::npos ? std::string{} : wish.policy.substr(0, slash + 1);
    return ns::seccomp::parse_policy(
        file.text, file.origin, circumstances,
        [&](const std::string& name) { return find_policy(name, folder); });
}

/// What was compiled when nsbox was built; empty where that does not fit.
std::span<const sock_filter> precompiled_for(const FilterWish& wish)
{
    if (wish.capabilities.empty())
        for (const Precompiled& it : precompiled)
            if (wish.policy == it.policy && wish.user_namespaces == it.user_namespaces &&
                wish.tracing == it.tracing)
                return it.program;
    return {};
}

std::vector<std::uint8_t> bytes_of(std::span<const sock_filter> program)
{
    std::vector<std::uint8_t> bytes(program.size_bytes());
    std::memcpy(bytes.data(), program.data(), bytes.size());
    return bytes;
}

}  // namespace

Result<std::vector<std::uint8_t>> compile_filter(const FilterWish& wish)
{
    if (const std::span<const sock_filter> program = precompiled_for(wish); !program.empty())
        return bytes_of(program);
    const Policy policy = TRY(read_policy(wish));
    const std::vector<ns::seccomp::Abi> machine = ns::seccomp::abis_of_this_machine();
    if (std::find_first_of(policy.abis.begin(), policy.abis.end(), machine.begin(),
                           machine.end()) == policy.abis.end())
        return refuse("Can't use the system call policy", wish.policy,
                      "it serves none of this machine's calling conventions");
    Result<std::vector<sock_filter>> program = ns::seccomp::compile(policy, machine);
    if (!program) {
        program.error().object = wish.policy;
        return tl::unexpected<Error>{std::move(program).error()};
    }
    return bytes_of(*program);
}

Result<> add_filter(Spec& spec, const std::string& policy, bool user_namespaces, bool tracing)
{
    if (policy == "none")
        return {};
    // Root keeps what it has where there is no user namespace, as under bwrap.
    const bool keeps_all =
        spec.namespaces.user == Own::no && !spec.namespaces.join_user && ::geteuid() == 0;
    FilterWish wish{policy, user_namespaces, tracing,
                    capabilities_after(spec.capabilities, keeps_all)};
    spec.seccomp_programs.push_back(TRY(compile_filter(wish)));
    if (!spec.denials)
        return {};
    FilterWish none;
    none.policy.clear();
    spec.filter_wishes.resize(spec.seccomp_programs.size(), none);
    spec.filter_wishes.back() = std::move(wish);
    return {};
}

bool ns::seccomp::is_own_program(const std::vector<std::uint8_t>& program)
{
    return std::any_of(std::begin(precompiled), std::end(precompiled), [&](const Precompiled& it) {
        return it.program.size_bytes() == program.size() &&
               std::memcmp(it.program.data(), program.data(), program.size()) == 0;
    });
}

Result<std::string> policy_text(const std::string& policy)
{
    if (policy != "default" && policy != "strict")
        return refuse("There is no policy", policy, "nsbox's own are default and strict");
    return TRY(find_policy(policy, {})).text;
}

Result<std::string> disassemble_filter(const std::vector<std::uint8_t>& program)
{
    if (program.size() % sizeof(sock_filter) != 0)
        return refuse("Can't read the filter program", {},
                      "its size is no multiple of 8 bytes, an instruction's");
    std::vector<sock_filter> instructions(program.size() / sizeof(sock_filter));
    if (!program.empty())
        std::memcpy(instructions.data(), program.data(), program.size());
    return ns::seccomp::disassemble(instructions);
}

}  // namespace nsbox
