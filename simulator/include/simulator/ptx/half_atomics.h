// Atomic sums, minima and maxima of half types, and of pairs of them.
#pragma once
#include "../../cuda_bf16.h"
#include "../../cuda_fp16.h"
#include "memory_order.h"

namespace simulator::ptx {

template <class T>
SIMULATOR_INLINE Word<T> __ptx_atomic_add_half(char* p, Word<T> b) {
    return atomic<T>(p, [b](T a) { return __hadd_rn(a, as<T>(b)); });
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_atomic_add_pair(char* p, Word<T> b) {
    return atomic<T>(p, [b](T a) { return __hadd2_rn(a, as<T>(b)); });
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_atomic_min_half(char* p, Word<T> b) {
    return atomic<T>(p, [b](T a) { return __hmin(a, as<T>(b)); });
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_atomic_max_half(char* p, Word<T> b) {
    return atomic<T>(p, [b](T a) { return __hmax(a, as<T>(b)); });
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_atomic_min_pair(char* p, Word<T> b) {
    return atomic<T>(p, [b](T a) { return __hmin2(a, as<T>(b)); });
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_atomic_max_pair(char* p, Word<T> b) {
    return atomic<T>(p, [b](T a) { return __hmax2(a, as<T>(b)); });
}

}  // namespace simulator::ptx
