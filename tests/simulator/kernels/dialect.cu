// Words and forms of CUDA C++ that C++ does not have, as people write them.
#include <assert.h>
#include "dialect.h"

using namespace std;

// ---- Variables of the device

__device__ __managed__ int managed = 5;
__device__ volatile int flag;
__device__ float table[2][2] = {{1, 2}, {3, 4}}, *table_of_device = nullptr;
static __constant__ __align__(16) Pair pair_of_device = {6, 7};

typedef float (*Operation)(float, float);
__device__ float add(float a, float b) { return a + b; }
__device__ __noinline__ static float subtract(float a, float b) { return a - b; }
__device__ Operation operation = subtract, operations[] = {add, subtract};

__global__ void variables(float* y, Operation given) {
    flag = 8;
    table_of_device = &table[1][0];
    y[0] = weights[2];
    y[1] = of_header;
    y[2] = managed;
    y[3] = flag;
    y[4] = table_of_device[1];
    y[5] = pair_of_device.y;
    y[6] = operation(9, 1);
    y[7] = given(9, 1);
    y[8] = operations[threadIdx.x](9, 2);
}

extern "C" int run_variables(float* y) {
    Operation given;
    cudaMemcpyFromSymbol(&given, operation, sizeof(given));
    managed = 10;
    variables<<<1, 1>>>(y, given);
    cudaDeviceSynchronize();
    return managed;
}

// ---- Shared memory

template <class T, int n>
__global__ void shared(T* y) {
    __shared__ T first[n], second;
    __shared__ volatile T tile[2][n / 2 + 1];
    static __shared__ Pair pairs[n];
    alignas(16) __shared__ char bytes[16];
    __shared__ __align__(32) Aligned sums[n];
    float __shared__ after[n];
    __shared__ union {
        int word;
        unsigned char byte[4];
    } both;
    const int i = threadIdx.x;
    first[i] = T(i);
    tile[i % 2][i / 2] = T(2 * i);
    pairs[i] = {float(i), 1};
    sums[i] = Aligned(i) + 1;
    after[i] = i;
    if (i == 0) second = 3, both.word = 0x01020304, bytes[3] = 4;
    __syncthreads();
    const int j = n - 1 - i;
    y[i] = first[j] + second + T(tile[j % 2][j / 2]) + T(pairs[j].x + pairs[j].y) + T(sums[j].a) +
           T(after[j]) + T(both.byte[0] + bytes[3]);
}

template <class T>
__global__ void dynamic(T* y) {
    extern __shared__ __align__(16) unsigned char raw[];
    T* values = reinterpret_cast<T*>(raw);
    double* behind = (double*)&values[blockDim.x];
    values[threadIdx.x] = T(threadIdx.x);
    behind[threadIdx.x] = threadIdx.x;
    __syncthreads();
    y[threadIdx.x] = values[blockDim.x - 1 - threadIdx.x] + T(behind[threadIdx.x]);
}

template <class T>
__global__ void by_class(T* y) {
    T* s = SharedMemory<T>();
    s[threadIdx.x] = T(threadIdx.x);
    __syncthreads();
    y[threadIdx.x] = s[threadIdx.x ^ 1];
}

extern "C" void run_shared(float* y, double* z) {
    shared<float, 8><<<1, 8>>>(y);
    shared<double, 4><<<1, 4>>>(z);
    dynamic<<<1, 8, 8 * (sizeof(float) + sizeof(double))>>>(y + 8);
    dynamic<double><<<1, 4, 64>>>(z + 4);
    by_class<<<1, 8, 32>>>(y + 16);
    by_class<<<1, 4, 32>>>(z + 8);
}

// ---- Functions

__host__ __device__ constexpr int cube(int x) { return x * x * x; }
static __device__ __inline__ int inlined(int x) { return x + 1; }
inline __device__ __host__ int either(const int& x) { return x; }
__device__ int factorial(int n) { return n < 2 ? 1 : n * factorial(n - 1); }
void __global__ word_order(int* y) { *y = cube(2); }
__launch_bounds__(32) __global__ void bounds_first(int* y) { *y = inlined(8); }

struct Base {
    __device__ virtual ~Base() {}
    __device__ virtual int value() const = 0;
};
struct Derived final : Base {
    __device__ explicit Derived(int v) : v(v) {}
    __device__ int value() const override { return v; }
    int v;
};

template <class F>
__global__ void apply(int* y, const F f) {
    *y = f(int(threadIdx.x));
}

__global__ void functions(int* __restrict__ y, const __grid_constant__ Aligned a) {
    int i = 0;
    y[i++] = factorial(5);
    y[i++] = either(a.a);
    const Base* base = new Derived(11);
    y[i++] = base->value();
    delete base;
    int sum = 0;
#pragma unroll unroll_by
    for (int k = 0; k < 4; k++) sum += k;
#pragma unroll(unroll_by / 2)
    for (int k = 0; k < 4; k++) sum += k;
    PRAGMA(unroll)
    for (int k = 0; k < 4; k++) sum += k;
    _Pragma("unroll 2") for (int k = 0; k < 4; k++) sum += k;
    __builtin_assume(sum > 0);
    y[i++] = sum;
    y[i++] = min(sum, 3) + max(2, 3) + ::max(1, 0);
    y[i++] = int(min(1.5f, 2.5f) + max(1.5f, 2.5f) + fmaxf(0.f, 1.f) + ::max(1.0, 2.f));
    y[i++] = min(5ull, 7ull) + max(size_t(3), size_t(4));
    y[i++] = abs(-3) + int(abs(-1.5f) + sqrt(4.f) + pow(2.f, 3) + std::abs(-2.5));
    assert(i == 8);
}

extern "C" int run_functions(int* y) {
    functions<<<1, 1>>>(y, {7});
    word_order<<<1, 1>>>(y + 8);
    bounds_first<<<1, 1>>>(y + 9);
    const int scale = 2;
    auto both = [=] __host__ __device__(int x) { return x + scale; };
    apply<<<1, 1>>>(y + 10, both);
    apply<<<1, 1>>>(y + 11, [scale] __device__(int x) -> int { return cube(x + scale); });
    int more = 1, less = 2;
    swap(more, less);
    return both(12) + std::min(more, 3) + min(more, 3) + std::max(1u, 2u) + max(less, 1);
}
