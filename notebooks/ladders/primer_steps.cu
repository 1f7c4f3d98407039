// Two small kernels of one block, to be stepped through in the primer.
//
//   x, y: float, as many as the threads read and write

#include <cuda_runtime.h>

// Of two reads of a warp, one takes neighbouring floats, the other one every fourth.
__global__ void two_reads(const float* x, float* y) {
    const int lane = threadIdx.x;
    const float near = x[lane];
    const float apart = x[4 * lane];
    y[lane] = near + apart;
}

// y[t] is the sum of x[t] and x[t + 1], each halved until it is at most 32, by two warps; the last
// one's neighbour is the first.
template <bool kWait>
__global__ void sum_pairs(const float* x, float* y) {
    __shared__ float halved[64];
    const int t = threadIdx.x;
    float value = x[t];
    while (value > 32) {
        value = value / 2;
    }
    halved[t] = value;
    if (kWait) __syncthreads();
    const float right = halved[(t + 1) % 64];
    y[t] = value + right;
}

extern "C" cudaError_t reads(const float* x, float* y, cudaStream_t stream) {
    two_reads<<<1, 32, 0, stream>>>(x, y);
    return cudaGetLastError();
}

extern "C" cudaError_t careful(const float* x, float* y, cudaStream_t stream) {
    sum_pairs<true><<<1, 64, 0, stream>>>(x, y);
    return cudaGetLastError();
}

extern "C" cudaError_t careless(const float* x, float* y, cudaStream_t stream) {
    sum_pairs<false><<<1, 64, 0, stream>>>(x, y);
    return cudaGetLastError();
}
