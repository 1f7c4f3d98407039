// The instructions that kernels with asynchronous work are made of, by their names.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>
#include <stdint.h>

#define DEVICE __device__ __forceinline__

// Tensor memory that the two blocks of a cluster have together.
DEVICE void allocate_in_pair(unsigned* columns) {
    if (threadIdx.x < 32)
        asm volatile("tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%0], 32;" ::"r"(
            uint32_t(__cvta_generic_to_shared(columns))));
    __syncthreads();
}
#define FREE_IN_PAIR(columns) \
    asm volatile("tcgen05.dealloc.cta_group::2.sync.aligned.b32 %0, 32;" ::"r"(columns))
DEVICE uint32_t at(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }

// ---- cp.async

DEVICE void copy16(float* to, const float* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at(to)), "l"(from) : "memory");
}
DEVICE void copy_some(void* to, const void* from, int bytes) {  // of 16, the others are zeros
    asm volatile(
        "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at(to)), "l"(from), "r"(bytes)
        : "memory");
}
DEVICE void copy4(float* to, const float* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at(to)), "l"(from) : "memory");
}
DEVICE void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int prior>
DEVICE void wait_for() {
    asm volatile("cp.async.wait_group %0;" ::"n"(prior) : "memory");
}
DEVICE void arrive_after_copies(uint64_t* barrier) {
    asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(at(barrier))
                 : "memory");
}

// ---- mbarriers and fences

DEVICE void init(uint64_t* barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(barrier)), "r"(count)
                 : "memory");
}
DEVICE void fence_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
DEVICE void fence_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
DEVICE void arrive(uint64_t* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(barrier)) : "memory");
}
DEVICE void arrive_many(uint64_t* barrier, int count) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(at(barrier)), "r"(count)
                 : "memory");
}
DEVICE void expect(uint64_t* barrier, int bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(barrier)), "r"(bytes)
        : "memory");
}
// Macros, so that where a thread waits for ever is told by the kernel's line.
#define wait_phase(barrier, parity)                                      \
    asm volatile(                                                        \
        "{ .reg .pred p;\n"                                              \
        "again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n" \
        "@p bra done;\n"                                                 \
        "bra again;\n"                                                   \
        "done: }" ::"r"(at(barrier)),                                    \
        "r"(parity)                                                      \
        : "memory")
#define sync_some(id, threads) asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory")
#define arrive_some(id, threads) \
    asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory")

// ---- Copies in bulk

DEVICE void load_bulk(float* to, const float* from, int bytes, uint64_t* barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(at(to)),
        "l"(from), "r"(bytes), "r"(at(barrier))
        : "memory");
}
// A ring of stages, each of 32 floats, which one thread asks for and a warp reads.
template <int stages>
struct Stages {
    alignas(128) float s[stages][32];
    uint64_t full[stages], empty[stages];

    DEVICE void begin() {
        if (threadIdx.x == 0) {
            for (int i = 0; i < stages; i++) init(&full[i], 1), init(&empty[i], 32);
            fence_init();
        }
        __syncthreads();
    }
    DEVICE void fetch(const float* x, int step) {
        const int i = step % stages, round = step / stages;
        wait_phase(&empty[i], (round + 1) % 2);
        fence_proxy();
        expect(&full[i], sizeof s[i]);
        load_bulk(s[i], x + 32 * step, sizeof s[i], &full[i]);
    }
};

DEVICE void store_bulk(float* to, const float* from, int bytes) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
                 "r"(at(from)), "r"(bytes)
                 : "memory");
}
DEVICE void add_bulk(float* to, const float* from, int bytes) {
    asm volatile(
        "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
        "r"(at(from)), "r"(bytes)
        : "memory");
}
DEVICE void commit_bulk() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
template <int prior>
DEVICE void wait_until_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(prior) : "memory");
}
template <int prior>
DEVICE void wait_until_written() {
    asm volatile("cp.async.bulk.wait_group %0;" ::"n"(prior) : "memory");
}
DEVICE void load_box(void* to, const CUtensorMap* map, int x, int y, uint64_t* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
        "{%2, %3}], [%4];" ::"r"(at(to)),
        "l"(map), "r"(x), "r"(y), "r"(at(barrier))
        : "memory");
}
DEVICE void store_box(const CUtensorMap* map, int x, int y, const void* from) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(map),
        "r"(x), "r"(y), "r"(at(from))
        : "memory");
}

// Of a matrix of floats, or of 16 bits each, with so many rows and columns, boxes of so many.
inline CUtensorMap map_of(const void* x, int rows, int cols, int box_rows, int box_cols,
                          int swizzle = 0, bool halves = false) {
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found;
    cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &entry, cudaEnableDefault, &found);
    alignas(64) CUtensorMap map;
    const cuuint64_t extent[] = {cuuint64_t(cols), cuuint64_t(rows)};
    const cuuint64_t stride[] = {cuuint64_t(cols) * (halves ? 2 : 4)};
    const cuuint32_t box[] = {cuuint32_t(box_cols), cuuint32_t(box_rows)}, steps[] = {1, 1};
    reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(entry)(
        &map, halves ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2,
        const_cast<void*>(x), extent, stride, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
        swizzle == 128  ? CU_TENSOR_MAP_SWIZZLE_128B
        : swizzle == 64 ? CU_TENSOR_MAP_SWIZZLE_64B
        : swizzle == 32 ? CU_TENSOR_MAP_SWIZZLE_32B
                        : CU_TENSOR_MAP_SWIZZLE_NONE,
        CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
    return map;
}

// ---- Clusters

DEVICE void sync_cluster() {
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}
DEVICE uint32_t rank_in_cluster() {
    uint32_t rank;
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}
DEVICE uint32_t in_block(const void* p, int rank) {
    uint32_t there;
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at(p)), "r"(rank));
    return there;
}
DEVICE float load_from(uint32_t there) {
    float value;
    asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(value) : "r"(there) : "memory");
    return value;
}
DEVICE void store_to(uint32_t there, float value) {
    asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(there), "f"(value) : "memory");
}
DEVICE void store_async(uint32_t there, float value, uint32_t barrier) {
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(there),
        "f"(value), "r"(barrier)
        : "memory");
}
DEVICE void arrive_at(uint32_t barrier) {
    asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(barrier)
                 : "memory");
}

// ---- Products of warpgroups: 64 rows by 16, and 16 by 8 columns, of 16-bit floats

DEVICE void fence_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
DEVICE void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int prior>
DEVICE void wait_for_products() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(prior) : "memory");
}
DEVICE uint64_t describe(const void* p, int leading, int stride, int swizzle = 0) {
    const uint64_t mode = swizzle == 128 ? 1 : swizzle == 64 ? 2 : swizzle == 32 ? 3 : 0;
    return (at(p) & 0x3ffff) >> 4 | uint64_t(leading >> 4) << 16 | uint64_t(stride >> 4) << 32 |
           mode << 62;
}
DEVICE void multiply(float (&d)[4], uint64_t a, uint64_t b, int accumulates = 1) {
    asm volatile(
        "{ .reg .pred p; setp.ne.b32 p, %6, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, "
        "0; }"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "l"(a), "l"(b), "r"(accumulates));
}
DEVICE void multiply(float (&d)[4], const uint32_t (&a)[4], uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, {%4, %5, %6, %7}, %8, "
        "1, 1, 1, 0;"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
