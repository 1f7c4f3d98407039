// The descriptions of cuBLASLt, attribute by attribute.
#pragma once
#include <type_traits>
#include "calls.h"

namespace simulator::cublas {
namespace {

// What lies in the words of a cublasLtMatrixLayoutOpaque_t and so on. `kind` tells it from memory
// that nobody has initialised, or that was destroyed.
struct Layout {
    static constexpr uint64_t known = 0x6c61796f75740001;
    uint64_t kind = known;
    int32_t type = 0, order = CUBLASLT_ORDER_COL;
    uint64_t rows = 0, columns = 0;
    int64_t ld = 0;
    int32_t batches = 1, batch_mode = 0;
    int64_t matrix = 0, plane = 0;

    cudaDataType_t element() const { return cudaDataType_t(type); }
    bool by_rows() const { return order == CUBLASLT_ORDER_ROW; }
    bool is_valid() const { return batches >= 0 && fits(int64_t(by_rows() ? columns : rows), ld); }
    bool is_supported() const {
        return (order == CUBLASLT_ORDER_COL || by_rows()) && bytes_of(element()) && !batch_mode &&
               !plane;
    }
    Matrix matrix_of(const void* data, int32_t op = CUBLAS_OP_N) const {
        const bool conjugated = op == CUBLAS_OP_C && is_complex_type(element());
        const Matrix it{
            data, element(), by_rows() ? ld : 1, by_rows() ? 1 : ld, matrix, nullptr, conjugated};
        return op == CUBLAS_OP_N ? it : it.transposed();
    }

    template <class Visit>
    cublasStatus_t with(int attribute, Visit visit) {
        switch (attribute) {
            case CUBLASLT_MATRIX_LAYOUT_TYPE:
                return visit(type);
            case CUBLASLT_MATRIX_LAYOUT_ORDER:
                return visit(order);
            case CUBLASLT_MATRIX_LAYOUT_ROWS:
                return visit(rows);
            case CUBLASLT_MATRIX_LAYOUT_COLS:
                return visit(columns);
            case CUBLASLT_MATRIX_LAYOUT_LD:
                return visit(ld);
            case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
                return visit(batches);
            case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
                return visit(matrix);
            case CUBLASLT_MATRIX_LAYOUT_PLANE_OFFSET:
                return visit(plane);
            case CUBLASLT_MATRIX_LAYOUT_BATCH_MODE:
                return visit(batch_mode);
        }
        return CUBLAS_STATUS_INVALID_VALUE;
    }
};

struct MatmulDesc {
    static constexpr uint64_t known = 0x6d61746d756c0001;
    uint64_t kind = known;
    int32_t compute = 0, scale = 0, pointers = CUBLASLT_POINTER_MODE_HOST;
    int32_t opa = CUBLAS_OP_N, opb = CUBLAS_OP_N, opc = CUBLAS_OP_N;
    int32_t fill = CUBLAS_FILL_MODE_FULL, processors = 0;
    uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    int32_t bias_type = -1, aux_type = -1;
    int8_t fast_sum = 0;
    void *bias = nullptr, *aux = nullptr;
    int64_t bias_batch = 0, aux_ld = 0, aux_batch = 0, alpha_batch = 0;
    void *scale_a = nullptr, *scale_b = nullptr, *scale_c = nullptr, *scale_d = nullptr;
    void *largest_d = nullptr, *scale_aux = nullptr, *largest_aux = nullptr;

    template <class Visit>
    cublasStatus_t with(int attribute, Visit visit) {
        switch (attribute) {
            case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
                return visit(compute);
            case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
                return visit(scale);
            case CUBLASLT_MATMUL_DESC_POINTER_MODE:
                return visit(pointers);
            case CUBLASLT_MATMUL_DESC_TRANSA:
                return visit(opa);
            case CUBLASLT_MATMUL_DESC_TRANSB:
                return visit(opb);
            case CUBLASLT_MATMUL_DESC_TRANSC:
                return visit(opc);
            case CUBLASLT_MATMUL_DESC_FILL_MODE:
                return visit(fill);
            case CUBLASLT_MATMUL_DESC_EPILOGUE:
                return visit(epilogue);
            case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
                return visit(bias);
            case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
                return visit(bias_batch);
            case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
                return visit(aux);
            case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
                return visit(aux_ld);
            case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
                return visit(aux_batch);
            case CUBLASLT_MATMUL_DESC_ALPHA_VECTOR_BATCH_STRIDE:
                return visit(alpha_batch);
            case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
                return visit(processors);
            case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
                return visit(scale_a);
            case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
                return visit(scale_b);
            case CUBLASLT_MATMUL_DESC_C_SCALE_POINTER:
                return visit(scale_c);
            case CUBLASLT_MATMUL_DESC_D_SCALE_POINTER:
                return visit(scale_d);
            case CUBLASLT_MATMUL_DESC_AMAX_D_POINTER:
                return visit(largest_d);
            case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
                return visit(aux_type);
            case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_SCALE_POINTER:
                return visit(scale_aux);
            case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_AMAX_POINTER:
                return visit(largest_aux);
            case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
                return visit(fast_sum);
            case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
                return visit(bias_type);
        }
        return CUBLAS_STATUS_INVALID_VALUE;
    }
};

struct TransformDesc {
    static constexpr uint64_t known = 0x7472616e73660001;
    uint64_t kind = known;
    int32_t scale = 0, pointers = CUBLASLT_POINTER_MODE_HOST;
    int32_t opa = CUBLAS_OP_N, opb = CUBLAS_OP_N;

