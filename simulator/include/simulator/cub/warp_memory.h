// CUB's loads, stores and exchanges of a warp.
#pragma once
#include "block.h"
#include "warp.h"

namespace cub {

enum WarpLoadAlgorithm {
    WARP_LOAD_DIRECT,
    WARP_LOAD_STRIPED,
    WARP_LOAD_VECTORIZE,
    WARP_LOAD_TRANSPOSE,
};
enum WarpStoreAlgorithm {
    WARP_STORE_DIRECT,
    WARP_STORE_STRIPED,
    WARP_STORE_VECTORIZE,
    WARP_STORE_TRANSPOSE,
};

template <class T, int ITEMS_PER_THREAD, int LOGICAL_WARP_THREADS = 32, int = 0>
class WarpExchange {
    static constexpr int N = ITEMS_PER_THREAD, lanes = LOGICAL_WARP_THREADS;

  public:
    struct TempStorage {
        simulated::Room<T, lanes * N> items;
    };
    WarpExchange(TempStorage& storage) : storage(storage) {}

    template <class Out>
    void BlockedToStriped(const T (&in)[N], Out (&out)[N], SIMULATOR_CALLER) {
        exchange(
            in, out, [](int r, int i) { return r * N + i; },
            [](int r, int i) { return r + i * lanes; }, file, line);
    }
    template <class Out>
    void StripedToBlocked(const T (&in)[N], Out (&out)[N], SIMULATOR_CALLER) {
        exchange(
            in, out, [](int r, int i) { return r + i * lanes; },
            [](int r, int i) { return r * N + i; }, file, line);
    }
    template <class Rank>
    void ScatterToStriped(T (&items)[N], Rank (&ranks)[N], SIMULATOR_CALLER) {
        ScatterToStriped(items, items, ranks, file, line);
    }
    template <class Out, class Rank>
    void ScatterToStriped(const T (&in)[N], Out (&out)[N], Rank (&ranks)[N], SIMULATOR_CALLER) {
        exchange(
            in, out, [&](int, int i) { return int(ranks[i]); },
            [](int r, int i) { return r + i * lanes; }, file, line);
    }

  private:
    template <class Out, class From, class To>
    void exchange(const T (&in)[N], Out (&out)[N], From from, To to, const char* file, int line) {
        const simulated::Part<lanes> part;
        for (int i = 0; i < N; i++) storage.items[from(part.lane, i)] = in[i];
        __syncwarp(part.mask, file, line);
        for (int i = 0; i < N; i++) out[i] = storage.items[to(part.lane, i)];
    }

    TempStorage& storage;
};

template <class T, int ITEMS_PER_THREAD, WarpLoadAlgorithm ALGORITHM = WARP_LOAD_DIRECT,
          int LOGICAL_WARP_THREADS = 32, int = 0>
class WarpLoad {
    static constexpr int N = ITEMS_PER_THREAD, lanes = LOGICAL_WARP_THREADS;
    using Exchange = WarpExchange<T, ALGORITHM == WARP_LOAD_TRANSPOSE ? N : 1, lanes>;

  public:
    struct TempStorage {
        typename Exchange::TempStorage exchange;
    };
    WarpLoad() : storage(simulated::own<TempStorage>()) {}
    WarpLoad(TempStorage& storage) : storage(storage) {}

    template <class It>
    void Load(It from, T (&items)[N], SIMULATOR_CALLER) {
        Load(from, items, lanes * N, file, line);
    }
    template <class It>
    void Load(It from, T (&items)[N], int valid, SIMULATOR_CALLER) {
        const int lane = simulated::Part<lanes>().lane;
        if constexpr (ALGORITHM == WARP_LOAD_TRANSPOSE || ALGORITHM == WARP_LOAD_STRIPED)
            LoadDirectStriped<lanes>(lane, from, items, valid);
        else
            LoadDirectBlocked(lane, from, items, valid);
        if constexpr (ALGORITHM == WARP_LOAD_TRANSPOSE)
            Exchange(storage.exchange).StripedToBlocked(items, items, file, line);
    }
    template <class It, class U>
    void Load(It from, T (&items)[N], int valid, U others, SIMULATOR_CALLER) {
        for (T& item : items) item = others;
        Load(from, items, valid, file, line);
    }

  private:
    TempStorage& storage;
};

template <class T, int ITEMS_PER_THREAD, WarpStoreAlgorithm ALGORITHM = WARP_STORE_DIRECT,
          int LOGICAL_WARP_THREADS = 32, int = 0>
class WarpStore {
    static constexpr int N = ITEMS_PER_THREAD, lanes = LOGICAL_WARP_THREADS;
    using Exchange = WarpExchange<T, ALGORITHM == WARP_STORE_TRANSPOSE ? N : 1, lanes>;

  public:
    struct TempStorage {
        typename Exchange::TempStorage exchange;
    };
    WarpStore() : storage(simulated::own<TempStorage>()) {}
    WarpStore(TempStorage& storage) : storage(storage) {}

    template <class It>
    void Store(It to, T (&items)[N], SIMULATOR_CALLER) {
        Store(to, items, lanes * N, file, line);
    }
    template <class It>
    void Store(It to, T (&items)[N], int valid, SIMULATOR_CALLER) {
        const int lane = simulated::Part<lanes>().lane;
        if constexpr (ALGORITHM == WARP_STORE_TRANSPOSE)
            Exchange(storage.exchange).BlockedToStriped(items, items, file, line);
        if constexpr (ALGORITHM == WARP_STORE_TRANSPOSE || ALGORITHM == WARP_STORE_STRIPED)
            StoreDirectStriped<lanes>(lane, to, items, valid);
        else
            StoreDirectBlocked(lane, to, items, valid);
    }

  private:
    TempStorage& storage;
};

}  // namespace cub
