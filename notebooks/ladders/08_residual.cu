// Ways to add and to normalize, which chapter 8 compares with the op.
//
//   x, residual, s, y [rows, cols] float     weight [cols] float
//
// Traffic: an addition alone moves 12 bytes per element. The norm of a sum that nobody keeps reads
// both, twice, and writes y. The least is to read both and to write s and y, 16 bytes.

#include "columns.cuh"

constexpr int kThreads = 256;
constexpr int kRows = 8;  // of a block

// ---- add: s = x + residual, 16 bytes per access. n must be a multiple of 4.
// Flaw: s goes to memory, and the norm has to fetch it from there.

__global__ void add_vector(const float* x, const float* residual, float* s, int64_t n) {
    const int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * 4;
    if (i >= n) return;
    Vec<float, 4> sum = load<4>(x + i);
    const Vec<float, 4> more = load<4>(residual + i);
    for (int k = 0; k < 4; ++k) sum[k] += more[k];
    store(s + i, sum);
}

// ---- dropped: y = the norm of x + residual, a warp for each row.
// Flaw: the sum is lost, and the next layer needs it.

__global__ void norm_dropped(const float* x, const float* residual, const float* weight, float* y,
                             int rows, int cols, float eps) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    x += int64_t(row) * cols;
    residual += int64_t(row) * cols;
    y += int64_t(row) * cols;
    float square = 0;
    for (int c = threadIdx.x; c < cols; c += kWarp) {
        const float s = x[c] + residual[c];
        square += s * s;
    }
    const float r = 1 / sqrtf(warp_sum(square) / cols + eps);
    for (int c = threadIdx.x; c < cols; c += kWarp) y[c] = (x[c] + residual[c]) * r * weight[c];
}

// ---- aligned: a block for each row. A thread keeps its eight columns of the sum in registers.
// Flaw: it takes rows of float whose width is a multiple of 256, up to 4096, and no others.

__global__ void norm_aligned(const float* x, const float* residual, const float* weight, float* y,
                             float* s, int cols, float eps) {
    const int64_t begin = int64_t(blockIdx.x) * cols;
    float sum[kColumns], more[kColumns], w[kColumns], square = 0;
    load_columns(x + begin, sum);
    load_columns(residual + begin, more);
    for (int k = 0; k < kColumns; ++k) {
        sum[k] += more[k];
        square += sum[k] * sum[k];
    }
    store_columns(s + begin, sum);
    BlockReduce reduce;  // over the threads of the block
    const float r = 1 / sqrtf(reduce(Sums<1, float>{square})[0] / cols + eps);
    load_columns(weight, w);
    for (int k = 0; k < kColumns; ++k) sum[k] *= r * w[k];
    store_columns(y + begin, sum);
}

// ---- launchers

extern "C" cudaError_t add(const float* x, const float* residual, float* s, int64_t n,
                           cudaStream_t stream) {
    add_vector<<<ceil_div<int64_t>(n, kThreads * 4), kThreads, 0, stream>>>(x, residual, s, n);
    return cudaGetLastError();
}

extern "C" cudaError_t dropped(const float* x, const float* residual, const float* weight, float* y,
                               int rows, int cols, float eps, cudaStream_t stream) {
    norm_dropped<<<ceil_div(rows, kRows), dim3(kWarp, kRows), 0, stream>>>(
        x, residual, weight, y, rows, cols, eps);
    return cudaGetLastError();
}

extern "C" cudaError_t aligned(const float* x, const float* residual, const float* weight, float* y,
                               float* s, int rows, int cols, float eps, cudaStream_t stream) {
    if (!fits(cols)) return cudaErrorInvalidValue;
    norm_aligned<<<rows, cols / kColumns, 0, stream>>>(x, residual, weight, y, s, cols, eps);
    return cudaGetLastError();
}
