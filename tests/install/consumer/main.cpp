// What a program that embeds nsbox may look like: starts a command in a sandbox and says how it ended.
// With --net the sandbox has a network, which takes a helper program; where the other one is, it says too.

#include <nsbox/nsbox.hpp>
#include <nsbox/rootfs.hpp>
#include <nsbox/seccomp.hpp>

#include <cstdio>
#include <cstring>

int main(int argc, char** argv)
{
    const bool networked = argc > 1 && std::strcmp(argv[1], "--net") == 0;

    nsbox::Spec spec;
    spec.operations.emplace_back(nsbox::Bind{"/", "/", nsbox::Access::read_only});
    spec.operations.emplace_back(nsbox::Proc{"/proc"});
    spec.end_with_command = true;
    spec.command.assign(argv + (networked ? 2 : 1), argv + argc);
    if (networked) {
        const auto importer = nsbox::rootfs_program();
        std::printf("%s\n", importer ? importer->c_str() : importer.error().message().c_str());
        std::fflush(stdout);
        spec.user_network.emplace();
    }
    if (const auto filtered = nsbox::add_filter(spec, "default"); !filtered) {
        std::fprintf(stderr, "%s\n", filtered.error().message().c_str());
        return 2;
    }

    auto sandbox = nsbox::Sandbox::start(spec);
    if (!sandbox) {
        std::fprintf(stderr, "%s\n", sandbox.error().message().c_str());
        return 3;
    }
    const auto status = sandbox->wait();
    if (!status) {
        std::fprintf(stderr, "%s\n", status.error().message().c_str());
        return 4;
    }
    std::printf("nsbox %s: status %d\n", nsbox::version(), status->shell_code());
    return 0;
}
