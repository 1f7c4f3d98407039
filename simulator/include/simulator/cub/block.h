// CUB's collectives of a block. Threads leave their part in shared memory, one thread or all work
// on it after a barrier, and each takes its result after another.
#pragma once
#include "util.h"

namespace cub {

// Every algorithm has the same result, up to the order in which numbers are added.
enum BlockReduceAlgorithm {
    BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY,
    BLOCK_REDUCE_RAKING,
    BLOCK_REDUCE_WARP_REDUCTIONS,
    BLOCK_REDUCE_WARP_REDUCTIONS_NONDETERMINISTIC,
};
enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };
enum BlockHistogramAlgorithm { BLOCK_HISTO_SORT, BLOCK_HISTO_ATOMIC };
enum BlockLoadAlgorithm {
    BLOCK_LOAD_DIRECT,
    BLOCK_LOAD_STRIPED,
    BLOCK_LOAD_VECTORIZE,
    BLOCK_LOAD_TRANSPOSE,
    BLOCK_LOAD_WARP_TRANSPOSE,
    BLOCK_LOAD_WARP_TRANSPOSE_TIMESLICED,
};
enum BlockStoreAlgorithm {
    BLOCK_STORE_DIRECT,
    BLOCK_STORE_STRIPED,
    BLOCK_STORE_VECTORIZE,
    BLOCK_STORE_TRANSPOSE,
    BLOCK_STORE_WARP_TRANSPOSE,
    BLOCK_STORE_WARP_TRANSPOSE_TIMESLICED,
};

// ---- Reduction

// The result is the first thread's alone.
template <class T, int BLOCK_DIM_X, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS,
          int BLOCK_DIM_Y = 1, int BLOCK_DIM_Z = 1, int = 0>
class BlockReduce {
    static constexpr int threads = BLOCK_DIM_X * BLOCK_DIM_Y * BLOCK_DIM_Z;

  public:
    struct TempStorage {
        simulated::Room<T, threads> parts;
    };
    BlockReduce() : storage(simulated::own<TempStorage>()) {}
    BlockReduce(TempStorage& storage) : storage(storage) {}

    template <class Op>
    T Reduce(T part, Op op, SIMULATOR_CALLER) {
        return Reduce(part, op, threads, file, line);
    }
    // Of the first `valid` threads.
    template <class Op>
    T Reduce(T part, Op op, int valid, SIMULATOR_CALLER) {
        const unsigned rank = simulated::rank_in_block<threads>(file, line, valid);
        storage.parts[rank] = part;
        __syncthreads(file, line);
        if (rank || valid < 1) return part;
        const int count = valid < threads ? valid : threads;
        simulated::Room<T, threads>
            parts;  // what is read here the checker sees in the caller's line
        for (int i = 0; i < count; i++) parts[i] = storage.parts[i];
        return simulated::fold<T>(0, count, [&](int i) { return parts[i]; }, op);
    }
    template <int N, class Op>
    T Reduce(T (&parts)[N], Op op, SIMULATOR_CALLER) {
        return Reduce(T(ThreadReduce(parts, op)), op, file, line);
    }
    T Sum(T part, SIMULATOR_CALLER) { return Reduce(part, cub::Sum(), file, line); }
    T Sum(T part, int valid, SIMULATOR_CALLER) {
        return Reduce(part, cub::Sum(), valid, file, line);
    }
    template <int N>
    T Sum(T (&parts)[N], SIMULATOR_CALLER) {
        return Reduce(parts, cub::Sum(), file, line);
    }

  private:
    TempStorage& storage;
};

// ---- Scan

template <class T, int BLOCK_DIM_X, BlockScanAlgorithm = BLOCK_SCAN_RAKING, int BLOCK_DIM_Y = 1,
          int BLOCK_DIM_Z = 1, int = 0>
class BlockScan {
    static constexpr int threads = BLOCK_DIM_X * BLOCK_DIM_Y * BLOCK_DIM_Z;

  public:
    struct TempStorage {
        // Each thread's part, and then what comes before its next one; the sum, what comes first.
        simulated::Room<T, threads + 2> before;
    };
    BlockScan() : storage(simulated::own<TempStorage>()) {}
    BlockScan(TempStorage& storage) : storage(storage) {}

