// Copies in flight, an mbarrier, and a product of tensor cores. `// here NAME` marks lines that a
// test looks for.
#include <cuda_runtime.h>
#include <stdint.h>

__device__ uint32_t shared_address(const void* p) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__global__ void stages(const float* x, float* y, int n) {
    __shared__ alignas(16) float tiles[2][128];
    const int t = threadIdx.x;
    float sum = 0;
    for (int k = 0; k <= n / 128; k++) {
        if (k < n / 128) {
            const uint32_t to = shared_address(&tiles[k % 2][4 * t]);
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to),  // here asked
                         "l"(x + 128 * k + 4 * t));
        }
        asm volatile("cp.async.commit_group;");
        if (k == 0) continue;
        asm volatile("cp.async.wait_group 1;");  // here awaited
        __syncthreads();
        sum += tiles[(k - 1) % 2][(4 * t + 5) % 128];
        __syncthreads();
    }
    y[t] = sum;
}

__global__ void bulk(const float* x, float* y, int n) {
    __shared__ alignas(16) float tile[128];
    __shared__ alignas(8) uint64_t full;
    const int t = threadIdx.x;
    const uint32_t barrier = shared_address(&full);
    if (t == 0) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier));
        asm volatile("fence.mbarrier_init.release.cluster;");
    }
    __syncthreads();
    for (int k = 0; k < n / 128; k++) {
        if (t == 0) {
            asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], 512;" ::"r"(barrier));
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], "
                "512, "
                "[%2];" ::"r"(shared_address(tile)),
                "l"(x + 128 * k), "r"(barrier)
                : "memory");
        }
        uint32_t done = 0;
        while (!done) {
            asm volatile(
                "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 "
                "%0, "
                "1, 0, p; }"
                : "=r"(done)
                : "r"(barrier), "r"(k & 1)
                : "memory");
        }
        const float mine = tile[t];  // here arrived
        y[128 * k + t] = mine;
        __syncthreads();
    }
}

__global__ void product(const float* x, float* y, int n) {
    const int lane = threadIdx.x;
    const uint32_t one = 0x3c003c00;  // two halves
    float d[4] = {x[lane], 0, 0, 0};
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(one), "r"(one), "r"(one), "r"(one), "r"(one), "r"(one));
    y[lane] = d[0];  // here multiplied
}

extern "C" void run_stages(const float* x, float* y, int n) { stages<<<1, 32>>>(x, y, n); }
extern "C" void run_bulk(const float* x, float* y, int n) { bulk<<<1, 128>>>(x, y, n); }
extern "C" void run_product(const float* x, float* y, int n) { product<<<1, 32>>>(x, y, n); }
