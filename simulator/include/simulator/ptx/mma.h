// mma.sync: the product of a tile that the lanes of a warp have together.
#pragma once
#include "../asynchronous.h"
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
    tell_product(tile, "mma.sync", file, line);
    meet(mine, "mma.sync", file, line);
}

// The same where A is sparse.
SIMULATOR_INLINE void mma_sparse(const tensor_cores::Tile& tile, const void* a, const void* b,
                                 void* d, uint32_t metadata, unsigned selector, unsigned selectors,
                                 SIMULATOR_CALLER) {
    if (selector >= selectors)
        fail("the sparsity selector names no lanes of four", "mma.sp", file, line);
    tensor_cores::SparseFragments mine;
    mine.run = tensor_cores::multiply_sparse_fragments;
    mine.tile = &tile;
    mine.a = a;
    mine.b = b;
    mine.d = d;
    mine.metadata = metadata;
    mine.selector = selector;
    tell_product(tile, "mma.sp", file, line);
    meet(mine, "mma.sp", file, line);
}

}  // namespace simulator::ptx
