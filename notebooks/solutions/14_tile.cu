// Thread (x, y) of a block reads k = x of rows y of both tiles, so that neighbours read neighbours.
// Both barriers are for all threads: those beyond the matrix wait, too.

constexpr int kTile = 16;

__device__ float element(const float* from, int row, int k, int rows, int depth) {
    return row < rows && k < depth ? from[row * depth + k] : 0;
}

__global__ void product(const float* x, const float* w, float* y, int rows, int units, int depth) {
    __shared__ float tile_x[kTile][kTile + 1], tile_w[kTile][kTile + 1];
    const int r = threadIdx.y, c = threadIdx.x, row = blockIdx.y * kTile + r;
    const int first_unit = blockIdx.x * kTile, unit = first_unit + c;
    float sum = 0;
    for (int first = 0; first < depth; first += kTile) {
        tile_x[r][c] = element(x, row, first + c, rows, depth);
        tile_w[r][c] = element(w, first_unit + r, first + c, units, depth);
        __syncthreads();
        for (int k = 0; k < kTile; ++k) sum += tile_x[r][k] * tile_w[c][k];
        __syncthreads();
    }
    if (row < rows && unit < units) y[row * units + unit] = sum;
}

extern "C" cudaError_t launch(const float* x, const float* w, float* y, int rows, int units,
                              int depth, cudaStream_t stream) {
    const dim3 grid((units + kTile - 1) / kTile, (rows + kTile - 1) / kTile), block(kTile, kTile);
    product<<<grid, block, 0, stream>>>(x, w, y, rows, units, depth);
    return cudaGetLastError();
}
