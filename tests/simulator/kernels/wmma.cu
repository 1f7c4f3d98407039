// nvcuda::wmma: every shape, type and layout, and fragments whose elements a kernel touches.
#include <mma.h>

#include <cstdint>
#include <type_traits>
#include "launcher.h"

using namespace nvcuda;
using wmma::accumulator, wmma::matrix_a, wmma::matrix_b, wmma::row_major, wmma::col_major;
namespace sub = wmma::experimental::precision;
using wmma::precision::tf32;

template <class T>
struct InMemory {
    using type = T;
    static constexpr int bits = sizeof(T) * 8;
};
template <>
struct InMemory<tf32> : InMemory<float> {};
template <>
struct InMemory<sub::s4> {
    using type = int8_t;
    static constexpr int bits = 4;
};
template <>
struct InMemory<sub::u4> : InMemory<sub::s4> {};
template <>
struct InMemory<sub::b1> {
    using type = int8_t;
    static constexpr int bits = 1;
};
template <class T>
using In = typename InMemory<T>::type;

// ---- Products

struct Layouts {
    int lda, ldb, ldc, ldd;
    bool c_by_rows, d_by_rows, in_shared;
};

template <class T>
__device__ const T* in_shared(const T* from, T* to, int count) {
    for (int i = threadIdx.x; i < count; i += 32) to[i] = from[i];
    __syncwarp();
    return to;
}

template <int m, int n, int k, class T, class La, class Lb, class C, class D>
__global__ void product(const In<T>* pa, const In<T>* pb, const C* pc, D* pd, Layouts at,
                        int option) {
    wmma::fragment<matrix_a, m, n, k, T, La> a;
    wmma::fragment<matrix_b, m, n, k, T, Lb> b;
    wmma::fragment<accumulator, m, n, k, C> c;
    wmma::fragment<accumulator, m, n, k, D> d;
    __shared__ alignas(128) In<T> a_shared[1024], b_shared[1024];
    __shared__ alignas(128) C c_shared[1024];
    __shared__ alignas(128) D d_shared[1024];
    const bool a_rows = std::is_same_v<La, row_major>, b_rows = std::is_same_v<Lb, row_major>;
    D* to = pd;
    if (at.in_shared) {
        pa =
            in_shared(pa, a_shared, (a_rows ? m : k) * at.lda * InMemory<T>::bits / 8 / sizeof *pa);
        pb =
            in_shared(pb, b_shared, (b_rows ? k : n) * at.ldb * InMemory<T>::bits / 8 / sizeof *pb);
        pc = in_shared(pc, c_shared, (at.c_by_rows ? m : n) * at.ldc);
        to = d_shared;
        in_shared(pd, d_shared, (at.d_by_rows ? m : n) * at.ldd);
    }
    wmma::load_matrix_sync(a, pa, at.lda);
    wmma::load_matrix_sync(b, pb, at.ldb);
    wmma::load_matrix_sync(c, pc, at.ldc, at.c_by_rows ? wmma::mem_row_major : wmma::mem_col_major);
    if constexpr (std::is_same_v<T, tf32>)
        for (int i = 0; i < a.num_elements; i++) a.x[i] = wmma::__float_to_tf32(a.x[i]);
    if constexpr (std::is_same_v<T, sub::b1>) {
        if (option)
            wmma::bmma_sync(d, a, b, c, wmma::experimental::bmmaBitOpAND);
        else
            wmma::bmma_sync(d, a, b, c);
    } else if constexpr (std::is_same_v<C, int>) {
        if (option)
            wmma::mma_sync(d, a, b, c, true);
        else
            wmma::mma_sync(d, a, b, c);
    } else {
        wmma::mma_sync(d, a, b, c);
    }
    wmma::store_matrix_sync(
        to, d, at.ldd, at.d_by_rows ? wmma::mem_row_major : wmma::mem_col_major);
    __syncwarp();
    if (at.in_shared) in_shared(d_shared, pd, (at.d_by_rows ? m : n) * at.ldd);
}

template <int m, int n, int k, class T, class C, class D>
cudaError_t multiply(const In<T>* a, const In<T>* b, const C* c, D* d, bool a_by_rows,
                     bool b_by_rows, Layouts at, int option) {
    const auto launch = [&](auto kernel) { kernel<<<1, 32>>>(a, b, c, d, at, option); };
    if constexpr (InMemory<T>::bits < 8) {
        launch(product<m, n, k, T, row_major, col_major, C, D>);
    } else if (a_by_rows) {
        if (b_by_rows)
            launch(product<m, n, k, T, row_major, row_major, C, D>);
        else
            launch(product<m, n, k, T, row_major, col_major, C, D>);
    } else {
        if (b_by_rows)
            launch(product<m, n, k, T, col_major, row_major, C, D>);
        else
            launch(product<m, n, k, T, col_major, col_major, C, D>);
    }
    return cudaGetLastError();
}

