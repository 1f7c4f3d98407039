// CUB's collectives of warps and blocks, and its device-wide algorithms.
#include <cuda_fp16.h>
#include <cub/cub.cuh>

struct Larger {
    template <class T>
    __host__ __device__ T operator()(const T& a, const T& b) const {
        return a < b ? b : a;
    }
};
struct Add {
    template <class T>
    __host__ __device__ T operator()(const T& a, const T& b) const {
        return a + b;
    }
};
struct Differ {
    __host__ __device__ bool operator()(int a, int b) const { return a != b; }
};
struct Even {
    __host__ __device__ bool operator()(int a) const { return a % 2 == 0; }
};

#define LAUNCHER(name, blocks, threads, ...)                         \
    extern "C" cudaError_t run_##name(const int* x, int* y, int n) { \
        __VA_ARGS__<<<blocks, threads>>>(x, y, n);                   \
        return cudaGetLastError();                                   \
    }

// ---- Warps

// Each thread's results, a row for each kind.
template <int Lanes>
__global__ void warps(const int* x, int* y, int n) {
    using Reduce = cub::WarpReduce<int, Lanes>;
    using Scan = cub::WarpScan<int, Lanes>;
    __shared__ typename Reduce::TempStorage reduce[128 / Lanes];
    __shared__ typename Scan::TempStorage scan[128 / Lanes];
    const int t = threadIdx.x, part = t / Lanes, value = x[t];
    y[t] = Reduce(reduce[part]).Sum(value);
    __syncwarp();
    y[n + t] = Reduce(reduce[part]).Reduce(value, Larger(), 3);
    __syncwarp();
    y[2 * n + t] = Reduce(reduce[part]).HeadSegmentedSum(value, t % 5 == 0);
    __syncwarp();
    int inclusive, exclusive, sum;
    Scan(scan[part]).InclusiveSum(value, inclusive, sum);
    __syncwarp();
    Scan(scan[part]).ExclusiveScan(value, exclusive, -1000, Larger());
    y[3 * n + t] = inclusive;
    y[4 * n + t] = exclusive;
    y[5 * n + t] = sum;
}
LAUNCHER(warps_of_32, 1, 128, warps<32>)
LAUNCHER(warps_of_8, 1, 128, warps<8>)

// ---- Blocks

template <cub::BlockReduceAlgorithm algorithm>
__global__ void reduced(const int* x, int* y, int n) {
    using Reduce = cub::BlockReduce<int, 16, algorithm, 2, 4>;
    __shared__ typename Reduce::TempStorage storage;
    const int t = threadIdx.x + 16 * (threadIdx.y + 2 * threadIdx.z);
    int items[3];
    cub::LoadDirectBlocked(t, x, items);
    const int sum = Reduce(storage).Sum(items);
    __syncthreads();
    const int best = Reduce(storage).Reduce(x[t], Larger());
    __syncthreads();
    const int some = Reduce(storage).Sum(x[t], 77);
    if (t == 0) y[0] = sum, y[1] = best, y[2] = some;
}
LAUNCHER(reduced_by_raking, 1, dim3(16, 2, 4), reduced<cub::BLOCK_REDUCE_RAKING>)
LAUNCHER(reduced_by_warps, 1, dim3(16, 2, 4), reduced<cub::BLOCK_REDUCE_WARP_REDUCTIONS>)

struct Running {
    int total;
    __device__ int operator()(int sum) {
        const int before = total;
        total += sum;
        return before;
    }
};
// A block scans all of x, tile by tile.
__global__ void tiles(const int* x, int* y, int n) {
    constexpr int threads = 64, each = 4, tile = threads * each;
    using Load = cub::BlockLoad<int, threads, each, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
    using Scan = cub::BlockScan<int, threads>;
    using Store = cub::BlockStore<int, threads, each, cub::BLOCK_STORE_TRANSPOSE>;
    __shared__ union {
        typename Load::TempStorage load;
        typename Scan::TempStorage scan;
        typename Store::TempStorage store;
    } storage;
    Running running{0};
    for (int first = 0; first < n; first += tile) {
        int items[each];
        Load(storage.load).Load(x + first, items, n - first, 0);
        __syncthreads();
        Scan(storage.scan).ExclusiveSum(items, items, running);
        __syncthreads();
        Store(storage.store).Store(y + first, items, n - first);
        __syncthreads();
    }
}
LAUNCHER(tiles, 1, 64, tiles)

