// cp.async: copies of 4, 8 or 16 bytes from global to shared memory, for which a thread waits.
#pragma once
#include "../async_copy.h"
#include "memory.h"

namespace simulator::ptx {

// Of `size` bytes so many are read, or none if it is a predicate and true; the rest is zeros.
template <class Read>
SIMULATOR_INLINE void __ptx_copy_async(char* to, uint64_t from, unsigned size, Read bytes,
                                       SIMULATOR_CALLER) {
    unsigned read = unsigned(bytes);
    if constexpr (__is_same(Read, bool)) read = bytes ? 0 : size;
    if (size != 4 && size != 8 && size != 16)
        fail("it copies 4, 8 or 16 bytes", "cp.async", file, line);
    if (read > size) read = size;
    if ((reinterpret_cast<uintptr_t>(to) | (read ? from : 0)) & (size - 1))
        fail("both addresses are multiples of the size", "cp.async", file, line);
    add_filled(to, __ptx_generic(from), read, size, "cp.async", file, line);
}

// All that the thread has asked for, committed or not.
SIMULATOR_INLINE void __ptx_wait_for_all_copies(SIMULATOR_CALLER) {
    commit_copies();
    wait_for_copies(0, file, line);
}

SIMULATOR_INLINE void __ptx_commit_copies() { commit_copies(); }
SIMULATOR_INLINE void __ptx_wait_for_copies(size_t prior, SIMULATOR_CALLER) {
    wait_for_copies(prior, file, line);
}

}  // namespace simulator::ptx
