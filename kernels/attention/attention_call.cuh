// The parameters of attention: sizes, strides, and the mask.
#pragma once

#include <cuda_runtime.h>

#include "heads.h"

// A row of q, or of what has its shape.
struct Place {
    int64_t batch, head, row;
};

// Whether heads is a multiple of kv_heads (grouped-query attention, GQA).
inline bool divides(int64_t kv_heads, int64_t heads) {
    return kv_heads == heads || (kv_heads > 0 && heads % kv_heads == 0);
}

// The kernels take this, where all batches have one shape; or a PackedAttention, where they are
// sequences of different lengths. A slice is a head of a batch.
struct Attention {
    static constexpr bool kPacked = false;
    int64_t batches, heads, rows;        // of q
    int64_t kv_batches, kv_heads, keys;  // of k and v; heads is a multiple of kv_heads
    int64_t cols;
    int64_t left, right;  // row r sees keys from r + keys - rows - left to r + keys - rows + right
    double scale;
    Strides q, k, v, y, g, dq, dk, dv;  // stats are contiguous

    // left or right as a number of keys; -1, or more than there are, means no limit.
    __host__ __device__ int64_t limit(int64_t count) const {
        return count < 0 || count > rows + keys ? rows + keys : count;
    }

    __host__ __device__ int64_t slices() const { return batches * heads; }
    __host__ __device__ int64_t kv_slices() const { return kv_batches * kv_heads; }
    // Rows of a slice of q, and of k and v, in memory.
    __host__ __device__ int64_t all_rows() const { return rows; }
    __host__ __device__ int64_t all_keys() const { return keys; }

    // Tiles of `size` rows, or keys, that a slice is cut into.
    __host__ __device__ int64_t row_tiles(int size) const { return (rows + size - 1) / size; }
    __host__ __device__ int64_t key_tiles(int size) const { return (keys + size - 1) / size; }
    // The attention that a tile of a slice belongs to; `tile` becomes its number there.
    __device__ const Attention& of_rows(int64_t&, int) const { return *this; }
    __device__ const Attention& of_keys(int64_t&, int) const { return *this; }

    // GQA: heads of q per head of k and v in a batch, and slices of q per slice of k and v over all
    // batches.
    __host__ __device__ int64_t group() const { return heads / kv_heads; }
    __host__ __device__ int64_t q_slices_per_kv() const { return batches / kv_batches * group(); }

    // The keys that a row sees: from first_key on, before end_key; none if that is not larger.
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

    // The part of the parameters that depends on the sequence of a tile.
    struct Sequence {};
    __device__ const Attention& with(const Sequence&) const { return *this; }

    // The first row of a slice of q.
    __host__ __device__ Place place(int64_t slice) const {
        return {slice / heads, slice % heads, 0};
    }
    // A row of slice `which` of those slices of q that share a slice of k and v.
    __host__ __device__ Place q_place(int64_t kv_slice, int64_t which, int64_t row) const {
        return {kv_slice / kv_heads + which / group() * kv_batches,
                kv_slice % kv_heads * group() + which % group(), row};
    }
    // The same row, counted over all these slices.
    __host__ __device__ int64_t row_among_q_slices(int64_t which, int64_t row) const {
        return which * rows + row;
    }

    // The index of a row of q in stats.
    __host__ __device__ int64_t line(Place p) const {
        return (p.batch * heads + p.head) * rows + p.row;
    }

    // The TMA coordinate of a row, or a key.
    __device__ int row_coordinate(int64_t row) const { return int(row); }
    __device__ int key_coordinate(int64_t key) const { return int(key); }
    // The same for per-row values whose sequences begin on multiples of 64 rows.
    __device__ int64_t padded_row(int64_t row) const { return row; }

    // The offset of a row, in elements.
    __host__ __device__ static int64_t at(const Strides& strides, Place p) {
        return p.batch * strides.batch + p.head * strides.head + p.row * strides.row;
    }
    __host__ __device__ int64_t key_at(const Strides& strides, Place p, int64_t key) const {
        return at(strides, {p.batch % kv_batches, p.head / group(), key});
    }
    // The same for a slice of k and v, in place of one of q.
    __host__ __device__ int64_t kv_at(const Strides& strides, int64_t kv_slice, int64_t key) const {
        return at(strides, {kv_slice / kv_heads, kv_slice % kv_heads, key});
    }
};

