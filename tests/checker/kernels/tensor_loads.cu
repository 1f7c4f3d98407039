// Registers of tcgen05.ld that are used before tcgen05.wait::ld, and behind it.
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

// ---- Nothing is to be found in these

// Out of variables whose scope ends before the wait.
__global__ void copied_kernel(const float* x, float* y) {
    BEGIN_LOADS
    float all[columns_read];
    for (int i = 0; i < columns_read; i += 4) {
        float v[4];
        load_4(v, first + i);
        for (int j = 0; j < 4; j++) all[i + j] = v[j];
    }
    loaded();
    float total = 0;
    for (int i = 0; i < columns_read; i++) total += all[i] * x[i];
    y[threadIdx.x] = total;
    END_LOADS
}
EXPORT(copied, copied_kernel<<<1, threads>>>(x, y))

struct Chunk {
    float v[4];
};
DEVICE Chunk chunk_of(unsigned from) {
    Chunk it;
    load_4(it.v, from);
    return it;
}
__global__ void returned_by_value_kernel(const float* x, float* y) {
    BEGIN_LOADS
    const Chunk a = chunk_of(first), b = chunk_of(first + 4);
    Chunk both[2] = {b, a};
    loaded();
    for (int j = 0; j < 4; j++) y[threadIdx.x + j % 1] = both[0].v[j] - 2 * both[1].v[j];
    END_LOADS
}
EXPORT(returned_by_value, returned_by_value_kernel<<<1, threads>>>(x, y))

// As bits, and as the two halves that a register may hold.
__global__ void copied_as_bits_kernel(const float* x, float* y) {
    BEGIN_LOADS
    unsigned bits[4];
    float v[4], same[4];
    load_4(v, first);
    for (int j = 0; j < 4; j++) bits[j] = __float_as_uint(v[j]);
    for (int j = 0; j < 4; j++) same[j] = __uint_as_float(bits[j]);
    const float4 vector{same[0], same[1], same[2], same[3]};
    const __half2 halves = *reinterpret_cast<const __half2*>(&bits[1]);
    loaded();
    y[threadIdx.x] = vector.x * 3 + vector.w + __low2float(halves);
    END_LOADS
}
EXPORT(copied_as_bits, copied_as_bits_kernel<<<1, threads>>>(x, y))

// While a chunk is used, the next one is loaded: each wait is for both.
__global__ void chunks_in_turns_kernel(const float* x, float* y) {
    BEGIN_LOADS
    float now[4], next[4], total = 0;
    load_4(now, first);
    for (int i = 1; i < 6; i++) {
        loaded();
        load_4(next, first + i % 2 * 4);
        for (int j = 0; j < 4; j++) total = total * x[j] + now[j];
        for (int j = 0; j < 4; j++) now[j] = next[j];
    }
    loaded();
    y[threadIdx.x] = total + now[3];
    END_LOADS
}
EXPORT(chunks_in_turns, chunks_in_turns_kernel<<<1, threads>>>(x, y))

// Which of two chunks is used is known before the wait; what is dropped needs none.
__global__ void chosen_and_dropped_kernel(const float* x, float* y) {
    BEGIN_LOADS
    float a[4], b[4], dropped[4];
    load_4(a, first), load_4(b, first + 4), load_4(dropped, first);
    float chosen[4];
    for (int j = 0; j < 4; j++) chosen[j] = threadIdx.x % 3 ? a[j] : b[3 - j];
    [[maybe_unused]] const float unused = dropped[0] * 2;
    if (threadIdx.x % 2) y[threadIdx.x] = x[threadIdx.x];
    loaded();
    if (threadIdx.x % 2 == 0) y[threadIdx.x] = chosen[0] * chosen[2];
    END_LOADS
}
EXPORT(chosen_and_dropped, chosen_and_dropped_kernel<<<1, threads>>>(x, y))

// Used by the other warps behind a barrier, and by lanes behind the wait.
__global__ void shared_behind_the_wait_kernel(const float* x, float* y) {
    BEGIN_LOADS
    __shared__ float tile[4][threads];
    float v[4];
    load_4(v, first);
    __syncwarp();
    loaded();
    const float other = __shfl_xor_sync(~0u, v[0], 16);
    for (int j = 0; j < 4; j++) tile[j][threadIdx.x] = v[j];
    __syncthreads();
    y[threadIdx.x] = tile[3][threads - 1 - threadIdx.x] + other;
    END_LOADS
}
EXPORT(shared_behind_the_wait, shared_behind_the_wait_kernel<<<1, threads>>>(x, y))
