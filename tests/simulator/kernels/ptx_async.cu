// What is asynchronous in PTX: copies, mbarriers, clusters, tensor maps.
#include <cooperative_groups.h>
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime.h>
#include <stdint.h>

namespace cg = cooperative_groups;

__device__ uint32_t address_of(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
__device__ void init(uint32_t barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ void expect(uint32_t barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
                 : "memory");
}
__device__ void wait(uint32_t barrier, int parity) {
    asm volatile(
        "{ .reg .pred p;\n"
        "AGAIN: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"  // in wait
        "@p bra DONE; bra AGAIN; DONE: }" ::"r"(barrier),
        "r"(parity)
        : "memory");
}
__device__ int test(uint32_t barrier, int parity) {
    int done;
    asm volatile(
        "{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;"
        " selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
    return done;
}
__device__ void load_bulk(void* to, const void* from, int bytes, uint32_t barrier) {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
            "r"(address_of(to)),
        "l"(from), "r"(bytes), "r"(barrier)
        : "memory");
}
__device__ void cluster_sync() {
    asm volatile("barrier.cluster.arrive.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.aligned;" ::: "memory");
}

// ---- cp.async

// Three groups of a copy each; y: what is there before a wait, and after each.
__global__ void groups(int* y, const int* x) {
    __shared__ __align__(16) int s[32][4];
    const int i = threadIdx.x;
    for (int k = 0; k < 4; k++) s[i][k] = -1;
    const uint32_t to = address_of(s[i]);
    for (int k = 0; k < 3; k++) {
        asm volatile(
            "cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to + 4 * k), "l"(x + 32 * k + i)
            : "memory");
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    int* out = y + 8 * i;
    volatile int* mine = s[i];
    out[0] = mine[0] + mine[1] + mine[2];
    asm volatile("cp.async.wait_group 2;" ::: "memory");
    out[1] = mine[0];
    out[2] = mine[1] + mine[2];
    asm volatile("cp.async.wait_group %0;" ::"n"(1) : "memory");
    out[3] = mine[1];
    out[4] = mine[2];
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to + 12), "l"(x + i) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    out[5] = mine[2];
    out[6] = mine[3];
}
extern "C" cudaError_t run_groups(int* y, const int* x) {
    groups<<<1, 32>>>(y, x);
    return cudaGetLastError();
}

// An mbarrier that is told when the copies of all threads are complete.
__global__ void tells(int* y, const int* x, int counts) {
    __shared__ __align__(16) int s[64][4];
    __shared__ uint64_t barrier;
    const int i = threadIdx.x;
    const uint32_t at = address_of(&barrier);
    if (i == 0) init(at, 64);
    __syncthreads();
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address_of(s[i])), "l"(x + 4 * i)
                 : "memory");
    if (counts) {
        asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(at) : "memory");
    } else {
        asm volatile("cp.async.mbarrier.arrive.b64 [%0];" ::"l"(&barrier) : "memory");
        asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(at) : "memory");
    }
    wait(at, 0);
    for (int k = 0; k < 4; k++) y[4 * i + k] = s[63 - i][k];
}
extern "C" cudaError_t run_tells(int* y, const int* x, int counts) {
    tells<<<1, 64>>>(y, x, counts);
    return cudaGetLastError();
}

// ---- mbarriers

