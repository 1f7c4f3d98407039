// Rows spread over thread block clusters: blocks that run at the same time and write to each
// other's shared memory, from Hopper on.
//
// A kernel here may be launched without clusters, too: then each row has one block.
#pragma once

#include "mbarrier.cuh"
#include "rows.cuh"

constexpr int kClusterBlocks = 8;  // of a cluster, at most, on every GPU with clusters
constexpr int kMostBlocks = 16;    // on those that have more for a kernel that asks, as an H200

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// The index of this block's cluster, the rank of the block in it, and the number of clusters.
// Without clusters each block counts as one. (For the first, nvcc divides in float, which is wrong
// beyond 2^24 blocks; memory does not hold so many wide rows.)
__device__ inline unsigned cluster_index() { return __clusterIdx().x; }
__device__ inline unsigned cluster_rank() { return __clusterRelativeBlockRank(); }
__device__ inline unsigned clusters() { return __clusterGridDimInClusters().x; }

#else  // no cluster is launched where has_clusters says no

__device__ inline unsigned cluster_index() { return blockIdx.x; }
__device__ inline unsigned cluster_rank() { return 0; }
__device__ inline unsigned clusters() { return gridDim.x; }

#endif

// The same for rows of any width; blocks: of a cluster.
__device__ inline unsigned cluster_index(int blocks) {
    return blocks == 1 ? blockIdx.x : cluster_index();
}

// BlockReduce for rows of one block or of a cluster of `blocks` blocks. Blocks of a cluster consist
// of whole warps, at most kWarps, and have one row. Construct it before the first read: there the
// blocks of a cluster begin to wait for each other. kBlocks: the most blocks of a cluster.
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
        barriers()[phase].wait_for_cluster(parity);
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

// Whether this kernel may be launched in clusters, on the current device and as it was compiled.
template <class Kernel>
bool has_clusters(Kernel* kernel) {
    return remembered(kernel, 0, [&]() -> int {
        int device = 0, can = 0;
        cudaFuncAttributes compiled = {};
        return cudaGetDevice(&device) == cudaSuccess &&
               cudaDeviceGetAttribute(&can, cudaDevAttrClusterLaunch, device) == cudaSuccess &&
               can && cudaFuncGetAttributes(&compiled, kernel) == cudaSuccess &&
               compiled.ptxVersion >= 90;
    });
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

// The number of resident clusters of the current device; 0 if it has no clusters of so many blocks.
// A kernel for which this was called may then be launched in them.
template <class... Parameters>
int clusters_at_once(void (*kernel)(Parameters...), int blocks, dim3 block, int bytes) {
    const int64_t key = (int64_t(bytes) << 32) + (int64_t(block.x * block.y) << 8) + blocks;
    return remembered(kernel, key, [&] {
        if (blocks > kClusterBlocks) {
            cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
        }
        const ClusterConfig config(blocks, blocks, block, bytes, nullptr);
        int clusters = 0;
        if (cudaOccupancyMaxActiveClusters(&clusters, kernel, &config) == cudaSuccess)
            return clusters;
        cudaGetLastError();  // not of the launch to come
        return 0;
    });
}
