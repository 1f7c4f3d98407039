// Where one of its two is a NaN, fmaxf returns the other one. A comparison with a NaN is false, so
// that here the NaN passes.

__global__ void relu(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] < 0 ? 0.0f : x[i];
}

extern "C" cudaError_t launch(const float* x, float* y, int n, cudaStream_t stream) {
    relu<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
    return cudaGetLastError();
}
