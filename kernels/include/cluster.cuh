// Rows that are spread over thread block clusters: blocks that run at the same time and write to
// each other's shared memory. GPUs have them from Hopper on.
//
// A kernel here may be launched without clusters too: its rows then have one block each.
#pragma once

#include "reduce.cuh"

constexpr int kClusterBlocks = 8;  // of a cluster, at most, on every GPU with clusters
constexpr int kMostBlocks = 16;    // on those that have more for a kernel that asks, as an H200

// The simulator has none: a kernel that needs them is not compiled for it.
constexpr bool kMayHaveClusters = PLAYGROUND_CUDA;

#if PLAYGROUND_CUDA && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900)

// Where a block waits for bytes from the blocks of its cluster (PTX calls it an mbarrier). It opens
// when the bytes that were expected have come, and is then there for the next ones. Waiting for
// these alone takes half the time of a barrier for all threads of the cluster, which first sees to
// it that everything each of them has ever written is known to all.
class Arrivals {
  public:
    // One thread makes it ready, before a barrier of the cluster.
    __device__ void init() {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(&state_)));
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }

    // One thread says how much will come this time.
    __device__ void expect(int bytes) {
        asm volatile(
            "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(&state_)),
            "r"(bytes)
            : "memory");
    }

    // Writes a value to where block `rank` has `to`, and tells that block's Arrivals: 16 bytes at a
    // time if it has so many, for each time keeps that block's counter busy.
    template <class P>
    __device__ void send(P* to, const P& value, int rank) {
        constexpr int count = sizeof(P) / 4, at_once = count % 4 == 0 ? 4 : count % 2 == 0 ? 2 : 1;
        uint32_t words[count], remote_to, remote_state;
        memcpy(words, &value, sizeof(P));
        asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote_to) : "r"(address(to)), "r"(rank));
        asm("mapa.shared::cluster.u32 %0, %1, %2;"
            : "=r"(remote_state)
            : "r"(address(&state_)), "r"(rank));
        for (int i = 0; i < count; i += at_once) {
            const uint32_t place = remote_to + 4 * i;
            if constexpr (at_once == 4) {
                asm volatile(
                    "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32"
                    " [%0], {%1, %2, %3, %4}, [%5];" ::"r"(place),
                    "r"(words[i]), "r"(words[i + 1]), "r"(words[i + 2]), "r"(words[i + 3]),
                    "r"(remote_state)
                    : "memory");
            } else if constexpr (at_once == 2) {
                asm volatile(
                    "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.b32"
                    " [%0], {%1, %2}, [%3];" ::"r"(place),
                    "r"(words[i]), "r"(words[i + 1]), "r"(remote_state)
                    : "memory");
            } else {
                asm volatile(
                    "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32"
                    " [%0], %1, [%2];" ::"r"(place),
                    "r"(words[i]), "r"(remote_state)
                    : "memory");
            }
        }
    }

    // Returns when all has come. parity: 0, 1, 0, 1 ... from time to time.
    __device__ void await(int parity) {
        uint32_t open = 0;
        while (!open) {
            asm volatile(
                "{ .reg .pred p;"
                "  mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;"
                "  selp.u32 %0, 1, 0, p; }"
                : "=r"(open)
                : "r"(address(&state_)), "r"(parity)
                : "memory");
        }
    }

  private:
    __device__ static uint32_t address(const void* p) {
        return uint32_t(__cvta_generic_to_shared(p));
    }
    uint64_t state_;
};

// A barrier for all threads of the cluster, in two halves.
__device__ inline void cluster_arrive() { __cluster_barrier_arrive_relaxed(); }
__device__ inline void cluster_await() { __cluster_barrier_wait(); }

// Which of all clusters is this block's, and which of its blocks is this? How many clusters are
// there? Without clusters each block is one. (For the first, nvcc divides in float: it is wrong
// beyond 2^24 blocks, for which there is no memory where rows are wide.)
__device__ inline unsigned cluster_index() { return __clusterIdx().x; }
__device__ inline unsigned cluster_rank() { return __clusterRelativeBlockRank(); }
__device__ inline unsigned clusters() { return __clusterGridDimInClusters().x; }

#else  // no cluster is launched where has_clusters says no

struct Arrivals {
    __device__ void init() {}
    __device__ void expect(int) {}
    template <class P>
    __device__ void send(P*, const P&, int) {}
    __device__ void await(int) {}
};
__device__ inline void cluster_arrive() {}
__device__ inline void cluster_await() {}
__device__ inline unsigned cluster_index() { return blockIdx.x; }
__device__ inline unsigned cluster_rank() { return 0; }
__device__ inline unsigned clusters() { return gridDim.x; }

#endif

// The same for rows of any width; blocks: of a cluster.
__device__ inline unsigned cluster_index(int blocks) {
    return blocks == 1 ? blockIdx.x : cluster_index();
}

