// A block ended, and its shared memory went to the next block, while others had yet to read its
// part: it stays until all have read.

#include "cluster.cuh"

constexpr int kBlocks = 4;  // of the cluster; a block is a warp, and takes every fourth 32 columns

struct Part {
    float most, sum;  // the largest number of a block's columns, and the sum of e^(x - most)
};

__device__ Part merged(Part a, Part b) {
    const float most = fmaxf(a.most, b.most);
    if (most == -INFINITY) return a;
    return {most, a.sum * expf(a.most - most) + b.sum * expf(b.most - most)};
}

__global__ void softmax(const float* x, float* y, int cols) {
    __shared__ Part mine;
    const int first = cluster_rank() * kWarp + threadIdx.x, step = kBlocks * kWarp;
    x += int64_t(cluster_index()) * cols;
    y += int64_t(cluster_index()) * cols;
    Part part = {-INFINITY, 0};
    for (int c = first; c < cols; c += step) part = merged(part, {x[c], 1});
    for (int bit = kWarp / 2; bit > 0; bit /= 2) {
        const float most = __shfl_xor_sync(0xffffffff, part.most, bit);
        part = merged(part, {most, __shfl_xor_sync(0xffffffff, part.sum, bit)});
    }
    if (threadIdx.x == 0) mine = part;
    cluster_arrive_release();
    cluster_wait();
    for (int rank = 0; rank < kBlocks; ++rank) {
        if (rank == cluster_rank()) continue;
        part = merged(part, *static_cast<Part*>(__cluster_map_shared_rank(&mine, rank)));
    }
    cluster_arrive();
    cluster_wait();  // all have read this block's part
    for (int c = first; c < cols; c += step) y[c] = expf(x[c] - part.most) / part.sum;
}

extern "C" cudaError_t launch(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
    launch_clusters(softmax, kBlocks, rows * kBlocks, kWarp, 0, stream, x, y, cols);
    return cudaGetLastError();
}
