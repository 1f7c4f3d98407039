// Arithmetic with the integers of one thread.
#pragma once
#include "../intrinsics.h"
#include "values.h"

namespace simulator::ptx {

template <class T>
constexpr bool is_signed = T(-1) < T(0);
template <class T>
constexpr int width = 8 * sizeof(T);

// An integer of twice the width.
template <size_t bytes, bool is_signed>
struct WiderOf {
    using type = unsigned __int128;
};
template <>
struct WiderOf<2, true> {
    using type = int32_t;
};
template <>
struct WiderOf<2, false> {
    using type = uint32_t;
};
template <>
struct WiderOf<4, true> {
    using type = int64_t;
};
template <>
struct WiderOf<4, false> {
    using type = uint64_t;
};
template <>
struct WiderOf<8, true> {
    using type = __int128;
};
template <class T>
using Wider = typename WiderOf<sizeof(T), is_signed<T>>::type;

template <class T>
SIMULATOR_INLINE Word<T> __ptx_add(Word<T> a, Word<T> b) {
    return a + b;
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_sub(Word<T> a, Word<T> b) {
    return a - b;
}
SIMULATOR_INLINE u32 clamp_s32(int64_t x) {
    return u32(x < INT32_MIN ? INT32_MIN : x > INT32_MAX ? INT32_MAX : x);
}
SIMULATOR_INLINE u32 __ptx_add_sat(u32 a, u32 b) { return clamp_s32(int64_t(s32(a)) + s32(b)); }
SIMULATOR_INLINE u32 __ptx_sub_sat(u32 a, u32 b) { return clamp_s32(int64_t(s32(a)) - s32(b)); }

template <class T>
SIMULATOR_INLINE Word<Wider<T>> __ptx_mul_wide(Word<T> a, Word<T> b) {
    return Word<Wider<T>>(Wider<T>(T(a)) * T(b));
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_mul_lo(Word<T> a, Word<T> b) {
    return Word<T>(uint64_t(a) * b);
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_mul_hi(Word<T> a, Word<T> b) {
    return Word<T>(__ptx_mul_wide<T>(a, b) >> width<T>);
}
template <class T>
SIMULATOR_INLINE Word<Wider<T>> __ptx_mad_wide(Word<T> a, Word<T> b, Word<Wider<T>> c) {
    return __ptx_mul_wide<T>(a, b) + c;
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_mad_lo(Word<T> a, Word<T> b, Word<T> c) {
    return __ptx_mul_lo<T>(a, b) + c;
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_mad_hi(Word<T> a, Word<T> b, Word<T> c) {
    return __ptx_mul_hi<T>(a, b) + c;
}
SIMULATOR_INLINE u32 __ptx_mad_hi_sat(u32 a, u32 b, u32 c) {
    return __ptx_add_sat(__ptx_mul_hi<s32>(a, b), c);
}

// Of the 48 bits of the product, the lower or the upper 32.
template <class T>
SIMULATOR_INLINE uint64_t mul24(u32 a, u32 b) {
    return uint64_t(int64_t(T(a << 8) >> 8) * (T(b << 8) >> 8));
}
template <class T>
SIMULATOR_INLINE u32 __ptx_mul24_lo(u32 a, u32 b) {
    return u32(mul24<T>(a, b));
}
template <class T>
SIMULATOR_INLINE u32 __ptx_mul24_hi(u32 a, u32 b) {
    return u32(mul24<T>(a, b) >> 16);
}
template <class T>
SIMULATOR_INLINE u32 __ptx_mad24_lo(u32 a, u32 b, u32 c) {
    return __ptx_mul24_lo<T>(a, b) + c;
}
template <class T>
SIMULATOR_INLINE u32 __ptx_mad24_hi(u32 a, u32 b, u32 c) {
    return __ptx_mul24_hi<T>(a, b) + c;
}
SIMULATOR_INLINE u32 __ptx_mad24_hi_sat(u32 a, u32 b, u32 c) {
    return __ptx_add_sat(__ptx_mul24_hi<s32>(a, b), c);
}

template <class T>
SIMULATOR_INLINE Word<T> __ptx_sad(Word<T> a, Word<T> b, Word<T> c) {
    return c + (T(a) < T(b) ? b - a : a - b);
}
// The hardware has no division; the code in its place answers a 0 with ones.
template <class T>
SIMULATOR_INLINE Word<T> __ptx_quotient(Word<T> a, Word<T> b) {
    if (b == 0) return Word<T>(-1);
    if constexpr (is_signed<T>)
        if (b == Word<T>(-1)) return Word<T>(0) - a;
    return Word<T>(T(a) / T(b));
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_remainder_of(Word<T> a, Word<T> b) {
    if (b == 0) return Word<T>(-1);
    if constexpr (is_signed<T>)
        if (b == Word<T>(-1)) return 0;
    return Word<T>(T(a) % T(b));
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_negative(Word<T> a) {
    return Word<T>(0) - a;
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_magnitude(Word<T> a) {
    return T(a) < 0 ? __ptx_negative<T>(a) : a;
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_lesser(Word<T> a, Word<T> b) {
    return T(a) < T(b) ? a : b;
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_greater(Word<T> a, Word<T> b) {
    return T(a) > T(b) ? a : b;
}

// Two integers of 16 bits in a register.
#define SIMULATOR_PAIRWISE(name)                                       \
    template <class T>                                                 \
    SIMULATOR_INLINE u32 __ptx_##name##_pair(u32 a, u32 b) {           \
        return __ptx_##name<T>(u16(a), u16(b)) |                       \
               u32(__ptx_##name<T>(u16(a >> 16), u16(b >> 16))) << 16; \
    }
SIMULATOR_PAIRWISE(add)
SIMULATOR_PAIRWISE(lesser)
SIMULATOR_PAIRWISE(greater)
#undef SIMULATOR_PAIRWISE

// With a carry; that of a subtraction is a borrow.
template <class T>
SIMULATOR_INLINE Word<T> __ptx_add_carry(Word<T> a, Word<T> b, bool carry, bool& carry_out) {
    Word<T> sum;
    const bool first = __builtin_add_overflow(a, b, &sum);
    const bool second = __builtin_add_overflow(sum, Word<T>(carry), &sum);
    carry_out = first || second;
    return sum;
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_sub_carry(Word<T> a, Word<T> b, bool carry, bool& carry_out) {
    Word<T> difference;
    const bool first = __builtin_sub_overflow(a, b, &difference);
    const bool second = __builtin_sub_overflow(difference, Word<T>(carry), &difference);
    carry_out = first || second;
    return difference;
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_add_carry(Word<T> a, Word<T> b, bool carry) {
    return a + b + carry;
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_sub_carry(Word<T> a, Word<T> b, bool carry) {
    return a - b - carry;
}

// Dot products: the sum of the products of four bytes, or of two words of 16 bits with two bytes.
template <class A, class B>
SIMULATOR_INLINE u32 __ptx_dp4a(u32 a, u32 b, u32 c) {
    return dot<A, B, 4>(a, b, 0, c);
}
template <class A, class B>
SIMULATOR_INLINE u32 __ptx_dp2a_lo(u32 a, u32 b, u32 c) {
    return dot<A, B, 2>(a, b, 0, c);
}
template <class A, class B>
SIMULATOR_INLINE u32 __ptx_dp2a_hi(u32 a, u32 b, u32 c) {
    return dot<A, B, 2>(a, b, 2, c);
}

}  // namespace simulator::ptx