    // What CUB's scans take last: nothing; a variable for the sum of all; or a function that is
    // told that sum, by the first warp, and returns what comes before the block.

    void ExclusiveSum(T in, T& out, SIMULATOR_CALLER) {
        ExclusiveScan(in, out, T{}, cub::Sum(), file, line);
    }
    void ExclusiveSum(T in, T& out, T& aggregate, SIMULATOR_CALLER) {
        ExclusiveScan(in, out, T{}, cub::Sum(), aggregate, file, line);
    }
    template <class Prefix, class = decltype(::std::declval<Prefix&>()(::std::declval<T>()))>
    void ExclusiveSum(T in, T& out, Prefix& prefix, SIMULATOR_CALLER) {
        ExclusiveScan(in, out, cub::Sum(), prefix, file, line);
    }
    template <int N>
    void ExclusiveSum(T (&in)[N], T (&out)[N], SIMULATOR_CALLER) {
        ExclusiveScan(in, out, T{}, cub::Sum(), file, line);
    }
    template <int N>
    void ExclusiveSum(T (&in)[N], T (&out)[N], T& aggregate, SIMULATOR_CALLER) {
        ExclusiveScan(in, out, T{}, cub::Sum(), aggregate, file, line);
    }
    template <int N, class Prefix, class = decltype(::std::declval<Prefix&>()(::std::declval<T>()))>
    void ExclusiveSum(T (&in)[N], T (&out)[N], Prefix& prefix, SIMULATOR_CALLER) {
        ExclusiveScan(in, out, cub::Sum(), prefix, file, line);
    }

    void InclusiveSum(T in, T& out, SIMULATOR_CALLER) {
        InclusiveScan(in, out, cub::Sum(), file, line);
    }
    void InclusiveSum(T in, T& out, T& aggregate, SIMULATOR_CALLER) {
        InclusiveScan(in, out, cub::Sum(), aggregate, file, line);
    }
    template <class Prefix, class = decltype(::std::declval<Prefix&>()(::std::declval<T>()))>
    void InclusiveSum(T in, T& out, Prefix& prefix, SIMULATOR_CALLER) {
        InclusiveScan(in, out, cub::Sum(), prefix, file, line);
    }
    template <int N>
    void InclusiveSum(T (&in)[N], T (&out)[N], SIMULATOR_CALLER) {
        InclusiveScan(in, out, cub::Sum(), file, line);
    }
    template <int N>
    void InclusiveSum(T (&in)[N], T (&out)[N], T& aggregate, SIMULATOR_CALLER) {
        InclusiveScan(in, out, cub::Sum(), aggregate, file, line);
    }
    template <int N, class Prefix, class = decltype(::std::declval<Prefix&>()(::std::declval<T>()))>
    void InclusiveSum(T (&in)[N], T (&out)[N], Prefix& prefix, SIMULATOR_CALLER) {
        InclusiveScan(in, out, cub::Sum(), prefix, file, line);
    }

