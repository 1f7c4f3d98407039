// The naive version of attention. attention.cu says what T, y and stats are, and has the formulas.
#pragma once

#include "attention_call.cuh"
#include "softmax.cuh"

// ---- naive: the formula, in three kernels: the scores, the softmax statistics, and y. The first
// and the last kernel have a block for each tile of 32 x 32 results, and load their operands to
// shared memory in tiles of that size. A thread computes four rows of two columns. Flaw: the scores
// are written to memory and read twice. A launch takes only as many rows as keep the scores below
// kScratch numbers, but that bounds the memory, not the traffic.

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
__device__ void add_terms(Sum (&accum)[kRows][kColumns], int64_t rows, Term term) {
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
            for (int n = 0; n < kColumns; ++n) accum[r][n] += part[r][n];
        }
    }
}

// The sums of q times k for a tile: rows from q on, keys from k on.
template <class T, class Call>
struct TileScores {
    using A = Acc<T>;
    KahanSum<A> accum[kRows][kColumns];
    A scale;
    __device__ A score(int r, int n) const { return multiply_rn(accum[r][n].value, scale); }
    __device__ TileScores(Tile<A>& left, Tile<A>& right, const Call& a, const T* q, int64_t rows,
                          const T* k, int64_t keys)
        : scale(A(a.scale)) {
        for (int64_t c = 0; c < a.cols; c += kTile) {
            __syncthreads();
            fetch(left, q, a.q.row, rows, c, a.cols);
            fetch(right, k, a.k.row, keys, c, a.cols);
            __syncthreads();
            add_terms<A>(accum, rows, [&](A part, int r, int n, int i) {
                return fma(left[tile_row(r)][i], right[tile_column(n)][i], part);
            });
        }
    }
};

// A tile of rows: the first of them, and how many there are. n: its number among those of all
// slices.
template <class Call>
struct RowTile {
    std::conditional_t<Call::kPacked, Call, const Call&> a;  // what it is part of
    Place place;
    int64_t rows;  // not positive: none
    __device__ RowTile(const Call& whole, int64_t n) : RowTile(whole, n, n % tiles_of(whole)) {}
    // The keys that any of them sees, the first one rounded down.
    __device__ int64_t first_key() const { return a.first_key(place.row) / kTile * kTile; }
    __device__ int64_t end_key() const { return a.end_key(place.row + rows - 1); }

  private:
    __device__ static int64_t tiles_of(const Call& whole) { return whole.row_tiles(kTile); }
    __device__ RowTile(const Call& whole, int64_t n, int64_t tile)
        : a(whole.of_rows(tile, kTile)),
          place(a.place(n / tiles_of(whole))),
          rows(smaller<int64_t>(kTile, a.rows - tile * kTile)) {
        place.row = tile * kTile;
    }
};

template <class A>
__device__ void save(A* stats, int64_t line, A max, A sum) {
    store(stats + 2 * line, Vec<A, 2>{{max, sum}});
}

// scores [tiles, keys + 2, 32], for tiles of rows from `first` on: so the threads of softmax_naive
// read neighbours. The last two numbers of a row are for its largest score and its sum.
template <class T, class Call>
__global__ __launch_bounds__(kTileThreads) void scores_naive(Call whole, const T* q, const T* k,
                                                             Acc<T>* scores, int64_t first) {
    using A = Acc<T>;
    __shared__ Tile<A> left, right;
    const int64_t across = ceil_div<int64_t>(whole.keys, kTile);
    const RowTile<Call> tile(whole, first + blockIdx.x / across);
    const Call& a = tile.a;
    const int64_t key = blockIdx.x % across * kTile;
    if (tile.rows <= 0 || key < tile.first_key() || key >= tile.end_key()) return;
    const TileScores<T, Call> products(left, right, a, q + a.at(a.q, tile.place), tile.rows,
                                       k + a.key_at(a.k, tile.place, key), a.keys - key);
    __syncthreads();  // turned over in shared memory, so that neighbouring threads write neighbours
    for (int r = 0; r < kRows; ++r) {
        for (int n = 0; n < kColumns; ++n) left[tile_row(r)][tile_column(n)] = products.score(r, n);
    }
    __syncthreads();
    scores += (blockIdx.x / across * (whole.keys + 2) + key) * kTile;
    for (int i = threadIdx.x; i < kTile * kTile; i += kTileThreads) {
        if (key + i / kTile < a.keys) scores[i] = left[i % kTile][i / kTile];
    }
}

