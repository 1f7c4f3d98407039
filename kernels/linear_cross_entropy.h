// What the binding of linear_cross_entropy and its kernels share.
#pragma once

#include "types.h"

// dx, dw and db; of one that is not wanted there are no elements.
template <class T>
struct Gradients {
    T* of[3];
    int64_t elements[3];
};

// What arrives at the loss: of T or, where the loss is, of the sums' type; of neither: 1.
template <class T>
struct Arriving {
    const T* of_t = nullptr;
    const Acc<T>* of_sums = nullptr;
};
