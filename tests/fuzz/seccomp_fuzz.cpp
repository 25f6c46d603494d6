// The readers of system call policies, text and JSON, and what is made of them, on any bytes.

#include "ns/seccomp/compile.hpp"
#include "ns/seccomp/disassemble.hpp"
#include "ns/seccomp/oci.hpp"
#include "ns/seccomp/parse.hpp"
#include "sys/error.hpp"
#include "words.hpp"

using namespace nsbox;
using namespace nsbox::ns::seccomp;

namespace {

void check(const Result<Policy>& policy)
{
    if (!policy)
        return;
    const Result<std::vector<sock_filter>> program =
        compile(*policy, {std::begin(all_abis), std::end(all_abis)});
    if (program)
        fuzz::require(disassemble(*program).has_value(), "what is compiled is a program");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
    const std::string text{reinterpret_cast<const char*>(data), size};
    const Circumstances circumstances{true, false, {"CAP_NET_RAW"}};
    check(
        parse_policy(text, "text", circumstances, [&](const std::string& name) -> Result<Included> {
            if (name == "self")
                return Included{text, name};
            return refuse("Can't find", name);
        }));
    check(read_oci_profile(text, "json", circumstances));
    std::vector<sock_filter> program(size / sizeof(sock_filter));
    if (!program.empty())
        std::copy_n(data, program.size() * sizeof(sock_filter),
                    reinterpret_cast<std::uint8_t*>(program.data()));
    const Result<std::string> lines = disassemble(program);
    fuzz::require(!lines || !lines->empty(), "a program has lines");
    return 0;
}