// The largest score of each row, and the sum of e^(score - largest).
template <class T, class Call>
__global__ __launch_bounds__(kTile) void softmax_naive(Call whole, Acc<T>* scores, Acc<T>* stats,
                                                       int64_t first) {
    using A = Acc<T>;
    const RowTile<Call> tile(whole, first + blockIdx.x);
    const Call& a = tile.a;
    if (int(threadIdx.x) >= tile.rows) return;
    Place place = tile.place;
    place.row += threadIdx.x;
    scores += blockIdx.x * (whole.keys + 2) * kTile + threadIdx.x;
    OnlineSoftmax<T> soft = OnlineSoftmax<T>::identity();
    const int64_t end = a.end_key(place.row);
#pragma unroll 1
    for (int64_t n = a.first_key(place.row); n < end; ++n) {
        soft.raise(scores[n * kTile]);
        soft.add(scores[n * kTile], soft.shift());
    }
    scores[whole.keys * kTile] = soft.shift();
    scores[(whole.keys + 1) * kTile] = soft.sum;
    if (stats) save(stats, a.line(place), soft.max, soft.sum);
}

template <class T, class Call>
__global__ __launch_bounds__(kTileThreads) void values_naive(Call whole, const Acc<T>* scores,
                                                             const T* v, T* y, int64_t first) {
    using A = Acc<T>;
    __shared__ Tile<A> left, right;
    const int64_t across = ceil_div<int64_t>(whole.cols, kTile);
    const RowTile<Call> tile(whole, first + blockIdx.x / across);
    const Call& a = tile.a;
    if (tile.rows <= 0) return;
    const int64_t c = blockIdx.x % across * kTile;
    v += a.key_at(a.v, tile.place, 0);
    scores += blockIdx.x / across * (whole.keys + 2) * kTile;
    const int lane = threadIdx.x % kTile;
    const A shift = lane < tile.rows ? scores[whole.keys * kTile + lane] : A(0);
    KahanSum<A> accum[kRows][kColumns];
    for (int64_t key = tile.first_key(); key < tile.end_key(); key += kTile) {
        __syncthreads();
        for (int n = threadIdx.x / kTile; n < kTile; n += kTileThreads / kTile) {
            const bool seen = lane < tile.rows && a.sees(tile.place.row + lane, key + n);
            left[n][lane] = seen ? exponential<T>(scores[(key + n) * kTile + lane] - shift) : A(0);
        }
        fetch(right, v + key * a.v.row, a.v.row, a.keys - key, c, a.cols);
        __syncthreads();
        add_terms<A>(accum, tile.rows, [&](A part, int r, int n, int i) {
            return fma(left[i][tile_row(r)], right[i][tile_column(n)], part);
        });
    }
    for (int r = 0; r < kRows; ++r) {
        if (tile_row(r) >= tile.rows) continue;
        Place place = tile.place;
        place.row += tile_row(r);
        const bool sees = a.first_key(place.row) < a.end_key(place.row);
        const A sum = scores[(whole.keys + 1) * kTile + tile_row(r)];
        for (int n = 0; n < kColumns; ++n) {
            if (c + tile_column(n) < a.cols)
                y[a.at(a.y, place) + c + tile_column(n)] = T(sees ? accum[r][n].value / sum : A(0));
        }
    }
}

// Backward, too, stores what it has for each score. A block has 32 rows, for which it computes dq,
// or 32 keys, for which it computes dk and dv: one launch has both kinds, so that all of them read
// q, k, v, g and y while those are in the L2 cache. No block waits for another one, and none adds
// to what another one writes: the bits are the same on every run. The price is that the scores are
// computed twice.
//
// Here dp - delta is the sum of g * (v - y). The ds of a row should add up to 0. Where the rows of
// k are alike, their actual sum, which comes from the rounding of y, shows in dq, so it is
// subtracted.

// Numbers of scratch memory for a slice of k and v: p and ds, [rows, keys], of either kind. Rows
// are those of all that share it.
template <class Call>
__host__ __device__ int64_t scratch_naive(const Call& a) {
    return 4 * a.q_slices_per_kv() * a.all_rows() * a.keys;
}

// p and ds of a tile of rows and keys.
template <class T, class Call>
class TileSlopes {
    using A = Acc<T>;
    Tile<A>* tiles_;  // five

