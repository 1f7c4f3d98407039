// Kernels of several roles, in blocks and in pairs, that wait for each other as they should.
#include "export.cuh"
#include "tensor_pairs.cuh"

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
    y[blockIdx.x * threads + threadIdx.x] = word;
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
    y[blockIdx.x * threads + threadIdx.x] = word;
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
