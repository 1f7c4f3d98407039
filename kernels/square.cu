// square: y = x * x
//
//   x, y, g, dx [n] T        g: the gradient that arrives, dx: the gradient that leaves
//
// Traffic, the least a kernel can move: forward reads x and writes y, 2 * sizeof(T) bytes per
// element; backward reads g and x and writes dx, 3 * sizeof(T). The arithmetic is free beside it.

#include "vec.cuh"

enum Version : int64_t { kNaive, kVector };  // as in square.py

template <class A>
__device__ A square(A x) {
    return x * x;
}

template <class A>
__device__ A square_gradient(A g, A x) {
    return 2 * g * x;
}

// ---- naive: one thread per element.
// Flaw: starting a block for every kThreads elements takes longer than moving their bytes.

template <class T>
__global__ void forward_naive(const T* x, T* y, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) y[i] = T(square(Acc<T>(x[i])));
}

template <class T>
__global__ void backward_naive(const T* g, const T* x, T* dx, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) dx[i] = T(square_gradient(Acc<T>(g[i]), Acc<T>(x[i])));
}

// ---- vector: one thread per 16 bytes; the last thread may find fewer and takes them one by one.
// Flaw: needs pointers on a 16-byte boundary; the launcher goes back to naive for others.

template <class T>
__global__ void forward_vector(const T* x, T* y, int64_t n) {
    constexpr int V = kVec<T>;
    const int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * V;
    if (i + V <= n) {
        Vec<T, V> v = load_once<V>(x + i);
        for (int k = 0; k < V; ++k) v[k] = T(square(Acc<T>(v[k])));
        store(y + i, v);
    } else {
        for (int64_t k = i; k < n; ++k) y[k] = T(square(Acc<T>(x[k])));
    }
}

template <class T>
__global__ void backward_vector(const T* g, const T* x, T* dx, int64_t n) {
    constexpr int V = kVec<T>;
    const int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * V;
    if (i + V <= n) {
        Vec<T, V> v = load_once<V>(x + i);
        const Vec<T, V> u = load_once<V>(g + i);
        for (int k = 0; k < V; ++k) v[k] = T(square_gradient(Acc<T>(u[k]), Acc<T>(v[k])));
        store(dx + i, v);
    } else {
        for (int64_t k = i; k < n; ++k) dx[k] = T(square_gradient(Acc<T>(g[k]), Acc<T>(x[k])));
    }
}

// ---- launchers

constexpr int kThreads = 256;

template <class T>
cudaError_t square_forward(const T* x, T* y, int64_t n, int64_t version, cudaStream_t stream) {
    if (n == 0) return cudaSuccess;
    if (version == kVector && is_aligned(x, y)) {
        const int64_t blocks = ceil_div<int64_t>(n, kThreads * kVec<T>);
        forward_vector<<<blocks, kThreads, 0, stream>>>(x, y, n);
    } else {
        const int64_t blocks = ceil_div<int64_t>(n, kThreads);
        forward_naive<<<blocks, kThreads, 0, stream>>>(x, y, n);
    }
    return cudaGetLastError();
}

template <class T>
cudaError_t square_backward(const T* g, const T* x, T* dx, int64_t n, int64_t version,
                            cudaStream_t stream) {
    if (n == 0) return cudaSuccess;
    if (version == kVector && is_aligned(g, x, dx)) {
        const int64_t blocks = ceil_div<int64_t>(n, kThreads * kVec<T>);
        backward_vector<<<blocks, kThreads, 0, stream>>>(g, x, dx, n);
    } else {
        const int64_t blocks = ceil_div<int64_t>(n, kThreads);
        backward_naive<<<blocks, kThreads, 0, stream>>>(g, x, dx, n);
    }
    return cudaGetLastError();
}

#define INSTANTIATE(T)                                      \
    template decltype(square_forward<T>) square_forward<T>; \
    template decltype(square_backward<T>) square_backward<T>;
FOR_EACH_TYPE(INSTANTIATE)
