// CUB's sorts of a warp and of a block: by the bits of the keys, or by any order. All are stable.
#pragma once
#include "block.h"
#include "radix.h"
#include "warp.h"

namespace cub {
namespace simulated {

// Sorts the numbers 0 to `count` - 1 by merging, so that those that are equal stay in order. There
// is room for them twice; returns where they are in the end.
template <class Less>
uint32_t* sort_numbers(uint32_t* from, uint32_t* to, int count, Less less) {
    for (int i = 0; i < count; i++) from[i] = i;
    for (int length = 1; length < count; length *= 2) {
        for (int begin = 0; begin < count; begin += 2 * length) {
            const int middle = begin + length < count ? begin + length : count;
            const int end = begin + 2 * length < count ? begin + 2 * length : count;
            for (int a = begin, b = middle, i = begin; i < end; i++)
                to[i] = b == end || (a < middle && !less(from[b], from[a])) ? from[a++] : from[b++];
        }
        ::std::swap(from, to);
    }
    return from;
}

// The keys and values of `Threads` threads, N of each.
template <class Key, int Threads, int N, class Value>
struct SortRoom {
    static constexpr bool has_values = !::std::is_same_v<Value, NullType>;
    static constexpr int count = Threads * N;
    Room<Key, count> keys;
    Room<Value, has_values ? count : 1> values;
    uint32_t numbers[2][count];
    int sorted;  // in which of the two the result is

    // `sync`: of these threads. Those from `valid` on stay behind the others.
    template <class Less, class Sync>
    void sort(int rank, Key (&key)[N], Value* value, Less less, int valid, bool striped,
              Sync sync) {
        for (int i = 0; i < N; i++) {
            keys[rank * N + i] = key[i];
            if constexpr (has_values) values[rank * N + i] = value[i];
        }
        sync();
        if (rank == 0) {
            const uint32_t* result =
                sort_numbers(numbers[0], numbers[1], count, [&](uint32_t a, uint32_t b) {
                    const bool a_counts = int(a) < valid, b_counts = int(b) < valid;
                    return a_counts && b_counts ? bool(less(keys[a], keys[b]))
                                                : a_counts && !b_counts;
                });
            sorted = result == numbers[1];
        }
        sync();
        for (int i = 0; i < N; i++) {
            const uint32_t number = numbers[sorted][striped ? i * Threads + rank : rank * N + i];
            key[i] = keys[number];
            if constexpr (has_values) value[i] = values[number];
        }
    }
};

}  // namespace simulated

template <class Key, int BLOCK_DIM_X, int ITEMS_PER_THREAD, class Value = NullType, int = 4,
          bool = true, BlockScanAlgorithm = BLOCK_SCAN_WARP_SCANS, int = 0, int BLOCK_DIM_Y = 1,
          int BLOCK_DIM_Z = 1, int = 0>
class BlockRadixSort {
    static constexpr int threads = BLOCK_DIM_X * BLOCK_DIM_Y * BLOCK_DIM_Z;
    static constexpr int N = ITEMS_PER_THREAD, all = 8 * sizeof(Key);

  public:
    struct TempStorage {
        simulated::SortRoom<Key, threads, N, Value> room;
    };
    BlockRadixSort() : storage(simulated::own<TempStorage>()) {}
    BlockRadixSort(TempStorage& storage) : storage(storage) {}

#define SIMULATOR_SORT(name, descending, striped)                                      \
    void name(Key(&keys)[N], int begin_bit = 0, int end_bit = all, SIMULATOR_CALLER) { \
        sort(keys, nullptr, {begin_bit, end_bit, descending}, striped, file, line);    \
    }                                                                                  \
    void name(Key(&keys)[N], Value(&values)[N], int begin_bit = 0, int end_bit = all,  \
              SIMULATOR_CALLER) {                                                      \
        sort(keys, values, {begin_bit, end_bit, descending}, striped, file, line);     \
    }
    SIMULATOR_SORT(Sort, false, false)
    SIMULATOR_SORT(SortDescending, true, false)
    SIMULATOR_SORT(SortBlockedToStriped, false, true)
    SIMULATOR_SORT(SortDescendingBlockedToStriped, true, true)
#undef SIMULATOR_SORT

