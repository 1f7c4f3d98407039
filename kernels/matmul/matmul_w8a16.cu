// matmul_w8a16: y = x (w * w_scale)^T + bias, with weights of one byte and all else of 16 bits
//
//   x [rows, depth] T     w [units, depth] int8     bias [units] T, or none     y [rows, units] T
//   w_scale [units, 1] float, or [units, blocks], where blocks = ceil(depth / 128)
//
// Traffic, the least a kernel can move: w, one byte for each element, and x and y. Of few rows that
// is the time it takes: half of what weights of 16 bits take. Of many rows it is that of
// 2 * rows * units * depth operations of tensor cores, in T: an int8 is exact in float16 and in
// bfloat16.

#include "matmul_align_rows.cuh"
#include "matmul_few_rows_mma.cuh"
#include "matmul_mma.cuh"
#include "matmul_w8a16_wgmma.cuh"

// ---- naive: one thread for each element of y, which reads a row of x and a row of w.
// Flaw: one operation for each element read.

template <class T>
__global__ void matmul_w8a16_naive(Int8Product<T> p) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= p.rows * p.units) return;
    const int64_t row = i / p.units, unit = i % p.units;
    const T* const x = at(p.x, 0, row, 0);
    const int8_t* const w = at(p.w, 0, unit, 0);
    KahanSum<float> total;
    for (int64_t first = 0; first < p.depth; first += kScaleBlock) {
        float sum = 0;
        for (int64_t k = first; k < smaller(first + kScaleBlock, p.depth); ++k)
            sum += float(x[k]) * float(w[k]);
        total += sum * block_scale(p, unit, first);
    }
    epilogue_element(p, 0, row, unit, total.value);
}

// ---- mma: the tiles of the same version of matmul. A stage has 128 of k: two tiles of x, and one
// of w in bytes; threads convert bytes to fragments of w.
// Flaw: that takes more instructions than
// ldmatrix, once for each 64 rows of x; and with few rows most of a tile is empty, and few blocks
// read w.

constexpr int kByteStages = 2;  // 96 KiB of them
using ByteTile = MmaTile<int8_t>;
constexpr int kByteStage = 3 * ByteTile::kBytes;  // bytes
constexpr int kByteShared = kByteStages * kByteStage + kTileAlign;

// Two neighbours of a row of w, as T.
template <class T>
__device__ uint32_t pair_at(const char* tile, int row, int k) {
    const auto two = *reinterpret_cast<const uint16_t*>(tile + swizzled(row, k));
    return rounded_pair<T>(float(int8_t(two & 0xff)), float(int8_t(two >> 8)));
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

// Accumulates a warp's products over all k of a stage.
template <class T>
__device__ void multiply_stage(float (&accum)[4][4][4], const char* stage, const WarpPlace& place) {
    const int lane = place.lane;
    const char* const tile_w = stage + 2 * ByteTile::kBytes;
#pragma unroll
    for (int k = 0; k < kScaleBlock; k += 16) {
        uint32_t a[4][4], b[4][2];
        const char* const tile_x = stage + k / 64 * ByteTile::kBytes;
        for (int m = 0; m < 4; ++m)
            load_matrices<T, true>(a[m], tile_x, place.down + m * 16, 8, false, k % 64 * 2);
        for (int n = 0; n < 4; ++n) {
            const int r = place.right + n * 32 + lane / 4, of_k = k + lane % 4 * 2;
            b[n][0] = pair_at<T>(tile_w, r, of_k);
            b[n][1] = pair_at<T>(tile_w, r, of_k + 8);
        }
        for (int m = 0; m < 4; ++m)
            for (int n = 0; n < 4; ++n) mma<T>(accum[m][n], a[m], b[n]);
    }
}

#endif

template <class T, bool by_block>
__global__ void
    __launch_bounds__(ByteTile::kThreads) matmul_w8a16_mma(Int8Product<T> p, TileGrid grid) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
    using Tile = ByteTile;
    extern __shared__ char memory[];
    char* const stages = &tile_aligned<char>(memory);
    const TilePlace place = grid.place(blockIdx.x);
    const auto rows = TileRows<Tile::kSide>::of(place.row, p.rows);
    const auto columns = TileRows<Tile::kSide>::of(place.column, p.units);
    const TileCopy<T, true> copy_x(p.x, 0, rows);
    const TileCopy<int8_t, true> copy_w(p.w, 0, columns);
    const int steps = int(ceil_div<int64_t>(p.depth, kScaleBlock));
    const auto fetch = [&](int step) {
        char* const stage = stages + step % kByteStages * kByteStage;
        if (step < steps) {
            copy_x(stage, 2 * step, p.depth);
            copy_x(stage + Tile::kBytes, 2 * step + 1, p.depth);
            copy_w(stage + 2 * Tile::kBytes, step, p.depth);
        }
        cp_async_commit();
    };

    const WarpPlace warp = WarpPlace::of_thread();
    float final_accum[4][4][4] = {};
    fetch(0);
    for (int step = 0; step < steps; ++step) {
        fetch(step + 1);
        cp_async_wait<1>();
        __syncthreads();  // this stage is full
        const char* const stage = stages + step % kByteStages * kByteStage;
        if constexpr (by_block) {
            float accum[4][4][4] = {};
            multiply_stage<T>(accum, stage, warp);
            for (int i = 0; i < 16; ++i) {
                if (i / 2 % 2 == 1) continue;  // which has the column of i - 2
                const int64_t unit = place.column * Tile::kSide + warp.column(i);
                const float scale = block_scale(p, unit, step * kScaleBlock);
                for (int m = 0; m < 4; ++m)
                    for (int n = i; n <= i + 2; n += 2)
                        final_accum[m][n / 4][n % 4] += accum[m][n / 4][n % 4] * scale;
            }
        } else {
            multiply_stage<T>(final_accum, stage, warp);
        }
        __syncthreads();  // the stage is free
    }

#pragma unroll 1
    for (int m = 0; m < 4; ++m) {
        float each[16];
        select_chunk(reinterpret_cast<float (&)[4][16]>(final_accum), m, each);
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            const int64_t row = rows(warp.row(m, i)), unit = columns(warp.column(i));
            if (row >= 0 && unit >= 0) epilogue_element(p, 0, row, unit, each[i]);
        }
    }
