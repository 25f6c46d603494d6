#include "runtime/further_command.hpp"

#include "runtime/environment.hpp"

namespace nsbox::runtime {

void add_command(const Recipe& recipe, const Entry& entry, Plan& plan)
{
    const std::vector<std::string> environment =
        edit_environment(recipe.environment, entry.environment);
    plan.argv_name = entry.command.front();
    for (const std::string& path :
         exec_candidates(entry.command.front(), look_up(environment, "PATH")))
        plan.candidates.push_back(plan.keep(path));
    for (const std::string& word : entry.command)
        plan.argv.push_back(plan.keep(word));
    plan.argv.push_back(nullptr);
    for (const std::string& variable : environment)
        plan.envp.push_back(plan.keep(variable));
    const std::string wanted = entry.directory.value_or(recipe.directory);
    plan.pwd[0] = plan.keep("PWD=" + (wanted.empty() ? recipe.likely_directory : wanted));
    plan.pwd[1] = plan.keep("PWD=/");
    plan.pwd[2] = plan.keep("PWD=" + recipe.home);
    plan.pwd[3] = plan.keep("PWD=/");
    plan.pwd_slot = plan.envp.size();
    plan.envp.push_back(plan.pwd[0]);
    plan.envp.push_back(nullptr);
    plan.shell_argv = {"/bin/sh", plan.candidates.front()};
    plan.shell_argv.insert(plan.shell_argv.end(), plan.argv.begin() + 1, plan.argv.end());
    ChangeDirectory change{};
    change.wanted = wanted.empty() ? nullptr : plan.keep(wanted);
    change.logical = plan.keep(recipe.likely_directory);
    change.home = plan.keep(recipe.home);
    plan.steps.emplace_back(change);
}

}  // namespace nsbox::runtime
