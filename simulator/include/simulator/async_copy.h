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

// One of a thread's queue, in two words, so that the queues of a block stay in the CPU's cache. Its
// kind is above the bits of an address: one piece of so many bytes, or one of these.
struct QueuedCopy {
    static constexpr uint64_t end_of_batch = 0, other = 255;
    static constexpr int kind_at = 56;

    uintptr_t to;  // or, of another copy, its number among CopyQueue::others
    uint64_t kind_and_from;

    uint64_t kind() const { return kind_and_from >> kind_at; }
    uintptr_t from() const { return kind_and_from & ((uint64_t(1) << kind_at) - 1); }
};

// Those of a thread, in their order: from `done` on they have still to be carried out.
struct CopyQueue {
    QueuedCopy* copies;
    size_t size, capacity, done;
    size_t batches;  // that have ended and not been waited for
    uint64_t block;  // whose they are; what a block before has left is forgotten
    AsyncCopy* others;
    size_t others_size, others_capacity;
};
SIMULATOR_EXPORT void grow(CopyQueue& queue);
SIMULATOR_EXPORT void queue_other(CopyQueue& queue, const AsyncCopy& copy);
SIMULATOR_EXPORT void carry_out_other(const CopyQueue& queue, const QueuedCopy& copy);

SIMULATOR_INLINE CopyQueue& copies_of_thread() {
    CopyQueue& mine = current->copy_queues[current->rank];
    if (mine.block != current->serial) {
        mine.size = mine.done = mine.batches = mine.others_size = 0;
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

SIMULATOR_INLINE void put(CopyQueue& queue, uintptr_t to, uint64_t kind, uintptr_t from) {
    if (queue.size == queue.capacity) grow(queue);
    queue.copies[queue.size++] = {to, kind << QueuedCopy::kind_at | from};
}

SIMULATOR_INLINE void queue_copy(const AsyncCopy& copy) { queue_other(copies_of_thread(), copy); }
SIMULATOR_INLINE void queue_piece(void* to, const void* from, size_t bytes) {
    put(copies_of_thread(), reinterpret_cast<uintptr_t>(to), bytes,
        reinterpret_cast<uintptr_t>(from));
}

SIMULATOR_INLINE void end_batch() {
    CopyQueue& mine = copies_of_thread();
    put(mine, 0, QueuedCopy::end_of_batch, 0);
    mine.batches++;
}

// All batches but the last `prior`.
SIMULATOR_INLINE void carry_out_queued(size_t prior) {
    CopyQueue& mine = copies_of_thread();
    size_t i = mine.done;
    while (mine.batches > prior) {
        const QueuedCopy copy = mine.copies[i++];
        if (copy.kind() == 16)  // nearly always
            *reinterpret_cast<uint4*>(copy.to) = *reinterpret_cast<const uint4*>(copy.from());
        else if (copy.kind() == QueuedCopy::end_of_batch)
            mine.batches--;
        else
            carry_out_other(mine, copy);
    }
    mine.done = i;
    if (i == mine.size) mine.size = mine.done = mine.others_size = 0;
}

// Of the running thread: one copy more, often of one piece of 1, 2, 4, 8 or 16 bytes; those so far
// are a batch; and a wait, until all batches but the last `prior` are complete. What is checked has
// the executor do it, which tells the checker.
#if defined(SIMULATOR_EXECUTOR) || defined(__SANITIZE_THREAD__)
SIMULATOR_EXPORT void add_copy(const AsyncCopy& copy, const char* what, const char* file, int line);
SIMULATOR_EXPORT void add_piece(void* to, const void* from, size_t bytes, const char* what,
                                const char* file, int line);
SIMULATOR_EXPORT void commit_copies();
SIMULATOR_EXPORT void wait_for_copies(size_t prior, SIMULATOR_CALLER);
#else
SIMULATOR_INLINE void add_copy(const AsyncCopy& copy, const char*, const char*, int) {
    queue_copy(copy);
}
SIMULATOR_INLINE void add_piece(void* to, const void* from, size_t bytes, const char*, const char*,
                                int) {
    queue_piece(to, from, bytes);
}
SIMULATOR_INLINE void commit_copies() { end_batch(); }
SIMULATOR_INLINE void wait_for_copies(size_t prior, const char* = nullptr, int = 0) {
    carry_out_queued(prior);
}
#endif

// `size` bytes, 4, 8 or 16, of which `read` are read, and the rest is zeros.
SIMULATOR_INLINE void add_filled(void* to, const void* from, size_t read, size_t size,
                                 const char* what, const char* file, int line) {
    if (read == size) return add_piece(to, from, size, what, file, line);
    add_copy({static_cast<char*>(to), static_cast<const char*>(from), read, 1, 1,
              static_cast<uint8_t>(size - read)},
             what, file, line);
}

}  // namespace simulator
