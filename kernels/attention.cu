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

enum Version : int64_t { kNaive, kOnline, kMma, kWgmma, kOverlap };  // as in attention.py

// ---- naive: the formula, in three kernels: scores, what their softmax needs, and y. The first and
// the last have a block for each 32 x 32 numbers, and fetch their factors to shared memory in tiles
// of that size; of a block's numbers a thread has four rows, in two columns.
// Flaw: the scores go to memory, and come back twice. So many rows are taken at a time that these
// need no more than kScratch numbers, but that bounds the memory, not the traffic.

constexpr int64_t kScratch = int64_t(1) << 26;  // of a launch, unless the least one needs more
constexpr int kTile = 32, kTileThreads = 128, kShort = 8;
constexpr int kWide = 16, kHigh = kTileThreads / kWide;         // threads of a row, of a column
constexpr int kRows = kTile / kHigh, kColumns = kTile / kWide;  // of a thread

template <class A>
using Tile = A[kTile][kTile + 1];

// Which rows and columns of a tile this thread has.
__device__ inline int tile_row(int r) { return threadIdx.x / kWide + r * kHigh; }
__device__ inline int tile_column(int n) { return threadIdx.x % kWide + n * kWide; }

// Columns from c on of so many rows; what lies past the last row or column is 0.
template <class T, class A>
__device__ void fetch(Tile<A>& tile, const T* from, int64_t stride, int64_t rows, int64_t c,
                      int64_t cols) {
    const int lane = threadIdx.x % kTile;
#pragma unroll
    for (int r = threadIdx.x / kTile; r < kTile; r += kTileThreads / kTile)
        tile[r][lane] = r < rows && c + lane < cols ? A(from[r * stride + c + lane]) : A(0);
}

// Adds 32 terms to each of a thread's sums. term(part, r, n, i) adds number i to a part. Every
// eight terms are added up alone, for short sums round less: so scores have the same bits in all
// kernels here. rows: how many there are, for the simulator, where the others would take time.
template <class A, class Sum, class Term>
__device__ void add_terms(Sum (&sums)[kRows][kColumns], int64_t rows, Term term) {
#pragma unroll 1
    for (int from = 0; from < kTile; from += kShort) {
        A part[kRows][kColumns] = {};
#pragma unroll
        for (int i = from; i < from + kShort; ++i) {
#pragma unroll
            for (int r = 0; r < kRows; ++r) {
                if (!PLAYGROUND_CUDA && r * kHigh >= rows) break;
#pragma unroll
                for (int n = 0; n < kColumns; ++n) part[r][n] = term(part[r][n], r, n, i);
            }
        }
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
#pragma unroll
            for (int n = 0; n < kColumns; ++n) sums[r][n] += part[r][n];
        }
    }
}

// The sums of q times k for a tile: rows from q on, keys from k on.
template <class T>
struct TileScores {
    using A = Acc<T>;
    KahanSum<A> sums[kRows][kColumns];
    A scale;
    __device__ A score(int r, int n) const { return multiply_rn(sums[r][n].value, scale); }
    __device__ TileScores(Tile<A>& left, Tile<A>& right, const Attention& a, const T* q,
                          int64_t rows, const T* k, int64_t keys)
        : scale(A(a.scale)) {
        for (int64_t c = 0; c < a.cols; c += kTile) {
            __syncthreads();
            fetch(left, q, a.q.row, rows, c, a.cols);
            fetch(right, k, a.k.row, keys, c, a.cols);
            __syncthreads();
            add_terms<A>(sums, rows, [&](A part, int r, int n, int i) {
                return fma(left[tile_row(r)][i], right[tile_column(n)][i], part);
            });
        }
    }
};

// A tile of rows: the first of them, and how many there are.
struct RowTile {
    Place place;
    int64_t rows;
    __device__ RowTile(const Attention& a, int64_t tile) {
        const int64_t tiles = ceil_div<int64_t>(a.rows, kTile);
        place = a.place(tile / tiles * a.rows);
        place.row = tile % tiles * kTile;
        rows = smaller<int64_t>(kTile, a.rows - place.row);
    }
    // The keys that any of them sees, the first one rounded down.
    __device__ int64_t first_key(const Attention& a) const {
        return a.first_key(place.row) / kTile * kTile;
    }
    __device__ int64_t end_key(const Attention& a) const { return a.end_key(place.row + rows - 1); }
};

