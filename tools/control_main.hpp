#pragma once

#include <string>
#include <vector>

namespace nsbox::tool {

// The subcommands about running sandboxes; the words are those after the subcommand's own. Each
// returns the exit status.

constexpr int control_failed = 125;  ///< nsbox itself, not the command.

int exec_main(const std::vector<std::string>& words);
int ps_main(const std::vector<std::string>& words);
int kill_main(const std::vector<std::string>& words);
int port_main(const std::vector<std::string>& words);
int wait_main(const std::vector<std::string>& words);

}  // namespace nsbox::tool
