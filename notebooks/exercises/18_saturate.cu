// Floats to e4m3 by hand: to nearest, ties to even, and 448 for all that is larger
//
// Most numbers come out right.
//
// TODO: find the mistake. Budget: 22 lines of code.

#include <stdint.h>

__device__ uint8_t to_e4m3(float x) {
    const float size = fabsf(x);
    const uint32_t bits = __float_as_uint(size), sign = __float_as_uint(x) >> 24 & 0x80;
    if (x != x) return 0x7f;
    if (size >= 480) return sign | 0x7e;
    if (size < 0x1p-6f) return sign | uint8_t(rintf(size * 512));  // multiples of 2^-9
    // A float has 20 bits of fraction more, and an exponent that is larger by 120.
    const uint32_t even = bits >> 20 & 1;
    return sign | ((bits + 0x7ffff + even >> 20) - (120 << 3));
}

__global__ void convert(const float* x, uint8_t* q, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) q[i] = to_e4m3(x[i]);
}

extern "C" cudaError_t launch(const float* x, uint8_t* q, int n, cudaStream_t stream) {
    convert<<<(n + 255) / 256, 256, 0, stream>>>(x, q, n);
    return cudaGetLastError();
}
