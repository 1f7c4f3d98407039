// The types that kernels and bindings share.
#pragma once

#include <stdint.h>
#include <type_traits>

// Floats of two bytes. Arithmetic is never done in them, so they only convert: T(x) rounds to
// nearest, ties to even; float(t) is exact. PyTorch's own headers for them, and CUDA's, take nvcc
// as long to read as it takes to compile the kernels of an op.
#if PLAYGROUND_CUDA

struct Half {  // 5 bits of exponent, 10 of fraction
    uint16_t bits;
#ifdef __CUDACC__
    Half() = default;
    __device__ Half(float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x)); }
    __device__ operator float() const {
        float x;
        asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
        return x;
    }
#endif
};

struct BFloat16 {  // 8 bits of exponent, 7 of fraction: the upper half of a float
    uint16_t bits;
#ifdef __CUDACC__
    BFloat16() = default;
    __device__ BFloat16(float x) {
#if __CUDA_ARCH__ >= 800
        asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
#else
        const uint32_t b = __float_as_uint(x);
        bits = x != x ? 0x7fff : (b + 0x7fff + (b >> 16 & 1)) >> 16;
#endif
    }
    // Written as a shift of the bits, it would be done once and ahead for all uses: nvcc would then
    // keep a row as floats, in twice the registers.
    __device__ operator float() const {
        float x;
        asm("mov.b32 %0, {0, %1};" : "=f"(x) : "h"(bits));
        return x;
    }
#endif
};

struct __half;  // CUDA's own names of both
struct __nv_bfloat16;

#else  // the simulator's are nothing more

#include <cuda_bf16.h>
#include <cuda_fp16.h>
using Half = __half;
using BFloat16 = __nv_bfloat16;

#endif

// Whether T is Half rather than BFloat16. Only these two compile, and CUDA's own names of them.
template <class T>
struct IsHalf {
    static constexpr bool value = std::is_same_v<T, Half> || std::is_same_v<T, __half>;
    static_assert(value || std::is_same_v<T, BFloat16> || std::is_same_v<T, __nv_bfloat16>,
                  "T is no float of 16 bits: wanted is Half or BFloat16");
};

// Memory holds T; arithmetic is in Acc<T>: double for double, float for every other type.
template <class T>
struct AccOf {
    using type = float;
};
template <>
struct AccOf<double> {
    using type = double;
};
template <class T>
using Acc = typename AccOf<T>::type;

// Where a sum over the rows goes, for each column: rounded to T into `fresh`, or added to what
// `buffer` holds. One of them is null.
template <class T>
struct Into {
    T* fresh;
    Acc<T>* buffer = nullptr;
};

// What every op is compiled for: FOR_EACH_TYPE(M) is M(double) M(float) ...
#define FOR_EACH_TYPE(M) M(double) M(float) M(Half) M(BFloat16)
