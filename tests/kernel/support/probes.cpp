#include "tests/kernel/support/probes.hpp"

#include "tests/kernel/support/host_state.hpp"
#include "tests/kernel/support/sandboxes.hpp"
#include "tests/unit/support/files.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <sstream>
#include <utility>

#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

namespace nsbox::tests {

namespace {

namespace fs = std::filesystem;

void print(const std::string& name, const std::string& value)
{
    std::printf("%s: %s\n", name.c_str(), value.c_str());
    std::fflush(stdout);
}

/// Reads at most `most` bytes, from where the descriptor is.
std::string read_some(int fd, std::size_t most)
{
    std::string text;
    std::string buffer(std::size_t{1} << 16, '\0');
    while (text.size() < most) {
        const ssize_t got = ::read(fd, buffer.data(), buffer.size());
        if (got <= 0)
            break;
        text.append(buffer, 0, static_cast<std::size_t>(got));
    }
    return text;
}

bool file_holds(const std::string& path, const std::string& word)
{
    const sys::Fd file{::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY)};
    return file && read_some(file.get(), std::size_t{64} << 20).find(word) != std::string::npos;
}

bool link_holds(const std::string& path, const std::string& word)
{
    char text[4096] = {};
    return ::readlink(path.c_str(), text, sizeof text - 1) > 0 &&
           std::string{text}.find(word) != std::string::npos;
}

/// Every byte of a process's memory that its memory map names, but for the regions of terabytes
/// in which a sanitizer keeps its books.
bool memory_holds(const std::string& folder, const std::string& word)
{
    const sys::Fd memory{::open((folder + "/mem").c_str(), O_RDONLY | O_CLOEXEC)};
    std::ifstream maps{folder + "/maps"};
    bool found = false;
    constexpr unsigned long most = 3UL << 30;
    std::string piece(std::size_t{1} << 20, '\0');
    for (std::string line; memory && !found && std::getline(maps, line);) {
        unsigned long begin = 0;
        unsigned long end = 0;
        char rights[8] = {};
        if (std::sscanf(line.c_str(), "%lx-%lx %7s", &begin, &end, rights) != 3 ||
            rights[0] != 'r' || end - begin > most)
            continue;
        for (unsigned long at = begin; at < end && !found;) {
            const ssize_t got =
                ::pread(memory.get(), piece.data(), std::min<std::size_t>(piece.size(), end - at),
                        static_cast<off_t>(at));
            if (got <= 0)
                break;
            found = ::memmem(piece.data(), static_cast<std::size_t>(got), word.data(),
                             word.size()) != nullptr;
            at += static_cast<unsigned long>(got);
        }
    }
    return found;
}

void add(std::string& list, const std::string& name)
{
    list += (list.empty() ? "" : " ") + name;
}

/// `scan WORD`: where in the processes around us, other than ourselves, the veiled word is.
int scan(const std::vector<std::string>& words)
{
    const std::string word = unveil(words.at(1));
    std::string processes;
    // Said at the end: among the files that are searched is the pipe that it goes to.
    std::vector<std::pair<std::string, std::string>> found;
    for (const auto& entry : fs::directory_iterator{"/proc"}) {
        const std::string name = entry.path().filename();
        if (name.find_first_not_of("0123456789") != std::string::npos ||
            name == std::to_string(::getpid()))
            continue;
        add(processes, name);
        found.emplace_back("word in " + name, places_of(entry.path(), word));
    }
    // The scan finds what there is to find, under these very circumstances.
    auto here = std::make_unique<std::string>(word);
    found.emplace_back("word in self", places_of("/proc/self", *here));
    print("processes", processes);
    for (const auto& [name, places] : found)
        print(name, places);
    return 0;
}

std::string status_field(pid_t pid, const std::string& name)
{
    std::ifstream file{"/proc/" + std::to_string(pid) + "/status"};
    for (std::string line; std::getline(file, line);)
        if (line.compare(0, name.size() + 1, name + ":") == 0)
            return line.substr(line.find_first_not_of(" \t", name.size() + 1));
    return "(not there)";
}

/// The same for a sandbox of many commands, one of which has had the word too.
void print_of_many(const std::string& veiled, const std::string& word)
{
    Spec spec = full_spec({});
    spec.environment = {{EnvironmentEdit::Kind::clear, {}, {}}};
    // Whoever may trace its own processes may look at init, as far as anyone may.
    spec.uid = spec.gid = 0;
    Result<Sandbox> sandbox = Sandbox::create(spec);
    if (!sandbox) {
        print("many commands", sandbox.error().message());
        return;
    }
    Command owner;
    owner.words = {"/bin/sh", "-c", "true", word};
    owner.environment = {{EnvironmentEdit::Kind::set, "SECRET", word}};
    Command scanner;
    scanner.words = {"/bin/sh", "-c",  "\"$@\"; exit $?", "sh", own_path(), "--probe",
                     "scan",    veiled};
    const Result<Outcome> first = nsbox::run(*sandbox, owner);
    const Result<Outcome> second = nsbox::run(*sandbox, scanner);
    const std::string text = second ? second->output : second.error().message();
    print("many commands", (first && first->status.code == 0 ? "" : "failed; ") +
                               ("processes " + fact(text, "processes")));
    print("many commands, process 1", fact(text, "word in 1"));
    print("many commands, itself", fact(text, "word in self"));
}

/// `secrets WORD`: a host application that has WORD in every place where an application can
/// have one, and what sandboxes with processes of their own see of it.
int secrets(const std::vector<std::string>& words)
{
    const std::string& word = words.at(1);
    const auto heap = std::make_unique<std::string>(word + " on the heap");
    const sys::Fd file = memory_file(word);
    print("host", places_of("/proc/self", word));
    // The shell stays, as process 2, and shows that other processes can be looked into.
    const std::vector<std::string> command{"/bin/sh", "-c",   "\"$@\"; exit $?", "sh", own_path(),
                                           "--probe", "scan", veil(word)};
    for (Variant& variant : variants(command)) {
        const bool has_proc = variant.spec.operations.size() > 1;
        if (variant.spec.namespaces.pid != Own::yes || variant.is_pid_1 || !has_proc)
            continue;
        for (const bool kept : {false, true}) {
            variant.spec.environment.clear();
            if (!kept)
                variant.spec.environment.push_back({EnvironmentEdit::Kind::clear, {}, {}});
            std::string end;
            std::string text;
            {
                const CapturedOutput captured;
                end = run(variant.spec);
                text = captured.text();
            }
            const std::string name = variant.name + (kept ? ", environment kept" : "");
            print(name, end + "; processes " + fact(text, "processes"));
            print(name + ", process 1", fact(text, "word in 1"));
            print(name + ", process 2", fact(text, "word in 2"));
            print(name + ", itself", fact(text, "word in self"));
        }
    }
    print_of_many(veil(word), word);
    return heap->empty() ? 1 : 0;
}

/// `large`: a host application with a heap of 1 GiB that was touched, full of one word.
int large(const std::vector<std::string>& words)
{
    const std::string& word = words.at(1);
    constexpr std::size_t size = std::size_t{1} << 30;
    void* const memory =
        ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return 1;
    for (std::size_t at = 0; at < size; at += 4096)
        std::memcpy(static_cast<char*>(memory) + at, word.c_str(), word.size() + 1);
    print("host", places_of("/proc/self", word));
    for (const Variant& variant : variants({"/bin/cat"})) {
        Pipe pipe = make_pipe();
        ::dup2(pipe.read.get(), STDIN_FILENO);
        Result<Sandbox> sandbox = Sandbox::start(variant.spec);
        if (!sandbox) {
            print(variant.name, "not started: " + sandbox.error().message());
            continue;
        }
        const std::string resident = status_field(sandbox->child_pid(), "VmRSS");
        const std::string places = places_of("/proc/" + std::to_string(sandbox->child_pid()), word);
        pipe.write.reset();
        print(variant.name, outcome(sandbox->wait()) + ", word " + places);
        print(variant.name + " resident", resident);
    }
    return 0;
}

}  // namespace

