// Which rotation the binding of rope asks its kernels for.
#pragma once

#include <cuda_runtime.h>

#include "heads.h"
#include "types.h"

// Shapes as rope.cu has them.
struct Rope {
    int64_t batch, tokens;
    int heads, kv_heads;
    int64_t pairs;
    int64_t table_batch;  // as batch, or 1: one table is for all
    bool interleaved;
    Strides q, k, v;  // or those of their gradients
};

template <class T>
cudaError_t rope_forward(const Rope& call, const T* qkv, T* q, T* k, T* v, const T* cos,
                         const T* sin, int64_t version, cudaStream_t stream);
template <class T>
cudaError_t rope_backward(const Rope& call, const T* dq, const T* dk, const T* dv, T* dqkv,
                          const T* cos, const T* sin, int64_t version, cudaStream_t stream);
template <class T>
cudaError_t rope_table_gradients(const Rope& call, const T* dq, const T* dk, const T* qkv, T* dcos,
                                 T* dsin, cudaStream_t stream);
