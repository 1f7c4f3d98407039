// c = a b^T of 64 x 16 numbers by wgmma, with a ring of two stages: one thread has TMA fill them,
// and a warpgroup multiplies
//
//   a [64, depth], b [16, depth] bfloat16, c [64, 16] float; depth: a multiple of 64
//
// TODO: the phases for which the two waits in the loops wait. Budget: 55 lines of code.

#include <cuda_bf16.h>
#include "wgmma.cuh"

using T = nv_bfloat16;
constexpr int kStages = 2, kRows = 64, kColumns = 16, kDepth = 64;

__global__ void product(const __grid_constant__ CUtensorMap of_a,
                        const __grid_constant__ CUtensorMap of_b, float* c, int steps) {
    __shared__ alignas(kTileAlign) T a[kStages][kRows * kDepth];
    __shared__ alignas(kTileAlign) T b[kStages][kColumns * kDepth];
    __shared__ Mbarrier full[kStages], empty[kStages];
    const int t = threadIdx.x;
    if (t == 0) {
        for (int i = 0; i < kStages; ++i) full[i].init(), empty[i].init();
    }
    __syncthreads();
    if (t == kWarpgroup) {  // the producer
        for (int step = 0; step < steps; ++step) {
            const int i = step % kStages;
            empty[i].wait(1);
            full[i].arrive_expect_tx(sizeof(a[0]) + sizeof(b[0]));
            tma_load(a[i], of_a, step * kDepth, 0, 0, full[i]);
            tma_load(b[i], of_b, step * kDepth, 0, 0, full[i]);
        }
    } else if (t < kWarpgroup) {
        float sums[8] = {};
        for (int step = 0; step < steps; ++step) {
            const int i = step % kStages;
            full[i].wait(0);
            wgmma_fence();
            for (int k = 0; k < kDepth / 16; ++k)
                wgmma<T>(
                    sums, wgmma_descriptor(a[i]) + 2 * k, wgmma_descriptor(b[i]) + 2 * k, true);
            wgmma_commit();
            wgmma_wait<1>();
            if (t == 0 && step > 0) empty[(step - 1) % kStages].arrive();
        }
        wgmma_wait<0>();
        const int row = t % kWarpgroup / 32 * 16 + t % 32 / 4;
        for (int i = 0; i < 8; ++i)
            c[(row + i / 2 % 2 * 8) * kColumns + i / 4 * 8 + t % 4 * 2 + i % 2] = sums[i];
    }
}

extern "C" cudaError_t launch(const T* a, const T* b, float* c, int depth, cudaStream_t stream) {
    CUtensorMap of_a, of_b;
    if (!make_tensor_map(of_a, a, 1, kRows, depth, 0, depth, kRows) ||
        !make_tensor_map(of_b, b, 1, kColumns, depth, 0, depth, kColumns))
        return cudaErrorInvalidValue;
    product<<<1, kWarpgroup + 32, 0, stream>>>(of_a, of_b, c, depth / kDepth);
    return cudaGetLastError();
}
