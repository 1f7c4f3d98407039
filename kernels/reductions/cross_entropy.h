// What the kernels of cross_entropy and linear_cross_entropy share with their bindings.
#pragma once

#include "types.h"

// Where losses go: rounded to T or, as autocast wants them, in the sums' type. Of neither: nowhere.
template <class T>
struct LossInto {
    T* of_t = nullptr;
    Acc<T>* of_sums = nullptr;
};

// The gradient that arrives at them, in their type. Of neither: 1.
template <class T>
struct Arriving {
    const T* of_t = nullptr;
    const Acc<T>* of_sums = nullptr;
};
