// A cluster, and tensor maps with products of a warpgroup. `// here NAME` marks lines that a test
// looks for.
#include <cuda_fp16.h>
#include "../../checker/kernels/asynchronous.cuh"

__global__ void __cluster_dims__(2) exchanged(const float* x, float* y, int n) {
    __shared__ float mine[32], sent[32];
    const int t = threadIdx.x, other = rank_in_cluster() ^ 1;
    mine[t] = x[32 * blockIdx.x + t];
    sync_cluster();
    const float theirs = load_from(in_block(&mine[t], other));  // here read
    store_to(in_block(&sent[t], other), 2 * theirs);            // here stored
    sync_cluster();
    y[32 * blockIdx.x + t] = sent[t];  // here kept
}

__global__ void multiplied(const __grid_constant__ CUtensorMap map_a,
                           const __grid_constant__ CUtensorMap map_b, float* y, int steps) {
    __shared__ alignas(1024) __half a[2][64 * 64], b[2][8 * 64];
    __shared__ alignas(8) uint64_t full[2];
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++) init(&full[i], 1);
        fence_init();
    }
    __syncthreads();
    float d[4] = {};
    for (int k = 0; k < steps; k++) {
        const int i = k % 2;
        if (threadIdx.x == 0) {
            expect(&full[i], sizeof a[i] + sizeof b[i]);
            load_box(a[i], &map_a, 64 * k, 0, &full[i]);  // here asked
            load_box(b[i], &map_b, 64 * k, 0, &full[i]);
        }
        wait_phase(&full[i], k / 2 % 2);
        fence_products();
        for (int part = 0; part < 4; part++)
            multiply(d, describe(a[i] + 16 * part, 16, 1024, 128),  // here multiplied
                     describe(b[i] + 16 * part, 16, 1024, 128));
        commit_products();
        wait_for_products<0>();  // here awaited
        __syncthreads();
    }
    for (int j = 0; j < 4; j++) y[4 * threadIdx.x + j] = d[j];
}

extern "C" void run_exchanged(const float* x, float* y, int n) { exchanged<<<4, 32>>>(x, y, n); }
extern "C" void run_multiplied(const __half* a, const __half* b, float* y, int k) {
    multiplied<<<1, 128>>>(
        map_of(a, 64, k, 64, 64, 128, true), map_of(b, 8, k, 8, 64, 128, true), y, k / 64);
}
