// rope: the output of a fused projection, split into q, k and v, of which q and k are rotated
//
//   qkv, dqkv [batch, tokens, (heads + 2 * kv_heads) * 2 * pairs] T
//   q, dq [batch, heads, tokens, 2 * pairs] T       k, v, dk, dv [batch, kv_heads, ..] T
//                                                   of any strides between batches, heads, tokens
//   cos, sin [tokens, pairs] T, or [batch, tokens, pairs]; dcos, dsin alike
//
// A pair (a, b) of a head becomes (a * cos - b * sin, b * cos + a * sin). Pair i is elements i and
// pairs + i of its head or, interleaved, 2 * i and 2 * i + 1. v is copied. The backward pass turns
// by the negative angle and writes all of dqkv.
//
// Traffic, the least a kernel can move: either direction reads and writes each element once,
// 2 * sizeof(T) bytes. The tables are small beside qkv, for all heads share them.

#include "rope.h"
#include "vec.cuh"

enum Version : int64_t { kNaive, kVector };  // as in rope.py

// Where a head of q, k or v begins that is head number `head` of a row of qkv.
template <class T>
__device__ T* head_of(T* q, T* k, T* v, const Rope& s, int64_t row, int head) {
    T* into = q;
    Strides strides = s.q;
    if (head >= s.heads) {
        head -= s.heads;
        into = k, strides = s.k;
        if (head >= s.kv_heads) {
            head -= s.kv_heads;
            into = v, strides = s.v;
        }
    }
    const int64_t batch = row / s.tokens, token = row % s.tokens;
    return into + batch * strides.batch + head * strides.head + token * strides.row;
}

// ---- A thread has some neighbouring pairs of a head, with their cosines and sines. A block has a
// part of a row, or of several, one after the other.
// naive, V = 1: one pair. Flaw: an access of 2 bytes, and as much arithmetic of indices as for 16.
// vector: 16 bytes per access: V pairs, whose first elements are one vector and whose second ones
// another; interleaved V / 2, which are one vector. Flaw: needs aligned tensors and a multiple of
// so many pairs; the launcher goes back to naive for others. (Stores are at once: nvcc took those
// of bfloat16 apart into single elements, and forward took 60 us where it now takes 33.)

template <class A>
__device__ void turn(A& a, A& b, A cosine, A sine) {
    const A u = a, w = b;
    a = u * cosine - w * sine;
    b = w * cosine + u * sine;
}

template <class T, int V, bool kInterleaved>
struct Pairs {
    static constexpr int kCount = V;
    Vec<T, V> first, second;
    __device__ Pairs(const T* head, int64_t pair, int64_t pairs)
        : first(load_once<V>(head + pair)), second(load_once<V>(head + pairs + pair)) {}
    __device__ void store_to(T* head, int64_t pair, int64_t pairs) const {
        store_at_once(head + pair, first);
        store_at_once(head + pairs + pair, second);
    }
    __device__ T& a(int i) { return first[i]; }
    __device__ T& b(int i) { return second[i]; }
};

template <class T, int V>
struct Pairs<T, V, true> {
    static constexpr int kCount = V == 1 ? 1 : V / 2, kEach = V == 1 ? 1 : V;
    Vec<T, kEach> parts[2 * kCount / kEach];  // one, or two single elements
    __device__ Pairs(const T* head, int64_t pair, int64_t) {
        for (int n = 0; n < 2 * kCount / kEach; ++n)
            parts[n] = load_once<kEach>(head + 2 * pair + n * kEach);
    }
    __device__ void store_to(T* head, int64_t pair, int64_t) const {
        for (int n = 0; n < 2 * kCount / kEach; ++n)
            store_at_once(head + 2 * pair + n * kEach, parts[n]);
    }
    __device__ T& a(int i) { return parts[2 * i / kEach][2 * i % kEach]; }
    __device__ T& b(int i) { return parts[(2 * i + 1) / kEach][(2 * i + 1) % kEach]; }
};

template <class T, int V, bool kInterleaved, bool kBackward>
__global__ void rotate(T* qkv, T* q, T* k, T* v, const T* cos, const T* sin, Rope s) {
    using A = Acc<T>;
    using Some = Pairs<T, V, kInterleaved>;
    constexpr int kCount = Some::kCount;
    const int64_t groups = s.pairs / kCount, heads = s.heads + 2 * s.kv_heads;
    for (int64_t row = blockIdx.x; row < s.batch * s.tokens; row += gridDim.x) {
        for (int64_t n = int64_t(blockIdx.y) * blockDim.x + threadIdx.x; n < heads * groups;
             n += int64_t(gridDim.y) * blockDim.x) {
            const int head = int(n / groups);
            const int64_t pair = n % groups * kCount;
            T* whole = qkv + (row * heads + head) * 2 * s.pairs;
            T* part = head_of(q, k, v, s, row, head);
            Some some(kBackward ? part : whole, pair, s.pairs);
            if (head < s.heads + s.kv_heads) {
                const int64_t in_table = (s.table_batch == 1 ? row % s.tokens : row) * s.pairs;
                const Vec<T, kCount> c = load<kCount>(cos + in_table + pair);
                const Vec<T, kCount> d = load<kCount>(sin + in_table + pair);
#pragma unroll
                for (int i = 0; i < kCount; ++i) {
                    A a = A(some.a(i)), b = A(some.b(i));
                    turn(a, b, A(c[i]), kBackward ? -A(d[i]) : A(d[i]));
                    some.a(i) = T(a), some.b(i) = T(b);
                }
            }
            some.store_to(kBackward ? whole : part, pair, s.pairs);
        }
    }
}

