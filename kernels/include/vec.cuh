// Vectors, and the arithmetic of launches.
#pragma once

#include <type_traits>

#include "types.h"

// N neighbouring elements, which move between memory and registers in one access.
template <class T, int N>
struct alignas(N * sizeof(T)) Vec {
    T at[N];
    __device__ T& operator[](int i) { return at[i]; }
    __device__ const T& operator[](int i) const { return at[i]; }
};

// A GPU moves at most 16 bytes per thread and access: 2 doubles, 4 floats, 8 halves.
constexpr int kVecBytes = 16;
template <class T>
constexpr int kVec = kVecBytes / sizeof(T);

// p must be a multiple of the vector's size: ask is_aligned first.
template <int N, class T>
__device__ Vec<T, N> load(const T* p) {
    return *reinterpret_cast<const Vec<T, N>*>(p);
}

// L2 gives up the lines that are read with this policy after all others. Then what a kernel writes
// leaves for memory first, which is worth up to 5% of its time (docs/cache.md).
__device__ inline uint64_t evict_last() {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// load, with that policy, of what a kernel reads once and does not write: nvcc may move it. Where
// nothing is there, it is `nothing`.
template <int N, class T>
__device__ Vec<T, N> load_once(const T* p, bool there = true, Vec<T, N> nothing = {}) {
#if PLAYGROUND_CUDA && __CUDA_ARCH__ >= 800
    if constexpr (N * sizeof(T) == kVecBytes) {
        uint32_t words[4];
        memcpy(words, nothing.at, sizeof(words));
        asm("{ .reg .pred there;"
            "  setp.ne.u32 there, %4, 0;"
            "  @there ld.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%5], %6; }"
            : "+r"(words[0]), "+r"(words[1]), "+r"(words[2]), "+r"(words[3])
            : "r"(unsigned(there)), "l"(p), "l"(evict_last()));
        memcpy(nothing.at, words, sizeof(words));
        return nothing;
    }
#endif
    return there ? load<N>(p) : nothing;
}
template <int N, class T>
__device__ void store(T* p, const Vec<T, N>& v) {
    *reinterpret_cast<Vec<T, N>*>(p) = v;
}
// The same in one access for certain: nvcc takes a vector apart into single elements where it sees
// how p was rounded up to a boundary, and writes them at a quarter of the speed.
template <int N, class T>
__device__ void store_at_once(T* p, const Vec<T, N>& v) {
#if PLAYGROUND_CUDA
    if constexpr (sizeof(v) == kVecBytes) {
        uint32_t words[4];
        memcpy(words, v.at, sizeof(words));
        asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(words[0]),
                     "r"(words[1]), "r"(words[2]), "r"(words[3])
                     : "memory");
        return;
    }
#endif
    store(p, v);
}
// In vectors of 16 bytes, or in one where they are fewer.
template <int N, class T>
__device__ void store(T* p, const T (&numbers)[N]) {
    constexpr int V = N < kVec<T> ? N : kVec<T>;
    static_assert(N % V == 0);
    for (int n = 0; n < N; n += V) {
        Vec<T, V> v;
        for (int k = 0; k < V; ++k) v[k] = numbers[n + k];
        store(p + n, v);
    }
}

