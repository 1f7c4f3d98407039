// Copies in bulk between global and shared memory: of bytes in a row, and of the boxes of a tensor
// ("TMA"). Each is carried out as late as it may be: by a thread that waits for the mbarrier which
// is to be told, or that waits for its own groups of copies.
#pragma once
#include "atomics.h"
#include "tensor_map.h"

namespace simulator {

enum class Reduction : uint8_t { None, Add, Min, Max, And, Or, Xor, Inc, Dec };

struct BulkCopy {
    enum Kind : uint8_t { Bytes, BoxToShared, BoxToGlobal, Word, Call } kind;
    Reduction reduction = Reduction::None;
    TensorType type = TensorType::U8;  // of what is reduced
    uint16_t moving = 0xffff;          // Bytes: which of each 16 move
    uint32_t arrivals = 0;             // at the mbarrier, when it is carried out
    uint64_t bytes = 0, transaction = 0;
    char* shared = nullptr;  // or where bytes are to go
    const char* from = nullptr;
    uint64_t* barrier = nullptr;
    TensorMap map;  // of a box, and where it begins
    int32_t at[5];
    bool is_of_rows = false;  // at[0] and the indices of four rows
    int16_t offsets[3] = {};  // im2col: of the filter, from W on; wide: the halo, and that of W
    uint64_t words[2];        // Word: the value that is written or added
    void (*call)(const BulkCopy& copy);  // Call: what else is done before a barrier is told
    // For the checker: where it was asked for, its number there, and that it was carried out early.
    const char *what = "", *file = "";
    int line = 0;
    const void* asked_from = nullptr;
    uint32_t id = 0;
    bool is_done = false, is_repeat = false;  // and that it is one of several with one source

    // im2col: without those of the halo.
    unsigned pixels() const { return map.traversal == Traversal::Im2colWide128 ? 128 : map.pixels; }

    // Bytes: visit(offset, count) for those that move, as they follow on each other.
    template <class Visit>
    void for_each_run(Visit visit) const {
        if (moving == 0xffff) return visit(0, bytes);
        for (uint64_t begin = 0, end = 0; begin < bytes; begin = end + 1) {
            for (end = begin; end < bytes && moving >> end % 16 & 1;) end++;
            if (end > begin) visit(begin, end - begin);
        }
    }
};

// Of the running thread: a copy for which a barrier of block `of` is told.
SIMULATOR_EXPORT void add_copy(Block& of, const BulkCopy& copy);
// The next that is due at a barrier of this block. False if there is none.
SIMULATOR_EXPORT bool take_due_copy(const uint64_t* barrier, BulkCopy& copy);

// And one that belongs to a group of the running thread's: what is not in a group yet becomes one.
SIMULATOR_EXPORT void add_to_group(const BulkCopy& copy);
SIMULATOR_EXPORT void commit_group();

// A copy that is waited for: of what is checked, the checker is told, too. A copy to global memory
// may be waited for until its source has been read, and no longer.
SIMULATOR_EXPORT void finish(const BulkCopy& copy);
SIMULATOR_EXPORT void wait_for_groups(size_t prior, bool until_read, SIMULATOR_CALLER);

}  // namespace simulator
