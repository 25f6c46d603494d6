// Feeds the files of a folder to a fuzz target, once each: the target as an ordinary test, with
// any compiler.

#include "words.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>

int main(int argc, char** argv)
{
    namespace fs = std::filesystem;
    if (argc != 2 || argv[1][0] == '-') {
        std::fprintf(stderr,
                     "usage: %s FOLDER\n"
                     "To search for failures, configure with clang and -Dfuzz=true.\n",
                     argv[0]);
        return 2;
    }
    unsigned fed = 0;
    for (const auto& entry : fs::directory_iterator{argv[1]}) {
        std::printf("%s\n", entry.path().c_str());
        std::fflush(stdout);
        std::ifstream file{entry.path(), std::ios::binary};
        const std::vector<std::uint8_t> input{std::istreambuf_iterator<char>{file}, {}};
        LLVMFuzzerTestOneInput(input.data(), input.size());
        ++fed;
    }
    std::printf("%u passed, %u failed, 0 skipped\n", fed, fed == 0 ? 1U : 0U);
    return fed == 0 ? 1 : 0;
}
