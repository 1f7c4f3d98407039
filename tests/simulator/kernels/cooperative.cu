// Cooperative groups as CUDA's own headers have them: types that convert, tiles of any size,
// partitions, collectives and asynchronous copies.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cooperative_groups/reduce.h>
#include <cooperative_groups/scan.h>
#include <cuda_pipeline.h>
#include "launcher.h"

namespace cg = cooperative_groups;

// ---- Types

__device__ int members(const cg::thread_group& group) {
    group.sync();
    return int(group.size()) * 1000 + int(group.thread_rank());
}

__device__ float sum_of_warp(cg::thread_block_tile<32>& warp, float x) {
    for (int i = warp.size() / 2; i > 0; i /= 2) x += warp.shfl_down(x, i);
    return warp.shfl(x, 0);
}

__global__ void types(int* y) {
    cg::thread_block block = cg::this_thread_block();
    cg::thread_block_tile<32> warp = cg::tiled_partition<32>(block);
    cg::thread_block_tile<8, cg::thread_block_tile<32>> eight = cg::tiled_partition<8>(warp);
    cg::thread_block_tile<8> orphan = eight;
    cg::thread_group any = block, part = cg::tiled_partition(block, 16);
    cg::thread_group quarter = cg::tiled_partition(part, 4), copy = quarter;
    int* out = y + block.thread_rank() * 16;
    out[0] = members(block);
    out[1] = members(warp);
    out[2] = members(eight);
    out[3] = members(any);
    out[4] = members(part);
    out[5] = members(copy);
    out[6] = warp.meta_group_rank() * 100 + warp.meta_group_size();
    out[7] = orphan.meta_group_rank() * 100 + orphan.meta_group_size();
    out[8] = int(sum_of_warp(warp, float(block.thread_rank())));
    out[9] = cg::group_size(warp) * 100 + cg::thread_rank(warp);
    out[10] = members(cg::this_thread());
    out[11] = block.group_index().x * 10 + block.dim_threads().y;
    out[12] = block.thread_index().x + 10 * block.thread_index().y;
    auto token = block.barrier_arrive();
    block.barrier_wait(static_cast<decltype(token)&&>(token));
    cg::sync(warp);
}

LAUNCHER(run_types, (int* y), types<<<2, dim3(16, 5)>>>(y))

// ---- Tiles of several warps

template <int N>
__global__ void wide(int* y, double* z) {
    __shared__ cg::block_tile_memory<1024> scratch;
    __shared__ int order[1024];
    const auto block = cg::this_thread_block(scratch);
    const auto tile = cg::tiled_partition<N>(block);
    const cg::thread_block_tile<N> orphan = tile;
    const int i = block.thread_rank(), rank = tile.thread_rank();
    order[i] = i;
    if (tile.meta_group_rank() % 2) tile.sync();  // the others wait for no barrier of these
    tile.sync();
    int* out = y + i * 10;
    out[0] = order[i - rank + N - 1 - rank];
    out[1] = tile.size() * 10000 + rank;
    out[2] = orphan.meta_group_rank() * 100 + orphan.meta_group_size();
    out[3] = tile.shfl(i, 37);
    out[4] = tile.any(i == 70) * 10 + tile.all(i < 512);
    out[5] = cg::reduce(tile, i, cg::plus<int>());
    out[6] = cg::reduce(tile, i, cg::greater<int>());
    out[7] = cg::inclusive_scan(tile, i + 1);
    out[8] = cg::exclusive_scan(tile, i, [](int a, int b) { return a > b ? a : b; });
    const auto warp = cg::tiled_partition<32>(tile);
    out[9] = warp.meta_group_rank() * 100 + warp.meta_group_size();
    z[i] = cg::reduce(tile, 1.0 / (i + 1), cg::plus<double>());
}

extern "C" cudaError_t run_wide(int* y, double* z, int size) {
    if (size == 64) wide<64><<<1, 1024>>>(y, z);
    if (size == 256) wide<256><<<1, 1024>>>(y, z);
    if (size == 1024) wide<1024><<<1, 1024>>>(y, z);
    return cudaGetLastError();
}

// ---- Lanes and partitions

__global__ void lanes(int* y) {
    const int i = threadIdx.x;
    if (i % 3 == 1) return;
    const cg::coalesced_group group = cg::coalesced_threads();
    int* out = y + i * 16;
    out[0] = group.thread_rank() * 100 + group.size();
    out[1] = group.shfl(i, 2);
    out[2] = group.shfl_up(i, 1) * 100 + group.shfl_down(i, 2);
    out[3] = group.ballot(i % 2);
    out[4] = group.any(i == 5) * 10 + group.all(i < 30);
    out[5] = group.match_any(i / 8);
    int same = 0;
    out[6] = group.match_all(7, same);
    out[6] += same << 24;
    const auto fours = cg::tiled_partition(group, 4);
    out[7] = fours.meta_group_rank() * 10000 + fours.size() * 100 + fours.thread_rank();
    const auto odd = cg::binary_partition(group, i % 2);
    out[8] = odd.meta_group_rank() * 10000 + odd.size() * 100 + odd.thread_rank();
    out[9] = cg::reduce(odd, i, cg::plus<int>());
    const auto label = cg::labeled_partition(group, 3 - i / 8);
    out[10] = label.meta_group_rank() * 10000 + label.size() * 100 + label.thread_rank();
    out[11] = label.meta_group_size() * 100 + fours.meta_group_size();
    out[12] = cg::inclusive_scan(label, i);
    out[13] = cg::exclusive_scan(odd, i, cg::greater<int>());
    int called = 0;
    cg::invoke_one(group, [&](int by) { called += by; }, 1);
    out[14] = group.ballot(called) != 0;
    out[15] = cg::invoke_one_broadcast(odd, [&] { return i % 2 + 40; });
}

