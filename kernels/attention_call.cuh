// What a call of attention is made of: sizes, strides, and which keys a row of q sees.
#pragma once

#include <cuda_runtime.h>
#include <stdint.h>

// Elements from one batch, head or row to the next. Neighbours in a row are always side by side.
struct Strides {
    int64_t batch, head, row;
};

// A row of q, or of what has its shape.
struct Place {
    int64_t batch, head, row;
};

// Is heads a multiple of kv_heads, so that each of those serves as many?
inline bool divides(int64_t kv_heads, int64_t heads) {
    return kv_heads == heads || (kv_heads > 0 && heads % kv_heads == 0);
}

struct Attention {
    int64_t batches, heads, rows;        // of q
    int64_t kv_batches, kv_heads, keys;  // of k and v; heads is a multiple of kv_heads
    int64_t cols;
    int64_t left, right;  // row r sees keys from r + keys - rows - left to r + keys - rows + right
    double scale;
    Strides q, k, v, g;  // y, dq, dk, dv and lse are contiguous

    // left or right of so many keys; of -1, or of more than there are, it is as good as no limit.
    __host__ __device__ int64_t limit(int64_t count) const {
        return count < 0 || count > rows + keys ? rows + keys : count;
    }

    __host__ __device__ int64_t slices() const { return batches * heads; }
    __host__ __device__ int64_t lines() const { return slices() * rows; }
    __host__ __device__ int64_t kv_slices() const { return kv_batches * kv_heads; }

    // Heads of q that share a head of k and v: those of one batch, and slices of all batches.
    __host__ __device__ int64_t group() const { return heads / kv_heads; }
    __host__ __device__ int64_t sharing() const { return batches / kv_batches * group(); }

    // The keys that a row sees: from first_key, and before end_key. None if that is not larger.
    __host__ __device__ int64_t first_key(int64_t row) const {
        const int64_t first = row + keys - rows - left;
        return first > 0 ? first : 0;
    }
    __host__ __device__ int64_t end_key(int64_t row) const {
        const int64_t end = row + keys - rows + right + 1;
        return end < keys ? end : keys;
    }
    __host__ __device__ bool sees(int64_t row, int64_t key) const {
        return key >= first_key(row) && key < end_key(row);
    }

    // Line n of all batches and heads, as y has them one after the other.
    __host__ __device__ Place place(int64_t line) const {
        const int64_t slice = line / rows;
        return {slice / heads, slice % heads, line % rows};
    }
    __host__ __device__ int64_t line(Place p) const {
        return (p.batch * heads + p.head) * rows + p.row;
    }
    // Row n of those that see the keys of a slice of k and v.
    __host__ __device__ Place sharer(int64_t kv_slice, int64_t n) const {
        const int64_t which = n / rows;
        return {kv_slice / kv_heads + which / group() * kv_batches,
                kv_slice % kv_heads * group() + which % group(), n % rows};
    }

    // Where rows begin, in elements.
    __host__ __device__ static int64_t at(const Strides& strides, Place p) {
        return p.batch * strides.batch + p.head * strides.head + p.row * strides.row;
    }
    __host__ __device__ int64_t key_at(const Strides& strides, Place p, int64_t key) const {
        return at(strides, {p.batch % kv_batches, p.head / group(), key});
    }
};