// One thread: what each step answers.
__global__ void phases(int* y) {
    __shared__ uint64_t barrier;
    const uint32_t at = address_of(&barrier);
    uint64_t state, first;
    uint32_t n;
    asm volatile("mbarrier.init.b64 [%0], 3;" ::"l"(&barrier) : "memory");
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 %0, [%1];"
                 : "=l"(first)
                 : "r"(at)
                 : "memory");
    asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(n) : "l"(first));
    *y++ = n;
    asm volatile(
        "{ .reg .pred p; mbarrier.test_wait.shared.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(n)
        : "r"(at), "l"(first)
        : "memory");
    *y++ = n;
    *y++ = test(at, 1);  // the phase before the first has ended
    asm volatile("mbarrier.arrive.shared.b64 %0, [%1], 2;" : "=l"(state) : "r"(at) : "memory");
    asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(n) : "l"(state));
    *y++ = n;
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.acquire.cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
        : "=r"(n)
        : "l"(&barrier), "l"(first)
        : "memory");
    *y++ = n;
    *y++ = test(at, 0);
    *y++ = test(at, 1);
    // Phase 1: bytes that are announced, and come.
    asm volatile("mbarrier.arrive.expect_tx.release.cluster.shared::cta.b64 %0, [%1], 48;"
                 : "=l"(state)
                 : "r"(at)
                 : "memory");
    asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], 16;" ::"r"(at) : "memory");
    asm volatile("mbarrier.arrive.release.cta.shared::cta.b64 _, [%0], 2;" ::"r"(at) : "memory");
    *y++ = test(at, 1);
    asm volatile("mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%0], 32;" ::"r"(at) : "memory");
    *y++ = test(at, 1);
    asm volatile("mbarrier.complete_tx.shared::cluster.b64 [%0], 32;" ::"r"(at) : "memory");
    *y++ = test(at, 1);
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.shared::cta.b64 p, [%1], %2, 1000; selp.u32 %0, 1, 0, "
        "p; }"
        : "=r"(n)
        : "r"(at), "l"(state)
        : "memory");
    *y++ = n;
    // Phase 2: one leaves, so phase 3 awaits two, then one.
    asm volatile("mbarrier.arrive_drop.shared.b64 %0, [%1];" : "=l"(state) : "r"(at) : "memory");
    asm volatile("mbarrier.arrive.shared.b64 %0, [%1], 2;" : "=l"(state) : "r"(at) : "memory");
    *y++ = test(at, 0);
    asm volatile("mbarrier.arrive_drop.expect_tx.shared.b64 %0, [%1], 8;"
                 : "=l"(state)
                 : "r"(at)
                 : "memory");
    asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(n) : "l"(state));
    *y++ = n;
    asm volatile("mbarrier.arrive.noComplete.release.cta.shared.b64 %0, [%1], 1;"
                 : "=l"(state)
                 : "r"(at)
                 : "memory");
    *y++ = test(at, 1);
    asm volatile("mbarrier.complete_tx.shared::cta.b64 [%0], 8;" ::"r"(at) : "memory");
    *y++ = test(at, 1);
    asm volatile("mbarrier.arrive.shared.b64 %0, [%1];" : "=l"(state) : "r"(at) : "memory");
    asm volatile("mbarrier.pending_count.b64 %0, %1;" : "=r"(n) : "l"(state));
    *y++ = n;
    *y++ = test(at, 0);
    asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(at) : "memory");
    asm volatile("mbarrier.init.shared.b64 [%0], 1;" ::"r"(at) : "memory");
    *y++ = test(at, 0);
}
extern "C" cudaError_t run_phases(int* y) {
    phases<<<1, 1>>>(y);
    return cudaGetLastError();
}

// A ring of two places, with a barrier for full and one for empty each: warp 0 copies, others add.
__global__ void ring(int* y, const int* x, int rounds) {
    __shared__ __align__(128) int places[2][64];
    __shared__ uint64_t full[2], empty[2];
    if (threadIdx.x == 0)
        for (int k = 0; k < 2; k++) {
            init(address_of(&full[k]), 1);
            init(address_of(&empty[k]), 64);
        }
    __syncthreads();
    if (threadIdx.x < 32) {
        if (threadIdx.x == 0)
            for (int round = 0; round < rounds; round++) {
                const int k = round % 2, turn = round / 2;
                wait(address_of(&empty[k]), turn + 1 & 1);
                expect(address_of(&full[k]), 256);
                load_bulk(places[k], x + 64 * round, 256, address_of(&full[k]));
            }
    } else {
        const int i = threadIdx.x - 32;
        int sum = 0;
        for (int round = 0; round < rounds; round++) {
            const int k = round % 2, turn = round / 2;
            wait(address_of(&full[k]), turn & 1);
            sum += places[k][63 - i];
            asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(address_of(&empty[k]))
                         : "memory");
        }
        y[i] = sum;
    }
}
extern "C" cudaError_t run_ring(int* y, const int* x, int rounds) {
    ring<<<1, 96>>>(y, x, rounds);
    return cudaGetLastError();
}

// ---- Copies in bulk

