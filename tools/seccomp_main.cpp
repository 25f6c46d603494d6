#include "seccomp_main.hpp"

#include "control_main.hpp"
#include "messages.hpp"

#include "nsbox/seccomp.hpp"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <unistd.h>

namespace nsbox::tool {

namespace {

using Words = std::vector<std::string>;

constexpr const char* help =
    "usage: nsbox seccomp check [OPTIONS...] POLICY...   say whether policies can be used\n"
    "       nsbox seccomp dump [OPTIONS...] [POLICY]     print the program of one as text\n"
    "       nsbox seccomp dump --program FILE            print a program of classic BPF\n"
    "       nsbox seccomp compile [OPTIONS...] [POLICY]  write the program, for bwrap --seccomp\n"
    "       nsbox seccomp show default|strict            print the policy itself\n"
    "\n"
    "POLICY is default, strict, or a file: text as in nsbox(1), or an OCI profile in JSON.\n"
    "    --allow-userns    as of a sandbox that may make user namespaces\n"
    "    --allow-ptrace    as of one in which debuggers work\n"
    "    --cap-add CAP     as of one whose command has a capability (CAP_NET_RAW)\n";

struct Asked {
    FilterWish wish;
    std::optional<std::string> program;
    Words names;
};

int complain(const std::string& text)
{
    Messages messages{"nsbox"};
    messages.escape_controls();
    messages.error(text);
    return control_failed;
}

/// What is wrong, or an empty text.
std::string parse(const Words& words, Asked& asked)
{
    for (std::size_t at = 1; at < words.size(); ++at) {
        const std::string& word = words[at];
        if (word.size() < 2 || word[0] != '-') {
            asked.names.push_back(word);
        } else if (word == "--allow-userns") {
            asked.wish.user_namespaces = true;
        } else if (word == "--allow-ptrace") {
            asked.wish.tracing = true;
        } else if (word == "--cap-add" || word == "--program") {
            if (at + 1 >= words.size())
                return word + " takes a value";
            const std::string& value = words[++at];
            if (word == "--program") {
                asked.program = value;
                continue;
            }
            const std::optional<unsigned> number = capability_by_name(value);
            if (!number)
                return "unknown cap: " + value;
            asked.wish.capabilities.push_back(capability_names()[*number]);
        } else {
            return "unknown option " + word + " (hint: see nsbox seccomp help)";
        }
    }
    return {};
}

int check(const Asked& asked)
{
    if (asked.names.empty())
        return complain("seccomp check takes at least one policy");
    int status = 0;
    for (const std::string& name : asked.names) {
        FilterWish wish = asked.wish;
        wish.policy = name;
        const Result<std::vector<std::uint8_t>> program = compile_filter(wish);
        constexpr std::size_t instruction = 8;
        if (program)
            write_out(STDOUT_FILENO, name + ": " + std::to_string(program->size() / instruction) +
                                         " instructions\n");
        else
            status = complain(program.error().message());
    }
    return status;
}

Result<std::vector<std::uint8_t>> program_of(const Asked& asked)
{
    FilterWish wish = asked.wish;
    if (!asked.names.empty())
        wish.policy = asked.names.front();
    return compile_filter(wish);
}

/// No more than one byte beyond the longest one; nothing with errno set.
std::optional<std::vector<std::uint8_t>> read_program(const std::string& path)
{
    constexpr std::size_t longest = std::size_t{4096} * 8;  // BPF_MAXINSNS instructions.
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return std::nullopt;
    std::vector<std::uint8_t> bytes(longest + 1);
    std::size_t size = 0;
    ssize_t got = 1;
    while (got != 0 && size < bytes.size()) {
        got = ::read(file, bytes.data() + size, bytes.size() - size);
        if (got > 0)
            size += static_cast<std::size_t>(got);
        else if (got < 0 && errno != EINTR)
            break;
    }
    const int error = errno;
    ::close(file);
    errno = error;
    bytes.resize(size);
    return got < 0 ? std::nullopt : std::optional{bytes};
}

int dump(const Asked& asked)
{
    std::vector<std::uint8_t> program;
    if (asked.program) {
        const std::optional<std::vector<std::uint8_t>> bytes = read_program(*asked.program);
        if (!bytes)
            return complain("Can't read " + *asked.program + ": " + ::strerrordesc_np(errno));
        program = *bytes;
    } else {
        Result<std::vector<std::uint8_t>> compiled = program_of(asked);
        if (!compiled)
            return complain(compiled.error().message());
        program = std::move(*compiled);
    }
    const Result<std::string> text = disassemble_filter(program);
    if (!text)
        return complain(text.error().message());
    write_out(STDOUT_FILENO, *text);
    return 0;
}

int compile(const Asked& asked)
{
    const Result<std::vector<std::uint8_t>> program = program_of(asked);
    if (!program)
        return complain(program.error().message());
    write_out(STDOUT_FILENO, std::string{program->begin(), program->end()});
    return 0;
}

int show(const Asked& asked)
{
    if (asked.names.size() != 1)
        return complain("seccomp show takes the name of one policy: default or strict");
    const Result<std::string> text = policy_text(asked.names.front());
    if (!text)
        return complain(text.error().message());
    write_out(STDOUT_FILENO, *text);
    return 0;
}

}  // namespace

int seccomp_main(const Words& words)
{
    const std::string verb = words.empty() ? std::string{} : words.front();
    if (verb == "help" || verb == "--help") {
        write_out(STDOUT_FILENO, help);
        return 0;
    }
    Asked asked;
    if (const std::string wrong = parse(words, asked); !wrong.empty())
        return complain(wrong);
    if (verb == "check")
        return check(asked);
    if (asked.names.size() > 1)
        return complain("seccomp " + verb + " takes one policy");
    if (verb == "dump")
        return dump(asked);
    if (verb == "compile")
        return compile(asked);
    if (verb == "show")
        return show(asked);
    return complain(
        "nsbox seccomp takes check, dump, compile or show (hint: see nsbox seccomp help)");
}

}  // namespace nsbox::tool
