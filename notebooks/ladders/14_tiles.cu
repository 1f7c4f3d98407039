// Products of matrices of floats without tensor cores: y = x w^T
//
//   x [rows, depth], w [units, depth], y [rows, units] float
//
// rows and units are multiples of kSide, depth of kTile; the launchers refuse others. The op's own
// versions, which take all shapes and types, are in kernels/matmul/matmul.cu.
//
// Work: 2 * rows * units * depth operations. Each version says what a warp reads for 64 operations,
// a multiplication and an addition for each of its lanes.

#include "vec.cuh"

constexpr int kTile = 32;      // elements of y that a block of `tiles` has in each direction
constexpr int kSide = 128;     // of the blocks with the largest tiles
constexpr int kStep = 16;      // of depth, which wait in shared memory at a time
constexpr int kEach = 8;       // rows, or columns, of y that a thread has
constexpr int kThreads = 256;  // of the blocks with the largest tiles
constexpr int kAcross = kSide / kEach;

// ---- naive: a thread for each element of y. Element (u, k) of w is w[u * w_unit + k * w_depth].
// Flaw: each product reads an element of x and one of w. Neighbouring threads have neighbouring
// units, so where w_unit is depth, a warp reads w in 32 sectors.

__global__ void product_naive(const float* x, const float* w, float* y, int units, int depth,
                              int w_unit, int w_depth) {
    const int64_t row = blockIdx.y * blockDim.y + threadIdx.y;
    const int64_t unit = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < depth; ++k) sum += x[row * depth + k] * w[unit * w_unit + k * w_depth];
    y[row * units + unit] = sum;
}

// ---- tiles: a block has 32 x 32 elements of y, and reads what they need of x and w once, 32 of
// depth at a time, into shared memory.
// Flaw: each product reads two elements of shared memory.

__global__ void product_tiles(const float* x, const float* w, float* y, int units, int depth) {
    __shared__ float tile_x[kTile][kTile + 1], tile_w[kTile][kTile + 1];
    const int r = threadIdx.y, c = threadIdx.x;
    x += int64_t(blockIdx.y) * kTile * depth;
    w += int64_t(blockIdx.x) * kTile * depth;
    float sum = 0;
    for (int first = 0; first < depth; first += kTile) {
        tile_x[r][c] = x[r * depth + first + c];
        tile_w[r][c] = w[r * depth + first + c];
        __syncthreads();  // both tiles are there
        for (int k = 0; k < kTile; ++k) sum += tile_x[r][k] * tile_w[c][k];
        __syncthreads();  // nobody reads them any more
    }
    y[int64_t(blockIdx.y * kTile + r) * units + blockIdx.x * kTile + c] = sum;
}

// kStep of depth of `side` rows of x or w, for a block of `threads`: tile[k][row]. A row of the
// tile ends with four unused elements, so that it begins on 16 bytes and in another bank.
template <int side>
using Tile = float[kStep][side + 4];

template <int threads, int side>
__device__ void fill(Tile<side>& tile, const float* from, int depth) {
    for (int i = threadIdx.x; i < side * kStep; i += threads)
        tile[i % kStep][i / kStep] = from[i / kStep * depth + i % kStep];
}

// ---- column: a thread has eight elements of a column of y, in registers. An element of w that it
// reads from shared memory serves eight products.
// Flaw: an element of x still serves one.

constexpr int kColumnSide = 64, kColumnThreads = kColumnSide * kColumnSide / kEach;

__global__ void __launch_bounds__(kColumnThreads) product_column(const float* x, const float* w,
                                                                 float* y, int units, int depth) {
    constexpr int side = kColumnSide;
    __shared__ Tile<side> tile_x, tile_w;
    const int down = threadIdx.x / side * kEach, right = threadIdx.x % side;
    x += int64_t(blockIdx.y) * side * depth;
    w += int64_t(blockIdx.x) * side * depth;
    float sums[kEach] = {};
    for (int first = 0; first < depth; first += kStep) {
        fill<kColumnThreads, side>(tile_x, x + first, depth);
        fill<kColumnThreads, side>(tile_w, w + first, depth);
        __syncthreads();
        for (int k = 0; k < kStep; ++k) {
            const float of_w = tile_w[k][right];
            for (int m = 0; m < kEach; ++m) sums[m] += tile_x[k][down + m] * of_w;
        }
        __syncthreads();
    }
    for (int m = 0; m < kEach; ++m)
        y[int64_t(blockIdx.y * side + down + m) * units + blockIdx.x * side + right] = sums[m];
}

