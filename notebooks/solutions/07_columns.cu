constexpr int kColumns = 32, kSlices = 8;

__global__ void column_sums(const float* g, float* dbias, int rows, int cols) {
    __shared__ float sums[kSlices][kColumns];
    const int col = blockIdx.x * kColumns + threadIdx.x;
    float sum = 0;
    if (col < cols) {
        for (int row = threadIdx.y; row < rows; row += kSlices) sum += g[row * cols + col];
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || col >= cols) return;
    for (int k = 1; k < kSlices; ++k) sum += sums[k][threadIdx.x];
    dbias[col] = sum;
}

extern "C" cudaError_t launch(const float* g, float* dbias, int rows, int cols,
                              cudaStream_t stream) {
    const int blocks = (cols + kColumns - 1) / kColumns;
    column_sums<<<blocks, dim3(kColumns, kSlices), 0, stream>>>(g, dbias, rows, cols);
    return cudaGetLastError();
}
