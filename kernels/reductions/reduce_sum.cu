// reduce_sum: y[r] = sum over c of x[r, c]
//
//   x [rows, cols] T        y [rows] T        partial [rows * splits] float (double for double)
//
// The sum over all of x is the sum of one long row. Few long rows cannot fill a GPU, so each is cut
// into `splits` pieces, whose partial sums a second launch adds: always in the same order.
//
// Traffic, the least a kernel can move: sizeof(T) bytes read per element; the sums are free beside
// it.

#include "dependent_launch.cuh"
#include "rows.cuh"
#include "tunable.h"

enum Version : int64_t { kNaive, kShared, kVector };  // as in reduce_sum.py

// The pieces of the rows, numbered row by row; piece p is [begin, end) in x.
struct Pieces {
    int64_t rows, cols, splits;
    int64_t size;  // elements of a piece; the last one of a row may be smaller, even empty

    __host__ __device__ int64_t count() const { return rows * splits; }
    // (A division takes some hundred instructions: too many for short rows.)
    __device__ int64_t row(int64_t p) const { return splits == 1 ? p : p / splits; }
    __device__ int64_t begin(int64_t p) const {
        return row(p) * cols + (p - row(p) * splits) * size;
    }
    __device__ int64_t end(int64_t p) const {
        return smaller(begin(p) + size, (row(p) + 1) * cols);
    }
};

// ---- naive: one thread per piece.
// Flaw: neighbouring threads read a whole piece apart, and each access moves 32 bytes for one T.

template <class In, class Out>
__global__ void sum_naive(const In* x, Out* y, Pieces pieces) {
    const int64_t p = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (p >= pieces.count()) return;
    const int64_t end = pieces.end(p);
    KahanSum<Acc<In>> sum;
    for (int64_t i = pieces.begin(p); i < end; ++i) sum += Acc<In>(x[i]);
    y[p] = Out(sum.value);
}

// ---- shared: one block per piece; reads are coalesced, then a tree in shared
// memory adds their sums.
// Flaw: small reads, a barrier for each level of the tree, and most threads idle in most levels.

constexpr int kTreeThreads = 256;

template <class In, class Out>
__global__ void sum_shared(const In* x, Out* y, Pieces pieces) {
    using A = Acc<In>;
    __shared__ A sums[kTreeThreads];
    const int t = threadIdx.x;
    for (int64_t p = blockIdx.x; p < pieces.count(); p += gridDim.x) {
        const int64_t end = pieces.end(p);
        A sum = 0;
        for (int64_t i = pieces.begin(p) + t; i < end; i += kTreeThreads) sum += A(x[i]);
        sums[t] = sum;
        for (int half = kTreeThreads / 2; half > 0; half /= 2) {
            __syncthreads();
            if (t < half) sums[t] += sums[t + half];
        }
        if (t == 0) y[p] = Out(sums[0]);
    }
}

// ---- vector: 16 bytes per access, several of them in flight, and warp shuffles instead of a tree.
// Where rows are no multiple of the vector wide, pieces begin and end with single elements
// (rows.cuh).

constexpr int kAhead = TUNABLE(kAhead, 8);  // vectors in flight per thread
constexpr int kVectorThreads = TUNABLE(kVectorThreads, 512);
constexpr int kVectorBlocks = TUNABLE(kVectorBlocks, 2);  // resident per multiprocessor
constexpr int kLeastWithEdges = 65;  // columns; narrower pieces go one element per access

template <class In, class Out, int V, bool kAligned>
__global__ __launch_bounds__(kVectorThreads, kVectorBlocks) void sum_vector(const In* x, Out* y,
                                                                            Pieces pieces) {
    using A = Acc<In>;
    x = grid_dependency_wait(x);
    launch_dependents();
    BlockReduce reduce;
    for (int64_t first = int64_t(blockIdx.x) * blockDim.y; first < pieces.count();
         first += int64_t(gridDim.x) * blockDim.y) {
        const int64_t p = first + threadIdx.y;
        const int size = p < pieces.count() ? int(pieces.end(p) - pieces.begin(p)) : 0;
        const In* piece = x + pieces.begin(p);
        const Interior<In, kAligned> interior(piece, size);
        const In* vectors = piece + interior.begin;
        const int end = interior.width();
        A lanes[V] = {};
        const int step = blockDim.x * V;
        for (int i = threadIdx.x * V; i + V <= end; i += kAhead * step) {
            Vec<In, V> v[kAhead];
#pragma unroll
            for (int n = 0; n < kAhead; ++n)
                v[n] = load_once<V>(vectors + i + n * step, i + n * step + V <= end);
            for (int n = 0; n < kAhead && i + n * step < end; ++n) {
                for (int k = 0; k < V; ++k) lanes[k] += A(v[n][k]);
            }
        }
        // The one row of a sum over all may end within a vector.
        for (int i = end / V * V + threadIdx.x; i < end; i += blockDim.x) lanes[0] += A(vectors[i]);
        interior.edges(threadIdx.x, [&](int, int i) { lanes[0] += A(piece[i]); });
        Sums<1, A> sum = {0};
        for (A lane : lanes) sum.values[0] += lane;
        sum = reduce(sum);
        if (threadIdx.x == 0 && p < pieces.count()) y[p] = Out(sum[0]);
    }
}