// ---- registers: a thread has 8 x 8 elements of y. For 64 products it reads 16 elements.
// Flaw: it reads them one by one, and an instruction that reads takes the place of one that
// multiplies.

__global__ void __launch_bounds__(kThreads) product_registers(const float* x, const float* w,
                                                              float* y, int units, int depth) {
    __shared__ Tile<kSide> tile_x, tile_w;
    const int down = threadIdx.x / kAcross * kEach, right = threadIdx.x % kAcross;
    x += int64_t(blockIdx.y) * kSide * depth;
    w += int64_t(blockIdx.x) * kSide * depth;
    float sums[kEach][kEach] = {};
    for (int first = 0; first < depth; first += kStep) {
        fill<kThreads, kSide>(tile_x, x + first, depth);
        fill<kThreads, kSide>(tile_w, w + first, depth);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < kStep; ++k) {
            float of_x[kEach], of_w[kEach];
            for (int m = 0; m < kEach; ++m) of_x[m] = tile_x[k][down + m];
            for (int n = 0; n < kEach; ++n) of_w[n] = tile_w[k][right + n * kAcross];
            for (int m = 0; m < kEach; ++m)
                for (int n = 0; n < kEach; ++n) sums[m][n] += of_x[m] * of_w[n];
        }
        __syncthreads();
    }
    for (int m = 0; m < kEach; ++m)
        for (int n = 0; n < kEach; ++n) {
            const int64_t row = blockIdx.y * kSide + down + m;
            y[row * units + blockIdx.x * kSide + right + n * kAcross] = sums[m][n];
        }
}

// ---- vectors: four neighbours are read at a time, from memory and from shared memory. A thread's
// eight columns are four neighbours and the four that are half a tile further.
// Flaw: all threads of a block wait while their next tiles are on the way.

constexpr int V = kVec<float>;
using Four = Vec<float, V>;
constexpr int kFours = kSide * kStep / V / kThreads;  // of a tile, for each thread

__device__ void ask(Four (&fours)[kFours], const float* from, int depth) {
    for (int n = 0; n < kFours; ++n) {
        const int i = threadIdx.x + n * kThreads;
        fours[n] = load<V>(from + i / (kStep / V) * depth + i % (kStep / V) * V);
    }
}
__device__ void put(Tile<kSide>& tile, const Four (&fours)[kFours]) {
    for (int n = 0; n < kFours; ++n) {
        const int i = threadIdx.x + n * kThreads;
        for (int k = 0; k < V; ++k) tile[i % (kStep / V) * V + k][i / (kStep / V)] = fours[n][k];
    }
}

// Column n of a thread's eight, in its tile of y.
__device__ int column_of(int n) { return n / V * (kSide / 2) + threadIdx.x % kAcross * V + n % V; }

__device__ void multiply(const Tile<kSide>& tile_x, const Tile<kSide>& tile_w,
                         float (&sums)[kEach][kEach]) {
    const int down = threadIdx.x / kAcross * kEach;
#pragma unroll
    for (int k = 0; k < kStep; ++k) {
        Four of_x[kEach / V], of_w[kEach / V];
        for (int m = 0; m < kEach; m += V) of_x[m / V] = load<V>(&tile_x[k][down + m]);
        for (int n = 0; n < kEach; n += V) of_w[n / V] = load<V>(&tile_w[k][column_of(n)]);
        for (int m = 0; m < kEach; ++m)
            for (int n = 0; n < kEach; ++n) sums[m][n] += of_x[m / V][m % V] * of_w[n / V][n % V];
    }
}

__device__ void write(float* y, int units, const float (&sums)[kEach][kEach]) {
    for (int m = 0; m < kEach; ++m) {
        const int64_t row = blockIdx.y * kSide + threadIdx.x / kAcross * kEach + m;
        for (int n = 0; n < kEach; n += V) {
            Four four;
            for (int k = 0; k < V; ++k) four[k] = sums[m][n + k];
            store(y + row * units + blockIdx.x * kSide + column_of(n), four);
        }
    }
}

