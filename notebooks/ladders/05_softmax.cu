// Ways to the softmax of each row: three with a warp for each row, and one with a block.
//
//   x, y [rows, cols] float
//
// Traffic: the least is to read x and to write y, 8 bytes per element. Each way below says how
// often it reads x.

#include <float.h>

#include "rows.cuh"

constexpr int kRows = 8;  // of a block

__device__ float warp_most(float value) {
    for (int bit = kWarp / 2; bit > 0; bit /= 2) {
        value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, bit));
    }
    return value;
}

// ---- unshifted: the formula as it stands. Reads x twice.
// Flaw: e^x is infinite from 89 on, and 0 below -104.

__global__ void softmax_unshifted(const float* __restrict__ x, float* __restrict__ y, int rows,
                                  int cols) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    x += int64_t(row) * cols;
    y += int64_t(row) * cols;
    float sum = 0;
    for (int c = threadIdx.x; c < cols; c += kWarp) sum += expf(x[c]);
    const float share = 1 / warp_sum(sum);
    for (int c = threadIdx.x; c < cols; c += kWarp) y[c] = expf(x[c]) * share;
}

// ---- shifted: the largest number is taken from all first; that changes nothing but the range.
// Flaw: reads x three times.

__global__ void softmax_shifted(const float* __restrict__ x, float* __restrict__ y, int rows,
                                int cols) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    x += int64_t(row) * cols;
    y += int64_t(row) * cols;
    float most = -INFINITY, sum = 0;
    for (int c = threadIdx.x; c < cols; c += kWarp) most = fmaxf(most, x[c]);
    most = warp_most(most);
    for (int c = threadIdx.x; c < cols; c += kWarp) sum += expf(x[c] - most);
    const float share = 1 / warp_sum(sum);
    for (int c = threadIdx.x; c < cols; c += kWarp) y[c] = expf(x[c] - most) * share;
}

// ---- online: the sum is that of e^(x - the largest so far); when a larger one comes, what is in
// the sum is scaled down. Reads x twice.
// Flaw: twice, where a row that stays on the chip is read once.

__global__ void softmax_online(const float* __restrict__ x, float* __restrict__ y, int rows,
                               int cols) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    x += int64_t(row) * cols;
    y += int64_t(row) * cols;
    float most = -INFINITY, sum = 0;
    for (int c = threadIdx.x; c < cols; c += kWarp) {
        if (x[c] > most) {
            sum *= expf(most - x[c]);
            most = x[c];
        }
        sum += expf(x[c] - most);
    }
    const float all = warp_most(most);
    const float share = 1 / warp_sum(most == all ? sum : sum * expf(most - all));
    for (int c = threadIdx.x; c < cols; c += kWarp) y[c] = expf(x[c] - all) * share;
}

// ---- aligned: a block for each row, which it reads once, in vectors of 16 bytes. The row waits in
// shared memory, where each thread finds again what it has put there itself.
// Flaw: cols must be a multiple of 4, and the row must fit into the shared memory of a block.

constexpr int kThreads = 512;  // of a block

struct Part {
    float most, sum;  // the largest number, and the sum of e^(x - most)
};

// The parts of all threads of the block, merged.
__device__ Part merge_block(Part part) {
    __shared__ Part parts[kThreads / kWarp];
    const float warps = warp_most(part.most);
    const float sum = warp_sum(part.sum * expf(part.most - warps));
    if (threadIdx.x % kWarp == 0) parts[threadIdx.x / kWarp] = {warps, sum};
    __syncthreads();
    const Part other = parts[threadIdx.x % (kThreads / kWarp)];
    const float most = warp_most(other.most);
    return {most, warp_sum(other.sum * expf(other.most - most), kThreads / kWarp)};
}

extern __shared__ Vec<float, 4> kept[];  // the row

__global__ void softmax_aligned(const float* x, float* y, int cols) {
    x += int64_t(blockIdx.x) * cols;
    y += int64_t(blockIdx.x) * cols;
    Part part = {-FLT_MAX, 0};
    for (int i = threadIdx.x; i < cols / 4; i += kThreads) {
        kept[i] = load<4>(x + 4 * i);
        for (float v : kept[i].at) part.most = fmaxf(part.most, v);
    }
    for (int i = threadIdx.x; i < cols / 4; i += kThreads)
        for (float v : kept[i].at) part.sum += expf(v - part.most);
    const Part all = merge_block(part);
    for (int i = threadIdx.x; i < cols / 4; i += kThreads) {
        Vec<float, 4> v = kept[i];
        for (float& e : v.at) e = expf(e - all.most) / all.sum;
        store(y + 4 * i, v);
    }
}

// ---- launchers. version: 0 unshifted, 1 shifted, 2 online

extern "C" cudaError_t softmax(const float* x, float* y, int rows, int cols, int version,
                               cudaStream_t stream) {
    const auto kernel = version == 0   ? softmax_unshifted
                        : version == 1 ? softmax_shifted
                                       : softmax_online;
    kernel<<<ceil_div(rows, kRows), dim3(kWarp, kRows), 0, stream>>>(x, y, rows, cols);
    return cudaGetLastError();
}

extern "C" cudaError_t aligned(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
    if (cols % 4 != 0) return cudaErrorInvalidValue;
    const int bytes = cols * sizeof(float);  // beyond 48 KiB a kernel has to ask for them
    const cudaError_t error =
        cudaFuncSetAttribute(softmax_aligned, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return error;
    softmax_aligned<<<rows, kThreads, bytes, stream>>>(x, y, cols);
    return cudaGetLastError();
}
