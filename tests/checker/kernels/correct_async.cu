// Correct kernels with asynchronous work, in which nothing is to be found.
#include <cooperative_groups.h>
#include <cooperative_groups/memcpy_async.h>
#include <cuda_fp16.h>
#include <cuda_pipeline.h>
#include <cuda/barrier>
#include <cuda/pipeline>
#include "asynchronous.cuh"
#include "export.cuh"

namespace cg = cooperative_groups;

constexpr int stage = 64, copiers = 16;

// ---- cp.async, in 2 to 5 stages

template <int stages, bool ahead_of_barrier>
__global__ void ring(const float* x, float* y) {
    __shared__ alignas(16) float s[stages][stage];
    const int t = threadIdx.x;
    float sum = 0;
    for (int k = 0; k < stages - 1; k++) {
        copy16(&s[k][4 * t], x + stage * k + 4 * t);
        commit();
    }
    for (int k = 0; k < 8; k++) {
        wait_for<stages - 2>();
        __syncthreads();
        const int next = k + stages - 1;
        if (next < 8) copy16(&s[next % stages][4 * t], x + stage * next + 4 * t);
        commit();
        sum += s[k % stages][stage - 1 - t];
    }
    y[t] = sum;
}
EXPORT(ring_of_2, ring<2, true><<<1, copiers>>>(x, y))
EXPORT(ring_of_3, ring<3, true><<<1, copiers>>>(x, y))
EXPORT(ring_of_4, ring<4, true><<<1, copiers>>>(x, y))
EXPORT(ring_of_5, ring<5, true><<<1, copiers>>>(x, y))

__global__ void words(const float* x, float* y, int n) {
    __shared__ float s[1024];
    for (int i = threadIdx.x; i < n; i += 128) __pipeline_memcpy_async(&s[i], &x[i], 4);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += 128) y[i] = s[n - 1 - i];
}
EXPORT(words_one_by_one, words<<<1, 128>>>(x, y, n))

__global__ void halves(const float* x, float* y) {
    __shared__ alignas(16) __half s[2][copiers][8];
    const int t = threadIdx.x;
    for (int k = 0; k < 4; k++) {
        copy_some(s[k % 2][t], x + stage * k + 4 * t, 2 * (t % 9));
        commit();
        wait_for<0>();
        __syncthreads();
        y[t] = float(s[k % 2][copiers - 1 - t][k]);
    }
}
EXPORT(tails_of_halves, halves<<<1, copiers>>>(x, y))

__global__ void of_group(const float* x, float* y, int n) {
    __shared__ alignas(16) float s[2][256];
    const auto block = cg::this_thread_block();
    float sum = 0;
    cg::memcpy_async(block, s[0], x, sizeof s[0]);
    for (int k = 0; k < 3; k++) {
        if (k < 2) {
            cg::memcpy_async(block, s[(k + 1) % 2], x + 256 * (k + 1), sizeof s[0]);
            cg::wait_prior<1>(block);
        } else {
            cg::wait(block);
        }
        sum += s[k % 2][255 - threadIdx.x];
        block.sync();
    }
    y[threadIdx.x] = sum;
}
EXPORT(copies_of_a_group, of_group<<<1, 64>>>(x, y, n))

__global__ void at_mbarrier(const float* x, float* y) {
    __shared__ alignas(16) float s[stage];
    __shared__ uint64_t full;
    const int t = threadIdx.x;
    if (t == 0) init(&full, copiers);
    __syncthreads();
    copy16(&s[4 * t], x + 4 * t);
    arrive_after_copies(&full);
    wait_phase(&full, 0);
    y[t] = s[stage - 1 - t];
}
EXPORT(copies_that_arrive, at_mbarrier<<<1, copiers>>>(x, y))

// ---- libcu++