template <class A>
__device__ void save(A* stats, int64_t line, A max, A sum) {
    store(stats + 2 * line, Vec<A, 2>{{max, sum}});
}

// scores [tiles, keys + 2, 32], for tiles of rows from `first` on: so the threads of softmax_naive
// read neighbours. The last two numbers of a row are for its largest score and its sum.
template <class T>
__global__ __launch_bounds__(kTileThreads) void scores_naive(Attention a, const T* q, const T* k,
                                                             Acc<T>* scores, int64_t first) {
    using A = Acc<T>;
    __shared__ Tile<A> left, right;
    const int64_t across = ceil_div<int64_t>(a.keys, kTile);
    const RowTile tile(a, first + blockIdx.x / across);
    const int64_t key = blockIdx.x % across * kTile;
    if (key < tile.first_key(a) || key >= tile.end_key(a)) return;
    const TileScores<T> products(left, right, a, q + a.at(a.q, tile.place), tile.rows,
                                 k + a.key_at(a.k, tile.place, key), a.keys - key);
    __syncthreads();  // turned over in shared memory, so that neighbouring threads write neighbours
    for (int r = 0; r < kRows; ++r) {
        for (int n = 0; n < kColumns; ++n) left[tile_row(r)][tile_column(n)] = products.score(r, n);
    }
    __syncthreads();
    scores += (blockIdx.x / across * (a.keys + 2) + key) * kTile;
    for (int i = threadIdx.x; i < kTile * kTile; i += kTileThreads) {
        if (key + i / kTile < a.keys) scores[i] = left[i % kTile][i / kTile];
    }
}

// The largest score of each row, and the sum of e^(score - largest).
template <class T>
__global__ __launch_bounds__(kTile) void softmax_naive(Attention a, Acc<T>* scores, Acc<T>* stats,
                                                       int64_t first) {
    using A = Acc<T>;
    const RowTile tile(a, first + blockIdx.x);
    if (threadIdx.x >= tile.rows) return;
    Place place = tile.place;
    place.row += threadIdx.x;
    scores += blockIdx.x * (a.keys + 2) * kTile + threadIdx.x;
    OnlineSoftmax<T> soft = OnlineSoftmax<T>::identity();
    const int64_t end = a.end_key(place.row);
#pragma unroll 1
    for (int64_t n = a.first_key(place.row); n < end; ++n) {
        soft.raise(scores[n * kTile]);
        soft.add(scores[n * kTile], soft.shift());
    }
    scores[a.keys * kTile] = soft.shift();
    scores[(a.keys + 1) * kTile] = soft.sum;
    if (stats) save(stats, a.line(place), soft.max, soft.sum);
}

template <class T>
__global__ __launch_bounds__(kTileThreads) void values_naive(Attention a, const Acc<T>* scores,
                                                             const T* v, T* y, int64_t first) {
    using A = Acc<T>;
    __shared__ Tile<A> left, right;
    const int64_t across = ceil_div<int64_t>(a.cols, kTile);
    const RowTile tile(a, first + blockIdx.x / across);
    const int64_t c = blockIdx.x % across * kTile;
    v += a.key_at(a.v, tile.place, 0);
    scores += blockIdx.x / across * (a.keys + 2) * kTile;
    const int lane = threadIdx.x % kTile;
    const A shift = lane < tile.rows ? scores[a.keys * kTile + lane] : A(0);
    KahanSum<A> sums[kRows][kColumns];
    for (int64_t key = tile.first_key(a); key < tile.end_key(a); key += kTile) {
        __syncthreads();
        for (int n = threadIdx.x / kTile; n < kTile; n += kTileThreads / kTile) {
            const bool seen = lane < tile.rows && a.sees(tile.place.row + lane, key + n);
            left[n][lane] = seen ? exponential<T>(scores[(key + n) * kTile + lane] - shift) : A(0);
        }
        fetch(right, v + key * a.v.row, a.v.row, a.keys - key, c, a.cols);
        __syncthreads();
        add_terms<A>(sums, tile.rows, [&](A part, int r, int n, int i) {
            return fma(left[i][tile_row(r)], right[i][tile_column(n)], part);
        });
    }
    for (int r = 0; r < kRows; ++r) {
        if (tile_row(r) >= tile.rows) continue;
        Place place = tile.place;
        place.row += tile_row(r);
        const bool sees = a.first_key(place.row) < a.end_key(place.row);
        const A sum = scores[(a.keys + 1) * kTile + tile_row(r)];
        for (int n = 0; n < kColumns; ++n) {
            if (c + tile_column(n) < a.cols)
                y[a.line(place) * a.cols + c + tile_column(n)] =
                    T(sees ? sums[r][n].value / sum : A(0));
        }
    }
}

