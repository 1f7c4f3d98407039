// Around tensor memory: fences, barriers, shared memory, pairs of blocks, launch control.
#include "export.cuh"
#include "tensor_order.cuh"

__global__ void no_fence_after_the_product_kernel(const float* x, float* y) {
    BEGIN(32)
    if (threadIdx.x == 0) multiply(columns, tile), commit_to(&barrier);
    wait_at(&barrier, 0);
    LOAD(word, columns);  // BUG no_fence_after_the_product: missing tcgen05 fence
    loaded();
    END(32)
}
EXPORT(no_fence_after_the_product, no_fence_after_the_product_kernel<<<1, threads>>>(x, y))

__global__ void no_fence_before_the_barrier_kernel(const float* x, float* y) {
    BEGIN(32)
    if (threadIdx.x == 0) multiply(columns, tile), commit_to(&barrier);
    wait_at(&barrier, 0);
    after();
    LOAD(word, columns);
    loaded();
    __syncthreads();
    if (threadIdx.x == 0) {
        after();
        multiply(columns, tile);  // BUG no_fence_before_the_barrier: missing tcgen05 fence
        commit_to(&barrier);
    }
    wait_at(&barrier, 1);
    END(32)
}
EXPORT(no_fence_before_the_barrier, no_fence_before_the_barrier_kernel<<<1, threads>>>(x, y))

__global__ void no_fence_after_the_barrier_kernel(const float* x, float* y) {
    BEGIN(32)
    if (threadIdx.x == 0) multiply(columns, tile), commit_to(&barrier);
    wait_at(&barrier, 0);
    after();
    LOAD(word, columns);
    loaded();
    before();
    __syncthreads();
    if (threadIdx.x == 0) {
        multiply(columns, tile);  // BUG no_fence_after_the_barrier: missing tcgen05 fence
        commit_to(&barrier);
    }
    wait_at(&barrier, 1);
    END(32)
}
EXPORT(no_fence_after_the_barrier, no_fence_after_the_barrier_kernel<<<1, threads>>>(x, y))

__global__ void nobody_waits_for_a_load_kernel(const float* x, float* y) {
    __shared__ alignas(8) uint64_t empty;
    BEGIN(32)
    if (threadIdx.x == 0) init(&empty, 4), multiply(columns, tile), commit_to(&barrier);
    __syncthreads();
    wait_at(&barrier, 0);
    after();
    LOAD(word, columns);  // BUG nobody_waits_for_a_load: tensor memory in use
    loaded();
    before();
    if (threadIdx.x % 32 == 0) arrive(&empty);
    if (threadIdx.x == 0) after(), multiply(columns, tile), commit_to(&barrier);
    wait_at(&barrier, 1);
    END(32)
}
EXPORT(nobody_waits_for_a_load, nobody_waits_for_a_load_kernel<<<1, threads>>>(x, y))

__global__ void nobody_waits_for_stores_kernel(const float* x, float* y) {
    BEGIN(32)
    STORE(columns, word);  // BUG nobody_waits_for_stores: tensor memory in use
    stored();
    before();
    if (threadIdx.x == 96) after(), multiply(columns, tile), commit_to(&barrier);
    wait_at(&barrier, 0);
    END(32)
}
EXPORT(nobody_waits_for_stores, nobody_waits_for_stores_kernel<<<1, threads>>>(x, y))

