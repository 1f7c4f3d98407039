// What the threads of a block have asked to be copied, and have not waited for yet.
#pragma once
#include <memory>
#include <vector>
#include "../include/simulator/async_copy.h"
#include "worker.h"

namespace simulator {
namespace {

struct AsyncCopies {
    struct Numbered {
        AsyncCopy copy;
        size_t batch;
    };
    std::vector<Numbered> copies;
    size_t done = 0, batches = 0;
    uint64_t block = 0;  // whose they are; what a block before has left is forgotten
};

AsyncCopies& copies_of_thread() {
    thread_local std::unique_ptr<AsyncCopies[]> of_threads(new AsyncCopies[max_threads]);
    AsyncCopies& mine = of_threads[worker->rank];
    if (mine.block != worker->serial) {
        mine.copies.clear();
        mine.done = mine.batches = 0;
        mine.block = worker->serial;
    }
    return mine;
}

}  // namespace

void add_copy(const AsyncCopy& copy) {
    AsyncCopies& mine = copies_of_thread();
    mine.copies.push_back({copy, mine.batches});
}

void commit_copies() { copies_of_thread().batches++; }

bool take_due_copy(size_t prior, AsyncCopy& copy) {
    AsyncCopies& mine = copies_of_thread();
    if (mine.done == mine.copies.size()) {
        mine.copies.clear();
        mine.done = 0;
        return false;
    }
    const AsyncCopies::Numbered& next = mine.copies[mine.done];
    if (next.batch + prior >= mine.batches) return false;
    mine.done++;
    copy = next.copy;
    return true;
}

}  // namespace simulator
