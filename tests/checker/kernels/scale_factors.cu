// The scale factors of products: where they are, and when they are there.
#include "export.cuh"
#include "tensor_order.cuh"

__global__ void scales_never_written_kernel(const float* x, float* y) {
    BEGIN(64)
    const unsigned of_a = columns + 32, of_b = columns + 36;
    if (threadIdx.x == 0) {
        SCALED(MXFP8, columns, scaled, of_a, of_b);  // BUG scales_never_written: scale factors
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    END(64)
}
EXPORT(scales_never_written, scales_never_written_kernel<<<1, threads>>>(x, y))

__global__ void scales_of_b_forgotten_kernel(const float* x, float* y) {
    BEGIN_WITH_SCALES(64)
    if (threadIdx.x == 0) {
        copy_scales(of_a, scales);
        SCALED(MXFP8, columns, scaled, of_a, of_b);  // BUG scales_of_b_forgotten: scale factors
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    END(64)
}
EXPORT(scales_of_b_forgotten, scales_of_b_forgotten_kernel<<<1, threads>>>(x, y))

__global__ void scales_of_half_of_b_kernel(const float* x, float* y) {
    BEGIN_WITH_SCALES(256)
    const unsigned of_160_columns = scaled & ~(63 << 17) | 160 / 8 << 17;
    if (threadIdx.x == 0) {
        copy_scales(of_a, scales), copy_scales(of_b, scales);
        const unsigned shape = of_160_columns;
        const unsigned d = columns + 64;
        SCALED(MXFP8, d, shape, of_a, of_b);  // BUG scales_of_half_of_b: scale factors
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    END(256)
}
EXPORT(scales_of_half_of_b, scales_of_half_of_b_kernel<<<1, threads>>>(x, y))

__global__ void scales_in_one_quarter_kernel(const float* x, float* y) {
    BEGIN(64)
    const unsigned of_a = columns + 32, of_b = columns + 36;
    if (threadIdx.x < 32) {
        STORE_SCALES(of_a, word);
        STORE_SCALES(of_b, word);
        stored();
        __syncwarp();
    }
    if (threadIdx.x == 0) {
        SCALED(MXFP8, columns, scaled, of_a, of_b);  // BUG scales_in_one_quarter: scale factors
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    END(64)
}
EXPORT(scales_in_one_quarter, scales_in_one_quarter_kernel<<<1, threads>>>(x, y))

__global__ void scales_not_replicated_kernel(const float* x, float* y) {
    BEGIN_WITH_SCALES(64)
    scales[threadIdx.x] = threadIdx.x;
    fence_proxy();
    __syncthreads();
    if (threadIdx.x == 0) {
        COPY("128x128b", 8, of_a, scales);
        copy_scales(of_b, scales);
        SCALED(MXFP8, columns, scaled, of_a, of_b);  // BUG scales_not_replicated: scale factors
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    END(64)
}
EXPORT(scales_not_replicated, scales_not_replicated_kernel<<<1, threads>>>(x, y))

__global__ void each_warp_scales_its_own_kernel(const float* x, float* y) {
    BEGIN(64)
    const unsigned of_a = columns + 32, of_b = columns + 36;
    STORE_SCALES(of_a, threadIdx.x / 32);
    STORE_SCALES(of_b, threadIdx.x / 32);
    stored();
    before();
    __syncthreads();
    if (threadIdx.x == 0) {
        after();
        SCALED(MXFP8, columns, scaled, of_a, of_b);  // BUG each_warp_scales_its_own: scale factors
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    END(64)
}
EXPORT(each_warp_scales_its_own, each_warp_scales_its_own_kernel<<<1, threads>>>(x, y))

__global__ void scales_in_the_accumulator_kernel(const float* x, float* y) {
    BEGIN_WITH_SCALES(64)
    of_a = columns + 28;
    if (threadIdx.x == 0) {
        copy_scales(of_a, scales), copy_scales(of_b, scales);
        SCALED(MXFP8, columns, scaled, of_a, of_b);  // BUG scales_in_the_accumulator: scale factors
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    END(64)
}
EXPORT(scales_in_the_accumulator, scales_in_the_accumulator_kernel<<<1, threads>>>(x, y))

__global__ void an_accumulator_as_scales_kernel(const float* x, float* y) {
    BEGIN_WITH_SCALES(128)
    if (threadIdx.x == 0) {
        multiply(columns, tile);
        copy_scales(of_b, scales);
        const unsigned first = columns;
        const unsigned d = columns + 64;
        SCALED(MXFP8, d, scaled, first, of_b);  // BUG an_accumulator_as_scales: scale factors
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    END(128)
}
EXPORT(an_accumulator_as_scales, an_accumulator_as_scales_kernel<<<1, threads>>>(x, y))

__global__ void id_within_a_vector_kernel(const float* x, float* y) {
    BEGIN_WITH_SCALES(64)
    if (threadIdx.x == 0) {
        copy_scales(of_a, scales), copy_scales(of_b, scales);
        const unsigned shape = of_4_bits | 1 << 29;
        SCALED(MXFP4, columns, shape, of_a, of_b);  // BUG id_within_a_vector: scale factors
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    END(64)
}
EXPORT(id_within_a_vector, id_within_a_vector_kernel<<<1, threads>>>(x, y))

__global__ void id_past_a_vector_kernel(const float* x, float* y) {
    BEGIN_WITH_SCALES(64)
    if (threadIdx.x == 0) {
        copy_scales(of_a, scales), copy_scales(of_b, scales);
        const unsigned shape = of_4_bits | 2 << 4;
        SCALED(NVFP4, columns, shape, of_a, of_b);  // BUG id_past_a_vector: scale factors
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    END(64)
}
EXPORT(id_past_a_vector, id_past_a_vector_kernel<<<1, threads>>>(x, y))

__global__ void scales_of_another_type_kernel(const float* x, float* y) {
    BEGIN_WITH_SCALES(64)
    if (threadIdx.x == 0) {
        copy_scales(of_a, scales), copy_scales(of_b, scales);
        const unsigned shape = scaled & ~(1 << 23);
        SCALED(MXFP8, columns, shape, of_a, of_b);  // BUG scales_of_another_type: scale factors
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    END(64)
}
EXPORT(scales_of_another_type, scales_of_another_type_kernel<<<1, threads>>>(x, y))

__global__ void scales_from_lane_32_kernel(const float* x, float* y) {
    BEGIN_WITH_SCALES(64)
    if (threadIdx.x == 0) {
        copy_scales(of_a, scales), copy_scales(of_b, scales);
        const unsigned first = of_a + (32 << 16);
        SCALED(MXFP8, columns, scaled, first, of_b);  // BUG scales_from_lane_32: scale factors
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    END(64)
}
EXPORT(scales_from_lane_32, scales_from_lane_32_kernel<<<1, threads>>>(x, y))

__global__ void another_copies_kernel(const float* x, float* y) {
    BEGIN_WITH_SCALES(64)
    if (threadIdx.x == 32) copy_scales(of_a, scales), copy_scales(of_b, scales);
    __syncthreads();
    if (threadIdx.x == 0) {
        SCALED(MXFP8, columns, scaled, of_a, of_b);  // BUG another_copies: tensor memory in use
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    if (threadIdx.x == 32) commit_to(&barrier);
    wait_at(&barrier, 1);
    END(64)
}
EXPORT(another_copies, another_copies_kernel<<<1, threads>>>(x, y))

__global__ void copied_under_a_product_kernel(const float* x, float* y) {
    BEGIN_WITH_SCALES(64)
    if (threadIdx.x == 0) {
        copy_scales(of_a, scales), copy_scales(of_b, scales);
        SCALED(MXFP8, columns, scaled, of_a, of_b);
        commit_to(&barrier);
    }
    __syncthreads();
    if (threadIdx.x == 32)
        copy_scales(of_b, scales);  // BUG copied_under_a_product: tensor memory in use
    wait_at(&barrier, 0);
    if (threadIdx.x == 32) commit_to(&barrier);
    wait_at(&barrier, 1);
    END(64)
}
EXPORT(copied_under_a_product, copied_under_a_product_kernel<<<1, threads>>>(x, y))

__global__ void scales_overwritten_kernel(const float* x, float* y) {
    BEGIN_WITH_SCALES(64)
    if (threadIdx.x == 0) {
        copy_scales(of_a, scales), copy_scales(of_b, scales);
        SCALED(MXFP8, columns, scaled, of_a, of_b);
        commit_to(&barrier);
    }
    __syncthreads();
    scales[threadIdx.x] = 1;  // BUG scales_overwritten: asynchronous race
    wait_at(&barrier, 0);
    END(64)
}
EXPORT(scales_overwritten, scales_overwritten_kernel<<<1, threads>>>(x, y))

__global__ void scales_copied_over_kernel(const float* x, float* y) {
    BEGIN_WITH_SCALES(64)
    if (threadIdx.x == 0) {
        copy_scales(of_a, scales), copy_scales(of_b, scales);
        SCALED(MXFP8, columns, scaled, of_a, of_b);
        expect(&barrier, unit);
        load_bytes(scales, x, unit, &barrier);  // BUG scales_copied_over: asynchronous race
    }
    wait_at(&barrier, 0);
    if (threadIdx.x == 0) commit_to(&barrier);
    wait_at(&barrier, 1);
    END(64)
}
EXPORT(scales_copied_over, scales_copied_over_kernel<<<1, threads>>>(x, y))

__global__ void scales_in_another_proxy_kernel(const float* x, float* y) {
    BEGIN_WITH_SCALES(64)
    scales[threadIdx.x] = 1;
    __syncthreads();
    if (threadIdx.x == 0) {
        copy_scales(of_a, scales);  // BUG scales_in_another_proxy: missing proxy fence
        copy_scales(of_b, scales + 128);
        SCALED(MXFP8, columns, scaled, of_a, of_b);
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    END(64)
}
EXPORT(scales_in_another_proxy, scales_in_another_proxy_kernel<<<1, threads>>>(x, y))

__global__ void scales_read_twice_kernel(const float* x, float* y) {
    BEGIN_WITH_SCALES(64)
    if (threadIdx.x == 0) {
        COPY("32x128b.warpx4", 0, of_a, scales);  // BUG scales_read_twice: note: matrix descriptor
        copy_scales(of_b, scales);
        SCALED(MXFP8, columns, scaled, of_a, of_b);
        commit_to(&barrier);
    }
    wait_at(&barrier, 0);
    END(64)
}
EXPORT(scales_read_twice, scales_read_twice_kernel<<<1, threads>>>(x, y))

// ---- Nothing is to be found in these

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
