// What kernels share that write floats of one byte, and scales for them.
#pragma once

#include "float8.cuh"
#include "launches.cuh"

// x / scale, as a division rounds it: a product with 1 / scale would now and then be another
// number. Where many share a scale, its inverse is computed once, as the sum of two floats, of
// which the second has what the first lacks; so a quotient takes two instructions. It is rounded as
// that of a division is wherever that decides which float of one byte is nearest: that was tried
// for the digits of every scale. Elsewhere it may be its neighbour.
class Divisor {
  public:
    // of_largest: the scale was made for the largest of what it divides.
    __device__ Divisor(float scale, bool of_largest) : scale_(scale), of_largest_(of_largest) {
        constexpr float least = 0x1p-80f, most = 0x1p80f;
        is_ordinary_ = scale >= least && scale <= most;
        // What the inverse lacks is not below 0, so that a quotient of -0 remains -0.
        const float nearest = inverse_rn(scale);
        const bool is_beyond = fmaf(-nearest, scale, 1.f) < 0;
        inverse_ = __uint_as_float(__float_as_uint(nearest) - is_beyond);
        lacking_ = fmaf(-inverse_, scale, 1.f) * nearest;
    }
    template <int N>
    __device__ void divide(float (&x)[N]) const {
        if (!is_ordinary_ || (!of_largest_ && is_too_large(x))) {
            for (float& each : x) each /= scale_;
            return;
        }
#pragma unroll
        for (float& each : x) each = fmaf(each, inverse_, each * lacking_);
    }

  private:
    // Whether there is a NaN, or a quotient that could be infinite.
    template <int N>
    __device__ bool is_too_large(const float (&x)[N]) const {
        Largest largest = Largest::identity();
        for (float each : x) largest.add(each * inverse_);
        return largest.bits >= 0x7f800000;
    }

    float scale_, inverse_, lacking_;
    bool of_largest_, is_ordinary_;
};

// Up to kVec neighbouring elements, of which `valid` exist. kVectors: all or none of them, in one
// access.
template <class T, bool kVectors>
struct PartialVector {
    static constexpr int V = kVec<T>;
    int valid;

    __device__ explicit PartialVector(int64_t left)
        : valid(left < 0 ? 0 : int(smaller<int64_t>(left, V))) {}

    // Elements past the end are 0.
    __device__ Vec<T, V> read(const T* from) const {
        Vec<T, V> all;
        if constexpr (kVectors) {  // in words: nvcc would take elements of two bytes apart
            Vec<uint32_t, 4> words = {};
            if (valid > 0) words = load<4>(reinterpret_cast<const uint32_t*>(from));
            memcpy(all.at, words.at, sizeof(all));
            return all;
        }
#pragma unroll
        for (int i = 0; i < V; ++i) all[i] = i < valid ? from[i] : T(0);
        return all;
    }
    // The same for memory that the kernel does not write.
    __device__ Vec<T, V> read_once(const T* from) const {
        if constexpr (kVectors) return load_once<V>(from, valid > 0);
        return read(from);
    }
    __device__ void write(T* to, const Vec<T, V>& x) const { store_valid(to, x); }
    // x / scale, as floats of one byte.
    __device__ void write(Float8* to, const Vec<T, V>& x, const Divisor& scale) const {
        float quotients[V];
        to_floats(x, quotients);
        scale.divide(quotients);
        store_valid(to, to_float8(quotients));
    }

  private:
    template <class U>
    __device__ void store_valid(U* to, const Vec<U, V>& all) const {
        if constexpr (kVectors) {
            if (valid > 0) store(to, all);
        } else {
#pragma unroll
            for (int i = 0; i < V; ++i)
                if (i < valid) to[i] = all[i];
        }
    }
};

// ---- rows that a block of whole warps has to itself

// Vectors of a row that a thread keeps in registers; and threads for a row, as few as so keep it,
// or as many as a block of rows may have.
constexpr int kHeld = 4;

// What rows a kernel is compiled for: any, those that are read in vectors, or those of them that a
// block's threads keep. Where these could be longer, elements of two bytes would have a register
// each from one reading of a row to the next.
enum RowKind { kAnyRow, kVectorRow, kHeldRow };
template <class T>
RowKind row_kind(bool in_vectors, int64_t cols) {
    if (!in_vectors) return kAnyRow;
    const bool is_held = cols > 0 && cols <= kMostRowThreads * kHeld * kVec<T>;
    return is_held ? kHeldRow : kVectorRow;
}
template <RowKind kind>
constexpr int kHeldBlocks = kind == kAnyRow ? 1 : 2;  // of kMostRowThreads: 64 registers each
template <class T>
int quantize_threads(int64_t cols) {
    const int64_t threads = round_up_to_warps(ceil_div<int64_t>(cols, kHeld * kVec<T>));
    return threads == 0 ? kWarp : int(smaller<int64_t>(threads, kMostRowThreads));
}

