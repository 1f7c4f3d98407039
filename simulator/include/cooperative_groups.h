// Cooperative groups: the grid, the block, its tiles, and lanes of a warp that run together.
//
// What a group is follows from the thread that asks, nearly always: a tile knows its lanes without
// keeping them. A thread_group keeps what it takes to be any of them.
#pragma once
#include <type_traits>
#include "cuda_runtime.h"
#include "simulator/cluster.h"
#include "simulator/grid.h"
#include "simulator/tile.h"

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

// ---- Tiles: as many threads as a power of two, one after another

namespace details {

template <unsigned Size>
class TileOfWarp {
  public:
    static constexpr unsigned num_threads() { return Size; }
    static constexpr unsigned size() { return Size; }
    static unsigned thread_rank() { return simulator::current->rank % Size; }
    static unsigned lanes() { return mask_of_run(Size); }

    static void sync(SIMULATOR_CALLER) { __syncwarp(lanes(), file, line); }

    static unsigned ballot(int predicate, SIMULATOR_CALLER) {
        return pack(__ballot_sync(lanes(), predicate, file, line));
    }
    static int any(int predicate, SIMULATOR_CALLER) {
        return __any_sync(lanes(), predicate, file, line);
    }
    static int all(int predicate, SIMULATOR_CALLER) {
        return __all_sync(lanes(), predicate, file, line);
    }
    template <class T>
    static unsigned match_any(T value, SIMULATOR_CALLER) {
        return pack(__match_any_sync(lanes(), value, file, line));
    }
    template <class T>
    static unsigned match_all(T value, int& predicate, SIMULATOR_CALLER) {
        return pack(__match_all_sync(lanes(), value, &predicate, file, line));
    }

    // Of a distance the hardware looks at the last five bits.
    template <class T>
    static T shfl(T value, int rank, SIMULATOR_CALLER) {
        return read_lane(lanes(), value, first_lane() + (rank & (Size - 1)), "shfl", file, line);
    }
    template <class T>
    static T shfl_up(T value, unsigned delta, SIMULATOR_CALLER) {
        const unsigned lane = simulator::lane_id();
        delta &= 31;
        return read_lane(
            lanes(), value, delta <= thread_rank() ? lane - delta : lane, "shfl_up", file, line);
    }
    template <class T>
    static T shfl_down(T value, unsigned delta, SIMULATOR_CALLER) {
        const unsigned lane = simulator::lane_id();
        delta &= 31;
        return read_lane(lanes(), value, delta < Size - thread_rank() ? lane + delta : lane,
                         "shfl_down", file, line);
    }
    template <class T>
    static T shfl_xor(T value, unsigned bits, SIMULATOR_CALLER) {
        const unsigned lane = simulator::lane_id(), source = lane ^ (bits & 31);
        return read_lane(
            lanes(), value, source <= (lane | (Size - 1)) ? source : lane, "shfl_xor", file, line);
    }

  private:
    static unsigned first_lane() { return simulator::lane_id() & ~(Size - 1); }
    static unsigned pack(unsigned lanes) { return Size == 32 ? lanes : lanes >> first_lane(); }
};

// Its threads meet when all its warps have come (simulator/tile.h).
template <unsigned Size>
class TileOfWarps {
  public:
    static constexpr unsigned num_threads() { return Size; }
    static constexpr unsigned size() { return Size; }
    static unsigned thread_rank() { return simulator::current->rank % Size; }

    static void sync(SIMULATOR_CALLER) {
        simulator::meet(Size, 0, 0, "thread_block_tile::sync", file, line);
    }
    static int any(int predicate, SIMULATOR_CALLER) {
        return is_any(predicate != 0, "any", file, line);
    }
    static int all(int predicate, SIMULATOR_CALLER) {
        return !is_any(predicate == 0, "all", file, line);
    }
    template <class T>
    static T shfl(T value, unsigned rank, SIMULATOR_CALLER) {
        return read(value, rank, "shfl", file, line);
    }

    // What thread `rank` of the tile hands in.
    template <class T>
    static T read(T value, unsigned rank, const char* what, const char* file, int line) {
        static_assert(__is_trivially_copyable(T) && sizeof(T) <= 8,
                      "a tile of more than 32 threads exchanges types of up to 8 bytes that can be "
                      "copied bit by bit");
        uint64_t bits = 0;
        __builtin_memcpy(&bits, &value, sizeof(T));
        bits = simulator::meet(Size, bits, rank % Size, what, file, line);
        __builtin_memcpy(static_cast<void*>(&value), &bits, sizeof(T));
        return value;
    }