struct PieceShape {
    int64_t vectors;  // this row is for pieces of up to so many vectors
    int threads, pieces;
};
constexpr PieceShape kShapes[] = {
    // kAhead for each thread, all on their way at once, and one more at most: twice the threads
    // would have half as many on their way. A warp's sum or less needs no barrier.
    {36, 4, 32},  {72, 8, 16},    {144, 16, 8},   {288, 32, 4},
    {576, 64, 2}, {1152, 128, 1}, {4096, 256, 1}, {INT64_MAX, kVectorThreads, 1},
};

// ---- launchers

template <class In, class Out>
void launch(const In* x, Out* y, Pieces pieces, int64_t version, bool is_secondary,
            cudaStream_t stream) {
    if (version == kNaive) {
        const int64_t blocks = ceil_div<int64_t>(pieces.count(), 128);
        sum_naive<<<blocks, 128, 0, stream>>>(x, y, pieces);
    } else if (version == kShared) {
        sum_shared<<<grid_of(pieces.count()), kTreeThreads, 0, stream>>>(x, y, pieces);
    } else {
        constexpr int V = kVec<In>;
        const bool aligned = is_aligned(x) && (pieces.cols % V == 0 || pieces.rows == 1);
        const int64_t size = smaller(pieces.size, pieces.cols);
        const bool has_edges = !aligned && size >= kLeastWithEdges;
        const int64_t accesses = has_edges ? size / V : ceil_div<int64_t>(size, aligned ? V : 1);
        const PieceShape* shape = kShapes;
        while (accesses > shape->vectors || (has_edges && shape->threads < kEdgeThreads)) ++shape;
        const unsigned blocks = grid_of(ceil_div<int64_t>(pieces.count(), shape->pieces));
        const dim3 block(shape->threads, shape->pieces);
        const auto kernel = aligned     ? sum_vector<In, Out, V, true>
                            : has_edges ? sum_vector<In, Out, V, false>
                                        : sum_vector<In, Out, 1, true>;
        if (is_secondary) {
            launch_secondary(kernel, 1, blocks, block, stream, x, y, pieces);
        } else {
            kernel<<<blocks, block, 0, stream>>>(x, y, pieces);
        }
    }
}

// How many elements a piece has. The vector version's blocks take so many vectors at a time as is a
// power of two: less than that leaves them idle.
int64_t size_of_pieces(int64_t cols, int64_t splits, int64_t version) {
    const int64_t least = ceil_div(cols, splits);
    if (version != kVector || splits == 1) return least;
    int64_t size = 1;
    while (size < least) size *= 2;
    return size;
}

// How many pieces each row is cut into: 1 where the rows alone fill the GPU and an int counts their
// columns, else so many that the last ones to end leave little of it idle, but none below 4096
// elements. Of so few elements that the second launch would take longer than it spares, 1.
int64_t reduce_sum_splits(int64_t rows, int64_t cols, int64_t version) {
    const int64_t enough = multiprocessors() * (version == kNaive ? 512 : 4);
    if (cols <= 4096 || (rows >= enough && cols < 1 << 30)) return 1;
    if (version == kVector && rows * cols <= 1 << 16) return 1;
    const int64_t wanted = ceil_div(version == kVector ? 16 * enough : enough, rows) + (cols >> 30);
    const int64_t splits = smaller(wanted, ceil_div<int64_t>(cols, 4096));
    return ceil_div(cols, size_of_pieces(cols, splits, version));
}

template <class T>
cudaError_t reduce_sum_forward(const T* x, Acc<T>* partial, T* y, int64_t rows, int64_t cols,
                               int64_t splits, int64_t version, cudaStream_t stream) {
    if (rows == 0) return cudaSuccess;
    const int64_t size = size_of_pieces(cols, splits, version);
    const Pieces pieces = {rows, cols, splits, ceil_div<int64_t>(size, kVec<T>) * kVec<T>};
    if (splits == 1) {
        launch(x, y, pieces, version, false, stream);
    } else {
        launch(x, partial, pieces, version, false, stream);
        launch(partial, y, Pieces{rows, splits, 1, splits}, version, true, stream);
    }
    return cudaGetLastError();
}

#define INSTANTIATE(T) template decltype(reduce_sum_forward<T>) reduce_sum_forward<T>;
FOR_EACH_TYPE(INSTANTIATE)
