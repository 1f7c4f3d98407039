// What the functions of cuBLASLt do: matmul, transforms, and the choice of an algorithm.
#pragma once
#include "descriptions.h"

namespace simulator::cublas {
namespace {

// ---- Matmul

bool is_epilogue(uint32_t parts) {
    switch (parts) {
        case CUBLASLT_EPILOGUE_DEFAULT:
        case CUBLASLT_EPILOGUE_RELU:
        case CUBLASLT_EPILOGUE_RELU_AUX:
        case CUBLASLT_EPILOGUE_BIAS:
        case CUBLASLT_EPILOGUE_RELU_BIAS:
        case CUBLASLT_EPILOGUE_RELU_AUX_BIAS:
        case CUBLASLT_EPILOGUE_DRELU:
        case CUBLASLT_EPILOGUE_DRELU_BGRAD:
        case CUBLASLT_EPILOGUE_GELU:
        case CUBLASLT_EPILOGUE_GELU_AUX:
        case CUBLASLT_EPILOGUE_GELU_BIAS:
        case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
        case CUBLASLT_EPILOGUE_DGELU:
        case CUBLASLT_EPILOGUE_DGELU_BGRAD:
        case CUBLASLT_EPILOGUE_BGRADA:
        case CUBLASLT_EPILOGUE_BGRADB:
            return true;
    }
    return false;
}

// A matmul as it is described, before anybody points to memory.
struct Matmul {
    MatmulDesc desc;
    Layout a, b, c, d;

    int64_t m() const { return int64_t(d.rows); }
    int64_t n() const { return int64_t(d.columns); }
    int64_t k() const { return int64_t(desc.opa == CUBLAS_OP_N ? a.columns : a.rows); }

    cublasStatus_t verdict() const {
        const bool plain_a = desc.opa == CUBLAS_OP_N, plain_b = desc.opb == CUBLAS_OP_N;
        SIMULATOR_CUBLAS_VALID(
            is_operation(cublasOperation_t(desc.opa)), is_operation(cublasOperation_t(desc.opb)),
            is_epilogue(desc.epilogue), a.is_valid(), b.is_valid(), c.is_valid(), d.is_valid(),
            int64_t(plain_a ? a.rows : a.columns) == m(),
            int64_t(plain_b ? b.rows : b.columns) == k(),
            int64_t(plain_b ? b.columns : b.rows) == n(), c.rows == d.rows, c.columns == d.columns,
            a.batches == d.batches, b.batches == d.batches, c.batches == d.batches);
        const auto compute = cublasComputeType_t(desc.compute);
        const auto scale = cudaDataType_t(desc.scale);
        const bool is_exact =
            compute == CUBLAS_COMPUTE_32I || compute == CUBLAS_COMPUTE_32I_PEDANTIC;
        const bool is_complex = is_complex_type(a.element());
        const bool is_scale =
            scale == scale_of(compute, is_complex) || (is_exact && scale == CUDA_R_32F);
        const bool is_c = c.type == d.type || is_float8(a.element());
        if (!are(is_scale, is_c, a.is_supported(), b.is_supported(), c.is_supported(),
                 d.is_supported(),
                 is_supported(compute, scale, a.element(), b.element(), d.element()),
                 !is_complex || desc.epilogue == CUBLASLT_EPILOGUE_DEFAULT,
                 desc.pointers != CUBLASLT_POINTER_MODE_DEVICE_VECTOR, desc.opc == CUBLAS_OP_N,
                 desc.fill == CUBLAS_FILL_MODE_FULL, !desc.scale_aux, !desc.largest_aux,
                 are_scales_supported()))
            return CUBLAS_STATUS_NOT_SUPPORTED;
        return CUBLAS_STATUS_SUCCESS;
    }

    // 8-bit floating point comes with factors; others do not.
    bool are_scales_supported() const {
        return are(!desc.scale_a || is_float8(a.element()), !desc.scale_b || is_float8(b.element()),
                   !desc.scale_c || is_float8(c.element()),
                   (!desc.scale_d && !desc.largest_d) || is_float8(d.element()));
    }

    bool has(int part) const { return desc.epilogue & part; }
    bool has_bias() const {
        return has(Epilogue::Bias | Epilogue::Bgrad | Epilogue::BgradA | Epilogue::BgradB);
    }

    cudaDataType_t bias_type() const {
        if (desc.bias_type >= 0) return cudaDataType_t(desc.bias_type);
        if (is_float8(a.element()))
            return d.type == CUDA_R_16F || c.type == CUDA_R_16F ? CUDA_R_16F : CUDA_R_16BF;
        return a.type == CUDA_R_8I ? cudaDataType_t(desc.scale) : d.element();
    }
    cudaDataType_t aux_type() const {
        return desc.aux_type >= 0 ? cudaDataType_t(desc.aux_type) : d.element();
    }
    bool is_aux_valid() const {
        const bool is_mask = has(Epilogue::Relu | Epilogue::Drelu);
        return desc.aux && fits(d.by_rows() ? n() : m(), desc.aux_ld) &&
               (!is_mask || desc.aux_ld % 128 == 0);
    }