    template <class Visit>
    cublasStatus_t with(int attribute, Visit visit) {
        switch (attribute) {
            case CUBLASLT_MATRIX_TRANSFORM_DESC_SCALE_TYPE:
                return visit(scale);
            case CUBLASLT_MATRIX_TRANSFORM_DESC_POINTER_MODE:
                return visit(pointers);
            case CUBLASLT_MATRIX_TRANSFORM_DESC_TRANSA:
                return visit(opa);
            case CUBLASLT_MATRIX_TRANSFORM_DESC_TRANSB:
                return visit(opb);
        }
        return CUBLAS_STATUS_INVALID_VALUE;
    }
};

struct Preference {
    static constexpr uint64_t known = 0x7072656665720001;
    uint64_t kind = known;
    uint32_t search = 0, reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
    uint64_t workspace = 0, implementations = ~uint64_t(0);
    uint32_t a = 256, b = 256, c = 256, d = 256;  // least alignments
    float waves = 0;

    template <class Visit>
    cublasStatus_t with(int attribute, Visit visit) {
        switch (attribute) {
            case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
                return visit(search);
            case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
                return visit(workspace);
            case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
                return visit(reductions);
            case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
                return visit(a);
            case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
                return visit(b);
            case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
                return visit(c);
            case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
                return visit(d);
            case CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT:
                return visit(waves);
            case CUBLASLT_MATMUL_PREF_IMPL_MASK:
                return visit(implementations);
        }
        return CUBLAS_STATUS_INVALID_VALUE;
    }
};

// ---- Descriptions in the words that the caller holds

template <class Description, class Words>
cublasStatus_t init(Words* words, const Description& description) {
    static_assert(sizeof(Description) <= sizeof(Words) &&
                  std::is_trivially_copyable_v<Description>);
    if (!words) return CUBLAS_STATUS_INVALID_VALUE;
    __builtin_memset(words, 0, sizeof *words);
    __builtin_memcpy(words, &description, sizeof description);
    return CUBLAS_STATUS_SUCCESS;
}
template <class Description, class Words>
cublasStatus_t create(Words** words, const Description& description) {
    if (!words) return CUBLAS_STATUS_INVALID_VALUE;
    *words = new (std::nothrow) Words;
    return *words ? init(*words, description) : CUBLAS_STATUS_ALLOC_FAILED;
}
// Null where there is none.
template <class Description, class Words>
Description* in(Words* words) {
    auto* description = reinterpret_cast<Description*>(words);
    return description && description->kind == Description::known ? description : nullptr;
}
template <class Description, class Words>
cublasStatus_t destroy(Words* words) {
    if (!words) return CUBLAS_STATUS_SUCCESS;
    auto* description = in<Description>(words);
    if (!description) return CUBLAS_STATUS_INVALID_VALUE;
    description->kind = 0;
    delete words;
    return CUBLAS_STATUS_SUCCESS;
}
template <class Description, class Words>
cublasStatus_t set(Words* words, int attribute, const void* value, size_t bytes) {
    auto* description = in<Description>(words);
    SIMULATOR_CUBLAS_VALID(description, value);
    return description->with(attribute, [&](auto& field) {
        if (bytes != sizeof field) return CUBLAS_STATUS_INVALID_VALUE;
        __builtin_memcpy(&field, value, sizeof field);
        return CUBLAS_STATUS_SUCCESS;
    });
}
template <class Description, class Words>
cublasStatus_t get(Words* words, int attribute, void* value, size_t bytes, size_t* written) {
    auto* description = in<Description>(words);
    SIMULATOR_CUBLAS_VALID(description, value || (bytes == 0 && written));
    return description->with(attribute, [&](auto& field) {
        if (written) *written = sizeof field;
        if (bytes == 0) return CUBLAS_STATUS_SUCCESS;
        if (bytes < sizeof field) return CUBLAS_STATUS_INVALID_VALUE;
        __builtin_memcpy(value, &field, sizeof field);
        return CUBLAS_STATUS_SUCCESS;
    });
}

}  // namespace
}  // namespace simulator::cublas
