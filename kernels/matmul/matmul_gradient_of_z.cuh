// The gradient of z, element by element: dz = g * act'(z). With swiglu, y = silu(a) * b for the
// halves a and b of z, and dz has both halves.
#pragma once

#include "matmul_product.cuh"

// Each thread has V neighbours of a row of g. row: of g, in such vectors.
template <int V, class T>
__global__ void gradient_of_z(const T* g, const T* z, T* dz, int64_t vectors, int64_t row,
                              Act act) {
    using A = Acc<T>;
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= vectors) return;
    const Vec<T, V> arrives = load<V>(g + i * V);
    if (act != kSwiglu) {
        const Vec<T, V> at = load<V>(z + i * V);
        Vec<T, V> to;
        for (int k = 0; k < V; ++k) to[k] = T(A(arrives[k]) * act_gradient(act, A(at[k])));
        store(dz + i * V, to);
        return;
    }
    const int64_t left = i + i / row * row, right = left + row;
    const Vec<T, V> a = load<V>(z + left * V), b = load<V>(z + right * V);
    Vec<T, V> of_a, of_b;
    for (int k = 0; k < V; ++k) {
        of_a[k] = T(A(arrives[k]) * A(b[k]) * act_gradient(kSilu, A(a[k])));
        of_b[k] = T(A(arrives[k]) * activated(kSilu, A(a[k])));
    }
    store(dz + left * V, of_a);
    store(dz + right * V, of_b);
}

template <int V, class T>
void launch_gradient_of_z(const T* g, const T* z, T* dz, int64_t rows, int64_t units, Act act,
                          cudaStream_t stream) {
    const int64_t vectors = rows * (units / V);
    gradient_of_z<V>
        <<<ceil_div<int64_t>(vectors, 256), 256, 0, stream>>>(g, z, dz, vectors, units / V, act);
}

template <class T>
cudaError_t launch_gradient_of_z(const T* g, const T* z, T* dz, int64_t rows, int64_t units,
                                 Act act, cudaStream_t stream) {
    if (rows * units == 0) return cudaSuccess;
    if (rows_are_aligned<T>(units, g, z, dz)) {
        launch_gradient_of_z<kVec<T>>(g, z, dz, rows, units, act, stream);
    } else {
        launch_gradient_of_z<1>(g, z, dz, rows, units, act, stream);
    }
    return cudaGetLastError();
}
