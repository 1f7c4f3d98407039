// c = a b^T on Hopper: five kernels, from the first wgmma to the speed of cuBLAS. The file stands
// alone: every PTX instruction that the kernels use is wrapped in a function below.
//
//   a [m, k], b [n, k], c [m, n] bfloat16; m: a multiple of 256, n of 256, k of 64
//
//   one_stage    TMA fills one stage, wgmma multiplies it          flaw: each waits for the other
//   four_stages  three more stages are on their way meanwhile      flaw: all threads wait each step
//   specialized  a producer warpgroup and two consumers            flaw: nobody fetches during
//   stores persistent   blocks stay; c leaves through shared memory       flaw: neighbours fetch
//   the same b multicast    the two blocks of a cluster share the tiles of b
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

namespace {

using T = __nv_bfloat16;
constexpr int kRows = 128, kColumns = 256, kDepth = 64;  // a block's tile of c; k in one step
constexpr int kStages = 4, kWarpgroup = 128;
constexpr int kConsumers = 2;  // warpgroups that multiply: each has 64 rows of the tile
constexpr int kPart = 64;      // columns of c that a warpgroup hands to TMA at a time

// ---- mbarriers

__device__ uint32_t smem_address(const void* shared) {
    return uint32_t(__cvta_generic_to_shared(shared));
}

__device__ void init_barrier(uint64_t* barrier, int arrivals) {
    asm volatile(
        "mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(smem_address(barrier)), "r"(arrivals)
        : "memory");
}

// TMA and the other blocks of the cluster see the initialised barriers after this and a barrier.
__device__ void fence_barrier_init() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Waits until the phase of this parity is complete.
__device__ void wait(uint64_t* barrier, int parity) {
    asm volatile(
        "{\n"
        ".reg .pred complete;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 complete, [%0], %1;\n"
        "@!complete bra again;\n"
        "}" ::"r"(smem_address(barrier)),
        "r"(parity)
        : "memory");
}

__device__ void arrive(uint64_t* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(smem_address(barrier))
                 : "memory");
}

// Arrives at the same barrier of block `rank` of the cluster. The scope of the cluster is not
// needed: the arrival tells that this thread has read, and nothing that it has written.
__device__ void arrive_at(uint64_t* barrier, int rank) {
    asm volatile(
        "{\n"
        ".reg .b32 there;\n"
        "mapa.shared::cluster.u32 there, %0, %1;\n"
        "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
        "}" ::"r"(smem_address(barrier)),
        "r"(rank)
        : "memory");
}

// Arrives, and the phase is complete only when so many bytes have come, too.
__device__ void expect_bytes(uint64_t* barrier, int bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(smem_address(barrier)),
        "r"(bytes)
        : "memory");
}

// ---- TMA

// Loads the box that begins at this column and row; its bytes arrive at the barrier.
__device__ void tma_load(void* to, const CUtensorMap& map, int column, int row, uint64_t* barrier) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
        "[%0], [%1, {%2, %3}], [%4];" ::"r"(smem_address(to)),
        "l"(&map), "r"(column), "r"(row), "r"(smem_address(barrier))
        : "memory");
}

// The same for each block of the cluster whose bit is set: to the same place, at the same barrier.
__device__ void tma_load_multicast(void* to, const CUtensorMap& map, int column, int row,
                                   uint64_t* barrier, int blocks) {
    asm volatile(
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        ".multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(smem_address(to)),
        "l"(&map), "r"(column), "r"(row), "r"(smem_address(barrier)), "h"(uint16_t(blocks))
        : "memory");
}

// Stores a box, as a bulk group of its own.
__device__ void tma_store(const CUtensorMap& map, const void* from, int column, int row) {
    asm volatile(
        "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];" ::"l"(&map),
        "r"(column), "r"(row), "r"(smem_address(from))
        : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until at most `pending` of this thread's stores still read shared memory.
template <int pending>
__device__ void tma_store_wait_read() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}
__device__ void tma_store_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// What threads have written to shared memory becomes visible to TMA and wgmma, which read it
// through the async proxy.
__device__ void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// ---- wgmma

// The matrix descriptor of a tile with rows of 128 bytes in the 128-byte swizzle:
//   bits 0 to 13   its address / 16
//   bits 16 to 29  leading byte offset / 16, which this layout does not use
//   bits 32 to 45  stride byte offset / 16: from eight rows to the next eight, 1024 bytes
//   bits 62, 63    1: the 128-byte swizzle
__device__ uint64_t smem_descriptor(const T* tile) {
    return uint64_t(smem_address(tile) >> 4 & 0x3fff) | uint64_t(1024 >> 4) << 32 | 1ull << 62;
}

// Orders what threads have done with the accumulators before the next wgmma.
__device__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most `pending` groups are still running.
template <int pending>
__device__ void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(pending) : "memory");
}