  private:
    void sort(Key (&keys)[N], Value* values, simulated::ByBits less, bool striped, const char* file,
              int line) {
        const int rank = simulated::rank_in_block<threads>(file, line);
        storage.room.sort(
            rank, keys, values, less, threads * N, striped, [&] { __syncthreads(file, line); });
    }

    TempStorage& storage;
};

#define SIMULATOR_MERGE_SORT(name)                                                              \
    template <class Less>                                                                       \
    void name(Key(&keys)[N], Less less, SIMULATOR_CALLER) {                                     \
        sort(keys, nullptr, less, count, file, line);                                           \
    }                                                                                           \
    template <class Less>                                                                       \
    void name(Key(&keys)[N], Less less, int valid, Key others, SIMULATOR_CALLER) {              \
        fill(keys, valid, others);                                                              \
        sort(keys, nullptr, less, valid, file, line);                                           \
    }                                                                                           \
    template <class Less>                                                                       \
    void name(Key(&keys)[N], Value(&values)[N], Less less, SIMULATOR_CALLER) {                  \
        sort(keys, values, less, count, file, line);                                            \
    }                                                                                           \
    template <class Less>                                                                       \
    void name(                                                                                  \
        Key(&keys)[N], Value(&values)[N], Less less, int valid, Key others, SIMULATOR_CALLER) { \
        fill(keys, valid, others);                                                              \
        sort(keys, values, less, valid, file, line);                                            \
    }

template <class Key, int BLOCK_DIM_X, int ITEMS_PER_THREAD, class Value = NullType,
          int BLOCK_DIM_Y = 1, int BLOCK_DIM_Z = 1>
class BlockMergeSort {
    static constexpr int threads = BLOCK_DIM_X * BLOCK_DIM_Y * BLOCK_DIM_Z;
    static constexpr int N = ITEMS_PER_THREAD, count = threads * N;

  public:
    struct TempStorage {
        simulated::SortRoom<Key, threads, N, Value> room;
    };
    BlockMergeSort() : storage(simulated::own<TempStorage>()) {}
    BlockMergeSort(TempStorage& storage) : storage(storage) {}

    SIMULATOR_MERGE_SORT(Sort)
    SIMULATOR_MERGE_SORT(StableSort)

  private:
    static void fill(Key (&keys)[N], int valid, const Key& others) {
        for (int i = 0; i < N; i++)
            if (int(simulator::current->rank) * N + i >= valid) keys[i] = others;
    }
    template <class Less>
    void sort(Key (&keys)[N], Value* values, Less less, int valid, const char* file, int line) {
        const int rank = simulated::rank_in_block<threads>(file, line);
        storage.room.sort(
            rank, keys, values, less, valid, false, [&] { __syncthreads(file, line); });
    }

    TempStorage& storage;
};

template <class Key, int ITEMS_PER_THREAD, int LOGICAL_WARP_THREADS = 32, class Value = NullType,
          int = 0>
class WarpMergeSort {
    static constexpr int threads = LOGICAL_WARP_THREADS;
    static constexpr int N = ITEMS_PER_THREAD, count = threads * N;

  public:
    struct TempStorage {
        simulated::SortRoom<Key, threads, N, Value> room;
    };
    WarpMergeSort(TempStorage& storage) : storage(storage) {}

    SIMULATOR_MERGE_SORT(Sort)
    SIMULATOR_MERGE_SORT(StableSort)

  private:
    static void fill(Key (&keys)[N], int valid, const Key& others) {
        for (int i = 0; i < N; i++)
            if (int(simulated::Part<threads>().lane) * N + i >= valid) keys[i] = others;
    }
    template <class Less>
    void sort(Key (&keys)[N], Value* values, Less less, int valid, const char* file, int line) {
        const simulated::Part<threads> part;
        storage.room.sort(part.lane, keys, values, less, valid, false,
                          [&] { __syncwarp(part.mask, file, line); });
    }

    TempStorage& storage;
};
#undef SIMULATOR_MERGE_SORT

}  // namespace cub