// ---- where the tables want a gradient, too: a thread per element of them

template <class T>
__global__ void table_gradients(const T* dq, const T* dk, const T* qkv, T* dcos, T* dsin, Rope s) {
    using A = Acc<T>;
    const int64_t n = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (n >= s.table_batch * s.tokens * s.pairs) return;
    const int64_t pair = n % s.pairs, heads = s.heads + 2 * s.kv_heads;
    const int64_t first = s.interleaved ? 2 * pair : pair;
    const int64_t second = s.interleaved ? first + 1 : first + s.pairs;
    A of_cos = 0, of_sin = 0;
    for (int64_t row = n / s.pairs; row < s.batch * s.tokens; row += s.table_batch * s.tokens) {
        for (int head = 0; head < s.heads + s.kv_heads; ++head) {
            const T* g = head_of<const T>(dq, dk, nullptr, s, row, head);
            const T* x = qkv + (row * heads + head) * 2 * s.pairs;
            of_cos += A(g[first]) * A(x[first]) + A(g[second]) * A(x[second]);
            of_sin += A(g[second]) * A(x[first]) - A(g[first]) * A(x[second]);
        }
    }
    dcos[n] = T(of_cos);
    dsin[n] = T(of_sin);
}

// ---- launchers

constexpr int kThreads = 256;

template <class T, int V, bool kInterleaved, bool kBackward>
cudaError_t launch(T* qkv, T* q, T* k, T* v, const T* cos, const T* sin, const Rope& s,
                   cudaStream_t stream) {
    const int64_t threads =
        (s.heads + 2 * s.kv_heads) * (s.pairs / Pairs<T, V, kInterleaved>::kCount);
    const int64_t parts = smaller<int64_t>(ceil_div<int64_t>(threads, kThreads), 65535);
    // No block has many idle threads: 384 are two blocks of 192.
    const int block =
        int(smaller<int64_t>(ceil_div<int64_t>(ceil_div(threads, parts), 32) * 32, kThreads));
    const dim3 grid(grid_of(s.batch * s.tokens), unsigned(parts));
    rotate<T, V, kInterleaved, kBackward><<<grid, block, 0, stream>>>(qkv, q, k, v, cos, sin, s);
    return cudaGetLastError();
}

// Do all rows begin on a vector?
template <int V>
bool is_whole(const Strides& s) {
    return s.batch % V == 0 && s.head % V == 0 && s.row % V == 0;
}

template <class T, bool kInterleaved, bool kBackward>
cudaError_t rope(const Rope& s, T* qkv, T* q, T* k, T* v, const T* cos, const T* sin,
                 int64_t version, cudaStream_t stream) {
    if (s.batch * s.tokens * s.pairs * (s.heads + s.kv_heads) == 0) return cudaSuccess;
    constexpr int V = kVec<T>;
    const bool whole = s.pairs % V == 0 && is_whole<V>(s.q) && is_whole<V>(s.k) && is_whole<V>(s.v);
    if (version == kVector && whole && is_aligned(qkv, q, k, v, cos, sin))
        return launch<T, V, kInterleaved, kBackward>(qkv, q, k, v, cos, sin, s, stream);
    return launch<T, 1, kInterleaved, kBackward>(qkv, q, k, v, cos, sin, s, stream);
}

template <class T, bool kBackward>
cudaError_t rope(const Rope& s, T* qkv, T* q, T* k, T* v, const T* cos, const T* sin,
                 int64_t version, cudaStream_t stream) {
    return s.interleaved ? rope<T, true, kBackward>(s, qkv, q, k, v, cos, sin, version, stream)
                         : rope<T, false, kBackward>(s, qkv, q, k, v, cos, sin, version, stream);
}

template <class T>
cudaError_t rope_forward(const Rope& call, const T* qkv, T* q, T* k, T* v, const T* cos,
                         const T* sin, int64_t version, cudaStream_t stream) {
    return rope<T, false>(call, const_cast<T*>(qkv), q, k, v, cos, sin, version, stream);
}

template <class T>
cudaError_t rope_backward(const Rope& call, const T* dq, const T* dk, const T* dv, T* dqkv,
                          const T* cos, const T* sin, int64_t version, cudaStream_t stream) {
    return rope<T, true>(call, dqkv, const_cast<T*>(dq), const_cast<T*>(dk), const_cast<T*>(dv),
                         cos, sin, version, stream);
}

template <class T>
cudaError_t rope_table_gradients(const Rope& call, const T* dq, const T* dk, const T* qkv, T* dcos,
                                 T* dsin, cudaStream_t stream) {
    const int64_t n = call.table_batch * call.tokens * call.pairs;
    if (n == 0) return cudaSuccess;
    table_gradients<T>
        <<<ceil_div<int64_t>(n, kThreads), kThreads, 0, stream>>>(dq, dk, qkv, dcos, dsin, call);
    return cudaGetLastError();
}

#define INSTANTIATE(T)                                    \
    template decltype(rope_forward<T>) rope_forward<T>;   \
    template decltype(rope_backward<T>) rope_backward<T>; \
    template decltype(rope_table_gradients<T>) rope_table_gradients<T>;
FOR_EACH_TYPE(INSTANTIATE)