template <int stages>
__global__ void pipelines(const float* x, float* y) {
    __shared__ alignas(16) float s[stages][stage];
    __shared__ cuda::pipeline_shared_state<cuda::thread_scope_block, stages> state;
    const auto block = cg::this_thread_block();
    auto pipe = cuda::make_pipeline(block, &state);
    float sum = 0;
    int fetched = 0;
    for (int k = 0; k < 6; k++) {
        for (; fetched < 6 && fetched < k + stages; fetched++) {
            pipe.producer_acquire();
            cuda::memcpy_async(block, s[fetched % stages], x + stage * fetched, sizeof s[0], pipe);
            pipe.producer_commit();
        }
        pipe.consumer_wait();
        sum += s[k % stages][stage - 1 - threadIdx.x];
        pipe.consumer_release();
    }
    y[threadIdx.x] = sum;
}
EXPORT(pipeline_of_2, pipelines<2><<<1, stage>>>(x, y))
EXPORT(pipeline_of_4, pipelines<4><<<1, stage>>>(x, y))

__global__ void barrier_copies(const float* x, float* y) {
    __shared__ alignas(16) float s[stage];
    __shared__ cuda::barrier<cuda::thread_scope_block> full;
    const auto block = cg::this_thread_block();
    if (threadIdx.x == 0) init(&full, block.size());
    block.sync();
    float sum = 0;
    for (int k = 0; k < 3; k++) {
        cuda::memcpy_async(block, s, x + stage * k, sizeof s, full);
        full.arrive_and_wait();
        sum += s[stage - 1 - threadIdx.x];
        block.sync();
    }
    y[threadIdx.x] = sum;
}
EXPORT(copies_at_a_barrier, barrier_copies<<<1, stage>>>(x, y))

// ---- Copies in bulk

constexpr int threads = 64, count = 128, bytes = 4 * count;
#define PREPARE(stages, arrivals)                    \
    __shared__ alignas(1024) float s[stages][count]; \
    __shared__ uint64_t full[stages], empty[stages]; \
    const int t = threadIdx.x;                       \
    if (t == 0) {                                    \
        for (int i = 0; i < stages; i++) {           \
            init(&full[i], 1);                       \
            init(&empty[i], arrivals);               \
        }                                            \
        fence_init();                                \
    }                                                \
    __syncthreads();

template <int stages>
__global__ void bulk_ring(const float* x, float* y) {
    PREPARE(stages, threads)
    float sum = 0;
    for (int k = -(stages - 1); k < 6; k++) {
        const int next = k + stages - 1;
        if (t == 0 && next < 6) {
            if (next >= stages) wait_phase(&empty[next % stages], next / stages % 2 ^ 1);
            expect(&full[next % stages], bytes);
            load_bulk(s[next % stages], x + count * next, bytes, &full[next % stages]);
        }
        if (k < 0) continue;
        wait_phase(&full[k % stages], k / stages % 2);
        sum += s[k % stages][count - 1 - t];
        fence_proxy();
        arrive(&empty[k % stages]);
    }
    y[t] = sum;
}
EXPORT(bulk_ring_of_2, bulk_ring<2><<<1, threads>>>(x, y))
EXPORT(bulk_ring_of_3, bulk_ring<3><<<1, threads>>>(x, y))
EXPORT(bulk_ring_of_5, bulk_ring<5><<<1, threads>>>(x, y))

// A warp produces, another consumes.
template <int stages>
__global__ void warps(const float* x, float* y) {
    PREPARE(stages, 32)
    if (t < 32) {
        for (int k = 0; k < 6 && t == 0; k++) {
            if (k >= stages) wait_phase(&empty[k % stages], k / stages % 2 ^ 1);
            expect(&full[k % stages], bytes);
            load_bulk(s[k % stages], x + count * k, bytes, &full[k % stages]);
        }
    } else {
        float sum = 0;
        for (int k = 0; k < 6; k++) {
            wait_phase(&full[k % stages], k / stages % 2);
            for (int i = t - 32; i < count; i += 32) sum += s[k % stages][i];
            fence_proxy();
            arrive(&empty[k % stages]);
        }
        y[t - 32] = sum;
    }
}
EXPORT(a_warp_produces, warps<3><<<1, threads>>>(x, y))

__global__ void bulk_stores(const float* x, float* y) {
    __shared__ alignas(128) float s[2][count];
    const int t = threadIdx.x;
    for (int k = 0; k < 3; k++) {
        if (t == 0) wait_until_read<1>();
        __syncthreads();
        for (int i = t; i < count; i += threads) s[k % 2][i] = 2 * x[count * k + i];
        fence_proxy();
        __syncthreads();
        if (t == 0) {
            store_bulk(y + count * k, s[k % 2], bytes);
            commit_bulk();
        }
    }
    if (t == 0) wait_until_written<0>();
}
EXPORT(stores_by_groups, bulk_stores<<<1, threads>>>(x, y))

