// Planted bugs: copies in bulk and of tensors, and the mbarriers that they tell.
#include "asynchronous.cuh"
#include "export.cuh"

constexpr int threads = 64, count = 128, bytes = 4 * count;

#define LAUNCH(function, kernel, ...) EXPORT(function, kernel<<<1, threads>>>(__VA_ARGS__))
#define PREPARE(arrivals)                       \
    __shared__ alignas(1024) float s[2][count]; \
    __shared__ uint64_t full[2], empty[2];      \
    const int t = threadIdx.x;                  \
    if (t == 0) {                               \
        for (int i = 0; i < 2; i++) {           \
            init(&full[i], 1);                  \
            init(&empty[i], arrivals);          \
        }                                       \
        fence_init();                           \
    }                                           \
    __syncthreads();

__global__ void never(const float* x, float* y) {
    PREPARE(threads)
    if (t == 0) {
        expect(&full[0], bytes);
        load_bulk(s[0], x, bytes, &full[0]);
    }
    __syncthreads();
    y[t] = s[0][t];  // BUG barrier_instead_of_a_wait: asynchronous race
}
LAUNCH(barrier_instead_of_a_wait, never, x, y)

__global__ void one_waits(const float* x, float* y) {
    PREPARE(threads)
    if (t == 0) {
        expect(&full[0], bytes);
        load_bulk(s[0], x, bytes, &full[0]);
        wait_phase(&full[0], 0);
    }
    y[t] = s[0][t];  // BUG only_one_thread_waits: asynchronous race
}
LAUNCH(only_one_thread_waits, one_waits, x, y)

__global__ void other_barrier(const float* x, float* y) {
    PREPARE(threads)
    if (t == 0) {
        expect(&full[0], bytes);
        load_bulk(s[0], x, bytes, &full[0]);
        expect(&full[1], bytes);
        load_bulk(s[1], x + count, bytes, &full[1]);
    }
    wait_phase(&full[0], 0);
    y[t] = s[1][t];  // BUG waits_at_the_other_stage: asynchronous race
}
LAUNCH(waits_at_the_other_stage, other_barrier, x, y)

__global__ void early_reuse(const float* x, float* y) {
    PREPARE(threads)
    if (t == 0) {
        expect(&full[0], bytes);
        load_bulk(s[0], x, bytes, &full[0]);
    }
    wait_phase(&full[0], 0);
    if (t == 0) {
        fence_proxy();
        expect(&full[1], bytes);
        load_bulk(s[0], x + count, bytes, &full[1]);  // BUG reused_early: asynchronous race
    }
    const float first = s[0][count - 1 - t];
    wait_phase(&full[1], 0);
    y[t] = first + s[0][count - 1 - t];
}
LAUNCH(reused_early, early_reuse, x, y)

__global__ void other_parity(const float* x, float* y) {
    PREPARE(threads)
    if (t == 0) {
        expect(&full[0], bytes);
        load_bulk(s[0], x, bytes, &full[0]);
    }
    __syncthreads();
    wait_phase(&full[0], 1);  // BUG waits_for_the_phase_before: wrong parity
    const float early = s[0][t];
    __syncthreads();
    wait_phase(&full[0], 0);
    y[t] = early;
}
LAUNCH(waits_for_the_phase_before, other_parity, x, y)

// The parity is never flipped: the second wait is for the first phase again.
__global__ void same_parity(const float* x, float* y) {
    PREPARE(threads)
    float sum = 0;
    for (int k = 0; k < 2; k++) {
        if (t == 0) {
            expect(&full[0], bytes);
            load_bulk(s[0], x + count * k, bytes, &full[0]);
        }
        __syncthreads();
        wait_phase(&full[0], 0);  // BUG never_flips_the_parity: wrong parity
        sum += s[0][t];
        fence_proxy();
        __syncthreads();
    }
    wait_phase(&full[0], 1);
    y[t] = sum;
}
LAUNCH(never_flips_the_parity, same_parity, x, y)

