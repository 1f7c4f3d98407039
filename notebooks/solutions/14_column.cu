// Nine reads for eight products. The eight rows of a thread are four apart, so that all threads
// fetch rows as they use them; neighbours would do as well.

constexpr int kTile = 32, kEach = 8, kDown = kTile / kEach;

__global__ void product(const float* x, const float* w, float* y, int units, int depth) {
    __shared__ float tile_x[kTile][kTile + 1], tile_w[kTile][kTile + 1];
    const int c = threadIdx.x;
    x += blockIdx.y * kTile * depth;
    w += blockIdx.x * kTile * depth;
    float sums[kEach] = {};
    for (int first = 0; first < depth; first += kTile) {
        for (int r = threadIdx.y; r < kTile; r += kDown) {
            tile_x[r][c] = x[r * depth + first + c];
            tile_w[r][c] = w[r * depth + first + c];
        }
        __syncthreads();
        for (int k = 0; k < kTile; ++k) {
            const float of_w = tile_w[c][k];
            for (int m = 0; m < kEach; ++m) sums[m] += tile_x[threadIdx.y + m * kDown][k] * of_w;
        }
        __syncthreads();
    }
    y += (blockIdx.y * kTile + threadIdx.y) * units + blockIdx.x * kTile + c;
    for (int m = 0; m < kEach; ++m) y[m * kDown * units] = sums[m];
}

extern "C" cudaError_t launch(const float* x, const float* w, float* y, int rows, int units,
                              int depth, cudaStream_t stream) {
    const dim3 grid(units / kTile, rows / kTile), block(kTile, kDown);
    product<<<grid, block, 0, stream>>>(x, w, y, units, depth);
    return cudaGetLastError();
}
