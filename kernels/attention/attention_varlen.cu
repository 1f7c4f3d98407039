// attention_varlen: attention of sequences of different lengths, one after the other
//
//   q, y [tokens, heads, cols] T                       g, dq: the gradients of y and of q
//   k, v [kv_tokens, kv_heads, cols] T                 dk, dv: theirs
//   stats [tokens, heads, 2] Acc<T>                    as in attention.cu
//   cu_seqlens_q, _k [sequences + 1] int32 or int64    sequence i has the tokens from element i on
//                                                      and before element i + 1
//
// The kernels, the formulas and the versions are attention's, for a PackedAttention. The lengths
// stay on the device, so nobody knows on the host which tiles have rows: there are blocks for all
// that may, or a counter from which blocks draw tiles, and each looks up its sequence
// (PackedAttention::sequence_of_tile).
//
// Tokens of no sequence, before the first and after the last one, have y = 0 and no gradient. Where
// lengths are wrong, all of that is NaN, and nothing else is read or written.

#include "attention_launch.cuh"

constexpr int kSetUpThreads = 256;

// What is given, and what the kernels of attention trust: the same, or sequences without a token
// where it is wrong.
template <class Index>
struct Begins {
    const Index *rows, *keys;  // [sequences + 1]
    int32_t* checked;          // [2, sequences + 1]
};

// Do they increase, within so many tokens, and is no sequence longer than `most`? Of all threads of
// a block, each looks at some.
template <class Index>
__device__ bool are_right(const Index* begins, int64_t sequences, int64_t tokens, int64_t most) {
    bool right = true;
    for (int64_t i = threadIdx.x; i <= sequences; i += blockDim.x) {
        const Index begin = begins[i], end = i < sequences ? begins[i + 1] : begin;
        right = right && begin >= 0 && begin <= end && end <= tokens && end - begin <= most;
    }
    return __syncthreads_and(right);
}

// Fills the rows of no sequence in x [tokens, width]: those before `begin`, and from `end` on.
template <class X>
__device__ void fill_outside(X* x, int64_t tokens, int64_t width, int64_t begin, int64_t end,
                             X value) {
    const int64_t before = begin * width, count = before + (tokens - end) * width;
    for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; x && i < count;
         i += int64_t(gridDim.x) * blockDim.x)
        x[i < before ? i : i + (end - begin) * width] = value;
}

// Checks begins, resets the tile counter, and writes what belongs to no sequence: of_rows is y or
// dq, of_k and of_v are dk and dv. Each of these, and stats, may be null.
template <class T, class Index>
__global__ __launch_bounds__(kSetUpThreads) void set_up(
    PackedAttention a, Begins<Index> begins, T* of_rows, T* of_k, T* of_v, Acc<T>* stats) {
    launch_dependents();
    const int64_t last = a.sequences;
    const bool rows_right = are_right(begins.rows, last, a.tokens, a.rows);
    const bool right = are_right(begins.keys, last, a.kv_tokens, a.keys) && rows_right;
    if (blockIdx.x == 0) {
        if (threadIdx.x == 0) *a.tile_counter = 0;
        for (int64_t i = threadIdx.x; i <= last; i += blockDim.x) {
            begins.checked[i] = right ? int32_t(begins.rows[i]) : 0;
            begins.checked[last + 1 + i] = right ? int32_t(begins.keys[i]) : 0;
        }
    }
    const int64_t row = right ? begins.rows[0] : 0, rows_end = right ? begins.rows[last] : 0;
    const int64_t key = right ? begins.keys[0] : 0, keys_end = right ? begins.keys[last] : 0;
    const Acc<T> value = right ? Acc<T>(0) : Acc<T>(NAN);
    fill_outside(of_rows, a.tokens, a.heads * a.cols, row, rows_end, T(value));
    fill_outside(stats, a.tokens, a.heads * 2, row, rows_end, value);
    fill_outside(of_k, a.kv_tokens, a.kv_heads * a.cols, key, keys_end, T(value));
    fill_outside(of_v, a.kv_tokens, a.kv_heads * a.cols, key, keys_end, T(value));
}

template <class T, class Index>
cudaError_t attention_set_up(const PackedAttention& a, const Index* row_begins,
                             const Index* key_begins, int32_t* checked, T* of_rows, T* of_k,
                             T* of_v, Acc<T>* stats, cudaStream_t stream) {
    set_up<T, Index><<<2 * multiprocessors(), kSetUpThreads, 0, stream>>>(
        a, {row_begins, key_begins, checked}, of_rows, of_k, of_v, stats);
    return cudaGetLastError();
}

#define INSTANTIATE(T)                                                            \
    template decltype(attention_set_up<T, int32_t>) attention_set_up<T, int32_t>; \
    template decltype(attention_set_up<T, int64_t>) attention_set_up<T, int64_t>; \
    INSTANTIATE_ATTENTION(T, PackedAttention)
FOR_EACH_TYPE(INSTANTIATE)
