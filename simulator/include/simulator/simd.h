// CUDA's functions on two numbers of 16 bits or four of 8 in a word, and its maxima and minima of
// three (DPX).
#pragma once
#include "block.h"

namespace simulator {

// Lane is the type of a part: int16_t, uint16_t, int8_t or uint8_t.
template <class Lane, class Function>
SIMULATOR_INLINE unsigned each_lane(unsigned a, unsigned b, Function function) {
    constexpr int bits = 8 * sizeof(Lane);
    unsigned result = 0;
    for (int shift = 0; shift < 32; shift += bits) {
        const int value = function(Lane(a >> shift), Lane(b >> shift));
        result |= unsigned(value & ((1 << bits) - 1)) << shift;
    }
    return result;
}

template <class Lane>
SIMULATOR_INLINE unsigned lane_differences(unsigned a, unsigned b) {
    unsigned sum = 0;
    for (int shift = 0; shift < 32; shift += 8 * sizeof(Lane)) {
        const int difference = Lane(a >> shift) - Lane(b >> shift);
        sum += difference < 0 ? -difference : difference;
    }
    return sum;
}

// The nearest value that a Lane can hold.
template <class Lane>
SIMULATOR_INLINE int clamp_to(int x) {
    constexpr bool is_signed = Lane(-1) < Lane(0);
    constexpr int count = 1 << 8 * sizeof(Lane), low = is_signed ? -count / 2 : 0;
    return x < low ? low : x > low + count - 1 ? low + count - 1 : x;
}

}  // namespace simulator

// x and y are the parts of a and b.
#define SIMULATOR_SIMD_OF(name, Type, expression)                                           \
    SIMULATOR_INLINE unsigned name(unsigned a, unsigned b) {                                \
        using Lane [[maybe_unused]] = Type;                                                 \
        return simulator::each_lane<Type>(a, b, [](int x, int y) { return (expression); }); \
    }
#define SIMULATOR_SIMD_UNARY_OF(name, Type, expression)                                   \
    SIMULATOR_INLINE unsigned name(unsigned a) {                                          \
        using Lane [[maybe_unused]] = Type;                                               \
        return simulator::each_lane<Type>(a, 0, [](int x, int) { return (expression); }); \
    }
