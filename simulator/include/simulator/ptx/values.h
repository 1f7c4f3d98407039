// The registers of PTX: words of plain bits. Functions know by a type's name what the bits mean.
//
// What a translated statement names begins with `__ptx_`, here and in the headers beside this one:
// it stands in a user's source, where any other name may be a macro.
#pragma once
#include <stdint.h>
#include "../atomics.h"

namespace simulator {
namespace ptx {}
namespace __ptx = ptx;
}  // namespace simulator

namespace simulator::ptx {

using b8 = uint8_t;
using b16 = uint16_t;
using b32 = uint32_t;
using b64 = uint64_t;
using b128 = unsigned __int128;
using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using s8 = int8_t;
using s16 = int16_t;
using s32 = int32_t;
using s64 = int64_t;
using f32 = float;
using f64 = double;

#define SIMULATOR_TYPE(type) using __ptx_##type = type;
#define SIMULATOR_NAMED(kind, value) constexpr auto __ptx_##kind##_##value = kind::value;
SIMULATOR_TYPE(b8)
SIMULATOR_TYPE(b16)
SIMULATOR_TYPE(b32)
SIMULATOR_TYPE(b64)
SIMULATOR_TYPE(b128)
SIMULATOR_TYPE(u8)
SIMULATOR_TYPE(u16)
SIMULATOR_TYPE(u32)
SIMULATOR_TYPE(u64)
SIMULATOR_TYPE(s8)
SIMULATOR_TYPE(s16)
SIMULATOR_TYPE(s32)
SIMULATOR_TYPE(s64)
SIMULATOR_TYPE(f32)
SIMULATOR_TYPE(f64)
SIMULATOR_NAMED(Scope, Block)
SIMULATOR_NAMED(Scope, Device)

template <class T>
using Word = typename simulator::Word<sizeof(T)>::type;
template <class T>
using __ptx_Word = Word<T>;

// What a register of so many bits holds of an operand: an integer is converted, anything else is
// taken bit by bit.
template <class W, class T>
SIMULATOR_INLINE W __ptx_bits(const T& value) {
    if constexpr (__is_enum(T)) {
        return W(value);
    } else if constexpr (__is_same(T, float) || __is_same(T, double) || __is_class(T)) {
        static_assert(sizeof(T) == sizeof(W), "an operand's size is not that of its constraint");
        W word;
        __builtin_memcpy(&word, &value, sizeof(W));
        return word;
    } else {
        return (W)value;
    }
}

// An operand is `(a, b)[i]` to the preprocessor, and an array where a pointer is meant.
template <class W, class T>
SIMULATOR_INLINE W __ptx_bits(T* value) {
    return W(reinterpret_cast<uintptr_t>(value));
}

template <class T>
SIMULATOR_INLINE constexpr auto __ptx_immediate(T value) {
    if constexpr (__is_enum(T))
        return int64_t(value);
    else
        return value;
}

template <class T, class W>
SIMULATOR_INLINE void __ptx_put(T& variable, W word) {
    if constexpr (__is_same(T, float) || __is_same(T, double) || __is_class(T)) {
        static_assert(sizeof(T) == sizeof(W), "an operand's size is not that of its constraint");
        __builtin_memcpy(static_cast<void*>(&variable), &word, sizeof(W));
    } else {
        variable = (T)word;
    }
}

// A word as the type that it means, and back.
template <class T>
SIMULATOR_INLINE T as(Word<T> word) {
    T value;
    __builtin_memcpy(static_cast<void*>(&value), &word, sizeof(T));
    return value;
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_word(T value) {
    Word<T> bits;
    __builtin_memcpy(&bits, &value, sizeof(T));
    return bits;
}

// Where an operand is; null for a value that is nowhere.
template <class T>
SIMULATOR_INLINE const void* __ptx_place_of(T& operand) {
    return &operand;
}
template <class T>
SIMULATOR_INLINE const void* __ptx_place_of(const T&&) {
    return nullptr;
}

// PTX that the simulator does not know, in a macro.
[[noreturn]] SIMULATOR_INLINE void __ptx_unknown(const char* reason, SIMULATOR_CALLER) {
    fail(reason, "asm", file, line);
}

// `_`, where a result is not wanted.
struct __ptx_Sink {
    template <class T>
    void operator=(T) {}
};

// For the checker: for whom the next access is, and whether it acquires or releases.
SIMULATOR_INLINE void __ptx_announce(Scope scope) { announce(scope); }
SIMULATOR_INLINE void __ptx_announce_acquire() { announce_acquire(); }
SIMULATOR_INLINE void __ptx_before_release(Scope scope) { before_release(scope); }
SIMULATOR_INLINE void __ptx_fence(Scope scope) { fence(scope); }

}  // namespace simulator::ptx
