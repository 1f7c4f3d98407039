// y = x w^T for x [rows, depth] and w [units, depth], all of them multiples of 32
//
// Two pairs of tiles: while threads still multiply with one, the next one is filled. It has passed
// the test of its author, in which depth is 32.
//
// TODO: find the mistake. Budget: 27 lines of code.

constexpr int kTile = 32;

__global__ void product(const float* x, const float* w, float* y, int units, int depth) {
    __shared__ float tile_x[2][kTile][kTile + 1], tile_w[2][kTile][kTile + 1];
    const int r = threadIdx.y, c = threadIdx.x, steps = depth / kTile;
    x += (blockIdx.y * kTile + r) * depth + c;
    w += (blockIdx.x * kTile + r) * depth + c;
    tile_x[0][r][c] = x[0];
    tile_w[0][r][c] = w[0];
    __syncthreads();
    float sum = 0;
    for (int step = 0; step < steps; ++step) {
        const int now = step % 2, next = 1 - now;
        if (step + 1 < steps) {
            tile_x[next][r][c] = x[(step + 1) * kTile];
            tile_w[next][r][c] = w[(step + 1) * kTile];
        }
        for (int k = 0; k < kTile; ++k) sum += tile_x[now][r][k] * tile_w[now][c][k];
        if (step % 2) __syncthreads();
    }
    y[(blockIdx.y * kTile + r) * units + blockIdx.x * kTile + c] = sum;
}

extern "C" cudaError_t launch(const float* x, const float* w, float* y, int rows, int units,
                              int depth, cudaStream_t stream) {
    const dim3 grid(units / kTile, rows / kTile), block(kTile, kTile);
    product<<<grid, block, 0, stream>>>(x, w, y, units, depth);
    return cudaGetLastError();
}
