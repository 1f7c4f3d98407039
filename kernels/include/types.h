// The types that kernels and bindings share.
#pragma once

#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

// Memory holds T; arithmetic is in Acc<T>: double for double, float for every other type.
template <class T>
struct AccOf {
    using type = float;
};
template <>
struct AccOf<double> {
    using type = double;
};
template <class T>
using Acc = typename AccOf<T>::type;

// What every op is compiled for: FOR_EACH_TYPE(M) is M(double) M(float) ...
#define FOR_EACH_TYPE(M) M(double) M(float) M(c10::Half) M(c10::BFloat16)
