// Kernels of varied style with nothing wrong with them: the checker must find nothing.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include "export.cuh"

namespace cg = cooperative_groups;

__global__ void copy(const float* x, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i < n) y[i] = __ldg(x + i);
}
EXPORT(one_thread_per_element, copy<<<blocks_of(n), kThreads>>>(x, y, n))

__global__ void strided(const float* __restrict__ x, float* __restrict__ y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        y[i] = x[i] * 2;
}
EXPORT(grid_stride_loop, strided<<<3, 96>>>(x, y, n))

__global__ void fours(const float4* x, float4* y, int count) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i >= count) return;
    float4 v = x[i];
    v.x += 1, v.w *= 2;
    y[i] = v;
}
EXPORT(vectors_of_four, fours<<<2, kThreads>>>(reinterpret_cast<const float4*>(x),
                                               reinterpret_cast<float4*>(y), n / 4))

__global__ void reverse_tile(const float* x, float* y, int n) {
    __shared__ float tile[kThreads];
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    tile[t] = i < n ? x[i] : 0;
    __syncthreads();
    if (i < n) y[i] = tile[kThreads - 1 - t];
}
EXPORT(tile_with_a_barrier, reverse_tile<<<blocks_of(n), kThreads>>>(x, y, n))

__global__ void two_tiles(const float* x, float* y, int n) {
    __shared__ float tile[2][kThreads];
    const int t = threadIdx.x;
    int turn = 0;
    for (int first = 0; first < n; first += kThreads, turn ^= 1) {
        if (first + t < n) tile[turn][t] = x[first + t];
        __syncthreads();
        const int other = first + kThreads - 1 - t;
        if (other < n) y[other] = tile[turn][kThreads - 1 - t];
    }
}
EXPORT(double_buffer, two_tiles<<<1, kThreads>>>(x, y, n))

extern __shared__ float dynamic[];
__global__ void tree(const float* x, float* y, int n) {
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    dynamic[t] = i < n ? x[i] : 0;
    for (int half = kThreads / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) dynamic[t] += dynamic[t + half];
    }
    __syncthreads();
    if (i < n) y[i] = dynamic[0];
}
EXPORT(tree_in_dynamic_memory, tree<<<blocks_of(n), kThreads, kThreads * sizeof(float)>>>(x, y, n))

__global__ void warp_tree(const float* x, float* y, int n) {
    __shared__ float sums[kThreads];
    const int t = threadIdx.x, lane = t % kWarp, i = blockIdx.x * kThreads + t;
    float* mine = sums + t - lane;
    mine[lane] = i < n ? x[i] : 0;
    __syncwarp();
    for (int half = kWarp / 2; half > 0; half /= 2) {
        const float other = lane < half ? mine[lane + half] : 0;
        __syncwarp();
        mine[lane] += other;
        __syncwarp();
    }
    if (i < n) y[i] = mine[0];
}
EXPORT(tree_of_a_warp, warp_tree<<<blocks_of(n), kThreads>>>(x, y, n))

__global__ void shuffles(const float* x, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    float sum = i < n ? x[i] : 0;
    for (int step = kWarp / 2; step > 0; step /= 2) sum += __shfl_down_sync(~0u, sum, step);
    sum = __shfl_sync(~0u, sum, 0);
    if (i < n) y[i] = sum;
}
EXPORT(shuffle_down_and_broadcast, shuffles<<<blocks_of(n), kThreads>>>(x, y, n))

__global__ void vote(const float* x, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    const unsigned there = __ballot_sync(~0u, i < n);
    if (i < n) y[i] = __popc(__ballot_sync(there, x[i] > 0));
}
EXPORT(vote_of_those_inside, vote<<<blocks_of(n), kThreads>>>(x, y, n))

__global__ void histogram(const float* x, float* y, int n) {
    __shared__ int bins[16];
    const int t = threadIdx.x;
    if (t < 16) bins[t] = 0;
    __syncthreads();
    for (int i = t; i < n; i += kThreads) atomicAdd(&bins[int((x[i] + 2) * 100) & 15], 1);
    __syncthreads();
    for (int i = t; i < n; i += kThreads) y[i] = bins[i & 15];
}
EXPORT(atomic_histogram, histogram<<<1, kThreads>>>(x, y, n))

__global__ void add_up(const float* x, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i < n) atomicAdd(&y[i % 7], x[i]);
}
EXPORT(atomic_float_sum, add_up<<<blocks_of(n), kThreads>>>(x, y, n))

__device__ unsigned ticket;
__global__ void last_block(const float* x, float* y, int n) {
    __shared__ bool last;
    const int t = threadIdx.x;
    for (int i = blockIdx.x * kThreads + t; i < n; i += gridDim.x * kThreads) y[i] = x[i];
    __threadfence();
    __syncthreads();
    if (t == 0) last = atomicInc(&ticket, gridDim.x - 1) == gridDim.x - 1;
    __syncthreads();
    if (last && t == 0) {
        float sum = 0;
        for (int i = 0; i < n; ++i) sum += y[i];
        y[0] = sum;
    }
}
EXPORT(ticket_with_a_fence, last_block<<<4, kThreads>>>(x, y, n))

