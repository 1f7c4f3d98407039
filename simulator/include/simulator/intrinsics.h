// The functions that CUDA has beyond C's <math.h>: integers, bits, fast and rounded arithmetic,
// loads and stores with a hint for the cache. A "fast" function is the exact one here, and rounding
// is always to nearest.
#pragma once
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "block.h"
#include "runtime_api.h"

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
// A NaN gives way to a number.
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

// Math functions of CUDA's own.
#define SIMULATOR_UNARY(name, expression)                           \
    SIMULATOR_FUNCTION double name(double x) { return expression; } \
    SIMULATOR_FUNCTION float name##f(float x) { return name(double(x)); }
constexpr double simulator_pi = 3.14159265358979323846;
SIMULATOR_FUNCTION double rsqrt(double x) { return 1 / sqrt(x); }
SIMULATOR_FUNCTION float rsqrtf(float x) { return 1 / sqrtf(x); }
SIMULATOR_FUNCTION float rsqrt(float x) { return rsqrtf(x); }
SIMULATOR_UNARY(rcbrt, 1 / cbrt(x))
SIMULATOR_UNARY(sinpi, sin(simulator_pi* remainder(x, 2)))
SIMULATOR_UNARY(cospi, cos(simulator_pi* remainder(x, 2)))
SIMULATOR_UNARY(erfcx, exp(x* x) * erfc(x))
SIMULATOR_UNARY(normcdf, erfc(-x / sqrt(2.0)) / 2)
#undef SIMULATOR_UNARY
#ifdef __APPLE__  // elsewhere <math.h> has it under CUDA's name
SIMULATOR_FUNCTION double exp10(double x) { return __exp10(x); }
#endif
SIMULATOR_FUNCTION float exp10f(float x) { return exp10(double(x)); }
SIMULATOR_FUNCTION double rhypot(double x, double y) { return 1 / hypot(x, y); }
SIMULATOR_FUNCTION float rhypotf(float x, float y) { return rhypot(double(x), double(y)); }
SIMULATOR_FUNCTION double norm3d(double x, double y, double z) {
    return sqrt(x * x + y * y + z * z);
}
SIMULATOR_FUNCTION float norm3df(float x, float y, float z) { return norm3d(x, y, z); }
SIMULATOR_FUNCTION void sincospi(double x, double* s, double* c) { *s = sinpi(x), *c = cospi(x); }
SIMULATOR_FUNCTION void sincospif(float x, float* s, float* c) { *s = sinpif(x), *c = cospif(x); }
SIMULATOR_FUNCTION float fdividef(float x, float y) { return x / y; }

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
SIMULATOR_FUNCTION double __fma_rn(double a, double b, double c) { return fma(a, b, c); }
SIMULATOR_FUNCTION float __frcp_rn(float x) { return 1 / x; }
SIMULATOR_FUNCTION double __drcp_rn(double x) { return 1 / x; }
SIMULATOR_FUNCTION float __fsqrt_rn(float x) { return sqrtf(x); }
SIMULATOR_FUNCTION double __dsqrt_rn(double x) { return sqrt(x); }

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
SIMULATOR_FUNCTION int __dp4a(int x, int y, int sum) {
    for (int shift = 0; shift < 32; shift += 8) sum += int8_t(x >> shift) * int8_t(y >> shift);
    return sum;
}

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

SIMULATOR_INLINE void __trap(SIMULATOR_CALLER) { simulator::trap(file, line); }
#undef SIMULATOR_FUNCTION
