// The addresses of shared memory: what `__cvta_generic_to_shared` gives, and PTX takes.
//
//     bits 24 to 31   the block's rank in its cluster
//     bits  0 to 23   where in the block's shared memory: its dynamic one from 1 KB on, which is
//                     what the system keeps on a GPU; what is declared `__shared__` far behind
//
// Descriptors of matrices have the lowest 18 bits alone, 256 KB. So the static part lies, in those
// bits, where the dynamic one does not.
#pragma once
#include "block.h"

namespace simulator {

constexpr uint32_t first_shared = 1 << 10, window = 1 << 18, static_window = 1 << 23;

// What no address of shared memory is, for a pointer to other memory.
constexpr uint32_t no_shared = 0xffffff00;

// What is declared `__shared__` lies around a variable that each library has, in no order: before
// it too. The variable is in the middle of what the dynamic part leaves of those 18 bits, as far as
// alignment lets it: an address has the alignment that the pointer has.
SIMULATOR_INLINE uint32_t middle_of_static(const Block& block) {
    const uint32_t end = first_shared + uint32_t(block.launch->shared);
    const uint32_t middle = static_window + (end + window) / 2;
    const uint32_t variable = uint32_t(reinterpret_cast<uintptr_t>(block.static_shared));
    return middle - ((middle - variable) & (block.static_alignment - 1));
}

SIMULATOR_INLINE bool find_in(Block& block, const char* p, uint32_t& address) {
    const ptrdiff_t dynamic = p - block.dynamic_shared;
    if (dynamic >= 0 && size_t(dynamic) <= block.launch->shared)
        address = first_shared + uint32_t(dynamic);
    else if (p >= block.static_begin && p < block.static_end)
        address = block.last_static = uint32_t(middle_of_static(block) + (p - block.static_shared));
    else
        return false;
    address |= block.cluster_rank << 24;
    return true;
}

SIMULATOR_EXPORT unsigned count_cluster(const Block& block);
// In any block of a block's cluster.
SIMULATOR_EXPORT uint32_t find_in_cluster(const Block& block, const char* p);
SIMULATOR_EXPORT char* shared_pointer_in_cluster(const Block& block, uint64_t address);

SIMULATOR_INLINE char* shared_pointer_in(const Block& block, uint32_t offset) {
    if (offset < window) return block.dynamic_shared + offset - first_shared;
    return block.static_shared + (int32_t(offset) - int32_t(middle_of_static(block)));
}

#ifdef __SANITIZE_THREAD__
SIMULATOR_EXPORT uint32_t shared_address(const void* pointer);
SIMULATOR_EXPORT char* shared_pointer(uint64_t address);
#else
SIMULATOR_WAIT uint32_t shared_address(const void* pointer) {
    const auto p = static_cast<const char*>(pointer);
    uint32_t address = no_shared;
    if (find_in(*current, p, address) || !current->cluster) return address;
    return find_in_cluster(*current, p);
}

SIMULATOR_WAIT char* shared_pointer(uint64_t address) {
    const uint32_t rank = uint32_t(address) >> 24, offset = address & 0xffffff;
    const Block& block = *current;
    if (rank == block.cluster_rank && offset) return shared_pointer_in(block, offset);
    return shared_pointer_in_cluster(block, address);
}
#endif

// The block that an address leads to.
SIMULATOR_INLINE Block& block_of(uint32_t address) {
    return current->cluster ? *current->cluster[address >> 24] : *current;
}

}  // namespace simulator
