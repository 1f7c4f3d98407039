// Four ways to copy n floats, and the way to measure how far away memory is.
//
//   x, y [n] float
//
// Traffic: x is read and y is written, 8 bytes per element, whichever way.

#include "vec.cuh"

constexpr int kThreads = 256;
constexpr int kRun = 32;  // elements of a thread

// ---- run: each thread copies a run of neighbouring elements.
// Flaw: what the threads of a warp read at the same time lies a whole run apart.

__global__ void copy_run(const float* x, float* y, int64_t n) {
    const int64_t begin = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * kRun;
    for (int64_t i = begin; i < begin + kRun && i < n; ++i) y[i] = x[i];
}

// ---- neighbours: neighbouring threads copy neighbouring elements.
// Flaw: a thread has 4 bytes on their way, and then waits for them.

__global__ void copy_neighbours(const float* x, float* y, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}

// ---- vector: 16 bytes per access.
// Flaw: x and y must stand on a 16-byte boundary, and n must be a multiple of 4.

__global__ void copy_vector(const float* x, float* y, int64_t n) {
    const int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * 4;
    if (i < n) store(y + i, load<4>(x + i));
}

// ---- several: four such accesses on their way before the first is waited for.
// Flaw: none is left that a copy could show, and four times as many registers are taken.

__global__ void copy_several(const float* x, float* y, int64_t n) {
    const int64_t first = int64_t(blockIdx.x) * blockDim.x * 16 + threadIdx.x * 4;
    Vec<float, 4> v[4];
    for (int k = 0; k < 4; ++k) {
        const int64_t i = first + k * blockDim.x * 4;
        if (i < n) v[k] = load<4>(x + i);
    }
    for (int k = 0; k < 4; ++k) {
        const int64_t i = first + k * blockDim.x * 4;
        if (i < n) store(y + i, v[k]);
    }
}

// ---- launchers

extern "C" cudaError_t run(const float* x, float* y, int64_t n, cudaStream_t stream) {
    copy_run<<<ceil_div<int64_t>(n, kThreads * kRun), kThreads, 0, stream>>>(x, y, n);
    return cudaGetLastError();
}

extern "C" cudaError_t neighbours(const float* x, float* y, int64_t n, cudaStream_t stream) {
    copy_neighbours<<<ceil_div<int64_t>(n, kThreads), kThreads, 0, stream>>>(x, y, n);
    return cudaGetLastError();
}

extern "C" cudaError_t vector(const float* x, float* y, int64_t n, cudaStream_t stream) {
    copy_vector<<<ceil_div<int64_t>(n, kThreads * 4), kThreads, 0, stream>>>(x, y, n);
    return cudaGetLastError();
}

extern "C" cudaError_t several(const float* x, float* y, int64_t n, cudaStream_t stream) {
    copy_several<<<ceil_div<int64_t>(n, kThreads * 16), kThreads, 0, stream>>>(x, y, n);
    return cudaGetLastError();
}

// ---- how far is memory? One thread goes from place to place, each place naming the next, so that
// every access waits for the one before.

__global__ void chase(const int* next, int* end, int steps) {
    int at = 0;
    for (int k = 0; k < steps; ++k) at = next[at];
    *end = at;  // else the compiler would drop the walk
}

extern "C" cudaError_t walk(const int* next, int* end, int steps, cudaStream_t stream) {
    chase<<<1, 1, 0, stream>>>(next, end, steps);
    return cudaGetLastError();
}
