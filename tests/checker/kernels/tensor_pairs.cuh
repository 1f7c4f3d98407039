// What kernels of pairs are made of: scales, and copies that tell the pair's first block.
#pragma once
#include <cuda.h>
#include "tensor_order.cuh"

// Scales of both blocks, from the shared memory of each, to the tensor memory of each.
DEVICE void copy_scales_in_pair(unsigned to, const void* from) {
    const long long descriptor = (at(from) & 0x3ffff) >> 4 | 1ll << 46 | 8ll << 32;
    asm volatile("tcgen05.cp.cta_group::2.32x128b.warpx4 [%0], %1;" ::"r"(to), "l"(descriptor)
                 : "memory");
}
DEVICE void multiply_scaled_in_pair(unsigned d, const void* tile, unsigned scales) {
    const long long descriptor = (at(tile) & 0x3ffff) >> 4 | strides;
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, 0, 0;"
        " tcgen05.mma.cta_group::2.kind::mxf8f6f4.block_scale.scale_vec::1X"
        " [%0], %1, %1, %2, [%3], [%3], p; }" ::"r"(d),
        "l"(descriptor), "r"(1 << 23 | 16 / 8 << 17 | 256 / 16 << 24), "r"(scales));
}
DEVICE void arrive_for_the_cluster(unsigned there) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(there)
                 : "memory");
}

// Of a cluster of 4.
DEVICE void commit_to_its_pair(uint64_t* barrier) {
    asm volatile(
        "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64"
        " [%0], %1;" ::"r"(at(barrier)),
        "h"(short(3 << (blockIdx.x & 2)))
        : "memory");
}

// And scales, and a barrier for their arrival.
#define BEGIN_PAIR_WITH_SCALES                             \
    BEGIN_PAIR                                             \
    __shared__ alignas(128) unsigned scales[128];          \
    __shared__ alignas(8) uint64_t arrived;                \
    if (threadIdx.x == 0) init(&arrived, 1), fence_init(); \
    meet();

constexpr int line = 128;  // floats, 512 bytes

inline CUtensorMap map_of_lines(const void* x) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &entry, cudaEnableDefault, &found);
    alignas(64) CUtensorMap map;
    const cuuint64_t extent[] = {1000};
    const cuuint32_t box[] = {line}, steps[] = {1};
    reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry)(
        &map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 1, const_cast<void*>(x), extent, nullptr, box, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_L2_PROMOTION_NONE,
        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return map;
}
// To this block, and told to the barrier of its pair's first block.
DEVICE void load_line_in_pair(void* to, const CUtensorMap* map, uint64_t* barrier) {
    const unsigned told = at(barrier) & 0xfeffffff;
    asm volatile(
        "cp.async.bulk.tensor.1d.cta_group::2.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2}], [%3];" ::"r"(at(to)),
        "l"(map), "r"(0), "r"(told)
        : "memory");
}
