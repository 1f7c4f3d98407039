// The functions that CUDA has beyond C's <math.h>: integers, bits, fast and rounded arithmetic,
// loads and stores with a hint for the cache. A "fast" function is the exact one here, and rounding
// is to nearest; rounding.h has the other ways.
#pragma once
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "block.h"
#include "runtime_api.h"
#include "shared_window.h"

#define SIMULATOR_FUNCTION SIMULATOR_INLINE

// Memory. The hints say how to cache, not what to read.
template <class T>
SIMULATOR_FUNCTION T __ldg(const T* p) {
    return *p;
}
template <class T>
SIMULATOR_FUNCTION T __ldca(const T* p) {
    return *p;
}
template <class T>
SIMULATOR_FUNCTION T __ldcg(const T* p) {
    return *p;
}
template <class T>
SIMULATOR_FUNCTION T __ldcs(const T* p) {
    return *p;
}
template <class T>
SIMULATOR_FUNCTION T __ldlu(const T* p) {
    return *p;
}
template <class T>
SIMULATOR_FUNCTION T __ldcv(const T* p) {
    return *p;
}
template <class T, class U>
SIMULATOR_FUNCTION void __stwb(T* p, U value) {
    *p = value;
}
template <class T, class U>
SIMULATOR_FUNCTION void __stcg(T* p, U value) {
    *p = value;
}
template <class T, class U>
SIMULATOR_FUNCTION void __stcs(T* p, U value) {
    *p = value;
}
template <class T, class U>
SIMULATOR_FUNCTION void __stwt(T* p, U value) {
    *p = value;
}

namespace simulator {
template <class T>
constexpr T least(T a, T b) {
    return b < a ? b : a;
}
template <class T>
constexpr T greatest(T a, T b) {
    return b > a ? b : a;
}
}  // namespace simulator

// min and max for the pairs of types for which CUDA has them.
#define SIMULATOR_MIN_MAX(R, A, B)                                  \
    constexpr R min(A a, B b) { return simulator::least<R>(a, b); } \
    constexpr R max(A a, B b) { return simulator::greatest<R>(a, b); }
SIMULATOR_MIN_MAX(int, int, int)
SIMULATOR_MIN_MAX(unsigned, unsigned, unsigned)
SIMULATOR_MIN_MAX(unsigned, int, unsigned)
SIMULATOR_MIN_MAX(unsigned, unsigned, int)
SIMULATOR_MIN_MAX(long, long, long)
SIMULATOR_MIN_MAX(unsigned long, unsigned long, unsigned long)
SIMULATOR_MIN_MAX(unsigned long, long, unsigned long)
SIMULATOR_MIN_MAX(unsigned long, unsigned long, long)
SIMULATOR_MIN_MAX(long long, long long, long long)
SIMULATOR_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
SIMULATOR_MIN_MAX(unsigned long long, long long, unsigned long long)
SIMULATOR_MIN_MAX(unsigned long long, unsigned long long, long long)
#undef SIMULATOR_MIN_MAX
// A NaN gives way to a number. The library's functions are calls, which no loop is vectorised over;
// these give the same bits.
#ifdef __x86_64__
#define SIMULATOR_OVER_LIBRARY [[gnu::always_inline, gnu::gnu_inline]] extern inline
extern "C" {
SIMULATOR_OVER_LIBRARY float fmaxf(float a, float b) noexcept { return b != b ? a : a > b ? a : b; }
SIMULATOR_OVER_LIBRARY double fmax(double a, double b) noexcept {
    return b != b ? a : a > b ? a : b;
}
SIMULATOR_OVER_LIBRARY float fminf(float a, float b) noexcept { return b != b ? a : a < b ? a : b; }
SIMULATOR_OVER_LIBRARY double fmin(double a, double b) noexcept {
    return b != b ? a : a < b ? a : b;
}
}
#undef SIMULATOR_OVER_LIBRARY
#endif
SIMULATOR_FUNCTION float min(float a, float b) { return fminf(a, b); }
SIMULATOR_FUNCTION double min(double a, double b) { return fmin(a, b); }
SIMULATOR_FUNCTION double min(float a, double b) { return fmin(a, b); }
SIMULATOR_FUNCTION double min(double a, float b) { return fmin(a, b); }
SIMULATOR_FUNCTION float max(float a, float b) { return fmaxf(a, b); }
SIMULATOR_FUNCTION double max(double a, double b) { return fmax(a, b); }
SIMULATOR_FUNCTION double max(float a, double b) { return fmax(a, b); }
SIMULATOR_FUNCTION double max(double a, float b) { return fmax(a, b); }
SIMULATOR_FUNCTION unsigned umin(unsigned a, unsigned b) { return min(a, b); }
SIMULATOR_FUNCTION unsigned umax(unsigned a, unsigned b) { return max(a, b); }

