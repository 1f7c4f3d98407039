// Rows that are spread over thread block clusters: blocks that run at the same time and write to
// each other's shared memory. GPUs have them from Hopper on.
//
// A kernel here may be launched without clusters too: its rows then have one block each.
#pragma once

#include "rows.cuh"

constexpr int kClusterBlocks = 8;  // of a cluster, at most, on every GPU with clusters
constexpr int kMostBlocks = 16;    // on those that have more for a kernel that asks, as an H200

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// The mbarrier of PTX: a block waits at it for bytes from the blocks of its cluster. It completes
// a phase when the bytes that were expected have come, and is then there for the next ones. Waiting
// for these alone takes half the time of a barrier for all threads of the cluster, which first sees
// to it that everything each of them has ever written is known to all.
class Mbarrier {
  public:
    // One thread initialises it, before a barrier of the cluster.
    __device__ void init() {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(&state_)));
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }

    // One thread says how much will come in this phase.
    __device__ void arrive_expect_tx(int bytes) {
        asm volatile(
            "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(&state_)),
            "r"(bytes)
            : "memory");
    }

    // Writes a value to where block `rank` has `to`, and tells that block's mbarrier: 16 bytes at a
    // time if it has so many, for each time keeps that block's counter busy.
    template <class P>
    __device__ void st_async(P* to, const P& value, int rank) {
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

    // Returns when the phase is complete. parity: 0, 1, 0, 1 ... from phase to phase.
    __device__ void wait(int parity) {
        uint32_t complete = 0;
        while (!complete) {
            asm volatile(
                "{ .reg .pred p;"
                "  mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;"
                "  selp.u32 %0, 1, 0, p; }"
                : "=r"(complete)
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
__device__ inline void cluster_wait() { __cluster_barrier_wait(); }

// Which of all clusters is this block's, and which of its blocks is this? How many clusters are
// there? Without clusters each block is one. (For the first, nvcc divides in float: it is wrong
// beyond 2^24 blocks, for which there is no memory where rows are wide.)
__device__ inline unsigned cluster_index() { return __clusterIdx().x; }
__device__ inline unsigned cluster_rank() { return __clusterRelativeBlockRank(); }
__device__ inline unsigned clusters() { return __clusterGridDimInClusters().x; }

#else  // no cluster is launched where has_clusters says no

struct Mbarrier {
    __device__ void init() {}
    __device__ void arrive_expect_tx(int) {}
    template <class P>
    __device__ void st_async(P*, const P&, int) {}
    __device__ void wait(int) {}
};
__device__ inline void cluster_arrive() {}
__device__ inline void cluster_wait() {}
__device__ inline unsigned cluster_index() { return blockIdx.x; }
__device__ inline unsigned cluster_rank() { return 0; }
__device__ inline unsigned clusters() { return gridDim.x; }

#endif

// The same for rows of any width; blocks: of a cluster.
__device__ inline unsigned cluster_index(int blocks) {
    return blocks == 1 ? blockIdx.x : cluster_index();
}

// BlockReduce for rows that one block or a cluster has: `blocks` blocks. Those of a cluster consist
// of whole warps, kWarps at most, and have one row. Make one of these before the first read, for
// the blocks of a cluster begin to wait for each other there. kBlocks: of a cluster, at most.
constexpr int kReduceBytes = 13 * 1024;  // of shared memory that 1024 threads give to this, at most
template <int kWarps = 16, int kBlocks = kClusterBlocks>
class RowReduce : public BlockReduce<kWarps * kBlocks> {
    using InBlock = BlockReduce<kWarps * kBlocks>;

  public:
    __device__ explicit RowReduce(int blocks) : blocks_(blocks) {
        if (blocks_ == 1) return;
        if (threadIdx.x == 0) {
            barriers()[0].init();
            barriers()[1].init();
        }
        cluster_arrive();
    }

    template <class P>
    __device__ P operator()(const P& mine) {
        return receive(send(mine));
    }

    template <class P>
    __device__ P send(const P& mine) {
        if (blocks_ == 1) return InBlock::send(mine);
        const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
        const int warps = blockDim.x / kWarp, phase = this->calls_ % 2;
        const P part = mine.warp_reduce(kWarp);
        Mbarrier& here = barriers()[phase];
        if (this->calls_ == 0) cluster_wait();  // a block's shared memory is there once it runs
        if (threadIdx.x == 0) here.arrive_expect_tx(warps * blocks_ * sizeof(P));
        P* parts = InBlock::template parts_of<P>(phase);
        if (lane < blocks_) here.st_async(&parts[cluster_rank() * warps + warp], part, lane);
        return part;
    }

    template <class P>
    __device__ P receive(P part) {
        if (blocks_ == 1) return InBlock::receive(part);
        const int phase = this->calls_ % 2, parity = this->calls_ / 2 % 2;
        ++this->calls_;
        const int lane = threadIdx.x % kWarp, count = blockDim.x / kWarp * blocks_;
        const P* parts = InBlock::template parts_of<P>(phase);
        barriers()[phase].wait(parity);
        part = lane < count ? parts[lane] : P::identity();
        const int more = count - smaller(count, kWarp);
        parts += kWarp;
#pragma unroll  // 1, 2, 4 at a time: in a loop of unknown length a lane would wait for each alone
        for (int at_once = kWarp; at_once < kBlocks * kWarps; at_once *= 2) {
            if (!(more & at_once)) continue;
#pragma unroll
            for (int i = 0; i < at_once; i += kWarp) part.combine(parts[lane + i]);
            parts += at_once;
        }
        if (more % kWarp != 0) {
            if (lane < more % kWarp) part.combine(parts[lane]);
        }
        return part.warp_reduce(kWarp);
    }

  private:
    __device__ static Mbarrier* barriers() {
        __shared__ Mbarrier both[2];
        return both;
    }

    int blocks_;
};

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

// The clusters that the current device runs at the same time; 0 if it has no clusters of so many
// blocks. A kernel that has been asked about may then be launched in them.
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
