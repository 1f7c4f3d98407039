// What bindings of tensors with heads share: how those lie in memory.
#pragma once

#include "binding.h"
#include "heads.h"

// t.size(-n), and 1 where there is no such dimension.
inline int64_t from_end(const Tensor& t, int64_t n) { return n <= t.dim() ? t.size(t.dim() - n) : 1; }

// Of t [..., heads, rows, cols]: as it is, if one stride takes its elements from each batch, head
// and row to the next; else packed.
inline Strides strides_of(Tensor& t) {
    const int64_t dims = t.dim();
    if (dims > 4 || (t.size(-1) > 1 && t.stride(dims - 1) != 1)) t = packed(t);
    Strides packed = {};
    packed.row = from_end(t, 1);
    packed.head = packed.row * from_end(t, 2);
    packed.batch = packed.head * from_end(t, 3);
    const auto of = [&](int64_t n, int64_t otherwise) {
        return dims <= 4 && dims >= n && t.size(dims - n) > 1 ? t.stride(dims - n) : otherwise;
    };
    return {of(4, packed.batch), of(3, packed.head), of(2, packed.row)};
}
