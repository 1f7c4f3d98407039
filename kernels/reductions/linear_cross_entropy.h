// What the binding of linear_cross_entropy and its kernels share.
#pragma once

#include "cross_entropy.h"

// dx, dw and db; of one that is not wanted there are no elements.
template <class T>
struct Gradients {
    T* of[3];
    int64_t elements[3];
};
