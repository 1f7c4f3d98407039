// The special registers: what a thread can learn of itself, its launch and the time.
#pragma once
#include "../cluster.h"
#include "../intrinsics.h"
#include "../warp.h"
#include "values.h"

namespace simulator::ptx {

#define SIMULATOR_AXES(name, x_, y_, z_)                   \
    SIMULATOR_INLINE u32 __ptx_##name##_x() { return x_; } \
    SIMULATOR_INLINE u32 __ptx_##name##_y() { return y_; } \
    SIMULATOR_INLINE u32 __ptx_##name##_z() { return z_; }
SIMULATOR_AXES(tid, threadIdx.x, threadIdx.y, threadIdx.z)
SIMULATOR_AXES(ntid, blockDim.x, blockDim.y, blockDim.z)
SIMULATOR_AXES(ctaid, blockIdx.x, blockIdx.y, blockIdx.z)
SIMULATOR_AXES(nctaid, gridDim.x, gridDim.y, gridDim.z)
SIMULATOR_AXES(clusterid, cluster_in_grid().x, cluster_in_grid().y, cluster_in_grid().z)
SIMULATOR_AXES(nclusterid, grid_of_clusters().x, grid_of_clusters().y, grid_of_clusters().z)
SIMULATOR_AXES(cluster_ctaid, block_in_cluster().x, block_in_cluster().y, block_in_cluster().z)
SIMULATOR_AXES(cluster_nctaid, cluster_extent().x, cluster_extent().y, cluster_extent().z)
#undef SIMULATOR_AXES
SIMULATOR_INLINE u32 __ptx_cluster_ctarank() { return current->cluster_rank; }
SIMULATOR_INLINE u32 __ptx_cluster_nctarank() { return cluster_size(); }
SIMULATOR_INLINE bool __ptx_is_explicit_cluster() { return current->cluster != nullptr; }

SIMULATOR_INLINE u32 __ptx_laneid() { return lane_id(); }
SIMULATOR_INLINE u32 __ptx_warpid() { return current->rank / warp_size; }
SIMULATOR_INLINE u32 __ptx_nwarpid() { return 64; }
SIMULATOR_INLINE u32 __ptx_nsmid() {
    int count = 1;
    cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0);
    return u32(count);
}
SIMULATOR_INLINE u32 __ptx_smid() {
    return (blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z)) % __ptx_nsmid();
}
SIMULATOR_INLINE u64 __ptx_gridid() { return 1; }

SIMULATOR_INLINE u32 __ptx_lanemask_eq() { return 1u << lane_id(); }
SIMULATOR_INLINE u32 __ptx_lanemask_lt() { return __ptx_lanemask_eq() - 1; }
SIMULATOR_INLINE u32 __ptx_lanemask_le() { return __ptx_lanemask_eq() | __ptx_lanemask_lt(); }
SIMULATOR_INLINE u32 __ptx_lanemask_gt() { return ~__ptx_lanemask_le(); }
SIMULATOR_INLINE u32 __ptx_lanemask_ge() { return ~__ptx_lanemask_lt(); }

SIMULATOR_INLINE u64 __ptx_clock64() { return u64(::clock64()); }
SIMULATOR_INLINE u32 __ptx_clock() { return u32(__ptx_clock64()); }
SIMULATOR_INLINE u32 __ptx_clock_hi() { return u32(__ptx_clock64() >> 32); }
SIMULATOR_INLINE u64 __ptx_globaltimer() {
    timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return u64(now.tv_sec) * 1000000000 + u64(now.tv_nsec);
}
SIMULATOR_INLINE u32 __ptx_globaltimer_lo() { return u32(__ptx_globaltimer()); }
SIMULATOR_INLINE u32 __ptx_globaltimer_hi() { return u32(__ptx_globaltimer() >> 32); }

// The static part is the compiler's to know: the dynamic one stands for the whole.
SIMULATOR_INLINE u32 __ptx_dynamic_smem_size() { return u32(current->launch->shared); }
SIMULATOR_INLINE u32 __ptx_total_smem_size() { return __ptx_dynamic_smem_size(); }
SIMULATOR_INLINE u32 __ptx_aggr_smem_size() { return __ptx_dynamic_smem_size() + 1024; }

}  // namespace simulator::ptx