// Two warps take the steps in turn, and the ring has an odd number of stages: a warp meets a stage
// in every other round, and waits for the same parity again.
__global__ void odd_ring(const float* x, float* y) {
    constexpr int stages = 3;
    __shared__ Stages<stages> ring;
    const int t = threadIdx.x, warp = t / 32;
    ring.begin();
    float sum = 0;
    for (int step = 0; step < 12; step++) {
        const int i = step % stages, round = step / stages;
        if (t == 64) {
            ring.fetch(x, step);
        } else if (warp == step % 2) {
            uint64_t* const full = &ring.full[i];
            wait_phase(full, round % 2);  // BUG stages_of_two_in_turn_are_odd: wrong parity
            sum += ring.s[i][t % 32];
            arrive(&ring.empty[i]);
        }
    }
    if (t < 64) y[t] = sum;
}
EXPORT(stages_of_two_in_turn_are_odd, odd_ring<<<1, 96>>>(x, y))

__global__ void never_ends(const float* x, float* y) {
    PREPARE(threads)
    if (t == 0) {
        expect(&full[0], bytes);
        load_bulk(s[0], x, bytes, &full[0]);
    }
    wait_phase(&full[0], 0);
    wait_phase(&full[0], 1);  // BUG waits_for_a_phase_that_never_comes: deadlock
    y[t] = s[0][t];
}
LAUNCH(waits_for_a_phase_that_never_comes, never_ends, x, y)

__global__ void too_many(const float* x, float* y) {
    PREPARE(threads)
    if (t == 0) {
        expect(&full[0], bytes + 16);  // BUG announces_too_many_bytes: expect_tx
        load_bulk(s[0], x, bytes, &full[0]);
    }
    wait_phase(&full[0], 0);
    y[t] = s[0][t];
}
LAUNCH(announces_too_many_bytes, too_many, x, y)

__global__ void too_few(const float* x, float* y) {
    PREPARE(threads)
    if (t == 0) {
        expect(&full[0], bytes - 16);  // BUG announces_too_few_bytes: expect_tx
        load_bulk(s[0], x, bytes, &full[0]);
    }
    wait_phase(&full[0], 0);
    y[t] = s[0][t];
}
LAUNCH(announces_too_few_bytes, too_few, x, y)

__global__ void one_of_two(const float* x, float* y) {
    PREPARE(threads)
    if (t == 0) {
        expect(&full[0], bytes);  // BUG announces_one_of_two_copies: expect_tx
        load_bulk(s[0], x, bytes, &full[0]);
        load_bulk(s[1], x + count, bytes, &full[0]);
    }
    wait_phase(&full[0], 0);
    y[t] = s[0][t];
}
LAUNCH(announces_one_of_two_copies, one_of_two, x, y)

__global__ void no_expect(const float* x, float* y) {
    PREPARE(threads)
    if (t == 0) {
        arrive(&full[0]);  // the phase ends before the copy
        load_bulk(s[0], x, bytes, &full[0]);
    }
    wait_phase(&full[0], 0);
    y[t] = s[0][t];  // BUG announces_nothing: asynchronous race
}
LAUNCH(announces_nothing, no_expect, x, y)

__global__ void too_many_arrive(const float* x, float* y) {
    PREPARE(threads)
    if (t == 5)
        arrive_many(&empty[0], threads + 1);  // BUG more_arrive_than_expected: arrival count
    y[t] = x[t];
}
LAUNCH(more_arrive_than_expected, too_many_arrive, x, y)

__global__ void too_few_arrive(const float* x, float* y) {
    PREPARE(threads)
    if (t > 0) arrive(&empty[0]);
    wait_phase(&empty[0], 0);  // BUG fewer_arrive_than_expected: deadlock
    y[t] = x[t];
}
LAUNCH(fewer_arrive_than_expected, too_few_arrive, x, y)

__global__ void unseen(const float* x, float* y) {
    __shared__ uint64_t barrier;
    const int t = threadIdx.x;
    if (t == 0) init(&barrier, threads);
    arrive(&barrier);  // BUG no_barrier_after_init: mbarrier not visible
    wait_phase(&barrier, 0);
    y[t] = x[t];
}
LAUNCH(no_barrier_after_init, unseen, x, y)

// ---- Fences between proxies

// As in FlashKDA#24: the state is converted in shared memory and stored from there.
__global__ void unfenced_store(const float* x, float* y) {
    __shared__ alignas(128) float state[count];
    const int t = threadIdx.x;
    for (int i = t; i < count; i += threads)
        state[i] = 2 * x[i];  // BUG state_is_stored_unfenced: missing proxy fence
    __syncthreads();
    if (t == 0) {
        store_bulk(y, state, bytes);
        commit_bulk();
        wait_until_written<0>();
    }
}
LAUNCH(state_is_stored_unfenced, unfenced_store, x, y)

