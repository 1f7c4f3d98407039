// CUDA's runtime API as whole programs use it. Each function says with 0 that all is as CUDA has
// it, else the line that is not.
#include <cuComplex.h>
#include <cuda_profiler_api.h>
#include <cuda_runtime.h>
#include <math.h>
#include <string.h>
#include <vector>

#define WANT(...) \
    if (!(__VA_ARGS__)) return __LINE__
#define IS(code, ...) WANT((__VA_ARGS__) == (code))
#define OK(...) IS(cudaSuccess, __VA_ARGS__)
// The error that a call gives is the last one, too, and is told once.
#define REFUSED(code, ...)           \
    IS(code, __VA_ARGS__);           \
    IS(code, cudaPeekAtLastError()); \
    IS(code, cudaGetLastError());    \
    OK(cudaGetLastError())

__global__ void add(int* x, int n, int by) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += by;
}

template <class T>
__global__ void scale(T* x, int n, T by) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= by;
}

__global__ void trap() { __trap(); }

// ---- Errors

extern "C" int run_refused_launches() {
    int* x;
    OK(cudaMalloc(&x, 4));
    add<<<1, 2048>>>(x, 1, 1);
    IS(cudaErrorInvalidValue, cudaPeekAtLastError());
    OK(cudaDeviceSynchronize());  // it was never launched
    IS(cudaErrorInvalidValue, cudaGetLastError());
    OK(cudaGetLastError());
    add<<<0, 1>>>(x, 1, 1);
    REFUSED(cudaErrorInvalidValue, cudaPeekAtLastError());
    OK(cudaFree(x));
    return 0;
}

extern "C" int run_taken_errors() {
    REFUSED(cudaErrorInvalidValue, cudaMalloc((void**)nullptr, 4));
    REFUSED(cudaErrorInvalidDevice, cudaSetDevice(7));
    OK(cudaDeviceSynchronize());
    WANT(!strcmp(cudaGetErrorName(cudaErrorInvalidPitchValue), "cudaErrorInvalidPitchValue"));
    WANT(!strcmp(cudaGetErrorString(cudaErrorInvalidPitchValue), "invalid pitch argument"));
    WANT(!strcmp(
        cudaGetErrorString(cudaErrorStreamCaptureUnjoined), "capturing stream has unjoined work"));
    WANT(!strcmp(cudaGetErrorName(cudaError_t(12345)), "unrecognized error code"));
    WANT(!strcmp(cudaGetErrorString(cudaError_t(12345)), "unrecognized error code"));
    return 0;
}

// On a GPU the process is lost to CUDA after this.
extern "C" int run_sticky_errors() {
    int *x, *y = nullptr;
    OK(cudaMalloc(&x, 4));
    trap<<<1, 1>>>();
    const cudaError_t error = cudaDeviceSynchronize();
    WANT(error != cudaSuccess);
    IS(error, cudaGetLastError());
    IS(error, cudaGetLastError());
    IS(error, cudaMalloc(&y, 4));
    IS(error, cudaMemset(x, 0, 4));
    IS(error, cudaDeviceSynchronize());
    add<<<1, 1>>>(x, 1, 1);
    IS(error, cudaGetLastError());
    return 0;
}

// ---- Memory

extern "C" int run_frees() {
    int *x, *pinned, here;
    OK(cudaFree(nullptr));
    OK(cudaMalloc(&x, 400));
    OK(cudaMallocHost(&pinned, 400));
    REFUSED(cudaErrorInvalidValue, cudaFree(&here));
    REFUSED(cudaErrorInvalidValue, cudaFree(x + 1));
    REFUSED(cudaErrorInvalidValue, cudaFree(pinned));
    REFUSED(cudaErrorInvalidValue, cudaFreeHost(x));
    OK(cudaFree(x));
    REFUSED(cudaErrorInvalidValue, cudaFree(x));
    OK(cudaFreeHost(pinned));
    REFUSED(cudaErrorInvalidValue, cudaFreeHost(pinned));
    OK(cudaMalloc(&x, 0));
    WANT(x == nullptr);
    REFUSED(cudaErrorMemoryAllocation, cudaMalloc(&x, size_t(1) << 60));
    return 0;
}