// One value a thread, with the block's sum.
__global__ void scanned(const int* x, int* y, int n) {
    using Scan = cub::BlockScan<int, 100, cub::BLOCK_SCAN_RAKING>;
    __shared__ typename Scan::TempStorage storage;
    const int t = threadIdx.x;
    int inclusive, exclusive, sum;
    Scan(storage).InclusiveScan(x[t], inclusive, Larger(), sum);
    __syncthreads();
    Scan(storage).ExclusiveScan(x[t], exclusive, 5, Add());
    y[t] = inclusive;
    y[n + t] = exclusive;
    y[2 * n + t] = sum;
}
LAUNCHER(scanned, 1, 100, scanned)

__global__ void sorted(const int* x, int* y, int n) {
    using Sort = cub::BlockRadixSort<float, 128, 3, int>;
    using Bits = cub::BlockRadixSort<unsigned, 128, 3>;
    __shared__ typename Sort::TempStorage storage;
    __shared__ typename Bits::TempStorage bits;
    float keys[3];
    int places[3];
    unsigned low[3];
    for (int i = 0; i < 3; i++) {
        places[i] = 3 * threadIdx.x + i;
        keys[i] = x[places[i]] / 4;
        low[i] = x[places[i]];
    }
    Sort(storage).SortDescending(keys, places);
    Bits(bits).SortBlockedToStriped(low, 0, 4);
    cub::StoreDirectBlocked(threadIdx.x, y, places);
    cub::StoreDirectStriped<128>(threadIdx.x, y + n, low);
}
LAUNCHER(sorted, 1, 128, sorted)

// Heads of runs, neighbours' differences, a histogram, and items that go where a permutation says.
__global__ void neighbours(const int* x, int* y, int n) {
    constexpr int threads = 96, each = 4, bins = 10;
    using Heads = cub::BlockDiscontinuity<int, threads>;
    using Minus = cub::BlockAdjacentDifference<int, threads>;
    using Histogram = cub::BlockHistogram<unsigned, threads, each, bins>;
    using Exchange = cub::BlockExchange<int, threads, each>;
    __shared__ typename Heads::TempStorage heads;
    __shared__ typename Minus::TempStorage minus;
    __shared__ typename Histogram::TempStorage counting;
    __shared__ typename Exchange::TempStorage exchange;
    __shared__ unsigned counts[bins];
    int items[each], flags[each], differences[each], ranks[each];
    unsigned binned[each];
    cub::LoadDirectBlocked(threadIdx.x, x, items);
    Heads(heads).FlagHeads(flags, items, Differ());
    Minus(minus).SubtractLeft(items, differences, [](int a, int b) { return a - b; });
    for (int i = 0; i < each; i++) {
        binned[i] = unsigned(items[i]) % bins;
        ranks[i] = n - 1 - (each * int(threadIdx.x) + i);
    }
    Histogram(counting).Histogram(binned, counts);
    Exchange(exchange).ScatterToBlocked(items, ranks);
    __syncthreads();
    cub::StoreDirectBlocked(threadIdx.x, y, flags);
    cub::StoreDirectBlocked(threadIdx.x, y + n, differences);
    cub::StoreDirectBlocked(threadIdx.x, y + 2 * n, items);
    if (threadIdx.x < bins) y[3 * n + threadIdx.x] = counts[threadIdx.x];
}
LAUNCHER(neighbours, 1, 96, neighbours)

// ---- The whole device

// Asks how much storage it takes, then does it.
template <class Algorithm>
void twice(Algorithm algorithm) {
    void* storage = nullptr;
    size_t bytes = 0;
    algorithm(storage, bytes);
    cudaMalloc(&storage, bytes);
    algorithm(storage, bytes);
    cudaFree(storage);
}

extern "C" cudaError_t run_whole_reductions(const int* x, int* y, int n) {
    twice([&](void* s, size_t& b) { cub::DeviceReduce::Sum(s, b, x, y, n); });
    twice([&](void* s, size_t& b) { cub::DeviceReduce::Min(s, b, x, y + 1, n); });
    twice([&](void* s, size_t& b) { cub::DeviceReduce::Max(s, b, x, y + 2, n); });
    twice([&](void* s, size_t& b) { cub::DeviceReduce::Reduce(s, b, x, y + 3, n, Larger(), -5); });
    twice([&](void* s, size_t& b) { cub::DeviceReduce::ArgMax(s, b, x, y + 4, y + 5, n); });
    return cudaDeviceSynchronize();
}

