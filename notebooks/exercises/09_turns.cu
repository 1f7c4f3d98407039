// y = x * f forward and dx = g * f backward, with f = 0 for `dropped` of 65536 elements. No mask is
// stored: backward draws it again
//
// It is right in all its tests, whose tensors had up to 8192 elements. In a model y is right, too:
// as many elements are dropped as should be, and no pattern repeats. Yet the model learns less than
// with a stored mask.
//
// TODO: find the mistake. Budget: 24 lines of code.

#include "philox.cuh"
#include "vec.cuh"

__global__ void drop(const float* in, float* out, uint64_t seed, int dropped, int64_t n) {
    const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const int64_t threads = int64_t(gridDim.x) * blockDim.x;
    for (int64_t i = thread, turn = 0; i < n; i += threads, ++turn) {
        const int bits = Philox::draw(seed, turn, thread).x >> 16;
        out[i] = bits < dropped ? 0 : in[i] * 65536 / (65536 - dropped);
    }
}

extern "C" cudaError_t launch(const float* x, float* y, const float* g, float* dx, int64_t seed,
                              int dropped, int64_t n, cudaStream_t stream) {
    drop<<<64, 256, 0, stream>>>(x, y, seed, dropped, n);
    drop<<<64, 128, 0, stream>>>(g, dx, seed, dropped, n);  // in backward smaller blocks are faster
    return cudaGetLastError();
}