// The one that stores fences after the barrier, for what all have written.
__global__ void one_fence(const float* x, float* y) {
    __shared__ alignas(128) float s[count];
    const int t = threadIdx.x;
    for (int i = t; i < count; i += threads) s[i] = 2 * x[i];
    __syncthreads();
    if (t == 0) {
        fence_proxy();
        store_bulk(y, s, bytes);
        commit_bulk();
        wait_until_written<0>();
    }
}
EXPORT(the_issuer_fences, one_fence<<<1, threads>>>(x, y))

__global__ void bulk_sums(const float* x, float* y) {
    __shared__ alignas(128) float s[count];
    const int t = threadIdx.x;
    for (int i = t; i < count; i += threads) s[i] = x[i];
    fence_proxy();
    __syncthreads();
    if (t == 0) {
        add_bulk(y, s, bytes);
        commit_bulk();
        wait_until_written<0>();
    }
}
extern "C" void blocks_add_in_bulk(const float* x, float* y, int) {
    cudaMemset(y, 0, bytes);
    bulk_sums<<<4, threads>>>(x, y);
}

// What a copy brings another copy takes away.
__global__ void through(const float* x, float* y) {
    PREPARE(2, 1)
    if (t) return;
    for (int k = 0; k < 3; k++) {
        const int i = k % 2;
        if (k >= 2) wait_until_read<1>();
        expect(&full[i], bytes);
        load_bulk(s[i], x + count * k, bytes, &full[i]);
        wait_phase(&full[i], k / 2 % 2);
        store_bulk(y + count * k, s[i], bytes);
        commit_bulk();
    }
    wait_until_written<0>();
}
EXPORT(in_and_out, through<<<1, threads>>>(x, y))

// ---- Tensors

template <int swizzle>
__global__ void boxes(const __grid_constant__ CUtensorMap map, float* y, int cols) {
    __shared__ alignas(1024) char s[4096];
    __shared__ uint64_t full;
    const int t = threadIdx.x, row_bytes = 4 * cols;
    if (t == 0) init(&full, 1), fence_init();
    __syncthreads();
    if (t == 0) {
        expect(&full, 8 * row_bytes);
        load_box(s, &map, 0, 0, &full);
    }
    wait_phase(&full, 0);
    for (int i = t; i < 8 * cols; i += threads) {
        uint32_t at = i * 4;
        if (swizzle) at ^= (at >> 7 & (swizzle / 16 - 1)) << 4;
        y[i] = *reinterpret_cast<float*>(s + at);
    }
}
EXPORT(boxes_unswizzled, boxes<0><<<1, threads>>>(map_of(x, 16, 32, 8, 32), y, 32))
EXPORT(boxes_swizzled_by_128, boxes<128><<<1, threads>>>(map_of(x, 16, 32, 8, 32, 128), y, 32))
EXPORT(boxes_swizzled_by_64, boxes<64><<<1, threads>>>(map_of(x, 16, 16, 8, 16, 64), y, 16))
EXPORT(boxes_swizzled_by_32, boxes<32><<<1, threads>>>(map_of(x, 16, 8, 8, 8, 32), y, 8))
EXPORT(boxes_partly_outside, boxes<0><<<1, threads>>>(map_of(x, 5, 24, 8, 32), y, 32))

__global__ void copied_boxes(const __grid_constant__ CUtensorMap from,
                             const __grid_constant__ CUtensorMap to) {
    __shared__ alignas(1024) float s[256];
    __shared__ uint64_t full;
    const int t = threadIdx.x;
    if (t == 0) init(&full, 1), fence_init();
    __syncthreads();
    if (t == 0) {
        expect(&full, 1024);
        load_box(s, &from, 0, 8 * blockIdx.x, &full);
    }
    wait_phase(&full, 0);
    for (int i = t; i < 256; i += threads) s[i] *= 2;
    fence_proxy();
    __syncthreads();
    if (t == 0) {
        store_box(&to, 0, 8 * blockIdx.x, s);
        commit_bulk();
        wait_until_read<0>();
    }
}
EXPORT(boxes_in_and_out,
       copied_boxes<<<1, threads>>>(map_of(x, 16, 32, 8, 32, 128), map_of(y, 16, 32, 8, 32, 128)))

