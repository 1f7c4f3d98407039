// linear_cross_entropy: sums of the gradients of chunks, and their product with the gradient that
// arrives.
#pragma once

#include <algorithm>

// Adds the dx of a chunk to the sums of the chunks before it; the first chunk has none before it.
// The last chunk writes the result to its own memory, which becomes dx.
template <class T, int V>
__global__ void add_chunk(T* dx, Acc<T>* sums, int64_t elements, bool is_first, bool is_last) {
    using A = Acc<T>;
    const int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * V;
    if (i >= elements) return;
    Vec<T, V> of_chunk = load<V>(dx + i);
    A all[V];
    for (int k = 0; k < V; ++k) all[k] = A(of_chunk[k]);
    if (!is_first) {
        for (int k = 0; k < V; ++k) all[k] += sums[i + k];
    }
    if (!is_last) {
        store(sums + i, all);
        return;
    }
    for (int k = 0; k < V; ++k) of_chunk[k] = T(all[k]);
    store(dx + i, of_chunk);
}

// Multiplies dx, dw and db, which were computed for an arriving gradient of 1, by the one that
// arrives. One launch serves all three, because each launch takes the host some microseconds.
template <class T, int V>
__global__ void scale(Gradients<T> gradients, Arriving<T> g) {
    using A = Acc<T>;
    const A by = at(g, 0);
    if (by == 1) return;
    const int64_t first = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const int64_t stride = int64_t(gridDim.x) * blockDim.x;
    for (int n = 0; n < 3; ++n) {
        T* t = gradients.of[n];
        const int64_t elements = gradients.elements[n], vectors = elements / V;
        for (int64_t i = first; i < vectors; i += stride) {
            Vec<T, V> v = load<V>(t + i * V);
            for (int k = 0; k < V; ++k) v[k] = T(by * A(v[k]));
            store(t + i * V, v);
        }
        const int64_t i = vectors * V + first;  // of the elements that are left, fewer than V
        if (i < elements) t[i] = T(by * A(t[i]));
    }
}

// ---- launchers

template <class T>
cudaError_t linear_cross_entropy_add(T* dx, Acc<T>* sums, int64_t elements, bool is_first,
                                     bool is_last, cudaStream_t stream) {
    if (elements == 0) return cudaSuccess;
    const bool in_vectors = kHasVectors<T> && elements % kVec<T> == 0 && is_aligned(dx, sums);
    constexpr int V = kHasVectors<T> ? kVec<T> : 1;
    const auto kernel = in_vectors ? add_chunk<T, V> : add_chunk<T, 1>;
    const int64_t threads = ceil_div<int64_t>(elements, in_vectors ? V : 1);
    kernel<<<ceil_div<int64_t>(threads, 256), 256, 0, stream>>>(
        dx, sums, elements, is_first, is_last);
    return cudaGetLastError();
}

template <class T>
cudaError_t linear_cross_entropy_scale(const Gradients<T>& gradients, const Arriving<T>& g,
                                       cudaStream_t stream) {
    const auto& [of, elements] = gradients;
    const int64_t most = std::max({elements[0], elements[1], elements[2]});
    if (most == 0) return cudaSuccess;
    const bool in_vectors = kHasVectors<T> && is_aligned(of[0], of[1], of[2]);
    constexpr int V = kHasVectors<T> ? kVec<T> : 1;
    const auto kernel = in_vectors ? scale<T, V> : scale<T, 1>;
    const int64_t blocks = ceil_div<int64_t>(most, 256 * (in_vectors ? V : 1));
    kernel<<<smaller<int64_t>(blocks, 8 * multiprocessors()), 256, 0, stream>>>(gradients, g);
    return cudaGetLastError();
}
