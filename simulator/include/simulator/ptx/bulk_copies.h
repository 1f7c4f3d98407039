// cp.async.bulk, cp.reduce.async.bulk and their tensor forms; st.async and red.async.
#pragma once
#include "mbarriers.h"

namespace simulator::ptx {

SIMULATOR_INLINE uint32_t in_block(uint32_t address, unsigned rank) {
    return (address & 0xffffff) | rank << 24;
}

// A copy to shared memory for which a barrier there is told: of the block that the addresses name,
// or of all in a mask, at the same place in each. With cta_group::2 blocks are in pairs, and the
// barrier is of the first or of the second of each pair, as the one that is named.
SIMULATOR_INLINE void start(BulkCopy copy, uint32_t to, uint32_t barrier, uint32_t mask,
                            bool in_pairs, const char* what, const char* file, int line) {
    copy.what = what, copy.file = file, copy.line = line;
    if (to % 16 || copy.bytes % 16)
        fail("addresses and sizes are multiples of 16 bytes", what, file, line);
    const auto start_in = [&](uint32_t address, uint32_t of_barrier) {
        copy.shared = __ptx_shared(address);
        copy.barrier = __ptx_barrier_at(__ptx_shared(of_barrier));
        add_copy(block_of(of_barrier), copy);
        copy.is_repeat = true;
    };
    if (!mask) return start_in(to, barrier);
    for (unsigned rank = 0; mask >> rank; rank++)
        if (mask >> rank & 1) {
            const unsigned told = in_pairs ? (rank & ~1u) | (barrier >> 24 & 1) : rank;
            start_in(in_block(to, rank), in_block(barrier, told));
        }
}

SIMULATOR_INLINE void __ptx_copy_bulk(uint64_t to, const char* from, uint32_t bytes,
                                      uint64_t barrier, uint32_t mask, SIMULATOR_CALLER) {
    to = shared_operand(to), barrier = shared_operand(barrier);
    if (reinterpret_cast<uintptr_t>(from) % 16)
        fail("addresses and sizes are multiples of 16 bytes", "cp.async.bulk", file, line);
    BulkCopy copy{};
    copy.kind = BulkCopy::Bytes;
    copy.from = from;
    copy.bytes = copy.transaction = bytes;
    start(copy, to, barrier, mask, false, "cp.async.bulk", file, line);
}

SIMULATOR_INLINE void __ptx_reduce_bulk_shared(uint64_t to, const char* from, uint32_t bytes,
                                               uint64_t barrier, Reduction reduction,
                                               TensorType type, SIMULATOR_CALLER) {
    to = shared_operand(to), barrier = shared_operand(barrier);
    BulkCopy copy{};
    copy.kind = BulkCopy::Bytes;
    copy.reduction = reduction;
    copy.type = type;
    copy.from = from;
    copy.bytes = copy.transaction = bytes;
    start(copy, to, barrier, 0, false, "cp.reduce.async.bulk", file, line);
}

// To global memory, as one of a group of the thread's. moving: as in BulkCopy.
SIMULATOR_INLINE void __ptx_copy_bulk_global(char* to, const char* from, uint32_t bytes,
                                             Reduction reduction, TensorType type, uint16_t moving,
                                             SIMULATOR_CALLER) {
    if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | bytes) % 16)
        fail("addresses and sizes are multiples of 16 bytes", "cp.async.bulk", file, line);
    BulkCopy copy{};
    copy.kind = BulkCopy::Bytes;
    copy.reduction = reduction;
    copy.type = type;
    copy.moving = moving;
    copy.shared = to;
    copy.from = from;
    copy.bytes = bytes;
    copy.what = reduction == Reduction::None ? "cp.async.bulk" : "cp.reduce.async.bulk";
    copy.file = file, copy.line = line;
    add_to_group(copy);
}

// at: from the innermost dimension on; of single rows, the column and four rows.
struct Box {
    uint64_t map;
    int32_t at[5];
    int16_t offsets[3] = {};
};
using __ptx_Box = Box;

// How an instruction takes a tensor: Rows for tile::gather4 and tile::scatter4.
enum class Mode : uint8_t { Box, Rows, Im2col, Im2colWide, Im2colWide128 };
SIMULATOR_NAMED(Mode, Box)
SIMULATOR_NAMED(Mode, Rows)
SIMULATOR_NAMED(Mode, Im2col)
SIMULATOR_NAMED(Mode, Im2colWide)
SIMULATOR_NAMED(Mode, Im2colWide128)

// Why a tensor map does not go with an instruction; null where it does.
inline const char* mismatch(const TensorMap& map, unsigned rank, Mode mode) {
    if (map.mark != TensorMap::encoded)
        return "its tensor map is none that cuTensorMapEncodeTiled has made";
    const bool is_im2col = mode >= Mode::Im2col;
    if (is_im2col != (map.traversal != Traversal::Box))
        return is_im2col ? "its tensor map is one of cuTensorMapEncodeTiled, not of im2col"
                         : "its tensor map is one of im2col, not of cuTensorMapEncodeTiled";
    const auto wanted = Traversal(is_im2col ? int(mode) - int(Mode::Im2col) + 1 : 0);
    if (map.traversal != wanted)
        return "its tensor map is made for im2col, im2col::w or im2col::w::128, and not for this";
    if (map.rank != rank) return "its tensor map has another rank";
    if (mode == Mode::Rows && map.box[1] != 1)
        return "tile::gather4 and tile::scatter4 want a tensor map whose box is one row";
    return nullptr;
}

