// The tiles of cooperative_groups.h: as many threads as a power of two, one after another.
#pragma once
#include "groups.h"

namespace cooperative_groups {

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

}  // namespace cooperative_groups
