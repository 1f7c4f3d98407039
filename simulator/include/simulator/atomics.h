// Atomic functions on the types for which CUDA has them. Blocks run on several cores at once, so
// they are atomic in earnest.
#pragma once
#include "barrier.h"

namespace simulator {

template <size_t size>
struct Word;
template <>
struct Word<1> {
    using type = uint8_t;
};
template <>
struct Word<2> {
    using type = uint16_t;
};
template <>
struct Word<4> {
    using type = uint32_t;
};
template <>
struct Word<8> {
    using type = uint64_t;
};
template <>
struct Word<16> {
    using type = unsigned __int128;
};

template <class To, class From>
SIMULATOR_INLINE To bit_cast(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    __builtin_memcpy(static_cast<void*>(&to), &from, sizeof(To));
    return to;
}

// With this order, which costs what the strongest does, an atomic tells the checker that on a GPU
// it adds the constant 1, or that it is a loop.
constexpr int told_by_order = __ATOMIC_ACQ_REL;

// Replaces *address by change(*address) and returns the old value.
template <int order = __ATOMIC_SEQ_CST, class T, class Change>
SIMULATOR_INLINE T atomic_update(T* address, Change change) {
    using Bits = typename Word<sizeof(T)>::type;
    auto word = reinterpret_cast<Bits*>(address);
    Bits old = __atomic_load_n(word, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(
        word, &old, simulator::bit_cast<Bits>(T(change(simulator::bit_cast<T>(old)))), true, order,
        __ATOMIC_RELAXED)) {
    }
    return simulator::bit_cast<T>(old);
}

template <class T>
SIMULATOR_INLINE T atomic_add(T* address, T value, int) {  // with an order, as __atomic_fetch_add
    if (__builtin_constant_p(value == 1) && value == 1)
        return __atomic_fetch_add(address, value, told_by_order);
    return __atomic_fetch_add(address, value, __ATOMIC_SEQ_CST);
}

template <class T>
SIMULATOR_INLINE T atomic_swap(T* address, T value, int order = __ATOMIC_SEQ_CST) {
    using Bits = typename Word<sizeof(T)>::type;
    const auto word = reinterpret_cast<Bits*>(address);
    const Bits old = __atomic_exchange_n(word, simulator::bit_cast<Bits>(value), order);
    return simulator::bit_cast<T>(Bits(used(old)));
}

template <bool>
struct If;
template <>
struct If<true> {
    using type = int;
};
// c10::Half, c10::BFloat16, __half, __nv_bfloat16 and their pairs, which have + but no operator for
// `atomic`.
template <class T>
using IfHalf = typename If<__is_class(T) && (sizeof(T) == 2 || sizeof(T) == 4)>::type;

}  // namespace simulator

#define SIMULATOR_ATOMIC(name, T, expression) \
    SIMULATOR_ATOMIC_UPDATE(name, T, expression, __ATOMIC_SEQ_CST)
#define SIMULATOR_ATOMIC_LOOP(name, T, expression) \
    SIMULATOR_ATOMIC_UPDATE(name, T, expression, simulator::told_by_order)
#define SIMULATOR_ATOMIC_UPDATE(name, T, expression, order)                                      \
    SIMULATOR_INLINE T name(T* address, T value) {                                               \
        return simulator::atomic_update<order>(address, [=](T old) -> T { return expression; }); \
    }                                                                                            \
    SIMULATOR_INLINE T name##_block(T* address, T value) {                                       \
        simulator::announce(simulator::Scope::Block);                                            \
        return name(address, value);                                                             \
    }                                                                                            \
    SIMULATOR_INLINE T name##_system(T* address, T value) { return name(address, value); }
#define SIMULATOR_ATOMIC_BUILTIN(name, T, builtin)         \
    SIMULATOR_INLINE T name(T* address, T value) {         \
        return builtin(address, value, __ATOMIC_SEQ_CST);  \
    }                                                      \
    SIMULATOR_INLINE T name##_block(T* address, T value) { \
        simulator::announce(simulator::Scope::Block);      \
        return name(address, value);                       \
    }                                                      \
    SIMULATOR_INLINE T name##_system(T* address, T value) { return name(address, value); }

SIMULATOR_ATOMIC_BUILTIN(atomicAdd, int, simulator::atomic_add)
SIMULATOR_ATOMIC_BUILTIN(atomicAdd, unsigned, simulator::atomic_add)
SIMULATOR_ATOMIC_BUILTIN(atomicAdd, unsigned long long, __atomic_fetch_add)
SIMULATOR_ATOMIC_LOOP(atomicAdd, float, old + value)
SIMULATOR_ATOMIC_LOOP(atomicAdd, double, old + value)
SIMULATOR_ATOMIC_BUILTIN(atomicSub, int, __atomic_fetch_sub)
SIMULATOR_ATOMIC_BUILTIN(atomicSub, unsigned, __atomic_fetch_sub)
SIMULATOR_ATOMIC_BUILTIN(atomicExch, int, simulator::atomic_swap)
SIMULATOR_ATOMIC_BUILTIN(atomicExch, unsigned, simulator::atomic_swap)
SIMULATOR_ATOMIC_BUILTIN(atomicExch, unsigned long long, simulator::atomic_swap)
SIMULATOR_ATOMIC_BUILTIN(atomicExch, float, simulator::atomic_swap)
SIMULATOR_ATOMIC(atomicInc, unsigned, old >= value ? 0 : old + 1)
SIMULATOR_ATOMIC(atomicDec, unsigned, old == 0 || old > value ? value : old - 1)
#define SIMULATOR_ATOMIC_INTEGERS(T)                          \
    SIMULATOR_ATOMIC(atomicMin, T, value < old ? value : old) \
    SIMULATOR_ATOMIC(atomicMax, T, value > old ? value : old)