// Backward, too, stores what it has for each score. A block has 32 rows, for which it computes dq,
// or 32 keys, for which it computes dk and dv: one launch has both kinds, so that all of them read
// q, k, v, g and y while those are in the L2 cache. No block waits for another one, and none adds
// to what another one writes: the bits are the same on every run. The price is that the scores are
// computed twice.
//
// dp - delta is here the sum of g * (v - y). The rounding of y shows in dq where the rows of k are
// alike, for the ds of a row should add up to 0: what they do add up to is taken off again.

// Numbers of scratch memory for a slice of k and v: p and ds, [rows, keys], of either kind.
__host__ __device__ inline int64_t scratch_naive(const Attention& a) {
    return 4 * a.sharing() * a.rows * a.keys;
}

// p and ds of a tile of rows and keys.
template <class T>
class TileSlopes {
    using A = Acc<T>;
    Tile<A>* tiles_;  // five

  public:
    A p[kRows][kColumns], ds[kRows][kColumns];
    __device__ explicit TileSlopes(Tile<A>* tiles) : tiles_(tiles) {}
    __device__ void find(const Attention& a, const T* g, const T* q, const T* k, const T* v,
                         const T* y, const A* stats, Place place, int64_t rows, int64_t key) {
        Tile<A>&q_tile = tiles_[0], &k_tile = tiles_[1], &g_tile = tiles_[2], &v_tile = tiles_[3],
        &y_tile = tiles_[4];
        q += a.at(a.q, place), g += a.at(a.g, place), y += a.line(place) * a.cols;
        k += a.key_at(a.k, place, key), v += a.key_at(a.v, place, key);
        KahanSum<A> scores[kRows][kColumns], slopes[kRows][kColumns];
        for (int64_t c = 0; c < a.cols; c += kTile) {
            __syncthreads();
            fetch(q_tile, q, a.q.row, rows, c, a.cols);
            fetch(g_tile, g, a.g.row, rows, c, a.cols);
            fetch(y_tile, y, a.cols, rows, c, a.cols);
            fetch(k_tile, k, a.k.row, a.keys - key, c, a.cols);
            fetch(v_tile, v, a.v.row, a.keys - key, c, a.cols);
            __syncthreads();
            add_terms<A>(scores, rows, [&](A part, int r, int n, int i) {
                return fma(q_tile[tile_row(r)][i], k_tile[tile_column(n)][i], part);
            });
            add_terms<A>(slopes, rows, [&](A part, int r, int n, int i) {
                const A off = v_tile[tile_column(n)][i] - y_tile[tile_row(r)][i];
                return fma(g_tile[tile_row(r)][i], off, part);
            });
        }
        for (int r = 0; r < kRows; ++r) {
            const int64_t row = place.row + tile_row(r);
            const bool is_row = tile_row(r) < rows;
            const A* const its = stats + 2 * (a.line(place) + tile_row(r));
            for (int n = 0; n < kColumns; ++n) {
                const bool seen = is_row && a.sees(row, key + tile_column(n));
                // Rounded as forward's is: fused, e^(score - largest) would not fit their sum.
                const A score = multiply_rn(scores[r][n].value, A(a.scale));
                p[r][n] = seen ? exp(score - its[0]) / its[1] : A(0);
                ds[r][n] = seen ? p[r][n] * slopes[r][n].value * A(a.scale) : A(0);
            }
        }
    }
};