extern "C" int run_sizes() {
    int *x, host[200] = {};
    OK(cudaMalloc(&x, 400));
    OK(cudaMemcpy(x + 50, host, 200, cudaMemcpyHostToDevice));
    REFUSED(cudaErrorInvalidValue, cudaMemcpy(x, host, 401, cudaMemcpyHostToDevice));
    REFUSED(cudaErrorInvalidValue, cudaMemcpy(host, x + 50, 204, cudaMemcpyDeviceToHost));
    REFUSED(cudaErrorInvalidValue, cudaMemset(x + 1, 0, 400));
    REFUSED(cudaErrorInvalidValue, cudaMemset2D(x, 80, 0, 80, 6));
    REFUSED(
        cudaErrorInvalidPitchValue, cudaMemcpy2D(x, 40, host, 80, 80, 2, cudaMemcpyHostToDevice));
    REFUSED(cudaErrorInvalidMemcpyDirection, cudaMemcpy(x, host, 4, cudaMemcpyKind(9)));
    OK(cudaFree(x));
    return 0;
}

extern "C" int run_kinds_of_memory() {
    int *device, *managed, *pinned, *mapped, own[64];
    cudaPointerAttributes is;
    unsigned flags;
    OK(cudaMalloc(&device, 256));
    OK(cudaMallocManaged(&managed, 256));
    OK(cudaHostAlloc(&pinned, 256, cudaHostAllocMapped));
    OK(cudaPointerGetAttributes(&is, device + 3));
    WANT(is.type == cudaMemoryTypeDevice && is.device == 0 && is.devicePointer == device + 3);
    OK(cudaPointerGetAttributes(&is, managed));
    WANT(is.type == cudaMemoryTypeManaged && is.hostPointer == managed);
    OK(cudaPointerGetAttributes(&is, pinned));
    WANT(is.type == cudaMemoryTypeHost && is.hostPointer == pinned);
    OK(cudaPointerGetAttributes(&is, own));
    WANT(is.type == cudaMemoryTypeUnregistered);
    OK(cudaHostGetFlags(&flags, pinned));
    WANT(flags & cudaHostAllocMapped);
    OK(cudaHostGetDevicePointer(&mapped, pinned, 0));
    for (int i = 0; i < 64; i++) pinned[i] = i, managed[i] = 2 * i;
    add<<<1, 64>>>(mapped, 64, 100);
    add<<<1, 64>>>(managed, 64, 100);
    OK(cudaDeviceSynchronize());
    for (int i = 0; i < 64; i++) WANT(pinned[i] == 100 + i && managed[i] == 100 + 2 * i);

    const cudaMemLocation here = {cudaMemLocationTypeDevice, 0},
                          nowhere = {cudaMemLocationTypeDevice, 9};
    OK(cudaMemAdvise(managed, 256, cudaMemAdviseSetReadMostly, here));
    OK(cudaMemPrefetchAsync(managed, 256, here, 0));
    REFUSED(cudaErrorInvalidValue, cudaMemPrefetchAsync(managed, 257, here, 0));
    REFUSED(cudaErrorInvalidDevice, cudaMemPrefetchAsync(managed, 256, nowhere, 0));

    REFUSED(cudaErrorHostMemoryNotRegistered, cudaHostUnregister(own));
    OK(cudaHostRegister(own, sizeof own, cudaHostRegisterDefault));
    REFUSED(cudaErrorHostMemoryAlreadyRegistered, cudaHostRegister(own, sizeof own, 0));
    OK(cudaHostUnregister(own));
    OK(cudaFree(device));
    OK(cudaFree(managed));
    OK(cudaFreeHost(pinned));
    return 0;
}

