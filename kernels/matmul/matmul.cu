// matmul: y = act(scale * x w^T + bias) + residual, for each of `batch` pairs of matrices
//
//   x [batch, rows, depth] T          any strides, of a transpose too
//   w [batch, wide, depth] T          the same; wide is units, and 2 * units for swiglu
//   bias [wide] T, or none            residual, y [batch, rows, units] T; residual or none
//   z [batch, rows, wide] T           scale * x w^T + bias, for backward; or none
//   g, dz, db                         of y, z and bias: the gradients
//
// act is one of none, relu, gelu, silu; or swiglu, y = silu(left half of z) * right half.
//
// Work: 2 * rows * wide * depth operations. Traffic, the least a kernel can move: x, w, bias and
// residual once, y once. Of square matrices of n each element is used n times, and a GPU that does
// 990 operations of tensor cores while it reads 4.8 bytes (an H200, in units of 10^12 a second) is
// kept busy if each byte that it reads is used for more than 200 operations. So the ladder is one
// of reuse: how many products each element serves once it has been read.
//
// The gradients of x and w are products, too: dx = scale * dz w, dw = scale * dz^T x.

#include "matmul_align_rows.cuh"
#include "matmul_few_rows_configs.cuh"
#include "matmul_few_rows_mma.cuh"
#include "matmul_gradient_of_z.cuh"
#include "matmul_mma.cuh"
#include "matmul_mma_double.cuh"
#include "matmul_registers.cuh"
#include "matmul_tf32.cuh"

// Length of a run. A sum of thousands of floats loses digits; adding up runs of this length loses
// fewer.
constexpr int kRun = 16;

// ---- naive: one thread for each element of y, which reads a row of x and a row of w.
// Flaw: one operation for each element read.

template <class T>
__global__ void matmul_naive(Product<T> p, int64_t elements) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= elements) return;
    const int64_t unit = i % p.units, row = i / p.units % p.rows, batch = i / p.units / p.rows;
    KahanSum<Acc<T>> accum[2];
    for (int half = 0; half < rows_per_unit(p); ++half) {
        const T* x = at(p.x, batch, row, 0);
        const T* w = at(p.w, batch, unit + half * p.units, 0);
        for (int64_t first = 0; first < p.depth; first += kRun) {
            Acc<T> run = 0;
            for (int64_t k = first; k < smaller(first + kRun, p.depth); ++k)
                run += Acc<T>(x[k * p.x.col]) * Acc<T>(w[k * p.w.col]);
            accum[half] += run;
        }
    }
    epilogue_element(p, batch, row, unit, accum[0].value, accum[1].value);
}

// ---- tiles: a block has 32 x 32 elements of y, and reads the rows of x and w for them once, 32 of
// k at a time, into shared memory. Each element read from global memory is used 32 times.
// Flaw: each thread reads two elements of shared memory for every product.

// An element of x or w for a tile; what the matrix does not have is 0.
template <class T>
__device__ T element(const Operand<T>& from, int64_t matrix, int64_t row, int64_t k,
                     int64_t depth) {
    return row >= 0 && k < depth ? *at(from, matrix, row, k) : T(0.f);
}

constexpr int kTile = 32;

template <class T>
__global__ void matmul_tiles(Product<T> p, TileGrid grid) {
    __shared__ T tile_x[kTile][kTile + 1], tile_w[kTile][kTile + 1];  // + 1: for columns' banks
    const TilePlace place = grid.place(blockIdx.x);
    const auto rows = TileRows<kTile>::of(place.row, p.rows);
    const auto columns = TileRows<kTile>::of_w(p, place.column);
    const int r = threadIdx.y, c = threadIdx.x;
    KahanSum<Acc<T>> total;
    for (int64_t k = 0; k < p.depth; k += kTile) {
        tile_x[r][c] = element(p.x, place.matrix, rows(r), k + c, p.depth);
        tile_w[r][c] = element(p.w, place.matrix, columns(r), k + c, p.depth);
        __syncthreads();
        for (int first = 0; first < kTile; first += kRun) {
            Acc<T> run = 0;
            for (int i = first; i < first + kRun; ++i)
                run += Acc<T>(tile_x[r][i]) * Acc<T>(tile_w[c][i]);
            total += run;
        }
        __syncthreads();
    }
    const Acc<T> sum = total.value;
    Acc<T> gate = 0;
    if (p.act == kSwiglu) {
        __shared__ Acc<T> gates[kTile][kTile / 2];
        if (c >= kTile / 2) gates[r][c - kTile / 2] = sum;
        __syncthreads();
        if (c >= kTile / 2) return;
        gate = gates[r][c];
    }
    if (rows(r) >= 0 && columns(c) >= 0)
        epilogue_element(p, place.matrix, rows(r), columns(c), sum, gate);
}

// ---- The later versions: registers is in matmul_registers.cuh, mma in matmul_mma.cuh, wgmma and
// those after it in matmul_wgmma.cuh. Doubles, which have no wgmma, are in matmul_mma_double.cuh,
// and floats rounded to tf32 in matmul_tf32.cuh.

// ---- backward: the gradient of bias, which is the column sums of the gradient of z

// A block adds up 32 columns of its share of the rows, always in the same order.
constexpr int kSumRows = 8;

template <class T, class From>
__global__ void column_sums(const From* from, T* to, int64_t rows, int64_t cols, int64_t share) {
    using A = Acc<From>;
    __shared__ A parts[kSumRows][kWarp];
    const int64_t c = int64_t(blockIdx.x) * kWarp + threadIdx.x;
    const int64_t first = blockIdx.y * share;
    const int64_t end = smaller(first + share, rows);
    KahanSum<A> sum;
    if (c < cols) {
        for (int64_t r = first + threadIdx.y; r < end; r += kSumRows) sum += A(from[r * cols + c]);
    }
    parts[threadIdx.y][threadIdx.x] = sum.value;
    __syncthreads();
    if (threadIdx.y != 0 || c >= cols) return;
    A all = 0;
    for (int n = 0; n < kSumRows; ++n) all += parts[n][threadIdx.x];
    to[blockIdx.y * cols + c] = T(all);
}