#define EIGHT(f, i) f(i), f(i + 1), f(i + 2), f(i + 3), f(i + 4), f(i + 5), f(i + 6), f(i + 7)
#define SUM(i) "+f"(sums[i])

// sums = a b^T, or with `adds` sums += a b^T: 64 rows of a by 256 rows of b, over 16 of k. A
// warpgroup starts it; it runs until wgmma_wait.
__device__ void wgmma(float (&sums)[128], uint64_t a, uint64_t b, bool adds) {
    asm volatile(
        "{\n"
        ".reg .pred adds;\n"
        "setp.ne.b32 adds, %130, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, "
        "%19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
        "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, "
        "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, %64, %65, %66, %67, %68, %69, "
        "%70, %71, %72, %73, %74, %75, %76, %77, %78, %79, %80, %81, %82, %83, %84, %85, %86, "
        "%87, %88, %89, %90, %91, %92, %93, %94, %95, %96, %97, %98, %99, %100, %101, %102, "
        "%103, %104, %105, %106, %107, %108, %109, %110, %111, %112, %113, %114, %115, %116, "
        "%117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127}, "
        "%128, %129, adds, 1, 1, 0, 0;\n"
        "}"
        : EIGHT(SUM, 0), EIGHT(SUM, 8), EIGHT(SUM, 16), EIGHT(SUM, 24), EIGHT(SUM, 32),
          EIGHT(SUM, 40), EIGHT(SUM, 48), EIGHT(SUM, 56), EIGHT(SUM, 64), EIGHT(SUM, 72),
          EIGHT(SUM, 80), EIGHT(SUM, 88), EIGHT(SUM, 96), EIGHT(SUM, 104), EIGHT(SUM, 112),
          EIGHT(SUM, 120)
        : "l"(a), "l"(b), "r"(int(adds)));
}

// Takes registers from every thread of a warpgroup, or gives it some.
template <int registers>
__device__ void register_dealloc() {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(registers));
}
template <int registers>
__device__ void register_alloc() {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(registers));
}

// ---- what the kernels share

struct Stage {
    T a[kRows * kDepth], b[kColumns * kDepth];
};

// Dynamic shared memory, from a multiple of 1024 bytes on: the swizzle depends on the address.
template <class Shared>
__device__ Shared& shared_memory() {
    extern __shared__ char memory[];
    return *reinterpret_cast<Shared*>((reinterpret_cast<uintptr_t>(memory) + 1023) / 1024 * 1024);
}
template <class Shared>
constexpr int kSharedBytes = sizeof(Shared) + 1023;

// The warpgroup of this thread. The shuffle tells the compiler that it is the same for all threads
// of a warp, so that descriptors stay in uniform registers.
__device__ int warpgroup() { return __shfl_sync(0xffffffff, threadIdx.x / kWarpgroup, 0); }

// Starts a step of the products of a warpgroup: four instructions, one group.
__device__ void multiply(float (&sums)[128], const Stage& stage, int group, bool adds) {
    const uint64_t a = smem_descriptor(stage.a + group * 64 * kDepth);
    const uint64_t b = smem_descriptor(stage.b);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kDepth / 16; ++i)  // 16 of k are 32 bytes, two units of a descriptor
        wgmma(sums, a + 2 * i, b + 2 * i, adds || i > 0);
    wgmma_commit();
}

// A warpgroup's sums, 64 x 256, from the registers to c: a thread has two neighbours of a row.
__device__ void store(const float (&sums)[128], T* c, int row, int column, int n) {
    const int thread = threadIdx.x % kWarpgroup;
    c += int64_t(row + thread / 32 * 16 + thread % 32 / 4) * n + column + thread % 4 * 2;
#pragma unroll
    for (int i = 0; i < 128; i += 2)
        *reinterpret_cast<__nv_bfloat162*>(c + int64_t(i / 2 % 2 * 8) * n + i / 4 * 8) =
            __floats2bfloat162_rn(sums[i], sums[i + 1]);
}

