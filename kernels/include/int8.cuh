// Bytes that are integers from -128 to 127, as 16-bit floats, which have each of them exactly.
#pragma once

#include <type_traits>

#include "types.h"

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// The lower two bytes of a word, or the upper two, as a pair of 16-bit floats. (The instruction
// that converts an integer has an eighth of the speed of those here.)
//
// In float16, the bits 0x6400 + n are the number 1024 + n; n is the byte + 128, and 1152 too much.
// In bfloat16, 0x4300 + n is 128 + n for n below 128, and 0x4380 is 256: so the lower seven bits
// of a byte become 128 + n, and its sign bit, alone, becomes 128 or 256, which is subtracted.
template <class T>
__device__ uint32_t pair_of_bytes(uint32_t word, bool upper) {
    const unsigned spread = upper ? 0x4342 : 0x4140;  // each before a byte of the other word
    uint32_t pair;
    if constexpr (std::is_same_v<T, Half>) {
        asm("fma.rn.f16x2 %0, %1, %2, %3;"
            : "=r"(pair)
            : "r"(__byte_perm(word ^ 0x80808080, 0x64646464, spread)), "r"(0x3c003c00),
              "r"(0xe480e480));
    } else {
        const uint32_t bytes = __byte_perm(word, 0x43434343, spread);
        asm("fma.rn.bf16x2 %0, %1, %2, %3;"
            : "=r"(pair)
            : "r"(bytes & 0xff80ff80), "r"(0xbf80bf80), "r"(bytes & 0xff7fff7f));
    }
    return pair;
}

#endif
