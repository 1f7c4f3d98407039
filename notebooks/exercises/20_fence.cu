// c = a b^T of 128 x 16 numbers, whose sums four warps read from tensor memory
//
//   a [128, depth], b [16, depth] bfloat16, c [128, 16] float; depth: a multiple of 64
//
// On a GPU most runs are right.
//
// TODO: find the mistake. Budget: 50 lines of code.

#include "../ladders/tcgen05.cuh"

using T = nv_bfloat16;
constexpr int kRows = 128, kColumns = 16, kDepth = 64, kAllocated = 32;

__global__ void product(const __grid_constant__ CUtensorMap of_a,
                        const __grid_constant__ CUtensorMap of_b, float* c, int steps) {
    __shared__ alignas(kTileAlign) T a[kRows * kDepth];
    __shared__ alignas(kTileAlign) T b[kColumns * kDepth];
    __shared__ Mbarrier full, read, done;
    __shared__ uint32_t tmem;
    const int t = threadIdx.x;
    if (t == 0) full.init(), read.init(), done.init();
    if (t < 32) tmem_alloc(&tmem, kAllocated);
    before_thread_sync();
    __syncthreads();
    after_thread_sync();
    if (t == 0) {
        for (int step = 0; step < steps; ++step) {
            full.arrive_expect_tx(sizeof(a) + sizeof(b));
            tma_load(a, of_a, step * kDepth, 0, 0, full);
            tma_load(b, of_b, step * kDepth, 0, 0, full);
            full.wait(step % 2);
            for (int k = 0; k < kDepth / 16; ++k)
                mma(tmem, smem_descriptor(a) + 2 * k, smem_descriptor(b) + 2 * k,
                    instruction_descriptor(kRows, kColumns), step || k);
            commit(read);
            read.wait(step % 2);
        }
        commit(done);
    }
    __syncwarp();
    done.wait(0);
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
