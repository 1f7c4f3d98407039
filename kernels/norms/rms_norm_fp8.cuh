// rms_norm with y as floats of one byte with scales. A block keeps a row in registers or, if it is
// too long, reads it again from the caches. y is rounded to T first, as if rms_norm and quantize
// were called one after the other. p.y and p.rstd are null.
#pragma once

#include "quantize.cuh"

template <class T, RowKind kind, Scaling scaling>
__global__ void __launch_bounds__(kMostRowThreads, kHeldBlocks<kind>) forward_fp8(
    Forward<T> p, Float8* q, float* scales) {
    constexpr int V = kVec<T>;
    using Held = Vec<T, V>[kHeld];
    BlockReduce reduce;
    for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
        const int64_t at = row * p.cols;
        const auto read = [&](const T* from, const Piece<T>& piece, Held& to) {
            for_each_vector<T, kind>(piece, [&](int n, int c, const auto& vec) {
                to[n] = vec.read(from + piece.start + c);
            });
        };
        const auto read_once = [&](const T* from, const Piece<T>& piece, Held& to) {
            for_each_vector<T, kind>(piece, [&](int n, int c, const auto& vec) {
                to[n] = vec.read_once(from + piece.start + c);
            });
        };
        Held s;
        Sums<1, float> square = {0};
        for_each_piece<T, kind>(p.cols, [&](const Piece<T>& piece) {
            read_once(p.x + at, piece, s);
            if (p.residual != nullptr) {
                Held residual;
                read_once(p.residual + at, piece, residual);
                for_each_vector<T, kind>(piece, [&](int n, int c, const auto& vec) {
                    float total[V], more[V];
                    to_floats(s[n], total);
                    to_floats(residual[n], more);
                    for (int i = 0; i < V; ++i) total[i] += more[i];
                    s[n] = rounded<T>(total);
                    vec.write(p.s + at + piece.start + c, s[n]);
                });
            }
#pragma unroll
            for (int n = 0; n < kHeld; ++n) {
                float each[V];
                to_floats(s[n], each);
                for (int i = 0; i < V; ++i) square.values[0] += each[i] * each[i];
            }
        });
        const float r = rsqrt_rn(reduce(square)[0] * p.inverse_cols + p.eps);
        const T* kept = p.residual != nullptr ? p.s : p.x;  // a thread reads what it wrote itself
        const auto values = [&](const Piece<T>& piece, Held& y) {
            if (is_read_again<T, kind>(p.cols)) read(kept + at, piece, s);
            Held weight;
            read(p.weight, piece, weight);
#pragma unroll
            for (int n = 0; n < kHeld; ++n) {
                float each[V], factor[V];
                to_floats(s[n], each);
                to_floats(weight[n], factor);
                for (int i = 0; i < V; ++i) each[i] = each[i] * r * factor[i];
                y[n] = rounded<T>(each);
            }
        };
        quantize_row<T, kind, scaling>(
            values, q + at, scales + row * scales_of_row(p.cols, scaling), p.cols, reduce);
    }
}

template <class T>
cudaError_t rms_norm_forward_fp8(const T* x, const T* residual, const T* weight, Float8* q,
                                 float* scales, T* s, int64_t rows, int64_t cols, double eps,
                                 int64_t scaling, cudaStream_t stream) {
    if (rows == 0) return cudaSuccess;
    const Forward<T> p = {
        x, residual, weight, nullptr, s, nullptr, rows, cols, float(eps), 1.f / cols};
    const RowKind kind =
        row_kind<T>(cols % kVec<T> == 0 && is_aligned(x, residual, weight, s, q), cols);
    const auto kernel = row_kernel(
        kind, scaling, [](auto of, auto by) { return forward_fp8<T, of.value, by.value>; });
    kernel<<<grid_of(rows), quantize_threads<T>(cols), 0, stream>>>(p, q, scales);
    return cudaGetLastError();
}

#define INSTANTIATE_FP8(T) template decltype(rms_norm_forward_fp8<T>) rms_norm_forward_fp8<T>;
INSTANTIATE_FP8(float)
INSTANTIATE_FP8(Half)
INSTANTIATE_FP8(BFloat16)