// To shared memory and back; y[128]: what is there before the wait.
__global__ void bulk(int* y, const int* x) {
    __shared__ __align__(128) int s[128];
    __shared__ uint64_t barrier;
    const uint32_t at = address_of(&barrier);
    for (int i = 0; i < 128; i++) s[i] = -1;
    init(at, 1);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    expect(at, 512);
    load_bulk(s, x, 256, at);
    load_bulk(s + 64, x + 64, 256, at);
    y[128] = *(volatile int*)&s[3];
    wait(at, 0);
    for (int i = 0; i < 128; i++) s[i] += 1000;
    asm volatile("fence.proxy.async;" ::: "memory");
    asm volatile(
        "cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], 256;" ::"l"(y), "r"(address_of(s))
        : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(y + 64),
                 "r"(address_of(s + 64)), "r"(256)
                 : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    y[129] = *(volatile int*)&y[0];
    asm volatile("cp.async.bulk.wait_group 1;" ::: "memory");
    y[130] = *(volatile int*)&y[0];
    y[131] = *(volatile int*)&y[64];
    asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    s[5] = s[70] = 7;
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], 64;" ::"l"(x));
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    y[132] = *(volatile int*)&y[64];
}
extern "C" cudaError_t run_bulk(int* y, const int* x) {
    bulk<<<1, 1>>>(y, x);
    return cudaGetLastError();
}

// Each block of a cluster sends its row to the next: by a copy in bulk, by st.async and red.async.
__global__ void sends(int* y) {
    extern __shared__ __align__(128) int mine[];  // 32 to send, 32 received, 16 stored, 8 summed up
    __shared__ uint64_t barrier;
    const uint32_t at = address_of(&barrier), base = address_of(mine);
    const int i = threadIdx.x;
    uint32_t rank, size, there, told;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(size));
    mine[i] = 100 * rank + i;
    mine[32 + i] = mine[64 + i] = 50;
    if (i == 0) init(at, 1);
    __syncthreads();
    asm volatile("fence.proxy.async;" ::: "memory");
    if (i == 0) expect(at, 128 + 16 + 8 + 8 + 8 + 4 + 4 + 8);
    cluster_sync();
    const uint32_t next = (rank + 1) % size;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(base), "r"(next));
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(told) : "r"(at), "r"(next));
    if (i == 0) {
        asm volatile(
            "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], "
            "128, [%2];" ::"r"(there + 128),
            "r"(base), "r"(told)
            : "memory");
        const int a = 10 * rank;
        asm volatile(
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%2, %3, %4, %5}, "
            "[%1];" ::"r"(there + 256),
            "r"(told), "r"(a + 1), "r"(a + 2), "r"(a + 3), "r"(a + 4)
            : "memory");
        asm volatile(
            "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.s32 [%0], {%2, %3}, "
            "[%1];" ::"r"(there + 272),
            "r"(told), "r"(a + 5), "r"(a + 6)
            : "memory");
        asm volatile(
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %2, [%1];" ::"r"(
                there + 280),
            "r"(told), "l"((long long)(a + 8) << 32 | (a + 7))
            : "memory");
        asm volatile(
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%2, %2}, [%1];" ::
                "r"(there + 288),
            "r"(told), "f"(1.5f)
            : "memory");
        asm volatile(
            "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%0], "
            "%2, [%1];" ::"r"(there + 320),
            "r"(told), "r"(a + 1)
            : "memory");
        asm volatile(
            "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.min.s32 [%0], "
            "%2, [%1];" ::"r"(there + 324),
            "r"(told), "r"(-a)
            : "memory");
        asm volatile(
            "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u64 [%0], "
            "%2, [%1];" ::"r"(there + 328),
            "r"(told), "l"(1ll << 32)
            : "memory");
    }
    wait(at, 0);
    int* out = y + 96 * blockIdx.x;
    for (int k = 0; k < 3; k++) out[32 * k + i] = mine[32 * k + i];
    cluster_sync();
}

// ---- Launches in clusters

template <class... Parameters, class... Arguments>
cudaError_t launch(dim3 cluster, dim3 grid, int block, int shared, void (*kernel)(Parameters...),
                   Arguments... arguments) {
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared;
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = cluster.x;
    attribute.val.clusterDim.y = cluster.y;
    attribute.val.clusterDim.z = cluster.z;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}

extern "C" cudaError_t run_sends(int* y, int size) {
    return launch(size, 2 * size, 32, 512, sends, y);
}

