// y[i] = x[i] + x[i + 1] within each block, whose last thread has no right neighbour and takes x[i]
// alone. n is a multiple of 256.
//
// Each thread reads one number of x, and its neighbour gets it from shared memory.
//
// TODO: find what is missing. Budget: 13 lines of code.

__global__ void neighbour(const float* x, float* y) {
    __shared__ float tile[256];
    const int t = threadIdx.x, i = blockIdx.x * 256 + t;
    tile[t] = x[i];
    y[i] = tile[t] + (t < 255 ? tile[t + 1] : 0.0f);
}

extern "C" cudaError_t launch(const float* x, float* y, int n, cudaStream_t stream) {
    neighbour<<<n / 256, 256, 0, stream>>>(x, y);
    return cudaGetLastError();
}
