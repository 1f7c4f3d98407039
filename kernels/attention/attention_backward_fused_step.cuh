// One step of the fused backward pass by wgmma, which computes dq, dk and dv in one kernel with
// five products. Its kernels are attention_backward_fused_d64.cuh and
// attention_backward_fused_d128.cuh.
//
// As in backward_kv_wgmma the scores are k q^T, of 64 keys for each warpgroup. ds goes through
// shared memory to the other warpgroup, because dq needs the ds of all keys.
#pragma once

#include "attention_backward_dq_accum.cuh"

#if HAS_WGMMA

// The registers of a consumer warpgroup: the accumulators of dk and dv for its 64 keys, and for a
// step those of its part of dq, S::kOut columns wide, and the rest.
template <class S, int kCols>
struct StepRegisters {
    static constexpr int kBoxes = S::kRows / 64;
    float dk_accum[kCols / 2] = {}, dv_accum[kCols / 2] = {}, dq_accum[S::kOut / 2];
    float scores[kBoxes][32], dp[kBoxes][32];
    uint32_t p[kBoxes][16], ds[kBoxes][16];
};

// Its tiles in shared memory: its 64 keys, and the columns of k for its part of dq.
struct KeyTiles {
    const char *k, *v, *k_of_q;
};

// The buffer through which it hands its part of dq to the thread that adds it.
struct DqBuffer {
    float* to;
    Mbarrier &empty, &full;
    int phase;
};

template <int N>
using Floats = float[N];
template <int boxes, int N>
__device__ Floats<boxes * N>& all(float (&x)[boxes][N]) {
    return reinterpret_cast<Floats<boxes * N>&>(x);
}

// Computes a step of S::kRows rows, from `row` on, the second 64 of which may not exist. q, g and
// infos are in this pipeline stage. ds: [keys, rows], of all keys of the block, which begin at
// `key`; shift: a.keys - a.rows. On return dq is complete, and dk is still running.
template <class T, class S, int kCols, class Shared, class Call>
__device__ void multiply_step(StepRegisters<S, kCols>& regs, const KeyTiles& tiles, Shared& shared,
                              const PipelineState<S::kStages>& pipe, char* ds, const Call& a,
                              int64_t shift, float scale, int key, int row, int group) {
    constexpr int kRows = S::kRows, kBlock = S::kBlock, kBoxes = kRows / 64;
    char* const q = shared.w[pipe.stage][0];
    char* const g = q + S::kStepBytes;
    const RowInfo* const infos = shared.infos[pipe.stage];
    // Rows and keys past the end must contribute exactly 0 to dQ, so zero P there.
    bool some[kBoxes];
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
        const int first = row + box * 64;
        some[box] = (kBoxes > 1 && first >= a.rows) || key < a.first_key(first + 63) ||
                    key + 64 > a.end_key(first);
    }
    const auto clear_some = [&](float (&x)[32], int box) {
        clear_hidden(
            x, some[box], a, shift, key, row + box * 64, a.keys, kBoxes > 1 ? a.rows : kNoEnd);
    };
    shared.w_full[pipe.stage].wait(pipe.phase);
    if constexpr (Call::kPacked) {
        clear_tail<kRows, kCols, S::kConsumers>(q, a.rows - row);
        clear_tail<kRows, kCols, S::kConsumers>(g, a.rows - row);
    }
    wgmma_fence();
    start_rows<T, kCols, kBlock>(all(regs.scores), tiles.k, q);
    wgmma_fence();
    start_rows<T, kCols, kBlock>(all(regs.dp), tiles.v, g);
    wgmma_wait<1>();  // the scores are complete
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {
        compute_p(regs.scores[box], regs.scores[box], scale, infos + box * 64);
        clear_some(regs.scores[box], box);
    }
    wgmma_wait<0>();  // dp is complete
#pragma unroll
    for (int box = 0; box < kBoxes; ++box) {  // dv runs while ds is computed
        as_factor<T>(regs.p[box], regs.scores[box]);
        wgmma_fence();
        start_columns<T, 64>(regs.dv_accum, regs.p[box], g + box * box_bytes(64));
        compute_ds(regs.dp[box], regs.scores[box], infos + box * 64);
        clear_some(regs.dp[box], box);
        as_factor<T>(regs.ds[box], regs.dp[box]);
        accum_to_shared<T, kBlock>(
            ds + box * box_bytes(kBlock) + group * box_bytes(64), regs.dp[box]);
    }
    tma_writes_done();
    consumers_barrier();
    wgmma_fence();
#pragma unroll
    for (int r = 0; r < kBlock; r += 16)
        wgmma<T, true, true>(regs.dq_accum, wgmma_descriptor(ds + group * S::kDsOfGroup) + r * 8,
                             wgmma_descriptor(tiles.k_of_q) + r * 8, r > 0);
    wgmma_commit();
#pragma unroll
    for (int box = 0; box < kBoxes; ++box)
        start_columns<T, 64>(regs.dk_accum, regs.ds[box], q + box * box_bytes(64));
    wgmma_wait<kBoxes>();
}

template <int N>
__device__ void store_dq(const DqBuffer& place, const float (&dq_accum)[N]) {
    place.empty.wait(place.phase ^ 1);
    store_accum(place.to, dq_accum);
    tma_writes_done();
    __syncwarp();
    if (threadIdx.x % kWarp == 0) place.full.arrive();
}

// Runs a whole step: the products, the hand-over of dq, and the release of q and g.
template <class T, class S, int kCols, class Shared, class Call>
__device__ void run_step(StepRegisters<S, kCols>& regs, const KeyTiles& tiles, Shared& shared,
                         PipelineState<S::kStages>& pipe, int& ds_stage, const DqBuffer& dq,
                         const Call& a, int64_t shift, float scale, int key, int row, int group) {
    multiply_step<T>(
        regs, tiles, shared, pipe, shared.ds[ds_stage], a, shift, scale, key, row, group);
    store_dq(dq, regs.dq_accum);
    wgmma_wait<0>();
    if (threadIdx.x % kWarpgroup == 0) shared.w_empty[pipe.stage].arrive();
    pipe.next();
    ds_stage ^= 1;
}

// Calls step(row) for each step of a block. It is one loop because with two, ptxas computes the
// mask limits before the inner one, even where no mask is needed.
template <int kRows, class Call, class F>
__device__ void for_each_row_of_steps(const Call& a, Steps steps, F step) {
    StepRows<kRows> rows(a, steps);
    for (int n = 0; n < rows.count; ++n, rows.next(steps)) step(rows.row);
}

#endif
