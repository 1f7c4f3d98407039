// Registers put together and taken apart, and two written by one instruction.
#pragma once
#include "values.h"

namespace simulator::ptx {

// The first part is the lowest.
template <class T, class... Parts>
SIMULATOR_INLINE Word<T> __ptx_pack(Parts... parts) {
    using Part = typename simulator::Word<sizeof(T) / sizeof...(Parts)>::type;
    Word<T> whole = 0;
    int at = 0;
    ((whole |= Word<T>(Word<T>(Part(parts)) << at), at += 8 * sizeof(Part)), ...);
    return whole;
}
template <class T, class... Parts>
SIMULATOR_INLINE void __ptx_unpack(Word<T> whole, Parts&... parts) {
    using Part = typename simulator::Word<sizeof(T) / sizeof...(Parts)>::type;
    int at = 0;
    ((parts = Part(whole >> at), at += 8 * sizeof(Part)), ...);
}

// Both are worked out before either is written, since one of them may be an operand.
template <class P, class Q, class First, class Second>
SIMULATOR_INLINE void __ptx_put_both(P& p, Q& q, First first, Second second) {
    p = first;
    q = second;
}

}  // namespace simulator::ptx
