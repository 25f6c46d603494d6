#pragma once

#include "nsbox/error.hpp"
#include "nsbox/nsbox.hpp"
#include "nsbox/spec.hpp"

#include <cstddef>
#include <memory>

#pragma GCC visibility push(default)

namespace nsbox {

/// How a Pool is kept.
struct PoolOptions {
    std::size_t size = 2;  ///< How many sandboxes wait. At least 1.
    /// A thread of the pool's own makes those that are missing. Else refill() does, when the caller calls it.
    bool has_thread = true;
};

/// Sandboxes of one description that are ready for their commands, so that a command starts about as fast as
/// a program without a sandbox. Each is used once: whoever takes one has it alone and ends it, and another one
/// is made in its place, so that nothing of a command is left for the next one. Move-only. The
/// destructor ends those that wait, and the pool's thread; those that were taken go on.
///
/// One that waits is one process of nsbox's own with about 40 KiB of memory, besides what the kernel takes
/// for its namespaces and mounts: see doc/benchmarks.md.
///
/// The description is used several times: it must not name descriptors that are read to their end, or files
/// that one sandbox has at a time (Overlay::upper). After a fork(2) the pool belongs to the parent alone.
///
/// Thread-safety: any number of threads at once, but for the destructor.
class Pool {
public:
    /// Makes the first sandbox before it returns, so that a description that does not work is an error here.
    /// With PoolOptions::has_thread the others follow; without, refill() makes them.
    static Result<Pool> create(const Spec& spec, const PoolOptions& options = {});

    Pool(Pool&&) noexcept;
    Pool& operator=(Pool&&) noexcept;
    ~Pool();

    /// A sandbox, as Sandbox::create() would make it. Where none is ready it makes one, and fails as that
    /// does. One that has ended meanwhile is never handed out.
    Result<Sandbox> take();

    /// Makes those that are missing, and replaces those that have ended; returns when all are ready. Blocks.
    Result<> refill();

    /// How many are ready.
    std::size_t ready() const;

    /// Readable (poll(2)) when some are missing, for a caller without the pool's thread. Owned here.
    int descriptor() const noexcept;

private:
    struct State;
    [[gnu::visibility("hidden")]] explicit Pool(std::unique_ptr<State> state) noexcept;
    std::unique_ptr<State> state_;
};

}  // namespace nsbox

#pragma GCC visibility pop
