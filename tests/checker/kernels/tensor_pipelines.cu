// Pipelines around tensor memory: operands in it, rings of stages, turns of accumulators, and
// what both blocks of a pair wait for.
#include "export.cuh"
#include "tensor_pipelines.cuh"

// tcgen05.cp copies data; nobody waits for it.
__global__ void copied_data_read_at_once_kernel(const float* x, float* y) {
    BEGIN(32)
    if (threadIdx.x == 0) COPY("128x128b", 8, columns, tile);
    __syncthreads();
    after();
    LOAD(word, columns + 1);  // BUG copied_data_read_at_once: tensor memory in use
    loaded();
    before();
    __syncthreads();
    if (threadIdx.x == 0) commit_to(&barrier);
    wait_at(&barrier, 0);
    END(32)
}
EXPORT(copied_data_read_at_once, copied_data_read_at_once_kernel<<<1, threads>>>(x, y))

// A is stored in tensor memory, and the stores are not waited for.
__global__ void a_not_stored_yet_kernel(const float* x, float* y) {
    BEGIN(64)
    for (int i = 0; i < 8; i++) STORE(columns + 32 + i, word);
    before();
    __syncthreads();
    if (threadIdx.x == 0) {
        after();
        multiply_from(columns, columns + 32, tile);  // BUG a_not_stored_yet: tensor memory in use
        commit_to(&barrier);
    }
    stored();
    wait_at(&barrier, 0);
    END(64)
}
EXPORT(a_not_stored_yet, a_not_stored_yet_kernel<<<1, threads>>>(x, y))