// Of the slices of k and v from `first` on. deep: keys of 32 rows, or rows of 32 keys, that find
// room in shared memory together, a multiple of 32.
template <class T>
__global__ __launch_bounds__(kTileThreads) void backward_naive(
    Attention a, const T* g, const T* q, const T* k, const T* v, const T* y, const Acc<T>* stats,
    T* dq, T* dk, T* dv, Acc<T>* scratch, int64_t first, int deep) {
    using A = Acc<T>;
    __shared__ Tile<A> tiles[5];
    extern __shared__ char memory[];
    A* const part_ds = reinterpret_cast<A*>(memory);  // [32, deep] or [deep, 32]
    A* const part_p = part_ds + kTile * deep;
    const int64_t of_head = ceil_div<int64_t>(a.rows, kTile), row_tiles = a.sharing() * of_head;
    const int64_t blocks = row_tiles + ceil_div<int64_t>(a.keys, kTile);
    const int64_t slice = first + blockIdx.x / blocks, block = blockIdx.x % blocks;
    A* p = scratch + (slice - first) * scratch_naive(a);
    A* ds = p + a.sharing() * a.rows * a.keys;
    TileSlopes<T> slopes(tiles);
    if (block < row_tiles) {
        const int64_t row = block / of_head * a.rows + block % of_head * kTile;
        const Place place = a.sharer(slice, row);
        const int64_t rows = smaller<int64_t>(kTile, a.rows - place.row);
        const int64_t begin = a.first_key(place.row) / kTile * kTile;
        const int64_t end = a.end_key(place.row + rows - 1);
        p += row * a.keys, ds += row * a.keys;
        KahanSum<A> excess[kRows];
        for (int64_t key = begin; key < end; key += kTile) {
            slopes.find(a, g, q, k, v, y, stats, place, rows, key);
            for (int r = 0; r < kRows; ++r) {
                for (int n = 0; n < kColumns; ++n) {
                    const int64_t column = key + tile_column(n);
                    if (tile_row(r) >= rows || column >= a.keys) continue;
                    p[tile_row(r) * a.keys + column] = slopes.p[r][n];
                    ds[tile_row(r) * a.keys + column] = slopes.ds[r][n];
                    excess[r] += slopes.ds[r][n];
                }
            }
        }
        __shared__ A excesses[kTile];
        for (int r = 0; r < kRows; ++r) {
            const A sum = warp_sum(excess[r].value, kWide);
            if (threadIdx.x % kWide == 0) excesses[tile_row(r)] = sum;
        }
        for (int64_t c = 0; c < a.cols; c += kTile) {
            KahanSum<A> sums[kRows][kColumns];
            for (int64_t top = begin; top < end; top += deep) {
                const int64_t last = smaller<int64_t>(top + deep, end);
                __syncthreads();
                if (c == 0 || begin + deep < end) {
                    const int across = last - top;
                    for (int64_t i = threadIdx.x; i < kTile * across; i += kTileThreads) {
                        const int64_t r = i / across, key = top + i % across;
                        part_ds[r * deep + i % across] =
                            r < rows ? ds[r * a.keys + key] - p[r * a.keys + key] * excesses[r]
                                     : A(0);
                    }
                }
                for (int64_t key = top; key < last; key += kTile) {
                    __syncthreads();
                    fetch(tiles[0], part_ds + (key - top), deep, kTile, 0, last - key);
                    fetch(tiles[1], k + a.key_at(a.k, place, key), a.k.row, last - key, c, a.cols);
                    __syncthreads();
                    add_terms<A>(sums, rows, [&](A part, int r, int n, int i) {
                        return fma(tiles[0][tile_row(r)][i], tiles[1][i][tile_column(n)], part);
                    });
                }
            }
            for (int r = 0; r < kRows; ++r) {
                for (int n = 0; n < kColumns; ++n) {
                    if (tile_row(r) < rows && c + tile_column(n) < a.cols)
                        dq[(a.line(place) + tile_row(r)) * a.cols + c + tile_column(n)] =
                            T(sums[r][n].value);
                }
            }
        }
    } else {
        p += 2 * a.sharing() * a.rows * a.keys, ds += 2 * a.sharing() * a.rows * a.keys;
        const int64_t key = (block - row_tiles) * kTile;
        const int64_t keys = smaller<int64_t>(kTile, a.keys - key);
        p += key, ds += key;
        // Calls use(row, place, rows) for each tile of rows that sees one of these keys.
        const auto each_tile = [&](int64_t from, int64_t to, auto use) {
            for (int64_t tile = from; tile < smaller(to, row_tiles); ++tile) {
                const int64_t row = tile / of_head * a.rows + tile % of_head * kTile;
                const Place place = a.sharer(slice, row);
                const int64_t rows = smaller<int64_t>(kTile, a.rows - place.row);
                if (a.first_key(place.row) < key + keys && a.end_key(place.row + rows - 1) > key)
                    use(row, place, rows);
            }
        };
        each_tile(0, row_tiles, [&](int64_t row, Place place, int64_t rows) {
            slopes.find(a, g, q, k, v, y, stats, place, rows, key);
            for (int r = 0; r < kRows; ++r) {
                for (int n = 0; n < kColumns; ++n) {
                    if (tile_row(r) >= rows || tile_column(n) >= keys) continue;
                    p[(row + tile_row(r)) * a.keys + tile_column(n)] = slopes.p[r][n];
                    ds[(row + tile_row(r)) * a.keys + tile_column(n)] = slopes.ds[r][n];
                }
            }
        });
        const int at_once = deep / kTile;
        for (int64_t c = 0; c < a.cols; c += kTile) {
            KahanSum<A> of_k[kRows][kColumns], of_v[kRows][kColumns];
            for (int64_t top = 0; top < row_tiles; top += at_once) {
                __syncthreads();
                int place_of = 0;  // of a tile, in shared memory
                if (c == 0 || at_once < row_tiles) {
                    each_tile(top, top + at_once, [&](int64_t row, Place, int64_t rows) {
                        for (int i = threadIdx.x; i < kTile * kTile; i += kTileThreads) {
                            const int r = i / kTile, n = i % kTile;
                            const bool is_there = r < rows && n < keys;
                            const int64_t from = (row + r) * a.keys + n;
                            part_p[place_of * kTile * kTile + i] = is_there ? p[from] : A(0);
                            part_ds[place_of * kTile * kTile + i] = is_there ? ds[from] : A(0);
                        }
                        ++place_of;
                    });
                }
                place_of = 0;
                each_tile(top, top + at_once, [&](int64_t, Place place, int64_t rows) {
                    const A* const its_p = part_p + place_of * kTile * kTile;
                    const A* const its_ds = part_ds + place_of * kTile * kTile;
                    __syncthreads();
                    fetch(tiles[0], q + a.at(a.q, place), a.q.row, rows, c, a.cols);
                    fetch(tiles[1], g + a.at(a.g, place), a.g.row, rows, c, a.cols);
                    __syncthreads();
                    add_terms<A>(of_k, keys, [&](A part, int r, int n, int i) {
                        return fma(
                            its_ds[i * kTile + tile_row(r)], tiles[0][i][tile_column(n)], part);
                    });
                    add_terms<A>(of_v, keys, [&](A part, int r, int n, int i) {
                        return fma(
                            its_p[i * kTile + tile_row(r)], tiles[1][i][tile_column(n)], part);
                    });
                    ++place_of;
                });
            }
            for (int r = 0; r < kRows; ++r) {
                for (int n = 0; n < kColumns; ++n) {
                    if (tile_row(r) >= keys || c + tile_column(n) >= a.cols) continue;
                    const int64_t to =
                        (slice * a.keys + key + tile_row(r)) * a.cols + c + tile_column(n);
                    dk[to] = T(of_k[r][n].value);
                    dv[to] = T(of_v[r][n].value);
                }
            }
        }
    }
}

