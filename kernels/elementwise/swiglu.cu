// swiglu: y = silu(a) * b, with silu(a) = a * s and s = 1 / (1 + e^-a)
//
//   a, b, y, g, da, db [n] T      g: the gradient that arrives; da, db: the gradients that leave
//
// Traffic, the least a kernel can move: forward reads a and b and writes y, 3 * sizeof(T) bytes per
// element; backward reads g, a and b and writes da and db, 5 * sizeof(T). As separate ops, silu
// would write its result and the product read it again.

#include "launches.cuh"
#include "quantize.cuh"

enum Version : int64_t { kNaive, kVector };  // as in swiglu.py

template <class A>
__device__ A sigmoid(A a) {
    return 1 / (1 + exp(-a));
}

// T: what the result is rounded to. For 16 bits the GPU's own 2^x and 1 / x, right to 22 bits, are
// exact enough; and they have no branches, before which a thread finishes one element after the
// other. Of e = e^-|a|, which is not too large for any a, sigmoid(a) is 1 / (1 + e) for an a above
// 0 and e / (1 + e) below.
template <class T>
__device__ Acc<T> swiglu(Acc<T> a, Acc<T> b) {
    if constexpr (sizeof(T) == 2) {
        const float e = quick_power_of_2(-kLog2E * fabsf(a));
        return (a > 0 ? a : a * e) * quick_inverse(1 + e) * b;
    } else {
        return a * sigmoid(a) * b;
    }
}

// The same of neighbours, rounded.
template <class T, int N>
__device__ Vec<T, N> swiglu(const Vec<T, N>& a, const Vec<T, N>& b) {
    Acc<T> y[N], factor[N];
    to_floats(a, y);
    to_floats(b, factor);
#pragma unroll
    for (int i = 0; i < N; ++i) y[i] = swiglu<T>(y[i], factor[i]);
    return rounded<T>(y);
}

template <class A>
struct Gradients {
    A da, db;
};

// d silu / d a = s + a * s * (1 - s)
template <class A>
__device__ Gradients<A> swiglu_gradients(A g, A a, A b) {
    const A s = sigmoid(a);
    return {g * b * (s * (1 + a * (1 - s))), g * (a * s)};
}

// ---- naive: one thread per element.
// Flaw: starting a block for every kThreads elements of 2 bytes takes longer than moving them.

template <class T>
__global__ void forward_naive(const T* a, const T* b, T* y, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) y[i] = T(swiglu<T>(Acc<T>(a[i]), Acc<T>(b[i])));
}

template <class T>
__global__ void backward_naive(const T* g, const T* a, const T* b, T* da, T* db, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const auto d = swiglu_gradients(Acc<T>(g[i]), Acc<T>(a[i]), Acc<T>(b[i]));
    da[i] = T(d.da);
    db[i] = T(d.db);
}

// ---- vector: one thread per 16 bytes; the last thread may find fewer and takes them one by one.
// Flaw: needs pointers on a 16-byte boundary; the launcher goes back to naive for others.

template <class T>
__global__ void forward_vector(const T* a, const T* b, T* y, int64_t n) {
    constexpr int V = kVec<T>;
    const int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * V;
    if (i + V <= n) {
        store(y + i, swiglu(load_once<V>(a + i), load_once<V>(b + i)));
    } else {
        for (int64_t k = i; k < n; ++k) y[k] = T(swiglu<T>(Acc<T>(a[k]), Acc<T>(b[k])));
    }
}

template <class T>
__global__ void backward_vector(const T* g, const T* a, const T* b, T* da, T* db, int64_t n) {
    constexpr int V = kVec<T>;
    const int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * V;
    if (i + V <= n) {
        const Vec<T, V> u = load_once<V>(g + i);
        Vec<T, V> v = load_once<V>(a + i), w = load_once<V>(b + i);
        for (int k = 0; k < V; ++k) {
            const auto d = swiglu_gradients(Acc<T>(u[k]), Acc<T>(v[k]), Acc<T>(w[k]));
            v[k] = T(d.da);
            w[k] = T(d.db);
        }
        store(da + i, v);
        store(db + i, w);
    } else {
        for (int64_t k = i; k < n; ++k) {
            const auto d = swiglu_gradients(Acc<T>(g[k]), Acc<T>(a[k]), Acc<T>(b[k]));
            da[k] = T(d.da);
            db[k] = T(d.db);
        }
    }
}

