// Attention by wgmma: y = softmax(q k^T / sqrt(128)) v, for GPUs of compute capability 9.0
//
//   q, k, v, y [heads, tokens, 128] bfloat16
//   clocks [2, 64, 4] int64: of both consumer warpgroups of the first block and the first 64 steps,
//   when the scores' product was started, and when it, the softmax and the product with v ended
//
// tokens is a multiple of 128; the launchers refuse others. The op's version, which takes all
// shapes, masks and strides, is forward_wgmma in kernels/attention/attention_wgmma.cuh.

#include "attention_rows.cuh"
#include "wgmma_registers.cuh"

constexpr int kCols = 128, kKeys = 128, kConsumers = 2, kRows = 64 * kConsumers;
constexpr int kStages = 2, kThreads = kWarpgroup * (kConsumers + 1);
constexpr int kBox = 128 * kTileRow;  // bytes of 128 rows of 64 columns
constexpr int kSteps = 64;            // whose clocks are read

struct Maps {
    CUtensorMap q, k, v;
};

struct Shared {
    char q[2 * kBox], k[kStages][2 * kBox], v[kStages][2 * kBox];
    Mbarrier q_full, k_full[kStages], k_empty[kStages], v_full[kStages], v_empty[kStages];
};

#if HAS_WGMMA

__device__ Shared& begin(char* memory) {
    Shared& shared = tile_aligned<Shared>(memory);
    if (threadIdx.x == 0) {
        shared.q_full.init();
        for (int i = 0; i < kStages; ++i) {
            shared.k_full[i].init(), shared.k_empty[i].init(kConsumers);
            shared.v_full[i].init(), shared.v_empty[i].init(kConsumers);
        }
    }
    __syncthreads();
    return shared;
}

__device__ void load(char* tile, const CUtensorMap& map, int row, Mbarrier& full) {
    full.arrive_expect_tx(2 * kBox);
    for (int box = 0; box < 2; ++box)
        tma_load(tile + box * kBox, map, box * 64, row, blockIdx.y, full);
}

// The producer warpgroup: one thread keeps both stages of k and v full.
__device__ void produce(Shared& shared, const Maps& maps, int steps) {
    warpgroup_reg_dealloc<24>();
    if (threadIdx.x % kWarpgroup != 0) return;
    load(shared.q, maps.q, blockIdx.x * kRows, shared.q_full);
    for (int step = 0; step < steps; ++step) {
        const int stage = step % kStages, parity = step / kStages % 2;
        shared.k_empty[stage].wait(parity ^ 1);
        load(shared.k[stage], maps.k, step * kKeys, shared.k_full[stage]);
        shared.v_empty[stage].wait(parity ^ 1);
        load(shared.v[stage], maps.v, step * kKeys, shared.v_full[stage]);
    }
}

// Starts s [64, 128 keys] = q k^T, 16 columns at a time; q: the first of a warpgroup's rows.
__device__ void start_scores(float (&s)[kKeys / 2], const char* q, const char* k) {
#pragma unroll
    for (int c = 0; c < kCols / 16; ++c) {
        const int at = c / 4 * (kBox / 16) + c % 4 * 2;
        wgmma<T>(s, wgmma_descriptor(q) + at, wgmma_descriptor(k) + at, c > 0);
    }
    wgmma_commit();
}

// Starts accum [64, 128 columns] += p v, 16 keys at a time, with p from registers.
__device__ void start_values(float (&accum)[kCols / 2], uint32_t (&p)[kKeys / 4], const char* v) {
#pragma unroll
    for (int key = 0; key < kKeys; key += 16) {
        const auto& a = reinterpret_cast<uint32_t (&)[4]>(p[key / 4]);
        wgmma<T, true>(accum, a, wgmma_descriptor(v, kBox) + key * 8, true);
    }
    wgmma_commit();
}

// A consumer warpgroup: its rows of q, the ring's stages, and whose turn it is.
struct Consumer {
    Shared& shared;
    int64_t* const clocks;
    const int group = warpgroup_number();