// ---- online: one pass over tiles of 32 keys. A block has 32 rows and keeps for each the largest
// score so far, the sum of e^(score - largest), and the sum of the same times v; whenever a tile
// raises the largest score, both sums are scaled down (softmax.cuh). Takes up to 256 columns, for
// the sums are in registers; more go to naive. Backward is naive's.
// Flaw: every multiplication reads its factors from shared memory, and no tensor core works.

constexpr int kOnlineMost = 256;

template <class T, int kCols>
__global__ __launch_bounds__(kTileThreads) void forward_online(Attention a, const T* q, const T* k,
                                                               const T* v, T* y, Acc<T>* stats) {
    using A = Acc<T>;
    constexpr int kParts = kCols / kTile;
    __shared__ Tile<A> left, right, weights;
    const RowTile tile(a, blockIdx.x);
    q += a.at(a.q, tile.place);
    k += a.key_at(a.k, tile.place, 0);
    v += a.key_at(a.v, tile.place, 0);

    OnlineSoftmax<T> soft[kRows];  // its sum: over this thread's keys
    for (auto& each : soft) each = OnlineSoftmax<T>::identity();
    A sums[kParts][kRows][kColumns] = {};
    const int64_t last = tile.end_key(a);
    for (int64_t first = tile.first_key(a); first < last; first += kTile) {
        const int64_t keys = a.keys - first;
        const TileScores<T> products(left, right, a, q, tile.rows, k + first * a.k.row, keys);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
            const int64_t row = tile.place.row + tile_row(r);
            const bool is_row = tile_row(r) < tile.rows;
            A scores[kColumns], most = -A(INFINITY);
#pragma unroll
            for (int n = 0; n < kColumns; ++n) {
                const bool seen = is_row && a.sees(row, first + tile_column(n));
                scores[n] = seen ? products.score(r, n) : -A(INFINITY);
                most = larger(most, scores[n]);
            }
            const A before = soft[r].max;
            soft[r].raise(warp_max(most, kWide));
            const A shift = soft[r].shift(), factor = exponential<T>(before - shift);
#pragma unroll
            for (int n = 0; n < kColumns; ++n) {
                const A p = exponential<T>(scores[n] - shift);
                weights[tile_row(r)][tile_column(n)] = p;
                soft[r].sum += p;
            }
#pragma unroll
            for (int c = 0; c < kParts; ++c) {
#pragma unroll
                for (int n = 0; n < kColumns; ++n) sums[c][r][n] *= factor;
            }
        }
#pragma unroll
        for (int c = 0; c < kParts; ++c) {
            if (c * kTile >= a.cols) break;
            __syncthreads();
            fetch(right, v + first * a.v.row, a.v.row, keys, c * kTile, a.cols);
            __syncthreads();
            add_terms<A>(sums[c], tile.rows, [&](A part, int r, int n, int i) {
                return fma(weights[tile_row(r)][i], right[i][tile_column(n)], part);
            });
        }
    }

