// CUB's collectives of a block. Threads leave their part in shared memory, one thread or all work
// on it after a barrier, and each takes its result after another.
#pragma once
#include "block_load.h"
#include "block_scan.h"

namespace cub {

enum BlockHistogramAlgorithm { BLOCK_HISTO_SORT, BLOCK_HISTO_ATOMIC };

// ---- Neighbours

namespace simulated {

// Whether items differ: some functions want the index of the second of them, too.
template <class Op, class T>
bool differ(Op& op, const T& a, const T& b, int index) {
    if constexpr (::std::is_invocable_v<Op&, const T&, const T&, int>)
        return op(a, b, index);
    else
        return op(a, b);
}

}  // namespace simulated

// CUB's order of parameters: first the flags.
template <class T, int BLOCK_DIM_X, int BLOCK_DIM_Y = 1, int BLOCK_DIM_Z = 1, int = 0>
class BlockDiscontinuity {
    static constexpr int threads = BLOCK_DIM_X * BLOCK_DIM_Y * BLOCK_DIM_Z;

  public:
    struct TempStorage {
        simulated::Room<T, threads> first, last;
    };
    BlockDiscontinuity() : storage(simulated::own<TempStorage>()) {}
    BlockDiscontinuity(TempStorage& storage) : storage(storage) {}

    template <int N, class Flag, class Op>
    void FlagHeads(Flag (&heads)[N], T (&in)[N], Op op, SIMULATOR_CALLER) {
        share(in, file, line);
        flag_heads(heads, in, op, nullptr);
    }
    template <int N, class Flag, class Op>
    void FlagHeads(Flag (&heads)[N], T (&in)[N], Op op, T before, SIMULATOR_CALLER) {
        share(in, file, line);
        flag_heads(heads, in, op, &before);
    }
    template <int N, class Flag, class Op>
    void FlagTails(Flag (&tails)[N], T (&in)[N], Op op, SIMULATOR_CALLER) {
        share(in, file, line);
        flag_tails(tails, in, op, nullptr);
    }
    template <int N, class Flag, class Op>
    void FlagTails(Flag (&tails)[N], T (&in)[N], Op op, T after, SIMULATOR_CALLER) {
        share(in, file, line);
        flag_tails(tails, in, op, &after);
    }
    template <int N, class Flag, class Op>
    void FlagHeadsAndTails(Flag (&heads)[N], Flag (&tails)[N], T (&in)[N], Op op,
                           SIMULATOR_CALLER) {
        share(in, file, line);
        flag_heads(heads, in, op, nullptr);
        flag_tails(tails, in, op, nullptr);
    }
    template <int N, class Flag, class Op>
    void FlagHeadsAndTails(Flag (&heads)[N], T before, Flag (&tails)[N], T after, T (&in)[N], Op op,
                           SIMULATOR_CALLER) {
        share(in, file, line);
        flag_heads(heads, in, op, &before);
        flag_tails(tails, in, op, &after);
    }

  private:
    template <int N>
    void share(T (&in)[N], const char* file, int line) {
        rank = simulated::rank_in_block<threads>(file, line);
        storage.first[rank] = in[0];
        storage.last[rank] = in[N - 1];
        __syncthreads(file, line);
    }
    template <int N, class Flag, class Op>
    void flag_heads(Flag (&heads)[N], T (&in)[N], Op& op, const T* before) {
        if (rank) before = &storage.last[rank - 1];
        heads[0] = before ? simulated::differ(op, *before, in[0], rank * N) : true;
        for (int i = 1; i < N; i++)
            heads[i] = simulated::differ(op, in[i - 1], in[i], rank * N + i);
    }
    template <int N, class Flag, class Op>
    void flag_tails(Flag (&tails)[N], T (&in)[N], Op& op, const T* after) {
        if (rank + 1 < threads) after = &storage.first[rank + 1];
        for (int i = 0; i + 1 < N; i++)
            tails[i] = simulated::differ(op, in[i], in[i + 1], rank * N + i + 1);
        tails[N - 1] = after ? simulated::differ(op, in[N - 1], *after, rank * N + N) : true;
    }

    TempStorage& storage;
    int rank = 0;
};

template <class T, int BLOCK_DIM_X, int BLOCK_DIM_Y = 1, int BLOCK_DIM_Z = 1, int = 0>
class BlockAdjacentDifference {
    static constexpr int threads = BLOCK_DIM_X * BLOCK_DIM_Y * BLOCK_DIM_Z;

  public:
    struct TempStorage {
        simulated::Room<T, threads> edge;
    };
    BlockAdjacentDifference() : storage(simulated::own<TempStorage>()) {}
    BlockAdjacentDifference(TempStorage& storage) : storage(storage) {}

    // The first item has none before it, and stays.
    template <int N, class Out, class Op>
    void SubtractLeft(T (&in)[N], Out (&out)[N], Op op, SIMULATOR_CALLER) {
        left(in, out, op, nullptr, file, line);
    }
    template <int N, class Out, class Op>
    void SubtractLeft(T (&in)[N], Out (&out)[N], Op op, T before, SIMULATOR_CALLER) {
        left(in, out, op, &before, file, line);
    }
    template <int N, class Out, class Op>
    void SubtractRight(T (&in)[N], Out (&out)[N], Op op, SIMULATOR_CALLER) {
        right(in, out, op, nullptr, file, line);
    }
    template <int N, class Out, class Op>
    void SubtractRight(T (&in)[N], Out (&out)[N], Op op, T after, SIMULATOR_CALLER) {
        right(in, out, op, &after, file, line);
    }

