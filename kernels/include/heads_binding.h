// What bindings of tensors with heads share: how those lie in memory.
#pragma once

#include "binding.h"
#include "heads.h"

// t.size(-n), and 1 where there is no such dimension.
inline int64_t from_end(const Tensor& t, int64_t n) {
    return n <= t.dim() ? t.size(t.dim() - n) : 1;
}

// The stride from one batch of t [..., heads, rows, cols] to the next, if there is a single one.
inline std::optional<int64_t> batch_stride(const Tensor& t) {
    int64_t stride = from_end(t, 3) * from_end(t, 2) * from_end(t, 1), batches = 1;
    for (int64_t i = t.dim() - 4; i >= 0; --i) {
        if (t.size(i) == 1) continue;
        if (batches == 1) stride = t.stride(i);
        if (t.stride(i) != batches * stride) return std::nullopt;
        batches *= t.size(i);
    }
    return stride;
}

// The strides of t. Packs t if a row is not contiguous or batches have no single stride.
inline Strides strides_of(Tensor& t) {
    std::optional<int64_t> batch = batch_stride(t);
    if (!batch || (t.size(-1) > 1 && t.stride(t.dim() - 1) != 1)) {
        t = packed(t);
        batch = batch_stride(t);
    }
    const auto of = [&](int64_t n, int64_t otherwise) {
        return from_end(t, n) > 1 ? t.stride(t.dim() - n) : otherwise;
    };
    const int64_t row = from_end(t, 1), head = row * from_end(t, 2);  // if it is packed
    return {batch.value_or(0), of(3, head), of(2, row)};              // 0: t has no element
}
