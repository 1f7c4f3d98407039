// What the threads of a block have asked to be copied, and have not waited for yet.
#pragma once
#include <memory>
#include "../include/simulator/async_copy.h"
#include "worker.h"

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

}  // namespace simulator
