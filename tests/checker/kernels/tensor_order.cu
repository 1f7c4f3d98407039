// Mistakes around tensor memory: fences, barriers, shared memory, pairs of blocks, launch control.
#include "tensor_order.cuh"

__global__ void no_fence_after_the_product_kernel(const float* x, float* y) {
    BEGIN(32)
    if (threadIdx.x == 0) multiply(columns, tile), commit_to(&barrier);
    wait_at(&barrier, 0);
    LOAD(word, columns);  // BUG no_fence_after_the_product: missing tcgen05 fence
    loaded();
    y[blockIdx.x * threads + threadIdx.x] = word;
    before();
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 32);
}
extern "C" void no_fence_after_the_product(const float* x, float* y, int) {
    no_fence_after_the_product_kernel<<<1, threads>>>(x, y);
}

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
    y[blockIdx.x * threads + threadIdx.x] = word;
    before();
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 32);
}
extern "C" void no_fence_before_the_barrier(const float* x, float* y, int) {
    no_fence_before_the_barrier_kernel<<<1, threads>>>(x, y);
}

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
    y[blockIdx.x * threads + threadIdx.x] = word;
    before();
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 32);
}
extern "C" void no_fence_after_the_barrier(const float* x, float* y, int) {
    no_fence_after_the_barrier_kernel<<<1, threads>>>(x, y);
}

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
    y[blockIdx.x * threads + threadIdx.x] = word;
    before();
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 32);
}
extern "C" void stores_without_a_fence(const float* x, float* y, int) {
    stores_without_a_fence_kernel<<<1, threads>>>(x, y);
}

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
    y[blockIdx.x * threads + threadIdx.x] = word;
    before();
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 64);
}
extern "C" void scales_not_fenced(const float* x, float* y, int) {
    scales_not_fenced_kernel<<<1, threads>>>(x, y);
}

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
    y[blockIdx.x * threads + threadIdx.x] = word;
    before();
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 64);
}
extern "C" void scales_not_stored_yet(const float* x, float* y, int) {
    scales_not_stored_yet_kernel<<<1, threads>>>(x, y);
}

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
    y[blockIdx.x * threads + threadIdx.x] = word;
    before();
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 64);
}
extern "C" void scales_not_arrived(const float* x, float* y, int) {
    scales_not_arrived_kernel<<<1, threads>>>(x, y);
}

__global__ void freed_twice_kernel(const float* x, float* y) {
    BEGIN(32)
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 32);
    if (threadIdx.x < 32) DEALLOCATE(columns, 32);  // BUG freed_twice: tensor memory
    y[blockIdx.x * threads + threadIdx.x] = word;
}
extern "C" void freed_twice(const float* x, float* y, int) {
    freed_twice_kernel<<<1, threads>>>(x, y);
}

__global__ void never_allocated_kernel(const float* x, float* y) {
    BEGIN(32)
    LOAD(word, columns + 32);  // BUG never_allocated: tensor memory
    loaded();
    y[blockIdx.x * threads + threadIdx.x] = word;
    before();
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 32);
}
extern "C" void never_allocated(const float* x, float* y, int) {
    never_allocated_kernel<<<1, threads>>>(x, y);
}

__global__ void no_power_of_two_kernel(const float* x, float* y) {
    __shared__ unsigned columns;
    if (threadIdx.x < 32) ALLOCATE(&columns, 48);  // BUG no_power_of_two: tensor memory
    __syncthreads();
    y[threadIdx.x] = columns;
}
extern "C" void no_power_of_two(const float* x, float* y, int) {
    no_power_of_two_kernel<<<1, threads>>>(x, y);
}

__global__ void allocated_after_the_permit_kernel(const float* x, float* y) {
    BEGIN(32)
    if (threadIdx.x < 32) {
        relinquish();
        ALLOCATE(&columns, 32);  // BUG allocated_after_the_permit: tensor memory
    }
    y[blockIdx.x * threads + threadIdx.x] = word;
    before();
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 32);
}
extern "C" void allocated_after_the_permit(const float* x, float* y, int) {
    allocated_after_the_permit_kernel<<<1, threads>>>(x, y);
}

