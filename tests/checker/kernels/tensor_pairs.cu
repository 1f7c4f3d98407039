// Pairs of blocks (cta_group::2) and clusters of pairs.
#include "export.cuh"
#include "tensor_pairs.cuh"

// Each block loads scales of its own; the first block waits for its own alone, and copies both.
__global__ void __cluster_dims__(2) the_others_scales_not_awaited_kernel(const float* x, float* y) {
    BEGIN_PAIR_WITH_SCALES
    if (threadIdx.x == 0) {
        expect(&arrived, unit);
        load_bytes(scales, x, unit, &arrived);
    }
    meet();
    if (rank() == 0 && threadIdx.x == 0) {
        wait_at(&arrived, 0);
        const unsigned of = columns + 16;
        copy_scales_in_pair(of, scales);  // BUG the_others_scales_not_awaited: asynchronous race
        multiply_scaled_in_pair(columns, tile, of);
    }
    if (rank() == 1 && threadIdx.x == 0) wait_at(&arrived, 0);
    if (rank() == 0 && threadIdx.x == 0) commit_to_pair(&barrier);
    wait_at(&barrier, 0);
    END_PAIR
}
EXPORT(the_others_scales_not_awaited, the_others_scales_not_awaited_kernel<<<2, threads>>>(x, y))

__global__ void __cluster_dims__(2) its_block_alone_sees_scales_kernel(const float* x, float* y) {
    BEGIN_PAIR_WITH_SCALES
    scales[threadIdx.x] = 0;
    fence_proxy();
    __syncthreads();
    if (rank() == 1 && threadIdx.x == 0)
        arrive_narrowly(leaders(&others));  // BUG its_block_alone_sees_scales: mbarrier scope
    if (rank() == 0 && threadIdx.x == 0) {
        wait_at(&others, 0);
        copy_scales_in_pair(columns + 16, scales);
        multiply_scaled_in_pair(columns, tile, columns + 16);
    }
    if (rank() == 0 && threadIdx.x == 0) commit_to_pair(&barrier);
    wait_at(&barrier, 0);
    END_PAIR
}
EXPORT(its_block_alone_sees_scales, its_block_alone_sees_scales_kernel<<<2, threads>>>(x, y))

// A barrier is told by the two blocks of its pair, however many the cluster has.
__global__ void __cluster_dims__(4)
    expects_of_the_whole_cluster_kernel(const __grid_constant__ CUtensorMap map, float* y) {
    BEGIN_PAIR_WITH_SCALES
    if (rank() == 0 && threadIdx.x == 0)
        expect(&arrived, 4 * unit);  // BUG expects_of_the_whole_cluster: expect_tx
    if (threadIdx.x == 0) load_line_in_pair(scales, &map, &arrived);
    if (rank() == 0 && threadIdx.x == 0) {
        wait_phase(&arrived, 0);
        copy_scales_in_pair(columns + 16, scales);
        multiply_scaled_in_pair(columns, tile, columns + 16);
    }
    if (rank() == 0 && threadIdx.x == 0) commit_to_its_pair(&barrier);
    wait_at(&barrier, 0);
    END_PAIR
}
EXPORT(expects_of_the_whole_cluster,
       expects_of_the_whole_cluster_kernel<<<4, threads>>>(map_of_lines(x), y))

__global__ void __cluster_dims__(2) both_blocks_commit_kernel(const float* x, float* y) {
    BEGIN_PAIR_WITH_SCALES
    if (threadIdx.x == 0) {
        if (rank() == 0) multiply_in_pair(columns, tile);
        commit_to_pair(&others);
        commit_to_pair(&others);
    }
    wait_at(&others, 0);
    if (threadIdx.x == 0) arrive_many(&others, 2);  // BUG both_blocks_commit: arrival count
    if (rank() == 0 && threadIdx.x == 0) commit_to_pair(&barrier);
    wait_at(&barrier, 0);
    END_PAIR
}
EXPORT(both_blocks_commit, both_blocks_commit_kernel<<<2, threads>>>(x, y))

// ---- Nothing is to be found in these

__global__ void __cluster_dims__(2) both_blocks_scales_awaited_kernel(const float* x, float* y) {
    BEGIN_PAIR_WITH_SCALES
    if (threadIdx.x == 0) {
        expect(&arrived, unit);
        load_bytes(scales, x, unit, &arrived);
        wait_at(&arrived, 0);
        if (rank() == 1) arrive_for_the_cluster(leaders(&others));
    }
    if (rank() == 0 && threadIdx.x == 0) {
        wait_at(&others, 0);
        copy_scales_in_pair(columns + 16, scales);
        multiply_scaled_in_pair(columns, tile, columns + 16);
    }
    if (rank() == 0 && threadIdx.x == 0) commit_to_pair(&barrier);
    wait_at(&barrier, 0);
    END_PAIR
}
EXPORT(both_blocks_scales_awaited, both_blocks_scales_awaited_kernel<<<2, threads>>>(x, y))

__global__ void __cluster_dims__(4)
    expects_of_its_pair_kernel(const __grid_constant__ CUtensorMap map, float* y) {
    BEGIN_PAIR_WITH_SCALES
    if (rank() == 0 && threadIdx.x == 0) expect(&arrived, 2 * unit);
    if (threadIdx.x == 0) load_line_in_pair(scales, &map, &arrived);
    if (rank() == 0 && threadIdx.x == 0) {
        wait_at(&arrived, 0);
        copy_scales_in_pair(columns + 16, scales);
        multiply_scaled_in_pair(columns, tile, columns + 16);
    }
    if (rank() == 0 && threadIdx.x == 0) commit_to_its_pair(&barrier);
    wait_at(&barrier, 0);
    END_PAIR
}
EXPORT(expects_of_its_pair, expects_of_its_pair_kernel<<<4, threads>>>(map_of_lines(x), y))

__global__ void __cluster_dims__(2) a_pair_with_scales_of_threads_kernel(const float* x, float* y) {
    BEGIN_PAIR_WITH_SCALES
    scales[threadIdx.x] = 0;
    fence_proxy();
    __syncthreads();
    if (rank() == 1 && threadIdx.x == 0) arrive_for_the_cluster(leaders(&others));
    if (rank() == 0 && threadIdx.x == 0) {
        wait_at(&others, 0);
        copy_scales_in_pair(columns + 16, scales);
        multiply_scaled_in_pair(columns, tile, columns + 16);
    }
    if (rank() == 0 && threadIdx.x == 0) commit_to_pair(&barrier);
    wait_at(&barrier, 0);
    END_PAIR
}
EXPORT(a_pair_with_scales_of_threads, a_pair_with_scales_of_threads_kernel<<<2, threads>>>(x, y))
