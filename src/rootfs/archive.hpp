#pragma once

#include "rootfs/pipeline.hpp"
#include "rootfs/sha256.hpp"
#include "sys/error.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

struct archive;
struct archive_entry;

namespace nsbox::rootfs {

/// What an import may take.
struct Limits {
    std::uint64_t size = std::uint64_t{64} << 30;
    std::uint64_t members = std::uint64_t{4} << 20;
};

/// A bar on a terminal, from half a second on, that goes at the end.
class Progress {
public:
    /// `total` bytes, or 0 where nobody knows. Nothing is shown unless standard error is a terminal.
    explicit Progress(std::uint64_t total);
    ~Progress();
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    void add(std::uint64_t bytes);

private:
    using Clock = std::chrono::steady_clock;
    void show(Clock::time_point now);

    std::uint64_t total_;
    std::uint64_t done_ = 0;
    bool is_terminal_;
    bool is_shown_ = false;
    Clock::time_point begin_;
    Clock::time_point next_;
};

/// Whether an archive may stop behind its last member, without what fills up the block and the two
/// blocks of zeros. `umoci insert` writes such layers; where a digest shows that nothing is missing,
/// that is no damage.
enum class Ending { required, may_be_missing };

/// Reads a tar archive, compressed or not, from its beginning. libarchive does it.
class Archive {
public:
    /// `fd` is borrowed; `called` is for errors. From where its offset is.
    Archive(int fd, std::string called, Progress* progress, Ending ending = Ending::required);
    ~Archive();
    Archive(const Archive&) = delete;
    Archive& operator=(const Archive&) = delete;

    Result<> open();
    /// The next member; false at the end. Its path is checked.
    Result<bool> next(Entry& entry);
    /// next() gives the same once more; its data must not have been read.
    void unread(const Entry& entry);
    /// Bytes of data that the member claims to have, whatever its type.
    std::uint64_t claim() const noexcept { return claim_; }
    /// Of a socket, or something else that no archive can mean.
    bool is_strange() const noexcept { return is_strange_; }
    /// The data of the member, in parts.
    Result<> read(const std::function<Result<>(std::uint64_t, std::string_view)>& take);
    /// Whether it had access control lists, which nothing here keeps.
    bool has_lists() const noexcept { return has_lists_; }
    /// Reads what follows the archive, so that who writes into a pipe can end.
    Result<> drain();

private:
    static long read_part(struct ::archive*, void* self, const void** data);
    Result<> damaged() const;
    bool stops_behind_a_member() const;
    void take_times_and_owner(Entry& entry) const;

    int fd_;
    std::string called_;
    Progress* progress_;
    Ending ending_;
    struct ::archive* archive_;
    struct ::archive_entry* entry_ = nullptr;
    std::vector<char> buffer_;
    std::uint64_t taken_ = 0;
    int error_ = 0;
    bool ends_in_zeros_ = false;
    bool is_over_ = false;  ///< The end is missing, and may be.
    bool is_strange_ = false;
    bool has_lists_ = false;
    std::uint64_t claim_ = 0;
    bool is_unread_ = false;
    Entry unread_;
};

/// Counts against the limits.
class Budget {
public:
    explicit Budget(const Limits& limits) : limits_(limits) {}
    /// `claim` as Archive's.
    Result<> take(const Entry& entry, std::uint64_t claim);
    std::uint64_t members() const noexcept { return members_; }
    std::uint64_t size() const noexcept { return size_; }

private:
    Limits limits_;
    std::uint64_t members_ = 0;
    std::uint64_t size_ = 0;
};

/// Things that are not in the tree, for one line each.
struct Omissions {
    std::uint64_t sockets = 0;
    std::uint64_t lists = 0;
};

enum class Whiteouts { are_files, hide };

/// Hands everything in an archive to the pipeline.
Result<> unpack_archive(Archive& archive, Whiteouts whiteouts, Pipeline& into, Budget& budget,
                        Omissions& omissions);

/// What a name of an image's layer means.
Member::Kind kind_of_layer_name(std::string& path);

/// Whether an archive holds nothing of a member's type that could be in an image archive.
bool looks_like_image(const Entry& entry);

/// The SHA-256 of what a compressed file holds.
Result<std::string> sha256_of_content(int fd, const std::string& called);

}  // namespace nsbox::rootfs
