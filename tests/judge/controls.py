"""Right submissions for other tasks than `square`, as somebody writes them at the first try."""

HEAD = "#include <cuda_runtime.h>\n#include <cstdint>\n#include <cmath>\n"
# Sums of a block of 256 threads, the same in each of them.
SUM = """
__device__ float sum_of_block(float v) {
    __shared__ float part[256];
    part[threadIdx.x] = v;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    float sum = part[0];
    __syncthreads();
    return sum;
}
"""
ROWS = 'extern "C" cudaError_t launch({}, int64_t rows, int64_t cols, cudaStream_t stream) {{\n'
GUARD = "    if (rows == 0 || cols == 0) return cudaSuccess;\n"
END = "    return cudaGetLastError();\n}\n"

SOFTMAX = (
    HEAD
    + SUM
    + """
__global__ void softmax(const float* x, float* y, int64_t cols) {
    __shared__ float most[256];
    x += blockIdx.x * cols, y += blockIdx.x * cols;
    float m = -INFINITY;
    bool nan = false;
    for (int64_t c = threadIdx.x; c < cols; c += 256) m = fmaxf(m, x[c]), nan |= isnan(x[c]);
    most[threadIdx.x] = m;
    __syncthreads();
    for (int half = 128; half > 0; half /= 2) {
        int i = threadIdx.x;
        if (i < half) most[i] = fmaxf(most[i], most[i + half]);
        __syncthreads();
    }
    m = most[0];
    float sum = nan ? NAN : 0;
    for (int64_t c = threadIdx.x; c < cols; c += 256) sum += expf(x[c] - m);
    sum = sum_of_block(sum);
    for (int64_t c = threadIdx.x; c < cols; c += 256) y[c] = expf(x[c] - m) / sum;
}
"""
    + ROWS.format("const float* x, float* y")
    + GUARD
    + "    softmax<<<rows, 256, 0, stream>>>(x, y, cols);\n"
    + END
)
LAYER_NORM = (
    HEAD
    + SUM
    + """
__global__ void norm(const float* x, const float* w, const float* b, float* y, int64_t cols) {
    x += blockIdx.x * cols, y += blockIdx.x * cols;
    float sum = 0, squares = 0;
    for (int64_t c = threadIdx.x; c < cols; c += 256) sum += x[c];
    float mean = sum_of_block(sum) / cols;
    for (int64_t c = threadIdx.x; c < cols; c += 256) squares += (x[c] - mean) * (x[c] - mean);
    float scale = 1 / sqrtf(sum_of_block(squares) / cols + 1e-5f);
    for (int64_t c = threadIdx.x; c < cols; c += 256) y[c] = (x[c] - mean) * scale * w[c] + b[c];
}
"""
    + ROWS.format("const float* x, const float* weight, const float* bias, float* y")
    + GUARD
    + "    norm<<<rows, 256, 0, stream>>>(x, weight, bias, y, cols);\n"
    + END
)
RMS_NORM = (
    HEAD
    + SUM
    + """
__global__ void norm(const float* x, const float* w, const float* r, float* y, float* s,
                     int64_t cols) {
    int64_t first = blockIdx.x * cols;
    float squares = 0;
    for (int64_t c = threadIdx.x; c < cols; c += 256) {
        float v = x[first + c] + r[first + c];
        s[first + c] = v;
        squares += v * v;
    }
    float scale = 1 / sqrtf(sum_of_block(squares) / cols + 1e-6f);
    for (int64_t c = threadIdx.x; c < cols; c += 256)
        y[first + c] = (x[first + c] + r[first + c]) * scale * w[c];
}
"""
    + ROWS.format(
        "const float* x, const float* weight, const float* residual, float* y0, float* y1"
    )
    + GUARD
    + "    norm<<<rows, 256, 0, stream>>>(x, weight, residual, y0, y1, cols);\n"
    + END
)
MATMUL = (
    HEAD
    + """
constexpr int kTile = 16;
__global__ void product(const float* x, const float* w, const float* bias, const float* residual,
                        float* y, int64_t rows, int64_t cols, int64_t units) {
    __shared__ float a[kTile][kTile], b[kTile][kTile + 1];
    int tx = threadIdx.x, ty = threadIdx.y;
    int64_t row = int64_t(blockIdx.y) * kTile + ty, unit = int64_t(blockIdx.x) * kTile + tx;
    int64_t line = int64_t(blockIdx.x) * kTile + ty;
    float sum = 0;
    for (int64_t k = 0; k < cols; k += kTile) {
        a[ty][tx] = row < rows && k + tx < cols ? x[row * cols + k + tx] : 0;
        b[ty][tx] = line < units && k + tx < cols ? w[line * cols + k + tx] : 0;
        __syncthreads();
        for (int i = 0; i < kTile; ++i) sum += a[ty][i] * b[tx][i];
        __syncthreads();
    }
    if (row < rows && unit < units)
        y[row * units + unit] = sum + bias[unit] + residual[row * units + unit];
}
extern "C" cudaError_t launch(const float* x, const float* w, const float* bias,
                              const float* residual, float* y, int64_t rows, int64_t cols,
                              int64_t units, cudaStream_t stream) {
    if (rows == 0 || units == 0) return cudaSuccess;
    if (rows > 65535 * kTile) return cudaErrorInvalidValue;
    dim3 grid((units + kTile - 1) / kTile, (rows + kTile - 1) / kTile);
    product<<<grid, dim3(kTile, kTile), 0, stream>>>(x, w, bias, residual, y, rows, cols, units);
    return cudaGetLastError();
}
"""
)
OF_TASKS = {
    "softmax": SOFTMAX,
    "layer_norm": LAYER_NORM,
    "rms_norm": RMS_NORM,
    "matmul": MATMUL,
}

