// Planted bugs: copies by cp.async that are used too early, or overwrite what is still in use.
#include "asynchronous.cuh"
#include "export.cuh"

// Each kernel goes through x in stages of 64 floats, with 16 threads that copy 4 each.
constexpr int stage = 64, threads = 16;

__global__ void never(const float* x, float* y) {
    __shared__ alignas(16) float s[stage];
    const int t = threadIdx.x;
    copy16(&s[4 * t], x + 4 * t);
    commit();
    __syncthreads();
    for (int i = 0; i < 4; i++)
        y[4 * t + i] = s[stage - 1 - 4 * t - i];  // BUG never_waits: asynchronous race
}
EXPORT(never_waits, never<<<1, threads>>>(x, y))

__global__ void uncommitted(const float* x, float* y) {
    __shared__ alignas(16) float s[stage];
    const int t = threadIdx.x;
    copy16(&s[4 * t], x + 4 * t);
    wait_for<0>();
    __syncthreads();
    y[t] = s[stage - 1 - t];  // BUG waits_before_it_commits: asynchronous race
}
EXPORT(waits_before_it_commits, uncommitted<<<1, threads>>>(x, y))

__global__ void own_alone(const float* x, float* y) {
    __shared__ alignas(16) float s[stage];
    const int t = threadIdx.x;
    copy16(&s[4 * t], x + 4 * t);
    commit();
    wait_for<0>();
    y[t] = s[(4 * t + 4) % stage];  // BUG no_barrier_after_the_wait: asynchronous race
}
EXPORT(no_barrier_after_the_wait, own_alone<<<1, threads>>>(x, y))

__global__ void barrier_first(const float* x, float* y) {
    __shared__ alignas(16) float s[stage];
    const int t = threadIdx.x;
    copy16(&s[4 * t], x + 4 * t);
    commit();
    __syncthreads();
    wait_for<0>();
    y[t] = s[(4 * t + 4) % stage];  // BUG barrier_before_the_wait: asynchronous race
}
EXPORT(barrier_before_the_wait, barrier_first<<<1, threads>>>(x, y))

template <int stages, int prior, bool ends_with_barrier>
DEVICE float pipeline(const float* x, float (&s)[stages][stage], int ahead) {
    const int t = threadIdx.x;
    float sum = 0;
    for (int k = 0; k < ahead; k++) {
        copy16(&s[k % stages][4 * t], x + stage * k + 4 * t);
        commit();
    }
    for (int k = 0; k < 8; k++) {
        wait_for<prior>();
        __syncthreads();
        const int next = k + ahead;
        float* to = &s[next % stages][4 * t];
        if (next < 8) copy16(to, x + stage * next + 4 * t);  // BUG stage_too_few: asynchronous race
        commit();
        sum += s[k % stages][stage - 1 - t];  // BUG one_group_too_many: asynchronous race
        if (ends_with_barrier) __syncthreads();
    }
    return sum;
}
__global__ void too_few(const float* x, float* y) {
    __shared__ alignas(16) float s[3][stage];
    y[threadIdx.x] = pipeline<3, 2, false>(x, s, 3);
}
EXPORT(stage_too_few, too_few<<<1, threads>>>(x, y))
__global__ void too_many(const float* x, float* y) {
    __shared__ alignas(16) float s[4][stage];
    y[threadIdx.x] = pipeline<4, 3, true>(x, s, 3);
}
EXPORT(one_group_too_many, too_many<<<1, threads>>>(x, y))

__global__ void reused(const float* x, float* y) {
    __shared__ alignas(16) float s[2][stage];
    const int t = threadIdx.x;
    float sum = 0;
    copy16(&s[0][4 * t], x + 4 * t);
    commit();
    for (int k = 0; k < 4; k++) {
        const float* next = x + stage * (k + 1) + 4 * t;
        copy16(&s[(k + 1) % 2][4 * t], next);  // BUG lacks_a_barrier: asynchronous race
        commit();
        wait_for<1>();
        __syncthreads();
        sum += s[k % 2][stage - 1 - t];
    }
    y[t] = sum;
}
EXPORT(lacks_a_barrier, reused<<<1, threads>>>(x, y))

__global__ void over_written(const float* x, float* y) {
    __shared__ alignas(16) float s[stage];
    const int t = threadIdx.x;
    copy16(&s[4 * t], x + 4 * t);
    commit();
    s[4 * t] = 1;  // BUG writes_while_it_copies: asynchronous race
    wait_for<0>();
    y[t] = s[4 * t];
}
EXPORT(writes_while_it_copies, over_written<<<1, threads>>>(x, y))

__global__ void twice(const float* x, float* y) {
    __shared__ alignas(16) float s[stage];
    const int t = threadIdx.x;
    copy16(&s[4 * t], x + 4 * t);
    copy16(&s[4 * (t / 2)], x + 4 * t);  // BUG two_copies_to_one_place: asynchronous race
    commit();
    wait_for<0>();
    __syncthreads();
    y[t] = s[t];
}
EXPORT(two_copies_to_one_place, twice<<<1, threads>>>(x, y))

__global__ void not_counted(const float* x, float* y) {
    __shared__ alignas(16) float s[stage];
    __shared__ uint64_t full;
    const int t = threadIdx.x;
    if (t == 0) init(&full, threads);
    __syncthreads();
    copy16(&s[4 * t], x + 4 * t);
    arrive(&full);
    wait_phase(&full, 0);
    y[t] = s[stage - 1 - t];  // BUG arrives_before_its_copies: asynchronous race
}
EXPORT(arrives_before_its_copies, not_counted<<<1, threads>>>(x, y))

__global__ void past_the_end(const float* x, float* y, int n) {
    __shared__ alignas(16) float s[stage];
    const int t = threadIdx.x;
    copy16(&s[4 * t], x + n - 4 * t);  // BUG copies_past_the_end: out of bounds
    commit();
    wait_for<0>();
    y[t] = s[4 * t];
}
EXPORT(copies_past_the_end, past_the_end<<<1, threads>>>(x, y, n))

__global__ void odd_place(const float* x, float* y) {
    __shared__ alignas(16) float s[stage];
    const int t = threadIdx.x;
    copy16(&s[4 * t], x + 4 * t + 1);  // BUG copies_from_an_odd_place: misaligned
    commit();
    wait_for<0>();
    y[t] = s[4 * t];
}
EXPORT(copies_from_an_odd_place, odd_place<<<1, threads>>>(x, y))
