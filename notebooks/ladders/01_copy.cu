// Seven ways to copy n floats, and the ways to measure how fast blocks start and how far away
// memory is.
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
// Flaw: a block for every 256 elements, and starting a block takes time.

__global__ void copy_neighbours(const float* x, float* y, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}

// ---- stride: a grid-stride loop. As many blocks as the GPU can hold start once, and each thread
// goes on to the element that is as many elements further as the grid has threads.
// Flaw: y may overlap x, so a thread must store one element before it loads the next: it has 4
// bytes in flight.

__global__ void copy_stride(const float* x, float* y, int64_t n) {
    const int64_t all = int64_t(gridDim.x) * blockDim.x;
    for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += all) y[i] = x[i];
}

// ---- unrolled: __restrict__ promises that x and y do not overlap. So the compiler may issue the
// loads of four turns before the first store.
// Flaw: four loads and four stores of 4 bytes, where one of each of 16 bytes would do.

__global__ void copy_unrolled(const float* __restrict__ x, float* __restrict__ y, int64_t n) {
    const int64_t all = int64_t(gridDim.x) * blockDim.x;
#pragma unroll 4
    for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += all) y[i] = x[i];
}

// ---- vector: 16 bytes per access.
// Flaw: x and y must be aligned to 16 bytes, and n must be a multiple of 4.

__global__ void copy_vector(const float* x, float* y, int64_t n) {
    const int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * 4;
    if (i < n) store(y + i, load<4>(x + i));
}

// ---- several: four such accesses of a thread in flight before it waits for the first.
// Flaw: nvcc 13.0 makes four stores of 4 bytes each of the second, third and fourth store.

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

// ---- whole: the same, with stores that the compiler must leave whole.
// Flaw: none that a copy shows; each thread takes more registers than one of copy_vector.

__global__ void copy_whole(const float* x, float* y, int64_t n) {
    const int64_t first = int64_t(blockIdx.x) * blockDim.x * 16 + threadIdx.x * 4;
    Vec<float, 4> v[4];
    for (int k = 0; k < 4; ++k) {
        const int64_t i = first + k * blockDim.x * 4;
        if (i < n) v[k] = load<4>(x + i);
    }
    for (int k = 0; k < 4; ++k) {
        const int64_t i = first + k * blockDim.x * 4;
        if (i < n) store_at_once(y + i, v[k]);
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

int all_resident() { return multiprocessors() * (2048 / kThreads); }  // 2048 threads on each

extern "C" cudaError_t stride(const float* x, float* y, int64_t n, cudaStream_t stream) {
    copy_stride<<<all_resident(), kThreads, 0, stream>>>(x, y, n);
    return cudaGetLastError();
}

// Leaves room for one block of another kernel.
extern "C" cudaError_t stride_beside(const float* x, float* y, int64_t n, cudaStream_t stream) {
    copy_stride<<<all_resident() - 1, kThreads, 0, stream>>>(x, y, n);
    return cudaGetLastError();
}

extern "C" cudaError_t unrolled(const float* x, float* y, int64_t n, cudaStream_t stream) {
    copy_unrolled<<<all_resident(), kThreads, 0, stream>>>(x, y, n);
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

extern "C" cudaError_t whole(const float* x, float* y, int64_t n, cudaStream_t stream) {
    copy_whole<<<ceil_div<int64_t>(n, kThreads * 16), kThreads, 0, stream>>>(x, y, n);
    return cudaGetLastError();
}

// ---- the same two with fewer blocks on a multiprocessor: each block asks for `shared` bytes of
// shared memory that it does not use.

constexpr auto kMostShared = cudaFuncAttributeMaxDynamicSharedMemorySize;

extern "C" cudaError_t vector_apart(const float* x, float* y, int64_t n, int shared,
                                    cudaStream_t stream) {
    cudaFuncSetAttribute(copy_vector, kMostShared, shared);
    copy_vector<<<ceil_div<int64_t>(n, kThreads * 4), kThreads, shared, stream>>>(x, y, n);
    return cudaGetLastError();
}

extern "C" cudaError_t whole_apart(const float* x, float* y, int64_t n, int shared,
                                   cudaStream_t stream) {
    cudaFuncSetAttribute(copy_whole, kMostShared, shared);
    copy_whole<<<ceil_div<int64_t>(n, kThreads * 16), kThreads, shared, stream>>>(x, y, n);
    return cudaGetLastError();
}

// ---- how fast do blocks start? Blocks that do nothing tell.

__global__ void empty() {}

extern "C" cudaError_t nothing(int blocks, int threads, cudaStream_t stream) {
    empty<<<blocks, threads, 0, stream>>>();
    return cudaGetLastError();
}

// ---- how far is memory? One thread walks from place to place. Each place holds the number of the
// next one, so every access waits for the one before it.

__global__ void chase(const int* next, int* end, int steps) {
    int at = 0;
    for (int k = 0; k < steps; ++k) at = next[at];
    *end = at;  // else the compiler would drop the walk
}

extern "C" cudaError_t walk(const int* next, int* end, int steps, cudaStream_t stream) {
    chase<<<1, 1, 0, stream>>>(next, end, steps);
    return cudaGetLastError();
}
