// Carries out a copy in bulk: of bytes in a row, or of a box of a tensor, with its reduction.
#pragma once
#include "../include/simulator/bulk_copy.h"

namespace simulator {

template <class T, class Combine>
SIMULATOR_INLINE void combine_at(char* to, const char* from, Combine combine) {
    T value;
    __builtin_memcpy(static_cast<void*>(&value), from, sizeof(T));
    atomic_update(reinterpret_cast<T*>(to), [&](T before) { return combine(before, value); });
}

template <class T>
SIMULATOR_INLINE void reduce_number(Reduction reduction, char* to, const char* from) {
    switch (reduction) {
        case Reduction::Add:
            return combine_at<T>(to, from, [](T a, T b) -> T { return a + b; });
        case Reduction::Min:
            return combine_at<T>(to, from, [](T a, T b) { return b < a ? b : a; });
        case Reduction::Max:
            return combine_at<T>(to, from, [](T a, T b) { return a < b ? b : a; });
        default:
            break;
    }
    if constexpr (!__is_class(T) && !__is_same(T, float) && !__is_same(T, double)) {
        switch (reduction) {
            case Reduction::And:
                return combine_at<T>(to, from, [](T a, T b) { return T(a & b); });
            case Reduction::Or:
                return combine_at<T>(to, from, [](T a, T b) { return T(a | b); });
            case Reduction::Xor:
                return combine_at<T>(to, from, [](T a, T b) { return T(a ^ b); });
            case Reduction::Inc:
                return combine_at<T>(to, from, [](T a, T b) { return a >= b ? T(0) : T(a + 1); });
            default:
                return combine_at<T>(
                    to, from, [](T a, T b) { return a == 0 || a > b ? b : T(a - 1); });
        }
    }
}

SIMULATOR_INLINE void reduce_element(TensorType type, Reduction reduction, char* to,
                                     const char* from) {
    switch (type) {
        case TensorType::U32:
            return reduce_number<uint32_t>(reduction, to, from);
        case TensorType::S32:
            return reduce_number<int32_t>(reduction, to, from);
        case TensorType::U64:
            return reduce_number<uint64_t>(reduction, to, from);
        case TensorType::S64:
            return reduce_number<int64_t>(reduction, to, from);
        case TensorType::F32:
            return reduce_number<float>(reduction, to, from);
        case TensorType::F64:
            return reduce_number<double>(reduction, to, from);
        case TensorType::F16:
            return reduce_number<Half16<false>>(reduction, to, from);
        case TensorType::BF16:
            return reduce_number<Half16<true>>(reduction, to, from);
        default:
            return reduce_number<uint16_t>(reduction, to, from);
    }
}

SIMULATOR_INLINE void move_bytes(char* to, const char* from, size_t bytes) {
    struct alignas(16) Sixteen {
        uint64_t words[2];
    };
    const uintptr_t all = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from);
    size_t done = 0;
    if (all % 16 == 0)
        for (; done + 16 <= bytes; done += 16)
            *reinterpret_cast<Sixteen*>(to + done) = *reinterpret_cast<const Sixteen*>(from + done);
    if (all % 4 == 0)
        for (; done + 4 <= bytes; done += 4)
            *reinterpret_cast<uint32_t*>(to + done) =
                *reinterpret_cast<const uint32_t*>(from + done);
    for (; done < bytes; done++) to[done] = from[done];
}

SIMULATOR_INLINE void move_or_reduce(const BulkCopy& copy, char* to, const char* from,
                                     size_t bytes) {
    if (copy.reduction == Reduction::None) return move_bytes(to, from, bytes);
    const size_t size = size_of(copy.type);
    for (size_t i = 0; i < bytes; i += size)
        reduce_element(copy.type, copy.reduction, to + i, from + i);
}

