// Elements in memory, of any type that a matrix may have, and the numbers that are computed with.
#pragma once
#include <math.h>
#include <memory>
#include "handles.h"

namespace simulator::cublas {
namespace {

// 8-bit floating point: its exponent's bias, the bits of its fraction, its largest number and NaN.
template <int bias, int digits, int largest, int nan>
struct Float8 {
    uint8_t bits;

    static float decoded(uint8_t bits) {
        const int rest = bits & 0x7f, exponent = rest >> digits;
        const int fraction = rest & ((1 << digits) - 1);
        const float magnitude =
            rest > largest ? (rest == largest + 1 && rest != nan ? INFINITY : NAN)
            : exponent     ? ldexpf(fraction + (1 << digits), exponent - bias - digits)
                           : ldexpf(fraction, 1 - bias - digits);
        return bits & 0x80 ? -magnitude : magnitude;
    }
    // Rounded to the nearest, ties to even; what is too large becomes the largest.
    static uint8_t encoded(float x) {
        const uint8_t sign = signbit(x) ? 0x80 : 0;
        if (x != x) return sign | nan;
        const float magnitude = fminf(fabsf(x), decoded(largest));
        const int exponent = magnitude > 0 ? std::max(ilogbf(magnitude), 1 - bias) : 1 - bias;
        const int steps = int(nearbyintf(ldexpf(magnitude, digits - exponent)));
        return sign | uint8_t(((exponent + bias - 1) << digits) + steps);
    }
};
using E4M3 = Float8<7, 3, 0x7e, 0x7f>;
using E5M2 = Float8<15, 2, 0x7b, 0x7f>;

template <class F>
float value_of_float8(F element) {
    static const std::unique_ptr<float[]> values = [] {
        std::unique_ptr<float[]> table(new float[256]);
        for (int i = 0; i < 256; i++) table[i] = F::decoded(uint8_t(i));
        return table;
    }();
    return values[element.bits];
}

// To a number of type T, and back with one rounding.
template <class T, class E>
T number_of(E element) {
    return T(element);
}
template <class T>
T number_of(__half element) {
    return T(__half2float(element));
}
template <class T>
T number_of(__nv_bfloat16 element) {
    return T(__bfloat162float(element));
}
template <class T>
T number_of(E4M3 element) {
    return T(value_of_float8(element));
}
template <class T>
T number_of(E5M2 element) {
    return T(value_of_float8(element));
}

template <class E>
struct To {
    template <class T>
    static E element(T x) {
        return E(x);
    }
};
template <>
struct To<__half> {
    static __half element(float x) { return __float2half(x); }
    static __half element(double x) { return __double2half(x); }
};
template <>
struct To<__nv_bfloat16> {
    static __nv_bfloat16 element(float x) { return __float2bfloat16(x); }
    static __nv_bfloat16 element(double x) { return __double2bfloat16(x); }
};
template <>
struct To<E4M3> {
    static E4M3 element(float x) { return {E4M3::encoded(x)}; }
};
template <>
struct To<E5M2> {
    static E5M2 element(float x) { return {E5M2::encoded(x)}; }
};
template <>
struct To<int8_t> {
    static int8_t element(double x) {
        return int8_t(fmin(127, fmax(-128, nearbyint(x == x ? x : 0))));
    }
};
template <>
struct To<int32_t> {  // a sum of products runs over as it does in 32 bits
    static int32_t element(double x) {
        return fabs(x) < 0x1p62 ? int32_t(uint32_t(int64_t(nearbyint(x)))) : 0;
    }
};

template <class T>
constexpr cudaDataType_t type_of = cudaDataType_t(-1);
template <>
constexpr cudaDataType_t type_of<float> = CUDA_R_32F;
template <>
constexpr cudaDataType_t type_of<double> = CUDA_R_64F;
template <>
constexpr cudaDataType_t type_of<__half> = CUDA_R_16F;
template <>
constexpr cudaDataType_t type_of<std::complex<float>> = CUDA_C_32F;
template <>
constexpr cudaDataType_t type_of<std::complex<double>> = CUDA_C_64F;

template <class T>
constexpr bool is_complex = false;
template <class R>
constexpr bool is_complex<std::complex<R>> = true;

int64_t bytes_of(cudaDataType_t type) {
    switch (type) {
        case CUDA_R_8I:
        case CUDA_R_8F_E4M3:
        case CUDA_R_8F_E5M2:
            return 1;
        case CUDA_R_16F:
        case CUDA_R_16BF:
            return 2;
        case CUDA_R_32F:
        case CUDA_R_32I:
            return 4;
        case CUDA_R_64F:
        case CUDA_C_32F:
            return 8;
        case CUDA_C_64F:
            return 16;
        default:
            return 0;  // of none that is supported
    }
}
bool is_complex_type(cudaDataType_t type) { return type == CUDA_C_32F || type == CUDA_C_64F; }
bool is_float8(cudaDataType_t type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }

// visit(E()) with E the type of the elements; T is the type of the numbers.
template <class T, class Visit>
void with_elements(cudaDataType_t type, Visit visit) {
    if constexpr (is_complex<T>) {
        if (type == CUDA_C_32F) return visit(std::complex<float>());
        if (type == CUDA_C_64F) return visit(std::complex<double>());
    } else {
        switch (type) {
            case CUDA_R_32F:
                return visit(float());
            case CUDA_R_64F:
                return visit(double());
            case CUDA_R_16F:
                return visit(__half());
            case CUDA_R_16BF:
                return visit(__nv_bfloat16());
            case CUDA_R_8F_E4M3:
                return visit(E4M3());
            case CUDA_R_8F_E5M2:
                return visit(E5M2());
            case CUDA_R_8I:
                return visit(int8_t());
            case CUDA_R_32I:
                return visit(int32_t());
            default:
                break;
        }
    }
    throw Failed();
}

// So many elements `step` apart, as numbers, and numbers as elements.
template <class T>
void load(T* to, cudaDataType_t type, const void* from, int64_t count, int64_t step) {
    with_elements<T>(type, [&](auto element) {
        using E = decltype(element);
        const E* elements = static_cast<const E*>(from);
        if (step == 1)
            for (int64_t i = 0; i < count; i++) to[i] = number_of<T>(elements[i]);
        else
            for (int64_t i = 0; i < count; i++) to[i] = number_of<T>(elements[i * step]);
    });
}
template <class T>
void store(cudaDataType_t type, void* to, const T* from, int64_t count, int64_t step) {
    with_elements<T>(type, [&](auto element) {
        using E = decltype(element);
        E* elements = static_cast<E*>(to);
        if (step == 1)
            for (int64_t i = 0; i < count; i++) elements[i] = To<E>::element(from[i]);
        else
            for (int64_t i = 0; i < count; i++) elements[i * step] = To<E>::element(from[i]);
    });
}

// Numbers of our own, which nobody sets to zero first.
template <class T>
class Numbers {
  public:
    explicit Numbers(int64_t count) : data(new (std::nothrow) Raw[std::max<int64_t>(count, 1)]) {
        if (!data) throw std::bad_alloc();
    }
    operator T*() { return reinterpret_cast<T*>(data.get()); }
    T& operator[](int64_t i) { return static_cast<T*>(*this)[i]; }

  private:
    struct alignas(T) Raw {
        char bytes[sizeof(T)];
    };
    std::unique_ptr<Raw[]> data;
};

template <class T>
T conjugate(T x) {
    if constexpr (is_complex<T>) return std::conj(x);
    return x;
}
template <class T>
T real_part(T x) {
    if constexpr (is_complex<T>) return std::real(x);
    return x;
}

}  // namespace
}  // namespace simulator::cublas
