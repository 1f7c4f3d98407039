// What a learner's kernel uses of CUDA's language and library.
#include <math_constants.h>

#include <cstdio>
#include "launcher.h"

__constant__ float coefficients[4];
__device__ int calls;

__device__ __forceinline__ float polynomial(float x) {
    float y = 0;
#pragma unroll
    for (int i = 3; i >= 0; i--) y = y * x + coefficients[i];
    return y;
}

__device__ __noinline__ float twice(float x) { return 2 * x; }

__global__ void __launch_bounds__(256, 2) evaluate(const float* __restrict__ x,
                                                   float* __restrict__ y, const int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x) {
        __stcs(&y[i], twice(polynomial(__ldg(&x[i])) + __ldcs(x + i)));
        atomicAdd(&calls, 1);
    }
}

extern "C" cudaError_t run_evaluate(const float* x, float* y, int* count, int n) {
    const float host[4] = {1, 2, 3, 4};
    const int zero = 0;
    cudaMemcpyToSymbol(coefficients, host, sizeof host);
    cudaMemcpyToSymbol(calls, &zero, sizeof zero);
    evaluate<<<7, 64>>>(x, y, n);
    if (cudaError_t error = cudaGetLastError()) return error;
    int host_count;
    cudaMemcpyFromSymbol(&host_count, calls, sizeof host_count);
    return cudaMemcpy(count, &host_count, sizeof host_count, cudaMemcpyDefault);
}

// Lambdas, template parameters of every kind, structs by value.
template <class F>
__global__ void for_each(int n, F f) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) f(i);
}

struct Affine {
    float scale, shift;
    __host__ __device__ float operator()(float x) const { return x * scale + shift; }
};

template <int kScale, template <class> class Wrapper, class T, bool kNegate>
__global__ void wrapped(T* y, Wrapper<T> add) {
    const T value = T(threadIdx.x) * kScale + add.value;
    y[threadIdx.x] = kNegate ? -value : value;
}

template <class T>
struct Boxed {
    T value;
};

__global__ void overloaded(int* y) { y[threadIdx.x] = 1; }
__global__ void overloaded(float* y) { y[threadIdx.x] = 2; }

namespace deep {
namespace er {
template <class T, int N>
__global__ void fill(T* y, const T* none, Affine affine) {
    y[threadIdx.x] = none ? T(0) : T(affine(N));
}
}  // namespace er
}  // namespace deep

#define LAUNCH(name, suffix, ...) name##_##suffix<<<1, 32>>>(__VA_ARGS__)
__global__ void through_macro(int* y) { y[threadIdx.x] = 3; }

template <class T>
cudaError_t dependent(T* y) {
    deep::er::fill<T, (3 > 2 ? 5 : 6)>
        <<<dim3(1), /* threads: >>> */ 32, 0,
           // the stream
           nullptr>>>(y, nullptr, {2, 1});
    return cudaGetLastError();
}

extern "C" cudaError_t run_templates(float* y, int* z, cudaStream_t stream) {
    const float scale = 3;
    for_each<<<2, 32, 0, stream>>>(40, [=] __device__(int i) { y[i] = scale * i; });
    for_each<<<1, 32>>>(20, [y, f = Affine{2, 1}] __device__(int i) { y[64 + i] = f(i); });
    wrapped<4, Boxed, float, true><<<1, 32>>>(y + 128, Boxed<float>{0.5f});
    overloaded<<<1, 32>>>(z);
    overloaded<<<1, 32>>>(y + 192);
    LAUNCH(through, macro, z + 32);
    void (*kernel)(int*) = true ? through_macro : nullptr;
    kernel<<<1, 16>>>(z + 64);
    return dependent(y + 224);
}

__global__ void say(int n) {
    if (int(threadIdx.x) < n) printf("thread %d of %d: %s %.2f\n", threadIdx.x, n, "half is", 0.5);
}

extern "C" cudaError_t run_say(int n) {
    say<<<1, 64>>>(n);
    return cudaDeviceSynchronize();
}

__global__ void vectors(const float4* x, float4* y, float2* z) {
    const float4 v = x[threadIdx.x];
    y[threadIdx.x] = make_float4(v.w, v.z, v.y, v.x);
    z[threadIdx.x] = make_float2(v.x + v.y, v.z + v.w);
}

