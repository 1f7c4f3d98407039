// What a beginner does to memory, and what a host's function does to its process.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

__global__ void square(const float* x, float* y) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i] * x[i];
}

template <class T>
__device__ void store(T* x, long i) {
    x[i] = T(1);
}
__global__ void store_float(float* x, long i) { store(x, i); }
__global__ void store_double(double* x, long i) { store(x, i); }
__global__ void store_half(__half* x, long i) { store(x, i); }
__global__ void store_bfloat16(__nv_bfloat16* x, long i) { store(x, i); }
__global__ void store_int(int* x, long i) { store(x, i); }
__global__ void store_long(long long* x, long i) { store(x, i); }
__global__ void store_byte(unsigned char* x, long i) { store(x, i); }
__global__ void store_bool(bool* x, long i) { store(x, i); }
__global__ void load_float(const float* x, float* y, long i) { *y = x[i]; }
__global__ void add_float(float* x, long i) { atomicAdd(x + i, 1.0f); }
__global__ void fill_float4(float4* x) { x[threadIdx.x] = {1, 2, 3, 4}; }

__global__ void past_shared(float* x, int i) {
    __shared__ float tile[64];
    tile[threadIdx.x + i] = 1;
    __syncthreads();
    x[threadIdx.x] = tile[threadIdx.x];
}
__global__ void past_dynamic(float* x, int i) {
    extern __shared__ float row[];
    row[threadIdx.x + i] = 1;
    __syncthreads();
    x[threadIdx.x] = row[threadIdx.x];
}
__global__ void past_local(float* x, int n) {
    float r[4];
    for (int i = 0; i < n; i++) r[i] = x[0] + i;
    x[1] = r[int(x[0])];
}
__global__ void null_pointer(int i) {
    int* p = nullptr;
    p[i] = 1;
}
__global__ void wild_pointer(unsigned long long at) { *reinterpret_cast<volatile float*>(at) = 1; }
__device__ int deeper(volatile int* n) {
    int local[64];
    local[*n % 64] = *n;
    *n = *n + 1;
    return deeper(n) + local[*n % 64];
}
__global__ void recursion(int* x) { *x = deeper(x); }
template <class T>
__device__ int odd(volatile T* x);
template <class T>
__device__ int even(volatile T* x) {
    return odd<T>(x) + *x;
}
template <class T>
__device__ int odd(volatile T* x) {
    return even<T>(x) + *x + 1;
}
__global__ void recursion_of_two(int* x) { *x = even<int>(x); }
__global__ void division(int* x) { x[0] = 7 / x[0]; }
__global__ void large_local(float* x, int n) {
    char a[1u << 31];
    for (long i = 0; i < (1l << 31); i += 1024) a[i] = n;
    x[0] = a[n];
}
__global__ void kernel_exits(int status) { exit(status); }
__global__ void kernel_raises(int signal) { raise(signal); }

static int host_deeper(volatile int* n) {
    int local[64];
    local[*n % 64] = *n;
    *n = *n + 1;
    return host_deeper(n) + local[*n % 64];
}
extern "C" int host_recursion() {
    int n = 0;
    return host_deeper(&n);
}
extern "C" void host_store(float* x, long i) { x[i] = 1; }
extern "C" void host_null() { *reinterpret_cast<volatile int*>(8) = 1; }
extern "C" void host_copy(float* x) { memcpy(reinterpret_cast<void*>(16), x, 16); }
extern "C" int host_division(int n) { return 7 / n; }
extern "C" void host_large(int n) {
    char a[1u << 31];
    for (long i = 0; i < (1l << 31); i += 1024) a[i] = n;
    if (a[n]) puts("");
}
extern "C" int host_local(long n) {
    volatile int a[10];
    for (long i = 0; i < n; i++) a[i] = i;
    return a[1];
}
extern "C" int host_far(long i) {
    volatile int a[10] = {};
    a[i] = 1;
    return a[1];
}
extern "C" void host_heap(int bytes, int n) {
    volatile float* h = static_cast<float*>(malloc(bytes));
    for (int i = 0; i < n; i++) h[i] = i;
    free(const_cast<float*>(h));
}
extern "C" void host_array(int n) {
    volatile float* h = new float[32];
    for (int i = 0; i < n; i++) h[i] = i;
    delete[] h;
}
extern "C" void host_vector(int n) {
    std::vector<float> of_32(32);
    volatile float* h = of_32.data();
    for (int i = 0; i < n; i++) h[i] = i;
}
__global__ void copied(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }
extern "C" void host_vector_in_kernel() {
    std::vector<float> of_32(32);
    copied<<<1, 32>>>(of_32.data() + 8, of_32.data());
}
extern "C" void host_copies_back(int n) {
    float h[4], *x = nullptr;
    cudaMalloc(&x, n * sizeof(float));
    cudaMemcpy(h, x, n * sizeof(float), cudaMemcpyDeviceToHost);
    cudaFree(x);
}
extern "C" void uses_freed(int n) {
    float *x = nullptr, *other = nullptr;
    cudaMalloc(&x, n * sizeof(float));
    cudaFree(x);
    cudaMalloc(&other, n * sizeof(float));
    copied<<<1, n>>>(other, x);
    cudaFree(other);
}
extern "C" void host_frees_twice(int n) {
    void* volatile h = malloc(n);
    free(h);
    free(h);
}
extern "C" void host_frees(float* x) { free(x); }
extern "C" void host_exits(int status) { exit(status); }
extern "C" void host_aborts() { abort(); }
extern "C" void host_raises(int signal) { raise(signal); }
extern "C" int host_kills(int signal) { return kill(getpid(), signal); }
extern "C" int host_kills_all(int signal) { return kill(0, signal); }
extern "C" int host_kills_thread(int signal) { return pthread_kill(pthread_self(), signal); }
extern "C" void host_ends_thread() { pthread_exit(nullptr); }
static int handled = 0;
extern "C" int host_handles(int signal) {
    struct sigaction own = {}, earlier;
    own.sa_handler = [](int) { handled++; };
    sigaction(signal, &own, &earlier);
    raise(signal);
    kill(getpid(), signal);
    sigaction(signal, &earlier, nullptr);
    return handled;
}
extern "C" int host_forks(int signal, int status) {
    if (!fork()) {
        if (signal) raise(signal);
        _exit(status);
    }
    int how;
    wait(&how);
    return how;
}
extern "C" void host_throws() { throw std::runtime_error("thrown by the host"); }
extern "C" int host_allocates(float* x) {
    static float* kept = nullptr;  // from call to call
    kept = static_cast<float*>(realloc(kept, 2000));
    float* h = static_cast<float*>(calloc(500, 4));
    for (int i = 0; i < 500; i++) kept[i] = x[i] + h[i];
    h = static_cast<float*>(realloc(h, 8000));
    memcpy(h + 1000, kept, 2000);
    float* all = new float[500];
    for (int i = 0; i < 500; i++) all[i] = h[1000 + i];
    int right = 0;
    for (int i = 0; i < 500; i++) right += all[i] == x[i] && !h[i];
    delete[] all;
    free(h);
    free(nullptr);
    std::vector<std::string> words(3, std::string(100, 'a'));  // the C++ library frees some of it
    std::ostringstream line;
    for (auto& word : words) line << word.append(100, 'b').append(word);
    return line.str().size() == 1200 ? right : 0;
}
extern "C" double many(float* x, int n, double a, float b, int c, int d, int e, int f, int g) {
    for (int i = 0; i < n; i++) x[i] += a + b + c + d + e + f + g;
    return a / 2;
}