// ---- fp8: y as floats of one byte with scales, [rows, cols]. A block has a row. y is rounded to T
// first, so that the result is that of swiglu and quantize one after the other.

template <class T, RowKind kind, Scaling scaling>
__global__ void __launch_bounds__(kMostRowThreads, kHeldBlocks<kind>) forward_fp8(
    const T* a, const T* b, Float8* q, float* scales, int64_t rows, int64_t cols) {
    constexpr int V = kVec<T>;
    BlockReduce reduce;
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const auto read = [&](const Piece<T>& piece, Vec<T, V>(&all)[kHeld]) {
            const int64_t at = row * cols + piece.start;
            Vec<T, V> of_b[kHeld];
            for_each_vector<T, kind>(piece, [&](int n, int c, const auto& vec) {
                all[n] = vec.read_once(a + at + c);
                of_b[n] = vec.read_once(b + at + c);
            });
#pragma unroll
            for (int n = 0; n < kHeld; ++n) all[n] = swiglu(all[n], of_b[n]);
        };
        quantize_row<T, kind, scaling>(
            read, q + row * cols, scales + row * scales_of_row(cols, scaling), cols, reduce);
    }
}

// ---- launchers

constexpr int kThreads = 256;

template <class T>
cudaError_t swiglu_forward(const T* a, const T* b, T* y, int64_t n, int64_t version,
                           cudaStream_t stream) {
    if (n == 0) return cudaSuccess;
    if (version == kVector && is_aligned(a, b, y)) {
        const int64_t blocks = ceil_div<int64_t>(n, kThreads * kVec<T>);
        forward_vector<<<blocks, kThreads, 0, stream>>>(a, b, y, n);
    } else {
        const int64_t blocks = ceil_div<int64_t>(n, kThreads);
        forward_naive<<<blocks, kThreads, 0, stream>>>(a, b, y, n);
    }
    return cudaGetLastError();
}

template <class T>
cudaError_t swiglu_backward(const T* g, const T* a, const T* b, T* da, T* db, int64_t n,
                            int64_t version, cudaStream_t stream) {
    if (n == 0) return cudaSuccess;
    if (version == kVector && is_aligned(g, a, b, da, db)) {
        const int64_t blocks = ceil_div<int64_t>(n, kThreads * kVec<T>);
        backward_vector<<<blocks, kThreads, 0, stream>>>(g, a, b, da, db, n);
    } else {
        const int64_t blocks = ceil_div<int64_t>(n, kThreads);
        backward_naive<<<blocks, kThreads, 0, stream>>>(g, a, b, da, db, n);
    }
    return cudaGetLastError();
}

template <class T>
cudaError_t swiglu_forward_fp8(const T* a, const T* b, Float8* q, float* scales, int64_t rows,
                               int64_t cols, int64_t scaling, cudaStream_t stream) {
    if (rows == 0) return cudaSuccess;
    const RowKind kind = row_kind<T>(cols % kVec<T> == 0 && is_aligned(a, b, q), cols);
    const auto kernel = row_kernel(
        kind, scaling, [](auto of, auto by) { return forward_fp8<T, of.value, by.value>; });
    kernel<<<grid_of(rows), quantize_threads<T>(cols), 0, stream>>>(a, b, q, scales, rows, cols);
    return cudaGetLastError();
}

#define INSTANTIATE(T)                                      \
    template decltype(swiglu_forward<T>) swiglu_forward<T>; \
    template decltype(swiglu_backward<T>) swiglu_backward<T>;
FOR_EACH_TYPE(INSTANTIATE)
#define INSTANTIATE_FP8(T) template decltype(swiglu_forward_fp8<T>) swiglu_forward_fp8<T>;
INSTANTIATE_FP8(float)
INSTANTIATE_FP8(Half)
INSTANTIATE_FP8(BFloat16)