#define PRODUCT(name, m, n, k, T, Memory, C, D)                                             \
    extern "C" cudaError_t run_##name##_##m##_##n##_##k(                                    \
        const Memory* a, const Memory* b, const C* c, D* d, bool a_by_rows, bool b_by_rows, \
        int lda, int ldb, int ldc, int ldd, bool c_by_rows, bool d_by_rows, bool in_shared, \
        int option) {                                                                       \
        return multiply<m, n, k, T, C, D>(                                                  \
            a, b, c, d, a_by_rows, b_by_rows,                                               \
            {lda, ldb, ldc, ldd, c_by_rows, d_by_rows, in_shared}, option);                 \
    }
#define SIXTEEN(m, n)                                                       \
    PRODUCT(half_float_float, m, n, 16, __half, __half, float, float)       \
    PRODUCT(half_half_half, m, n, 16, __half, __half, __half, __half)       \
    PRODUCT(half_float_half, m, n, 16, __half, __half, float, __half)       \
    PRODUCT(half_half_float, m, n, 16, __half, __half, __half, float)       \
    PRODUCT(bfloat16, m, n, 16, __nv_bfloat16, __nv_bfloat16, float, float) \
    PRODUCT(signed_char, m, n, 16, signed char, int8_t, int, int)           \
    PRODUCT(unsigned_char, m, n, 16, unsigned char, uint8_t, int, int)
SIXTEEN(16, 16)
SIXTEEN(32, 8)
SIXTEEN(8, 32)
PRODUCT(tf32, 16, 16, 8, tf32, float, float, float)
PRODUCT(double, 8, 8, 4, double, double, double, double)
PRODUCT(s4, 8, 8, 32, sub::s4, int8_t, int, int)
PRODUCT(u4, 8, 8, 32, sub::u4, int8_t, int, int)
PRODUCT(b1, 8, 8, 128, sub::b1, int8_t, int, int)

// ---- Fragments

// y: relu(2 x + z), element by element.
__global__ void touch(const float* x, const __half* z, float* y) {
    wmma::fragment<accumulator, 16, 16, 16, float> a, b;
    wmma::fragment<accumulator, 16, 16, 16, __half> c;
    wmma::load_matrix_sync(a, x, 16, wmma::mem_row_major);
    wmma::load_matrix_sync(c, z, 24, wmma::mem_col_major);
    wmma::fill_fragment(b, 2.0f);
    for (int i = 0; i < a.num_elements; i++) {
        b.x[i] = b.x[i] * a.x[i] + __half2float(c.x[i]);
        b.x[i] = b.x[i] > 0.0f ? b.x[i] : 0.0f;
    }
    wmma::store_matrix_sync(y, b, 16, wmma::mem_row_major);
}

LAUNCHER(run_touch, (const float* x, const __half* z, float* y), touch<<<1, 32>>>(x, z, y))

// Which elements a lane has: each is its index in memory, of `lines` that lie one after the other.
template <class Fragment, class T>
__global__ void places(const T* x, int ld, T* y) {
    Fragment f;
    wmma::load_matrix_sync(f, x, ld);
    for (int i = 0; i < f.num_elements; i++) y[threadIdx.x * f.num_elements + i] = f.x[i];
}
template <class Fragment, class T>
__global__ void places_of_sums(const T* x, int ld, T* y) {
    Fragment f;
    wmma::load_matrix_sync(f, x, ld, wmma::mem_row_major);
    for (int i = 0; i < f.num_elements; i++) y[threadIdx.x * f.num_elements + i] = f.x[i];
}

#define PLACES(m, n)                                                                         \
    extern "C" cudaError_t run_places_##m##_##n(                                             \
        const __half* x, const float* sums, __half* a, __half* b, float* d) {                \
        places<wmma::fragment<matrix_a, m, n, 16, __half, row_major>><<<1, 32>>>(x, 16, a);  \
        places<wmma::fragment<matrix_b, m, n, 16, __half, row_major>><<<1, 32>>>(x, n, b);   \
        places_of_sums<wmma::fragment<accumulator, m, n, 16, float>><<<1, 32>>>(sums, n, d); \
        return cudaGetLastError();                                                           \
    }
PLACES(16, 16)
PLACES(32, 8)
PLACES(8, 32)

extern "C" cudaError_t run_places_of_tf32(const float* x, float* a, float* b) {
    places<wmma::fragment<matrix_a, 16, 16, 8, tf32, row_major>><<<1, 32>>>(x, 8, a);
    places<wmma::fragment<matrix_b, 16, 16, 8, tf32, row_major>><<<1, 32>>>(x, 16, b);
    return cudaGetLastError();
}

