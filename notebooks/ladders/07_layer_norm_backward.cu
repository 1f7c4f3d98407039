// The backward pass of layer_norm in one reading of g and x, for rows of float whose columns divide
// evenly among the threads of a block.
//
//   g, x, dx [rows, cols] float     weight, dweight, dbias [cols] float     mean, rstd [rows] float
//   partial_dweight, partial_dbias [blocks, cols] float
//   cols is 8 * the number of threads, which is a multiple of 32, up to 512
//
// Traffic: g and x are read and dx is written once, 12 bytes per element.

#include "column_sums.cuh"
#include "columns.cuh"

// ---- aligned: a block takes one row after the other. A thread always has the same eight columns,
// and keeps their sums over the rows in registers.
// Flaw: while a block waits for the sums of its row, it has asked for nothing of the next one.
//
// kAtOnce: how many blocks of 512 threads should fit on a multiprocessor. For two of them the
// compiler must do with 64 registers a thread.

template <int kAtOnce>
__global__ __launch_bounds__(512, kAtOnce) void backward_aligned(
    const float* g, const float* x, const float* weight, const float* mean, const float* rstd,
    float* dx, float* partial_dweight, float* partial_dbias, int rows, int cols) {
    float w[kColumns], weight_sum[kColumns] = {}, bias_sum[kColumns] = {};
    load_columns(weight, w);
    BlockReduce reduce;  // over the threads of the block
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const float m = mean[row], r = rstd[row];
        float h[kColumns], xhat[kColumns];
        Sums<2, float> sums = {0, 0};  // of h, of h * xhat
        load_columns(g + row * cols, h);
        load_columns(x + row * cols, xhat);
        for (int k = 0; k < kColumns; ++k) {
            xhat[k] = (xhat[k] - m) * r;
            weight_sum[k] += h[k] * xhat[k];
            bias_sum[k] += h[k];
            h[k] *= w[k];
            sums.values[0] += h[k];
            sums.values[1] += h[k] * xhat[k];
        }
        sums = reduce(sums);
        for (int k = 0; k < kColumns; ++k)
            h[k] = r * (h[k] - sums[0] / cols - xhat[k] * (sums[1] / cols));
        store_columns(dx + row * cols, h);
    }
    store_columns(partial_dweight + int64_t(blockIdx.x) * cols, weight_sum);
    store_columns(partial_dbias + int64_t(blockIdx.x) * cols, bias_sum);
}

// ---- launcher: each of the blocks leaves a row of partial sums, and a second launch adds them up.

extern "C" cudaError_t aligned(const float* g, const float* x, const float* weight,
                               const float* mean, const float* rstd, float* dx, float* dweight,
                               float* dbias, float* partial_dweight, float* partial_dbias,
                               int at_once, int blocks, int rows, int cols, cudaStream_t stream) {
    if (!fits(cols)) return cudaErrorInvalidValue;
    const auto kernel = at_once == 1 ? backward_aligned<1> : backward_aligned<2>;
    kernel<<<blocks, cols / kColumns, 0, stream>>>(
        g, x, weight, mean, rstd, dx, partial_dweight, partial_dbias, rows, cols);
    launch_column_sums<float>(
        partial_dweight, {dweight}, partial_dbias, {dbias}, blocks, cols, stream);
    return cudaGetLastError();
}
