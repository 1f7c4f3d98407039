// f16 and bf16, and two of them in a register.
#pragma once
#include "../../cuda_bf16.h"
#include "../../cuda_fp16.h"
#include "rounding.h"

namespace simulator::ptx {

using f16 = __half;
using bf16 = __nv_bfloat16;
using f16x2 = __half2;
using bf16x2 = __nv_bfloat162;
SIMULATOR_TYPE(f16)
SIMULATOR_TYPE(bf16)
SIMULATOR_TYPE(f16x2)
SIMULATOR_TYPE(bf16x2)

template <class T>
struct ElementOf {
    using type = T;
};
template <class Format>
struct ElementOf<HalfPair<Format>> {
    using type = Half<Format>;
};
template <class T>
using Element = typename ElementOf<T>::type;

template <class Format>
SIMULATOR_INLINE u16 canonical(Half<Format> x) {
    return float(x) != float(x) ? u16(0x7fff) : x.bits;
}

// What a function of numbers makes of each, of words that hold one or two.
template <class T, class Compute, class... W>
SIMULATOR_INLINE Word<T> each(Compute compute, W... words) {
    using E = Element<T>;
    const u16 low = canonical(E(compute(E::of_bits(u16(words))...)));
    if constexpr (sizeof(T) == 2)
        return low;
    else
        return low | u32(canonical(E(compute(E::of_bits(u16(words >> 16))...)))) << 16;
}

SIMULATOR_INLINE u16 __ptx_low(u32 pair) { return u16(pair); }
SIMULATOR_INLINE u16 __ptx_high(u32 pair) { return u16(pair >> 16); }

template <class T>
SIMULATOR_INLINE Word<T> __ptx_half_flush(Word<T> a) {
    constexpr u32 exponent = __is_same(Element<T>, f16) ? 0x7c00 : 0x7f80;
    u32 kept = a & exponent ? 0xffff : 0x8000;
    if constexpr (sizeof(T) == 4) kept |= (a >> 16 & exponent ? 0xffffu : 0x8000u) << 16;
    return Word<T>(a & kept);
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_half_saturated(Word<T> a) {
    return each<T>([](auto x) { return __saturatef(x); }, a);
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_half_relu(Word<T> a) {
    return each<T>([](auto x) { return float(x) < 0 || x.bits == 0x8000 ? x.of_bits(0) : x; }, a);
}

}  // namespace simulator::ptx