// A piece of a row, from column `start` on: no more columns than the block's threads can keep. A
// row that is one piece is read once.
template <class T>
struct Piece {
    int64_t start;
    int cols;

    __device__ static int most() { return blockDim.x * (kHeld * kVec<T>); }
    __device__ Piece(int64_t start, int64_t cols)
        : start(start), cols(int(smaller<int64_t>(cols - start, most()))) {}
};

// f(n, c, vec) for each vector that this thread has of a piece, its n-th, from column c of it on.
template <class T, RowKind kind, class F>
__device__ void for_each_vector(const Piece<T>& piece, F f) {
#pragma unroll
    for (int n = 0; n < kHeld; ++n) {
        const int c = (n * blockDim.x + threadIdx.x) * kVec<T>;
        f(n, c, PartialVector<T, kind != kAnyRow>(piece.cols - c));
    }
}
// f(piece) for each piece of a row.
template <class T, RowKind kind, class F>
__device__ void for_each_piece(int64_t cols, F f) {
    if constexpr (kind == kHeldRow) return f(Piece<T>(0, cols));
    for (int64_t start = 0; start < cols; start += Piece<T>::most()) f(Piece<T>(start, cols));
}
// Whether a row has to be read once more for each use of it.
template <class T, RowKind kind>
__device__ bool is_read_again(int64_t cols) {
    return kind != kHeldRow && cols > Piece<T>::most();
}

// Lanes that have a vector each of 128 neighbours.
template <class T>
constexpr int kAcross = kScaleBlock / kVec<T>;

// Quantises a row, with one scale or, with kPer1x128, one for each 128 neighbours. read(piece, all)
// makes this thread's elements of a piece: twice where a row of several pieces has one scale.
template <class T, RowKind kind, Scaling scaling, class Read>
__device__ void quantize_row(Read read, Float8* q, float* scales, int64_t cols,
                             BlockReduce<>& reduce) {
    Vec<T, kVec<T>> all[kHeld];
    if constexpr (scaling == kPer1x128) {
        for_each_piece<T, kind>(cols, [&](const Piece<T>& piece) {
            read(piece, all);
            float by[kHeld];
#pragma unroll
            for (int n = 0; n < kHeld; ++n) {
                Largest largest = Largest::identity();
                largest.add(all[n]);
                by[n] = largest.warp_reduce(kAcross<T>).scale();
            }
            for_each_vector<T, kind>(piece, [&](int n, int c, const auto& vec) {
                vec.write(q + piece.start + c, all[n], Divisor(by[n], true));
                if (vec.valid > 0 && c % kScaleBlock == 0)
                    scales[(piece.start + c) / kScaleBlock] = by[n];
            });
        });
    } else {
        Largest largest = Largest::identity();
        for_each_piece<T, kind>(cols, [&](const Piece<T>& piece) {
            read(piece, all);
            largest.add(all);
        });
        const float scale = reduce(largest).scale();
        if (threadIdx.x == 0) *scales = scale;
        const Divisor by(scale, true);
        for_each_piece<T, kind>(cols, [&](const Piece<T>& piece) {
            if (is_read_again<T, kind>(cols)) read(piece, all);
            for_each_vector<T, kind>(piece, [&](int n, int c, const auto& vec) {
                vec.write(q + piece.start + c, all[n], by);
            });
        });
    }
}

// How many scales a row has.
inline __host__ __device__ int64_t scales_of_row(int64_t cols, Scaling scaling) {
    return scaling == kPer1x128 ? ceil_div<int64_t>(cols, kScaleBlock) : 1;
}

// The kernel of an op of rows, which is compiled for each scaling of rows and for each kind of
// them: kernel_of(kind, scaling), of which the values of both are known when it is compiled.
template <class KernelOf>
auto row_kernel(RowKind kind, int64_t scaling, KernelOf kernel_of) {
    const auto of = [&](auto rows) {
        return scaling == kPerRow ? kernel_of(rows, std::integral_constant<Scaling, kPerRow>())
                                  : kernel_of(rows, std::integral_constant<Scaling, kPer1x128>());
    };
    if (kind == kAnyRow) return of(std::integral_constant<RowKind, kAnyRow>());
    return kind == kVectorRow ? of(std::integral_constant<RowKind, kVectorRow>())
                              : of(std::integral_constant<RowKind, kHeldRow>());
}