extern "C" cudaError_t run_vectors(const float* x, float* y, float* z, int* sizes) {
    vectors<<<1, 8>>>(reinterpret_cast<const float4*>(x), reinterpret_cast<float4*>(y),
                      reinterpret_cast<float2*>(z));
    const int host[] = {sizeof(float3),  alignof(float3),  sizeof(float4), alignof(float4),
                        sizeof(uchar4),  alignof(uchar4),  sizeof(int2),   alignof(int2),
                        sizeof(double2), alignof(double2), sizeof(short4), alignof(short4)};
    return cudaMemcpy(sizes, host, sizeof host, cudaMemcpyDefault);
}

__global__ void floats(const float* x, float* y, int n) {
    const int i = threadIdx.x;
    if (i >= n) return;
    const float v = x[i];
    float s, c;
    sincospif(v, &s, &c);
    const float values[] = {
        __expf(v),
        __logf(fabsf(v)),
        rsqrtf(fabsf(v)),
        __fdividef(1, v),
        __saturatef(v),
        __frcp_rn(v),
        exp10f(v / 4),
        s,
        c,
        normcdff(v),
        __powf(2, v),
        __fsqrt_rn(fabsf(v)),
        rcbrtf(v),
        __sinf(v),
        __cosf(v),
        min(v, 0.5f),
        max(v, 0.5f),
        __fmaf_rn(v, v, 1),
        CUDART_PI_F * v,
        rhypotf(v, 1)};
    for (int k = 0; k < 20; k++) y[k * n + i] = values[k];
}

LAUNCHER(run_floats, (const float* x, float* y, int n), floats<<<1, n>>>(x, y, n))

__global__ void integers(const int* x, int* y, int n) {
    const int i = threadIdx.x;
    if (i >= n) return;
    const int v = x[i];
    const unsigned u = v;
    const long long wide = (long long)(v) * 1000003 + 17;
    const int values[] = {
        __popc(u),
        __clz(v),
        __ffs(v),
        int(__brev(u)),
        __popcll(wide),
        __clzll(wide),
        __ffsll(wide),
        int(__umulhi(u, 0x9E3779B9u)),
        __mulhi(v, 123456789),
        int(__byte_perm(u, 0x01020304, 0x5140)),
        int(__funnelshift_l(u, 0xdeadbeef, 11)),
        int(__funnelshift_r(u, 0xdeadbeef, 11)),
        min(v, 7),
        int(max(u, 7u)),
        __float_as_int(float(v)),
        int(__sad(v, 12, 5)),
        int(__umul64hi((unsigned long long)(wide), 0x123456789abcdefull)),
        int(__brevll(wide) >> 32)};
    for (int k = 0; k < 18; k++) y[k * n + i] = values[k];
}

LAUNCHER(run_integers, (const int* x, int* y, int n), integers<<<1, n>>>(x, y, n))

__global__ void conversions(const float* x, int* y, int n) {
    const int i = threadIdx.x;
    if (i >= n) return;
    y[i] = __float2int_rn(x[i]);
    y[n + i] = __float2int_rz(x[i]);
    y[2 * n + i] = __float2int_rd(x[i]);
    y[3 * n + i] = __float2int_ru(x[i]);
    y[4 * n + i] = int(__float2uint_rn(x[i]));
}

LAUNCHER(run_conversions, (const float* x, int* y, int n), conversions<<<1, n>>>(x, y, n))

// A product and a sum that must not become one fma.
__global__ void unfused(const float* x, float* y) {
    const int i = threadIdx.x;
    y[i] = __fadd_rn(__fmul_rn(x[i], x[i]), -1.0f);
    y[32 + i] = __fmaf_rn(x[i], x[i], -1.0f);
}

LAUNCHER(run_unfused, (const float* x, float* y), unfused<<<1, 32>>>(x, y))

__global__ void clocks(int64_t* y) {
    const long long start = clock64();
    __syncthreads();
    __threadfence();
    __threadfence_block();
    y[threadIdx.x] = clock64() - start;
}

LAUNCHER(run_clocks, (int64_t* y), clocks<<<1, 32>>>(y))
