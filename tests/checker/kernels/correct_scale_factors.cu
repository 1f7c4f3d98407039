// Scale factors where products read them, and in time.
#include "export.cuh"
#include "tensor_order.cuh"

__global__ void scales_of_their_own_kernel(const float* x, float* y) {
    BEGIN_WITH_SCALES(64)
    if (threadIdx.x == 0) {
        copy_scales(of_a, scales), copy_scales(of_b, scales + 128);
        for (int i = 0; i < 4; i++) SCALED(MXFP8, columns, ids(i), of_a, of_b);
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    END(64)
}
EXPORT(scales_of_their_own, scales_of_their_own_kernel<<<1, threads>>>(x, y))

__global__ void vectors_of_2_and_4_kernel(const float* x, float* y) {
    BEGIN_WITH_SCALES(64)
    if (threadIdx.x == 0) {
        copy_scales(of_a, scales), copy_scales(of_b, scales);
        SCALED(MXFP4, columns, of_4_bits, of_a, of_b);
        SCALED(MXFP4, columns, of_4_bits | 2 << 29 | 2 << 4, of_a, of_b);
        SCALED(NVFP4, columns, of_4_bits & ~(1 << 23), of_a, of_b);
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    END(64)
}
EXPORT(vectors_of_2_and_4, vectors_of_2_and_4_kernel<<<1, threads>>>(x, y))

__global__ void scales_of_160_columns_kernel(const float* x, float* y) {
    BEGIN_WITH_SCALES(256)
    const unsigned of_160_columns = scaled & ~(63 << 17) | 160 / 8 << 17;
    if (threadIdx.x == 0) {
        copy_scales(of_a, scales), copy_scales(of_b, scales), copy_scales(of_b + 4, scales);
        SCALED(MXFP8, columns + 64, of_160_columns, of_a, of_b);
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    END(256)
}
EXPORT(scales_of_160_columns, scales_of_160_columns_kernel<<<1, threads>>>(x, y))

__global__ void a_copy_waited_for_kernel(const float* x, float* y) {
    BEGIN_WITH_SCALES(64)
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
    END(64)
}
EXPORT(a_copy_waited_for, a_copy_waited_for_kernel<<<1, threads>>>(x, y))

__global__ void scales_in_turns_kernel(const float* x, float* y) {
    BEGIN_WITH_SCALES(64)
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
    END(64)
}
EXPORT(scales_in_turns, scales_in_turns_kernel<<<1, threads>>>(x, y))

__global__ void replicated_in_shared_memory_kernel(const float* x, float* y) {
    BEGIN_WITH_SCALES(64)
    if (threadIdx.x == 0) {
        COPY("128x128b", 8, of_a, scales);
        copy_scales(of_b, scales);
        SCALED(MXFP8, columns, scaled, of_a, of_b);
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    END(64)
}
EXPORT(replicated_in_shared_memory, replicated_in_shared_memory_kernel<<<1, threads>>>(x, y))

__global__ void where_an_accumulator_was_kernel(const float* x, float* y) {
    BEGIN_WITH_SCALES(64)
    of_a = columns, of_b = columns + 4;
    if (threadIdx.x == 0) {
        multiply(columns, tile);
        copy_scales(of_a, scales), copy_scales(of_b, scales);
        SCALED(MXFP8, columns + 32, scaled, of_a, of_b);
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    END(64)
}
EXPORT(where_an_accumulator_was, where_an_accumulator_was_kernel<<<1, threads>>>(x, y))

__global__ void halves_of_64_rows_kernel(const float* x, float* y) {
    BEGIN(64)
    const unsigned of_64_rows = 1 << 4 | product_columns / 8 << 17 | 64 / 16 << 24;
    if (threadIdx.x == 0) {
        MULTIPLY_AS(columns, tile, of_64_rows);
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    END(64)
}
EXPORT(halves_of_64_rows, halves_of_64_rows_kernel<<<1, threads>>>(x, y))
