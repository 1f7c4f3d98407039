// Attention forward by tcgen05, as FlashAttention 4 arranges it: y = softmax(q @ k.T * scale) @ v.
// A block has two tiles of 128 queries, which take turns at the tensor cores: while one is
// multiplied, a softmax warpgroup works on the other, a query a thread. A warpgroup of its own
// corrects the sums where a row's maximum has grown, so that no softmax waits for a product.
// q, k, v, y [heads, tokens, 128] bfloat16; tokens is a multiple of 256.
//
// Tensor memory: scores S of both tiles, then sums O of both. P, of bfloat16, takes S's place.
#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <stdint.h>

namespace {

constexpr int kTile = 128, kHead = 128, kHalf = 64, kStages = 3;  // kHalf: columns of a box
constexpr int kGroup = 128;  // warpgroups: softmax of tile 0 and 1, correction, and the two issuers
constexpr int kCorrection = 2, kProducer = 3 * kGroup, kMultiplier = kProducer + 32;
constexpr int kThreads = 4 * kGroup;
constexpr float kSlack = 8;  // a maximum that has grown by less than 2^8 stays: nothing overflows

struct Tile {
    __nv_bfloat16 halves[kHead / kHalf][kTile * kHalf];
};
struct Shared {
    Tile q[2], stages[kStages];
    float factors[2][kTile];  // by which a row of O is to be multiplied; at the end its sum
    uint64_t q_full, full[kStages], empty[kStages];
    // Of each tile: S is there, P is there, O may be added to, O is there; factors are, are read.
    uint64_t scored[2], weighed[2], corrected[2], summed[2], told[2], heard[2];
    uint32_t columns;  // of tensor memory: all 512
};
constexpr int kSharedBytes = sizeof(Shared) + 1024;  // aligned to 1024 bytes by the kernel

__device__ uint32_t address(const void* shared) {
    return uint32_t(__cvta_generic_to_shared(shared));
}

__device__ void init(uint64_t* barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(address(barrier)), "r"(arrivals)
                 : "memory");
}

__device__ void wait(uint64_t* barrier, int parity) {
    asm volatile(
        "{\n"
        ".reg .pred ended;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared::cta.b64 ended, [%0], %1;\n"
        "@!ended bra again;\n"
        "}" ::"r"(address(barrier)),
        "r"(parity)
        : "memory");
}

__device__ void arrive(uint64_t* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(address(barrier)) : "memory");
}

__device__ void expect_bytes(uint64_t* barrier, int bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(barrier)), "r"(bytes)
        : "memory");
}

// 128 rows of 128 columns, in two boxes.
__device__ void fetch(Tile& to, const CUtensorMap& map, int row, uint64_t* barrier) {
    expect_bytes(barrier, sizeof(Tile));
    for (int i = 0; i < kHead / kHalf; i++)
        asm volatile(
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
            "[%0], [%1, {%2, %3}], [%4];" ::"r"(address(to.halves[i])),
            "l"(&map), "r"(i * kHalf), "r"(row), "r"(address(barrier))
            : "memory");
}

// Rows of 128 bytes in the 128-byte swizzle, eight of them every 1024 bytes. Where k goes down the
// rows, the next 64 columns are a box further on.
__device__ uint64_t descriptor(const Tile& tile) {
    return uint64_t(address(&tile) >> 4 & 0x3fff) | uint64_t(sizeof(tile.halves[0]) >> 4) << 16 |
           uint64_t(1024 >> 4) << 32 | 1ull << 46 | 2ull << 61;
}

// Types of D (float32), A and B (bfloat16); N / 8, M / 16. Of v, k goes down the rows (bit 16).
constexpr uint32_t kScores = 1 << 4 | 1 << 7 | 1 << 10 | kTile / 8 << 17 | kTile / 16 << 24;
constexpr uint32_t kSums = 1 << 4 | 1 << 7 | 1 << 10 | 1 << 16 | kHead / 8 << 17 | kTile / 16 << 24;

