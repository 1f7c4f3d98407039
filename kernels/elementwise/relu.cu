// relu: y = max(x, 0)
//
//   x, y, g, dx [n] T        g: the gradient that arrives, dx: the gradient that leaves
//   mask [ceil(n / V)] bytes, V = 16 / sizeof(T): bit i % V of byte i / V says whether g[i] passes
//
// Traffic, the least a kernel can move: forward reads x and writes y, 2 * sizeof(T) bytes per
// element; backward reads g and y and writes dx, 3 * sizeof(T). With a mask in place of y backward
// is 2 * sizeof(T) and a V-th of a byte, which forward has written beside y. The arithmetic is free
// beside it.

#include "vec.cuh"

enum Version : int64_t { kNaive, kVector, kBits };  // as in relu.py

// Both comparisons are false for a NaN, which therefore passes, as it does in PyTorch.
template <class A>
__device__ A relu(A x) {
    return x < 0 ? A(0) : x;
}

template <class A>
__device__ bool passes(A y) {
    return !(y <= 0);
}

// ---- naive: one thread per element.
// Flaw: starting a block for every kThreads elements takes longer than moving their bytes.

template <class T>
__global__ void forward_naive(const T* x, T* y, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) y[i] = T(relu(Acc<T>(x[i])));
}

template <class T>
__global__ void backward_naive(const T* g, const T* y, T* dx, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) dx[i] = passes(Acc<T>(y[i])) ? g[i] : T(0);
}

// ---- vector: one thread per 16 bytes; the last thread may find fewer and takes them one by one.
// Flaw: needs pointers on a 16-byte boundary; the launcher goes back to naive for others.

template <class T>
__global__ void forward_vector(const T* x, T* y, int64_t n) {
    constexpr int V = kVec<T>;
    const int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * V;
    if (i + V <= n) {
        Vec<T, V> v = load_once<V>(x + i);
        for (int k = 0; k < V; ++k) v[k] = T(relu(Acc<T>(v[k])));
        store(y + i, v);
    } else {
        for (int64_t k = i; k < n; ++k) y[k] = T(relu(Acc<T>(x[k])));
    }
}

template <class T>
__global__ void backward_vector(const T* g, const T* y, T* dx, int64_t n) {
    constexpr int V = kVec<T>;
    const int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * V;
    if (i + V <= n) {
        const Vec<T, V> v = load_once<V>(y + i);
        Vec<T, V> u = load_once<V>(g + i);
        for (int k = 0; k < V; ++k) u[k] = passes(Acc<T>(v[k])) ? u[k] : T(0);
        store(dx + i, u);
    } else {
        for (int64_t k = i; k < n; ++k) dx[k] = passes(Acc<T>(y[k])) ? g[k] : T(0);
    }
}

// ---- bits: all that backward wants to know of an element is one bit. A thread has the V elements
// of 16 bytes, and one byte of the mask, whichever way it reads them. Eight elements a thread would
// fill the byte in every type, but two accesses of float32 would each use half of their sectors.
// Flaw: the mask serves no other op, whereas y is usually kept for the next op anyway.

template <class T, bool whole>
__global__ void forward_bits(const T* x, T* y, uint8_t* mask, int64_t n) {
    constexpr int V = kVec<T>;
    const int64_t vector = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, i = vector * V;
    if (i >= n) return;
    unsigned bits = 0;
    const auto element = [&](T number, int k) {
        bits |= unsigned(passes(Acc<T>(number))) << k;
        return T(relu(Acc<T>(number)));
    };
    if (whole && i + V <= n) {
        Vec<T, V> v = load_once<V>(x + i);
        for (int k = 0; k < V; ++k) v[k] = element(v[k], k);
        store(y + i, v);
    } else {
        for (int k = 0; k < V && i + k < n; ++k) y[i + k] = element(x[i + k], k);
    }
    mask[vector] = uint8_t(bits);
}

template <class T, bool whole>
__global__ void backward_bits(const T* g, const uint8_t* mask, T* dx, int64_t n) {
    constexpr int V = kVec<T>;
    const int64_t vector = int64_t(blockIdx.x) * blockDim.x + threadIdx.x, i = vector * V;
    if (i >= n) return;
    const unsigned bits = mask[vector];
    if (whole && i + V <= n) {
        Vec<T, V> u = load_once<V>(g + i);
        for (int k = 0; k < V; ++k) u[k] = bits >> k & 1 ? u[k] : T(0);
        store(dx + i, u);
    } else {
        for (int k = 0; k < V && i + k < n; ++k) dx[i + k] = bits >> k & 1 ? g[i + k] : T(0);
    }
}

// ---- launchers. Forward of bits without a mask is vector.

constexpr int kThreads = 256;

template <class T>
cudaError_t relu_forward(const T* x, T* y, int64_t n, int64_t version, cudaStream_t stream) {
    if (n == 0) return cudaSuccess;
    if (version >= kVector && is_aligned(x, y)) {
        const int64_t blocks = ceil_div<int64_t>(n, kThreads * kVec<T>);
        forward_vector<<<blocks, kThreads, 0, stream>>>(x, y, n);
    } else {
        const int64_t blocks = ceil_div<int64_t>(n, kThreads);
        forward_naive<<<blocks, kThreads, 0, stream>>>(x, y, n);
    }
    return cudaGetLastError();
}

template <class T>
cudaError_t relu_backward(const T* g, const T* y, T* dx, int64_t n, int64_t version,
                          cudaStream_t stream) {
    if (n == 0) return cudaSuccess;
    if (version >= kVector && is_aligned(g, y, dx)) {
        const int64_t blocks = ceil_div<int64_t>(n, kThreads * kVec<T>);
        backward_vector<<<blocks, kThreads, 0, stream>>>(g, y, dx, n);
    } else {
        const int64_t blocks = ceil_div<int64_t>(n, kThreads);
        backward_naive<<<blocks, kThreads, 0, stream>>>(g, y, dx, n);
    }
    return cudaGetLastError();
}

template <class T>
cudaError_t relu_forward_mask(const T* x, T* y, uint8_t* mask, int64_t n, cudaStream_t stream) {
    if (n == 0) return cudaSuccess;
    const int64_t blocks = ceil_div<int64_t>(n, kThreads * kVec<T>);
    const auto kernel = is_aligned(x, y) ? forward_bits<T, true> : forward_bits<T, false>;
    kernel<<<blocks, kThreads, 0, stream>>>(x, y, mask, n);
    return cudaGetLastError();
}

template <class T>
cudaError_t relu_backward_mask(const T* g, const uint8_t* mask, T* dx, int64_t n,
                               cudaStream_t stream) {
    if (n == 0) return cudaSuccess;
    const int64_t blocks = ceil_div<int64_t>(n, kThreads * kVec<T>);
    const auto kernel = is_aligned(g, dx) ? backward_bits<T, true> : backward_bits<T, false>;
    kernel<<<blocks, kThreads, 0, stream>>>(g, mask, dx, n);
    return cudaGetLastError();
}

#define INSTANTIATE(T)                                            \
    template decltype(relu_forward<T>) relu_forward<T>;           \
    template decltype(relu_backward<T>) relu_backward<T>;         \
    template decltype(relu_forward_mask<T>) relu_forward_mask<T>; \
    template decltype(relu_backward_mask<T>) relu_backward_mask<T>;
FOR_EACH_TYPE(INSTANTIATE)
