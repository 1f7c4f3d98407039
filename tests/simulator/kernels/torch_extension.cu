// What extensions of PyTorch use of its headers for CUDA.
#include <ATen/AccumulateType.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/Exceptions.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAMathCompat.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/extension.h>
#include <ATen/cuda/Atomic.cuh>
#include <ATen/cuda/PhiloxUtils.cuh>

// PyTorch's headers bring CUDA's types with them.
static_assert(sizeof(nv_bfloat16) == sizeof(half));

// PyTorch's halves become CUDA's, and these PyTorch's.
__global__ void doubled_kernel(const at::Half* x, at::Half* y) {
    __half h = x[threadIdx.x];
    h = __hadd(x[threadIdx.x].operator __half(), h);
    y[threadIdx.x] = h;
}
__global__ void doubled_kernel(const at::BFloat16* x, at::BFloat16* y) {
    const auto b = static_cast<__nv_bfloat16>(x[threadIdx.x]);
    y[threadIdx.x] = at::BFloat16(__hadd(b, __nv_bfloat16(x[threadIdx.x])));
}

torch::Tensor doubled(torch::Tensor x) {
    auto y = torch::empty_like(x);
    AT_DISPATCH_REDUCED_FLOATING_TYPES(x.scalar_type(), "doubled", [&] {
        doubled_kernel<<<1, x.numel(), 0, at::cuda::getCurrentCUDAStream()>>>(
            x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>());
    });
    return y;
}

// A thread a row, by accessors.
template <typename scalar_t>
__global__ void row_sums_kernel(
    const torch::PackedTensorAccessor32<scalar_t, 2, torch::RestrictPtrTraits> x,
    torch::PackedTensorAccessor32<scalar_t, 1, torch::RestrictPtrTraits> sums) {
    using acc_t = at::acc_type<scalar_t, true>;
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= x.size(0)) return;
    acc_t sum = 0;
    for (int col = 0; col < x.size(1); ++col) sum += static_cast<acc_t>(x[row][col]);
    sums[row] = static_cast<scalar_t>(sum);
}

torch::Tensor row_sums_cuda(torch::Tensor x) {
    auto options = torch::TensorOptions().dtype(x.dtype()).device(torch::kCUDA, x.get_device());
    auto sums = torch::empty({x.size(0)}, options);
    TORCH_CHECK(sums.device() == x.device());
    const int threads = 64;
    const dim3 blocks((x.size(0) + threads - 1) / threads);
    cudaStream_t stream = at::cuda::getCurrentCUDAStream();
    AT_DISPATCH_FLOATING_TYPES_AND2(
        at::ScalarType::Half, at::ScalarType::BFloat16, x.scalar_type(), "row_sums", ([&] {
            row_sums_kernel<scalar_t><<<blocks, threads, 0, stream>>>(
                x.packed_accessor32<scalar_t, 2, torch::RestrictPtrTraits>(),
                sums.packed_accessor32<scalar_t, 1, torch::RestrictPtrTraits>());
        }));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return sums;
}

template <typename scalar_t>
__global__ void squares_kernel(const scalar_t* __restrict__ x, scalar_t* __restrict__ y,
                               size_t size) {
    for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < size; i += blockDim.x * gridDim.x)
        y[i] = x[i] * x[i];
}

torch::Tensor squares_cuda(torch::Tensor x) {
    auto y = torch::empty_like(x);
    AT_DISPATCH_FLOATING_TYPES_AND_HALF(x.scalar_type(), "squares", [&] {
        squares_kernel<scalar_t><<<2, 32, 0, c10::cuda::getCurrentCUDAStream(x.get_device())>>>(
            x.data_ptr<scalar_t>(), y.mutable_data_ptr<scalar_t>(), x.numel());
    });
    AT_CUDA_CHECK(cudaGetLastError());
    return y;
}

template <typename scalar_t>
__global__ void histogram_kernel(const int64_t* x, scalar_t* counts, int64_t size) {
    const int64_t i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size) gpuAtomicAdd(&counts[x[i]], static_cast<scalar_t>(1));
}