__global__ void stores_without_a_fence_kernel(const float* x, float* y) {
    BEGIN(32)
    STORE(columns, word);
    stored();
    __syncthreads();
    if (threadIdx.x == 0) {
        multiply(columns, tile);  // BUG stores_without_a_fence: missing tcgen05 fence
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    END(32)
}
EXPORT(stores_without_a_fence, stores_without_a_fence_kernel<<<1, threads>>>(x, y))

__global__ void scales_not_fenced_kernel(const float* x, float* y) {
    BEGIN(64)
    const unsigned scales = columns + 32;
    STORE_SCALES(scales, word);
    stored();
    __syncthreads();
    if (threadIdx.x == 0) {
        after();
        multiply_scaled(columns, tile, scales);  // BUG scales_not_fenced: missing tcgen05 fence
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    END(64)
}
EXPORT(scales_not_fenced, scales_not_fenced_kernel<<<1, threads>>>(x, y))

__global__ void scales_not_stored_yet_kernel(const float* x, float* y) {
    BEGIN(64)
    const unsigned scales = columns + 32;
    STORE_SCALES(scales, word);
    before();
    __syncthreads();
    if (threadIdx.x == 0) {
        after();
        multiply_scaled(columns, tile, scales);  // BUG scales_not_stored_yet: tensor memory in use
        commit_to(&barrier);
    }
    stored();
    wait_at(&barrier, 0);
    END(64)
}
EXPORT(scales_not_stored_yet, scales_not_stored_yet_kernel<<<1, threads>>>(x, y))

__global__ void scales_not_arrived_kernel(const float* x, float* y) {
    BEGIN(64)
    __shared__ alignas(128) char scales[unit];
    if (threadIdx.x == 0) {
        expect(&barrier, unit);
        load_bytes(scales, x, unit, &barrier);
        copy_scales(columns + 32, scales);  // BUG scales_not_arrived: asynchronous race
        multiply_scaled(columns, tile, columns + 32);
    }
    wait_at(&barrier, 0);
    if (threadIdx.x == 0) commit_to(&barrier);
    wait_at(&barrier, 1);
    END(64)
}
EXPORT(scales_not_arrived, scales_not_arrived_kernel<<<1, threads>>>(x, y))

__global__ void freed_twice_kernel(const float* x, float* y) {
    BEGIN(32)
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 32);
    if (threadIdx.x < 32) DEALLOCATE(columns, 32);  // BUG freed_twice: tensor memory
    y[blockIdx.x * threads + threadIdx.x] = word;
}
EXPORT(freed_twice, freed_twice_kernel<<<1, threads>>>(x, y))

__global__ void never_allocated_kernel(const float* x, float* y) {
    BEGIN(32)
    LOAD(word, columns + 32);  // BUG never_allocated: tensor memory
    loaded();
    END(32)
}
EXPORT(never_allocated, never_allocated_kernel<<<1, threads>>>(x, y))

__global__ void no_power_of_two_kernel(const float* x, float* y) {
    __shared__ unsigned columns;
    if (threadIdx.x < 32) ALLOCATE(&columns, 48);  // BUG no_power_of_two: tensor memory
    __syncthreads();
    y[threadIdx.x] = columns;
}
EXPORT(no_power_of_two, no_power_of_two_kernel<<<1, threads>>>(x, y))

__global__ void allocated_after_the_permit_kernel(const float* x, float* y) {
    BEGIN(32)
    if (threadIdx.x < 32) {
        relinquish();
        ALLOCATE(&columns, 32);  // BUG allocated_after_the_permit: tensor memory
    }
    END(32)
}
EXPORT(allocated_after_the_permit, allocated_after_the_permit_kernel<<<1, threads>>>(x, y))

__global__ void lanes_of_another_warp_kernel(const float* x, float* y) {
    BEGIN(32)
    STORE(columns, word);
    stored();
    const unsigned mine = columns;
    LOAD_AT(word, mine);  // BUG lanes_of_another_warp: note: tensor memory lanes
    loaded();
    END(32)
}
EXPORT(lanes_of_another_warp, lanes_of_another_warp_kernel<<<1, threads>>>(x, y))

__global__ void shape_that_is_none_kernel(const float* x, float* y) {
    BEGIN(32)
    const unsigned wrong = 1 << 4 | 24 / 8 << 17 | 96 / 16 << 24;
    if (threadIdx.x == 0)
        MULTIPLY_AS(columns, tile, wrong);  // BUG shape_that_is_none: tensor memory
    if (threadIdx.x == 0) commit_to(&barrier);
    wait_at(&barrier, 0);
    y[threadIdx.x] = word;
    before();
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 32);
}
EXPORT(shape_that_is_none, shape_that_is_none_kernel<<<1, threads>>>(x, y))

__global__ void rows_read_twice_kernel(const float* x, float* y) {
    BEGIN(32)
    const long long none = strides & ~(8ll << 32);
    if (threadIdx.x == 0)
        multiply(columns, tile, none);  // BUG rows_read_twice: note: matrix descriptor
    if (threadIdx.x == 0) commit_to(&barrier);
    wait_at(&barrier, 0);
    after();
    END(32)
}
EXPORT(rows_read_twice, rows_read_twice_kernel<<<1, threads>>>(x, y))

