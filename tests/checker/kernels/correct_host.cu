// Correct calls of which the host does a part: the checker must find nothing.
#include "export.cuh"

__global__ void copy(const float* x, float* y, int first, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i >= first && i < n) y[i] = x[i];
}
extern "C" void memset_of_the_head(const float* x, float* y, int n) {
    cudaMemset(y, 0, 33 * sizeof(float));
    copy<<<blocks_of(n), kThreads>>>(x, y, 33, n);
}
extern "C" void copy_of_the_tail(const float* x, float* y, int n) {
    copy<<<blocks_of(n), kThreads>>>(x, y, 0, n - 101);
    cudaMemcpyAsync(y + n - 101, x + n - 101, 101 * sizeof(float), cudaMemcpyDefault);
}
extern "C" void written_by_hand(const float* x, float* y, int n) {
    copy<<<blocks_of(n), kThreads>>>(x, y, 0, n - 1);
    cudaDeviceSynchronize();
    cudaMemcpy(y + n - 1, x, sizeof(float), cudaMemcpyDefault);
}
