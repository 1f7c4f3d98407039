// What a CUtensorMap holds here: a tensor in global memory, and the box of it that a copy moves.
// cuda.h makes one, and copies in bulk take it (bulk_copy.h).
#pragma once
#include <stddef.h>
#include <stdint.h>

namespace simulator {

// Numbered as CUtensorMapDataType is.
enum class TensorType : uint8_t {
    U8,
    U16,
    U32,
    S32,
    U64,
    S64,
    F16,
    F32,
    F64,
    BF16,
    F32Flush,
    TF32,
    TF32Flush
};

inline size_t size_of(TensorType type) {
    switch (type) {
        case TensorType::U8:
            return 1;
        case TensorType::U16:
        case TensorType::F16:
        case TensorType::BF16:
            return 2;
        case TensorType::U64:
        case TensorType::S64:
        case TensorType::F64:
            return 8;
        default:
            return 4;
    }
}

struct alignas(64) TensorMap {
    void* base;
    uint64_t extent[5], stride[4];  // elements, and bytes from one index of a dimension to the next
    uint16_t box[5];
    uint8_t steps[5];       // of how many elements one is taken
    uint8_t rank, swizzle;  // 0, or 32, 64 or 128 bytes
    TensorType type;
    bool fills_with_nan;
    uint32_t mark;  // that it has been encoded

    static constexpr uint32_t encoded = 0x544d4150;
};
static_assert(sizeof(TensorMap) == 128, "as large as a CUtensorMap");

// In a swizzle of so many bytes, which 16 of them an address means depends on its line of 128.
inline char* swizzled(char* address, unsigned swizzle) {
    if (!swizzle) return address;
    const uintptr_t at = reinterpret_cast<uintptr_t>(address);
    return reinterpret_cast<char*>(at ^ ((at >> 7 & (swizzle / 16 - 1)) << 4));
}

// Outside of the tensor there are zeros, or NaN if the map says so.
inline void fill_outside(char* at, size_t bytes, const TensorMap& map) {
    if (!map.fills_with_nan) {
        for (size_t i = 0; i < bytes; i++) at[i] = 0;
        return;
    }
    for (size_t i = 0; i < bytes; i++) at[i] = char(0xff);
}

// float16 and bfloat16, as far as a copy adds and compares them.
template <bool is_bfloat>
struct Half16 {
    uint16_t bits;

    float value() const {
        if constexpr (is_bfloat) {
            const uint32_t word = uint32_t(bits) << 16;
            float number;
            __builtin_memcpy(&number, &word, 4);
            return number;
        } else {
            _Float16 number;
            __builtin_memcpy(&number, &bits, 2);
            return float(number);
        }
    }
    static Half16 of(float number) {
        Half16 half;
        if constexpr (is_bfloat) {
            uint32_t word;
            __builtin_memcpy(&word, &number, 4);
            half.bits =
                number != number ? 0x7fff : uint16_t((word + 0x7fff + (word >> 16 & 1)) >> 16);
        } else {
            const _Float16 rounded = _Float16(number);
            __builtin_memcpy(&half.bits, &rounded, 2);
        }
        return half;
    }
    friend bool operator<(Half16 a, Half16 b) { return a.value() < b.value(); }
    friend Half16 operator+(Half16 a, Half16 b) { return of(a.value() + b.value()); }
};

}  // namespace simulator