    // Of one value a thread.
    template <class Op>
    void ExclusiveScan(T in, T& out, Op op, SIMULATOR_CALLER) {
        one(in, out, [&](auto& i, auto& o) { ExclusiveScan(i, o, op, file, line); });
    }
    template <class Op>
    void ExclusiveScan(T in, T& out, T initial, Op op, SIMULATOR_CALLER) {
        one(in, out, [&](auto& i, auto& o) { ExclusiveScan(i, o, initial, op, file, line); });
    }
    template <class Op>
    void ExclusiveScan(T in, T& out, Op op, T& aggregate, SIMULATOR_CALLER) {
        one(in, out, [&](auto& i, auto& o) { ExclusiveScan(i, o, op, aggregate, file, line); });
    }
    template <class Op>
    void ExclusiveScan(T in, T& out, T initial, Op op, T& aggregate, SIMULATOR_CALLER) {
        one(in, out,
            [&](auto& i, auto& o) { ExclusiveScan(i, o, initial, op, aggregate, file, line); });
    }
    template <class Op, class Prefix,
              class = decltype(::std::declval<Prefix&>()(::std::declval<T>()))>
    void ExclusiveScan(T in, T& out, Op op, Prefix& prefix, SIMULATOR_CALLER) {
        one(in, out, [&](auto& i, auto& o) { ExclusiveScan(i, o, op, prefix, file, line); });
    }
    template <class Op>
    void InclusiveScan(T in, T& out, Op op, SIMULATOR_CALLER) {
        one(in, out, [&](auto& i, auto& o) { InclusiveScan(i, o, op, file, line); });
    }
    template <class Op>
    void InclusiveScan(T in, T& out, Op op, T& aggregate, SIMULATOR_CALLER) {
        one(in, out, [&](auto& i, auto& o) { InclusiveScan(i, o, op, aggregate, file, line); });
    }
    template <class Op>
    void InclusiveScan(T in, T& out, T initial, Op op, SIMULATOR_CALLER) {
        one(in, out, [&](auto& i, auto& o) { InclusiveScan(i, o, initial, op, file, line); });
    }
    template <class Op, class Prefix,
              class = decltype(::std::declval<Prefix&>()(::std::declval<T>()))>
    void InclusiveScan(T in, T& out, Op op, Prefix& prefix, SIMULATOR_CALLER) {
        one(in, out, [&](auto& i, auto& o) { InclusiveScan(i, o, op, prefix, file, line); });
    }

    // Of several. Without anything before it the first result is undefined: here it stays as it is.
    template <int N, class Op>
    void ExclusiveScan(T (&in)[N], T (&out)[N], Op op, SIMULATOR_CALLER) {
        scan<false>(in, out, op, nullptr, none, file, line);
    }
    template <int N, class Op>
    void ExclusiveScan(T (&in)[N], T (&out)[N], T initial, Op op, SIMULATOR_CALLER) {
        scan<false>(in, out, op, &initial, none, file, line);
    }
    template <int N, class Op>
    void ExclusiveScan(T (&in)[N], T (&out)[N], Op op, T& aggregate, SIMULATOR_CALLER) {
        aggregate = scan<false>(in, out, op, nullptr, none, file, line);
    }
    template <int N, class Op>
    void ExclusiveScan(T (&in)[N], T (&out)[N], T initial, Op op, T& aggregate, SIMULATOR_CALLER) {
        aggregate = scan<false>(in, out, op, &initial, none, file, line);
    }
    template <int N, class Op, class Prefix,
              class = decltype(::std::declval<Prefix&>()(::std::declval<T>()))>
    void ExclusiveScan(T (&in)[N], T (&out)[N], Op op, Prefix& prefix, SIMULATOR_CALLER) {
        scan<false>(in, out, op, nullptr, prefix, file, line);
    }
    template <int N, class Op>
    void InclusiveScan(T (&in)[N], T (&out)[N], Op op, SIMULATOR_CALLER) {
        scan<true>(in, out, op, nullptr, none, file, line);
    }
    template <int N, class Op>
    void InclusiveScan(T (&in)[N], T (&out)[N], Op op, T& aggregate, SIMULATOR_CALLER) {
        aggregate = scan<true>(in, out, op, nullptr, none, file, line);
    }
    template <int N, class Op>
    void InclusiveScan(T (&in)[N], T (&out)[N], T initial, Op op, SIMULATOR_CALLER) {
        scan<true>(in, out, op, &initial, none, file, line);
    }
    template <int N, class Op, class Prefix,
              class = decltype(::std::declval<Prefix&>()(::std::declval<T>()))>
    void InclusiveScan(T (&in)[N], T (&out)[N], Op op, Prefix& prefix, SIMULATOR_CALLER) {
        scan<true>(in, out, op, nullptr, prefix, file, line);
    }

  private:
    struct None {};
    None none;

    template <class Scan>
    void one(T& in, T& out, Scan scan) {
        T ins[1] = {in}, outs[1] = {out};
        scan(ins, outs);
        out = outs[0];
    }