# ---- right submissions for `square` in styles of their own

KERNEL = """
__global__ void square(const float* x, float* y, int64_t n) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * x[i];
}
"""
SQUARE = ROWS.format("const float* x, float* y") + "    int64_t n = rows * cols;\n"
NONE = "    if (n == 0) return cudaSuccess;\n"
RUN = "    square<<<(n + 255) / 256, 256, 0, stream>>>(x, y, n);\n"

PTX = (
    HEAD
    + r"""
// Loads of 16 bytes as PTX, with a label, a predicate and a comment of its own.
__device__ __forceinline__ float4 load(const float4* p, int64_t left) {
    float4 v;
    asm volatile(
        "{\n\t"
        ".reg .pred  whole;\n\t"
        "// the tail is read one by one\n\t"
        "setp.gt.s64 whole, %5, 0;\n\t"
        "mov.f32 %0, 0f00000000;\n\tmov.f32 %1, 0f00000000;\n"
        "mov.f32 %2, 0f00000000; mov.f32 %3, 0f00000000;\n\t"
        "@whole ld.global.nc.v4.f32\n\t  {%0, %1, %2, %3},\n\t  [%4];\n\t"
        "}"
        : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
        : "l"(p), "l"(left));
    return v;
}
__global__ void fours(const float4* x, float4* y, int64_t n) {
    int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 a = load(x + i, n - i);
    y[i] = make_float4(a.x * a.x, a.y * a.y, a.z * a.z, a.w * a.w);
}
"""
    + KERNEL
    + SQUARE
    + NONE
    + "    if ((uintptr_t(x) | uintptr_t(y)) % 16 || n % 4) {\n    "
    + RUN
    + "    } else {\n"
    "        fours<<<(n / 4 + 255) / 256, 256, 0, stream>>>((const float4*)x, (float4*)y, n / 4);\n"
    "    }\n" + END
)
TABLE_OF_KERNELS = (
    HEAD
    + """
namespace {
template <int kThreads>
__global__ void __launch_bounds__(kThreads) square(const float* __restrict__ x,
                                                   float* __restrict__ y, int64_t n) {
#pragma unroll 2
    for (int64_t i = int64_t(blockIdx.x) * kThreads + threadIdx.x; i < n;
         i += int64_t(gridDim.x) * kThreads)
        y[i] = x[i] * x[i];
}
using Kernel = void (*)(const float*, float*, int64_t);
struct Row { Kernel kernel; int threads; const char* name; };
constexpr Row kRows[] = {{square<64>, 64, "small"}, {square<128>, 128, "middle"},
                         {square<256>, 256, "large"}};
static const char* const kNames[] = {"time", "open"};
}  // namespace
"""
    + SQUARE
    + NONE
    + """    const Row& it = kRows[n < 1'000 ? 0 : n < 10'000 ? 1 : 2];
    if (kNames[0] == nullptr) return cudaErrorUnknown;
    it.kernel<<<64, it.threads, 0, stream>>>(x, y, n);
"""
    + END
)
MACROS = (
    HEAD
    + """
#define DEVICE static __device__ __forceinline__
#define FOR_ALL(i, n)                                                     \\
    for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; \\
         i < (n);                                                         \\
         i += int64_t(gridDim.x) * blockDim.x)
#define LAUNCH(kernel, n, ...) kernel<<<((n) + 127) / 128, 128, 0, stream>>>(__VA_ARGS__, n)
#define CHECK(what)                             \\
    do {                                        \\
        cudaError_t error = (what);             \\
        if (error != cudaSuccess) return error; \\
    } while (0)
DEVICE float read(const float* x, int64_t i) { return x[i]; }
DEVICE void write(float* y, int64_t i, float v) { y[i] = v; }
__global__ void square(const float* x, float* y, int64_t n) {
    FOR_ALL (i, n) write(y, i, read(x, i) * read(x, i));  // not the system("...") of C
}
"""
    + SQUARE
    + NONE
    + "    LAUNCH(square, n, x, y);\n    CHECK(cudaGetLastError());\n"
    + END
)
MACROS = MACROS.replace("threadIdx.x; \\\n", "threadIdx.x; \\  \n")  # as an editor leaves it
FUNCTORS = (
    HEAD
    + """#include <algorithm>
#include <type_traits>
namespace mine {
struct Square {
    static constexpr int kOps = 1;
    template <class T> __host__ __device__ constexpr T operator()(T v) const { return v * v; }
};
template <class T> struct alignas(8) Pair { T a, b; };
template <class F, class T>
__global__ void apply(F f, const T* x, T* y, int64_t n) {
    const int64_t i = 2 * (int64_t(blockIdx.x) * blockDim.x + threadIdx.x);
    if (i + 1 < n) {
        Pair<T> p{f(x[i]), f(x[i + 1])};
        y[i] = p.a, y[i + 1] = p.b;
    } else if (i < n) {
        y[i] = f(x[i]);
    }
}
}  // namespace mine
template <class F> [[nodiscard]] static cudaError_t run(F f, const float* x, float* y, int64_t n,
                                                        cudaStream_t stream) {
    static_assert(std::is_empty_v<F> && mine::Square::kOps == 1, "no state");
    const int64_t blocks = std::max<int64_t>(1, (n / 2 + 128) / 128);
    mine::apply<::mine::Square, float><<<blocks, 128, 0, stream>>>(f, x, y, n);
    return cudaPeekAtLastError();
}
"""
    + SQUARE
    + NONE
    + "    [[maybe_unused]] const auto time = n;\n"
    "    auto begin = [&](auto f) { return run(f, x, y, n, stream); };\n"
    "    if (cudaError_t error = begin(mine::Square{})) return error;\n" + END
)
SHARED = (
    HEAD
    + """
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
constexpr bool kAsynchronous = true;
#else
constexpr bool kAsynchronous = false;
#endif
__constant__ float kOnes[2] = {1.0f, 1.0f};
__device__ const float kZeros[4] = {0, 0, 0, 0};
extern __shared__ unsigned char memory[];
__global__ void square(const float* x, float* y, int64_t n, int width) {
    float* tile = reinterpret_cast<float*>(memory);
    __shared__ int64_t first;
    for (int64_t at = int64_t(blockIdx.x) * width; at < n; at += int64_t(gridDim.x) * width) {
        if (threadIdx.x == 0) first = at;
        for (int i = threadIdx.x; i < width && at + i < n; i += blockDim.x)
            tile[i] = x[at + i] * kOnes[i % 2] + kZeros[i % 4];
        __syncthreads();
        for (int i = threadIdx.x; i < width && first + i < n; i += blockDim.x)
            y[first + i] = tile[i] * tile[i];
        __syncthreads();
    }
}
"""
    + SQUARE
    + NONE
    + """    const int width = 16384, bytes = width * int(sizeof(float));
    cudaError_t error = cudaFuncSetAttribute(
        square, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    if (error != cudaSuccess) return error;
    square<<<dim3(8, 1, 1), dim3(192), bytes, stream>>>(x, y, n, width);
"""
    + END
)
WORKSPACE = (
    HEAD
    + KERNEL
    + """
__global__ void copy(const float* from, float* to, int64_t n) {
    for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n;
         i += int64_t(gridDim.x) * blockDim.x)
        to[i] = from[i];
}
"""
    + SQUARE
    + NONE
    + """    float* kept = nullptr;
    cudaError_t error = cudaMallocAsync(&kept, n * sizeof(float), stream);
    if (error != cudaSuccess) return error;
    square<<<(n + 63) / 64, 64, 0, stream>>>(x, kept, n);
    copy<<<16, 64, 0, stream>>>(kept, y, n);
    if ((error = cudaGetLastError()) != cudaSuccess) return error;
    return cudaFreeAsync(kept, stream);
}
"""
)
GROUPS = (
    HEAD
    + """#include <cooperative_groups.h>
namespace cg = cooperative_groups;
__global__ void square(const float* x, float* y, int64_t n) {
    auto block = cg::this_thread_block();
    auto warp = cg::tiled_partition<32>(block);
    int64_t i = int64_t(blockIdx.x) * block.size() + block.thread_rank();
    float v = i < n ? x[i] : 0.0f;
    float other = warp.shfl_xor(v, 1);
    other = __shfl_xor_sync(0xffffffffu, other, 1);
    if (i < n) y[i] = v * other;
}
"""
    + SQUARE
    + NONE
    + RUN
    + END
)
UNUSUAL = {
    "ptx": PTX,
    "table_of_kernels": TABLE_OF_KERNELS,
    "macros": MACROS,
    "functors": FUNCTORS,
    "shared": SHARED,
    "workspace": WORKSPACE,
    "groups": GROUPS,
}

