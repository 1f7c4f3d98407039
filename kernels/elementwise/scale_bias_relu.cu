// scale_bias_relu: y = max(x * scale + bias, 0)
//
//   x, y, g, dx [rows, cols] T        scale, bias, dscale, dbias [cols] T
//   partials [count, cols] float (double for double)
//   g: the gradient that arrives; dx, dscale, dbias: the gradients that leave
//
// Without a scale tensor the number `factor` is the scale of every column.
//
// Traffic, the least a kernel can move: forward reads x and writes y, 2 * sizeof(T) bytes per
// element, where three separate ops move 6 * sizeof(T); backward reads g and x and writes dx,
// 3 * sizeof(T). scale and bias are small and stay in the caches.

#include "column_sums.cuh"
#include "tunable.h"

enum Version : int64_t { kNaive, kVector };  // as in scale_bias_relu.py

__device__ inline float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
__device__ inline double multiply_add(double a, double b, double c) { return fma(a, b, c); }

// One rounding instead of two: so the sign of z, and with it the gradient, is always right.
template <class A>
__device__ A activate(A x, A scale, A bias) {
    const A z = multiply_add(x, scale, bias);
    return z < 0 ? A(0) : z;
}

// The gradient at z; a NaN passes it on, as in PyTorch.
template <class A>
__device__ A gradient(A g, A x, A scale, A bias) {
    return multiply_add(x, scale, bias) <= 0 ? A(0) : g;
}

// A vector with an element for each column or, where `values` is null, one number for all.
template <class T>
struct PerColumn {
    const T* values;
    Acc<T> number;
    __device__ Acc<T> operator[](int64_t col) const {
        return values ? Acc<T>(values[col]) : number;
    }

    // The elements of V columns. kAligned: they begin on a boundary.
    template <bool kAligned, int V>
    __device__ Vec<T, V> load_columns(int64_t col) const {
        if (!values) return {};
        return kAligned ? load<V>(values + col) : load_unaligned<V>(values + col);
    }
    template <int V>
    __device__ void convert(const Vec<T, V>& v, Acc<T> (&out)[V]) const {
        for (int k = 0; k < V; ++k) out[k] = values ? Acc<T>(v[k]) : number;
    }
    template <bool kAligned, int V>
    __device__ void read(int64_t col, Acc<T> (&out)[V]) const {
        convert(load_columns<kAligned, V>(col), out);
    }
};

// ---- naive: one thread per element; for dscale and dbias one thread per column.
// Flaw: each element costs a 64-bit division, and cols threads cannot fill a GPU.

template <class T>
__global__ void forward_naive(const T* x, PerColumn<T> scale, const T* bias, T* y, int64_t rows,
                              int64_t cols) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= rows * cols) return;
    const int64_t col = i % cols;
    y[i] = T(activate(Acc<T>(x[i]), scale[col], Acc<T>(bias[col])));
}

template <class T>
__global__ void dx_naive(const T* g, const T* x, PerColumn<T> scale, const T* bias, T* dx,
                         int64_t rows, int64_t cols) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= rows * cols) return;
    const Acc<T> s = scale[i % cols], b = Acc<T>(bias[i % cols]);
    dx[i] = T(s * gradient(Acc<T>(g[i]), Acc<T>(x[i]), s, b));
}

template <class T>
__global__ void columns_naive(const T* g, const T* x, PerColumn<T> scale, const T* bias, T* dscale,
                              T* dbias, int64_t rows, int64_t cols) {
    const int64_t col = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (col >= cols) return;
    const Acc<T> s = scale[col], b = Acc<T>(bias[col]);
    KahanSum<Acc<T>> scale_sum, bias_sum;
    for (int64_t i = col; i < rows * cols; i += cols) {
        const Acc<T> d = gradient(Acc<T>(g[i]), Acc<T>(x[i]), s, b);
        scale_sum += d * Acc<T>(x[i]);
        bias_sum += d;
    }
    dscale[col] = T(scale_sum.value);
    dbias[col] = T(bias_sum.value);
}

// ---- vector: a thread owns the V columns of one 16-byte vector, keeps their scale and bias in
// registers and walks down the rows. Forward, a block's rows are neighbours: blocks that run at the
// same time then work on one stretch of memory, which it likes. Backward, a thread also keeps its
// columns' sums, and leaves them for a second pass: everything is read once.
//
// Rows of an odd width have edges (rows.cuh). A block then takes rows that begin equally far from
// a boundary, and a thread has a column of the edges beside its vector.
// Flaw: tensors that begin between two boundaries are taken element by element (V = 1).

