// What the executor announces to whoever watches its launches, and asks of it: all that it knows of
// a checker.
#pragma once
#include <initializer_list>
#include <utility>
#include "errors.h"

namespace simulator {
namespace {

using Memory = std::pair<const void*, size_t>;

// While there is one, the blocks of a launch run one after another, on the thread that launches.
class Watcher {
  public:
    // A launch begins. `shared`: its dynamic shared memory. `executors`: what else its threads
    // touch, because they run there.
    virtual void begin_launch(const Launch& launch, Memory shared,
                              std::initializer_list<Memory> executors) = 0;
    // The n-th of its blocks to run, and the threads of each in the order in which they start.
    virtual uint64_t block_in_order(uint64_t n) const = 0;
    virtual const uint16_t* threads_in_order() const = 0;

    // A block begins. It ends with what made it fail, if anything did; the answer is whether the
    // launch goes on.
    virtual void begin_block(Block& block, uint64_t index) = 0;
    virtual bool end_block(const Error* error) = 0;

    // All living threads of the block, or these lanes of a warp, have come to where they wait for
    // each other.
    virtual void barrier(const Block& block) = 0;
    virtual void exchange(const Block& block, unsigned warp, uint32_t lanes, Exchange kind) = 0;
    // All living threads of so many warps have come, from the first on.
    virtual void tile(const Block& block, unsigned first, unsigned warps) = 0;

    // Where the blocks of a cooperative grid take turns, each on a thread of its own: the first
    // block of such a thread begins; all blocks have come to where they wait for each other; and
    // one goes on after that.
    virtual void begin_thread(const Launch& launch, Memory shared,
                              std::initializer_list<Memory> executors) = 0;
    virtual void grid() = 0;
    virtual void resume_block(Block& block, uint64_t n) = 0;
    // And where those of a cluster do: a block lets others go first, and goes on after that. What
    // came before is then taken to be known to all.
    virtual void leave_block(const Block& block) = 0;
    virtual void return_to_block(Block& block, uint64_t n) = 0;

    // The running thread arrives at a cuda::barrier, and the last one ends its phase; and it has
    // seen a phase end.
    virtual void arrived(uintptr_t barrier, bool is_last) = 0;
    virtual void passed(uintptr_t barrier) = 0;

    // Memory of the device comes into being, with so many bytes on either side that are nobody's;
    // and its end.
    virtual void allocated(uintptr_t begin, size_t bytes, size_t pad) = 0;
    virtual void freed(uintptr_t begin) = 0;

  protected:
    ~Watcher() = default;
};

// Null where nobody watches.
Watcher* watcher = nullptr;

// For a watcher: gives up the running block, which is about to do what cannot be let happen.
[[noreturn]] void stop_block(const char* message);

}  // namespace
}  // namespace simulator