__global__ void lanes_of_another_warp_kernel(const float* x, float* y) {
    BEGIN(32)
    unsigned mine = columns;
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, [%1];"
                 : "=r"(word)
                 : "r"(mine));  // BUG lanes_of_another_warp: tensor memory
    loaded();
    y[blockIdx.x * threads + threadIdx.x] = word;
    before();
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 32);
}
extern "C" void lanes_of_another_warp(const float* x, float* y, int) {
    lanes_of_another_warp_kernel<<<1, threads>>>(x, y);
}

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
extern "C" void shape_that_is_none(const float* x, float* y, int) {
    shape_that_is_none_kernel<<<1, threads>>>(x, y);
}

__global__ void rows_read_twice_kernel(const float* x, float* y) {
    BEGIN(32)
    const long long none = strides & ~(8ll << 32);
    if (threadIdx.x == 0)
        multiply(columns, tile, none);  // BUG rows_read_twice: note: matrix descriptor
    if (threadIdx.x == 0) commit_to(&barrier);
    wait_at(&barrier, 0);
    after();
    y[blockIdx.x * threads + threadIdx.x] = word;
    before();
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 32);
}
extern "C" void rows_read_twice(const float* x, float* y, int) {
    rows_read_twice_kernel<<<1, threads>>>(x, y);
}

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
extern "C" void one_of_two_groups(const float* x, float* y, int) {
    one_of_two_groups_kernel<<<2, threads>>>(x, y);
}

__global__ void tile_overwritten_kernel(const float* x, float* y) {
    BEGIN(32)
    if (threadIdx.x == 0) multiply(columns, tile), commit_to(&barrier);
    __syncthreads();
    tile[threadIdx.x] = 1;  // BUG tile_overwritten: asynchronous race
    wait_at(&barrier, 0);
    y[blockIdx.x * threads + threadIdx.x] = word;
    before();
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 32);
}
extern "C" void tile_overwritten(const float* x, float* y, int) {
    tile_overwritten_kernel<<<1, threads>>>(x, y);
}

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
    y[blockIdx.x * threads + threadIdx.x] = word;
    before();
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 32);
}
extern "C" void tile_copied_over(const float* x, float* y, int) {
    tile_copied_over_kernel<<<1, threads>>>(x, y);
}

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
    y[blockIdx.x * threads + threadIdx.x] = word;
    before();
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 32);
}
extern "C" void tile_not_arrived(const float* x, float* y, int) {
    tile_not_arrived_kernel<<<1, threads>>>(x, y);
}

__global__ void tile_not_fenced_kernel(const float* x, float* y) {
    BEGIN(32)
    tile[threadIdx.x] = 1;
    __syncthreads();
    if (threadIdx.x == 0)
        multiply(columns, tile), commit_to(&barrier);  // BUG tile_not_fenced: missing proxy fence
    wait_at(&barrier, 0);
    y[blockIdx.x * threads + threadIdx.x] = word;
    before();
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 32);
}
extern "C" void tile_not_fenced(const float* x, float* y, int) {
    tile_not_fenced_kernel<<<1, threads>>>(x, y);
}

__global__ void tile_not_ordered_kernel(const float* x, float* y) {
    BEGIN(32)
    tile[threadIdx.x] = 1;
    fence_proxy();
    if (threadIdx.x == 0)
        multiply(columns, tile), commit_to(&barrier);  // BUG tile_not_ordered: asynchronous race
    wait_at(&barrier, 0);
    y[blockIdx.x * threads + threadIdx.x] = word;
    before();
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 32);
}
extern "C" void tile_not_ordered(const float* x, float* y, int) {
    tile_not_ordered_kernel<<<1, threads>>>(x, y);
}

