// The conversions of float8.cuh, element by element.
#include "float8.cuh"

__global__ void to_float_of_all(const uint8_t* codes, float* floats, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) floats[i] = to_float(Float8{codes[i]});
}

__global__ void to_float8_of_all(const float* x, uint8_t* by_hand, uint8_t* pairs, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    by_hand[i] = to_float8_by_hand(x[i]).bits;
    pairs[i] = to_float8(x[i]).bits;
}

extern "C" void float8_to_float(const uint8_t* codes, float* floats, int n) {
    to_float_of_all<<<ceil_div(n, 256), 256>>>(codes, floats, n);
}
extern "C" void float_to_float8(const float* x, uint8_t* by_hand, uint8_t* pairs, int n) {
    to_float8_of_all<<<ceil_div(n, 256), 256>>>(x, by_hand, pairs, n);
}
