// Correct kernels that take memory by `new` and malloc.
#include <stdlib.h>
#include "export.cuh"

struct Node {
    float value;
    Node* next;
};

// Each thread makes a list of its own, and gives it back.
__global__ void lists(const float* x, float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i >= n) return;
    Node* first = nullptr;
    for (int k = 0; k <= i % 3; ++k) first = new Node{x[i], first};
    float sum = 0;
    while (first) {
        sum += first->value;
        Node* next = first->next;
        delete first;
        first = next;
    }
    y[i] = sum;
}
EXPORT(a_list_of_new_nodes, lists<<<blocks_of(n), kThreads>>>(x, y, n))

// One thread takes memory for its block (as in the programming guide).
__global__ void for_the_block(const float* x, float* y, int n) {
    __shared__ float* data;
    const int t = threadIdx.x, i = blockIdx.x * kThreads + t;
    if (t == 0) data = static_cast<float*>(malloc(kThreads * sizeof(float)));
    __syncthreads();
    data[t] = i < n ? x[i] : 0;
    __syncthreads();
    if (i < n) y[i] = data[kThreads - 1 - t];
    __syncthreads();
    if (t == 0) free(data);
}
EXPORT(memory_of_a_block, for_the_block<<<blocks_of(n), kThreads>>>(x, y, n))

// Memory that a launch takes and the next two use.
__device__ float* kept;

__global__ void take(int n) { kept = new float[n]; }
__global__ void fill(const float* x, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i < n) kept[i] = 2 * x[i];
}
__global__ void use(float* y, int n) {
    const int i = blockIdx.x * kThreads + threadIdx.x;
    if (i < n) y[i] = kept[n - 1 - i];
}
__global__ void give_back() { delete[] kept; }
extern "C" void memory_over_launches(const float* x, float* y, int n) {
    take<<<1, 1>>>(n);
    fill<<<blocks_of(n), kThreads>>>(x, n);
    use<<<blocks_of(n), kThreads>>>(y, n);
    give_back<<<1, 1>>>();
}