    // Returns the sum of all that went in.
    template <bool Inclusive, int N, class Op, class Prefix>
    T scan(T (&in)[N], T (&out)[N], Op op, const T* initial, Prefix& prefix, const char* file,
           int line) {
        constexpr bool has_prefix = !::std::is_same_v<Prefix, None>;
        const unsigned rank = simulated::rank_in_block<threads>(file, line);
        auto& before = storage.before;
        before[rank] = ThreadReduce(in, op);
        __syncthreads(file, line);
        if (rank == 0) {
            T sum = before[0];
            for (int i = 1; i < threads; i++) {
                const T part = before[i];
                before[i - 1] = sum;
                sum = op(sum, part);
            }
            before[threads] = sum;
            if (initial) before[threads + 1] = *initial;
        }
        __syncthreads(file, line);
        const T sum = before[threads];
        if constexpr (has_prefix) {
            if (rank < 32) {
                const T first = prefix(sum);
                if (rank == 0) before[threads + 1] = first;
            }
            __syncthreads(file, line);
        }
        const bool starts = has_prefix || initial;  // something comes before the block
        bool any = starts || rank > 0;              // and before the next item
        T running = in[0];
        if (rank)
            running = starts ? T(op(before[threads + 1], before[rank - 1])) : before[rank - 1];
        else if (starts)
            running = before[threads + 1];
        for (int i = 0; i < N; i++) {
            const T next = any ? T(op(running, in[i])) : in[i];
            if (Inclusive)
                out[i] = next;
            else if (any)
                out[i] = running;
            running = next;
            any = true;
        }
        return sum;
    }

    TempStorage& storage;
};

// ---- Exchange

template <class T, int BLOCK_DIM_X, int ITEMS_PER_THREAD, bool = false, int BLOCK_DIM_Y = 1,
          int BLOCK_DIM_Z = 1, int = 0>
class BlockExchange {
    static constexpr int threads = BLOCK_DIM_X * BLOCK_DIM_Y * BLOCK_DIM_Z;
    static constexpr int N = ITEMS_PER_THREAD;
    using Items = T[N];

  public:
    struct TempStorage {
        simulated::Room<T, threads * N> items;
    };
    BlockExchange() : storage(simulated::own<TempStorage>()) {}
    BlockExchange(TempStorage& storage) : storage(storage) {}

#define SIMULATOR_EXCHANGE(name, from, to)                                                     \
    template <class Out>                                                                       \
    void name(const T(&in)[N], Out(&out)[N], SIMULATOR_CALLER) {                               \
        exchange(                                                                              \
            in, out, [](int r, int i) { return from; }, [](int r, int i) { return to; }, file, \
            line);                                                                             \
    }                                                                                          \
    void name(T(&items)[N], SIMULATOR_CALLER) { name(items, items, file, line); }
#define SIMULATOR_BLOCKED r* N + i
#define SIMULATOR_STRIPED r + i* threads
#define SIMULATOR_WARP_STRIPED warp_striped(r, i)
    SIMULATOR_EXCHANGE(StripedToBlocked, SIMULATOR_STRIPED, SIMULATOR_BLOCKED)
    SIMULATOR_EXCHANGE(BlockedToStriped, SIMULATOR_BLOCKED, SIMULATOR_STRIPED)
    SIMULATOR_EXCHANGE(WarpStripedToBlocked, SIMULATOR_WARP_STRIPED, SIMULATOR_BLOCKED)
    SIMULATOR_EXCHANGE(BlockedToWarpStriped, SIMULATOR_BLOCKED, SIMULATOR_WARP_STRIPED)
#undef SIMULATOR_EXCHANGE