    Epilogue epilogue() const {
        Epilogue it;
        it.parts = int(desc.epilogue);
        if (has_bias()) it.bias = {desc.bias, bias_type(), 1, 0, desc.bias_batch};
        if (has(Epilogue::Aux)) {
            const bool by_rows = d.by_rows();
            it.aux = {desc.aux, aux_type(), by_rows ? desc.aux_ld : 1, by_rows ? 1 : desc.aux_ld,
                      desc.aux_batch};
        }
        it.largest = static_cast<float*>(desc.largest_d);
        return it;
    }
};

float scale_at(const void* from) { return from ? *static_cast<const float*>(from) : 1; }

cublasStatus_t run(const Matmul& it, const void* alpha, const void* a, const void* b,
                   const void* beta, const void* c, void* d, cudaStream_t stream) {
    if (const cublasStatus_t verdict = it.verdict()) return verdict;
    if (it.m() == 0 || it.n() == 0 || it.d.batches == 0) return CUBLAS_STATUS_SUCCESS;
    const int mode = it.desc.pointers;
    const bool alphas = mode == CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_ZERO ||
                        mode == CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_HOST;
    const bool has_beta = mode != CUBLASLT_POINTER_MODE_ALPHA_DEVICE_VECTOR_BETA_ZERO;
    const bool has_bias_type = bytes_of(it.bias_type()), has_aux_type = bytes_of(it.aux_type());
    SIMULATOR_CUBLAS_VALID(alpha, beta || !has_beta, d, it.k() == 0 || (a && b),
                           !it.has_bias() || (it.desc.bias && has_bias_type),
                           !it.has(Epilogue::Aux) || (it.is_aux_valid() && has_aux_type));
    const auto scale = cudaDataType_t(it.desc.scale);
    const bool on_device = mode == CUBLASLT_POINTER_MODE_DEVICE;
    const AnyFactor times(scale, alphas ? nullptr : alpha, on_device);
    const AnyFactor kept(scale, has_beta ? beta : nullptr, on_device);
    return enqueue(stream, [=] {
        with_numbers(it.a.element(), scale, [&](auto number) {
            using T = decltype(number);
            Product<T> product{
                it.m(),
                it.n(),
                it.k(),
                it.d.batches,
                times.as<T>(),
                it.a.matrix_of(a, it.desc.opa),
                it.b.matrix_of(b, it.desc.opb),
                kept.as<T>(),
                it.c.matrix_of(c),
                it.d.matrix_of(d),
                it.epilogue()};
            if (alphas) product.epilogue.alphas = {alpha, scale, 1, 0, it.desc.alpha_batch};
            product.a.factor = scale_at(it.desc.scale_a);
            product.b.factor = scale_at(it.desc.scale_b);
            product.c.factor = scale_at(it.desc.scale_c);
            product.d.factor = scale_at(it.desc.scale_d);
            if (product.beta != T(0) && !c) throw Failed();
            product.run();
        });
    });
}

// ---- Transforms: C = alpha op(A) + beta op(B)

template <class T>
void transform(const Layout& to, T alpha, const Matrix& a, T beta, const Matrix& b,
               const Matrix& c) {
    const int64_t rows = int64_t(to.rows), columns = int64_t(to.columns);
    Numbers<T> sum(rows), part(rows);
    const auto column = [](const Matrix& it, int64_t l, int64_t j) {
        return static_cast<const char*>(it.at(l)) + j * it.column * bytes_of(it.type);
    };
    for (int64_t l = 0; l < to.batches; l++)
        for (int64_t j = 0; j < columns; j++) {
            std::fill_n(static_cast<T*>(sum), rows, T(0));
            for (const auto& [factor, it] : {std::pair<T, const Matrix&>(alpha, a), {beta, b}}) {
                if (factor == T(0) || !it.data) continue;
                load<T>(part, it.type, column(it, l, j), rows, it.row);
                for (int64_t i = 0; i < rows; i++)
                    sum[i] += factor * (it.conjugated ? conjugate(part[i]) : part[i]);
            }
            store<T>(c.type, const_cast<char*>(column(c, l, j)), sum, rows, c.row);
        }
}

}  // namespace
}  // namespace simulator::cublas

