// The loss of each row with the log-softmax written out, with which the op's versions are compared.
//
//   x, log_p [rows, cols] float     target [rows] int64     loss [rows] float
//
// Traffic: x is read twice and log_p written, 12 bytes per element; a loss needs x once, 4 bytes.

#include "reduce.cuh"

constexpr int kRows = 8;  // of a block

// ---- written: log_p = log of the softmax of x, and the loss is picked from it. A warp for each
// row.
// Flaw: a tensor as large as the logits is written, and kept until backward.

__global__ void forward_written(const float* x, const int64_t* target, float* log_p, float* loss,
                                int rows, int cols) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    x += int64_t(row) * cols;
    log_p += int64_t(row) * cols;
    float most = -INFINITY, sum = 0;
    for (int c = threadIdx.x; c < cols; c += kWarp) {
        const float larger = fmaxf(most, x[c]);
        sum = sum * expf(most - larger) + expf(x[c] - larger);
        most = larger;
    }
    float all = most;
    for (int bit = kWarp / 2; bit > 0; bit /= 2) {
        all = fmaxf(all, __shfl_xor_sync(0xffffffff, all, bit));
    }
    const float log_sum = logf(warp_sum(sum * expf(most - all)));
    for (int c = threadIdx.x; c < cols; c += kWarp) log_p[c] = x[c] - all - log_sum;
    if (threadIdx.x == 0) loss[row] = log_sum - (x[target[row]] - all);
}

// ---- launcher

extern "C" cudaError_t written(const float* x, const int64_t* target, float* log_p, float* loss,
                               int rows, int cols, cudaStream_t stream) {
    forward_written<<<ceil_div(rows, kRows), dim3(kWarp, kRows), 0, stream>>>(
        x, target, log_p, loss, rows, cols);
    return cudaGetLastError();
}