// As in FlashKDA#24: with no tiles the loop that has the fence never runs.
__global__ void empty_sequence(const float* x, float* y, int tiles) {
    __shared__ alignas(128) float state[count];
    const int t = threadIdx.x;
    for (int i = t; i < count; i += threads)
        state[i] = 0;  // BUG an_empty_sequence_has_no_fence: missing proxy fence
    for (int tile = 0; tile < tiles; tile++) {
        for (int i = t; i < count; i += threads) state[i] += x[i];
        fence_proxy();
    }
    __syncthreads();
    if (t == 0) {
        store_bulk(y, state, bytes);
        commit_bulk();
        wait_until_written<0>();
    }
}
LAUNCH(an_empty_sequence_has_no_fence, empty_sequence, x, y, 0)

// Each thread's own writes need its own fence: one thread's comes too early for the others'.
__global__ void one_fences(const float* x, float* y) {
    __shared__ alignas(128) float state[count];
    const int t = threadIdx.x;
    for (int i = t; i < count; i += threads)
        state[i] = 2 * x[i];  // BUG one_fences_for_all: missing proxy fence
    if (t == 0) fence_proxy();
    __syncthreads();
    if (t == 0) {
        store_bulk(y, state, bytes);
        commit_bulk();
        wait_until_written<0>();
    }
}
LAUNCH(one_fences_for_all, one_fences, x, y)

// As in DeepEP#642: a stage is read by threads, and the next copy into it asked for without a
// fence.
__global__ void unfenced_reuse(const float* x, float* y) {
    PREPARE(threads)
    float sum = 0;
    for (int k = 0; k < 3; k++) {
        if (t == 0) {
            expect(&full[0], bytes);
            const float* next = x + count * k;
            load_bulk(s[0], next, bytes, &full[0]);  // BUG unfenced_too: note: missing proxy fence
        }
        wait_phase(&full[0], k % 2);
        sum += s[0][t] + s[0][t + threads];
        __syncthreads();
    }
    y[t] = sum;
}
LAUNCH(unfenced_too, unfenced_reuse, x, y)

__global__ void unordered_store(const float* x, float* y) {
    __shared__ alignas(128) float state[count];
    const int t = threadIdx.x;
    for (int i = t; i < count; i += threads)
        state[i] = 2 * x[i];  // BUG stores_without_a_barrier: asynchronous race
    fence_proxy();
    if (t == 0) {
        store_bulk(y, state, bytes);
        commit_bulk();
        wait_until_written<0>();
    }
}
LAUNCH(stores_without_a_barrier, unordered_store, x, y)

// ---- Stores in bulk

__global__ void overwritten(const float* x, float* y) {
    __shared__ alignas(128) float state[count];
    const int t = threadIdx.x;
    for (int k = 0; k < 2; k++) {
        for (int i = t; i < count; i += threads)
            state[i] = k * x[i];  // BUG overwrites_what_is_stored: asynchronous race
        fence_proxy();
        __syncthreads();
        if (t == 0) {
            store_bulk(y + count * k, state, bytes);
            commit_bulk();
        }
        __syncthreads();
    }
    if (t == 0) wait_until_written<0>();
}
LAUNCH(overwrites_what_is_stored, overwritten, x, y)

// As in DeepEP#657: of two stages, the wait leaves the store of this one under way.
__global__ void store_in_flight(const float* x, float* y) {
    PREPARE(threads)
    if (t == 0) {
        for (int k = 0; k < 3; k++) {
            if (k) wait_until_read<1>();
            expect(&full[0], bytes);
            const float* next = x + count * k;
            load_bulk(s[0], next, bytes, &full[0]);  // BUG load_in_store: asynchronous race
            wait_phase(&full[0], k % 2);
            store_bulk(y + count * k, s[0], bytes);
            commit_bulk();
        }
        wait_until_written<0>();
    }
}
LAUNCH(load_in_store, store_in_flight, x, y)

