// More of what kernels of tensor memory are made of: scales, pairs of blocks, launch control.
#pragma once
#include "tensor_memory.cuh"

constexpr int unit = 512;  // bytes of scales
constexpr unsigned scaled = 1 << 23 | product_columns / 8 << 17 | 128 / 16 << 24;

DEVICE void relinquish() {
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;" ::: "memory");
}
// Macros, so that what ends the kernel there is told by the kernel's line.
#define ALLOCATE(columns, count)                                                                \
    asm volatile(                                                                               \
        "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(at(columns)), \
        "r"(count)                                                                              \
        : "memory")
#define DEALLOCATE(columns, count) \
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(columns), "r"(count))
#define MULTIPLY_AS(d, tile, shape)                                            \
    asm volatile(                                                              \
        "{ .reg .pred p; setp.ne.b32 p, 0, 0;"                                 \
        " tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %1, %2, p; }" ::"r"(d), \
        "l"((at(tile) & 0x3ffff) >> 4 | strides), "r"(shape))
DEVICE void copy_scales(unsigned to, const void* from) {
    const long long descriptor = (at(from) & 0x3ffff) >> 4 | 1ll << 46 | 8ll << 32;
    asm volatile("tcgen05.cp.cta_group::1.32x128b.warpx4 [%0], %1;" ::"r"(to), "l"(descriptor)
                 : "memory");
}
// Of e4m3, with scales of e8m0.
DEVICE void multiply_scaled(unsigned d, const void* tile, unsigned scales) {
    const long long descriptor = (at(tile) & 0x3ffff) >> 4 | strides;
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, 0, 0;"
        " tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X"
        " [%0], %1, %1, %2, [%3], [%3], p; }" ::"r"(d),
        "l"(descriptor), "r"(scaled), "r"(scales));
}
// A product of a kind and its scale vector, with scales of A and of B of their own.
constexpr unsigned of_4_bits = scaled | 1 << 7 | 1 << 10;
DEVICE unsigned ids(int i) { return scaled | i << 29 | i << 4; }
#define SCALED(kind, d, shape, of_a, of_b)                                                   \
    asm volatile("{ .reg .pred p; setp.ne.b32 p, 0, 0; tcgen05.mma.cta_group::1.kind::" kind \
                 " [%0], %1, %1, %2, [%3], [%4], p; }" ::"r"(d),                             \
                 "l"((at(tile) & 0x3ffff) >> 4 | strides), "r"(shape), "r"(of_a), "r"(of_b))
#define MXFP8 "mxf8f6f4.block_scale.scale_vec::1X"
#define MXFP4 "mxf4.block_scale.scale_vec::2X"
#define NVFP4 "mxf4nvf4.block_scale.scale_vec::4X"
// Rows of 16 bytes, 8 of them every so many units of 16 bytes.
#define COPY(shape, stride, to, from)                                          \
    asm volatile("tcgen05.cp.cta_group::1." shape " [%0], %1;" ::"r"(to),      \
                 "l"((at(from) & 0x3ffff) >> 4 | 1ll << 46 | stride##ll << 32) \
                 : "memory")
#define STORE_SCALES(columns, word)                                                              \
    asm volatile(                                                                                \
        "tcgen05.st.sync.aligned.32x32b.x4.b32 [%0], {%1, %1, %1, %1};" ::"r"(lane_of(columns)), \
        "r"(word))
// Scales in shared memory, and the columns that are to hold those of A and of B.
#define BEGIN_WITH_SCALES(count)                                                          \
    BEGIN(count)                                                                          \
    __shared__ alignas(128) unsigned scales[512];                                         \
    for (int i = threadIdx.x; i < 512; i += threads) scales[i] = i / 4 % 32 * 0x01010101; \
    fence_proxy();                                                                        \
    __syncthreads();                                                                      \
    unsigned of_a = columns + 32, of_b = columns + 36;
DEVICE void load_bytes(void* to, const float* from, int bytes, uint64_t* barrier) {
    load_bulk(static_cast<float*>(to), from, bytes, barrier);
}

// ---- Pairs of blocks

DEVICE void meet() {
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
}
DEVICE unsigned rank() { return blockIdx.x % 2; }
DEVICE unsigned leaders(const void* p) {
    unsigned there;
    asm("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(there) : "r"(at(p)));
    return there;
}
DEVICE void arrive_narrowly(unsigned there) {
    asm volatile("mbarrier.arrive.release.cta.shared::cluster.b64 _, [%0];" ::"r"(there)
                 : "memory");
}
// 256 rows, 128 for each block, by 32.
DEVICE void multiply_in_pair(unsigned d, const void* tile) {
    const long long descriptor = (at(tile) & 0x3ffff) >> 4 | strides;
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, 0, 0;"
        " tcgen05.mma.cta_group::2.kind::f16 [%0], %1, %1, %2, p; }" ::"r"(d),
        "l"(descriptor), "r"(1 << 4 | product_columns / 8 << 17 | 256 / 16 << 24));
}
DEVICE void commit_to_pair(uint64_t* barrier) {
    asm volatile(
        "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64"
        " [%0], %1;" ::"r"(at(barrier)),
        "h"(short(3))
        : "memory");
}
#define BEGIN_PAIR                                                           \
    __shared__ alignas(128) unsigned tile[2048];                             \
    __shared__ alignas(8) uint64_t barrier, others;                          \
    __shared__ unsigned columns;                                             \
    for (int i = threadIdx.x; i < 2048; i += threads) tile[i] = 0;           \
    if (threadIdx.x == 0) init(&barrier, 1), init(&others, 1), fence_init(); \
    fence_proxy();                                                           \
    meet();                                                                  \
    allocate_in_pair(&columns);                                              \
    meet();                                                                  \
    unsigned word = 0;
#define END_PAIR                                                      \
    if (blockIdx.x < 2) y[blockIdx.x * threads + threadIdx.x] = word; \
    before();                                                         \
    meet();                                                           \
    if (threadIdx.x < 32) FREE_IN_PAIR(columns);

// ---- Cluster launch control

DEVICE void ask(uint4* answer, uint64_t* barrier) {
    expect(barrier, 16);
    asm volatile(
        "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 "
        "[%0], [%1];" ::"r"(at(answer)),
        "r"(at(barrier))
        : "memory");
}
#define QUERY(block, answer)                                                         \
    asm volatile(                                                                    \
        "{ .reg .pred p; .reg .b128 r; ld.shared.b128 r, [%1]; mov.b32 %0, -1;"      \
        " clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, r;"             \
        " @p clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %0, r; }" \
        : "=r"(block)                                                                \
        : "r"(at(answer))                                                            \
        : "memory")
#define BEGIN_CONTROL                                      \
    __shared__ alignas(16) uint4 answer;                   \
    __shared__ alignas(8) uint64_t barrier;                \
    if (threadIdx.x == 0) init(&barrier, 1), fence_init(); \
    __syncthreads();                                       \
    int block = blockIdx.x;
