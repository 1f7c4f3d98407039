// grouped_matmul: y = act(x w^T), where each group of rows of x has a matrix of w of its own
//
//   x [rows, depth] T                 sorted by group
//   w [groups, wide, depth] T         wide is units, and 2 * units for swiglu
//   y [rows, units] T                 z [rows, wide] T: x w^T, for backward; or none
//   ends [groups] int32               group g has the rows before ends[g] and from ends[g - 1] on
//   dx, dw                            the gradients of x and w
//
// dx = dz w is such a product, too. In dw = dz^T x, for the rows of each group, the depth is
// grouped: y has a matrix for each group, and x and w are transposed.
//
// Work: 2 * rows * units * depth operations. Traffic, the least a kernel can move: x, y and the
// matrices of groups that have rows. Mixtures of experts have few rows for each matrix: below about
// 200 it is the traffic of w that takes the time.
//
// The ends stay on the device, so nobody knows on the host which tiles there are. A set-up kernel
// checks the ends; blocks then look up which group their tile belongs to (GroupGrid).

#include "grouped_matmul_groups.cuh"
#include "grouped_matmul_wgmma.cuh"
#include "matmul_gradient_of_z.cuh"
#include "matmul_mma.cuh"
#include "matmul_mma_double.cuh"
#include "matmul_registers.cuh"

// ---- set-up: the ends that all kernels trust, and what belongs to no group

constexpr int kSetUpThreads = 256;

// Whether the ends increase, within so many rows. All threads of a block call this.
__device__ inline bool are_right(const int32_t* ends, int64_t count, int64_t rows) {
    bool right = true;
    for (int64_t g = threadIdx.x; g < count; g += blockDim.x) {
        const int32_t before = g == 0 ? 0 : ends[g - 1];
        right = right && before <= ends[g] && ends[g] <= rows;
    }
    return __syncthreads_and(right);
}

// What a product writes: rows of `width` elements, or matrices for all groups, where width is 0.
template <class T>
struct Written {
    T* data;
    int64_t width, elements;
};

// Elements from the last end on become 0; or all become NaN where the ends are wrong.
template <class T>
__device__ void fill_outside(const Written<T>& of, bool right, int64_t last) {
    const int64_t first = !right ? 0 : of.width > 0 ? last * of.width : of.elements;
    for (int64_t i = first + int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < of.elements;
         i += int64_t(gridDim.x) * blockDim.x)
        of.data[i] = T(right ? 0.f : float(NAN));
}

// Writes the checked ends, and what of y and z belongs to no group. rows: that are grouped.
template <class T>
__global__ void __launch_bounds__(kSetUpThreads) set_up_groups(
    const int32_t* ends, int32_t* checked, int64_t count, int64_t rows, Written<T> y,
    Written<T> z) {
    launch_dependents();
    const bool right = are_right(ends, count, rows);
    if (blockIdx.x == 0) {
        for (int64_t g = threadIdx.x; g < count; g += blockDim.x) checked[g] = right ? ends[g] : 0;
        if (threadIdx.x == 0) checked[count] = right ? int32_t(count) : 0;
    }
    const int64_t last = count > 0 ? ends[count - 1] : 0;
    fill_outside(y, right, last);
    fill_outside(z, right, last);
}

// ---- naive: one thread for each element of y, which reads a row of x and a row of w.
// Flaw: one operation for each element read.

constexpr int kRun = 16;  // of a sum, added up apart: long sums of floats lose digits

template <Grouped grouped, class T>
__global__ void grouped_matmul_naive(Product<T> p, Groups groups, int64_t elements) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= elements) return;
    int64_t row = i / p.units, g = 0;
    const int64_t unit = i % p.units, count = count_of(groups);
    if (grouped == Grouped::kRows) {
        while (g < count && row >= groups.ends[g]) ++g;
        row -= g < count ? begin_of(groups, g) : 0;
    } else {
        g = row / p.rows, row %= p.rows;
    }
    if (g >= count) return;  // a row of no group
    p = product_of_group<grouped>(p, groups, g);
    const T* const x = at(p.x, 0, row, 0);
    KahanSum<Acc<T>> sums[2];
    for (int half = 0; half < rows_per_unit(p); ++half) {
        const T* const w = at(p.w, 0, unit + half * p.units, 0);
        for (int64_t first = 0; first < p.depth; first += kRun) {
            Acc<T> run = 0;
            for (int64_t k = first; k < smaller(first + kRun, p.depth); ++k)
                run += Acc<T>(x[k * p.x.col]) * Acc<T>(w[k * p.w.col]);
            sums[half] += run;
        }
    }
    epilogue_element(p, 0, row, unit, sums[0].value, sums[1].value);
}

// ---- tiles: a block has 32 x 32 elements of y of one group, and reads the rows of x and w for
// them once, 32 of k at a time, into shared memory. Each element read from global memory is used 32
// times, if the group has as many rows.
// Flaw: each thread reads two elements of shared memory for every product.

