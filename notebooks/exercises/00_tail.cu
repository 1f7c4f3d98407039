// y = x * x
//
// It works: the result is right, whatever n is. And once in a while something else in the program
// has a wrong number in it.
//
// TODO: find the mistake. Budget: 8 lines of code.

__global__ void square(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) y[i] = x[i] * x[i];
}

extern "C" cudaError_t launch(const float* x, float* y, int n, cudaStream_t stream) {
    square<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);
    return cudaGetLastError();
}
