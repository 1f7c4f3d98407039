__global__ void fused(const float* x, const float* scale, const float* bias, float* y, int rows,
                      int cols) {
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (col >= cols) return;
    const float s = scale[col], b = bias[col];
    for (int row = blockIdx.y; row < rows; row += gridDim.y) {
        y[row * cols + col] = fmaxf(x[row * cols + col] * s + b, 0.0f);
    }
}

extern "C" cudaError_t launch(const float* x, const float* scale, const float* bias, float* y,
                              int rows, int cols, cudaStream_t stream) {
    const dim3 grid((cols + 255) / 256, rows < 1024 ? rows : 1024);
    fused<<<grid, 256, 0, stream>>>(x, scale, bias, y, rows, cols);
    return cudaGetLastError();
}
