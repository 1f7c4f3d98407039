// y = softmax(q k^T * scale) v by mma.sync, in one pass over the keys (FlashAttention-2).
// q, k, v, y [heads, tokens, 64] bfloat16; tokens is a multiple of 64.
#include <cuda_bf16.h>
#include <stdint.h>

namespace {

constexpr int kSize = 64, kTile = 64, kThreads = 128;
constexpr int kChunks = kSize / 8;  // of 16 bytes in a row

using Tile = __nv_bfloat16[kTile * kSize];

// Chunk c of row r lies at c ^ (r % 8): the eight rows that ldmatrix reads are in eight banks.
__device__ uint32_t address(const Tile& tile, int row, int chunk) {
    return uint32_t(__cvta_generic_to_shared(&tile[row * kSize + (chunk ^ row % 8) * 8]));
}

__device__ void copy(const Tile& tile, const __nv_bfloat16* from) {
    for (int i = threadIdx.x; i < kTile * kChunks; i += kThreads)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(
                         address(tile, i / kChunks, i % kChunks)),
                     "l"(from + i * 8)
                     : "memory");
}

__device__ void commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int n>
__device__ void wait_but_for() {
    asm volatile("cp.async.wait_group %0;" ::"n"(n) : "memory");
    __syncthreads();
}

__device__ void load_matrices(uint32_t (&to)[4], uint32_t from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}
__device__ void load_transposed(uint32_t (&to)[4], uint32_t from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(from)
                 : "memory");
}

__device__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ uint32_t packed(float low, float high) {
    uint32_t both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}
__device__ float exp2_of(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// A row's four lanes hold two columns of each eight.
template <class F>
__device__ float of_row(float x, F join) {
    x = join(x, __shfl_xor_sync(~0u, x, 1));
    return join(x, __shfl_xor_sync(~0u, x, 2));
}

// A block has 64 queries, a warp 16 of them.
__global__ void __launch_bounds__(kThreads) attention_mma_kernel(
    const __nv_bfloat16* q, const __nv_bfloat16* k, const __nv_bfloat16* v, __nv_bfloat16* y,
    int tokens, float scale) {
    __shared__ __align__(16) Tile of_q, of_k[2], of_v[2];
    const size_t head = size_t(blockIdx.y) * tokens * kSize;
    const int first = blockIdx.x * kTile, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int tiles = tokens / kTile;

    copy(of_q, q + head + first * kSize);
    copy(of_k[0], k + head);
    copy(of_v[0], v + head);
    commit();
    uint32_t queries[kSize / 16][4];
    float sums[kSize / 8][4] = {}, largest[2] = {-INFINITY, -INFINITY}, total[2] = {};

    for (int tile = 0; tile < tiles; tile++) {
        if (tile + 1 < tiles) {
            copy(of_k[(tile + 1) % 2], k + head + (tile + 1) * kTile * kSize);
            copy(of_v[(tile + 1) % 2], v + head + (tile + 1) * kTile * kSize);
        }
        commit();
        wait_but_for<1>();
        if (tile == 0)
            for (int i = 0; i < kSize / 16; i++)
                load_matrices(queries[i], address(of_q, warp * 16 + lane % 16, 2 * i + lane / 16));

        float scores[kTile / 8][4] = {};
        for (int j = 0; j < kTile / 16; j++)
            for (int i = 0; i < kSize / 16; i++) {
                uint32_t keys[4];
                load_matrices(keys, address(of_k[tile % 2], 16 * j + lane % 16, 2 * i + lane / 16));
                multiply(scores[2 * j], queries[i], keys[0], keys[2]);
                multiply(scores[2 * j + 1], queries[i], keys[1], keys[3]);
            }

        for (int half = 0; half < 2; half++) {  // rows lane / 4 and lane / 4 + 8
            float most = largest[half];
            for (auto& s : scores) most = fmaxf(most, fmaxf(s[2 * half], s[2 * half + 1]));
            most = of_row(most, [](float a, float b) { return fmaxf(a, b); });
            const float before = exp2_of((largest[half] - most) * scale);
            largest[half] = most;
            total[half] *= before;
            for (auto& s : sums) s[2 * half] *= before, s[2 * half + 1] *= before;
            for (auto& s : scores)
                for (int i = 2 * half; i < 2 * half + 2; i++) {
                    s[i] = exp2_of((s[i] - most) * scale);
                    total[half] += s[i];
                }
        }

        for (int j = 0; j < kTile / 16; j++) {
            const float (&low)[4] = scores[2 * j], (&high)[4] = scores[2 * j + 1];
            const uint32_t weights[4] = {packed(low[0], low[1]), packed(low[2], low[3]),
                                         packed(high[0], high[1]), packed(high[2], high[3])};
            for (int i = 0; i < kSize / 16; i++) {
                uint32_t values[4];
                load_transposed(
                    values, address(of_v[tile % 2], 16 * j + lane % 16, 2 * i + lane / 16));
                multiply(sums[2 * i], weights, values[0], values[1]);
                multiply(sums[2 * i + 1], weights, values[2], values[3]);
            }
        }
        __syncthreads();
    }

    y += head + (first + warp * 16 + lane / 4) * kSize + lane % 4 * 2;
    for (int half = 0; half < 2; half++) {
        const float factor = 1 / of_row(total[half], [](float a, float b) { return a + b; });
        for (int j = 0; j < kSize / 8; j++)
            *reinterpret_cast<__nv_bfloat162*>(&y[8 * half * kSize + 8 * j]) =
                __floats2bfloat162_rn(sums[j][2 * half] * factor, sums[j][2 * half + 1] * factor);
    }
}

}  // namespace

// scale: of the scores, before exp.
extern "C" cudaError_t attention_mma(const __nv_bfloat16* q, const __nv_bfloat16* k,
                                     const __nv_bfloat16* v, __nv_bfloat16* y, int heads,
                                     int tokens, float scale) {
    attention_mma_kernel<<<dim3(tokens / kTile, heads), kThreads>>>(
        q, k, v, y, tokens, scale * 1.4426950408889634f);
    return cudaGetLastError();
}
