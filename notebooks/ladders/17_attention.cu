// Attention of several heads: y = softmax(q k^T / 8) v, in two ways
//
//   q, k, v, y [heads, tokens, 64] float; with causal, row r sees keys 0 to r
//   scores [heads, tokens, tokens] float: what `formula` leaves in memory on its way
//
// tokens is a multiple of 32; the launchers refuse others. The op's own versions, which take all
// shapes and have tensor cores, are in kernels/attention/attention.cu.

#include "softmax.cuh"

constexpr int kCols = 64, kTile = 32, kWarps = 4;
constexpr float kScale = 0.125f;  // 1 / sqrt(kCols)

// ---- formula: three kernels, as the formula has three parts.
// Flaw: the scores go to memory and come back, three times, and there are tokens / 64 times as many
// of them as elements of y.

// A thread has a score.
__global__ void scores_of(const float* q, const float* k, float* scores, int tokens, bool causal) {
    const int64_t key = blockIdx.x * kTile + threadIdx.x, row = blockIdx.y, head = blockIdx.z;
    q += (head * tokens + row) * kCols;
    k += (head * tokens + key) * kCols;
    float sum = 0;
    for (int c = 0; c < kCols; ++c) sum += q[c] * k[c];
    scores[(head * tokens + row) * tokens + key] = causal && key > row ? -INFINITY : sum * kScale;
}

// A warp has a row.
__global__ void softmax_rows(float* scores, int tokens) {
    float* const row = scores + int64_t(blockIdx.x) * tokens;
    float most = -INFINITY, sum = 0;
    for (int n = threadIdx.x; n < tokens; n += kWarp) most = fmaxf(most, row[n]);
    most = warp_max(most);
    for (int n = threadIdx.x; n < tokens; n += kWarp) sum += expf(row[n] - most);
    sum = warp_sum(sum);
    for (int n = threadIdx.x; n < tokens; n += kWarp) row[n] = expf(row[n] - most) / sum;
}

// A thread has an element of y.
__global__ void weighted_sums(const float* weights, const float* v, float* y, int tokens) {
    const int64_t row = blockIdx.x, head = row / tokens;
    float sum = 0;
    for (int64_t n = 0; n < tokens; ++n)
        sum += weights[row * tokens + n] * v[(head * tokens + n) * kCols + threadIdx.x];
    y[row * kCols + threadIdx.x] = sum;
}

// ---- online: a block has 16 rows of q, and goes over the keys in tiles of 32. A warp has four of
// the rows; of a tile's scores a lane has that of its key, and of the sums two columns. When a tile
// brings a larger score, what was summed before shrinks by a factor.
// Flaw: a product is read from shared memory for each multiplication, as in chapter 14's `tiles`.

constexpr int kRows = 16, kOfWarp = kRows / kWarps;

template <int rows, int stride>
__device__ void fill(float (&tile)[rows][stride], const float* from) {
    for (int i = threadIdx.x; i < rows * kCols; i += kWarps * kWarp)
        tile[i / kCols][i % kCols] = from[i];
}

__global__ void attention_online(const float* q, const float* k, const float* v, float* y,
                                 int tokens, bool causal) {
    __shared__ float of_q[kRows][kCols], of_v[kTile][kCols];
    __shared__ float of_k[kTile][kCols + 1];  // a lane for each row, and no two in a bank
    const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, first = blockIdx.x * kRows;
    const int64_t head = int64_t(blockIdx.y) * tokens * kCols;
    fill(of_q, q + head + int64_t(first) * kCols);

    float largest[kOfWarp], powers[kOfWarp] = {}, sums[kOfWarp][2] = {};
    for (float& most : largest) most = -INFINITY;
    const int end = causal ? first + kRows : tokens;  // what comes then, no row sees
    for (int key = 0; key < end; key += kTile) {
        __syncthreads();
        fill(of_k, k + head + int64_t(key) * kCols);
        fill(of_v, v + head + int64_t(key) * kCols);
        __syncthreads();
        for (int r = 0; r < kOfWarp; ++r) {
            const int row = warp * kOfWarp + r;
            float score = 0;
            for (int c = 0; c < kCols; ++c) score += of_q[row][c] * of_k[lane][c];
            score = causal && key + lane > first + row ? -INFINITY : score * kScale;

            const float most = fmaxf(largest[r], warp_max(score));
            const float power = expf(score - most), factor = expf(largest[r] - most);
            largest[r] = most;
            powers[r] = powers[r] * factor + power;
            for (float& sum : sums[r]) sum *= factor;
            for (int n = 0; n < kTile; ++n) {
                const float weight = __shfl_sync(0xffffffff, power, n);
                for (int i = 0; i < 2; ++i) sums[r][i] += weight * of_v[n][lane + i * kWarp];
            }
        }
    }
    for (int r = 0; r < kOfWarp; ++r) {
        const float total = warp_sum(powers[r]);
        const int64_t row = first + warp * kOfWarp + r;
        for (int i = 0; i < 2; ++i) y[head + row * kCols + lane + i * kWarp] = sums[r][i] / total;
    }
}

// ---- launchers

extern "C" cudaError_t formula(const float* q, const float* k, const float* v, float* scores,
                               float* y, int heads, int tokens, bool causal, cudaStream_t stream) {
    if (tokens % kTile != 0) return cudaErrorInvalidValue;
    if (heads == 0 || tokens == 0) return cudaSuccess;
    const dim3 grid(tokens / kTile, tokens, heads);
    scores_of<<<grid, kTile, 0, stream>>>(q, k, scores, tokens, causal);
    softmax_rows<<<heads * tokens, kWarp, 0, stream>>>(scores, tokens);
    weighted_sums<<<heads * tokens, kCols, 0, stream>>>(scores, v, y, tokens);
    return cudaGetLastError();
}

extern "C" cudaError_t online(const float* q, const float* k, const float* v, float* y, int heads,
                              int tokens, bool causal, cudaStream_t stream) {
    if (tokens % kTile != 0) return cudaErrorInvalidValue;
    if (heads == 0 || tokens == 0) return cudaSuccess;
    const dim3 grid(tokens / kRows, heads);
    attention_online<<<grid, kWarps * kWarp, 0, stream>>>(q, k, v, y, tokens, causal);
    return cudaGetLastError();
}
