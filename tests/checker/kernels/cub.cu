// CUB, whose storage may be used again behind a barrier.
#include <cub/cub.cuh>
#include "export.cuh"

__global__ void scan_twice(const float* x, float* y, int n) {
    using Scan = cub::BlockScan<float, kThreads>;
    __shared__ typename Scan::TempStorage storage;
    float before = 0;
    for (int first = 0; first < n; first += kThreads) {
        const int i = first + threadIdx.x;
        float sum, all;
        Scan(storage).InclusiveSum(i < n ? x[i] : 0, sum, all);  // BUG scan_storage_again: race
        if (i < n) y[i] = before + sum;
        before += all;
    }
}
EXPORT(scan_storage_again, scan_twice<<<1, kThreads>>>(x, y, n))

__global__ void reduce_twice(const float* x, float* y, int n) {
    using Reduce = cub::BlockReduce<float, kThreads>;
    __shared__ typename Reduce::TempStorage storage;
    for (int first = 0; first < n; first += kThreads) {
        const int i = first + threadIdx.x;
        const float sum = Reduce(storage).Sum(i < n ? x[i] : 0);  // BUG reduce_storage_again: race
        if (i < n) y[i] = sum;
    }
}
EXPORT(reduce_storage_again, reduce_twice<<<1, kThreads>>>(x, y, n))

// ---- Nothing is to be found in these

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
EXPORT(storage_with_barriers, scan_and_reduce<<<1, kThreads>>>(x, y, n))
