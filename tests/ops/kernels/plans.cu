// The plans of launches, for shapes that nobody allocates.
#include "attention_backward_pipeline.cuh"
#include "column_sums.cuh"
#include "launches.cuh"

// The blocks that share a tile of keys, on a GPU of so many multiprocessors.
template <int kKeys, int kRows, int kCols>
int splits_of(int64_t batches, int64_t heads, int64_t rows, int64_t kv_heads, int64_t keys,
              bool causal, int processors) {
    Attention a = {};
    a.batches = a.kv_batches = batches, a.heads = heads, a.kv_heads = kv_heads;
    a.rows = rows, a.keys = keys, a.cols = kCols;
    a.left = a.limit(-1), a.right = a.limit(causal ? 0 : -1);
    return kv_splits<kKeys, kRows, kCols>(a, processors);
}

extern "C" int attention_splits(int64_t batches, int64_t heads, int64_t rows, int64_t kv_heads,
                                int64_t keys, int cols, int causal, int processors) {
    const auto of = cols <= 64    ? splits_of<128, 128, 64>
                    : cols <= 128 ? splits_of<128, 64, 128>
                                  : splits_of<64, 64, 256>;
    return of(batches, heads, rows, kv_heads, keys, causal, processors);
}

// Threads of a row, rows of a block, and blocks.
extern "C" void any_width(int64_t rows, int64_t cols, int64_t* plan) {
    const RowLaunch launch = any_width_launch(rows, cols);
    plan[0] = launch.block.x, plan[1] = launch.block.y, plan[2] = launch.grid.x;
}

// Columns and slices of a block.
extern "C" void column_sums_plan(int64_t count, int64_t cols, int64_t* plan) {
    const dim3 block = column_sums_block(count, cols);
    plan[0] = block.x, plan[1] = block.y;
}
