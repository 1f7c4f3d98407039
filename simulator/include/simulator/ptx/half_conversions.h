// Conversions from and to f16 and bf16.
#pragma once
#include "conversions.h"
#include "half_types.h"

namespace simulator::ptx {

// Rounded once: a double holds all that the answer can depend on.
template <Round mode, class To>
SIMULATOR_INLINE u16 half_of(double x) {
    if constexpr (mode == Round::rn) return canonical(To(x));
    if constexpr (mode == Round::rz) return canonical(To::toward_zero(x));
    if constexpr (mode == Round::rm) return canonical(To::down(x));
    return canonical(To::up(x));
}
template <Round mode, class To, class From>
SIMULATOR_INLINE u16 __ptx_half_of_integer(Word<From> a) {
    return half_of<mode, To>(integer_to_odd(From(a)));
}
// From any type of floating point.
template <Round mode, class To, class From>
SIMULATOR_INLINE u16 __ptx_half_of_float(Word<From> a) {
    if constexpr (sizeof(From) == 2)
        return half_of<mode, To>(double(float(as<From>(a))));
    else
        return half_of<mode, To>(double(as<From>(a)));
}
template <Round mode, class To, class From>
SIMULATOR_INLINE To __ptx_integer_of_half(Word<From> a) {
    return integer_of_number<mode, To>(float(as<From>(a)));
}
template <class To, class From>
SIMULATOR_INLINE Word<To> __ptx_float_of_half(Word<From> a) {
    const float x = as<From>(a);
    return canonical(To(x));
}
template <Round mode, class T>
SIMULATOR_INLINE u16 __ptx_half_integral(Word<T> a) {
    return canonical(T(whole<mode>(float(as<T>(a)))));
}
// .satfinite: no infinity.
template <class T>
SIMULATOR_INLINE u16 __ptx_half_finite(u16 a) {
    constexpr u16 infinity = __is_same(T, f16) ? 0x7c00 : 0x7f80;
    return (a & 0x7fff) == infinity ? a - 1 : a;
}
SIMULATOR_INLINE u32 __ptx_join(u16 high, u16 low) { return u32(high) << 16 | low; }

}  // namespace simulator::ptx
