// Planted bugs in what blocks sort, scan, multiply and meet by. Every function takes (const float*
// x, float* y, int n) with n = 1000; a line that is wrong ends with BUG, the function and what the
// checker says.

#include "collectives.cuh"
#include "export.cuh"

// ---- Scans and sorts of a block

__global__ void same_memory(const float* x, float* y, int n) {
    __shared__ Scan scan;
    const int i = blockIdx.x * kThreads + threadIdx.x, warp = threadIdx.x / kWarp;
    float value = i < n ? x[i] : 0;
    for (int k = 0; k < 2; k++) {
        value = scan_of_warp(value);
        if (threadIdx.x % kWarp == kWarp - 1)
            scan.of_warps[warp] = value;  // BUG scan_memory_used_again: race
        __syncthreads();
        for (int w = 0; w < warp; w++) value += scan.of_warps[w];
    }
    if (i < n) y[i] = value;
}
EXPORT(scan_memory_used_again, same_memory<<<blocks_of(n), kThreads>>>(x, y, n))

// A meeting of a warp makes its own sum known, not those of the warps before.
__global__ void of_one_warp(const float* x, float* y, int n) {
    __shared__ float sums[kWarps];
    const int i = blockIdx.x * kThreads + threadIdx.x, warp = threadIdx.x / kWarp;
    float value = scan_of_warp(i < n ? x[i] : 0);
    if (threadIdx.x % kWarp == kWarp - 1) sums[warp] = value;
    __syncwarp();
    for (int w = 0; w < warp; w++) value += sums[w];  // BUG scan_within_a_warp_alone: race
    if (i < n) y[i] = value;
}
EXPORT(scan_within_a_warp_alone, of_one_warp<<<blocks_of(n), kThreads>>>(x, y, n))

// Where keys go in a radix sort: of each warp a row of counters, of which a scan makes places.
template <bool clears, bool waits>
__global__ void radix_rank(const float* x, float* y, int n) {
    __shared__ unsigned counts[kWarps][kDigits];
    const int t = threadIdx.x, warp = t / kWarp, lane = t % kWarp;
    const int i = blockIdx.x * kThreads + t;
    if (clears)
        for (int k = t; k < kWarps * kDigits; k += kThreads) counts[k / kDigits][k % kDigits] = 0;
    __syncthreads();
    const int digit = i < n ? __float_as_uint(x[i]) >> 20 & (kDigits - 1) : kDigits - 1;
    const unsigned peers = __match_any_sync(~0u, digit);
    const unsigned before = __popc(peers & ((1u << lane) - 1));
    if (before == 0) counts[warp][digit] += __popc(peers);  // BUG digits_not_cleared: uninitialised
    __syncthreads();
    if (t < kDigits) place_digits(counts, t);
    if (waits) __syncthreads();
    const unsigned place = counts[warp][digit] + before;  // BUG places_read_too_early: race
    if (i < n) y[i] = place;
}
EXPORT(digits_not_cleared, radix_rank<false, true><<<blocks_of(n), kThreads>>>(x, y, n))
EXPORT(places_read_too_early, radix_rank<true, false><<<blocks_of(n), kThreads>>>(x, y, n))

// Steps of less than 32 stay within a warp, and the barrier was left out for them: but the first of
// them reads what other warps have written.
__global__ void bitonic(const float* x, float* y, int n) {
    __shared__ float keys[kThreads];
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    keys[t] = i < n ? x[i] : 1e30f;
    __syncthreads();
    for (int size = 2; size <= kThreads; size *= 2) {
        for (int step = size / 2; step > 0; step /= 2) {
            if (!(t & step)) {
                const float a = keys[t], b = keys[t ^ step];
                const bool ascends = !(t & size);
                keys[t] = ascends ? fminf(a, b) : fmaxf(a, b);
                keys[t ^ step] = ascends ? fmaxf(a, b) : fminf(a, b);  // BUG sort_by_warps: race
            }
            if (step > kWarp)
                __syncthreads();
            else
                __syncwarp();
        }
    }
    __syncthreads();
    if (i < n) y[i] = keys[t];
}
EXPORT(sort_by_warps, bitonic<<<blocks_of(n), kThreads>>>(x, y, n))

