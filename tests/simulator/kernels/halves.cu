// CUDA's half types. PyTorch's are in torch_halves.cu.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include "launcher.h"

// Every value of 16 bits: to float, and back from floats around it.
__global__ void half_to_float(const int16_t* x, float* y, float* z) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = __half2float(__short_as_half(x[i]));
    z[i] = __bfloat162float(__short_as_bfloat16(x[i]));
}

__global__ void float_to_half(const float* x, __half* y, __nv_bfloat16* z) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = __float2half(x[i]);
    z[i] = __float2bfloat16_rn(x[i]);
}

LAUNCHER(run_to_float, (const int16_t* x, float* y, float* z, int n),
         half_to_float<<<n / 256, 256>>>(x, y, z))

LAUNCHER(run_from_float, (const float* x, __half* y, __nv_bfloat16* z, int n),
         float_to_half<<<n / 256, 256>>>(x, y, z))

template <class H, class H2>
__global__ void arithmetic(const H* a, const H* b, H* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    y[i] = __hadd(a[i], b[i]);
    y[n + i] = a[i] - b[i];
    y[2 * n + i] = __hmul(a[i], b[i]);
    y[3 * n + i] = a[i] / b[i];
    y[4 * n + i] = __hfma(a[i], b[i], a[i]);
    y[5 * n + i] = __hmax(a[i], b[i]);
    y[6 * n + i] = -a[i];
    y[7 * n + i] = hsqrt(__habs(a[i]));
    H2 pair(a[i], b[i]);
    pair = __hfma2(pair, pair, pair);
    y[8 * n + i] = pair.x;
    y[9 * n + i] = pair.y;
    y[10 * n + i] = __hlt(a[i], b[i]) ? a[i] : b[i];
}

LAUNCHER(run_half, (const __half* a, const __half* b, __half* y, int n),
         arithmetic<__half, __half2><<<(n + 127) / 128, 128>>>(a, b, y, n))

LAUNCHER(run_bfloat16, (const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* y, int n),
         arithmetic<__nv_bfloat16, __nv_bfloat162><<<(n + 127) / 128, 128>>>(a, b, y, n))

template <class H>
__global__ void together(H* y, H* sum) {
    const H value = H(float(threadIdx.x));
    y[threadIdx.x] = __shfl_xor_sync(0xffffffff, value, 1);
    atomicAdd(sum, H(1.0f));
}

extern "C" cudaError_t run_together(__half* y, __half* sum, __nv_bfloat16* z,
                                    __nv_bfloat16* total) {
    together<<<1, 64>>>(y, sum);
    together<<<1, 64>>>(z, total);
    return cudaGetLastError();
}
