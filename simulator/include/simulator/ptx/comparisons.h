// Comparisons of numbers of any type.
#pragma once
#include "floats.h"
#include "moves.h"

namespace simulator::ptx {

// With a NaN the first six are false; those with a u, "unordered", are true.
#define SIMULATOR_COMPARE(name, expression)                                     \
    template <class T>                                                          \
    SIMULATOR_INLINE bool __ptx_compare_##name(Word<T> first, Word<T> second) { \
        const T a = as<T>(first), b = as<T>(second);                            \
        return expression;                                                      \
    }
SIMULATOR_COMPARE(eq, a == b)
SIMULATOR_COMPARE(ne, a<b || a> b)
SIMULATOR_COMPARE(lt, a < b)
SIMULATOR_COMPARE(le, a <= b)
SIMULATOR_COMPARE(gt, a > b)
SIMULATOR_COMPARE(ge, a >= b)
SIMULATOR_COMPARE(equ, !(a < b || a > b))
SIMULATOR_COMPARE(neu, !(a == b))
SIMULATOR_COMPARE(ltu, !(a >= b))
SIMULATOR_COMPARE(leu, !(a > b))
SIMULATOR_COMPARE(gtu, !(a <= b))
SIMULATOR_COMPARE(geu, !(a < b))
SIMULATOR_COMPARE(num, a == a && b == b)
SIMULATOR_COMPARE(nan, !(a == a && b == b))
#undef SIMULATOR_COMPARE

}  // namespace simulator::ptx
