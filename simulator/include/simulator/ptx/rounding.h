// The rounding modes of PTX.
#pragma once
#include "../rounding.h"
#include "floats.h"

namespace simulator::ptx {

enum class Round { rn, rz, rm, rp };
SIMULATOR_NAMED(Round, rn)
SIMULATOR_NAMED(Round, rz)
SIMULATOR_NAMED(Round, rm)
SIMULATOR_NAMED(Round, rp)

// Not fused with what stands around it.
template <class T>
SIMULATOR_INLINE T alone(T x) {
#ifdef __x86_64__
    asm("" : "+x"(x));
#else
    asm("" : "+w"(x));
#endif
    return x;
}

// compute(operands...), rounded so.
template <Round mode, class Compute, class... T>
SIMULATOR_INLINE auto with_rounding(Compute compute, T... operands) {
    if constexpr (mode == Round::rn) {
        return alone(compute(operands...));
    } else {
        constexpr Rounding rounding =
            mode == Round::rz   ? Rounding::Zero
            : mode == Round::rm ? Rounding::Down
                                : Rounding::Up;
        return rounded<rounding>(compute, operands...);
    }
}
#define SIMULATOR_ALWAYS_INLINE __attribute__((always_inline))

// A number without a fraction, by one of the modes.
template <Round mode, class T>
SIMULATOR_INLINE T whole(T x) {
    if constexpr (__is_same(T, float)) {
        if constexpr (mode == Round::rn) return __builtin_rintf(x);
        if constexpr (mode == Round::rz) return __builtin_truncf(x);
        if constexpr (mode == Round::rm) return __builtin_floorf(x);
        return __builtin_ceilf(x);
    } else {
        if constexpr (mode == Round::rn) return __builtin_rint(x);
        if constexpr (mode == Round::rz) return __builtin_trunc(x);
        if constexpr (mode == Round::rm) return __builtin_floor(x);
        return __builtin_ceil(x);
    }
}

}  // namespace simulator::ptx