constexpr int kTile = 32;

template <Grouped grouped, class T>
__global__ void grouped_matmul_tiles(Product<T> p, GroupGrid<grouped> grid) {
    __shared__ T tile_x[kTile][kTile + 1], tile_w[kTile][kTile + 1];  // + 1: for columns' banks
    TilePlace place;
    if (!grid.find(blockIdx.x, p, place)) return;
    const int r = threadIdx.y, c = threadIdx.x;
    const auto rows = TileRows<kTile>::of(place.row, p.rows);
    const auto columns = TileRows<kTile>::of_w(p, place.column);  // swiglu: of both halves of z
    const auto element = [&](const Operand<T>& of, int64_t row, int64_t k) {
        return row >= 0 && k < p.depth ? *at(of, 0, row, k) : T(0.f);
    };
    KahanSum<Acc<T>> sum;
    for (int64_t k = 0; k < p.depth; k += kTile) {
        tile_x[r][c] = element(p.x, rows(r), k + c);
        tile_w[r][c] = element(p.w, columns(r), k + c);
        __syncthreads();
        for (int first = 0; first < kTile; first += kRun) {
            Acc<T> run = 0;
            for (int i = first; i < first + kRun; ++i)
                run += Acc<T>(tile_x[r][i]) * Acc<T>(tile_w[c][i]);
            sum += run;
        }
        __syncthreads();
    }
    __shared__ Acc<T> gates[kTile][kTile / 2];
    if (p.act == kSwiglu && c >= kTile / 2) gates[r][c - kTile / 2] = sum.value;
    __syncthreads();
    if (c < kTile / rows_per_unit(p) && rows(r) >= 0 && columns(c) >= 0) {
        const Acc<T> gate = p.act == kSwiglu ? gates[r][c] : Acc<T>(0);
        epilogue_element(p, 0, rows(r), columns(c), sum.value, gate);
    }
}

// ---- registers and mma: the kernels of matmul (matmul_registers.cuh, matmul_mma.cuh), in whose
// place of a grid of tiles stands a GroupGrid. wgmma: in grouped_matmul_wgmma.cuh

// ---- launchers

// rows: that are grouped. width: elements of y for each, or 0.
template <class T>
cudaError_t grouped_matmul_set_up(const int32_t* ends, int32_t* checked, int64_t count,
                                  int64_t rows, T* y, int64_t width, int64_t elements, T* z,
                                  int64_t wide, cudaStream_t stream) {
    set_up_groups<T><<<2 * multiprocessors(), kSetUpThreads, 0, stream>>>(
        ends, checked, count, rows, {y, width, elements}, {z, wide, z ? rows * wide : 0});
    return cudaGetLastError();
}

template <Grouped grouped, class T>
void launch_grouped(const Product<T>& p, const Groups& groups, int64_t version,
                    cudaStream_t stream) {
    using Grid = GroupGrid<grouped>;
    if constexpr (sizeof(T) == 2) {
        if (version >= GroupedVersion::kWgmma && launch_grouped_wgmma<grouped>(p, groups, stream))
            return;
    }
    if (version >= GroupedVersion::kMma && sizeof(T) != 4 && launch_mma<Grid>(p, stream, groups))
        return;
    if (version >= GroupedVersion::kRegisters) return launch_registers<Grid>(p, stream, groups);
    if (version == GroupedVersion::kTiles) {
        const Grid grid(p, kTile, kTile, groups);
        grouped_matmul_tiles<<<grid.tiles(), dim3(kTile, kTile), 0, stream>>>(p, grid);
    } else {
        const int64_t elements = p.rows * p.units * (grouped == Grouped::kRows ? 1 : groups.count);
        grouped_matmul_naive<grouped>
            <<<ceil_div<int64_t>(elements, 256), 256, 0, stream>>>(p, groups, elements);
    }
}

// groups: as set-up has checked them. p has elements.
template <class T>
cudaError_t grouped_matmul(const Product<T>& p, const Groups& groups, Grouped grouped,
                           int64_t version, cudaStream_t stream) {
    if (grouped == Grouped::kRows) {
        launch_grouped<Grouped::kRows>(p, groups, version, stream);
    } else {
        launch_grouped<Grouped::kDepth>(p, groups, version, stream);
    }
    return cudaGetLastError();
}

template <class T>
cudaError_t grouped_matmul_gradient_of_z(const T* g, const T* z, T* dz, int64_t rows, int64_t units,
                                         int64_t act, cudaStream_t stream) {
    return launch_gradient_of_z(g, z, dz, rows, units, Act(act), stream);
}

#define INSTANTIATE(T)                                                                  \
    template decltype(grouped_matmul_gradient_of_z<T>) grouped_matmul_gradient_of_z<T>; \
    template decltype(grouped_matmul_set_up<T>) grouped_matmul_set_up<T>;               \
    template decltype(grouped_matmul<T>) grouped_matmul<T>;
FOR_EACH_TYPE(INSTANTIATE)