// S = q @ k.T: 16 columns at a time, which are 32 bytes.
__device__ void multiply_scores(uint32_t s, const Tile& q, const Tile& k) {
    for (int at = 0; at < kHead / 16; at++) {
        const int off = at / 4 * int(sizeof(q.halves[0]) >> 4) + at % 4 * 2;
        asm volatile(
            "{\n"
            ".reg .pred adds;\n"
            "setp.ne.b32 adds, %4, 0;\n"
            "tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %2, %3, adds;\n"
            "}" ::"r"(s),
            "l"(descriptor(q) + off), "l"(descriptor(k) + off), "r"(kScores), "r"(at)
            : "memory");
    }
}

// O += P @ v, P from tensor memory: 16 keys at a time, 8 columns of P and 16 rows of v.
__device__ void multiply_sums(uint32_t o, uint32_t p, const Tile& v, bool adds) {
    for (int at = 0; at < kTile / 16; at++)
        asm volatile(
            "{\n"
            ".reg .pred adds;\n"
            "setp.ne.b32 adds, %4, 0;\n"
            "tcgen05.mma.cta_group::1.kind::f16 [%0], [%1], %2, %3, adds;\n"
            "}" ::"r"(o),
            "r"(p + at * 8), "l"(descriptor(v) + at * (16 * 128 >> 4)), "r"(kSums),
            "r"(int(adds || at))
            : "memory");
}

// The barrier gets one arrival when all products so far are done.
__device__ void commit(uint64_t* barrier) {
    asm volatile(
        "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(
            address(barrier))
        : "memory");
}

#define EIGHT(f, i) f(i), f(i + 1), f(i + 2), f(i + 3), f(i + 4), f(i + 5), f(i + 6), f(i + 7)
#define SUM(i) "=f"(sums[i])

// 32 columns of the thread's row.
__device__ void load(float (&sums)[32], uint32_t from) {
    asm volatile(
        "tcgen05.ld.sync.aligned.32x32b.x32.b32 "
        "{%0,  %1,  %2,  %3,  %4,  %5,  %6,  %7,  %8,  %9,  %10, %11, %12, %13, %14, %15, "
        " %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, [%32];"
        : EIGHT(SUM, 0), EIGHT(SUM, 8), EIGHT(SUM, 16), EIGHT(SUM, 24)
        : "r"(from));
    asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
}

#define WORD(i) "r"(words[i])

