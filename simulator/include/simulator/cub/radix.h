// The order of CUB's radix sorts: that of a key's bits, or of some of them.
#pragma once
#include "util.h"

namespace cub::simulated {

template <size_t size>
struct Unsigned;
template <>
struct Unsigned<1> {
    using type = uint8_t;
};
template <>
struct Unsigned<2> {
    using type = uint16_t;
};
template <>
struct Unsigned<4> {
    using type = uint32_t;
};
template <>
struct Unsigned<8> {
    using type = uint64_t;
};

// A number whose bits are in the order of the keys. What is neither integer nor bool is floating
// point, a half type too: its sign comes first, and both zeros are one.
template <class Key>
typename Unsigned<sizeof(Key)>::type ordered_bits(const Key& key) {
    using Bits = typename Unsigned<sizeof(Key)>::type;
    constexpr Bits top = Bits(Bits(1) << (8 * sizeof(Key) - 1));
    Bits bits;
    __builtin_memcpy(&bits, &key, sizeof(Key));
    if constexpr (::std::is_unsigned_v<Key>)
        return bits;
    else if constexpr (::std::is_integral_v<Key> || ::std::is_enum_v<Key>)
        return bits ^ top;
    else if (bits == top)
        return top;
    else
        return bits & top ? Bits(~bits) : Bits(bits | top);
}

// Whether a key comes before another by its bits from `begin` to before `end`.
struct ByBits {
    int begin, end;
    bool descending;

    template <class Key>
    auto digit(const Key& key) const {
        using Bits = typename Unsigned<sizeof(Key)>::type;
        const int width = end - begin;
        const Bits kept = ordered_bits(key) >> begin;
        return width >= int(8 * sizeof(Key)) ? kept : Bits(kept & ((Bits(1) << width) - 1));
    }
    template <class Key>
    bool operator()(const Key& a, const Key& b) const {
        return descending ? digit(a) > digit(b) : digit(a) < digit(b);
    }
};

}  // namespace cub::simulated
