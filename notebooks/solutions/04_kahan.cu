// With --use_fast_math a compiler may decide that `arrived` is a; this project does not compile so.

__global__ void row_sum(const float* x, float* y, int rows, int cols) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0, lost = 0;
    for (int c = 0; c < cols; ++c) {
        const float a = x[row * cols + c] + lost, before = sum;
        sum += a;
        const float arrived = sum - before;
        lost = a - arrived;
    }
    y[row] = sum;
}

extern "C" cudaError_t launch(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
    row_sum<<<(rows + 127) / 128, 128, 0, stream>>>(x, y, rows, cols);
    return cudaGetLastError();
}
