// Four ways to the mean and the variance of each row, a warp for each row.
//
//   x [rows, cols] float        mean, var [rows] float; var divides by cols
//
// Traffic: x is read, 4 bytes per element, and twice by two_pass where no cache holds the row.

#include "rows.cuh"

constexpr int kRows = 8;  // of a block

__device__ int my_row() { return blockIdx.x * blockDim.y + threadIdx.y; }

// ---- shortcut: the average of the squares, less the square of the average.
// Flaw: both are large where the mean is, and their difference keeps none of their digits.

__global__ void row_shortcut(const float* x, float* mean, float* var, int rows, int cols) {
    const int row = my_row();
    if (row >= rows) return;
    float sum = 0, squares = 0;
    for (int c = threadIdx.x; c < cols; c += kWarp) {
        const float v = x[int64_t(row) * cols + c];
        sum += v;
        squares += v * v;
    }
    const float m = warp_sum(sum) / cols, square = warp_sum(squares) / cols;
    if (threadIdx.x == 0) mean[row] = m, var[row] = square - m * m;
}

// ---- shift: the shortcut, with the row's first number taken from all others.
// Flaw: if the first number is far from the others, it is the shortcut again.

__global__ void row_shift(const float* x, float* mean, float* var, int rows, int cols) {
    const int row = my_row();
    if (row >= rows) return;
    const float first = x[int64_t(row) * cols];
    float sum = 0, squares = 0;
    for (int c = threadIdx.x; c < cols; c += kWarp) {
        const float v = x[int64_t(row) * cols + c] - first;
        sum += v;
        squares += v * v;
    }
    const float m = warp_sum(sum) / cols, square = warp_sum(squares) / cols;
    if (threadIdx.x == 0) mean[row] = first + m, var[row] = square - m * m;
}

// ---- two_pass: the mean first, then the average of the squared distances from it. The mean itself
// has been rounded; by how much, the average of the distances says.
// Flaw: the row is read twice.

__global__ void row_two_pass(const float* x, float* mean, float* var, int rows, int cols) {
    const int row = my_row();
    if (row >= rows) return;
    float sum = 0, distances = 0, squares = 0;
    for (int c = threadIdx.x; c < cols; c += kWarp) sum += x[int64_t(row) * cols + c];
    const float m = warp_sum(sum) / cols;
    for (int c = threadIdx.x; c < cols; c += kWarp) {
        const float d = x[int64_t(row) * cols + c] - m;
        distances += d;
        squares += d * d;
    }
    const float lost = warp_sum(distances) / cols, square = warp_sum(squares) / cols;
    if (threadIdx.x == 0) mean[row] = m + lost, var[row] = square - lost * lost;
}

// ---- welford: count, mean and squared distances, kept right at every number (Welford, 1962), and
// merged from lane to lane (Chan, Golub, LeVeque, 1979).
// Flaw: a division for each element.

struct Moments {
    float count, mean, squares;  // squares: the sum of squared distances from the mean

    __device__ void take(float v) {
        const float distance = v - mean;
        count += 1;
        mean += distance / count;
        squares += distance * (v - mean);
    }

    __device__ void combine(const Moments& other) {
        if (other.count == 0) return;
        const float distance = other.mean - mean, all = count + other.count;
        mean += distance * other.count / all;
        squares += other.squares + distance * distance * count * other.count / all;
        count = all;
    }
};

__global__ void row_welford(const float* x, float* mean, float* var, int rows, int cols) {
    const int row = my_row();
    if (row >= rows) return;
    Moments mine = {0, 0, 0};
    for (int c = threadIdx.x; c < cols; c += kWarp) mine.take(x[int64_t(row) * cols + c]);
    for (int bit = kWarp / 2; bit > 0; bit /= 2) {
        mine.combine(Moments{__shfl_xor_sync(0xffffffff, mine.count, bit),
                             __shfl_xor_sync(0xffffffff, mine.mean, bit),
                             __shfl_xor_sync(0xffffffff, mine.squares, bit)});
    }
    if (threadIdx.x == 0) mean[row] = mine.mean, var[row] = mine.squares / cols;
}

// ---- launcher. version: 0 shortcut, 1 shift, 2 two_pass, 3 welford

extern "C" cudaError_t moments(const float* x, float* mean, float* var, int rows, int cols,
                               int version, cudaStream_t stream) {
    const auto kernel =
        version == 0   ? row_shortcut
        : version == 1 ? row_shift
        : version == 2 ? row_two_pass
                       : row_welford;
    kernel<<<ceil_div(rows, kRows), dim3(kWarp, kRows), 0, stream>>>(x, mean, var, rows, cols);
    return cudaGetLastError();
}
