#pragma once

#include <string>

namespace nsbox::tool {

/// Where diagnostics go: standard error, one line each, behind the program's name.
class Messages {
public:
    explicit Messages(std::string program) : program_(std::move(program)) {}

    /// From here on every line begins with the syslog severity in angle brackets.
    void use_level_prefix() { level_prefix_ = true; }

    /// From here on control characters are written as \\ooo: the text may hold somebody else's words.
    void escape_controls() { escapes_ = true; }

    void error(const std::string& text) const { print("<3>", text); }
    void warning(const std::string& text) const { print("<4>", text); }
    void note(const std::string& text) const { print("<6>", text); }

private:
    void print(const char* level, const std::string& text) const;

    std::string program_;
    bool level_prefix_ = false;
    bool escapes_ = false;
};

/// Writes all of `text`; errors are not reported, since there is no better place to.
void write_out(int fd, const std::string& text);

}  // namespace nsbox::tool
