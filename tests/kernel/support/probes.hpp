#pragma once

#include <string>
#include <vector>

namespace nsbox::tests {

/// Runs a probe by its name and arguments; returns the exit status. It prints facts to standard
/// output, `name: value` a line.
int run_probe(const std::vector<std::string>& words);

/// What a program printed, and how it ended (as waitpid(2) has it).
struct Printed {
    int status = -1;
    std::string text;

    /// The value of the line `name: value`, or "(not said)".
    std::string operator[](const std::string& name) const;
};

/// The facts in what a probe printed.
std::string fact(const std::string& text, const std::string& name);

/// Executes this program as a probe, with exactly this environment.
Printed run_as_probe(const std::vector<std::string>& words,
                     const std::vector<std::string>& environment);

/// A word that nobody else has in memory.
std::string random_word();

/// Hides a word from a search for it, and finds it again.
std::string veil(const std::string& word);
std::string unveil(const std::string& text);

/// Where in a /proc/PID folder a word can be read, as names divided by blanks; "nowhere".
std::string places_of(const std::string& folder, const std::string& word);

}  // namespace nsbox::tests
