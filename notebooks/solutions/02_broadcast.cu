// Element i is in column i % cols. With as many rows as columns nobody could see it.

__global__ void add_bias(const float* x, const float* bias, float* y, int rows, int cols) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows * cols) y[i] = x[i] + bias[i % cols];
}

extern "C" cudaError_t launch(const float* x, const float* bias, float* y, int rows, int cols,
                              cudaStream_t stream) {
    add_bias<<<(rows * cols + 255) / 256, 256, 0, stream>>>(x, bias, y, rows, cols);
    return cudaGetLastError();
}
