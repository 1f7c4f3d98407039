// The softmax of wide rows: where does a row wait between its two readings?
//
//   x, y [rows, cols] float     cols is a multiple of 4, x and y stand on 16-byte boundaries
//
// Traffic: the least is to read x and to write y, 8 bytes per element. Each way below says how
// often it reads x. The op's own, which takes all types and widths, is in
// kernels/reductions/softmax.cu.

#include "cluster.cuh"
#include "cp_async.cuh"
#include "softmax.cuh"

constexpr int kMost = 1024;  // threads of a block, which are a power of two of warps
constexpr int V = kVec<float>;
using Four = Vec<float, V>;
extern __shared__ Four kept[];  // the row of a block, where it has asked for room

// Takes four numbers in.
__device__ void take(OnlineSoftmax<float>& soft, Four v) {
    soft.raise(fmaxf(fmaxf(v[0], v[1]), fmaxf(v[2], v[3])));
    const float shift = soft.shift();
    for (float number : v.at) soft.add(number, shift);
}

// What all threads of the block have, merged.
__device__ OnlineSoftmax<float> of_block(OnlineSoftmax<float> mine) {
    __shared__ float maxes[kWarp], sums[kWarp];  // of its warps
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, warps = blockDim.x / kWarp;
    mine = mine.warp_reduce(kWarp);
    if (lane == 0) maxes[warp] = mine.max, sums[warp] = mine.sum;
    __syncthreads();
    const int other = lane & (warps - 1);
    return OnlineSoftmax<float>{maxes[other], sums[other]}.warp_reduce(warps);
}

