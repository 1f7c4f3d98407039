// The loss of each row, from the formula to one short pass, and the gradient.
//
//   x, log_p, dx [rows, cols] float     target [rows] int64     loss, g, max, sum [rows] float
//
// Traffic per element: written reads x twice and writes log_p, 12 bytes; naive reads x twice, 8; a
// loss needs x once, 4; the gradient reads x and writes dx, 8. A target must be a class: none of
// these kernels checks it.

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

// ---- naive: nothing but the loss. A thread for each row.
// Flaw: neighbouring threads read a row apart, x is read twice, and rows threads cannot fill a GPU.

__global__ void forward_naive(const float* x, const int64_t* target, float* loss, int rows,
                              int cols) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    x += int64_t(row) * cols;
    float most = -INFINITY, sum = 0;
    for (int c = 0; c < cols; ++c) most = fmaxf(most, x[c]);
    for (int c = 0; c < cols; ++c) sum += expf(x[c] - most);
    loss[row] = logf(sum) - (x[target[row]] - most);
}

// ---- online: one pass, and a warp for each row. It is the first loop of `written`.
// Flaw: 4 bytes for each thread and access, and two exponentials for each element.

__global__ void forward_online(const float* x, const int64_t* target, float* loss, int rows,
                               int cols) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    x += int64_t(row) * cols;
    float most = -INFINITY, sum = 0;
    for (int c = threadIdx.x; c < cols; c += kWarp) {
        const float larger = fmaxf(most, x[c]);
        sum = sum * expf(most - larger) + expf(x[c] - larger);
        most = larger;
    }
    const float all = warp_max(most);
    sum = warp_sum(sum * expf(most - all));
    if (threadIdx.x == 0) loss[row] = logf(sum) - (x[target[row]] - all);
}

// ---- aligned: 16 bytes for each thread and access, and five exponentials for four elements.
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

// ---- backward: the gradient, computed again from x and the two numbers of a row. blockDim.x
// threads share a row. Flaw: rows must be float and a multiple of 4 wide.

__global__ void backward_aligned(const float* g, const float* x, const int64_t* target,
                                 const float* max, const float* sum, float* dx, int rows,
                                 int cols) {
    const int row = blockIdx.x * blockDim.y + threadIdx.y;
    if (row >= rows) return;
    const int64_t begin = int64_t(row) * cols, hit = target[row];
    const float most = max[row], scale = g[row] / sum[row];
    for (int c = 4 * threadIdx.x; c < cols; c += 4 * blockDim.x) {
        Vec<float, 4> v = load<4>(x + begin + c);
        for (int k = 0; k < 4; ++k) v[k] = scale * expf(v[k] - most) - (c + k == hit ? g[row] : 0);
        store(dx + begin + c, v);
    }
}

// ---- launchers

extern "C" cudaError_t written(const float* x, const int64_t* target, float* log_p, float* loss,
                               int rows, int cols, cudaStream_t stream) {
    forward_written<<<ceil_div(rows, kRows), dim3(kWarp, kRows), 0, stream>>>(
        x, target, log_p, loss, rows, cols);
    return cudaGetLastError();
}

extern "C" cudaError_t naive(const float* x, const int64_t* target, float* loss, int rows, int cols,
                             cudaStream_t stream) {
    constexpr int kThreads = 128;
    forward_naive<<<ceil_div(rows, kThreads), kThreads, 0, stream>>>(x, target, loss, rows, cols);
    return cudaGetLastError();
}

extern "C" cudaError_t online(const float* x, const int64_t* target, float* loss, int rows,
                              int cols, cudaStream_t stream) {
    forward_online<<<ceil_div(rows, kRows), dim3(kWarp, kRows), 0, stream>>>(
        x, target, loss, rows, cols);
    return cudaGetLastError();
}

extern "C" cudaError_t aligned(const float* x, const int64_t* target, float* loss, int rows,
                               int cols, cudaStream_t stream) {
    if (cols % 4 != 0) return cudaErrorInvalidValue;
    forward_aligned<<<ceil_div(rows, kRows), dim3(kWarp, kRows), 0, stream>>>(
        x, target, loss, rows, cols);
    return cudaGetLastError();
}

// warps: that share a row, 1, 2, 4 or 8.
extern "C" cudaError_t backward(const float* g, const float* x, const int64_t* target,
                                const float* max, const float* sum, float* dx, int rows, int cols,
                                int warps, cudaStream_t stream) {
    if (cols % 4 != 0 || warps < 1 || kRows % warps != 0) return cudaErrorInvalidValue;
    const dim3 block(warps * kWarp, kRows / warps);
    backward_aligned<<<ceil_div(rows, int(block.y)), block, 0, stream>>>(
        g, x, target, max, sum, dx, rows, cols);
    return cudaGetLastError();
}
