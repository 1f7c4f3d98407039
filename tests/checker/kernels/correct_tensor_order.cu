// Tensor memory, pairs of blocks and launch control as they should be used.
#include "export.cuh"
#include "tensor_order.cuh"

__global__ void fences_around_two_products_kernel(const float* x, float* y) {
    BEGIN(32)
    if (threadIdx.x == 0) multiply(columns, tile), commit_to(&barrier);
    wait_at(&barrier, 0);
    after();
    LOAD(word, columns);
    loaded();
    before();
    __syncthreads();
    if (threadIdx.x == 0) after(), multiply(columns, tile), commit_to(&barrier);
    wait_at(&barrier, 1);
    END(32)
}
EXPORT(fences_around_two_products, fences_around_two_products_kernel<<<1, threads>>>(x, y))

__global__ void stores_with_fences_kernel(const float* x, float* y) {
    BEGIN(32)
    STORE(columns, word);
    stored();
    before();
    __syncthreads();
    if (threadIdx.x == 0) after(), multiply(columns, tile), commit_to(&barrier);
    wait_at(&barrier, 0);
    END(32)
}
EXPORT(stores_with_fences, stores_with_fences_kernel<<<1, threads>>>(x, y))

// The last lane of each warp arrives for all of it, whose wait was for all lanes.
__global__ void one_lane_tells_for_its_warp_kernel(const float* x, float* y) {
    __shared__ alignas(8) uint64_t empty;
    BEGIN(32)
    if (threadIdx.x == 0) init(&empty, 4), fence_init();
    __syncthreads();
    if (threadIdx.x == 0) multiply(columns, tile), commit_to(&barrier);
    wait_at(&barrier, 0);
    after();
    LOAD(word, columns);
    loaded();
    before();
    if (threadIdx.x % 32 == 31) arrive(&empty);
    if (threadIdx.x == 0) {
        wait_at(&empty, 0);
        after(), multiply(columns, tile), commit_to(&barrier);
    }
    wait_at(&barrier, 1);
    END(32)
}
EXPORT(one_lane_tells_for_its_warp, one_lane_tells_for_its_warp_kernel<<<1, threads>>>(x, y))

__global__ void each_warp_its_own_lanes_kernel(const float* x, float* y) {
    BEGIN(32)
    STORE(columns, word);
    stored();
    LOAD(word, columns);
    loaded();
    END(32)
}
EXPORT(each_warp_its_own_lanes, each_warp_its_own_lanes_kernel<<<1, threads>>>(x, y))

__global__ void one_fence_for_two_loads_kernel(const float* x, float* y) {
    BEGIN(32)
    if (threadIdx.x == 0) multiply(columns, tile), commit_to(&barrier);
    wait_at(&barrier, 0);
    after();
    unsigned more;
    LOAD(word, columns);
    LOAD(more, columns + 1);
    loaded();
    word += more;
    END(32)
}
EXPORT(one_fence_for_two_loads, one_fence_for_two_loads_kernel<<<1, threads>>>(x, y))

__global__ void one_warp_alone_kernel(const float* x, float* y) {
    BEGIN(32)
    if (threadIdx.x < 32) {
        if (threadIdx.x == 0) multiply(columns, tile), commit_to(&barrier);
        __syncwarp();
        wait_at(&barrier, 0);
        LOAD(word, columns);
        loaded();
    }
    END(32)
}
EXPORT(one_warp_alone, one_warp_alone_kernel<<<1, threads>>>(x, y))

__global__ void scales_stored_kernel(const float* x, float* y) {
    BEGIN(64)
    STORE_SCALES(columns + 32, word);
    stored();
    before();
    __syncthreads();
    if (threadIdx.x == 0)
        after(), multiply_scaled(columns, tile, columns + 32), commit_to(&barrier);
    wait_at(&barrier, 0);
    END(64)
}
EXPORT(scales_stored, scales_stored_kernel<<<1, threads>>>(x, y))

