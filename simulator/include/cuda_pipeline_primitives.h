// Asynchronous copies to shared memory, in batches that a thread waits for.
#pragma once
#include "cuda_runtime.h"
#include "simulator/async_copy.h"

SIMULATOR_INLINE void __pipeline_memcpy_async(
    void* __restrict__ dst_shared, const void* __restrict__ src_global, size_t size_and_align,
    size_t zfill = 0, SIMULATOR_CALLER) {
    const auto refuse = [&](const char* reason) {
        simulator::fail(reason, "__pipeline_memcpy_async", file, line);
    };
    const size_t size = size_and_align;
    if (size != 4 && size != 8 && size != 16) refuse("it copies 4, 8 or 16 bytes");
    if (zfill > size) refuse("it cannot fill more bytes with zeros than it copies");
    const auto to = reinterpret_cast<uintptr_t>(dst_shared),
               from = reinterpret_cast<uintptr_t>(src_global);
    if ((to | from) & (size - 1)) refuse("both addresses are multiples of the size");
    const bool is_whole = zfill == 0;
    const size_t bytes = size - zfill;
    simulator::add_copy({static_cast<char*>(dst_shared), static_cast<const char*>(src_global),
                         is_whole ? 1 : bytes, is_whole ? size : 1,
                         static_cast<uint8_t>(is_whole ? size : 1), static_cast<uint8_t>(zfill)},
                        "__pipeline_memcpy_async", file, line);
}

inline void __pipeline_commit() { simulator::commit_copies(); }

// All but the last so many batches, up to 8, are complete afterwards.
inline void __pipeline_wait_prior(size_t prior, SIMULATOR_CALLER) {
    simulator::wait_for_copies(prior < 8 ? prior : 8, file, line);
}