// ---- Clusters

__global__ void __cluster_dims__(2) exchanged(const float* x, float* y) {
    __shared__ float s[threads];
    const int t = threadIdx.x, other = rank_in_cluster() ^ 1;
    s[t] = x[threads * blockIdx.x + t];
    sync_cluster();
    y[threads * blockIdx.x + t] = load_from(in_block(&s[threads - 1 - t], other));
    sync_cluster();
}
EXPORT(blocks_exchange, exchanged<<<4, threads>>>(x, y))

__global__ void __cluster_dims__(2) sent(const float* x, float* y) {
    __shared__ alignas(16) float s[threads];
    __shared__ uint64_t full;
    const int t = threadIdx.x, other = rank_in_cluster() ^ 1;
    if (t == 0) {
        init(&full, 1);
        fence_init();
    }
    sync_cluster();
    if (t == 0) expect(&full, 4 * threads);
    store_async(in_block(&s[t], other), x[threads * blockIdx.x + t], in_block(&full, other));
    wait_phase(&full, 0);
    y[threads * blockIdx.x + t] = s[t];
    sync_cluster();
}
EXPORT(blocks_send, sent<<<4, threads>>>(x, y))

// Warps send their sums to both blocks. Who has those of all warps knows that all have read what
// was sent before those.
__global__ void __cluster_dims__(2) rounds(const float* x, float* y) {
    constexpr int warps = 32;
    __shared__ float parts[2][2 * warps];
    __shared__ uint64_t full[2];
    const int t = threadIdx.x, lane = t % 32, i = blockDim.x * blockIdx.x + t;
    const int own = warps * rank_in_cluster() + t / 32;
    if (t == 0) {
        for (uint64_t& barrier : full) init(&barrier, 1);
        fence_init();
    }
    sync_cluster();
    float sum = x[t % 32];
    for (int round = 0; round < 4; round++) {
        const int buffer = round % 2;
        if (t == 0) expect(&full[buffer], 2 * warps * sizeof(float));
        for (int bit = 16; bit > 0; bit /= 2) sum += __shfl_xor_sync(~0u, sum, bit);
        const uint32_t there = in_block(&parts[buffer][own], lane % 2);
        const uint32_t barrier = in_block(&full[buffer], lane % 2);
        if (lane < 2) store_async(there, sum, barrier);
        wait_phase(&full[buffer], round / 2 % 2);
        sum = parts[buffer][lane] + parts[buffer][warps + lane];
    }
    if (i < 1000) y[i] = sum;
    sync_cluster();
}
EXPORT(warps_send_sums, rounds<<<2, 1024>>>(x, y))

// Each of two blocks loads half of what both need.
__global__ void __cluster_dims__(2) shared_loads(const float* x, float* y) {
    __shared__ alignas(128) float s[2][count];
    __shared__ uint64_t full, empty;
    const int t = threadIdx.x, rank = rank_in_cluster();
    if (t == 0) {
        init(&full, 1);
        init(&empty, 2 * threads);
        fence_init();
    }
    sync_cluster();
    float sum = 0;
    for (int k = 0; k < 3; k++) {
        if (t == 0) {
            if (k) wait_phase(&empty, k % 2 ^ 1);
            expect(&full, 2 * bytes);
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::"
                "cluster [%0], [%1], %2, [%3], %4;" ::"r"(at(s[rank])),
                "l"(x + count * (2 * k + rank)), "r"(bytes), "r"(at(&full)), "h"(uint16_t(3))
                : "memory");
        }
        wait_phase(&full, k % 2);
        sum += s[0][t] + s[1][t];
        fence_proxy();
        arrive_at(in_block(&empty, 0));
        arrive_at(in_block(&empty, 1));
    }
    y[threads * blockIdx.x + t] = sum;
    sync_cluster();
}
EXPORT(blocks_share_loads, shared_loads<<<2, threads>>>(x, y))

// ---- Named barriers