extern "C" int run_boxes() {
    char *plane, host[6][10], back[6][10];
    size_t pitch;
    for (int i = 0; i < 60; i++) host[0][i] = char(i);
    OK(cudaMallocPitch(&plane, &pitch, 10, 6));
    WANT(pitch >= 10 && pitch % 32 == 0);
    OK(cudaMemset2D(plane, pitch, 7, 10, 6));
    OK(cudaMemcpy2D(plane + pitch + 2, pitch, &host[2][3], 10, 5, 4, cudaMemcpyHostToDevice));
    OK(cudaMemcpy2D(back, 10, plane, pitch, 10, 6, cudaMemcpyDeviceToHost));
    for (int y = 0; y < 6; y++)
        for (int x = 0; x < 10; x++) {
            const bool is_in = y >= 1 && y < 5 && x >= 2 && x < 7;
            WANT(back[y][x] == (is_in ? host[y + 1][x + 1] : 7));
        }
    OK(cudaFree(plane));

    // A box of 3 x 2 x 2 at (1, 1, 1) of one of 5 x 4 x 3.
    cudaPitchedPtr cube;
    const cudaExtent all = make_cudaExtent(5, 4, 3);
    char cells[3][4][5], copy[3][4][5] = {};
    for (int i = 0; i < 60; i++) cells[0][0][i] = char(i);
    OK(cudaMalloc3D(&cube, all));
    OK(cudaMemset3D(cube, 0, all));
    cudaMemcpy3DParms move = {};
    move.srcPtr = make_cudaPitchedPtr(cells, 5, 5, 4);
    move.dstPtr = cube;
    move.srcPos = move.dstPos = make_cudaPos(1, 1, 1);
    move.extent = make_cudaExtent(3, 2, 2);
    move.kind = cudaMemcpyHostToDevice;
    OK(cudaMemcpy3D(&move));
    cudaMemcpy3DParms home = {};
    home.srcPtr = cube;
    home.dstPtr = make_cudaPitchedPtr(copy, 5, 5, 4);
    home.extent = all;
    home.kind = cudaMemcpyDeviceToHost;
    OK(cudaMemcpy3D(&home));
    for (int z = 0; z < 3; z++)
        for (int y = 0; y < 4; y++)
            for (int x = 0; x < 5; x++) {
                const bool is_in = z >= 1 && y >= 1 && y < 3 && x >= 1 && x < 4;
                WANT(copy[z][y][x] == (is_in ? cells[z][y][x] : 0));
            }
    OK(cudaFree(cube.ptr));
    return 0;
}

__constant__ float factors[4];
__constant__ int offset;
__device__ int table[2][3];
__managed__ int total;

__global__ void use_symbols(float* y) {
    y[threadIdx.x] = factors[threadIdx.x] + offset + table[1][2];
    if (threadIdx.x == 0) total = 42;
}

extern "C" int run_symbols() {
    const float given[4] = {1, 2, 3, 4};
    const int five = 5, nines[6] = {9, 9, 9, 9, 9, 9};
    int back[3];
    float *y, out[4];
    void* address;
    size_t bytes;
    OK(cudaMalloc(&y, sizeof out));
    OK(cudaMemcpyToSymbol(factors, given, sizeof given));
    OK(cudaMemcpyToSymbol(offset, &five, sizeof five, 0, cudaMemcpyHostToDevice));
    OK(cudaMemcpyToSymbolAsync(table, nines, sizeof nines, 0, cudaMemcpyHostToDevice, 0));
    OK(cudaMemcpyToSymbol(table, &five, 4, 5 * sizeof(int)));
    REFUSED(cudaErrorInvalidValue, cudaMemcpyToSymbol(offset, nines, 8));
    use_symbols<<<1, 4>>>(y);
    OK(cudaMemcpy(out, y, sizeof out, cudaMemcpyDeviceToHost));
    for (int i = 0; i < 4; i++) WANT(out[i] == given[i] + 10);
    WANT(total == 42);
    OK(cudaMemcpyFromSymbol(back, table, sizeof back, 3 * sizeof(int)));
    WANT(back[0] == 9 && back[1] == 9 && back[2] == 5);
    OK(cudaGetSymbolAddress(&address, table));
    OK(cudaGetSymbolSize(&bytes, table));
    WANT(bytes == sizeof table);
    OK(cudaMemset(address, 0, bytes));
    OK(cudaMemcpyFromSymbol(back, table, sizeof back));
    WANT(back[0] == 0 && back[2] == 0);
    OK(cudaFree(y));
    return 0;
}

