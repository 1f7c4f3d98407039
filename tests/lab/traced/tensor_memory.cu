// A product in tensor memory, which a warp has stored to before. `// here NAME` marks lines that a
// test looks for.
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>

__device__ uint32_t at(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }

constexpr uint32_t columns_of_d = 16;
constexpr uint32_t instruction = 1 << 4 | columns_of_d / 8 << 17 | 128 / 16 << 24;  // f16, M 128

__global__ void multiplied(const float* x, float* y, int n) {
    __shared__ alignas(128) __half tile[128 * 16];  // of A and of B: k comes first
    __shared__ alignas(8) uint64_t done;
    __shared__ uint32_t columns;
    const int t = threadIdx.x;
    for (int k = 0; k < 16; k++)
        tile[t / 8 * 64 + k / 8 * 1024 + t % 8 * 8 + k % 8] = __float2half(k == 0 ? x[t] : 0.f);
    if (t < 32)
        asm volatile(
            "tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], 64;" ::"r"(at(&columns))
            : "memory");
    if (t == 0) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(at(&done)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async;" ::: "memory");
    __syncthreads();
    const uint32_t mine = columns + (t / 32 * 32 << 16);
    float word = x[t] + 0.5f;
    asm volatile(
        "tcgen05.st.sync.aligned.32x32b.x1.b32 [%0], {%1};" ::"r"(mine + 32),  // here stored
        "f"(word));
    asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
    if (t == 0) {
        const uint64_t tiles = (at(tile) & 0x3ffff) >> 4 | 128ull << 16 | 8ull << 32 | 1ull << 46;
        asm volatile(
            "{ .reg .pred p; setp.ne.b32 p, 0, 0;"
            " tcgen05.mma.cta_group::1.kind::f16 [%0], %1, %1, %2, p; }" ::"r"(columns),
            "l"(tiles), "r"(instruction));  // here product
        asm volatile(
            "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(
                at(&done))
            : "memory");
    }
    asm volatile(
        "{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], 0;"
        " @!p bra again; }" ::"r"(at(&done))
        : "memory");
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
    float sum;
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%0}, [%1];" : "=f"(sum) : "r"(mine + 3));
    asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
    y[t] = sum;  // here loaded
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    __syncthreads();
    if (t < 32)
        asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, 64;" ::"r"(columns));
}
extern "C" void run_multiplied(const float* x, float* y, int n) { multiplied<<<1, 128>>>(x, y, n); }
