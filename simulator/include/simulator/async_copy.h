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

// One of a thread's queue: 16 bytes, which is what nearly all have, or if `to` is negative
// something else. Its kind is then above the bits of an address: one piece of so many bytes, or one
// of these.
struct QueuedCopy {
    static constexpr int64_t end_of_batch = 0, other = 64;
    static constexpr int kind_at = 56;

    int64_t to;  // or, of another copy, its number among CopyQueue::others
    const char* from;

    static int64_t of_kind(int64_t kind, int64_t to) { return INT64_MIN | kind << kind_at | to; }
    int64_t kind() const { return to >> kind_at & 127; }
    int64_t address() const { return to & ((int64_t(1) << kind_at) - 1); }
};

// What a thread has not waited for yet, in its order.
struct CopyQueue {
    QueuedCopy *begin, *limit;  // of the room for it
    QueuedCopy *next, *end;     // what has still to be carried out
    size_t batches;             // that have ended
    AsyncCopy* others;
    size_t others_size, others_capacity;
    CopyQueue* next_free;
};

// Of a block's threads. One has a queue from its first copy until all are carried out. Then the
// next thread takes it: so they are few, and stay in the CPU's cache.
struct CopyQueues {
    CopyQueue none;  // is that of a thread which has no queue: empty, and without room
    CopyQueue* free;
    unsigned in_use;
};

SIMULATOR_INLINE void give_back(Block& block, unsigned rank) {
    CopyQueue* const queue = block.copy_queues[rank];
    queue->next = queue->end = queue->begin;
    queue->batches = queue->others_size = 0;
    queue->next_free = block.queues->free;
    block.queues->free = queue;
    block.queues->in_use--;
    block.copy_queues[rank] = &block.queues->none;
}

// For one copy more of the running thread.
SIMULATOR_EXPORT CopyQueue* make_room();
SIMULATOR_EXPORT void queue_copy(const AsyncCopy& copy);
SIMULATOR_EXPORT void carry_out_other(const CopyQueue& queue, const QueuedCopy& copy);

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

SIMULATOR_INLINE CopyQueue* put(int64_t to, const void* from) {
    CopyQueue* mine = current->copy_queues[current->rank];
    QueuedCopy* place = mine->end;
    if (__builtin_expect(place == mine->limit, false)) {
        mine = make_room();
        place = mine->end;
    }
    mine->end = place + 1;
    *place = {to, static_cast<const char*>(from)};
    return mine;
}

SIMULATOR_INLINE void queue_piece(void* to, const void* from, size_t bytes) {
    const auto address = reinterpret_cast<int64_t>(to);
    __builtin_prefetch(from);  // as on a GPU it is on its way while the thread does other work
    put(bytes == 16 ? address : QueuedCopy::of_kind(bytes, address), from);
}

SIMULATOR_INLINE void end_batch() {
    put(QueuedCopy::of_kind(QueuedCopy::end_of_batch, 0), nullptr)->batches++;
}

// All batches but the last `prior`.
SIMULATOR_INLINE void carry_out_queued(size_t prior) {
    CopyQueue& mine = *current->copy_queues[current->rank];
    if (mine.batches <= prior) return;
    QueuedCopy* copy = mine.next;
    for (size_t left = mine.batches - prior; left; copy++) {
        if (__builtin_expect(copy->to >= 0, true))
            *reinterpret_cast<uint4*>(copy->to) = *reinterpret_cast<const uint4*>(copy->from);
        else if (copy->kind() == QueuedCopy::end_of_batch)
            left--;
        else
            carry_out_other(mine, *copy);
    }
    mine.batches = prior;
    mine.next = copy;
    if (copy == mine.end) give_back(*current, current->rank);
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