// Packed sequences: q [tokens, heads, cols], and k and v with tokens of their own. Sequence i has
// the rows from row_begins[i] on and before row_begins[i + 1], and its keys likewise. batches is 1,
// and a slice is a head with all sequences. rows and keys are the longest sequence's; in the
// results of of_rows and of_keys they are those of one sequence, and places, rows and keys count
// from its first token.
struct PackedAttention : Attention {
    static constexpr bool kPacked = true;
    int64_t sequences, tokens, kv_tokens;
    const int32_t *row_begins, *key_begins;  // [sequences + 1], none decreases, up to the tokens
    int32_t* tile_counter;  // of the dynamic scheduler: tiles drawn beside the first of each block
    int64_t row_begin, key_begin, padded_begin;  // of a sequence

    __host__ __device__ int64_t all_rows() const { return tokens; }
    __host__ __device__ int64_t all_keys() const { return kv_tokens; }

    // Tiles of a slice, an upper bound; some may have no row.
    __host__ __device__ int64_t row_tiles(int size) const { return tiles(tokens, size); }
    __host__ __device__ int64_t key_tiles(int size) const { return tiles(kv_tokens, size); }
    __device__ PackedAttention of_rows(int64_t& tile, int size) const {
        return sequence_of_tile(row_begins, tile, size);
    }
    __device__ PackedAttention of_keys(int64_t& tile, int size) const {
        return sequence_of_tile(key_begins, tile, size);
    }

    struct Sequence {
        int row_begin, rows, key_begin, keys;  // of a sequence
    };
    __device__ Sequence sequence() const {
        return {int(row_begin), int(rows), int(key_begin), int(keys)};
    }
    __device__ PackedAttention with(const Sequence& s) const {
        PackedAttention a = *this;
        a.row_begin = s.row_begin, a.rows = s.rows;
        a.key_begin = s.key_begin, a.keys = s.keys;
        return a;
    }

    __host__ __device__ int64_t row_among_q_slices(int64_t which, int64_t row) const {
        return which * tokens + row_begin + row;
    }
    __host__ __device__ int64_t line(Place p) const { return (row_begin + p.row) * heads + p.head; }
    __device__ int row_coordinate(int64_t row) const { return int(row_begin + row); }
    __device__ int key_coordinate(int64_t key) const { return int(key_begin + key); }
    __device__ int64_t padded_row(int64_t row) const { return padded_begin + row; }

    __host__ __device__ int64_t at(const Strides& strides, Place p) const {
        return p.head * strides.head + (row_begin + p.row) * strides.row;
    }
    __host__ __device__ int64_t key_at(const Strides& strides, Place p, int64_t key) const {
        return kv_at(strides, p.head / group(), key);
    }
    __host__ __device__ int64_t kv_at(const Strides& strides, int64_t kv_slice, int64_t key) const {
        return kv_slice * strides.head + (key_begin + key) * strides.row;
    }

  private:
    __host__ __device__ int64_t tiles(int64_t count, int size) const {
        return sequences ? count / size + sequences : 0;
    }
    // The number of sequence i's first tile, with enough numbers before that of the next sequence:
    // rounding down takes less than a tile from a difference, and i adds one. So no prefix sum of
    // tiles is needed.
    __device__ static int64_t first_tile(const int32_t* begins, int64_t i, int size) {
        return (begins[i] - begins[0]) / size + i;
    }
    __device__ PackedAttention sequence_of_tile(const int32_t* begins, int64_t& tile,
                                                int size) const {
        int64_t i = 0;  // the last sequence whose first tile is not past this one
        for (int64_t end = sequences; end - i > 1;) {
            const int64_t middle = (i + end) / 2;
            if (first_tile(begins, middle, size) <= tile) {
                i = middle;
            } else {
                end = middle;
            }
        }
        tile -= first_tile(begins, i, size);
        PackedAttention a = *this;
        a.row_begin = row_begins[i], a.rows = row_begins[i + 1] - a.row_begin;
        a.key_begin = key_begins[i], a.keys = key_begins[i + 1] - a.key_begin;
        a.padded_begin = first_tile(row_begins, i, 64) * 64;
        return a;
    }
};
