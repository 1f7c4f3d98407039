// attention: y = softmax(q k^T * scale) v, over the keys that each row of q sees
//
//   q, y [batches, heads, rows, cols] T                g, dq: the gradients of y and of q
//   k, v [kv_batches, kv_heads, keys, cols] T          dk, dv: theirs
//   stats [batches, heads, rows, 2] Acc<T>             for backward: the largest score, and the sum
//                                                      of e^(score - largest)
//
// score[r, n] = scale * sum over c of q[r, c] * k[n, c]. Row r sees the keys n from
// r + keys - rows - left to r + keys - rows + right (the last row sees the last key), and all if
// there are no such limits; causal is right = 0. A row that sees none has y = 0 and no gradient.
//
// Arithmetic: each score takes 2 * cols operations, and so does its part of y: 4 * rows * keys *
// cols for a head, half of that if it is causal. Backward computes the scores again and has four
// products more: 10 * rows * keys * cols. With p[r, n] = e^(score - largest) / sum, of row r's
// stats (their logarithm would be one number, but its rounding would show in every p of float32),
//
//   dv = p^T g     dp = g v^T     ds = p * (dp - delta) * scale     dq = ds k     dk = ds^T q
//
// and delta[r] = sum over n of p * dp, which is the sum over c of g[r, c] * y[r, c].
//
// Traffic, the least a kernel can move: q, k, v, y once. The scores of 4096 rows and keys are 32
// MiB a head in bfloat16, beside 2 MiB for all of q, k, v and y: so they never leave the chip, but
// in the naive version.

#include "attention_call.cuh"
#include "softmax.cuh"

enum Version : int64_t { kNaive, kOnline };  // as in attention.py

// ---- naive: the formula, in three kernels: scores, their softmax, and the products with v. One
// thread for each score, for each row, for each element of y.
// Flaw: the scores go to memory and back twice. That is bounded here, for the launcher takes so
// many rows at a time that they need no more than kScores, but not their traffic.

constexpr int64_t kScores = int64_t(1) << 26;  // of a launch, unless a single row has more
constexpr int kSide = 16;

// A sum of many products: every eight of them are added up alone, and the sums of eight with
// compensation. So scores have the same bits in all versions without tensor cores.
constexpr int kShort = 8;
template <class A>
class LongSum {
  public:
    __device__ void add(A x, A y) {
        part_ = fma(x, y, part_);
        if (++count_ % kShort == 0) flush();
    }
    __device__ A value() {
        flush();
        return sum_.value;
    }

  private:
    __device__ void flush() {
        sum_ += part_;
        part_ = 0;
    }
    KahanSum<A> sum_;
    A part_ = 0;
    unsigned count_ = 0;
};

template <class A>
__device__ void save(A* stats, int64_t line, A max, A sum) {
    stats[2 * line] = max;
    stats[2 * line + 1] = sum;
}

// Of the lines from first on and before last. scores [lines, keys + 1]: the last is for their sum.
template <class T>
__global__ void scores_naive(Attention a, const T* q, const T* k, Acc<T>* scores, int64_t first,
                             int64_t last) {
    using A = Acc<T>;
    const int64_t across = ceil_div<int64_t>(a.keys, kSide);
    const int64_t line = first + blockIdx.x / across * kSide + threadIdx.y;
    const int64_t key = blockIdx.x % across * kSide + threadIdx.x;
    if (line >= last || key >= a.keys) return;
    const Place row = a.place(line);
    if (!a.sees(row.row, key)) return;
    q += a.at(a.q, row);
    k += a.key_at(a.k, row, key);
    LongSum<A> sum;
#pragma unroll 4
    for (int64_t c = 0; c < a.cols; ++c) sum.add(A(q[c]), A(k[c]));
    scores[(line - first) * (a.keys + 1) + key] = sum.value() * A(a.scale);
}

// In place: e^(score - largest), and the sum of that, by which values_naive divides.
template <class T>
__global__ void softmax_naive(Attention a, Acc<T>* scores, Acc<T>* stats, int64_t first,
                              int64_t last) {
    using A = Acc<T>;
    const int64_t line = first + int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (line >= last) return;
    const int64_t row = a.place(line).row, begin = a.first_key(row), end = a.end_key(row);
    scores += (line - first) * (a.keys + 1);
    OnlineSoftmax<T> soft = OnlineSoftmax<T>::identity();
#pragma unroll 1
    for (int64_t n = begin; n < end; ++n) soft.max = larger(soft.max, scores[n]);
    KahanSum<A> sum;
#pragma unroll 1
    for (int64_t n = begin; n < end; ++n) {
        scores[n] = exponential<T>(scores[n] - soft.shift());
        sum += scores[n];
    }
    scores[a.keys] = sum.value;
    if (stats) save(stats, line, soft.max, sum.value);
}

