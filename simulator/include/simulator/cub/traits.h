// What a type is to a radix sort: its category, and its bits in the order of the keys.
#pragma once
#include "radix.h"

namespace cub {

enum Category { NOT_A_NUMBER, SIGNED_INTEGER, UNSIGNED_INTEGER, FLOATING_POINT };

// Of half types, too: a number that is no integer is floating point.
template <class T, bool = ::std::is_arithmetic_v<T> || ::std::is_convertible_v<T, float>>
struct NumericTraits {
    using UnsignedBits = typename simulated::Unsigned<sizeof(T)>::type;
    static constexpr bool PRIMITIVE = true, NULL_TYPE = false;
    static constexpr Category CATEGORY =
        ::std::is_unsigned_v<T>   ? UNSIGNED_INTEGER
        : ::std::is_integral_v<T> ? SIGNED_INTEGER
                                  : FLOATING_POINT;
    static constexpr UnsignedBits HIGH_BIT = UnsignedBits(UnsignedBits(1) << (8 * sizeof(T) - 1));
    static constexpr UnsignedBits ALL_BITS = UnsignedBits(~UnsignedBits(0));
    static constexpr UnsignedBits LOWEST_KEY =
        CATEGORY == UNSIGNED_INTEGER ? 0
        : CATEGORY == SIGNED_INTEGER ? HIGH_BIT
                                     : ALL_BITS;
    static constexpr UnsignedBits MAX_KEY =
        CATEGORY == UNSIGNED_INTEGER ? ALL_BITS : UnsignedBits(ALL_BITS ^ HIGH_BIT);

    // From a number's bits to those in the order of the keys, and back.
    static __host__ __device__ UnsignedBits TwiddleIn(UnsignedBits key) {
        if (CATEGORY == UNSIGNED_INTEGER) return key;
        return key ^ (CATEGORY == FLOATING_POINT && key & HIGH_BIT ? ALL_BITS : HIGH_BIT);
    }
    static __host__ __device__ UnsignedBits TwiddleOut(UnsignedBits key) {
        if (CATEGORY == UNSIGNED_INTEGER) return key;
        return key ^ (CATEGORY == FLOATING_POINT && !(key & HIGH_BIT) ? ALL_BITS : HIGH_BIT);
    }
};
template <class T>
struct NumericTraits<T, false> {
    static constexpr Category CATEGORY = NOT_A_NUMBER;
    static constexpr bool PRIMITIVE = false, NULL_TYPE = false;
};

template <class T>
struct Traits : NumericTraits<::std::remove_cv_t<T>> {};

}  // namespace cub