# A thread for each row, which adds its numbers one by one: less exact than PyTorch's, and right.
REDUCE_SUM = (
    HEAD
    + """
__global__ void sums(const float* x, float* y, int64_t rows, int64_t cols) {
    int64_t row = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0;
    for (int64_t c = 0; c < cols; ++c) sum += x[row * cols + c];
    y[row] = sum;
}
"""
    + ROWS.format("const float* x, float* y")
    + "    if (rows == 0) return cudaSuccess;\n"
    "    sums<<<(rows + 63) / 64, 64, 0, stream>>>(x, y, rows, cols);\n" + END
)
# A warp for each row, and its maximum and sum in one pass.
ONLINE_SOFTMAX = (
    HEAD
    + """
struct Part {
    float most, sum;
};
__device__ Part joined(Part a, Part b) {
    if (isnan(a.most) || b.most == -INFINITY) return a;
    if (isnan(b.most) || a.most == -INFINITY) return b;
    const float most = fmaxf(a.most, b.most);
    return {most, a.sum * expf(a.most - most) + b.sum * expf(b.most - most)};
}
__global__ void softmax(const float* x, float* y, int64_t rows, int64_t cols) {
    const int64_t row = int64_t(blockIdx.x) * (blockDim.x / 32) + threadIdx.x / 32;
    const int lane = threadIdx.x % 32;
    if (row >= rows) return;
    x += row * cols, y += row * cols;
    Part all{-INFINITY, 0};
    for (int64_t c = lane; c < cols; c += 32) all = joined(all, Part{x[c], 1});
    for (int other = 16; other; other /= 2)
        all = joined(all, Part{__shfl_xor_sync(~0u, all.most, other),
                               __shfl_xor_sync(~0u, all.sum, other)});
    const float most = all.most, sum = all.sum;
    for (int64_t c = lane; c < cols; c += 32) y[c] = expf(x[c] - most) / sum;
}
"""
    + ROWS.format("const float* x, float* y")
    + GUARD
    + "    softmax<<<(rows + 3) / 4, 128, 0, stream>>>(x, y, rows, cols);\n"
    + END
)
UNUSUAL_OF_TASKS = {"reduce_sum": REDUCE_SUM, "softmax": ONLINE_SOFTMAX}
