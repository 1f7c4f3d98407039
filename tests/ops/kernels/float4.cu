// To floats of four bits, by hand and by the instruction, for test_block_scaled.py.
#include "block_scales.cuh"

__global__ void convert(const float* x, uint8_t* by_hand, uint8_t* by_instruction, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    by_hand[i] = to_float4_by_hand(x[i]) | to_float4_by_hand(-x[i]) << 4;
    by_instruction[i] = to_float4_pair(x[i], -x[i]);
}

extern "C" void float_to_float4(const float* x, uint8_t* by_hand, uint8_t* by_instruction, int n) {
    convert<<<(n + 255) / 256, 256>>>(x, by_hand, by_instruction, n);
}
