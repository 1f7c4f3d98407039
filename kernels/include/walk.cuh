// Rows that no cluster can keep, whatever their width. Each has a cluster, or a block, to itself.
// As many of its vectors as there is room for wait in shared memory until they are needed again;
// the others are read again, most of them from L2.
#pragma once

#include "async.cuh"
#include "cluster.cuh"

// Threads of a block. The simulator, to which a barrier is dear, has fewer of them.
constexpr int kLongThreads = PLAYGROUND_CUDA ? 1024 : 512;

// The vectors that wait. Neighbours' vectors are neighbours.
extern __shared__ Line kept_here[];

// What a thread has of a row in each of K tensors. The first `kept` of its vectors wait. blocks: of
// a cluster, or 1.
template <class T, int K>
class Walk {
  public:
    static constexpr int V = kVec<T>;

    __device__ Walk(int cols, int blocks, int kept)
        : cols_(cols),
          first_((cluster_rank(blocks) * blockDim.x + threadIdx.x) * V),
          step_(blocks * blockDim.x * V),
          kept_(kept) {}

    __device__ bool is_first() const { return first_ == 0; }

    // visit(c, v) for each vector: v[k] is what begins with column c of the k-th of these rows.
    // What it leaves in v[0] is there when that row is read again.
    template <class Visit, class... P>
    __device__ void read(Visit visit, const P*... rows) const {
        static_assert(sizeof...(P) == K);
        for_kept([&](int c, Vec<T, V>* place) {
            int k = 0;
            (copy_async<V>(place[blockDim.x * k++].at, rows + c), ...);
        });
        close_batch();
        for_others<true>(visit, rows...);
        await_batches<0>();
        for_kept([&](int c, Vec<T, V>* place) {
            Vec<T, V> v[K];
            for (int k = 0; k < K; ++k) v[k] = place[blockDim.x * k];
            visit(c, v);
            place[0] = v[0];
        });
    }
    // The same for the first of these rows, or all.
    template <class Visit, class... P>
    __device__ void read_again(Visit visit, const P*... rows) const {
        for_kept([&](int c, Vec<T, V>* place) {
            Vec<T, V> v[sizeof...(P)];
            for (int k = 0; k < int(sizeof...(P)); ++k) v[k] = place[blockDim.x * k];
            visit(c, v);
        });
        for_others<false>(visit, rows...);
    }

  private:
    // visit(c, place) with the places where vectors that begin with column c wait, blockDim.x
    // apart.
    template <class Visit>
    __device__ void for_kept(Visit visit) const {
        Vec<T, V>* place = reinterpret_cast<Vec<T, V>*>(kept_here) + threadIdx.x;
        int c = first_;
#pragma unroll 2
        for (int n = 0; n < kept_ && c < cols_; ++n, c += step_, place += K * blockDim.x)
            visit(c, place);
    }

    template <bool once, class Visit, class... P>
    __device__ void for_others(Visit visit, const P*... rows) const {
        constexpr int kAhead = sizeof...(P) == 1 ? 4 : 2;
        for (int begin = first_ + kept_ * step_; begin < cols_; begin += kAhead * step_) {
            Vec<T, V> v[kAhead][sizeof...(P)];
#pragma unroll
            for (int n = 0; n < kAhead; ++n) {
                const int c = smaller(begin + n * step_, cols_ - V);  // past the end, any
                int k = 0;
                ((v[n][k++] = once ? load_once<V>(rows + c) : load<V>(rows + c)), ...);
            }
#pragma unroll
            for (int n = 0; n < kAhead; ++n) {
                const int c = begin + n * step_;
                if (c < cols_) visit(c, v[n]);
            }
        }
    }

    int cols_, first_, step_, kept_;
};

// Of a kernel that reads such rows once, with so many threads in each block.
template <class... P>
RowLaunch cluster_launch(void (*kernel)(P...), int64_t rows, int threads) {
    const int blocks = has_clusters(kernel) ? kClusterBlocks : 1;
    return {dim3(rows * blocks), dim3(threads), blocks};
}

// Of a kernel that walks them with kLongThreads.
struct LongLaunch : RowLaunch {
    int kept;  // vectors of a thread that wait in shared memory
};
template <class T, int K, class... P>
LongLaunch long_launch(void (*kernel)(P...), int64_t rows, int64_t cols) {
    LongLaunch launch = {cluster_launch(kernel, rows, kLongThreads), 0};
    const int64_t all = ceil_div<int64_t>(cols, launch.blocks * kLongThreads * kVec<T>);
    const int bytes = K * kVecBytes * kLongThreads;  // for a vector of each thread and tensor
    launch.kept = smaller<int64_t>(all, (shared_bytes() - kMergeBytes) / bytes);
    launch.bytes = launch.kept * bytes;
    allow(kernel, launch.bytes);
    return launch;
}
