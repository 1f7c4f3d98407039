// attention_decode: y = softmax(q k^T * scale) v for a few queries of each sequence against a cache
//
//   q, y [batches, heads, queries, cols] T
//   k, v [batches, kv_heads, tokens, cols] T             in any strides, or in pages:
//        [pages, page_size, kv_heads, cols] T            token n of a sequence is in the page that
//        table [batches, max_pages] int32                number n / page_size of its line names
//   lengths [batches] int32 or int64                     tokens of each sequence; without, all
//
// The queries are the last tokens: of L tokens, query r sees those up to L - queries + r, and with
// a window no more than `left` before that one. A query that sees none has y = 0. A length that is
// not from 0 to the number of tokens, or a page that does not exist, is never read from: it makes y
// NaN.
//
// Traffic, the least a kernel can move: k and v once. Arithmetic: 4 * group * queries operations
// for two elements of them, group = heads / kv_heads. With a group of 4 and one query that is 4
// operations a byte in bfloat16.

#include "attention_decode_mma.cuh"

enum Version : int64_t { kNaive, kSplit, kMma };  // as in attention_decode.py

// ---- naive: a block for each query of each head, which takes 128 keys at a time: a thread has a
// key of theirs, and then columns of y.
// Flaw: the heads of a group all read the same k and v, each thread reads rows of its own, and a
// batch of one sequence has no more blocks than heads.

template <class T>
__global__ __launch_bounds__(kThreads) void decode_naive(Decode d, const T* q, const T* k,
                                                         const T* v, T* y) {
    using A = Acc<T>;
    __shared__ A powers[kThreads];
    __shared__ int64_t places[kThreads];  // of rows of v, -1 where there is none
    extern __shared__ char memory[];
    A* const sums = reinterpret_cast<A*>(memory);  // [cols]
    const int64_t line = blockIdx.x, slice = line / d.queries, query = line % d.queries;
    const int64_t batch = slice / d.heads, head = slice % d.heads, kv_head = head / d.group();
    const int64_t length = d.length(batch);
    q += batch * d.q.batch + head * d.q.head + query * d.q.row;
    for (int64_t c = threadIdx.x; c < d.cols; c += kThreads) sums[c] = 0;
    OnlineSoftmax<T> soft = OnlineSoftmax<T>::identity();
    const int64_t end = d.end_key(length, query);
    for (int64_t first = d.first_key(length, query); first < end; first += kThreads) {
        const int64_t key = first + threadIdx.x;
        A score = -A(INFINITY);
        __syncthreads();
        places[threadIdx.x] = -1;
        if (key < end) {
            const int64_t at = d.at(d.k, batch, kv_head, key);
            KahanSum<A> product;
            for (int64_t c = 0; at >= 0 && c < d.cols; ++c) product += A(q[c]) * A(k[at + c]);
            score = at < 0 ? A(NAN) : product.value * A(d.scale);
            places[threadIdx.x] = d.at(d.v, batch, kv_head, key);
        }
        powers[threadIdx.x] = score;
        __syncthreads();
        const A before = soft.max;
        for (int n = 0; n < kThreads; ++n) soft.max = larger(soft.max, powers[n]);
        __syncthreads();
        powers[threadIdx.x] = exponential<T>(score - soft.shift());
        __syncthreads();
        const A factor = exponential<T>(before - soft.shift());
        A more = 0;
        for (int n = 0; n < kThreads; ++n) more += powers[n];
        soft.sum = soft.sum * factor + more;
        for (int64_t c = threadIdx.x; c < d.cols; c += kThreads) {
            A sum = 0;
            for (int n = 0; n < kThreads && first + n < end; ++n)
                sum = fma(powers[n], places[n] < 0 ? A(0) : A(v[places[n] + c]), sum);
            sums[c] = sums[c] * factor + sum;
        }
    }
    for (int64_t c = threadIdx.x; c < d.cols; c += kThreads) {
        const A mean = soft.sum == 0 ? A(0) : sums[c] / soft.sum;
        y[line * d.cols + c] = T(length < 0 ? A(NAN) : mean);
    }
}

// ---- split: the rows of q that share a head of k and v (its group's heads, with their queries)
// are in one block, which reads k and v once for up to kRows of them. The tokens of a sequence are
// cut into `splits` parts of one length, with a block for each: it writes sums, their largest score
// and their sum of powers to `parts`, and a second kernel combines those in a fixed order.
//
// kLanes lanes of a warp read a row of k or v, a vector of 16 bytes each, and go through every so
// many keys alone, kAtOnce of them at a time, which are in flight together: of eight rows with four
// keys, registers would spill.
// Flaw: the products of a key take its lanes twice as long as memory takes to bring it.

// warp_sum over each group of kLanes lanes, without the steps that add nothing: it is done for
// every key.
template <int kLanes>
__device__ float lanes_sum(float value) {
#pragma unroll
    for (int bit = kLanes / 2; bit > 0; bit /= 2) value += __shfl_xor_sync(0xffffffff, value, bit);
    return value;
}

