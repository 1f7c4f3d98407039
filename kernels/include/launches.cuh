// The launches of kernels of rows: how many threads share a row, in how many blocks.
#pragma once

#include "wide_rows.cuh"

// A launch of rows with `blocks` blocks each; blocks is 0 if there is none.
struct RowLaunch {
    dim3 grid, block;
    int blocks = 0;
    int bytes = 0;  // of shared memory

    // Blocks that have a row to themselves, or clusters.
    int64_t slices() const { return grid.x / blocks; }

    template <class... P, class... A>
    void start(void (*kernel)(P...), cudaStream_t stream, A... arguments) const {
        if (blocks > 1) {
            launch_clusters(kernel, blocks, grid.x, block, bytes, stream, arguments...);
        } else {
            kernel<<<grid, block, bytes, stream>>>(arguments...);
        }
    }
};

// Lets a block of this kernel have so much shared memory beside what its sums take. False: the
// device has less.
template <class... P>
bool allow(void (*kernel)(P...), int bytes) {
    const int most = shared_bytes() - kReduceBytes;
    if (bytes > most) return false;
    return remembered(kernel, most, [&]() -> int {  // so much once and for all
        return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most) ==
               cudaSuccess;
    });
}

// The launch of a kernel for rows of any width: (threads of a row, rows) of a block, no more
// threads than there is work for, and at least two, which Sums of two numbers need.
constexpr int kMostRowThreads = 512;
inline RowLaunch any_width_launch(int64_t rows, int64_t cols) {
    int threads = 2;
    while (threads < kMostRowThreads && threads * 2 < cols) threads *= 2;
    const dim3 block(threads, threads < 128 ? 128 / threads : 1);
    return {dim3(grid_of(ceil_div<int64_t>(rows, block.y))), block, 1};
}

// ---- forward kernels in which each thread has the same number of vectors of one row. An op's
// table of these says which blocks take a row: the first line whose threads hold it, in shared
// memory that a block may have.

struct RowShape {
    int threads, rows;  // threads of a row in a block, rows of a block
    int blocks;         // of a cluster
};

// The threads of a row that one block has, at most.
template <int lines>
int most_row_threads(const RowShape (&table)[lines]) {
    int most = 0;
    for (const RowShape& shape : table)
        if (shape.blocks == 1 && shape.threads > most) most = shape.threads;
    return most;
}

// How many vectors a thread has, at most `vectors`, of rows in registers that need so many. Where
// rows are few, a thread waits for one load after the other while multiprocessors idle: there it
// has at least two vectors, and no more threads than a block may have.
constexpr int kFewestVectors = 2, kThreadsOfFewRows = 1024;  // for each multiprocessor
inline int vectors_of_thread(int64_t rows, int64_t needed, int vectors, int most_threads,
                             int processors = multiprocessors()) {
    const auto fits = [&](int fewer) {
        const int64_t threads = ceil_div<int64_t>(needed, fewer);
        return threads <= most_threads &&
               rows * round_up_to_warps(threads) <= int64_t(processors) * kThreadsOfFewRows;
    };
    while (vectors > kFewestVectors && fits(vectors / 2)) vectors /= 2;
    return vectors;
}

// How many rows a block has, at most `most`, a power of two. Few rows are spread over the
// multiprocessors, where a block's rows would wait for each other at its barriers.
inline unsigned rows_of_a_block(int64_t rows, unsigned most, int processors = multiprocessors()) {
    while (most > 1 && ceil_div<int64_t>(rows, most) < processors) most /= 2;
    return most;
}

