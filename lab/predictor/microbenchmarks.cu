// Microbenchmarks of lab.calibrate: each kernel keeps one mechanism of a GPU busy and little else.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdint.h>

// Launches: of one block, and of many.
__global__ void nothing() {}

// Code that no cache has: a warp executes each of kCount instructions once.
template <int kCount>
__device__ void once(float* y, float b) {
    float at[8];
#pragma unroll
    for (int k = 0; k < 8; k++) at[k] = b + k;
#pragma unroll
    for (int i = 0; i < kCount; i++)
        asm volatile("fma.rn.f32 %0, %0, %1, %1;" : "+f"(at[i % 8]) : "f"(b));
    float total = 0;
#pragma unroll
    for (int k = 0; k < 8; k++) total += at[k];
    if (total == 12345.678f) *y = total;
}
__global__ void once64(float* y, float b) { once<64>(y, b); }
__global__ void once512(float* y, float b) { once<512>(y, b); }
__global__ void once4096(float* y, float b) { once<4096>(y, b); }

// DRAM: a copy, 16 bytes a thread.
__global__ void copy(const float4* x, float4* y, int64_t n) {
    const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i < n) y[i] = x[i];
}
__global__ void fill(float4* y, int64_t n) {
    const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i < n) y[i] = {1, 2, 3, 4};
}

// L2 full of what was written before: a thread reads and writes so many vectors, `n` apart.
__global__ void read_and_write(const float4* x, float4* y, int64_t n, int reads, int writes) {
    const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i >= n) return;
    float4 v = {1, 2, 3, 4};
#pragma unroll 4
    for (int k = 0; k < reads; k++) {
        const float4 read = x[i + k * n];
        v.x += read.x, v.w += read.w;
    }
    for (int k = 0; k < writes; k++) y[i + k * n] = v;
    if (v.x == 12345.678f) *y = v;
}

// Lanes far apart: one access for each, `apart` words from the next lane's; and a row for each.
__global__ void touch(const float* x, float* y, int64_t apart) {
    const float value = x[threadIdx.x * apart];
    if (value == 12345.678f) *y = value;
}
__global__ void read_rows(const float* x, float* y, int cols) {
    const float* row = x + (blockIdx.x * int64_t(blockDim.x) + threadIdx.x) * cols;
    float total = 0;
#pragma unroll 4
    for (int c = 0; c < cols; c++) total += row[c];
    if (total == 12345.678f) *y = total;
}
__global__ void write_rows(float* y, int cols) {
    float* row = y + (blockIdx.x * int64_t(blockDim.x) + threadIdx.x) * cols;
#pragma unroll 4
    for (int c = 0; c < cols; c++) row[c] = c;
}

// DRAM with so many bytes in flight: each thread has kLoads loads of T under way, then waits.
__device__ inline float sum(float v) { return v; }
__device__ inline float sum(float4 v) { return v.x + v.y + v.z + v.w; }
template <int kLoads, class T>
__device__ void read(const T* x, float* y, int64_t n) {
    const int64_t threads = gridDim.x * int64_t(blockDim.x);
    float total = 0;
    for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i + (kLoads - 1) * threads < n;
         i += kLoads * threads) {
        T loaded[kLoads];
#pragma unroll
        for (int k = 0; k < kLoads; k++) loaded[k] = __ldcs(x + i + k * threads);
#pragma unroll
        for (int k = 0; k < kLoads; k++) total += sum(loaded[k]);
    }
    if (total == 12345.678f) *y = total;
}
#define READ(loads, T, name) \
    __global__ void name(const T* x, float* y, int64_t n) { read<loads>(x, y, n); }
READ(1, float, read1)
READ(4, float, read4)
READ(1, float4, read1_vector)
READ(2, float4, read2_vector)
READ(4, float4, read4_vector)

// DRAM and L2 by sectors: neighbouring lanes read, or write, words `stride` apart.
__global__ void read_strided(const float* x, float* y, int64_t n, int stride) {
    const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i * stride < n && x[i * stride] == 12345.678f) *y = 1;
}
__global__ void write_strided(float* x, int64_t n, int stride) {
    const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i * stride < n) x[i * stride] = 1;
}

