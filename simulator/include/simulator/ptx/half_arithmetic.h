// Arithmetic with f16 and bf16, alone and in twos.
#pragma once
#include "half_types.h"

namespace simulator::ptx {

#define SIMULATOR_HALVES(name, expression)                               \
    template <class T>                                                   \
    SIMULATOR_INLINE Word<T> __ptx_half_##name(Word<T> a, Word<T> b) {   \
        return each<T>([](auto x, auto y) { return expression; }, a, b); \
    }
SIMULATOR_HALVES(add, x + y)
SIMULATOR_HALVES(sub, x - y)
SIMULATOR_HALVES(mul, x* y)
#undef SIMULATOR_HALVES

template <class T>
SIMULATOR_INLINE Word<T> __ptx_half_fma(Word<T> a, Word<T> b, Word<T> c) {
    return each<T>([](auto x, auto y, auto z) { return __hfma(x, y, z); }, a, b, c);
}
template <class T>
constexpr Word<T> half_signs = sizeof(T) == 2 ? 0x8000 : 0x80008000;
template <class T>
SIMULATOR_INLINE Word<T> __ptx_half_abs(Word<T> a) {
    return a & ~half_signs<T>;
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_half_neg(Word<T> a) {
    return a ^ half_signs<T>;
}
template <class T, bool is_greatest, bool keeps_nan>
SIMULATOR_INLINE Word<T> __ptx_half_extreme(Word<T> a, Word<T> b) {
    return each<T>(
        [](auto x, auto y) {
            return keeps_nan ? half_extreme_or_nan(x, y, is_greatest)
                             : ::simulator::half_extreme(x, y, is_greatest);
        },
        a, b);
}
template <class T, bool is_greatest, bool keeps_nan>
SIMULATOR_INLINE Word<T> __ptx_half_extreme_xorsign(Word<T> a, Word<T> b) {
    return each<T>(
        [](auto x, auto y) {
            const auto size = x.of_bits(__ptx_half_extreme<Element<T>, is_greatest, keeps_nan>(
                x.bits & 0x7fff, y.bits & 0x7fff));
            return x.of_bits(size.bits | ((x.bits ^ y.bits) & 0x8000));
        },
        a, b);
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_half_tanh(Word<T> a) {
    return each<T>([](auto x) { return htanh(x); }, a);
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_half_ex2(Word<T> a) {
    return each<T>([](auto x) { return hexp2(x); }, a);
}

}  // namespace simulator::ptx
