// y[r] = sum over c of x[r, c], a block for each row and a thread for each column
//
// This tree is in more than one tutorial. Every test that its author wrote had a row of 256.
//
// TODO: find the mistake. Budget: 17 lines of code.

__global__ void row_sum(const float* x, float* y) {
    extern __shared__ float sums[];
    const int t = threadIdx.x;
    sums[t] = x[blockIdx.x * blockDim.x + t];
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) sums[t] += sums[t + half];
    }
    if (t == 0) y[blockIdx.x] = sums[0];
}

extern "C" cudaError_t launch(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
    row_sum<<<rows, cols, cols * sizeof(float), stream>>>(x, y);
    return cudaGetLastError();
}