  public:
    A p[kRows][kColumns], ds[kRows][kColumns];
    __device__ explicit TileSlopes(Tile<A>* tiles) : tiles_(tiles) {}
    __device__ void find(const Call& a, const T* g, const T* q, const T* k, const T* v, const T* y,
                         const A* stats, Place place, int64_t rows, int64_t key) {
        Tile<A>&q_tile = tiles_[0], &k_tile = tiles_[1], &g_tile = tiles_[2], &v_tile = tiles_[3],
        &y_tile = tiles_[4];
        q += a.at(a.q, place), g += a.at(a.g, place), y += a.at(a.y, place);
        k += a.key_at(a.k, place, key), v += a.key_at(a.v, place, key);
        KahanSum<A> scores[kRows][kColumns], slopes[kRows][kColumns];
        for (int64_t c = 0; c < a.cols; c += kTile) {
            __syncthreads();
            fetch(q_tile, q, a.q.row, rows, c, a.cols);
            fetch(g_tile, g, a.g.row, rows, c, a.cols);
            fetch(y_tile, y, a.y.row, rows, c, a.cols);
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
            const A* const max_sum = stats + 2 * a.line({place.batch, place.head, row});
            for (int n = 0; n < kColumns; ++n) {
                const bool seen = is_row && a.sees(row, key + tile_column(n));
                // Rounded as forward's is: fused, e^(score - largest) would not fit their sum.
                const A score = multiply_rn(scores[r][n].value, A(a.scale));
                p[r][n] = seen ? exp(score - max_sum[0]) / max_sum[1] : A(0);
                ds[r][n] = seen ? p[r][n] * slopes[r][n].value * A(a.scale) : A(0);
            }
        }
    }
};

