// What cuda::barrier asks of the executor.
#pragma once
#include "worker.h"

namespace simulator {

bool in_kernel() { return worker && worker->running; }

bool is_loaded_again(const void* address, uint64_t value) {
    struct Load {
        unsigned rank;
        const void* address;
        uint64_t value;
    };
    thread_local Load last;
    const Load load = {worker ? worker->rank : 0, address, value};
    const bool again = last.rank == load.rank && last.address == address && last.value == value;
    last = load;
    return again;
}

void fail_barrier(const char* what, long long arriving, unsigned long long awaited,
                  const char* file, int line) {
    const std::string reason = text(
        "%s of %lld at a barrier that awaits %llu: has one thread called init with the number "
        "of all that arrive, and a barrier followed?",
        what, arriving, awaited);
    if (in_kernel())
        worker->fail(cudaErrorLaunchFailure,
                     text("%s:%d: thread %u: %s", file, line, worker->rank, reason.c_str()));
    fprintf(stderr, "%s:%d: %s\n", file, line, reason.c_str());
    abort();
}

void arrived(const void* barrier, bool is_last) {
    if (watcher) watcher->arrived(reinterpret_cast<uintptr_t>(barrier), is_last);
}

void passed(const void* barrier) {
    if (watcher) watcher->passed(reinterpret_cast<uintptr_t>(barrier));
}

}  // namespace simulator
