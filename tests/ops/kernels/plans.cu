// The plans of launches, for shapes that nobody allocates.
#include "attention_backward_dkdv_d256.cuh"
#include "attention_backward_fused_d128.cuh"
#include "column_sums.cuh"
#include "launches.cuh"
#include "matmul_fp8.h"
#include "matmul_w8a16_plan.h"
#include "norms_wide.cuh"

// Calls f(attention, keys of a tile, rows of a step, columns, mixes) as the kernels for so many
// columns plan.
template <class F>
void with_backward(int64_t batches, int64_t heads, int64_t rows, int64_t kv_heads, int64_t keys,
                   int cols, bool causal, F f) {
    Attention a = {};
    a.batches = a.kv_batches = batches, a.heads = heads, a.kv_heads = kv_heads;
    a.rows = rows, a.keys = keys, a.cols = cols;
    a.left = a.limit(-1), a.right = a.limit(causal ? 0 : -1);
    const auto plan = [&](auto kernel, auto mixes) {
        using S = decltype(kernel);
        f(a, std::integral_constant<int, S::kBlock>(), std::integral_constant<int, S::kRows>(),
          mixes);
    };
    if (cols <= 64) return plan(FusedBackwardD64<64>(), std::true_type());
    if (cols <= 128) return plan(FusedBackwardD128<128>(), std::true_type());
    plan(DkDvBackwardD256<256>(), std::false_type());
}

// Slices of k and v whose tiles have a block each, and the blocks that share a tile of the others,
// on a GPU of so many multiprocessors.
extern "C" void attention_split(int64_t batches, int64_t heads, int64_t rows, int64_t kv_heads,
                                int64_t keys, int cols, int causal, int processors, int64_t* plan) {
    with_backward(
        batches, heads, rows, kv_heads, keys, cols, causal,
        [&](const Attention& a, auto of_keys, auto of_rows, auto mixes) {
            const KvSplit kv =
                cols <= 64 ? kv_split<of_keys.value, of_rows.value, 64, mixes.value>(a, processors)
                : cols <= 128
                    ? kv_split<of_keys.value, of_rows.value, 128, mixes.value>(a, processors)
                    : kv_split<of_keys.value, of_rows.value, 256, mixes.value>(a, processors);
            plan[0] = kv.whole, plan[1] = kv.splits;
        });
}

// For each block, in the order in which they are drawn: its tile of keys, and which of the blocks
// with such a tile it is. Returns how many there are; `order` has room for `room` of them.
extern "C" int attention_order(int64_t batches, int64_t heads, int64_t rows, int64_t kv_heads,
                               int64_t keys, int cols, int causal, int processors, int64_t whole,
                               int64_t splits, int64_t room, int64_t* order) {
    int count = 0;
    with_backward(batches, heads, rows, kv_heads, keys, cols, causal,
                  [&](const Attention& a, auto of_keys, auto, auto) {
                      const auto scheduler = key_scheduler(a, int(a.key_tiles(of_keys.value)),
                                                           {int(whole), int(splits)}, processors);
                      count = scheduler.count();
                      for (int i = 0; i < count && i < room; ++i)
                          scheduler.find(i, order[2 * i], order[2 * i + 1]);
                  });
    return count;
}

// Threads of a row, rows of a block, and blocks.
extern "C" void any_width(int64_t rows, int64_t cols, int64_t* plan) {
    const RowLaunch launch = any_width_launch(rows, cols);
    plan[0] = launch.block.x, plan[1] = launch.block.y, plan[2] = launch.grid.x;
}

// Vectors of a thread, of rows that need so many, and threads of a row; at most 8 and 512.
extern "C" void few_rows(int64_t rows, int64_t needed, int processors, int64_t* plan) {
    plan[0] = vectors_of_thread(rows, needed, 8, 512, processors);
    plan[1] = ceil_div(needed, plan[0]);
}

// Columns and slices of a block.
extern "C" void column_sums_plan(int64_t count, int64_t cols, int64_t* plan) {
    const dim3 block = column_sums_block(count, cols);
    plan[0] = block.x, plan[1] = block.y;
}

// Columns and slices of a block, and rows of partial sums that all blocks leave.
extern "C" void slices_plan(int64_t rows, int64_t cols, int64_t* plan) {
    const Slices slices(rows, cols);
    plan[0] = slices.block.x, plan[1] = slices.block.y, plan[2] = slices.count();
}

// Whether products of float8 have few enough rows.
extern "C" int few_float8_rows(int64_t rows, int64_t units, int fast, int processors) {
    return is_for_few_float8_rows(rows, units, fast, processors);
}

// The units, rows, row tiles and splits of a product of 65 to 1024 rows; no units: it has no plan.
extern "C" void few_rows_plan_of(int64_t batch, int64_t rows, int64_t wide, int64_t depth,
                                 int64_t processors, int64_t* plan) {
    const FewRowsPlan best = few_rows_plan(batch, rows, wide, depth, processors);
    plan[0] = best.units, plan[1] = best.rows, plan[2] = best.cut.row_tiles,
    plan[3] = best.cut.splits;
}

// How a product with weights of int8 is computed (matmul_w8a16_plan.h), on so many multiprocessors.
extern "C" int int8_plan_of(int64_t rows, int64_t units, int64_t depth, int by_block,
                            int processors) {
    return int8_plan(rows, units, depth, by_block, processors);
}

// How many rows a block has, of at most so many.
extern "C" int rows_of_block(int64_t rows, int most, int processors) {
    return rows_of_a_block(rows, most, processors);
}
