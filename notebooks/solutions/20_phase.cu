// c = a b^T of 128 x 16 numbers, with a ring of two stages: thread 0 fetches tiles, thread 32
// starts the products, and the barriers say which stage is full and which has been read
//
//   a [128, depth], b [16, depth] bfloat16, c [128, 16] float; depth: a multiple of 64

#include "../ladders/tcgen05.cuh"

using T = nv_bfloat16;
constexpr int kStages = 2, kRows = 128, kColumns = 16, kDepth = 64, kAllocated = 32;

__global__ void product(const __grid_constant__ CUtensorMap of_a,
                        const __grid_constant__ CUtensorMap of_b, float* c, int steps) {
    __shared__ alignas(kTileAlign) T a[kStages][kRows * kDepth];
    __shared__ alignas(kTileAlign) T b[kStages][kColumns * kDepth];
    __shared__ Mbarrier full[kStages], empty[kStages], done;
    __shared__ uint32_t tmem;
    const int t = threadIdx.x;
    if (t < 32) tmem_alloc(&tmem, kAllocated);
    if (t == 0) {
        for (int i = 0; i < kStages; ++i) full[i].init(), empty[i].init();
        done.init();
    }
    before_thread_sync();
    __syncthreads();
    after_thread_sync();
    for (int step = 0; step < steps; ++step) {
        const int i = step % kStages, round = step / kStages;
        if (t == 0) {
            empty[i].wait((round + 1) % 2);
            full[i].arrive_expect_tx(sizeof(a[0]) + sizeof(b[0]));
            tma_load(a[i], of_a, step * kDepth, 0, 0, full[i]);
            tma_load(b[i], of_b, step * kDepth, 0, 0, full[i]);
        } else if (t == 32) {
            full[i].wait(round % 2);
            for (int k = 0; k < kDepth / 16; ++k)
                mma(tmem, smem_descriptor(a[i]) + 2 * k, smem_descriptor(b[i]) + 2 * k,
                    instruction_descriptor(kRows, kColumns), step || k);
            commit(empty[i]);
            if (step == steps - 1) commit(done);
        }
    }
    __syncwarp();
    done.wait(0);
    after_thread_sync();
    float sums[kColumns];
    tmem_load(sums, tmem + (t / 32 * 32 << 16));
    for (int i = 0; i < kColumns; ++i) c[t * kColumns + i] = sums[i];
    before_thread_sync();
    __syncthreads();
    if (t < 32) tmem_dealloc(tmem, kAllocated);
}

extern "C" cudaError_t launch(const T* a, const T* b, float* c, int depth, cudaStream_t stream) {
    CUtensorMap of_a, of_b;
    if (!make_tensor_map(of_a, a, 1, kRows, depth, 0, depth, kRows) ||
        !make_tensor_map(of_b, b, 1, kColumns, depth, 0, depth, kColumns))
        return cudaErrorInvalidValue;
    product<<<1, 128, 0, stream>>>(of_a, of_b, c, depth / kDepth);
    return cudaGetLastError();
}