// 64 of the columns to shared memory, by stmatrix, in the swizzle that TMA expects.
__device__ void store_shared(const T* part, const float* sums) {
    const int lane = threadIdx.x % 32, row = threadIdx.x % kWarpgroup / 32 * 16 + lane % 16;
#pragma unroll
    for (int i = 0; i < kPart / 16; ++i) {
        uint32_t words[4];
        for (int j = 0; j < 4; ++j) {
            const __nv_bfloat162 pair =
                __floats2bfloat162_rn(sums[8 * i + 2 * j], sums[8 * i + 2 * j + 1]);
            words[j] = reinterpret_cast<const uint32_t&>(pair);
        }
        const int chunk = 2 * i + lane / 16;  // of 16 bytes
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                         smem_address(part) + row * 128 + (chunk ^ row % 8) * 16),
                     "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
                     : "memory");
    }
}

// ---- one_stage: thread 0 asks TMA for a step's tiles, all wait for them, all multiply

struct OneStage {
    Stage stage;
    uint64_t full;
};

__global__ void __launch_bounds__(kConsumers* kWarpgroup) one_stage_kernel(
    const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, T* c,
    int n, int k) {
    OneStage& shared = shared_memory<OneStage>();
    const int row = blockIdx.x * kRows, column = blockIdx.y * kColumns, group = warpgroup();
    if (threadIdx.x == 0) {
        init_barrier(&shared.full, 1);
        fence_barrier_init();
    }
    __syncthreads();

    float sums[128];
    for (int step = 0; step < k / kDepth; ++step) {
        if (threadIdx.x == 0) {
            expect_bytes(&shared.full, sizeof(Stage));
            tma_load(shared.stage.a, map_a, step * kDepth, row, &shared.full);
            tma_load(shared.stage.b, map_b, step * kDepth, column, &shared.full);
        }
        wait(&shared.full, step % 2);
        multiply(sums, shared.stage, group, step > 0);
        wgmma_wait<0>();
        __syncthreads();  // the stage has been read
    }
    store(sums, c, row + group * 64, column, n);
}

// ---- four_stages: the same, with the next three steps on their way

struct Stages {
    Stage stages[kStages];
    uint64_t full[kStages];
};

__global__ void __launch_bounds__(kConsumers* kWarpgroup) four_stages_kernel(
    const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, T* c,
    int n, int k) {
    Stages& shared = shared_memory<Stages>();
    const int row = blockIdx.x * kRows, column = blockIdx.y * kColumns, group = warpgroup();
    const int steps = k / kDepth;
    const auto fetch = [&](int step) {
        const int i = step % kStages;
        expect_bytes(&shared.full[i], sizeof(Stage));
        tma_load(shared.stages[i].a, map_a, step * kDepth, row, &shared.full[i]);
        tma_load(shared.stages[i].b, map_b, step * kDepth, column, &shared.full[i]);
    };
    if (threadIdx.x == 0) {
        for (uint64_t& full : shared.full) init_barrier(&full, 1);
        fence_barrier_init();
        for (int step = 0; step < kStages && step < steps; ++step) fetch(step);
    }
    __syncthreads();

    float sums[128];
    for (int step = 0; step < steps; ++step) {
        const int i = step % kStages, round = step / kStages;
        wait(&shared.full[i], round % 2);
        multiply(sums, shared.stages[i], group, step > 0);
        wgmma_wait<0>();
        __syncthreads();  // the stage has been read
        if (threadIdx.x == 0 && step + kStages < steps) fetch(step + kStages);
    }
    store(sums, c, row + group * 64, column, n);
}

// ---- specialized: a producer warpgroup fetches, two consumer warpgroups multiply

struct Ring {
    Stage stages[kStages];
    uint64_t full[kStages], empty[kStages];
};

