// Four ways to add n floats up, and one to add up each row of a matrix.
//
//   x [n] float        y [1] float, 0 before the ways that end in atomicAdd
//   partial [kBlocks] float
//   of rows: x [rows, cols] float, y [rows] float
//
// Traffic: x is read, 4 bytes per element; the sums are nothing beside it.

#include "rows.cuh"

constexpr int kThreads = 256;
constexpr int kBlocks = 1024;  // at most, of the ways whose threads take many elements
constexpr int kEach = 16;      // so many elements, if there are not more

// ---- atomic: every element goes straight to the result.
// Flaw: additions to one address are done one after another, by the whole GPU.

__global__ void sum_atomic(const float* x, float* y, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(y, x[i]);
}

// ---- tree: a block adds its elements up in shared memory, in log2(kThreads) levels, and only its
// sum goes to the result.
// Flaw: a barrier for each level, most threads idle in most of them, and all that for one element a
// thread.

__global__ void sum_tree(const float* x, float* y, int64_t n) {
    __shared__ float sums[kThreads];
    const int t = threadIdx.x;
    const int64_t i = int64_t(blockIdx.x) * kThreads + t;
    sums[t] = i < n ? x[i] : 0;
    for (int half = kThreads / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) sums[t] += sums[t + half];
    }
    if (t == 0) atomicAdd(y, sums[0]);
}

// ---- shuffle: a thread adds many elements up before it meets others; then the lanes of a warp
// read each other's registers, and no barrier is needed but one.
// Flaw: the blocks' sums arrive in any order, and floats added in another order give other bits.

__device__ float block_sum(const float* x, int64_t n) {
    __shared__ float sums[kThreads / kWarp];
    float sum = 0;
    const int64_t step = int64_t(gridDim.x) * kThreads;
    for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < n; i += step) sum += x[i];
    sum = warp_sum(sum);
    if (threadIdx.x % kWarp == 0) sums[threadIdx.x / kWarp] = sum;
    __syncthreads();
    constexpr int warps = kThreads / kWarp;
    return warp_sum(sums[threadIdx.x % warps], warps);
}

__global__ void sum_shuffle(const float* x, float* y, int64_t n) {
    const float sum = block_sum(x, n);
    if (threadIdx.x == 0) atomicAdd(y, sum);
}

// ---- stages: each block leaves its sum in memory, and a second launch of one block adds them up.
// The order is that of the blocks' numbers, on every run.
// Flaw: 4 bytes an access, and a second launch.

__global__ void sum_stage(const float* x, float* y, int64_t n) {
    const float sum = block_sum(x, n);
    if (threadIdx.x == 0) y[blockIdx.x] = sum;
}

// ---- aligned: the sum of each row, by a warp for each row, in vectors of 16 bytes. A thread asks
// for kAhead of them before it adds the first.
// Flaw: cols must be a multiple of 4, and few wide rows make few warps.

constexpr int kAhead = 8;
constexpr int kRows = 8;  // of a block

__global__ void rows_aligned(const float* x, float* y, int rows, int cols) {
    const int row = blockIdx.x * kRows + threadIdx.y;
    if (row >= rows) return;
    x += int64_t(row) * cols;
    float sum = 0;
    for (int first = 4 * threadIdx.x; first < cols; first += kAhead * 4 * kWarp) {
        Vec<float, 4> v[kAhead] = {};
        for (int n = 0; n < kAhead; ++n) {
            const int c = first + n * 4 * kWarp;
            if (c < cols) v[n] = load<4>(x + c);
        }
        for (int i = 0; i < 4 * kAhead; ++i) sum += v[i / 4][i % 4];
    }
    sum = warp_sum(sum);
    if (threadIdx.x == 0) y[row] = sum;
}

// ---- launchers

int blocks_of(int64_t n) {
    return smaller<int64_t>(ceil_div<int64_t>(n, kThreads * kEach), kBlocks);
}

extern "C" cudaError_t atomic(const float* x, float* y, int64_t n, cudaStream_t stream) {
    cudaMemsetAsync(y, 0, sizeof(float), stream);
    sum_atomic<<<ceil_div<int64_t>(n, kThreads), kThreads, 0, stream>>>(x, y, n);
    return cudaGetLastError();
}

extern "C" cudaError_t tree(const float* x, float* y, int64_t n, cudaStream_t stream) {
    cudaMemsetAsync(y, 0, sizeof(float), stream);
    sum_tree<<<ceil_div<int64_t>(n, kThreads), kThreads, 0, stream>>>(x, y, n);
    return cudaGetLastError();
}

extern "C" cudaError_t shuffle(const float* x, float* y, int64_t n, cudaStream_t stream) {
    cudaMemsetAsync(y, 0, sizeof(float), stream);
    sum_shuffle<<<blocks_of(n), kThreads, 0, stream>>>(x, y, n);
    return cudaGetLastError();
}

extern "C" cudaError_t stages(const float* x, float* y, float* partial, int64_t n,
                              cudaStream_t stream) {
    sum_stage<<<blocks_of(n), kThreads, 0, stream>>>(x, partial, n);
    sum_stage<<<1, kThreads, 0, stream>>>(partial, y, blocks_of(n));
    return cudaGetLastError();
}

extern "C" cudaError_t aligned(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
    if (cols % 4 != 0) return cudaErrorInvalidValue;
    rows_aligned<<<ceil_div(rows, kRows), dim3(kWarp, kRows), 0, stream>>>(x, y, rows, cols);
    return cudaGetLastError();
}
