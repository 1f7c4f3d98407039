// Bits of a register: logic, shifts, fields, searches, permutations of bytes.
#pragma once
#include "../intrinsics.h"
#include "moves.h"

namespace simulator::ptx {

// Bit k of the table answers for three bits of a, b and c that are k.
SIMULATOR_INLINE u32 __ptx_lop3(u32 a, u32 b, u32 c, u32 table) {
    u32 result = 0;
    for (int k = 0; k < 8; k++)
        if (table >> k & 1) result |= (k & 4 ? a : ~a) & (k & 2 ? b : ~b) & (k & 1 ? c : ~c);
    return result;
}

template <class T>
SIMULATOR_INLINE Word<T> __ptx_shift_left(Word<T> a, u32 by) {
    return by < 8 * sizeof(T) ? Word<T>(a << by) : Word<T>(0);
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_shift_right(Word<T> a, u32 by) {
    constexpr u32 last = 8 * sizeof(T) - 1;
    if (T(-1) < T(0)) return Word<T>(T(a) >> (by < last ? by : last));
    return by <= last ? Word<T>(a >> by) : Word<T>(0);
}

template <class T>
SIMULATOR_INLINE u32 __ptx_population(Word<T> a) {
    return u32(__builtin_popcountll(a));
}
template <class T>
SIMULATOR_INLINE u32 __ptx_leading_zeros(Word<T> a) {
    return u32(a ? __builtin_clzll(a) - (64 - 8 * int(sizeof(T))) : 8 * int(sizeof(T)));
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_reversed(Word<T> a) {
    return Word<T>(__brevll(a) >> (64 - 8 * sizeof(T)));
}
// The highest bit that is not the sign.
template <class T>
SIMULATOR_INLINE u32 __ptx_bfind(Word<T> a) {
    if (T(a) < 0) a = ~a;
    return a ? 63 - u32(__builtin_clzll(a)) : ~0u;
}
template <class T>
SIMULATOR_INLINE u32 __ptx_bfind_shiftamt(Word<T> a) {
    const u32 found = __ptx_bfind<T>(a);
    return found == ~0u ? found : 8 * u32(sizeof(T)) - 1 - found;
}

template <class T>
SIMULATOR_INLINE Word<T> low_bits(u32 count) {
    return count < 8 * sizeof(T) ? Word<T>((Word<T>(1) << count) - 1) : Word<T>(-1);
}
// Beyond the highest bit a signed number goes on with its sign.
template <class T>
SIMULATOR_INLINE Word<T> __ptx_bfe(Word<T> a, u32 position, u32 length) {
    constexpr u32 last = 8 * sizeof(T) - 1;
    position &= 0xff, length &= 0xff;
    if (length == 0) return 0;
    const Word<T> field = __ptx_shift_right<T>(a, position), mask = low_bits<T>(length);
    if (!(T(-1) < T(0))) return field & mask;
    const u32 sign_at = position + length - 1 < last ? position + length - 1 : last;
    return a >> sign_at & 1 ? field | Word<T>(~mask) : field & mask;
}
template <class T>
SIMULATOR_INLINE Word<T> __ptx_bfi(Word<T> a, Word<T> b, u32 position, u32 length) {
    position &= 0xff, length &= 0xff;
    const Word<T> mask = __ptx_shift_left<T>(low_bits<T>(length), position);
    return (b & ~mask) | (__ptx_shift_left<T>(a, position) & mask);
}
SIMULATOR_INLINE u32 __ptx_bmsk_wrap(u32 position, u32 length) {
    return low_bits<u32>(length & 31) << (position & 31);
}
SIMULATOR_INLINE u32 __ptx_bmsk_clamp(u32 position, u32 length) {
    return __ptx_shift_left<u32>(low_bits<u32>(length), position);
}
template <class T>
SIMULATOR_INLINE u32 __ptx_szext_clamp(u32 a, u32 length) {
    if (length >= 32) return a;
    return length ? u32(T(a << (32 - length)) >> (32 - length)) : 0;
}
template <class T>
SIMULATOR_INLINE u32 __ptx_szext_wrap(u32 a, u32 length) {
    return __ptx_szext_clamp<T>(a, length & 31);
}

// The four bytes at choice(0) to choice(3) of the eight.
template <class Choice>
SIMULATOR_INLINE u32 bytes_at(u32 a, u32 b, Choice choice) {
    const u64 bytes = u64(b) << 32 | a;
    u32 result = 0;
    for (u32 i = 0; i < 4; i++) result |= (u32(bytes >> 8 * (choice(i) & 7)) & 0xff) << 8 * i;
    return result;
}
SIMULATOR_INLINE u32 __ptx_prmt_f4e(u32 a, u32 b, u32 c) {
    return bytes_at(a, b, [c](u32 i) { return (c & 3) + i; });
}
SIMULATOR_INLINE u32 __ptx_prmt_b4e(u32 a, u32 b, u32 c) {
    return bytes_at(a, b, [c](u32 i) { return (c & 3) - i; });
}
SIMULATOR_INLINE u32 __ptx_prmt_rc8(u32 a, u32 b, u32 c) {
    return bytes_at(a, b, [c](u32) { return c & 3; });
}
SIMULATOR_INLINE u32 __ptx_prmt_ecl(u32 a, u32 b, u32 c) {
    return bytes_at(a, b, [c](u32 i) { return i > (c & 3) ? i : c & 3; });
}
SIMULATOR_INLINE u32 __ptx_prmt_ecr(u32 a, u32 b, u32 c) {
    return bytes_at(a, b, [c](u32 i) { return i < (c & 3) ? i : c & 3; });
}
SIMULATOR_INLINE u32 __ptx_prmt_rc16(u32 a, u32 b, u32 c) {
    return bytes_at(a, b, [c](u32 i) { return 2 * (c & 1) + (i & 1); });
}

}  // namespace simulator::ptx
