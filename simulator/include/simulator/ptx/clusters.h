// Clusters: their barrier, and the shared memory of their other blocks.
#pragma once
#include "../cluster.h"
#include "memory.h"

namespace simulator::ptx {

SIMULATOR_INLINE void __ptx_cluster_barrier_arrive(SIMULATOR_CALLER) {
    cluster_arrive("barrier.cluster.arrive", file, line);
}
SIMULATOR_INLINE void __ptx_cluster_barrier_wait(SIMULATOR_CALLER) {
    cluster_wait("barrier.cluster.wait", file, line);
}

// The address of the same place in another block's shared memory.
SIMULATOR_INLINE uint32_t __ptx_mapa(uint64_t address, uint32_t rank, SIMULATOR_CALLER) {
    address = shared_operand(address);
    if (rank >= cluster_size()) fail("the cluster has no block of this rank", "mapa", file, line);
    return (address & 0xffffff) | rank << 24;
}
SIMULATOR_INLINE uint64_t __ptx_mapa_generic(uint64_t pointer, uint32_t rank, SIMULATOR_CALLER) {
    return uintptr_t(map_shared(__ptx_generic(pointer), rank, file, line));
}

}  // namespace simulator::ptx
