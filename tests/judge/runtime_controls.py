"""Right submissions for `square` that use more of CUDA's runtime and C++ than most do."""

from exploits import CONTROLS, KERNEL, RUN, submission

STRIDED = KERNEL.replace("if (i < n)", "for (; i < n; i += int64_t(gridDim.x) * blockDim.x)")

BY_THE_RUNTIME = {
    "prints_where_it_fails": submission(
        "if (cudaError_t e = cudaGetLastError(); e != cudaSuccess) {\n"
        '        printf("before: %s\\n", cudaGetErrorString(e));\n'
        '        printf("a launch had failed\\n");\n        return e;\n    }\n    ' + RUN
    ),
    "occupancy_asked": submission(
        "int blocks = 0, device = 0, processors = 0;\n"
        "    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, square, 256, 0);\n"
        "    if (cudaError_t error = cudaGetDevice(&device)) return error;\n"
        "    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);\n"
        "    const int64_t most = int64_t(blocks) * processors, wanted = (n + 255) / 256;\n"
        "    square<<<wanted < most ? wanted : most, 256, 0, stream>>>(x, y, n);",
        kernel=STRIDED,
    ),
    "launched_by_a_pointer": submission(
        "void* args[] = {&x, &y, &n};\n"
        "    return cudaLaunchKernel((const void*)square, (n + 255) / 256, 256, args, 0, stream);"
    ),
    "launched_by_a_configuration": submission(
        "cudaLaunchConfig_t config = {};\n    config.gridDim = dim3((n + 255) / 256);\n"
        "    config.blockDim = dim3(256);\n    config.stream = stream;\n"
        "    if (cudaError_t e = cudaLaunchKernelEx(&config, square, x, y, n)) return e;"
    ),
    "configurations_by_size": submission(
        "if (n < 4096)\n        run<64, 1>(x, y, n, stream);\n    else if (n < 65536)\n"
        "        run<128, 2>(x, y, n, stream);\n    else\n        run<256, 4>(x, y, n, stream);",
        kernel="""
template <int kThreads, int kEach> __global__ void each(const float* x, float* y, int64_t n) {
    const int64_t first = (int64_t(blockIdx.x) * kThreads + threadIdx.x) * kEach;
#pragma unroll
    for (int j = 0; j < kEach; ++j)
        if (first + j < n) y[first + j] = x[first + j] * x[first + j];
}
template <int kThreads, int kEach>
static void run(const float* x, float* y, int64_t n, cudaStream_t stream) {
    constexpr int64_t kBlock = kThreads * kEach;
    each<kThreads, kEach><<<(n + kBlock - 1) / kBlock, kThreads, 0, stream>>>(x, y, n);
}
""",
    ),
    "cooperative_grid": submission(
        "void* args[] = {&x, &y, &n};\n"
        "    return cudaLaunchCooperativeKernel((void*)square, 4, 128, args, 0, stream);",
        before="#include <cooperative_groups.h>\n",
        kernel="""
__global__ void square(const float* x, float* y, int64_t n) {
    auto grid = cooperative_groups::this_grid();
    for (int64_t i = grid.thread_rank(); i < n; i += grid.size()) y[i] = x[i];
    grid.sync();
    for (int64_t i = grid.size() - 1 - grid.thread_rank(); i < n; i += grid.size()) y[i] *= y[i];
}
""",
    ),
    "copies_in_a_pipeline": submission(
        "square<<<(n + 127) / 128, 128, 0, stream>>>(x, y, n);",
        before="#include <cuda_pipeline.h>\n",
        kernel="""
__global__ void square(const float* x, float* y, int64_t n) {
    __shared__ alignas(16) float a[128], b[128];
    const int64_t i = int64_t(blockIdx.x) * 128 + threadIdx.x;
    if (i < n) __pipeline_memcpy_async(&a[threadIdx.x], x + i, 4);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    b[threadIdx.x] = i < n ? a[threadIdx.x] : 0.0f;
    __syncthreads();
    if (i < n) y[i] = b[threadIdx.x] * a[threadIdx.x];
}
""",
    ),
    "constants_uploaded": submission(
        "const float one[1] = {1.0f};\n"
        "    cudaError_t error = cudaMemcpyToSymbolAsync(\n"
        "        kFactor, one, sizeof one, 0, cudaMemcpyHostToDevice, stream);\n"
        "    if (error != cudaSuccess) return error;\n    " + RUN,
        before="__constant__ float kFactor[1];\n",
        kernel=KERNEL.replace("x[i] * x[i]", "x[i] * x[i] * kFactor[0]"),
    ),
    "last_block_counts": submission(
        "unsigned* done;\n    if (cudaError_t e = cudaMallocAsync(&done, 4, stream)) return e;\n"
        "    cudaMemsetAsync(done, 0, 4, stream);\n"
        "    square<<<8, 128, 0, stream>>>(x, y, n, done);\n    cudaFreeAsync(done, stream);",
        kernel="""
__global__ void square(const float* x, float* y, int64_t n, unsigned* done) {
    __shared__ bool last;
    for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < n - 1;
         i += int64_t(gridDim.x) * blockDim.x)
        y[i] = x[i] * x[i];
    __threadfence();
    if (threadIdx.x == 0) last = atomicAdd(done, 1u) == gridDim.x - 1;
    __syncthreads();
    if (last && threadIdx.x == 0) y[n - 1] = x[n - 1] * x[n - 1];
}
""",
    ),
    "unions_and_streaming_stores": submission(
        "if (n % 4 == 0 && (uintptr_t(x) | uintptr_t(y)) % 16 == 0)\n"
        "        go<Way::Wide><<<cdiv(n / 4, 96), 96, 0, stream>>>(x, y, n);\n    else\n"
        "        go<Way::Plain><<<cdiv(n, 96), 96, 0, stream>>>(x, y, n);",
        kernel="""
union Four {
    float4 whole;
    float each[4];
};
enum class Way : int { Plain, Wide };
__host__ __device__ constexpr int64_t cdiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
template <Way kWay>
__global__ void go(const float* __restrict__ x, float* __restrict__ y, int64_t n) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if constexpr (kWay == Way::Wide) {
        if (i >= n / 4) return;
        Four a;
        a.whole = __ldg((const float4*)x + i);
        for (float& it : a.each) it *= it;
        __stcs((float4*)y + i, a.whole);
    } else if (i < n) {
        y[i] = __ldg(x + i) * __ldg(x + i);
    }
}
""",
    ),
    "op_of_two_launches": CONTROLS["op"].replace(
        "square<<<(n + 255) / 256, 256, 0, device.stream>>>(in<float>(x), out<float>(y), n);",
        "const int64_t half = n / 2, rest = n - half;\n"
        "    const float* from = in<float>(x);\n    float* to = out<float>(y);\n"
        "    if (half) square<<<(half + 63) / 64, 64, 0, device.stream>>>(from, to, half);\n"
        "    square<<<(rest + 63) / 64, 64, 0, device.stream>>>(from + half, to + half, rest);",
    ),
    "tensors_with_a_workspace": CONTROLS["tensors"]
    .replace("ATen/core/Tensor.h", "ATen/ATen.h")
    .replace(
        "if (n == 0) return;", "if (n == 0) return;\n    auto work = at::empty({n}, x.options());"
    )
    .replace(
        "x.data_ptr<float>(), y.data_ptr<float>(), n);",
        "x.data_ptr<float>(), work.data_ptr<float>(), n);\n"
        "    cudaMemcpyAsync(y.data_ptr<float>(), work.data_ptr<float>(), n * sizeof(float),\n"
        "                    cudaMemcpyDeviceToDevice, at::cuda::getCurrentCUDAStream());",
    ),
}
