// The registers of PTX: words of plain bits. Functions know by a type's name what the bits mean.
#pragma once
#include <stdint.h>
#include "../atomics.h"

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

template <class T>
using Word = typename simulator::Word<sizeof(T)>::type;

// What a register of so many bits holds of an operand: an integer is converted, anything else is
// taken bit by bit.
template <class W, class T>
SIMULATOR_INLINE W bits(const T& value) {
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
SIMULATOR_INLINE W bits(T* value) {
    return W(reinterpret_cast<uintptr_t>(value));
}

template <class T>
SIMULATOR_INLINE constexpr auto immediate(T value) {
    if constexpr (__is_enum(T))
        return int64_t(value);
    else
        return value;
}

template <class T, class W>
SIMULATOR_INLINE void put(T& variable, W word) {
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
SIMULATOR_INLINE Word<T> word(T value) {
    Word<T> bits;
    __builtin_memcpy(&bits, &value, sizeof(T));
    return bits;
}

// Where an operand is; null for a value that is nowhere.
template <class T>
SIMULATOR_INLINE const void* place_of(T& operand) {
    return &operand;
}
template <class T>
SIMULATOR_INLINE const void* place_of(const T&&) {
    return nullptr;
}

// PTX that the simulator does not know, in a macro.
[[noreturn]] SIMULATOR_INLINE void unknown(const char* reason, SIMULATOR_CALLER) {
    fail(reason, "asm", file, line);
}

// `_`, where a result is not wanted.
struct Sink {
    template <class T>
    void operator=(T) {}
};

}  // namespace simulator::ptx
