// PyTorch's names for atomic functions, on the types of tensors for which CUDA has none, too.
#pragma once
#include <ATen/NumericUtils.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <c10/util/complex.h>
#include <cuda_runtime.h>

namespace simulator::torch_atomics {

template <class T>
T bytes_update(T* address, T value, T (*combine)(T, T)) {
    T old;
    __atomic_load(address, &old, __ATOMIC_RELAXED);
    T changed = combine(old, value);
    while (!__atomic_compare_exchange(
        address, &old, &changed, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
        changed = combine(old, value);
    }
    return old;
}

// NaN wins, as in PyTorch's reductions.
template <class T>
T larger(T a, T b) {
    return at::_isnan(b) || b > a ? b : a;
}
template <class T>
T smaller(T a, T b) {
    return at::_isnan(b) || b < a ? b : a;
}
template <class T>
T sum(T a, T b) {
    return T(a + b);
}
template <>
inline bool sum(bool a, bool b) {
    return a || b;
}

}  // namespace simulator::torch_atomics

template <class T>
inline T gpuAtomicAdd(T* address, T value) {
    return simulator::torch_atomics::bytes_update(address, value, simulator::torch_atomics::sum<T>);
}
template <class T>
inline void gpuAtomicAdd(c10::complex<T>* address, c10::complex<T> value) {
    gpuAtomicAdd(&reinterpret_cast<T*>(address)[0], value.real());
    gpuAtomicAdd(&reinterpret_cast<T*>(address)[1], value.imag());
}
template <class T>
inline void gpuAtomicAddNoReturn(T* address, T value) {
    gpuAtomicAdd(address, value);
}
template <class T>
inline T gpuAtomicMul(T* address, T value) {
    return simulator::torch_atomics::bytes_update(
        address, value, +[](T a, T b) { return T(a * b); });
}
template <class T>
inline T gpuAtomicMax(T* address, T value) {
    return simulator::torch_atomics::bytes_update(
        address, value, simulator::torch_atomics::larger<T>);
}
template <class T>
inline T gpuAtomicMin(T* address, T value) {
    return simulator::torch_atomics::bytes_update(
        address, value, simulator::torch_atomics::smaller<T>);
}

#define SIMULATOR_TORCH_ATOMIC_ADD(T) \
    inline void atomicAdd(T* address, T value) { gpuAtomicAdd(address, value); }
SIMULATOR_TORCH_ATOMIC_ADD(uint8_t)
SIMULATOR_TORCH_ATOMIC_ADD(int8_t)
SIMULATOR_TORCH_ATOMIC_ADD(int16_t)
SIMULATOR_TORCH_ATOMIC_ADD(int64_t)
SIMULATOR_TORCH_ATOMIC_ADD(bool)
#undef SIMULATOR_TORCH_ATOMIC_ADD
