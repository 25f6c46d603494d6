#pragma once

#include "rootfs/confine.hpp"
#include "rootfs/manifest.hpp"
#include "sys/error.hpp"
#include "sys/fd.hpp"

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <sys/stat.h>

namespace nsbox::rootfs {

/// What comes out of an archive.
struct Member {
    enum class Kind {
        entry,
        whiteout,  ///< What earlier layers have at this path goes.
        opaque,    ///< What earlier layers have in this folder goes.
    };
    Kind kind = Kind::entry;
    Entry entry;
};

/// Makes a tree of files, one member after the other. Every path is resolved below the root,
/// openat2(2), Linux 5.6; symbolic links on the way lead where they would for a process whose root
/// it is, and one at the end is never followed. Errors name the member.
class Tree {
public:
    /// `root` is borrowed.
    Tree(int root, const Ownership& ownership, std::uint64_t max_size);

    /// What is made from here on belongs to the next layer of an image.
    void begin_layer();
    /// Anything but a file.
    Result<> add(const Member& member);
    Result<> begin_file(const Entry& entry);
    Result<> write(std::uint64_t offset, std::string_view data);
    /// With its SHA-256 in hexadecimal digits, and its size: it may end in a hole.
    Result<> end_file(const std::string& content, std::uint64_t size);

    /// Gives the folders their modes and times, and lists everything.
    Result<Manifest> finish();
    /// What was left out, for people: one line each.
    std::vector<std::string> notes() const;

private:
    Result<int> folder_for(const std::string& path);
    Result<sys::Fd> open_folder(const std::string& path, const std::string& member);
    Result<sys::Fd> make_folders(const std::string& path, const std::string& member);
    Result<> make_folder(const Entry& entry, int parent, const std::string& name);
    Result<> make_hard_link(const Entry& entry, int parent, const std::string& name);
    Result<> make_node(const Entry& entry, int parent, const std::string& name);
    Result<> note_device(const Entry& entry, int parent, const std::string& name);
    Result<> hide(const Member& member);
    bool is_of_layer(int folder, const std::string& name, const struct ::stat& status) const;
    Result<> remove_earlier(int folder, const std::string& name, const std::string& member);
    Result<> make_way(const std::string& name, const Entry& entry);
    Result<> take_owner(int parent, const std::string& name, const Entry& entry,
                        const struct ::stat& status, int fd);
    void keep_attributes(int fd, const Entry& entry);
    void record(const Entry& entry, const struct ::stat& status);
    std::string path_of(int folder) const;
    void forget_folder() { last_folder_.reset(); }

    int root_;
    Ownership ownership_;
    std::uint64_t max_size_;
    std::uint64_t written_ = 0;

    std::string root_path_;  ///< As getcwd(3) has it.
    std::string last_path_;
    sys::Fd last_folder_;

    sys::Fd file_;
    Entry file_entry_;
    struct ::stat file_status_ {};
    std::uint64_t file_end_ = 0;

    std::unordered_map<ino_t, Entry> records_;  ///< Without paths.
    bool has_layers_ = false;
    std::unordered_set<ino_t> layer_;  ///< What the layer has made or changed.
    /// Names that it has made for what was there before: the folder, and the name in it.
    std::set<std::pair<ino_t, std::string>> layer_links_;
    std::map<std::string, Entry> devices_;  ///< By their paths.

    std::uint64_t foreign_owners_ = 0;
    std::uint64_t set_id_files_ = 0;
    std::map<std::string, std::uint64_t> lost_attributes_;
};

}  // namespace nsbox::rootfs
