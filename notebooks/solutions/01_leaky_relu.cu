#include "vec.cuh"

__global__ void leaky_relu(const float* x, float* y, int64_t n, float slope) {
    const int64_t i = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * 4;
    if (i + 4 <= n) {
        Vec<float, 4> v = load<4>(x + i);
        for (int k = 0; k < 4; ++k) v[k] = v[k] > 0 ? v[k] : slope * v[k];
        store(y + i, v);
    } else {
        for (int64_t k = i; k < n; ++k) y[k] = x[k] > 0 ? x[k] : slope * x[k];
    }
}

extern "C" cudaError_t launch(const float* x, float* y, int64_t n, float slope,
                              cudaStream_t stream) {
    leaky_relu<<<ceil_div<int64_t>(n, 256 * 4), 256, 0, stream>>>(x, y, n, slope);
    return cudaGetLastError();
}