// What a block knows of its cluster: by special registers and by its group.
__device__ void tell_shape(int* y) {
    const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    int* out = y + 32 * block;
    const auto group = cg::this_cluster();
    if (threadIdx.x != 5) return;
    asm("mov.u32 %0, %%cluster_ctaid.x;" : "=r"(out[0]));
    asm("mov.u32 %0, %%cluster_ctaid.y;" : "=r"(out[1]));
    asm("mov.u32 %0, %%cluster_ctaid.z;" : "=r"(out[2]));
    asm("mov.u32 %0, %%cluster_nctaid.x;" : "=r"(out[3]));
    asm("mov.u32 %0, %%cluster_nctaid.y;" : "=r"(out[4]));
    asm("mov.u32 %0, %%cluster_nctaid.z;" : "=r"(out[5]));
    asm("mov.u32 %0, %%clusterid.x;" : "=r"(out[6]));
    asm("mov.u32 %0, %%clusterid.y;" : "=r"(out[7]));
    asm("mov.u32 %0, %%clusterid.z;" : "=r"(out[8]));
    asm("mov.u32 %0, %%nclusterid.x;" : "=r"(out[9]));
    asm("mov.u32 %0, %%nclusterid.y;" : "=r"(out[10]));
    asm("mov.u32 %0, %%nclusterid.z;" : "=r"(out[11]));
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(out[12]));
    asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(out[13]));
    asm("{ .reg .pred p; mov.pred p, %%is_explicit_cluster; selp.u32 %0, 1, 0, p; }"
        : "=r"(out[14]));
    out[15] = group.block_rank();
    out[16] = group.num_blocks();
    out[17] = group.block_index().x + 10 * group.block_index().y + 100 * group.block_index().z;
    out[18] = group.dim_blocks().x + 10 * group.dim_blocks().y + 100 * group.dim_blocks().z;
    out[19] = group.thread_rank();
    out[20] = group.num_threads();
}
__global__ void shapes(int* y) { tell_shape(y); }
__global__ void __cluster_dims__(2, 2, 1) fixed_shapes(int* y) { tell_shape(y); }

extern "C" cudaError_t run_shapes(int* y, int x, int y_, int z, int by_c) {
    const dim3 grid(2 * x, y_, 3 * z);
    if (!by_c) return launch(dim3(x, y_, z), grid, 32, 0, shapes, y);
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = 32;
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = x;
    attribute.val.clusterDim.y = y_;
    attribute.val.clusterDim.z = z;
    config.attrs = &attribute;
    config.numAttrs = 1;
    void* arguments[] = {&y};
    return cudaLaunchKernelExC(&config, (const void*)shapes, arguments);
}
extern "C" cudaError_t run_preferred_shapes(int* y, int blocks, int regular, int preferred) {
    cudaLaunchConfig_t config = {};
    config.gridDim = blocks;
    config.blockDim = 32;
    cudaLaunchAttribute attributes[2] = {};
    attributes[0].id = cudaLaunchAttributePreferredClusterDimension;
    attributes[0].val.preferredClusterDim = {unsigned(preferred), 1, 1};
    attributes[1].id = cudaLaunchAttributeClusterDimension;
    attributes[1].val.clusterDim = {unsigned(regular), 1, 1};
    config.attrs = attributes;
    config.numAttrs = regular ? 2 : 1;
    return cudaLaunchKernelEx(&config, shapes, y);
}
extern "C" cudaError_t run_fixed_shapes(int* y, int x, int y_, int z) {
    fixed_shapes<<<dim3(x, y_, z), 32>>>(y);
    return cudaGetLastError();
}

