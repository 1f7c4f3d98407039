// Gradients of y = softmax(q k^T / 8) v by mma.sync, without stored scores
//
//   q, k, v, g [heads, tokens, 64] bfloat16; g: the gradient of y
//   lse, delta [heads, tokens] float: log2 of the sum of e^score of a row; the sum of g y of a row
//   dk, dv [heads, tokens, 64] bfloat16; dq the same, or with `atomics` float, which begins as 0
//
// tokens is a multiple of 64; the launchers refuse others. The op's versions, which take all shapes
// and have wgmma, are in kernels/attention/attention_backward_*.cuh.

#include "attention_tiles.cuh"

constexpr int kCols = 64;
constexpr float kScale = 0.125f, kScaleLog2 = kScale * 1.44269504f;

struct Tensors {
    const T *q, *k, *v, *g;
    const float *lse, *delta;
    T *dk, *dv;
    void* dq;
    int tokens;
};

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// Loads tiles of two matrices, and waits for them.
__device__ void load_both(Tile<kCols>& a, const T* from_a, Tile<kCols>& b, const T* from_b) {
    __syncthreads();  // all warps have read what is overwritten
    a.load(from_a);
    b.load(from_b);
    cp_async_commit();
    cp_async_wait<0>();
    __syncthreads();
}

// ---- dq: a block has 64 rows, and loops over the keys. ds stays in registers, as p does in
// forward.
__global__ void __launch_bounds__(kThreads) attention_dq(Tensors t) {
    __shared__ Tile<kCols> q, g, k, v;
    const int64_t head = int64_t(blockIdx.y) * t.tokens, row = head + blockIdx.x * kTile;
    const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    float lse[2], delta[2];
    for (int i = 0; i < 2; ++i) {
        lse[i] = t.lse[row + warp * 16 + lane / 4 + 8 * i];
        delta[i] = t.delta[row + warp * 16 + lane / 4 + 8 * i];
    }
    load_both(q, t.q + row * kCols, g, t.g + row * kCols);
    float dq[kCols / 2] = {}, s[kTile / 2], dp[kTile / 2];
    uint32_t ds[kTile / 4];
    for (int key = 0; key < t.tokens; key += kTile) {
        load_both(k, t.k + (head + key) * kCols, v, t.v + (head + key) * kCols);
        multiply_rows(s, q, warp * 16, k);   // s = q k^T
        multiply_rows(dp, g, warp * 16, v);  // dp = g v^T
#pragma unroll
        for (int i = 0; i < kTile / 2; ++i) {
            const float p = quick_power_of_2(s[i] * kScaleLog2 - lse[i / 2 % 2]);
            dp[i] = p * (dp[i] - delta[i / 2 % 2]) * kScale;  // ds
        }
        to_operand(ds, dp);
        multiply_columns(dq, ds, k);  // dq += ds k
    }
    store_rows(static_cast<T*>(t.dq) + (row + warp * 16) * kCols, dq);
}

// Adds ds k, of the block's 64 keys, to dq in memory. ds^T goes through shared memory, for dq sums
// over keys, and each warp has 16 of them. The order in which blocks add is left to chance.
__device__ void add_dq(float* dq, const uint32_t (&ds)[kTile / 4], Tile<kCols>& of_ds,
                       Tile<kCols>& k) {
    const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
#pragma unroll
    for (int i = 0; i < kTile / 4; ++i) {
        const int key = warp * 16 + lane / 4 + i % 2 * 8, row = i / 2 * 8 + lane % 4 * 2;
        *reinterpret_cast<uint32_t*>(of_ds.at(key, row)) = ds[i];
    }
    __syncthreads();
    float sums[kCols / 2] = {};
    uint32_t a[kTile / 4];
#pragma unroll
    for (int key = 0; key < kTile; key += 16) {  // transposed on the way: a warp's 16 rows of ds
        const char* const from =
            of_ds.at(key + lane / 16 * 8 + lane % 8, warp * 16 + lane / 8 % 2 * 8);
        ldmatrix(reinterpret_cast<uint32_t (&)[4]>(a[key / 4]), from, true);
    }
    multiply_columns(sums, a, k);
#pragma unroll
    for (int i = 0; i < kCols / 2; ++i) {
        const int row = warp * 16 + lane / 4 + i / 2 % 2 * 8;
        atomicAdd(dq + row * kCols + i / 4 * 8 + lane % 4 * 2 + i % 2, sums[i]);
    }
}