#pragma unroll
    for (int r = 0; r < kRows; ++r) {
        const A sum = warp_sum(soft[r].sum, kWide);
        if (tile_row(r) >= tile.rows) continue;
        Place place = tile.place;
        place.row += tile_row(r);
        const bool sees = a.first_key(place.row) < a.end_key(place.row);
#pragma unroll
        for (int c = 0; c < kParts; ++c) {
#pragma unroll
            for (int n = 0; n < kColumns; ++n) {
                const int column = c * kTile + tile_column(n);
                if (column < a.cols)
                    y[a.line(place) * a.cols + column] = T(sees ? sums[c][r][n] / sum : A(0));
            }
        }
        if (stats && threadIdx.x % kWide == 0) save(stats, a.line(place), soft[r].max, sum);
    }
}

// ---- mma: the same on tensor cores, whose products stay in registers as factors of the next ones.
// Takes 16-bit floats, up to 256 columns, a multiple of 8. Backward is its own from here on: one
// kernel for dq, and one for dk and dv. Flaw: on Hopper, mma.sync reaches a third of the tensor
// cores' speed, and each warp copies and reads every tile for itself.
//
// ---- wgmma: tensor cores that read shared memory, which TMA fills; a warpgroup of its own asks
// for it. Backward takes up to 128 columns. Flaw: a warpgroup's products wait for its powers.
//
// ---- overlap: the next tile's scores are multiplied while powers of this one are taken. What is
// left: backward computes the scores twice (docs/attention.md).

