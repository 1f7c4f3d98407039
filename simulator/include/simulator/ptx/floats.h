// The forms of f32 and f64: numbers below the normal ones, NaN, and what .sat leaves.
#pragma once
#include "values.h"

namespace simulator::ptx {

template <class T>
constexpr Word<T> sign_bit = Word<T>(1) << (8 * sizeof(T) - 1);

// What .ftz makes of a number without a leading one.
template <class T>
SIMULATOR_INLINE Word<T> __ptx_flush(Word<T> x) {
    if constexpr (sizeof(T) == 4)
        return x & 0x7f800000 ? x : x & 0x80000000;
    else
        return x & 0x7ff0000000000000 ? x : x & 0x8000000000000000;
}
// A NaN of f32 has one form only.
template <class T>
SIMULATOR_INLINE Word<T> canonical(T x) {
    return sizeof(T) == 4 && x != x ? Word<T>(0x7fffffff) : __ptx_word(x);
}
// .sat: a NaN gives 0.
template <class T>
SIMULATOR_INLINE Word<T> __ptx_saturated(Word<T> x) {
    const T value = as<T>(x);
    return __ptx_word(value > 0 ? (value < 1 ? value : T(1)) : T(0));
}

}  // namespace simulator::ptx