SIMULATOR_INLINE BulkCopy copy_of_box(const Box& box, unsigned rank, Mode mode, const char* what,
                                      const char* file, int line) {
    BulkCopy copy{};
    copy.map = *reinterpret_cast<const TensorMap*>(box.map);
    if (const char* reason = mismatch(copy.map, rank, mode)) fail(reason, what, file, line);
    const Packing packing = packing_of(copy.map.type);
    if (packing.shared_bytes != packing.bytes && box.at[0] % 128)
        fail("a box of padded elements begins at a multiple of 128 of its row", what, file, line);
    if (int64_t(box.at[0]) * packing.bytes % (16 * packing.elements))
        fail(
            "a box begins at a multiple of 16 bytes of its row (an H200 ends in an illegal "
            "instruction where it does not)",
            what, file, line);
    copy.is_of_rows = mode == Mode::Rows;
    copy.bytes = copy.map.box[0] / packing.elements * packing.shared_bytes;
    for (unsigned d = 0; d < (copy.is_of_rows ? 5 : rank); d++) copy.at[d] = box.at[d];
    for (int d = 0; d < 3; d++) copy.offsets[d] = box.offsets[d];
    if (copy.is_of_rows) {
        copy.bytes *= 4;
    } else if (mode == Mode::Box) {
        for (unsigned d = 1; d < rank; d++)
            copy.bytes *= (copy.map.box[d] + copy.map.steps[d] - 1) / copy.map.steps[d];
    } else {
        const unsigned halos = mode == Mode::Im2colWide128 ? 4 : mode == Mode::Im2colWide;
        if (halos && box.offsets[0] < 0) fail("the halo is negative", what, file, line);
        copy.bytes *= copy.pixels() + halos * box.offsets[0];
    }
    return copy;
}

SIMULATOR_INLINE void __ptx_copy_box(uint64_t to, const Box& box, unsigned rank, Mode mode,
                                     uint64_t barrier, uint32_t mask, bool in_pairs,
                                     SIMULATOR_CALLER) {
    to = shared_operand(to), barrier = shared_operand(barrier);
    const char* what = "cp.async.bulk.tensor";
    BulkCopy copy = copy_of_box(box, rank, mode, what, file, line);
    copy.kind = BulkCopy::BoxToShared;
    copy.transaction = copy.bytes;
    if (to % 128) fail("a box in shared memory lies on a multiple of 128 bytes", what, file, line);
    start(copy, to, barrier, mask, in_pairs, what, file, line);
}

SIMULATOR_INLINE void __ptx_copy_box_global(const Box& box, unsigned rank, Mode mode, char* from,
                                            Reduction reduction, SIMULATOR_CALLER) {
    const char* what = "cp.async.bulk.tensor";
    BulkCopy copy = copy_of_box(box, rank, mode, what, file, line);
    copy.kind = BulkCopy::BoxToGlobal;
    copy.reduction = reduction;
    copy.type = copy.map.type;
    copy.shared = from;
    if (copy.map.type == TensorType::U4Padded)
        fail("elements of 16U4_ALIGN16B are loaded, and not stored", what, file, line);
    if (copy.map.atom == 2)
        fail(
            "a swizzle of atoms of 32 bytes with a flip of 8 is for loads alone", what, file, line);
    if (reduction != Reduction::None && copy.map.type >= TensorType::U4)
        fail("packed elements are not reduced", what, file, line);
    for (unsigned d = 0; d < rank && mode == Mode::Box; d++)
        if (box.at[d] < 0)
            fail("a box that is written has no coordinate less than 0", what, file, line);
    if (reinterpret_cast<uintptr_t>(from) % 128)
        fail("a box in shared memory lies on a multiple of 128 bytes", what, file, line);
    copy.what = what, copy.file = file, copy.line = line;
    add_to_group(copy);
}

// A field of a tensor map in memory. Numbers are those of the PTX manual, types too.
enum class Field : uint8_t {
    Address,
    Rank,
    Box,
    Extent,
    Stride,
    Step,
    Type,
    Interleave,
    Swizzle,
    Atom,
    Fill
};
SIMULATOR_NAMED(Field, Address)
SIMULATOR_NAMED(Field, Rank)
SIMULATOR_NAMED(Field, Box)
SIMULATOR_NAMED(Field, Extent)
SIMULATOR_NAMED(Field, Stride)
SIMULATOR_NAMED(Field, Step)
SIMULATOR_NAMED(Field, Type)
SIMULATOR_NAMED(Field, Interleave)
SIMULATOR_NAMED(Field, Swizzle)
SIMULATOR_NAMED(Field, Atom)
SIMULATOR_NAMED(Field, Fill)

