// What the conversions of cuda_fp8.h, cuda_fp6.h and cuda_fp4.h give, a digest for each: of every
// code, of every half and bfloat16, and of floats and doubles on both sides of where rounding
// turns.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp4.h>
#include <cuda_fp6.h>
#include <cuda_fp8.h>
#include <stdint.h>
#include <string.h>
#include <vector>

struct Digests {
    int64_t* to;
    int count = 0;
    std::vector<float> floats;
    std::vector<double> doubles;

    explicit Digests(int64_t* to) : to(to) {
        for (uint32_t high = 0; high < 1 << 16; high++)
            for (uint32_t low : {0u, 1u, 0xffffu}) {
                const uint32_t word = high << 16 | low;
                float x;
                memcpy(&x, &word, 4);
                floats.push_back(x);
                doubles.push_back(x);
                const uint64_t words = uint64_t(high) << 48 | low;
                double y;
                memcpy(&y, &words, 8);
                doubles.push_back(y);
            }
    }
    template <class T, class Of>
    void add(const std::vector<T>& inputs, Of of) {
        uint64_t digest = 1469598103934665603ull;
        for (size_t i = 0; i < inputs.size(); i++)
            digest = (digest ^ of(inputs[i], inputs[inputs.size() - 1 - i])) * 1099511628211ull;
        to[count++] = int64_t(digest);
    }
    template <class Of>
    void add(int many, Of of) {
        std::vector<int> numbers(many);
        for (int i = 0; i < many; i++) numbers[i] = i;
        add(numbers, of);
    }
};
template <class T>
uint64_t bits(T x) {
    uint64_t word = 0;
    memcpy(&word, &x, sizeof x);
    return word;
}
inline __half_raw half_of(int i) {
    __half_raw x;
    x.x = i;
    return x;
}
inline __nv_bfloat16_raw bfloat_of(int i) {
    __nv_bfloat16_raw x;
    x.x = i;
    return x;
}
template <class Pair, class T>
Pair pair(T x, T y) {
    Pair both;
    both.x = x, both.y = y;
    return both;
}
template <class Four, class T>
Four four(T x, T y) {
    Four all;
    all.x = x, all.y = y, all.z = y, all.w = x;
    return all;
}
template <class T, class Code>
T coded(Code code) {
    T x;
    x.__x = code;
    return x;
}

template <class T>
void one(Digests& it) {
    it.add(it.floats, [](float x, float) { return T(x).__x; });
    it.add(it.doubles, [](double x, double) { return T(x).__x; });
    it.add(1 << 16, [](int i, int) { return T(__half(half_of(i))).__x; });
    it.add(1 << 16, [](int i, int) { return T(__nv_bfloat16(bfloat_of(i))).__x; });
    it.add(1 << 16, [](int i, int) {
        const int x = i - 32768;
        return uint64_t(T(short(x)).__x) << 56 | uint64_t(T((unsigned short)i).__x) << 48 |
               uint64_t(T(x).__x) << 40 | uint64_t(T(unsigned(i)).__x) << 32 |
               uint64_t(T(long(x) * 1000003).__x) << 24 | T((unsigned long)(i)).__x << 16 |
               T((long long)x * 77).__x << 8 | T((unsigned long long)i * i).__x;
    });
    it.add(256, [](int i, int) { return bits(float(coded<T>(i))); });
    it.add(256, [](int i, int) { return bits(double(coded<T>(i))); });
    it.add(256, [](int i, int) { return bits(__half(coded<T>(i))); });
    it.add(256, [](int i, int) { return bits(__nv_bfloat16(coded<T>(i))); });
    it.add(256, [](int i, int) {
        const T x = coded<T>(i);
        return uint64_t(bool(x)) << 40 | uint64_t((unsigned char)((signed char)x)) << 32 |
               (unsigned char)x << 24 | (unsigned char)char(x) << 16 | (unsigned short)short(x);
    });
    it.add(256, [](int i, int) {
        const T x = coded<T>(i);
        return uint64_t((unsigned short)x) ^ uint64_t((int)x) << 8 ^ uint64_t((unsigned)x) << 16;
    });
    it.add(256, [](int i, int) {
        const T x = coded<T>(i);
        return uint64_t((long)x) * 3 ^ (unsigned long)x * 5 ^ uint64_t((long long)x) * 7 ^
               (unsigned long long)x * 11;
    });
}
template <class T>
void two(Digests& it) {
    it.add(it.floats, [](float x, float y) { return T(pair<float2>(x, y)).__x; });
    it.add(it.doubles, [](double x, double y) { return T(pair<double2>(x, y)).__x; });
    it.add(1 << 16, [](int i, int j) {
        return T(pair<__half2>(__half(half_of(i)), __half(half_of(j)))).__x;
    });
    it.add(1 << 16, [](int i, int j) {
        return T(pair<__nv_bfloat162>(__nv_bfloat16(bfloat_of(i)), __nv_bfloat16(bfloat_of(j))))
            .__x;
    });
    it.add(1 << 16, [](int i, int) { return bits(float2(coded<T>(i))); });
}
template <class T>
void fours(Digests& it) {
    it.add(it.floats, [](float x, float y) { return T(four<float4>(x, y)).__x; });
    it.add(it.doubles, [](double x, double y) { return T(four<double4_16a>(x, y)).__x; });
    it.add(it.doubles, [](double x, double y) { return T(four<double4_32a>(x, y)).__x; });
    it.add(1 << 16, [](int i, int j) {
        const auto low = pair<__half2>(__half(half_of(i)), __half(half_of(j)));
        return T(low, pair<__half2>(low.y, low.x)).__x;
    });
    it.add(1 << 16, [](int i, int) {
        const float4 x = float4(coded<T>(i * 65537u));
        return bits(pair<float2>(x.x, x.y)) ^ bits(pair<float2>(x.z, x.w)) * 3;
    });
}

