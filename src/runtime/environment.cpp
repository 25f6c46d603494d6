#include "runtime/environment.hpp"

#include <algorithm>

namespace nsbox::runtime {

namespace {

bool is_variable(const std::string& entry, const std::string& name)
{
    return entry.size() > name.size() && entry[name.size()] == '=' &&
           entry.compare(0, name.size(), name) == 0;
}

void remove(std::vector<std::string>& environment, const std::string& name)
{
    std::erase_if(environment, [&](const std::string& entry) { return is_variable(entry, name); });
}

void set(std::vector<std::string>& environment, const EnvironmentEdit& edit)
{
    std::string entry = edit.name + "=" + edit.value;
    const auto there =
        std::find_if(environment.begin(), environment.end(),
                     [&](const std::string& other) { return is_variable(other, edit.name); });
    if (there != environment.end())
        *there = std::move(entry);
    else
        environment.push_back(std::move(entry));
}

}  // namespace

std::vector<std::string> edit_environment(const std::vector<std::string>& environment,
                                          const std::vector<EnvironmentEdit>& edits)
{
    std::vector<std::string> result = environment;
    for (const EnvironmentEdit& edit : edits) {
        switch (edit.kind) {
        case EnvironmentEdit::Kind::set:
            set(result, edit);
            break;
        case EnvironmentEdit::Kind::unset:
            remove(result, edit.name);
            break;
        case EnvironmentEdit::Kind::clear:
            result.clear();
            break;
        }
    }
    remove(result, "PWD");
    return result;
}

std::optional<std::string> look_up(const std::vector<std::string>& environment,
                                   const std::string& name)
{
    for (const std::string& entry : environment)
        if (is_variable(entry, name))
            return entry.substr(name.size() + 1);
    return std::nullopt;
}

std::vector<std::string> exec_candidates(const std::string& command,
                                         const std::optional<std::string>& path)
{
    if (command.empty() || command.find('/') != std::string::npos)
        return {command};
    const std::string folders = path.value_or("/usr/local/bin:/usr/bin:/bin");
    std::vector<std::string> candidates;
    std::size_t begin = 0;
    for (;;) {
        const std::size_t end = folders.find(':', begin);
        const std::string folder = folders.substr(begin, end - begin);
        // An empty entry means the working directory, as in execvp(3).
        candidates.push_back(folder.empty() ? command : folder + "/" + command);
        if (end == std::string::npos)
            return candidates;
        begin = end + 1;
    }
}

}  // namespace nsbox::runtime