// ---- dk, dv: a block has 64 keys, and loops over the rows. It computes the transposes of s and
// dp, so that p and ds are operands again. With kAtomics it adds its part of dq to memory as well,
// and attention_dq is not needed.
template <bool kAtomics>
__global__ void __launch_bounds__(kThreads) attention_dk_dv(Tensors t) {
    __shared__ Tile<kCols> k, v, q, g, of_ds;
    const int64_t head = int64_t(blockIdx.y) * t.tokens, key = head + blockIdx.x * kTile;
    const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    load_both(k, t.k + key * kCols, v, t.v + key * kCols);
    float dk[kCols / 2] = {}, dv[kCols / 2] = {}, s[kTile / 2], dp[kTile / 2];
    uint32_t p[kTile / 4], ds[kTile / 4];
    for (int64_t row = head; row < head + t.tokens; row += kTile) {
        load_both(q, t.q + row * kCols, g, t.g + row * kCols);
        multiply_rows(s, k, warp * 16, q);   // s^T = k q^T
        multiply_rows(dp, v, warp * 16, g);  // dp^T = v g^T
#pragma unroll
        for (int i = 0; i < kTile / 2; ++i) {
            const int64_t of = row + i / 4 * 8 + lane % 4 * 2 + i % 2;  // rows are columns here
            s[i] = quick_power_of_2(s[i] * kScaleLog2 - t.lse[of]);     // p^T
            dp[i] = s[i] * (dp[i] - t.delta[of]) * kScale;              // ds^T
        }
        to_operand(p, s);
        to_operand(ds, dp);
        multiply_columns(dv, p, g);   // dv += p^T g
        multiply_columns(dk, ds, q);  // dk += ds^T q
        if (kAtomics) add_dq(static_cast<float*>(t.dq) + row * kCols, ds, of_ds, k);
    }
    store_rows(t.dk + (key + warp * 16) * kCols, dk);
    store_rows(t.dv + (key + warp * 16) * kCols, dv);
}

#else  // these GPUs have no such instructions

__global__ void attention_dq(Tensors) {}
template <bool kAtomics>
__global__ void attention_dk_dv(Tensors) {}

#endif

// ---- launchers

cudaError_t launch(bool atomics, const Tensors& t, int heads, cudaStream_t stream) {
    cudaFuncAttributes compiled = {};
    if (cudaFuncGetAttributes(&compiled, attention_dq) != cudaSuccess || compiled.ptxVersion < 80)
        return cudaErrorNotSupported;
    if (t.tokens % kTile != 0) return cudaErrorInvalidValue;
    if (heads == 0 || t.tokens == 0) return cudaSuccess;
    const dim3 grid(t.tokens / kTile, heads);
    if (atomics) {
        attention_dk_dv<true><<<grid, kThreads, 0, stream>>>(t);
    } else {
        attention_dk_dv<false><<<grid, kThreads, 0, stream>>>(t);
        attention_dq<<<grid, kThreads, 0, stream>>>(t);
    }
    return cudaGetLastError();
}

// Two loops, one for dk and dv and one for dq: seven products, and the same bits on every run.
extern "C" cudaError_t two_loops(const T* q, const T* k, const T* v, const T* g, const float* lse,
                                 const float* delta, T* dq, T* dk, T* dv, int heads, int tokens,
                                 cudaStream_t stream) {
    return launch(false, {q, k, v, g, lse, delta, dk, dv, dq, tokens}, heads, stream);
}

// One loop: five products. dq is 0 before.
extern "C" cudaError_t atomics(const T* q, const T* k, const T* v, const T* g, const float* lse,
                               const float* delta, float* dq, T* dk, T* dv, int heads, int tokens,
                               cudaStream_t stream) {
    return launch(true, {q, k, v, g, lse, delta, dk, dv, dq, tokens}, heads, stream);
}
