// CUB's exchanges, loads and stores of a block.
#pragma once
#include "util.h"

namespace cub {

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

}  // namespace cub