__global__ void __launch_bounds__(kThreads) product_vectors(const float* x, const float* w,
                                                            float* y, int units, int depth) {
    __shared__ __align__(16) Tile<kSide> tile_x, tile_w;
    x += int64_t(blockIdx.y) * kSide * depth;
    w += int64_t(blockIdx.x) * kSide * depth;
    float sums[kEach][kEach] = {};
    for (int first = 0; first < depth; first += kStep) {
        Four from_x[kFours], from_w[kFours];
        ask(from_x, x + first, depth);
        ask(from_w, w + first, depth);
        put(tile_x, from_x);
        put(tile_w, from_w);
        __syncthreads();
        multiply(tile_x, tile_w, sums);
        __syncthreads();
    }
    write(y, units, sums);
}

// ---- ahead: the next tiles are on the way to registers while this step's are multiplied, and go
// to a second pair of tiles in shared memory. One barrier for each step is enough.
// Flaw: the products are those of the arithmetic units, one for each lane.

__global__ void __launch_bounds__(kThreads, 2) product_ahead(const float* x, const float* w,
                                                             float* y, int units, int depth) {
    __shared__ __align__(16) Tile<kSide> tile_x[2], tile_w[2];
    x += int64_t(blockIdx.y) * kSide * depth;
    w += int64_t(blockIdx.x) * kSide * depth;
    float sums[kEach][kEach] = {};
    Four from_x[kFours], from_w[kFours];
    ask(from_x, x, depth);
    ask(from_w, w, depth);
    for (int step = 0; step < depth / kStep; ++step) {
        put(tile_x[step % 2], from_x);
        put(tile_w[step % 2], from_w);
        __syncthreads();  // this pair is there, and nobody reads the other one any more
        if (step + 1 < depth / kStep) {
            ask(from_x, x + (step + 1) * kStep, depth);
            ask(from_w, w + (step + 1) * kStep, depth);
        }
        multiply(tile_x[step % 2], tile_w[step % 2], sums);
    }
    write(y, units, sums);
}

// ---- launchers

cudaError_t refused(int rows, int units, int depth) {
    const bool fits = rows % kSide == 0 && units % kSide == 0 && depth % kTile == 0;
    return fits && rows > 0 && units > 0 ? cudaSuccess : cudaErrorInvalidValue;
}

// w_unit, w_depth: the strides of w.
extern "C" cudaError_t naive(const float* x, const float* w, float* y, int rows, int units,
                             int depth, int w_unit, int w_depth, cudaStream_t stream) {
    if (refused(rows, units, depth)) return cudaErrorInvalidValue;
    const dim3 grid(units / 32, rows / 8), block(32, 8);
    product_naive<<<grid, block, 0, stream>>>(x, w, y, units, depth, w_unit, w_depth);
    return cudaGetLastError();
}

extern "C" cudaError_t tiles(const float* x, const float* w, float* y, int rows, int units,
                             int depth, cudaStream_t stream) {
    if (refused(rows, units, depth)) return cudaErrorInvalidValue;
    const dim3 grid(units / kTile, rows / kTile), block(kTile, kTile);
    product_tiles<<<grid, block, 0, stream>>>(x, w, y, units, depth);
    return cudaGetLastError();
}

extern "C" cudaError_t column(const float* x, const float* w, float* y, int rows, int units,
                              int depth, cudaStream_t stream) {
    if (refused(rows, units, depth)) return cudaErrorInvalidValue;
    const dim3 grid(units / kColumnSide, rows / kColumnSide);
    product_column<<<grid, kColumnThreads, 0, stream>>>(x, w, y, units, depth);
    return cudaGetLastError();
}

// One of the kernels whose blocks have 128 x 128 elements of y.
cudaError_t launch(void (*kernel)(const float*, const float*, float*, int, int), const float* x,
                   const float* w, float* y, int rows, int units, int depth, cudaStream_t stream) {
    if (refused(rows, units, depth)) return cudaErrorInvalidValue;
    const dim3 grid(units / kSide, rows / kSide);
    kernel<<<grid, kThreads, 0, stream>>>(x, w, y, units, depth);
    return cudaGetLastError();
}

extern "C" cudaError_t registers(const float* x, const float* w, float* y, int rows, int units,
                                 int depth, cudaStream_t stream) {
    return launch(product_registers, x, w, y, rows, units, depth, stream);
}

extern "C" cudaError_t vectors(const float* x, const float* w, float* y, int rows, int units,
                               int depth, cudaStream_t stream) {
    return launch(product_vectors, x, w, y, rows, units, depth, stream);
}

extern "C" cudaError_t ahead(const float* x, const float* w, float* y, int rows, int units,
                             int depth, cudaStream_t stream) {
    return launch(product_ahead, x, w, y, rows, units, depth, stream);
}