__device__ int lock;
__global__ void locked(const float* x, float* y, int n) {
    for (int i = blockIdx.x * kThreads + threadIdx.x; i < n; i += gridDim.x * kThreads) {
        if (i) y[i] = x[i];
    }
    if (threadIdx.x == 0) {
        while (atomicCAS(&lock, 0, 1) != 0) {
        }
        __threadfence();
        y[0] += x[blockIdx.x];
        __threadfence();
        atomicExch(&lock, 0);
    }
}
EXPORT(spin_lock, locked<<<4, kThreads>>>(x, y, n))

__global__ void groups(const float* x, float* y, int n) {
    const auto block = cg::this_thread_block();
    const auto tile = cg::tiled_partition<8>(block);
    __shared__ float sums[kThreads / 8];
    const int t = block.thread_rank(), i = blockIdx.x * kThreads + t;
    float sum = i < n ? x[i] : 0;
    for (int bit = 4; bit > 0; bit /= 2) sum += tile.shfl_xor(sum, bit);
    if (tile.thread_rank() == 0) sums[t / 8] = sum;
    block.sync();
    if (i < n) y[i] = sums[kThreads / 8 - 1 - t / 8];
}
EXPORT(tiles_of_a_group, groups<<<blocks_of(n), kThreads>>>(x, y, n))

struct Pair {
    int row;
    double value;
};
__global__ void structures(const float* x, float* y, int n) {
    __shared__ Pair pairs[kThreads];
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    pairs[t] = {i, i < n ? double(x[i]) : 0};
    __syncthreads();
    const Pair other = pairs[kThreads - 1 - t];
    if (i < n) y[i] = other.row * other.value;
}
EXPORT(structures_in_shared_memory, structures<<<blocks_of(n), kThreads>>>(x, y, n))

__global__ void bytes(const float* x, float* y, int n) {
    __shared__ unsigned char low[kThreads];
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    low[t] = i < n ? x[i] * 100 : 0;
    __syncthreads();
    if (i < n) y[i] = low[kThreads - 1 - t];
}
EXPORT(bytes_beside_each_other, bytes<<<blocks_of(n), kThreads>>>(x, y, n))

__global__ void twice(float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] *= 2;
}
extern "C" void one_launch_after_another(const float* x, float* y, int n) {
    copy<<<blocks_of(n), kThreads>>>(x, y, n);
    twice<<<4, 2 * kThreads>>>(y, n);
    twice<<<blocks_of(n), kThreads>>>(y, n);
}

// A row per block; threads beyond its end leave early, and the barrier does not wait for them.
__global__ void early_return(const float* x, float* y, int n) {
    __shared__ float tile[kThreads];
    const int t = threadIdx.x, i = blockIdx.x * 100 + t;
    if (t >= 100 || i >= n) return;
    tile[t] = x[i];
    __syncthreads();
    y[i] = tile[99 - t];
}
EXPORT(threads_that_leave_early, early_return<<<10, kThreads>>>(x, y, n))

// A tile of 32 x 33, so that a column lies in 32 banks.
__global__ void transpose(const float* x, float* y, int n) {
    __shared__ float tile[kWarp][kWarp + 1];
    const int col = threadIdx.x, row = threadIdx.y;
    if (row * kWarp + col < n) tile[row][col] = x[row * kWarp + col];
    __syncthreads();
    if (col * kWarp + row < n) y[col * kWarp + row] = tile[col][row];
}
EXPORT(padded_transpose, transpose<<<1, dim3(kWarp, kWarp)>>>(x, y, n))

__global__ void copied(const float* x, float* y, int n) {
    float row[8];
    const int i = (blockIdx.x * kThreads + threadIdx.x) * 8;
    if (i + 8 > n) return;
    memcpy(row, x + i, sizeof row);
    for (float& value : row) value += 1;
    memcpy(y + i, row, sizeof row);
}
EXPORT(memcpy_in_a_kernel, copied<<<1, kThreads>>>(x, y, n))

// Half a block waits for itself, and for its copies; and reduces in a tile of two warps.
__global__ void halves_of_a_block(const float* x, float* y, int n) {
    __shared__ float stage[2][64];
    const int i = blockIdx.x * kThreads + threadIdx.x;
    const auto half = cg::tiled_partition<64>(cg::this_thread_block());
    float* const mine = stage[half.meta_group_rank()];
    const int rank = half.thread_rank(), first = i - rank, count = min(64, n - first);
    if (rank < count) __pipeline_memcpy_async(&mine[rank], &x[i], sizeof(float));
    __pipeline_commit();
    __pipeline_wait_prior(0);
    half.sync();
    const float sum = cg::reduce(half, rank < count ? mine[rank] : 0, cg::plus<float>());
    if (rank < count) y[i] = mine[count - 1 - rank] / sum;
}
EXPORT(tiles_of_two_warps, halves_of_a_block<<<blocks_of(n), kThreads>>>(x, y, n))

