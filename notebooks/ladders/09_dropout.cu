// Ways to apply dropout, the last of them the op's: s = residual + x * f, where f is 0 for a part p
// of the elements and 1 / (1 - p) for the others. Backward computes dx = g * f.
//
//   x, residual, s, g, dx [n] bfloat16     bits [n] int16, all alike     kept [n] bool: f != 0
//   n is a multiple of 8: a thread takes eight elements at a time, 16 bytes of each tensor
//
// Traffic, in bytes per element: forward reads x and residual and writes s, 6; backward reads g and
// writes dx, 4. Whatever a version moves beyond that is its flaw.

#include <cuda_bf16.h>

#include "columns.cuh"
#include "dropout.cuh"

using Factors = float[8];

__device__ int64_t first_of_thread() {
    return (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * 8;
}

// The factor by a random word, whose upper 16 bits decide.
__device__ float factor_of(uint32_t word, const Dropout<float>& dropout) {
    return word >= dropout.least ? dropout.scale : 0;
}

// Forward for the eight elements from i on.
__device__ void add_eight(const nv_bfloat16* x, const nv_bfloat16* residual, nv_bfloat16* s,
                          int64_t i, const Factors& f) {
    Vec<nv_bfloat16, 8> v = load<8>(x + i);
    const Vec<nv_bfloat16, 8> more = load<8>(residual + i);
    for (int k = 0; k < 8; ++k)
        v[k] = __float2bfloat16(fmaf(__bfloat162float(v[k]), f[k], __bfloat162float(more[k])));
    store(s + i, v);
}

// Backward.
__device__ void scale_eight(const nv_bfloat16* g, nv_bfloat16* dx, int64_t i, const Factors& f) {
    Vec<nv_bfloat16, 8> v = load<8>(g + i);
    for (int k = 0; k < 8; ++k) v[k] = __float2bfloat16(__bfloat162float(v[k]) * f[k]);
    store(dx + i, v);
}

__device__ void keep_eight(bool* kept, int64_t i, const Factors& f) {
    Vec<bool, 8> mask;
    for (int k = 0; k < 8; ++k) mask[k] = f[k] != 0;
    store(kept + i, mask);
}

// ---- read: another kernel has written random bits, 16 for each element. The mask is stored for
// backward, a byte for each element.
// Flaw: the bits are written and read again, 2 bytes each time, and so is the mask, 1 byte.

__global__ void forward_read(const nv_bfloat16* x, const nv_bfloat16* residual, const int16_t* bits,
                             nv_bfloat16* s, bool* kept, Dropout<float> dropout, int64_t n) {
    const int64_t i = first_of_thread();
    if (i >= n) return;
    const Vec<int16_t, 8> drawn = load<8>(bits + i);
    Factors f;
    for (int k = 0; k < 8; ++k) f[k] = factor_of(uint32_t(drawn[k]) << 16, dropout);
    keep_eight(kept, i, f);
    add_eight(x, residual, s, i, f);
}

__global__ void backward_stored(const nv_bfloat16* g, const bool* kept, nv_bfloat16* dx,
                                Dropout<float> dropout, int64_t n) {
    const int64_t i = first_of_thread();
    if (i >= n) return;
    const Vec<bool, 8> mask = load<8>(kept + i);
    Factors f;
    for (int k = 0; k < 8; ++k) f[k] = mask[k] ? dropout.scale : 0;
    scale_eight(g, dx, i, f);
}

// ---- state: each thread makes its numbers itself, every one from the one before. It reads its
// state from memory when it begins, and writes it back when it ends.
// Flaw: an element's number depends on how many threads there are, and on what its thread did
// before. So backward cannot compute it again, and the mask is stored.

__device__ uint32_t next_of(uint32_t state) { return 1664525 * state + 1013904223; }

__global__ void forward_state(const nv_bfloat16* x, const nv_bfloat16* residual, int* states,
                              nv_bfloat16* s, bool* kept, Dropout<float> dropout, int64_t n) {
    const int64_t begin = first_of_thread();
    uint32_t state = states[begin / 8];
    for (int64_t i = begin; i < n; i += int64_t(gridDim.x) * blockDim.x * 8) {
        Factors f;
        for (float& factor : f) {
            state = next_of(state);
            factor = factor_of(state, dropout);
        }
        keep_eight(kept, i, f);
        add_eight(x, residual, s, i, f);
    }
    states[begin / 8] = state;
}

// ---- element: nothing is stored. Philox gives the same bits for the same element every time.
// Flaw: an element uses 16 of the 128 bits of a draw, so arithmetic takes longer than memory.

__device__ void draw_each(const Dropout<float>& dropout, int64_t i, Factors& f) {
    const uint64_t seed = *dropout.seed;
    for (int k = 0; k < 8; ++k)
        f[k] = factor_of(Philox::draw(seed, dropout.offset, i + k).x, dropout);
}

__global__ void forward_element(const nv_bfloat16* x, const nv_bfloat16* residual, nv_bfloat16* s,
                                Dropout<float> dropout, int64_t n) {
    const int64_t i = first_of_thread();
    if (i >= n) return;
    Factors f;
    draw_each(dropout, i, f);
    add_eight(x, residual, s, i, f);
}

__global__ void backward_element(const nv_bfloat16* g, nv_bfloat16* dx, Dropout<float> dropout,
                                 int64_t n) {
    const int64_t i = first_of_thread();
    if (i >= n) return;
    Factors f;
    draw_each(dropout, i, f);
    scale_eight(g, dx, i, f);
}

// ---- eight: one draw serves the eight elements of a vector, as in the op.
// Flaw: eight neighbours must belong to one thread.

__device__ void draw_once(const Dropout<float>& dropout, int64_t i, Factors& f) {
    const Draw<8> draw(dropout, *dropout.seed, i);
    for (int k = 0; k < 8; ++k) f[k] = draw.factor(dropout, k);
}

__global__ void forward_eight(const nv_bfloat16* x, const nv_bfloat16* residual, nv_bfloat16* s,
                              Dropout<float> dropout, int64_t n) {
    const int64_t i = first_of_thread();
    if (i >= n) return;
    Factors f;
    draw_once(dropout, i, f);
    add_eight(x, residual, s, i, f);
}

__global__ void backward_eight(const nv_bfloat16* g, nv_bfloat16* dx, Dropout<float> dropout,
                               int64_t n) {
    const int64_t i = first_of_thread();
    if (i >= n) return;
    Factors f;
    draw_once(dropout, i, f);
    scale_eight(g, dx, i, f);
}

// ---- aligned: dropout, residual and norm in one kernel, for rows of float. A block takes a row,
// and a thread keeps its eight columns of the sum in registers.
//
//   x, residual, y, s [rows, cols] float     weight, bias [cols] float
//
// Flaw: draws take registers beside the row's, and rows must be a multiple of 256 wide, up to 4096.

__global__ void norm_aligned(const float* x, const float* residual, const float* weight,
                             const float* bias, float* y, float* s, Dropout<float> dropout,
                             int cols, float eps) {
    const int64_t begin = int64_t(blockIdx.x) * cols;
    float sum[kColumns], more[kColumns], w[kColumns], b[kColumns], part = 0, square = 0;
    load_columns(x + begin, sum);
    load_columns(residual + begin, more);
    for (int n = 0; n < kColumns; n += 4) {
        const Draw<4> draw(dropout, *dropout.seed, begin + column_of(n / 4));
        for (int k = n; k < n + 4; ++k) sum[k] = more[k] + sum[k] * draw.factor(dropout, k - n);
    }
    store_columns(s + begin, sum);
    for (float v : sum) part += v / cols;
    BlockReduce reduce;  // over the threads of the block
    const float mean = reduce(Sums<1, float>{part})[0];
    for (float v : sum) square += (v - mean) * (v - mean);
    const float r = 1 / sqrtf(reduce(Sums<1, float>{square})[0] / cols + eps);
    load_columns(weight, w);
    load_columns(bias, b);
    for (int k = 0; k < kColumns; ++k) sum[k] = (sum[k] - mean) * r * w[k] + b[k];
    store_columns(y + begin, sum);
}

// ---- broken: all threads take the next number of one state.
// Flaw: a thread reads before another one has written, and both get the same number.

__global__ void mask_of_one_state(int* state, bool* kept, Dropout<float> dropout, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const uint32_t next = next_of(*state);
    *state = next;
    kept[i] = factor_of(next, dropout) != 0;
}

// ---- Philox alone: are its words the right ones, and how many are there in a second?

// counter, words [n, 4]     key [n, 2]
__global__ void philox_words(const int* counter, const int* key, int* words, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const Philox philox{{uint32_t(key[2 * i]), uint32_t(key[2 * i + 1])}};
    const int* c = counter + 4 * i;
    const uint4 drawn = philox(make_uint4(c[0], c[1], c[2], c[3]));
    words[4 * i] = drawn.x;
    words[4 * i + 1] = drawn.y;
    words[4 * i + 2] = drawn.z;
    words[4 * i + 3] = drawn.w;
}

// All draws of a thread go into one word, which is stored, so that the compiler omits none of them.
__global__ void philox_alone(int* left, int draws, uint64_t seed) {
    const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    uint32_t mixed = 0;
    for (int i = 0; i < draws; ++i) {
        const uint4 drawn = Philox::draw(seed, i, thread);
        mixed ^= drawn.x ^ drawn.y ^ drawn.z ^ drawn.w;
    }
    left[thread] = mixed;
}

// ---- launchers: forward and backward. Of state, threads is a multiple of 256.

constexpr int kThreads = 256;

int64_t blocks_for(int64_t threads) { return ceil_div<int64_t>(threads, kThreads); }

extern "C" cudaError_t read(const nv_bfloat16* x, const nv_bfloat16* residual, const int16_t* bits,
                            nv_bfloat16* s, bool* kept, const nv_bfloat16* g, nv_bfloat16* dx,
                            double p, int64_t n, cudaStream_t stream) {
    const Dropout<float> dropout(nullptr, 0, p);
    forward_read<<<blocks_for(n / 8), kThreads, 0, stream>>>(
        x, residual, bits, s, kept, dropout, n);
    backward_stored<<<blocks_for(n / 8), kThreads, 0, stream>>>(g, kept, dx, dropout, n);
    return cudaGetLastError();
}

extern "C" cudaError_t state(const nv_bfloat16* x, const nv_bfloat16* residual, int* states,
                             nv_bfloat16* s, bool* kept, const nv_bfloat16* g, nv_bfloat16* dx,
                             int threads, double p, int64_t n, cudaStream_t stream) {
    const Dropout<float> dropout(nullptr, 0, p);
    forward_state<<<blocks_for(threads), kThreads, 0, stream>>>(
        x, residual, states, s, kept, dropout, n);
    backward_stored<<<blocks_for(n / 8), kThreads, 0, stream>>>(g, kept, dx, dropout, n);
    return cudaGetLastError();
}

extern "C" cudaError_t element(const nv_bfloat16* x, const nv_bfloat16* residual,
                               const int64_t* seed, int64_t offset, nv_bfloat16* s,
                               const nv_bfloat16* g, nv_bfloat16* dx, double p, int64_t n,
                               cudaStream_t stream) {
    const Dropout<float> dropout(seed, offset, p);
    forward_element<<<blocks_for(n / 8), kThreads, 0, stream>>>(x, residual, s, dropout, n);
    backward_element<<<blocks_for(n / 8), kThreads, 0, stream>>>(g, dx, dropout, n);
    return cudaGetLastError();
}

extern "C" cudaError_t eight(const nv_bfloat16* x, const nv_bfloat16* residual, const int64_t* seed,
                             int64_t offset, nv_bfloat16* s, const nv_bfloat16* g, nv_bfloat16* dx,
                             double p, int64_t n, cudaStream_t stream) {
    const Dropout<float> dropout(seed, offset, p);
    forward_eight<<<blocks_for(n / 8), kThreads, 0, stream>>>(x, residual, s, dropout, n);
    backward_eight<<<blocks_for(n / 8), kThreads, 0, stream>>>(g, dx, dropout, n);
    return cudaGetLastError();
}

extern "C" cudaError_t aligned(const float* x, const float* residual, const float* weight,
                               const float* bias, float* y, float* s, const int64_t* seed,
                               int64_t offset, double p, int rows, int cols, float eps,
                               cudaStream_t stream) {
    if (!fits(cols)) return cudaErrorInvalidValue;
    const Dropout<float> dropout(seed, offset, p);
    norm_aligned<<<rows, cols / kColumns, 0, stream>>>(
        x, residual, weight, bias, y, s, dropout, cols, eps);
    return cudaGetLastError();
}

extern "C" cudaError_t one_state(int* state, bool* kept, double p, int n, cudaStream_t stream) {
    const Dropout<float> dropout(nullptr, 0, p);
    mask_of_one_state<<<blocks_for(n), kThreads, 0, stream>>>(state, kept, dropout, n);
    return cudaGetLastError();
}

extern "C" cudaError_t words(const int* counter, const int* key, int* words, int n,
                             cudaStream_t stream) {
    philox_words<<<blocks_for(n), kThreads, 0, stream>>>(counter, key, words, n);
    return cudaGetLastError();
}

extern "C" cudaError_t alone(int* left, int threads, int draws, int64_t seed, cudaStream_t stream) {
    philox_alone<<<blocks_for(threads), kThreads, 0, stream>>>(left, draws, seed);
    return cudaGetLastError();
}
