// Where a thread is, shared memory, barriers.

#include "launcher.h"

__global__ void coordinates(int* out) {
    const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const int rank = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const int threads = blockDim.x * blockDim.y * blockDim.z;
    const int values[12] = {int(threadIdx.x), int(threadIdx.y), int(threadIdx.z), int(blockIdx.x),
                            int(blockIdx.y),  int(blockIdx.z),  int(blockDim.x),  int(blockDim.y),
                            int(blockDim.z),  int(gridDim.x),   int(gridDim.y),   int(gridDim.z)};
    for (int i = 0; i < 12; i++) out[(block * threads + rank) * 12 + i] = values[i];
}

extern "C" cudaError_t run_coordinates(int* out, int gx, int gy, int gz, int bx, int by, int bz) {
    const dim3 gridDim(gx, gy, gz), blockDim(bx, by, bz);  // names that kernels have too
    coordinates<<<gridDim, blockDim>>>(out);
    return cudaGetLastError();
}

// The coordinates are still the thread's own after it has waited.
__global__ void coordinates_after_wait(int* out) {
    const int rank = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    __syncthreads();
    out[rank] = threadIdx.x + 100 * threadIdx.y + 10000 * threadIdx.z;
    __syncthreads();
    out[rank] += 1000000 * (threadIdx.z + 1);
}

LAUNCHER(run_coordinates_after_wait, (int* out), coordinates_after_wait<<<1, dim3(5, 4, 3)>>>(out))

template <class T, int N>
__global__ void reverse_static(const T* x, T* y) {
    __shared__ T tile[N];
    tile[threadIdx.x] = x[blockIdx.x * N + threadIdx.x];
    __syncthreads();
    y[blockIdx.x * N + threadIdx.x] = tile[N - 1 - threadIdx.x];
}

extern "C" cudaError_t run_reverse_static(const float* x, float* y, const double* u, double* v) {
    reverse_static<float, 128><<<3, 128>>>(x, y);
    reverse_static<double, 64><<<6, 64>>>(u, v);
    return cudaGetLastError();
}

extern __shared__ int of_the_file[];

__global__ void reverse_dynamic(const int* x, int* y) {
    of_the_file[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = of_the_file[blockDim.x - 1 - threadIdx.x];
}

__global__ void dynamic_alignment(int* y) {
    extern __shared__ __align__(128) unsigned char bytes[];
    float4* vectors = reinterpret_cast<float4*>(bytes);
    vectors[threadIdx.x] = make_float4(threadIdx.x, 0, 0, 1);
    __syncthreads();
    y[threadIdx.x] =
        int(reinterpret_cast<size_t>(bytes) % 128) + int(vectors[blockDim.x - 1 - threadIdx.x].x);
}

// In a template, as bytes: an array of T would be another type in each instance under one name.
template <class T>
__global__ void reverse_in_template(const T* x, T* y) {
    extern __shared__ __align__(8) unsigned char memory[];
    T* values = reinterpret_cast<T*>(memory);
    values[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = values[blockDim.x - 1 - threadIdx.x];
}

extern "C" cudaError_t run_dynamic_in_template(const int* x, int* y, const double* u, double* v,
                                               int threads) {
    reverse_in_template<<<1, threads, threads * sizeof(int)>>>(x, y);
    reverse_in_template<<<1, threads, threads * sizeof(double)>>>(u, v);
    return cudaGetLastError();
}

extern "C" cudaError_t run_dynamic(const int* x, int* y, int* z, int threads) {
    reverse_dynamic<<<1, threads, threads * sizeof(int)>>>(x, y);
    dynamic_alignment<<<1, 32, 32 * sizeof(float4)>>>(z);
    return cudaGetLastError();
}

// Over the default of 48 KiB, after asking for it.
__global__ void large(int* y) {
    extern __shared__ int words[];
    for (int i = threadIdx.x; i < 25000; i += blockDim.x) words[i] = i;
    __syncthreads();
    if (threadIdx.x == 0) *y = words[24999];
}

extern "C" cudaError_t run_large(int* y) {
    cudaError_t error =
        cudaFuncSetAttribute(large, cudaFuncAttributeMaxDynamicSharedMemorySize, 100000);
    if (error != cudaSuccess) return error;
    large<<<1, 96, 100000>>>(y);
    return cudaGetLastError();
}

__global__ void barrier_votes(int* y) {
    const int i = threadIdx.x;
    y[i] = __syncthreads_count(i % 3 == 0);
    y[100 + i] = __syncthreads_and(i >= 0);
    y[200 + i] = __syncthreads_and(i != 70);
    y[300 + i] = __syncthreads_or(i == 70);
    y[400 + i] = __syncthreads_or(i < 0);
}

LAUNCHER(run_barrier_votes, (int* y), barrier_votes<<<1, 100>>>(y))

// Threads that have returned are not waited for.
__global__ void early_return(int* y) {
    __shared__ int total;
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    if (threadIdx.x % 2) return;
    atomicAdd(&total, 1);
    __syncthreads();
    if (threadIdx.x % 4) return;
    y[threadIdx.x] = total;
    __syncthreads();
    y[threadIdx.x] += __syncthreads_count(1);
}

LAUNCHER(run_early_return, (int* y), early_return<<<1, 100>>>(y))

// Barriers in a loop, with work between them that depends on the neighbours.
__global__ void scan(const int* x, int* y) {
    __shared__ int sums[1024];
    const int i = threadIdx.x;
    sums[i] = x[blockIdx.x * blockDim.x + i];
    for (int step = 1; step < int(blockDim.x); step *= 2) {
        __syncthreads();
        const int before = i >= step ? sums[i - step] : 0;
        __syncthreads();
        sums[i] += before;
    }
    y[blockIdx.x * blockDim.x + i] = sums[i];
}

LAUNCHER(run_scan, (const int* x, int* y, int blocks, int threads), scan<<<blocks, threads>>>(x, y))