extern "C" int run_pools() {
    cudaMemPool_t pool, mine;
    unsigned long long used = 1, threshold = 1 << 20, before;
    cudaStream_t stream;
    int* x;
    OK(cudaStreamCreate(&stream));
    OK(cudaDeviceGetDefaultMemPool(&pool, 0));
    OK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    threshold = 0;
    OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &threshold));
    WANT(threshold == 1 << 20);
    OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &before));
    OK(cudaMallocAsync(&x, 4096, stream));
    OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    WANT(used == before + 4096);
    OK(cudaFreeAsync(x, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    WANT(used == before);
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    OK(cudaMemPoolCreate(&mine, &properties));
    OK(cudaMallocFromPoolAsync(&x, 4096, mine, stream));
    OK(cudaFreeAsync(x, stream));
    OK(cudaStreamSynchronize(stream));
    OK(cudaMemPoolDestroy(mine));
    OK(cudaStreamDestroy(stream));
    return 0;
}

// ---- Streams and events

static void note(void* list) { static_cast<std::vector<int>*>(list)->push_back(1); }
static void CUDART_CB called(cudaStream_t, cudaError_t status, void* list) {
    static_cast<std::vector<int>*>(list)->push_back(status == cudaSuccess ? 2 : -1);
}

extern "C" int run_streams() {
    cudaStream_t stream, urgent;
    cudaEvent_t start, end, untimed;
    unsigned flags;
    int least, greatest, priority, *x;
    float milliseconds = -1;
    std::vector<int> calls;
    OK(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    WANT(least >= greatest);
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithPriority(&urgent, cudaStreamDefault, greatest));
    OK(cudaStreamGetFlags(stream, &flags));
    WANT(flags == cudaStreamNonBlocking);
    OK(cudaStreamGetPriority(urgent, &priority));
    WANT(priority == greatest);
    OK(cudaEventCreate(&start));
    OK(cudaEventCreateWithFlags(&end, cudaEventBlockingSync));
    OK(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming));
    REFUSED(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&milliseconds, start, end));
    OK(cudaMalloc(&x, 4000));
    OK(cudaEventRecord(start, stream));
    OK(cudaMemsetAsync(x, 0, 4000, stream));
    add<<<4, 256, 0, stream>>>(x, 1000, 1);
    OK(cudaLaunchHostFunc(stream, note, &calls));
    OK(cudaStreamAddCallback(stream, called, &calls, 0));
    OK(cudaEventRecord(end, stream));
    OK(cudaStreamWaitEvent(urgent, end, 0));
    OK(cudaEventRecord(untimed, cudaStreamPerThread));
    OK(cudaStreamSynchronize(urgent));
    OK(cudaEventSynchronize(end));
    OK(cudaEventQuery(end));
    OK(cudaStreamSynchronize(cudaStreamLegacy));
    OK(cudaEventElapsedTime(&milliseconds, start, end));
    WANT(milliseconds > 0 && milliseconds < 60000);
    REFUSED(cudaErrorInvalidResourceHandle, cudaEventElapsedTime(&milliseconds, start, untimed));
    WANT(calls.size() == 2 && calls[0] == 1 && calls[1] == 2);
    OK(cudaEventDestroy(start));
    OK(cudaEventDestroy(end));
    OK(cudaEventDestroy(untimed));
    OK(cudaStreamDestroy(urgent));
    OK(cudaStreamDestroy(stream));
    REFUSED(cudaErrorInvalidResourceHandle, cudaStreamDestroy(nullptr));
    OK(cudaFree(x));
    return 0;
}

// ---- The device

struct KibibyteEach {
    __host__ __device__ size_t operator()(int threads) const { return size_t(threads) << 10; }
};

