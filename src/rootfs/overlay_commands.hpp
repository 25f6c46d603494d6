#pragma once

#include "rootfs/import.hpp"
#include "sys/error.hpp"

#include <optional>
#include <string>
#include <vector>

namespace nsbox::rootfs {

// What is done with the folder of `nsbox run --rootfs R --overlay=FOLDER`, and with recipes. `store`
// is the store's folder.

/// The paths that differ from the root filesystem below, as text: one a line, as JSON objects or
/// behind a letter.
Result<std::string> diff_overlay(const std::string& store, const std::string& folder, bool as_json);

/// Makes a root filesystem of both. Refused while a sandbox uses the folder; none can meanwhile.
Result<Imported> commit_overlay(const std::string& store, const std::string& folder,
                                const std::string& name);

/// Runs the script that builds root filesystems with these words; its status. With an option --name
/// among them, which is not for the script, what it makes is imported.
struct Built {
    int status = 0;
    std::optional<Imported> imported;
};
Result<Built> build_recipe(const std::string& store, const std::vector<std::string>& words);

}  // namespace nsbox::rootfs
