// Thread 5 on its second turn is element 16389 of 64 x 256 threads and element 8197 of 64 x 128.
// The bits must depend on the number of the element, not on the launch.

#include "philox.cuh"
#include "vec.cuh"

__global__ void drop(const float* in, float* out, uint64_t seed, int dropped, int64_t n) {
    const int64_t thread = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const int64_t threads = int64_t(gridDim.x) * blockDim.x;
    for (int64_t i = thread; i < n; i += threads) {
        const int bits = Philox::draw(seed, 0, i).x >> 16;
        out[i] = bits < dropped ? 0 : in[i] * 65536 / (65536 - dropped);
    }
}

extern "C" cudaError_t launch(const float* x, float* y, const float* g, float* dx, int64_t seed,
                              int dropped, int64_t n, cudaStream_t stream) {
    drop<<<64, 256, 0, stream>>>(x, y, seed, dropped, n);
    drop<<<64, 128, 0, stream>>>(g, dx, seed, dropped, n);  // in backward smaller blocks are faster
    return cudaGetLastError();
}