std::string veil(const std::string& word)
{
    std::string text;
    for (const char c : word) {
        char digits[4];
        std::snprintf(digits, sizeof digits, "%02x", static_cast<unsigned char>(c) ^ 0x5aU);
        text += digits;
    }
    return text;
}

std::string unveil(const std::string& text)
{
    std::string word;
    for (std::size_t at = 0; at + 1 < text.size(); at += 2)
        word += static_cast<char>(std::stoi(text.substr(at, 2), nullptr, 16) ^ 0x5a);
    return word;
}

std::string places_of(const std::string& folder, const std::string& word)
{
    std::string found;
    for (const char* const name :
         {"environ", "cmdline", "comm", "status", "stat", "maps", "auxv", "exe", "io", "limits"})
        if (file_holds(folder + "/" + name, word))
            add(found, name);
    for (const char* const name : {"exe", "cwd", "root"})
        if (link_holds(folder + "/" + name, word))
            add(found, std::string{name} + "-link");
    if (memory_holds(folder, word))
        add(found, "mem");
    std::error_code ignored;
    bool in_file = false;
    for (const auto& entry : fs::directory_iterator{folder + "/fd", ignored})
        in_file = in_file || link_holds(entry.path(), word) || file_holds(entry.path(), word);
    if (in_file)
        add(found, "fd");
    return found.empty() ? "nowhere" : found;
}

