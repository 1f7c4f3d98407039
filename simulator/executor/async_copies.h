// What the threads of a block have asked to be copied, and have not waited for yet.
#pragma once
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>
#include "../include/simulator/async_copy.h"
#include "asynchronous.h"

namespace simulator {
namespace {

// Of the blocks that run on this operating-system thread.
struct OwnCopyQueues : CopyQueues {
    std::vector<std::unique_ptr<CopyQueue>> all;

    OwnCopyQueues() : CopyQueues{} {}
    ~OwnCopyQueues() {
        for (const auto& queue : all) {
            delete[] queue->begin;
            delete[] queue->others;
        }
    }

    CopyQueue* take() {
        if (!free) {
            all.push_back(std::make_unique<CopyQueue>());
            free = all.back().get();
        }
        in_use++;
        return std::exchange(free, free->next_free);
    }
};
thread_local OwnCopyQueues copy_queues;

template <class T>
T* enlarged(T* items, const T* from, size_t count, size_t capacity) {
    T* const more = new T[capacity];
    std::copy(from, from + count, more);
    delete[] items;
    return more;
}

void provide_queues(Block& block) {
    block.queues = &copy_queues;
    std::fill(block.copy_queues, block.copy_queues + max_threads, &copy_queues.none);
}

// What the block before has not waited for.
void forget_queued_copies(Block& block) {
    for (unsigned rank = 0; block.queues->in_use; rank++)
        if (block.copy_queues[rank] != &block.queues->none) give_back(block, rank);
}

}  // namespace

CopyQueue* make_room() {
    CopyQueue*& mine = worker->copy_queues[worker->rank];
    if (mine == &copy_queues.none) mine = copy_queues.take();
    CopyQueue& it = *mine;
    if (it.end != it.limit) return mine;
    const size_t room = it.limit - it.begin, left = it.end - it.next;
    if (room > 2 * left) {  // most of it has been carried out
        std::copy(it.next, it.end, it.begin);
    } else {
        const size_t more = room ? 2 * room : 64;
        it.begin = enlarged(it.begin, it.next, left, more);
        it.limit = it.begin + more;
    }
    it.next = it.begin;
    it.end = it.begin + left;
    return mine;
}

void queue_copy(const AsyncCopy& copy) {
    CopyQueue& it = *make_room();
    if (it.others_size == it.others_capacity) {
        it.others_capacity = it.others_capacity ? 2 * it.others_capacity : 8;
        it.others = enlarged(it.others, it.others, it.others_size, it.others_capacity);
    }
    *it.end++ = {QueuedCopy::of_kind(QueuedCopy::other, it.others_size), nullptr};
    it.others[it.others_size++] = copy;
}

void carry_out_other(const CopyQueue& queue, const QueuedCopy& copy) {
    if (copy.kind() == QueuedCopy::other) return carry_out(queue.others[copy.address()]);
    const auto piece = static_cast<uint8_t>(copy.kind());
    carry_out({reinterpret_cast<char*>(copy.address()), copy.from, 1, piece, piece, 0});
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