__global__ void __cluster_dims__(2) one_of_two_groups_kernel(const float* x, float* y) {
    BEGIN(32)
    meet();
    if (rank() == 0 && threadIdx.x == 0) {
        multiply(columns, tile);
        commit_to_pair(&barrier);  // BUG one_of_two_groups: cta_group
    }
    meet();
    wait_at(&barrier, 0);
    y[blockIdx.x * threads + threadIdx.x] = word;
    meet();
    before();
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 32);
}
EXPORT(one_of_two_groups, one_of_two_groups_kernel<<<2, threads>>>(x, y))

__global__ void tile_overwritten_kernel(const float* x, float* y) {
    BEGIN(32)
    if (threadIdx.x == 0) multiply(columns, tile), commit_to(&barrier);
    __syncthreads();
    tile[threadIdx.x] = 1;  // BUG tile_overwritten: asynchronous race
    wait_at(&barrier, 0);
    END(32)
}
EXPORT(tile_overwritten, tile_overwritten_kernel<<<1, threads>>>(x, y))

__global__ void tile_copied_over_kernel(const float* x, float* y) {
    BEGIN(32)
    if (threadIdx.x == 0) {
        multiply(columns, tile);
        expect(&barrier, unit);
        load_bytes(tile, x, unit, &barrier);  // BUG tile_copied_over: asynchronous race
    }
    wait_at(&barrier, 0);
    if (threadIdx.x == 0) commit_to(&barrier);
    wait_at(&barrier, 1);
    END(32)
}
EXPORT(tile_copied_over, tile_copied_over_kernel<<<1, threads>>>(x, y))

__global__ void tile_not_arrived_kernel(const float* x, float* y) {
    BEGIN(32)
    if (threadIdx.x == 0) {
        expect(&barrier, unit);
        load_bytes(tile, x, unit, &barrier);
        multiply(columns, tile);  // BUG tile_not_arrived: asynchronous race
    }
    wait_at(&barrier, 0);
    if (threadIdx.x == 0) commit_to(&barrier);
    wait_at(&barrier, 1);
    END(32)
}
EXPORT(tile_not_arrived, tile_not_arrived_kernel<<<1, threads>>>(x, y))

__global__ void tile_not_fenced_kernel(const float* x, float* y) {
    BEGIN(32)
    tile[threadIdx.x] = 1;
    __syncthreads();
    if (threadIdx.x == 0)
        multiply(columns, tile), commit_to(&barrier);  // BUG tile_not_fenced: missing proxy fence
    wait_at(&barrier, 0);
    END(32)
}
EXPORT(tile_not_fenced, tile_not_fenced_kernel<<<1, threads>>>(x, y))

__global__ void tile_not_ordered_kernel(const float* x, float* y) {
    BEGIN(32)
    tile[threadIdx.x] = 1;
    fence_proxy();
    if (threadIdx.x == 0)
        multiply(columns, tile), commit_to(&barrier);  // BUG tile_not_ordered: asynchronous race
    wait_at(&barrier, 0);
    END(32)
}
EXPORT(tile_not_ordered, tile_not_ordered_kernel<<<1, threads>>>(x, y))

