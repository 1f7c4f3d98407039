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
