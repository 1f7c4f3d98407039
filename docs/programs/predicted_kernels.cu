// Kernels as people write them who have not seen lab.predict's model, and wrong turns of exercises:
// docs/programs/predicted_kernels.py measures them and predicts their times.
#include <stdint.h>

// ---- Transposes, stencils, convolutions

__global__ void transpose_naive(const float* in, float* out, int width, int height) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    if (x < width && y < height) out[x * height + y] = in[y * width + x];
}
template <int kPad>
__device__ void transpose_tile(const float* in, float* out, int width, int height) {
    __shared__ float tile[32][32 + kPad];
    int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        if (x < width && y + j < height)
            tile[threadIdx.y + j][threadIdx.x] = in[(y + j) * width + x];
    __syncthreads();
    x = blockIdx.y * 32 + threadIdx.x, y = blockIdx.x * 32 + threadIdx.y;
    for (int j = 0; j < 32; j += 8)
        if (x < height && y + j < width)
            out[(y + j) * height + x] = tile[threadIdx.x][threadIdx.y + j];
}
__global__ void transpose_shared(const float* in, float* out, int width, int height) {
    transpose_tile<0>(in, out, width, height);
}
__global__ void transpose_padded(const float* in, float* out, int width, int height) {
    transpose_tile<1>(in, out, width, height);
}
__global__ void stencil5(const float* in, float* out, int nx, int ny) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    if (i < 1 || j < 1 || i >= nx - 1 || j >= ny - 1) return;
    int at = j * nx + i;
    out[at] = 0.25f * (in[at - 1] + in[at + 1] + in[at - nx] + in[at + nx]) - in[at];
}
__global__ void convolve1d(const float* in, const float* taps, float* out, int n, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float sum = 0;
    for (int k = 0; k < count; k++) {
        int at = i + k - count / 2;
        if (at >= 0 && at < n) sum += in[at] * taps[k];
    }
    out[i] = sum;
}
__global__ void blur3x3(const float* in, float* out, int nx, int ny) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= nx || j >= ny) return;
    float sum = 0;
    for (int dy = -1; dy <= 1; dy++)
        for (int dx = -1; dx <= 1; dx++) {
            int x = min(max(i + dx, 0), nx - 1), y = min(max(j + dy, 0), ny - 1);
            sum += in[y * nx + x];
        }
    out[j * nx + i] = sum / 9;
}

// ---- Histograms, counts, gathers

__global__ void histogram_shared(const int* in, int* bins, int n) {
    __shared__ int own[256];
    if (threadIdx.x < 256) own[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        atomicAdd(&own[in[i] & 255], 1);
    __syncthreads();
    if (threadIdx.x < 256) atomicAdd(&bins[threadIdx.x], own[threadIdx.x]);
}
__global__ void histogram_global(const int* in, int* bins, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(&bins[in[i] & 255], 1);
}
__global__ void gather(const float* in, const int* index, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[index[i]];
}
__global__ void embedding(const float* table, const int* index, float* out, int dim) {
    for (int c = threadIdx.x; c < dim; c += blockDim.x)
        out[blockIdx.x * int64_t(dim) + c] = table[index[blockIdx.x] * int64_t(dim) + c];
}
__global__ void spmv_csr(const int* begin, const int* cols, const float* values, const float* x,
                         float* y, int rows) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0;
    for (int k = begin[row]; k < begin[row + 1]; k++) sum += values[k] * x[cols[k]];
    y[row] = sum;
}

// ---- Rows: an argmax, softmaxes, norms, sums