template <class T>
__global__ void values_naive(Attention a, const Acc<T>* weights, const T* v, T* y, int64_t first,
                             int64_t last) {
    using A = Acc<T>;
    const int64_t across = ceil_div<int64_t>(a.cols, blockDim.x);
    const int64_t line = first + blockIdx.x / across * blockDim.y + threadIdx.y;
    const int64_t c = blockIdx.x % across * blockDim.x + threadIdx.x;
    if (line >= last || c >= a.cols) return;
    const Place row = a.place(line);
    weights += (line - first) * (a.keys + 1);
    v += a.key_at(a.v, row, 0) + c;
    LongSum<A> sum;
    const int64_t begin = a.first_key(row.row), end = a.end_key(row.row);
#pragma unroll 4
    for (int64_t n = begin; n < end; ++n) sum.add(weights[n], A(v[n * a.v.row]));
    y[line * a.cols + c] = T(begin < end ? sum.value() / weights[a.keys] : A(0));
}

// Backward, too, stores what it has for each score. A block has 16 rows, for which it computes dq,
// or 16 keys, for which it computes dk and dv: one launch has both kinds, so that all of them read
// q, k, v, g and y while those are in the L2 cache. No block waits for another one, and none adds
// to what another one writes: the bits are the same on every run. The price is that the scores are
// computed twice.
//
// dp - delta is here the sum of g * (v - y). The rounding of y shows in dq where the rows of k are
// alike, for the ds of a row should add up to 0: what they do add up to is taken off again.

// p and ds of one score.
template <class T>
struct Slope {
    using A = Acc<T>;
    A p = 0, ds = 0;
    __device__ Slope(const Attention& a, const T* g, const T* q, const T* k, const T* v, const T* y,
                     const A* stats, Place row, int64_t key) {
        if (!a.sees(row.row, key)) return;
        q += a.at(a.q, row), g += a.at(a.g, row), y += a.line(row) * a.cols;
        k += a.key_at(a.k, row, key), v += a.key_at(a.v, row, key);
        LongSum<A> score, slope;
#pragma unroll 4
        for (int64_t c = 0; c < a.cols; ++c) {
            score.add(A(q[c]), A(k[c]));
            slope.add(A(g[c]), A(v[c]) - A(y[c]));
        }
        stats += 2 * a.line(row);
        p = exp(score.value() * A(a.scale) - stats[0]) / stats[1];
        ds = p * slope.value() * A(a.scale);
    }
};

// Numbers of scratch memory for a slice of k and v: p and ds, [rows, keys], of either kind.
__host__ __device__ inline int64_t scratch_naive(const Attention& a) {
    return 4 * a.sharing() * a.rows * a.keys;
}

