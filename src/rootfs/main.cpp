#include "rootfs/commands.hpp"

#include <clocale>
#include <malloc.h>
#include <unistd.h>

int main(int argc, char** argv)
{
    // Names in archives are UTF-8 or bytes, whatever the caller's locale is; the C library has
    // this one built in.
    (void)::setlocale(LC_CTYPE, "C.UTF-8");
    // Two threads hand each other what they allocate; a second heap would only grow in small steps.
    (void)::mallopt(M_ARENA_MAX, 1);
    std::vector<std::string> words;
    for (int i = 1; i < argc; ++i)
        words.emplace_back(argv[i]);
    ::_exit(nsbox::rootfs::run_command(words));
}
