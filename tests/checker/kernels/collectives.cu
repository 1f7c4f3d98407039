// What blocks sort, scan, multiply and meet by.
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
__global__ void bitonic_in_memory(const float* x, float* y, int n) {
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
EXPORT(sort_by_warps, bitonic_in_memory<<<blocks_of(n), kThreads>>>(x, y, n))

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

// C = A * B of 32 x 16 and 16 x 32 numbers: tiles of 8 of K, 4 x 4 of C in a thread's registers.
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
        if ((row + r) * kRows + column < 1000)
            *reinterpret_cast<float4*>(&y[(row + r) * kRows + column]) =
                make_float4(c[r][0], c[r][1], c[r][2], c[r][3]);
}
EXPORT(matmul_with_tiles_in_registers, register_tiles<4, true><<<1, 64>>>(x, y))
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
EXPORT(barrier_for_too_many,
       one_too_many<<<blocks_of(n), kThreads>>>(x, y, Cleared<unsigned>().data, n))

// The barrier is never set back, so the second time nobody waits.
__global__ void meets_once(const float* x, float* y, unsigned* arrived, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i < n) y[i] = x[i];
    meet_by_hand(arrived, gridDim.x);
    const float other = i < n ? y[(i + kThreads) % n] : 0;
    meet_by_hand(arrived, gridDim.x);
    if (i < n) y[i] = other;  // BUG grid_barrier_used_twice: race
}
EXPORT(grid_barrier_used_twice, cooperate(meets_once, x, y, Cleared<unsigned>().data, n))

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
EXPORT(grid_barrier_of_one_thread, cooperate(no_barrier_before, x, y, Cleared<unsigned>(2).data, n))

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
EXPORT(flag_before_the_sum,
       flag_first<<<blocks_of(n), kThreads>>>(x, y, Cleared<float>(blocks_of(n)).data,
                                              Cleared<int>(blocks_of(n)).data, Cleared<int>().data,
                                              n))

// One block sets the counter back after its own turn, when others are to come.
__global__ void one_sets_back(const float* x, float* y, unsigned* arrived, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i < n) y[i] = x[i];
    if (threadIdx.x) return;
    atomicAdd(arrived, 1);
    if (blockIdx.x == 1) *arrived = 0;  // BUG counter_set_back_too_early: race
}
EXPORT(counter_set_back_too_early,
       one_sets_back<<<blocks_of(n), kThreads>>>(x, y, Cleared<unsigned>().data, n))

// ---- Nothing is to be found in these

// ---- Scans and sorts of a block

template <int repeats>
__global__ void scans(const float* x, float* y, int n) {
    __shared__ Scan scan;
    const int i = blockIdx.x * kThreads + threadIdx.x;
    float value = i < n ? x[i] : 0;
    for (int k = 0; k < repeats; k++) {
        value = scan_of_block(scan, value);
        __syncthreads();  // the next one uses the same memory
    }
    if (i < n) y[i] = value;
}
EXPORT(scan_of_a_block, scans<1><<<blocks_of(n), kThreads>>>(x, y, n))
EXPORT(scans_in_the_same_memory, scans<3><<<blocks_of(n), kThreads>>>(x, y, n))

// A step of a radix sort: of each warp a row of counters, of which a scan makes places.
__global__ void radix_step(const float* x, float* y, int n, int shift) {
    __shared__ unsigned counts[kWarps][kDigits], keys[kThreads];
    const int t = threadIdx.x, warp = t / kWarp, lane = t % kWarp;
    const int i = blockIdx.x * kThreads + t;
    for (int k = t; k < kWarps * kDigits; k += kThreads) counts[k / kDigits][k % kDigits] = 0;
    __syncthreads();
    const unsigned key = i < n ? __float_as_uint(x[i]) : ~0u;
    const int digit = key >> shift & (kDigits - 1);
    const unsigned peers = __match_any_sync(~0u, digit);
    const unsigned before = __popc(peers & ((1u << lane) - 1));
    if (before == 0) counts[warp][digit] = __popc(peers);
    __syncthreads();
    if (t < kDigits) place_digits(counts, t);
    __syncthreads();
    keys[counts[warp][digit] + before] = key;
    __syncthreads();
    if (i < n) y[i] = __uint_as_float(keys[t]);
}
EXPORT(step_of_a_radix_sort, radix_step<<<blocks_of(n), kThreads>>>(x, y, n, 20))

// Keys change places within a warp by shuffles, and over warps through shared memory.
__global__ void bitonic(const float* x, float* y, int n) {
    __shared__ float keys[kThreads];
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    float mine = i < n ? x[i] : 1e30f;
    for (int size = 2; size <= kThreads; size *= 2) {
        for (int step = size / 2; step > 0; step /= 2) {
            float other;
            if (step < kWarp) {
                other = __shfl_xor_sync(~0u, mine, step);
            } else {
                keys[t] = mine;
                __syncthreads();
                other = keys[t ^ step];
                __syncthreads();
            }
            const bool wants_less = !(t & step) == !(t & size);
            mine = wants_less ? fminf(mine, other) : fmaxf(mine, other);
        }
    }
    if (i < n) y[i] = mine;
}
EXPORT(bitonic_sort, bitonic<<<blocks_of(n), kThreads>>>(x, y, n))

// ---- Tiles

