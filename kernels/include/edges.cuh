// Rows of any width, wherever they begin: whole vectors on 16-byte boundaries, and at both edges
// fewer elements than a vector has, which go one by one.
#pragma once

#include "vec.cuh"

// Do all pointers stand equally far from a 16-byte boundary? Then so do the rows that begin there.
template <class P, class... Q>
bool is_alike(const P* first, const Q*... others) {
    const auto past = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % kVecBytes; };
    return ((past(first) == past(others)) && ...);
}

// Of a row, at least: so no thread has two elements of an edge.
constexpr int kEdgeThreads = 8;

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
