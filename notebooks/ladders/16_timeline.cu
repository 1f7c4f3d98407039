// A ring of stages in shared memory: one warp fills them, two warps add up what is in them, and
// each notes when it waited and when it worked. The order of waiting is that of matmul's
// `specialized`.
//
//   x [steps, 1024] float, y [2] float: the sum of the even and of the odd pieces of 32 numbers
//   log [3, steps, 3] int64: of each warp and step the clock when it began to wait, when it had
//   waited, and when it was done. Warp 0 is the producer.

#include "mbarrier.cuh"
#include "rows.cuh"

constexpr int kTile = 1024, kMostStages = 8, kConsumerWarps = 2;

__global__ void timeline(const float* x, float* y, int64_t* log, int steps, int stages, int work) {
    __shared__ float tiles[kMostStages][kTile];
    __shared__ Mbarrier full[kMostStages], empty[kMostStages];
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    if (threadIdx.x == 0) {
        for (Mbarrier& each : full) each.init(kWarp);
        for (Mbarrier& each : empty) each.init(kConsumerWarps * kWarp);
    }
    __syncthreads();

    float sum = 0;
    for (int step = 0; step < steps; ++step) {
        const int stage = step % stages, round = step / stages;
        const int64_t began = clock64();
        // In round 0 the producer waits for the phase before the first, which counts as complete.
        if (warp == 0) {
            empty[stage].wait((round + 1) % 2);
        } else {
            full[stage].wait(round % 2);
        }
        const int64_t waited = clock64();
        if (warp == 0) {
            for (int i = lane; i < kTile; i += kWarp) tiles[stage][i] = x[step * kTile + i];
            full[stage].arrive();
        } else {
            for (int again = 0; again < work; ++again)
                for (int i = (warp - 1) * kWarp + lane; i < kTile; i += kConsumerWarps * kWarp)
                    sum += tiles[stage][i];
            empty[stage].arrive();
        }
        if (lane == 0) {
            int64_t* at = log + (warp * steps + step) * 3;
            at[0] = began;
            at[1] = waited;
            at[2] = clock64();
        }
    }
    sum = warp_sum(sum);
    if (warp > 0 && lane == 0) y[warp - 1] = sum / work;
}

// ---- launchers

extern "C" cudaError_t timeline_of(const float* x, float* y, int64_t* log, int steps, int stages,
                                   int work, cudaStream_t stream) {
    timeline<<<1, (1 + kConsumerWarps) * kWarp, 0, stream>>>(x, y, log, steps, stages, work);
    return cudaGetLastError();
}
