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
        for (unsigned rank = 0; rank < max_threads; rank++) delete[] of_threads[rank].copies;
    }
};
thread_local CopyQueues copy_queues;

}  // namespace

void grow(CopyQueue& queue) {
    const size_t capacity = queue.capacity ? 2 * queue.capacity : 8;
    auto* copies = new CopyQueue::Numbered[capacity];
    std::copy(queue.copies, queue.copies + queue.size, copies);
    delete[] queue.copies;
    queue.copies = copies;
    queue.capacity = capacity;
}

// For kernels under check.
void add_copy(const AsyncCopy& copy, const char* what, const char* file, int line) {
    WorkWatcher* const work = watching_work();
    if (work) work->copy(copy, what, file, line);
    if (work && work->is_early())
        carry_out(copy);
    else
        queue_copy(copy);
}
void commit_copies() {
    if (WorkWatcher* work = watching_work()) work->commit_copies();
    copies_of_thread().batches++;
}
void wait_for_copies(size_t prior, const char* file, int line) {
    carry_out_queued(prior);
    if (WorkWatcher* work = watching_work()) work->copies_done(prior, file, line);
}

}  // namespace simulator
