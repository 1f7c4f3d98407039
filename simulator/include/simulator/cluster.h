// Where the threads of a cluster wait for each other, and what its blocks know of it.
#pragma once
#include "cuda/waiting.h"
#include "shared_window.h"

namespace simulator {

// The running thread has come to the cluster's barrier; whether all others have, too, since then.
SIMULATOR_EXPORT void cluster_arrive(const char* what, const char* file, int line);
SIMULATOR_EXPORT bool cluster_has_arrived();

SIMULATOR_INLINE void cluster_wait(const char* what, const char* file, int line) {
    while (!cluster_has_arrived()) park(what, file, line);
    passed(current->cluster);
}

// Another block of the cluster may wait for what this one has just changed.
SIMULATOR_EXPORT void tell_cluster();

// Cluster launch control: a cluster that has not begun never does, and its first block is `first`.
// False if none is left. A block that has read that asks no more.
SIMULATOR_EXPORT bool cancel_next_cluster(uint3& first);
SIMULATOR_EXPORT void note_none_canceled();
SIMULATOR_EXPORT bool was_none_canceled();

SIMULATOR_INLINE uint3 cluster_extent() {
    const dim3& extent = current->cluster_extent;
    return current->cluster ? uint3{extent.x, extent.y, extent.z} : uint3{1, 1, 1};
}
SIMULATOR_INLINE uint3 block_in_cluster() {
    const uint3 extent = cluster_extent();
    return {blockIdx.x % extent.x, blockIdx.y % extent.y, blockIdx.z % extent.z};
}
SIMULATOR_INLINE uint3 cluster_in_grid() {
    const uint3 extent = cluster_extent();
    return {blockIdx.x / extent.x, blockIdx.y / extent.y, blockIdx.z / extent.z};
}
SIMULATOR_INLINE uint3 grid_of_clusters() {
    const uint3 extent = cluster_extent();
    return {gridDim.x / extent.x, gridDim.y / extent.y, gridDim.z / extent.z};
}
SIMULATOR_INLINE unsigned cluster_size() { return current->cluster ? count_cluster(*current) : 1; }

// The same place in the shared memory of another block of the cluster.
template <class T>
SIMULATOR_INLINE T* map_shared(T* pointer, unsigned rank, SIMULATOR_CALLER) {
    if (rank >= cluster_size()) fail("the cluster has no block of this rank", "mapa", file, line);
    const uint32_t offset = shared_address(pointer) & 0xffffff;
    return reinterpret_cast<T*>(shared_pointer(rank << 24 | offset));
}

}  // namespace simulator

// CUDA C++'s own functions for clusters.
SIMULATOR_INLINE void __cluster_barrier_arrive(SIMULATOR_CALLER) {
    simulator::cluster_arrive("__cluster_barrier_arrive", file, line);
}
SIMULATOR_INLINE void __cluster_barrier_arrive_relaxed(SIMULATOR_CALLER) {
    simulator::cluster_arrive("__cluster_barrier_arrive_relaxed", file, line);
}
SIMULATOR_INLINE void __cluster_barrier_wait(SIMULATOR_CALLER) {
    simulator::cluster_wait("__cluster_barrier_wait", file, line);
}
SIMULATOR_INLINE dim3 __clusterDim() { return simulator::cluster_extent(); }
SIMULATOR_INLINE dim3 __clusterRelativeBlockIdx() { return simulator::block_in_cluster(); }
SIMULATOR_INLINE dim3 __clusterIdx() { return simulator::cluster_in_grid(); }
SIMULATOR_INLINE dim3 __clusterGridDimInClusters() { return simulator::grid_of_clusters(); }
SIMULATOR_INLINE unsigned __clusterRelativeBlockRank() { return simulator::current->cluster_rank; }
SIMULATOR_INLINE unsigned __clusterSizeInBlocks() { return simulator::cluster_size(); }
SIMULATOR_INLINE unsigned __clusterDimIsSpecified() {
    return simulator::current->cluster != nullptr;
}
SIMULATOR_INLINE void* __cluster_map_shared_rank(const void* pointer, unsigned rank) {
    return simulator::map_shared(const_cast<void*>(pointer), rank);
}
SIMULATOR_INLINE unsigned __cluster_query_shared_rank(const void* pointer) {
    return simulator::shared_address(pointer) >> 24;
}
