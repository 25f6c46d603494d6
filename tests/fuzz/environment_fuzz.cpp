// Editing the environment and finding the command, on any words: the command, PATH, variables up
// to an empty word, then edits: "-" clears, "-NAME" unsets, "NAME=VALUE" sets.

#include "runtime/environment.hpp"
#include "words.hpp"

#include <algorithm>

using namespace nsbox;
using Kind = EnvironmentEdit::Kind;

namespace {

EnvironmentEdit to_edit(const std::string& word)
{
    if (word == "-")
        return {Kind::clear, {}, {}};
    if (!word.empty() && word[0] == '-')
        return {Kind::unset, word.substr(1), {}};
    const std::size_t equals = std::min(word.find('='), word.size());
    return {Kind::set, word.substr(0, equals), word.substr(std::min(equals + 1, word.size()))};
}

void check_candidates(const std::string& command, const std::string& path)
{
    const std::vector<std::string> candidates = runtime::exec_candidates(command, path);
    const bool is_path = command.empty() || command.find('/') != std::string::npos;
    const auto colons = static_cast<std::size_t>(std::count(path.begin(), path.end(), ':'));
    fuzz::require(candidates.size() == (is_path ? 1 : colons + 1),
                  "one candidate for each entry of PATH, or the path itself");
    for (const std::string& candidate : candidates)
        fuzz::require(
            candidate.size() >= command.size() &&
                candidate.compare(candidate.size() - command.size(), command.size(), command) == 0,
            "each candidate ends with the command's name");
    fuzz::require(runtime::exec_candidates(command, std::nullopt).size() == (is_path ? 1 : 3),
                  "three places without PATH");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size)
{
    const std::vector<std::string> words = fuzz::split(data, size);
    if (words.size() < 2)
        return 0;
    check_candidates(words[0], words[1]);
    const auto middle = std::find(words.begin() + 2, words.end(), std::string{});
    const std::vector<std::string> environment{words.begin() + 2, middle};
    std::vector<EnvironmentEdit> edits;
    for (auto it = middle; it != words.end(); ++it)
        if (!it->empty())
            edits.push_back(to_edit(*it));
    const std::vector<std::string> result = runtime::edit_environment(environment, edits);
    fuzz::require(result.size() <= environment.size() + edits.size(), "edits add one entry each");
    fuzz::require(!runtime::look_up(result, "PWD"), "PWD is left out");
    if (edits.empty())
        return 0;
    const EnvironmentEdit& last = edits.back();
    const std::optional<std::string> value = runtime::look_up(result, last.name);
    if (last.kind == Kind::clear)
        fuzz::require(result.empty(), "nothing is left after clearing");
    if (last.kind == Kind::unset)
        fuzz::require(!value, "what was unset is not there");
    if (last.kind == Kind::set && last.name != "PWD")
        fuzz::require(value == last.value, "what was set last holds");
    return 0;
}
