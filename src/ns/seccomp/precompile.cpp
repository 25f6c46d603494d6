// Runs while nsbox is built: writes a header with the programs of the policies that it brings along, so
// that a start has not to compile one. precompile MACHINE OUTPUT NAME=FILE...

#include "ns/seccomp/compile.hpp"
#include "ns/seccomp/parse.hpp"
#include "sys/error.hpp"

#include <cstdio>
#include <fstream>
#include <iterator>
#include <string_view>

namespace {

namespace seccomp = nsbox::ns::seccomp;
using nsbox::Error;
using nsbox::Result;
using seccomp::Abi;

std::string read_file(const std::string& path)
{
    std::ifstream file{path};
    return {std::istreambuf_iterator<char>{file}, {}};
}

/// The name and the file of a word NAME=FILE.
std::pair<std::string, std::string> split(const std::string& word)
{
    const std::size_t equals = word.find('=');
    return {word.substr(0, equals), word.substr(equals + 1)};
}

/// One entry of the table: {"default", true, false, {bytes}}.
void write_program(std::FILE* out, const std::string& name, const seccomp::Circumstances& it,
                   const std::vector<sock_filter>& program)
{
    std::fprintf(out, "inline constexpr sock_filter program_%s_%d%d[] = {\n", name.c_str(),
                 it.user_namespaces ? 1 : 0, it.tracing ? 1 : 0);
    for (const sock_filter& one : program)
        std::fprintf(out, "    {0x%x, %u, %u, 0x%x},\n", one.code, one.jt, one.jf, one.k);
    std::fprintf(out, "};\n");
}

}  // namespace

int main(int argc, char** argv)
{
    const std::vector<std::string> words(argv + 1, argv + argc);
    if (words.size() < 3)
        return 2;
    const std::vector<Abi> machine = words[0] == "aarch64"
                                         ? std::vector<Abi>{Abi::aarch64, Abi::arm}
                                         : std::vector<Abi>{Abi::x86_64, Abi::i386, Abi::x32};
    const seccomp::Include include = [&](const std::string& name) -> Result<seccomp::Included> {
        for (std::size_t at = 2; at < words.size(); ++at)
            if (const auto [known, file] = split(words[at]); known == name)
                return seccomp::Included{read_file(file), name};
        return nsbox::refuse("Can't find the policy", name);
    };
    std::FILE* const out = std::fopen(words[1].c_str(), "w");
    if (out == nullptr)
        return 1;
    std::fprintf(out, "#pragma once\n\n#include <linux/filter.h>\n\n#include <span>\n\n");
    std::string table;
    for (std::size_t at = 2; at < words.size(); ++at) {
        const auto [name, file] = split(words[at]);
        for (const bool userns : {false, true})
            for (const bool tracing : {false, true}) {
                const seccomp::Circumstances circumstances{userns, tracing, {}};
                const Result<seccomp::Policy> policy =
                    seccomp::parse_policy(read_file(file), file, circumstances, include);
                const Result<std::vector<sock_filter>> program =
                    policy ? seccomp::compile(*policy, machine)
                           : tl::unexpected<Error>{policy.error()};
                if (!program) {
                    std::fprintf(stderr, "%s\n", program.error().message().c_str());
                    return 1;
                }
                write_program(out, name, circumstances, *program);
                table += "    {\"" + name + "\", " + (userns ? "true, " : "false, ") +
                         (tracing ? "true, " : "false, ") + "program_" + name + "_" +
                         (userns ? "1" : "0") + (tracing ? "1" : "0") + "},\n";
            }
    }
    std::fprintf(out,
                 "\nstruct Precompiled {\n    const char* policy;\n    bool user_namespaces;\n"
                 "    bool tracing;\n    std::span<const sock_filter> program;\n};\n\n"
                 "inline constexpr Precompiled precompiled[] = {\n%s};\n",
                 table.c_str());
    return std::fclose(out) == 0 ? 0 : 1;
}