__global__ void __launch_bounds__((kConsumers + 1) * kWarpgroup) specialized_kernel(
    const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b, T* c,
    int n, int k) {
    Ring& shared = shared_memory<Ring>();
    const int row = blockIdx.x * kRows, column = blockIdx.y * kColumns, group = warpgroup();
    const int steps = k / kDepth;
    if (threadIdx.x == 0) {
        for (uint64_t& full : shared.full) init_barrier(&full, 1);
        for (uint64_t& empty : shared.empty) init_barrier(&empty, kConsumers);
        fence_barrier_init();
    }
    __syncthreads();

    if (group == kConsumers) {  // producer
        register_dealloc<40>();
        if (threadIdx.x % kWarpgroup) return;
        for (int step = 0; step < steps; ++step) {
            const int i = step % kStages, round = step / kStages;
            wait(&shared.empty[i], (round + 1) % 2);
            expect_bytes(&shared.full[i], sizeof(Stage));
            tma_load(shared.stages[i].a, map_a, step * kDepth, row, &shared.full[i]);
            tma_load(shared.stages[i].b, map_b, step * kDepth, column, &shared.full[i]);
        }
    } else {  // consumer
        register_alloc<232>();
        float sums[128];
        for (int step = 0; step < steps; ++step) {
            const int i = step % kStages, round = step / kStages;
            wait(&shared.full[i], round % 2);
            multiply(sums, shared.stages[i], group, step > 0);
            wgmma_wait<1>();  // the products of the step before are complete: release its stage
            if (step > 0 && threadIdx.x % kWarpgroup == 0)
                arrive(&shared.empty[(step - 1) % kStages]);
        }
        wgmma_wait<0>();
        store(sums, c, row + group * 64, column, n);
    }
}

// ---- persistent: a block takes tile after tile, and TMA stores one while the next is multiplied

struct RingAndParts {
    Ring ring;
    alignas(1024) T parts[kConsumers][2][64 * kPart];  // of c, on their way out
};

// The order of the tiles: down `high` rows of tiles, then the next column.
struct Tiles {
    int rows, columns, high;
    __host__ __device__ int count() const { return rows * columns; }
    __device__ void place(int tile, int& row, int& column) const {
        const int top = tile / (high * columns) * high, rest = tile - top * columns;
        const int here = high < rows - top ? high : rows - top;
        row = top + rest % here;
        column = rest / here;
    }
};

// A warpgroup's sums to c: 64 columns at a time to shared memory, and from there by TMA. Two parts,
// so that one is written while the other is stored.
__device__ void store_async(const float (&sums)[128], T (&parts)[2][64 * kPart],
                            const CUtensorMap& map_c, int row, int column, int group) {
    const bool issues = threadIdx.x % kWarpgroup == 0;
#pragma unroll
    for (int i = 0; i < kColumns / kPart; ++i) {
        if (issues) tma_store_wait_read<1>();  // the store before the last has read its part
        asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
        store_shared(parts[i % 2], sums + i * kPart / 2);
        fence_async_proxy();
        asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
        if (issues) tma_store(map_c, parts[i % 2], column + i * kPart, row);
    }
}

// The producer's thread keeps the ring full, over all tiles of its block.
__device__ void produce_tiles(Ring& ring, const CUtensorMap& map_a, const CUtensorMap& map_b,
                              const Tiles& tiles, int steps) {
    auto& [stages, full, empty] = ring;
    int row, column, used = 0;  // stages that have been used, over all tiles
    for (int tile = blockIdx.x; tile < tiles.count(); tile += gridDim.x) {
        tiles.place(tile, row, column);
        for (int step = 0; step < steps; ++step, ++used) {
            const int i = used % kStages, round = used / kStages;
            wait(&empty[i], (round + 1) % 2);
            expect_bytes(&full[i], sizeof(Stage));
            tma_load(stages[i].a, map_a, step * kDepth, row * kRows, &full[i]);
            tma_load(stages[i].b, map_b, step * kDepth, column * kColumns, &full[i]);
        }
    }
}