  private:
    // Each warp asks its threads, and then the other warps.
    static bool is_any(bool yes, const char* what, const char* file, int line) {
        const bool of_mine = __any_sync(simulator::full_mask, yes, file, line);
        const bool of_another = read(of_mine, simulator::lane_id() * 32, what, file, line);
        return __any_sync(simulator::full_mask, of_another, file, line);
    }
};

template <unsigned Size, bool is_of_warp>
struct TileBase {
    using type = TileOfWarp<Size>;
};
template <unsigned Size>
struct TileBase<Size, false> {
    using type = TileOfWarps<Size>;
};

// A tile whose parent has been forgotten: of a warp it is a thread_group too.
template <unsigned Size, bool is_of_warp>
class Orphan : public TileOfWarp<Size>, public thread_group {
  public:
    using TileOfWarp<Size>::num_threads;
    using TileOfWarp<Size>::size;
    using TileOfWarp<Size>::thread_rank;
    using TileOfWarp<Size>::sync;

    unsigned meta_group_rank() const { return meta_rank; }
    unsigned meta_group_size() const { return meta_size; }

  protected:
    Orphan(unsigned meta_rank, unsigned meta_size)
        : thread_group(mask_of_run(Size), true, meta_rank, meta_size) {}
};
template <unsigned Size>
class Orphan<Size, false> : public TileOfWarps<Size> {
  public:
    unsigned meta_group_rank() const { return meta_rank; }
    unsigned meta_group_size() const { return meta_size; }

  protected:
    Orphan(unsigned meta_rank, unsigned meta_size) : meta_rank(meta_rank), meta_size(meta_size) {}

    unsigned meta_rank, meta_size;
};

// What can be cut into tiles of a size that the compiler knows.
template <class Parent, unsigned Size>
constexpr bool has_tiles = false;
template <unsigned Size>
constexpr bool has_tiles<thread_block, Size> = true;
template <unsigned ParentSize, class Grandparent, unsigned Size>
constexpr bool has_tiles<thread_block_tile<ParentSize, Grandparent>, Size> = Size < ParentSize;

}  // namespace details

template <unsigned Size, class Parent>
class thread_block_tile : public details::TileBase<Size, (Size <= 32)>::type {
    static_assert(details::is_power_of_two(Size) && Size <= 1024,
                  "a tile has 1, 2, 4, 8, 16, 32, 64, 128, 256, 512 or 1024 threads");

  public:
    explicit thread_block_tile(const Parent&) {}
    operator thread_block_tile<Size, void>() const { return thread_block_tile<Size, void>(*this); }

    static unsigned meta_group_rank() { return Parent::thread_rank() / Size; }
    static unsigned meta_group_size() { return (Parent::num_threads() + Size - 1) / Size; }
};

template <unsigned Size>
class thread_block_tile<Size, void> : public details::Orphan<Size, (Size <= 32)> {
    static_assert(details::is_power_of_two(Size) && Size <= 1024,
                  "a tile has 1, 2, 4, 8, 16, 32, 64, 128, 256, 512 or 1024 threads");

  public:
    template <class Parent>
    thread_block_tile(const thread_block_tile<Size, Parent>& tile)
        : details::Orphan<Size, (Size <= 32)>(tile.meta_group_rank(), tile.meta_group_size()) {}
};

template <unsigned Size, class Parent>
thread_block_tile<Size, Parent> tiled_partition(const Parent& parent) {
    static_assert(
        details::has_tiles<Parent, Size>,
        "tiled_partition<n>(group) cuts a thread_block, or a tile of more than n threads");
    return thread_block_tile<Size, Parent>(parent);
}

inline thread_block_tile<1> this_thread() {
    using Tile = thread_block_tile<1, thread_block>;
    return thread_block_tile<1, Tile>(Tile(this_thread_block()));
}

// ---- Tiles of a size that is known at run time

inline thread_group tiled_partition(const thread_group& parent, unsigned size, SIMULATOR_CALLER) {
    using Type = thread_group::Type;
    if (!details::is_power_of_two(size) || size > 32)
        simulator::fail("a tile of a size given at run time has 1, 2, 4, 8, 16 or 32 threads",
                        "tiled_partition", file, line);
    if (parent.type == Type::Grid || parent.type == Type::Cluster)
        simulator::fail("it cuts blocks and their tiles, and no grid or cluster", "tiled_partition",
                        file, line);
    const unsigned rank = parent.thread_rank(), threads = parent.num_threads();
    const unsigned count = (threads + size - 1) / size;
    if (parent.type == Type::Lanes && threads <= size) return parent;
    if (parent.type == Type::Block || parent.is_tile) {
        const unsigned left =
            threads - (rank & ~(size - 1));  // the last tile of a block is shorter
        const unsigned lanes = left < size ? (1u << left) - 1 : size == 32 ? ~0u : (1u << size) - 1;
        return {lanes << (simulator::lane_id() & ~(size - 1)), true, rank / size, count};
    }
    unsigned lanes = 0, other = 0;
    for (unsigned left = parent.mask; left; left &= left - 1, other++)
        if (other / size == rank / size) lanes |= left & -left;
    return {lanes, false, rank / size, count};
}