    __device__ Consumer(Shared& shared, int64_t* clocks) : shared(shared), clocks(clocks) {
        warpgroup_reg_alloc<240>();
        shared.q_full.wait(0);
    }
    __device__ const char* q() const { return shared.q + group * 64 * kTileRow; }
    __device__ const char* k(int step) const { return shared.k[step % kStages]; }
    __device__ const char* v(int step) const { return shared.v[step % kStages]; }
    __device__ static void wait(Mbarrier (&full)[kStages], int step) {
        full[step % kStages].wait(step / kStages % 2);
    }
    __device__ static void release(Mbarrier (&empty)[kStages], int step) {
        if (threadIdx.x % kWarpgroup == 0) empty[step % kStages].arrive();
    }
    // Named barriers 8 and 9: which warpgroup may start products. 256 threads arrive or wait.
    __device__ void wait_turn() const {
        asm volatile("bar.sync %0, 256;" ::"r"(8 + group) : "memory");
    }
    __device__ void give_turn() const {
        asm volatile("bar.arrive %0, 256;" ::"r"(8 + (group ^ 1)) : "memory");
    }
    __device__ void store(T* y, int tokens, float (&sums)[kCols / 2], OnlineSoftmax& online) const {
        float factor[2];
        online.finish(factor);
        scale_rows(sums, factor);
        const int64_t row = int64_t(blockIdx.y) * tokens + blockIdx.x * kRows;
        store_rows(y + (row + threadIdx.x / kWarp * 16) * kCols, sums);
    }
    // Reads the clock, for the time line.
    __device__ void note(int step, int event) const {
        if (clocks && threadIdx.x % kWarpgroup == 0 && blockIdx.x + blockIdx.y == 0 &&
            step < kSteps)
            clocks[(group * kSteps + step) * 4 + event] = clock64();
    }
};

// Before the loop of overlap: the scores of the first step.
__device__ void first_scores(const Consumer& c, float (&s)[kKeys / 2]) {
    c.wait(c.shared.k_full, 0);
    c.wait_turn();
    wgmma_fence();
    start_scores(s, c.q(), c.k(0));
    c.give_turn();
    wgmma_wait<0>();
    c.release(c.shared.k_empty, 0);
}

// Behind it: accum += p v of the last step.
__device__ void last_values(const Consumer& c, float (&accum)[kCols / 2], uint32_t (&p)[kKeys / 4],
                            int step) {
    c.wait(c.shared.v_full, step);
    wgmma_fence();
    start_values(accum, p, c.v(step));
    wgmma_wait<0>();
    c.release(c.shared.v_empty, step);
}

#endif

// ---- serial: a product, a softmax, a product. wgmma reads tiles that a producer fetches by TMA.
// Flaw: whether one warpgroup multiplies during the softmax of the other is left to chance.
__global__ WGMMA_KERNEL(kThreads) void attention_serial(const __grid_constant__ Maps maps, T* y,
                                                        int tokens, float scale, int64_t* clocks) {
#if HAS_WGMMA
    extern __shared__ char memory[];
    Shared& shared = begin(memory);
    const int steps = tokens / kKeys;
    if (warpgroup_number() == kConsumers) return produce(shared, maps, steps);
    const Consumer c(shared, clocks);
    OnlineSoftmax softmax = {scale};
    float s[kKeys / 2], accum[kCols / 2] = {}, factor[2];
    uint32_t p[kKeys / 4];
    for (int step = 0; step < steps; ++step) {
        c.wait(shared.k_full, step);
        c.note(step, 0);
        wgmma_fence();
        start_scores(s, c.q(), c.k(step));
        wgmma_wait<0>();
        c.note(step, 1);
        c.release(shared.k_empty, step);
        softmax.take(s, factor);
        scale_rows(accum, factor);
        to_operand(p, s);
        c.wait(shared.v_full, step);
        c.note(step, 2);
        wgmma_fence();
        start_values(accum, p, c.v(step));
        wgmma_wait<0>();
        c.note(step, 3);
        c.release(shared.v_empty, step);
    }
    c.store(y, tokens, accum, softmax);
#endif
}