// Writes the results of four numbers.
__device__ void put(float* y, Four v, OnlineSoftmax<float> row) {
    for (float& number : v.at) number = expf(number - row.max) / row.sum;
    store(y, v);
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// A barrier of all threads of the cluster; what they have written before it, all of them see.
__device__ void cluster_sync() {
    __cluster_barrier_arrive();
    __cluster_barrier_wait();
}

// The same variable in the shared memory of block `rank` of the cluster.
template <class P>
__device__ const P& in_block(int rank, P& shared) {
    return *static_cast<P*>(__cluster_map_shared_rank(&shared, rank));
}

#else

__device__ inline void cluster_sync() { __syncthreads(); }
template <class P>
__device__ const P& in_block(int, P& shared) {
    return shared;
}

#endif

// ---- twice: max and sum from a first reading, the results from a second one.
// Flaw: the second reading goes to memory again, unless a cache holds all rows that are under way.

__global__ __launch_bounds__(kMost) void softmax_twice(const float* x, float* y, int cols) {
    x += int64_t(blockIdx.x) * cols;
    y += int64_t(blockIdx.x) * cols;
    OnlineSoftmax<float> soft = OnlineSoftmax<float>::identity();
#pragma unroll 4
    for (int c = threadIdx.x * V; c < cols; c += blockDim.x * V) take(soft, load<V>(x + c));
    soft = of_block(soft);
#pragma unroll 4
    for (int c = threadIdx.x * V; c < cols; c += blockDim.x * V) {
        put(y + c, load<V>(x + c), soft);
    }
}

// ---- kept: the row waits in shared memory. Each thread finds there what it has put there itself,
// so the one barrier is that of the sum. asked: whether the launcher has asked for more than 48
// KiB; a kernel keeps that permission, so the two have a kernel each.
// Flaw: a wide row leaves no room for a second one, and its block reads, then meets, then writes.

template <bool asked>
__global__ __launch_bounds__(kMost) void softmax_kept(const float* x, float* y, int cols) {
    x += int64_t(blockIdx.x) * cols;
    y += int64_t(blockIdx.x) * cols;
    const int end = cols / V;
    OnlineSoftmax<float> soft = OnlineSoftmax<float>::identity();
#pragma unroll 4
    for (int i = threadIdx.x; i < end; i += blockDim.x) {
        const Four v = load<V>(x + i * V);
        kept[i] = v;
        take(soft, v);
    }
    soft = of_block(soft);
#pragma unroll 4
    for (int i = threadIdx.x; i < end; i += blockDim.x) {
        const Four v = kept[i];
        put(y + i * V, v, soft);
    }
}

// ---- pieces: the whole row is asked for at once, by copies that need no register on the way. The
// sum of a piece is taken while the next pieces come.
// Flaw: while the block writes, nothing comes.

constexpr int kPieces = 4;

// The sums of this piece and of those after it, each as soon as it is there.
template <int piece>
__device__ void sum_up(OnlineSoftmax<float>& soft, int each, int end) {
    cp_async_wait<kPieces - 1 - piece>();
    const int last = smaller((piece + 1) * each, end);
    for (int i = piece * each + threadIdx.x; i < last; i += blockDim.x) {
        const Four v = kept[i];
        take(soft, v);
    }
    if constexpr (piece + 1 < kPieces) sum_up<piece + 1>(soft, each, end);
}

__global__ __launch_bounds__(kMost) void softmax_pieces(const float* x, float* y, int cols) {
    x += int64_t(blockIdx.x) * cols;
    y += int64_t(blockIdx.x) * cols;
    const int end = cols / V, each = ceil_div(end, kPieces);
    for (int piece = 0; piece < kPieces; ++piece) {
        const int last = smaller((piece + 1) * each, end);
        for (int i = piece * each + threadIdx.x; i < last; i += blockDim.x) {
            cp_async<V>(kept[i].at, x + i * V);
        }
        cp_async_commit();
    }
    OnlineSoftmax<float> soft = OnlineSoftmax<float>::identity();
    sum_up<0>(soft, each, end);
    soft = of_block(soft);
#pragma unroll 4
    for (int i = threadIdx.x; i < end; i += blockDim.x) {
        const Four v = kept[i];
        put(y + i * V, v, soft);
    }
}

// ---- spread: a row for the blocks of a cluster, each of which keeps its part in shared memory and
// reads what the others have found in theirs. Without clusters, a row has one block.
// Flaw: rows of float alone, whose vectors divide evenly among the blocks, a power of two of them;
// and all blocks of a row meet twice.

__global__ __launch_bounds__(kMost) void softmax_spread(const float* x, float* y, int cols,
                                                        int blocks) {
    __shared__ float max, sum;  // of this block's part
    const int end = cols / V / blocks;
    const int64_t begin = int64_t(cluster_index()) * cols + cluster_rank() * end * V;
    OnlineSoftmax<float> soft = OnlineSoftmax<float>::identity();
#pragma unroll 4
    for (int i = threadIdx.x; i < end; i += blockDim.x) {
        const Four v = load<V>(x + begin + i * V);
        kept[i] = v;
        take(soft, v);
    }
    soft = of_block(soft);
    if (threadIdx.x == 0) max = soft.max, sum = soft.sum;
    cluster_sync();  // all parts are there
    const int rank = threadIdx.x % blocks;
    soft = OnlineSoftmax<float>{in_block(rank, max), in_block(rank, sum)}.warp_reduce(blocks);
    cluster_sync();  // all have read them: a block that ends now takes nothing from the others
#pragma unroll 4
    for (int i = threadIdx.x; i < end; i += blockDim.x) {
        const Four v = kept[i];
        put(y + begin + i * V, v, soft);
    }
}

// ---- split: any number of blocks share a row, for few rows that are very wide. A first launch
// leaves max and sum of each part in memory, a second one merges those of the row, and writes.
// Flaw: x is read twice.

__global__ __launch_bounds__(kMost) void split_sums(const float* x, OnlineSoftmax<float>* sums,
                                                    int cols) {
    x += int64_t(blockIdx.y) * cols;
    const int each = ceil_div(cols / V, int(gridDim.x)), end = cols / V;
    const int last = smaller(int(blockIdx.x + 1) * each, end);
    OnlineSoftmax<float> soft = OnlineSoftmax<float>::identity();
#pragma unroll 4
    for (int i = blockIdx.x * each + threadIdx.x; i < last; i += blockDim.x) {
        take(soft, load<V>(x + i * V));
    }
    soft = of_block(soft);
    if (threadIdx.x == 0) sums[blockIdx.y * gridDim.x + blockIdx.x] = soft;
}

__global__ __launch_bounds__(kMost) void split_results(
    const float* x, const OnlineSoftmax<float>* sums, float* y, int cols) {
    x += int64_t(blockIdx.y) * cols;
    y += int64_t(blockIdx.y) * cols;
    OnlineSoftmax<float> soft = OnlineSoftmax<float>::identity();
    for (int part = threadIdx.x; part < gridDim.x; part += blockDim.x) {
        soft.combine(sums[blockIdx.y * gridDim.x + part]);
    }
    soft = of_block(soft);
    const int each = ceil_div(cols / V, int(gridDim.x)), end = cols / V;
    const int last = smaller(int(blockIdx.x + 1) * each, end);
#pragma unroll 4
    for (int i = blockIdx.x * each + threadIdx.x; i < last; i += blockDim.x) {
        put(y + i * V, load<V>(x + i * V), soft);
    }
}

// ---- banks: a warp keeps 32 runs of 32 numbers, and each lane adds up its own. The runs begin
// `apart` words from each other, at most 48.

__global__ void sum_runs(const float* x, float* y, int apart) {
    __shared__ float runs[32 * 48];
    const int lane = threadIdx.x;
    for (int run = 0; run < 32; ++run) runs[run * apart + lane] = x[run * 32 + lane];
    __syncwarp();
    float sum = 0;
    for (int k = 0; k < 32; ++k) sum += runs[lane * apart + k];
    y[lane] = sum;
}

// ---- launchers. threads: of a block

extern "C" cudaError_t twice(const float* x, float* y, int rows, int cols, int threads,
                             cudaStream_t stream) {
    softmax_twice<<<rows, threads, 0, stream>>>(x, y, cols);
    return cudaGetLastError();
}

extern "C" cudaError_t unasked(const float* x, float* y, int rows, int cols, int threads,
                               cudaStream_t stream) {
    softmax_kept<false><<<rows, threads, cols * sizeof(float), stream>>>(x, y, cols);
    return cudaGetLastError();
}

// A launch of one of the kernels whose rows wait in shared memory.
cudaError_t launch_kept(void (*kernel)(const float*, float*, int), const float* x, float* y,
                        int rows, int cols, int threads, cudaStream_t stream) {
    const int bytes = cols * sizeof(float);
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    kernel<<<rows, threads, bytes, stream>>>(x, y, cols);
    return cudaGetLastError();
}

extern "C" cudaError_t kept_asked(const float* x, float* y, int rows, int cols, int threads,
                                  cudaStream_t stream) {
    return launch_kept(softmax_kept<true>, x, y, rows, cols, threads, stream);
}

extern "C" cudaError_t pieces(const float* x, float* y, int rows, int cols, int threads,
                              cudaStream_t stream) {
    return launch_kept(softmax_pieces, x, y, rows, cols, threads, stream);
}

// The first three kernels, one after another, so that a single profile shows them all.
extern "C" cudaError_t three(const float* x, float* y, int rows, int cols, cudaStream_t stream) {
    for (const auto& launch :
         {twice(x, y, rows, cols, 256, stream), kept_asked(x, y, rows, cols, kMost, stream),
          pieces(x, y, rows, cols, kMost, stream)})
        if (launch != cudaSuccess) return launch;
    return cudaSuccess;
}

// blocks: of a row, 1, 2, 4 or 8; 1 where there are no clusters.
extern "C" cudaError_t spread(const float* x, float* y, int rows, int cols, int blocks, int threads,
                              cudaStream_t stream) {
    const bool power_of_two = blocks > 0 && (blocks & (blocks - 1)) == 0;
    if (!power_of_two || blocks > kClusterBlocks) return cudaErrorInvalidValue;
    if (cols % (V * blocks) != 0) return cudaErrorInvalidValue;
    if (blocks > 1 && !has_clusters(softmax_spread)) return cudaErrorNotSupported;
    const int bytes = cols / blocks * int(sizeof(float));
    cudaFuncSetAttribute(softmax_spread, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (blocks > 1) {
        launch_clusters(
            softmax_spread, blocks, rows * blocks, threads, bytes, stream, x, y, cols, blocks);
    } else {
        softmax_spread<<<rows, threads, bytes, stream>>>(x, y, cols, blocks);
    }
    return cudaGetLastError();
}

// sums: room for two floats for each part of each row.
extern "C" cudaError_t split(const float* x, float* sums, float* y, int rows, int cols, int parts,
                             int threads, cudaStream_t stream) {
    const dim3 grid(parts, rows);
    OnlineSoftmax<float>* found = reinterpret_cast<OnlineSoftmax<float>*>(sums);
    split_sums<<<grid, threads, 0, stream>>>(x, found, cols);
    split_results<<<grid, threads, 0, stream>>>(x, found, y, cols);
    return cudaGetLastError();
}

extern "C" cudaError_t banks(const float* x, float* y, int apart, cudaStream_t stream) {
    sum_runs<<<1, 32, 0, stream>>>(x, y, apart);
    return cudaGetLastError();
}
