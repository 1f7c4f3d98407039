// What bindings share whose ops write floats of one byte, and scales for them.
#pragma once

#include "binding.h"
#include "float8.h"

inline int64_t scale_blocks(int64_t n) { return (n + kScaleBlock - 1) / kScaleBlock; }

inline void check_quantizable(const Tensor& t, const char* name) {
    check_here(t, name);
    const ScalarType type = type_of(t);
    if (type != ScalarType::Float && type != ScalarType::Half && type != ScalarType::BFloat16)
        fail(name, " is ", dtype_name(type), "; wanted is float32, float16 or bfloat16");
}

// For ops of rows: others would need to know more than a row.
inline void check_row_scaling(int64_t scaling) {
    if (scaling != kPerRow && scaling != kPer1x128) {
        fail("scaling is ", scaling, "; wanted is ", int64_t(kPerRow), " (row) or ",
             int64_t(kPer1x128), " (1x128)");
    }
}

// Uninitialised, beside t.
inline Tensor new_float8(const Tensor& t) {
    return new_tensor(t, t.sizes(), ScalarType::Float8_e4m3fn);
}
inline Tensor new_scales(const Tensor& t, int64_t scaling) {
    Shape shape = shape_of(t);
    shape.back() = scaling == kPerRow ? 1 : scale_blocks(shape.back());
    if (scaling == kPer128x128) shape[0] = scale_blocks(shape[0]);
    return new_tensor(t, {shape.data(), shape.size()}, ScalarType::Float);
}

// Calls f(T()) with the C++ type of t's elements, of those that check_quantizable has let through.
template <class F>
void for_quantizable_type_of(const Tensor& t, F f) {
    switch (type_of(t)) {
        case ScalarType::Float:
            return f(float());
        case ScalarType::Half:
            return f(Half());
        default:
            return f(BFloat16());
    }
}