__global__ void uncommitted(const float* x, float* y) {
    __shared__ alignas(128) float state[count];
    const int t = threadIdx.x;
    for (int k = 0; k < 2; k++) {
        for (int i = t; i < count; i += threads)
            state[i] = k * x[i];  // BUG waits_for_no_group: asynchronous race
        fence_proxy();
        __syncthreads();
        if (t == 0) {
            store_bulk(y + count * k, state, bytes);
            wait_until_read<0>();
        }
        __syncthreads();
    }
}
LAUNCH(waits_for_no_group, uncommitted, x, y)

__global__ void reads_result(const float* x, float* y) {
    __shared__ alignas(128) float state[count];
    const int t = threadIdx.x;
    for (int i = t; i < count; i += threads) state[i] = x[i];
    fence_proxy();
    __syncthreads();
    if (t == 0) {
        store_bulk(y, state, bytes);
        commit_bulk();
        wait_until_read<0>();
    }
    __syncthreads();
    y[count + t] = y[t];  // BUG reads_what_is_not_written_yet: asynchronous race
}
LAUNCH(reads_what_is_not_written_yet, reads_result, x, y)

// ---- Tensors

#define BOXES(function, kernel, ...)                               \
    extern "C" void function(const float* x, float* y, int) {      \
        kernel<<<1, threads>>>(map_of(x, 16, 32, __VA_ARGS__), y); \
    }

__global__ void box(const __grid_constant__ CUtensorMap map, float* y) {
    PREPARE(threads)
    if (t == 0) {
        expect(&full[0], bytes);
        load_box(s[0], &map, 0, 0, &full[0]);
    }
    __syncthreads();
    y[t] = s[0][t];  // BUG a_box_is_not_waited_for: asynchronous race
}
BOXES(a_box_is_not_waited_for, box, 4, 32)

__global__ void odd_box(const __grid_constant__ CUtensorMap map, float* y) {
    PREPARE(threads)
    if (t == 0) {
        expect(&full[0], bytes);
        load_box(s[0] + 16, &map, 0, 0, &full[0]);  // BUG a_box_at_an_odd_place: misaligned
    }
    wait_phase(&full[0], 0);
    y[t] = s[0][t];
}
BOXES(a_box_at_an_odd_place, odd_box, 4, 32)

__global__ void partial_box(const __grid_constant__ CUtensorMap map, float* y) {
    PREPARE(threads)
    if (t == 0) {
        expect(&full[0], bytes / 2);  // BUG a_box_outside_counts_too: expect_tx
        load_box(s[0], &map, 16, 0, &full[0]);
    }
    wait_phase(&full[0], 0);
    y[t] = s[0][t];
}
BOXES(a_box_outside_counts_too, partial_box, 4, 32)

__global__ void unfenced_box(const __grid_constant__ CUtensorMap map, float*) {
    __shared__ alignas(128) float tile[count];
    const int t = threadIdx.x;
    for (int i = t; i < count; i += threads)
        tile[i] = i;  // BUG a_box_is_stored_unfenced: missing proxy fence
    __syncthreads();
    if (t == 0) {
        store_box(&map, 0, 0, tile);
        commit_bulk();
        wait_until_written<0>();
    }
}
extern "C" void a_box_is_stored_unfenced(const float*, float* y, int) {
    unfenced_box<<<1, threads>>>(map_of(y, 4, 32, 4, 32), y);
}

__global__ void init_again(const float* x, float* y) {
    PREPARE(threads)
    for (int i = 0; i < 2; i++) {
        if (t == 0) {
            init(&full[0], 1);  // BUG init_of_a_live_mbarrier: mbarrier in use
            fence_init();
        }
        __syncthreads();
        if (t == 0) {
            expect(&full[0], bytes);
            load_bulk(s[i], x, bytes, &full[0]);
        }
        wait_phase(&full[0], 0);
        y[t] = s[i][t];
        __syncthreads();
    }
}
LAUNCH(init_of_a_live_mbarrier, init_again, x, y)

__global__ void no_map(const __grid_constant__ CUtensorMap map, float* y) {
    PREPARE(threads)
    if (t == 0) {
        expect(&full[0], bytes);
        load_box(s[0], &map, 0, 0, &full[0]);  // BUG a_map_that_was_refused: tensor map
    }
    wait_phase(&full[0], 0);
    y[t] = s[0][t];
}
extern "C" void a_map_that_was_refused(const float*, float* y, int) {
    no_map<<<1, threads>>>(CUtensorMap{}, y);
}
