// Planted gaps in memory that the call allocates. Every function reads back what it has left
// unwritten.
#include "export.cuh"

template <class T>
__global__ void write_some(const float* x, T* out, int n, int every) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i < n && i % every != 1) out[i] = x[i];
}
__global__ void read_all(const float* from, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i < n) y[i] = from[i];  // BUG every_third_is_read: uninitialised
}
extern "C" void every_third_is_read(const float* x, float* y, int n) {
    float* scratch;
    cudaMalloc(&scratch, n * sizeof(float));
    write_some<<<blocks_of(n), kThreads>>>(x, scratch, n, 3);
    read_all<<<blocks_of(n), kThreads>>>(scratch, y, n);
    cudaFree(scratch);
}

// What kernels leave out is not the host's part: its part is the first 100 elements.
__global__ void from_200(const float* x, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i >= 200 && i < n) y[i] = x[i];  // BUG neither_host_nor_kernel: unwritten
}
extern "C" void neither_host_nor_kernel(const float* x, float* y, int n) {
    cudaMemset(y, 0, 100 * sizeof(float));
    from_200<<<blocks_of(n), kThreads>>>(x, y, n);
}

__global__ void two_of_five(const float* x, float* y, int n) {
    const int i = blockIdx.x * 128 + threadIdx.x;
    if (i < n && i % 5 < 2) y[i] = x[i];  // BUG a_share_of_each_five: note: unwritten
}
EXPORT(a_share_of_each_five, two_of_five<<<(n + 127) / 128, 128>>>(x, y, n))
