#include "shared.cuh"

extern "C" void first(float* y) {
    fill<float><<<2, 4>>>(y, 1);
    reverse<<<1, 8>>>(y);
}
extern "C" void first_by_launcher(float* y) { launch_fill<float>(y, 1); }
extern "C" int first_turned(float* y) {
    const int of_this_file[] = {0, 1};
    cudaMemcpyToSymbol(weights, of_this_file, sizeof of_this_file);
    turn<<<1, 8>>>(y);
    int count;
    cudaMemcpyFromSymbol(&count, calls, sizeof count);
    return count;
}