namespace simulator::api {

using namespace simulator::cublas;

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
    SIMULATOR_CUBLAS_VALID(handle);
    return attempt([&] { handles().add(*handle = new cublasLtContext); });
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    if (!handles().remove(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion() { return CUBLAS_VERSION; }
size_t cublasLtGetCudartVersion() { return cublasGetCudartVersion(); }
cublasStatus_t cublasLtGetProperty(libraryPropertyType type, int* value) {
    return cublasGetProperty(type, value);
}
const char* cublasLtGetStatusName(cublasStatus_t status) { return cublasGetStatusName(status); }
const char* cublasLtGetStatusString(cublasStatus_t status) { return cublasGetStatusString(status); }

// The functions of a kind of description.
#define SIMULATOR_DESCRIPTION(Name, Description, Words, Attributes)                       \
    cublasStatus_t cublasLt##Name##Destroy(Words it) { return destroy<Description>(it); } \
    cublasStatus_t cublasLt##Name##SetAttribute(                                          \
        Words it, Attributes attribute, const void* value, size_t bytes) {                \
        return set<Description>(it, attribute, value, bytes);                             \
    }                                                                                     \
    cublasStatus_t cublasLt##Name##GetAttribute(                                          \
        Words it, Attributes attribute, void* value, size_t bytes, size_t* written) {     \
        return get<Description>(it, attribute, value, bytes, written);                    \
    }
SIMULATOR_DESCRIPTION(MatrixLayout, Layout, cublasLtMatrixLayout_t, cublasLtMatrixLayoutAttribute_t)
SIMULATOR_DESCRIPTION(MatmulDesc, MatmulDesc, cublasLtMatmulDesc_t, cublasLtMatmulDescAttributes_t)
SIMULATOR_DESCRIPTION(MatrixTransformDesc, TransformDesc, cublasLtMatrixTransformDesc_t,
                      cublasLtMatrixTransformDescAttributes_t)
SIMULATOR_DESCRIPTION(MatmulPreference, Preference, cublasLtMatmulPreference_t,
                      cublasLtMatmulPreferenceAttributes_t)
#undef SIMULATOR_DESCRIPTION

namespace {
Layout layout_of(cudaDataType type, uint64_t rows, uint64_t columns, int64_t ld) {
    Layout it;
    it.type = type, it.rows = rows, it.columns = columns, it.ld = ld;
    return it;
}
MatmulDesc matmul_of(cublasComputeType_t compute, cudaDataType_t scale) {
    MatmulDesc it;
    it.compute = compute, it.scale = scale;
    return it;
}
TransformDesc transform_of(cudaDataType scale) {
    TransformDesc it;
    it.scale = scale;
    return it;
}
}  // namespace

cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t layout, cudaDataType type,
                                        uint64_t rows, uint64_t cols, int64_t ld) {
    return init(layout, layout_of(type, rows, cols, ld));
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld) {
    return create(layout, layout_of(type, rows, cols, ld));
}
cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDesc_t desc, cublasComputeType_t compute,
                                      cudaDataType_t scale) {
    return init(desc, matmul_of(compute, scale));
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
    return create(desc, matmul_of(compute, scale));
}
cublasStatus_t cublasLtMatrixTransformDescInit(cublasLtMatrixTransformDesc_t desc,
                                               cudaDataType scale) {
    return init(desc, transform_of(scale));
}
cublasStatus_t cublasLtMatrixTransformDescCreate(cublasLtMatrixTransformDesc_t* desc,
                                                 cudaDataType scale) {
    return create(desc, transform_of(scale));
}
cublasStatus_t cublasLtMatmulPreferenceInit(cublasLtMatmulPreference_t preference) {
    return init(preference, Preference());
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
    return create(preference, Preference());
}

namespace {
// Where one of them is none, `status` says so.
Matmul described(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                 cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, cublasStatus_t& status) {
    const auto* what = in<MatmulDesc>(desc);
    const Layout *la = in<Layout>(a), *lb = in<Layout>(b), *lc = in<Layout>(c), *ld = in<Layout>(d);
    status = what && la && lb && lc && ld ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
    return status ? Matmul{} : Matmul{*what, *la, *lb, *lc, *ld};
}
}  // namespace

cublasStatus_t cublasLtMatmul(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha, const void* a,
    cublasLtMatrixLayout_t alayout, const void* b, cublasLtMatrixLayout_t blayout, const void* beta,
    const void* c, cublasLtMatrixLayout_t clayout, void* d, cublasLtMatrixLayout_t dlayout,
    const cublasLtMatmulAlgo_t*, void*, size_t, cudaStream_t stream) {
    SIMULATOR_CUBLAS_HANDLE(handle);
    cublasStatus_t status;
    const Matmul it = described(desc, alayout, blayout, clayout, dlayout, status);
    return status ? status : run(it, alpha, a, b, beta, c, d, stream);
}