__global__ void named(const float* x, float* y) {
    __shared__ float s[2][32];
    const int t = threadIdx.x;
    if (t < 32) {
        for (int k = 0; k < 6; k++) {
            if (k >= 2) sync_some(3 + k % 2, 64);
            s[k % 2][t] = x[32 * k + t];
            arrive_some(1 + k % 2, 64);
        }
    } else {
        float sum = 0;
        for (int k = 0; k < 6; k++) {
            sync_some(1 + k % 2, 64);
            sum += s[k % 2][63 - t];
            if (k < 4) arrive_some(3 + k % 2, 64);
        }
        y[t - 32] = sum;
    }
}
EXPORT(named_barriers, named<<<1, threads>>>(x, y))

// ---- Products

struct Matrices {
    __half a[2][64 * 8], b[2][8 * 8];
};
DEVICE void fill(Matrices& m, const float* x) {
    for (int i = threadIdx.x; i < 1024; i += 128) m.a[i / 512][i % 512] = __half(x[i % 100]);
    for (int i = threadIdx.x; i < 128; i += 128) m.b[i / 64][i % 64] = __half(x[i]);
}
DEVICE uint64_t of_a(const Matrices& m) { return describe(m.a, 1024, 128); }
DEVICE uint64_t of_b(const Matrices& m) { return describe(m.b, 128, 128); }