SIMULATOR_FUNCTION long long llmin(long long a, long long b) { return min(a, b); }
SIMULATOR_FUNCTION long long llmax(long long a, long long b) { return max(a, b); }
SIMULATOR_FUNCTION unsigned long long ullmin(unsigned long long a, unsigned long long b) {
    return min(a, b);
}
SIMULATOR_FUNCTION unsigned long long ullmax(unsigned long long a, unsigned long long b) {
    return max(a, b);
}

// Math functions of CUDA's own; more are in special.h.
SIMULATOR_FUNCTION double rsqrt(double x) { return 1 / sqrt(x); }
SIMULATOR_FUNCTION float rsqrtf(float x) { return 1 / sqrtf(x); }
SIMULATOR_FUNCTION float rsqrt(float x) { return rsqrtf(x); }
#ifdef __APPLE__  // elsewhere <math.h> has it under CUDA's name
SIMULATOR_FUNCTION double exp10(double x) { return __exp10(x); }
#endif
SIMULATOR_FUNCTION float exp10f(float x) { return exp10(double(x)); }
SIMULATOR_FUNCTION float exp10(float x) { return exp10f(x); }
SIMULATOR_FUNCTION float fdividef(float x, float y) { return x / y; }
SIMULATOR_FUNCTION double fdivide(double x, double y) { return x / y; }
SIMULATOR_FUNCTION float fdivide(float x, float y) { return x / y; }

// Fast arithmetic.
SIMULATOR_FUNCTION float __expf(float x) { return expf(x); }
SIMULATOR_FUNCTION float __exp10f(float x) { return exp10f(x); }
SIMULATOR_FUNCTION float __logf(float x) { return logf(x); }
SIMULATOR_FUNCTION float __log2f(float x) { return log2f(x); }
SIMULATOR_FUNCTION float __log10f(float x) { return log10f(x); }
SIMULATOR_FUNCTION float __sinf(float x) { return sinf(x); }
SIMULATOR_FUNCTION float __cosf(float x) { return cosf(x); }
SIMULATOR_FUNCTION float __tanf(float x) { return tanf(x); }
SIMULATOR_FUNCTION float __tanhf(float x) { return tanhf(x); }
SIMULATOR_FUNCTION float __powf(float x, float y) { return powf(x, y); }
SIMULATOR_FUNCTION float __fdividef(float x, float y) { return x / y; }
SIMULATOR_FUNCTION float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1) : 0; }
SIMULATOR_FUNCTION void __sincosf(float x, float* s, float* c) { *s = sinf(x), *c = cosf(x); }
SIMULATOR_FUNCTION float __frsqrt_rn(float x) { return 1 / sqrt(double(x)); }

// Rounded arithmetic. CUDA never fuses these with what stands around them, and the empty asm keeps
// g++ from it.
#ifdef __x86_64__
#define SIMULATOR_OPAQUE(x) asm("" : "+x"(x))
#else
#define SIMULATOR_OPAQUE(x) asm("" : "+w"(x))
#endif
#define SIMULATOR_ROUNDED(name, T, op)    \
    SIMULATOR_FUNCTION T name(T a, T b) { \
        T result = a op b;                \
        SIMULATOR_OPAQUE(result);         \
        return result;                    \
    }