SIMULATOR_ATOMIC_INTEGERS(int)
SIMULATOR_ATOMIC_INTEGERS(unsigned)
SIMULATOR_ATOMIC_INTEGERS(long long)
SIMULATOR_ATOMIC_INTEGERS(unsigned long long)
#define SIMULATOR_ATOMIC_BITS(T)                               \
    SIMULATOR_ATOMIC_BUILTIN(atomicAnd, T, __atomic_fetch_and) \
    SIMULATOR_ATOMIC_BUILTIN(atomicOr, T, __atomic_fetch_or)   \
    SIMULATOR_ATOMIC_BUILTIN(atomicXor, T, __atomic_fetch_xor)
SIMULATOR_ATOMIC_BITS(int)
SIMULATOR_ATOMIC_BITS(unsigned)
SIMULATOR_ATOMIC_BITS(long long)
SIMULATOR_ATOMIC_BITS(unsigned long long)
#undef SIMULATOR_ATOMIC_BITS
#undef SIMULATOR_ATOMIC_INTEGERS
#undef SIMULATOR_ATOMIC_BUILTIN
#undef SIMULATOR_ATOMIC
#undef SIMULATOR_ATOMIC_LOOP
#undef SIMULATOR_ATOMIC_UPDATE

// Half types of any make: CUDA's own, their pairs, and PyTorch's.
template <class T, class = simulator::IfHalf<T>>
SIMULATOR_INLINE T atomicAdd(T* address, T value) {
    return simulator::atomic_update<simulator::told_by_order>(
        address, [=](T old) -> T { return old + value; });
}

// Vectors of float, part by part, as on compute capability 9.0.
SIMULATOR_INLINE float2 atomicAdd(float2* address, float2 value) {
    return {atomicAdd(&address->x, value.x), atomicAdd(&address->y, value.y)};
}
SIMULATOR_INLINE float4 atomicAdd(float4* address, float4 value) {
    return {atomicAdd(&address->x, value.x), atomicAdd(&address->y, value.y),
            atomicAdd(&address->z, value.z), atomicAdd(&address->w, value.w)};
}
template <class T, class = decltype(atomicAdd((T*)nullptr, T()))>
SIMULATOR_INLINE T atomicAdd_block(T* address, T value) {
    simulator::announce(simulator::Scope::Block);
    return atomicAdd(address, value);
}
template <class T, class = decltype(atomicAdd((T*)nullptr, T()))>
SIMULATOR_INLINE T atomicAdd_system(T* address, T value) {
    return atomicAdd(address, value);
}

// A thread whose exchange fails may be spinning on a lock that another thread of its block holds.
#define SIMULATOR_ATOMIC_CAS(name, T, scope)                                          \
    SIMULATOR_INLINE T name(T* address, T compare, T value, SIMULATOR_CALLER) {       \
        simulator::announce(simulator::Scope::scope);                                 \
        if (!__atomic_compare_exchange_n(                                             \
                address, &compare, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) \
            simulator::pause("atomicCAS", file, line);                                \
        return compare;                                                               \
    }
#define SIMULATOR_ATOMIC_CASES(T)                   \
    SIMULATOR_ATOMIC_CAS(atomicCAS, T, Device)      \
    SIMULATOR_ATOMIC_CAS(atomicCAS_block, T, Block) \
    SIMULATOR_ATOMIC_CAS(atomicCAS_system, T, Device)
SIMULATOR_ATOMIC_CASES(int)
SIMULATOR_ATOMIC_CASES(unsigned)
SIMULATOR_ATOMIC_CASES(unsigned long long)
SIMULATOR_ATOMIC_CASES(unsigned short)
#undef SIMULATOR_ATOMIC_CASES
#undef SIMULATOR_ATOMIC_CAS

// Of any type of 16 bytes, as on compute capability 9.0.
namespace simulator {
template <class T>
using If16 = typename If<__is_trivially_copyable(T) && sizeof(T) == 16 && alignof(T) == 16>::type;
template <class T>
SIMULATOR_INLINE T compare_and_swap(T* address, T compare, T value) {
    using Bits = unsigned __int128;
    return bit_cast<T>(__sync_val_compare_and_swap(
        reinterpret_cast<Bits*>(address), bit_cast<Bits>(compare), bit_cast<Bits>(value)));
}
}  // namespace simulator
#define SIMULATOR_ATOMIC_16(scope)                                                           \
    template <class T, class = simulator::If16<T>>                                           \
    SIMULATOR_INLINE T atomicCAS##scope(T* address, T compare, T value, SIMULATOR_CALLER) {  \
        const T old = simulator::compare_and_swap(address, compare, value);                  \
        if (__builtin_memcmp(&old, &compare, 16)) simulator::pause("atomicCAS", file, line); \
        return old;                                                                          \
    }                                                                                        \
    template <class T, class = simulator::If16<T>>                                           \
    SIMULATOR_INLINE T atomicExch##scope(T* address, T value) {                              \
        T expected = *address, old = simulator::compare_and_swap(address, expected, value);  \
        while (__builtin_memcmp(&old, &expected, 16)) {                                      \
            expected = old;                                                                  \
            old = simulator::compare_and_swap(address, expected, value);                     \
        }                                                                                    \
        return old;                                                                          \
    }
SIMULATOR_ATOMIC_16()
SIMULATOR_ATOMIC_16(_block)
SIMULATOR_ATOMIC_16(_system)
#undef SIMULATOR_ATOMIC_16
