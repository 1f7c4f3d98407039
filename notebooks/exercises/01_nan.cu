// y = max(x, 0)
//
// This one is short, fast, and was once in a library near you: a network whose loss had become NaN
// went on training, on zeros.
//
// TODO: find the mistake. Budget: 10 lines of code.

__global__ void relu(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i], 0.0f);
}

extern "C" cudaError_t launch(const float* x, float* y, int n, cudaStream_t stream) {
    relu<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
    return cudaGetLastError();
}
