// What programs take from CUDA's driver API beside the runtime's, and the names by which headers
// ask for each other. It says with 0 that all is as CUDA has it, else the line that is not.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>
#include <string.h>

#if !defined(__CUDA_RUNTIME_H__) || !defined(__CUDA_RUNTIME_API_H__) || \
    !defined(__DRIVER_TYPES_H__) || !defined(__cuda_cuda_h__)
#error "CUDA's headers define these"
#endif
static_assert(CUDART_VERSION >= 12000 && CUDA_VERSION == CUDART_VERSION, "one release");

#define WANT(...) \
    if (!(__VA_ARGS__)) return __LINE__
#define OK(...) WANT((__VA_ARGS__) == CUDA_SUCCESS)

__global__ void twice(int* x) { x[threadIdx.x] *= 2; }

extern "C" int run_driver() {
    CUdevice device;
    CUdeviceptr memory;
    CUstream stream;
    cudaDeviceProp properties;
    char name[64];
    const char* text;
    size_t bytes;
    int value, numbers[4] = {1, 2, 3, 4};
    OK(cuInit(0));
    OK(cuDeviceGetCount(&value));
    WANT(value >= 1);
    OK(cuDeviceGet(&device, 0));
    WANT(cuDeviceGet(&device, 99) == CUDA_ERROR_INVALID_DEVICE);
    OK(cuDeviceGetName(name, sizeof name, device));
    WANT(cudaGetDeviceProperties(&properties, 0) == cudaSuccess);
    WANT(!strcmp(name, properties.name));
    OK(cuDeviceTotalMem(&bytes, device));
    WANT(bytes == properties.totalGlobalMem);
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    WANT(value == properties.major);
    OK(cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, device));
    WANT(value == CU_COMPUTEMODE_DEFAULT);
    OK(cuMemAlloc(&memory, sizeof numbers));
    OK(cuMemcpyHtoD(memory, numbers, sizeof numbers));
    twice<<<1, 4>>>(reinterpret_cast<int*>(memory));
    OK(cuCtxSynchronize());
    OK(cuMemcpyDtoH(numbers, memory, sizeof numbers));
    for (int i = 0; i < 4; i++) WANT(numbers[i] == 2 * i + 2);
    WANT(cuMemcpyDtoH(numbers, memory, 1000) == CUDA_ERROR_INVALID_VALUE);
    WANT(cudaGetLastError() == cudaSuccess);  // the runtime knows nothing of the driver's errors
    OK(cuMemFree(memory));
    OK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
    WANT(!strcmp(text, "CUDA_ERROR_OUT_OF_MEMORY"));
    OK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
    WANT(!strcmp(text, "out of memory"));
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(cuStreamSynchronize(stream));
    OK(cuStreamDestroy(stream));
    nvtxRangePushA("outer");
    nvtxMark("here");
    nvtxRangePop();
    return 0;
}
