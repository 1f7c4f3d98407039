// Registers of tcgen05.ld that are used before tcgen05.wait::ld.
#include "export.cuh"
#include "tensor_loads.cuh"

// Chunk by chunk: the wait comes behind the stores.
__global__ void stored_too_early_kernel(const float* x, float* y) {
    BEGIN_LOADS
    for (int i = 0; i < columns_read; i += 4) {
        float v[4];
        load_4(v, first + i);  // BUG stored_too_early: register in use
        for (int j = 0; j < 4; j++)
            if (threadIdx.x < 125) y[threadIdx.x * columns_read + i + j] = v[j];
        loaded();
    }
    END_LOADS
}
EXPORT(stored_too_early, stored_too_early_kernel<<<1, threads>>>(x, y))

// The rows' maximum, as in a softmax; what is stored has been waited for.
__global__ void maximum_too_early_kernel(const float* x, float* y) {
    BEGIN_LOADS
    float most = -INFINITY;
    float v[4];
    load_4(v, first);  // BUG maximum_too_early: register in use
    for (int j = 0; j < 4; j++) most = fmaxf(most, v[j]);
    loaded();
    y[threadIdx.x] = v[0] - most;
    END_LOADS
}
EXPORT(maximum_too_early, maximum_too_early_kernel<<<1, threads>>>(x, y))

// Two chunks in turns: the wait for the first one comes before the load of the second one.
__global__ void second_chunk_not_awaited_kernel(const float* x, float* y) {
    BEGIN_LOADS
    float a[4], b[4], total = 0;
    load_4(a, first);
    loaded();
    load_4(b, first + 4);  // BUG second_chunk_not_awaited: register in use
    for (int j = 0; j < 4; j++) total += a[j];
    for (int j = 0; j < 4; j++) total += b[j];
    loaded();
    y[threadIdx.x] = total;
    END_LOADS
}
EXPORT(second_chunk_not_awaited, second_chunk_not_awaited_kernel<<<1, threads>>>(x, y))

__global__ void rounded_too_early_kernel(const float* x, float* y) {
    BEGIN_LOADS
    __half2 rounded[2];
    float v[4];
    load_4(v, first);  // BUG rounded_too_early: register in use
    for (int j = 0; j < 2; j++) rounded[j] = __floats2half2_rn(v[2 * j], v[2 * j + 1]);
    loaded();
    y[threadIdx.x] = __low2float(rounded[0]) + __high2float(rounded[1]);
    END_LOADS
}
EXPORT(rounded_too_early, rounded_too_early_kernel<<<1, threads>>>(x, y))

__global__ void shuffled_too_early_kernel(const float* x, float* y) {
    BEGIN_LOADS
    float v[4];
    load_4(v, first);  // BUG shuffled_too_early: register in use
    const float other = __shfl_xor_sync(~0u, v[0], 1);
    loaded();
    y[threadIdx.x] = other;
    END_LOADS
}
EXPORT(shuffled_too_early, shuffled_too_early_kernel<<<1, threads>>>(x, y))

// Back to tensor memory, as of a rescaled output.
__global__ void stored_back_too_early_kernel(const float* x, float* y) {
    BEGIN_LOADS
    float v[4];
    load_4(v, first);  // BUG stored_back_too_early: register in use
    STORE(first_column + 8, __float_as_uint(2 * v[0]));
    loaded();
    stored();
    LOAD(word, first_column + 8);
    loaded();
    y[threadIdx.x] = word;
    END_LOADS
}
EXPORT(stored_back_too_early, stored_back_too_early_kernel<<<1, threads>>>(x, y))
