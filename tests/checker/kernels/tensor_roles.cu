// Kernels of several roles: who waits for whom, in blocks and in pairs.
#include "export.cuh"
#include "tensor_pairs.cuh"

// Two accumulators in turns: the epilogue reads the one that is being written.
__global__ void reads_the_other_accumulator_kernel(const float* x, float* y) {
    BEGIN(64)
    if (threadIdx.x == 0) multiply(columns, tile), commit_to(&barrier);
    for (int i = 0; i < 3; i++) {
        wait_at(&barrier, i % 2);
        after();
        if (threadIdx.x == 0) multiply(columns + (i + 1) % 2 * 32, tile), commit_to(&barrier);
        __syncthreads();
        const unsigned other = columns + (i + 1) % 2 * 32;
        LOAD(word, other);  // BUG reads_the_other_accumulator: tensor memory in use
        loaded();
        before();
        __syncthreads();
    }
    wait_at(&barrier, 1);
    END(64)
}
EXPORT(reads_the_other_accumulator, reads_the_other_accumulator_kernel<<<1, threads>>>(x, y))

// Fewer columns are freed than allocated.
__global__ void freed_in_half_kernel(const float* x, float* y) {
    BEGIN(64)
    y[threadIdx.x] = word;
    __syncthreads();
    if (threadIdx.x < 32) DEALLOCATE(columns, 32);  // BUG freed_in_half: tensor memory
}
EXPORT(freed_in_half, freed_in_half_kernel<<<1, threads>>>(x, y))

// Every warp frees.
__global__ void freed_by_each_warp_kernel(const float* x, float* y) {
    BEGIN(32)
    y[threadIdx.x] = word;
    __syncthreads();
    DEALLOCATE(columns, 32);  // BUG freed_by_each_warp: tensor memory
}
EXPORT(freed_by_each_warp, freed_by_each_warp_kernel<<<1, threads>>>(x, y))

// The address of the columns is read before tcgen05.alloc has written it.
__global__ void address_too_early_kernel(const float* x, float* y) {
    __shared__ unsigned columns;
    if (threadIdx.x < 32) allocate(&columns, 32);
    y[threadIdx.x] = columns;  // BUG address_too_early: race
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 32);
}
EXPORT(address_too_early, address_too_early_kernel<<<1, threads>>>(x, y))

// One way out of the kernel does not free.
__global__ void kept_on_one_way_kernel(const float* x, float* y) {
    __shared__ unsigned columns;
    if (threadIdx.x < 32) allocate(&columns, 64);  // BUG kept_on_one_way: tensor memory kept
    __syncthreads();
    y[blockIdx.x * threads + threadIdx.x] = columns;
    if (blockIdx.x == 2) return;
    if (threadIdx.x < 32) deallocate(columns, 64);
}
EXPORT(kept_on_one_way, kept_on_one_way_kernel<<<3, threads>>>(x, y))