    // Each item goes where its rank says.
#define SIMULATOR_SCATTER(name, to)                                                              \
    template <class Out, class Rank>                                                             \
    void name(const T(&in)[N], Out(&out)[N], Rank(&ranks)[N], SIMULATOR_CALLER) {                \
        exchange(                                                                                \
            in, out, [&](int, int i) { return int(ranks[i]); }, [](int r, int i) { return to; }, \
            file, line);                                                                         \
    }                                                                                            \
    template <class Rank>                                                                        \
    void name(T(&items)[N], Rank(&ranks)[N], SIMULATOR_CALLER) {                                 \
        name(items, items, ranks, file, line);                                                   \
    }
    SIMULATOR_SCATTER(ScatterToBlocked, SIMULATOR_BLOCKED)
    SIMULATOR_SCATTER(ScatterToStriped, SIMULATOR_STRIPED)
    SIMULATOR_SCATTER(ScatterToStripedGuarded, SIMULATOR_STRIPED)  // a negative rank is left out
#undef SIMULATOR_SCATTER
#undef SIMULATOR_BLOCKED
#undef SIMULATOR_STRIPED
#undef SIMULATOR_WARP_STRIPED
    template <class Out, class Rank, class Flag>
    void ScatterToStripedFlagged(const T (&in)[N], Out (&out)[N], Rank (&ranks)[N],
                                 Flag (&flags)[N], SIMULATOR_CALLER) {
        exchange(
            in, out, [&](int, int i) { return flags[i] ? int(ranks[i]) : -1; },
            [](int r, int i) { return r + i * threads; }, file, line);
    }

  private:
    static int warp_striped(int rank, int i) {
        const int warp = rank / 32, lanes = threads - warp * 32 < 32 ? threads - warp * 32 : 32;
        return warp * 32 * N + rank % 32 + i * lanes;
    }

    template <class Out, class From, class To>
    void exchange(const T (&in)[N], Out (&out)[N], From from, To to, const char* file, int line) {
        const int rank = simulated::rank_in_block<threads>(file, line);
        for (int i = 0; i < N; i++)
            if (const int place = from(rank, i); place >= 0) storage.items[place] = in[i];
        __syncthreads(file, line);
        for (int i = 0; i < N; i++) out[i] = storage.items[to(rank, i)];
    }

    TempStorage& storage;
};

// ---- Load and store

template <class It, class T, int N>
void LoadDirectBlocked(int rank, It from, T (&items)[N]) {
    for (int i = 0; i < N; i++) items[i] = from[rank * N + i];
}
template <class It, class T, int N>
void LoadDirectBlocked(int rank, It from, T (&items)[N], int valid) {
    for (int i = 0; i < N; i++)
        if (rank * N + i < valid) items[i] = from[rank * N + i];
}
template <class It, class T, int N, class U>
void LoadDirectBlocked(int rank, It from, T (&items)[N], int valid, U others) {
    for (T& item : items) item = others;
    LoadDirectBlocked(rank, from, items, valid);
}
template <class T, int N>
void LoadDirectBlockedVectorized(int rank, T* from, T (&items)[N]) {
    LoadDirectBlocked(rank, from, items);
}
template <int Threads, class It, class T, int N>
void LoadDirectStriped(int rank, It from, T (&items)[N]) {
    for (int i = 0; i < N; i++) items[i] = from[rank + i * Threads];
}
template <int Threads, class It, class T, int N>
void LoadDirectStriped(int rank, It from, T (&items)[N], int valid) {
    for (int i = 0; i < N; i++)
        if (rank + i * Threads < valid) items[i] = from[rank + i * Threads];
}
template <int Threads, class It, class T, int N, class U>
void LoadDirectStriped(int rank, It from, T (&items)[N], int valid, U others) {
    for (T& item : items) item = others;
    LoadDirectStriped<Threads>(rank, from, items, valid);
}
template <class It, class T, int N>
void StoreDirectBlocked(int rank, It to, T (&items)[N]) {
    for (int i = 0; i < N; i++) to[rank * N + i] = items[i];
}
template <class It, class T, int N>
void StoreDirectBlocked(int rank, It to, T (&items)[N], int valid) {
    for (int i = 0; i < N; i++)
        if (rank * N + i < valid) to[rank * N + i] = items[i];
}
template <class T, int N>
void StoreDirectBlockedVectorized(int rank, T* to, T (&items)[N]) {
    StoreDirectBlocked(rank, to, items);
}
template <int Threads, class It, class T, int N>
void StoreDirectStriped(int rank, It to, T (&items)[N]) {
    for (int i = 0; i < N; i++) to[rank + i * Threads] = items[i];
}
template <int Threads, class It, class T, int N>
void StoreDirectStriped(int rank, It to, T (&items)[N], int valid) {
    for (int i = 0; i < N; i++)
        if (rank + i * Threads < valid) to[rank + i * Threads] = items[i];
}