// ---- launchers

// Launches tensor core kernels: the version asked for, or an earlier one that can; false if none
// can.
template <class T>
bool by_tensor_cores(const Product<T>& p, int64_t version, cudaStream_t stream) {
    if constexpr (std::is_same_v<T, float>) {
        if (p.copies && launch_tf32(p, stream)) return true;
        return p.tf32 && version >= MatmulVersion::kMma && launch_mma(p, stream);
    } else if constexpr (std::is_same_v<T, double>) {
        return version >= MatmulVersion::kMma && !has_few_tiles(p) && launch_mma(p, stream);
    } else if constexpr (sizeof(T) == 2) {
        if (version == MatmulVersion::kStores) {
            if (!reads_in_vectors(p.w) && launch_few_rows_unaligned<T>(p, p.batch, stream))
                return true;
            if (p.rows <= 8 && p.x.col == 1 && units_of_few_rows(p) == 64 &&
                launch_few_rows_mma<T, T, false>(p, p.batch, stream))
                return true;
            if (launch_few_rows(p, stream)) return true;
            if (launch_few_rows_mma<T, T, false>(p, p.batch, stream)) return true;
        }
        if (p.workspace && launch_split_k(p, stream)) return true;
        if (version >= MatmulVersion::kWgmma &&
            launch_wgmma(p, version - MatmulVersion::kWgmma, stream))
            return true;
        return version >= MatmulVersion::kMma && launch_mma(p, stream);
    }
    return false;
}

// Floats that p.workspace needs; 0 where the product is not split along k.
template <class T>
int64_t matmul_workspace(const Product<T>& p, int64_t version) {
    if constexpr (sizeof(T) == 2) {
        if (version == MatmulVersion::kStores && may_split_k(p) && !is_for_few_rows(p))
            return split_k_plan(p).floats();
    } else if constexpr (std::is_same_v<T, float>) {
        if (p.tf32 && version == MatmulVersion::kStores) return tf32_split_k_floats(p);
    }
    return 0;
}

// Floats that p.copies needs; 0 where nothing is copied.
template <class T>
int64_t matmul_copies(const Product<T>& p, int64_t version) {
    if constexpr (std::is_same_v<T, float>) {
        if (p.tf32 && version == MatmulVersion::kStores) return tf32_copies(p);
    }
    return 0;
}

cudaError_t matmul_align_rows(const RowsToAlign& of, cudaStream_t stream) {
    return launch_align_rows(of, stream);
}

bool matmul_prefers_unaligned(int64_t rows, int64_t wide) { return prefers_unaligned(rows, wide); }

template <class T>
cudaError_t matmul_forward(const Product<T>& p, int64_t version, cudaStream_t stream) {
    const int64_t elements = p.batch * p.rows * p.units;
    if (elements == 0) return cudaSuccess;
    if (by_tensor_cores(p, version, stream)) return cudaGetLastError();
    if (version >= MatmulVersion::kRegisters) {
        launch_registers(p, stream);
    } else if (version == MatmulVersion::kTiles) {
        const TileGrid grid(p, kTile, kTile);
        matmul_tiles<<<grid.tiles(), dim3(kTile, kTile), 0, stream>>>(p, grid);
    } else {
        matmul_naive<<<ceil_div<int64_t>(elements, 256), 256, 0, stream>>>(p, elements);
    }
    return cudaGetLastError();
}

template <class T>
cudaError_t matmul_gradient_of_z(const T* g, const T* z, T* dz, int64_t rows, int64_t units,
                                 int64_t act, cudaStream_t stream) {
    return launch_gradient_of_z(g, z, dz, rows, units, Act(act), stream);
}

// Blocks that share the rows of a column.
int64_t matmul_shares(int64_t rows, int64_t cols) {
    if (cols == 0) return 1;
    const int64_t across = ceil_div<int64_t>(cols, kWarp);
    const int64_t wanted = ceil_div<int64_t>(4 * multiprocessors(), across);
    return smaller<int64_t>(wanted, ceil_div<int64_t>(rows, 4 * kSumRows));
}

template <class T>
cudaError_t matmul_column_sums(const T* t, T* sums, Acc<T>* parts, int64_t rows, int64_t cols,
                               int64_t shares, cudaStream_t stream) {
    if (cols == 0) return cudaSuccess;
    const unsigned across = ceil_div<int64_t>(cols, kWarp);
    const dim3 block(kWarp, kSumRows);
    if (shares <= 1) {
        column_sums<<<across, block, 0, stream>>>(t, sums, rows, cols, rows);
    } else {
        const int64_t share = ceil_div(rows, shares);
        column_sums<<<dim3(across, shares), block, 0, stream>>>(t, parts, rows, cols, share);
        column_sums<<<across, block, 0, stream>>>(parts, sums, shares, cols, shares);
    }
    return cudaGetLastError();
}

#define INSTANTIATE(T)                                                  \
    template decltype(matmul_workspace<T>) matmul_workspace<T>;         \
    template decltype(matmul_copies<T>) matmul_copies<T>;               \
    template decltype(matmul_forward<T>) matmul_forward<T>;             \
    template decltype(matmul_gradient_of_z<T>) matmul_gradient_of_z<T>; \
    template decltype(matmul_column_sums<T>) matmul_column_sums<T>;
FOR_EACH_TYPE(INSTANTIATE)
