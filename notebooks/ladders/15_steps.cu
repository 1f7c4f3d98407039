// 15_tensor_cores.cu's `direct` with a single warp, to be stepped through.
//
//   x [16, depth], w [8, depth] bfloat16, y [16, 8] float: y = x w^T

#include <cuda_bf16.h>
#include "mma.cuh"

using Pair = nv_bfloat162;

__device__ Pair pair_at(const nv_bfloat16* two) { return *reinterpret_cast<const Pair*>(two); }

__global__ void product_direct(const nv_bfloat16* x, const nv_bfloat16* w, float* y, int depth) {
    const int lane = threadIdx.x, down = lane / 4, right = lane % 4 * 2;
    float sums[4] = {};
    for (int k = 0; k < depth; k += 16) {
        const nv_bfloat16* const of_x = x + down * depth + k + right;
        const nv_bfloat16* const of_w = w + down * depth + k + right;
        const Pair a[4] = {pair_at(of_x), pair_at(of_x + 8 * depth), pair_at(of_x + 8),
                           pair_at(of_x + 8 * depth + 8)};
        const Pair b[2] = {pair_at(of_w), pair_at(of_w + 8)};
        mma<nv_bfloat16>(sums, reinterpret_cast<const uint32_t (&)[4]>(a),
                         reinterpret_cast<const uint32_t (&)[2]>(b));
    }
    for (int i = 0; i < 4; ++i) y[(down + i / 2 * 8) * 8 + right + i % 2] = sums[i];
}

extern "C" cudaError_t direct(const nv_bfloat16* x, const nv_bfloat16* w, float* y, int depth,
                              cudaStream_t stream) {
    product_direct<<<1, 32, 0, stream>>>(x, w, y, depth);
    return cudaGetLastError();
}