std::string fact(const std::string& text, const std::string& name)
{
    std::istringstream stream{text};
    for (std::string line; std::getline(stream, line);)
        if (line.compare(0, name.size() + 2, name + ": ") == 0)
            return line.substr(name.size() + 2);
    return "(not said)";
}

std::string Printed::operator[](const std::string& name) const
{
    return fact(text, name);
}

Printed run_as_probe(const std::vector<std::string>& words,
                     const std::vector<std::string>& environment)
{
    const std::string path = own_path();
    std::vector<const char*> argv{path.c_str(), "--probe"};
    for (const std::string& word : words)
        argv.push_back(word.c_str());
    argv.push_back(nullptr);
    std::vector<const char*> envp;
    for (const std::string& entry : environment)
        envp.push_back(entry.c_str());
    envp.push_back(nullptr);
    const sys::Fd output = memory_file();
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, output.get(), STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, output.get(), STDERR_FILENO);
    Printed printed;
    pid_t pid = -1;
    const int rc =
        ::posix_spawn(&pid, path.c_str(), &actions, nullptr, const_cast<char* const*>(argv.data()),
                      const_cast<char* const*>(envp.data()));
    ::posix_spawn_file_actions_destroy(&actions);
    if (rc == 0)
        ::waitpid(pid, &printed.status, 0);
    printed.text = contents_of(output.get());
    return printed;
}

std::string random_word()
{
    const sys::Fd file{::open("/dev/urandom", O_RDONLY | O_CLOEXEC)};
    unsigned char bytes[16] = {};
    if (::read(file.get(), bytes, sizeof bytes) != static_cast<ssize_t>(sizeof bytes))
        return {};
    std::string word = "secret-";
    for (const unsigned char byte : bytes)
        word += "0123456789abcdef"[byte % 16];
    return word;
}

int run_probe(const std::vector<std::string>& words)
{
    const std::string& name = words.front();
    if (name == "scan")
        return scan(words);
    if (name == "secrets")
        return secrets(words);
    if (name == "large")
        return large(words);
    if (name == "descriptors") {
        std::fputs(open_descriptors().c_str(), stdout);
        std::fflush(stdout);
        return 0;
    }
    std::fprintf(stderr, "no probe %s\n", name.c_str());
    return 2;
}

}  // namespace nsbox::tests
