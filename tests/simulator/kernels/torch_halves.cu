// PyTorch's half types, which the project's own kernels use. CUDA has no shuffle and no atomic for
// them; the simulator does.
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

template <class T>
__global__ void together(const T* x, T* y, T* sum) {
    const int i = threadIdx.x;
    y[i] = __shfl_down_sync(0xffffffff, x[i], 1) * T(2);
    atomicAdd(sum, T(1));
}

extern "C" cudaError_t run_together(const c10::Half* x, c10::Half* y, c10::Half* sum,
                                    const c10::BFloat16* u, c10::BFloat16* v,
                                    c10::BFloat16* total) {
    together<<<1, 32>>>(x, y, sum);
    together<<<1, 32>>>(u, v, total);
    return cudaGetLastError();
}