// Of the slices of k and v from `first` on.
template <class T>
__global__ void backward_naive(Attention a, const T* g, const T* q, const T* k, const T* v,
                               const T* y, const Acc<T>* stats, T* dq, T* dk, T* dv,
                               Acc<T>* scratch, int64_t first) {
    using A = Acc<T>;
    constexpr int kDeep = 1024 / sizeof(A);  // keys of 16 rows, or rows of 16 keys, at a time
    __shared__ A part_p[kSide * kDeep], part_ds[kSide * kDeep];
    const int64_t rows = a.sharing() * a.rows;
    const int64_t row_blocks = ceil_div<int64_t>(rows, kSide);
    const int64_t blocks = row_blocks + ceil_div<int64_t>(a.keys, kSide);
    const int64_t slice = first + blockIdx.x / blocks, block = blockIdx.x % blocks;
    const int step = blockDim.x;
    A* p = scratch + (slice - first) * scratch_naive(a);
    A* ds = p + rows * a.keys;
    if (block < row_blocks) {
        const int64_t top = block * kSide;
        const int high = smaller<int64_t>(kSide, rows - top);
        p += top * a.keys, ds += top * a.keys;
        for (int64_t i = threadIdx.x; i < high * a.keys; i += step) {
            const Place place = a.sharer(slice, top + i / a.keys);
            const Slope<T> slope(a, g, q, k, v, y, stats, place, i % a.keys);
            p[i] = slope.p;
            ds[i] = slope.ds;
        }
        __syncthreads();
        __shared__ A excess[kSide];
        if (threadIdx.x < high) {
            KahanSum<A> sum;
#pragma unroll 1
            for (int64_t key = 0; key < a.keys; ++key) sum += ds[threadIdx.x * a.keys + key];
            excess[threadIdx.x] = sum.value;
        }
        for (int64_t at = 0; at < high * a.cols; at += step) {
            const int64_t i = at + threadIdx.x, c = i % a.cols;
            const int row = smaller<int64_t>(i / a.cols, high - 1);
            const Place place = a.sharer(slice, top + row);
            LongSum<A> sum;
            for (int64_t key = 0; key < a.keys; key += kDeep) {
                const int deep = smaller<int64_t>(kDeep, a.keys - key);
                if (at == 0 || deep < a.keys) {
                    __syncthreads();
                    for (int n = threadIdx.x; n < high * deep; n += step) {
                        const int64_t from = n / deep * a.keys + key + n % deep;
                        part_ds[n] = ds[from] - p[from] * excess[n / deep];
                    }
                    __syncthreads();
                }
                const T* const from = k + a.key_at(a.k, place, key) + c;
#pragma unroll 4
                for (int n = 0; n < deep; ++n)
                    sum.add(part_ds[row * deep + n], A(from[n * a.k.row]));
            }
            if (i < high * a.cols) dq[a.line(place) * a.cols + c] = T(sum.value());
        }
    } else {
        p += 2 * rows * a.keys, ds += 2 * rows * a.keys;
        const int64_t left = (block - row_blocks) * kSide;
        const int wide = smaller<int64_t>(kSide, a.keys - left);
        p += left, ds += left;
        for (int64_t i = threadIdx.x; i < rows * wide; i += step) {
            const int64_t row = i / wide, key = i % wide;
            const Slope<T> slope(a, g, q, k, v, y, stats, a.sharer(slice, row), left + key);
            p[row * a.keys + key] = slope.p;
            ds[row * a.keys + key] = slope.ds;
        }
        __syncthreads();
        for (int64_t at = 0; at < wide * a.cols; at += step) {
            const int64_t i = at + threadIdx.x, c = i % a.cols;
            const int key = smaller<int64_t>(i / a.cols, wide - 1);
            LongSum<A> of_k, of_v;
            for (int64_t row = 0; row < rows; row += kDeep) {
                const int deep = smaller<int64_t>(kDeep, rows - row);
                if (at == 0 || deep < rows) {
                    __syncthreads();
                    for (int n = threadIdx.x; n < wide * deep; n += step) {
                        const int64_t from = (row + n / wide) * a.keys + n % wide;
                        part_p[n] = p[from];
                        part_ds[n] = ds[from];
                    }
                    __syncthreads();
                }
#pragma unroll 1
                for (int n = 0; n < deep; ++n) {
                    const Place place = a.sharer(slice, row + n);
                    of_k.add(part_ds[n * wide + key], A(q[a.at(a.q, place) + c]));
                    of_v.add(part_p[n * wide + key], A(g[a.at(a.g, place) + c]));
                }
            }
            if (i >= wide * a.cols) continue;
            const int64_t to = (slice * a.keys + left + key) * a.cols + c;
            dk[to] = T(of_k.value());
            dv[to] = T(of_v.value());
        }
    }
}

// ---- online: one pass over tiles of 32 keys. A block has 32 rows and keeps for each the largest
// score so far, the sum of e^(score - largest), and the sum of the same times v; whenever a tile
// raises the largest score, both sums are scaled down (softmax.cuh). Tiles wait in shared memory,
// 32 columns at a time; a thread has 4 rows by 2 keys of the scores, and of y 4 rows by every 16th
// column. Takes up to 256 columns; more go to naive. Backward is naive's.
// Flaw: every multiplication reads its factors from shared memory, and no tensor core works.

constexpr int kTile = 32, kOnlineThreads = 128, kOnlineMost = 256;

// Rows of up to 32 columns from column c on; what is past the last row or column is 0.
template <class T, class A>
__device__ void fetch(A (&tile)[kTile][kTile + 1], const T* from, int64_t stride, int64_t rows,
                      int64_t c, int64_t cols) {
    const int lane = threadIdx.x % kTile;
#pragma unroll
    for (int r = threadIdx.x / kTile; r < kTile; r += kOnlineThreads / kTile)
        tile[r][lane] = r < rows && c + lane < cols ? A(from[r * stride + c + lane]) : A(0);
}

