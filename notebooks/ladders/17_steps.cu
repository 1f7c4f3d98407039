// 17_attention.cu's `online` with a single warp, to be stepped through: 4 rows of q, and tiles of 8
// keys. Of a tile's scores lane 8 r + n has that of row r and key n, and of the sums row r, column
// n.
//
//   q, y [4, 8], k, v [keys, 8] float; keys: a multiple of 8

#include <cuda_runtime.h>

constexpr int kCols = 8, kTile = 8, kRows = 4;

__device__ float largest_of_row(float value) {
    for (int bit = 4; bit > 0; bit /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, bit));
    return value;
}

// kForgets: a mistake. What was summed of v does not shrink when a larger score comes.
template <bool kForgets>
__global__ void attention_online(const float* q, const float* k, const float* v, float* y,
                                 int keys) {
    const int row = threadIdx.x / 8, n = threadIdx.x % 8;
    float largest = -INFINITY, total = 0, sum = 0;
    for (int key = 0; key < keys; key += kTile) {
        float score = 0;
        for (int c = 0; c < kCols; ++c) score += q[row * kCols + c] * k[(key + n) * kCols + c];
        const float most = fmaxf(largest, largest_of_row(score));
        const float power = expf(score - most), factor = expf(largest - most);
        largest = most;
        total *= factor;
        if (!kForgets) sum *= factor;
        for (int i = 0; i < kTile; ++i) {
            const float weight = __shfl_sync(0xffffffff, power, i, 8);
            total += weight;
            sum += weight * v[(key + i) * kCols + n];
        }
    }
    y[row * kCols + n] = sum / total;
}

extern "C" cudaError_t online(const float* q, const float* k, const float* v, float* y, int keys,
                              cudaStream_t stream) {
    attention_online<false><<<1, kRows * 8, 0, stream>>>(q, k, v, y, keys);
    return cudaGetLastError();
}

extern "C" cudaError_t forgets(const float* q, const float* k, const float* v, float* y, int keys,
                               cudaStream_t stream) {
    attention_online<true><<<1, kRows * 8, 0, stream>>>(q, k, v, y, keys);
    return cudaGetLastError();
}