// Takes the slices of k and v from `first` on. deep: how many keys of 32 rows, or rows of 32 keys,
// fit into shared memory together, a multiple of 32.
template <class T, class Call>
__global__ __launch_bounds__(kTileThreads) void backward_naive(
    Call whole, const T* g, const T* q, const T* k, const T* v, const T* y, const Acc<T>* stats,
    T* dq, T* dk, T* dv, Acc<T>* scratch, int64_t first, int deep) {
    using A = Acc<T>;
    __shared__ Tile<A> tiles[5];
    extern __shared__ char memory[];
    A* const part_ds = reinterpret_cast<A*>(memory);  // [32, deep] or [deep, 32]
    A* const part_p = part_ds + kTile * deep;
    const int64_t of_head = whole.row_tiles(kTile), row_blocks = whole.q_slices_per_kv() * of_head;
    const int64_t blocks = row_blocks + whole.key_tiles(kTile);
    const int64_t slice = first + blockIdx.x / blocks, block = blockIdx.x % blocks;
    const int64_t of_kind = scratch_naive(whole) / 4;
    A* p = scratch + (slice - first) * 4 * of_kind;
    A* ds = p + of_kind;
    TileSlopes<T, Call> slopes(tiles);
    if (block < row_blocks) {
        int64_t tile = block % of_head;
        const auto& a = whole.of_rows(tile, kTile);
        const Place place = a.q_place(slice, block / of_head, tile * kTile);
        if (Call::kPacked && place.row >= a.rows) return;
        const int64_t row = a.row_among_q_slices(block / of_head, place.row);
        const int64_t rows = smaller<int64_t>(kTile, a.rows - place.row);
        const int64_t begin = a.first_key(place.row) / kTile * kTile;
        const int64_t end = a.end_key(place.row + rows - 1);
        p += row * whole.keys, ds += row * whole.keys;
        KahanSum<A> excess[kRows];
        for (int64_t key = begin; key < end; key += kTile) {
            slopes.find(a, g, q, k, v, y, stats, place, rows, key);
            for (int r = 0; r < kRows; ++r) {
                for (int n = 0; n < kColumns; ++n) {
                    const int64_t column = key + tile_column(n);
                    if (tile_row(r) >= rows || column >= a.keys) continue;
                    p[tile_row(r) * whole.keys + column] = slopes.p[r][n];
                    ds[tile_row(r) * whole.keys + column] = slopes.ds[r][n];
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
            KahanSum<A> accum[kRows][kColumns];
            for (int64_t top = begin; top < end; top += deep) {
                const int64_t last = smaller<int64_t>(top + deep, end);
                __syncthreads();
                if (c == 0 || begin + deep < end) {
                    const int across = last - top;
                    for (int64_t i = threadIdx.x; i < kTile * across; i += kTileThreads) {
                        const int64_t r = i / across, key = top + i % across;
                        part_ds[r * deep + i % across] =
                            r < rows
                                ? ds[r * whole.keys + key] - p[r * whole.keys + key] * excesses[r]
                                : A(0);
                    }
                }
                for (int64_t key = top; key < last; key += kTile) {
                    __syncthreads();
                    fetch(tiles[0], part_ds + (key - top), deep, kTile, 0, last - key);
                    fetch(tiles[1], k + a.key_at(a.k, place, key), a.k.row, last - key, c, a.cols);
                    __syncthreads();
                    add_terms<A>(accum, rows, [&](A part, int r, int n, int i) {
                        return fma(tiles[0][tile_row(r)][i], tiles[1][i][tile_column(n)], part);
                    });
                }
            }
            for (int r = 0; r < kRows; ++r) {
                for (int n = 0; n < kColumns; ++n) {
                    const int64_t to = a.at(a.dq, place) + tile_row(r) * a.dq.row;
                    if (tile_row(r) < rows && c + tile_column(n) < a.cols)
                        dq[to + c + tile_column(n)] = T(accum[r][n].value);
                }
            }
        }
    } else {
        p += 2 * of_kind, ds += 2 * of_kind;
        int64_t key_tile = block - row_blocks;
        const auto& a = whole.of_keys(key_tile, kTile);
        const int64_t key = key_tile * kTile;
        if (Call::kPacked && key >= a.keys) return;
        const int64_t tiles_per_q_slice = ceil_div<int64_t>(a.rows, kTile);
        const int64_t row_tiles = a.q_slices_per_kv() * tiles_per_q_slice;
        const int64_t keys = smaller<int64_t>(kTile, a.keys - key);
        p += key, ds += key;
        // Calls use(row, place, rows) for each tile of rows that sees one of these keys.
        const auto each_tile = [&](int64_t from, int64_t to, auto use) {
            for (int64_t tile = from; tile < smaller(to, row_tiles); ++tile) {
                const int64_t which = tile / tiles_per_q_slice;
                const Place place = a.q_place(slice, which, tile % tiles_per_q_slice * kTile);
                const int64_t row = a.row_among_q_slices(which, place.row);
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
                    p[(row + tile_row(r)) * whole.keys + tile_column(n)] = slopes.p[r][n];
                    ds[(row + tile_row(r)) * whole.keys + tile_column(n)] = slopes.ds[r][n];
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
                            const int64_t from = (row + r) * whole.keys + n;
                            part_p[place_of * kTile * kTile + i] = is_there ? p[from] : A(0);
                            part_ds[place_of * kTile * kTile + i] = is_there ? ds[from] : A(0);
                        }
                        ++place_of;
                    });
                }
                place_of = 0;
                each_tile(top, top + at_once, [&](int64_t, Place place, int64_t rows) {
                    const A* const tile_p = part_p + place_of * kTile * kTile;
                    const A* const tile_ds = part_ds + place_of * kTile * kTile;
                    __syncthreads();
                    fetch(tiles[0], q + a.at(a.q, place), a.q.row, rows, c, a.cols);
                    fetch(tiles[1], g + a.at(a.g, place), a.g.row, rows, c, a.cols);
                    __syncthreads();
                    add_terms<A>(of_k, keys, [&](A part, int r, int n, int i) {
                        return fma(
                            tile_ds[i * kTile + tile_row(r)], tiles[0][i][tile_column(n)], part);
                    });
                    add_terms<A>(of_v, keys, [&](A part, int r, int n, int i) {
                        return fma(
                            tile_p[i * kTile + tile_row(r)], tiles[1][i][tile_column(n)], part);
                    });
                    ++place_of;
                });
            }
            for (int r = 0; r < kRows; ++r) {
                for (int n = 0; n < kColumns; ++n) {
                    if (tile_row(r) >= keys || c + tile_column(n) >= a.cols) continue;
                    const int64_t row = key + tile_row(r), column = c + tile_column(n);
                    dk[a.kv_at(a.dk, slice, row) + column] = T(of_k[r][n].value);
                    dv[a.kv_at(a.dv, slice, row) + column] = T(of_v[r][n].value);
                }
            }
        }
    }
}