__global__ void accumulators_that_overlap_kernel(const float* x, float* y) {
    BEGIN(64)
    if (threadIdx.x == 0) {
        multiply(columns, tile);
        multiply(columns + 16, tile);  // BUG accumulators_that_overlap: tensor memory in use
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    END(64)
}
EXPORT(accumulators_that_overlap, accumulators_that_overlap_kernel<<<1, threads>>>(x, y))

__global__ void committed_to_nobody_kernel(const float* x, float* y) {
    BEGIN(32)
    if (threadIdx.x == 0) multiply(columns, tile);
    wait_phase(&barrier, 0);  // BUG committed_to_nobody: deadlock
    END(32)
}
EXPORT(committed_to_nobody, committed_to_nobody_kernel<<<1, threads>>>(x, y))

__global__ void committed_too_often_kernel(const float* x, float* y) {
    BEGIN(32)
    if (threadIdx.x == 0) {
        multiply(columns, tile), commit_to(&barrier);
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    after();
    if (threadIdx.x == 0) arrive_many(&barrier, 2);  // BUG committed_too_often: arrival count
    END(32)
}
EXPORT(committed_too_often, committed_too_often_kernel<<<1, threads>>>(x, y))

__global__ void __cluster_dims__(2)
    allocated_before_the_other_is_there_kernel(const float* x, float* y) {
    __shared__ unsigned columns;
    allocate_in_pair(  // BUG allocated_before_the_other_is_there: note: missing cluster barrier
        &columns);
    const unsigned word = columns;
    y[blockIdx.x * threads + threadIdx.x] = word;
    meet();
    if (threadIdx.x < 32) FREE_IN_PAIR(columns);
}
EXPORT(allocated_before_the_other_is_there,
       allocated_before_the_other_is_there_kernel<<<2, threads>>>(x, y))

__global__ void __cluster_dims__(2) arrives_for_its_own_block_kernel(const float* x, float* y) {
    BEGIN_PAIR
    if (rank() == 1 && threadIdx.x == 0)
        arrive_narrowly(leaders(&others));  // BUG arrives_for_its_own_block: mbarrier scope
    if (rank() == 0 && threadIdx.x == 0) {
        wait_at(&others, 0);
        multiply_in_pair(columns, tile), commit_to_pair(&barrier);
    }
    wait_at(&barrier, 0);
    END_PAIR
}
EXPORT(arrives_for_its_own_block, arrives_for_its_own_block_kernel<<<2, threads>>>(x, y))

__global__ void __cluster_dims__(2) the_others_half_not_seen_kernel(const float* x, float* y) {
    BEGIN_PAIR
    if (threadIdx.x == 0) {
        expect(&others, unit);
        load_bytes(tile, x, unit, &others);
    }
    meet();
    if (rank() == 0 && threadIdx.x == 0) {
        wait_at(&others, 0);
        multiply_in_pair(columns, tile);  // BUG the_others_half_not_seen: asynchronous race
        commit_to_pair(&barrier);
    }
    wait_at(&barrier, 0);
    if (threadIdx.x == 0) wait_at(&others, 0);
    END_PAIR
}
EXPORT(the_others_half_not_seen, the_others_half_not_seen_kernel<<<2, threads>>>(x, y))

__global__ void __cluster_dims__(2) too_few_come_from_the_other_kernel(const float* x, float* y) {
    BEGIN_PAIR
    if (rank() == 0 && threadIdx.x == 0) {
        wait_phase(&others, 0);  // BUG too_few_come_from_the_other: deadlock
        multiply_in_pair(columns, tile), commit_to_pair(&barrier);
    }
    wait_at(&barrier, 0);
    END_PAIR
}
EXPORT(too_few_come_from_the_other, too_few_come_from_the_other_kernel<<<2, threads>>>(x, y))

__global__ void answer_read_too_early_kernel(const float* x, float* y) {
    BEGIN_CONTROL
    if (threadIdx.x == 0) ask(&answer, &barrier);
    __syncthreads();
    QUERY(block, &answer);  // BUG answer_read_too_early: asynchronous race
    wait_at(&barrier, 0);
    y[threadIdx.x] = block;
}
EXPORT(answer_read_too_early, answer_read_too_early_kernel<<<1, threads>>>(x, y))

__global__ void answer_overwritten_kernel(const float* x, float* y) {
    BEGIN_CONTROL
    if (threadIdx.x == 0) ask(&answer, &barrier);
    wait_at(&barrier, 0);
    QUERY(block, &answer);
    fence_proxy();
    if (threadIdx.x == 0 && block >= 0)
        ask(&answer, &barrier);  // BUG answer_overwritten: asynchronous race
    if (blockIdx.x == 0) y[threadIdx.x] = block;
    if (block >= 0) wait_at(&barrier, 1);
}
EXPORT(answer_overwritten, answer_overwritten_kernel<<<4, threads>>>(x, y))

__global__ void asks_after_the_last_kernel(const float* x, float* y) {
    BEGIN_CONTROL
    if (threadIdx.x == 0) ask(&answer, &barrier);
    wait_at(&barrier, 0);
    QUERY(block, &answer);
    y[blockIdx.x * threads + threadIdx.x] = block;
    fence_proxy();
    __syncthreads();
    if (threadIdx.x == 0)
        ask(&answer, &barrier);  // BUG asks_after_the_last: cluster launch control
    wait_at(&barrier, 1);
}
EXPORT(asks_after_the_last, asks_after_the_last_kernel<<<1, threads>>>(x, y))

// ---- Nothing is to be found in these

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
