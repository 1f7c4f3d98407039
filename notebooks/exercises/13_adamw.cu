// A step of AdamW on float32 masters, of which the model has a copy in bfloat16
//
// The moments, m of the gradients and v of their squares, begin at 0 and are too small at first: in
// step t = 1, 2, ... they have to be divided by 1 - 0.9^t and 1 - 0.999^t. The weight loses the
// part rate * decay of itself, and then moves.
//
// TODO: the divisions, the decay, and the copy. Budget: 25 lines of code.

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
    w[i] -= rate * moment / (sqrtf(square) + 1e-8f);
}

extern "C" cudaError_t launch(const nv_bfloat16* g, float* w, float* m, float* v, nv_bfloat16* copy,
                              int64_t n, float rate, float decay, int t, cudaStream_t stream) {
    const float first = 1 - std::pow(0.9, t), second = 1 - std::pow(0.999, t);
    adamw<<<(n + 255) / 256, 256, 0, stream>>>(g, w, m, v, copy, n, rate, decay, first, second);
    return cudaGetLastError();
}
