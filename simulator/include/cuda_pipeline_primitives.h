// Asynchronous copies to shared memory, in batches that a thread waits for.
#pragma once
#include "cuda_runtime.h"
#include "simulator/async_copy.h"

SIMULATOR_INLINE void __pipeline_memcpy_async(
    void* __restrict__ dst_shared, const void* __restrict__ src_global, size_t size_and_align,
    size_t zfill = 0, SIMULATOR_CALLER) {
    const char* const what = "__pipeline_memcpy_async";
    const size_t size = size_and_align;
    const auto addresses =
        reinterpret_cast<uintptr_t>(dst_shared) | reinterpret_cast<uintptr_t>(src_global);
    if (size != 4 && size != 8 && size != 16)
        simulator::fail("it copies 4, 8 or 16 bytes", what, file, line);
    if (zfill > size)
        simulator::fail("it cannot fill more bytes with zeros than it copies", what, file, line);
    if (addresses & (size - 1))
        simulator::fail("both addresses are multiples of the size", what, file, line);
    simulator::add_filled(dst_shared, src_global, size - zfill, size, what, file, line);
}

inline void __pipeline_commit() { simulator::commit_copies(); }

// All but the last so many batches, up to 8, are complete afterwards.
inline void __pipeline_wait_prior(size_t prior, SIMULATOR_CALLER) {
    simulator::wait_for_copies(prior < 8 ? prior : 8, file, line);
}
