// Attention by mma.sync: y = softmax(q k^T / sqrt(cols)) v, for GPUs from compute capability 8.0 on
//
//   q, k, v, y [heads, tokens, cols] bfloat16; cols: 64 or 128
//   lse [heads, tokens] float: log2 of the sum of e^score of a row, for backward
//
// tokens is a multiple of 64; the launcher refuses others. The op's version, which takes all
// shapes, masks and strides, is forward_mma in kernels/attention/attention_mma.cuh.

#include "attention_tiles.cuh"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// A block has 64 rows of q, a warp 16 of them. While a tile of 64 keys is multiplied, the next one
// is on its way. Scores become weights in registers, where they are the next product's operand.
// Flaw: each warp waits for its own products, and reads all of k and v from shared memory.
template <int kCols>
__global__ void __launch_bounds__(kThreads) attention_mma(const T* q, const T* k, const T* v, T* y,
                                                          float* lse, int tokens, float scale) {
    extern __shared__ char memory[];
    Tile<kCols>* const tiles = &tile_aligned<Tile<kCols>>(memory);
    const int64_t head = int64_t(blockIdx.y) * tokens, row = head + blockIdx.x * kTile;
    const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    k += head * kCols, v += head * kCols;
    const auto load_keys = [&](int key, int stage) {
        if (key < tokens) tiles[1 + stage].load(k + key * kCols);
        if (key < tokens) tiles[3 + stage].load(v + key * kCols);
        cp_async_commit();
    };
    tiles[0].load(q + row * kCols);
    load_keys(0, 0);

    OnlineSoftmax softmax = {scale};
    float s[kTile / 2], accum[kCols / 2] = {}, factor[2];
    uint32_t p[kTile / 4];
    for (int key = 0, stage = 0; key < tokens; key += kTile, stage ^= 1) {
        load_keys(key + kTile, stage ^ 1);
        cp_async_wait<1>();  // all but the copies that were just started are there
        __syncthreads();
        multiply_rows(s, tiles[0], warp * 16, tiles[1 + stage]);
        softmax.take(s, factor);
        scale_rows(accum, factor);
        to_operand(p, s);
        multiply_columns(accum, p, tiles[3 + stage]);
        __syncthreads();  // all warps have read the tile before it is overwritten
    }
    softmax.finish(factor);
    scale_rows(accum, factor);
    store_rows(y + (row + warp * 16) * kCols, accum);
#pragma unroll
    for (int i = 0; i < 2; ++i)  // one lane of each quad
        if (lane % 4 == 0) lse[row + warp * 16 + lane / 4 + 8 * i] = softmax.lse(i);
}

#else  // these GPUs have no such instructions

template <int kCols>
__global__ void attention_mma(const T*, const T*, const T*, T*, float*, int, float) {}

#endif

// ---- launcher

template <int kCols>
cudaError_t launch(const T* q, const T* k, const T* v, T* y, float* lse, int heads, int tokens,
                   cudaStream_t stream) {
    const int bytes = 5 * sizeof(Tile<kCols>) + kTileAlign;
    const auto kernel = attention_mma<kCols>;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    const float scale = kLog2E / sqrtf(kCols);
    kernel<<<dim3(tokens / kTile, heads), kThreads, bytes, stream>>>(
        q, k, v, y, lse, tokens, scale);
    return cudaGetLastError();
}

extern "C" cudaError_t mma_sync(const T* q, const T* k, const T* v, T* y, float* lse, int heads,
                                int tokens, int cols, cudaStream_t stream) {
    cudaFuncAttributes compiled = {};
    if (cudaFuncGetAttributes(&compiled, attention_mma<64>) != cudaSuccess ||
        compiled.ptxVersion < 80)
        return cudaErrorNotSupported;
    if (tokens % kTile != 0 || (cols != 64 && cols != 128)) return cudaErrorInvalidValue;
    if (heads == 0 || tokens == 0) return cudaSuccess;
    return (cols == 64 ? launch<64> : launch<128>)(q, k, v, y, lse, heads, tokens, stream);
}