// The accumulator is wider than what was allocated.
__global__ void wider_than_allocated_kernel(const float* x, float* y) {
    BEGIN(32)
    if (threadIdx.x == 0) {
        MULTIPLY_AS(columns + 16, tile, instruction);  // BUG wider_than_allocated: tensor memory
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    END(32)
}
EXPORT(wider_than_allocated, wider_than_allocated_kernel<<<1, threads>>>(x, y))

// Both blocks issue the pair's product.
__global__ void __cluster_dims__(2) both_blocks_multiply_kernel(const float* x, float* y) {
    BEGIN_PAIR
    __shared__ alignas(8) uint64_t mine;
    if (threadIdx.x == 0) init(&mine, 2), fence_init();
    meet();
    if (threadIdx.x == 0) {
        multiply_in_pair(columns, tile);  // BUG both_blocks_multiply: tensor memory in use
        commit_to_pair(&mine);
    }
    wait_at(&mine, 0);
    END_PAIR
}
EXPORT(both_blocks_multiply, both_blocks_multiply_kernel<<<2, threads>>>(x, y))

// Allocated by the pair, multiplied by one block.
__global__ void __cluster_dims__(2) product_of_one_block_kernel(const float* x, float* y) {
    BEGIN_PAIR
    if (threadIdx.x == 0) {
        multiply(columns, tile), commit_to(&barrier);  // BUG product_of_one_block: cta_group
    }
    wait_at(&barrier, 0);
    END_PAIR
}
EXPORT(product_of_one_block, product_of_one_block_kernel<<<2, threads>>>(x, y))

// Computed scales: the fence stands before the stores.
__global__ void fence_before_the_stores_kernel(const float* x, float* y) {
    BEGIN_WITH_SCALES(64)
    fence_proxy();
    scales[threadIdx.x] = 127 + int(x[threadIdx.x] * 8);
    __syncthreads();
    if (threadIdx.x == 0) {
        copy_scales(of_a, scales);  // BUG fence_before_the_stores: missing proxy fence
        copy_scales(of_b, scales + 128);
        SCALED(MXFP8, columns, scaled, of_a, of_b);
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    END(64)
}
EXPORT(fence_before_the_stores, fence_before_the_stores_kernel<<<1, threads>>>(x, y))

// Computed scales: an mbarrier tells the MMA warp, and nobody has fenced.
__global__ void scales_told_without_a_fence_kernel(const float* x, float* y) {
    BEGIN_WITH_SCALES(64)
    __shared__ alignas(8) uint64_t full;
    if (threadIdx.x == 0) init(&full, 96), fence_init();
    __syncthreads();
    if (threadIdx.x >= 32) {
        for (int i = threadIdx.x - 32; i < 128; i += 96) scales[i] = 127 + int(x[i] * 8);
        arrive(&full);
    } else if (threadIdx.x == 0) {
        wait_at(&full, 0);
        copy_scales(of_a, scales);  // BUG scales_told_without_a_fence: missing proxy fence
        copy_scales(of_b, scales + 128);
        SCALED(MXFP8, columns, scaled, of_a, of_b);
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    END(64)
}
EXPORT(scales_told_without_a_fence, scales_told_without_a_fence_kernel<<<1, threads>>>(x, y))

// Computed scales: a warp of the block writes them after the MMA thread has copied them.
__global__ void scales_not_ordered_kernel(const float* x, float* y) {
    BEGIN_WITH_SCALES(64)
    scales[threadIdx.x] = 127 + int(x[threadIdx.x] * 8);
    fence_proxy();
    __syncwarp();
    if (threadIdx.x == 0) {
        copy_scales(of_a, scales);  // BUG scales_not_ordered: asynchronous race
        copy_scales(of_b, scales + 128);
        SCALED(MXFP8, columns, scaled, of_a, of_b);
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    END(64)
}
EXPORT(scales_not_ordered, scales_not_ordered_kernel<<<1, threads>>>(x, y))

// Computed scales: half of the 512 bytes is never written.
__global__ void scales_of_64_rows_kernel(const float* x, float* y) {
    BEGIN(64)
    for (int i = threadIdx.x; i < 2048; i += threads) tile[i] = 0x38383838;  // ones
    __shared__ alignas(128) unsigned few[128];
    if (threadIdx.x < 64) few[threadIdx.x] = 127 + int(x[threadIdx.x] * 8);
    fence_proxy();
    __syncthreads();
    if (threadIdx.x == 0) {
        copy_scales(columns + 32, few);  // BUG scales_of_64_rows: uninitialised
        copy_scales(columns + 36, few);
        SCALED(MXFP8, columns, scaled, columns + 32, columns + 36);
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    after();
    LOAD(word, columns);
    loaded();
    END(64)
}
EXPORT(scales_of_64_rows, scales_of_64_rows_kernel<<<1, threads>>>(x, y))

// Computed scales are overwritten for the next step while the product may still copy them.
__global__ void next_steps_scales_too_early_kernel(const float* x, float* y) {
    BEGIN_WITH_SCALES(64)
    for (int i = 0; i < 3; i++) {
        scales[threadIdx.x] = 127 + i;  // BUG next_steps_scales_too_early: asynchronous race
        fence_proxy();
        __syncthreads();
        if (threadIdx.x == 0) {
            copy_scales(of_a, scales), copy_scales(of_b, scales + 128);
            SCALED(MXFP8, columns, scaled, of_a, of_b);
            commit_to(&barrier);
        }
        if (i == 2) break;
        __syncthreads();
        if (threadIdx.x == 0) wait_at(&barrier, i % 2);
    }
    wait_at(&barrier, 0);
    END(64)
}
EXPORT(next_steps_scales_too_early, next_steps_scales_too_early_kernel<<<1, threads>>>(x, y))

// Scales in tensor memory by tcgen05.st: the warps meet, and no fence is before that.
__global__ void stored_scales_unfenced_kernel(const float* x, float* y) {
    BEGIN(64)
    const unsigned of_a = columns + 32, of_b = columns + 36;
    STORE_SCALES(of_a, 0x7f7f7f7f);
    STORE_SCALES(of_b, 0x7f7f7f7f);
    stored();
    sync_some(1, 128);
    if (threadIdx.x == 96) {
        after();
        const unsigned d = columns;
        SCALED(MXFP8, d, scaled, of_a, of_b);  // BUG stored_scales_unfenced: missing tcgen05 fence
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    END(64)
}
EXPORT(stored_scales_unfenced, stored_scales_unfenced_kernel<<<1, threads>>>(x, y))

// An mbarrier between epilogue and MMA warp, and no fence behind the wait.
__global__ void no_fence_behind_an_mbarrier_kernel(const float* x, float* y) {
    BEGIN(32)
    __shared__ alignas(8) uint64_t empty;
    if (threadIdx.x == 0) init(&empty, 128), fence_init();
    __syncthreads();
    if (threadIdx.x == 0) multiply(columns, tile), commit_to(&barrier);
    wait_at(&barrier, 0);
    after();
    LOAD(word, columns);
    loaded();
    before();
    arrive(&empty);
    if (threadIdx.x == 32) {
        wait_at(&empty, 0);
        multiply(columns, tile);  // BUG no_fence_behind_an_mbarrier: missing tcgen05 fence
        commit_to(&barrier);
    }
    wait_at(&barrier, 1);
    END(32)
}
EXPORT(no_fence_behind_an_mbarrier, no_fence_behind_an_mbarrier_kernel<<<1, threads>>>(x, y))

// The answer has 16 bytes, and 8 are announced.
__global__ void half_an_answer_kernel(const float* x, float* y) {
    BEGIN_CONTROL
    if (threadIdx.x == 0) {
        expect(&barrier, 8);
        asm volatile(
            "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 "
            "[%0], [%1];" ::"r"(at(&answer)),
            "r"(at(&barrier))
            : "memory");
    }
    wait_phase(&barrier, 0);  // BUG half_an_answer: expect_tx
    QUERY(block, &answer);
    y[threadIdx.x] = block;
}
EXPORT(half_an_answer, half_an_answer_kernel<<<1, threads>>>(x, y))

// The other block of the pair has a product in its tensor memory, too, and waits for another phase.
__global__ void __cluster_dims__(2) the_other_block_reads_early_kernel(const float* x, float* y) {
    BEGIN_PAIR
    if (rank() == 0 && threadIdx.x == 0) multiply_in_pair(columns, tile);
    meet();
    after();
    if (rank() == 1) LOAD(word, columns);  // BUG the_other_block_reads_early: tensor memory in use
    loaded();
    meet();
    if (rank() == 0 && threadIdx.x == 0) commit_to_pair(&barrier);
    wait_at(&barrier, 0);
    END_PAIR
}
EXPORT(the_other_block_reads_early, the_other_block_reads_early_kernel<<<2, threads>>>(x, y))

// ---- Nothing is to be found in these

// Warp-specialised: a producer, an MMA warp, an epilogue of four warps, two accumulators.
constexpr int all_threads = 192, rounds = 8;
__global__ void specialised_kernel(const float* x, float* y) {
    __shared__ alignas(128) unsigned stage[2][2048];
    __shared__ alignas(8) uint64_t full[2], empty[2], done[2], free_again[2];
    __shared__ unsigned columns;
    if (threadIdx.x / 32 == 4) allocate(&columns, 64);
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++)
            init(&full[i], 1), init(&empty[i], 1), init(&done[i], 1), init(&free_again[i], 128);
        fence_init();
    }
    __syncthreads();
    const int warp = threadIdx.x / 32;
    if (warp == 5 && threadIdx.x % 32 == 0) {
        for (int k = 0; k < rounds; k++) {
            const int s = k % 2;
            wait_at(&empty[s], k / 2 % 2 ^ 1);
            expect(&full[s], 4096);
            load_bytes(stage[s], x, 2048, &full[s]);
            load_bytes(stage[s] + 512, x, 2048, &full[s]);
        }
    } else if (warp == 4 && threadIdx.x % 32 == 0) {
        for (int k = 0; k < rounds; k++) {
            const int s = k % 2;
            wait_at(&free_again[s], k / 2 % 2 ^ 1);
            wait_at(&full[s], k / 2 % 2);
            after();
            multiply(columns + s * 32, stage[s]);
            commit_to(&empty[s]);
            commit_to(&done[s]);
        }
    } else if (warp < 4) {
        for (int k = 0; k < rounds; k++) {
            const int s = k % 2;
            wait_at(&done[s], k / 2 % 2);
            after();
            unsigned word;
            LOAD(word, columns + s * 32 + 3);
            loaded();
            before();
            arrive(&free_again[s]);
            const int i = k * 128 + threadIdx.x;
            if (i < 1000) y[i] = __uint_as_float(word);
        }
    }
    before();
    __syncthreads();
    if (warp == 4) deallocate(columns, 64);
}
EXPORT(specialised, specialised_kernel<<<1, all_threads>>>(x, y))

// Computed scales, each written where tcgen05.cp wants it; the writers fence.
__global__ void computed_scales_kernel(const float* x, float* y) {
    BEGIN_WITH_SCALES(64)
    for (int i = 0; i < 3; i++) {
        const int row = threadIdx.x, place = row % 32 * 4 + row / 32;
        scales[place] = (127 + int(x[row] * 4)) * 0x01010101;
        scales[128 + place] = 0x7f7f7f7f;
        fence_proxy();
        __syncthreads();
        if (threadIdx.x == 0) {
            copy_scales(of_a, scales), copy_scales(of_b, scales + 128);
            SCALED(MXFP8, columns, scaled, of_a, of_b);
            commit_to(&barrier);
        }
        wait_at(&barrier, i % 2);
    }
    after();
    LOAD(word, columns);
    loaded();
    END(64)
}
EXPORT(computed_scales, computed_scales_kernel<<<1, threads>>>(x, y))

// The same, told by an mbarrier, and fenced by each writer.
__global__ void computed_scales_told_kernel(const float* x, float* y) {
    BEGIN_WITH_SCALES(64)
    __shared__ alignas(8) uint64_t full;
    if (threadIdx.x == 0) init(&full, 96), fence_init();
    __syncthreads();
    if (threadIdx.x >= 32) {
        for (int i = threadIdx.x - 32; i < 128; i += 96) scales[i] = 127 + int(x[i] * 8);
        fence_proxy();
        arrive(&full);
    } else if (threadIdx.x == 0) {
        wait_at(&full, 0);
        copy_scales(of_a, scales), copy_scales(of_b, scales + 128);
        SCALED(MXFP8, columns, scaled, of_a, of_b);
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    END(64)
}
EXPORT(computed_scales_told, computed_scales_told_kernel<<<1, threads>>>(x, y))

// Scales of each warp, in its quarter of the lanes: the same ones everywhere.
__global__ void stored_scales_kernel(const float* x, float* y) {
    BEGIN(64)
    const unsigned of_a = columns + 32, of_b = columns + 36;
    const unsigned mine = 120 + threadIdx.x % 32;
    STORE_SCALES(of_a, mine);
    STORE_SCALES(of_b, 127);
    stored();
    before();
    sync_some(1, 128);
    if (threadIdx.x == 96) {
        after();
        SCALED(MXFP8, columns, scaled, of_a, of_b);
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    END(64)
}
EXPORT(stored_scales, stored_scales_kernel<<<1, threads>>>(x, y))

// Pairs: four products, each told to both blocks; the other block releases at the leader's barrier.
__global__ void __cluster_dims__(2) pair_in_turns_kernel(const float* x, float* y) {
    BEGIN_PAIR
    __shared__ alignas(8) uint64_t read;
    if (threadIdx.x == 0) init(&read, 2), fence_init();
    meet();
    for (int i = 0; i < 4; i++) {
        if (rank() == 0 && threadIdx.x == 0) {
            wait_at(&read, i % 2 ^ 1);
            after();
            multiply_in_pair(columns, tile), commit_to_pair(&barrier);
        }
        wait_at(&barrier, i % 2);
        after();
        LOAD(word, columns + i);
        loaded();
        before();
        __syncthreads();
        if (threadIdx.x == 0) arrive_for_the_cluster(leaders(&read));
    }
    END_PAIR
}
EXPORT(pair_in_turns, pair_in_turns_kernel<<<2, threads>>>(x, y))

// Pairs with scales that each block computes.
__global__ void __cluster_dims__(2) pair_computes_scales_kernel(const float* x, float* y) {
    BEGIN_PAIR
    __shared__ alignas(128) unsigned scales[128];
    scales[threadIdx.x] = 127 + int(x[blockIdx.x * threads + threadIdx.x] * 4);
    fence_proxy();
    meet();
    if (rank() == 0 && threadIdx.x == 0) {
        copy_scales_in_pair(columns + 16, scales);
        multiply_scaled_in_pair(columns, tile, columns + 16);
        commit_to_pair(&barrier);
    }
    wait_at(&barrier, 0);
    after();
    LOAD(word, columns);
    loaded();
    END_PAIR
}
EXPORT(pair_computes_scales, pair_computes_scales_kernel<<<2, threads>>>(x, y))

// Launch control with two answers in turns, each given back by an mbarrier.
__global__ void two_answers_kernel(const float* x, float* y) {
    __shared__ alignas(16) uint4 answer[2];
    __shared__ alignas(8) uint64_t there[2], back[2];
    if (threadIdx.x == 0) {
        for (int i = 0; i < 2; i++) init(&there[i], 1), init(&back[i], 128);
        fence_init();
    }
    __syncthreads();
    int block = blockIdx.x;
    for (int step = 0; block >= 0; step++) {
        const int s = step % 2, parity = step / 2 % 2;
        if (threadIdx.x == 0) {
            wait_at(&back[s], parity ^ 1);
            ask(&answer[s], &there[s]);
        }
        const int i = block * 128 + threadIdx.x;
        if (i < 1000) y[i] = block;
        wait_at(&there[s], parity);
        QUERY(block, &answer[s]);
        fence_proxy();
        arrive(&back[s]);
    }
}
EXPORT(two_answers, two_answers_kernel<<<8, threads>>>(x, y))

// Launch control: one warp asks and waits, and hands the answer on.
__global__ void answer_handed_on_kernel(const float* x, float* y) {
    __shared__ int next;
    BEGIN_CONTROL
    for (int parity = 0; block >= 0; parity ^= 1) {
        if (threadIdx.x == 0) ask(&answer, &barrier);
        const int i = block * 128 + threadIdx.x;
        if (i < 1000) y[i] = block;
        if (threadIdx.x == 0) {
            wait_at(&barrier, parity);
            int found;
            QUERY(found, &answer);
            next = found;
            fence_proxy();
        }
        __syncthreads();
        block = next;
        __syncthreads();
    }
}
EXPORT(answer_handed_on, answer_handed_on_kernel<<<8, threads>>>(x, y))

// Freed by another warp than it was allocated by; and the permit given back before.
__global__ void freed_by_another_warp_kernel(const float* x, float* y) {
    BEGIN(32)
    if (threadIdx.x < 32) relinquish();
    if (threadIdx.x == 64) multiply(columns, tile), commit_to(&barrier);
    wait_at(&barrier, 0);
    after();
    LOAD(word, columns);
    loaded();
    y[threadIdx.x] = word;
    before();
    __syncthreads();
    if (threadIdx.x / 32 == 3) deallocate(columns, 32);
}
EXPORT(freed_by_another_warp, freed_by_another_warp_kernel<<<1, threads>>>(x, y))

// A wide accumulator, read in pieces of 8 columns, copied before one wait.
__global__ void read_in_pieces_kernel(const float* x, float* y) {
    BEGIN(32)
    if (threadIdx.x == 0) multiply(columns, tile), commit_to(&barrier);
    wait_at(&barrier, 0);
    after();
    unsigned all[32];
    for (int i = 0; i < 32; i += 8) {
        unsigned v[8];
        asm volatile("tcgen05.ld.sync.aligned.32x32b.x8.b32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];"
                     : "=r"(v[0]), "=r"(v[1]), "=r"(v[2]), "=r"(v[3]), "=r"(v[4]), "=r"(v[5]),
                       "=r"(v[6]), "=r"(v[7])
                     : "r"(lane_of(columns + i)));
        for (int j = 0; j < 8; j++) all[i + j] = v[j];
    }
    loaded();
    for (int i = 0; i < 32; i++) word += all[i] * i;
    END(32)
}
EXPORT(read_in_pieces, read_in_pieces_kernel<<<1, threads>>>(x, y))

// The accumulator goes back to tensor memory as A of the next product, as P does in attention.
__global__ void product_of_what_was_stored_kernel(const float* x, float* y) {
    BEGIN(64)
    if (threadIdx.x == 0) multiply(columns, tile), commit_to(&barrier);
    wait_at(&barrier, 0);
    after();
    for (int i = 0; i < 8; i++) {
        LOAD(word, columns + i);
        loaded();
        STORE(columns + 32 + i, word + 1);
    }
    stored();
    before();
    __syncthreads();
    if (threadIdx.x == 0) {
        after();
        asm volatile(
            "{ .reg .pred p; setp.ne.b32 p, 0, 0;"
            " tcgen05.mma.cta_group::1.kind::f16 [%0], [%1], %2, %3, p; }" ::"r"(columns),
            "r"(columns + 32), "l"((at(tile) & 0x3ffff) >> 4 | strides), "r"(instruction));
        commit_to(&barrier);
    }
    wait_at(&barrier, 1);
    after();
    LOAD(word, columns);
    loaded();
    END(64)
}
EXPORT(product_of_what_was_stored, product_of_what_was_stored_kernel<<<1, threads>>>(x, y))
