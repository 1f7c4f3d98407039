// mma.sync: the product of a tile that the lanes of a warp have together.
#pragma once
#include "../asynchronous.h"
#include "meeting.h"
#include "tensor_types.h"

namespace simulator::ptx {

// d: C before.
SIMULATOR_INLINE void __ptx_mma(const tensor_cores::Tile& tile, const void* a, const void* b,
                                void* d, SIMULATOR_CALLER) {
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
SIMULATOR_INLINE void __ptx_mma_sparse(const tensor_cores::Tile& tile, const void* a, const void* b,
                                       void* d, uint32_t metadata, unsigned selector,
                                       unsigned selectors, SIMULATOR_CALLER) {
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

// The same where rows of A and columns of B have scales.
SIMULATOR_INLINE void __ptx_mma_scaled(
    const tensor_cores::Tile& tile, const void* a, const void* b, void* d,
    tensor_cores::BlockScales scales, uint32_t scale_a, unsigned byte_a, unsigned lane_a,
    uint32_t scale_b, unsigned byte_b, unsigned lane_b, bool is_sparse, uint32_t metadata,
    SIMULATOR_CALLER) {
    const auto is_byte = [&](unsigned byte) { return byte < 4 && byte % scales.count == 0; };
    if (!is_byte(byte_a) || !is_byte(byte_b) || lane_a > 1 || lane_b > 3)
        fail(
            "byte-id is 0 to 3, a multiple of the size of the vectors of scales, thread-id-a 0 or "
            "1, thread-id-b 0 to 3",
            "mma.block_scale", file, line);
    tensor_cores::ScaledFragments mine;
    mine.run = tensor_cores::multiply_scaled_fragments;
    mine.tile = &tile;
    mine.a = a;
    mine.b = b;
    mine.d = d;
    mine.scales = scales;
    mine.scale_a = scale_a, mine.byte_a = byte_a, mine.lane_a = lane_a;
    mine.scale_b = scale_b, mine.byte_b = byte_b, mine.lane_b = lane_b;
    mine.is_sparse = is_sparse, mine.metadata = metadata;
    tell_product(tile, "mma.sync", file, line);
    meet(mine, "mma.sync", file, line);
}

}  // namespace simulator::ptx