LAUNCHER(run_lanes, (int* y), lanes<<<1, 32>>>(y))

// ---- Collectives

struct Pair {
    float most, sum;
    double more[2];
};

// What depends on the order: x -> a x + b, composed.
struct Line {
    int a, b;
};
__device__ Line then(Line first, Line second) {
    return {first.a * second.a, first.b * second.a + second.b};
}

__global__ void collectives(const float* x, float* y, int* z, int count) {
    const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    const int i = threadIdx.x;
    y[i] = cg::reduce(warp, x[i], cg::plus<float>());
    const Pair pair = cg::reduce(warp, Pair{x[i], x[i], {1, 2}}, [](Pair a, Pair b) {
        return Pair{fmaxf(a.most, b.most), a.sum + b.sum, {a.more[0] + b.more[0], b.more[1]}};
    });
    y[32 + i] = pair.most;
    y[64 + i] = pair.sum;
    y[96 + i] = pair.more[0] + pair.more[1];
    y[128 + i] = cg::inclusive_scan(warp, x[i]);
    y[160 + i] = cg::exclusive_scan(warp, x[i], cg::plus<float>());
    if (i < count) {
        const auto group = cg::coalesced_threads();
        y[192 + i] = cg::reduce(group, x[i], cg::plus<float>());
        cg::reduce_store_async(group, y + 224, x[i], cg::less<float>());
        const Line line = cg::reduce(group, Line{-1, i}, then);
        z[i] = line.a * 1000 + line.b;
    }
    const auto eight = cg::tiled_partition<8>(warp);
    const Line line = cg::inclusive_scan(eight, Line{-1, i}, then);
    z[32 + i] = line.a * 1000 + line.b;
    z[64 + i] = cg::reduce(eight, (unsigned char)(200 + i), cg::plus<unsigned char>());
    z[96 + i] = cg::reduce(warp, short(-i), cg::less<short>());
    z[128 + i] = cg::reduce(warp, 1u << i, cg::bit_or<unsigned>()) ==
                 cg::reduce(warp, ~0u, cg::bit_and<unsigned>());
    z[160 + i] = cg::reduce(warp, 1ull << i, cg::bit_xor<unsigned long long>()) == 0xffffffff;
}

LAUNCHER(run_collectives, (const float* x, float* y, int* z, int count),
         collectives<<<1, 32>>>(x, y, z, count))

// ---- Asynchronous copies

__global__ void copies(const int* x, int* y, int n) {
    extern __shared__ int stage[];
    const auto block = cg::this_thread_block();
    for (int i = block.thread_rank(); i < 2 * n; i += block.size()) stage[i] = -1;
    block.sync();
    // The second copy is under way while the first is used.
    cg::memcpy_async(block, stage, x, sizeof(int) * n);
    cg::memcpy_async(block, stage + n, n, x + n, n);
    cg::wait_prior<1>(block);
    for (int i = block.thread_rank(); i < n; i += block.size()) y[i] = stage[n - 1 - i];
    cg::wait(block);
    for (int i = block.thread_rank(); i < n; i += block.size()) y[n + i] = stage[2 * n - 1 - i];
}

LAUNCHER(run_copies, (const int* x, int* y, int n), copies<<<1, 64, 2 * n * sizeof(int)>>>(x, y, n))

__global__ void bytes(const char* x, char* y, int n, int from) {
    __shared__ __align__(16) char stage[512];
    const auto warp = cg::tiled_partition<32>(cg::this_thread_block());
    cg::memcpy_async(warp, (void*)(stage + from), (const void*)(x + from), n);
    cg::wait(warp);
    for (int i = warp.thread_rank(); i < n; i += 32) y[i] = stage[from + i];
}

LAUNCHER(run_bytes, (const void* x, void* y, int n, int from),
         bytes<<<1, 32>>>((const char*)x, (char*)y, n, from))

// What is read before it has been waited for is what was there before.
__global__ void pipeline(const float4* x, float4* y, int* early) {
    __shared__ float4 stage[2][32];
    const int i = threadIdx.x;
    stage[0][i] = stage[1][i] = make_float4(-1, -1, -1, -1);
    __pipeline_memcpy_async(&stage[0][i], &x[i], sizeof(float4));
    __pipeline_commit();
    __pipeline_memcpy_async(&stage[1][i], &x[32 + i], sizeof(float4), 8);
    __pipeline_commit();
    __pipeline_wait_prior(1);
    y[i] = stage[0][i];
    early[i] = stage[1][i].x == -1;
    __pipeline_wait_prior(0);
    y[32 + i] = stage[1][i];
}

LAUNCHER(run_pipeline, (const float* x, float* y, int* early),
         pipeline<<<1, 32>>>((const float4*)x, (float4*)y, early))