// Tells nvcc, where a kernel is for clusters alone, that it need not provide for one block.
__device__ inline void assume_cluster([[maybe_unused]] int blocks) {
#if PLAYGROUND_CUDA
    __builtin_assume(blocks > 1);
#endif
}

// Merges what the threads of a row have. These are whole warps in each of `blocks` blocks or, of
// one block, a power of two of lanes; a block that is not of a cluster may have several rows, and
// is (threads of a row, rows). Make one of these before the first read, for the blocks of a cluster
// begin to wait for each other there, and let every thread call it, as often as there are rows.
//
// kWarps, kBlocks: a row has so many, at most; warps in each of its blocks.
//
// P is plain data with `void take(P)`, which merges another one into it, `static P of_nothing()`,
// and `P across(int lanes) const`, which merges each group of so many lanes of the warp, in every
// lane.
constexpr int kMergeBytes = 13 * 1024;  // of shared memory that 1024 threads give to this, at most
template <int kWarps = 16, int kBlocks = kClusterBlocks>
class RowMerge {
  public:
    __device__ explicit RowMerge(int blocks) : blocks_(blocks) {
        if (blocks_ == 1) return;
        if (threadIdx.x == 0) {
            arrivals()[0].init();
            arrivals()[1].init();
        }
        cluster_arrive();
    }

    template <class P>
    __device__ P operator()(const P& mine) {
        return receive(send(mine));
    }

    // The same in two halves, with time for other work between them, but not for another merge:
    // what `send` returns goes to `receive`.
    template <class P>
    __device__ P send(const P& mine) {
        const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
        const int warps = blockDim.x / kWarp;
        const P part = mine.across(smaller<int>(blockDim.x, kWarp));
        P* parts = parts_of<P>(calls_ % 2);
        if (blocks_ == 1) {
            if (warps > 1 && lane == 0) parts[threadIdx.y * warps + warp] = part;
            return part;
        }
        Arrivals& here = arrivals()[calls_ % 2];
        if (calls_ == 0) cluster_await();  // a block's shared memory is there once it runs
        if (threadIdx.x == 0) here.expect(warps * blocks_ * sizeof(P));
        if (lane < blocks_) here.send(&parts[cluster_rank() * warps + warp], part, lane);
        return part;
    }

    template <class P>
    __device__ P receive(P part) {
        const int turn = calls_ % 2, parity = calls_ / 2 % 2;
        ++calls_;
        const int lane = threadIdx.x % kWarp, warps = blockDim.x / kWarp;
        const P* parts = parts_of<P>(turn);
        if (blocks_ == 1) {
            if (warps <= 1) return part;
            __syncthreads();
            const int lanes = 1 << (32 - __clz(warps - 1));  // a power of two, no less than warps
            const int mine = lane & (lanes - 1);
            part = mine < warps ? parts[threadIdx.y * warps + mine] : P::of_nothing();
            return part.across(lanes);
        }
        arrivals()[turn].await(parity);
        const int count = warps * blocks_;
        part = lane < count ? parts[lane] : P::of_nothing();
        const int more = count - smaller(count, kWarp);
        parts += kWarp;
#pragma unroll  // 1, 2, 4 at a time: in a loop of unknown length a lane would wait for each alone
        for (int at_once = kWarp; at_once < kBlocks * kWarps; at_once *= 2) {
            if (!(more & at_once)) continue;
#pragma unroll
            for (int i = 0; i < at_once; i += kWarp) part.take(parts[lane + i]);
            parts += at_once;
        }
        if (more % kWarp != 0) {
            if (lane < more % kWarp) part.take(parts[lane]);
        }
        return part.across(kWarp);
    }

  private:
    // What each warp of the row has sent, in all of its blocks. A warp that is a call ahead writes
    // where nobody reads, and one barrier is enough.
    template <class P>
    __device__ static P* parts_of(int turn) {
        alignas(16) __shared__ P all[2][kBlocks * kWarps];
        return all[turn];
    }

    __device__ static Arrivals* arrivals() {
        __shared__ Arrivals both[2];
        return both;
    }

    int blocks_;
    unsigned calls_ = 0;
};

// A sum, for RowMerge.
template <class A>
struct Total {
    A value;
    __device__ static Total of_nothing() { return {0}; }
    __device__ void take(Total other) { value += other.value; }
    __device__ Total across(int lanes) const { return {warp_sum(value, lanes)}; }
};