// Of counts in each of several types, added up.
torch::Tensor histogram_cuda(torch::Tensor x, int64_t bins) {
    auto total = torch::zeros({bins}, x.options().dtype(torch::kDouble));
    auto count = [&](auto type) {
        using scalar_t = decltype(type);
        torch::Tensor counts =
            torch::zeros({bins}, total.options().dtype(c10::CppTypeToScalarType<scalar_t>::value));
        histogram_kernel<scalar_t><<<(x.numel() + 255) / 256, 256>>>(
            x.data_ptr<int64_t>(), counts.data_ptr<scalar_t>(), x.numel());
        C10_CUDA_CHECK(cudaGetLastError());
        total += counts;
    };
    count(at::Half());
    count(at::BFloat16());
    count(float());
    count(double());
    count(int());
    count(int64_t());
    count(uint8_t());
    return total;
}

// A hash stands in for Philox: what matters is where its key comes from.
__device__ uint32_t mixed(uint64_t key) {
    key = (key ^ (key >> 30)) * 0xbf58476d1ce4e5b9ull;
    key = (key ^ (key >> 27)) * 0x94d049bb133111ebull;
    return uint32_t(key >> 32);
}

__global__ void dropout_kernel(const float* x, float* y, int size, float p,
                               at::PhiloxCudaState state) {
    auto [seed, offset] = at::cuda::philox::unpack(state);
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= size) return;
    const float random = mixed(seed + offset + 0x9e3779b97f4a7c15ull * (i + 1)) / 4294967296.0f;
    y[i] = random < p ? 0 : x[i] / (1 - p);
}

torch::Tensor dropout_cuda(torch::Tensor x, double p, std::optional<at::Generator> generator) {
    auto y = torch::empty_like(x);
    auto* numbers = at::get_generator_or_default<at::CUDAGeneratorImpl>(
        generator, at::cuda::detail::getDefaultCUDAGenerator());
    at::PhiloxCudaState state;
    {
        std::lock_guard<std::mutex> lock(numbers->mutex_);
        state = numbers->philox_cuda_state(4);
    }
    dropout_kernel<<<(x.numel() + 255) / 256, 256>>>(
        x.data_ptr<float>(), y.data_ptr<float>(), x.numel(), p, state);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
    return y;
}

__global__ void idle() {}

void refused_cuda(int64_t threads) {
    idle<<<1, threads>>>();
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

// What is true, by name.
std::vector<std::string> facts_cuda(torch::Tensor x) {
    std::vector<std::string> facts;
    auto tell = [&](bool holds, const char* fact) {
        if (holds) facts.push_back(fact);
    };
    c10::cuda::CUDAGuard guard(x.device());
    tell(guard.current_device() == x.device(), "the guard's device");
    tell(at::cuda::is_available() && c10::cuda::device_count() > 0, "a device");
    tell(at::cuda::warp_size() == 32, "warps of 32");
    tell(at::cuda::getCurrentDeviceProperties()->maxThreadsPerBlock == 1024, "blocks of 1024");
    tell(c10::cuda::compat::max(1.5, c10::cuda::compat::sqrt(4.0)) == 2, "mathematics");

    auto stream = at::cuda::getStreamFromPool();
    {
        c10::cuda::CUDAStreamGuard other(stream);
        tell(at::cuda::getCurrentCUDAStream() == stream, "the guard's stream");
    }
    tell(at::cuda::getCurrentCUDAStream() == at::cuda::getDefaultCUDAStream(), "its end");
    at::cuda::CUDAEvent begin(cudaEventDefault), end(cudaEventDefault);
    begin.record();
    end.record(at::cuda::getCurrentCUDAStream());
    end.block(stream);
    end.synchronize();
    tell(begin.query() && begin.elapsed_time(end) >= 0, "events");

    auto* memory = static_cast<int*>(c10::cuda::CUDACachingAllocator::raw_alloc(1024));
    tell(cudaMemset(memory, 0, 1024) == cudaSuccess, "memory");
    c10::cuda::CUDACachingAllocator::raw_delete(memory);
    tell(torch::ones({2}, torch::Device("cuda")).to(torch::kCUDA).sum().item<float>() == 2,
         "a device by its name");
    return facts;
}
