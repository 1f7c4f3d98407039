// cuRAND's host API: XORWOW, Philox4x32-10, MRG32k3a and Sobol's sequences, for memory of the host
// and the device, which are the same here. libraries/curand.cpp carries them out.
//
// curandGenerate and uniform, normal and log-normal numbers come in cuRAND's own order and are its
// own numbers, with the reservation that curand_kernel.h has for normal ones.
// curandGeneratePoisson draws as many numbers as cuRAND does, but makes others of the same
// distribution of them. Sobol's sequences have up to 20 dimensions. The orderings
// CURAND_ORDERING_PSEUDO_DYNAMIC and _BEST are the default one; _SEEDED is refused.
#pragma once
#define CURAND_H_
#include "cuda_runtime.h"

#define CURAND_VER_MAJOR 10
#define CURAND_VER_MINOR 4
#define CURAND_VER_PATCH 0
#define CURAND_VERSION 10400

enum curandStatus_t {
    CURAND_STATUS_SUCCESS = 0,
    CURAND_STATUS_VERSION_MISMATCH = 100,
    CURAND_STATUS_NOT_INITIALIZED = 101,
    CURAND_STATUS_ALLOCATION_FAILED = 102,
    CURAND_STATUS_TYPE_ERROR = 103,
    CURAND_STATUS_OUT_OF_RANGE = 104,
    CURAND_STATUS_LENGTH_NOT_MULTIPLE = 105,
    CURAND_STATUS_DOUBLE_PRECISION_REQUIRED = 106,
    CURAND_STATUS_LAUNCH_FAILURE = 201,
    CURAND_STATUS_PREEXISTING_FAILURE = 202,
    CURAND_STATUS_INITIALIZATION_FAILED = 203,
    CURAND_STATUS_ARCH_MISMATCH = 204,
    CURAND_STATUS_INTERNAL_ERROR = 999,
};
using curandStatus = curandStatus_t;

enum curandRngType_t {
    CURAND_RNG_TEST = 0,
    CURAND_RNG_PSEUDO_DEFAULT = 100,
    CURAND_RNG_PSEUDO_XORWOW = 101,
    CURAND_RNG_PSEUDO_MRG32K3A = 121,
    CURAND_RNG_PSEUDO_MTGP32 = 141,
    CURAND_RNG_PSEUDO_MT19937 = 142,
    CURAND_RNG_PSEUDO_PHILOX4_32_10 = 161,
    CURAND_RNG_QUASI_DEFAULT = 200,
    CURAND_RNG_QUASI_SOBOL32 = 201,
    CURAND_RNG_QUASI_SCRAMBLED_SOBOL32 = 202,
    CURAND_RNG_QUASI_SOBOL64 = 203,
    CURAND_RNG_QUASI_SCRAMBLED_SOBOL64 = 204,
};
using curandRngType = curandRngType_t;

enum curandOrdering_t {
    CURAND_ORDERING_PSEUDO_BEST = 100,
    CURAND_ORDERING_PSEUDO_DEFAULT = 101,
    CURAND_ORDERING_PSEUDO_SEEDED = 102,
    CURAND_ORDERING_PSEUDO_LEGACY = 103,
    CURAND_ORDERING_PSEUDO_DYNAMIC = 104,
    CURAND_ORDERING_QUASI_DEFAULT = 201,
};
using curandOrdering = curandOrdering_t;

enum curandDirectionVectorSet_t {
    CURAND_DIRECTION_VECTORS_32_JOEKUO6 = 101,
    CURAND_SCRAMBLED_DIRECTION_VECTORS_32_JOEKUO6 = 102,
    CURAND_DIRECTION_VECTORS_64_JOEKUO6 = 103,
    CURAND_SCRAMBLED_DIRECTION_VECTORS_64_JOEKUO6 = 104,
};
using curandDirectionVectorSet = curandDirectionVectorSet_t;
using curandDirectionVectors32_t = unsigned[32];
using curandDirectionVectors64_t = unsigned long long[64];

struct curandGenerator_st;
using curandGenerator_t = curandGenerator_st*;

namespace simulator::api {
#pragma GCC visibility push(default)

curandStatus_t curandCreateGenerator(curandGenerator_t* generator, curandRngType_t type);
curandStatus_t curandCreateGeneratorHost(curandGenerator_t* generator, curandRngType_t type);
curandStatus_t curandDestroyGenerator(curandGenerator_t generator);
curandStatus_t curandGetVersion(int* version);
curandStatus_t curandSetStream(curandGenerator_t generator, cudaStream_t stream);
curandStatus_t curandSetPseudoRandomGeneratorSeed(curandGenerator_t generator,
                                                  unsigned long long seed);
curandStatus_t curandSetGeneratorOffset(curandGenerator_t generator, unsigned long long offset);
curandStatus_t curandSetGeneratorOrdering(curandGenerator_t generator, curandOrdering_t order);
curandStatus_t curandSetQuasiRandomGeneratorDimensions(curandGenerator_t generator,
                                                       unsigned dimensions);
curandStatus_t curandGenerateSeeds(curandGenerator_t generator);

curandStatus_t curandGenerate(curandGenerator_t generator, unsigned* to, size_t count);
curandStatus_t curandGenerateLongLong(curandGenerator_t generator, unsigned long long* to,
                                      size_t count);
curandStatus_t curandGenerateUniform(curandGenerator_t generator, float* to, size_t count);
curandStatus_t curandGenerateUniformDouble(curandGenerator_t generator, double* to, size_t count);
curandStatus_t curandGenerateNormal(curandGenerator_t generator, float* to, size_t count,
                                    float mean, float stddev);
curandStatus_t curandGenerateNormalDouble(curandGenerator_t generator, double* to, size_t count,
                                          double mean, double stddev);
curandStatus_t curandGenerateLogNormal(curandGenerator_t generator, float* to, size_t count,
                                       float mean, float stddev);
curandStatus_t curandGenerateLogNormalDouble(curandGenerator_t generator, double* to, size_t count,
                                             double mean, double stddev);
curandStatus_t curandGeneratePoisson(curandGenerator_t generator, unsigned* to, size_t count,
                                     double lambda);

curandStatus_t curandGetDirectionVectors32(curandDirectionVectors32_t** vectors,
                                           curandDirectionVectorSet_t set);
curandStatus_t curandGetDirectionVectors64(curandDirectionVectors64_t** vectors,
                                           curandDirectionVectorSet_t set);

#pragma GCC visibility pop
}  // namespace simulator::api