// Latency of a memory: each load waits for the one before.
__global__ void chase(const int* next, int* out, int steps) {
    int at = 0;
    for (int i = 0; i < steps; i++) at = next[at];
    *out = at;
}
__global__ void chase_shared(int* out, int steps) {
    __shared__ int next[1024];
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) next[i] = (i + 33) % 1024;
    __syncthreads();
    int at = 0;
    for (int i = 0; i < steps; i++) at = next[at];
    *out = at;
}

// L2: all blocks read the same `n` vectors, each from another place on; L1 is passed by.
__global__ void read_l2(const float4* x, float* y, int n, int rounds) {
    float total = 0;
    int i = (blockIdx.x * 4099 + threadIdx.x) % n;
    for (int round = 0; round < rounds; round++) {
#pragma unroll
        for (int k = 0; k < 4; k++) {
            total += sum(__ldcg(x + i));
            i += blockDim.x;
            if (i >= n) i -= n;
        }
    }
    if (total == 12345.678f) *y = total;
}

// L1: a block reads 16 KB of its own again and again, lanes `stride` words apart. No compiler keeps
// what an asm volatile has loaded.
__global__ void read_l1(const float* x, float* y, int rounds, int stride) {
    const float* own = x + blockIdx.x * 4096 + threadIdx.x * stride % 2048;
    float total = 0;
    for (int round = 0; round < rounds; round++) {
#pragma unroll
        for (int k = 0; k < 8; k++) {
            float value;
            asm volatile("ld.global.ca.f32 %0, [%1];" : "=f"(value) : "l"(own + 256 * k));
            total += value;
        }
    }
    if (total == 12345.678f) *y = total;
}
__global__ void read_l1_vector(const float4* x, float* y, int rounds) {
    const float4* own = x + blockIdx.x * 1024 + threadIdx.x;
    float total = 0;
    for (int round = 0; round < rounds; round++) {
#pragma unroll
        for (int k = 0; k < 8; k++) {
            float4 v;
            asm volatile("ld.global.ca.v4.f32 {%0, %1, %2, %3}, [%4];"
                         : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
                         : "l"(own + 96 * k));
            total += v.x + v.w;
        }
    }
    if (total == 12345.678f) *y = total;
}

// Shared memory: lanes `stride` words apart, so that `stride` of them share a bank.
__global__ void read_shared(float* y, int rounds, int stride) {
    __shared__ float own[4096];
    for (int i = threadIdx.x; i < 4096; i += blockDim.x) own[i] = i;
    __syncthreads();
    float total = 0;
    const uint32_t at = __cvta_generic_to_shared(own + threadIdx.x * stride % 2048);
    for (int round = 0; round < rounds; round++) {
#pragma unroll
        for (int k = 0; k < 8; k++) {
            float value;
            asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(at + 1024 * k));
            total += value;
        }
    }
    if (total == 12345.678f) *y = total;
}

// Barriers and shuffles.
__global__ void barriers(int rounds) {
    for (int i = 0; i < rounds; i++) __syncthreads();
}
__global__ void shuffles(float* y, int rounds) {
    float a = threadIdx.x, b = a + 1, c = a + 2, d = a + 3;
    for (int i = 0; i < rounds; i++) {
        a = __shfl_xor_sync(~0u, a, 1), b = __shfl_xor_sync(~0u, b, 2);
        c = __shfl_xor_sync(~0u, c, 4), d = __shfl_xor_sync(~0u, d, 8);
    }
    if (a + b + c + d == 12345.678f) *y = a;
}

// Pipes: eight chains a thread (throughput), or one (latency).
template <int kChains, class T, class Step>
__device__ void chains(T* y, int rounds, T first, Step step) {
    T at[kChains];
#pragma unroll
    for (int k = 0; k < kChains; k++) at[k] = first + T(float(threadIdx.x + k));
    for (int i = 0; i < rounds; i++) {
#pragma unroll
        for (int repeat = 0; repeat < 4; repeat++)
#pragma unroll
            for (int k = 0; k < kChains; k++) at[k] = step(at[k]);
    }
    T total = at[0];
#pragma unroll
    for (int k = 1; k < kChains; k++) total = total + at[k];
    if (float(total) == 12345.678f) *y = total;
}
#define PIPE(name, T, expression)                                 \
    __global__ void name(T* y, int rounds, T b) {                 \
        chains<8>(y, rounds, b, [=](T a) { return expression; }); \
    }                                                             \
    __global__ void name##_latency(T* y, int rounds, T b) {       \
        chains<1>(y, rounds, b, [=](T a) { return expression; }); \
    }
