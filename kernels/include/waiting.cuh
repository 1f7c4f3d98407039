// Rows that wait in shared memory until their threads have time for them.
//
// Asynchronous copies of 16 bytes bring them there without a register on the way. So much is on its
// way at any time: 128 bytes to each thread, 192 KiB to a multiprocessor.
#pragma once

#include "async.cuh"
#include "cluster.cuh"

// Vectors of a thread, in each of the K tensors that are read. The simulator, to which a barrier is
// dear, keeps a row within one warp.
template <int K>
constexpr int kVectors = (PLAYGROUND_CUDA ? 8 : 64) / K;
constexpr int kMostThreads = 512;  // of a block
constexpr int kWaitingBlocks = 3;  // of so many threads, that a multiprocessor holds

// The block's parts of its rows.
extern __shared__ Line waiting[];

// Bytes of shared memory that a block of so many threads needs for it.
constexpr int waiting_bytes(int threads) { return threads * kVectors<1> * kVecBytes; }

// What a thread has of a row, in each of K tensors. Blocks are (threads of a row, rows), or
// `blocks` blocks have a row.
template <class T, int K>
class Part {
  public:
    static constexpr int V = kVec<T>;

    __device__ explicit Part(int blocks)
        : first_((cluster_rank() * blockDim.x + threadIdx.x) * V), step_(blocks * blockDim.x * V) {}

    // Its number among those of the row.
    __device__ int thread() const { return first_ / V; }
    // The column of vector n; it is past the end where there is none.
    __device__ int column(int n) const { return first_ + n * step_; }

    // Asks for so many columns of these rows, or parts of rows; they are there after `await`.
    template <class... P>
    __device__ void fetch(int cols, const P*... rows) {
#pragma unroll
        for (int n = 0; n < kVectors<K>; ++n) {
            if (column(n) >= cols) break;
            int k = 0;
            (copy_async<V>(at(n, k++).at, rows + column(n)), ...);
        }
        close_batch();
    }
    __device__ void await() { await_batches<0>(); }

    // Vector n of tensor k. Neighbours' vectors are neighbours.
    __device__ Vec<T, V>& at(int n, int k) const {
        const int threads = blockDim.x * blockDim.y;
        const int thread = threadIdx.y * blockDim.x + threadIdx.x;
        return reinterpret_cast<Vec<T, V>*>(waiting)[(k * kVectors<K> + n) * threads + thread];
    }

  private:
    int first_, step_;
};
