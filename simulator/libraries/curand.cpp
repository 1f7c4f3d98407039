// cuRAND for kernels that run on the CPU: what include/curand.h declares, and how the generators of
// curand_kernel.h skip ahead. Compiled once, like the simulator's runtime, and opened when a kernel
// includes one of them.
#include "curand/generators.h"
#include "curand/skip_ahead.h"

namespace simulator::api {

curandStatus_t curandCreateGenerator(curandGenerator_t* generator, curandRngType_t type) {
    switch (type) {
        case CURAND_RNG_PSEUDO_DEFAULT:
        case CURAND_RNG_PSEUDO_XORWOW:
            *generator = new PseudoRandom<curandStateXORWOW>;
            break;
        case CURAND_RNG_PSEUDO_MRG32K3A:
            *generator = new PseudoRandom<curandStateMRG32k3a>;
            break;
        case CURAND_RNG_PSEUDO_PHILOX4_32_10:
            *generator = new PseudoRandom<curandStatePhilox4_32_10>;
            break;
        case CURAND_RNG_QUASI_DEFAULT:
        case CURAND_RNG_QUASI_SOBOL32:
            *generator = new QuasiRandom<unsigned>;
            break;
        case CURAND_RNG_QUASI_SOBOL64:
            *generator = new QuasiRandom<unsigned long long>;
            break;
        default:
            return CURAND_STATUS_TYPE_ERROR;
    }
    return CURAND_STATUS_SUCCESS;
}
curandStatus_t curandCreateGeneratorHost(curandGenerator_t* generator, curandRngType_t type) {
    return curandCreateGenerator(generator, type);
}
curandStatus_t curandDestroyGenerator(curandGenerator_t generator) {
    if (!generator) return CURAND_STATUS_NOT_INITIALIZED;
    delete generator;
    return CURAND_STATUS_SUCCESS;
}
curandStatus_t curandGetVersion(int* version) {
    *version = CURAND_VERSION;
    return CURAND_STATUS_SUCCESS;
}
curandStatus_t curandSetStream(curandGenerator_t generator, cudaStream_t) {
    return generator ? CURAND_STATUS_SUCCESS : CURAND_STATUS_NOT_INITIALIZED;
}
curandStatus_t curandSetPseudoRandomGeneratorSeed(curandGenerator_t generator,
                                                  unsigned long long seed) {
    if (!generator) return CURAND_STATUS_NOT_INITIALIZED;
    if (generator->is_quasi) return CURAND_STATUS_TYPE_ERROR;
    generator->seed = seed;
    generator->restart();
    return CURAND_STATUS_SUCCESS;
}
curandStatus_t curandSetGeneratorOffset(curandGenerator_t generator, unsigned long long offset) {
    if (!generator) return CURAND_STATUS_NOT_INITIALIZED;
    generator->offset = offset;
    generator->restart();
    return CURAND_STATUS_SUCCESS;
}
curandStatus_t curandSetGeneratorOrdering(curandGenerator_t generator, curandOrdering_t order) {
    if (!generator) return CURAND_STATUS_NOT_INITIALIZED;
    if (generator->is_quasi != (order == CURAND_ORDERING_QUASI_DEFAULT) ||
        order == CURAND_ORDERING_PSEUDO_SEEDED)
        return CURAND_STATUS_OUT_OF_RANGE;
    generator->legacy = order == CURAND_ORDERING_PSEUDO_LEGACY;
    generator->restart();
    return CURAND_STATUS_SUCCESS;
}
curandStatus_t curandSetQuasiRandomGeneratorDimensions(curandGenerator_t generator,
                                                       unsigned dimensions) {
    if (!generator) return CURAND_STATUS_NOT_INITIALIZED;
    if (!generator->is_quasi) return CURAND_STATUS_TYPE_ERROR;
    if (dimensions == 0 || dimensions > most_dimensions) return CURAND_STATUS_OUT_OF_RANGE;
    generator->dimensions = dimensions;
    generator->restart();
    return CURAND_STATUS_SUCCESS;
}
curandStatus_t curandGenerateSeeds(curandGenerator_t generator) {
    return generator ? CURAND_STATUS_SUCCESS : CURAND_STATUS_NOT_INITIALIZED;
}

curandStatus_t curandGenerate(curandGenerator_t generator, unsigned* to, size_t count) {
    return generator ? generator->words(to, count) : CURAND_STATUS_NOT_INITIALIZED;
}
curandStatus_t curandGenerateLongLong(curandGenerator_t generator, unsigned long long* to,
                                      size_t count) {
    return generator ? generator->long_words(to, count) : CURAND_STATUS_NOT_INITIALIZED;
}
curandStatus_t curandGenerateUniform(curandGenerator_t generator, float* to, size_t count) {
    return generator ? generator->uniform(to, count) : CURAND_STATUS_NOT_INITIALIZED;
}
curandStatus_t curandGenerateUniformDouble(curandGenerator_t generator, double* to, size_t count) {
    return generator ? generator->uniform(to, count) : CURAND_STATUS_NOT_INITIALIZED;
}
curandStatus_t curandGenerateNormal(curandGenerator_t generator, float* to, size_t count,
                                    float mean, float stddev) {
    if (!generator) return CURAND_STATUS_NOT_INITIALIZED;
    return generator->normal(to, count, mean, stddev, false);
}
curandStatus_t curandGenerateNormalDouble(curandGenerator_t generator, double* to, size_t count,
                                          double mean, double stddev) {
    if (!generator) return CURAND_STATUS_NOT_INITIALIZED;
    return generator->normal(to, count, mean, stddev, false);
}
curandStatus_t curandGenerateLogNormal(curandGenerator_t generator, float* to, size_t count,
                                       float mean, float stddev) {
    if (!generator) return CURAND_STATUS_NOT_INITIALIZED;
    return generator->normal(to, count, mean, stddev, true);
}
curandStatus_t curandGenerateLogNormalDouble(curandGenerator_t generator, double* to, size_t count,
                                             double mean, double stddev) {
    if (!generator) return CURAND_STATUS_NOT_INITIALIZED;
    return generator->normal(to, count, mean, stddev, true);
}
curandStatus_t curandGeneratePoisson(curandGenerator_t generator, unsigned* to, size_t count,
                                     double lambda) {
    if (!generator) return CURAND_STATUS_NOT_INITIALIZED;
    if (!(lambda > 0 && lambda <= 400000)) return CURAND_STATUS_OUT_OF_RANGE;
    return generator->poisson(to, count, lambda);
}

curandStatus_t curandGetDirectionVectors32(curandDirectionVectors32_t** vectors,
                                           curandDirectionVectorSet_t set) {
    if (set != CURAND_DIRECTION_VECTORS_32_JOEKUO6) return CURAND_STATUS_OUT_OF_RANGE;
    *vectors = direction_vectors<unsigned>();
    return CURAND_STATUS_SUCCESS;
}
curandStatus_t curandGetDirectionVectors64(curandDirectionVectors64_t** vectors,
                                           curandDirectionVectorSet_t set) {
    if (set != CURAND_DIRECTION_VECTORS_64_JOEKUO6) return CURAND_STATUS_OUT_OF_RANGE;
    *vectors = direction_vectors<unsigned long long>();
    return CURAND_STATUS_SUCCESS;
}

}  // namespace simulator::api
