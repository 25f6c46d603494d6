#pragma once

#include <optional>
#include <string>

#include <sys/types.h>

namespace nsbox::tool {

/// A private folder that is gone at the end, whatever a command has put into it, also where this process is
/// killed: a process of its own removes it.
class WorkFolder {
public:
    /// Below $TMPDIR, or /tmp; nothing with errno set. While this process has one thread.
    static std::optional<WorkFolder> make();

    WorkFolder(WorkFolder&& other) noexcept;
    WorkFolder(const WorkFolder&) = delete;
    WorkFolder& operator=(const WorkFolder&) = delete;
    WorkFolder& operator=(WorkFolder&&) = delete;
    ~WorkFolder();

    const std::string& path() const { return path_; }
    /// Has to stay open until the end.
    int descriptor() const { return lifeline_; }

private:
    WorkFolder(std::string path, int lifeline, pid_t guard)
        : path_(std::move(path)), lifeline_(lifeline), guard_(guard)
    {}

    std::string path_;
    int lifeline_ = -1;
    pid_t guard_ = -1;
};

/// Removes a folder and all in it, without following links and however deep it is; false where something is
/// left.
bool remove_folder(const std::string& path);

}  // namespace nsbox::tool
