// Kernels and launches that go wrong, each in a way of its own.
#include <cassert>
#include <cstdio>
#include <stdexcept>

__global__ void fill(int* y) { y[blockIdx.x * blockDim.x + threadIdx.x] = 1; }

__global__ void fill_dynamic(int* y) {
    extern __shared__ int words[];
    words[threadIdx.x] = 1;
    y[threadIdx.x] = words[threadIdx.x];
}

extern "C" cudaError_t run_fill(int* y, int gx, int gy, int gz, int bx, int by, int bz, int bytes) {
    fill_dynamic<<<dim3(gx, gy, gz), dim3(bx, by, bz), bytes>>>(y);
    return cudaGetLastError();
}

// The error's number, and that of a second call, as CUDA reports them.
extern "C" int run_last_error(int* y, int threads) {
    fill<<<1, threads>>>(y);
    const int peeked = cudaPeekAtLastError(), got = cudaGetLastError(), after = cudaGetLastError();
    return peeked * 1000000 + got * 1000 + after;
}

extern "C" void run_unasked(int* y) { fill<<<0, 32>>>(y); }

extern "C" cudaError_t run_attribute(int bytes) {
    return cudaFuncSetAttribute(fill_dynamic, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

// Half of a warp waits for the whole warp, and the other half for the block.
__global__ void deadlock(int* y) {
    if (threadIdx.x % 32 < 16)
        __syncwarp();
    else
        __syncthreads();
    y[threadIdx.x] = 1;
}

extern "C" cudaError_t run_deadlock(int* y) {
    deadlock<<<3, 64>>>(y);
    return cudaGetLastError();
}

__global__ void missing_lane(int* y) {
    if (threadIdx.x != 9) y[threadIdx.x] = __shfl_sync(0xffffffff, 1, 0);
    __syncthreads();
}

extern "C" cudaError_t run_missing_lane(int* y) {
    missing_lane<<<1, 32>>>(y);
    return cudaGetLastError();
}

__global__ void not_in_mask(int* y) { y[threadIdx.x] = __ballot_sync(0xff, 1); }

extern "C" cudaError_t run_not_in_mask(int* y) {
    not_in_mask<<<1, 32>>>(y);
    return cudaGetLastError();
}

__global__ void failed_assertion(int limit) { assert(threadIdx.x < limit); }

extern "C" cudaError_t run_assertion(int limit) {
    failed_assertion<<<2, 32>>>(limit);
    return cudaGetLastError();
}

__global__ void trapped() {
    if (threadIdx.x == 3) __trap();
    __syncthreads();
}

extern "C" cudaError_t run_trap() {
    trapped<<<1, 32>>>();
    return cudaGetLastError();
}

__global__ void wild(int* y, size_t offset) { y[offset] = 1; }

extern "C" cudaError_t run_wild(int* y, size_t offset) {
    wild<<<1, 1>>>(y, offset);
    return cudaGetLastError();
}

__global__ void divide(int* y, int by) { y[threadIdx.x] = 7 / by; }

extern "C" cudaError_t run_divide(int* y, int by) {
    divide<<<1, 1>>>(y, by);
    return cudaGetLastError();
}

__device__ int recurse(int n) {
    volatile int local[256];
    local[n % 256] = n;
    return n == 0 ? 0 : recurse(n - 1) + local[n % 256];
}

__global__ void deep(int* y, int n) { *y = recurse(n); }

extern "C" cudaError_t run_deep(int* y, int n) {
    deep<<<1, 1>>>(y, n);
    return cudaGetLastError();
}

__global__ void throwing() { throw std::runtime_error("not on a GPU"); }

extern "C" cudaError_t run_throw() {
    throwing<<<1, 4>>>();
    return cudaGetLastError();
}

__host__ __device__ void launch_fill(int* y) { fill<<<1, 1>>>(y); }
__global__ void nested(int* y) { launch_fill(y); }

extern "C" cudaError_t run_nested(int* y) {
    nested<<<1, 1>>>(y);
    return cudaGetLastError();
}

// A long launch with barriers, to run beside others.
__global__ void sums(const int* x, int* y, int n) {
    __shared__ int total;
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(&total, x[i]);
    __syncthreads();
    if (threadIdx.x == 0) y[blockIdx.x] = total;
}

extern "C" cudaError_t run_sums(const int* x, int* y, int n, int blocks) {
    sums<<<blocks, 64>>>(x, y, n);
    return cudaGetLastError();
}

// What launchers ask of the runtime.
extern "C" cudaError_t run_memory(int* y, int n) {
    int *a = nullptr, *b = nullptr;
    cudaStream_t stream;
    cudaEvent_t start, end;
    float milliseconds = -1;
    if (cudaError_t error = cudaMalloc(&a, n * sizeof(int))) return error;
    if (cudaError_t error = cudaStreamCreate(&stream)) return error;
    if (cudaError_t error = cudaMallocAsync(&b, n * sizeof(int), stream)) return error;
    cudaEventCreate(&start);
    cudaEventCreate(&end);
    cudaEventRecord(start, stream);
    cudaMemsetAsync(a, 1, n * sizeof(int), stream);
    cudaMemcpyAsync(b, a, n * sizeof(int), cudaMemcpyDeviceToDevice, stream);
    cudaEventRecord(end, stream);
    cudaStreamSynchronize(stream);
    cudaEventElapsedTime(&milliseconds, start, end);
    cudaMemcpy(y, b, n * sizeof(int), cudaMemcpyDefault);
    cudaFreeAsync(b, stream);
    cudaFree(a);
    cudaEventDestroy(start);
    cudaEventDestroy(end);
    cudaStreamDestroy(stream);
    return milliseconds < 0 ? cudaErrorUnknown : cudaDeviceSynchronize();
}

extern "C" cudaError_t run_device(int* y) {
    cudaDeviceProp properties;
    int device = -1, count = 0;
    cudaGetDevice(&device);
    cudaGetDeviceCount(&count);
    if (cudaError_t error = cudaGetDeviceProperties(&properties, device)) return error;
    y[0] = properties.warpSize;
    y[1] = properties.maxThreadsPerBlock;
    y[2] = int(properties.sharedMemPerBlock);
    cudaDeviceGetAttribute(&y[3], cudaDevAttrMultiProcessorCount, device);
    y[4] = properties.multiProcessorCount;
    y[5] = count;
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&y[6], fill, 256, 0);
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&y[7], fill, 256, 40 << 10);
    return cudaDeviceGetAttribute(&y[8], cudaDevAttrWarpSize, 12345);
}

// ---- printf

__global__ void number_as_text(int n) { printf("%s\n", n); }
__global__ void half_as_number(float x) { printf("%d\n", x); }
__global__ void right_formats(const float* x, size_t n, long long m) {
    printf("%g %u %d %zu %lld %p %s %5.2f%c\n", x[0], threadIdx.x, threadIdx.x, n, m, x, "a", x[0],
           'c');
}
extern "C" cudaError_t run_number_as_text() {
    number_as_text<<<4, 32>>>(3);
    return cudaDeviceSynchronize();
}
extern "C" cudaError_t run_prints(const float* x) {
    half_as_number<<<1, 1>>>(0.5f);
    right_formats<<<4, 32>>>(x, 2, 3);
    return cudaDeviceSynchronize();
}
