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

// Atomics of shared memory. Those on floats, doubles and 8-byte integers are loops on a GPU, and
// those that add a constant 1 have an instruction of their own. What is added is never 0: that
// would change nothing, and make no other lane of a loop try again.
struct Add {
    int value;
    template <class T>
    __device__ void operator()(T* word, float*) const {
        atomicAdd(word, T(value));
    }
};
struct Fetch {
    int value;
    template <class T>
    __device__ void operator()(T* word, float* y) const {
        if (atomicAdd(word, T(value)) == T(12345)) y[0] = 1;
    }
};
struct Count {
    __device__ void operator()(int* word, float*) const { atomicAdd(word, 1); }
};
struct Exchange {
    int value;
    __device__ void operator()(int* word, float* y) const {
        if (atomicExch(word, value) == 12345) y[0] = 1;
    }
};
struct CompareOnce {
    int value;
    __device__ void operator()(int* word, float* y) const {
        if (atomicCAS(word, 0, value) == 12345) y[0] = 1;
    }
};

template <class T, class Change>
__global__ void shared_change(float* y, int stride, int modulus, Change change) {
    __shared__ T tile[33 * 32];
    const int t = threadIdx.x;
    for (int i = t; i < 33 * 32; i += 32) tile[i] = T();
    __syncwarp();
    change(&tile[stride * t % modulus], y);
}
extern "C" void add_shared_floats(float* y, int stride, int modulus) {
    shared_change<float><<<1, 32>>>(y, stride, modulus, Add{stride + 1});
}
extern "C" void add_shared_doubles(float* y, int stride, int modulus) {
    shared_change<double><<<1, 32>>>(y, stride, modulus, Add{stride + 1});
}
extern "C" void add_shared_longs(float* y, int stride, int modulus) {
    shared_change<unsigned long long><<<1, 32>>>(y, stride, modulus, Add{stride + 1});
}
extern "C" void add_shared_ints(float* y, int stride, int modulus) {
    shared_change<int><<<1, 32>>>(y, stride, modulus, Add{stride + 1});
}
extern "C" void fetch_shared_floats(float* y, int stride, int modulus) {
    shared_change<float><<<1, 32>>>(y, stride, modulus, Fetch{stride + 1});
}
extern "C" void fetch_shared_ints(float* y, int stride, int modulus) {
    shared_change<int><<<1, 32>>>(y, stride, modulus, Fetch{stride + 1});
}
extern "C" void count_shared_ints(float* y, int stride, int modulus) {
    shared_change<int><<<1, 32>>>(y, stride, modulus, Count{});
}
extern "C" void swap_shared_ints(float* y, int stride, int modulus) {
    shared_change<int><<<1, 32>>>(y, stride, modulus, Exchange{stride});
}
extern "C" void cas_shared_ints(float* y, int stride, int modulus) {
    shared_change<int><<<1, 32>>>(y, stride, modulus, CompareOnce{stride + 1});
}
