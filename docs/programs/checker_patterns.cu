// The access patterns of checker_patterns.py, which knows what each costs. Lanes touch element
// (stride * lane + offset) % modulus.

struct alignas(16) Four {
    float at[4];
};

// What is read is compared with what it never is, so that no compiler leaves the read out.
__device__ bool is_twelve(float value) { return value == 12; }
__device__ bool is_twelve(double value) { return value == 12; }
__device__ bool is_twelve(short value) { return value == 12; }
__device__ bool is_twelve(Four value) {
    return value.at[0] + value.at[1] + value.at[2] + value.at[3] == 12;
}

// The first `lanes` lanes read, each its element.
template <class T>
__global__ void global_read(const T* x, float* y, int stride, int offset, int modulus, int lanes) {
    const int t = threadIdx.x;
    if (t < lanes && is_twelve(x[(stride * t + offset) % modulus])) y[0] = 1;
}
extern "C" void read_halves(const short* x, float* y, int stride, int offset, int modulus,
                            int lanes) {
    global_read<<<1, 32>>>(x, y, stride, offset, modulus, lanes);
}
extern "C" void read_floats(const float* x, float* y, int stride, int offset, int modulus,
                            int lanes) {
    global_read<<<1, 32>>>(x, y, stride, offset, modulus, lanes);
}
extern "C" void read_vectors(const float* x, float* y, int stride, int offset, int modulus,
                             int lanes) {
    const Four* fours = reinterpret_cast<const Four*>(x);
    global_read<<<1, 32>>>(fours, y, stride, offset, modulus, lanes);
}

__device__ void fill(float& to, float value) { to = value; }
__device__ void fill(float4& to, float value) { to = make_float4(value, value, value, value); }

template <class T>
__global__ void global_write(T* y, int stride, int offset, int modulus, int lanes) {
    const int t = threadIdx.x;
    if (t < lanes) fill(y[(stride * t + offset) % modulus], stride);
}
extern "C" void write_floats(float* y, int stride, int offset, int modulus, int lanes) {
    global_write<<<1, 32>>>(y, stride, offset, modulus, lanes);
}
extern "C" void write_vectors(float* y, int stride, int offset, int modulus, int lanes) {
    float4* fours = reinterpret_cast<float4*>(y);
    global_write<<<1, 32>>>(fours, stride, offset, modulus, lanes);
}

__global__ void global_loop(const float* x, float* y, int n) {
    float sum = 0;
#pragma unroll 1
    for (int i = threadIdx.x; i < n; i += 32) sum += x[i];
    if (is_twelve(sum)) y[0] = 1;
}
extern "C" void read_in_a_loop(const float* x, float* y, int n) { global_loop<<<1, 32>>>(x, y, n); }

// The tile is filled by neighbours, 33 times 32 of them, before it is read.
template <class T>
__global__ void shared_read(float* y, int stride, int modulus) {
    __shared__ T tile[33 * 32];
    const int t = threadIdx.x;
    for (int i = t; i < 33 * 32; i += 32) tile[i] = T();
    __syncwarp();
    if (is_twelve(tile[stride * t % modulus])) y[0] = 1;
}
extern "C" void read_shared_floats(float* y, int stride, int modulus) {
    shared_read<float><<<1, 32>>>(y, stride, modulus);
}
extern "C" void read_shared_doubles(float* y, int stride, int modulus) {
    shared_read<double><<<1, 32>>>(y, stride, modulus);
}
extern "C" void read_shared_vectors(float* y, int stride, int modulus) {
    shared_read<Four><<<1, 32>>>(y, stride, modulus);
}

// Each lane reads again what it wrote.
template <class T>
__global__ void shared_write(float* y, int stride, int modulus) {
    __shared__ T tile[33 * 32];
    volatile T* seen = tile;
    const int at = stride * threadIdx.x % modulus;
    fill(tile[at], modulus);
    __syncwarp();
    if (is_twelve(*reinterpret_cast<volatile float*>(&seen[at]))) y[0] = 1;
}
extern "C" void write_shared_floats(float* y, int stride, int modulus) {
    shared_write<float><<<1, 32>>>(y, stride, modulus);
}
extern "C" void write_shared_vectors(float* y, int stride, int modulus) {
    shared_write<float4><<<1, 32>>>(y, stride, modulus);
}

__global__ void atomics(float* y, int counters) { atomicAdd(&y[threadIdx.x % counters], 1.0f); }
extern "C" void add_to(float* y, int counters) { atomics<<<1, 32>>>(y, counters); }