  private:
    template <int N, class Out, class Op>
    void left(T (&in)[N], Out (&out)[N], Op op, const T* before, const char* file, int line) {
        const int rank = simulated::rank_in_block<threads>(file, line);
        storage.edge[rank] = in[N - 1];
        __syncthreads(file, line);
        if (rank) before = &storage.edge[rank - 1];
        for (int i = N - 1; i > 0; i--) out[i] = op(in[i], in[i - 1]);
        out[0] = before ? Out(op(in[0], *before)) : Out(in[0]);
    }
    template <int N, class Out, class Op>
    void right(T (&in)[N], Out (&out)[N], Op op, const T* after, const char* file, int line) {
        const int rank = simulated::rank_in_block<threads>(file, line);
        storage.edge[rank] = in[0];
        __syncthreads(file, line);
        if (rank + 1 < threads) after = &storage.edge[rank + 1];
        for (int i = 0; i + 1 < N; i++) out[i] = op(in[i], in[i + 1]);
        out[N - 1] = after ? Out(op(in[N - 1], *after)) : Out(in[N - 1]);
    }

    TempStorage& storage;
};

template <class T, int BLOCK_DIM_X, int BLOCK_DIM_Y = 1, int BLOCK_DIM_Z = 1, int = 0>
class BlockShuffle {
    static constexpr int threads = BLOCK_DIM_X * BLOCK_DIM_Y * BLOCK_DIM_Z;

  public:
    struct TempStorage {
        simulated::Room<T, threads> items;
    };
    BlockShuffle() : storage(simulated::own<TempStorage>()) {}
    BlockShuffle(TempStorage& storage) : storage(storage) {}

    // From the thread so far ahead. Who has none there keeps its output.
    void Offset(T in, T& out, int distance = 1, SIMULATOR_CALLER) {
        const int from = share(in, file, line) + distance;
        if (from >= 0 && from < threads) out = storage.items[from];
    }
    void Rotate(T in, T& out, unsigned distance = 1, SIMULATOR_CALLER) {
        const unsigned from = share(in, file, line) + distance;
        out = storage.items[from % threads];
    }
    // All items move on by one. The first (or last) keeps its output.
    template <int N>
    void Up(T (&in)[N], T (&out)[N], SIMULATOR_CALLER) {
        const int rank = share(in[N - 1], file, line);
        for (int i = N - 1; i > 0; i--) out[i] = in[i - 1];
        if (rank) out[0] = storage.items[rank - 1];
    }
    template <int N>
    void Up(T (&in)[N], T (&out)[N], T& last, SIMULATOR_CALLER) {
        Up(in, out, file, line);
        last = storage.items[threads - 1];
    }
    template <int N>
    void Down(T (&in)[N], T (&out)[N], SIMULATOR_CALLER) {
        const int rank = share(in[0], file, line);
        for (int i = 0; i + 1 < N; i++) out[i] = in[i + 1];
        if (rank + 1 < threads) out[N - 1] = storage.items[rank + 1];
    }
    template <int N>
    void Down(T (&in)[N], T (&out)[N], T& first, SIMULATOR_CALLER) {
        Down(in, out, file, line);
        first = storage.items[0];
    }

  private:
    int share(const T& in, const char* file, int line) {
        const int rank = simulated::rank_in_block<threads>(file, line);
        storage.items[rank] = in;
        __syncthreads(file, line);
        return rank;
    }

    TempStorage& storage;
};

// ---- Histogram

template <class T, int BLOCK_DIM_X, int ITEMS_PER_THREAD, int BINS,
          BlockHistogramAlgorithm = BLOCK_HISTO_SORT, int BLOCK_DIM_Y = 1, int BLOCK_DIM_Z = 1,
          int = 0>
class BlockHistogram {
    static constexpr int threads = BLOCK_DIM_X * BLOCK_DIM_Y * BLOCK_DIM_Z;

  public:
    struct TempStorage {};
    BlockHistogram() {}
    BlockHistogram(TempStorage&) {}

    template <class Counter>
    void InitHistogram(Counter (&histogram)[BINS], SIMULATOR_CALLER) {
        const int rank = simulated::rank_in_block<threads>(file, line);
        for (int bin = rank; bin < BINS; bin += threads) histogram[bin] = 0;
    }
    template <class Counter>
    void Composite(T (&items)[ITEMS_PER_THREAD], Counter (&histogram)[BINS], SIMULATOR_CALLER) {
        for (const T& item : items) {
            if (!(item >= 0 && unsigned(item) < unsigned(BINS)))
                simulator::fail_assertion("each item is a bin of cub::BlockHistogram", file, line);
            if constexpr (::std::is_integral_v<Counter>)
                __atomic_fetch_add(&histogram[unsigned(item)], Counter(1), __ATOMIC_SEQ_CST);
            else
                atomicAdd(&histogram[unsigned(item)], Counter(1));
        }
    }
    template <class Counter>
    void Histogram(T (&items)[ITEMS_PER_THREAD], Counter (&histogram)[BINS], SIMULATOR_CALLER) {
        InitHistogram(histogram, file, line);
        __syncthreads(file, line);
        Composite(items, histogram, file, line);
    }
};

}  // namespace cub