__global__ void argmax_warp(const float* in, int* out, int rows, int cols) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    float best = -1e30f;
    int at = 0;
    for (int c = lane; c < cols; c += 32) {
        float v = in[int64_t(row) * cols + c];
        if (v > best) best = v, at = c;
    }
    for (int d = 16; d > 0; d /= 2) {
        float other = __shfl_down_sync(~0u, best, d);
        int where = __shfl_down_sync(~0u, at, d);
        if (other > best || (other == best && where < at)) best = other, at = where;
    }
    if (lane == 0) out[row] = at;
}
__global__ void softmax_thread(const float* in, float* out, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float* x = in + int64_t(row) * cols;
    float* y = out + int64_t(row) * cols;
    float largest = x[0], sum = 0;
    for (int c = 1; c < cols; c++) largest = fmaxf(largest, x[c]);
    for (int c = 0; c < cols; c++) sum += expf(x[c] - largest);
    for (int c = 0; c < cols; c++) y[c] = expf(x[c] - largest) / sum;
}
__device__ float block_sum(float v, float* shared) {
    shared[threadIdx.x] = v;
    __syncthreads();
    for (int s = blockDim.x / 2; s > 0; s /= 2) {
        if (threadIdx.x < s) shared[threadIdx.x] += shared[threadIdx.x + s];
        __syncthreads();
    }
    float sum = shared[0];
    __syncthreads();
    return sum;
}
__global__ void layernorm_block(const float* in, float* out, int cols) {
    __shared__ float shared[256];
    const float* x = in + blockIdx.x * int64_t(cols);
    float sum = 0, squares = 0;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) sum += x[c];
    float mean = block_sum(sum, shared) / cols;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) squares += (x[c] - mean) * (x[c] - mean);
    float rstd = rsqrtf(block_sum(squares, shared) / cols + 1e-5f);
    for (int c = threadIdx.x; c < cols; c += blockDim.x)
        out[blockIdx.x * int64_t(cols) + c] = (x[c] - mean) * rstd;
}
__global__ void cumsum_rows(const float* in, float* out, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0;
    for (int c = 0; c < cols; c++)
        out[int64_t(row) * cols + c] = sum += in[int64_t(row) * cols + c];
}
__global__ void column_sums(const float* in, float* out, int rows, int cols) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= cols) return;
    float sum = 0;
    for (int r = 0; r < rows; r++) sum += in[int64_t(r) * cols + c];
    out[c] = sum;
}
__global__ void reduce_interleaved(const float* in, float* out, int n) {
    __shared__ float own[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    own[threadIdx.x] = i < n ? in[i] : 0;
    __syncthreads();
    for (int s = 1; s < blockDim.x; s *= 2) {
        if (threadIdx.x % (2 * s) == 0) own[threadIdx.x] += own[threadIdx.x + s];
        __syncthreads();
    }
    if (threadIdx.x == 0) out[blockIdx.x] = own[0];
}
__global__ void reduce_stride(const float* in, float* out, int n) {
    float sum = 0;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        sum += in[i];
    for (int d = 16; d > 0; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    if (threadIdx.x % 32 == 0) atomicAdd(out, sum);
}
__global__ void scan_block(const float* in, float* out) {
    __shared__ float own[2][256];
    int t = threadIdx.x, i = blockIdx.x * 256 + t, from = 0;
    own[0][t] = in[i];
    __syncthreads();
    for (int d = 1; d < 256; d *= 2, from ^= 1) {
        own[from ^ 1][t] = own[from][t] + (t >= d ? own[from][t - d] : 0);
        __syncthreads();
    }
    out[i] = own[from][t];
}

// ---- Calls of several launches

__global__ void subtract(const float* in, const float* mean, float* out, int rows, int cols) {
    int c = blockIdx.y * blockDim.x + threadIdx.x, r = blockIdx.x;
    if (c < cols) out[int64_t(r) * cols + c] = in[int64_t(r) * cols + c] - mean[c] / rows;
}
__global__ void saxpy(float a, const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}

// ---- Products

__global__ void bmm_naive(const float* a, const float* b, float* c, int n) {
    a += blockIdx.x * int64_t(n) * n, b += blockIdx.x * int64_t(n) * n,
        c += blockIdx.x * int64_t(n) * n;
    for (int i = threadIdx.y; i < n; i += blockDim.y)
        for (int j = threadIdx.x; j < n; j += blockDim.x) {
            float sum = 0;
            for (int k = 0; k < n; k++) sum += a[i * n + k] * b[k * n + j];
            c[i * n + j] = sum;
        }
}
__global__ void bmm_thread(const float* a, const float* b, float* c, int count, int n) {
    int m = blockIdx.x * blockDim.x + threadIdx.x;
    if (m >= count) return;
    a += m * int64_t(n) * n, b += m * int64_t(n) * n, c += m * int64_t(n) * n;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0;
            for (int k = 0; k < n; k++) sum += a[i * n + k] * b[k * n + j];
            c[i * n + j] = sum;
        }
}
__global__ void sgemm_naive(const float* a, const float* b, float* c, int n) {
    int col = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= n || col >= n) return;
    float sum = 0;
    for (int k = 0; k < n; k++) sum += a[row * n + k] * b[k * n + col];
    c[row * n + col] = sum;
}
__global__ void sgemm_tiled(const float* a, const float* b, float* c, int n) {
    __shared__ float x[16][16], y[16][16];
    int tx = threadIdx.x, ty = threadIdx.y, col = blockIdx.x * 16 + tx, row = blockIdx.y * 16 + ty;
    float sum = 0;
    for (int t = 0; t < n; t += 16) {
        x[ty][tx] = a[row * n + t + tx], y[ty][tx] = b[(t + ty) * n + col];
        __syncthreads();
        for (int k = 0; k < 16; k++) sum += x[ty][k] * y[k][tx];
        __syncthreads();
    }
    c[row * n + col] = sum;
}
__global__ void gemv_thread(const float* a, const float* x, float* y, int rows, int cols) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    float sum = 0;
    for (int c = 0; c < cols; c++) sum += a[int64_t(row) * cols + c] * x[c];
    y[row] = sum;
}
__global__ void gemv_warp(const float* a, const float* x, float* y, int rows, int cols) {
    int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= rows) return;
    float sum = 0;
    for (int c = lane; c < cols; c += 32) sum += a[int64_t(row) * cols + c] * x[c];
    for (int d = 16; d > 0; d /= 2) sum += __shfl_down_sync(~0u, sum, d);
    if (lane == 0) y[row] = sum;
}

