// square as two C functions of float32: no schema, no tensors, no torch.
#include <cuda_runtime.h>
#include <stdint.h>

template <class T>
cudaError_t square_forward(const T* x, T* y, int64_t n, int64_t version, cudaStream_t stream);
template <class T>
cudaError_t square_backward(const T* g, const T* x, T* dx, int64_t n, int64_t version,
                            cudaStream_t stream);

extern "C" cudaError_t forward(const float* x, float* y, int64_t n, cudaStream_t stream) {
    return square_forward(x, y, n, 1, stream);
}

extern "C" cudaError_t backward(const float* grad, const float* x, float* dx, int64_t n,
                                cudaStream_t stream) {
    return square_backward(grad, x, dx, n, 1, stream);
}