template <class T, int kCols>
__global__ __launch_bounds__(kOnlineThreads) void forward_online(
    Attention a, const T* q, const T* k, const T* v, T* y, Acc<T>* stats) {
    using A = Acc<T>;
    constexpr int kWide = 16, kHigh = kOnlineThreads / kWide;  // threads of a row, of a column
    constexpr int R = kTile / kHigh, N = kTile / kWide, C = kCols / kWide;
    __shared__ A left[kTile][kTile + 1], right[kTile][kTile + 1], weights[kTile][kTile + 1];
    const int x = threadIdx.x % kWide, top = threadIdx.x / kWide;
    const int64_t tiles = ceil_div<int64_t>(a.rows, kTile);
    Place place = a.place(blockIdx.x / tiles * a.rows);
    place.row = blockIdx.x % tiles * kTile;
    const int64_t rows = smaller<int64_t>(kTile, a.rows - place.row);
    q += a.at(a.q, place);
    k += a.key_at(a.k, place, 0);
    v += a.key_at(a.v, place, 0);

    OnlineSoftmax<T> soft[R];  // its sum: over this thread's keys
    A sums[R][C] = {};
    for (auto& each : soft) each = OnlineSoftmax<T>::identity();
    const int64_t last = a.end_key(place.row + rows - 1);
    for (int64_t first = a.first_key(place.row) / kTile * kTile; first < last; first += kTile) {
        const int64_t keys = smaller<int64_t>(kTile, a.keys - first);
        KahanSum<A> sums_of_products[R][N];
        for (int64_t c = 0; c < a.cols; c += kTile) {
            __syncthreads();
            fetch(left, q, a.q.row, rows, c, a.cols);
            fetch(right, k + first * a.k.row, a.k.row, keys, c, a.cols);
            __syncthreads();
#pragma unroll 1
            for (int from = 0; from < kTile; from += kShort) {
                A part[R][N] = {};
#pragma unroll
                for (int i = from; i < from + kShort; ++i) {
#pragma unroll
                    for (int r = 0; r < R; ++r) {
#pragma unroll
                        for (int n = 0; n < N; ++n)
                            part[r][n] =
                                fma(left[top + r * kHigh][i], right[x + n * kWide][i], part[r][n]);
                    }
                }
#pragma unroll
                for (int r = 0; r < R; ++r) {
#pragma unroll
                    for (int n = 0; n < N; ++n) sums_of_products[r][n] += part[r][n];
                }
            }
        }
#pragma unroll
        for (int r = 0; r < R; ++r) {
            const int64_t row = place.row + top + r * kHigh;
            const int64_t begin = a.first_key(row), end = row < a.rows ? a.end_key(row) : 0;
            A most = -A(INFINITY), scores[N];
#pragma unroll
            for (int n = 0; n < N; ++n) {
                const int64_t key = first + x + n * kWide;
                const bool seen = key >= begin && key < end;
                scores[n] = seen ? sums_of_products[r][n].value * A(a.scale) : -A(INFINITY);
                most = larger(most, scores[n]);
            }
            const A before = soft[r].max;
            soft[r].raise(warp_max(most, kWide));
            const A shift = soft[r].shift(), factor = exponential<T>(before - shift);
#pragma unroll
            for (int n = 0; n < N; ++n) {
                const A p = exponential<T>(scores[n] - shift);
                weights[top + r * kHigh][x + n * kWide] = p;
                soft[r].sum += p;
            }
#pragma unroll
            for (int c = 0; c < C; ++c) sums[r][c] *= factor;
        }
#pragma unroll
        for (int c = 0; c < kCols; c += kTile) {
            if (c >= a.cols) break;
            __syncthreads();
            fetch(right, v + first * a.v.row, a.v.row, keys, c, a.cols);
            __syncthreads();
#pragma unroll 1
            for (int n = 0; n < kTile; n += kShort) {
                A part[R][N] = {};
#pragma unroll
                for (int m = n; m < n + kShort; ++m) {
#pragma unroll
                    for (int r = 0; r < R; ++r) {
#pragma unroll
                        for (int i = 0; i < N; ++i)
                            part[r][i] = fma(
                                weights[top + r * kHigh][m], right[m][x + i * kWide], part[r][i]);
                    }
                }
#pragma unroll
                for (int r = 0; r < R; ++r) {
#pragma unroll
                    for (int i = 0; i < N; ++i) sums[r][c / kWide + i] += part[r][i];
                }
            }
        }
    }

#pragma unroll
    for (int r = 0; r < R; ++r) {
        const A sum = warp_sum(soft[r].sum, kWide);
        const int64_t at = top + r * kHigh, row = place.row + at;
        if (at >= rows) continue;
        const bool sees = a.first_key(row) < a.end_key(row);
        const int64_t line = a.line({place.batch, place.head, row});
#pragma unroll
        for (int c = 0; c < C; ++c) {
            if (x + c * kWide < a.cols)
                y[line * a.cols + x + c * kWide] = T(sees ? sums[r][c] / sum : A(0));
        }
        if (stats && x == 0) save(stats, line, soft[r].max, sum);
    }
}

