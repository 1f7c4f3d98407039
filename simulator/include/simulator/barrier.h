// Where the threads of a block wait for each other.
#pragma once
#include "block.h"

namespace simulator {

#ifdef __SANITIZE_THREAD__
SIMULATOR_EXPORT Block& barrier(bool vote, const char* what, const char* file, int line);
SIMULATOR_EXPORT void pause(const char* what, const char* file, int line);
#else
// Leaves the running thread suspended and goes on with `next`; comes back when the thread is
// resumed.
SIMULATOR_INLINE void suspend(Block& block, unsigned rank, Context* next) {
    const uint3 index = threadIdx;
    switch_fiber(&block.threads[rank].context, next);
    threadIdx = index;
    block.rank = rank;
}

// The running thread is about to wait.
SIMULATOR_INLINE void note(Block& block, unsigned rank, const char* what, const char* file,
                           int line) {
    if (!block.tracked) block.track(rank);
    Thread& thread = block.threads[rank];
    thread.what = what;
    thread.file = file;
    thread.line = line;
}

SIMULATOR_WAIT Block& barrier(bool vote, const char* what, const char* file, int line) {
    Block& block = *current;
    const unsigned rank = block.rank;
    note(block, rank, what, file, line);
    block.votes += vote;
    if (++block.arrived == block.alive) {
        block.open_barrier();
    } else {
        block.warps[rank / warp_size].barrier |= 1u << rank % warp_size;
        suspend(block, rank, next_fiber(block, rank));
    }
    return block;
}

// Lets other threads go first: whoever spins waits for somebody.
SIMULATOR_WAIT void pause(const char* what, const char* file, int line) {
    Block& block = *current;
    const unsigned rank = block.rank;
    note(block, rank, what, file, line);
    block.warps[rank / warp_size].pausing |= 1u << rank % warp_size;
    suspend(block, rank, next_fiber(block, rank));
}
#endif

}  // namespace simulator

// Threads that have returned are not waited for, as on the hardware.
SIMULATOR_INLINE void __syncthreads(SIMULATOR_CALLER) {
    simulator::barrier(false, "__syncthreads", file, line);
}

SIMULATOR_INLINE int __syncthreads_count(int predicate, SIMULATOR_CALLER) {
    return simulator::barrier(predicate != 0, "__syncthreads_count", file, line).barrier_votes;
}

SIMULATOR_INLINE int __syncthreads_and(int predicate, SIMULATOR_CALLER) {
    const auto& block = simulator::barrier(predicate != 0, "__syncthreads_and", file, line);
    return block.barrier_votes == block.barrier_alive;
}

SIMULATOR_INLINE int __syncthreads_or(int predicate, SIMULATOR_CALLER) {
    return simulator::barrier(predicate != 0, "__syncthreads_or", file, line).barrier_votes != 0;
}

namespace simulator {
SIMULATOR_INLINE void fence(Scope scope) {
    announce(scope);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
// What follows is an atomic that releases: to the checker, a fence and an atomic.
SIMULATOR_INLINE void before_release(Scope scope) {
#ifdef __SANITIZE_THREAD__
    fence(scope);
#endif
    announce(scope);
}
}  // namespace simulator

SIMULATOR_INLINE void __threadfence() { simulator::fence(simulator::Scope::Device); }
SIMULATOR_INLINE void __threadfence_block() { simulator::fence(simulator::Scope::Block); }
SIMULATOR_INLINE void __threadfence_system() { simulator::fence(simulator::Scope::Device); }

SIMULATOR_INLINE void __nanosleep(unsigned, SIMULATOR_CALLER) {
    simulator::pause("__nanosleep", file, line);
}