#define SIMULATOR_SIMD(name, Int, expression)                \
    SIMULATOR_SIMD_OF(__v##name##2, Int##16_t, (expression)) \
    SIMULATOR_SIMD_OF(__v##name##4, Int##8_t, (expression))
#define SIMULATOR_SIMD_UNARY(name, expression)                   \
    SIMULATOR_SIMD_UNARY_OF(__v##name##2, int16_t, (expression)) \
    SIMULATOR_SIMD_UNARY_OF(__v##name##4, int8_t, (expression))
#define SIMULATOR_SIMD_COMPARE(name, Int, op)    \
    SIMULATOR_SIMD(cmp##name, Int, -int(x op y)) \
    SIMULATOR_SIMD(set##name, Int, int(x op y))

SIMULATOR_SIMD_UNARY(abs, x < 0 ? -x : x)
SIMULATOR_SIMD_UNARY(absss, simulator::clamp_to<Lane>(x < 0 ? -x : x))
SIMULATOR_SIMD_UNARY(neg, -x)
SIMULATOR_SIMD_UNARY(negss, simulator::clamp_to<Lane>(-x))
SIMULATOR_SIMD(add, int, x + y)
SIMULATOR_SIMD(addss, int, simulator::clamp_to<Lane>(x + y))
SIMULATOR_SIMD(addus, uint, simulator::clamp_to<Lane>(x + y))
SIMULATOR_SIMD(sub, int, x - y)
SIMULATOR_SIMD(subss, int, simulator::clamp_to<Lane>(x - y))
SIMULATOR_SIMD(subus, uint, simulator::clamp_to<Lane>(x - y))
SIMULATOR_SIMD(avgs, int, (x + y + (x + y >= 0)) >> 1)  // a half is rounded away from 0
SIMULATOR_SIMD(avgu, uint, (x + y + 1) >> 1)
SIMULATOR_SIMD(haddu, uint, (x + y) >> 1)
SIMULATOR_SIMD(absdiffs, int, x > y ? x - y : y - x)
SIMULATOR_SIMD(absdiffu, uint, x > y ? x - y : y - x)
SIMULATOR_SIMD(maxs, int, x > y ? x : y)
SIMULATOR_SIMD(maxu, uint, x > y ? x : y)
SIMULATOR_SIMD(mins, int, x < y ? x : y)
SIMULATOR_SIMD(minu, uint, x < y ? x : y)
SIMULATOR_SIMD_COMPARE(eq, uint, ==)
SIMULATOR_SIMD_COMPARE(ne, uint, !=)
SIMULATOR_SIMD_COMPARE(ges, int, >=)
SIMULATOR_SIMD_COMPARE(geu, uint, >=)
SIMULATOR_SIMD_COMPARE(gts, int, >)
SIMULATOR_SIMD_COMPARE(gtu, uint, >)
SIMULATOR_SIMD_COMPARE(les, int, <=)
SIMULATOR_SIMD_COMPARE(leu, uint, <=)
SIMULATOR_SIMD_COMPARE(lts, int, <)
SIMULATOR_SIMD_COMPARE(ltu, uint, <)

#define SIMULATOR_SIMD_SUM(name, Lane)                       \
    SIMULATOR_INLINE unsigned name(unsigned a, unsigned b) { \
        return simulator::lane_differences<Lane>(a, b);      \
    }
SIMULATOR_SIMD_SUM(__vsads2, int16_t)
SIMULATOR_SIMD_SUM(__vsadu2, uint16_t)
SIMULATOR_SIMD_SUM(__vsads4, int8_t)
SIMULATOR_SIMD_SUM(__vsadu4, uint8_t)

// DPX: maxima and minima of two or three, of a sum and a third, with 0 besides (relu).
#define SIMULATOR_DPX_2(name, op)                              \
    SIMULATOR_INLINE int __vi##name##_s32_relu(int a, int b) { \
        const int best = a op b ? a : b;                       \
        return best > 0 ? best : 0;                            \
    }                                                          \
    SIMULATOR_SIMD_OF(__vi##name##_s16x2_relu, int16_t, (x op y ? x : y) > 0 ? (x op y ? x : y) : 0)
#define SIMULATOR_DPX_3(name, op, single)                                                          \
    SIMULATOR_INLINE int __vi##name##3_s32(int a, int b, int c) {                                  \
        const int best = a op b ? a : b;                                                           \
        return best op c ? best : c;                                                               \
    }                                                                                              \
    SIMULATOR_INLINE unsigned __vi##name##3_u32(unsigned a, unsigned b, unsigned c) {              \
        const unsigned best = a op b ? a : b;                                                      \
        return best op c ? best : c;                                                               \
    }                                                                                              \
    SIMULATOR_INLINE unsigned __vi##name##3_s16x2(unsigned a, unsigned b, unsigned c) {            \
        return __v##name##s2(__v##name##s2(a, b), c);                                              \
    }                                                                                              \
    SIMULATOR_INLINE unsigned __vi##name##3_u16x2(unsigned a, unsigned b, unsigned c) {            \
        return __v##name##u2(__v##name##u2(a, b), c);                                              \
    }                                                                                              \
    SIMULATOR_INLINE int __vi##name##3_s32_relu(int a, int b, int c) {                             \
        return __vi##name##_s32_relu(a op b ? a : b, c);                                           \
    }                                                                                              \
    SIMULATOR_INLINE unsigned __vi##name##3_s16x2_relu(unsigned a, unsigned b, unsigned c) {       \
        return __vi##name##_s16x2_relu(__v##name##s2(a, b), c);                                    \
    }                                                                                              \
    SIMULATOR_INLINE int __viadd##name##_s32(int a, int b, int c) {                                \
        const int sum = int(unsigned(a) + unsigned(b));                                            \
        return sum op c ? sum : c;                                                                 \
    }                                                                                              \
    SIMULATOR_INLINE unsigned __viadd##name##_u32(unsigned a, unsigned b, unsigned c) {            \
        return a + b op c ? a + b : c;                                                             \
    }                                                                                              \
    SIMULATOR_INLINE unsigned __viadd##name##_s16x2(unsigned a, unsigned b, unsigned c) {          \
        return __v##name##s2(__vadd2(a, b), c);                                                    \
    }                                                                                              \
    SIMULATOR_INLINE unsigned __viadd##name##_u16x2(unsigned a, unsigned b, unsigned c) {          \
        return __v##name##u2(__vadd2(a, b), c);                                                    \
    }                                                                                              \
    SIMULATOR_INLINE int __viadd##name##_s32_relu(int a, int b, int c) {                           \
        return __vi##name##_s32_relu(int(unsigned(a) + unsigned(b)), c);                           \
    }                                                                                              \
    SIMULATOR_INLINE unsigned __viadd##name##_s16x2_relu(unsigned a, unsigned b, unsigned c) {     \
        return __vi##name##_s16x2_relu(__vadd2(a, b), c);                                          \
    }                                                                                              \
    SIMULATOR_INLINE int __vib##name##_s32(int a, int b, bool* first) {                            \
        *first = a single b;                                                                       \
        return *first ? a : b;                                                                     \
    }                                                                                              \
    SIMULATOR_INLINE unsigned __vib##name##_u32(unsigned a, unsigned b, bool* first) {             \
        *first = a single b;                                                                       \
        return *first ? a : b;                                                                     \
    }                                                                                              \
    SIMULATOR_INLINE unsigned __vib##name##_s16x2(unsigned a, unsigned b, bool* high, bool* low) { \
        *high = int16_t(a >> 16) single int16_t(b >> 16);                                          \
        *low = int16_t(a) single int16_t(b);                                                       \
        return __v##name##s2(a, b);                                                                \
    }                                                                                              \
    SIMULATOR_INLINE unsigned __vib##name##_u16x2(unsigned a, unsigned b, bool* high, bool* low) { \
        *high = uint16_t(a >> 16) single uint16_t(b >> 16);                                        \
        *low = uint16_t(a) single uint16_t(b);                                                     \
        return __v##name##u2(a, b);                                                                \
    }
SIMULATOR_DPX_2(max, >)
SIMULATOR_DPX_2(min, <)
SIMULATOR_DPX_3(max, >, >=)
SIMULATOR_DPX_3(min, <, <=)
#undef SIMULATOR_DPX_3
#undef SIMULATOR_DPX_2
#undef SIMULATOR_SIMD_SUM
#undef SIMULATOR_SIMD_COMPARE
#undef SIMULATOR_SIMD_UNARY
#undef SIMULATOR_SIMD
#undef SIMULATOR_SIMD_UNARY_OF
#undef SIMULATOR_SIMD_OF
