// The backward pass of attention by wgmma with five products, up to 64 columns. As above them
// (attention_backward_ordered.cuh) a block has a tile of keys, and adds to sums of dq. But a step
// has 128 rows, so that each warpgroup has all columns of dq for half of them: products with fewer
// columns read more than shared memory can give. And a block stays, and takes ticket after ticket:
// while a tile ends, k and v of the next one are on their way, and its first rows.
#pragma once

#include "attention_backward_five.cuh"

template <int kCols>
struct NarrowBackward {
    static constexpr int kConsumers = 2, kThreads = kWarpgroup * (kConsumers + 1);
    static constexpr int kRegisters = 240, kLeft = 24;
    static constexpr int kBlock = 64 * kConsumers;  // keys of a tile
    static constexpr int kRows = 128;               // of a step
    static constexpr int kTiles = 2, kStages = 2;   // of k and v, and of q and g
    // A warpgroup has half of a step's rows of dq, and all columns. kDsOfGroup: from ds of one such
    // half to the other's.
    static constexpr int kOut = kCols, kDsOfGroup = box_bytes(kBlock);
    static constexpr bool kStays = true;
    static constexpr int kOfBlock = tile_bytes(kBlock, kCols), kOfStep = tile_bytes(kRows, kCols);
    struct Shared {
        char x[kTiles][2][kOfBlock];            // k and v, in the end their gradients
        char w[kStages][2][kOfStep];            // q and g
        char ds[2][tile_bytes(kBlock, kRows)];  // [keys, rows]: one is read, the next is written
        float dq[kConsumers][DqSums::kNumbers];
        RowInfo infos[kStages][kRows];
        int tickets[2];
        Mbarrier ticket_full[2], ticket_empty[2];
        Mbarrier x_full[kTiles], x_empty[kTiles], w_full[kStages], w_empty[kStages];
        Mbarrier dq_full[kConsumers], dq_empty[kConsumers];
        __device__ void init() {
            for (int i = 0; i < 2; ++i) {  // read by those that multiply and those that add
                ticket_full[i].init(), ticket_empty[i].init(2 * kConsumers);
            }
            for (int i = 0; i < kTiles; ++i) x_full[i].init(), x_empty[i].init(kConsumers);
            for (int i = 0; i < kStages; ++i) w_full[i].init(), w_empty[i].init(kConsumers);
            for (int part = 0; part < kConsumers; ++part)
                dq_full[part].init(kWarpgroup / kWarp), dq_empty[part].init();
        }
    };
    // It begins where a tile may, for the kernel has no static shared memory before it: there is no
    // room for moving it.
    static constexpr int kBytes = sizeof(Shared);
};

#if HAS_WGMMA

// One thread takes tickets, tells them to the others, and asks for each tile's k and v, and for q
// and g of each step.
template <int kCols, class Shared, class Call>
__device__ void fetch_tiles(Shared& shared, const BackwardMaps& maps, const Call& whole,
                            const TicketOrder& order, const RowInfo* infos, int* tickets) {
    using S = NarrowBackward<kCols>;
    PipelineState<2> told;
    PipelineState<S::kTiles> tiles;
    PipelineState<S::kStages> pipe;
    while (true) {
        const int ticket = atomicAdd(tickets, 1);
        shared.ticket_empty[told.stage].wait(told.phase ^ 1);
        shared.tickets[told.stage] = ticket;
        shared.ticket_full[told.stage].arrive();
        told.next();
        if (ticket >= order.count()) return;
        const auto fetch = [&](const auto& a, int64_t slice, int key, Steps steps) {
            const int i = tiles.stage;
            shared.x_empty[i].wait(tiles.phase ^ 1);
            shared.x_full[i].arrive_expect_tx(2 * S::kOfBlock);
            load_both<S::kBlock, kCols>(shared.x[i][0], maps.k, maps.v, a.key_coordinate(key),
                                        slice % a.kv_heads, slice / a.kv_heads, shared.x_full[i]);
            tiles.next();
            for_each_step<S::kRows>(a, slice, steps, [&](const Place& place) {
                load_step<S::kRows, kCols>(shared, pipe, maps, infos, a, place);
            });
        };
        with_tile_of_keys<S::kBlock, S::kRows>(whole, order, ticket, fetch);
    }
}