#endif
}

// ---- many rows, and fewer whose tiles of bytes do not fill the multiprocessors: the weights are
// converted to 16-bit floats, with their scales, and matmul multiplies those. That moves each
// weight three times more, as bytes and twice as floats, but converts it once instead of once for
// each 64 rows of x.
// Flaw: it needs memory for the converted weights and rounds each of them.

// Rows of `wide` are `stride` apart, a multiple of 16, so that matmul reads them in vectors
// whatever their width. A block has several rows, if they are narrow, and a thread 16 neighbours of
// each, which have one scale.
constexpr int kWidened = kVecBytes;

template <class T>
__global__ void matmul_w8a16_widen(Int8Product<T> p, T* wide, int64_t stride) {
    launch_dependents();
    const int64_t k = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) * kWidened;
    if (k >= stride) return;
    const int64_t down = int64_t(gridDim.y) * blockDim.y;
    for (int64_t unit = int64_t(blockIdx.y) * blockDim.y + threadIdx.y; unit < p.units;
         unit += down) {
        const float scale = scale_at(p.w_scale, unit, p.by_block ? k / kScaleBlock : 0);
        const auto* const w = reinterpret_cast<const uint8_t*>(p.w.data + unit * p.w.row + k);
        const Vec<uint32_t, 4> words = load_bytes(w, k, p.depth - k);
        Vec<int8_t, kWidened> bytes;
        memcpy(bytes.at, words.at, sizeof(words));
        T each[kWidened];
#pragma unroll
        for (int i = 0; i < kWidened; ++i) each[i] = T(float(bytes[i]) * scale);
        store(wide + unit * stride + k, each);
    }
}

// ---- launchers. Where a version does not fit this GPU or the layout of x and w, the one before it
// runs.

template <class T, bool by_block>
bool launch_w8a16_mma(const Int8Product<T>& p, cudaStream_t stream) {
    cudaFuncAttributes compiled = {};
    if (cudaFuncGetAttributes(&compiled, matmul_w8a16_mma<T, by_block>) != cudaSuccess ||
        compiled.ptxVersion < 80 || kByteShared > shared_bytes())
        return false;
    cudaFuncSetAttribute(
        matmul_w8a16_mma<T, by_block>, cudaFuncAttributeMaxDynamicSharedMemorySize, kByteShared);
    const TileGrid grid(1, p.rows, p.units, ByteTile::kSide, ByteTile::kSide);
    matmul_w8a16_mma<T, by_block>
        <<<grid.tiles(), ByteTile::kThreads, kByteShared, stream>>>(p, grid);
    return true;
}

// Launches the version asked for, or an earlier one that can; false if only the naive one can.
template <class T, bool by_block>
bool by_tensor_cores(const Int8Product<T>& p, int64_t version, cudaStream_t stream) {
    if (!reads_in_vectors(p.x) || !reads_in_vectors(p.w)) return false;
    if (version >= Int8Version::kFewRows && launch_few_rows_mma<T, int8_t, by_block>(p, 1, stream))
        return true;
    if (version >= Int8Version::kWgmma && launch_few_rows_int8<T, by_block>(p, stream)) return true;
    return version >= Int8Version::kMma && launch_w8a16_mma<T, by_block>(p, stream);
}

template <class T>
cudaError_t matmul_w8a16(const Int8Product<T>& p, int64_t version, cudaStream_t stream) {
    if (p.rows * p.units == 0) return cudaSuccess;
    const bool done = p.by_block ? by_tensor_cores<T, true>(p, version, stream)
                                 : by_tensor_cores<T, false>(p, version, stream);
    if (!done) matmul_w8a16_naive<<<ceil_div<int64_t>(p.rows * p.units, 256), 256, 0, stream>>>(p);
    return cudaGetLastError();
}

// Whether the best version multiplies bytes instead of converting them first. Assumes rows that
// begin on multiples of 16 bytes, or are copied so.
template <class T>
bool multiplies_bytes(const Int8Product<T>& p) {
    if (p.rows <= kMostFewRows) return true;
    return (p.by_block ? plan_of<T, true>(p) : plan_of<T, false>(p)) != kConvertFirst;
}

// wide: [units, depth], with rows `stride` apart
template <class T>
cudaError_t matmul_w8a16_widened(const Int8Product<T>& p, T* wide, int64_t stride,
                                 cudaStream_t stream) {
    const VectorsOfRows launch(stride / kWidened, p.units);
    matmul_w8a16_widen<<<launch.grid, launch.block, 0, stream>>>(p, wide, stride);
    return cudaGetLastError();
}

cudaError_t matmul_w8a16_align_rows(const RowsToAlign& of, cudaStream_t stream) {
    return launch_align_rows(of, stream);
}

#define INSTANTIATE(T)                                          \
    template decltype(matmul_w8a16<T>) matmul_w8a16<T>;         \
    template decltype(multiplies_bytes<T>) multiplies_bytes<T>; \
    template decltype(matmul_w8a16_widened<T>) matmul_w8a16_widened<T>;
INSTANTIATE(Half)
INSTANTIATE(BFloat16)
