// Shuffles, votes, matches, reductions and the active mask.

#include "launcher.h"

constexpr unsigned kAll = 0xffffffff;

// The four shuffles with every distance of a width.
template <class T>
__global__ void shuffles(T* y, int width) {
    const int lane = threadIdx.x;
    const T value = T(lane * 3 + 1);
    for (int i = 0; i < 64; i++) {
        T* out = y + i * 4 * 32 + lane;
        out[0] = __shfl_sync(kAll, value, i - 16, width);
        out[32] = __shfl_up_sync(kAll, value, i, width);
        out[64] = __shfl_down_sync(kAll, value, i, width);
        out[96] = __shfl_xor_sync(kAll, value, i, width);
    }
}

extern "C" cudaError_t run_shuffles(void* y, int type, int width) {
    if (type == 0) shuffles<<<1, 32>>>(static_cast<int*>(y), width);
    if (type == 1) shuffles<<<1, 32>>>(static_cast<unsigned*>(y), width);
    if (type == 2) shuffles<<<1, 32>>>(static_cast<long*>(y), width);
    if (type == 3) shuffles<<<1, 32>>>(static_cast<unsigned long long*>(y), width);
    if (type == 4) shuffles<<<1, 32>>>(static_cast<float*>(y), width);
    if (type == 5) shuffles<<<1, 32>>>(static_cast<double*>(y), width);
    return cudaGetLastError();
}

// Two halves of a warp, in branches of their own, with masks of their own.
__global__ void divergent(int* y) {
    const int lane = threadIdx.x % 32;
    int value = threadIdx.x;
    if (lane < 16) {
        for (int bit = 8; bit; bit /= 2) value += __shfl_xor_sync(0x0000ffff, value, bit);
    } else {
        for (int bit = 8; bit; bit /= 2)
            value = max(value, __shfl_xor_sync(0xffff0000, value, bit));
    }
    __syncwarp();
    y[threadIdx.x] = value;
}

LAUNCHER(run_divergent, (int* y), divergent<<<1, 96>>>(y))

// A block that does not fill its last warp, and lanes that have returned.
__global__ void partial(int* y) {
    const unsigned lanes = threadIdx.x < 32 ? kAll : 0xff;
    int value = 1;
    for (int bit = 4; bit; bit /= 2) value += __shfl_xor_sync(lanes, value, bit);
    y[threadIdx.x] = value;
    if (threadIdx.x >= 20) return;
    y[threadIdx.x] += 100 * __popc(__ballot_sync(0xfffff, threadIdx.x % 2));
}

LAUNCHER(run_partial, (int* y), partial<<<1, 40>>>(y))

// What a lane writes before __syncwarp, the others read after it.
__global__ void through_shared(int* y) {
    __shared__ int values[64];
    values[threadIdx.x] = threadIdx.x * threadIdx.x;
    __syncwarp();
    y[threadIdx.x] = values[threadIdx.x ^ 31];
}

LAUNCHER(run_through_shared, (int* y), through_shared<<<1, 64>>>(y))

__global__ void votes(int* y) {
    const int lane = threadIdx.x;
    const unsigned odd = 0xaaaaaaaa;
    y[lane] = __ballot_sync(kAll, lane % 3 == 0);
    y[32 + lane] = __any_sync(kAll, lane == 7);
    y[64 + lane] = __any_sync(kAll, lane == 99);
    y[96 + lane] = __all_sync(kAll, lane < 32);
    y[128 + lane] = __all_sync(kAll, lane != 7);
    y[160 + lane] = lane % 2 ? __ballot_sync(odd, lane > 20) : 0;
    y[192 + lane] = __match_any_sync(kAll, lane % 5);
    int same = -1;
    y[224 + lane] = __match_all_sync(kAll, 42, &same);
    y[256 + lane] = same;
    y[288 + lane] = __match_all_sync(kAll, lane / 31, &same);
    y[320 + lane] = same;
    y[352 + lane] = __match_any_sync(kAll, double(lane % 2));
}

LAUNCHER(run_votes, (int* y), votes<<<1, 32>>>(y))

__global__ void reductions(int* y) {
    const int lane = threadIdx.x;
    const int x = (lane * 7919) % 101 - 50;
    y[lane] = __reduce_add_sync(kAll, x);
    y[32 + lane] = __reduce_min_sync(kAll, x);
    y[64 + lane] = __reduce_max_sync(kAll, x);
    y[96 + lane] = __reduce_max_sync(kAll, unsigned(x));
    y[128 + lane] = __reduce_and_sync(kAll, unsigned(lane | 64));
    y[160 + lane] = __reduce_or_sync(kAll, 1u << lane % 7);
    y[192 + lane] = __reduce_xor_sync(kAll, unsigned(lane * lane));
    y[224 + lane] = lane < 8 ? __reduce_add_sync(0xff, unsigned(lane)) : 0;
}

extern "C" cudaError_t run_reductions(int* y) {
#if !defined(__CUDACC__) || __CUDACC_VER_MAJOR__ >= 11
    reductions<<<1, 32>>>(y);
#endif
    return cudaGetLastError();
}

// Two idioms: a reduction among the lanes that run together, and one atomic for a whole warp.
__global__ void active(int* y, int* counter) {
    const int lane = threadIdx.x % 32;
    if (lane % 4 == 1) {
        const unsigned mask = __activemask();
        const int leader = __ffs(mask) - 1;
        int first = 0;
        if (lane == leader) first = atomicAdd(counter, __popc(mask));
        first = __shfl_sync(mask, first, leader);
        y[threadIdx.x] = first + __popc(mask & ((1u << lane) - 1));
    } else {
        y[threadIdx.x] = -__popc(__activemask());
    }
}

LAUNCHER(run_active, (int* y, int* counter), active<<<1, 64>>>(y, counter))
