// matmul_fp8 for few rows of x: the kernel of matmul_few_rows.cuh.
#pragma once

#include "matmul_few_rows_consumer.cuh"
#include "matmul_fp8_wgmma.cuh"

// ---- few rows: w takes the M dimension of the instruction and x the N dimension, as in matmul, so
// that a tile of 64 rows of w has hardly an empty row of x, and split-K lets all multiprocessors
// read w. A stage has 128 of k. As in the tiles for many rows, its accumulators are multiplied by
// their scales, where those differ along k, and promoted to float sums.
// Flaw: each tile reads all of x, which with more rows is more than w.

// The names that matmul_few_rows.cuh asks for.
template <class T>
__host__ __device__ int rows_per_unit(const Float8Product<T>&) {
    return 1;
}
template <class T>
__device__ bool is_linear(const Float8Product<T>&) {
    return true;
}
template <class T>
__device__ void epilogue_element(const Float8Product<T>& p, int64_t, int64_t row, int64_t unit,
                                 float total, float) {
    epilogue_element(p, row, unit, total);
}

template <int rows, int units>
struct Float8FewRowsStage {
    static constexpr int kBoxesOfX = 1;
    Float8 w[units * kScaleBlock], x[rows * kScaleBlock];

#if HAS_WGMMA
    template <class P, class Load>
    __device__ static void fetch_w(const P&, int tile, int step, Load load) {
        load(0, step * kScaleBlock, tile * units);
    }
    __device__ void fetch_x(const Maps& maps, int step, const FewRowsTile& tile, Mbarrier& full) {
        tma_load(x, maps.x, step * kScaleBlock, tile.row, tile.matrix, full);
    }
#endif
};

// Numbers of the rows of x, a few in each lane of a warp: that of row r is in lane r % 32.
template <int rows>
struct RowsOfLanes {
    static constexpr int kEach = rows <= kWarp ? 1 : rows / kWarp;
    float each[kEach];

    __device__ static int row(int n) { return n * kWarp + int(threadIdx.x % kWarp); }
    // chunk: of eight rows, the same in all lanes. i: of the two that a lane has accumulators of.
    __device__ float of_chunk(int chunk, int i) const {
        const int lane = chunk * 8 % kWarp + int(threadIdx.x % 4) * 2 + i;
        return __shfl_sync(0xffffffff, kEach > 1 && chunk >= 4 ? each[kEach - 1] : each[0], lane);
    }
};

// Where scales differ along k, two resident blocks hide the latency of each other's additions;
// otherwise one has all of the shared memory for stages.
template <class T, int rows, bool by_block, bool fast>
struct FewRowsFloat8 : FewRowsTransposed<rows> {
    static_assert(rows <= 2 * kWarp && !(by_block && fast));
    static constexpr int kUnits = FewRowsTransposed<rows>::kUnits;
    static constexpr int kDepth = kScaleBlock, kBlocksPerSm = by_block ? 2 : 1;
    static constexpr int kPending = fast ? 1 : 0;
    using Stage = Float8FewRowsStage<rows, kUnits>;
    // As many stages as fit into the shared memory beside the exchanged accumulators.
    static constexpr int kPartialBytes = (rows <= 32 ? 4 : rows / 8) * 2048;
    static constexpr int kStages =
        ((kBlocksPerSm == 1 ? 230000 : 114000) - kPartialBytes) / sizeof(Stage);

    int tile;
    // Scales and bias of the thread's two rows of w, for the epilogue, and scales of x: of all k,
    // or of the next step, times those of w.
    float scales[2], biases[2];
    RowsOfLanes<rows> of_x;
    bool begun = false;

    __device__ explicit FewRowsFloat8(int tile) : tile(tile) {}

#if HAS_WGMMA
    __device__ void fetch_scales(const Float8Product<T>& p, int step) {
        const float of_w = by_block ? scale_at(p.w_scale, tile * kUnits, step) : 1;
        for (int n = 0; n < RowsOfLanes<rows>::kEach; ++n) {
            const int64_t row = smaller<int64_t>(RowsOfLanes<rows>::row(n), p.rows - 1);
            of_x.each[n] = scale_at(p.x_scale, row, step) * of_w;
        }
    }
    __device__ void begin(const Float8Product<T>& p) {
        for (int i = 0; i < 2; ++i) {
            const int64_t unit = this->first_unit(p, tile) + threadIdx.x % kWarp / 4 + i * 8;
            const int64_t there = smaller(unit, p.units - 1);
            scales[i] = by_block ? 1.f : scale_at(p.w_scale, there, 0);
            biases[i] = p.bias ? float(p.bias[there]) : 0.f;
        }
        if constexpr (!by_block) fetch_scales(p, 0);
    }

