// bar.sync, bar.arrive and bar.red: the barriers of a block that have numbers.
#pragma once
#include "barrier.h"

namespace simulator {

// The running thread comes to barrier `id`, at which `count` threads are expected (0: all). It
// waits for them unless it only arrives. Returns the barrier, with what the votes came to.
#ifdef __SANITIZE_THREAD__
SIMULATOR_EXPORT const NamedBarrier& named_barrier(unsigned id, unsigned count, bool waits,
                                                   bool vote, const char* what, const char* file,
                                                   int line);
#else
SIMULATOR_WAIT const NamedBarrier& named_barrier(unsigned id, unsigned count, bool waits, bool vote,
                                                 const char* what, const char* file, int line) {
    Block& block = *current;
    const unsigned rank = block.rank;
    if (id > 15) fail("barriers have the numbers 0 to 15", what, file, line);
    if (count % warp_size) fail("whole warps come: a multiple of 32 threads", what, file, line);
    note(block, rank, what, file, line);
    if (block.come_to_named(rank, id, count, waits, vote))
        suspend(block, rank, next_fiber(block, rank));
    return block.named[id];
}
#endif

}  // namespace simulator
