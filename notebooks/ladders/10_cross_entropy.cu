// The loss of each row, with the log-softmax written out and in one short pass, with which the op's
// versions are compared.
//
//   x, log_p [rows, cols] float     target [rows] int64     loss [rows] float
//
// Traffic: written reads x twice and writes log_p, 12 bytes per element; a loss needs x once, 4
// bytes.

#include "softmax.cuh"

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
    const float all = warp_max(most);
    const float log_sum = logf(warp_sum(sum * expf(most - all)));
    for (int c = threadIdx.x; c < cols; c += kWarp) log_p[c] = x[c] - all - log_sum;
    if (threadIdx.x == 0) loss[row] = log_sum - (x[target[row]] - all);
}

// ---- aligned: nothing but the loss. A warp for each row, and 16 bytes for each thread and access.
// Flaw: rows must be float and a multiple of 4 wide, and there must be thousands of them, or the
// warps are too few to keep memory busy. Four logits of -infinity in one vector can make a NaN.

__global__ void forward_aligned(const float* x, const int64_t* target, float* loss, int rows,
                                int cols) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    x += int64_t(row) * cols;
    float most = -INFINITY, sum = 0;
    for (int c = 4 * threadIdx.x; c < cols; c += 4 * kWarp) {
        const Vec<float, 4> v = load<4>(x + c);
        const float larger = fmaxf(fmaxf(fmaxf(v[0], v[1]), fmaxf(v[2], v[3])), most);
        sum *= expf(most - larger);
        for (float number : v.at) sum += expf(number - larger);
        most = larger;
    }
    const float all = warp_max(most);
    sum = warp_sum(sum * expf(most - all));
    if (threadIdx.x == 0) loss[row] = logf(sum) - (x[target[row]] - all);
}

// ---- launchers

extern "C" cudaError_t written(const float* x, const int64_t* target, float* log_p, float* loss,
                               int rows, int cols, cudaStream_t stream) {
    forward_written<<<ceil_div(rows, kRows), dim3(kWarp, kRows), 0, stream>>>(
        x, target, log_p, loss, rows, cols);
    return cudaGetLastError();
}

extern "C" cudaError_t aligned(const float* x, const int64_t* target, float* loss, int rows,
                               int cols, cudaStream_t stream) {
    if (cols % 4 != 0) return cudaErrorInvalidValue;
    forward_aligned<<<ceil_div(rows, kRows), dim3(kWarp, kRows), 0, stream>>>(
        x, target, loss, rows, cols);
    return cudaGetLastError();
}
