// y = x w^T for x [rows, depth] and w [units, depth], a thread for each element of y
//
// Right, and every element of x and w is read from memory for each single product.
//
// TODO: let each block, which has 16 x 16 elements of y, read 16 of depth of its rows of x and w
// into shared memory, use them there, and go on. Rows, units and depth may be any numbers: what a
// tile has beyond the matrix is 0. Budget: 26 lines of code.

constexpr int kTile = 16;

__global__ void product(const float* x, const float* w, float* y, int rows, int units, int depth) {
    const int row = blockIdx.y * kTile + threadIdx.y, unit = blockIdx.x * kTile + threadIdx.x;
    float sum = 0;
    if (row >= rows || unit >= units) return;
    for (int k = 0; k < depth; ++k) sum += x[row * depth + k] * w[unit * depth + k];
    y[row * units + unit] = sum;
}

extern "C" cudaError_t launch(const float* x, const float* w, float* y, int rows, int units,
                              int depth, cudaStream_t stream) {
    const dim3 grid((units + kTile - 1) / kTile, (rows + kTile - 1) / kTile), block(kTile, kTile);
    product<<<grid, block, 0, stream>>>(x, w, y, rows, units, depth);
    return cudaGetLastError();
}
