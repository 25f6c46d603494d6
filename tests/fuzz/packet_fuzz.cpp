// What init is given, from any words: the command up to an empty word, then the environment up to
// one, then lock files; the filters' bytes are the input itself.

#include "runtime/init_image.hpp"
#include "tests/unit/support/files.hpp"
#include "tests/unit/support/hosts.hpp"
#include "tests/unit/support/packets.hpp"
#include "words.hpp"

using namespace nsbox;

namespace {

std::vector<std::string> texts_of(const std::vector<const char*>& table)
{
    return {table.begin(), table.end() - 1};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
    const std::vector<std::string> words = fuzz::split(data, size);
    Spec spec = tests::plain_spec();
    sys::Host host = tests::user_host();
    spec.namespaces.pid = Own::yes;
    spec.command.clear();
    host.environment.clear();
    std::vector<std::string>* const lists[] = {&spec.command, &host.environment, &spec.lock_files};
    std::size_t part = 0;
    for (const std::string& word : words) {
        if (word.empty() && part < 2)
            ++part;
        else
            lists[part]->push_back(word);
    }
    if (size >= 8)
        spec.seccomp_programs.emplace_back(data, data + std::min(size, std::size_t{32768}) / 8 * 8);
    const Result<runtime::Plan> plan = runtime::plan(spec, host);
    fuzz::require(plan.has_value() == !spec.command.empty(), "a command is all that is needed");
    if (!plan)
        return 0;
    static const sys::Fd file = tests::memory_file();
    fuzz::require(::ftruncate(file.get(), 0) == 0, "the file can be emptied");
    fuzz::require(runtime::fill_packet(*plan, 5, file.get()).has_value(), "a packet can be filled");
    const tests::Packet packet{tests::contents_of(file.get())};
    const runtime::PacketHeader& header = packet.header;
    fuzz::require(packet.texts(header.argv) == spec.command, "the command arrives");
    fuzz::require(packet.texts(header.envp) == texts_of(plan->envp), "the environment arrives");
    fuzz::require(packet.texts(header.envp).at(header.pwd_slot) == plan->pwd[0],
                  "PWD has its place");
    fuzz::require(packet.texts(header.candidates).size() == header.candidate_count,
                  "candidates are counted");
    fuzz::require(packet.texts(header.shell_argv).size() == spec.command.size() + 1,
                  "the shell's arguments arrive");
    fuzz::require(packet.kept() == std::vector<std::int32_t>(spec.lock_files.size(), -1),
                  "each lock has a place");
    fuzz::require(spec.lock_files.empty() || runtime::lock_offset(*plan) == header.keep,
                  "the first lock's place is where it was promised");
    for (std::size_t i = 0; i < spec.seccomp_programs.size(); ++i) {
        const std::vector<std::uint8_t>& program = spec.seccomp_programs[i];
        fuzz::require(packet.filter(static_cast<std::uint32_t>(i)) ==
                          std::string(program.begin(), program.end()),
                      "the filter arrives");
    }
    return 0;
}