constexpr int kThreads = TUNABLE(kThreads, 256);
constexpr int kUnroll = TUNABLE(kUnroll, 4);  // rows that a thread loads at once, backward
constexpr int kBackwardBlocks = TUNABLE(kBackwardBlocks, 2);  // of a multiprocessor, backward

// kOneRow: each thread has one row, so that all its loads are on their way before the first wait.
template <class T, int V, bool kAligned, bool kOneRow>
__global__ void forward_vector(const T* x, PerColumn<T> scale, const T* bias, T* y, int64_t rows,
                               int64_t cols, int64_t rows_each) {
    using A = Acc<T>;
    constexpr int kRowStride = kAligned ? 1 : V;  // from one of the block's rows to the next
    const int64_t alike = blockIdx.y % kRowStride, first = blockIdx.y / kRowStride * rows_each;
    const int64_t end = smaller((first + rows_each) * kRowStride, rows);
    const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const Interior<T, kAligned, int64_t> interior(x + alike * cols, cols);
    const auto each_row = [&](auto visit) {
        for (int64_t row = (first + threadIdx.y) * kRowStride + alike; row < end;
             row += blockDim.y * kRowStride)
            visit(row * cols);
    };
    const int64_t col = interior.begin + thread * V, edge = interior.edge_column(thread);
    if (col < interior.end) {
        Vec<T, V> only;
        if constexpr (kOneRow) {
            const int64_t row = first + threadIdx.y;
            only = load_once<V>(x + row * cols + col, row < end);
        }
        const PerColumn<T> biases = {bias, 0};
        const Vec<T, V> of_scale = scale.template load_columns<kAligned, V>(col);
        const Vec<T, V> of_bias = biases.template load_columns<kAligned, V>(col);
        A s[V], b[V];
        scale.convert(of_scale, s);
        biases.convert(of_bias, b);
        each_row([&](int64_t begin) {
            Vec<T, V> v = kOneRow ? only : load_once<V>(x + begin + col);
            for (int k = 0; k < V; ++k) v[k] = T(activate(A(v[k]), s[k], b[k]));
            interior.store(y + begin + col, v);
        });
    }
    if (edge >= 0) {
        const A s = scale[edge], b = A(bias[edge]);
        each_row([&](int64_t begin) { y[begin + edge] = T(activate(A(x[begin + edge]), s, b)); });
    }
}

template <class T, int V, bool kAligned>
__global__ __launch_bounds__(kThreads, kBackwardBlocks) void backward_vector(
    const T* g, const T* x, PerColumn<T> scale, const T* bias, T* dx, ColumnSums<T> dscale,
    ColumnSums<T> dbias, int64_t rows, int64_t cols) {
    launch_dependents();
    using A = Acc<T>;
    const int64_t step = int64_t(gridDim.y) * blockDim.y;
    const int64_t first = kAligned ? int64_t(blockIdx.y) * blockDim.y + threadIdx.y
                                   : int64_t(threadIdx.y) * gridDim.y + blockIdx.y;
    const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const Interior<T, kAligned, int64_t> interior(g + first * cols, cols);
    const int64_t col = interior.begin + thread * V, edge = interior.edge_column(thread);
    const bool has_vector = col < interior.end;
    if (!has_vector && edge < 0) return;
    A s[V], b[V], scale_sum[V] = {}, bias_sum[V] = {};
    A edge_s = 0, edge_b = 0, edge_scale_sum = 0, edge_bias_sum = 0;
    if (has_vector) {
        scale.template read<kAligned>(col, s);
        PerColumn<T>{bias, 0}.template read<kAligned>(col, b);
    }
    if (edge >= 0) edge_s = scale[edge], edge_b = A(bias[edge]);
    // What z's gradient gives to x, and to the sums of a column.
    const auto dx_of = [](T g, T x, A s, A b, A& scale_sum, A& bias_sum) {
        const A d = gradient(A(g), A(x), s, b);
        scale_sum += d * A(x);
        bias_sum += d;
        return T(s * d);
    };
    for (int64_t row = first; row < rows; row += kUnroll * step) {
        Vec<T, V> u[kUnroll], v[kUnroll];
        T edge_u[kUnroll], edge_v[kUnroll];
        for (int r = 0; r < kUnroll; ++r) {
            const int64_t begin = (row + r * step) * cols;
            const bool there = row + r * step < rows;
            u[r] = load_once<V>(g + begin + col, there && has_vector);
            v[r] = load_once<V>(x + begin + col, there && has_vector);
            edge_u[r] = there && edge >= 0 ? g[begin + edge] : T(0);
            edge_v[r] = there && edge >= 0 ? x[begin + edge] : T(0);
        }
        for (int r = 0; r < kUnroll; ++r) {
            if (row + r * step >= rows) break;
            T* to = dx + (row + r * step) * cols;
            if (has_vector) {
                for (int k = 0; k < V; ++k)
                    v[r][k] = dx_of(u[r][k], v[r][k], s[k], b[k], scale_sum[k], bias_sum[k]);
                interior.store(to + col, v[r]);
            }
            if (edge >= 0) {
                to[edge] =
                    dx_of(edge_u[r], edge_v[r], edge_s, edge_b, edge_scale_sum, edge_bias_sum);
            }
        }
    }
    const int64_t begin = first * cols;
    if (has_vector) {
        dscale.template store<kAligned>(begin, col, scale_sum);
        dbias.template store<kAligned>(begin, col, bias_sum);
    }
    if (edge >= 0) {
        dscale.store(begin, edge, edge_scale_sum);
        dbias.store(begin, edge, edge_bias_sum);
    }
}