// ---- ping-pong: in its turn a warpgroup starts the product with v of one step and the scores of
// the next one. Its softmax runs during the other warpgroup's turn.
// Flaw: a warpgroup still never multiplies during its own softmax.
__global__ WGMMA_KERNEL(kThreads) void attention_pingpong(
    const __grid_constant__ Maps maps, T* y, int tokens, float scale, int64_t* clocks) {
#if HAS_WGMMA
    extern __shared__ char memory[];
    Shared& shared = begin(memory);
    const int steps = tokens / kKeys;
    if (warpgroup_number() == kConsumers) return produce(shared, maps, steps);
    const Consumer c(shared, clocks);
    if (c.group == 1) c.give_turn();  // group 0 begins
    OnlineSoftmax softmax = {scale};
    float s[kKeys / 2], accum[kCols / 2] = {}, factor[2];
    uint32_t p[kKeys / 4];
    for (int step = 0; step <= steps; ++step) {
        if (step < steps) c.wait(shared.k_full, step);
        if (step > 0) c.wait(shared.v_full, step - 1);
        c.wait_turn();
        c.note(step, 0);
        wgmma_fence();
        if (step > 0) start_values(accum, p, c.v(step - 1));
        if (step < steps) start_scores(s, c.q(), c.k(step));
        c.give_turn();
        wgmma_wait<0>();
        c.note(step, 1);
        if (step > 0) c.release(shared.v_empty, step - 1);
        if (step == steps) break;
        c.release(shared.k_empty, step);
        softmax.take(s, factor);
        scale_rows(accum, factor);
        to_operand(p, s);
        c.note(step, 2);
    }
    c.store(y, tokens, accum, softmax);
#endif
}

// ---- overlap: a softmax runs beside p v of the step before: the idea of FlashAttention 3.
__global__ WGMMA_KERNEL(kThreads) void attention_overlap(const __grid_constant__ Maps maps, T* y,
                                                         int tokens, float scale, int64_t* clocks) {
#if HAS_WGMMA
    extern __shared__ char memory[];
    Shared& shared = begin(memory);
    const int steps = tokens / kKeys;
    if (warpgroup_number() == kConsumers) return produce(shared, maps, steps);
    const Consumer c(shared, clocks);
    if (c.group == 1) c.give_turn();  // group 0 begins
    OnlineSoftmax softmax = {scale};
    float s[kKeys / 2], accum[kCols / 2] = {}, factor[2];
    uint32_t p[kKeys / 4];
    first_scores(c, s);
    softmax.take(s, factor);
    to_operand(p, s);
    for (int step = 1; step < steps; ++step) {
        c.wait(shared.k_full, step);
        c.wait(shared.v_full, step - 1);
        c.wait_turn();
        c.note(step, 0);
        wgmma_fence();
        start_scores(s, c.q(), c.k(step));      // q k^T of this step; returns at once
        start_values(accum, p, c.v(step - 1));  // p v of the step before; the same
        c.give_turn();                          // now the other warpgroup may start its own
        wgmma_wait<1>();                        // the scores are there, p v may still run
        c.note(step, 1);
        c.release(shared.k_empty, step);
        softmax.take(s, factor);  // the softmax, beside p v
        c.note(step, 2);
        wgmma_wait<0>();  // now p v is complete, too
        c.note(step, 3);
        c.release(shared.v_empty, step - 1);
        scale_rows(accum, factor);
        to_operand(p, s);  // p of this step, for the next one
    }
    last_values(c, accum, p, steps - 1);
    c.store(y, tokens, accum, softmax);
#endif
}

// ---- launchers

using Kernel = void(Maps, T*, int, float, int64_t*);

cudaError_t launch(Kernel* kernel, const T* q, const T* k, const T* v, T* y, int heads, int tokens,
                   int64_t* clocks, cudaStream_t stream) {
    if (!has_wgmma(kernel, kThreads)) return cudaErrorNotSupported;
    if (tokens % kRows != 0) return cudaErrorInvalidValue;
    if (heads == 0 || tokens == 0) return cudaSuccess;
    Maps maps;
    const auto map = [&](CUtensorMap& to, const T* from) {
        return make_tensor_map(to, from, heads, tokens, kCols, int64_t(tokens) * kCols, kCols, 128);
    };
    if (!map(maps.q, q) || !map(maps.k, k) || !map(maps.v, v)) return cudaErrorInvalidValue;
    const int bytes = sizeof(Shared) + kTileAlign;
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    kernel<<<dim3(tokens / kRows, heads), kThreads, bytes, stream>>>(
        maps, y, tokens, kLog2E / sqrtf(kCols), clocks);
    return cudaGetLastError();
}

#define LAUNCHER(NAME, KERNEL)                                                                   \
    extern "C" cudaError_t NAME(const T* q, const T* k, const T* v, T* y, int heads, int tokens, \
                                int64_t* clocks, cudaStream_t stream) {                          \
        return launch(KERNEL, q, k, v, y, heads, tokens, clocks, stream);                        \
    }
LAUNCHER(serial, attention_serial)
LAUNCHER(pingpong, attention_pingpong)
LAUNCHER(overlap, attention_overlap)
