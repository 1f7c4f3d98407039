// Thrust and libcu++ from NVIDIA's own headers, and kernels beside them.
#include <thrust/device_vector.h>
#include <thrust/host_vector.h>
#include <thrust/iterator/zip_iterator.h>
#include <thrust/reduce.h>
#include <thrust/scan.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>
#include <thrust/transform_reduce.h>
#include <cub/block/block_reduce.cuh>
#include <cuda/barrier>
#include <cuda/functional>
#include <cuda/std/array>
#include <cuda/std/limits>
#include <cuda/std/tuple>

__global__ void doubled(int* values, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] *= 2;
}

struct Plus {
    __host__ __device__ int operator()(int a, int b) const { return a + b; }
};

// A vector of the device goes through a kernel, a sort on a stream and a scan.
extern "C" cudaError_t run_vector(int* y, int n) {
    thrust::device_vector<int> values(n);
    thrust::sequence(values.begin(), values.end(), -n / 2);
    doubled<<<(n + 63) / 64, 64>>>(thrust::raw_pointer_cast(values.data()), n);
    cudaStream_t stream;
    cudaStreamCreate(&stream);
    thrust::sort(
        thrust::cuda::par.on(stream), values.begin(), values.end(), thrust::greater<int>());
    cudaStreamSynchronize(stream);
    thrust::inclusive_scan(thrust::device, values.begin(), values.end(), y);
    const thrust::host_vector<int> kept = values;
    const int total =
        thrust::transform_reduce(kept.begin(), kept.end(), [](int x) { return x / 2; }, 0, Plus());
    return total == n * (n - 1) / 2 - n * (n / 2) ? cudaDeviceSynchronize() : cudaErrorUnknown;
}

extern "C" cudaError_t run_error(int* y, int) {
    try {
        throw thrust::system_error(1, thrust::generic_category());
    } catch (thrust::system_error& error) {
        const int value = error.code().value();
        return cudaMemcpy(y, &value, sizeof value, cudaMemcpyDefault);
    }
    return cudaErrorUnknown;
}

// libcu++ and CUB within a kernel, and a barrier that waits.
__global__ void in_a_kernel(int* y) {
    using Reduce = cub::BlockReduce<int, 96>;
    __shared__ Reduce::TempStorage storage;
    __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
    __shared__ int best;
    if (threadIdx.x == 0) init(&barrier, blockDim.x);
    __syncthreads();
    const cuda::std::array<int, 3> thirds{1, 2, 3};
    const auto pair = cuda::std::make_tuple(int(threadIdx.x), thirds[threadIdx.x % 3]);
    const int most = Reduce(storage).Reduce(cuda::std::get<0>(pair), cuda::maximum<int>());
    if (threadIdx.x == 0) best = most;
    barrier.arrive_and_wait();
    int sorted[3] = {int(threadIdx.x), 7, -1};
    thrust::sort(thrust::seq, sorted, sorted + 3);
    y[threadIdx.x] = best + cuda::std::get<1>(pair) + sorted[0] * 1000 +
                     (cuda::std::numeric_limits<int>::max() == 2147483647);
}
extern "C" cudaError_t run_in_a_kernel(int* y, int) {
    in_a_kernel<<<1, 96>>>(y);
    return cudaDeviceSynchronize();
}