extern "C" int run_device() {
    cudaDeviceProp is;
    cudaFuncAttributes of;
    int value, runtime, driver, device = -1, blocks, threads, can;
    size_t size;
    char id[32];
    OK(cudaGetDeviceProperties(&is, 0));
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrComputeMode, 0));
    WANT(value == cudaComputeModeDefault);
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrClockRate, 0));
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrMaxGridDimY, 0));
    WANT(value == 65535 && is.maxGridSize[1] == 65535);
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrMaxTexture2DWidth, 0));
    WANT(value == is.maxTexture2D[0] && value >= 1024);
    OK(cudaDeviceGetAttribute(&value, cudaDevAttrConcurrentKernels, 0));
    WANT(value == is.concurrentKernels);
    REFUSED(cudaErrorInvalidValue, cudaDeviceGetAttribute(&value, cudaDeviceAttr(9999), 0));
    OK(cudaRuntimeGetVersion(&runtime));
    OK(cudaDriverGetVersion(&driver));
    WANT(runtime == CUDART_VERSION && driver >= runtime);
    OK(cudaChooseDevice(&device, &is));
    WANT(device == 0);
    OK(cudaDeviceGetPCIBusId(id, sizeof id, 0));
    OK(cudaDeviceGetByPCIBusId(&device, id));
    WANT(device == 0);
    REFUSED(cudaErrorInvalidDevice, cudaDeviceCanAccessPeer(&can, 0, 77));
    OK(cudaDeviceSetLimit(cudaLimitMallocHeapSize, 32 << 20));
    OK(cudaDeviceGetLimit(&size, cudaLimitMallocHeapSize));
    WANT(size >= 32 << 20);
    OK(cudaFuncGetAttributes(&of, add));
    WANT(of.maxThreadsPerBlock == 1024);
    OK(cudaFuncSetAttribute(
        add, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared));
    OK(cudaFuncSetCacheConfig(add, cudaFuncCachePreferL1));
    OK(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        &blocks, add, 256, 0, cudaOccupancyDefault));
    WANT(blocks == 8);
    OK(cudaOccupancyMaxPotentialBlockSize(&blocks, &threads, add, 0, 0));
    WANT(threads > 0 && threads <= 1024 && blocks > 0);
    OK(cudaOccupancyMaxPotentialBlockSize(&blocks, &threads, add, 0, 128));
    WANT(threads == 128);
    // 1 KiB of shared memory for each thread: 48 KiB are what a block may have.
    OK(cudaOccupancyMaxPotentialBlockSizeVariableSMem(&blocks, &threads, add, KibibyteEach()));
    WANT(threads > 0 && threads <= 224);
    OK(cudaProfilerStart());
    OK(cudaProfilerStop());
    const cuComplex quotient = cuCdivf(make_cuComplex(1, 2), make_cuComplex(3, -4));
    WANT(fabsf(quotient.x + 0.2f) < 1e-6f && fabsf(quotient.y - 0.4f) < 1e-6f);
    WANT(cuCabs(make_cuDoubleComplex(3, 4)) == 5);
    return 0;
}

// ---- Launches by address, and graphs

extern "C" int run_by_address() {
    float *x, out[3] = {1, 2, 3}, by = 4;
    int n = 3, not_a_kernel = 0;
    OK(cudaMalloc(&x, sizeof out));
    OK(cudaMemcpy(x, out, sizeof out, cudaMemcpyHostToDevice));
    void* arguments[] = {(void*)&x, (void*)&n, reinterpret_cast<void*>(&by)};
    OK(cudaLaunchKernel((void*)scale<float>, dim3(1), dim3(32), arguments, 0, 0));
    OK(cudaLaunchKernel((const void*)&scale<float>, 1, 32, arguments, 0, cudaStreamPerThread));
    OK(cudaLaunchKernel(scale<float>, 1, 32, arguments));
    void (*chosen)(float*, int, float) = scale<float>;
    OK(cudaLaunchKernel(reinterpret_cast<void*>(chosen), 1, 32, arguments, 0, nullptr));
    OK(cudaDeviceSynchronize());
    OK(cudaMemcpy(out, x, sizeof out, cudaMemcpyDeviceToHost));
    WANT(out[0] == 256 && out[1] == 512 && out[2] == 768);
    REFUSED(cudaErrorInvalidResourceHandle,
            cudaLaunchKernel((void*)&not_a_kernel, dim3(1), dim3(32), arguments, 0, 0));
    REFUSED(cudaErrorInvalidDeviceFunction,
            cudaLaunchKernel((void*)nullptr, dim3(1), dim3(32), arguments, 0, 0));
    REFUSED(cudaErrorInvalidValue,
            cudaLaunchKernel((void*)scale<float>, dim3(1), dim3(2000), arguments, 0, 0));
    OK(cudaFree(x));
    return 0;
}

