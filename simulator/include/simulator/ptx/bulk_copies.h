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
        copy.shared = shared(address);
        copy.barrier = barrier_at(shared(of_barrier));
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

SIMULATOR_INLINE void copy_bulk(uint32_t to, const char* from, uint32_t bytes, uint32_t barrier,
                                uint32_t mask, SIMULATOR_CALLER) {
    if (reinterpret_cast<uintptr_t>(from) % 16)
        fail("addresses and sizes are multiples of 16 bytes", "cp.async.bulk", file, line);
    BulkCopy copy{};
    copy.kind = BulkCopy::Bytes;
    copy.from = from;
    copy.bytes = copy.transaction = bytes;
    start(copy, to, barrier, mask, false, "cp.async.bulk", file, line);
}

SIMULATOR_INLINE void reduce_bulk_shared(uint32_t to, const char* from, uint32_t bytes,
                                         uint32_t barrier, Reduction reduction, TensorType type,
                                         SIMULATOR_CALLER) {
    BulkCopy copy{};
    copy.kind = BulkCopy::Bytes;
    copy.reduction = reduction;
    copy.type = type;
    copy.from = from;
    copy.bytes = copy.transaction = bytes;
    start(copy, to, barrier, 0, false, "cp.reduce.async.bulk", file, line);
}

// To global memory, as one of a group of the thread's.
SIMULATOR_INLINE void copy_bulk_global(char* to, const char* from, uint32_t bytes,
                                       Reduction reduction, TensorType type, SIMULATOR_CALLER) {
    if ((reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | bytes) % 16)
        fail("addresses and sizes are multiples of 16 bytes", "cp.async.bulk", file, line);
    BulkCopy copy{};
    copy.kind = BulkCopy::Bytes;
    copy.reduction = reduction;
    copy.type = type;
    copy.shared = to;
    copy.from = from;
    copy.bytes = bytes;
    copy.what = reduction == Reduction::None ? "cp.async.bulk" : "cp.reduce.async.bulk";
    copy.file = file, copy.line = line;
    add_to_group(copy);
}

struct Box {
    uint64_t map;
    int32_t at[5];
};

SIMULATOR_INLINE BulkCopy copy_of_box(const Box& box, unsigned rank, const char* what,
                                      const char* file, int line) {
    BulkCopy copy{};
    copy.map = *reinterpret_cast<const TensorMap*>(box.map);
    if (copy.map.mark != TensorMap::encoded)
        fail("its tensor map is none that cuTensorMapEncodeTiled has made", what, file, line);
    if (copy.map.rank != rank) fail("its tensor map has another rank", what, file, line);
    copy.bytes = size_of(copy.map.type);
    if (box.at[0] * copy.bytes % 16)
        fail(
            "a box begins at a multiple of 16 bytes of its row (an H200 ends in an illegal "
            "instruction where it does not)",
            what, file, line);
    for (unsigned d = 0; d < rank; d++) {
        copy.at[d] = box.at[d];
        copy.bytes *= (copy.map.box[d] + copy.map.steps[d] - 1) / copy.map.steps[d];
    }
    return copy;
}

SIMULATOR_INLINE void copy_box(uint32_t to, const Box& box, unsigned rank, uint32_t barrier,
                               uint32_t mask, bool in_pairs, SIMULATOR_CALLER) {
    const char* what = "cp.async.bulk.tensor";
    BulkCopy copy = copy_of_box(box, rank, what, file, line);
    copy.kind = BulkCopy::BoxToShared;
    copy.transaction = copy.bytes;
    if (to % 128) fail("a box in shared memory lies on a multiple of 128 bytes", what, file, line);
    start(copy, to, barrier, mask, in_pairs, what, file, line);
}

SIMULATOR_INLINE void copy_box_global(const Box& box, unsigned rank, char* from,
                                      Reduction reduction, SIMULATOR_CALLER) {
    const char* what = "cp.async.bulk.tensor";
    BulkCopy copy = copy_of_box(box, rank, what, file, line);
    copy.kind = BulkCopy::BoxToGlobal;
    copy.reduction = reduction;
    copy.type = copy.map.type;
    copy.shared = from;
    for (unsigned d = 0; d < rank; d++)
        if (box.at[d] < 0)
            fail("a box that is written has no coordinate less than 0", what, file, line);
    if (reinterpret_cast<uintptr_t>(from) % 128)
        fail("a box in shared memory lies on a multiple of 128 bytes", what, file, line);
    copy.what = what, copy.file = file, copy.line = line;
    add_to_group(copy);
}

// st.async and red.async: a value, or a vector of them.
template <class T, int count>
SIMULATOR_INLINE void store_async(uint32_t to, const Vector<T, count>& values, uint32_t barrier,
                                  Reduction reduction, TensorType type, SIMULATOR_CALLER) {
    BulkCopy copy{};
    copy.kind = BulkCopy::Word;
    copy.what = reduction == Reduction::None ? "st.async" : "red.async";
    copy.file = file, copy.line = line;
    copy.reduction = reduction;
    copy.type = type;
    copy.bytes = copy.transaction = sizeof values;
    __builtin_memcpy(copy.words, &values, sizeof values);
    copy.shared = shared(to);
    if (to % sizeof values)
        fail("what is written lies on a multiple of its own size", copy.what, file, line);
    copy.barrier = barrier_at(shared(barrier));
    add_copy(block_of(barrier), copy);
}

}  // namespace simulator::ptx
