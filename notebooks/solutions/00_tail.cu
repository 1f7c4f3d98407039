// The last element is n - 1. A kernel that goes one further writes into whatever lies behind.

__global__ void square(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i];
}

extern "C" cudaError_t launch(const float* x, float* y, int n, cudaStream_t stream) {
    square<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
    return cudaGetLastError();
}