// The codes that launches end with.
extern "C" cudaError_t run_sizes(int* codes, int* y) {
    int all[6];
    all[0] = launch(2, 3, 32, 0, shapes, y);
    all[1] = launch(dim3(1, 2), dim3(2, 3), 32, 0, shapes, y);
    all[2] = launch(16, 16, 32, 0, shapes, y);
    all[3] = launch(dim3(8, 2, 2), dim3(8, 2, 2), 32, 0, shapes, y);
    cudaGetLastError();
    cudaFuncSetAttribute(shapes, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    all[4] = launch(16, 16, 32, 0, shapes, y);
    all[5] = launch(32, 32, 32, 0, shapes, y);
    cudaGetLastError();
    cudaFuncSetAttribute(shapes, cudaFuncAttributeNonPortableClusterSizeAllowed, 0);
    return cudaMemcpy(codes, all, sizeof all, cudaMemcpyDefault);
}

// Blocks read, write and count in each other's memory, static and dynamic.
__global__ void neighbours(int* y) {
    extern __shared__ int dynamic[];
    __shared__ int fixed[32], received[32], total;
    const auto group = cg::this_cluster();
    const uint32_t rank = group.block_rank(), size = group.num_blocks(), i = threadIdx.x;
    const uint32_t next = (rank + 1) % size, last = size - 1;
    fixed[i] = 1000 * rank + i;
    dynamic[i] = -int(1000 * rank + i);
    if (i == 0) total = 0;
    group.sync();
    int* out = y + 9 * (32 * blockIdx.x + i);
    uint32_t there, at;
    uint64_t pointer;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address_of(fixed)), "r"(next));
    asm volatile("ld.shared::cluster.u32 %0, [%1 + 4];" : "=r"(out[0]) : "r"(there) : "memory");
    out[1] = group.map_shared_rank(dynamic, next)[31 - i];
    asm("mapa.u64 %0, %1, %2;" : "=l"(pointer) : "l"(&fixed[i]), "r"(last));
    asm volatile("ld.relaxed.cluster.u32 %0, [%1];" : "=r"(out[2]) : "l"(pointer) : "memory");
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(address_of(received)), "r"(next));
    asm volatile("st.shared::cluster.u32 [%0], %1;" ::"r"(at + 4 * i), "r"(7 * rank + i)
                 : "memory");
    asm("mapa.shared::cluster.u32 %0, %1, 0;" : "=r"(at) : "r"(address_of(&total)));
    asm volatile("red.relaxed.cluster.shared::cluster.add.u32 [%0], 1;" ::"r"(at) : "memory");
    int old;
    asm volatile("atom.shared::cluster.add.u32 %0, [%1], 1;" : "=r"(old) : "r"(at) : "memory");
    asm("getctarank.shared::cluster.u32 %0, %1;" : "=r"(out[3]) : "r"(there));
    asm("getctarank.u64 %0, %1;" : "=r"(out[4]) : "l"(pointer));
    out[5] = group.query_shared_rank(group.map_shared_rank(dynamic, last));
    asm("{ .reg .pred p, q, r; isspacep.shared::cta p, %1; isspacep.shared::cluster q, %1; "
        "isspacep.global r, %1; .reg .u32 n; selp.u32 %0, 1, 0, p; selp.u32 n, 2, 0, q; "
        "add.u32 %0, %0, n; selp.u32 n, 4, 0, r; add.u32 %0, %0, n; }"
        : "=&r"(out[8])
        : "l"(pointer));
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
    out[6] = received[i];
    out[7] = *group.map_shared_rank(&total, 0);
    auto token = group.barrier_arrive();
    group.barrier_wait(static_cast<decltype(token)&&>(token));
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    asm volatile("barrier.cluster.arrive;" ::: "memory");
    asm volatile("barrier.cluster.wait;" ::: "memory");
}
extern "C" cudaError_t run_neighbours(int* y, int size, int blocks) {
    if (size == 16)
        cudaFuncSetAttribute(neighbours, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
    return launch(size, blocks, 32, 256, neighbours, y);
}

// The second kernel waits for the first.
__global__ void primary(int* y) {
    y[threadIdx.x] = threadIdx.x;
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
__global__ void secondary(int* y) {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    y[32 + threadIdx.x] = 2 * y[31 - threadIdx.x];
}
extern "C" cudaError_t run_dependent(int* y) {
    primary<<<1, 32>>>(y);
    cudaLaunchConfig_t config = {};
    config.gridDim = 1;
    config.blockDim = 32;
    cudaLaunchAttribute attribute;
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    config.attrs = &attribute;
    config.numAttrs = 1;
    return cudaLaunchKernelEx(&config, secondary, y);
}

// ---- Tensors

typedef CUresult (*Encode)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*, const cuuint64_t*,
                           const cuuint64_t*, const cuuint32_t*, const cuuint32_t*,
                           CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                           CUtensorMapFloatOOBfill);

// how: 0 by the driver's entry point, 1 the same without a version, 2 directly.
Encode encoder(int how) {
    void* function = nullptr;
    static_assert(sizeof(PFN_cuTensorMapEncodeIm2col_v12000) == sizeof(void*), "of images");
    cudaDriverEntryPointQueryResult result;
#if !PLAYGROUND_CUDA
    if (how == 2) return cuTensorMapEncodeTiled;
#endif
#if CUDART_VERSION < 13000 || !PLAYGROUND_CUDA
    if (how == 1) {
        cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &result);
        return reinterpret_cast<Encode>(function);
    }
#endif
    cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result);
    return reinterpret_cast<Encode>(function);
}

