// Cooperative groups: the block, tiles of a warp, and the lanes that run together.
#pragma once
#include "cuda_runtime.h"

namespace cooperative_groups {

class thread_block {
  public:
    static void sync(SIMULATOR_CALLER) { __syncthreads(file, line); }
    static unsigned thread_rank() { return simulator::current->rank; }
    static unsigned num_threads() { return simulator::current->size; }
    static unsigned size() { return num_threads(); }
    static dim3 group_index() { return blockIdx; }
    static dim3 thread_index() { return threadIdx; }
    static dim3 dim_threads() { return blockDim; }
    static dim3 group_dim() { return blockDim; }
};

inline thread_block this_thread_block() { return {}; }

namespace details {

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

// Lanes of a warp, given as a mask, numbered from 0 in a group.
class Lanes {
  public:
    explicit Lanes(unsigned mask) : mask(mask) {}

    unsigned thread_rank() const { return __popc(mask & ((1u << simulator::lane_id()) - 1)); }
    unsigned num_threads() const { return __popc(mask); }
    unsigned size() const { return num_threads(); }
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
    T shfl(T value, unsigned rank, SIMULATOR_CALLER) const {
        return read(value, lane_of(rank % num_threads()), "shfl", file, line);
    }
    template <class T>
    T shfl_up(T value, unsigned delta, SIMULATOR_CALLER) const {
        const unsigned rank = thread_rank();
        return read(value, lane_of(delta <= rank ? rank - delta : rank), "shfl_up", file, line);
    }
    template <class T>
    T shfl_down(T value, unsigned delta, SIMULATOR_CALLER) const {
        const unsigned rank = thread_rank();
        return read(value, lane_of(delta < num_threads() - rank ? rank + delta : rank), "shfl_down",
                    file, line);
    }

  protected:
    template <class T>
    T read(T value, unsigned lane, const char* what, const char* file, int line) const {
        return by_words(value, [&](uint64_t word) {
            return simulator::shuffle(mask, word, lane, what, file, line);
        });
    }

    unsigned lane_of(unsigned rank) const {
        unsigned lanes = mask;
        while (rank--) lanes &= lanes - 1;
        return __ffs(lanes) - 1;
    }

    // A set of lanes as a set of ranks.
    unsigned pack(unsigned lanes) const {
        unsigned ranks = 0, rank = 0;
        for (unsigned left = mask; left; left &= left - 1, rank++)
            ranks |= unsigned((lanes & left & -left) != 0) << rank;
        return ranks;
    }

    unsigned mask;
};

}  // namespace details

template <unsigned Size, class Parent = void>
class thread_block_tile : public details::Lanes {
    static_assert(Size && Size <= 32 && !(Size & (Size - 1)),
                  "the simulator has tiles of 1, 2, 4, 8, 16 and 32 threads");

  public:
    thread_block_tile()
        : Lanes((Size == 32 ? ~0u : (1u << Size % 32) - 1)
                << (simulator::lane_id() & ~(Size - 1))) {}

    static constexpr unsigned num_threads() { return Size; }
    static constexpr unsigned size() { return Size; }
    static unsigned thread_rank() { return simulator::current->rank % Size; }
    static unsigned meta_group_rank() { return simulator::current->rank / Size; }
    static unsigned meta_group_size() { return (simulator::current->size + Size - 1) / Size; }

    template <class T>
    T shfl_xor(T value, unsigned bits, SIMULATOR_CALLER) const {
        const unsigned first = simulator::lane_id() & ~(Size - 1);
        return this->read(
            value, first + ((thread_rank() ^ bits) & (Size - 1)), "shfl_xor", file, line);
    }
};

template <unsigned Size, class Parent>
thread_block_tile<Size, Parent> tiled_partition(const Parent&) {
    return {};
}

class coalesced_group : public details::Lanes {
  public:
    explicit coalesced_group(unsigned mask) : Lanes(mask) {}
    unsigned meta_group_rank() const { return 0; }
    unsigned meta_group_size() const { return 1; }
};

inline coalesced_group coalesced_threads(SIMULATOR_CALLER) {
    return coalesced_group(__activemask(file, line));
}

template <class Group>
void sync(const Group& group, SIMULATOR_CALLER) {
    group.sync(file, line);
}

}  // namespace cooperative_groups