extern "C" cudaError_t run_whole_scans(const int* x, int* y, int n) {
    twice([&](void* s, size_t& b) { cub::DeviceScan::InclusiveSum(s, b, x, y, n); });
    twice([&](void* s, size_t& b) {
        cub::DeviceScan::ExclusiveScan(s, b, x, y + n, Larger(), -7, n);
    });
    return cudaDeviceSynchronize();
}

extern "C" cudaError_t run_whole_sorts(const int* x, int* y, int n) {
    twice([&](void* s, size_t& b) { cub::DeviceRadixSort::SortKeys(s, b, x, y, n); });
    twice([&](void* s, size_t& b) {
        cub::DeviceRadixSort::SortPairsDescending(s, b, x, y + n, x, y + 2 * n, n, 0, 2);
    });
    return cudaDeviceSynchronize();
}

extern "C" cudaError_t run_whole_selections(const int* x, int* y, int n) {
    twice([&](void* s, size_t& b) { cub::DeviceSelect::If(s, b, x, y + 1, y, n, Even()); });
    int *counts = y + n + 1, *values = counts + 1, *lengths = values + n;
    twice([&](void* s, size_t& b) {
        cub::DeviceRunLengthEncode::Encode(s, b, x, values, lengths, counts, n);
    });
    return cudaDeviceSynchronize();
}

extern "C" cudaError_t run_whole_histogram(const int* x, int* y, int n) {
    twice([&](void* s, size_t& b) {
        cub::DeviceHistogram::HistogramEven(s, b, x, y, 9, -100, 300, n);
    });
    return cudaDeviceSynchronize();
}

// As a node of a graph it is done at each launch, and not before.
extern "C" cudaError_t run_whole_in_a_graph(const int* x, int* y, int n) {
    void* storage = nullptr;
    size_t bytes = 0;
    cub::DeviceReduce::Sum(storage, bytes, x, y, n);
    cudaMalloc(&storage, bytes);
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
    cub::DeviceReduce::Sum(storage, bytes, x, y, n, stream);
    cub::DeviceReduce::Sum(storage, bytes, y, y + 1, 2, stream);
    cudaGraph_t graph;
    cudaStreamEndCapture(stream, &graph);
    cudaGraphExec_t exec;
    cudaGraphInstantiate(&exec, graph, 0);
    cudaGraphLaunch(exec, stream);
    cudaGraphLaunch(exec, stream);
    const cudaError_t error = cudaStreamSynchronize(stream);
    cudaFree(storage);
    return error;
}

extern "C" cudaError_t run_whole_of_nothing(const int*, int* y, int n) {
    char storage[1];
    size_t bytes = 1;
    cub::DeviceReduce::Sum(storage, bytes, static_cast<const int*>(nullptr), y, n);  // READS
    return cudaDeviceSynchronize();
}

struct Pair {
    int first, second;
};
static_assert(!cub::Traits<Pair>::PRIMITIVE);
static_assert(cub::Traits<const float>::CATEGORY == cub::FLOATING_POINT);

// Whether a < b in the order of a radix sort, and both come back from there.
template <class T>
__device__ bool is_in_order(T a, T b) {
    using Traits = cub::Traits<T>;
    typename Traits::UnsignedBits of_a, of_b;
    memcpy(&of_a, &a, sizeof a);
    memcpy(&of_b, &b, sizeof b);
    const auto key_a = Traits::TwiddleIn(of_a), key_b = Traits::TwiddleIn(of_b);
    return key_a < key_b && Traits::TwiddleOut(key_a) == of_a && Traits::TwiddleOut(key_b) == of_b;
}
__global__ void traits(int* y) {
    y[0] = is_in_order(-3, 2) && is_in_order(-3, -2) && is_in_order<signed char>(-3, 5);
    y[1] = is_in_order(3u, 4000000000u) && is_in_order<unsigned char>(3, 200);
    y[2] = is_in_order(-3.f, 2.f) && is_in_order(-3.f, -2.f) && is_in_order(-1e300, 0.5);
    y[3] = is_in_order(__float2half(-2.f), __float2half(-1.f));
}
extern "C" cudaError_t run_traits(const int*, int* y, int) {
    traits<<<1, 1>>>(y);
    return cudaGetLastError();
}
