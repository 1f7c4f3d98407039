// The gradient of a rotation is the rotation back: by the same angle, with the other sign of its
// sine.

__global__ void rotate_back(const float* dy, const float* cos, const float* sin, float* dx,
                            int tokens, int half) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= tokens * half) return;
    const int first = i / half * 2 * half + i % half, second = first + half;
    const float a = dy[first], b = dy[second];
    dx[first] = a * cos[i] + b * sin[i];
    dx[second] = b * cos[i] - a * sin[i];
}

extern "C" cudaError_t launch(const float* dy, const float* cos, const float* sin, float* dx,
                              int tokens, int cols, cudaStream_t stream) {
    const int half = cols / 2;
    rotate_back<<<(tokens * half + 127) / 128, 128, 0, stream>>>(dy, cos, sin, dx, tokens, half);
    return cudaGetLastError();
}
