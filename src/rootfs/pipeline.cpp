#include "rootfs/pipeline.hpp"

#include "rootfs/confine.hpp"
#include "rootfs/names.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace nsbox::rootfs {

namespace {

constexpr std::size_t batch_count = 8;
constexpr std::size_t batch_bytes = std::size_t{1} << 19;
constexpr std::size_t batch_items = 512;

}  // namespace

Pipeline::Pipeline(Tree& tree, const Ownership& ownership) : tree_(tree)
{
    for (std::size_t i = 0; i < batch_count; ++i) {
        batches_.push_back(std::make_unique<Batch>());
        batches_.back()->bytes.resize(batch_bytes);
        batches_.back()->items.reserve(batch_items);
        free_.push_back(batches_.back().get());
    }
    thread_ = std::thread{[this, ownership] { run(ownership); }};
}

Pipeline::~Pipeline()
{
    if (thread_.joinable())
        (void)finish();
}

void Pipeline::run(const Ownership& ownership)
{
    make_files_as_root(ownership);
    drop_other_capabilities();
    std::unique_lock lock{mutex_};
    for (;;) {
        changed_.wait(lock, [this] { return !full_.empty() || ends_; });
        if (full_.empty())
            return;
        Batch* const batch = full_.front();
        full_.pop_front();
        const bool goes_on = result_.has_value();
        lock.unlock();
        Result<> done = goes_on ? take_all(*batch) : Result<>{};
        batch->used = 0;
        batch->items.clear();
        lock.lock();
        if (!done)
            result_ = std::move(done);
        free_.push_back(batch);
        changed_.notify_all();
    }
}

Result<> Pipeline::take_all(const Batch& batch)
{
    for (const Item& item : batch.items) {
        switch (item.kind) {
        case Item::Kind::layer:
            tree_.begin_layer();
            break;
        case Item::Kind::member:
            TRY(tree_.add(item.member));
            break;
        case Item::Kind::file:
            summed_ = 0;
            TRY(tree_.begin_file(item.member.entry));
            break;
        case Item::Kind::data:
            TRY(take_data(item, batch));
            break;
        case Item::Kind::end:
            add_zeros(item.total - summed_);
            TRY(tree_.end_file(to_hex(sum_.take()), item.total));
            break;
        }
    }
    return {};
}

Result<> Pipeline::take_data(const Item& item, const Batch& batch)
{
    const char* const data = batch.bytes.data() + item.place;
    add_zeros(item.offset - summed_);
    sum_.add(data, item.size);
    summed_ = item.offset + item.size;
    return tree_.write(item.offset, {data, item.size});
}

Result<> Pipeline::push()
{
    if (filling_ == nullptr)
        return {};
    const std::lock_guard lock{mutex_};
    full_.push_back(std::exchange(filling_, nullptr));
    changed_.notify_all();
    return result_;
}

/// One with room for an item.
Result<Pipeline::Batch*> Pipeline::batch()
{
    if (filling_ != nullptr && filling_->items.size() == batch_items)
        TRY(push());
    if (filling_ == nullptr) {
        std::unique_lock lock{mutex_};
        changed_.wait(lock, [this] { return !free_.empty(); });
        if (!result_)
            return tl::make_unexpected(result_.error());
        filling_ = free_.back();
        free_.pop_back();
    }
    return filling_;
}

Result<> Pipeline::begin_layer()
{
    Batch* const into = TRY(batch());
    into->items.emplace_back().kind = Item::Kind::layer;
    return {};
}

Result<> Pipeline::add(Member member)
{
    Batch* const into = TRY(batch());
    Item& item = into->items.emplace_back();
    item.kind = Item::Kind::member;
    item.member = std::move(member);
    return {};
}

Result<> Pipeline::begin_file(Entry entry)
{
    Batch* const into = TRY(batch());
    read_ = 0;
    size_ = entry.size;
    Item& item = into->items.emplace_back();
    item.kind = Item::Kind::file;
    item.member.entry = std::move(entry);
    return {};
}

void Pipeline::add_zeros(std::uint64_t count)
{
    static const std::array<char, 65536> zeros{};
    while (count > 0) {
        const std::size_t part = std::min<std::uint64_t>(count, zeros.size());
        sum_.add(zeros.data(), part);
        count -= part;
    }
}

Result<> Pipeline::write(std::uint64_t offset, std::string_view data)
{
    if (offset < read_ || offset > size_ || data.size() > size_ - offset)
        return refuse("Can't unpack", {}, "the archive is damaged: a file's parts overlap");
    read_ = offset + data.size();
    while (!data.empty()) {
        Batch* const into = TRY(batch());
        const std::size_t size = std::min(data.size(), into->bytes.size() - into->used);
        if (size == 0) {
            TRY(push());
            continue;
        }
        std::memcpy(into->bytes.data() + into->used, data.data(), size);
        Item& item = into->items.emplace_back();
        item.kind = Item::Kind::data;
        item.offset = offset;
        item.place = into->used;
        item.size = size;
        into->used += size;
        offset += size;
        data.remove_prefix(size);
    }
    return {};
}

Result<> Pipeline::end_file()
{
    Batch* const into = TRY(batch());
    Item& item = into->items.emplace_back();
    item.kind = Item::Kind::end;
    item.total = size_;
    return {};
}

Result<> Pipeline::finish()
{
    (void)push();
    {
        const std::lock_guard lock{mutex_};
        ends_ = true;
        changed_.notify_all();
    }
    thread_.join();
    return result_;
}

}  // namespace nsbox::rootfs