// ---- Tiles

// The ring of neighbours lacks its corners, which a stencil of nine points reads.
__global__ void no_corners(const float* x, float* y, int n) {
    __shared__ float tile[kSide + 2][kSide + 2];
    const int c = threadIdx.x + 1, r = threadIdx.y + 1;
    const int i = (blockIdx.x * kSide + r - 1) * kSide + c - 1;
    const auto at = [&](int k) { return k >= 0 && k < n ? x[k] : 0; };
    tile[r][c] = at(i);
    if (r == 1) tile[0][c] = at(i - kSide);
    if (r == kSide) tile[kSide + 1][c] = at(i + kSide);
    if (c == 1) tile[r][0] = at(i - 1);
    if (c == kSide) tile[r][kSide + 1] = at(i + 1);
    __syncthreads();
    float sum = 0;
    for (int dr = -1; dr <= 1; dr++)
        for (int dc = -1; dc <= 1; dc++)
            sum += tile[r + dr][c + dc];  // BUG corners_of_the_halo: uninitialised
    if (i < n) y[i] = sum;
}
EXPORT(corners_of_the_halo,
       no_corners<<<(n + kSide * kSide - 1) / (kSide * kSide), dim3(kSide, kSide)>>>(x, y, n))

// A step of a stencil in one tile: who is slow sees neighbours that are a step ahead.
__global__ void in_place(const float* x, float* y, int n) {
    __shared__ float tile[kThreads + 2];
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    tile[t + 1] = i < n ? x[i] : 0;
    if (t == 0) tile[0] = tile[kThreads + 1] = 0;
    for (int k = 0; k < 3; k++) {
        __syncthreads();
        tile[t + 1] = tile[t] + tile[t + 2];  // BUG stencil_in_place: race
    }
    if (i < n) y[i] = tile[t + 1];
}
EXPORT(stencil_in_place, in_place<<<blocks_of(n), kThreads>>>(x, y, n))

// pad: floats behind each row of A's tile. One keeps off bank conflicts, but no float4 from four
// rows' beginnings.
template <int pad, bool waits>
__global__ void register_tiles(const float* x, float* y) {
    __shared__ alignas(16) float a[8][kRows + pad], b[8][kRows];
    const int t = threadIdx.x, row = t / 8 * 4, column = t % 8 * 4;
    float c[4][4] = {};
    for (int k = 0; k < 16; k += 8) {
        for (int i = t; i < 8 * kRows; i += 64) {
            a[i % 8][i / 8] = x[i / 8 * 16 + k + i % 8];
            const int r = i / kRows, s = i % kRows;
            b[r][s] = x[(k + r) * kRows + s];  // BUG tiles_refilled_at_once: race
        }
        __syncthreads();
        for (int j = 0; j < 8; j++) {
            const auto* at = reinterpret_cast<float4*>(&a[j][row]);
            const float4 of_a = *at;  // BUG rows_padded_by_one: misaligned
            const float4 of_b = *reinterpret_cast<float4*>(&b[j][column]);
            add_products(c, of_a, of_b);
        }
        if (waits) __syncthreads();
    }
    for (int r = 0; r < 4; r++)
        for (int s = 0; s < 4; s++)
            if ((row + r) * kRows + column + s < 1000) y[(row + r) * kRows + column + s] = c[r][s];
}
EXPORT(rows_padded_by_one, register_tiles<1, true><<<1, 64>>>(x, y))
EXPORT(tiles_refilled_at_once, register_tiles<4, false><<<1, 64>>>(x, y))

