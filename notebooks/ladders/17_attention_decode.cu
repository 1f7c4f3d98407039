// Decoding with a paged cache: a row of q for each sequence and head, y = softmax(q k^T / 8) v
//
//   q, y [sequences, heads, 64] bfloat16
//   k, v [pages, kPage, heads, 64] bfloat16: the pages of all sequences, in any order
//   table [sequences, max_pages] int32: which page has tokens kPage n and on of a sequence
//   lengths [sequences] int32: how many tokens of a sequence are in the cache
//   partials [sequences, heads, splits, 66] float: mean, largest score and sum of powers of a split
//
// heads is a multiple of 4. The op's version, which takes all shapes and groups of heads, is in
// kernels/attention/attention_decode*.cu*.

#include <cuda_bf16.h>
#include "rows.cuh"

using T = nv_bfloat16;
constexpr int kCols = 64, kPage = 16, kWarps = 4, kPartial = kCols + 2;

// A warp has a sequence, a head and one split of the pages. A lane has two of the columns.
__global__ void decode_split(const T* q, const T* k, const T* v, const int* table,
                             const int* lengths, float* partials, int heads, int max_pages) {
    const int lane = threadIdx.x, head = blockIdx.y * kWarps + threadIdx.y, sequence = blockIdx.z;
    const int split = blockIdx.x, splits = gridDim.x, tokens = lengths[sequence];
    const auto two_of = [&](const T* row) {
        const nv_bfloat162 two = *reinterpret_cast<const nv_bfloat162*>(row + 2 * lane);
        return make_float2(float(two.x), float(two.y));
    };
    const float2 mine = two_of(q + (sequence * heads + head) * kCols);
    float largest = -INFINITY, total = 0;
    float2 sum = {0, 0};
    for (int first = split * kPage; first < tokens; first += splits * kPage) {
        const int64_t page = table[sequence * max_pages + first / kPage];
        for (int n = 0; n < kPage && first + n < tokens; ++n) {
            const int64_t at = ((page * kPage + n) * heads + head) * kCols;
            const float2 of_k = two_of(k + at), of_v = two_of(v + at);
            const float score = warp_sum(mine.x * of_k.x + mine.y * of_k.y) * 0.125f;
            const float most = fmaxf(largest, score), power = expf(score - most);
            const float factor = expf(largest - most);
            largest = most, total = total * factor + power;
            sum = {sum.x * factor + power * of_v.x, sum.y * factor + power * of_v.y};
        }
    }
    partials += ((sequence * heads + head) * splits + split) * int64_t(kPartial);
    partials[2 * lane] = total > 0 ? sum.x / total : 0;
    partials[2 * lane + 1] = total > 0 ? sum.y / total : 0;
    if (lane == 0) partials[kCols] = largest, partials[kCols + 1] = total;
}

// A warp has a row of y. It weighs the means of the splits.
__global__ void decode_combine(const float* partials, T* y, int splits) {
    const int lane = threadIdx.x, row = blockIdx.x * kWarps + threadIdx.y;
    partials += row * int64_t(splits) * kPartial;
    float most = -INFINITY, total = 0, sum[2] = {};
    for (int s = 0; s < splits; ++s) most = fmaxf(most, partials[s * kPartial + kCols]);
    for (int s = 0; s < splits; ++s, partials += kPartial) {
        if (partials[kCols + 1] == 0) continue;  // this split had no token
        const float share = partials[kCols + 1] * expf(partials[kCols] - most);
        total += share;
        for (int i = 0; i < 2; ++i) sum[i] += share * partials[2 * lane + i];
    }
    for (int i = 0; i < 2; ++i) y[row * kCols + 2 * lane + i] = T(total > 0 ? sum[i] / total : 0);
}

extern "C" cudaError_t decode_paged(const T* q, const T* k, const T* v, const int* table,
                                    const int* lengths, float* partials, T* y, int sequences,
                                    int heads, int max_pages, int splits, cudaStream_t stream) {
    if (heads % kWarps != 0 || splits < 1) return cudaErrorInvalidValue;
    if (sequences == 0 || heads == 0) return cudaSuccess;
    const dim3 block(kWarp, kWarps), grid(splits, heads / kWarps, sequences);
    decode_split<<<grid, block, 0, stream>>>(q, k, v, table, lengths, partials, heads, max_pages);
    decode_combine<<<sequences * heads / kWarps, block, 0, stream>>>(partials, y, splits);
    return cudaGetLastError();
}
