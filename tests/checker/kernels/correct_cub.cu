// Correct kernels with CUB, with a barrier before its storage is used again: the checker must find
// nothing. Every function takes (const float* x, float* y, int n) with n = 1000.

#include <cub/cub.cuh>

constexpr int kThreads = 128;

__global__ void scan_and_reduce(const float* x, float* y, int n) {
    using Scan = cub::BlockScan<float, kThreads>;
    using Reduce = cub::BlockReduce<float, kThreads>;
    __shared__ union {
        typename Scan::TempStorage scan;
        typename Reduce::TempStorage reduce;
    } storage;
    for (int first = 0; first < n; first += kThreads) {
        const int i = first + threadIdx.x;
        float sum, all;
        Scan(storage.scan).ExclusiveSum(i < n ? x[i] : 0, sum, all);
        __syncthreads();
        const float same = Reduce(storage.reduce).Sum(i < n ? x[i] : 0);
        __syncthreads();
        if (i < n) y[i] = sum + (threadIdx.x ? all : same);
    }
}
extern "C" void storage_with_barriers(const float* x, float* y, int n) {
    scan_and_reduce<<<1, kThreads>>>(x, y, n);
}
