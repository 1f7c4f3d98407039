// mma.sync: the product of a tile that the lanes of a warp have together.
#pragma once
#include "../tensor_cores.h"
#include "meeting.h"

namespace simulator::ptx {

using tensor_cores::Type;

// d: C before.
SIMULATOR_INLINE void mma(const tensor_cores::Tile& tile, const void* a, const void* b, void* d,
                          SIMULATOR_CALLER) {
    tensor_cores::Fragments mine;
    mine.run = tensor_cores::multiply_fragments;
    mine.tile = &tile;
    mine.a = a;
    mine.b = b;
    mine.d = d;
    meet(mine, "mma.sync", file, line);
}

}  // namespace simulator::ptx