extern "C" int run_capture() {
    cudaStream_t stream, side;
    cudaEvent_t fork, join;
    cudaGraph_t graph, other;
    cudaGraphExec_t exec;
    cudaStreamCaptureStatus status;
    cudaGraphExecUpdateResultInfo info;
    size_t count = 0;
    int *x, *y, out[2] = {-1, -1};
    std::vector<int> calls;
    OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking));
    OK(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
    OK(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    OK(cudaMalloc(&x, 4));
    OK(cudaMalloc(&y, 4));
    OK(cudaMemset(x, 0, 4));
    OK(cudaDeviceSynchronize());

    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    OK(cudaStreamIsCapturing(stream, &status));
    WANT(status == cudaStreamCaptureStatusActive);
    for (int by = 1; by < 3; by++) add<<<1, 1, 0, stream>>>(x, 1, by);
    OK(cudaEventRecord(fork, stream));
    OK(cudaStreamWaitEvent(side, fork, 0));
    OK(cudaMemsetAsync(y, 0, 4, side));
    add<<<1, 1, 0, side>>>(y, 1, 7);
    OK(cudaEventRecord(join, side));
    add<<<1, 1, 0, stream>>>(x, 1, 10);
    OK(cudaStreamWaitEvent(stream, join, 0));
    OK(cudaMemcpyAsync(out, x, 4, cudaMemcpyDeviceToHost, stream));
    OK(cudaMemcpyAsync(out + 1, y, 4, cudaMemcpyDeviceToHost, stream));
    OK(cudaLaunchHostFunc(stream, note, &calls));
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphGetNodes(graph, nullptr, &count));
    WANT(count == 8);
    OK(cudaGraphGetRootNodes(graph, nullptr, &count));
    WANT(count == 1);
    OK(cudaStreamSynchronize(stream));
    WANT(out[0] == -1 && calls.empty());  // captured, and not run

    OK(cudaGraphInstantiate(&exec, graph, 0));
    for (int launch = 1; launch <= 3; launch++) {
        OK(cudaGraphLaunch(exec, stream));
        OK(cudaStreamSynchronize(stream));
        WANT(out[0] == 13 * launch && out[1] == 7 && calls.size() == size_t(launch));
    }

    // The same with other numbers, and then something else.
    for (int nodes = 2; nodes < 4; nodes++) {
        cudaGraphExec_t two;
        OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
        for (int i = 0; i < 2; i++) add<<<1, 1, 0, stream>>>(x, 1, 1);
        OK(cudaStreamEndCapture(stream, &other));
        OK(cudaGraphInstantiate(&two, other, NULL, NULL, 0));
        OK(cudaGraphDestroy(other));
        OK(cudaMemset(x, 0, 4));
        OK(cudaDeviceSynchronize());  // no stream here waits for the default one
        OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
        for (int i = 0; i < nodes; i++) add<<<1, 1, 0, stream>>>(x, 1, 50);
        OK(cudaStreamEndCapture(stream, &other));
        IS(nodes == 2 ? cudaSuccess : cudaErrorGraphExecUpdateFailure,
           cudaGraphExecUpdate(two, other, &info));
        cudaGetLastError();
        WANT(info.result ==
             (nodes == 2 ? cudaGraphExecUpdateSuccess : cudaGraphExecUpdateErrorTopologyChanged));
        cudaGraphExecUpdateResult result;  // as before CUDA 12
        cudaGraphExecUpdate(two, other, NULL, &result);
        cudaGetLastError();
        WANT(result == info.result);
        OK(cudaGraphLaunch(two, stream));
        OK(cudaStreamSynchronize(stream));
        OK(cudaMemcpy(out, x, 4, cudaMemcpyDeviceToHost));
        WANT(out[0] == (nodes == 2 ? 100 : 2));
        OK(cudaGraphExecDestroy(two));
        OK(cudaGraphDestroy(other));
    }

    // A stream that has joined in may go before the capture ends.
    cudaStream_t guest;
    OK(cudaStreamCreateWithFlags(&guest, cudaStreamNonBlocking));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    OK(cudaEventRecord(fork, stream));
    OK(cudaStreamWaitEvent(guest, fork, 0));
    int* owned;
    OK(cudaMallocAsync(&owned, 4, guest));
    OK(cudaMemsetAsync(owned, 0, 4, guest));
    add<<<1, 1, 0, guest>>>(owned, 1, 5);
    OK(cudaMemcpyAsync(out, owned, 4, cudaMemcpyDeviceToHost, guest));
    OK(cudaFreeAsync(owned, guest));
    OK(cudaEventRecord(join, guest));
    OK(cudaStreamWaitEvent(stream, join, 0));
    OK(cudaStreamDestroy(guest));
    OK(cudaStreamEndCapture(stream, &other));
    cudaGraphExec_t borrowed;
    OK(cudaGraphInstantiate(&borrowed, other, 0));
    OK(cudaGraphDestroy(other));
    OK(cudaGraphLaunch(borrowed, stream));
    OK(cudaStreamSynchronize(stream));
    WANT(out[0] == 5);
    OK(cudaGraphExecDestroy(borrowed));

    // What cannot be captured.
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    REFUSED(cudaErrorStreamCaptureUnsupported, cudaStreamSynchronize(stream));
    REFUSED(cudaErrorStreamCaptureInvalidated, cudaStreamEndCapture(stream, &other));
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
    OK(cudaEventRecord(fork, stream));
    OK(cudaStreamWaitEvent(side, fork, 0));
    OK(cudaMemsetAsync(y, 0, 4, side));
    REFUSED(cudaErrorStreamCaptureUnjoined, cudaStreamEndCapture(stream, &other));
    add<<<1, 1, 0, side>>>(y, 1, 7);  // no stream is captured any more
    OK(cudaStreamSynchronize(side));
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(graph));
    OK(cudaEventDestroy(fork));
    OK(cudaEventDestroy(join));
    OK(cudaStreamDestroy(stream));
    OK(cudaStreamDestroy(side));
    OK(cudaFree(x));
    OK(cudaFree(y));
    return 0;
}

