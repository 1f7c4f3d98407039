// Rows too wide for one block: rows that the blocks of a cluster share, and rows that no cluster
// can keep.
#pragma once

#include "cluster.cuh"

// Tells nvcc that a kernel runs in clusters only and need not support one block.
__device__ inline void assume_cluster(int blocks) { __builtin_assume(blocks > 1); }

// Columns of a row that the `blocks` blocks of a cluster share. Vectors that would be past the end
// are the last ones of the row once more: so all threads do the same, without a branch, and what
// they do twice `is_own` once. (Were they all the very last one, L2 would write it one time after
// another.) count: of the thread's vectors. Together the threads have room for less than twice
// cols. As plain Columns, which write_columns takes, they are not clamped.
template <class T, int count>
class ClampedColumns : public Columns<T> {
  public:
    const int cols;
    __device__ ClampedColumns(int blocks, int cols)
        : Columns<T>(0, cluster_rank(), blocks), cols(cols) {
        const int excess = blocks * count * blockDim.x * kVec<T> - cols;
#pragma unroll
        for (int n = 0; n < count; ++n) {
            at_[n] = is_own(n) ? unclamped(n) : unclamped(n) - excess;
            asm("" : "+r"(at_[n]));  // nvcc would follow both ways, and store in parts
        }
    }
    __device__ bool is_own(int n) const { return unclamped(n) < cols; }
    __device__ int operator[](int n) const { return at_[n]; }

  private:
    __device__ int unclamped(int n) const { return Columns<T>::operator[](n); }
    int at_[count];
};

// ---- rows that a cluster processes one after another, R at a time, in a pipeline of D stages in
// shared memory. A thread has N vectors of each of K tensors.

template <class T, int N, int D, int K = 1, int R = 1>
class RowQueue {
    using Slots = SharedRows<T, N, K, D * R>;

  public:
    static constexpr int V = kVec<T>;
    static constexpr int kBytes = Slots::kBytes;  // of shared memory, for each thread

    // The rows `first` and every `stride`-th after it of the tensors [rows, cols]. (So few wide
    // rows exist that an int counts them.) A tensor may be null; its vectors are then arbitrary.
    template <class... P>
    __device__ RowQueue(const ClampedColumns<T, N>& column, int first, int stride, int rows,
                        const P*... tensors)
        : tensors_{tensors...}, column_(column), row_(first), stride_(stride), rows_(rows) {
        static_assert(sizeof...(P) == K);
        for (; stage_ < D; ++stage_, row_ += R * stride) {
#pragma unroll
            for (int i = 0; i < R; ++i) {
#pragma unroll
                for (int n = 0; n < N; ++n) replace(n, i);
            }
        }
        stage_ = 0;
    }

    // Waits until the first R rows, or those k stages later, have arrived.
    template <int k = 0>
    __device__ void wait() {
        cp_async_wait<(D - 1 - k) * R * N>();
    }

    // Vector n of a tensor, in the i-th of those rows.
    template <int k = 0>
    __device__ Vec<T, V>& at(int n, int tensor = 0, int i = 0) {
        static_assert(k < D);
        const int stage = stage_ + k < D ? stage_ + k : stage_ + k - D;
        return Slots::at(n, tensor, stage * R + i);
    }

    // Releases vector n of the i-th row and starts the copy of that of the row D stages later.
    __device__ void replace(int n, int i = 0) {
        const int row = row_ + i * stride_;
        const int64_t begin = int64_t(row) * column_.cols + column_[n];
#pragma unroll
        for (int k = 0; k < K; ++k) {
            if (row < rows_ && (K == 1 || tensors_[k] != nullptr))
                cp_async<V>(at(n, k, i).at, tensors_[k] + begin);
        }
        cp_async_commit();
    }

    // Advances by R rows.
    __device__ void advance() {
        stage_ = stage_ + 1 < D ? stage_ + 1 : 0;
        row_ += R * stride_;
    }