template <class Fragment, class Value>
__device__ int filled(Value value) {
    Fragment f;
    wmma::fill_fragment(f, value);
    static_assert(f.num_storage_elements == 1);
    return f.x[0];
}

__global__ void fill(int* y, const float* x, float* rounded, int n) {
    y[0] = filled<wmma::fragment<matrix_a, 8, 8, 32, sub::s4, row_major>>(-3);
    y[1] = filled<wmma::fragment<matrix_b, 8, 8, 32, sub::u4, col_major>>(0x5bu);
    y[2] = filled<wmma::fragment<matrix_a, 8, 8, 128, sub::b1, row_major>>(3u);
    for (int i = 0; i < n; i++) rounded[i] = wmma::__float_to_tf32(x[i]);
}

LAUNCHER(run_fill, (int* y, const float* x, float* rounded, int n),
         fill<<<1, 1>>>(y, x, rounded, n))

// ---- More than one warp

// C (m, n) = A (m, k) B (k, n), a tile of 16 x 16 by each warp, of which a block has 2 x 2.
__global__ void gemm(const __half* a, const __half* b, float* c, int n, int k) {
    __shared__ alignas(32) __half tile_of_a[32][24], tile_of_b[16][40];
    const int warp = threadIdx.x / 32, row = warp / 2 * 16, column = warp % 2 * 16;
    wmma::fragment<matrix_a, 16, 16, 16, half, row_major> left;
    wmma::fragment<matrix_b, 16, 16, 16, half, row_major> right;
    wmma::fragment<accumulator, 16, 16, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    for (int first = 0; first < k; first += 16) {
        for (int i = threadIdx.x; i < 512; i += blockDim.x) {
            tile_of_a[i / 16][i % 16] = a[(blockIdx.y * 32 + i / 16) * k + first + i % 16];
            tile_of_b[i / 32][i % 32] = b[(first + i / 32) * n + blockIdx.x * 32 + i % 32];
        }
        __syncthreads();
        wmma::load_matrix_sync(left, &tile_of_a[row][0], 24);
        wmma::load_matrix_sync(right, &tile_of_b[0][column], 40);
        wmma::mma_sync(sum, left, right, sum);
        __syncthreads();
    }
    float* to = c + (blockIdx.y * 32 + row) * n + blockIdx.x * 32 + column;
    wmma::store_matrix_sync(to, sum, n, wmma::mem_row_major);
}

LAUNCHER(run_gemm, (const __half* a, const __half* b, float* c, int m, int n, int k),
         gemm<<<dim3(n / 32, m / 32), 128>>>(a, b, c, n, k))

// Lanes that read what others have just stored, as hardware lets them, and store again.
__global__ void in_step(float* y, int steps) {
    __shared__ alignas(32) float tile[16][16];
    wmma::fragment<accumulator, 16, 16, 16, float> f;
    wmma::fill_fragment(f, float(threadIdx.x));
    float sum = 0;
    for (int step = 0; step < steps; step++) {
        wmma::store_matrix_sync(&tile[0][0], f, 16, wmma::mem_row_major);
        sum += tile[threadIdx.x / 2][threadIdx.x % 2 * 8];
        wmma::fill_fragment(f, float(threadIdx.x + step + 1));
    }
    y[threadIdx.x] = sum;
}

LAUNCHER(run_in_step, (float* y, int steps), in_step<<<1, 32>>>(y, steps))

// ---- What goes wrong

__global__ void few_lanes(float* y) {
    wmma::fragment<matrix_a, 16, 16, 16, __half, row_major> a;
    wmma::fragment<matrix_b, 16, 16, 16, __half, col_major> b;
    wmma::fragment<accumulator, 16, 16, 16, float> c;
    wmma::fill_fragment(a, __float2half(1.0f));
    wmma::fill_fragment(b, __float2half(1.0f));
    wmma::fill_fragment(c, 0.0f);
    wmma::mma_sync(c, a, b, c);
    wmma::store_matrix_sync(y, c, 16, wmma::mem_row_major);
}

extern "C" cudaError_t run_few_lanes(float* y, int threads) {
    few_lanes<<<1, threads>>>(y);
    return cudaDeviceSynchronize();
}

__global__ void askew(const __half* x, __half* y, int offset, int ld) {
    wmma::fragment<matrix_a, 16, 16, 16, __half, row_major> a;
    wmma::load_matrix_sync(a, x + offset, ld);
    y[threadIdx.x] = a.x[0];
}

extern "C" cudaError_t run_askew(const __half* x, __half* y, int offset, int ld) {
    askew<<<1, 32>>>(x, y, offset, ld);
    return cudaDeviceSynchronize();
}
