// y = a * x * x + b * x + c
//
// TODO: this is square. Make it take b and c too: in the kernel, in the launcher, and in the
// launch. (The launcher already has them.) Budget: 10 lines of code.

__global__ void polynomial(const float* x, float* y, int n, float a) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] * x[i];
}

extern "C" cudaError_t launch(const float* x, float* y, int n, float a, float b, float c,
                              cudaStream_t stream) {
    polynomial<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n, a);
    return cudaGetLastError();
}
