// Loads and stores that other threads take part in (volatile, relaxed, acquire, release), and
// atomic operations.
#pragma once
#include "../cuda/waiting.h"
#include "memory.h"

namespace simulator::ptx {

// A thread that loads the same again waits for somebody to change it.
template <class T, int count = 1>
SIMULATOR_INLINE Vector<T, count> __ptx_load_ordered(const char* p, SIMULATOR_CALLER) {
    Vector<T, count> values;
    for (int i = 0; i < count; i++) {
        Word<T> bits;
        if constexpr (sizeof(T) <= 8)
            bits = __atomic_load_n(reinterpret_cast<const Word<T>*>(p) + i, of_kernel);
        else
            bits = reinterpret_cast<const Word<T>*>(p)[i];
        values.values[i] = as<T>(bits);
    }
    let_others_change(p, uint64_t(__ptx_word(values.values[0])), "ld", file, line);
    return values;
}

template <class T, int count>
SIMULATOR_INLINE void __ptx_store_ordered(char* p, const Vector<T, count>& values) {
    for (int i = 0; i < count; i++) {
        if constexpr (sizeof(T) <= 8)
            __atomic_store_n(reinterpret_cast<T*>(p) + i, values.values[i], __ATOMIC_SEQ_CST);
        else
            reinterpret_cast<T*>(p)[i] = values.values[i];
    }
}

// Replaces what is there by `change` of it, and returns what was there.
template <class T, int order = __ATOMIC_SEQ_CST, class Change>
SIMULATOR_INLINE Word<T> atomic(char* p, Change change) {
    if constexpr (sizeof(T) == 16) {  // for which the other functions need a library
        const auto place = reinterpret_cast<Word<T>*>(p);
        Word<T> old = *place, seen;
        while ((seen = __sync_val_compare_and_swap(place, old, change(old))) != old) old = seen;
        return old;
    } else {
        return __ptx_word(atomic_update<order>(reinterpret_cast<T*>(p), change));
    }
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_atomic_add(char* p, Word<T> b) {
    constexpr int order = __is_same(T, float) ? told_by_order : __ATOMIC_SEQ_CST;
    return atomic<T, order>(p, [b](T a) { return T(a + as<T>(b)); });
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_atomic_min(char* p, Word<T> b) {
    return atomic<T>(p, [b](T a) { return as<T>(b) < a ? as<T>(b) : a; });
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_atomic_max(char* p, Word<T> b) {
    return atomic<T>(p, [b](T a) { return as<T>(b) > a ? as<T>(b) : a; });
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_atomic_and(char* p, Word<T> b) {
    return atomic<T>(p, [b](T a) { return T(a & b); });
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_atomic_or(char* p, Word<T> b) {
    return atomic<T>(p, [b](T a) { return T(a | b); });
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_atomic_xor(char* p, Word<T> b) {
    return atomic<T>(p, [b](T a) { return T(a ^ b); });
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_atomic_exch(char* p, Word<T> b) {
    if constexpr (sizeof(T) == 16)
        return atomic<T>(p, [b](T) { return as<T>(b); });
    else
        return atomic_swap(reinterpret_cast<Word<T>*>(p), b);
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_atomic_inc(char* p, Word<T> b) {
    return atomic<T>(p, [b](T a) { return a >= b ? 0 : a + 1; });
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_atomic_dec(char* p, Word<T> b) {
    return atomic<T>(p, [b](T a) { return a == 0 || a > b ? b : a - 1; });
}
// A thread whose exchange fails may wait for another of its block.
template <class T>
SIMULATOR_INLINE Word<T> __ptx_atomic_cas(char* p, Word<T> expected, Word<T> desired,
                                          SIMULATOR_CALLER) {
    const auto place = reinterpret_cast<Word<T>*>(p);
    if constexpr (sizeof(T) == 16) {
        const Word<T> old = __sync_val_compare_and_swap(place, expected, desired);
        if (old != expected) let_others_go("atom.cas", file, line);
        return old;
    } else {
        if (!__atomic_compare_exchange_n(
                place, &expected, desired, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            let_others_go("atom.cas", file, line);
        return expected;
    }
}

}  // namespace simulator::ptx