#include "scale_bias_relu_narrow.cuh"

// The launch of the vector version: blocks are `x` threads across the columns, `y` down the rows.
struct Plan {
    bool aligned;  // may the kernel use vectors?
    int apart;     // from one of a block's rows to the next; 1, or more where rows have edges
    dim3 grid, block;
    bool narrow = false;  // backward: whether V rows are taken as one
    // Rows of partial sums; of one the first pass makes the gradients.
    int64_t partials() const { return narrow ? grid.x : int64_t(grid.y) * block.y; }
};

constexpr int64_t kMostBlocksDown = 65528;  // CUDA's limit in y, as a multiple of `apart`
constexpr int kLeastWithEdges = 33;         // columns; in fewer, too few threads have a vector

// The caller says how many blocks there shall be down the rows: a multiple of `apart`.
template <class T, class... P>
Plan plan_of(int64_t cols, const P*... tensors) {
    const bool on_boundary = is_aligned(tensors...);
    const bool aligned = on_boundary && cols % kVec<T> == 0;
    const bool edges =
        on_boundary && !aligned && cols >= kLeastWithEdges && may_have_edges<T>(cols, tensors...);
    const int64_t vectors = aligned || edges ? cols / kVec<T> : cols;
    unsigned across = edges ? 2 * kEdgeThreads : 1;
    while (across < kThreads && across < vectors) across *= 2;
    if (across == kThreads) {  // as few threads without a column as whole warps allow
        const int64_t blocks = ceil_div<int64_t>(vectors, kThreads);
        across = unsigned(round_up_to_warps(ceil_div(vectors, blocks)));
    }
    return {aligned, edges ? kVec<T> : 1, dim3(ceil_div<int64_t>(vectors, across)),
            dim3(across, kThreads / across)};
}

// A thread's columns are the same in all its rows, so several rows make reading scale and bias
// cheap; but a GPU needs blocks enough. So up to kRows where that leaves it kBlocksEach, and twice
// as many where a thread has one element of each, or where scale and bias are a large part of what
// is read and come from afar: of two-byte elements a thread has twice as many as of four-byte ones.
constexpr int kRows = TUNABLE(kRows, 2);
constexpr int kBlocksEach = TUNABLE(kBlocksEach, 32);  // of a multiprocessor
constexpr int kWideCols = 1 << 16;  // from here on the nearest cache has lost them

template <class T>
int64_t rows_of_a_block(const Plan& plan, int64_t rows, int64_t cols) {
    const bool dear = !plan.aligned || (sizeof(T) == 2 && cols >= kWideCols);
    int64_t each = plan.block.y;
    for (int more = 2; more <= (dear ? 2 * kRows : kRows); more *= 2) {
        if (plan.grid.x * ceil_div(rows, 2 * each) < multiprocessors() * kBlocksEach) break;
        each *= 2;
    }
    return each * ceil_div(ceil_div(rows, each), kMostBlocksDown);
}

// The sums of backward live in registers, so its grid is what the GPU holds at once.
template <class T>
Plan backward_plan(const T* g, const T* x, const T* scale, const T* bias, int64_t rows,
                   int64_t cols) {
    if (cols <= kNarrowCols && is_aligned(g, x)) {
        const dim3 block(unsigned(cols), kThreads / unsigned(cols));
        const int64_t blocks = ceil_div<int64_t>(rows * cols, kVec<T> * block.x * block.y);
        const int64_t held = multiprocessors() * kBackwardBlocks;
        return {true, 1, dim3(unsigned(smaller(blocks < 1 ? 1 : blocks, held))), block, true};
    }
    Plan plan = plan_of<T>(cols, g, x, scale, bias);
    const int64_t wanted = ceil_div<int64_t>(rows, plan.block.y * kUnroll);
    const int64_t held = multiprocessors() * kBackwardBlocks / plan.grid.x;
    const int64_t blocks = smaller(smaller(wanted, held), kMostBlocksDown) / plan.apart;
    plan.grid.y = (blocks < 1 ? 1 : blocks) * plan.apart;
    return plan;
}

