// Pipelines around tensor memory that wait for each other as they should.
#include "export.cuh"
#include "tensor_pipelines.cuh"

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
    y[blockIdx.x * threads + threadIdx.x] = word;
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
