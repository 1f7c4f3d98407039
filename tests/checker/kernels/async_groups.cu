// Planted bugs: clusters, named barriers, and registers that warps give and take.
#include "asynchronous.cuh"
#include "export.cuh"

constexpr int threads = 64;
#define LAUNCH(function, kernel) EXPORT(function, kernel<<<2, threads>>>(x, y))

// ---- Clusters

__global__ void __cluster_dims__(2) leaves(const float* x, float* y) {
    __shared__ float s[threads];
    const int t = threadIdx.x, other = rank_in_cluster() ^ 1;
    s[t] = x[t];
    sync_cluster();
    y[threads * blockIdx.x + t] =
        load_from(in_block(&s[t], other));  // BUG reads_a_block_that_has_ended: ended block
}
LAUNCH(reads_a_block_that_has_ended, leaves)

__global__ void __cluster_dims__(2) sends(const float* x, float* y) {
    __shared__ float s[threads];
    const int t = threadIdx.x;
    const int rank = rank_in_cluster();
    sync_cluster();
    if (rank == 1) __nanosleep(1);
    if (rank == 1)
        store_to(in_block(&s[t], 0), x[t]);  // BUG writes_to_a_block_that_has_ended: ended block
    y[threads * blockIdx.x + t] = 0;
}
LAUNCH(writes_to_a_block_that_has_ended, sends)

__global__ void __cluster_dims__(2) unseen(const float* x, float* y) {
    __shared__ uint64_t barrier;
    const int t = threadIdx.x;
    const int rank = rank_in_cluster();
    sync_cluster();
    if (t == 0) {
        init(&barrier, 2);
        fence_init();
    }
    __syncthreads();
    if (t == 0) {
        arrive(&barrier);
        arrive_at(in_block(&barrier, rank ^ 1));  // BUG arrives_early: mbarrier not visible
    }
    wait_phase(&barrier, 0);
    y[threads * blockIdx.x + t] = x[t];
    sync_cluster();
}
LAUNCH(arrives_early, unseen)

__global__ void __cluster_dims__(2) stored(const float* x, float* y) {
    __shared__ alignas(16) float s[threads];
    __shared__ uint64_t full;
    const int t = threadIdx.x;
    const int other = rank_in_cluster() ^ 1;
    if (t == 0) {
        init(&full, 1);
        fence_init();
        expect(&full, 4 * threads);
    }
    sync_cluster();
    store_async(in_block(&s[t], other), x[t], in_block(&full, other));
    sync_cluster();
    y[threads * blockIdx.x + t] = s[t];  // BUG reads_before_st_async_is_there: asynchronous race
    wait_phase(&full, 0);
    sync_cluster();
}
LAUNCH(reads_before_st_async_is_there, stored)

__global__ void __cluster_dims__(2) too_little(const float* x, float* y) {
    __shared__ alignas(16) float s[threads];
    __shared__ uint64_t full;
    const int t = threadIdx.x;
    const int other = rank_in_cluster() ^ 1;
    if (t == 0) {
        init(&full, 1);
        fence_init();
        expect(&full, 8 * threads);  // BUG expects_twice_what_st_async_sends: expect_tx
    }
    sync_cluster();
    store_async(in_block(&s[t], other), x[t], in_block(&full, other));
    wait_phase(&full, 0);
    y[threads * blockIdx.x + t] = s[t];
    sync_cluster();
}
LAUNCH(expects_twice_what_st_async_sends, too_little)

