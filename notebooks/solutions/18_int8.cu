// Rows as int8, with a scale for each: q = x / scale, rounded, and scale = largest |x| / 127. A row
// of zeros gets a scale that is not 0, for 0 / 0 is no number.

#include "rows.cuh"

__global__ void rows_as_int8(const float* x, int8_t* q, float* scales, int cols) {
    x += int64_t(blockIdx.x) * cols;
    q += int64_t(blockIdx.x) * cols;
    float largest = 1e-12f;
    for (int c = threadIdx.x; c < cols; c += kWarp) largest = fmaxf(largest, fabsf(x[c]));
    for (int bit = 1; bit < kWarp; bit *= 2)
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffff, largest, bit));
    const float scale = largest / 127;
    if (threadIdx.x == 0) scales[blockIdx.x] = scale;
    for (int c = threadIdx.x; c < cols; c += kWarp) q[c] = int8_t(rintf(x[c] / scale));
}

extern "C" cudaError_t launch(const float* x, int8_t* q, float* scales, int rows, int cols,
                              cudaStream_t stream) {
    rows_as_int8<<<rows, kWarp, 0, stream>>>(x, q, scales, cols);
    return cudaGetLastError();
}
