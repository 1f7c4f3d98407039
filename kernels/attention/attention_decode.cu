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
    A* const accum = reinterpret_cast<A*>(memory);  // [cols]
    const int64_t line = blockIdx.x, slice = line / d.queries, query = line % d.queries;
    const int64_t batch = slice / d.heads, head = slice % d.heads, kv_head = head / d.group();
    const int64_t length = d.length(batch);
    q += batch * d.q.batch + head * d.q.head + query * d.q.row;
    for (int64_t c = threadIdx.x; c < d.cols; c += kThreads) accum[c] = 0;
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
            accum[c] = accum[c] * factor + sum;
        }
    }
    for (int64_t c = threadIdx.x; c < d.cols; c += kThreads) {
        const bool sees = d.first_key(length, query) < end;
        const A mean = sees ? accum[c] / soft.sum : A(0);
        y[line * d.cols + c] = T(length < 0 ? A(NAN) : mean);
    }
}

// ---- split: split-KV. The rows of q that share a head of k and v (its group's heads, with their
// queries) are in one block, which reads k and v once for up to kRows of them. The tokens of a
// sequence are cut into `splits` equal ranges, with a block for each: it writes accumulators, their
// largest score and their sum of exponentials to `partials`, and a second kernel combines those in
// a fixed order.
//
// kLanes lanes of a warp read a row of k or v, 16 bytes each, and process every n-th key alone,
// with kAtOnce keys in flight: with eight rows and four keys, registers would spill.
// Flaw: the
// arithmetic of a key takes twice as long as memory takes to load it.

// warp_sum over each group of kLanes lanes, without the steps that add nothing, because it runs for
// every key.
template <int kLanes>
__device__ float lanes_sum(float value) {
#pragma unroll
    for (int bit = kLanes / 2; bit > 0; bit /= 2) value += __shfl_xor_sync(0xffffffff, value, bit);
    return value;
}

template <class T, int kRows>
struct RowPartial {
    static constexpr int V = kVec<T>;
    float accum[kRows][V] = {};
    OnlineSoftmax<T> soft[kRows];

    // Combines with another lane that has the same columns, whose number differs in one bit.
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
                accum[r][c] *= factor;
                accum[r][c] += __shfl_xor_sync(0xffffffff, accum[r][c], bit);
            }
        }
    }
};

template <class T, int kLanes, int kRows>
__global__ __launch_bounds__(kThreads) void decode_split(
    Decode d, const T* q, const T* k, const T* v, T* y, float* partials, int splits) {
    constexpr int V = kVec<T>, kSeats = kThreads / kLanes, kCols = kLanes * V;
    constexpr int kAtOnce = kRows > 4 ? 2 : 4;
    __shared__ WarpPartial<T, kRows, kCols> warps[kWarps];
    const int lane = threadIdx.x % kLanes, seat = threadIdx.x / kLanes, column = lane * V;
    const bool has_columns = column < d.cols;
    const KvSplit kv(d, kRows, splits);
    const int64_t begin = kv.begin, end = kv.end;

    float query[kRows][V] = {};
    int64_t first_key[kRows], end_key[kRows];
    RowPartial<T, kRows> mine;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
        const int64_t row = smaller<int64_t>(r, kv.rows - 1);
        first_key[r] = d.first_key(kv.length, kv.query(d, row));
        end_key[r] = d.end_key(kv.length, kv.query(d, row));
        mine.soft[r] = OnlineSoftmax<T>::identity();
        if (!has_columns) continue;
        const Vec<T, V> columns = load<V>(q + kv.row_of_q(d, row) + column);
#pragma unroll
        for (int c = 0; c < V; ++c) query[r][c] = columns[c];
    }

    for (int64_t from = begin; from < end; from += kSeats * kAtOnce) {
        Vec<T, V> k_rows[kAtOnce] = {}, v_rows[kAtOnce] = {};
        bool exists[kAtOnce];
#pragma unroll
        for (int u = 0; u < kAtOnce; ++u) {
            const int64_t key = from + u * kSeats + seat;
            const Token token = key < end ? d.token(kv.batch, key) : Token{-1, 0};
            exists[u] = key >= end || token.page >= 0;
            if (token.page < 0 || !has_columns) continue;
            k_rows[u] = load<V>(k + d.at(d.k, kv.kv_head, token) + column);
            v_rows[u] = load<V>(v + d.at(d.v, kv.kv_head, token) + column);
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
                    product = fmaf(query[r][c], float(k_rows[u][c]), product);
                product = lanes_sum<kLanes>(product) * float(d.scale);
                const int64_t key = from + u * kSeats + seat;
                const bool sees = key < end && key >= first_key[r] && key < end_key[r];
                scores[u] = !sees ? -INFINITY : exists[u] ? product : NAN;
                soft.max = larger(soft.max, scores[u]);
            }
            const float shift = soft.shift(), factor = exponential<T>(before - shift);
            soft.sum *= factor;
#pragma unroll
            for (int c = 0; c < V; ++c) mine.accum[r][c] *= factor;
#pragma unroll
            for (int u = 0; u < kAtOnce; ++u) {
                const float power = exponential<T>(scores[u] - shift);
                soft.sum += power;
#pragma unroll
                for (int c = 0; c < V; ++c)
                    mine.accum[r][c] = fmaf(power, float(v_rows[u][c]), mine.accum[r][c]);
            }
        }
    }

