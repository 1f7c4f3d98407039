// Kernels whose every value is compared with what printf says. `/*: a, b :*/` at the end of a line
// names what the test prints there. None prints what a line declares for the lines behind it alone.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cstdint>

struct Pair {
    float a;
    int b;
};
enum Colour { Red, Green = 7 };
enum class Side : unsigned char { Left, Right };

template <class T, int N>
__device__ T total(const T (&v)[N], T start) {
    T sum = start; /*: sum, start :*/
    for (int i = 0; i < N; i++) {
        sum += v[i]; /*: sum, i :*/
    }
    return sum;
}
__device__ int factorial(int n) {
    if (n < 2) return 1;
    const int rest = factorial(n - 1); /*: n, rest :*/
    return n * rest;
}
__device__ __forceinline__ float clamped(float x, float low) {
    const float twice = 2 * x; /*: twice, low :*/
    return twice < low ? low : twice;
}
struct Counter {
    int count = 0;
    __device__ void add(int by) {
        const int before = count; /*: before, by :*/
        count = before + by;
    }
};

__global__ void arrays(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x; /*: i, n :*/
    float v[4];
    for (int k = 0; k < 4; k++) {
        v[k] = x[i] * k; /*: k, v[k] :*/
    }
    const float s = total(v, 1.0f); /*: s :*/
    Pair p{s, i};                   /*: p.a, p.b :*/
    p.b -= 3;                       /*: p.b :*/
    y[i] = clamped(p.a, 4.0f) + factorial(i % 4);
}
__global__ void lambdas(const float* x, float* y, int n) {
    const int i = threadIdx.x;
    float kept = 0; /*: kept :*/
    auto square = [&](float z) {
        const float w = z * z + kept; /*: w, z :*/
        kept = w;                     /*: w :*/
        return w;
    };
    float s = square(x[i]); /*: s, kept :*/
    s += square(s);         /*: s, kept :*/
    float& alias = kept;    /*: alias :*/
    alias *= 2;             /*: alias, kept :*/
    y[i] = s;
}
__global__ void numbers(const float* x, float* y, int n) {
    const int i = threadIdx.x;
    const double d = x[i] / 3.0;             /*: d :*/
    const long long big = (1ll << 40) + i;   /*: big :*/
    const uint8_t small = 250 + i;           /*: small :*/
    const short negative = -i;               /*: negative :*/
    const bool odd = i % 2;                  /*: odd :*/
    const Colour colour = odd ? Green : Red; /*: colour :*/
    const Side side = odd ? Side::Right : Side::Left;
    const __half h = __float2half(x[i]);                /*: __half2float(h) :*/
    const __nv_bfloat16 b = __float2bfloat16(x[i]);     /*: __bfloat162float(b) :*/
    const float4 four = make_float4(x[i], 1, 2, 3);     /*: four.x, four.w :*/
    const __half2 two = __floats2half2_rn(x[i], -x[i]); /*: __high2float(two) :*/
    const unsigned mask = __ballot_sync(~0u, odd);      /*: mask :*/
    const dim3 grid(i, 2);                              /*: grid.x, grid.z :*/
    y[i] = d + big + small + negative + colour + int(side) + float(h) + float(b) + four.x + mask +
           grid.x;
    y[i] += __low2float(two);
}
__global__ void diverged(const float* x, float* y, int n) {
    int i = threadIdx.x, steps = 0; /*: i, steps :*/
    int value = i + 1;              /*: value :*/
    while (value != 1) {
        if (value % 2) {
            value = 3 * value + 1; /*: value, steps :*/
        } else {
            value /= 2; /*: value, steps :*/
        }
        if (++steps > 20) break;
    }
    switch (i % 3) {
        case 0: {
            const int zero = steps * 10; /*: zero :*/
            steps = zero;
            break;
        }
        case 1:
            steps++; /*: steps :*/
        default:
            steps += 100; /*: steps :*/
    }
    if (i == 5) return;
    Counter counter; /*: counter.count :*/
    for (int k = 0; k < i % 4; k++) counter.add(k);
    steps += counter.count; /*: steps, counter.count :*/
    y[i] = steps;
}
__global__ void reduced(const float* x, float* y, int n) {
    extern __shared__ float part[];
    __shared__ float total[1];
    const int t = threadIdx.x + blockDim.x * threadIdx.y; /*: t :*/
    part[t] = x[t];
    __syncthreads();
    for (int half = blockDim.x * blockDim.y / 2; half > 0; half /= 2) {
        if (t < half) {
            part[t] += part[t + half]; /*: half, part[t] :*/
        }
        __syncthreads();
    }
    float v = x[t]; /*: v :*/
    for (int lane = 16; lane > 0; lane /= 2) {
        v += __shfl_xor_sync(~0u, v, lane); /*: v, lane :*/
    }
    if (t == 0) {
        *total = part[0]; /*: total[0] :*/
    }
    __syncthreads();
    const int before = atomicAdd(reinterpret_cast<int*>(y), 1);
    y[1 + t] = v + *total + 0 * before;
}

#define LAUNCH(name, grid, block, shared)                         \
    extern "C" void run_##name(const float* x, float* y, int n) { \
        name<<<grid, block, shared>>>(x, y, n);                   \
    }
LAUNCH(arrays, 2, 40, 0)
LAUNCH(lambdas, 1, 32, 0)
LAUNCH(numbers, 1, 32, 0)
LAUNCH(diverged, 1, 48, 0)
LAUNCH(reduced, 1, dim3(32, 2), 64 * sizeof(float))
