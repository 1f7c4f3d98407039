// dx = dx + (the gradient of relu), where y = relu(x): g where y > 0, else 0
//
// A tensor that is used twice gets two gradients, and a batch in parts gets one from each part. To
// write each to memory and add them there is three passes more than needed.
//
// TODO: add to what dx holds already, in the same kernel. Budget: 10 lines of code.

__global__ void relu_backward(const float* g, const float* y, float* dx, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) dx[i] = y[i] > 0 ? g[i] : 0.0f;
}

extern "C" cudaError_t launch(const float* g, const float* y, float* dx, int n,
                              cudaStream_t stream) {
    relu_backward<<<(n + 255) / 256, 256, 0, stream>>>(g, y, dx, n);
    return cudaGetLastError();
}