// Each block keeps its part in shared memory while it reads the others' and writes there.
__global__ void neighbours(const float* x, float* y, int n) {
    __shared__ float mine[kThreads];
    const auto grid = cg::this_grid();
    const int i = grid.thread_rank(), t = threadIdx.x;
    mine[t] = i < n ? x[i] : 0;
    if (i < n) y[i] = mine[t];
    for (int round = 0; round < 3; round++) {
        grid.sync();
        const float other = i < n ? y[(i + kThreads) % n] : 0;
        grid.sync();
        if (i < n) y[i] = other + mine[kThreads - 1 - t] - mine[t];
    }
}
extern "C" void a_cooperative_grid(const float* x, float* y, int n) {
    void* arguments[] = {&x, &y, &n};
    cudaLaunchCooperativeKernel((void*)neighbours, blocks_of(n), kThreads, arguments);
}

// Types that have constructors, of which none runs here.
__global__ void in_halves(const float* x, float* y, int n) {
    __shared__ __half a[kThreads];
    __shared__ __half2 b[kThreads];
    __shared__ __nv_bfloat16 c[kThreads];
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    a[t] = __float2half(i < n ? x[i] : 0);
    b[t] = __floats2half2_rn(t, i);
    c[t] = __float2bfloat16(t);
    __syncthreads();
    const int other = kThreads - 1 - t;
    if (i < n) y[i] = __half2float(a[other] + b[other].x) + __bfloat162float(c[other]);
}
EXPORT(half_types_in_shared_memory, in_halves<<<blocks_of(n), kThreads>>>(x, y, n))

// All threads go past the barrier, or none does; some have returned before.
__global__ void rounds(const float* x, float* y, int n, int skipped) {
    __shared__ float tile[kThreads];
    const int t = threadIdx.x;
    for (int i = t; i < n; i += kThreads) {
        if (i % 2) continue;
        y[i] = x[i], y[i + 1] = 0;
    }
    __syncthreads();
    if (t >= kThreads - 8) return;
    for (int round = 0; round < 4; round++) {
        if (round == skipped) continue;
        tile[t] = x[t];
        __syncthreads();
        y[round * kThreads + t] = tile[t ^ 1];
        __syncthreads();
    }
}
EXPORT(continue_of_all_threads, rounds<<<1, kThreads>>>(x, y, n, 2))

// The same before a function's barriers.
__device__ void swap_neighbours(float* tile, const float* x, float* y) {
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = tile[threadIdx.x ^ 1];
    __syncthreads();
}
__global__ void rounds_by_function(const float* x, float* y, int n, int skipped) {
    __shared__ float tile[kThreads];
    for (int i = threadIdx.x; i < n; i += kThreads) y[i] = 0;
    __syncthreads();
    for (int round = 0; round < 4; round++) {
        if (round == skipped) continue;
        swap_neighbours(tile, x, y + round * kThreads);
    }
}
EXPORT(continue_before_a_functions_barrier, rounds_by_function<<<1, kThreads>>>(x, y, n, 2))

// The other half of an array that is aligned to twice its size.
__global__ void halves(const float* x, float* y, int n) {
    __shared__ __align__(16384) float tile[4096];
    const int i = blockIdx.x * kThreads + threadIdx.x;
    const unsigned at = unsigned(__cvta_generic_to_shared(tile)) + 4 * threadIdx.x;
    const float value = i < n ? x[i] : 0;
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(at ^ 0x2000u), "f"(value) : "memory");
    if (i < n) y[i] = tile[2048 + threadIdx.x];
}
EXPORT(other_half_of_an_aligned_array, halves<<<blocks_of(n), kThreads>>>(x, y, n))

// All threads come to the barrier of one round, and skip it in the others; the last have one less.
__global__ void barrier_of_round(const float* x, float* y, int n, int wanted) {
    for (int i = threadIdx.x, round = 0; i < n; i += kThreads, round++) {
        if (round == wanted) __syncthreads();
        y[i] = x[i];
        if (round != wanted) {
            if (wanted > round + 100) __syncthreads();
        }
    }
    if (threadIdx.x >= 24 && wanted) return;
    if (wanted >= 0) {
        __syncthreads();
    }
}
extern "C" void barrier_in_a_branch_of_all(const float* x, float* y, int n) {
    barrier_of_round<<<1, kThreads>>>(x, y, n, 3);
    barrier_of_round<<<1, kThreads>>>(x, y, n, 0);
}
