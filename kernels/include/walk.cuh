// Rows that no cluster can keep, whatever their width. Each has a cluster, or a block, to itself.
// As many of its vectors as there is room for wait in shared memory, and a few in registers, until
// they are needed again; the others are read again, most of them from L2.
#pragma once

#include "async.cuh"
#include "cluster.cuh"

// Threads of a block: all that a multiprocessor holds of 64 registers each, or half of them where
// so much is calculated that two blocks had better take turns. The simulator, to which a barrier is
// dear, has no more than those.
constexpr int kHalfThreads = 512;
constexpr int kAllThreads = PLAYGROUND_CUDA ? 1024 : kHalfThreads;

// The vectors that wait. Neighbours' vectors are neighbours.
extern __shared__ Line kept_here[];

// What a thread has of a row in each of K tensors. The first `kept` of its vectors wait, the next R
// stay in its registers. blocks: of a cluster, or 1.
template <class T, int K, int R = 0>
class Walk {
  public:
    static constexpr int V = kVec<T>;

    __device__ Walk(int cols, int blocks, int kept)
        : cols_(cols),
          first_((cluster_rank() * blockDim.x + threadIdx.x) * V),
          step_(blocks * blockDim.x * V),
          kept_(kept) {}

    __device__ bool is_first() const { return first_ == 0; }

    // visit(c, v) for each vector: v[k] is what begins with column c of the k-th of these rows.
    template <class Visit, class... P>
    __device__ void read(Visit visit, const P*... rows) {
        static_assert(sizeof...(P) == K);
        for_kept([&](int c, Vec<T, V>* place) {
            int k = 0;
            (copy_async<V>(place[blockDim.x * k++].at, rows + c), ...);
        });
        close_batch();
#pragma unroll
        for (int i = 0; i < R; ++i) {
            const int c = column(kept_ + i);
            int k = 0;
            ((held_[i][k++] = load_once<V>(rows + c, c < cols_)), ...);
        }
#pragma unroll
        for (int i = 0; i < R; ++i) {
            if (column(kept_ + i) < cols_) visit(column(kept_ + i), held_[i]);
        }
        walk<true, 4 / K>(kept_ + R, [&](int, int c, auto& v) { visit(c, v); }, rows...);
        await_batches<0>();
        visit_kept(visit);
    }
    // The same for more rows than are kept. What visit leaves in the first K of v is what
    // `read_again` will find, and must have been written to its row as well.
    template <class Visit, class... P>
    __device__ void read_and_change(Visit visit, const P*... rows) const {
        static_assert(R == 0);
        const auto keep = [&](int n, int c, auto& v) {
            visit(c, v);
            if (n >= kept_) return;
            for (int k = 0; k < K; ++k) place_of(n)[blockDim.x * k] = v[k];
        };
        walk<true, 4>(0, keep, rows...);
    }
    // Visits the K rows again.
    template <class Visit, class... P>
    __device__ void read_again(Visit visit, const P*... rows) const {
        static_assert(sizeof...(P) == K);
        visit_kept(visit);
#pragma unroll
        for (int i = 0; i < R; ++i) {
            Vec<T, V> v[K];
            for (int k = 0; k < K; ++k) v[k] = held_[i][k];
            if (column(kept_ + i) < cols_) visit(column(kept_ + i), v);
        }
        walk<false, 4 / K>(kept_ + R, [&](int, int c, auto& v) { visit(c, v); }, rows...);
    }

  private:
    __device__ int column(int n) const { return first_ + n * step_; }

    // Where vector n waits, and blockDim.x further on that of the next row.
    __device__ static Vec<T, V>* place_of(int n) {
        return reinterpret_cast<Vec<T, V>*>(kept_here) + n * K * blockDim.x + threadIdx.x;
    }

    template <class Visit>
    __device__ void for_kept(Visit visit) const {
#pragma unroll 2
        for (int n = 0; n < kept_ && column(n) < cols_; ++n) visit(column(n), place_of(n));
    }

    template <class Visit>
    __device__ void visit_kept(Visit visit) const {
        for_kept([&](int c, Vec<T, V>* place) {
            Vec<T, V> v[K];
            for (int k = 0; k < K; ++k) v[k] = place[blockDim.x * k];
            visit(c, v);
        });
    }

    // visit(n, c, v) for the thread's n-th vector, from number `from` on, through registers. So
    // many of each row are asked for before the first is worked on.
    template <bool once, int ahead, class Visit, class... P>
    __device__ void walk(int from, Visit visit, const P*... rows) const {
        for (; column(from) < cols_; from += ahead) {
            Vec<T, V> v[ahead][sizeof...(P)];
#pragma unroll
            for (int n = 0; n < ahead; ++n) {
                const int c = smaller(column(from + n), cols_ - V);  // past the end, any
                int k = 0;
                ((v[n][k++] = once ? load_once<V>(rows + c) : load<V>(rows + c)), ...);
            }
#pragma unroll
            for (int n = 0; n < ahead; ++n) {
                const int c = column(from + n);
                if (c < cols_) visit(from + n, c, v[n]);
            }
        }
    }

    int cols_, first_, step_, kept_;
    Vec<T, V> held_[R > 0 ? R : 1][K];
};

// Of a kernel that reads such rows once, with so many threads in each block.
template <class... P>
RowLaunch cluster_launch(void (*kernel)(P...), int64_t rows, int threads) {
    const int blocks = has_clusters(kernel) ? kClusterBlocks : 1;
    return {dim3(rows * blocks), dim3(threads), blocks};
}

// Of a kernel that walks such rows and keeps K of them, with so many threads in each block.
struct LongLaunch : RowLaunch {
    int kept, left;  // vectors of a thread for which there is room in shared memory; for which not
};
template <class T, int K, class... P>
LongLaunch long_launch(void (*kernel)(P...), int threads, int64_t rows, int64_t cols) {
    LongLaunch launch = {cluster_launch(kernel, rows, threads), 0, 0};
    const int64_t all = ceil_div<int64_t>(cols, launch.blocks * threads * kVec<T>);
    const int bytes = K * kVecBytes * threads;  // for a vector of each thread and row
    const int room = (shared_bytes() - kMergeBytes) / (kAllThreads / threads);
    launch.kept = smaller<int64_t>(all, room / bytes);
    launch.left = all - launch.kept;
    launch.bytes = launch.kept * bytes;
    allow(kernel, launch.bytes);
    return launch;
}
