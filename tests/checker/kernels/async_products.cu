// Planted bugs: products of warpgroups by wgmma, their registers and their matrices in shared
// memory.
#include <cuda_fp16.h>
#include "asynchronous.cuh"
#include "export.cuh"

constexpr int threads = 128;
#define LAUNCH(function, kernel) EXPORT(function, kernel<<<1, threads>>>(x, y))

// A is 64 x 16 and B 8 x 16, in pieces of 8 rows by 8 columns, 128 bytes each: no swizzle.
struct Matrices {
    __half a[2][64 * 8], b[2][8 * 8];
};
DEVICE void fill(Matrices& m, const float* x, float scale = 1) {
    for (int i = threadIdx.x; i < 1024; i += threads)
        m.a[i / 512][i % 512] = __half(scale * x[i % 100]);
    for (int i = threadIdx.x; i < 128; i += threads) m.b[i / 64][i % 64] = __half(x[i]);
}
// Two matrices that may be multiplied, and a thread's accumulators.
#define BEGIN                           \
    __shared__ alignas(128) Matrices m; \
    fill(m, x);                         \
    fence_proxy();                      \
    __syncthreads();                    \
    float d[4] = {};
DEVICE uint64_t of_a(const Matrices& m) { return describe(m.a, 1024, 128); }
DEVICE uint64_t of_b(const Matrices& m) { return describe(m.b, 128, 128); }
DEVICE void keep(float* y, const float (&d)[4]) {
    for (int i = 0; i < 3; i++) y[3 * threadIdx.x + i] = d[i] + d[3];
}

__global__ void unfenced(const float* x, float* y) {
    __shared__ alignas(128) Matrices m;
    fill(m, x);  // as in sglang#39124: what threads write is multiplied after a barrier alone
    __syncthreads();
    float d[4] = {};
    fence_products();
    multiply(d, of_a(m), of_b(m));  // BUG multiplies_what_is_not_fenced: missing proxy fence
    commit_products();
    wait_for_products<0>();
    keep(y, d);
}
LAUNCH(multiplies_what_is_not_fenced, unfenced)

__global__ void half_a_stride(const float* x, float* y) {
    BEGIN
    const uint64_t a = describe(m.a, 1024, 64);
    fence_products();
    multiply(d, a, of_b(m));  // BUG reads_rows_twice: note: matrix descriptor
    commit_products();
    wait_for_products<0>();
    keep(y, d);
}
LAUNCH(reads_rows_twice, half_a_stride)

__global__ void early(const float* x, float* y) {
    BEGIN
    fence_products();
    multiply(d, of_a(m), of_b(m));
    commit_products();
    y[threadIdx.x] = d[0];  // BUG reads_accumulators_too_early: register in use
    wait_for_products<0>();
}
LAUNCH(reads_accumulators_too_early, early)

__global__ void one_left(const float* x, float* y) {
    __shared__ alignas(128) Matrices m;
    fill(m, x);
    fence_proxy();
    __syncthreads();
    float d[4] = {}, e[4] = {};
    fence_products();
    multiply(d, of_a(m), of_b(m));
    commit_products();
    multiply(e, of_a(m), of_b(m));
    commit_products();
    wait_for_products<1>();
    for (int i = 0; i < 4; i++) d[i] += e[i];  // BUG waits_for_one_of_two_groups: register in use
    wait_for_products<0>();
    keep(y, d);
}
LAUNCH(waits_for_one_of_two_groups, one_left)

__global__ void scaled(const float* x, float* y) {
    BEGIN
    fence_products();
    multiply(d, of_a(m), of_b(m));
    commit_products();
    for (int i = 0; i < 4; i++) d[i] *= 2;  // BUG scales_accumulators_too_early: register in use
    wait_for_products<0>();
    keep(y, d);
}
LAUNCH(scales_accumulators_too_early, scaled)

__global__ void changed_a(const float* x, float* y) {
    BEGIN
    uint32_t a[4];
    for (int i = 0; i < 4; i++) a[i] = 0x3c003c00;
    fence_products();
    multiply(d, a, of_b(m));
    commit_products();
    for (int i = 0; i < 4; i++) a[i] += threadIdx.x;  // BUG changes_a_too_early: register in use
    wait_for_products<0>();
    y[threadIdx.x] = d[0] + a[0] + a[1] + a[2] + a[3];
}
LAUNCH(changes_a_too_early, changed_a)

__global__ void no_fence(const float* x, float* y) {
    BEGIN
    multiply(d, of_a(m), of_b(m));  // BUG first_product_without_a_fence: missing wgmma fence
    commit_products();
    wait_for_products<0>();
    keep(y, d);
}
LAUNCH(first_product_without_a_fence, no_fence)

__global__ void no_fence_again(const float* x, float* y) {
    BEGIN
    fence_products();
    for (int k = 0; k < 2; k++) {
        multiply(d, of_a(m), of_b(m));  // BUG scales_unfenced: missing wgmma fence
        commit_products();
        wait_for_products<0>();
        for (int i = 0; i < 4; i++) d[i] *= 2;
    }
    keep(y, d);
}
LAUNCH(scales_unfenced, no_fence_again)