// ---- Arithmetic

__global__ void bias_gelu(const float* x, const float* bias, float* y, int n, int cols) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i] + bias[i % cols];
    y[i] = 0.5f * v * (1 + tanhf(0.7978846f * (v + 0.044715f * v * v * v)));
}
__global__ void nearest(const float* points, const float* centres, int* out, int n, int count) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float best = 1e30f;
    int at = 0;
    for (int k = 0; k < count; k++) {
        float d = 0;
        for (int j = 0; j < 4; j++) {
            float t = points[i * 4 + j] - centres[k * 4 + j];
            d += t * t;
        }
        if (d < best) best = d, at = k;
    }
    out[i] = at;
}
__global__ void nbody(const float4* at, float4* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float4 me = at[i], force = {0, 0, 0, 0};
    for (int j = 0; j < n; j++) {
        float4 other = at[j];
        float dx = other.x - me.x, dy = other.y - me.y, dz = other.z - me.z;
        float r = rsqrtf(dx * dx + dy * dy + dz * dz + 1e-9f);
        float s = other.w * r * r * r;
        force.x += s * dx, force.y += s * dy, force.z += s * dz;
    }
    out[i] = force;
}
__global__ void mandelbrot(int* out, int nx, int ny) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
    if (i >= nx || j >= ny) return;
    float cx = -2 + 3.0f * i / nx, cy = -1 + 2.0f * j / ny, x = 0, y = 0;
    int steps = 0;
    while (steps < 256 && x * x + y * y < 4) {
        float t = x * x - y * y + cx;
        y = 2 * x * y + cy, x = t, steps++;
    }
    out[j * nx + i] = steps;
}

// ---- Wrong turns of exercises

__global__ void uncoalesced(const float* x, float* y, int n, int stride) {
    int i = blockIdx.x * blockDim.x + threadIdx.x, rows = n / stride;
    if (i < n) y[i % rows * stride + i / rows] = 2 * x[i % rows * stride + i / rows];
}
__global__ void copy_run(const float* x, float* y, int n) {
    int begin = (blockIdx.x * blockDim.x + threadIdx.x) * 32;
    for (int i = begin; i < begin + 32 && i < n; i++) y[i] = x[i];
}
__global__ void scale_rows(const float* x, const float* scale, float* y, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    for (int c = 0; c < cols; c++) y[int64_t(r) * cols + c] = scale[c] * x[int64_t(r) * cols + c];
}
__global__ void square_loop(const float* x, float* y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        y[i] = x[i] * x[i];
}
__global__ void square_offset(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i + 1 < n) y[i + 1] = x[i + 1] * x[i + 1];
}
__global__ void spilled(const float* x, float* y, int n, int turn) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float own[32];
    for (int k = 0; k < 32; k++) own[k] = x[i] * k;
    for (int k = 0; k < 32; k++) own[(k * turn) & 31] += own[k];
    float sum = 0;
    for (int k = 0; k < 32; k++) sum += own[(k + turn) & 31] * k;
    y[i] = sum;
}
__global__ void banks(const float* x, float* y, int n, int stride) {
    __shared__ float own[1024];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    for (int k = threadIdx.x; k < 1024; k += blockDim.x) own[k] = k;
    __syncthreads();
    float sum = i < n ? x[i] : 0;
    for (int k = 0; k < 64; k++) sum += own[(threadIdx.x * stride + k) & 1023];
    if (i < n) y[i] = sum;
}
__global__ void sum_atomic(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(y, x[i]);
}
__global__ void divergent(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float v = x[i];
    if (i % 4 == 0)
        v = sinf(v) * expf(v);
    else if (i % 4 == 1)
        v = logf(v + 1) / (v + 2);
    else if (i % 4 == 2)
        v = sqrtf(v + 3) * cosf(v);
    else
        v = powf(v + 1, 1.5f);
    y[i] = v;
}