// The same of 16 columns, to tensor memory.
__device__ void store(uint32_t to, const uint32_t (&words)[16]) {
    asm volatile(
        "tcgen05.st.sync.aligned.32x32b.x16.b32 [%16], "
        "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15};" ::EIGHT(WORD, 0),
        EIGHT(WORD, 8), "r"(to)
        : "memory");
}
__device__ void wait_for_stores() { asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory"); }
__device__ void before() { asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory"); }
__device__ void after() { asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory"); }

// 2^x by multiplications: the units for that are idle while those for exp2 are not. For x <= 8.
__device__ float exp2_by_polynomial(float x) {
    x = fmaxf(x, -126);
    const float whole = floorf(x), rest = x - whole;
    const float power = 1 + rest * (0.695146143f + rest * (0.227564052f + rest * 0.077119170f));
    return __int_as_float(__float_as_int(power) + (int(whole) << 23));
}

// A query's row of S becomes its row of P, of which the first word has keys 0 and 1.
__device__ void softmax(Shared& shared, int tile, int steps, uint32_t s, float scale) {
    uint64_t *const told = &shared.told[tile], *const heard = &shared.heard[tile];
    float* const factor = &shared.factors[tile][threadIdx.x % kGroup];
    float largest = -INFINITY, sum = 0;  // in units of the exponent of 2
    for (int step = 0; step < steps; step++) {
        wait(&shared.scored[tile], step % 2);
        after();
        float row[32], now = -INFINITY;
#pragma unroll 1
        for (int column = 0; column < kTile; column += 32) {
            load(row, s + column);
#pragma unroll
            for (int i = 0; i < 32; i++) now = fmaxf(now, row[i]);
        }
        now *= scale;
        const float before_it = largest;
        if (now > largest + kSlack) largest = now;
        const float shrinks = exp2f(before_it - largest);  // 0 at first
        wait(heard, (step + 1) % 2);
        *factor = shrinks;
        arrive(told);
        sum *= shrinks;
#pragma unroll 1
        for (int column = 0; column < kTile; column += 32) {
            load(row, s + column);
            uint32_t words[16];
#pragma unroll
            for (int i = 0; i < 32; i += 2) {
                const float x = exp2f(row[i] * scale - largest);
                const float exponent = row[i + 1] * scale - largest;
                const float y = i % 4 ? exp2f(exponent) : exp2_by_polynomial(exponent);
                sum += x + y;
                const __nv_bfloat162 both = __floats2bfloat162_rn(x, y);
                words[i / 2] = reinterpret_cast<const uint32_t&>(both);
            }
            store(s + column / 2, words);  // of S, these columns have been read
        }
        wait_for_stores();
        before();
        arrive(&shared.weighed[tile]);
    }
    wait(heard, (steps + 1) % 2);
    *factor = sum;
    arrive(told);
}

// Rows of O shrink where the maximum has grown; at the end they are divided by their sums.
__device__ void correct(Shared& shared, int steps, uint32_t o, __nv_bfloat16* y) {
    const int row = threadIdx.x % kGroup;
    float sums[32];
    for (int step = 0; step < steps; step++)
        for (int tile = 0; tile < 2; tile++) {
            wait(&shared.told[tile], step % 2);
            const float factor = shared.factors[tile][row];
            arrive(&shared.heard[tile]);
            if (step) wait(&shared.summed[tile], (step - 1) % 2);
            after();
            if (step && __any_sync(~0u, factor != 1))
#pragma unroll 1
                for (int column = 0; column < kHead; column += 32) {
                    const uint32_t at = o + tile * kHead + column;
                    load(sums, at);
#pragma unroll
                    for (int half = 0; half < 32; half += 16) {
                        uint32_t words[16];
                        for (int i = 0; i < 16; i++)
                            words[i] = __float_as_uint(sums[half + i] * factor);
                        store(at + half, words);
                    }
                    wait_for_stores();
                }
            before();
            arrive(&shared.corrected[tile]);
        }
    for (int tile = 0; tile < 2; tile++) {
        wait(&shared.told[tile], steps % 2);
        const float factor = 1 / shared.factors[tile][row];
        wait(&shared.summed[tile], (steps - 1) % 2);
        after();
#pragma unroll 1
        for (int column = 0; column < kHead; column += 32) {
            load(sums, o + tile * kHead + column);
            uint32_t words[16];
#pragma unroll
            for (int i = 0; i < 16; i++) {
                const __nv_bfloat162 both =
                    __floats2bfloat162_rn(sums[2 * i] * factor, sums[2 * i + 1] * factor);
                words[i] = reinterpret_cast<const uint32_t&>(both);
            }
            auto* const to =
                reinterpret_cast<uint4*>(&y[size_t(tile * kTile + row) * kHead + column]);
#pragma unroll
            for (int i = 0; i < 4; i++)
                to[i] =
                    make_uint4(words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]);
        }
    }
}

// Which stage, and how often all have been used.
struct Turn {
    int i = 0, round = 0;
    __device__ void next() {
        if (++i == kStages) i = 0, round++;
    }
};

__global__ void __launch_bounds__(kThreads) attention_forward_kernel(
    const __grid_constant__ CUtensorMap map_q, const __grid_constant__ CUtensorMap map_k,
    const __grid_constant__ CUtensorMap map_v, __nv_bfloat16* y, int tokens, float scale) {
    extern __shared__ char memory[];
    Shared& shared =
        *reinterpret_cast<Shared*>((reinterpret_cast<uintptr_t>(memory) + 1023) / 1024 * 1024);
    const int first_key = blockIdx.y * tokens, first_query = first_key + blockIdx.x * 2 * kTile;
    const int group = threadIdx.x / kGroup, steps = tokens / kTile;

    if (threadIdx.x < 32)
        asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 512;" ::"r"(
                         address(&shared.columns))
                     : "memory");
    if (threadIdx.x == 0) {
        init(&shared.q_full, 2);
        for (int i = 0; i < kStages; i++) {
            init(&shared.full[i], 1);
            init(&shared.empty[i], 1);
        }
        for (int i = 0; i < 2; i++) {
            init(&shared.scored[i], 1);
            init(&shared.weighed[i], kGroup);
            init(&shared.corrected[i], kGroup);
            init(&shared.summed[i], 1);
            init(&shared.told[i], kGroup);
            init(&shared.heard[i], kGroup);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    before();
    __syncthreads();
    after();
    const uint32_t columns = shared.columns, lanes = threadIdx.x % kGroup / 32 * 32 << 16;
    Turn stage;

    if (group < kCorrection) {
        softmax(shared, group, steps, columns + group * kTile + lanes, scale);
    } else if (group == kCorrection) {
        correct(shared, steps, columns + 2 * kTile + lanes, y + size_t(first_query) * kHead);
    } else {
        if (threadIdx.x == kProducer) {
            for (int tile = 0; tile < 2; tile++)
                fetch(shared.q[tile], map_q, first_query + tile * kTile, &shared.q_full);
            for (int i = 0; i < 2 * steps; i++, stage.next()) {  // k and v in turns
                wait(&shared.empty[stage.i], (stage.round + 1) % 2);
                fetch(shared.stages[stage.i], i % 2 ? map_v : map_k, first_key + i / 2 * kTile,
                      &shared.full[stage.i]);
            }
        } else if (threadIdx.x == kMultiplier) {
            const auto score = [&](int tile, const Tile& k) {
                multiply_scores(columns + tile * kTile, shared.q[tile], k);
                commit(&shared.scored[tile]);
            };
            wait(&shared.q_full, 0);
            wait(&shared.full[0], 0);
            score(0, shared.stages[0]);
            score(1, shared.stages[0]);
            commit(&shared.empty[0]);
            stage.next();
            for (int step = 0; step < steps; step++) {
                const int v = stage.i;
                wait(&shared.full[v], stage.round % 2);
                stage.next();
                const int k = stage.i;  // the next one
                for (int tile = 0; tile < 2; tile++) {
                    wait(&shared.weighed[tile], step % 2);
                    wait(&shared.corrected[tile], step % 2);
                    after();
                    multiply_sums(columns + 2 * kTile + tile * kHead, columns + tile * kTile,
                                  shared.stages[v], step > 0);
                    commit(&shared.summed[tile]);
                    if (tile == 1) commit(&shared.empty[v]);
                    if (step + 1 == steps) continue;
                    if (tile == 0) wait(&shared.full[k], stage.round % 2);
                    score(tile, shared.stages[k]);  // S takes P's place, after this product
                    if (tile == 1) commit(&shared.empty[k]);
                }
                stage.next();
            }
        }
        __syncwarp();
    }
    before();
    __syncthreads();
    if (threadIdx.x < 32)
        asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 512;" ::"r"(columns));
}

// Of [heads * tokens, kHead] in boxes of kTile x kHalf.
CUresult encode(CUtensorMap* map, const __nv_bfloat16* matrix, int rows) {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    cudaGetDriverEntryPointByVersion(
        "cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
    if (!function) return CUDA_ERROR_NOT_FOUND;
    const cuuint64_t extents[] = {kHead, cuuint64_t(rows)}, strides[] = {2 * kHead};
    const cuuint32_t box[] = {kHalf, kTile}, steps[] = {1, 1};
    return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function)(
        map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<__nv_bfloat16*>(matrix), extents,
        strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

}  // namespace

// scale: of the scores, as in 1 / sqrt(128).
extern "C" cudaError_t attention_forward(const __nv_bfloat16* q, const __nv_bfloat16* k,
                                         const __nv_bfloat16* v, __nv_bfloat16* y, int heads,
                                         int tokens, float scale) {
    CUtensorMap map_q, map_k, map_v;
    const int rows = heads * tokens;
    if (encode(&map_q, q, rows) || encode(&map_k, k, rows) || encode(&map_v, v, rows))
        return cudaErrorInvalidValue;
    const float log2_e = 1.4426950408889634f;
    cudaFuncSetAttribute(
        attention_forward_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes);
    attention_forward_kernel<<<dim3(tokens / (2 * kTile), heads), kThreads, kSharedBytes>>>(
        map_q, map_k, map_v, y, tokens, scale * log2_e);
    return cudaGetLastError();
}
