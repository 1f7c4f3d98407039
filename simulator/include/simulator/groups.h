// The groups of cooperative_groups.h: the grid, the cluster, the block, and lanes of a warp.
#pragma once
#include <type_traits>
#include "../cuda_runtime.h"
#include "cluster.h"
#include "grid.h"
#include "tile.h"

namespace cooperative_groups {

template <unsigned Size, class Parent = void>
class thread_block_tile;

namespace details {

template <class T>
using plain = std::remove_cv_t<std::remove_reference_t<T>>;

// A value of up to 32 bytes, by words of 8.
template <class T, class Word>
SIMULATOR_INLINE T by_words(T value, Word word) {
    static_assert(__is_trivially_copyable(T) && sizeof(T) <= 32,
                  "a group shuffles types of up to 32 bytes that can be copied bit by bit");
    uint64_t words[(sizeof(T) + 7) / 8] = {};
    __builtin_memcpy(words, &value, sizeof(T));
    for (uint64_t& part : words) part = word(part);
    __builtin_memcpy(static_cast<void*>(&value), words, sizeof(T));
    return value;
}

// The value of another lane of those in the mask.
template <class T>
SIMULATOR_INLINE T read_lane(unsigned mask, T value, unsigned lane, const char* what,
                             const char* file, int line) {
    return by_words(value, [&](uint64_t word) {
        return simulator::shuffle(mask, word, lane, what, file, line);
    });
}

constexpr bool is_power_of_two(unsigned size) { return size && !(size & (size - 1)); }

// The lanes of an aligned run of `size` of a warp, the running thread's.
SIMULATOR_INLINE unsigned mask_of_run(unsigned size) {
    if (size == simulator::warp_size) return simulator::full_mask;
    return ((1u << size) - 1) << (simulator::lane_id() & ~(size - 1));
}

}  // namespace details

// Any group, decided at run time.
class thread_group {
  public:
    inline void sync(SIMULATOR_CALLER) const;
    inline unsigned long long num_threads() const;
    inline unsigned long long thread_rank() const;
    unsigned long long size() const { return num_threads(); }

  protected:
    enum class Type : uint8_t { Grid, Cluster, Block, Lanes };

    explicit thread_group(Type type) : type(type) {}
    thread_group(unsigned mask, bool is_tile, unsigned meta_rank, unsigned meta_size)
        : type(Type::Lanes),
          is_tile(is_tile),
          mask(mask),
          meta_rank(meta_rank),
          meta_size(meta_size) {}

    Type type;
    bool is_tile = false;  // consecutive lanes, as many as a power of two
    unsigned mask = 0, meta_rank = 0, meta_size = 1;

    friend thread_group tiled_partition(const thread_group&, unsigned, const char*, int);
};

// ---- The grid, launched by cudaLaunchCooperativeKernel if its blocks are to wait for each other

class grid_group : public thread_group {
  public:
    using arrival_token = unsigned;

    grid_group() : thread_group(Type::Grid) {}

    static bool is_valid() { return simulator::current->launch->cooperative; }
    static void sync(SIMULATOR_CALLER) {
        simulator::grid_barrier(
            simulator::GridArrive | simulator::GridWait, "grid_group::sync", file, line);
    }
    static arrival_token barrier_arrive(SIMULATOR_CALLER) {
        simulator::grid_barrier(simulator::GridArrive, "grid_group::barrier_arrive", file, line);
        return 0;
    }
    static void barrier_wait(arrival_token&&, SIMULATOR_CALLER) {
        simulator::grid_barrier(simulator::GridWait, "grid_group::barrier_wait", file, line);
    }

    static dim3 dim_blocks() { return gridDim; }
    static dim3 group_dim() { return gridDim; }
    static unsigned long long num_blocks() {
        return (unsigned long long)gridDim.x * gridDim.y * gridDim.z;
    }
    static dim3 block_index() { return blockIdx; }
    static unsigned long long block_rank() {
        return ((unsigned long long)blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    }
    static dim3 dim_threads() {
        return {gridDim.x * blockDim.x, gridDim.y * blockDim.y, gridDim.z * blockDim.z};
    }
    static dim3 thread_index() {
        return {blockIdx.x * blockDim.x + threadIdx.x, blockIdx.y * blockDim.y + threadIdx.y,
                blockIdx.z * blockDim.z + threadIdx.z};
    }
    static unsigned long long num_threads() { return num_blocks() * simulator::current->size; }
    static unsigned long long size() { return num_threads(); }
    static unsigned long long thread_rank() {
        return block_rank() * simulator::current->size + simulator::current->rank;
    }
};

inline grid_group this_grid() { return {}; }

// ---- The cluster, of which a block is the only one where none has been asked for

class cluster_group : public thread_group {
  public:
    struct arrival_token {};

    cluster_group() : thread_group(Type::Cluster) {}

    static void sync(SIMULATOR_CALLER) {
        simulator::cluster_arrive("cluster_group::sync", file, line);
        simulator::cluster_wait("cluster_group::sync", file, line);
    }
    static arrival_token barrier_arrive(SIMULATOR_CALLER) {
        simulator::cluster_arrive("cluster_group::barrier_arrive", file, line);
        return {};
    }
    static void barrier_wait(arrival_token&& = {}, SIMULATOR_CALLER) {
        simulator::cluster_wait("cluster_group::barrier_wait", file, line);
    }

