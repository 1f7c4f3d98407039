// Products in tensor memory, for one block of 128 threads: what kernels of tcgen05 are made of.
#pragma once
#include "asynchronous.cuh"

constexpr int threads = 128, product_columns = 32;
constexpr unsigned instruction = 1 << 4 | product_columns / 8 << 17 | 128 / 16 << 24;  // f16, M 128

DEVICE void allocate(unsigned* columns, int count) {
    asm volatile(
        "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(at(columns)),
        "r"(count)
        : "memory");
}
DEVICE void deallocate(unsigned columns, int count) {
    asm volatile(
        "tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(columns), "r"(count));
}
DEVICE void before() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
DEVICE void after() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }
constexpr long long strides = 1ll << 46 | 8ll << 32 | 128ll << 16;
// adds: to what is in d.
DEVICE void multiply(unsigned d, const void* tile, long long strides = ::strides,
                     unsigned instruction = ::instruction, bool adds = false) {
    const long long descriptor = (at(tile) & 0x3ffff) >> 4 | strides;
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %3, 0;"
        " tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %1, %2, p; }" ::"r"(d),
        "l"(descriptor), "r"(instruction), "r"(int(adds)));
}
DEVICE void add(unsigned d, const void* tile) { multiply(d, tile, strides, instruction, true); }
DEVICE void commit_to(uint64_t* barrier) {
    asm volatile(
        "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(
            at(barrier))
        : "memory");
}
DEVICE void wait_at(uint64_t* barrier, int parity) {
    asm volatile(
        "{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;"
        " @!p bra again; }" ::"r"(at(barrier)),
        "r"(parity)
        : "memory");
}
DEVICE unsigned lane_of(unsigned columns) { return columns + (threadIdx.x / 32 * 32 << 16); }
#define LOAD_AT(word, address) \
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, [%1];" : "=r"(word) : "r"(address))
#define LOAD(word, columns) LOAD_AT(word, lane_of(columns))
#define STORE(columns, word) \
    asm volatile(            \
        "tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {%1};" ::"r"(lane_of(columns)), "r"(word))
DEVICE void loaded() { asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory"); }
DEVICE void stored() { asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); }

// What every kernel begins with: columns, a barrier, and a tile of zeros that both factors are.
#define BEGIN(count)                                               \
    __shared__ alignas(128) unsigned tile[2048];                   \
    __shared__ alignas(8) uint64_t barrier;                        \
    __shared__ unsigned columns;                                   \
    for (int i = threadIdx.x; i < 2048; i += threads) tile[i] = 0; \
    if (threadIdx.x < 32) allocate(&columns, count);               \
    if (threadIdx.x == 0) init(&barrier, 1), fence_init();         \
    fence_proxy();                                                 \
    __syncthreads();                                               \
    unsigned word = 0;
// And what it ends with.
#define END(count)                                \
    y[blockIdx.x * threads + threadIdx.x] = word; \
    before();                                     \
    __syncthreads();                              \
    if (threadIdx.x < 32) deallocate(columns, count);