// ---- launchers. What a version cannot take goes to the one before.

// Does online take it?
inline bool is_narrow(const Attention& a) { return a.cols <= kOnlineMost; }

// Numbers of scratch memory, Acc<T>, that forward needs, and backward.
inline int64_t rows_at_once(const Attention& a) {
    return smaller(a.lines(), kScores / (a.keys + 1) + 1);
}
template <class T>
int64_t attention_forward_scratch(const Attention& a, int64_t version) {
    return version >= kOnline && is_narrow(a) ? 0 : rows_at_once(a) * (a.keys + 1);
}
inline int64_t slices_at_once(const Attention& a) {
    const int64_t of_one = scratch_naive(a);
    return smaller(a.kv_slices(), kScores / (of_one + 1) + 1);
}
template <class T>
int64_t attention_backward_scratch(const Attention& a, int64_t) {
    return a.kv_slices() == 0 ? 0 : slices_at_once(a) * scratch_naive(a);
}

template <class T>
cudaError_t attention_forward(const Attention& a, const T* q, const T* k, const T* v, T* y,
                              Acc<T>* stats, Acc<T>* scratch, int64_t version,
                              cudaStream_t stream) {
    if (a.lines() == 0) return cudaSuccess;
    if (version >= kOnline && is_narrow(a)) {
        const auto kernel = a.cols <= 64    ? forward_online<T, 64>
                            : a.cols <= 128 ? forward_online<T, 128>
                                            : forward_online<T, 256>;
        const int64_t blocks = a.slices() * ceil_div<int64_t>(a.rows, kTile);
        kernel<<<blocks, kOnlineThreads, 0, stream>>>(a, q, k, v, y, stats);
        return cudaGetLastError();
    }
    const int64_t at_once = rows_at_once(a);
    for (int64_t first = 0; first < a.lines(); first += at_once) {
        const int64_t last = smaller(first + at_once, a.lines()), count = last - first;
        const int64_t score_blocks =
            ceil_div<int64_t>(count, kSide) * ceil_div<int64_t>(a.keys, kSide);
        if (score_blocks)
            scores_naive<<<score_blocks, dim3(kSide, kSide), 0, stream>>>(
                a, q, k, scratch, first, last);
        softmax_naive<T>
            <<<ceil_div<int64_t>(count, 128), 128, 0, stream>>>(a, scratch, stats, first, last);
        const int64_t blocks = ceil_div<int64_t>(count, 8) * ceil_div<int64_t>(a.cols, 32);
        if (blocks) values_naive<<<blocks, dim3(32, 8), 0, stream>>>(a, scratch, v, y, first, last);
    }
    return cudaGetLastError();
}

template <class T>
cudaError_t attention_backward(const Attention& a, const T* g, const T* q, const T* k, const T* v,
                               const T* y, const Acc<T>* stats, T* dq, T* dk, T* dv,
                               Acc<T>* scratch, int64_t, cudaStream_t stream) {
    const int64_t slices = a.kv_slices(), at_once = slices ? slices_at_once(a) : 1;
    const int64_t of_slice =
        slices ? ceil_div<int64_t>(a.sharing() * a.rows, kSide) + ceil_div<int64_t>(a.keys, kSide)
               : 0;
    for (int64_t first = 0; first < slices && of_slice && a.cols; first += at_once) {
        const int64_t count = smaller(at_once, slices - first);
        backward_naive<<<count * of_slice, 256, 0, stream>>>(
            a, g, q, k, v, y, stats, dq, dk, dv, scratch, first);
    }
    return cudaGetLastError();
}

#define INSTANTIATE(T)                                                              \
    template decltype(attention_forward_scratch<T>) attention_forward_scratch<T>;   \
    template decltype(attention_forward<T>) attention_forward<T>;                   \
    template decltype(attention_backward_scratch<T>) attention_backward_scratch<T>; \
    template decltype(attention_backward<T>) attention_backward<T>;
FOR_EACH_TYPE(INSTANTIATE)