SIMULATOR_INLINE void __ptx_replace_in_map(char* at, Field field, unsigned d, uint64_t value,
                                           SIMULATOR_CALLER) {
    const char* what = "tensormap.replace";
    static constexpr TensorType types[] = {
        TensorType::U8,        TensorType::U16, TensorType::U32,      TensorType::S32,
        TensorType::U64,       TensorType::S64, TensorType::F16,      TensorType::F32,
        TensorType::F32Flush,  TensorType::F64, TensorType::BF16,     TensorType::TF32,
        TensorType::TF32Flush, TensorType::U4,  TensorType::U4Padded, TensorType::U6Padded};
    static constexpr uint8_t swizzles[] = {0, 32, 64, 128};
    auto& map = *reinterpret_cast<TensorMap*>(at);
    if (reinterpret_cast<uintptr_t>(at) % 64)
        fail("a tensor map lies on a multiple of 64 bytes", what, file, line);
    if (d > 4 || (d > 3 && field == Field::Stride))
        fail("a tensor has at most five dimensions", what, file, line);
    map.mark = TensorMap::encoded;
    switch (field) {
        case Field::Address:
            if (value % 16) fail("the address is a multiple of 16 bytes", what, file, line);
            map.base = reinterpret_cast<void*>(value);
            return;
        case Field::Rank:
            if (value > 4) fail("the rank less one is from 0 to 4", what, file, line);
            map.rank = uint8_t(value + 1);
            return;
        case Field::Box:
            if (value < 1 || value > 256)
                fail("a box has from 1 to 256 elements in a dimension", what, file, line);
            map.box[d] = uint16_t(value);
            return;
        case Field::Extent:
            map.extent[d] = uint32_t(value);
            return;
        case Field::Stride:
            if (value % 16) fail("a stride is a multiple of 16 bytes", what, file, line);
            map.stride[d] = value;
            return;
        case Field::Step:
            if (value < 1 || value > 8) fail("a step is from 1 to 8", what, file, line);
            map.steps[d] = d ? uint8_t(value) : 1;
            return;
        case Field::Type:
            if (value > 15) fail("the type of the elements is none", what, file, line);
            map.type = types[value];
            return;
        case Field::Interleave:
            if (value) fail("the simulator has no interleaved layouts", what, file, line);
            return;
        case Field::Swizzle:
            if (value > 3) fail("the swizzle is none", what, file, line);
            map.swizzle = swizzles[value];
            return;
        case Field::Atom:
            if (value > 3) fail("the swizzle's atom is none", what, file, line);
            map.atom = uint8_t(value);
            return;
        case Field::Fill:
            map.fills_with_nan = value & 1;
            return;
    }
}

// tensormap.cp_fenceproxy: a tensor map that has been changed in shared memory.
SIMULATOR_INLINE void __ptx_copy_map(char* to, const char* from) {
    *reinterpret_cast<TensorMap*>(to) = *reinterpret_cast<const TensorMap*>(from);
}

// st.async and red.async: a value, or a vector of them.
template <class T, int count>
SIMULATOR_INLINE void __ptx_store_async(uint64_t to, const Vector<T, count>& values,
                                        uint64_t barrier, Reduction reduction, TensorType type,
                                        SIMULATOR_CALLER) {
    to = shared_operand(to), barrier = shared_operand(barrier);
    BulkCopy copy{};
    copy.kind = BulkCopy::Word;
    copy.what = reduction == Reduction::None ? "st.async" : "red.async";
    copy.file = file, copy.line = line;
    copy.reduction = reduction;
    copy.type = type;
    copy.bytes = copy.transaction = sizeof values;
    __builtin_memcpy(copy.words, &values, sizeof values);
    copy.shared = __ptx_shared(to);
    if (to % sizeof values)
        fail("what is written lies on a multiple of its own size", copy.what, file, line);
    copy.barrier = __ptx_barrier_at(__ptx_shared(barrier));
    add_copy(block_of(barrier), copy);
}

SIMULATOR_NAMED(Reduction, None)
SIMULATOR_NAMED(Reduction, Add)
SIMULATOR_NAMED(Reduction, Min)
SIMULATOR_NAMED(Reduction, Max)
SIMULATOR_NAMED(Reduction, And)
SIMULATOR_NAMED(Reduction, Or)
SIMULATOR_NAMED(Reduction, Xor)
SIMULATOR_NAMED(Reduction, Inc)
SIMULATOR_NAMED(Reduction, Dec)
SIMULATOR_NAMED(TensorType, U32)
SIMULATOR_NAMED(TensorType, S32)
SIMULATOR_NAMED(TensorType, U64)
SIMULATOR_NAMED(TensorType, S64)
SIMULATOR_NAMED(TensorType, F16)
SIMULATOR_NAMED(TensorType, BF16)
SIMULATOR_NAMED(TensorType, F32)
SIMULATOR_NAMED(TensorType, F64)

SIMULATOR_INLINE void __ptx_commit_group() { commit_group(); }
SIMULATOR_INLINE void __ptx_wait_for_groups(size_t prior, bool until_read, SIMULATOR_CALLER) {
    wait_for_groups(prior, until_read, file, line);
}

}  // namespace simulator::ptx
