// The addresses of shared memory: what `__cvta_generic_to_shared` gives, and PTX takes.
//
//     bits 24 to 31   the block's rank in its cluster
//     bits  0 to 23   where in the block's shared memory: its dynamic one from 1 KB on, which is
//                     what the system keeps on a GPU; what is declared `__shared__` far behind
//
// Descriptors of matrices have the lowest 18 bits alone, 256 KB. So the static part ends, in those
// bits, where these end, and the dynamic one begins where they begin. On Linux a pointer has the
// same 18 bits, since kernels make descriptors of pointers, too. What is instrumented cannot be
// moved: without a cluster the static part begins, in those bits, where its pointer does, unless
// the dynamic one is there. The low 32 bits of a pointer count as an address: on a GPU they are
// one.
#pragma once
#include "block.h"

namespace simulator {

constexpr uint32_t first_shared = 1 << 10, window = 1 << 18, static_window = 1 << 23;

// What no address of shared memory is, for a pointer to other memory.
constexpr uint32_t no_shared = 0xffffff00;

// Where the static part begins. An address has the alignment that the pointer has.
SIMULATOR_INLINE uint32_t begin_of_static(const Block& block) {
    const auto bytes = uint32_t(block.static_end - block.static_begin);
    if (block.launch->instrumented && !block.cluster) {  // the blocks of a cluster agree on it
        const auto own = uint32_t(reinterpret_cast<uintptr_t>(block.static_begin)) & (window - 1);
        const uint32_t end_of_dynamic = first_shared + uint32_t(block.launch->shared);
        const bool is_apart = own >= end_of_dynamic ? own + bytes <= window + first_shared
                                                    : own + bytes <= first_shared;
        if (is_apart || !block.launch->shared) return static_window + own;
    }
    return (static_window + window - bytes) & ~(block.static_alignment - 1);
}

SIMULATOR_INLINE bool find_in(Block& block, const char* p, uint32_t& address) {
    const ptrdiff_t dynamic = p - block.dynamic_shared;
    if (dynamic >= 0 && size_t(dynamic) <= block.launch->shared)
        address = first_shared + uint32_t(dynamic);
    else if (p >= block.static_begin && p < block.static_end)
        address = begin_of_static(block) + uint32_t(p - block.static_begin);
    else
        return false;
    if (address >= window && address < block.first_static) block.first_static = address;
    address |= block.cluster_rank << 24;
    return true;
}

SIMULATOR_EXPORT unsigned count_cluster(const Block& block);
// In any block of a block's cluster.
SIMULATOR_EXPORT uint32_t find_in_cluster(const Block& block, const char* p);
SIMULATOR_EXPORT char* shared_pointer_in_cluster(const Block& block, uint64_t address);

SIMULATOR_INLINE char* shared_pointer_in(const Block& block, uint32_t offset) {
    if (offset < window) return block.dynamic_shared + offset - first_shared;
    return const_cast<char*>(block.static_begin) + int32_t(offset - begin_of_static(block));
}

// Whether an offset is one that a block has addresses with. All else may be a pointer's low bits.
SIMULATOR_INLINE bool is_in_window(const Block& block, uint32_t offset) {
    return offset && (offset < window || offset - begin_of_static(block) <=
                                             size_t(block.static_end - block.static_begin));
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
    if (rank == block.cluster_rank && is_in_window(block, offset))
        return shared_pointer_in(block, offset);
    return shared_pointer_in_cluster(block, address);
}
#endif

// An address as `shared_address` has it, of one that may be a pointer's low bits.
SIMULATOR_INLINE uint32_t whole_address(uint64_t address) {
    const uint32_t rank = uint32_t(address) >> 24, offset = address & 0xffffff;
    if (rank == current->cluster_rank && is_in_window(*current, offset)) return uint32_t(address);
    if (!address || (current->cluster && rank < count_cluster(*current))) return uint32_t(address);
    return shared_address(shared_pointer(address));
}

// The block that an address leads to.
SIMULATOR_INLINE Block& block_of(uint32_t address) {
    return current->cluster ? *current->cluster[address >> 24] : *current;
}

}  // namespace simulator
