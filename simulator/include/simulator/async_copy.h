// Copies that a thread asks for and later waits for. Each is carried out as late as it may be, when
// the thread waits for it: code that forgets to wait fails here as it may fail on a GPU.
#pragma once
#include "block.h"

namespace simulator {

// `count` pieces of 1, 2, 4, 8 or 16 bytes, `stride` bytes apart, and so many bytes of zeros behind
// the last.
struct AsyncCopy {
    char* to;
    const char* from;
    size_t count, stride;
    uint8_t piece, zeros;
};

// Those of a thread, in their order: from `done` on they have still to be carried out.
struct CopyQueue {
    struct Numbered {
        AsyncCopy copy;
        size_t batch;
    };
    Numbered* copies;
    size_t size, capacity, done, batches;
    uint64_t block;  // whose they are; what a block before has left is forgotten
};
SIMULATOR_EXPORT void grow(CopyQueue& queue);

SIMULATOR_INLINE CopyQueue& copies_of_thread() {
    CopyQueue& mine = current->copy_queues[current->rank];
    if (mine.block != current->serial) {
        mine.size = mine.done = mine.batches = 0;
        mine.block = current->serial;
    }
    return mine;
}

template <class Word>
void copy_pieces(const AsyncCopy& copy) {
    for (size_t i = 0; i < copy.count * copy.stride; i += copy.stride)
        *reinterpret_cast<Word*>(copy.to + i) = *reinterpret_cast<const Word*>(copy.from + i);
}

SIMULATOR_INLINE void carry_out(const AsyncCopy& copy) {
    switch (copy.piece) {
        case 16:
            copy_pieces<uint4>(copy);
            break;
        case 8:
            copy_pieces<uint2>(copy);
            break;
        case 4:
            copy_pieces<uint32_t>(copy);
            break;
        case 2:
            copy_pieces<uint16_t>(copy);
            break;
        default:
            copy_pieces<char>(copy);
    }
    char* const end = copy.to + copy.count * copy.piece;
    for (unsigned i = 0; i < copy.zeros; i++) end[i] = 0;
}

SIMULATOR_INLINE void queue_copy(const AsyncCopy& copy) {
    CopyQueue& mine = copies_of_thread();
    if (mine.size == mine.capacity) grow(mine);
    mine.copies[mine.size++] = {copy, mine.batches};
}

SIMULATOR_INLINE void carry_out_queued(size_t prior) {
    CopyQueue& mine = copies_of_thread();
    size_t i = mine.done;
    for (; i < mine.size && mine.copies[i].batch + prior < mine.batches; i++) {
        const AsyncCopy& copy = mine.copies[i].copy;
        if (copy.piece == 16 && copy.count == 1 && !copy.zeros)  // nearly always
            *reinterpret_cast<uint4*>(copy.to) = *reinterpret_cast<const uint4*>(copy.from);
        else
            carry_out(copy);
    }
    mine.done = i;
    if (i == mine.size) mine.size = mine.done = 0;
}

// Of the running thread: one copy more; those so far are a batch; and a wait, until all batches but
// the last `prior` are complete. What is checked has the executor do it, which tells the checker.
#if defined(SIMULATOR_EXECUTOR) || defined(__SANITIZE_THREAD__)
SIMULATOR_EXPORT void add_copy(const AsyncCopy& copy, const char* what, const char* file, int line);
SIMULATOR_EXPORT void commit_copies();
SIMULATOR_EXPORT void wait_for_copies(size_t prior, SIMULATOR_CALLER);
#else
SIMULATOR_INLINE void add_copy(const AsyncCopy& copy, const char*, const char*, int) {
    queue_copy(copy);
}
SIMULATOR_INLINE void commit_copies() { copies_of_thread().batches++; }
SIMULATOR_INLINE void wait_for_copies(size_t prior, const char* = nullptr, int = 0) {
    carry_out_queued(prior);
}
#endif

}  // namespace simulator