// The elements of a vector as floats, and floats rounded to a vector. Elements of two bytes are
// taken out of a register and put into it two at a time: one by one they take a kernel more
// instructions than its arithmetic.
template <class T, int N, class A>
__device__ void to_floats(const Vec<T, N>& v, A (&to)[N]) {
#if PLAYGROUND_CUDA
    if constexpr (std::is_same_v<T, BFloat16>) {
        uint32_t pairs[N / 2];
        memcpy(pairs, v.at, sizeof(v));
#pragma unroll
        for (int i = 0; i < N; ++i)
            to[i] = __uint_as_float(i % 2 == 0 ? pairs[i / 2] << 16 : pairs[i / 2] & 0xffff0000);
        return;
    }
#endif
    for (int i = 0; i < N; ++i) to[i] = A(v[i]);
}
template <class T, int N, class A>
__device__ Vec<T, N> rounded(const A (&from)[N]) {
    Vec<T, N> v;
#if PLAYGROUND_CUDA && __CUDA_ARCH__ >= 800
    if constexpr (sizeof(T) == 2) {
        uint32_t pairs[N / 2];
#pragma unroll
        for (int i = 0; i < N / 2; ++i) {
            const float first = from[2 * i], second = from[2 * i + 1];
            if constexpr (std::is_same_v<T, Half>) {
                asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pairs[i]) : "f"(second), "f"(first));
            } else {
                asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pairs[i]) : "f"(second), "f"(first));
            }
        }
        memcpy(v.at, pairs, sizeof(v));
        return v;
    }
#endif
    for (int i = 0; i < N; ++i) v[i] = T(from[i]);
    return v;
}

// load, of N elements that may stand between two boundaries, in a tensor that begins on one.
// Elements of two bytes are read in pairs, from the one before p on where p stands between two
// pairs.
template <int N, class T>
__device__ Vec<T, N> load_unaligned(const T* p) {
    Vec<T, N> v;
    if constexpr (sizeof(T) == 2) {
        const bool between = reinterpret_cast<uintptr_t>(p) % sizeof(uint32_t) != 0;
        uint32_t pairs[N / 2 + 1];
        for (int k = 0; k < N / 2; ++k)
            pairs[k] = reinterpret_cast<const uint32_t*>(p - between)[k];
        pairs[N / 2] = between ? reinterpret_cast<const uint16_t*>(p)[N - 1] : 0;
        for (int k = 0; k < N / 2; ++k)
            pairs[k] = __funnelshift_r(pairs[k], pairs[k + 1], between ? 16 : 0);
        memcpy(v.at, pairs, sizeof(v));
    } else {
        for (int k = 0; k < N; ++k) v[k] = p[k];
    }
    return v;
}

// Do all pointers stand on a 16-byte boundary? A slice of a tensor may begin anywhere.
template <class... P>
__host__ __device__ bool is_aligned(const P*... p) {
    return ((reinterpret_cast<unsigned long long>(p) % kVecBytes == 0) && ...);
}

template <class I>
__host__ __device__ constexpr I ceil_div(I a, I b) {
    return (a + b - 1) / b;
}

// ---- launches

template <class I>
__host__ __device__ constexpr I smaller(I a, I b) {
    return a < b ? a : b;
}

// A grid of n blocks, or of as many as CUDA allows: kernels that may meet more loop over the rest.
inline unsigned grid_of(int64_t n) { return unsigned(smaller<int64_t>(n, 0x7fffffff)); }

// Of the current device; an H200 has 132.
inline int multiprocessors() {
    int device = 0, count = 1;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
    return count;
}

// The most shared memory that a block may have on the current device; on an H200 227 KiB.
inline int shared_bytes() {
    int device = 0, bytes = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    return bytes;
}

// What the driver has answered about a kernel, remembered for each thread: it takes a microsecond
// to ask, and the answer does not change. ask() returns an int; key: what it depends on besides the
// kernel and the current device. Each lambda is a type with a table of its own.
template <class Kernel, class Ask>
int remembered(Kernel* kernel, int64_t key, Ask ask) {
    struct Answer {
        const void* kernel;
        int64_t key;
        int device, value;
    };
    static thread_local Answer answers[16] = {};
    int device = 0;
    cudaGetDevice(&device);
    const void* const asked = reinterpret_cast<const void*>(kernel);
    const uint64_t mixed = (reinterpret_cast<uintptr_t>(asked) >> 4) + uint64_t(key) * 31 + device;
    Answer& found = answers[(mixed ^ mixed >> 7) % 16];
    if (found.kernel != asked || found.key != key || found.device != device)
        found = {asked, key, device, ask()};
    return found.value;
}
