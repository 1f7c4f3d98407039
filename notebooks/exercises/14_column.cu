// y = x w^T for x [rows, depth] and w [units, depth], all of them multiples of 32
//
// Right, and every product reads two elements of shared memory.
//
// TODO: give each thread eight elements of a column of y, its sums in registers, so that an element
// of w that it has read serves eight products. A block then has 32 x 4 threads, each of which
// fetches eight elements of each tile. Budget: 28 lines of code.

constexpr int kTile = 32;

__global__ void product(const float* x, const float* w, float* y, int units, int depth) {
    __shared__ float tile_x[kTile][kTile + 1], tile_w[kTile][kTile + 1];
    const int r = threadIdx.y, c = threadIdx.x;
    x += blockIdx.y * kTile * depth;
    w += blockIdx.x * kTile * depth;
    float sum = 0;
    for (int first = 0; first < depth; first += kTile) {
        tile_x[r][c] = x[r * depth + first + c];
        tile_w[r][c] = w[r * depth + first + c];
        __syncthreads();
        for (int k = 0; k < kTile; ++k) sum += tile_x[r][k] * tile_w[c][k];
        __syncthreads();
    }
    y[(blockIdx.y * kTile + r) * units + blockIdx.x * kTile + c] = sum;
}

extern "C" cudaError_t launch(const float* x, const float* w, float* y, int rows, int units,
                              int depth, cudaStream_t stream) {
    const dim3 grid(units / kTile, rows / kTile), block(kTile, kTile);
    product<<<grid, block, 0, stream>>>(x, w, y, units, depth);
    return cudaGetLastError();
}