// The launch of a forward kernel that keeps rows in registers, or in `bytes` of shared memory per
// thread. vectors: of a thread; narrow_vectors if one warp can hold the row with them. most: the
// most blocks of a row. A row of several warps has no more warps than there is work for.
template <class T, int lines, class... P>
RowLaunch forward_launch(const RowShape (&table)[lines], void (*kernel)(P...), int64_t rows,
                         int64_t cols, int vectors, int narrow_vectors, int bytes, int most) {
    const int64_t needed = cols / kVec<T>;  // vectors
    if (kGpuSizes && bytes == 0)
        vectors = vectors_of_thread(rows, needed, vectors, most_row_threads(table));
    int64_t threads = ceil_div<int64_t>(needed, smaller(vectors, narrow_vectors));
    if (threads > kWarp) threads = ceil_div<int64_t>(needed, vectors);
    const RowShape* shape = table;
    const auto block_of = [&] {
        const int64_t of_block = ceil_div<int64_t>(threads, shape->blocks);
        return dim3(
            shape->threads > kWarp ? round_up_to_warps(of_block) : shape->threads, shape->rows);
    };
    const auto holds_it = [&] {
        const dim3 block = block_of();
        return threads <= shape->threads * shape->blocks &&
               (bytes == 0 || bytes * int(block.x * block.y) + kReduceBytes <= shared_bytes());
    };
    while (!holds_it()) {
        if (++shape == table + lines) return {};
    }
    const int blocks = shape->blocks;
    if (blocks > most || (blocks > 1 && !has_clusters(kernel))) return {};
    dim3 block = block_of();
    if (kGpuSizes && block.y > 1 && block.x > kWarp) block.y = rows_of_a_block(rows, block.y);
    const int64_t grid = ceil_div<int64_t>(rows, block.y) * blocks;
    if (grid > 0x7fffffff) return {};  // CUDA's limit
    bytes *= block.x * block.y;
    if (bytes > 0 && !allow(kernel, bytes)) return {};
    if (blocks > kClusterBlocks && clusters_at_once(kernel, blocks, block, bytes) == 0) return {};
    return {dim3(grid), block, blocks, bytes};
}

// ---- kernels whose clusters stay and take row after row

// How many blocks share a row that needs so many threads. More than eight are sixteen: a cluster's
// blocks come from the 16 or 18 multiprocessors of one part of the GPU, and most parts have no room
// for two clusters of nine.
inline int64_t blocks_of(int64_t needed, int64_t threads) {
    const int64_t blocks = ceil_div(needed, threads);
    return blocks <= kClusterBlocks || blocks > kMostBlocks ? blocks : kMostBlocks;
}

// The launch of a kernel whose clusters stay: the blocks of one have together as many threads as a
// row needs. bytes: of shared memory, for each thread.
template <class... P>
RowLaunch persistent_launch(void (*kernel)(P...), int blocks, int64_t needed, int64_t rows,
                            int bytes) {
    const dim3 threads(round_up_to_warps(ceil_div<int64_t>(needed, blocks)));
    bytes *= threads.x;
    if (!allow(kernel, bytes)) return {};
    const int64_t at_once = clusters_at_once(kernel, blocks, threads, bytes);
    if (at_once == 0) return {};
    return {dim3(smaller(rows, at_once) * blocks), threads, blocks, bytes};
}

// The launch of a forward kernel in which each thread has N vectors of a row and D rows of K
// tensors wait: in two blocks of a multiprocessor, which hide each other's waits, or in one twice
// as large. threads: of a block, at most. most: blocks of a row. Few rows are spread over more
// blocks than they need.
template <class T, int N, int D, int K = 1, class... P>
RowLaunch pipelined_launch(void (*kernel)(P...), int threads, int64_t rows, int64_t cols,
                           int most = kMostBlocks) {
    const int64_t needed = ceil_div<int64_t>(cols, N * kVec<T>);  // threads
    int64_t blocks = blocks_of(needed, threads);
    if (blocks < 2) blocks = 2;
    while (blocks < kClusterBlocks && rows * blocks * 2 <= multiprocessors()) ++blocks;
    if (blocks > most || !has_clusters(kernel)) return {};
    return persistent_launch(kernel, blocks, needed, rows, RowQueue<T, N, D, K>::kBytes);
}

// ---- kernels that stream a row which no cluster can keep

struct StreamLaunch : RowLaunch {
    int kept = 0, left = 0;  // vectors of a thread that find room in shared memory; that do not
};

// The launch of a kernel that reads such rows once, with so many threads in each block.
template <class... P>
RowLaunch stream_launch(void (*kernel)(P...), int64_t rows, int threads) {
    const int blocks = has_clusters(kernel) ? kClusterBlocks : 1;
    return {dim3(rows * blocks), dim3(threads), blocks};
}

// The same for one that keeps what it can of K tensors.
template <class T, int K, class... P>
StreamLaunch stream_launch(void (*kernel)(P...), int64_t rows, int threads, int64_t cols) {
    StreamLaunch launch = {stream_launch(kernel, rows, threads)};
    const int64_t all = ceil_div<int64_t>(cols, launch.blocks * threads * kVec<T>);
    const int bytes = K * kVecBytes * threads;  // for a vector of each thread and tensor
    const int room = (shared_bytes() - kReduceBytes) / (kAllThreads / threads);
    launch.kept = smaller<int64_t>(all, room / bytes);
    launch.left = all - launch.kept;
    launch.bytes = launch.kept * bytes;
    allow(kernel, launch.bytes);
    return launch;
}
