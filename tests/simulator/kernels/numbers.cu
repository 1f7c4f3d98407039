// Arithmetic on half types, floats of 8 bits, rounding modes, and what is done on parts of words.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include "launcher.h"

// ---- Half types

template <class H, class H2>
__global__ void halves(const H* a, const H* b, const H* c, H* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const H2 p = __halves2pair(a[i], b[i]), q = __halves2pair(b[i], c[i]),
             r = __halves2pair(c[i], a[i]);
    const H2 zero = p - p;
    H2 results[] = {
        __hadd2(p, q),
        __hsub2(p, q),
        __hmul2(p, q),
        __h2div(p, q),
        __hfma2(p, q, r),
        __hadd2_sat(p, q),
        __hsub2_sat(p, q),
        __hmul2_sat(p, q),
        __hfma2_sat(p, q, r),
        __hfma2_relu(p, q, r),
        __hmax2(p, q),
        __hmin2(p, q),
        __hmax2_nan(p, q),
        __hmin2_nan(p, q),
        __habs2(p),
        __hneg2(p),
        h2floor(p),
        h2ceil(p),
        h2trunc(p),
        h2rint(p),
        h2sqrt(__habs2(p)),
        h2rcp(p),
        h2rsqrt(__habs2(p)),
        h2exp(p),
        h2exp2(p),
        h2exp10(p),
        h2log(__habs2(p)),
        h2log2(__habs2(p)),
        h2log10(__habs2(p)),
        h2sin(p),
        h2cos(p),
        h2tanh(p),
        __hcmadd(p, q, r),
        __lowhigh2highlow(p),
        __hadd2_rn(p, q),
        p * q + zero,
    };
    H2* pairs = reinterpret_cast<H2*>(y);
    for (int k = 0; k < 36; k++) pairs[k * n + i] = results[k];
}

__device__ __half2 __halves2pair(__half x, __half y) { return __halves2half2(x, y); }
__device__ __nv_bfloat162 __halves2pair(__nv_bfloat16 x, __nv_bfloat16 y) {
    return __halves2bfloat162(x, y);
}

template <class H, class H2>
__global__ void comparisons(const H* a, const H* b, int* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const H x = a[i], z = b[i];
    const H2 p = __halves2pair(x, z), q = __halves2pair(z, x);
    const bool one[] = {
        __heq(x, z),  __hne(x, z),  __hlt(x, z),  __hle(x, z),  __hgt(x, z),  __hge(x, z),
        __hequ(x, z), __hneu(x, z), __hltu(x, z), __hleu(x, z), __hgtu(x, z), __hgeu(x, z)};
    const unsigned masks[] = {
        __heq2_mask(p, q),  __hne2_mask(p, q),  __hlt2_mask(p, q),  __hle2_mask(p, q),
        __hgt2_mask(p, q),  __hge2_mask(p, q),  __hequ2_mask(p, q), __hneu2_mask(p, q),
        __hltu2_mask(p, q), __hleu2_mask(p, q), __hgtu2_mask(p, q), __hgeu2_mask(p, q)};
    const bool both[] = {__hbeq2(p, q),  __hbne2(p, q),  __hblt2(p, q),  __hble2(p, q),
                         __hbgt2(p, q),  __hbge2(p, q),  __hbequ2(p, q), __hbneu2(p, q),
                         __hbltu2(p, q), __hbleu2(p, q), __hbgtu2(p, q), __hbgeu2(p, q)};
    for (int k = 0; k < 12; k++) {
        y[(3 * k) * n + i] = one[k];
        y[(3 * k + 1) * n + i] = masks[k];
        y[(3 * k + 2) * n + i] = both[k];
    }
}

