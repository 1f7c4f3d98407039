// Arithmetic and conversions that round down, up or towards zero. Those that round to nearest are
// in intrinsics.h.
#pragma once
#include "block.h"

namespace simulator {

// The processor's rounding mode, by the number that it has in the control register.
#ifdef __x86_64__
enum class Rounding : uint32_t { Down = 1, Up = 2, Zero = 3 };
constexpr int rounding_bit = 13;
using FloatControl = uint32_t;
SIMULATOR_INLINE FloatControl float_control() {
    FloatControl control;
    asm volatile("stmxcsr %0" : "=m"(control));
    return control;
}
SIMULATOR_INLINE void set_float_control(FloatControl control) {
    asm volatile("ldmxcsr %0" ::"m"(control));
}
SIMULATOR_INLINE void hide(float& x) { asm volatile("" : "+x"(x)); }
SIMULATOR_INLINE void hide(double& x) { asm volatile("" : "+x"(x)); }
#else
enum class Rounding : uint32_t { Up = 1, Down = 2, Zero = 3 };
constexpr int rounding_bit = 22;
using FloatControl = uint64_t;
SIMULATOR_INLINE FloatControl float_control() {
    FloatControl control;
    asm volatile("mrs %0, fpcr" : "=r"(control));
    return control;
}
SIMULATOR_INLINE void set_float_control(FloatControl control) {
    asm volatile("msr fpcr, %0" ::"r"(control));
}
SIMULATOR_INLINE void hide(float& x) { asm volatile("" : "+w"(x)); }
SIMULATOR_INLINE void hide(double& x) { asm volatile("" : "+w"(x)); }
#endif
template <class T>
SIMULATOR_INLINE void hide(T& x) {
    asm volatile("" : "+r"(x));
}

// compute(operands...), rounded so. The compiler knows nothing of rounding modes, but it keeps the
// order of the volatile asm statements, and those that hide the operands and the result hold the
// computation between the two changes of the mode.
template <Rounding rounding, class Compute, class... Operands>
SIMULATOR_INLINE auto rounded(Compute compute, Operands... operands) {
    const FloatControl before = float_control();
    set_float_control(
        (before & ~(FloatControl(3) << rounding_bit)) | FloatControl(rounding) << rounding_bit);
    (hide(operands), ...);
    auto result = compute(operands...);
    hide(result);
    set_float_control(before);
    return result;
}

}  // namespace simulator

// SIMULATOR_ROUNDED(__fadd, float, (float a, float b), a + b, a, b) and the like: the three forms.
#define SIMULATOR_ROUNDED_ONE(name, T, rounding, parameters, expression, ...)                \
    SIMULATOR_INLINE T name parameters {                                                     \
        return simulator::rounded<simulator::Rounding::rounding>(                            \
            [] parameters SIMULATOR_ALWAYS_INLINE -> T { return expression; }, __VA_ARGS__); \
    }
#define SIMULATOR_ALWAYS_INLINE __attribute__((always_inline))
#define SIMULATOR_ROUNDED(name, T, parameters, expression, ...)                    \
    SIMULATOR_ROUNDED_ONE(name##_rd, T, Down, parameters, expression, __VA_ARGS__) \
    SIMULATOR_ROUNDED_ONE(name##_ru, T, Up, parameters, expression, __VA_ARGS__)   \
    SIMULATOR_ROUNDED_ONE(name##_rz, T, Zero, parameters, expression, __VA_ARGS__)
SIMULATOR_ROUNDED(__fadd, float, (float a, float b), a + b, a, b)
SIMULATOR_ROUNDED(__fsub, float, (float a, float b), a - b, a, b)
SIMULATOR_ROUNDED(__fmul, float, (float a, float b), a* b, a, b)
SIMULATOR_ROUNDED(__fdiv, float, (float a, float b), a / b, a, b)
SIMULATOR_ROUNDED(__frcp, float, (float a), 1 / a, a)
SIMULATOR_ROUNDED(__fsqrt, float, (float a), __builtin_sqrtf(a), a)
SIMULATOR_ROUNDED(__fmaf, float, (float a, float b, float c), __builtin_fmaf(a, b, c), a, b, c)
SIMULATOR_ROUNDED(__fmaf_ieee, float, (float a, float b, float c), __builtin_fmaf(a, b, c), a, b, c)
SIMULATOR_ROUNDED(__dadd, double, (double a, double b), a + b, a, b)
SIMULATOR_ROUNDED(__dsub, double, (double a, double b), a - b, a, b)
SIMULATOR_ROUNDED(__dmul, double, (double a, double b), a* b, a, b)
SIMULATOR_ROUNDED(__ddiv, double, (double a, double b), a / b, a, b)
SIMULATOR_ROUNDED(__drcp, double, (double a), 1 / a, a)
SIMULATOR_ROUNDED(__dsqrt, double, (double a), __builtin_sqrt(a), a)
SIMULATOR_ROUNDED(__fma, double, (double a, double b, double c), __builtin_fma(a, b, c), a, b, c)
SIMULATOR_ROUNDED(__double2float, float, (double a), a, a)
SIMULATOR_ROUNDED(__int2float, float, (int a), a, a)
SIMULATOR_ROUNDED(__uint2float, float, (unsigned a), a, a)
SIMULATOR_ROUNDED(__ll2float, float, (long long a), a, a)
SIMULATOR_ROUNDED(__ull2float, float, (unsigned long long a), a, a)
SIMULATOR_ROUNDED(__ll2double, double, (long long a), a, a)
SIMULATOR_ROUNDED(__ull2double, double, (unsigned long long a), a, a)
#undef SIMULATOR_ROUNDED
#undef SIMULATOR_ROUNDED_ONE
#undef SIMULATOR_ALWAYS_INLINE
