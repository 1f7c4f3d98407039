// Pairs of blocks (cta_group::2) and clusters of pairs as they should be.
#include "export.cuh"
#include "tensor_pairs.cuh"

__global__ void __cluster_dims__(2) both_blocks_scales_awaited_kernel(const float* x, float* y) {
    BEGIN_PAIR
    __shared__ alignas(128) unsigned scales[128];
    __shared__ alignas(8) uint64_t arrived;
    if (threadIdx.x == 0) init(&arrived, 1), fence_init();
    meet();
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
    y[blockIdx.x * threads + threadIdx.x] = word;
    END_PAIR
}
EXPORT(both_blocks_scales_awaited, both_blocks_scales_awaited_kernel<<<2, threads>>>(x, y))

__global__ void __cluster_dims__(4)
    expects_of_its_pair_kernel(const __grid_constant__ CUtensorMap map, float* y) {
    BEGIN_PAIR
    __shared__ alignas(128) unsigned scales[128];
    __shared__ alignas(8) uint64_t arrived;
    if (threadIdx.x == 0) init(&arrived, 1), fence_init();
    meet();
    if (rank() == 0 && threadIdx.x == 0) expect(&arrived, 2 * unit);
    if (threadIdx.x == 0) load_line_in_pair(scales, &map, &arrived);
    if (rank() == 0 && threadIdx.x == 0) {
        wait_at(&arrived, 0);
        copy_scales_in_pair(columns + 16, scales);
        multiply_scaled_in_pair(columns, tile, columns + 16);
    }
    if (rank() == 0 && threadIdx.x == 0) commit_to_its_pair(&barrier);
    wait_at(&barrier, 0);
    if (blockIdx.x < 2) y[blockIdx.x * threads + threadIdx.x] = word;
    END_PAIR
}
EXPORT(expects_of_its_pair, expects_of_its_pair_kernel<<<4, threads>>>(map_of_lines(x), y))

__global__ void __cluster_dims__(2) a_pair_with_scales_of_threads_kernel(const float* x, float* y) {
    BEGIN_PAIR
    __shared__ alignas(128) unsigned scales[128];
    __shared__ alignas(8) uint64_t arrived;
    if (threadIdx.x == 0) init(&arrived, 1), fence_init();
    meet();
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
    y[blockIdx.x * threads + threadIdx.x] = word;
    END_PAIR
}
EXPORT(a_pair_with_scales_of_threads, a_pair_with_scales_of_threads_kernel<<<2, threads>>>(x, y))