__global__ void accumulators_that_overlap_kernel(const float* x, float* y) {
    BEGIN(64)
    if (threadIdx.x == 0) {
        multiply(columns, tile);
        multiply(columns + 16, tile);  // BUG accumulators_that_overlap: tensor memory in use
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    y[blockIdx.x * threads + threadIdx.x] = word;
    before();
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 64);
}
extern "C" void accumulators_that_overlap(const float* x, float* y, int) {
    accumulators_that_overlap_kernel<<<1, threads>>>(x, y);
}

__global__ void committed_to_nobody_kernel(const float* x, float* y) {
    BEGIN(32)
    if (threadIdx.x == 0) multiply(columns, tile);
    wait_phase(&barrier, 0);  // BUG committed_to_nobody: deadlock
    y[blockIdx.x * threads + threadIdx.x] = word;
    before();
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 32);
}
extern "C" void committed_to_nobody(const float* x, float* y, int) {
    committed_to_nobody_kernel<<<1, threads>>>(x, y);
}

__global__ void committed_too_often_kernel(const float* x, float* y) {
    BEGIN(32)
    if (threadIdx.x == 0) {
        multiply(columns, tile), commit_to(&barrier);
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    after();
    if (threadIdx.x == 0) arrive_many(&barrier, 2);  // BUG committed_too_often: arrival count
    y[blockIdx.x * threads + threadIdx.x] = word;
    before();
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 32);
}
extern "C" void committed_too_often(const float* x, float* y, int) {
    committed_too_often_kernel<<<1, threads>>>(x, y);
}

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
extern "C" void allocated_before_the_other_is_there(const float* x, float* y, int) {
    allocated_before_the_other_is_there_kernel<<<2, threads>>>(x, y);
}

__global__ void __cluster_dims__(2) arrives_for_its_own_block_kernel(const float* x, float* y) {
    BEGIN_PAIR
    if (rank() == 1 && threadIdx.x == 0)
        arrive_narrowly(leaders(&others));  // BUG arrives_for_its_own_block: mbarrier scope
    if (rank() == 0 && threadIdx.x == 0) {
        wait_at(&others, 0);
        multiply_in_pair(columns, tile), commit_to_pair(&barrier);
    }
    wait_at(&barrier, 0);
    y[blockIdx.x * threads + threadIdx.x] = word;
    END_PAIR
}
extern "C" void arrives_for_its_own_block(const float* x, float* y, int) {
    arrives_for_its_own_block_kernel<<<2, threads>>>(x, y);
}

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
    y[blockIdx.x * threads + threadIdx.x] = word;
    END_PAIR
}
extern "C" void the_others_half_not_seen(const float* x, float* y, int) {
    the_others_half_not_seen_kernel<<<2, threads>>>(x, y);
}

__global__ void __cluster_dims__(2) too_few_come_from_the_other_kernel(const float* x, float* y) {
    BEGIN_PAIR
    if (rank() == 0 && threadIdx.x == 0) {
        wait_phase(&others, 0);  // BUG too_few_come_from_the_other: deadlock
        multiply_in_pair(columns, tile), commit_to_pair(&barrier);
    }
    wait_at(&barrier, 0);
    y[blockIdx.x * threads + threadIdx.x] = word;
    END_PAIR
}
extern "C" void too_few_come_from_the_other(const float* x, float* y, int) {
    too_few_come_from_the_other_kernel<<<2, threads>>>(x, y);
}

__global__ void answer_read_too_early_kernel(const float* x, float* y) {
    BEGIN_CONTROL
    if (threadIdx.x == 0) ask(&answer, &barrier);
    __syncthreads();
    QUERY(block, &answer);  // BUG answer_read_too_early: asynchronous race
    wait_at(&barrier, 0);
    y[threadIdx.x] = block;
}
extern "C" void answer_read_too_early(const float* x, float* y, int) {
    answer_read_too_early_kernel<<<1, threads>>>(x, y);
}

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
extern "C" void answer_overwritten(const float* x, float* y, int) {
    answer_overwritten_kernel<<<4, threads>>>(x, y);
}

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
extern "C" void asks_after_the_last(const float* x, float* y, int) {
    asks_after_the_last_kernel<<<1, threads>>>(x, y);
}
