// Rings of stages for products in tensor memory, and products with A there.
#pragma once
#include "tensor_pairs.cuh"

// A has 128 rows and 16 columns of 16 bits: 8 columns of tensor memory.
DEVICE void multiply_from(unsigned d, unsigned a, const void* tile) {
    const long long descriptor = (at(tile) & 0x3ffff) >> 4 | strides;
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, 0, 0;"
        " tcgen05.mma.cta_group::1.kind::f16 [%0], [%1], %2, %3, p; }" ::"r"(d),
        "r"(a), "l"(descriptor), "r"(instruction));
}

// Without a look at whether there is any.
#define FIRST_OF(block, answer)                                                   \
    asm volatile(                                                                 \
        "{ .reg .b128 r; ld.shared.b128 r, [%1];"                                 \
        " clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %0, r; }" \
        : "=r"(block)                                                             \
        : "r"(at(answer))                                                         \
        : "memory")

constexpr int stages = 2, steps = 6;
// 4096 bytes, from less.
DEVICE void load_tile(unsigned* to, const float* x, uint64_t* barrier) {
    load_bytes(to, x, 2048, barrier);
    load_bytes(to + 512, x, 2048, barrier);
}
#define BEGIN_RING                                                              \
    BEGIN(32)                                                                   \
    __shared__ alignas(128) unsigned stage[stages][2048];                       \
    __shared__ alignas(8) uint64_t full[stages], empty[stages];                 \
    if (threadIdx.x == 0) {                                                     \
        for (int i = 0; i < stages; i++) init(&full[i], 1), init(&empty[i], 1); \
        fence_init();                                                           \
    }                                                                           \
    __syncthreads();
DEVICE void multiply_ring(unsigned d, unsigned (*stage)[2048], uint64_t* full, uint64_t* empty,
                          uint64_t* done) {
    for (int k = 0; k < steps; k++) {
        wait_at(&full[k % stages], k / stages % 2);
        multiply(d, stage[k % stages], strides, instruction, k > 0);
        commit_to(&empty[k % stages]);
    }
    commit_to(done);
}
