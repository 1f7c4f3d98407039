// What beginners get wrong. `// here NAME` marks the line at which a trace shows it.
#include <cuda_runtime.h>

constexpr int kThreads = 64;

__global__ void wrong_index(const float* x, float* y, int n) {
    const int i = blockIdx.x + blockDim.x * threadIdx.x;  // here wrong_index
    if (i < n) y[i] = x[i];
}
__global__ void missing_barrier(const float* x, float* y, int n) {
    __shared__ float tile[kThreads];
    const int t = threadIdx.x;
    tile[t] = x[t];  // here missing_barrier
    const float other = tile[(t + 32) % kThreads];
    y[t] = other;
}
__global__ void wrong_tail(const float* x, float* y, int n) {
    __shared__ float part[kThreads];
    const int t = threadIdx.x;
    part[t] = t < 48 ? x[t] : 0;
    __syncthreads();
    for (int half = 48 / 2; half > 0; half /= 2) {  // 24, 12, 6, 3, 1: with 3, an element is lost
        if (t < half) part[t] += part[t + half];    // here wrong_tail
        __syncthreads();
    }
    if (t == 0) *y = part[0];
}
__global__ void swapped(const float* x, float* y, int n) {
    const int row = threadIdx.x, column = threadIdx.y;
    const int at = row * blockDim.x + column;  // here swapped
    y[column * blockDim.x + row] = x[at];
}
__global__ void overflow(const float* x, float* y, int n) {
    const int rows = 100000 + threadIdx.x, columns = 100000;
    const int all = rows * columns;  // here overflow
    y[threadIdx.x] = all;
}
__global__ void uninitialised(const float* x, float* y, int n) {
    __shared__ float sums[kThreads];
    const int t = threadIdx.x;
    sums[t] += x[t];  // here uninitialised
    y[t] = sums[t];
}
__global__ void off_by_one(const float* x, float* y, int n) {
    __shared__ float tile[kThreads];
    const int t = threadIdx.x;
    tile[t] = x[t];
    __syncthreads();
    float sum = 0;
    for (int k = 0; k <= kThreads; k++) {
        const float next = tile[k];  // here off_by_one
        sum += next;
    }
    y[t] = sum;
}
__global__ void diverged_shuffle(const float* x, float* y, int n) {
    const int t = threadIdx.x;
    float sum = x[t];
    if (t % 32 < 16) {
        const float other = __shfl_down_sync(0xffff, sum, 16);  // here diverged_shuffle
        sum += other;
    }
    y[t] = sum;
}
__global__ void wrong_stride(const float* x, float* y, int n) {
    float sum = 0;
    for (int i = threadIdx.x; i < n; i += kThreads / 2) {
        sum += x[i];  // here wrong_stride
    }
    y[threadIdx.x] = sum;
}
__global__ void stale_buffer(const float* x, float* y, int n) {
    __shared__ float tiles[2][kThreads];
    const int t = threadIdx.x;
    tiles[0][t] = x[t];
    float sum = 0;
    for (int k = 0; k < 2; k++) {
        __syncthreads();
        if (k < 1) tiles[(k + 1) % 2][t] = x[t + kThreads];
        const float now = tiles[0][kThreads - 1 - t];  // here stale_buffer
        sum += now;
    }
    y[t] = sum;
}
// Of the last round the barrier between writes and reads is missing, and much lies between them.
__global__ void far_apart(const float* x, float* y, int n) {
    __shared__ float tile[kThreads];
    const int t = threadIdx.x;
    float sum = 0;
    for (int k = 0; k < 4; k++) {
        __syncthreads();
        tile[t] = x[t];
        if (k < 3) __syncthreads();
        if (k == 3)
            for (int i = 0; i < 25; i++) {
                sum += 1;
            }
        sum += tile[kThreads - 1 - t];
    }
    y[t] = sum;
}
__global__ void neighbours(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const float mine = x[i];  // here neighbours
    y[i % kThreads] = mine;
}

#define LAUNCH(name, grid, block) \
    extern "C" void run_##name(const float* x, float* y, int n) { name<<<grid, block>>>(x, y, n); }
LAUNCH(wrong_index, 2, kThreads)
LAUNCH(missing_barrier, 1, kThreads)
LAUNCH(wrong_tail, 1, kThreads)
LAUNCH(swapped, 1, dim3(32, 2))
LAUNCH(overflow, 1, kThreads)
LAUNCH(uninitialised, 1, kThreads)
LAUNCH(off_by_one, 1, kThreads)
LAUNCH(diverged_shuffle, 1, kThreads)
LAUNCH(wrong_stride, 1, kThreads)
LAUNCH(stale_buffer, 1, kThreads)
LAUNCH(far_apart, 1, kThreads)
LAUNCH(neighbours, 2, kThreads)