SIMULATOR_ROUNDED(__fadd_rn, float, +)
SIMULATOR_ROUNDED(__fsub_rn, float, -)
SIMULATOR_ROUNDED(__fmul_rn, float, *)
SIMULATOR_ROUNDED(__fdiv_rn, float, /)
SIMULATOR_ROUNDED(__dadd_rn, double, +)
SIMULATOR_ROUNDED(__dsub_rn, double, -)
SIMULATOR_ROUNDED(__dmul_rn, double, *)
SIMULATOR_ROUNDED(__ddiv_rn, double, /)
#undef SIMULATOR_ROUNDED
#undef SIMULATOR_OPAQUE
SIMULATOR_FUNCTION float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
SIMULATOR_FUNCTION float __fmaf_ieee_rn(float a, float b, float c) { return fmaf(a, b, c); }
SIMULATOR_FUNCTION double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
#if SIMULATOR_ARCHITECTURE >= 1000
SIMULATOR_FUNCTION float2 __fadd2_rn(float2 a, float2 b) {
    return {__fadd_rn(a.x, b.x), __fadd_rn(a.y, b.y)};
}
SIMULATOR_FUNCTION float2 __fmul2_rn(float2 a, float2 b) {
    return {__fmul_rn(a.x, b.x), __fmul_rn(a.y, b.y)};
}
SIMULATOR_FUNCTION float2 __ffma2_rn(float2 a, float2 b, float2 c) {
    return {__fmaf_rn(a.x, b.x, c.x), __fmaf_rn(a.y, b.y, c.y)};
}
#endif
SIMULATOR_FUNCTION float __frcp_rn(float x) { return 1 / x; }
SIMULATOR_FUNCTION double __drcp_rn(double x) { return 1 / x; }
SIMULATOR_FUNCTION float __fsqrt_rn(float x) { return sqrtf(x); }
SIMULATOR_FUNCTION double __dsqrt_rn(double x) { return sqrt(x); }

// A secondary kernel of a programmatic dependent launch begins when the primary one has ended.
SIMULATOR_FUNCTION void cudaGridDependencySynchronize() {}
SIMULATOR_FUNCTION void cudaTriggerProgrammaticLaunchCompletion() {}

// Conversions. A float beyond the integer's range gives its nearest end, as on the GPU, and a NaN
// gives 0.
namespace simulator {
template <class To, class From>
SIMULATOR_FUNCTION To saturate(From x) {
    constexpr bool is_signed = To(-1) < To(0);
    constexpr To high = To(~0ull >> (64 - 8 * sizeof(To) + is_signed)),
                 low = is_signed ? -high - 1 : 0;
    if (x >= From(high)) return high;
    if (x <= From(low)) return low;
    return x == x ? To(x) : To(0);
}
}  // namespace simulator
#define SIMULATOR_CONVERT(name, To, From, expression) \
    SIMULATOR_FUNCTION To name(From x) { return expression; }