__global__ void product(const float* x, float* y) {
    __shared__ alignas(128) Matrices m[2];
    float d[4] = {}, e[4];
    fill(m[0], x);
    fence_proxy();
    __syncthreads();
    for (int k = 0; k < 4; k++) {
        fence_products();
        multiply(d, of_a(m[k % 2]), of_b(m[k % 2]));
        multiply(e, of_a(m[k % 2]), of_b(m[k % 2]), 0);
        commit_products();
        if (k < 3) fill(m[(k + 1) % 2], x + k);
        fence_proxy();
        wait_for_products<0>();
        __syncthreads();
        d[0] += e[0];
    }
    y[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}
EXPORT(products, product<<<1, 128>>>(x, y))

__global__ void of_registers(const float* x, float* y) {
    __shared__ alignas(128) Matrices m;
    float d[4] = {};
    fill(m, x);
    fence_proxy();
    __syncthreads();
    for (int k = 0; k < 3; k++) {
        uint32_t a[4];
        for (int i = 0; i < 4; i++) a[i] = 0x3c003c00 + k + threadIdx.x % 7;
        fence_products();
        multiply(d, a, of_b(m));
        commit_products();
        wait_for_products<0>();
    }
    y[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}
EXPORT(products_of_registers, of_registers<<<1, 128>>>(x, y))

// A warp loads tiles with a swizzle of 128 bytes, a warpgroup multiplies them: 4 steps of k a tile.
__global__ void tiles(const __grid_constant__ CUtensorMap map_a,
                      const __grid_constant__ CUtensorMap map_b, float* y) {
    __shared__ alignas(1024) char a[2][64 * 128], b[2][8 * 128];
    __shared__ uint64_t full[2], empty[2];
    const int t = threadIdx.x;
    if (t == 0) {
        for (int i = 0; i < 2; i++) init(&full[i], 1), init(&empty[i], 128);
        fence_init();
    }
    __syncthreads();
    if (t >= 128) {
        for (int k = 0; k < 5 && t == 128; k++) {
            if (k >= 2) wait_phase(&empty[k % 2], k / 2 % 2 ^ 1);
            expect(&full[k % 2], 72 * 128);
            load_box(a[k % 2], &map_a, 0, k, &full[k % 2]);
            load_box(b[k % 2], &map_b, 0, k, &full[k % 2]);
        }
        return;
    }
    float d[4] = {};
    for (int k = 0; k < 5; k++) {
        wait_phase(&full[k % 2], k / 2 % 2);
        fence_products();
        for (int i = 0; i < 4; i++)
            multiply(d, describe(a[k % 2] + 32 * i, 16, 1024, 128),
                     describe(b[k % 2] + 32 * i, 16, 1024, 128));
        commit_products();
        if (k) {
            wait_for_products<1>();
            arrive(&empty[(k - 1) % 2]);
        }
    }
    wait_for_products<0>();
    y[t] = d[0] + d[1] + d[2] + d[3];
}
EXPORT(a_warp_loads_and_a_warpgroup_multiplies,
       tiles<<<1, 160>>>(map_of(x, 30, 64, 64, 64, 128, true), map_of(x, 30, 64, 8, 64, 128, true),
                         y))

// Two warpgroups take turns: one multiplies while the other works with its result.
__global__ void turns(const float* x, float* y) {
    __shared__ alignas(128) Matrices m;
    const int t = threadIdx.x, group = t / 128;
    if (group == 0) fill(m, x);
    fence_proxy();
    __syncthreads();
    float d[4] = {};
    for (int k = 0; k < 3; k++) {
        if (group || k) sync_some(1 + group, 256);
        fence_products();
        multiply(d, of_a(m), of_b(m));
        commit_products();
        wait_for_products<0>();
        if (!group || k < 2) arrive_some(2 - group, 256);
        for (int i = 0; i < 4; i++) d[i] = d[i] * 0.5f + k;
    }
    y[t] = d[0] + d[1] + d[2] + d[3];
}
EXPORT(warpgroups_take_turns, turns<<<1, 256>>>(x, y))

// ---- Attention by mma.sync: a warp, 16 queries, keys in pieces of 8, copies two pieces ahead

DEVICE void load_matrix(uint32_t& a, uint32_t& b, const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                 : "=r"(a), "=r"(b)
                 : "r"(at(row)));
}
DEVICE void multiply_by_warp(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__global__ void attention(const float* x, float* y) {
    __shared__ alignas(16) __half keys[2][8][16];
    const int t = threadIdx.x;
    const auto load = [&](int k) {
        if (t < 16)
            copy16(reinterpret_cast<float*>(&keys[k % 2][t / 2][t % 2 * 8]), x + 64 * k + 4 * t);
        commit();
    };
    uint32_t queries[4];
    for (int i = 0; i < 4; i++) queries[i] = 0x3c003800;
    float sum = 0, greatest = -1e30f;
    load(0);
    for (int k = 0; k < 4; k++) {
        if (k < 3)
            load(k + 1);
        else
            commit();
        wait_for<1>();
        __syncwarp();
        uint32_t b0, b1;
        load_matrix(b0, b1, &keys[k % 2][t % 8][t / 8 % 2 * 8]);
        float d[4] = {};
        multiply_by_warp(d, queries, b0, b1);
        const float now = fmaxf(greatest, fmaxf(d[0], d[1]));
        sum = sum * expf(greatest - now) + expf(d[0] - now) + expf(d[1] - now);
        greatest = now;
        __syncwarp();
    }
    y[t] = sum;
}
EXPORT(attention_by_a_warp, attention<<<1, 32>>>(x, y))

// ---- Two warps take the steps of a ring in turn. Each meets a stage in every round, or waits for
// those of the other, too, or comes after them.

enum class Turns { Even, AllWaited, Ordered };

template <int stages, Turns turns>
__global__ void in_turn(const float* x, float* y) {
    __shared__ Stages<stages> ring;
    const int t = threadIdx.x, warp = t / 32;
    ring.begin();
    float sum = 0;
    for (int step = 0; step < 12; step++) {
        const int i = step % stages, round = step / stages;
        const bool is_mine = warp == step % 2;
        if (t == 64) {
            ring.fetch(x, step);
        } else if (warp < 2) {
            if (turns == Turns::AllWaited || is_mine) wait_phase(&ring.full[i], round % 2);
            if (is_mine) {
                sum += ring.s[i][t % 32];
                arrive(&ring.empty[i]);
            }
            if (turns == Turns::Ordered) sync_some(1, 64);
        }
    }
    if (t < 64) y[t] = sum;
}
EXPORT(stages_of_two_in_turn, in_turn<4, Turns::Even><<<1, 96>>>(x, y))
EXPORT(both_wait_for_each_step, in_turn<3, Turns::AllWaited><<<1, 96>>>(x, y))
EXPORT(steps_come_one_after_the_other, in_turn<3, Turns::Ordered><<<1, 96>>>(x, y))

__global__ void __cluster_dims__(2, 1, 1) pair_that_meets(const float* x, float* y) {
    __shared__ unsigned columns;
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
    allocate_in_pair(&columns);
    y[blockIdx.x * blockDim.x + threadIdx.x] = x[threadIdx.x];
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
    if (threadIdx.x < 32) FREE_IN_PAIR(columns);
}
EXPORT(pair_meets_before_it_frees, pair_that_meets<<<2, 128>>>(x, y))
