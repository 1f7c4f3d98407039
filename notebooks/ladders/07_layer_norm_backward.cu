// Three ways to compute the gradients of a layer norm of rows of float.
//
//   g, x, dx [rows, cols] float     weight, dweight, dbias [cols] float     mean, rstd [rows] float
//   partial_dweight, partial_dbias [slices or blocks, cols] float
//   block and aligned: cols is 8 * the number of threads, which is a multiple of 32, up to 512
//
// Traffic at least: g and x are read and dx is written once, 12 bytes per element.

#include "column_sums.cuh"
#include "columns.cuh"

// ---- naive: a thread for each row, and a thread for each column.
// Flaw: the threads of dx_naive read a whole row apart, and cols threads cannot fill a GPU.

__global__ void dx_naive(const float* g, const float* x, const float* weight, const float* mean,
                         const float* rstd, float* dx, int rows, int cols) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const int64_t begin = int64_t(row) * cols;
    const float m = mean[row], r = rstd[row];
    float h_sum = 0, h_xhat_sum = 0;
    for (int c = 0; c < cols; ++c) {
        const float h = g[begin + c] * weight[c], xhat = (x[begin + c] - m) * r;
        h_sum += h;
        h_xhat_sum += h * xhat;
    }
    for (int c = 0; c < cols; ++c) {
        const float h = g[begin + c] * weight[c], xhat = (x[begin + c] - m) * r;
        dx[begin + c] = r * (h - h_sum / cols - xhat * (h_xhat_sum / cols));
    }
}

__global__ void columns_naive(const float* g, const float* x, const float* mean, const float* rstd,
                              float* dweight, float* dbias, int rows, int cols) {
    const int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= cols) return;
    float weight_sum = 0, bias_sum = 0;
    for (int row = 0; row < rows; ++row) {
        const float d = g[int64_t(row) * cols + c];
        weight_sum += d * ((x[int64_t(row) * cols + c] - mean[row]) * rstd[row]);
        bias_sum += d;
    }
    dweight[c] = weight_sum;
    dbias[c] = bias_sum;
}

// ---- block: a block for each row, and a thread for a column of a slice of the rows.
// Flaw: g and x are read three times, 4 bytes per access.

// The sums of a and of b over the threads of the block, in every thread. room: a place for each
// warp in shared memory, which the call before has not used.
__device__ float2 block_sums(float a, float b, float2* room) {
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    a = warp_sum(a);
    b = warp_sum(b);
    if (lane == 0) room[warp] = make_float2(a, b);
    __syncthreads();
    const float2 of = lane < blockDim.x / kWarp ? room[lane] : make_float2(0, 0);
    return make_float2(warp_sum(of.x), warp_sum(of.y));
}

__global__ void dx_block(const float* g, const float* x, const float* weight, const float* mean,
                         const float* rstd, float* dx, int cols) {
    __shared__ float2 room[kWarp];
    const int64_t begin = int64_t(blockIdx.x) * cols;
    const float m = mean[blockIdx.x], r = rstd[blockIdx.x];
    float h_sum = 0, h_xhat_sum = 0;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        const float h = g[begin + c] * weight[c], xhat = (x[begin + c] - m) * r;
        h_sum += h;
        h_xhat_sum += h * xhat;
    }
    const float2 sums = block_sums(h_sum, h_xhat_sum, room);
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        const float h = g[begin + c] * weight[c], xhat = (x[begin + c] - m) * r;
        dx[begin + c] = r * (h - sums.x / cols - xhat * (sums.y / cols));
    }
}

// The first launch for dweight and dbias; a second one adds the slices' sums up.
__global__ void columns_block(const float* g, const float* x, const float* mean, const float* rstd,
                              float* partial_dweight, float* partial_dbias, int rows, int cols) {
    const int c = blockIdx.x * blockDim.x + threadIdx.x, slice = blockIdx.y;
    if (c >= cols) return;
    float weight_sum = 0, bias_sum = 0;
    for (int row = slice; row < rows; row += gridDim.y) {
        const float d = g[int64_t(row) * cols + c];
        weight_sum += d * ((x[int64_t(row) * cols + c] - mean[row]) * rstd[row]);
        bias_sum += d;
    }
    partial_dweight[int64_t(slice) * cols + c] = weight_sum;
    partial_dbias[int64_t(slice) * cols + c] = bias_sum;
}

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
    __shared__ float2 room[2][kWarp];
    int turn = 0;
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const float m = mean[row], r = rstd[row];
        float h[kColumns], xhat[kColumns];
        float h_sum = 0, h_xhat_sum = 0;
        load_columns(g + row * cols, h);
        load_columns(x + row * cols, xhat);
        for (int k = 0; k < kColumns; ++k) {
            xhat[k] = (xhat[k] - m) * r;
            weight_sum[k] += h[k] * xhat[k];
            bias_sum[k] += h[k];
            h[k] *= w[k];
            h_sum += h[k];
            h_xhat_sum += h[k] * xhat[k];
        }
        const float2 sums = block_sums(h_sum, h_xhat_sum, room[turn ^= 1]);
        for (int k = 0; k < kColumns; ++k)
            h[k] = r * (h[k] - sums.x / cols - xhat[k] * (sums.y / cols));
        store_columns(dx + row * cols, h);
    }
    store_columns(partial_dweight + int64_t(blockIdx.x) * cols, weight_sum);
    store_columns(partial_dbias + int64_t(blockIdx.x) * cols, bias_sum);
}

// ---- launchers: each slice or block leaves a row of partial sums, and launch_column_sums of
// column_sums.cuh adds them up, in the order of their numbers.

extern "C" cudaError_t naive(const float* g, const float* x, const float* weight, const float* mean,
                             const float* rstd, float* dx, float* dweight, float* dbias, int rows,
                             int cols, cudaStream_t stream) {
    dx_naive<<<ceil_div(rows, 128), 128, 0, stream>>>(g, x, weight, mean, rstd, dx, rows, cols);
    columns_naive<<<ceil_div(cols, 128), 128, 0, stream>>>(
        g, x, mean, rstd, dweight, dbias, rows, cols);
    return cudaGetLastError();
}

extern "C" cudaError_t block(const float* g, const float* x, const float* weight, const float* mean,
                             const float* rstd, float* dx, float* dweight, float* dbias,
                             float* partial_dweight, float* partial_dbias, int slices, int rows,
                             int cols, cudaStream_t stream) {
    if (!fits(cols)) return cudaErrorInvalidValue;
    dx_block<<<rows, cols / kColumns, 0, stream>>>(g, x, weight, mean, rstd, dx, cols);
    columns_block<<<dim3(ceil_div(cols, 256), slices), 256, 0, stream>>>(
        g, x, mean, rstd, partial_dweight, partial_dbias, rows, cols);
    launch_column_sums<float>(
        partial_dweight, {dweight}, partial_dbias, {dbias}, slices, cols, stream);
    return cudaGetLastError();
}

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