__global__ void __launch_bounds__((kConsumers + 1) * kWarpgroup) persistent_kernel(
    const __grid_constant__ CUtensorMap map_a, const __grid_constant__ CUtensorMap map_b,
    const __grid_constant__ CUtensorMap map_c, Tiles tiles, int steps) {
    RingAndParts& shared = shared_memory<RingAndParts>();
    auto& [stages, full, empty] = shared.ring;
    const int group = warpgroup();
    if (threadIdx.x == 0) {
        for (uint64_t& each : full) init_barrier(&each, 1);
        for (uint64_t& each : empty) init_barrier(&each, kConsumers);
        fence_barrier_init();
    }
    __syncthreads();

    const bool first = threadIdx.x % kWarpgroup == 0;  // of its warpgroup
    if (group == kConsumers) {                         // producer
        register_dealloc<40>();
        if (first) produce_tiles(shared.ring, map_a, map_b, tiles, steps);
    } else {  // consumer
        register_alloc<232>();
        int row, column, used = 0;
        float sums[128];
        for (int tile = blockIdx.x; tile < tiles.count(); tile += gridDim.x) {
            tiles.place(tile, row, column);
            for (int step = 0; step < steps; ++step, ++used) {
                const int i = used % kStages, round = used / kStages;
                wait(&full[i], round % 2);
                multiply(sums, stages[i], group, step > 0);
                wgmma_wait<1>();
                if (step > 0 && first) arrive(&empty[(used - 1) % kStages]);
            }
            wgmma_wait<0>();
            if (first) arrive(&empty[(used - 1) % kStages]);
            store_async(sums, shared.parts[group], map_c, row * kRows + group * 64,
                        column * kColumns, group);
        }
        if (first) tma_store_wait();
    }
}

// ---- multicast: the two blocks of a cluster have tiles one below the other, with the same b

constexpr int kCluster = 2;

__device__ void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
}

// The same for a pair of tiles: each block asks for its own tile of a, and for half of the tile of
// b, which both get.
__device__ void produce_pairs(Ring& ring, const CUtensorMap& map_a, const CUtensorMap& map_b,
                              const Tiles& pairs, int steps) {
    auto& [stages, full, empty] = ring;
    const int rank = blockIdx.x % kCluster, half = rank * kColumns / kCluster;  // of the rows of b
    const int everyone = (1 << kCluster) - 1;
    int row, column, used = 0;
    for (int pair = blockIdx.x / kCluster; pair < pairs.count(); pair += gridDim.x / kCluster) {
        pairs.place(pair, row, column);
        for (int step = 0; step < steps; ++step, ++used) {
            const int i = used % kStages, round = used / kStages;
            wait(&empty[i], (round + 1) % 2);
            expect_bytes(&full[i], sizeof(Stage));
            tma_load(stages[i].a, map_a, step * kDepth, (row * kCluster + rank) * kRows, &full[i]);
            tma_load_multicast(stages[i].b + half * kDepth, map_b, step * kDepth,
                               column * kColumns + half, &full[i], everyone);
        }
    }
}

__global__ void __launch_bounds__((kConsumers + 1) * kWarpgroup) __cluster_dims__(kCluster)
    multicast_kernel(const __grid_constant__ CUtensorMap map_a,
                     const __grid_constant__ CUtensorMap map_b,
                     const __grid_constant__ CUtensorMap map_c, Tiles pairs, int steps) {
    RingAndParts& shared = shared_memory<RingAndParts>();
    auto& [stages, full, empty] = shared.ring;
    const int group = warpgroup(), rank = blockIdx.x % kCluster;
    if (threadIdx.x == 0) {
        for (uint64_t& each : full) init_barrier(&each, 1);
        for (uint64_t& each : empty) init_barrier(&each, kConsumers * kCluster);
        fence_barrier_init();
    }
    cluster_barrier();  // no block may send to a barrier that is not there yet

    const int thread = threadIdx.x % kWarpgroup;
    if (group == kConsumers) {  // producer
        register_dealloc<40>();
        if (thread == 0) produce_pairs(shared.ring, map_a, map_b, pairs, steps);
    } else {  // consumer
        register_alloc<232>();
        int row, column, used = 0;
        float sums[128];
        for (int pair = blockIdx.x / kCluster; pair < pairs.count(); pair += gridDim.x / kCluster) {
            pairs.place(pair, row, column);
            for (int step = 0; step < steps; ++step, ++used) {
                const int i = used % kStages, round = used / kStages;
                wait(&full[i], round % 2);
                multiply(sums, stages[i], group, step > 0);
                wgmma_wait<1>();
                if (step > 0 && thread < kCluster) arrive_at(&empty[(used - 1) % kStages], thread);
            }
            wgmma_wait<0>();
            if (thread < kCluster) arrive_at(&empty[(used - 1) % kStages], thread);
            store_async(sums, shared.parts[group], map_c,
                        (row * kCluster + rank) * kRows + group * 64, column * kColumns, group);
        }
        if (thread == 0) tma_store_wait();
    }
    cluster_barrier();  // the other block still sends to this one's memory
}

