// The instructions of tcgen05 that chapter 20's short kernels need, a function for each. For one
// block (cta_group::1) and factors of bfloat16, on compute capability 10.0.
#pragma once

#include <cuda_bf16.h>
#include "tma.cuh"

// One warp allocates columns of tensor memory, 32, 64, 128, 256 or 512; one warp frees them.
__device__ inline void tmem_alloc(uint32_t* tmem, int columns) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(
                     shared_address(tmem)),
                 "r"(columns)
                 : "memory");
}
__device__ inline void tmem_dealloc(uint32_t tmem, int columns) {
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(tmem), "r"(columns));
}

// A tile in shared memory: its address, 1024 bytes from eight rows to the next eight, bit 46 as
// PTX wants it, and the 128-byte swizzle (2 in bits 61 to 63).
__device__ inline uint64_t smem_descriptor(const void* tile) {
    return uint64_t(shared_address(tile) >> 4 & 0x3fff) | uint64_t(1024 >> 4) << 32 | 1ull << 46 |
           2ull << 61;
}

// Sums in float32 (1 in bits 4 and 5), factors in bfloat16 (1 in bits 7 to 9, and in 10 to 12),
// n / 8 in bits 17 to 22, m / 16 in bits 24 to 28.
__host__ __device__ constexpr uint32_t instruction_descriptor(int m, int n) {
    return 1 << 4 | 1 << 7 | 1 << 10 | n / 8 << 17 | m / 16 << 24;
}

// d = a b^T, or d += a b^T, over 16 of k. One thread starts it, and goes on at once.
__device__ inline void mma(uint32_t d, uint64_t a, uint64_t b, uint32_t what, bool adds) {
    asm volatile(
        "{ .reg .pred adds;\n"
        "  setp.ne.b32 adds, %4, 0;\n"
        "  tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, adds; }" ::"r"(d),
        "l"(a), "l"(b), "r"(what), "r"(int(adds))
        : "memory");
}

// The barrier gets one arrival when all products that this thread has started are done.
__device__ inline void commit(Mbarrier& barrier) {
    asm volatile(
        "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(
            barrier.address())
        : "memory");
}

// Around a barrier, where one thread has used tensor memory before it and another uses it after.
__device__ inline void before_thread_sync() {
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}
__device__ inline void after_thread_sync() {
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

// 16 columns from `from` on: each thread of a warp reads the row of its lane.
__device__ inline void tmem_load(float (&sums)[16], uint32_t from) {
    asm volatile(
        "tcgen05.ld.sync.aligned.32x32b.x16.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11,"
        " %12, %13, %14, %15}, [%16];"
        : "=f"(sums[0]), "=f"(sums[1]), "=f"(sums[2]), "=f"(sums[3]), "=f"(sums[4]), "=f"(sums[5]),
          "=f"(sums[6]), "=f"(sums[7]), "=f"(sums[8]), "=f"(sums[9]), "=f"(sums[10]),
          "=f"(sums[11]), "=f"(sums[12]), "=f"(sums[13]), "=f"(sums[14]), "=f"(sums[15])
        : "r"(from));
    asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
}