#define SIMULATOR_TO_INTEGER(from, From, to, To)                                             \
    SIMULATOR_CONVERT(__##from##2##to##_rn, To, From, simulator::saturate<To>(nearbyint(x))) \
    SIMULATOR_CONVERT(__##from##2##to##_rz, To, From, simulator::saturate<To>(x))            \
    SIMULATOR_CONVERT(__##from##2##to##_rd, To, From, simulator::saturate<To>(floor(x)))     \
    SIMULATOR_CONVERT(__##from##2##to##_ru, To, From, simulator::saturate<To>(ceil(x)))
SIMULATOR_TO_INTEGER(float, float, int, int)
SIMULATOR_TO_INTEGER(float, float, uint, unsigned)
SIMULATOR_TO_INTEGER(float, float, ll, long long)
SIMULATOR_TO_INTEGER(float, float, ull, unsigned long long)
SIMULATOR_TO_INTEGER(double, double, int, int)
SIMULATOR_TO_INTEGER(double, double, uint, unsigned)
SIMULATOR_TO_INTEGER(double, double, ll, long long)
SIMULATOR_TO_INTEGER(double, double, ull, unsigned long long)
SIMULATOR_CONVERT(__int2float_rn, float, int, x)
SIMULATOR_CONVERT(__uint2float_rn, float, unsigned, x)
SIMULATOR_CONVERT(__ll2float_rn, float, long long, x)
SIMULATOR_CONVERT(__ull2float_rn, float, unsigned long long, x)
SIMULATOR_CONVERT(__int2double_rn, double, int, x)
SIMULATOR_CONVERT(__uint2double_rn, double, unsigned, x)
SIMULATOR_CONVERT(__ll2double_rn, double, long long, x)
SIMULATOR_CONVERT(__ull2double_rn, double, unsigned long long, x)
SIMULATOR_CONVERT(__double2float_rn, float, double, x)
#undef SIMULATOR_TO_INTEGER
#undef SIMULATOR_CONVERT

// The same bits as another type.
#define SIMULATOR_BITS(name, To, From)           \
    SIMULATOR_FUNCTION To name(From x) {         \
        To bits;                                 \
        __builtin_memcpy(&bits, &x, sizeof(To)); \
        return bits;                             \
    }
SIMULATOR_BITS(__float_as_int, int, float)
SIMULATOR_BITS(__float_as_uint, unsigned, float)
SIMULATOR_BITS(__int_as_float, float, int)
SIMULATOR_BITS(__uint_as_float, float, unsigned)
SIMULATOR_BITS(__double_as_longlong, long long, double)
SIMULATOR_BITS(__longlong_as_double, double, long long)
SIMULATOR_BITS(float_as_int, int, float)
SIMULATOR_BITS(float_as_uint, unsigned, float)
SIMULATOR_BITS(int_as_float, float, int)
SIMULATOR_BITS(uint_as_float, float, unsigned)
#undef SIMULATOR_BITS
SIMULATOR_FUNCTION int __double2hiint(double x) { return __double_as_longlong(x) >> 32; }
SIMULATOR_FUNCTION int __double2loint(double x) { return __double_as_longlong(x); }
SIMULATOR_FUNCTION double __hiloint2double(int high, int low) {
    return __longlong_as_double((long long)high << 32 | unsigned(low));
}

// Bits and integers.
SIMULATOR_FUNCTION int __popc(unsigned x) { return __builtin_popcount(x); }
SIMULATOR_FUNCTION int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
SIMULATOR_FUNCTION int __clz(int x) { return x ? __builtin_clz(x) : 32; }
SIMULATOR_FUNCTION int __clzll(long long x) { return x ? __builtin_clzll(x) : 64; }
SIMULATOR_FUNCTION int __ffs(int x) { return __builtin_ffs(x); }
SIMULATOR_FUNCTION int __ffsll(long long x) { return __builtin_ffsll(x); }
SIMULATOR_FUNCTION unsigned long long __brevll(unsigned long long x) {
    x = (x >> 1 & 0x5555555555555555) | (x & 0x5555555555555555) << 1;
    x = (x >> 2 & 0x3333333333333333) | (x & 0x3333333333333333) << 2;
    x = (x >> 4 & 0x0f0f0f0f0f0f0f0f) | (x & 0x0f0f0f0f0f0f0f0f) << 4;
    return __builtin_bswap64(x);
}
SIMULATOR_FUNCTION unsigned __brev(unsigned x) { return __brevll(x) >> 32; }
SIMULATOR_FUNCTION unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
    const unsigned long long bytes = (unsigned long long)y << 32 | x;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned choice = selector >> 4 * i & 0xf;
        const unsigned byte = bytes >> 8 * (choice & 7) & 0xff;
        result |= (choice & 8 ? (byte & 0x80 ? 0xff : 0) : byte) << 8 * i;
    }
    return result;
}
SIMULATOR_FUNCTION unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    return ((unsigned long long)high << 32 | low) << (shift & 31) >> 32;
}
SIMULATOR_FUNCTION unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    return ((unsigned long long)high << 32 | low) >> (shift & 31);
}
SIMULATOR_FUNCTION unsigned __funnelshift_lc(unsigned low, unsigned high, unsigned shift) {
    return shift < 32 ? __funnelshift_l(low, high, shift) : low;
}
SIMULATOR_FUNCTION unsigned __funnelshift_rc(unsigned low, unsigned high, unsigned shift) {
    return shift < 32 ? __funnelshift_r(low, high, shift) : high;
}
// Of the bits that are set in mask, the offset-th from the base upwards, or downwards if the offset
// is negative; with offset 0 that at the base itself.
SIMULATOR_FUNCTION unsigned __fns(unsigned mask, unsigned base, int offset) {
    const int step = offset < 0 ? -1 : 1;
    int left = offset < 0 ? -offset : offset ? offset : 1;
    for (int bit = int(base); bit >= 0 && bit < 32; bit += step) {
        left -= mask >> bit & 1;
        if (left == 0) return bit;
        if (offset == 0) break;
    }
    return ~0u;
}
SIMULATOR_FUNCTION int __mulhi(int x, int y) { return (long long)x * y >> 32; }
SIMULATOR_FUNCTION unsigned __umulhi(unsigned x, unsigned y) {
    return (unsigned long long)x * y >> 32;
}
SIMULATOR_FUNCTION long long __mul64hi(long long x, long long y) { return (__int128)x * y >> 64; }
SIMULATOR_FUNCTION unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return (unsigned __int128)x * y >> 64;
}
SIMULATOR_FUNCTION int __mul24(int x, int y) {
    return int(unsigned(x) << 8) / 256 * (int(unsigned(y) << 8) / 256);
}
SIMULATOR_FUNCTION unsigned __umul24(unsigned x, unsigned y) {
    return (x & 0xffffff) * (y & 0xffffff);
}
SIMULATOR_FUNCTION unsigned __sad(int x, int y, unsigned z) {
    return z + (x > y ? unsigned(x) - y : unsigned(y) - x);
}
SIMULATOR_FUNCTION unsigned __usad(unsigned x, unsigned y, unsigned z) {
    return z + (x > y ? x - y : y - x);
}
SIMULATOR_FUNCTION int __hadd(int x, int y) { return ((long long)x + y) >> 1; }
SIMULATOR_FUNCTION unsigned __uhadd(unsigned x, unsigned y) {
    return ((unsigned long long)x + y) >> 1;
}
SIMULATOR_FUNCTION unsigned __urhadd(unsigned x, unsigned y) {
    return ((unsigned long long)x + y + 1) >> 1;
}
SIMULATOR_FUNCTION int __rhadd(int x, int y) { return ((long long)x + y + 1) >> 1; }