// The rows of what a copy moves, as they follow on each other in shared memory, by their indices.
// visit(indices): those in the dimensions from 1 on.
template <class Visit>
inline void for_each_row(const BulkCopy& copy, Visit visit) {
    const TensorMap& map = copy.map;
    int64_t index[5] = {};
    if (copy.is_of_rows) {
        for (unsigned row = 0; row < 4; row++) {
            index[1] = copy.at[1 + row];
            visit(index);
        }
        return;
    }
    if (map.traversal == Traversal::Box) {
        unsigned count[5] = {1, 1, 1, 1, 1};
        size_t rows = 1;
        for (unsigned d = 1; d < map.rank; d++)
            rows *= count[d] = (map.box[d] + map.steps[d] - 1) / map.steps[d];
        for (size_t row = 0; row < rows; row++) {
            size_t rest = row;
            for (unsigned d = 1; d < map.rank; d++) {
                index[d] = copy.at[d] + int64_t(rest % count[d]) * map.steps[d];
                rest /= count[d];
            }
            visit(index);
        }
        return;
    }
    // Pixel after pixel, from one end of the bounding box to the other in each dimension.
    const bool is_wide = map.traversal != Traversal::Im2col;
    const unsigned last = map.rank - 1;  // the dimension of images
    int64_t at[5], first[5], end[5];
    for (unsigned d = 1; d < map.rank; d++) at[d] = copy.at[d];
    for (unsigned d = 1; d < last; d++) {
        first[d] = is_wide && d > 1 ? at[d] : map.lower[d - 1];
        end[d] = is_wide && d > 1 ? at[d] + 1 : int64_t(map.extent[d]) + map.upper[d - 1];
    }
    const auto see = [&](int64_t more) {
        for (unsigned d = 1; d < map.rank; d++) index[d] = at[d];
        for (unsigned d = 1; d < last && !is_wide; d++) index[d] += copy.offsets[d - 1];
        if (is_wide) index[1] += copy.offsets[1] + more;
        visit(index);
    };
    const unsigned pixels = copy.pixels();
    for (unsigned pixel = 1; pixel <= pixels; pixel++) {
        see(0);
        const bool has_halo = map.traversal == Traversal::Im2colWide128
                                  ? pixel % 32 == 0
                                  : is_wide && pixel == pixels;
        for (int halo = 1; has_halo && halo <= copy.offsets[0]; halo++) see(halo * map.steps[1]);
        at[1] += map.steps[1];
        for (unsigned d = 1; d < last && at[d] >= end[d]; d++) {
            at[d] = first[d];
            at[d + 1] += d + 1 < last ? map.steps[d + 1] : 1;
        }
    }
}

// What lies together in shared memory of a row of a box: 16 bytes, where it is swizzled.
struct BoxPiece {
    char *shared, *global;         // global: of its first byte that lies in the tensor
    size_t before, inside, after;  // bytes: those outside of the tensor are filled
    size_t free;                   // bytes behind them that padding leaves free
};

template <class Visit>
inline void for_each_piece(const BulkCopy& copy, Visit visit) {
    const TensorMap& map = copy.map;
    const Packing packing = packing_of(map.type);
    const size_t row_bytes = map.box[0] / packing.elements * packing.shared_bytes;
    const bool is_padded = packing.shared_bytes != packing.bytes;
    const size_t together = map.atom == 2 ? 8 : map.swizzle || is_padded ? 16 : row_bytes;
    char* row_at = copy.shared;
    for_each_row(copy, [&](const int64_t* index) {
        const char* global = static_cast<const char*>(map.base);
        bool is_inside = true;
        for (unsigned d = 1; d < map.rank; d++) {
            is_inside &= index[d] >= 0 && uint64_t(index[d]) < map.extent[d];
            global += index[d] * int64_t(map.stride[d - 1]);
        }
        // In units of the packing, which a tensor begins and ends with.
        const int64_t begin_at = int64_t(copy.at[0]) / int64_t(packing.elements);
        const int64_t extent =
            (int64_t(map.extent[0]) + packing.elements - 1) / int64_t(packing.elements);
        for (size_t begin = 0; begin < row_bytes; begin += together) {
            const size_t end = begin + together < row_bytes ? begin + together : row_bytes;
            char* const shared = swizzled(row_at + begin, map.swizzle, map.atom);
            // Elements of this piece that lie in the tensor.
            const int64_t first = begin / packing.shared_bytes, last = end / packing.shared_bytes;
            int64_t from = first, to = last;
            if (begin_at + from < 0) from = -begin_at < last ? -begin_at : last;
            if (begin_at + to > extent) to = extent - begin_at > from ? extent - begin_at : from;
            if (!is_inside) from = to = first;
            const size_t bytes = packing.bytes, shared_bytes = packing.shared_bytes;
            visit(BoxPiece{
                shared, const_cast<char*>(global) + (begin_at + from) * int64_t(bytes),
                size_t(from - first) * shared_bytes, size_t(to - from) * bytes,
                size_t(last - to) * shared_bytes, size_t(to - from) * (shared_bytes - bytes)});
        }
        row_at += row_bytes;
    });
}

inline void carry_out_box(const BulkCopy& copy) {
    const bool is_load = copy.kind == BulkCopy::BoxToShared;
    for_each_piece(copy, [&](const BoxPiece& it) {
        char* const inside = it.shared + it.before;
        if (!is_load) return move_or_reduce(copy, it.global, inside, it.inside);
        move_bytes(inside, it.global, it.inside);
        fill_outside(it.shared, it.before, copy.map);
        for (size_t i = 0; i < it.free; i++) inside[it.inside + i] = 0;
        fill_outside(inside + it.inside + it.free, it.after, copy.map);
    });
}

inline void carry_out(const BulkCopy& copy) {
    switch (copy.kind) {
        case BulkCopy::Bytes:
            return copy.for_each_run([&](uint64_t at, uint64_t bytes) {
                move_or_reduce(copy, copy.shared + at, copy.from + at, bytes);
            });
        case BulkCopy::Word:
            return move_or_reduce(
                copy, copy.shared, reinterpret_cast<const char*>(copy.words), copy.bytes);
        case BulkCopy::Call:
            return copy.call(copy);
        default:
            return carry_out_box(copy);
    }
}

}  // namespace simulator