#include "attention_wgmma.cuh"

// ---- launchers. What a version cannot take goes to the one before.

inline int64_t row_tiles(const Attention& a) {
    return a.slices() * ceil_div<int64_t>(a.rows, kTile);
}

// How many tiles of rows, or slices of k and v, naive takes at once.
inline int64_t forward_at_once(const Attention& a) {
    return smaller(row_tiles(a), kScratch / ((a.keys + 2) * kTile) + 1);
}
inline int64_t backward_at_once(const Attention& a) {
    return a.kv_slices() ? smaller(a.kv_slices(), kScratch / (scratch_naive(a) + 1) + 1) : 0;
}

// May a version with tensor cores take it, as far as sizes and addresses go?
template <class T, class... P>
bool can_take_mma(const Attention& a, int64_t version, const T* p, const P*... more) {
    return sizeof(T) == 2 && version >= kMma && takes_tensor_cores(a) && is_aligned(p, more...);
}
inline bool takes_online(const Attention& a, int64_t version) {
    return version >= kOnline && a.cols <= kOnlineMost;
}

// Calls f with the number of columns that tensor cores take so many for.
template <class F>
auto for_columns(int64_t cols, F f) {
    if (cols <= 64) return f(std::integral_constant<int, 64>());
    if (cols <= 128) return f(std::integral_constant<int, 128>());
    return f(std::integral_constant<int, 256>());
}

// The version whose kernels run backward.
template <class T>
int64_t backward_version(const Attention& a, int64_t version, const T* g, const T* q, const T* k,
                         const T* v, const T* y) {
    if constexpr (sizeof(T) == 2) {
        const auto can = [&](auto cols) { return can_backward_mma<T, cols.value>(); };
        if (can_take_mma(a, version, g, q, k, v, y) && for_columns(a.cols, can)) {
            const bool has =
                a.cols <= 64 ? can_backward_wgmma<T, 64>() : can_backward_wgmma<T, 128>();
            return version >= kWgmma && a.cols <= 128 && has ? kWgmma : kMma;
        }
    }
    return kNaive;
}

// Numbers of scratch memory, Acc<T>, that forward needs, and backward.
template <class T>
int64_t attention_forward_scratch(const Attention& a, int64_t version) {
    return takes_online(a, version) ? 0 : forward_at_once(a) * (a.keys + 2) * kTile;
}
template <class T>
int64_t attention_backward_scratch(const Attention& a, const T* g, const T* q, const T* k,
                                   const T* v, const T* y, int64_t version) {
    if (backward_version(a, version, g, q, k, v, y) >= kMma)
        return 2 * a.slices() * infos_of_slice(a);
    return backward_at_once(a) * scratch_naive(a);
}