struct Tensor {
    CUtensorMap map;
    CUresult code;
};
#define SHAPE                                                                                   \
    int how, int type, int swizzle, int fill, int rank, int e0, int e1, int e2, int e3, int e4, \
        int t1, int t2, int t3, int t4, int b0, int b1, int b2, int b3, int b4, int s0, int s1, \
        int s2, int s3, int s4
#define SHAPE_GIVEN                                                                             \
    how, type, swizzle, fill, rank, e0, e1, e2, e3, e4, t1, t2, t3, t4, b0, b1, b2, b3, b4, s0, \
        s1, s2, s3, s4

Tensor encoded(void* x, SHAPE) {
    Tensor tensor;
    const cuuint64_t extent[] = {
        (cuuint64_t)e0, (cuuint64_t)e1, (cuuint64_t)e2, (cuuint64_t)e3, (cuuint64_t)e4};
    const cuuint64_t strides[] = {(cuuint64_t)t1, (cuuint64_t)t2, (cuuint64_t)t3, (cuuint64_t)t4};
    const cuuint32_t box[] = {
        (cuuint32_t)b0, (cuuint32_t)b1, (cuuint32_t)b2, (cuuint32_t)b3, (cuuint32_t)b4};
    const cuuint32_t steps[] = {
        (cuuint32_t)s0, (cuuint32_t)s1, (cuuint32_t)s2, (cuuint32_t)s3, (cuuint32_t)s4};
    tensor.code = encoder(how)(
        &tensor.map, (CUtensorMapDataType)type, rank, x, extent, strides, box, steps,
        CU_TENSOR_MAP_INTERLEAVE_NONE, (CUtensorMapSwizzle)swizzle,
        CU_TENSOR_MAP_L2_PROMOTION_L2_128B, (CUtensorMapFloatOOBfill)fill);
    return tensor;
}
extern "C" cudaError_t run_encode(int* code, int* x, int offset, SHAPE) {
    const int answer = encoded(reinterpret_cast<char*>(x) + offset, SHAPE_GIVEN).code;
    return cudaMemcpy(code, &answer, sizeof answer, cudaMemcpyDefault);
}

struct Place {
    int at[5];
};