    __device__ void multiply(const Stage& stage, const Float8Product<T>& p, int step) {
        auto& final_accum = this->accum[0];
        if constexpr (fast) {
            multiply_stage(this->accum, stage.w, stage.x, true);
        } else {
            float accum[1][rows / 2];
            multiply_stage(accum, stage.w, stage.x);
            if constexpr (by_block) {
                if (!begun) fetch_scales(p, step);
                begun = true;
                const RowsOfLanes<rows> these = of_x;
                fetch_scales(p, smaller<int64_t>(step + 1, (p.depth - 1) / kScaleBlock));
                wgmma_wait<0>();
#pragma unroll
                for (int c = 0; c < rows / 8; ++c) {
                    const float by[] = {these.of_chunk(c, 0), these.of_chunk(c, 1)};
#pragma unroll
                    for (int i = 0; i < 4; ++i)
                        final_accum[4 * c + i] += accum[0][4 * c + i] * by[i % 2];
                }
            } else {
                wgmma_wait<0>();
#pragma unroll
                for (int i = 0; i < rows / 2; ++i) final_accum[i] += accum[0][i];
            }
        }
    }

    // Transposes 8 x 8 elements at a time within a warp, so that a thread has two neighbours of a
    // row.
    __device__ void epilogue_linear(const Float8Product<T>& p, const FewRowsTile& place, int c,
                                    const Vec<float, 4>& accum) const {
        const int lane = threadIdx.x % kWarp, row = place.row + c * 8 + lane / 4;
        const int unit = this->first_unit(p, tile) + lane % 4 * 2;
        float of_row[] = {1, 1};
        if constexpr (!by_block) {
            for (int i = 0; i < 2; ++i) of_row[i] = of_x.of_chunk(c, i);
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const auto y = [&](int n) {
                const float scaled =
                    by_block ? accum[2 * i + n] : accum[2 * i + n] * of_row[n] * scales[i];
                return p.bias ? scaled + biases[i] : scaled;
            };
            store_pair(p, place, row, unit + i * 8, transposed_8x8(rounded_pair<T>(y(0), y(1))));
        }
    }
#endif
};

template <class Consumer, class T>
bool launch_fp8_few_rows(const Float8Product<T>& p, cudaStream_t stream) {
    const int64_t most = 0x7fffffff;  // TMA has 32-bit coordinates
    if (p.rows > Consumer::kRows || p.units > most || p.depth == 0 || p.depth > most) return false;
    if (!can_few_rows<Consumer, Float8Product<T>>()) return false;
    if (!reads_in_vectors(p.x) || !reads_in_vectors(p.w)) return false;
    Maps maps;
    if (!make_tensor_map(maps.x, p.x.data, 1, p.rows, p.depth, 0, p.x.row, int(p.rows)) ||
        !make_tensor_map(maps.w, p.w.data, 1, p.units, p.depth, 0, p.w.row, Consumer::kUnits))
        return false;
    return launch_few_rows<Consumer>(p, maps, 1, p.units, stream);
}
template <bool by_block, bool fast, class T>
bool launch_fp8_few_rows(const Float8Product<T>& p, cudaStream_t stream) {
    if (p.rows <= 16) return launch_fp8_few_rows<FewRowsFloat8<T, 16, by_block, fast>>(p, stream);
    if (p.rows <= 32) return launch_fp8_few_rows<FewRowsFloat8<T, 32, by_block, fast>>(p, stream);
    return launch_fp8_few_rows<FewRowsFloat8<T, 64, by_block, fast>>(p, stream);
}

// False if there are more rows, or this GPU or the layout of x and w does not allow it.
template <class T>
bool launch_fp8_few_rows(const Float8Product<T>& p, cudaStream_t stream) {
    if (!is_for_few_float8_rows(p.rows, p.units, p.fast, multiprocessors())) return false;
    if (p.fast) return launch_fp8_few_rows<false, true>(p, stream);
    return p.by_block ? launch_fp8_few_rows<true, false>(p, stream)
                      : launch_fp8_few_rows<false, false>(p, stream);
}
