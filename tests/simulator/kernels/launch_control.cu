// Cluster launch control: blocks and clusters that take the place of others that have not begun.
#include <cuda_runtime.h>
#include <stdint.h>

__device__ uint32_t at(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }

__device__ void wait(uint64_t* barrier, int parity) {
    asm volatile(
        "{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;"
        " @!p bra again; }" ::"r"(at(barrier)),
        "r"(parity)
        : "memory");
}
__device__ void expect(uint64_t* barrier) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 16;" ::"r"(at(barrier))
                 : "memory");
}
__device__ void ask(uint4* answer, uint64_t* barrier) {
    asm volatile(
        "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 "
        "[%0], [%1];" ::"r"(at(answer)),
        "r"(at(barrier))
        : "memory");
}
__device__ void ask_for_all(uint4* answer, uint64_t* barrier) {
    asm volatile(
        "clusterlaunchcontrol.try_cancel.async.mbarrier::complete_tx::bytes.multicast::cluster::all"
        ".b128 [%0], [%1];" ::"r"(at(answer)),
        "r"(at(barrier))
        : "memory");
}
__device__ bool is_canceled(const uint4* answer) {
    int is;
    asm volatile(
        "{ .reg .pred p; .reg .b128 r; ld.shared.b128 r, [%1];"
        " clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, r; selp.s32 %0, 1, 0, p; }"
        : "=r"(is)
        : "r"(at(answer))
        : "memory");
    return is;
}
__device__ uint3 first_block(const uint4* answer) {
    uint3 first;
    asm volatile(
        "{ .reg .b128 r; ld.shared.b128 r, [%3];"
        " clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%0, %1, %2, _}, r;"
        " clusterlaunchcontrol.query_cancel.get_first_ctaid::y.b32.b128 %1, r; }"
        : "=r"(first.x), "=r"(first.y), "=r"(first.z)
        : "r"(at(answer))
        : "memory");
    return first;
}
__device__ void free_answer() {
    asm volatile("fence.proxy.async::generic.release.sync_restrict::shared::cta.cluster;" ::
                     : "memory");
}
__device__ void acquire_answer() {
    asm volatile("fence.proxy.async::generic.acquire.sync_restrict::shared::cluster.cluster;" ::
                     : "memory");
}

#define BEGIN                                                                       \
    __shared__ alignas(16) uint4 answer;                                            \
    __shared__ alignas(8) uint64_t barrier;                                         \
    if (threadIdx.x == 0) {                                                         \
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at(&barrier))); \
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");          \
    }                                                                               \
    [[maybe_unused]] int parity = 0;

// y[block] += 1 for each block, whoever does its work; ran[block] += 1 for those that began.
__global__ void blocks_kernel(int* y, int* ran) {
    BEGIN
    uint3 block = blockIdx;
    const auto index = [&] { return (block.z * gridDim.y + block.y) * gridDim.x + block.x; };
    if (threadIdx.x == 0) ran[index()] += 1;
    for (;; parity ^= 1) {
        __syncthreads();
        if (threadIdx.x == 0) acquire_answer(), expect(&barrier), ask(&answer, &barrier);
        if (threadIdx.x == 0) y[index()] += 1;
        wait(&barrier, parity);
        if (!is_canceled(&answer)) break;
        block = first_block(&answer);
        free_answer();
    }
}
extern "C" void run_blocks(int* y, int* ran, int across, int down, int deep) {
    blocks_kernel<<<dim3(across, down, deep), 64>>>(y, ran);
}

// The same of clusters of 2 x 2, whose first block asks.
__global__ void __cluster_dims__(2, 2, 1) clusters_kernel(int* y, int* ran) {
    BEGIN
    const unsigned x = blockIdx.x % 2, below = blockIdx.y % 2;
    uint3 block = blockIdx;
    const auto index = [&] { return block.y * gridDim.x + block.x; };
    if (threadIdx.x == 0) ran[index()] += 1;
    for (;; parity ^= 1) {
        asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
        if (threadIdx.x == 0) expect(&barrier);
        if (threadIdx.x == 0 && !x && !below) acquire_answer(), ask_for_all(&answer, &barrier);
        if (threadIdx.x == 0) y[index()] += 1;
        wait(&barrier, parity);
        if (!is_canceled(&answer)) break;
        block = first_block(&answer);
        block.x += x, block.y += below;
        free_answer();
    }
}
extern "C" void run_clusters(int* y, int* ran, int across, int down, int) {
    clusters_kernel<<<dim3(across, down), 32>>>(y, ran);
}

// It has read that none is left, and asks again; or it wants the block of that answer.
__global__ void wrong_kernel(int* y, bool asks) {
    BEGIN
    if (threadIdx.x == 0) expect(&barrier), ask(&answer, &barrier);
    wait(&barrier, 0);
    if (is_canceled(&answer)) return;
    if (asks)
        ask(&answer, &barrier);  // asks again
    else
        y[0] = first_block(&answer).x;
}
extern "C" void run_wrong(int* y, int asks) { wrong_kernel<<<1, 1>>>(y, asks); }
