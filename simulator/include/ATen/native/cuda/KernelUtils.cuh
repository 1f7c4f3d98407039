// Additions of PyTorch's to gradients, by atomic functions.
#pragma once
#include "../../cuda/Atomic.cuh"

namespace at::native {

// CUDA adds halves in pairs where it can; here there is one way.
template <class scalar_t, class index_t>
inline void fastAtomicAdd(scalar_t* tensor, index_t index, const index_t, scalar_t value, bool) {
    gpuAtomicAdd(tensor + index, value);
}

}  // namespace at::native