template <class T, int BLOCK_DIM_X, int ITEMS_PER_THREAD,
          BlockLoadAlgorithm ALGORITHM = BLOCK_LOAD_DIRECT, int BLOCK_DIM_Y = 1,
          int BLOCK_DIM_Z = 1, int = 0>
class BlockLoad {
    static constexpr int threads = BLOCK_DIM_X * BLOCK_DIM_Y * BLOCK_DIM_Z;
    static constexpr int N = ITEMS_PER_THREAD;
    static constexpr bool transposes = ALGORITHM >= BLOCK_LOAD_TRANSPOSE;
    using Exchange =
        BlockExchange<T, BLOCK_DIM_X, transposes ? N : 1, false, BLOCK_DIM_Y, BLOCK_DIM_Z>;

  public:
    struct TempStorage {
        typename Exchange::TempStorage exchange;
    };
    BlockLoad() : storage(simulated::own<TempStorage>()) {}
    BlockLoad(TempStorage& storage) : storage(storage) {}

    template <class It>
    void Load(It from, T (&items)[N], SIMULATOR_CALLER) {
        load(items, [&](auto... rest) { direct(from, items, rest...); }, file, line);
    }
    template <class It>
    void Load(It from, T (&items)[N], int valid, SIMULATOR_CALLER) {
        load(items, [&](auto... rest) { direct(from, items, valid, rest...); }, file, line);
    }
    template <class It, class U>
    void Load(It from, T (&items)[N], int valid, U others, SIMULATOR_CALLER) {
        for (T& item : items) item = others;
        Load(from, items, valid, file, line);
    }

  private:
    template <class It, class... Valid>
    void direct(It from, T (&items)[N], Valid... valid) {
        const int rank = simulator::current->rank;
        if constexpr (transposes || ALGORITHM == BLOCK_LOAD_STRIPED)
            LoadDirectStriped<threads>(rank, from, items, valid...);
        else
            LoadDirectBlocked(rank, from, items, valid...);
    }
    template <class Direct>
    void load(T (&items)[N], Direct direct, const char* file, int line) {
        simulated::rank_in_block<threads>(file, line);
        direct();
        if constexpr (transposes) Exchange(storage.exchange).StripedToBlocked(items, file, line);
    }

    TempStorage& storage;
};

template <class T, int BLOCK_DIM_X, int ITEMS_PER_THREAD,
          BlockStoreAlgorithm ALGORITHM = BLOCK_STORE_DIRECT, int BLOCK_DIM_Y = 1,
          int BLOCK_DIM_Z = 1, int = 0>
class BlockStore {
    static constexpr int threads = BLOCK_DIM_X * BLOCK_DIM_Y * BLOCK_DIM_Z;
    static constexpr int N = ITEMS_PER_THREAD;
    static constexpr bool transposes = ALGORITHM >= BLOCK_STORE_TRANSPOSE;
    using Exchange =
        BlockExchange<T, BLOCK_DIM_X, transposes ? N : 1, false, BLOCK_DIM_Y, BLOCK_DIM_Z>;

  public:
    struct TempStorage {
        typename Exchange::TempStorage exchange;
    };
    BlockStore() : storage(simulated::own<TempStorage>()) {}
    BlockStore(TempStorage& storage) : storage(storage) {}

    template <class It>
    void Store(It to, T (&items)[N], SIMULATOR_CALLER) {
        Store(to, items, threads * N, file, line);
    }
    template <class It>
    void Store(It to, T (&items)[N], int valid, SIMULATOR_CALLER) {
        const int rank = simulated::rank_in_block<threads>(file, line);
        if constexpr (transposes) Exchange(storage.exchange).BlockedToStriped(items, file, line);
        if constexpr (transposes || ALGORITHM == BLOCK_STORE_STRIPED)
            StoreDirectStriped<threads>(rank, to, items, valid);
        else
            StoreDirectBlocked(rank, to, items, valid);
    }

  private:
    TempStorage& storage;
};

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