// direction: 0 to shared memory, 1 back, 2 and so on what is added to the tensor.
__global__ void boxes(const __grid_constant__ CUtensorMap map, int* y, int rank, Place place,
                      int bytes, int direction) {
    extern __shared__ __align__(1024) int s[];
    __shared__ uint64_t barrier;
    const uint32_t at = address_of(&barrier), to = address_of(s);
    const int *c = place.at, words = bytes / 4;
    const auto* m = &map;
    for (int i = threadIdx.x; i < words; i += 32) s[i] = direction ? y[i] : -1;
    if (threadIdx.x == 0) init(at, 1);
    asm volatile("fence.proxy.async;" ::: "memory");
    __syncthreads();
    if (threadIdx.x == 0 && direction == 0) {
        asm volatile("prefetch.tensormap [%0];" ::"l"(m) : "memory");
        expect(at, bytes);
        if (rank == 1)
            asm volatile(
                "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
                "[%1, {%3}], [%2];" ::"r"(to),
                "l"(m), "r"(at), "r"(c[0])
                : "memory");
        if (rank == 2)
            asm volatile(
                "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                "[%0], [%1, {%3, %4}], [%2];" ::"r"(to),
                "l"(m), "r"(at), "r"(c[0]), "r"(c[1])
                : "memory");
        if (rank == 3)
            asm volatile(
                "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
                "[%1, {%3, %4, %5}], [%2];" ::"r"(to),
                "l"(m), "r"(at), "r"(c[0]), "r"(c[1]), "r"(c[2])
                : "memory");
        if (rank == 4)
            asm volatile(
                "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], "
                "[%1, {%3, %4, %5, %6}], [%2];" ::"r"(to),
                "l"(m), "r"(at), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3])
                : "memory");
        if (rank == 5)
            asm volatile(
                "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
                ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(to),
                "l"(m), "r"(at), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(c[4]),
                "l"(0x12F0000000000000ull)
                : "memory");
    }
    if (direction == 0) {
        wait(at, 0);
        for (int i = threadIdx.x; i < words; i += 32) y[i] = s[i];
        return;
    }
    if (threadIdx.x) return;
    if (direction == 1) {
        if (rank == 1)
            asm volatile(
                "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%1, {%2}], [%0];" ::"r"(to),
                "l"(m), "r"(c[0])
                : "memory");
        if (rank == 2)
            asm volatile(
                "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%1, {%2, %3}], [%0];" ::"r"(
                    to),
                "l"(m), "r"(c[0]), "r"(c[1])
                : "memory");
        if (rank == 3)
            asm volatile(
                "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%1, {%2, %3, %4}], "
                "[%0];" ::"r"(to),
                "l"(m), "r"(c[0]), "r"(c[1]), "r"(c[2])
                : "memory");
        if (rank == 4)
            asm volatile(
                "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%1, {%2, %3, %4, %5}], "
                "[%0];" ::"r"(to),
                "l"(m), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3])
                : "memory");
        if (rank == 5)
            asm volatile(
                "cp.async.bulk.tensor.5d.global.shared::cta.bulk_group [%1, {%2, %3, %4, %5, %6}], "
                "[%0];" ::"r"(to),
                "l"(m), "r"(c[0]), "r"(c[1]), "r"(c[2]), "r"(c[3]), "r"(c[4])
                : "memory");
    }
    if (direction == 2)
        asm volatile(
            "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%1, {%2, %3}], "
            "[%0];" ::"r"(to),
            "l"(m), "r"(c[0]), "r"(c[1])
            : "memory");
    if (direction == 3)
        asm volatile(
            "cp.reduce.async.bulk.tensor.2d.global.shared::cta.max.bulk_group [%1, {%2, %3}], "
            "[%0];" ::"r"(to),
            "l"(m), "r"(c[0]), "r"(c[1])
            : "memory");
    if (direction == 4)
        asm volatile(
            "cp.reduce.async.bulk.tensor.2d.global.shared::cta.min.bulk_group [%1, {%2, %3}], "
            "[%0];" ::"r"(to),
            "l"(m), "r"(c[0]), "r"(c[1])
            : "memory");
    if (direction == 5)
        asm volatile(
            "cp.reduce.async.bulk.tensor.2d.global.shared::cta.xor.bulk_group [%1, {%2, %3}], "
            "[%0];" ::"r"(to),
            "l"(m), "r"(c[0]), "r"(c[1])
            : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
extern "C" cudaError_t run_boxes(int* y, int* x, int bytes, int direction, int c0, int c1, int c2,
                                 int c3, int c4, SHAPE) {
    const Tensor tensor = encoded(x, SHAPE_GIVEN);
    if (tensor.code) return cudaErrorInvalidValue;
    boxes<<<1, 32, bytes>>>(tensor.map, y, rank, Place{{c0, c1, c2, c3, c4}}, bytes, direction);
    return cudaGetLastError();
}

// Each block of a cluster of 4 sends a row of a matrix to the blocks of a mask: of 16 words each.
__global__ void multicast(const __grid_constant__ CUtensorMap map, int* y, const int* x) {
    __shared__ __align__(128) int s[4][32];
    __shared__ uint64_t barrier;
    const uint32_t at = address_of(&barrier), rank = cg::this_cluster().block_rank();
    for (int k = 0; k < 4; k++) s[k][threadIdx.x] = -1;
    if (threadIdx.x == 0) {
        init(at, 1);
        expect(at, rank == 3 ? 128 : 256);  // nothing of block 1 for block 3, and of 2 for 3 alone
    }
    asm volatile("fence.proxy.async;" ::: "memory");
    cluster_sync();
    const int row = rank;
    if (threadIdx.x == 0 && rank < 2)
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
            ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(address_of(s[rank])),
            "l"(&map), "r"(at), "r"(0), "r"(row), "h"((unsigned short)(rank ? 0x7 : 0x5))
            : "memory");
    if (threadIdx.x == 0 && rank == 2)
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
            "[%0], [%1], 128, [%2], %3;" ::"r"(address_of(s[2])),
            "l"(x + 64), "r"(at), "h"((unsigned short)0xA)
            : "memory");
    wait(at, 0);
    for (int k = 0; k < 4; k++) y[128 * blockIdx.x + 32 * k + threadIdx.x] = s[k][threadIdx.x];
    cluster_sync();
}
extern "C" cudaError_t run_multicast(int* y, int* x) {
    const Tensor tensor =
        encoded(x, 0, 3, 0, 0, 2, 32, 4, 1, 1, 1, 128, 0, 0, 0, 32, 1, 1, 1, 1, 1, 1, 1, 1, 1);
    return launch(4, 4, 32, 0, multicast, tensor.map, y, (const int*)x);
}

