#pragma once

#include "rootfs/sha256.hpp"
#include "rootfs/tree.hpp"
#include "sys/error.hpp"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace nsbox::rootfs {

/// Makes a tree in a thread of its own, from what another thread reads meanwhile. Bounded: the one
/// that reads waits where the other is slower. To be used by one thread.
class Pipeline {
public:
    /// `tree` is the other thread's until finish() returns.
    Pipeline(Tree& tree, const Ownership& ownership);
    Pipeline(const Pipeline&) = delete;
    Pipeline& operator=(const Pipeline&) = delete;
    ~Pipeline();

    // Each fails where the other thread has, with its error.

    Result<> begin_layer();
    Result<> add(Member member);
    /// Then its data, in order; what no data is said for is zeros.
    Result<> begin_file(Entry entry);
    Result<> write(std::uint64_t offset, std::string_view data);
    Result<> end_file();
    Result<> finish();

private:
    struct Item {
        enum class Kind { layer, member, file, data, end };
        Kind kind = Kind::member;
        Member member;
        std::uint64_t offset = 0;
        std::size_t place = 0;  ///< In the batch's bytes.
        std::size_t size = 0;
        std::uint64_t total = 0;  ///< Bytes of the file.
    };
    struct Batch {
        std::vector<char> bytes;
        std::size_t used = 0;
        std::vector<Item> items;
    };

    Result<Batch*> batch();
    Result<> push();
    Result<> take_all(const Batch& batch);
    Result<> take_data(const Item& item, const Batch& batch);
    void run(const Ownership& ownership);
    void add_zeros(std::uint64_t count);

    Tree& tree_;
    std::vector<std::unique_ptr<Batch>> batches_;
    Batch* filling_ = nullptr;

    std::uint64_t read_ = 0;
    std::uint64_t size_ = 0;

    // The other thread's: it has less to do than the one that decompresses.
    Sha256 sum_;
    std::uint64_t summed_ = 0;

    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Batch*> free_;
    std::deque<Batch*> full_;
    bool ends_ = false;
    Result<> result_;
    std::thread thread_;
};

}  // namespace nsbox::rootfs
