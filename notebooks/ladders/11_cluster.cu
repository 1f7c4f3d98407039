// A softmax of one row by a cluster of four blocks, of which each keeps a quarter of the row.
//
//   x, y [128] float

#include "cluster.cuh"

constexpr int kBlocks = 4;  // of the cluster; a block is a warp, and a thread has one number

struct Part {
    float most, sum;  // the largest number of a quarter, and the sum of e^(x - most)
};

__device__ Part part_of(float x) {
    float most = x;
    for (int bit = 16; bit > 0; bit /= 2)
        most = fmaxf(most, __shfl_xor_sync(0xffffffff, most, bit));
    return {most, warp_sum(expf(x - most))};
}

__device__ float merged(float x, const Part (&parts)[kBlocks]) {
    float most = parts[0].most, sum = 0;
    for (const Part& each : parts) most = fmaxf(most, each.most);
    for (const Part& each : parts) sum += each.sum * expf(each.most - most);
    return expf(x - most) / sum;
}

// ---- push: a block writes its part to all four, and waits until four have come to itself.

__global__ void softmax_push(const float* x, float* y) {
    __shared__ Part parts[kBlocks];
    __shared__ Mbarrier all_here;
    const int i = blockIdx.x * kWarp + threadIdx.x, rank = cluster_rank();
    if (threadIdx.x == 0) {
        all_here.init();
        all_here.arrive_expect_tx(sizeof(parts));
    }
    cluster_arrive();
    const Part mine = part_of(x[i]);
    cluster_wait();  // every block runs, and its mbarrier is there
    if (threadIdx.x < kBlocks) all_here.st_async(&parts[rank], mine, threadIdx.x);
    all_here.wait_for_cluster(0);
    y[i] = merged(x[i], parts);
}

// ---- pull: a block keeps its part, and reads those of the others. kStay: until all have read.
// Flaw, without kStay: a block may end before the others have read its shared memory.

template <bool kStay>
__global__ void softmax_pull(const float* x, float* y) {
    __shared__ Part mine;
    const int i = blockIdx.x * kWarp + threadIdx.x;
    const Part part = part_of(x[i]);
    if (threadIdx.x == 0) mine = part;
    cluster_arrive_release();
    cluster_wait();
    Part parts[kBlocks];
    for (int rank = 0; rank < kBlocks; ++rank)
        parts[rank] = *static_cast<Part*>(__cluster_map_shared_rank(&mine, rank));
    y[i] = merged(x[i], parts);
    if (kStay) {
        cluster_arrive();
        cluster_wait();
    }
}

// ---- launchers

extern "C" cudaError_t push(const float* x, float* y, cudaStream_t stream) {
    launch_clusters(softmax_push, kBlocks, kBlocks, kWarp, 0, stream, x, y);
    return cudaGetLastError();
}

extern "C" cudaError_t pull(const float* x, float* y, cudaStream_t stream) {
    launch_clusters(softmax_pull<false>, kBlocks, kBlocks, kWarp, 0, stream, x, y);
    return cudaGetLastError();
}

extern "C" cudaError_t pull_and_stay(const float* x, float* y, cudaStream_t stream) {
    launch_clusters(softmax_pull<true>, kBlocks, kBlocks, kWarp, 0, stream, x, y);
    return cudaGetLastError();
}