// Dot products of four bytes with four, and of two halves with two of the bytes.
namespace simulator {
template <class X, class Y, int count, class Sum, class A, class B>
SIMULATOR_FUNCTION Sum dot(A a, B b, int first, Sum sum) {
    static_assert(sizeof(A) == 4 && sizeof(B) == 4);
    X x[4 / sizeof(X)];
    Y y[4 / sizeof(Y)];
    __builtin_memcpy(x, &a, 4);
    __builtin_memcpy(y, &b, 4);
    for (int i = 0; i < count; i++) sum += Sum(x[i]) * Sum(y[first + i]);
    return sum;
}
}  // namespace simulator
#define SIMULATOR_DOT(Sum, A, B, X4, X2, Y)                \
    SIMULATOR_FUNCTION Sum __dp4a(A a, A b, Sum sum) {     \
        return simulator::dot<Y, Y, 4>(a, b, 0, sum);      \
    }                                                      \
    SIMULATOR_FUNCTION Sum __dp2a_lo(X4 a, B b, Sum sum) { \
        return simulator::dot<X2, Y, 2>(a, b, 0, sum);     \
    }                                                      \
    SIMULATOR_FUNCTION Sum __dp2a_hi(X4 a, B b, Sum sum) { \
        return simulator::dot<X2, Y, 2>(a, b, 2, sum);     \
    }
SIMULATOR_DOT(int, int, int, int, int16_t, int8_t)
SIMULATOR_DOT(unsigned, unsigned, unsigned, unsigned, uint16_t, uint8_t)
SIMULATOR_DOT(int, char4, char4, short2, int16_t, int8_t)
SIMULATOR_DOT(unsigned, uchar4, uchar4, ushort2, uint16_t, uint8_t)
#undef SIMULATOR_DOT

// Time, in ticks of the processor's counter.
SIMULATOR_FUNCTION long long clock64() {
#ifdef __x86_64__
    return __builtin_ia32_rdtsc();
#else
    long long ticks;
    asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#endif
}

SIMULATOR_FUNCTION void __prof_trigger(int) {}  // for a profiler

// A pointer is the same in every state space.
SIMULATOR_FUNCTION size_t __cvta_generic_to_shared(const void* p) {
    return simulator::shared_address(p);
}
SIMULATOR_FUNCTION size_t __cvta_generic_to_global(const void* p) { return size_t(p); }
SIMULATOR_FUNCTION size_t __cvta_generic_to_local(const void* p) { return size_t(p); }
SIMULATOR_FUNCTION size_t __cvta_generic_to_constant(const void* p) { return size_t(p); }
SIMULATOR_FUNCTION void* __cvta_shared_to_generic(size_t p) { return simulator::shared_pointer(p); }
SIMULATOR_FUNCTION void* __cvta_global_to_generic(size_t p) { return (void*)p; }
SIMULATOR_FUNCTION void* __cvta_local_to_generic(size_t p) { return (void*)p; }
SIMULATOR_FUNCTION void* __cvta_constant_to_generic(size_t p) { return (void*)p; }

SIMULATOR_INLINE void __brkpt(SIMULATOR_CALLER) { simulator::trap(file, line); }
SIMULATOR_INLINE void __trap(SIMULATOR_CALLER) { simulator::trap(file, line); }
#undef SIMULATOR_FUNCTION
