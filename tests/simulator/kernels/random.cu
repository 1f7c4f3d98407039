// cuRAND for kernels and for the host.
#include <curand.h>
#include <curand_kernel.h>

// What one state gives: words, a uniform float and double, and a word after leaps.
template <class State>
__global__ void numbers(const long long* seeds, const long long* sequences,
                        const long long* offsets, unsigned* words, float* floats, double* doubles) {
    const int i = threadIdx.x;
    State state;
    curand_init(seeds[i], sequences[i], offsets[i], &state);
    for (int k = 0; k < 3; k++) words[4 * i + k] = curand(&state);
    floats[i] = curand_uniform(&state);
    doubles[i] = curand_uniform_double(&state);
    skipahead(1000003ull, &state);
    skipahead_sequence(3ull, &state);
    words[4 * i + 3] = curand(&state);
}

template <class State>
__global__ void distributions(float* floats, double* doubles, int* counts) {
    State state;
    curand_init(1234, threadIdx.x, 0, &state);
    float* f = floats + 6 * threadIdx.x;
    double* d = doubles + 6 * threadIdx.x;
    f[0] = curand_normal(&state);
    f[1] = curand_normal(&state);
    d[0] = curand_normal_double(&state);
    d[1] = curand_normal_double(&state);
    const float2 pair = curand_normal2(&state);
    f[2] = pair.x, f[3] = pair.y;
    const double2 wide = curand_normal2_double(&state);
    d[2] = wide.x, d[3] = wide.y;
    f[4] = curand_log_normal(&state, 0.5f, 0.25f);
    f[5] = curand_log_normal(&state, 0.5f, 0.25f);
    d[4] = curand_log_normal_double(&state, 0.5, 0.25);
    d[5] = curand_log_normal_double(&state, 0.5, 0.25);
    counts[3 * threadIdx.x] = curand_poisson(&state, 3.5);
    counts[3 * threadIdx.x + 1] = curand_poisson(&state, 50.0);
    counts[3 * threadIdx.x + 2] = curand_poisson(&state, 9000.0);
}

#define RUNS(name, State)                                                                       \
    extern "C" cudaError_t run_##name(                                                          \
        const int64_t* seeds, const int64_t* sequences, const int64_t* offsets, int* words,     \
        float* floats, double* doubles, int n) {                                                \
        numbers<State><<<1, n>>>((const long long*)seeds, (const long long*)sequences,          \
                                 (const long long*)offsets, (unsigned*)words, floats, doubles); \
        return cudaGetLastError();                                                              \
    }                                                                                           \
    extern "C" cudaError_t run_##name##_distributions(                                          \
        float* floats, double* doubles, int* counts, int n) {                                   \
        distributions<State><<<1, n>>>(floats, doubles, counts);                                \
        return cudaGetLastError();                                                              \
    }
RUNS(xorwow, curandState)
RUNS(philox, curandStatePhilox4_32_10_t)
RUNS(mrg, curandStateMRG32k3a_t)

// Four at a time, beginning in the middle of Philox's four words.
__global__ void fours(unsigned* words, float* floats, double* doubles) {
    curandStatePhilox4_32_10_t state;
    curand_init(42, 7, 2, &state);
    const uint4 a = curand4(&state);
    const unsigned one = curand(&state);
    const uint4 b = curand4(&state);
    const unsigned all[] = {a.x, a.y, a.z, a.w, one, b.x, b.y, b.z, b.w};
    for (int i = 0; i < 9; i++) words[i] = all[i];
    *reinterpret_cast<float4*>(floats) = curand_uniform4(&state);
    *reinterpret_cast<double2*>(doubles) = curand_uniform2_double(&state);
}

extern "C" cudaError_t run_fours(int* words, float* floats, double* doubles) {
    fours<<<1, 1>>>((unsigned*)words, floats, doubles);
    return cudaGetLastError();
}

// A sum of many Poisson numbers and of their squares, for each lambda.
__global__ void poisson(const double* lambda, double* sums, int count) {
    curandState state;
    curand_init(7, blockIdx.x, 0, &state);
    double sum = 0, squares = 0;
    for (int i = 0; i < count; i++) {
        const double x = curand_poisson(&state, lambda[blockIdx.x]);
        sum += x;
        squares += x * x;
    }
    sums[2 * blockIdx.x] = sum;
    sums[2 * blockIdx.x + 1] = squares;
}

extern "C" cudaError_t run_poisson(const double* lambda, double* sums, int lambdas, int count) {
    poisson<<<lambdas, 1>>>(lambda, sums, count);
    return cudaGetLastError();
}

__global__ void sobol(const curandDirectionVectors32_t* vectors, unsigned* words, unsigned* last) {
    curandStateSobol32_t state;
    curand_init(const_cast<unsigned*>(vectors[threadIdx.x]), 5u, &state);
    for (int i = 0; i < 4; i++) words[4 * threadIdx.x + i] = curand(&state);
    last[threadIdx.x] = vectors[threadIdx.x][31];
}

extern "C" int run_sobol(int* words, int* last, int dimensions) {
    curandDirectionVectors32_t *host, *vectors;
    if (int status = curandGetDirectionVectors32(&host, CURAND_DIRECTION_VECTORS_32_JOEKUO6))
        return status;
    const size_t bytes = dimensions * sizeof *host;
    if (int error = cudaMalloc(&vectors, bytes)) return error;
    cudaMemcpy(vectors, host, bytes, cudaMemcpyHostToDevice);
    sobol<<<1, dimensions>>>(vectors, (unsigned*)words, (unsigned*)last);
    cudaFree(vectors);
    return cudaGetLastError();
}

// The host's: `count` numbers, after `before` of another kind.
enum Kind { words, uniform, uniform_double, normal, normal_double, log_normal, poisson_numbers };

static int generate(curandGenerator_t generator, int kind, void* to, size_t count) {
    switch (kind) {
        case words:
            return curandGenerate(generator, (unsigned*)to, count);
        case uniform:
            return curandGenerateUniform(generator, (float*)to, count);
        case uniform_double:
            return curandGenerateUniformDouble(generator, (double*)to, count);
        case normal:
            return curandGenerateNormal(generator, (float*)to, count, 0, 1);
        case normal_double:
            return curandGenerateNormalDouble(generator, (double*)to, count, 0, 1);
        case log_normal:
            return curandGenerateLogNormal(generator, (float*)to, count, 0, 1);
        default:
            return curandGeneratePoisson(generator, (unsigned*)to, count, 20);
    }
}

extern "C" int run_host(int type, int64_t seed, int64_t offset, int dimensions, int legacy,
                        int kind_before, int64_t before, int kind, void* to, int64_t count) {
    curandGenerator_t generator;
    if (int status = curandCreateGenerator(&generator, curandRngType_t(type))) return status;
    int status = type < CURAND_RNG_QUASI_DEFAULT
                     ? curandSetPseudoRandomGeneratorSeed(generator, seed)
                     : curandSetQuasiRandomGeneratorDimensions(generator, dimensions);
    if (!status && offset) status = curandSetGeneratorOffset(generator, offset);
    if (!status && legacy)
        status = curandSetGeneratorOrdering(generator, CURAND_ORDERING_PSEUDO_LEGACY);
    if (!status && before) {
        void* unused;
        if (int error = cudaMalloc(&unused, before * sizeof(double))) return error;
        status = generate(generator, kind_before, unused, before);
        cudaFree(unused);
    }
    if (!status) status = generate(generator, kind, to, count);
    curandDestroyGenerator(generator);
    return status ? status : cudaDeviceSynchronize();
}
