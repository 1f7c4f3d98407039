// Cooperative groups, and Philox.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include "launcher.h"
#include "philox.cuh"

namespace cg = cooperative_groups;

template <int N>
__global__ void tiles(int* y) {
    const cg::thread_block block = cg::this_thread_block();
    const auto tile = cg::tiled_partition<N>(block);
    const int i = block.thread_rank();
    int* out = y + i * 12;
    out[0] = tile.thread_rank();
    out[1] = tile.size();
    out[2] = tile.meta_group_rank();
    out[3] = tile.shfl(i, 1 % N);
    out[4] = tile.shfl_xor(i, N / 2);
    out[5] = tile.shfl_down(i, 1);
    out[6] = tile.shfl_up(i, 1);
    out[7] = tile.ballot(i % 3 == 0);
    out[8] = tile.any(i == 5);
    out[9] = tile.all(i < 40);
    out[10] = cg::reduce(tile, i, cg::plus<int>());
    out[11] = cg::reduce(tile, i, cg::greater<int>());
    tile.sync();
    block.sync();
}

extern "C" cudaError_t run_tiles(int* y, int size) {
    if (size == 1) tiles<1><<<1, 64>>>(y);
    if (size == 4) tiles<4><<<1, 64>>>(y);
    if (size == 16) tiles<16><<<1, 64>>>(y);
    if (size == 32) tiles<32><<<1, 64>>>(y);
    return cudaGetLastError();
}

__global__ void block_group(int* y) {
    const auto block = cg::this_thread_block();
    __shared__ int values[2 * 3 * 4];
    values[block.thread_rank()] = block.thread_index().x;
    cg::sync(block);
    y[block.thread_rank()] = values[block.size() - 1 - block.thread_rank()] +
                             10 * block.group_index().x + 100 * block.dim_threads().y;
}

LAUNCHER(run_block_group, (int* y), block_group<<<1, dim3(2, 3, 4)>>>(y))

__global__ void coalesced(int* y) {
    if (threadIdx.x % 3) return;
    const auto group = cg::coalesced_threads();
    y[threadIdx.x] =
        group.thread_rank() + 100 * group.size() + 10000 * group.shfl(int(threadIdx.x), 1);
}

LAUNCHER(run_coalesced, (int* y), coalesced<<<1, 32>>>(y))

__global__ void philox(const int* counters, const int* keys, int* y) {
    const int i = threadIdx.x;
    const Philox generator{{unsigned(keys[2 * i]), unsigned(keys[2 * i + 1])}};
    const uint4 words = generator(
        make_uint4(counters[4 * i], counters[4 * i + 1], counters[4 * i + 2], counters[4 * i + 3]));
    y[4 * i] = words.x;
    y[4 * i + 1] = words.y;
    y[4 * i + 2] = words.z;
    y[4 * i + 3] = words.w;
}

LAUNCHER(run_philox, (const int* counters, const int* keys, int* y, int n),
         philox<<<1, n>>>(counters, keys, y))

__global__ void uniforms(float* y) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const uint4 words = Philox::draw(1234, 5, i);
    y[4 * i] = uniform(words.x);
    y[4 * i + 1] = uniform(words.y);
    y[4 * i + 2] = uniform(words.z);
    y[4 * i + 3] = uniform(words.w);
}

LAUNCHER(run_uniforms, (float* y, int n), uniforms<<<n / 4 / 128, 128>>>(y))
