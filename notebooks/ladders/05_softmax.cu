// Three ways to the softmax of each row, a warp for each row.
//
//   x, y [rows, cols] float
//
// Traffic: the least is to read x and to write y, 8 bytes per element. Each way below says how
// often it reads x.

#include "reduce.cuh"

constexpr int kRows = 8;  // of a block

__device__ float warp_most(float value) {
    for (int bit = kWarp / 2; bit > 0; bit /= 2) {
        value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, bit));
    }
    return value;
}

// ---- unshifted: the formula as it stands. Reads x twice.
// Flaw: e^x is infinite from 89 on, and 0 below -104.

__global__ void softmax_unshifted(const float* x, float* y, int rows, int cols) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    x += int64_t(row) * cols;
    y += int64_t(row) * cols;
    float sum = 0;
    for (int c = threadIdx.x; c < cols; c += kWarp) sum += expf(x[c]);
    sum = warp_sum(sum);
    for (int c = threadIdx.x; c < cols; c += kWarp) y[c] = expf(x[c]) / sum;
}

// ---- shifted: the largest number is taken from all first; that changes nothing but the range.
// Flaw: reads x three times.

__global__ void softmax_shifted(const float* x, float* y, int rows, int cols) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    x += int64_t(row) * cols;
    y += int64_t(row) * cols;
    float most = -INFINITY, sum = 0;
    for (int c = threadIdx.x; c < cols; c += kWarp) most = fmaxf(most, x[c]);
    most = warp_most(most);
    for (int c = threadIdx.x; c < cols; c += kWarp) sum += expf(x[c] - most);
    sum = warp_sum(sum);
    for (int c = threadIdx.x; c < cols; c += kWarp) y[c] = expf(x[c] - most) / sum;
}

// ---- online: the sum is that of e^(x - the largest so far); when a larger one comes, what is in
// the sum is scaled down. Reads x twice.
// Flaw: twice, where a row that stays on the chip is read once.

__global__ void softmax_online(const float* x, float* y, int rows, int cols) {
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
    sum = warp_sum(most == all ? sum : sum * expf(most - all));
    for (int c = threadIdx.x; c < cols; c += kWarp) y[c] = expf(x[c] - all) / sum;
}

// ---- launcher. version: 0 unshifted, 1 shifted, 2 online

extern "C" cudaError_t softmax(const float* x, float* y, int rows, int cols, int version,
                               cudaStream_t stream) {
    const auto kernel = version == 0   ? softmax_unshifted
                        : version == 1 ? softmax_shifted
                                       : softmax_online;
    kernel<<<ceil_div(rows, kRows), dim3(kWarp, kRows), 0, stream>>>(x, y, rows, cols);
    return cudaGetLastError();
}
