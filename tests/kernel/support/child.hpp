#pragma once

#include <functional>
#include <map>
#include <string>

#include <sys/types.h>

namespace nsbox::tests {

/// What a test's process has to say, fact by fact. The test asserts; the process only reports.
class Say {
public:
    explicit Say(int fd) : fd_(fd) {}
    void operator()(const std::string& name, const std::string& value);
    void operator()(const std::string& name, const char* value)
    {
        (*this)(name, std::string{value});
    }
    void operator()(const std::string& name, long value) { (*this)(name, std::to_string(value)); }

private:
    int fd_;
};

/// How a test's process ended and what it said.
class Ended {
public:
    std::map<std::string, std::string> facts;
    int status = -1;         ///< As waitpid(2) has it.
    bool timed_out = false;  ///< It was killed because it did not end.

    /// The body was run to its end.
    bool well() const;
    /// A fact, or "(not said)".
    std::string operator[](const std::string& name) const;
    /// Everything, for messages.
    std::string all() const;
};

enum class Where {
    here,            ///< Same namespaces.
    own_namespaces,  ///< New user and mount namespaces; the user is 0 there.
};

/// Runs `body` in a process of its own, which may change anything about itself.
Ended in_child(Where where, const std::function<void(Say&)>& body, int seconds = 120);

/// How many children of this process are left, dead or alive. They are waited for if dead.
std::string children_left();

}  // namespace nsbox::tests
