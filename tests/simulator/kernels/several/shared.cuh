// What the two sources beside it share: templates and inline functions are one for both.
#pragma once

__constant__ int weights[2];
__device__ int calls = 0;

template <class T>
__global__ void fill(T* y, T value) {
    y[blockIdx.x * blockDim.x + threadIdx.x] = value + T(threadIdx.x);
}

template <class T>
void launch_fill(T* y, T value) {
    fill<<<2, 4>>>(y, value);
}

__device__ inline int rank() { return threadIdx.x + blockDim.x * (gridDim.x - 1); }

template <class T>
__global__ void reverse(T* y) {
    __shared__ T s[64];
    s[threadIdx.x] = y[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = s[blockDim.x - 1 - rank()];
}

template <class T>
__global__ void turn(T* y) {
    y[threadIdx.x] = __shfl_xor_sync(0xff, y[threadIdx.x], 1) + weights[1];
    if (threadIdx.x == 0) atomicAdd(&calls, 1);
}