// Sums of K things, for RowMerge.
template <int K, class A>
struct Totals {
    A values[K];
    __device__ static Totals of_nothing() { return {}; }
    __device__ A operator[](int k) const { return values[k]; }
    __device__ void take(const Totals& other) {
        for (int k = 0; k < K; ++k) values[k] += other.values[k];
    }
    // K and lanes are powers of two, lanes no less than K. Each lane gives half of its values away
    // and goes on with the other half, until it has one to sum. With 4 values and 32 lanes that
    // takes 11 shuffles, one value after the other 20.
    __device__ Totals across(int lanes) const {
        Totals all = *this;
        int bit = lanes;
#pragma unroll
        for (int half = K / 2; half > 0; half /= 2) {
            bit /= 2;
            const bool upper = threadIdx.x & bit;
#pragma unroll
            for (int k = 0; k < half; ++k) {
                A &low = all.values[k], &high = all.values[k + half];
                const A given = upper ? low : high;
                low = (upper ? high : low) + __shfl_xor_sync(0xffffffff, given, bit);
            }
        }
        all.values[0] = warp_sum(all.values[0], bit);
#pragma unroll
        for (int half = 1; half < K; half *= 2) {  // and back
            const bool upper = threadIdx.x & bit;
#pragma unroll
            for (int k = 0; k < half; ++k) {
                A &low = all.values[k], &high = all.values[k + half];
                const A other = __shfl_xor_sync(0xffffffff, low, bit);
                high = upper ? low : other;
                low = upper ? other : low;
            }
            bit *= 2;
        }
        return all;
    }
};

#if PLAYGROUND_CUDA

// May this kernel be launched in clusters, on the current device and as it was compiled?
template <class Kernel>
bool has_clusters(Kernel* kernel) {
    int device = 0, can = 0;
    cudaFuncAttributes compiled = {};
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&can, cudaDevAttrClusterLaunch, device) == cudaSuccess && can &&
           cudaFuncGetAttributes(&compiled, kernel) == cudaSuccess && compiled.ptxVersion >= 90;
}

// A launch of grid blocks in clusters of `blocks`, which divides grid. It points at its attributes.
struct ClusterConfig : cudaLaunchConfig_t {
    cudaLaunchAttribute attributes[2] = {};
    ClusterConfig(int blocks, unsigned grid, dim3 block, int bytes, cudaStream_t on)
        : cudaLaunchConfig_t{} {
        gridDim = dim3(grid);
        blockDim = block;
        dynamicSmemBytes = bytes;
        stream = on;
        attrs = attributes;
        if (blocks == 1) return;
        auto& cluster = add(cudaLaunchAttributeClusterDimension).clusterDim;
        cluster.x = blocks;
        cluster.y = cluster.z = 1;
    }
    ClusterConfig(const ClusterConfig&) = delete;

    cudaLaunchAttributeValue& add(cudaLaunchAttributeID id) {
        attributes[numAttrs].id = id;
        return attributes[numAttrs++].val;
    }
};

// kernel<<<grid, block, bytes, stream>>>(arguments...) in such clusters.
template <class... Parameters, class... Arguments>
void launch_clusters(void (*kernel)(Parameters...), int blocks, unsigned grid, dim3 block,
                     int bytes, cudaStream_t stream, Arguments... arguments) {
    const ClusterConfig config(blocks, grid, block, bytes, stream);
    cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...);
}

// As many as the current device runs at the same time; 0 if it has no clusters of so many blocks.
// A kernel that has been asked about may then be launched in them.
template <class... Parameters>
int clusters_at_once(void (*kernel)(Parameters...), int blocks, dim3 block, int bytes) {
    if (blocks > kClusterBlocks) {
        cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    }
    const ClusterConfig config(blocks, blocks, block, bytes, nullptr);
    int clusters = 0;
    if (cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) == cudaSuccess) return clusters;
    cudaGetLastError();  // not of the launch to come
    return 0;
}

#else

template <class Kernel>
bool has_clusters(Kernel*) {
    return false;
}
template <class... Parameters, class... Arguments>
void launch_clusters(void (*)(Parameters...), int, unsigned, dim3, int, cudaStream_t,
                     Arguments...) {}

template <class... Parameters>
int clusters_at_once(void (*)(Parameters...), int, dim3, int) {
    return 0;
}

#endif

// A launch of rows with `blocks` blocks each; blocks is 0 if there is none.
struct RowLaunch {
    dim3 grid, block;
    int blocks = 0;
    int bytes = 0;  // of shared memory

    // Blocks that have a row to themselves, or clusters.
    int64_t slices() const { return grid.x / blocks; }

    template <class... P, class... A>
    void start(void (*kernel)(P...), cudaStream_t stream, A... arguments) const {
        if (blocks > 1) {
            launch_clusters(kernel, blocks, grid.x, block, bytes, stream, arguments...);
        } else {
            kernel<<<grid, block, bytes, stream>>>(arguments...);
        }
    }
};

// May a block of this kernel have so much shared memory, beside what merging takes?
template <class... P>
bool allow(void (*kernel)(P...), int bytes) {
    if (bytes + kMergeBytes > shared_bytes()) return false;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    return true;
}