// Conversions: to halves of floats, doubles and integers, in every rounding, and to integers.
#define CONVERSIONS(h, H)                                                                        \
    __global__ void h##_from(const float* f, const double* d, const long long* l, H* y, int n) { \
        const int i = blockIdx.x * blockDim.x + threadIdx.x;                                     \
        if (i >= n) return;                                                                      \
        const int k = int(l[i]);                                                                 \
        const unsigned u = unsigned(l[i]);                                                       \
        const unsigned long long ull = l[i];                                                     \
        const H results[] = {                                                                    \
            __float2##h##_rn(f[i]),                                                              \
            __float2##h##_rd(f[i]),                                                              \
            __float2##h##_ru(f[i]),                                                              \
            __float2##h##_rz(f[i]),                                                              \
            __double2##h(d[i]),                                                                  \
            __ll2##h##_rn(l[i]),                                                                 \
            __ll2##h##_rd(l[i]),                                                                 \
            __ll2##h##_ru(l[i]),                                                                 \
            __ll2##h##_rz(l[i]),                                                                 \
            __int2##h##_rn(k),                                                                   \
            __int2##h##_rd(k),                                                                   \
            __int2##h##_ru(k),                                                                   \
            __int2##h##_rz(k),                                                                   \
            __uint2##h##_rn(u),                                                                  \
            __uint2##h##_ru(u),                                                                  \
            __ull2##h##_rn(ull),                                                                 \
            __ull2##h##_rd(ull),                                                                 \
            __short2##h##_rz(short(k)),                                                          \
            __ushort2##h##_ru((unsigned short)k)};                                               \
        for (int j = 0; j < 19; j++) y[j * n + i] = results[j];                                  \
    }                                                                                            \
    __global__ void h##_to(const H* x, long long* y, int n) {                                    \
        const int i = blockIdx.x * blockDim.x + threadIdx.x;                                     \
        if (i >= n) return;                                                                      \
        const H v = x[i];                                                                        \
        const long long results[] = {                                                            \
            __##h##2int_rn(v),   __##h##2int_rd(v),   __##h##2int_ru(v),                         \
            __##h##2int_rz(v),   __##h##2uint_rn(v),  __##h##2uint_rz(v),                        \
            __##h##2short_rn(v), __##h##2short_rz(v), __##h##2ushort_rd(v),                      \
            __##h##2ll_rn(v),    __##h##2ll_ru(v),    (long long)__##h##2ull_rz(v),              \
            __##h##2char_rz(v),  __##h##2uchar_rz(v), int(v)};                                   \
        for (int j = 0; j < 15; j++) y[j * n + i] = results[j];                                  \
    }
CONVERSIONS(half, __half)
CONVERSIONS(bfloat16, __nv_bfloat16)

#define RUN_HALVES(name, h, H, H2)                                                       \
    extern "C" cudaError_t run_##name(const H* a, const H* b, const H* c, H* y, int n) { \
        halves<H, H2><<<(n + 127) / 128, 128>>>(a, b, c, y, n);                          \
        return cudaGetLastError();                                                       \
    }                                                                                    \
    extern "C" cudaError_t run_##name##_compare(const H* a, const H* b, int* y, int n) { \
        comparisons<H, H2><<<(n + 127) / 128, 128>>>(a, b, y, n);                        \
        return cudaGetLastError();                                                       \
    }                                                                                    \
    extern "C" cudaError_t run_##name##_from(                                            \
        const float* f, const double* d, const int64_t* l, H* y, int n) {                \
        h##_from<<<(n + 127) / 128, 128>>>(f, d, (const long long*)l, y, n);             \
        return cudaGetLastError();                                                       \
    }                                                                                    \
    extern "C" cudaError_t run_##name##_to(const H* x, int64_t* y, int n) {              \
        h##_to<<<(n + 127) / 128, 128>>>(x, (long long*)y, n);                           \
        return cudaGetLastError();                                                       \
    }
RUN_HALVES(half, half, __half, __half2)
RUN_HALVES(bfloat16, bfloat16, __nv_bfloat16, __nv_bfloat162)

// Bits, constants, operators on pairs, shuffles and atomics of pairs.
__global__ void pairs(float* y, __half2* sums, __nv_bfloat162* totals) {
    const __half_raw raw = {0x3c00};
    const __half2_raw raws = {0x4000, 0x4200};
    __half one = raw;
    __half2 two_three(raws);
    __half2 before = two_three++;
    const __half2 swapped = __shfl_xor_sync(0xffffffff, __floats2half2_rn(threadIdx.x, 1), 1);
    const __nv_bfloat162 moved =
        __shfl_down_sync(0xffffffff, __floats2bfloat162_rn(threadIdx.x, 2), 1);
    atomicAdd(sums, __floats2half2_rn(1, 0.5f));
    atomicAdd(totals, __floats2bfloat162_rn(2, 1));
    const float results[] = {
        float(one),
        __low2float(before),
        __high2float(two_three),
        float(before < two_three),
        float(before != two_three),
        __low2float(swapped),
        __low2float(moved),
        float(CUDART_INF_FP16),
        float(CUDART_MAX_NORMAL_FP16),
        float(CUDART_MAX_NORMAL_BF16),
        float(bool(CUDART_NEG_ZERO_FP16)),
        float(__hisinf(-CUDART_INF_BF16))};
    for (int k = 0; k < 12; k++) y[12 * threadIdx.x + k] = results[k];
}

LAUNCHER(run_pairs, (float* y, __half* sums, __nv_bfloat16* totals),
         pairs<<<1, 32>>>(y, (__half2*)sums, (__nv_bfloat162*)totals))

// ---- Floats of 8 bits

