// What kernels share that write floats of one byte, and scales for them.
#pragma once

#include "float8.cuh"
#include "launches.cuh"

// x / scale, exactly rounded: a product with 1 / scale would now and then be another number. Where
// many share a scale, its inverse is computed once, and what a product with it lacks of the
// quotient is added twice (P. Markstein, "Computation of elementary functions on the IBM RISC
// System/6000 processor", 1990). Below the least e4m3, where all is rounded to 0, it may be another
// number.
class Divisor {
  public:
    // of_largest: the scale was made for the largest of what it divides.
    __device__ Divisor(float scale, bool of_largest)
        : scale_(scale), inverse_(1 / scale), of_largest_(of_largest) {
        constexpr float least = 0x1p-100f, most = 0x1p120f;
        is_ordinary_ = scale >= least && scale <= most;
    }
    template <int N>
    __device__ void divide(float (&x)[N]) const {
        if (!is_ordinary_ || (!of_largest_ && is_too_large(x))) {
            for (float& each : x) each /= scale_;
            return;
        }
#pragma unroll
        for (float& each : x) {
            float q = each * inverse_;
            q = fmaf(fmaf(-q, scale_, each), inverse_, q);
            q = fmaf(fmaf(-q, scale_, each), inverse_, q);
            each = copysignf(q, each);  // -0 + 0 is 0
        }
    }

  private:
    // Whether there is a NaN, or a quotient that could be infinite.
    template <int N>
    __device__ bool is_too_large(const float (&x)[N]) const {
        Largest largest = Largest::identity();
        for (float each : x) largest.add(each * inverse_);
        return largest.bits >= 0x7f800000;
    }

    float scale_, inverse_;
    bool of_largest_, is_ordinary_;
};

// Up to kVec neighbours, `there` of them. kVectors: all kVec of them or none, in one access.
template <class T, bool kVectors>
struct Few {
    static constexpr int V = kVec<T>;
    int there;

    __device__ explicit Few(int64_t left) : there(left < 0 ? 0 : int(smaller<int64_t>(left, V))) {}

    // What is not there is 0.
    __device__ Vec<T, V> read(const T* from) const {
        if constexpr (kVectors) return there > 0 ? load<V>(from) : Vec<T, V>{};
        Vec<T, V> all;
#pragma unroll
        for (int i = 0; i < V; ++i) all[i] = i < there ? from[i] : T(0);
        return all;
    }
    __device__ void write(T* to, const Vec<T, V>& x) const { put(to, x); }
    // x / scale, as floats of one byte.
    __device__ void write(Float8* to, const Vec<T, V>& x, const Divisor& scale) const {
        float quotients[V];
        for (int i = 0; i < V; ++i) quotients[i] = float(x[i]);
        scale.divide(quotients);
        put(to, to_float8(quotients));
    }

  private:
    template <class U>
    __device__ void put(U* to, const Vec<U, V>& all) const {
        if constexpr (kVectors) {
            if (there > 0) store(to, all);
        } else {
#pragma unroll
            for (int i = 0; i < V; ++i)
                if (i < there) to[i] = all[i];
        }
    }
};

// ---- rows that a block of whole warps has to itself

// Vectors of a row that a thread keeps in registers; and threads for a row, as few as so keep it,
// or as many as a block of rows may have.
constexpr int kHeld = 4;
template <class T>
int quantize_threads(int64_t cols) {
    return block_threads(ceil_div<int64_t>(cols, kHeld * kVec<T>));
}

// A piece of a row that the block's threads can keep begins at column `start`: f(n, c, few) for
// each vector of this thread, its n-th, from column c on.
template <class T, bool kVectors, class F>
__device__ void for_each_vector(int64_t start, int64_t cols, F f) {
#pragma unroll
    for (int n = 0; n < kHeld; ++n) {
        const int64_t c = start + int64_t(n * blockDim.x + threadIdx.x) * kVec<T>;
        f(n, c, Few<T, kVectors>(cols - c));
    }
}
// Columns of a piece. A row of no more is read once.
template <class T>
__device__ int64_t piece_of_row() {
    return int64_t(blockDim.x) * (kHeld * kVec<T>);
}

// Lanes that have a vector each of 128 neighbours.
template <class T>
constexpr int kAcross = kScaleBlock / kVec<T>;

// Quantises a row, with one scale or, with kPer1x128, one for each 128 neighbours. values(n, c,
// few) makes the elements of a vector: twice where all of a row that is longer than a piece share a
// scale.
template <class T, bool kVectors, class Values>
__device__ void quantize_row(Values values, Float8* q, float* scales, int64_t cols, Scaling scaling,
                             BlockReduce<>& reduce) {
    Vec<T, kVec<T>> all[kHeld];
    const int64_t piece = piece_of_row<T>();
    const auto read = [&](int64_t start) {
        for_each_vector<T, kVectors>(
            start, cols, [&](int n, int64_t c, const auto& few) { all[n] = values(n, c, few); });
    };
    const auto largest_of = [&](int n) {
        Largest largest = Largest::identity();
        for (int i = 0; i < kVec<T>; ++i) largest.add(float(all[n][i]));
        return largest;
    };
    if (scaling == kPer1x128) {
        for (int64_t start = 0; start < cols; start += piece) {
            read(start);
            for_each_vector<T, kVectors>(start, cols, [&](int n, int64_t c, const auto& few) {
                const float scale = largest_of(n).warp_reduce(kAcross<T>).scale();
                few.write(q + c, all[n], Divisor(scale, true));
                if (few.there > 0 && c % kScaleBlock == 0) scales[c / kScaleBlock] = scale;
            });
        }
        return;
    }
    Largest largest = Largest::identity();
    for (int64_t start = 0; start < cols; start += piece) {
        read(start);
        for (int n = 0; n < kHeld; ++n) largest.combine(largest_of(n));
    }
    const float scale = reduce(largest).scale();
    if (threadIdx.x == 0) *scales = scale;
    const Divisor by(scale, true);
    for (int64_t start = 0; start < cols; start += piece) {
        if (cols > piece) read(start);
        for_each_vector<T, kVectors>(
            start, cols, [&](int n, int64_t c, const auto& few) { few.write(q + c, all[n], by); });
    }
}

// How many scales a row has.
inline __host__ __device__ int64_t scales_of_row(int64_t cols, Scaling scaling) {
    return scaling == kPer1x128 ? ceil_div<int64_t>(cols, kScaleBlock) : 1;
}