template <class T, int kRows>
struct RowSums {
    static constexpr int V = kVec<T>;
    float sums[kRows][V] = {};
    OnlineSoftmax<T> soft[kRows];

    // Takes in the same columns of another lane, whose number differs in one bit.
    __device__ void combine_lanes(int bit) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
            const float max = __shfl_xor_sync(0xffffffff, soft[r].max, bit);
            const float all = larger(soft[r].max, max);
            const float factor = OnlineSoftmax<T>::scale(soft[r].max, all);
            soft[r].sum *= factor;
            soft[r].sum += __shfl_xor_sync(0xffffffff, soft[r].sum, bit);
            soft[r].max = all;
#pragma unroll
            for (int c = 0; c < V; ++c) {
                sums[r][c] *= factor;
                sums[r][c] += __shfl_xor_sync(0xffffffff, sums[r][c], bit);
            }
        }
    }
};

template <class T, int kLanes, int kRows>
__global__ __launch_bounds__(kThreads) void decode_split(
    Decode d, const T* q, const T* k, const T* v, T* y, float* parts, int splits) {
    constexpr int V = kVec<T>, kSeats = kThreads / kLanes, kCols = kLanes * V;
    constexpr int kAtOnce = kRows > 4 ? 2 : 4;
    __shared__ float warps_sums[kWarps][kRows][kCols];
    __shared__ OnlineSoftmax<T> warps_soft[kWarps][kRows];
    const int lane = threadIdx.x % kLanes, seat = threadIdx.x / kLanes, column = lane * V;
    const bool has_columns = column < d.cols;
    const DecodePart part(d, kRows, splits);
    const int64_t begin = part.begin, end = part.end;

    float query[kRows][V] = {};
    int64_t first_key[kRows], end_key[kRows];
    RowSums<T, kRows> mine;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
        const int64_t row = smaller<int64_t>(r, part.rows - 1);
        first_key[r] = d.first_key(part.length, part.query(d, row));
        end_key[r] = d.end_key(part.length, part.query(d, row));
        mine.soft[r] = OnlineSoftmax<T>::identity();
        if (!has_columns) continue;
        const Vec<T, V> its = load<V>(q + part.row_of_q(d, row) + column);
#pragma unroll
        for (int c = 0; c < V; ++c) query[r][c] = its[c];
    }

    for (int64_t from = begin; from < end; from += kSeats * kAtOnce) {
        Vec<T, V> its_k[kAtOnce] = {}, its_v[kAtOnce] = {};
        bool exists[kAtOnce];
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u) {
            const int64_t key = from + u * kSeats + seat;
            const Token token = key < end ? d.token(part.batch, key) : Token{-1, 0};
            exists[u] = key >= end || token.page >= 0;
            if (token.page < 0 || !has_columns) continue;
            its_k[u] = load<V>(k + d.at(d.k, part.kv_head, token) + column);
            its_v[u] = load<V>(v + d.at(d.v, part.kv_head, token) + column);
        }
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
            float scores[kAtOnce];
            OnlineSoftmax<T>& soft = mine.soft[r];
            const float before = soft.max;
#pragma unroll
            for (int u = 0; u < kAtOnce; ++u) {
                float product = 0;
#pragma unroll
                for (int c = 0; c < V; ++c)
                    product = fmaf(query[r][c], float(its_k[u][c]), product);
                product = lanes_sum<kLanes>(product) * float(d.scale);
                const int64_t key = from + u * kSeats + seat;
                const bool sees = key < end && key >= first_key[r] && key < end_key[r];
                scores[u] = !sees ? -INFINITY : exists[u] ? product : NAN;
                soft.max = larger(soft.max, scores[u]);
            }
            const float shift = soft.shift(), factor = exponential<T>(before - shift);
            soft.sum *= factor;
#pragma unroll
            for (int c = 0; c < V; ++c) mine.sums[r][c] *= factor;
#pragma unroll
            for (int u = 0; u < kAtOnce; ++u) {
                const float power = exponential<T>(scores[u] - shift);
                soft.sum += power;
#pragma unroll
                for (int c = 0; c < V; ++c)
                    mine.sums[r][c] = fmaf(power, float(its_v[u][c]), mine.sums[r][c]);
            }
        }
    }

#pragma unroll
    for (int bit = kLanes; bit < kWarp; bit *= 2) mine.combine_lanes(bit);
    if (threadIdx.x % kWarp < kLanes) {
        const int warp = threadIdx.x / kWarp;
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
            if (lane == 0) warps_soft[warp][r] = mine.soft[r];
#pragma unroll
            for (int c = 0; c < V; ++c) warps_sums[warp][r][column + c] = mine.sums[r][c];
        }
    }
    __syncthreads();
    launch_dependents();
    part.finish(d, warps_sums, warps_soft, parts, y, splits);
}

// ---- launchers