// ---- launchers

template <class T>
cudaError_t scale_bias_relu_forward(const T* x, const T* scale, double factor, const T* bias, T* y,
                                    int64_t rows, int64_t cols, int64_t version,
                                    cudaStream_t stream) {
    if (rows == 0 || cols == 0) return cudaSuccess;
    const PerColumn<T> s = {scale, Acc<T>(factor)};
    if (version == kNaive) {
        const int64_t blocks = ceil_div<int64_t>(rows * cols, kThreads);
        forward_naive<<<blocks, kThreads, 0, stream>>>(x, s, bias, y, rows, cols);
        return cudaGetLastError();
    }
    Plan plan = plan_of<T>(cols, x, scale, bias, y);
    const int64_t each = rows_of_a_block<T>(plan, rows, cols);
    plan.grid.y = ceil_div(rows, each * plan.apart) * plan.apart;
    const bool one = each == plan.block.y;  // row of each thread
    const auto kernel =
        plan.aligned
            ? one ? forward_vector<T, kVec<T>, true, true> : forward_vector<T, kVec<T>, true, false>
        : plan.apart > 1 ? forward_vector<T, kVec<T>, false, false>
                         : forward_vector<T, 1, true, false>;
    kernel<<<plan.grid, plan.block, 0, stream>>>(x, s, bias, y, rows, cols, each);
    return cudaGetLastError();
}

// How many rows of partial sums backward needs.
template <class T>
int64_t scale_bias_relu_partials(const T* g, const T* x, const T* scale, const T* bias,
                                 int64_t rows, int64_t cols, int64_t version) {
    if (version == kNaive || cols == 0) return 0;
    const int64_t partials = backward_plan(g, x, scale, bias, rows, cols).partials();
    return partials > 1 ? partials : 0;
}

template <class T>
cudaError_t scale_bias_relu_backward(const T* g, const T* x, const T* scale, double factor,
                                     const T* bias, T* dx, T* dscale, T* dbias,
                                     Acc<T>* partial_dscale, Acc<T>* partial_dbias, int64_t rows,
                                     int64_t cols, int64_t version, cudaStream_t stream) {
    if (cols == 0) return cudaSuccess;
    const PerColumn<T> s = {scale, Acc<T>(factor)};
    if (version == kNaive) {
        const int64_t blocks = ceil_div<int64_t>(rows * cols, kThreads);
        if (rows > 0) {
            dx_naive<<<blocks, kThreads, 0, stream>>>(g, x, s, bias, dx, rows, cols);
        }
        columns_naive<<<ceil_div<int64_t>(cols, kThreads), kThreads, 0, stream>>>(
            g, x, s, bias, dscale, dbias, rows, cols);
        return cudaGetLastError();
    }
    const Plan plan = backward_plan(g, x, scale, bias, rows, cols);
    const bool whole = plan.partials() == 1;
    const ColumnSums<T> to_dscale = {{whole ? nullptr : partial_dscale}, {dscale}};
    const ColumnSums<T> to_dbias = {{whole ? nullptr : partial_dbias}, {dbias}};
    if (plan.narrow) {
        backward_narrow<<<plan.grid, plan.block, 0, stream>>>(
            g, x, s, bias, dx, to_dscale, to_dbias, rows * cols, int(cols));
    } else {
        const auto kernel = plan.aligned     ? backward_vector<T, kVec<T>, true>
                            : plan.apart > 1 ? backward_vector<T, kVec<T>, false>
                                             : backward_vector<T, 1, true>;
        kernel<<<plan.grid, plan.block, 0, stream>>>(
            g, x, s, bias, dx, to_dscale, to_dbias, rows, cols);
    }
    if (whole) return cudaGetLastError();
    launch_column_sums<T>(
        partial_dscale, {dscale}, partial_dbias, {dbias}, plan.partials(), cols, stream);
    return cudaGetLastError();
}

#define INSTANTIATE(T)                                                          \
    template decltype(scale_bias_relu_forward<T>) scale_bias_relu_forward<T>;   \
    template decltype(scale_bias_relu_partials<T>) scale_bias_relu_partials<T>; \
    template decltype(scale_bias_relu_backward<T>) scale_bias_relu_backward<T>;
FOR_EACH_TYPE(INSTANTIATE)