// A block's plane of a stencil, with a ring of neighbours, through several steps in two tiles.
__global__ void stencil(const float* x, float* y, int n) {
    __shared__ float tile[2][kSide + 2][kSide + 2];
    const int column = threadIdx.x, row = threadIdx.y;
    for (int r = row; r < kSide + 2; r += kSide)
        for (int c = column; c < kSide + 2; c += kSide) {
            const int i = (blockIdx.x * kSide + r - 1) * kSide + c - 1;
            tile[0][r][c] = tile[1][r][c] = i >= 0 && i < n ? x[i] : 0;
        }
    __syncthreads();
    for (int k = 0; k < 3; k++) {
        const auto& from = tile[k % 2];
        tile[(k + 1) % 2][row + 1][column + 1] =
            from[row][column + 1] + from[row + 2][column + 1] + from[row + 1][column] +
            from[row + 1][column + 2] - 4 * from[row + 1][column + 1];
        __syncthreads();
    }
    const int i = (blockIdx.x * kSide + row) * kSide + column;
    if (i < n) y[i] = tile[1][row + 1][column + 1];
}
EXPORT(stencil_with_halo,
       stencil<<<(n + kSide * kSide - 1) / (kSide * kSide), dim3(kSide, kSide)>>>(x, y, n))

// ---- Blocks that meet, and blocks that look back

// As the cooperative groups do it: the last to arrive lets the others go on.
__global__ void barriers_by_hand(const float* x, float* y, unsigned* arrived, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i < n) y[i] = x[i];
    for (unsigned k = 1; k <= 3; k++) {
        meet_by_hand(arrived, k * gridDim.x);
        const float other = i < n ? y[(i + kThreads) % n] : 0;
        meet_by_hand(arrived + 1, k * gridDim.x);
        if (i < n) y[i] = other + 1;
    }
}
EXPORT(grid_barrier_by_hand, cooperate(barriers_by_hand, x, y, Cleared<unsigned>(2).data, n))

// The phase is known by the counter's sign, which the block that comes first of all turns: nobody
// has to set it back.
__global__ void barriers_by_sign(const float* x, float* y, unsigned* counter, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i < n) y[i] = x[i];
    for (int k = 0; k < 3; k++) {
        __syncthreads();
        if (threadIdx.x == 0) {
            __threadfence();
            const unsigned add = blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1;
            const unsigned before = atomicAdd(counter, add);
            while (!((before ^ *reinterpret_cast<volatile unsigned*>(counter)) & 0x80000000u)) {
            }
            __threadfence();
        }
        __syncthreads();
        const float other = i < n ? y[(i + (k + 1) * kThreads) % n] : 0;
        cooperative_groups::this_grid().sync();
        if (i < n) y[i] = other * 2;
    }
}
EXPORT(grid_barrier_by_sign, cooperate(barriers_by_sign, x, y, Cleared<unsigned>().data, n))

// A sum and what it stands for come in one word, so that no fence is needed between them. A warp
// looks back 32 blocks at a time.
__global__ void one_word(const float* x, float* y, volatile unsigned long long* words, int* ticket,
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
        words[b] = word_of(b ? kOwn : kAll, sum);
        if (b == 0) before = 0;
    }
    if (b > 0 && t < kWarp) {
        float left = 0;
        for (int first = b - 1;; first -= kWarp) {
            const int k = first - t;
            unsigned long long word = word_of(kAll, 0);
            if (k >= 0) do
                    word = words[k];
                while (state_of(word) == kNone);
            const unsigned all = __ballot_sync(~0u, state_of(word) == kAll);
            const int last = all ? __ffs(all) - 1 : kWarp - 1;
            float part = t <= last ? sum_of(word) : 0;
            for (int d = 16; d; d /= 2) part += __shfl_xor_sync(~0u, part, d);
            left += part;
            if (all) break;
        }
        if (t == 0) before = left;
    }
    __syncthreads();
    if (b > 0 && t == kThreads - 1) words[b] = word_of(kAll, before + sum);
    if (i < n) y[i] = sum + before;
}
EXPORT(look_back_in_one_word,
       one_word<<<blocks_of(n), kThreads>>>(x, y, Cleared<unsigned long long>(blocks_of(n)).data,
                                            Cleared<int>().data, n))

// Of the lanes that want the same counter one asks for all.
__global__ void aggregated(const float* x, float* y, int* count, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i < n && x[i] > 0) {
        const auto those = cooperative_groups::coalesced_threads();
        int first = 0;
        if (those.thread_rank() == 0) first = atomicAdd(count, those.size());
        y[those.shfl(first, 0) + those.thread_rank()] = x[i];
    }
}
__global__ void rest_is_zero(float* y, const int* count, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i < n && i >= *count) y[i] = 0;
}
extern "C" void stream_compaction(const float* x, float* y, int n) {
    Cleared<int> count;
    aggregated<<<blocks_of(n), kThreads>>>(x, y, count.data, n);
    rest_is_zero<<<blocks_of(n), kThreads>>>(y, count.data, n);
}

// The last block to come sets the counter back, for the next launch.
__global__ void last_sets_back(const float* x, float* y, unsigned* arrived, int n) {
    __shared__ bool is_last;
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i < n) y[i] = x[i];
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) is_last = atomicInc(arrived, gridDim.x) == gridDim.x - 1;
    __syncthreads();
    if (is_last && threadIdx.x == 0) {
        __threadfence();
        y[0] = y[n - 1] + y[kThreads];
        *arrived = 0;
    }
}
extern "C" void counter_set_back_by_the_last(const float* x, float* y, int n) {
    Cleared<unsigned> arrived;
    for (int k = 0; k < 2; k++) last_sets_back<<<blocks_of(n), kThreads>>>(x, y, arrived.data, n);
}
