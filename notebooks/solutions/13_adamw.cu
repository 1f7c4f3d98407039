// The decay is of the weight and not of the gradient: that is the W of AdamW.

#include <cuda_bf16.h>

#include <cmath>

__global__ void adamw(const nv_bfloat16* g, float* w, float* m, float* v, nv_bfloat16* copy,
                      int64_t n, float rate, float decay, float first, float second) {
    const int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x;
    if (i >= n) return;
    const float gradient = __bfloat162float(g[i]);
    const float moment = 0.9f * m[i] + 0.1f * gradient;
    const float square = 0.999f * v[i] + 0.001f * gradient * gradient;
    m[i] = moment;
    v[i] = square;
    const float shrunk = w[i] - rate * decay * w[i];
    const float weight = shrunk - rate * (moment / first) / (sqrtf(square / second) + 1e-8f);
    w[i] = weight;
    copy[i] = __float2bfloat16(weight);
}

extern "C" cudaError_t launch(const nv_bfloat16* g, float* w, float* m, float* v, nv_bfloat16* copy,
                              int64_t n, float rate, float decay, int t, cudaStream_t stream) {
    const float first = 1 - std::pow(0.9, t), second = 1 - std::pow(0.999, t);
    adamw<<<(n + 255) / 256, 256, 0, stream>>>(g, w, m, v, copy, n, rate, decay, first, second);
    return cudaGetLastError();
}