__global__ void overwritten(const float* x, float* y) {
    BEGIN
    fence_products();
    multiply(d, of_a(m), of_b(m));
    commit_products();
    m.a[0][threadIdx.x] = __half(1);  // BUG overwrites_what_is_multiplied: asynchronous race
    wait_for_products<0>();
    keep(y, d);
}
LAUNCH(overwrites_what_is_multiplied, overwritten)

// A fifth warp loads the next tile as soon as the stage is given back.
__global__ void given_back_early(const float* x, float* y) {
    __shared__ alignas(128) Matrices m;
    __shared__ uint64_t empty, full;
    const int t = threadIdx.x;
    if (t == 0) init(&empty, threads), init(&full, 1), fence_init();
    if (t < threads) fill(m, x);
    fence_proxy();
    __syncthreads();
    if (t < threads) {
        float d[4] = {};
        fence_products();
        multiply(d, of_a(m), of_b(m));
        commit_products();
        arrive(&empty);
        wait_for_products<0>();
        y[t] = d[0];
    } else if (t == threads) {
        wait_phase(&empty, 0);
        expect(&full, 1024);
        load_bulk((float*)m.a, x, 1024, &full);  // BUG back_early: asynchronous race
        wait_phase(&full, 0);
    }
}
EXPORT(back_early, given_back_early<<<1, threads + 32>>>(x, y))

__global__ void not_loaded(const float* x, float* y) {
    __shared__ alignas(128) Matrices m;
    __shared__ uint64_t full;
    const int t = threadIdx.x;
    if (t == 0) init(&full, 1), fence_init();
    fill(m, x);
    fence_proxy();
    __syncthreads();
    if (t == 0) {
        expect(&full, 1024);
        load_bulk(reinterpret_cast<float*>(m.a), x, 1024, &full);
    }
    __syncthreads();
    float d[4] = {};
    fence_products();
    multiply(d, of_a(m), of_b(m));  // BUG multiplies_what_is_not_there: asynchronous race
    commit_products();
    wait_for_products<0>();
    wait_phase(&full, 0);
    keep(y, d);
}
LAUNCH(multiplies_what_is_not_there, not_loaded)

// Rows of 64 halves, 128 bytes: A's 64 rows are copied by one map, B's 8 by another.
template <int swizzle, int shift>
DEVICE void multiply_boxes(const CUtensorMap* map_a, const CUtensorMap* map_b, float (&d)[4],
                           uint64_t& of_a, uint64_t& of_b) {
    __shared__ alignas(1024) char a[64 * 128 + 1024], b[8 * 128 + 1024];
    __shared__ uint64_t full;
    const int t = threadIdx.x;
    if (t == 0) init(&full, 1), fence_init();
    __syncthreads();
    if (t == 0) {
        expect(&full, 64 * 128 + 8 * 128);
        load_box(a + shift, map_a, 0, 0, &full);
        load_box(b, map_b, 0, 0, &full);
    }
    wait_phase(&full, 0);
    of_a = describe(a + shift, 16, 1024, swizzle);
    of_b = describe(b, 16, 1024, swizzle);
    fence_products();
}

__global__ void other_swizzle(const __grid_constant__ CUtensorMap map_a,
                              const __grid_constant__ CUtensorMap map_b, float* y) {
    float d[4] = {};
    uint64_t a, b;
    multiply_boxes<128, 0>(&map_a, &map_b, d, a, b);
    multiply(d, a, b);  // BUG another_swizzle_than_the_map: swizzle
    commit_products();
    wait_for_products<0>();
    keep(y, d);
}
EXPORT(another_swizzle_than_the_map,
       other_swizzle<<<1, threads>>>(map_of(x, 30, 64, 64, 64, 0, true),
                                     map_of(x, 30, 64, 8, 64, 0, true), y))

__global__ void odd_place(const __grid_constant__ CUtensorMap map_a,
                          const __grid_constant__ CUtensorMap map_b, float* y) {
    float d[4] = {};
    uint64_t a, b;
    multiply_boxes<128, 256>(&map_a, &map_b, d, a, b);
    multiply(d, a, b);  // BUG a_matrix_within_a_pattern: misaligned
    commit_products();
    wait_for_products<0>();
    keep(y, d);
}
EXPORT(a_matrix_within_a_pattern, odd_place<<<1, threads>>>(map_of(x, 30, 64, 64, 64, 128, true),
                                                            map_of(x, 30, 64, 8, 64, 128, true), y))

__global__ void __cluster_dims__(2, 1, 1) pair_that_does_not_meet(const float* x, float* y) {
    __shared__ unsigned columns;
    allocate_in_pair(&columns);
    y[blockIdx.x * threads + threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < 32)
        FREE_IN_PAIR(columns);  // BUG frees_what_a_pair_shares: note: missing cluster barrier
}
EXPORT(frees_what_a_pair_shares, pair_that_does_not_meet<<<2, threads>>>(x, y))