extern "C" int run_nodes() {
    cudaGraph_t graph, child, copy;
    cudaGraphNode_t set, kernel, home, call, inner, nested, twins[2];
    cudaGraphExec_t exec;
    cudaGraphNodeType type;
    cudaStream_t stream;
    int *x, n = 5, by = 3, out[5] = {};
    std::vector<int> calls;
    OK(cudaStreamCreate(&stream));
    OK(cudaMalloc(&x, sizeof out));
    OK(cudaGraphCreate(&graph, 0));

    // In an order that only the dependencies put right.
    cudaMemcpy3DParms move = {};
    move.srcPtr = make_cudaPitchedPtr(x, sizeof out, 5, 1);
    move.dstPtr = make_cudaPitchedPtr(out, sizeof out, 5, 1);
    move.extent = make_cudaExtent(sizeof out, 1, 1);
    move.kind = cudaMemcpyDeviceToHost;
    OK(cudaGraphAddMemcpyNode(&home, graph, nullptr, 0, &move));
    cudaMemsetParams fill = {};
    fill.dst = x;
    fill.value = 0x01020304;
    fill.elementSize = 4;
    fill.width = 5;
    fill.height = 1;
    OK(cudaGraphAddMemsetNode(&set, graph, nullptr, 0, &fill));
    void* arguments[] = {&x, &n, &by};
    cudaKernelNodeParams launch = {};
    launch.func = (void*)add;
    launch.gridDim = dim3(1);
    launch.blockDim = dim3(32);
    launch.kernelParams = arguments;
    OK(cudaGraphAddKernelNode(&kernel, graph, &set, 1, &launch));
    by = 1000;  // copied when the node was made
    OK(cudaGraphAddDependencies(graph, &kernel, &home, NULL, 1));
    cudaHostNodeParams host = {note, &calls};
    OK(cudaGraphAddHostNode(&call, graph, &home, 1, &host));
    OK(cudaGraphNodeGetType(kernel, &type));
    WANT(type == cudaGraphNodeTypeKernel);

    OK(cudaGraphCreate(&child, 0));
    OK(cudaGraphAddHostNode(&inner, child, nullptr, 0, &host));
    OK(cudaGraphAddChildGraphNode(&nested, graph, &call, 1, child));
    OK(cudaGraphDestroy(child));
    OK(cudaGraphClone(&copy, graph));
    OK(cudaGraphNodeFindInClone(&twins[0], set, copy));
    OK(cudaGraphNodeFindInClone(&twins[1], kernel, copy));
    OK(cudaGraphInstantiate(&exec, copy, 0));
    OK(cudaGraphDestroy(graph));

    OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    for (int i = 0; i < 5; i++) WANT(out[i] == 0x01020304 + 3);
    WANT(calls.size() == 2);

    fill.value = 0;
    OK(cudaGraphExecMemsetNodeSetParams(exec, twins[0], &fill));
    OK(cudaGraphExecKernelNodeSetParams(exec, twins[1], &launch));
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    for (int i = 0; i < 5; i++) WANT(out[i] == 1000);
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphDestroy(copy));
    OK(cudaStreamDestroy(stream));
    OK(cudaFree(x));
    return 0;
}
