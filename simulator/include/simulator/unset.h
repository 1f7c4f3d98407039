// A local variable that is declared without a value. In a kernel under check it gets one of the
// checker's choice; elsewhere it is left as it is. The rewriter puts SIMULATOR_UNSET behind such
// declarations.
// Files of the host may come to it without any header of CUDA's.
#pragma once

#if !defined(__SANITIZE_THREAD__) || !defined(__cplusplus)
#define SIMULATOR_UNSET(name)
#define SIMULATOR_SKIPS_BARRIER
#define __quit return
#else
#include <stddef.h>
#include <stdint.h>
#include <type_traits>

namespace simulator {

// A byte of the value; and what is filled by stores, an array or a structure, has got it.
[[gnu::visibility("default")]] unsigned char __byte_of_unset(
    const char* __name, const char* __file, int __line, bool __is_filled, bool __is_structure);
[[gnu::visibility("default")]] void __has_unset();
// The running thread goes on to a loop's next round, past a barrier.
[[gnu::visibility("default")]] void __skips_barrier(const char* __file, int __line);
// It returns early.
[[gnu::visibility("default")]] void __returns();

// Numbers, and short vectors of them (float4). Parts of other structures may well be copied without
// a value.
template <class _T, class = void>
struct __is_number : std::is_arithmetic<_T> {};
template <class _T>
struct __is_number<_T, std::void_t<decltype(_T::bits)>>
    : std::is_arithmetic<std::decay_t<decltype(_T::bits)>> {};
template <class _T>
struct __is_number<_T, std::void_t<decltype(_T::x)>>
    : std::bool_constant<std::is_trivially_copyable_v<_T> &&
                         __is_number<std::decay_t<decltype(_T::x)>>::value &&
                         (sizeof(_T) <= 4 * sizeof(_T::x))> {};

template <class _T>
[[gnu::always_inline]] inline void __leave_unset(_T& __variable, const char* __name,
                                                 const char* __file, int __line) {
    using _Number = std::remove_all_extents_t<_T>;
    constexpr bool __is_structure =
        !__is_number<_Number>::value && (std::is_class_v<_Number> || std::is_union_v<_Number>) &&
        std::is_trivial_v<_Number>;
    constexpr bool __is_filled = std::is_array_v<_T> || __is_structure;
    if constexpr ((__is_number<_Number>::value || __is_structure) && !std::is_volatile_v<_Number>) {
        const unsigned char __byte =
            __byte_of_unset(__name, __file, __line, __is_filled, __is_structure);
        if constexpr (std::is_same_v<_Number, bool>) {
            if constexpr (!std::is_array_v<_T>) __variable = __byte;
        } else if constexpr (sizeof(_T) <= 8 && !__is_filled) {
            const uint64_t __bytes = __byte * 0x0101010101010101;
            __builtin_memcpy(&__variable, &__bytes, sizeof(_T));
        } else {
            __builtin_memset(&__variable, __byte, sizeof(_T));
        }
        if constexpr (__is_filled) __has_unset();
    }
}

}  // namespace simulator

#define SIMULATOR_SKIPS_BARRIER ::simulator::__skips_barrier(__FILE__, __LINE__);
// One statement, as long as the word that it replaces.
#define __quit \
    for (::simulator::__returns();;) return
#define SIMULATOR_UNSET(name) ::simulator::__leave_unset(name, #name, __FILE__, __LINE__);
#endif
