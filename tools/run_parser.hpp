#pragma once

#include "bwrap_parser.hpp"
#include "messages.hpp"

#include "nsbox/everyday.hpp"

#include <optional>
#include <string>
#include <vector>

namespace nsbox::tool {

/// What `nsbox run` is asked for, beside what the options that bwrap has too put into the Request.
struct RunRequest {
    Request request;
    Everyday base;
    std::optional<std::string> rootfs;       ///< NAME, FILE or DIR.
    std::optional<std::string> shell;        ///< A line for the shell.
    std::optional<std::string> script;       ///< A file, or "-".
    std::optional<std::string> interpreter;  ///< For the script.
    std::optional<bool> terminal;            ///< Whether the command has one of its own.
    bool as_root = false;
    bool falls_back = false;  ///< To Landlock::only, where there can be no namespaces.
    bool verbose = false;
    bool dry_run = false;
    bool help = false;
    std::string temporary;  ///< With Landlock::only: a private folder.
    /// Folders that --ro and --rw show where they are: (path, as the caller sees it).
    std::vector<std::string> shown;
};

/// Parses the words behind `nsbox run`. Nothing, after an error was printed. Files that options name
/// (--env-file) are read here.
std::optional<RunRequest> parse_run(const std::vector<std::string>& words, Messages& messages);

/// The help text of `nsbox run`.
std::string run_help();

}  // namespace nsbox::tool