  private:
    const T* tensors_[K];
    ClampedColumns<T, N> column_;
    int row_, stride_, rows_;  // row_: the first of those that replace the first
    int stage_ = 0;
};

// ---- rows that no cluster can keep. Each has a cluster, or a block, to itself and is streamed: as
// many of its vectors as fit stay in shared memory, and a few in registers, until they are needed
// again; the others are read again, most of them from L2.

// Threads of a block: as many as a multiprocessor holds with 64 registers each, or half of them
// where there is so much arithmetic that two blocks are better. Fewer in the simulator, where
// barriers are expensive.
constexpr int kHalfThreads = 512;
constexpr int kAllThreads = kGpuSizes ? 1024 : kHalfThreads;

// A thread's part of a row in each of K tensors. The first `kept` vectors stay in shared memory,
// the next R in registers. blocks: of a cluster, or 1.
template <class T, int K, int R = 0>
class RowStream {
  public:
    static constexpr int V = kVec<T>;

    __device__ RowStream(int cols, int blocks, int kept)
        : cols_(cols), column_(0, cluster_rank(), blocks), kept_(kept) {}

    __device__ bool is_first() const { return column_.first == 0; }

    // Calls visit(c, v) for each vector: v[k] begins at column c of the k-th of these rows.
    template <class Visit, class... P>
    __device__ void read(Visit visit, const P*... rows) {
        static_assert(sizeof...(P) == K);
        for_kept([&](int n, int c) {
            int k = 0;
            (cp_async<V>(Slots::at(n, k++).at, rows + c), ...);
        });
        cp_async_commit();
#pragma unroll
        for (int i = 0; i < R; ++i) {
            const int c = column_[kept_ + i];
            int k = 0;
            ((held_[i][k++] = load_once<V>(rows + c, c < cols_)), ...);
        }
#pragma unroll
        for (int i = 0; i < R; ++i) {
            if (column_[kept_ + i] < cols_) visit(column_[kept_ + i], held_[i]);
        }
        stream<true, 4 / K>(kept_ + R, [&](int, int c, auto& v) { visit(c, v); }, rows...);
        cp_async_wait<0>();
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
            for (int k = 0; k < K; ++k) Slots::at(n, k) = v[k];
        };
        stream<true, 4>(0, keep, rows...);
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
            if (column_[kept_ + i] < cols_) visit(column_[kept_ + i], v);
        }
        stream<false, 4 / K>(kept_ + R, [&](int, int c, auto& v) { visit(c, v); }, rows...);
    }

  private:
    using Slots = SharedRows<T, 1, K>;  // of so many vectors as are kept, which the launch decides

    template <class Visit>
    __device__ void for_kept(Visit visit) const {
#pragma unroll 2
        for (int n = 0; n < kept_ && column_[n] < cols_; ++n) visit(n, column_[n]);
    }

    template <class Visit>
    __device__ void visit_kept(Visit visit) const {
        for_kept([&](int n, int c) {
            Vec<T, V> v[K];
            for (int k = 0; k < K; ++k) v[k] = Slots::at(n, k);
            visit(c, v);
        });
    }

    // visit(n, c, v) for the thread's n-th vector, from number `from` on, through registers. So
    // many of each row are asked for before the first is worked on.
    template <bool once, int ahead, class Visit, class... P>
    __device__ void stream(int from, Visit visit, const P*... rows) const {
        for (; column_[from] < cols_; from += ahead) {
            Vec<T, V> v[ahead][sizeof...(P)];
#pragma unroll
            for (int n = 0; n < ahead; ++n) {
                const int c = smaller(column_[from + n], cols_ - V);  // past the end, any
                int k = 0;
                ((v[n][k++] = once ? load_once<V>(rows + c) : load<V>(rows + c)), ...);
            }
#pragma unroll
            for (int n = 0; n < ahead; ++n) {
                const int c = column_[from + n];
                if (c < cols_) visit(from + n, c, v[n]);
            }
        }
    }

    int cols_;
    Columns<T> column_;
    int kept_;
    Vec<T, V> held_[R > 0 ? R : 1][K];
};