// As warps_send_sums of correct_async.cu, but with one buffer: others may still read what this
// round overwrites.
__global__ void __cluster_dims__(2) one_buffer(const float* x, float* y) {
    constexpr int warps = 32;
    __shared__ float parts[2 * warps];
    __shared__ uint64_t full[2];
    const int t = threadIdx.x, lane = t % 32, i = blockDim.x * blockIdx.x + t;
    const int own = warps * rank_in_cluster() + t / 32;
    if (t == 0) {
        for (uint64_t& barrier : full) init(&barrier, 1);
        fence_init();
    }
    sync_cluster();
    float sum = x[t % 32];
    for (int round = 0; round < 4; round++) {
        const int buffer = round % 2;
        if (t == 0) expect(&full[buffer], 2 * warps * sizeof(float));
        for (int bit = 16; bit > 0; bit /= 2) sum += __shfl_xor_sync(~0u, sum, bit);
        const uint32_t there = in_block(&parts[own], lane % 2);
        const uint32_t barrier = in_block(&full[buffer], lane % 2);
        if (lane < 2)
            store_async(there, sum, barrier);  // BUG sends_into_what_others_read: asynchronous race
        wait_phase(&full[buffer], round / 2 % 2);
        sum = parts[lane] + parts[warps + lane];
        fence_proxy();
    }
    if (i < 1000) y[i] = sum;
    sync_cluster();
}
EXPORT(sends_into_what_others_read, one_buffer<<<2, 1024>>>(x, y))

// ---- Named barriers

__global__ void counts(const float* x, float* y) {
    __shared__ float s[threads];
    const int t = threadIdx.x;
    s[t] = x[t];
    if (t < 32)
        sync_some(1, 64);
    else
        sync_some(1, 32);  // BUG two_counts_at_one_barrier: named barrier
    y[threads * blockIdx.x + t] = s[threads - 1 - t];
}
LAUNCH(two_counts_at_one_barrier, counts)

__global__ void parts(const float* x, float* y) {
    const int t = threadIdx.x;
    sync_some(1, 48);  // BUG half_a_warp_at_a_barrier: named barrier
    y[threads * blockIdx.x + t] = x[t];
}
LAUNCH(half_a_warp_at_a_barrier, parts)

__global__ void numbers(const float* x, float* y) {
    const int t = threadIdx.x;
    sync_some(16, 64);  // BUG a_barrier_that_there_is_not: named barrier
    y[threads * blockIdx.x + t] = x[t];
}
LAUNCH(a_barrier_that_there_is_not, numbers)

__global__ void alone(const float* x, float* y) {
    const int t = threadIdx.x;
    if (t < 32) sync_some(1, 64);  // BUG waits_for_warps_that_never_come: deadlock
    y[threads * blockIdx.x + t] = x[t];
    if (t >= 32) sync_some(2, 64);
}
LAUNCH(waits_for_warps_that_never_come, alone)

__global__ void other_number(const float* x, float* y) {
    __shared__ float s[32];
    const int t = threadIdx.x;
    if (t < 32) {
        s[t] = x[t];
        arrive_some(1, 64);
        sync_some(2, 64);
    } else {
        arrive_some(2, 64);
        y[32 * blockIdx.x + t] = s[t - 32];  // BUG reads_before_the_named_barrier: race
        sync_some(1, 64);
    }
}
LAUNCH(reads_before_the_named_barrier, other_number)

__global__ void reused(const float* x, float* y) {
    __shared__ float s[32];
    const int t = threadIdx.x;
    for (int k = 0; k < 2; k++) {
        if (t < 32) {
            s[t] = x[32 * k + t];  // BUG producer_does_not_wait_for_the_consumer: race
            arrive_some(1 + k, 64);
        } else {
            sync_some(1 + k, 64);
            y[64 * blockIdx.x + 32 * k + t - 32] = s[63 - t];
        }
    }
}
LAUNCH(producer_does_not_wait_for_the_consumer, reused)

// ---- Registers

__global__ void greedy(const float* x, float* y) {
    const int t = threadIdx.x;
    if (t < 128)
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    else
        asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");  // BUG too_many_registers: setmaxnreg
    y[t] = x[t];
}
EXPORT(too_many_registers, greedy<<<1, 384>>>(x, y))

__global__ void odd_count(const float* x, float* y) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 42;");  // BUG registers_by_twos: setmaxnreg
    y[threadIdx.x] = x[threadIdx.x];
}
EXPORT(registers_by_twos, odd_count<<<1, 128>>>(x, y))
