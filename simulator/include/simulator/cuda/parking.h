// Where a thread waits until a phase of a cuda::barrier ends, which another thread of its block is
// to see to. Nobody else can: where all are left to wait, the block is deadlocked.
#pragma once
#include "../barrier.h"

namespace simulator {

// Whether this is a thread of a kernel: there is host code that uses atomics and barriers, too.
SIMULATOR_EXPORT bool in_kernel();

// Whether the running thread loads what it loaded last.
SIMULATOR_EXPORT bool is_loaded_again(const void* address, uint64_t value);

// More threads arrive at a cuda::barrier than it awaits.
[[noreturn]] SIMULATOR_EXPORT void fail_barrier(
    const char* what, long long arriving, unsigned long long awaited, const char* file, int line);

#if defined(SIMULATOR_EXECUTOR) || defined(__SANITIZE_THREAD__)
// For the checker: the running thread arrives at a cuda::barrier, and perhaps ends its phase; and
// it has seen a phase end.
SIMULATOR_EXPORT void arrived(const void* barrier, bool is_last);
SIMULATOR_EXPORT void passed(const void* barrier);
#else
SIMULATOR_INLINE void arrived(const void*, bool) {}
SIMULATOR_INLINE void passed(const void*) {}
#endif

#ifdef __SANITIZE_THREAD__
SIMULATOR_EXPORT void park(const char* what, const char* file, int line);
#else
SIMULATOR_WAIT void park(const char* what, const char* file, int line) {
    Block& block = *current;
    const unsigned rank = block.rank;
    note(block, rank, what, file, line);
    block.warps[rank / warp_size].parked |= 1u << rank % warp_size;
    suspend(block, rank, next_fiber(block, rank));
}
#endif

}  // namespace simulator