__global__ void all_fp8(float* y) {
    const int i = threadIdx.x;
    __nv_fp8_e4m3 a;
    __nv_fp8_e5m2 b;
    a.__x = b.__x = i;
    y[i] = float(a);
    y[256 + i] = float(b);
    y[512 + i] = float(__half(__nv_cvt_fp8_to_halfraw(i, __NV_E4M3)));
    y[768 + i] = float(__half(__nv_cvt_fp8_to_halfraw(i, __NV_E5M2)));
}

LAUNCHER(run_all_fp8, (float* y), all_fp8<<<1, 256>>>(y))

__global__ void to_fp8(const float* x, const double* d, unsigned char* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = __nv_fp8_e4m3(x[i]).__x;
    y[n + i] = __nv_fp8_e5m2(x[i]).__x;
    y[2 * n + i] = __nv_cvt_float_to_fp8(x[i], __NV_NOSAT, __NV_E4M3);
    y[3 * n + i] = __nv_cvt_float_to_fp8(x[i], __NV_NOSAT, __NV_E5M2);
    y[4 * n + i] = __nv_cvt_double_to_fp8(d[i], __NV_SATFINITE, __NV_E4M3);
    y[5 * n + i] = __nv_fp8_e4m3(__float2half(x[i])).__x;
    y[6 * n + i] = __nv_fp8x2_e5m2(make_float2(x[i], 1)).__x & 0xff;
    y[7 * n + i] = __nv_fp8x4_e4m3(make_float4(0, 1, 2, x[i])).__x >> 24;
}

LAUNCHER(run_to_fp8, (const float* x, const double* d, unsigned char* y, int n),
         to_fp8<<<(n + 127) / 128, 128>>>(x, d, y, n))

// ---- Rounding modes

__global__ void rounded(const float* a, const float* b, float* y, const double* c, const double* d,
                        double* z, const long long* l, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float u = a[i], v = b[i];
    const double p = c[i], q = d[i];
#define THREE(f, ...) f##_rd(__VA_ARGS__), f##_ru(__VA_ARGS__), f##_rz(__VA_ARGS__)
    const float floats[] = {
        THREE(__fadd, u, v),    THREE(__fsub, u, v),      THREE(__fmul, u, v),
        THREE(__fdiv, u, v),    THREE(__frcp, u),         THREE(__fsqrt, fabsf(u)),
        THREE(__fmaf, u, v, u), THREE(__double2float, p), THREE(__int2float, int(l[i])),
        THREE(__ll2float, l[i])};
    const double doubles[] = {
        THREE(__dadd, p, q),   THREE(__dsub, p, q),     THREE(__dmul, p, q),
        THREE(__ddiv, p, q),   THREE(__drcp, p),        THREE(__dsqrt, fabs(p)),
        THREE(__fma, p, q, p), THREE(__ll2double, l[i])};
    for (int k = 0; k < 30; k++) y[k * n + i] = floats[k];
    for (int k = 0; k < 24; k++) z[k * n + i] = doubles[k];
}

LAUNCHER(run_rounded,
         (const float* a, const float* b, float* y, const double* c, const double* d, double* z,
          const int64_t* l, int n),
         rounded<<<(n + 127) / 128, 128>>>(a, b, y, c, d, z, (const long long*)l, n))

// ---- Parts of words

#define ALL(name, size) __v##name##size(a[i], b[i])
#define BINARY(F, size)                                                                         \
    F(add, size), F(addss, size), F(addus, size), F(sub, size), F(subss, size), F(subus, size), \
        F(avgs, size), F(avgu, size), F(haddu, size), F(absdiffs, size), F(absdiffu, size),     \
        F(maxs, size), F(maxu, size), F(mins, size), F(minu, size), F(cmpeq, size),             \
        F(cmpgts, size), F(cmpgtu, size), F(setles, size), F(setltu, size), F(setne, size),     \
        F(sads, size), F(sadu, size)

__global__ void parts(const unsigned* a, const unsigned* b, unsigned* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const unsigned results[] = {
        BINARY(ALL, 2),  BINARY(ALL, 4), __vabs2(a[i]),   __vabsss2(a[i]), __vneg2(a[i]),
        __vnegss2(a[i]), __vabs4(a[i]),  __vabsss4(a[i]), __vneg4(a[i]),   __vnegss4(a[i])};
    for (int k = 0; k < 54; k++) y[k * n + i] = results[k];
}

LAUNCHER(run_parts, (const int* a, const int* b, int* y, int n),
         parts<<<(n + 127) / 128, 128>>>((const unsigned*)a, (const unsigned*)b, (unsigned*)y, n))

