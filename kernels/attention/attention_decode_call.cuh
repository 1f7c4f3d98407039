// What a call of attention_decode is made of: sizes, strides, and where the tokens of a cache are.
#pragma once

#include "attention_call.cuh"

// Where a token is: which batch or page has it, and its row there. page is -1 if there is none.
struct Token {
    int64_t page, row;
};

struct Decode {
    int64_t batches, heads, queries, cols;  // of q
    int64_t kv_heads, tokens;               // tokens: the most that a sequence can have
    int64_t pages, page_size, max_pages;    // of a cache in pages
    int64_t left;                           // tokens that a query sees before its own
    double scale;
    Strides q, k, v;        // of k and v in pages, batch is from one page to the next
    const int32_t* table;   // [batches, max_pages]; null: the cache is not in pages
    const void* lengths;    // [batches]; null: all sequences have `tokens`
    bool has_long_lengths;  // int64

    __host__ __device__ int64_t lines() const { return batches * heads * queries; }
    // (64 bits would be divided by a hundred instructions.)
    __host__ __device__ int64_t group() const { return uint32_t(heads) / uint32_t(kv_heads); }
    // Rows of q that share a head of k and v.
    __host__ __device__ int64_t rows() const { return group() * queries; }

    // -1 if it is not from 0 to `tokens`.
    __device__ int64_t length(int64_t batch) const {
        if (!lengths) return tokens;
        const int64_t length = has_long_lengths ? static_cast<const int64_t*>(lengths)[batch]
                                                : static_cast<const int32_t*>(lengths)[batch];
        return length <= tokens && length >= 0 ? length : -1;
    }

    // The tokens that a query sees: from first_key, and before end_key. None if that is not larger.
    __device__ int64_t first_key(int64_t length, int64_t query) const {
        const int64_t first = length - queries + query - left;
        return first > 0 ? first : 0;
    }
    __device__ int64_t end_key(int64_t length, int64_t query) const {
        return length - queries + query + 1;
    }

    __device__ Token token(int64_t batch, int64_t key) const {
        if (!table) return {batch, key};
        const uint32_t which = uint32_t(key) / uint32_t(page_size);
        const int64_t page = table[batch * max_pages + which];
        return {page < pages ? page : -1, key - int64_t(which) * page_size};
    }
    __device__ int64_t at(const Strides& strides, int64_t kv_head, Token token) const {
        return token.page * strides.batch + kv_head * strides.head + token.row * strides.row;
    }
    // -1 if the page does not exist.
    __device__ int64_t at(const Strides& strides, int64_t batch, int64_t kv_head,
                          int64_t key) const {
        const Token t = token(batch, key);
        return t.page < 0 ? -1 : at(strides, kv_head, t);
    }
};