// ---- What never ends

__global__ void stuck(int* y, const int* x, int what) {
    __shared__ __align__(128) int s[128];
    __shared__ uint64_t barrier;
    const uint32_t at = address_of(&barrier);
    if (threadIdx.x == 0) init(at, what == 0 ? 2 : 1);
    __syncthreads();
    if (what == 0 && threadIdx.x == 0)
        asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(at) : "memory");
    if ((what == 1 || what == 2) && threadIdx.x == 0) {
        expect(at, what == 1 ? 512 : 128);
        load_bulk(s, x, 256, at);
    }
    if (what == 3) asm volatile("bar.sync 5, 96;" ::: "memory");  // two warps of three
    if (what == 4 && threadIdx.x == 0)
        while (!test(at, 0)) {  // for ever
        }
    if (what == 5 && threadIdx.x < 32) asm volatile("bar.arrive 5, 96;" ::: "memory");
    if (what == 5 && threadIdx.x >= 32) asm volatile("bar.sync 5, 96;" ::: "memory");  // of whom
    if (what < 3) wait(at, 0);
    y[threadIdx.x] = s[threadIdx.x];
}
extern "C" cudaError_t run_stuck(int* y, const int* x, int what) {
    stuck<<<1, 64>>>(y, x, what);
    return cudaGetLastError();
}

__global__ void stuck_cluster(int* y, int what) {
    __shared__ uint64_t barrier;
    const uint32_t at = address_of(&barrier), rank = cg::this_cluster().block_rank();
    if (threadIdx.x == 0) init(at, 1);
    cluster_sync();
    if (what == 0 && rank != 1) cg::this_cluster().sync();  // block 1 does not
    if (what == 0 && rank == 1) wait(at, 0);
    if (what == 1 && rank == 1) wait(at, 0);
    if (what == 2 && rank == 1) wait(at, 0);
    if (what == 2 && rank == 0)
        while (!test(at, 0)) {
        }
    if (what == 3)
        while (!test(at, 0)) {
        }
    if (what == 4)
        for (volatile int spinning = 1; spinning;) {
        }
    y[32 * blockIdx.x + threadIdx.x] = 1;
}
extern "C" cudaError_t run_stuck_cluster(int* y, int what) {
    return launch(2, 2, 32, 0, stuck_cluster, y, what);
}

// Addresses of shared memory in registers of 64 bits: pointers where the state space is said, and
// what `__cvta_generic_to_shared` gives where it is not.
__global__ void wide_kernel(int* y, const int* x) {
    __shared__ alignas(16) int here[4];
    __shared__ alignas(8) uint64_t barrier;
    const uint64_t address = __cvta_generic_to_shared(&barrier);
    asm volatile("mbarrier.init.b64 [%0], 1;" ::"l"(address) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 16;" ::"l"(&barrier)
                 : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], 16, [%2];" ::
            "l"(here),
        "l"(x), "l"(&barrier)
        : "memory");
    wait(uint32_t(address), 0);
    int last;
    asm volatile("ld.shared.b32 %0, [%1 + 12];" : "=r"(last) : "l"(here) : "memory");
    asm volatile("st.shared.b32 [%0], %1;" ::"l"(here), "r"(last) : "memory");
    y[0] = here[0];
    y[1] = here[1];
}
extern "C" void run_wide(int* y, const int* x) { wide_kernel<<<1, 1>>>(y, x); }
