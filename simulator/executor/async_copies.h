// What the threads of a block have asked to be copied, and have not waited for yet.
#pragma once
#include <memory>
#include "../include/simulator/async_copy.h"
#include "asynchronous.h"

namespace simulator {
namespace {

// Of the blocks that run on this operating-system thread.
struct CopyQueues {
    std::unique_ptr<CopyQueue[]> of_threads{new CopyQueue[max_threads]()};
    ~CopyQueues() {
        for (unsigned rank = 0; rank < max_threads; rank++) {
            delete[] of_threads[rank].copies;
            delete[] of_threads[rank].others;
        }
    }
};
thread_local CopyQueues copy_queues;

template <class T>
void double_capacity(T*& items, size_t size, size_t& capacity) {
    capacity = capacity ? 2 * capacity : 8;
    T* const more = new T[capacity];
    std::copy(items, items + size, more);
    delete[] items;
    items = more;
}

}  // namespace

void grow(CopyQueue& queue) { double_capacity(queue.copies, queue.size, queue.capacity); }

void queue_other(CopyQueue& queue, const AsyncCopy& copy) {
    if (queue.others_size == queue.others_capacity)
        double_capacity(queue.others, queue.others_size, queue.others_capacity);
    put(queue, queue.others_size, QueuedCopy::other, 0);
    queue.others[queue.others_size++] = copy;
}

void carry_out_other(const CopyQueue& queue, const QueuedCopy& copy) {
    if (copy.kind() == QueuedCopy::other) return carry_out(queue.others[copy.to]);
    const auto piece = static_cast<uint8_t>(copy.kind());
    carry_out({reinterpret_cast<char*>(copy.to), reinterpret_cast<const char*>(copy.from()), 1,
               piece, piece, 0});
}

// For kernels under check. The work is told of from where the kernel calls: inline in both.
[[gnu::always_inline]] inline void begin(const AsyncCopy& copy, const char* what, const char* file,
                                         int line) {
    WorkWatcher* const work = watching_work();
    if (work) work->copy(copy, what, file, line);
    if (work && work->is_early())
        carry_out(copy);
    else
        queue_copy(copy);
}
void add_copy(const AsyncCopy& copy, const char* what, const char* file, int line) {
    begin(copy, what, file, line);
}
void add_piece(void* to, const void* from, size_t bytes, const char* what, const char* file,
               int line) {
    const auto piece = static_cast<uint8_t>(bytes);
    begin({static_cast<char*>(to), static_cast<const char*>(from), 1, bytes, piece, 0}, what, file,
          line);
}
void commit_copies() {
    if (WorkWatcher* work = watching_work()) work->commit_copies();
    end_batch();
}
void wait_for_copies(size_t prior, const char* file, int line) {
    carry_out_queued(prior);
    if (WorkWatcher* work = watching_work()) work->copies_done(prior, file, line);
}

}  // namespace simulator
