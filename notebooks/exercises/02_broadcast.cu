// y[r, c] = x[r, c] + bias[c], one thread for each element
//
// Its author tried it on a matrix of 64 x 64.
//
// TODO: find the mistake. Budget: 12 lines of code.

__global__ void add_bias(const float* x, const float* bias, float* y, int rows, int cols) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows * cols) y[i] = x[i] + bias[i % rows];
}

extern "C" cudaError_t launch(const float* x, const float* bias, float* y, int rows, int cols,
                              cudaStream_t stream) {
    add_bias<<<(rows * cols + 255) / 256, 256, 0, stream>>>(x, bias, y, rows, cols);
    return cudaGetLastError();
}
