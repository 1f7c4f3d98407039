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
    TF32Flush,
    U4,        // of 16 together, 8 bytes
    U4Padded,  // and 8 more that are left free in shared memory
    U6Padded,  // of 16 together, 12 bytes, and 4 that are left free
};

// How elements lie in memory: so many together take so many bytes.
struct Packing {
    unsigned elements, bytes, shared_bytes;
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

inline Packing packing_of(TensorType type) {
    switch (type) {
        case TensorType::U4:
            return {2, 1, 1};
        case TensorType::U4Padded:
            return {16, 8, 16};
        case TensorType::U6Padded:
            return {16, 12, 16};
        default:
            return {1, unsigned(size_of(type)), unsigned(size_of(type))};
    }
}

// Which elements a copy takes: a box; or pixels with their channels, as a convolution reads them.
enum class Traversal : uint8_t { Box, Im2col, Im2colWide, Im2colWide128 };

struct alignas(64) TensorMap {
    void* base;
    uint64_t extent[5], stride[4];  // elements, and bytes from one index of a dimension to the next
    uint16_t box[5];
    uint8_t steps[5];       // of how many elements one is taken
    uint8_t rank, swizzle;  // 0, or 32, 64 or 128 bytes
    TensorType type;
    bool fills_with_nan;
    uint32_t mark;  // that it has been encoded
    Traversal traversal;
    uint8_t atom;  // of a swizzle of 128 bytes: 0 for 16 bytes, 1 for 32, 2 with a flip, 3 for 64
    uint16_t pixels;             // im2col: of a column; box[0] is the number of channels
    int16_t lower[3], upper[3];  // im2col: the corners of the bounding box, from W on

    static constexpr uint32_t encoded = 0x544d4150;
};
static_assert(sizeof(TensorMap) == 128, "as large as a CUtensorMap");

// In a swizzle of so many bytes, which 16 of them (or more: an atom) an address means depends on
// its line of 128.
inline char* swizzled(char* address, unsigned swizzle, unsigned atom = 0) {
    if (!swizzle) return address;
    const uintptr_t at = reinterpret_cast<uintptr_t>(address), line = at >> 7;
    if (atom == 3) return reinterpret_cast<char*>(at ^ (line & 1) << 6);
    if (atom)
        return reinterpret_cast<char*>(at ^ (line & 3) << 5 ^ (atom == 2 ? line & 1 : 0) << 3);
    return reinterpret_cast<char*>(at ^ (line & (swizzle / 16 - 1)) << 4);
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