__device__ inline float ex2(float a) {
    asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(a));
    return a;
}
PIPE(fma32, float, fmaf(a, b, b))
PIPE(fma64, double, fma(a, b, b))
PIPE(special, float, ex2(a))
PIPE(divide, float, b / a)
__global__ void convert(float* y, int rounds) {
    float at[8];
#pragma unroll
    for (int k = 0; k < 8; k++) at[k] = threadIdx.x + k;
    for (int i = 0; i < rounds; i++)
#pragma unroll
        for (int k = 0; k < 8; k++) asm volatile("cvt.rni.f32.f32 %0, %0;" : "+f"(at[k]));
    float total = 0;
#pragma unroll
    for (int k = 0; k < 8; k++) total += at[k];
    if (total == 12345.678f) *y = total;
}

// Atomics: every lane of a warp at one address, or each at its own; of global and shared memory.
__global__ void atomics(int* y, int n, int rounds, int stride) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int round = 0; round < rounds; round++)
        atomicAdd(y + (i * stride + round * 1031) % n, 1 + round);
}
__global__ void atomics_float(float* y, int n, int rounds, int stride) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int round = 0; round < rounds; round++)
        atomicAdd(y + (i * stride + round * 1031) % n, 1.5f + round);
}
__global__ void atomics_shared(int* y, int rounds, int stride) {
    __shared__ int own[1024];
    for (int i = threadIdx.x; i < 1024; i += blockDim.x) own[i] = 0;
    __syncthreads();
    for (int round = 0; round < rounds; round++)
        atomicAdd(own + (threadIdx.x * stride + round * 32) % 1024, 1);
    __syncthreads();
    if (own[threadIdx.x] == 123456789) *y = 1;
}

// Tensor cores: mma.sync of bfloat16, four accumulators a warp.
__global__ void mma(float* y, int rounds) {
    float sums[4][4] = {};
    const uint32_t a = threadIdx.x * 0x01010101u, b = threadIdx.x * 0x00010001u;
    for (int i = 0; i < rounds; i++)
#pragma unroll
        for (int k = 0; k < 4; k++)
            asm volatile(
                "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7},"
                " {%8,%9}, {%0,%1,%2,%3};"
                : "+f"(sums[k][0]), "+f"(sums[k][1]), "+f"(sums[k][2]), "+f"(sums[k][3])
                : "r"(a), "r"(b), "r"(a), "r"(b), "r"(a), "r"(b));
    if (sums[0][0] + sums[1][1] + sums[2][2] + sums[3][3] == 12345.678f) *y = 1;
}

// cp.async: a warp keeps kStages groups of 16 bytes a lane in flight.
template <int kStages>
__device__ void staged(const float4* x, float* y, int64_t n) {
    extern __shared__ float4 stages[];
    const int64_t threads = gridDim.x * int64_t(blockDim.x);
    const int64_t first = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    float total = 0;
    const auto ask = [&](int64_t step) {
        if (first + step * threads < n) {
            const uint32_t to =
                __cvta_generic_to_shared(stages + (step % kStages) * blockDim.x + threadIdx.x);
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to),
                         "l"(x + first + step * threads));
        }
        asm volatile("cp.async.commit_group;");
    };
#pragma unroll
    for (int step = 0; step < kStages - 1; step++) ask(step);
    for (int64_t step = 0; first + step * threads < n; step++) {
        ask(step + kStages - 1);
        asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 1) : "memory");
        total += sum(stages[(step % kStages) * blockDim.x + threadIdx.x]);
    }
    if (total == 12345.678f) *y = total;
}
__global__ void staged2(const float4* x, float* y, int64_t n) { staged<2>(x, y, n); }
__global__ void staged4(const float4* x, float* y, int64_t n) { staged<4>(x, y, n); }
__global__ void staged8(const float4* x, float* y, int64_t n) { staged<8>(x, y, n); }