// Columns of the kernel by mma.sync that takes this call; 0: there is none.
template <class T>
int cols_of_mma(const Decode& d, int64_t version) {
    if constexpr (sizeof(T) == 2) {
        const auto can = [&](auto kernel, int bytes, int cols) {
            return d.cols <= cols && has_mma(kernel, bytes) ? cols : 0;
        };
        if (version < kMma || !(d.scale > 0)) return 0;  // the largest product is the largest score
        if (d.cols <= 64) return can(decode_mma<T, 64>, MmaDecode<64>::kBytes, 64);
        if (d.cols <= 128) return can(decode_mma<T, 128>, MmaDecode<128>::kBytes, 128);
        return can(decode_mma<T, 256>, MmaDecode<256>::kBytes, 256);
    }
    return 0;
}

// How a call is cut; rows is 0 if its rows do not consist of whole, aligned vectors, or not of so
// few, which only the naive version takes.
struct Cut {
    int mma_cols = 0;  // of the kernel by mma.sync; 0: it is the other one
    int rows = 0;      // of q, of a block
    int splits = 1;

    template <class T>
    static Cut of(const Decode& d, int64_t version, const T* q, const T* k, const T* v) {
        constexpr int V = kVec<T>;
        bool fits = version >= kSplit && kHasVectors<T> && d.lines() > 0 && is_aligned(q, k, v);
        fits = fits && d.cols % V == 0 && d.cols <= kWarp * V;
        const Strides all[] = {d.q, d.k, d.v};
        for (const Strides& strides : all)
            fits = fits && (strides.batch | strides.head | strides.row) % V == 0;
        Cut cut;
        if (!fits) return cut;
        cut.mma_cols = cols_of_mma<T>(d, version);
        cut.rows = cut.mma_cols ? 16 : d.rows() == 1 ? 1 : d.rows() <= 4 ? 4 : 8;
        // Blocks for each multiprocessor: some 16; or of those by mma.sync, of which it has two at
        // a time, as many as end at the same time.
        const int64_t each = cut.mma_cols ? 2 : 16, least = cut.mma_cols ? 64 : 256;
        const int64_t wanted = each * multiprocessors() / cut.blocks(d), most = d.tokens / least;
        cut.splits = int(wanted < 1 || most < 1 ? 1 : smaller(wanted, most));
        return cut;
    }
    int64_t blocks(const Decode& d) const {
        return d.batches * d.kv_heads * ceil_div<int64_t>(d.rows(), rows) * splits;
    }
};

template <class T>
int64_t attention_decode_scratch(const Decode& d, const T* q, const T* k, const T* v,
                                 int64_t version) {
    const Cut cut = Cut::of(d, version, q, k, v);
    return cut.splits > 1 ? cut.blocks(d) * part_numbers(d, cut.rows) : 0;
}

template <class T>
auto split_kernel(const Decode& d, int rows) {
    const auto of_rows = [&](auto lanes) {
        return rows == 1   ? decode_split<T, lanes.value, 1>
               : rows == 4 ? decode_split<T, lanes.value, 4>
                           : decode_split<T, lanes.value, 8>;
    };
    const int64_t lanes = d.cols / kVec<T>;
    return lanes <= 8    ? of_rows(std::integral_constant<int, 8>())
           : lanes <= 16 ? of_rows(std::integral_constant<int, 16>())
                         : of_rows(std::integral_constant<int, 32>());
}

template <class T>
cudaError_t attention_decode(const Decode& d, const T* q, const T* k, const T* v, T* y,
                             Acc<T>* parts, int64_t version, cudaStream_t stream) {
    if (d.lines() == 0 || d.cols == 0) return cudaSuccess;
    if constexpr (kHasVectors<T>) {
        const Cut cut = Cut::of(d, version, q, k, v);
        if (cut.rows > 0) {
            auto kernel = split_kernel<T>(d, cut.rows);
            int bytes = 0;
            if constexpr (sizeof(T) == 2) {
                if (cut.mma_cols == 64) kernel = decode_mma<T, 64>, bytes = MmaDecode<64>::kBytes;
                if (cut.mma_cols == 128)
                    kernel = decode_mma<T, 128>, bytes = MmaDecode<128>::kBytes;
                if (cut.mma_cols == 256)
                    kernel = decode_mma<T, 256>, bytes = MmaDecode<256>::kBytes;
            }
            kernel<<<cut.blocks(d), kThreads, bytes, stream>>>(d, q, k, v, y, parts, cut.splits);
            if (cut.splits > 1)
                launch_secondary(decode_combine<T>, 1, unsigned(d.lines()), dim3(kThreads), stream,
                                 d, parts, y, cut.splits, cut.rows);
            return cudaGetLastError();
        }
    }
    const int64_t bytes = d.cols * sizeof(Acc<T>);
    decode_naive<<<d.lines(), kThreads, bytes, stream>>>(d, q, k, v, y);
    return cudaGetLastError();
}

#define INSTANTIATE(T)                                                          \
    template decltype(attention_decode_scratch<T>) attention_decode_scratch<T>; \
    template decltype(attention_decode<T>) attention_decode<T>;
FOR_EACH_TYPE(INSTANTIATE)
