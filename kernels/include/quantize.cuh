// What kernels share that write floats of one byte, and scales for them.
#pragma once

#include "float8.cuh"

// Division is what defines the scale, and it is exactly rounded: a product with 1 / scale would now
// and then be another number, and wrong altogether where 1 / scale is no float.
template <class T>
__device__ float quotient(T x, float scale) {
    return float(x) / scale;
}

// Up to kVec neighbours, `there` of them; in one access if that is allowed.
template <class T>
struct Few {
    static constexpr int V = kVec<T>;
    int there;
    bool vectors;

    __device__ Few(int64_t left, bool allowed)
        : there(int(smaller<int64_t>(left, V))), vectors(allowed && left >= V) {}

    // What is not there is 0.
    __device__ void read(float (&to)[V], const T* from) const {
        if (vectors) {
            const Vec<T, V> all = load<V>(from);
            for (int i = 0; i < V; ++i) to[i] = float(all[i]);
        } else {
#pragma unroll
            for (int i = 0; i < V; ++i) to[i] = i < there ? float(from[i]) : 0.f;
        }
    }
    __device__ void write(T* to, const float (&x)[V]) const {
        if (vectors) {
            Vec<T, V> all;
            for (int i = 0; i < V; ++i) all[i] = T(x[i]);
            store(to, all);
        } else {
#pragma unroll
            for (int i = 0; i < V; ++i)
                if (i < there) to[i] = T(x[i]);
        }
    }
    // x / scale, as floats of one byte.
    __device__ void write(Float8* to, float (&x)[V], float scale) const {
        for (int i = 0; i < V; ++i) x[i] = quotient(x[i], scale);
        const Vec<Float8, V> all = to_float8(x);
        if (vectors) {
            store(to, all);
        } else {
#pragma unroll
            for (int i = 0; i < V; ++i)
                if (i < there) to[i] = all[i];
        }
    }
};

// Lanes that have a vector each of 128 neighbours.
template <class T>
constexpr int kAcross = kScaleBlock / kVec<T>;

// Quantises a row that a block of whole warps has to itself, with one scale or, with kPer1x128, one
// for each 128 neighbours. values(to, few, c) makes the elements from column c on: twice where all
// share a scale. A thread always has the same columns.
template <class T, class Values>
__device__ void quantize_row(Values values, Float8* q, float* scales, int64_t cols, Scaling scaling,
                             bool vectors, BlockReduce<>& reduce) {
    constexpr int V = kVec<T>;
    const int64_t first = int64_t(threadIdx.x) * V, step = int64_t(blockDim.x) * V;
    float all[V];
    if (scaling == kPer1x128) {
        for (int64_t start = 0; start < cols; start += step) {
            const int64_t c = start + first;
            const Few<T> few(c < cols ? cols - c : 0, vectors);
            Largest largest = Largest::identity();
            if (few.there > 0) {
                values(all, few, c);
                for (float each : all) largest.add(each);
            }
            const float scale = largest.warp_reduce(kAcross<T>).scale();
            if (few.there > 0) few.write(q + c, all, scale);
            if (few.there > 0 && c % kScaleBlock == 0) scales[c / kScaleBlock] = scale;
        }
        return;
    }
    Largest largest = Largest::identity();
    for (int64_t c = first; c < cols; c += step) {
        values(all, Few<T>(cols - c, vectors), c);
        for (float each : all) largest.add(each);
    }
    const float scale = reduce(largest).scale();
    if (threadIdx.x == 0) *scales = scale;
    for (int64_t c = first; c < cols; c += step) {
        const Few<T> few(cols - c, vectors);
        values(all, few, c);
        few.write(q + c, all, scale);
    }
}

// How many scales a row has.
inline __host__ __device__ int64_t scales_of_row(int64_t cols, Scaling scaling) {
    return scaling == kPer1x128 ? ceil_div<int64_t>(cols, kScaleBlock) : 1;
}
