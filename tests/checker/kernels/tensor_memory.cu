// Tensor memory: who allocates, writes, reads and frees it.
#include "export.cuh"
#include "tensor_memory.cuh"

__global__ void never_freed_kernel(float* y) {
    __shared__ unsigned columns;
    if (threadIdx.x < 32) allocate(&columns, 32);  // BUG never_freed: tensor memory kept
    __syncthreads();
    y[threadIdx.x] = columns;
}
EXPORT(never_freed, never_freed_kernel<<<1, threads>>>(y))

__global__ void read_before_the_wait_kernel(float* y) {
    BEGIN(32)
    if (threadIdx.x == 0) multiply(columns, tile), commit_to(&barrier);
    __syncthreads();
    LOAD(word, columns);  // BUG read_before_the_wait: tensor memory in use
    loaded();
    wait_at(&barrier, 0);
    y[threadIdx.x] = word;
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 32);
}
EXPORT(read_before_the_wait, read_before_the_wait_kernel<<<1, threads>>>(y))

// The barrier of the first product says nothing of the second one.
__global__ void read_after_the_first_kernel(float* y) {
    BEGIN(32)
    if (threadIdx.x == 0) {
        multiply(columns, tile), commit_to(&barrier);
        multiply(columns, tile);
    }
    wait_at(&barrier, 0);
    after();
    LOAD(word, columns);  // BUG read_after_the_first: tensor memory in use
    loaded();
    y[threadIdx.x] = word;
    before();
    __syncthreads();
    if (threadIdx.x == 0) commit_to(&barrier);
    wait_at(&barrier, 1);
    if (threadIdx.x < 32) deallocate(columns, 32);
}
EXPORT(read_after_the_first, read_after_the_first_kernel<<<1, threads>>>(y))

// Accumulators that overlap: the second one begins within the first.
__global__ void overlapping_accumulators_kernel(float* y) {
    BEGIN(64)
    if (threadIdx.x == 0) multiply(columns, tile), commit_to(&barrier);
    wait_at(&barrier, 0);
    after();
    if (threadIdx.x == 0) multiply(columns + 16, tile), commit_to(&barrier);
    __syncthreads();
    LOAD(word, columns + 24);  // BUG overlapping_accumulators: tensor memory in use
    loaded();
    y[threadIdx.x] = word;
    wait_at(&barrier, 1);
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 64);
}
EXPORT(overlapping_accumulators, overlapping_accumulators_kernel<<<1, threads>>>(y))

__global__ void loads_not_waited_for_kernel(float* y) {
    BEGIN(32)
    if (threadIdx.x == 0) multiply(columns, tile), commit_to(&barrier);
    wait_at(&barrier, 0);
    after();
    LOAD(word, columns);
    __syncthreads();
    if (threadIdx.x == 0) {
        multiply(columns, tile);  // BUG loads_not_waited_for: tensor memory in use
        commit_to(&barrier);
    }
    loaded();
    y[threadIdx.x] = word;
    wait_at(&barrier, 1);
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 32);
}
EXPORT(loads_not_waited_for, loads_not_waited_for_kernel<<<1, threads>>>(y))

__global__ void freed_too_early_kernel(float* y) {
    BEGIN(32)
    if (threadIdx.x == 0) multiply(columns, tile), commit_to(&barrier);
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 32);  // BUG freed_too_early: tensor memory in use
    y[threadIdx.x] = word;
}
EXPORT(freed_too_early, freed_too_early_kernel<<<1, threads>>>(y))

__global__ void written_under_a_product_kernel(float* y) {
    BEGIN(32)
    if (threadIdx.x == 0) multiply(columns, tile), commit_to(&barrier);
    __syncthreads();
    STORE(columns + 31, word);  // BUG written_under_a_product: tensor memory in use
    stored();
    wait_at(&barrier, 0);
    y[threadIdx.x] = word;
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 32);
}
EXPORT(written_under_a_product, written_under_a_product_kernel<<<1, threads>>>(y))

// The first of several products adds to what was there before.
__global__ void adds_to_nothing_kernel(float* y) {
    BEGIN(32)
    if (threadIdx.x == 0)
        for (int k = 0; k < 4; k++) add(columns, tile);  // BUG adds_to_nothing: uninitialised
    if (threadIdx.x == 0) commit_to(&barrier);
    wait_at(&barrier, 0);
    after();
    LOAD(word, columns);
    loaded();
    END(32)
}
EXPORT(adds_to_nothing, adds_to_nothing_kernel<<<1, threads>>>(y))

__global__ void reads_too_many_columns_kernel(float* y) {
    BEGIN(64)
    if (threadIdx.x == 0) multiply(columns, tile), commit_to(&barrier);
    wait_at(&barrier, 0);
    after();
    for (int column = 0; column < 64; column++) {
        unsigned more;
        LOAD(more, columns + column);  // BUG reads_too_many_columns: note: uninitialised
        loaded();
        word += more;
    }
    END(64)
}
EXPORT(reads_too_many_columns, reads_too_many_columns_kernel<<<1, threads>>>(y))

// ---- Nothing is to be found in these

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