// Two others add what each step has for dq, each of 64 rows.
template <int kCols, class Shared, class Call>
__device__ void add_tiles(Shared& shared, int part, const Call& whole, const TicketOrder& order,
                          const DqSums& to) {
    using S = NarrowBackward<kCols>;
    PipelineState<2> told;
    PipelineState<1> pipe;
    while (true) {
        shared.ticket_full[told.stage].wait(told.phase);
        const int ticket = shared.tickets[told.stage];
        shared.ticket_empty[told.stage].arrive();
        told.next();
        if (ticket >= order.count()) return;
        const auto add = [&](const auto& a, int64_t slice, int key, Steps steps) {
            for_each_step<S::kRows>(a, slice, steps, [&](const Place& place) {
                const int64_t at = info_at(a, place) / 64 + part;
                const int turn = key / S::kBlock - int(a.first_key(place.row)) / S::kBlock;
                shared.dq_full[part].wait(pipe.phase);
                if (place.row + part * 64 < a.rows) add_in_turn(to, at, turn, shared.dq[part]);
                shared.dq_empty[part].arrive();
                pipe.next();
            });
        };
        with_tile_of_keys<S::kBlock, S::kRows>(whole, order, ticket, add);
    }
}

#endif

template <class T, int kCols, class Call>
__global__ WGMMA_KERNEL(NarrowBackward<kCols>::kThreads) void backward_narrow(
    const __grid_constant__ BackwardMaps maps, const __grid_constant__ Call whole,
    TicketOrder order, const RowInfo* infos, DqSums to, T* dk, T* dv) {
#if HAS_WGMMA
    using S = NarrowBackward<kCols>;
    constexpr int kRows = S::kRows;
    extern __shared__ char memory[];
    auto& shared = begin_block<typename S::Shared>(memory);
    const int group = warpgroup_number();
    if (group == S::kConsumers) {
        warpgroup_reg_dealloc<S::kLeft>();
        const int part = threadIdx.x % kWarpgroup / kWarp - 1;
        if (threadIdx.x % kWarp != 0 || part >= S::kConsumers) return;
        if (part < 0) {
            fetch_tiles<kCols>(shared, maps, whole, order, infos, to.tickets);
        } else {
            add_tiles<kCols>(shared, part, whole, order, to);
        }
        return;
    }

    warpgroup_reg_alloc<S::kRegisters>();
    const bool is_first = threadIdx.x % kWarpgroup == 0;
    const float scale = float(whole.scale) * kLog2E;
    PipelineState<2> told;
    PipelineState<S::kTiles> tiles;
    PipelineState<S::kStages> pipe;
    PipelineState<1> dq_ring;
    int ds_stage = 0;
    const auto multiply = [&](const auto& a, int64_t slice, int key, Steps steps) {
        char* const x = shared.x[tiles.stage][0];
        const int64_t shift = a.keys - a.rows;
        const int top = key + group * 64;
        char* const k_tile = x + group * box_bytes(64);
        char* const v_tile = k_tile + S::kOfBlock;
        GroupNumbers<S, kCols> its;
        const auto step = [&](int row) {
            const DqPlace dq = {
                shared.dq[group], shared.dq_empty[group], shared.dq_full[group], dq_ring.phase};
            take_step<T>(its, KeyTiles{k_tile, v_tile, x}, shared, pipe, ds_stage, dq, a, shift,
                         scale, top, row, group);
            dq_ring.next();
        };
        shared.x_full[tiles.stage].wait(tiles.phase);
        if constexpr (Call::kPacked) clear_tail<S::kBlock, kCols, S::kConsumers>(x, a.keys - key);
        for_each_row_of_steps<kRows>(a, steps, step);
        consumers_barrier();  // both have read k
        store_gradients<S::kBlock>(
            maps, a, slice, top, 0, k_tile, v_tile, its.of_k, its.of_v, dk, dv);
        if (is_first) shared.x_empty[tiles.stage].arrive();
        tiles.next();
    };
    while (true) {
        shared.ticket_full[told.stage].wait(told.phase);
        const int ticket = shared.tickets[told.stage];
        warpgroup_barrier(group);
        if (is_first) shared.ticket_empty[told.stage].arrive();
        told.next();
        if (ticket >= order.count()) return;
        with_tile_of_keys<S::kBlock, kRows>(whole, order, ticket, multiply);
    }
#endif
}