__global__ void scales_arrived_kernel(const float* x, float* y) {
    BEGIN(64)
    __shared__ alignas(128) char scales[unit];
    if (threadIdx.x == 0) {
        expect(&barrier, unit);
        load_bytes(scales, x, unit, &barrier);
        wait_at(&barrier, 0);
        copy_scales(columns + 32, scales);
        multiply_scaled(columns, tile, columns + 32), commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    wait_at(&barrier, 1);
    END(64)
}
EXPORT(scales_arrived, scales_arrived_kernel<<<1, threads>>>(x, y))

__global__ void allocated_twice_kernel(const float* x, float* y) {
    BEGIN(32)
    __syncthreads();
    if (threadIdx.x < 32) {
        deallocate(columns, 32);
        allocate(&columns, 64);
        relinquish();
    }
    __syncthreads();
    END(64)
}
EXPORT(allocated_twice, allocated_twice_kernel<<<1, threads>>>(x, y))

__global__ void tile_written_again_kernel(const float* x, float* y) {
    BEGIN(32)
    if (threadIdx.x == 0) multiply(columns, tile), commit_to(&barrier);
    wait_at(&barrier, 0);
    tile[threadIdx.x] = 0;
    fence_proxy();
    __syncthreads();
    if (threadIdx.x == 0) multiply(columns, tile), commit_to(&barrier);
    wait_at(&barrier, 1);
    END(32)
}
EXPORT(tile_written_again, tile_written_again_kernel<<<1, threads>>>(x, y))

__global__ void tile_arrived_kernel(const float* x, float* y) {
    BEGIN(32)
    if (threadIdx.x == 0) {
        expect(&barrier, unit);
        load_bytes(tile, x, unit, &barrier);
        wait_at(&barrier, 0);
        multiply(columns, tile), commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    wait_at(&barrier, 1);
    END(32)
}
EXPORT(tile_arrived, tile_arrived_kernel<<<1, threads>>>(x, y))

__global__ void two_tiles_in_turns_kernel(const float* x, float* y) {
    BEGIN(32)
    __shared__ alignas(8) uint64_t full[2], empty[2];
    if (threadIdx.x < 2) init(&full[threadIdx.x], 1), init(&empty[threadIdx.x], 1), fence_init();
    __syncthreads();
    if (threadIdx.x == 0)
        for (int i = 0; i < 6; i++) {
            wait_at(&empty[i % 2], i / 2 % 2 ^ 1);
            expect(&full[i % 2], unit);
            load_bytes(tile + i % 2 * 1024, x, unit, &full[i % 2]);
        }
    if (threadIdx.x == 32) {
        for (int i = 0; i < 6; i++) {
            wait_at(&full[i % 2], i / 2 % 2);
            multiply(columns, tile + i % 2 * 1024, strides);
            commit_to(&empty[i % 2]);
        }
        commit_to(&barrier);
    }
    __syncwarp();
    wait_at(&barrier, 0);
    after();
    LOAD(word, columns);
    loaded();
    before();
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 32);
}
EXPORT(two_tiles_in_turns, two_tiles_in_turns_kernel<<<1, threads>>>(x, y))

__global__ void accumulators_side_by_side_kernel(const float* x, float* y) {
    BEGIN(64)
    if (threadIdx.x == 0) {
        multiply(columns, tile);
        multiply(columns + 32, tile);
        multiply(columns, tile);
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    END(64)
}
EXPORT(accumulators_side_by_side, accumulators_side_by_side_kernel<<<1, threads>>>(x, y))

__global__ void __cluster_dims__(2)
    a_pair_arrives_for_the_cluster_kernel(const float* x, float* y) {
    BEGIN_PAIR
    if (rank() == 1 && threadIdx.x == 0)
        asm volatile(
            "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(leaders(&others))
            : "memory");
    if (rank() == 0 && threadIdx.x == 0) {
        wait_at(&others, 0);
        multiply_in_pair(columns, tile), commit_to_pair(&barrier);
    }
    wait_at(&barrier, 0);
    y[blockIdx.x * threads + threadIdx.x] = word;
    END_PAIR
}
EXPORT(a_pair_arrives_for_the_cluster, a_pair_arrives_for_the_cluster_kernel<<<2, threads>>>(x, y))

__global__ void __cluster_dims__(2) a_pair_sees_both_halves_kernel(const float* x, float* y) {
    BEGIN_PAIR
    if (threadIdx.x == 0) {
        expect(&others, unit);
        load_bytes(tile, x, unit, &others);
        wait_at(&others, 0);
    }
    meet();
    if (rank() == 0 && threadIdx.x == 0) multiply_in_pair(columns, tile), commit_to_pair(&barrier);
    wait_at(&barrier, 0);
    after();
    LOAD(word, columns);
    loaded();
    y[blockIdx.x * threads + threadIdx.x] = word;
    END_PAIR
}
EXPORT(a_pair_sees_both_halves, a_pair_sees_both_halves_kernel<<<2, threads>>>(x, y))

__global__ void a_narrow_arrival_at_home_kernel(const float* x, float* y) {
    BEGIN(32)
    if (threadIdx.x == 0)
        asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0];" ::"r"(at(&barrier))
                     : "memory");
    wait_at(&barrier, 0);
    END(32)
}
EXPORT(a_narrow_arrival_at_home, a_narrow_arrival_at_home_kernel<<<1, threads>>>(x, y))

__global__ void answers_one_after_the_other_kernel(const float* x, float* y) {
    BEGIN_CONTROL
    for (int parity = 0; block >= 0; parity ^= 1) {
        if (threadIdx.x == 0) ask(&answer, &barrier);
        for (int i = threadIdx.x; i < 250; i += threads) y[block * 250 + i] = 1;
        wait_at(&barrier, parity);
        QUERY(block, &answer);
        fence_proxy();
        __syncthreads();
    }
}
EXPORT(answers_one_after_the_other, answers_one_after_the_other_kernel<<<4, threads>>>(x, y))

__global__ void zeros_are_stored_and_added_to_kernel(const float* x, float* y) {
    BEGIN(32)
    for (int column = 0; column < 32; column++) STORE(columns + column, 0);
    stored();
    before();
    __syncthreads();
    if (threadIdx.x == 0) {
        after();
        for (int k = 0; k < 4; k++) add(columns, tile);
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    after();
    LOAD(word, columns);
    loaded();
    END(32)
}
EXPORT(zeros_are_stored_and_added_to, zeros_are_stored_and_added_to_kernel<<<1, threads>>>(x, y))

__global__ void two_allocations_kernel(const float* x, float* y) {
    BEGIN(32)
    __shared__ unsigned second;
    if (threadIdx.x / 32 == 1) allocate(&second, 64);
    __syncthreads();
    if (threadIdx.x == 0) multiply(columns, tile), multiply(second, tile), commit_to(&barrier);
    wait_at(&barrier, 0);
    after();
    unsigned more;
    LOAD(word, columns);
    LOAD(more, second);
    loaded();
    word += more;
    before();
    __syncthreads();
    if (threadIdx.x / 32 == 1) deallocate(second, 64);
    END(32)
}
EXPORT(two_allocations, two_allocations_kernel<<<1, threads>>>(x, y))
