// The kernels of quantize_mxfp8 and quantize_nvfp4.
//
//   x [rows, cols] T     q [rows, cols / kPerByte] bytes     scales: block_scales.h
//
// A Format is Mxfp8 or Nvfp4 of block_scales.cuh; cols is a multiple of its kBlock.
//
// Traffic, the least a kernel can move: x is read and q and the scales are written once, in bytes
// for each element sizeof(T) + 1 / kPerByte + 1 / kBlock.

#include "block_scales.cuh"
#include "quantize.cuh"

enum Version : int64_t { kNaive, kVector };  // as in quantize_mxfp8.py and quantize_nvfp4.py

// ---- naive: one thread for each scale, also for those that only fill a tile.
// Flaw: neighbouring threads read whole blocks apart, and twice, and write single bytes.

template <class T, class Format>
__global__ void quantize_naive(const T* x, uint8_t* q, uint8_t* scales, BlockScales of,
                               Format format) {
    const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
    const int64_t across = of.tiles_across() * kScaleColumns;
    if (i >= of.bytes()) return;
    const int64_t row = i / across, block = i % across;
    uint8_t* const scale = &scales[of.offset(row, block)];
    if (row >= of.rows || block >= of.blocks) {
        *scale = 0;
        return;
    }
    const int64_t start = (row * of.blocks + block) * Format::kBlock;
    Largest largest = Largest::identity();
    for (int k = 0; k < Format::kBlock; ++k) largest.add(float(x[start + k]));
    const BlockScale made = format.scale_of(largest);
    *scale = made.byte;
    for (int k = 0; k < Format::kBlock; k += 2) {
        float pair[] = {float(x[start + k]), float(x[start + k + 1])};
        multiply(pair, made.multiplier);
        const auto bytes = Format::encode(pair);
        for (int n = 0; n < 2 / Format::kPerByte; ++n)
            q[(start + k) / Format::kPerByte + n] = bytes[n];
    }
}

// ---- vector: a thread block for each tile of scales. Neighbouring threads read 16 bytes of x each
// and find a block's largest by shuffles; x is read once, a tile of scales is written at once.

constexpr int kQuantizeThreads = 256;
constexpr int kInFlight = 4;  // vectors that a thread reads before it uses the first

template <class T, class Format, bool kVectors>
__global__ void __launch_bounds__(kQuantizeThreads) quantize_vector(
    const T* x, uint8_t* q, uint8_t* scales, BlockScales of, Format format) {
    constexpr int V = kVec<T>, kLanes = Format::kBlock / V, kAtOnce = kQuantizeThreads / kLanes;
    __shared__ alignas(4) uint8_t tile[kScaleTile];
    const int64_t first_row = blockIdx.x / of.tiles_across() * kScaleRows;
    const int64_t first_block = blockIdx.x % of.tiles_across() * kScaleColumns;
    const int lane = threadIdx.x % kLanes;
    for (int start = threadIdx.x / kLanes; start < kScaleTile; start += kInFlight * kAtOnce) {
        Vec<T, V> all[kInFlight];
        int64_t from[kInFlight];  // the vector's first element in x, or -1 beyond its end
#pragma unroll
        for (int n = 0; n < kInFlight; ++n) {
            const int at = start + n * kAtOnce;
            const int64_t row = first_row + at / kScaleColumns;
            const int64_t block = first_block + at % kScaleColumns;
            const bool is_there = row < of.rows && block < of.blocks;
            from[n] = is_there ? (row * of.blocks + block) * Format::kBlock + lane * V : -1;
            all[n] = PartialVector<T, kVectors>(is_there ? V : 0).read_once(x + from[n]);
        }
#pragma unroll
        for (int n = 0; n < kInFlight; ++n) {
            Largest largest = Largest::identity();
            largest.add(all[n]);
            for (int bit = kLanes / 2; bit > 0; bit /= 2)
                largest.combine({__shfl_xor_sync(0xffffffff, largest.bits, bit)});
            const BlockScale made = format.scale_of(largest);
            const int at = start + n * kAtOnce;
            if (lane == 0)
                tile[offset_in_tile(at / kScaleColumns, at % kScaleColumns)] =
                    from[n] >= 0 ? made.byte : 0;
            if (from[n] < 0) continue;
            float numbers[V];
            to_floats(all[n], numbers);
            multiply(numbers, made.multiplier);
            store(q + from[n] / Format::kPerByte, Format::encode(numbers));
        }
    }
    __syncthreads();
    if (threadIdx.x < kScaleTile / 4)
        reinterpret_cast<uint32_t*>(scales + int64_t(blockIdx.x) * kScaleTile)[threadIdx.x] =
            reinterpret_cast<const uint32_t*>(tile)[threadIdx.x];
}

// ---- launcher

// q and scales begin on multiples of 16 bytes, x where its elements may.
template <class T, class Format>
cudaError_t launch_quantize(const T* x, uint8_t* q, uint8_t* scales, BlockScales of, Format format,
                            int64_t version, cudaStream_t stream) {
    if (of.bytes() == 0) return cudaSuccess;
    if (version == kNaive) {
        quantize_naive<<<ceil_div<int64_t>(of.bytes(), kWarp), kWarp, 0, stream>>>(
            x, q, scales, of, format);
    } else {
        const auto kernel =
            is_aligned(x) ? quantize_vector<T, Format, true> : quantize_vector<T, Format, false>;
        kernel<<<of.tiles(), kQuantizeThreads, 0, stream>>>(x, q, scales, of, format);
    }
    return cudaGetLastError();
}