#define CONVERSIONS(name, ...)                                                                    \
    it.add(it.floats, [&](float x, float) { return __nv_cvt_float_to_##name(x, __VA_ARGS__); });  \
    it.add(                                                                                       \
        it.doubles, [&](double x, double) { return __nv_cvt_double_to_##name(x, __VA_ARGS__); }); \
    it.add(it.floats, [&](float x, float y) {                                                     \
        return __nv_cvt_float2_to_##name##x2(pair<float2>(x, y), __VA_ARGS__);                    \
    });                                                                                           \
    it.add(it.doubles, [&](double x, double y) {                                                  \
        return __nv_cvt_double2_to_##name##x2(pair<double2>(x, y), __VA_ARGS__);                  \
    });                                                                                           \
    it.add(1 << 16,                                                                               \
           [&](int i, int) { return __nv_cvt_bfloat16raw_to_##name(bfloat_of(i), __VA_ARGS__); });
#define HALVES(name, ...)                                                                          \
    it.add(                                                                                        \
        1 << 16, [&](int i, int) { return __nv_cvt_halfraw_to_##name(half_of(i), __VA_ARGS__); }); \
    it.add(1 << 16, [&](int i, int j) {                                                            \
        return __nv_cvt_halfraw2_to_##name##x2(pair<__half2_raw>(i, j), __VA_ARGS__);              \
    });                                                                                            \
    it.add(1 << 16, [&](int i, int j) {                                                            \
        return __nv_cvt_bfloat16raw2_to_##name##x2(pair<__nv_bfloat162_raw>(i, j), __VA_ARGS__);   \
    });
#define BACK(name, kind)                                                              \
    it.add(256, [&](int i, int) { return __nv_cvt_##name##_to_halfraw(i, kind).x; }); \
    it.add(1 << 16, [&](int i, int) {                                                 \
        const __half2_raw x = __nv_cvt_##name##x2_to_halfraw2(i, kind);               \
        return x.x | x.y << 16;                                                       \
    });

// Returns how many there are.
extern "C" int small_floats(int64_t* digests) {
    Digests it(digests);
    one<__nv_fp8_e4m3>(it), one<__nv_fp8_e5m2>(it), one<__nv_fp8_e8m0>(it);
    one<__nv_fp6_e2m3>(it), one<__nv_fp6_e3m2>(it), one<__nv_fp4_e2m1>(it);
    two<__nv_fp8x2_e4m3>(it), two<__nv_fp8x2_e5m2>(it), two<__nv_fp8x2_e8m0>(it);
    two<__nv_fp6x2_e2m3>(it), two<__nv_fp6x2_e3m2>(it), two<__nv_fp4x2_e2m1>(it);
    fours<__nv_fp8x4_e4m3>(it), fours<__nv_fp8x4_e5m2>(it), fours<__nv_fp8x4_e8m0>(it);
    fours<__nv_fp6x4_e2m3>(it), fours<__nv_fp6x4_e3m2>(it), fours<__nv_fp4x4_e2m1>(it);
    for (auto saturation : {__NV_NOSAT, __NV_SATFINITE}) {
        for (auto kind : {__NV_E4M3, __NV_E5M2}) {
            CONVERSIONS(fp8, saturation, kind)
            HALVES(fp8, saturation, kind)
            BACK(fp8, kind)
        }
        for (auto rounding : {cudaRoundZero, cudaRoundPosInf}) {
            CONVERSIONS(e8m0, saturation, rounding)
            it.add(1 << 16, [&](int i, int j) {
                return __nv_cvt_bfloat162raw_to_e8m0x2(
                    pair<__nv_bfloat162_raw>(i, j), saturation, rounding);
            });
        }
    }
    for (auto rounding : {cudaRoundNearest, cudaRoundZero}) {
        for (auto kind : {__NV_E2M3, __NV_E3M2}) {
            CONVERSIONS(fp6, kind, rounding)
            HALVES(fp6, kind, rounding)
            BACK(fp6, kind)
        }
        CONVERSIONS(fp4, __NV_E2M1, rounding)
        HALVES(fp4, __NV_E2M1, rounding)
        BACK(fp4, __NV_E2M1)
    }
    it.add(256, [](int i, int) { return __nv_cvt_e8m0_to_bf16raw(i).x; });
    it.add(1 << 16, [](int i, int) {
        const __nv_bfloat162_raw x = __nv_cvt_e8m0x2_to_bf162raw(i);
        return x.x | x.y << 16;
    });
    return it.count;
}