#pragma unroll
    for (int bit = kLanes; bit < kWarp; bit *= 2) mine.combine_lanes(bit);
    if (threadIdx.x % kWarp < kLanes) {
        auto& partial = warps[threadIdx.x / kWarp];
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
            if (lane == 0) partial.soft[r] = mine.soft[r];
#pragma unroll
            for (int c = 0; c < V; ++c) partial.accum[r][column + c] = mine.accum[r][c];
        }
    }
    __syncthreads();
    launch_dependents();
    kv.combine_warps<WarpPartial<T, kRows, kCols>>(
        d, reinterpret_cast<const char*>(warps), sizeof(warps[0]), partials, y, splits);
}

// ---- launchers

template <class T>
using DecodeKernel = void (*)(Decode, const T*, const T*, const T*, T*, Acc<T>*, int);

// The launch plan of a call.
template <class T>
struct DecodePlan {
    DecodeKernel<T> kernel = nullptr;  // null: only the naive version takes it
    int rows = 0;                      // of q, of a block
    int warps = kWarps, bytes = 0;     // of a block
    int splits = 1;

    static DecodePlan of(const Decode& d, int64_t version, const T* q, const T* k, const T* v) {
        DecodePlan plan;
        if constexpr (kHasVectors<T>) {
            constexpr int V = kVec<T>;
            bool fits = version >= kSplit && d.lines() > 0 && is_aligned(q, k, v);
            fits = fits && d.cols % V == 0 && d.cols <= kWarp * V;
            const Strides all[] = {d.q, d.k, d.v};
            for (const Strides& strides : all)
                fits = fits && (strides.batch | strides.head | strides.row) % V == 0;
            if (!fits) return plan;
            if constexpr (sizeof(T) == 2) {
                // The largest product has to be the largest score.
                if (version >= kMma && d.scale > 0 &&
                    (plan.template plan_mma<64>(d) || plan.template plan_mma<128>(d) ||
                     plan.template plan_mma<256>(d)))
                    return plan;
            }
            plan.plan_split(d);
        }
        return plan;
    }

    int64_t blocks(const Decode& d) const {
        return d.batches * d.kv_heads * ceil_div<int64_t>(d.rows(), rows) * splits;
    }

  private:
    // With fewer heads of k and v than multiprocessors, each multiprocessor has one block with as
    // many warps as fit. With more, each head has a block, several are resident, and nothing has to
    // be combined.
    template <int kCols>
    bool plan_mma(const Decode& d) {
        using S = MmaDecode<kCols>;
        if (d.cols > kCols) return false;
        const auto mma = d.table ? decode_mma<T, kCols, true> : decode_mma<T, kCols, false>;
        rows = S::kRows;
        warps = blocks(d) > multiprocessors() ? kWarps : S::kMostWarps;
        while (warps > 0 && !has_mma(mma, S::bytes(warps))) warps /= 2;
        if (warps == 0) return false;
        kernel = mma, bytes = S::bytes(warps);
        split(d, multiprocessors(), S::kTokens * warps);
        return true;
    }
    void plan_split(const Decode& d) {
        warps = kWarps, bytes = 0;
        rows = d.rows() == 1 ? 1 : d.rows() <= 4 ? 4 : 8;
        const auto of_rows = [&](auto lanes) {
            return rows == 1   ? decode_split<T, lanes.value, 1>
                   : rows == 4 ? decode_split<T, lanes.value, 4>
                               : decode_split<T, lanes.value, 8>;
        };
        const int64_t lanes = d.cols / kVec<T>;
        kernel = lanes <= 8    ? of_rows(std::integral_constant<int, 8>())
                 : lanes <= 16 ? of_rows(std::integral_constant<int, 16>())
                               : of_rows(std::integral_constant<int, 32>());
        split(d, 16 * multiprocessors(), 256);
    }
    // Splits of at least so many tokens, for so many blocks.
    void split(const Decode& d, int64_t wanted, int64_t least) {
        const int64_t each = wanted / blocks(d), most = d.tokens / least;
        splits = int(each < 1 || most < 1 ? 1 : smaller(each, most));
    }
};

template <class T>
int64_t attention_decode_scratch(const Decode& d, const T* q, const T* k, const T* v,
                                 int64_t version) {
    const auto plan = DecodePlan<T>::of(d, version, q, k, v);
    return plan.splits > 1 ? plan.blocks(d) * partial_floats(d, plan.rows) : 0;
}

template <class T>
cudaError_t attention_decode(const Decode& d, const T* q, const T* k, const T* v, T* y,
                             Acc<T>* partials, int64_t version, cudaStream_t stream) {
    if (d.lines() == 0 || d.cols == 0) return cudaSuccess;
    if constexpr (kHasVectors<T>) {
        const auto plan = DecodePlan<T>::of(d, version, q, k, v);
        if (plan.kernel) {
            plan.kernel<<<plan.blocks(d), plan.warps * kWarp, plan.bytes, stream>>>(
                d, q, k, v, y, partials, plan.splits);
            if (plan.splits > 1)
                launch_secondary(decode_combine<T>, 1, unsigned(d.lines()), dim3(kCombineThreads),
                                 stream, d, partials, y, plan.splits, plan.rows);
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