// ---- Blocks that meet, and blocks that look back

// One block more is waited for than there are.
__global__ void one_too_many(const float* x, float* y, unsigned* arrived, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (threadIdx.x == 0) {
        atomicAdd(arrived, 1);
        while (atomicAdd(arrived, 0) != gridDim.x + 1)  // BUG barrier_for_too_many: deadlock
            continue;
    }
    __syncthreads();
    if (i < n) y[i] = x[i];
}
extern "C" void barrier_for_too_many(const float* x, float* y, int n) {
    Cleared<unsigned> arrived;
    one_too_many<<<blocks_of(n), kThreads>>>(x, y, arrived.data, n);
}

// The barrier is never set back, so the second time nobody waits.
__global__ void meets_once(const float* x, float* y, unsigned* arrived, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i < n) y[i] = x[i];
    meet_by_hand(arrived, gridDim.x);
    const float other = i < n ? y[(i + kThreads) % n] : 0;
    meet_by_hand(arrived, gridDim.x);
    if (i < n) y[i] = other;  // BUG grid_barrier_used_twice: race
}
extern "C" void grid_barrier_used_twice(const float* x, float* y, int n) {
    Cleared<unsigned> arrived;
    cooperate(meets_once, x, y, arrived.data, n);
}

// All threads of the block have written, and only thread 0 tells: the others may come later.
__global__ void no_barrier_before(const float* x, float* y, unsigned* arrived, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i < n) y[i] = x[i];  // BUG grid_barrier_of_one_thread: race
    if (threadIdx.x == 0) {
        __threadfence();
        atomicAdd(arrived, 1);
        while (*reinterpret_cast<volatile unsigned*>(arrived) < gridDim.x) {
        }
        __threadfence();
    }
    __syncthreads();
    const float other = i < n ? y[(i + kThreads) % n] : 0;
    meet_by_hand(arrived + 1, gridDim.x);
    if (i < n) y[i] = other;
}
extern "C" void grid_barrier_of_one_thread(const float* x, float* y, int n) {
    Cleared<unsigned> arrived(2);
    cooperate(no_barrier_before, x, y, arrived.data, n);
}

// The flag goes out before the sum that it stands for.
__global__ void flag_first(const float* x, float* y, float* sums, volatile int* flags, int* ticket,
                           int n) {
    __shared__ Scan scan;
    __shared__ float before;
    __shared__ int b;
    const int t = threadIdx.x;
    if (t == 0) b = atomicAdd(ticket, 1);
    __syncthreads();
    const int i = b * kThreads + t;
    const float sum = scan_of_block(scan, i < n ? x[i] : 0);
    if (t == kThreads - 1) {
        before = 0;
        if (b > 0) {
            while (flags[b - 1] == 0) {
            }
            __threadfence();
            before = sums[b - 1];
        }
        __threadfence();
        flags[b] = 1;
        sums[b] = before + sum;  // BUG flag_before_the_sum: race
    }
    __syncthreads();
    if (i < n) y[i] = sum + before;
}
extern "C" void flag_before_the_sum(const float* x, float* y, int n) {
    Cleared<float> sums(blocks_of(n));
    Cleared<int> flags(blocks_of(n)), ticket;
    flag_first<<<blocks_of(n), kThreads>>>(x, y, sums.data, flags.data, ticket.data, n);
}

// One block sets the counter back after its own turn, when others are to come.
__global__ void one_sets_back(const float* x, float* y, unsigned* arrived, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i < n) y[i] = x[i];
    if (threadIdx.x) return;
    atomicAdd(arrived, 1);
    if (blockIdx.x == 1) *arrived = 0;  // BUG counter_set_back_too_early: race
}
extern "C" void counter_set_back_too_early(const float* x, float* y, int n) {
    Cleared<unsigned> arrived;
    one_sets_back<<<blocks_of(n), kThreads>>>(x, y, arrived.data, n);
}
