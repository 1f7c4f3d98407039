// Where the threads of a tile of several warps wait for each other.
#pragma once
#include "warp.h"

namespace simulator {

// Each thread of a tile of `size` threads hands in a value, and gets that of the tile's thread
// `source` when all its warps have come.
#ifdef __SANITIZE_THREAD__
SIMULATOR_EXPORT uint64_t meet(unsigned size, uint64_t value, unsigned source, const char* what,
                               const char* file, int line);
#else
SIMULATOR_WAIT uint64_t meet(unsigned size, uint64_t value, unsigned source, const char* what,
                             const char* file, int line) {
    Block& block = *current;
    const unsigned rank = block.rank;
    note(block, rank, what, file, line);
    Warp& warp = block.warps[rank / warp_size];
    const unsigned lane = rank % warp_size;
    warp.key[lane] = uint64_t(source) << 32 | size;
    warp.value[lane] = value;
    warp.tile |= 1u << lane;
    const bool last = warp.tile == warp.alive;
    if (Context* next = last ? block.complete_tile(rank) : next_fiber(block, rank))
        suspend(block, rank, next);
    return warp.result[lane];
}
#endif

}  // namespace simulator
