#include "shared.cuh"

extern "C" void second(float* y) {
    fill<float><<<2, 4>>>(y, 10);
    reverse<<<1, 8>>>(y);
}
extern "C" void second_by_launcher(float* y) { launch_fill<float>(y, 10); }
extern "C" int second_turned(float* y) {
    const int of_this_file[] = {0, 10};
    cudaMemcpyToSymbol(weights, of_this_file, sizeof of_this_file);
    turn<<<1, 8>>>(y);
    int count;
    cudaMemcpyFromSymbol(&count, calls, sizeof count);
    return count;
}
