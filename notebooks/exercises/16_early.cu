// The sum of each tile of 256 numbers: one warp fills stages, the other one adds them up
//
// On a GPU most runs are right.
//
// TODO: find the mistake. Budget: 35 lines of code.

#include "mbarrier.cuh"
#include "rows.cuh"

constexpr int kTile = 256, kStages = 2;

__global__ void sums(const float* x, float* y, int steps) {
    __shared__ float tiles[kStages][kTile];
    __shared__ Mbarrier full[kStages], empty[kStages];
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    if (threadIdx.x == 0) {
        for (int i = 0; i < kStages; ++i) full[i].init(kWarp), empty[i].init(kWarp);
    }
    __syncthreads();
    for (int step = 0; step < steps; ++step) {
        const int stage = step % kStages, round = step / kStages;
        if (warp == 0) {
            empty[stage].wait((round + 1) % 2);
            for (int i = lane; i < kTile; i += kWarp) tiles[stage][i] = x[step * kTile + i];
            full[stage].arrive();
        } else {
            full[stage].wait(round % 2);
            empty[stage].arrive();
            float sum = 0;
            for (int i = lane; i < kTile; i += kWarp) sum += tiles[stage][i];
            sum = warp_sum(sum);
            if (lane == 0) y[step] = sum;
        }
    }
}

extern "C" cudaError_t launch(const float* x, float* y, int steps, cudaStream_t stream) {
    sums<<<1, 2 * kWarp, 0, stream>>>(x, y, steps);
    return cudaGetLastError();
}