    static unsigned query_shared_rank(const void* address) {
        return __cluster_query_shared_rank(address);
    }
    template <class T>
    static T* map_shared_rank(T* address, int rank, SIMULATOR_CALLER) {
        return simulator::map_shared(address, unsigned(rank), file, line);
    }

    static dim3 dim_blocks() { return __clusterDim(); }
    static unsigned num_blocks() { return simulator::cluster_size(); }
    static dim3 block_index() { return __clusterRelativeBlockIdx(); }
    static unsigned block_rank() { return simulator::current->cluster_rank; }
    static dim3 dim_threads() {
        const dim3 blocks = dim_blocks();
        return {blocks.x * blockDim.x, blocks.y * blockDim.y, blocks.z * blockDim.z};
    }
    static dim3 thread_index() {
        const dim3 block = block_index();
        return {block.x * blockDim.x + threadIdx.x, block.y * blockDim.y + threadIdx.y,
                block.z * blockDim.z + threadIdx.z};
    }
    static unsigned num_threads() { return num_blocks() * simulator::current->size; }
    static unsigned size() { return num_threads(); }
    static unsigned thread_rank() {
        return block_rank() * simulator::current->size + simulator::current->rank;
    }
};

inline cluster_group this_cluster() { return {}; }

// ---- The block

class thread_block : public thread_group {
  public:
    struct arrival_token {};

    thread_block() : thread_group(Type::Block) {}

    static void sync(SIMULATOR_CALLER) {
        simulator::barrier(false, "thread_block::sync", file, line);
    }
    // All wait together, as on the hardware.
    static arrival_token barrier_arrive() { return {}; }
    static void barrier_wait(arrival_token&&, SIMULATOR_CALLER) { sync(file, line); }

    static unsigned thread_rank() { return simulator::current->rank; }
    static unsigned num_threads() { return simulator::current->size; }
    static unsigned size() { return num_threads(); }
    static dim3 group_index() { return blockIdx; }
    static dim3 thread_index() { return threadIdx; }
    static dim3 dim_threads() { return blockDim; }
    static dim3 group_dim() { return blockDim; }
};

// What tiles of several warps need on old hardware.
template <unsigned MaxBlockSize = 1024>
struct alignas(8) block_tile_memory {
    char nothing[8];
};

inline thread_block this_thread_block() { return {}; }
template <unsigned MaxBlockSize>
thread_block this_thread_block(block_tile_memory<MaxBlockSize>&) {
    return {};
}

// ---- Any lanes of a warp, numbered from 0

class coalesced_group : public thread_group {
  public:
    explicit coalesced_group(unsigned mask, bool is_tile = false, unsigned meta_rank = 0,
                             unsigned meta_size = 1)
        : thread_group(mask, is_tile, meta_rank, meta_size) {}

    // Of lanes: what tiled_partition makes of a coalesced_group.
    explicit coalesced_group(const thread_group& lanes) : thread_group(lanes) {}

    unsigned thread_rank() const { return __popc(mask & ((1u << simulator::lane_id()) - 1)); }
    unsigned num_threads() const { return __popc(mask); }
    unsigned size() const { return num_threads(); }
    unsigned meta_group_rank() const { return meta_rank; }
    unsigned meta_group_size() const { return meta_size; }
    unsigned lanes() const { return mask; }

    void sync(SIMULATOR_CALLER) const { __syncwarp(mask, file, line); }

    unsigned ballot(int predicate, SIMULATOR_CALLER) const {
        return pack(__ballot_sync(mask, predicate, file, line));
    }
    int any(int predicate, SIMULATOR_CALLER) const {
        return __any_sync(mask, predicate, file, line);
    }
    int all(int predicate, SIMULATOR_CALLER) const {
        return __all_sync(mask, predicate, file, line);
    }
    template <class T>
    unsigned match_any(T value, SIMULATOR_CALLER) const {
        return pack(__match_any_sync(mask, value, file, line));
    }
    template <class T>
    unsigned match_all(T value, int& predicate, SIMULATOR_CALLER) const {
        return pack(__match_all_sync(mask, value, &predicate, file, line));
    }

    template <class T>
    T shfl(T value, int rank, SIMULATOR_CALLER) const {
        return details::read_lane(
            mask, value, lane_of(unsigned(rank) % num_threads()), "shfl", file, line);
    }
    template <class T>
    T shfl_up(T value, int delta, SIMULATOR_CALLER) const {
        const unsigned rank = thread_rank();
        return details::read_lane(
            mask, value, lane_of(unsigned(delta) <= rank ? rank - delta : rank), "shfl_up", file,
            line);
    }
    template <class T>
    T shfl_down(T value, unsigned delta, SIMULATOR_CALLER) const {
        const unsigned rank = thread_rank();
        return details::read_lane(
            mask, value, lane_of(delta < num_threads() - rank ? rank + delta : rank), "shfl_down",
            file, line);
    }

  private:
    unsigned lane_of(unsigned rank) const {
        unsigned lanes = mask;
        while (rank--) lanes &= lanes - 1;
        return __ffs(lanes) - 1;
    }

    // A set of lanes as a set of ranks.
    unsigned pack(unsigned lanes) const {
        if (mask == simulator::full_mask) return lanes;
        unsigned ranks = 0, rank = 0;
        for (unsigned left = mask; left; left &= left - 1, rank++)
            ranks |= unsigned((lanes & left & -left) != 0) << rank;
        return ranks;
    }
};

inline coalesced_group coalesced_threads(SIMULATOR_CALLER) {
    return coalesced_group(__activemask(file, line));
}

}  // namespace cooperative_groups
