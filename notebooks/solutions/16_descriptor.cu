// c = a b^T of 64 x 16 numbers by wgmma, with a matrix descriptor of its own
//
//   a [64, depth], b [16, depth] bfloat16, c [64, 16] float; depth: a multiple of 64

#include <cuda_bf16.h>
#include "wgmma.cuh"

using T = nv_bfloat16;
constexpr int kRows = 64, kColumns = 16, kDepth = 64;

__device__ uint64_t descriptor(const void* tile) {
    const uint64_t address = shared_address(tile);
    return (address >> 4 & 0x3fff) | uint64_t(1024 >> 4) << 32 | 1ull << 62;
}

__global__ void product(const __grid_constant__ CUtensorMap of_a,
                        const __grid_constant__ CUtensorMap of_b, float* c, int steps) {
    __shared__ alignas(kTileAlign) T a[kRows * kDepth];
    __shared__ alignas(kTileAlign) T b[kColumns * kDepth];
    __shared__ Mbarrier full;
    const int t = threadIdx.x;
    if (t == 0) full.init();
    __syncthreads();
    float sums[8] = {};
    for (int step = 0; step < steps; ++step) {
        if (t == 0) {
            full.arrive_expect_tx(sizeof(a) + sizeof(b));
            tma_load(a, of_a, step * kDepth, 0, 0, full);
            tma_load(b, of_b, step * kDepth, 0, 0, full);
        }
        full.wait(step % 2);
        wgmma_fence();
        for (int k = 0; k < kDepth / 16; ++k)
            wgmma<T>(sums, descriptor(a) + 2 * k, descriptor(b) + 2 * k, true);
        wgmma_commit();
        wgmma_wait<0>();
        __syncthreads();
    }
    const int row = t % kWarpgroup / 32 * 16 + t % 32 / 4;
    for (int i = 0; i < 8; ++i)
        c[(row + i / 2 % 2 * 8) * kColumns + i / 4 * 8 + t % 4 * 2 + i % 2] = sums[i];
}

extern "C" cudaError_t launch(const T* a, const T* b, float* c, int depth, cudaStream_t stream) {
    CUtensorMap of_a, of_b;
    if (!make_tensor_map(of_a, a, 1, kRows, depth, 0, depth, kRows) ||
        !make_tensor_map(of_b, b, 1, kColumns, depth, 0, depth, kColumns))
        return cudaErrorInvalidValue;
    product<<<1, kWarpgroup, 0, stream>>>(of_a, of_b, c, depth / kDepth);
    return cudaGetLastError();
}
