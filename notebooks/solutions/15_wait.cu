// When step `step` begins, kStages - 1 groups are under way: that of this step has to be there, so
// kStages - 2 may still be on the way.

#include <cuda_bf16.h>
#include "mma.cuh"

using T = nv_bfloat16;
constexpr int kStages = 3;

// 16 of depth: for each lane of the warp 16 bytes of x, and for half of them 16 of w.
__device__ void fetch(T (&tile_x)[16][16], T (&tile_w)[8][16], const T* x, const T* w, int depth) {
    const int row = threadIdx.x / 2, column = threadIdx.x % 2 * 8;
    cp_async_or_zeros(&tile_x[row][column], x + row * depth + column, 8);
    if (row < 8) cp_async_or_zeros(&tile_w[row][column], w + row * depth + column, 8);
}

__global__ void product(const T* x, const T* w, float* y, int depth) {
    __shared__ __align__(128) T tile_x[kStages][16][16], tile_w[kStages][8][16];
    const int lane = threadIdx.x, steps = depth / 16;
    const auto fetch_step = [&](int step) {
        const int n = step % kStages, k = step * 16;
        if (step < steps) fetch(tile_x[n], tile_w[n], x + k, w + k, depth);
        cp_async_commit();
    };
    float sums[4] = {};
    for (int step = 0; step < kStages - 1; ++step) fetch_step(step);
    for (int step = 0; step < steps; ++step) {
        cp_async_wait<kStages - 2>();
        __syncwarp();
        fetch_step(step + kStages - 1);
        uint32_t a[4], b[4];
        ldmatrix(a, &tile_x[step % kStages][lane % 16][lane / 16 * 8], false);
        ldmatrix(b, &tile_w[step % kStages][lane % 8][lane / 8 % 2 * 8], false);
        mma<T>(sums, a, b);
    }
    for (int i = 0; i < 4; ++i) y[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sums[i];
}

extern "C" cudaError_t launch(const nv_bfloat16* x, const nv_bfloat16* w, float* y, int depth,
                              cudaStream_t stream) {
    product<<<1, 32, 0, stream>>>(x, w, y, depth);
    return cudaGetLastError();
}