__global__ void dots(const int* a, const int* b, int* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const unsigned u = a[i], v = b[i];
    const int results[] = {
        __dp4a(a[i], b[i], 7),
        int(__dp4a(u, v, 7u)),
        __dp2a_lo(a[i], b[i], 7),
        int(__dp2a_hi(u, v, 7u)),
        __vimax3_s32(a[i], b[i], 5),
        int(__vimin3_s16x2(u, v, 0x00030005)),
        __viaddmax_s32_relu(a[i], b[i], -5),
        int(__vimax_s16x2_relu(u, v)),
        int(__fns(u, v & 31, 3)),
        int(__fns(u, v & 31, -2)),
        int(__funnelshift_lc(u, v, 40)),
        __rhadd(a[i], b[i])};
    for (int k = 0; k < 12; k++) y[k * n + i] = results[k];
}

LAUNCHER(run_dots, (const int* a, const int* b, int* y, int n),
         dots<<<(n + 127) / 128, 128>>>(a, b, y, n))

// ---- Special functions

__global__ void special(const double* x, double* y, float* f, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const double v = x[i], u = 1 / (1 + fabs(v));  // u is in (0, 1]
    double s, c;
    sincospi(v, &s, &c);
    const double results[] = {
        erfinv(u - 0.5),
        erfcinv(u),
        normcdfinv(u),
        normcdf(v),
        erfcx(v),
        cyl_bessel_i0(v),
        cyl_bessel_i1(v),
        s,
        c,
        rcbrt(v),
        norm3d(v, 2, 3),
        rnorm4d(v, 1, 2, 3),
        lgamma(v)};
    float fs, fc;
    sincospif(float(v), &fs, &fc);
    const float floats[] = {
        erfinvf(u - 0.5),
        erfcinvf(u),
        normcdfinvf(u),
        normcdff(v),
        erfcxf(v),
        cyl_bessel_i0f(v),
        cyl_bessel_i1f(v),
        fs,
        fc,
        rcbrtf(v),
        norm3df(v, 2, 3),
        rnorm4df(v, 1, 2, 3),
        lgammaf(v)};
    for (int k = 0; k < 13; k++) y[k * n + i] = results[k], f[k * n + i] = floats[k];
}

LAUNCHER(run_special, (const double* x, double* y, float* f, int n),
         special<<<(n + 127) / 128, 128>>>(x, y, f, n))

// ---- Atomics and time

struct alignas(16) Two {
    long long a, b;
};

__global__ void atomics(float2* pair, float4* four, long long* bits, Two* two,
                        unsigned short* shorts) {
    atomicAdd(pair, make_float2(1, 2));
    atomicAdd_block(four, make_float4(1, 2, 3, 4));
    atomicAnd(&bits[0], ~(1ll << threadIdx.x));
    atomicXor_system(&bits[1], 1ll << threadIdx.x);
    Two old = *two, assumed;
    do {
        assumed = old;
        old = atomicCAS(two, assumed, Two{assumed.a + 1, assumed.b - 2});
    } while (old.a != assumed.a || old.b != assumed.b);
    unsigned short seen = *shorts, before;
    do {
        before = seen;
        seen = atomicCAS(shorts, before, (unsigned short)(before + 3));
    } while (seen != before);
}

LAUNCHER(run_atomics, (float* pair, float* four, int64_t* bits, int64_t* two, int16_t* shorts),
         atomics<<<4, 32>>>((float2*)pair, (float4*)four, (long long*)bits, (Two*)two,
                            (unsigned short*)shorts))

__global__ void clocks(int64_t* y) {
    const clock_t begin = clock();
    const long long begin64 = clock64();
    while (clock64() - begin64 < 1000000) {
    }
    y[0] = int(unsigned(clock()) - unsigned(begin));
    y[1] = __cvta_generic_to_shared(y) != 0;
}

LAUNCHER(run_clocks, (int64_t* y), clocks<<<1, 1>>>(y))

extern "C" int run_sizes(int64_t* y) {
    const int64_t host[] = {
        alignof(double4_16a), alignof(double4_32a), sizeof(ulonglong4_32a), alignof(long4_16a)};
    return cudaMemcpy(y, host, sizeof host, cudaMemcpyDefault);
}

__global__ void extremes(const float* x, int n, float* y, double* z) {
    const int i = threadIdx.x, pair = blockIdx.x * n + i, all = n * n;
    const float a = x[blockIdx.x], b = x[i];
    y[pair] = fmaxf(a, b), y[all + pair] = fminf(a, b);
    z[pair] = max(double(a), double(b)), z[all + pair] = fmin(double(a), double(b));
}
LAUNCHER(run_extremes, (const float* x, int n, float* y, double* z), extremes<<<n, n>>>(x, n, y, z))