// A is stored in tensor memory, and a barrier without fences orders that.
__global__ void a_not_fenced_kernel(const float* x, float* y) {
    BEGIN(64)
    for (int i = 0; i < 8; i++) STORE(columns + 32 + i, word);
    stored();
    __syncthreads();
    if (threadIdx.x == 0) {
        after();
        multiply_from(columns, columns + 32, tile);  // BUG a_not_fenced: missing tcgen05 fence
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    END(64)
}
EXPORT(a_not_fenced, a_not_fenced_kernel<<<1, threads>>>(x, y))

// The next A is stored while the product still reads the last one.
__global__ void next_a_too_early_kernel(const float* x, float* y) {
    BEGIN(64)
    __shared__ alignas(8) uint64_t both;
    if (threadIdx.x == 0) init(&both, 2), fence_init();
    __syncthreads();
    for (int step = 0; step < 2; step++) {
        for (int i = 0; i < 8; i++) {
            const unsigned to = columns + 32 + i;
            STORE(to, word);  // BUG next_a_too_early: tensor memory in use
        }
        stored();
        before();
        __syncthreads();
        if (threadIdx.x == 0) {
            after();
            multiply_from(columns, columns + 32, tile);
            commit_to(&both);
        }
    }
    wait_at(&both, 0);
    END(64)
}
EXPORT(next_a_too_early, next_a_too_early_kernel<<<1, threads>>>(x, y))

// The wait is for the phase that is over already.
__global__ void waits_for_the_last_phase_kernel(const float* x, float* y) {
    BEGIN(32)
    if (threadIdx.x == 0) multiply(columns, tile), commit_to(&barrier);
    __syncthreads();
    wait_at(&barrier, 1);
    after();
    LOAD(word, columns);  // BUG waits_for_the_last_phase: tensor memory in use
    loaded();
    wait_at(&barrier, 0);
    END(32)
}
EXPORT(waits_for_the_last_phase, waits_for_the_last_phase_kernel<<<1, threads>>>(x, y))

// One warp waits for the product; the others read without a barrier behind that.
__global__ void one_warp_waits_for_all_kernel(const float* x, float* y) {
    BEGIN(32)
    if (threadIdx.x == 0) multiply(columns, tile), commit_to(&barrier);
    __syncthreads();
    if (threadIdx.x < 32) wait_at(&barrier, 0);
    after();
    LOAD(word, columns);  // BUG one_warp_waits_for_all: tensor memory in use
    loaded();
    END(32)
}
EXPORT(one_warp_waits_for_all, one_warp_waits_for_all_kernel<<<1, threads>>>(x, y))

// The commit that frees a stage comes before the product that reads it.
__global__ void committed_early_kernel(const float* x, float* y) {
    BEGIN_RING
    if (threadIdx.x == 32)
        for (int k = 0; k < steps; k++) {
            const int s = k % stages;
            wait_at(&empty[s], k / stages % 2 ^ 1);
            expect(&full[s], 4096);
            load_tile(stage[s], x, &full[s]);  // BUG committed_early: asynchronous race
        }
    if (threadIdx.x == 0) {
        for (int k = 0; k < steps; k++) {
            wait_at(&full[k % stages], k / stages % 2);
            commit_to(&empty[k % stages]);
            multiply(columns, stage[k % stages]);
        }
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    END(32)
}
EXPORT(committed_early, committed_early_kernel<<<1, threads>>>(x, y))

// The consumer tells the producer by an arrival, not by a commit.
__global__ void stage_freed_by_an_arrival_kernel(const float* x, float* y) {
    BEGIN_RING
    if (threadIdx.x == 32)
        for (int k = 0; k < steps; k++) {
            const int s = k % stages;
            wait_at(&empty[s], k / stages % 2 ^ 1);
            expect(&full[s], 4096);
            load_tile(stage[s], x, &full[s]);  // BUG stage_freed_by_an_arrival: asynchronous race
        }
    if (threadIdx.x == 0) {
        for (int k = 0; k < steps; k++) {
            wait_at(&full[k % stages], k / stages % 2);
            multiply(columns, stage[k % stages]);
            arrive(&empty[k % stages]);
        }
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    END(32)
}
EXPORT(stage_freed_by_an_arrival, stage_freed_by_an_arrival_kernel<<<1, threads>>>(x, y))

// The epilogue gives the accumulator back before its load has come.
__global__ void given_back_before_the_load_kernel(const float* x, float* y) {
    BEGIN(32)
    __shared__ alignas(8) uint64_t free_again;
    if (threadIdx.x == 0) init(&free_again, threads), fence_init();
    __syncthreads();
    if (threadIdx.x == 0) multiply(columns, tile), commit_to(&barrier);
    wait_at(&barrier, 0);
    after();
    LOAD(word, columns);
    before();
    arrive(&free_again);
    if (threadIdx.x == 0) {
        wait_at(&free_again, 0);
        after();
        multiply(columns, tile);  // BUG given_back_before_the_load: tensor memory in use
        commit_to(&barrier);
    }
    loaded();
    wait_at(&barrier, 1);
    END(32)
}
EXPORT(given_back_before_the_load, given_back_before_the_load_kernel<<<1, threads>>>(x, y))

// Two accumulators take turns, and nobody waits until the epilogue has read one.
__global__ void accumulator_not_given_back_kernel(const float* x, float* y) {
    BEGIN(64)
    __shared__ alignas(8) uint64_t done[3];
    if (threadIdx.x < 3) init(&done[threadIdx.x], 1), fence_init();
    __syncthreads();
    if (threadIdx.x == 0)
        for (int k = 0; k < 3; k++) {
            const unsigned d = columns + k % 2 * 32;
            after();
            multiply(d, tile);  // BUG accumulator_not_given_back: tensor memory in use
            commit_to(&done[k]);
        }
    if (threadIdx.x / 32 == 1) {
        wait_at(&done[0], 0);
        after();
        LOAD(word, columns);
        loaded();
        before();
    }
    wait_at(&done[2], 0);
    END(64)
}
EXPORT(accumulator_not_given_back, accumulator_not_given_back_kernel<<<1, threads>>>(x, y))

// The accumulator is given back, and freed while its next product runs.
__global__ void freed_by_the_epilogue_kernel(const float* x, float* y) {
    BEGIN(32)
    if (threadIdx.x == 0) multiply(columns, tile), commit_to(&barrier);
    wait_at(&barrier, 0);
    after();
    LOAD(word, columns);
    loaded();
    y[threadIdx.x] = word;
    before();
    __syncthreads();
    if (threadIdx.x == 0) after(), multiply(columns, tile), commit_to(&barrier);
    __syncthreads();
    if (threadIdx.x / 32 == 3)
        deallocate(columns, 32);  // BUG freed_by_the_epilogue: tensor memory in use
}
EXPORT(freed_by_the_epilogue, freed_by_the_epilogue_kernel<<<1, threads>>>(x, y))

// The barrier of the commit counts the epilogue's threads as well.
__global__ void barrier_of_128_kernel(const float* x, float* y) {
    BEGIN(32)
    __shared__ alignas(8) uint64_t done;
    if (threadIdx.x == 0) init(&done, threads), fence_init();
    __syncthreads();
    if (threadIdx.x == 0) multiply(columns, tile), commit_to(&done);
    wait_phase(&done, 0);  // BUG barrier_of_128: deadlock
    END(32)
}
EXPORT(barrier_of_128, barrier_of_128_kernel<<<1, threads>>>(x, y))

// Written by the warp that tells the MMA thread by an mbarrier, with no proxy fence.
__global__ void tile_told_without_a_fence_kernel(const float* x, float* y) {
    BEGIN(32)
    __shared__ alignas(8) uint64_t full;
    if (threadIdx.x == 0) init(&full, 32), fence_init();
    __syncthreads();
    if (threadIdx.x / 32 == 2) tile[threadIdx.x] = 3, arrive(&full);
    if (threadIdx.x == 0) {
        wait_at(&full, 0);
        multiply(columns, tile);  // BUG tile_told_without_a_fence: missing proxy fence
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    END(32)
}
EXPORT(tile_told_without_a_fence, tile_told_without_a_fence_kernel<<<1, threads>>>(x, y))

// The commit tells one block of the pair, and both wait.
__global__ void __cluster_dims__(2) told_to_one_of_two_kernel(const float* x, float* y) {
    BEGIN_PAIR
    if (rank() == 0 && threadIdx.x == 0) {
        multiply_in_pair(columns, tile);
        asm volatile(
            "tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster"
            ".b64 [%0], %1;" ::"r"(at(&barrier)),
            "h"(short(1))
            : "memory");
    }
    wait_phase(&barrier, 0);  // BUG told_to_one_of_two: deadlock
    END_PAIR
}
EXPORT(told_to_one_of_two, told_to_one_of_two_kernel<<<2, threads>>>(x, y))

// The other block overwrites its half of an operand while the pair's product reads it.
__global__ void __cluster_dims__(2) the_other_refills_kernel(const float* x, float* y) {
    BEGIN_PAIR
    if (rank() == 0 && threadIdx.x == 0) multiply_in_pair(columns, tile);
    meet();
    if (rank() == 1) tile[threadIdx.x] = 5;  // BUG the_other_refills: asynchronous race
    meet();
    if (rank() == 0 && threadIdx.x == 0) commit_to_pair(&barrier);
    wait_at(&barrier, 0);
    END_PAIR
}
EXPORT(the_other_refills, the_other_refills_kernel<<<2, threads>>>(x, y))

// Allocated by one block, and freed as the pair's.
__global__ void __cluster_dims__(2) freed_as_a_pairs_kernel(const float* x, float* y) {
    __shared__ unsigned columns;
    if (threadIdx.x < 32) allocate(&columns, 32);
    __syncthreads();
    y[blockIdx.x * threads + threadIdx.x] = columns;
    meet();
    if (threadIdx.x < 32) FREE_IN_PAIR(columns);  // BUG freed_as_a_pairs: cta_group
}
EXPORT(freed_as_a_pairs, freed_as_a_pairs_kernel<<<2, threads>>>(x, y))

// One block of the pair leaves without freeing.
__global__ void __cluster_dims__(2) freed_by_one_of_two_kernel(const float* x, float* y) {
    __shared__ unsigned columns;
    meet();
    allocate_in_pair(&columns);  // BUG freed_by_one_of_two: tensor memory kept
    y[blockIdx.x * threads + threadIdx.x] = columns;
    meet();
    if (rank() == 0 && threadIdx.x < 32) FREE_IN_PAIR(columns);
    meet();
}
EXPORT(freed_by_one_of_two, freed_by_one_of_two_kernel<<<2, threads>>>(x, y))

// The second answer is awaited with the parity of the first.
__global__ void parity_of_the_first_answer_kernel(const float* x, float* y) {
    BEGIN_CONTROL
    if (threadIdx.x == 0) ask(&answer, &barrier);
    wait_at(&barrier, 0);
    QUERY(block, &answer);
    fence_proxy();
    __syncthreads();
    if (block >= 0) {
        if (threadIdx.x == 0) ask(&answer, &barrier);
        __syncthreads();
        wait_at(&barrier, 0);
        QUERY(block, &answer);  // BUG parity_of_the_first_answer: wrong parity
        wait_at(&barrier, 1);
    }
    if (blockIdx.x == 0) y[threadIdx.x] = block;
}
EXPORT(parity_of_the_first_answer, parity_of_the_first_answer_kernel<<<6, threads>>>(x, y))

// What was refused has no block: the index is read all the same.
__global__ void index_of_no_block_kernel(const float* x, float* y) {
    BEGIN_CONTROL
    if (threadIdx.x == 0) ask(&answer, &barrier);
    wait_at(&barrier, 0);
    FIRST_OF(block, &answer);  // BUG index_of_no_block: cluster launch control
    y[threadIdx.x] = block;
}
EXPORT(index_of_no_block, index_of_no_block_kernel<<<1, threads>>>(x, y))

// The scales of the next step are copied by another warp, under the product that reads these.
__global__ void scales_of_the_next_step_kernel(const float* x, float* y) {
    BEGIN_WITH_SCALES(64)
    __shared__ alignas(8) uint64_t copied;
    if (threadIdx.x == 0) init(&copied, 1), fence_init();
    __syncthreads();
    if (threadIdx.x == 64) copy_scales(of_a, scales), copy_scales(of_b, scales), commit_to(&copied);
    if (threadIdx.x == 0) {
        wait_at(&copied, 0);
        after();
        SCALED(MXFP8, columns, scaled, of_a, of_b);
        commit_to(&barrier);
    }
    __syncthreads();
    if (threadIdx.x == 64) {
        copy_scales(of_a, scales + 128);  // BUG scales_of_the_next_step: tensor memory in use
        commit_to(&copied);
        wait_at(&copied, 1);
    }
    wait_at(&barrier, 0);
    END(64)
}
EXPORT(scales_of_the_next_step, scales_of_the_next_step_kernel<<<1, threads>>>(x, y))

// ---- Nothing is to be found in these

// A is stored in tensor memory by all warps, step by step.
__global__ void a_in_tensor_memory_kernel(const float* x, float* y) {
    BEGIN(64)
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < 8; i++) STORE(columns + 32 + i, word);
        stored();
        before();
        __syncthreads();
        if (threadIdx.x == 0) {
            after();
            multiply_from(columns, columns + 32, tile);
            commit_to(&barrier);
        }
        wait_at(&barrier, step % 2);
        after();
    }
    LOAD(word, columns);
    loaded();
    END(64)
}
EXPORT(a_in_tensor_memory, a_in_tensor_memory_kernel<<<1, threads>>>(x, y))

// P = f(S) takes the place of S, as in attention.
__global__ void p_in_the_place_of_s_kernel(const float* x, float* y) {
    BEGIN(64)
    for (int step = 0; step < 2; step++) {
        if (threadIdx.x == 0) multiply(columns, tile), commit_to(&barrier);
        wait_at(&barrier, 0);
        after();
        for (int i = 0; i < 8; i++) {
            LOAD(word, columns + i);
            loaded();
            STORE(columns + i, word);
        }
        stored();
        before();
        __syncthreads();
        if (threadIdx.x == 0) {
            after();
            multiply_from(columns + 32, columns, tile);
            commit_to(&barrier);
        }
        wait_at(&barrier, 1);
        after();
    }
    LOAD(word, columns + 32);
    loaded();
    END(64)
}
EXPORT(p_in_the_place_of_s, p_in_the_place_of_s_kernel<<<1, threads>>>(x, y))

__global__ void data_copied_and_awaited_kernel(const float* x, float* y) {
    BEGIN(32)
    if (threadIdx.x == 0) {
        COPY("128x128b", 8, columns, tile);
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    after();
    LOAD(word, columns + 1);
    loaded();
    END(32)
}
EXPORT(data_copied_and_awaited, data_copied_and_awaited_kernel<<<1, threads>>>(x, y))

// One thread waits, and a barrier between fences tells the others.
__global__ void one_warp_waits_and_tells_kernel(const float* x, float* y) {
    BEGIN(32)
    if (threadIdx.x == 0) multiply(columns, tile), commit_to(&barrier);
    if (threadIdx.x == 96) wait_at(&barrier, 0), before();
    __syncthreads();
    after();
    LOAD(word, columns);
    loaded();
    END(32)
}
EXPORT(one_warp_waits_and_tells, one_warp_waits_and_tells_kernel<<<1, threads>>>(x, y))

__global__ void one_lane_of_each_warp_waits_kernel(const float* x, float* y) {
    BEGIN(32)
    if (threadIdx.x == 0) multiply(columns, tile), commit_to(&barrier);
    if (threadIdx.x % 32 == 0) wait_at(&barrier, 0);
    __syncwarp();
    after();
    LOAD(word, columns);
    loaded();
    END(32)
}
EXPORT(one_lane_of_each_warp_waits, one_lane_of_each_warp_waits_kernel<<<1, threads>>>(x, y))

__global__ void ring_of_stages_kernel(const float* x, float* y) {
    BEGIN_RING
    if (threadIdx.x == 32)
        for (int k = 0; k < steps; k++) {
            const int s = k % stages;
            wait_at(&empty[s], k / stages % 2 ^ 1);
            expect(&full[s], 4096);
            load_tile(stage[s], x, &full[s]);
        }
    if (threadIdx.x == 0) multiply_ring(columns, stage, full, empty, &barrier);
    wait_at(&barrier, 0);
    after();
    LOAD(word, columns);
    loaded();
    END(32)
}
EXPORT(ring_of_stages, ring_of_stages_kernel<<<1, threads>>>(x, y))

// The next scales are copied by the thread that multiplies: its operations come in order.
__global__ void scales_step_by_step_kernel(const float* x, float* y) {
    BEGIN_WITH_SCALES(64)
    if (threadIdx.x == 0) {
        for (int k = 0; k < 4; k++) {
            copy_scales(of_a, scales + k % 2 * 128), copy_scales(of_b, scales + 128);
            SCALED(MXFP8, columns, scaled, of_a, of_b);
        }
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    after();
    LOAD(word, columns);
    loaded();
    END(64)
}
EXPORT(scales_step_by_step, scales_step_by_step_kernel<<<1, threads>>>(x, y))

// Two accumulators in turns: the products wait until the epilogue has read one, two rounds behind.
__global__ void two_turns_kernel(const float* x, float* y) {
    BEGIN(64)
    __shared__ alignas(8) uint64_t done[2], empty[2];
    if (threadIdx.x < 2) init(&done[threadIdx.x], 1), init(&empty[threadIdx.x], 96), fence_init();
    __syncthreads();
    if (threadIdx.x == 0)
        for (int k = 0; k < steps; k++) {
            if (k >= 2) wait_at(&empty[k % 2], k / 2 % 2 ^ 1), after();
            multiply(columns + k % 2 * 32, tile), commit_to(&done[k % 2]);
        }
    if (threadIdx.x >= 32)
        for (int k = 0; k < steps; k++) {
            wait_at(&done[k % 2], k / 2 % 2);
            after();
            unsigned part;
            LOAD(part, columns + k % 2 * 32);
            loaded();
            before();
            arrive(&empty[k % 2]);
            word += part;
        }
    END(64)
}
EXPORT(two_turns, two_turns_kernel<<<1, threads>>>(x, y))

// Both blocks of a pair refill their halves of the operands once the pair's product has read them.
__global__ void __cluster_dims__(2) pair_refills_in_turn_kernel(const float* x, float* y) {
    BEGIN_PAIR
    for (int k = 0; k < 3; k++) {
        tile[threadIdx.x] = k;
        fence_proxy();
        meet();
        if (rank() == 0 && threadIdx.x == 0)
            multiply_in_pair(columns, tile), commit_to_pair(&barrier);
        wait_at(&barrier, k % 2);
    }
    after();
    LOAD(word, columns);
    loaded();
    END_PAIR
}
EXPORT(pair_refills_in_turn, pair_refills_in_turn_kernel<<<2, threads>>>(x, y))

__global__ void block_after_block_kernel(const float* x, float* y) {
    BEGIN_CONTROL
    for (int i = 0; block >= 0; i++) {
        if (threadIdx.x == 0) ask(&answer, &barrier);
        if (block * threads + threadIdx.x < 1000) y[block * threads + threadIdx.x] = block;
        wait_at(&barrier, i % 2);
        QUERY(block, &answer);
        fence_proxy();
        __syncthreads();
    }
}
EXPORT(block_after_block, block_after_block_kernel<<<8, threads>>>(x, y))
