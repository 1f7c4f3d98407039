// Rows of any width, wherever they begin: whole vectors on 16-byte boundaries, and at both edges
// fewer elements than a vector has, which go one by one.
#pragma once

#include "vec.cuh"

// Do all pointers stand equally far from a 16-byte boundary? Then so do the rows that begin there.
// (A null pointer is like any other.)
template <class P, class... Q>
bool is_alike(const P* first, const Q*... others) {
    const auto past = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % kVecBytes; };
    return ((others == nullptr || past(others) == past(first)) && ...);
}

// May the rows of these tensors have edges? Each has a whole vector for certain.
template <class T, class... P>
bool may_have_edges(int64_t cols, const P*... tensors) {
    return sizeof(T) < 8 && is_alike(tensors...) && cols >= 2 * kVec<T> && cols <= 1 << 30;
}

// Of a row, at least: so no thread has two elements of an edge.
constexpr int kEdgeThreads = 8;

// load, of what may stand between two boundaries, in a tensor that begins on one. Elements of two
// bytes are read in pairs, from the one before p on where p stands between two pairs.
template <int N, class T>
__device__ Vec<T, N> load_anywhere(const T* p) {
    Vec<T, N> v;
    if constexpr (sizeof(T) == 2) {
        const bool between = reinterpret_cast<uintptr_t>(p) % sizeof(uint32_t) != 0;
        uint32_t pairs[N / 2 + 1];
        for (int k = 0; k < N / 2; ++k)
            pairs[k] = reinterpret_cast<const uint32_t*>(p - between)[k];
        pairs[N / 2] = between ? reinterpret_cast<const uint16_t*>(p)[N - 1] : 0;
        for (int k = 0; k < N / 2; ++k)
            pairs[k] = __funnelshift_r(pairs[k], pairs[k + 1], between ? 16 : 0);
        memcpy(v.at, pairs, sizeof(v));
    } else {
        for (int k = 0; k < N; ++k) v[k] = p[k];
    }
    return v;
}

// The columns of a row's whole vectors. kWhole: the row is known to have no edges.
template <class T, bool kWhole, class I = int>
struct Inner {
    I begin, end, cols;

    __device__ Inner(const T* row, I cols) : begin(0), end(cols), cols(cols) {
        if constexpr (!kWhole) {
            constexpr int V = kVec<T>;
            const int past = reinterpret_cast<uintptr_t>(row) / sizeof(T) % V;
            begin = smaller<I>((V - past) % V, cols);
            end = begin + (cols - begin) / V * V;
        }
    }
    __device__ I width() const { return end - begin; }

    template <int N>
    __device__ void put(T* p, const Vec<T, N>& v) const {
        if constexpr (kWhole) {
            store(p, v);
        } else {
            store_at_once(p, v);
        }
    }

    // Of a tensor [cols], what belongs to the row's vector from column c on; it may stand between
    // two boundaries.
    template <class W>
    __device__ Vec<W, kVec<T>> beside(const W* columns, I c) const {
        return kWhole ? load<kVec<T>>(columns + c) : load_anywhere<kVec<T>>(columns + c);
    }
    template <class W, int N>
    __device__ void put_beside(W* columns, I c, const W (&numbers)[N]) const {
        if constexpr (kWhole) {
            store(columns + c, numbers);
        } else {
            for (int k = 0; k < N; ++k) columns[c + k] = numbers[k];
        }
    }

    // The column of the edges that is the i-th thread's of the row, of twice kEdgeThreads at least;
    // or -1.
    __device__ I lone(I i) const {
        if constexpr (kWhole) return -1;
        if (i < begin) return i;
        const I second = end + i - kEdgeThreads;
        return i >= kEdgeThreads && second < cols ? second : -1;
    }

    // visit(n, c) for the columns of the edges that are the i-th thread's of the row: n is 0 for
    // that of the first edge, 1 for that of the second. A row has kEdgeThreads at least.
    template <class Visit>
    __device__ void edges(I i, Visit visit) const {
        if constexpr (!kWhole) {
            if (i < begin) visit(0, i);
            if (i < cols - end) visit(1, end + i);
        }
    }
};
