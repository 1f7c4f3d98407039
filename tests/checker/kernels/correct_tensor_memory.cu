// Tensor memory as it should be used.
#include "export.cuh"
#include "tensor_memory.cuh"

__global__ void one_product_kernel(float* y) {
    BEGIN(32)
    if (threadIdx.x == 0) multiply(columns, tile), commit_to(&barrier);
    wait_at(&barrier, 0);
    after();
    LOAD(word, columns + 31);
    loaded();
    y[threadIdx.x] = word;
    before();
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 32);
}
EXPORT(one_product, one_product_kernel<<<1, threads>>>(y))

// While one accumulator is read, the next product writes the other.
__global__ void two_accumulators_kernel(float* y) {
    BEGIN(64)
    if (threadIdx.x == 0) multiply(columns, tile), commit_to(&barrier);
    for (int i = 0; i < 4; i++) {
        const unsigned mine = columns + i % 2 * product_columns;
        wait_at(&barrier, i % 2);
        after();
        if (threadIdx.x == 0 && i < 3)
            multiply(columns + (i + 1) % 2 * product_columns, tile), commit_to(&barrier);
        LOAD(word, mine);
        loaded();
        y[threadIdx.x] = word;
        before();
        __syncthreads();
    }
    if (threadIdx.x < 32) deallocate(columns, 64);
}
EXPORT(two_accumulators, two_accumulators_kernel<<<1, threads>>>(y))

// Products one after the other need no wait between them, and a store is waited for before.
__global__ void chain_kernel(float* y) {
    BEGIN(32)
    STORE(columns, word);
    stored();
    before();
    __syncthreads();
    if (threadIdx.x == 0) {
        after();
        for (int i = 0; i < 4; i++) multiply(columns, tile);
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    after();
    LOAD(word, columns);
    loaded();
    y[threadIdx.x] = word;
    before();
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 32);
}
EXPORT(chain, chain_kernel<<<1, threads>>>(y))
