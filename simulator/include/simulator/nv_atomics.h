// nvcc's atomic functions with a memory order and a thread scope, __nv_atomic_*: cuda::atomic_ref's
// operations under other names.
#pragma once
#include "cuda/atomic.h"

#define __NV_ATOMIC_RELAXED 0
#define __NV_ATOMIC_CONSUME 1
#define __NV_ATOMIC_ACQUIRE 2
#define __NV_ATOMIC_RELEASE 3
#define __NV_ATOMIC_ACQ_REL 4
#define __NV_ATOMIC_SEQ_CST 5
#define __NV_THREAD_SCOPE_THREAD 0
#define __NV_THREAD_SCOPE_BLOCK 1
#define __NV_THREAD_SCOPE_CLUSTER 2
#define __NV_THREAD_SCOPE_DEVICE 3
#define __NV_THREAD_SCOPE_SYSTEM 4

namespace simulator {

template <class T>
struct Same {  // keeps an argument from having a say in what T is
    using type = T;
};
template <class T>
struct Same<const T> {
    using type = T;
};

// act(an atomic_ref of *address); a scope is a constant, so one of the two is compiled.
template <class T, class Act>
SIMULATOR_INLINE auto in_scope(const T* address, int scope, Act act) {
    auto& value = *const_cast<T*>(address);
    if (scope <= __NV_THREAD_SCOPE_BLOCK)
        return act(::cuda::atomic_ref<T, ::cuda::thread_scope_block>(value));
    return act(::cuda::atomic_ref<T, ::cuda::thread_scope_system>(value));
}

}  // namespace simulator

#define SIMULATOR_SCOPE int scope = __NV_THREAD_SCOPE_SYSTEM

template <class T>
SIMULATOR_INLINE T __nv_atomic_load_n(const T* address, int order, SIMULATOR_SCOPE,
                                      SIMULATOR_CALLER) {
    return simulator::in_scope(address, scope, [=](auto value) {
        return value.load(::cuda::std::memory_order(order), file, line);
    });
}
template <class T>
SIMULATOR_INLINE void __nv_atomic_load(const T* address, T* result, int order, SIMULATOR_SCOPE,
                                       SIMULATOR_CALLER) {
    *result = __nv_atomic_load_n(address, order, scope, file, line);
}

template <class T>
SIMULATOR_INLINE void __nv_atomic_store_n(T* address, typename simulator::Same<T>::type value,
                                          int order, SIMULATOR_SCOPE) {
    simulator::in_scope(
        address, scope, [=](auto at) { at.store(value, ::cuda::std::memory_order(order)); });
}
template <class T>
SIMULATOR_INLINE void __nv_atomic_store(T* address, const T* value, int order, SIMULATOR_SCOPE) {
    __nv_atomic_store_n(address, *value, order, scope);
}

template <class T>
SIMULATOR_INLINE T __nv_atomic_exchange_n(T* address, typename simulator::Same<T>::type value,
                                          int order, SIMULATOR_SCOPE, SIMULATOR_CALLER) {
    return simulator::in_scope(address, scope, [=](auto at) {
        return at.exchange(value, ::cuda::std::memory_order(order), file, line);
    });
}
template <class T>
SIMULATOR_INLINE void __nv_atomic_exchange(T* address, const T* value, T* result, int order,
                                           SIMULATOR_SCOPE, SIMULATOR_CALLER) {
    *result = __nv_atomic_exchange_n(address, *value, order, scope, file, line);
}

template <class T>
SIMULATOR_INLINE bool __nv_atomic_compare_exchange_n(
    T* address, T* expected, typename simulator::Same<T>::type value, bool, int success,
    int failure, SIMULATOR_SCOPE, SIMULATOR_CALLER) {
    return simulator::in_scope(address, scope, [=](auto at) {
        return at.compare_exchange_strong(*expected, value, ::cuda::std::memory_order(success),
                                          ::cuda::std::memory_order(failure), file, line);
    });
}
template <class T>
SIMULATOR_INLINE bool __nv_atomic_compare_exchange(T* address, T* expected, const T* value,
                                                   bool weak, int success, int failure,
                                                   SIMULATOR_SCOPE, SIMULATOR_CALLER) {
    return __nv_atomic_compare_exchange_n(
        address, expected, *value, weak, success, failure, scope, file, line);
}

#define SIMULATOR_NV_ATOMIC(operation)                                                     \
    template <class T>                                                                     \
    SIMULATOR_INLINE T __nv_atomic_fetch_##operation(                                      \
        T* address, typename simulator::Same<T>::type value, int order, SIMULATOR_SCOPE) { \
        return simulator::in_scope(address, scope, [=](auto at) {                          \
            return at.fetch_##operation(value, ::cuda::std::memory_order(order));          \
        });                                                                                \
    }                                                                                      \
    template <class T>                                                                     \
    SIMULATOR_INLINE void __nv_atomic_##operation(                                         \
        T* address, typename simulator::Same<T>::type value, int order, SIMULATOR_SCOPE) { \
        __nv_atomic_fetch_##operation(address, value, order, scope);                       \
    }
SIMULATOR_NV_ATOMIC(add)
SIMULATOR_NV_ATOMIC(sub)
SIMULATOR_NV_ATOMIC(and)
SIMULATOR_NV_ATOMIC(or)
SIMULATOR_NV_ATOMIC(xor)
SIMULATOR_NV_ATOMIC(min)
SIMULATOR_NV_ATOMIC(max)
#undef SIMULATOR_NV_ATOMIC

SIMULATOR_INLINE void __nv_atomic_thread_fence(int order, SIMULATOR_SCOPE) {
    if (order == __NV_ATOMIC_RELAXED) return;
    simulator::fence(
        scope <= __NV_THREAD_SCOPE_BLOCK ? simulator::Scope::Block : simulator::Scope::Device);
}
#undef SIMULATOR_SCOPE