cublasStatus_t cublasLtMatrixTransform(
    cublasLtHandle_t handle, cublasLtMatrixTransformDesc_t desc, const void* alpha, const void* a,
    cublasLtMatrixLayout_t alayout, const void* beta, const void* b, cublasLtMatrixLayout_t blayout,
    void* c, cublasLtMatrixLayout_t clayout, cudaStream_t stream) {
    SIMULATOR_CUBLAS_HANDLE(handle);
    const auto* what = in<TransformDesc>(desc);
    const Layout *la = in<Layout>(alayout), *lb = in<Layout>(blayout), *lc = in<Layout>(clayout);
    SIMULATOR_CUBLAS_VALID(what, lc, c, a || b, !a || (la && alpha), !b || (lb && beta));
    const auto is_right = [&](const Layout& it, int op) {
        const bool is_plain = op == CUBLAS_OP_N;
        return it.is_valid() && (is_plain ? it.rows : it.columns) == lc->rows &&
               (is_plain ? it.columns : it.rows) == lc->columns && it.batches == lc->batches;
    };
    SIMULATOR_CUBLAS_VALID(
        lc->is_valid(), !a || is_right(*la, what->opa), !b || is_right(*lb, what->opb));
    const auto scale = cudaDataType_t(what->scale);
    const bool is_complex = is_complex_type(scale);
    const auto is_supported = [&](const Layout& it) {
        return it.is_supported() && is_complex_type(it.element()) == is_complex;
    };
    if (!bytes_of(scale) || !is_supported(*lc) || (a && !is_supported(*la)) ||
        (b && !is_supported(*lb)) || what->pointers > CUBLASLT_POINTER_MODE_DEVICE)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    const bool on_device = what->pointers == CUBLASLT_POINTER_MODE_DEVICE;
    const AnyFactor times(scale, a ? alpha : nullptr, on_device);
    const AnyFactor more(scale, b ? beta : nullptr, on_device);
    const Matrix from = a ? la->matrix_of(a, what->opa) : Matrix{};
    const Matrix other = b ? lb->matrix_of(b, what->opb) : Matrix{};
    return enqueue(stream, [=, to = *lc] {
        const auto with = [&](auto number) {
            using T = decltype(number);
            transform<T>(to, times.as<T>(), from, more.as<T>(), other, to.matrix_of(c));
        };
        if (is_complex)
            with(std::complex<double>());
        else
            with(double());
    });
}

namespace {
constexpr cublasLtMatmulHeuristicResult_t only_algorithm{{}, 0, CUBLAS_STATUS_SUCCESS, 1, {}};
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t alayout,
    cublasLtMatrixLayout_t blayout, cublasLtMatrixLayout_t clayout, cublasLtMatrixLayout_t dlayout,
    cublasLtMatmulPreference_t preference, int wanted, cublasLtMatmulHeuristicResult_t results[],
    int* found) {
    SIMULATOR_CUBLAS_HANDLE(handle);
    SIMULATOR_CUBLAS_VALID(found, results, wanted > 0, in<Preference>(preference));
    *found = 0;
    cublasStatus_t status;
    const Matmul it = described(desc, alayout, blayout, clayout, dlayout, status);
    if (status || (status = it.verdict())) return status;
    results[0] = only_algorithm;
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetIds(cublasLtHandle_t handle, cublasComputeType_t compute,
                                        cudaDataType_t scale, cudaDataType_t atype,
                                        cudaDataType_t btype, cudaDataType_t, cudaDataType_t dtype,
                                        int wanted, int ids[], int* found) {
    SIMULATOR_CUBLAS_HANDLE(handle);
    SIMULATOR_CUBLAS_VALID(ids, found, wanted > 0);
    *found = is_supported(compute, scale, atype, btype, dtype);
    if (*found) ids[0] = 0;
    return *found ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulAlgoInit(cublasLtHandle_t handle, cublasComputeType_t compute,
                                      cudaDataType_t scale, cudaDataType_t atype,
                                      cudaDataType_t btype, cudaDataType_t, cudaDataType_t dtype,
                                      int id, cublasLtMatmulAlgo_t* algo) {
    SIMULATOR_CUBLAS_HANDLE(handle);
    SIMULATOR_CUBLAS_VALID(algo, id == 0);
    if (!is_supported(compute, scale, atype, btype, dtype)) return CUBLAS_STATUS_NOT_SUPPORTED;
    *algo = only_algorithm.algo;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t alayout,
    cublasLtMatrixLayout_t blayout, cublasLtMatrixLayout_t clayout, cublasLtMatrixLayout_t dlayout,
    const cublasLtMatmulAlgo_t* algo, cublasLtMatmulHeuristicResult_t* result) {
    SIMULATOR_CUBLAS_HANDLE(handle);
    SIMULATOR_CUBLAS_VALID(algo, result);
    cublasStatus_t status;
    const Matmul it = described(desc, alayout, blayout, clayout, dlayout, status);
    if (status || (status = it.verdict())) return status;
    *result = only_algorithm;
    return CUBLAS_STATUS_SUCCESS;
}

}  // namespace simulator::api