template <class T>
cudaError_t attention_forward(const Attention& a, const T* q, const T* k, const T* v, T* y,
                              Acc<T>* stats, Acc<T>* scratch, int64_t version,
                              cudaStream_t stream) {
    const int64_t tiles = row_tiles(a);
    if (tiles == 0) return cudaSuccess;
    if constexpr (sizeof(T) == 2) {
        const auto launch = [&](auto cols) {
            if (version >= kOverlap &&
                launch_forward_wgmma<T, cols.value, true>(a, q, k, v, y, stats, stream))
                return true;
            if (version >= kWgmma &&
                launch_forward_wgmma<T, cols.value, false>(a, q, k, v, y, stats, stream))
                return true;
            return launch_forward_mma<T, cols.value>(a, q, k, v, y, stats, stream);
        };
        if (can_take_mma(a, version, q, k, v, y) && for_columns(a.cols, launch))
            return cudaGetLastError();
    }
    if (takes_online(a, version)) {
        const auto kernel = a.cols <= 64    ? forward_online<T, 64>
                            : a.cols <= 128 ? forward_online<T, 128>
                                            : forward_online<T, 256>;
        kernel<<<tiles, kTileThreads, 0, stream>>>(a, q, k, v, y, stats);
        return cudaGetLastError();
    }
    const int64_t across = ceil_div<int64_t>(a.keys, kTile);
    const int64_t parts = ceil_div<int64_t>(a.cols, kTile);
    for (int64_t first = 0; first < tiles; first += forward_at_once(a)) {
        const int64_t count = smaller(forward_at_once(a), tiles - first);
        if (across)
            scores_naive<<<count * across, kTileThreads, 0, stream>>>(a, q, k, scratch, first);
        softmax_naive<T><<<count, kTile, 0, stream>>>(a, scratch, stats, first);
        if (parts)
            values_naive<<<count * parts, kTileThreads, 0, stream>>>(a, scratch, v, y, first);
    }
    return cudaGetLastError();
}

// deep of backward_naive: what finds room, and no more than is needed.
template <class T>
int depth(const Attention& a) {
    const int64_t row = 2 * kTile * sizeof(Acc<T>), fixed = 5 * sizeof(Tile<Acc<T>>) + 1024;
    const int64_t room = smaller<int64_t>((shared_bytes() - fixed) / row, 512);
    const int64_t rows = a.sharing() * (ceil_div<int64_t>(a.rows, kTile) * kTile);
    const int64_t most = a.keys > rows ? ceil_div<int64_t>(a.keys, kTile) * kTile : rows;
    return smaller(most, room / kTile * kTile);
}

template <class T>
cudaError_t attention_backward(const Attention& a, const T* g, const T* q, const T* k, const T* v,
                               const T* y, const Acc<T>* stats, T* dq, T* dk, T* dv,
                               Acc<T>* scratch, int64_t version, cudaStream_t stream) {
    if constexpr (sizeof(T) == 2) {
        const int64_t its = backward_version(a, version, g, q, k, v, y);
        if (its >= kMma) {
            for_columns(a.cols, [&](auto cols) {
                if constexpr (cols.value <= 128) {
                    if (its == kWgmma && launch_backward_wgmma<T, cols.value>(
                                             a, g, q, k, v, y, stats, scratch, dq, dk, dv, stream))
                        return;
                }
                launch_backward_mma<T, cols.value>(
                    a, g, q, k, v, y, stats, scratch, dq, dk, dv, stream);
            });
            return cudaGetLastError();
        }
    }
    const int64_t slices = a.kv_slices();
    if (slices == 0 || a.cols == 0) return cudaSuccess;
    const int64_t blocks =
        a.sharing() * ceil_div<int64_t>(a.rows, kTile) + ceil_div<int64_t>(a.keys, kTile);
    if (blocks == 0) return cudaSuccess;
    const int deep = depth<T>(a), bytes = 2 * kTile * deep * sizeof(Acc<T>);
    cudaFuncSetAttribute(backward_naive<T>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    for (int64_t first = 0; first < slices; first += backward_at_once(a)) {
        const int64_t count = smaller(backward_at_once(a), slices - first);
        backward_naive<<<count * blocks, kTileThreads, bytes, stream>>>(
            a, g, q, k, v, y, stats, dq, dk, dv, scratch, first, deep);
    }
    return cudaGetLastError();
}

#define INSTANTIATE(T)                                                              \
    template decltype(attention_forward_scratch<T>) attention_forward_scratch<T>;   \
    template decltype(attention_forward<T>) attention_forward<T>;                   \
    template decltype(attention_backward_scratch<T>) attention_backward_scratch<T>; \
    template decltype(attention_backward<T>) attention_backward<T>;
FOR_EACH_TYPE(INSTANTIATE)