inline coalesced_group tiled_partition(const coalesced_group& parent, unsigned size,
                                       SIMULATOR_CALLER) {
    return coalesced_group(
        tiled_partition(static_cast<const thread_group&>(parent), size, file, line));
}

void thread_group::sync(const char* file, int line) const {
    switch (type) {
        case Type::Grid:
            return grid_group::sync(file, line);
        case Type::Cluster:
            return cluster_group::sync(file, line);
        case Type::Block:
            return thread_block::sync(file, line);
        case Type::Lanes:
            return __syncwarp(mask, file, line);
    }
}

unsigned long long thread_group::num_threads() const {
    switch (type) {
        case Type::Grid:
            return grid_group::num_threads();
        case Type::Cluster:
            return cluster_group::num_threads();
        case Type::Block:
            return thread_block::num_threads();
        case Type::Lanes:
            break;
    }
    return __popc(mask);
}

unsigned long long thread_group::thread_rank() const {
    switch (type) {
        case Type::Grid:
            return grid_group::thread_rank();
        case Type::Cluster:
            return cluster_group::thread_rank();
        case Type::Block:
            return thread_block::thread_rank();
        case Type::Lanes:
            break;
    }
    return __popc(mask & ((1u << simulator::lane_id()) - 1));
}

// ---- Functions of any group

template <class Group>
void sync(const Group& group, SIMULATOR_CALLER) {
    group.sync(file, line);
}
template <class Group>
auto thread_rank(const Group& group) -> decltype(group.thread_rank()) {
    return group.thread_rank();
}
template <class Group>
auto group_size(const Group& group) -> decltype(group.num_threads()) {
    return group.num_threads();
}

// ---- Partitions by what a lane says

namespace details {

template <class Group>
constexpr bool is_of_warp = false;
template <>
constexpr bool is_of_warp<coalesced_group> = true;
template <unsigned Size, class Parent>
constexpr bool is_of_warp<thread_block_tile<Size, Parent>> = Size <= 32;

template <class Label>
constexpr bool is_label = __is_enum(Label) || Label(1) / 2 == Label(0);
template <class T>
constexpr bool is_label<T*> = true;

}  // namespace details

template <class Group>
coalesced_group binary_partition(const Group& group, bool predicate, SIMULATOR_CALLER) {
    static_assert(details::is_of_warp<Group>,
                  "binary_partition cuts a coalesced_group, or a tile of up to 32 threads");
    const unsigned all = group.lanes(), yes = __ballot_sync(all, predicate, file, line);
    if (yes == all || yes == 0) return coalesced_group(all);
    return coalesced_group(predicate ? yes : all & ~yes, false, predicate, 2);
}

template <class Group, class Label>
coalesced_group labeled_partition(const Group& group, Label label, SIMULATOR_CALLER) {
    static_assert(details::is_of_warp<Group>,
                  "labeled_partition cuts a coalesced_group, or a tile of up to 32 threads");
    static_assert(
        details::is_label<Label>, "the label of labeled_partition is an integer or a pointer");
    if constexpr (__is_same(Label, bool)) {
        return binary_partition(group, label, file, line);
    } else {
        const unsigned lanes = __match_any_sync(group.lanes(), label, file, line);
        const bool is_first = (lanes & ((1u << simulator::lane_id()) - 1)) == 0;
        const unsigned firsts = __ballot_sync(group.lanes(), is_first, file, line);
        return coalesced_group(
            lanes, false, __popc(firsts & ((lanes & -lanes) - 1)), __popc(firsts));
    }
}

// ---- One thread for all: on the simulator the first

template <class Group, class Function, class... Arguments>
void invoke_one(const Group& group, Function&& function, Arguments&&... arguments) {
    if (group.thread_rank() == 0)
        static_cast<Function&&>(function)(static_cast<Arguments&&>(arguments)...);
}

template <class Group, class Function, class... Arguments>
auto invoke_one_broadcast(const Group& group, Function&& function, Arguments&&... arguments)
    -> details::plain<decltype(function(static_cast<Arguments&&>(arguments)...))> {
    details::plain<decltype(function(static_cast<Arguments&&>(arguments)...))> result{};
    if (group.thread_rank() == 0)
        result = static_cast<Function&&>(function)(static_cast<Arguments&&>(arguments)...);
    return group.shfl(result, 0);
}

// As they were called in CUDA 11.
namespace experimental {
template <unsigned = 8, unsigned MaxBlockSize = 1024>
struct block_tile_memory : cooperative_groups::block_tile_memory<MaxBlockSize> {};
using cooperative_groups::this_thread_block;
using cooperative_groups::thread_block;
using cooperative_groups::thread_block_tile;
using cooperative_groups::tiled_partition;
}  // namespace experimental

}  // namespace cooperative_groups
