// Scale factors where products read them, and in time.
#include "tensor_order.cuh"

__global__ void scales_of_their_own_kernel(const float* x, float* y) {
    BEGIN(64)
    __shared__ alignas(128) unsigned scales[512];
    for (int i = threadIdx.x; i < 512; i += threads) scales[i] = i / 4 % 32 * 0x01010101;
    fence_proxy();
    __syncthreads();
    const unsigned of_a = columns + 32, of_b = columns + 36;
    if (threadIdx.x == 0) {
        copy_scales(of_a, scales), copy_scales(of_b, scales + 128);
        for (int i = 0; i < 4; i++) SCALED(MXFP8, columns, ids(i), of_a, of_b);
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    y[blockIdx.x * threads + threadIdx.x] = word;
    before();
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 64);
}
extern "C" void scales_of_their_own(const float* x, float* y, int) {
    scales_of_their_own_kernel<<<1, threads>>>(x, y);
}

__global__ void vectors_of_2_and_4_kernel(const float* x, float* y) {
    BEGIN(64)
    __shared__ alignas(128) unsigned scales[512];
    for (int i = threadIdx.x; i < 512; i += threads) scales[i] = i / 4 % 32 * 0x01010101;
    fence_proxy();
    __syncthreads();
    const unsigned of_a = columns + 32, of_b = columns + 36;
    if (threadIdx.x == 0) {
        copy_scales(of_a, scales), copy_scales(of_b, scales);
        SCALED(MXFP4, columns, of_4_bits, of_a, of_b);
        SCALED(MXFP4, columns, of_4_bits | 2 << 29 | 2 << 4, of_a, of_b);
        SCALED(NVFP4, columns, of_4_bits & ~(1 << 23), of_a, of_b);
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    y[blockIdx.x * threads + threadIdx.x] = word;
    before();
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 64);
}
extern "C" void vectors_of_2_and_4(const float* x, float* y, int) {
    vectors_of_2_and_4_kernel<<<1, threads>>>(x, y);
}

__global__ void scales_of_160_columns_kernel(const float* x, float* y) {
    BEGIN(256)
    __shared__ alignas(128) unsigned scales[512];
    for (int i = threadIdx.x; i < 512; i += threads) scales[i] = i / 4 % 32 * 0x01010101;
    fence_proxy();
    __syncthreads();
    const unsigned of_a = columns + 32, of_b = columns + 36;
    const unsigned of_160_columns = scaled & ~(63 << 17) | 160 / 8 << 17;
    if (threadIdx.x == 0) {
        copy_scales(of_a, scales), copy_scales(of_b, scales), copy_scales(of_b + 4, scales);
        SCALED(MXFP8, columns + 64, of_160_columns, of_a, of_b);
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    y[blockIdx.x * threads + threadIdx.x] = word;
    before();
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 256);
}
extern "C" void scales_of_160_columns(const float* x, float* y, int) {
    scales_of_160_columns_kernel<<<1, threads>>>(x, y);
}

__global__ void a_copy_waited_for_kernel(const float* x, float* y) {
    BEGIN(64)
    __shared__ alignas(128) unsigned scales[512];
    for (int i = threadIdx.x; i < 512; i += threads) scales[i] = i / 4 % 32 * 0x01010101;
    fence_proxy();
    __syncthreads();
    const unsigned of_a = columns + 32, of_b = columns + 36;
    if (threadIdx.x == 32)
        copy_scales(of_a, scales), copy_scales(of_b, scales), commit_to(&barrier);
    if (threadIdx.x == 0) {
        wait_at(&barrier, 0);
        after();
        SCALED(MXFP8, columns, scaled, of_a, of_b);
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    wait_at(&barrier, 1);
    y[blockIdx.x * threads + threadIdx.x] = word;
    before();
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 64);
}
extern "C" void a_copy_waited_for(const float* x, float* y, int) {
    a_copy_waited_for_kernel<<<1, threads>>>(x, y);
}

__global__ void scales_in_turns_kernel(const float* x, float* y) {
    BEGIN(64)
    __shared__ alignas(128) unsigned scales[512];
    for (int i = threadIdx.x; i < 512; i += threads) scales[i] = i / 4 % 32 * 0x01010101;
    fence_proxy();
    __syncthreads();
    const unsigned of_a = columns + 32, of_b = columns + 36;
    for (int i = 0; i < 4; i++) {
        if (threadIdx.x == 0) {
            copy_scales(of_a, scales), copy_scales(of_b, scales);
            SCALED(MXFP8, columns, scaled, of_a, of_b);
            commit_to(&barrier);
        }
        wait_at(&barrier, i % 2);
        scales[threadIdx.x] = i;
        fence_proxy();
        __syncthreads();
    }
    y[blockIdx.x * threads + threadIdx.x] = word;
    before();
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 64);
}
extern "C" void scales_in_turns(const float* x, float* y, int) {
    scales_in_turns_kernel<<<1, threads>>>(x, y);
}

__global__ void replicated_in_shared_memory_kernel(const float* x, float* y) {
    BEGIN(64)
    __shared__ alignas(128) unsigned scales[512];
    for (int i = threadIdx.x; i < 512; i += threads) scales[i] = i / 4 % 32 * 0x01010101;
    fence_proxy();
    __syncthreads();
    const unsigned of_a = columns + 32, of_b = columns + 36;
    if (threadIdx.x == 0) {
        COPY("128x128b", 8, of_a, scales);
        copy_scales(of_b, scales);
        SCALED(MXFP8, columns, scaled, of_a, of_b);
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    y[blockIdx.x * threads + threadIdx.x] = word;
    before();
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 64);
}
extern "C" void replicated_in_shared_memory(const float* x, float* y, int) {
    replicated_in_shared_memory_kernel<<<1, threads>>>(x, y);
}

__global__ void where_an_accumulator_was_kernel(const float* x, float* y) {
    BEGIN(64)
    __shared__ alignas(128) unsigned scales[512];
    for (int i = threadIdx.x; i < 512; i += threads) scales[i] = i / 4 % 32 * 0x01010101;
    fence_proxy();
    __syncthreads();
    const unsigned of_a = columns, of_b = columns + 4;
    if (threadIdx.x == 0) {
        multiply(columns, tile);
        copy_scales(of_a, scales), copy_scales(of_b, scales);
        SCALED(MXFP8, columns + 32, scaled, of_a, of_b);
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    y[blockIdx.x * threads + threadIdx.x] = word;
    before();
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 64);
}
extern "C" void where_an_accumulator_was(const float* x, float* y, int) {
    where_an_accumulator_was_kernel<<<1, threads>>>(x, y);
}

__global__ void halves_of_64_rows_kernel(const float* x, float* y) {
    BEGIN(64)
    const unsigned of_64_rows = 1 << 4 | product_columns / 8 << 17 | 64 / 16 << 24;
    if (threadIdx.x == 0) {
        MULTIPLY_AS(columns, tile, of_64_rows);
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    y[blockIdx.x * threads + threadIdx.x] = word;
    before();
    __syncthreads();
    if (threadIdx.x < 32) deallocate(columns, 64);
}
extern "C" void halves_of_64_rows(const float* x, float* y, int) {
    halves_of_64_rows_kernel<<<1, threads>>>(x, y);
}
