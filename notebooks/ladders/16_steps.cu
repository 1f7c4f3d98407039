// A ring of two stages: a warp asks TMA for tiles, and a warpgroup multiplies them by wgmma.
//
//   x [64, depth], w [16, depth] bfloat16, y [64, 16] float: y = x w^T; depth: a multiple of 64

#include <cuda_bf16.h>
#include "wgmma.cuh"

using T = nv_bfloat16;
constexpr int kStages = 2, kRows = 64, kUnits = 16, kDepth = 64, kThreads = kWarpgroup + 32;

__global__ void WGMMA_KERNEL(kThreads)
    product_ring(const __grid_constant__ CUtensorMap x, const __grid_constant__ CUtensorMap w,
                 float* y, int steps) {
#if HAS_WGMMA
    __shared__ alignas(kTileAlign) T of_x[kStages][kRows * kDepth];
    __shared__ alignas(kTileAlign) T of_w[kStages][kUnits * kDepth];
    __shared__ Mbarrier full[kStages], empty[kStages];
    const int t = threadIdx.x;
    if (t == 0) {
        for (Mbarrier& each : full) each.init();
        for (Mbarrier& each : empty) each.init(kWarpgroup);
    }
    __syncthreads();
    if (t == kWarpgroup) {  // the producer
        for (int step = 0; step < steps; ++step) {
            const int stage = step % kStages, round = step / kStages;
            empty[stage].wait((round + 1) % 2);
            full[stage].arrive_expect_tx(sizeof(of_x[0]) + sizeof(of_w[0]));
            tma_load(of_x[stage], x, step * kDepth, 0, 0, full[stage]);
            tma_load(of_w[stage], w, step * kDepth, 0, 0, full[stage]);
        }
    } else if (t < kWarpgroup) {
        float sums[8] = {};
        for (int step = 0; step < steps; ++step) {
            const int stage = step % kStages, round = step / kStages;
            full[stage].wait(round % 2);
            wgmma_fence();
            for (int k = 0; k < kDepth / 16; ++k) {
                wgmma<T>(sums, wgmma_descriptor(of_x[stage]) + 2 * k,
                         wgmma_descriptor(of_w[stage]) + 2 * k, true);
            }
            wgmma_commit();
            wgmma_wait<0>();
            empty[stage].arrive();
        }
        const int row = t / 32 * 16 + t % 32 / 4, unit = t % 4 * 2;
        for (int i = 0; i < 8; ++i)
            y[(row + i / 2 % 2 * 8) * kUnits + i / 4 * 8 + unit + i % 2] = sums[i];
    }
#endif
}

extern "C" cudaError_t ring(const T* x, const T* w, float* y, int depth, cudaStream_t stream) {
    CUtensorMap of_x, of_w;
    if (!make_tensor_map(of_x, x, 1, kRows, depth, 0, depth, kRows) ||
        !make_tensor_map(of_w, w, 1, kUnits, depth, 0, depth, kUnits))
        return cudaErrorInvalidValue;
    product_ring<<<1, kThreads, 0, stream>>>(of_x, of_w, y, depth / kDepth);
    return cudaGetLastError();
}
