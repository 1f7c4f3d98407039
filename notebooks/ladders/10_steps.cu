// The loss of one row and its gradient by one warp, to be stepped through: one pass over the logits
// for the maximum and the sum, and another one that computes the exponentials again.
//
//   x, dx [96] float     target [1] int64     loss [1] float

#include "softmax.cuh"

constexpr int kEach = 3;  // logits of a thread

__global__ void loss_and_gradient(const float* x, const int64_t* target, float* loss, float* dx) {
    const int64_t hit = target[0];
    float most = -INFINITY, sum = 0;
    for (int i = 0; i < kEach; ++i) {
        const float logit = x[kWarp * i + threadIdx.x];
        const float larger = fmaxf(most, logit);
        sum = sum * expf(most - larger) + expf(logit - larger);
        most = larger;
    }
    const float all = warp_max(most);
    sum = warp_sum(sum * expf(most - all));
    if (threadIdx.x == 0) loss[0] = logf(sum) - (x[hit] - all);
    for (int i = 0; i < kEach; ++i) {
        const int c = kWarp * i + threadIdx.x;
        dx[c] = expf(x[c] - all) / sum - (c == hit ? 1 : 0);
    }
}

extern "C" cudaError_t both(const float* x, const int64_t* target, float* loss, float* dx,
                            cudaStream_t stream) {
    loss_and_gradient<<<1, kWarp, 0, stream>>>(x, target, loss, dx);
    return cudaGetLastError();
}