// ---- launchers

// The tensor map of a matrix [rows, columns], for boxes of `box_rows` rows and 64 columns.
bool make_tensor_map(CUtensorMap* map, const T* matrix, int rows, int columns, int box_rows) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
    if (!function) return false;
    const cuuint64_t extents[] = {cuuint64_t(columns), cuuint64_t(rows)};
    const cuuint64_t strides[] = {2ull * columns};
    const cuuint32_t box[] = {64, cuuint32_t(box_rows)}, element_strides[] = {1, 1};
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)(
               map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<T*>(matrix), extents, strides,
               box, element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
               CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) ==
           CUDA_SUCCESS;
}

template <class Kernel, class... Arguments>
cudaError_t launch(Kernel* kernel, dim3 blocks, int threads, int bytes, cudaStream_t stream,
                   Arguments... arguments) {
    const auto error =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return error;
    kernel<<<blocks, threads, bytes, stream>>>(arguments...);
    return cudaGetLastError();
}

bool fits(int m, int n, int k) {
    return m > 0 && n > 0 && k > 0 && m % (kCluster * kRows) == 0 && n % kColumns == 0 &&
           k % kDepth == 0;
}

// One block for each tile of c.
template <class Shared, class Kernel>
cudaError_t launch_tiles(Kernel* kernel, int groups, const T* a, const T* b, T* c, int m, int n,
                         int k, cudaStream_t stream) {
    CUtensorMap map_a, map_b;
    if (!fits(m, n, k) || !make_tensor_map(&map_a, a, m, k, kRows) ||
        !make_tensor_map(&map_b, b, n, k, kColumns))
        return cudaErrorInvalidValue;
    return launch(kernel, dim3(m / kRows, n / kColumns), groups * kWarpgroup, kSharedBytes<Shared>,
                  stream, map_a, map_b, c, n, k);
}

// As many blocks as multiprocessors, in clusters of `blocks`, which have a tile each.
template <class Kernel>
cudaError_t launch_persistent(Kernel* kernel, int blocks, const T* a, const T* b, T* c, int m,
                              int n, int k, int high, cudaStream_t stream) {
    CUtensorMap map_a, map_b, map_c;
    if (!fits(m, n, k) || high < blocks || high % blocks ||
        !make_tensor_map(&map_a, a, m, k, kRows) ||
        !make_tensor_map(&map_b, b, n, k, kColumns / blocks) ||
        !make_tensor_map(&map_c, c, m, n, kRows / kConsumers))
        return cudaErrorInvalidValue;
    int device, processors;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    const Tiles tiles{m / kRows / blocks, n / kColumns, high / blocks};
    const int clusters = processors / blocks < tiles.count() ? processors / blocks : tiles.count();
    return launch(kernel, dim3(clusters * blocks), (kConsumers + 1) * kWarpgroup,
                  kSharedBytes<RingAndParts>, stream, map_a, map_b, map_c, tiles, k / kDepth);
}

}  // namespace

extern "C" cudaError_t one_stage(const T* a, const T* b, T* c, int m, int n, int k,
                                 cudaStream_t stream) {
    return launch_tiles<OneStage>(one_stage_kernel, kConsumers, a, b, c, m, n, k, stream);
}

extern "C" cudaError_t four_stages(const T* a, const T* b, T* c, int m, int n, int k,
                                   cudaStream_t stream) {
    return launch_tiles<Stages>(four_stages_kernel, kConsumers, a, b, c, m, n, k, stream);
}

extern "C" cudaError_t specialized(const T* a, const T* b, T* c, int m, int n, int k,
                                   cudaStream_t stream) {
    return launch_tiles<Ring>(specialized_kernel, kConsumers + 1, a, b, c, m, n, k, stream);
}

// high: how many rows of tiles are taken before the next column.
extern "C" cudaError_t persistent(const T* a, const T* b, T* c, int m, int n, int k, int high,
                                  cudaStream_t stream) {
    return launch_persistent(persistent_kernel, 1, a, b, c, m, n, k, high, stream);
}

extern "C" cudaError_t multicast(const T* a, const T* b, T* c, int m, int n, int k, int high,
                                 cudaStream_t stream) {
    return launch_persistent(multicast_kernel, kCluster, a, b, c, m, n, k, high, stream);
}
