// The product that all of gemm and cublasLtMatmul come down to, of matrices of any types.
#pragma once
#include "matrices.h"

namespace simulator::cublas {
namespace {

// A matrix, or a batch of them: in one place or, where there is a list, in many.
struct Matrix {
    const void* data;
    cudaDataType_t type;
    int64_t row, column;
    int64_t matrix = 0;  // elements from one to the next
    const void* const* list = nullptr;
    bool conjugated = false;
    float factor = 1;  // of every element

    const void* at(int64_t i) const {
        if (list) return list[i];
        return static_cast<const char*>(data) + i * matrix * bytes_of(type);
    }
    Matrix transposed() const {
        Matrix it = *this;
        std::swap(it.row, it.column);
        return it;
    }
};

// What cublasLt does to a result before it is stored: the sum of the parts of a cublasLtEpilogue_t.
struct Epilogue {
    enum { Relu = 2, Bias = 4, Drelu = 8, Bgrad = 16, Gelu = 32, Dgelu = 64, Aux = 128 };
    enum { BgradA = 256, BgradB = 512 };

    int parts = 1;
    Matrix bias{};             // a vector of the rows of D; for BgradB, of its columns
    Matrix aux{};              // the matrix before GELU, or a bit an element for RELU
    float* largest = nullptr;  // is set to the largest magnitude of D
    Matrix alphas{};           // in alpha's place one of its own for each row of D

    bool is_plain() const { return parts == 1 && !largest && !alphas.data; }
};

// GELU by its approximation with tanh, as cuBLASLt documents it.
template <class T>
T gelu(T x) {
    const T inner = T(0.7978845608028654) * (x + T(0.044715) * x * x * x);
    return T(0.5) * x * (1 + std::tanh(inner));
}
template <class T>
T gelu_gradient(T x) {
    const T slope = T(0.7978845608028654), cube = T(0.044715);
    const T tanh = std::tanh(slope * (x + cube * x * x * x));
    return T(0.5) * (1 + tanh) + T(0.5) * x * (1 - tanh * tanh) * slope * (1 + 3 * cube * x * x);
}

template <class T>
struct Product {
    int64_t m, n, k, batches;
    T alpha;
    Matrix a, b;  // op(A) [m, k], op(B) [k, n]
    T beta;
    Matrix c, d;  // [m, n]
    Epilogue epilogue{};

    void run() const {
        if (m == 0 || n == 0 || batches == 0) return;
        if (epilogue.is_plain() && is_native(a) && is_native(b) && is_native(d) &&
            c.at(0) == d.at(0) && c.row == d.row && c.column == d.column && c.matrix == d.matrix &&
            (d.row == 1 || d.column == 1)) {
            if (!a.list && !b.list && !d.list) return run_as_it_lies(0, batches);
            for (int64_t i = 0; i < batches; i++) run_as_it_lies(i, 1);
            return;
        }
        run_in_parts();
    }

  private:
    static bool is_native(const Matrix& it) {
        return it.type == type_of<T> && !it.conjugated && it.factor == 1;
    }
    static Strided<const T> view(const Matrix& it, int64_t i) {
        return {static_cast<const T*>(it.at(i)), it.row, it.column, it.matrix};
    }

    void run_as_it_lies(int64_t first, int64_t count) const {
        const Strided<const T> to = view(d, first);
        multiply<T>(m, n, k, count, alpha, view(a, first), view(b, first), beta,
                    {const_cast<T*>(to.data), to.row, to.column, to.matrix});
    }

    // The matrix as numbers: itself or, in `kept`, a copy.
    static Strided<const T> read(const Matrix& it, int64_t i, int64_t rows, int64_t columns,
                                 std::unique_ptr<Numbers<T>>& kept) {
        if (is_native(it)) return view(it, i);
        if (it.row > it.column)  // along what is contiguous
            return read(it.transposed(), i, columns, rows, kept).transposed();
        if (kept && !it.matrix && !it.list) return {*kept, 1, rows};
        kept.reset();
        kept = std::make_unique<Numbers<T>>(rows * columns);
        T* to = *kept;
        for (int64_t j = 0; j < columns; j++, to += rows) {
            load(to, it.type, element(it, i, j * it.column), rows, it.row);
            if (it.conjugated)
                for (int64_t l = 0; l < rows; l++) to[l] = conjugate(to[l]);
            if (it.factor != 1)
                for (int64_t l = 0; l < rows; l++) to[l] *= T(it.factor);
        }
        return {*kept, 1, rows};
    }
    static const void* element(const Matrix& it, int64_t i, int64_t offset) {
        return static_cast<const char*>(it.at(i)) + offset * bytes_of(it.type);
    }
    static void* writable(const Matrix& it, int64_t i, int64_t offset) {
        return const_cast<void*>(element(it, i, offset));
    }

    // A column of D or, where D lies row by row, a row: its elements are those of a batch's matrix
    // from (row, column) on.
    struct Line {
        int64_t batch, at, length;
        bool by_rows;

        int64_t row(int64_t e) const { return by_rows ? at : e; }
        int64_t begin(const Matrix& it) const { return at * (by_rows ? it.row : it.column); }
        int64_t step(const Matrix& it) const { return by_rows ? it.column : it.row; }
        void load(T* to, const Matrix& from) const {
            cublas::load(to, from.type, element(from, batch, begin(from)), length, step(from));
        }
        void store(const Matrix& to, const T* from) const {
            cublas::store(to.type, writable(to, batch, begin(to)), from, length, step(to));
        }
    };

    // Each product into numbers of our own, and from there line by line.
    void run_in_parts() const {
        const int parts = epilogue.parts;
        const bool by_rows = d.column == 1 && d.row != 1;
        const int64_t lines = by_rows ? m : n, length = by_rows ? n : m, wide = std::max(m, n);
        Numbers<T> product(m * n), line(wide), other(wide), alphas(m), bias(m), sums(wide);
        std::unique_ptr<Numbers<T>> left, right;
        if (epilogue.largest) *epilogue.largest = 0;
        for (int64_t l = 0; l < batches; l++) {
            if (k > 0 && (alpha != T(0) || epilogue.alphas.data))
                torch_product<T>(m, n, k, 1, T(1), read(a, l, m, k, left), read(b, l, k, n, right),
                                 T(0), {product, by_rows ? n : 1, by_rows ? 1 : m});
            else
                std::fill_n(static_cast<T*>(product), m * n, T(0));
            std::fill_n(static_cast<T*>(sums), wide, T(0));
            std::fill_n(static_cast<T*>(alphas), m, alpha);
            if (epilogue.alphas.data)
                load<T>(alphas, epilogue.alphas.type, epilogue.alphas.at(l), m, 1);
            if (parts & Epilogue::Bias)
                load<T>(bias, epilogue.bias.type, epilogue.bias.at(l), m, 1);
            for (int64_t at = 0; at < lines; at++) {
                const Line to{l, at, length, by_rows};
                const T* from = product + at * length;
                for (int64_t e = 0; e < length; e++) line[e] = alphas[to.row(e)] * from[e];
                if (beta != T(0)) {
                    to.load(other, c);
                    const T times = beta * T(c.factor);
                    for (int64_t e = 0; e < length; e++) line[e] += times * other[e];
                }
                if constexpr (!is_complex<T>) finish(to, line, other, bias, sums);
                to.store(d, line);
            }
            if (parts & Epilogue::BgradA) add_up(read(a, l, m, k, left), m, sums);
            if (parts & Epilogue::BgradB) add_up(read(b, l, k, n, right).transposed(), n, sums);
            if (parts & (Epilogue::Bgrad | Epilogue::BgradA | Epilogue::BgradB))
                store<T>(epilogue.bias.type, writable(epilogue.bias, l, 0), sums,
                         parts & Epilogue::BgradB ? n : m, 1);
        }
    }

    // Each row's sum over k.
    void add_up(Strided<const T> it, int64_t rows, T* sums) const {
        for (int64_t p = 0; p < k; p++)
            for (int64_t i = 0; i < rows; i++) sums[i] += it(i, p);
    }

    void finish(const Line& to, T* line, T* other, const T* bias, T* sums) const {
        const int parts = epilogue.parts;
        if (parts & Epilogue::Bias)
            for (int64_t e = 0; e < to.length; e++) line[e] += bias[to.row(e)];
        if (parts & Epilogue::Dgelu) {
            to.load(other, epilogue.aux);
            for (int64_t e = 0; e < to.length; e++)
                line[e] *= gelu_gradient(other[e] * T(epilogue.aux.factor));
        }
        if (parts & Epilogue::Gelu) {
            if (parts & Epilogue::Aux) to.store(epilogue.aux, line);
            for (int64_t e = 0; e < to.length; e++) line[e] = gelu(line[e]);
        }
        if (parts & (Epilogue::Relu | Epilogue::Drelu)) apply_relu(to, line);
        if (parts & Epilogue::Bgrad)
            for (int64_t e = 0; e < to.length; e++) sums[to.row(e)] += line[e];
        if (epilogue.largest)
            for (int64_t e = 0; e < to.length; e++)
                *epilogue.largest = fmaxf(*epilogue.largest, fabsf(float(line[e])));
        if (d.factor != 1)
            for (int64_t e = 0; e < to.length; e++) line[e] *= T(d.factor);
    }

    void apply_relu(const Line& to, T* line) const {
        const Matrix& aux = epilogue.aux;
        auto* bytes = static_cast<uint8_t*>(const_cast<void*>(aux.data));
        for (int64_t e = 0; e < to.length; e++) {
            const int64_t bit = to.batch * aux.matrix + to.begin(aux) + e * to.step(aux);
            const uint8_t mask = uint8_t(1 << bit % 8);
            if (epilogue.parts & Epilogue::Drelu) {
                if (!(bytes[bit / 8] & mask)) line[e] = 0;
                continue;
            }
            if (epilogue.parts & Epilogue::Aux)
                bytes[bit / 8] = uint8_t((bytes[bit / 8] & ~mask) | (line[e] > 0 ? mask : 0));
            if (line[e] < 0) line[e] = 0;
        }
    }
};

// ---- What is computed in which type

// The type of alpha and beta.
cudaDataType_t scale_of(cublasComputeType_t compute, bool is_complex) {
    switch (compute) {
        case CUBLAS_COMPUTE_16F:
        case CUBLAS_COMPUTE_16F_PEDANTIC:
            return CUDA_R_16F;
        case CUBLAS_COMPUTE_32F:
        case CUBLAS_COMPUTE_32F_PEDANTIC:
        case CUBLAS_COMPUTE_32F_FAST_16F:
        case CUBLAS_COMPUTE_32F_FAST_16BF:
        case CUBLAS_COMPUTE_32F_FAST_TF32:
        case CUBLAS_COMPUTE_32F_EMULATED_16BFX9:
            return is_complex ? CUDA_C_32F : CUDA_R_32F;
        case CUBLAS_COMPUTE_64F:
        case CUBLAS_COMPUTE_64F_PEDANTIC:
        case CUBLAS_COMPUTE_64F_EMULATED_FIXEDPOINT:
            return is_complex ? CUDA_C_64F : CUDA_R_64F;
        case CUBLAS_COMPUTE_32I:
        case CUBLAS_COMPUTE_32I_PEDANTIC:
            return CUDA_R_32I;
        default:
            return cudaDataType_t(-1);
    }
}

// Whether cuBLAS multiplies such matrices so, by the tables of its documentation.
bool is_supported(cublasComputeType_t compute, cudaDataType_t scale, cudaDataType_t a,
                  cudaDataType_t b, cudaDataType_t d) {
    if (is_float8(a) && is_float8(b))
        return (a == CUDA_R_8F_E4M3 || b == CUDA_R_8F_E4M3) && scale == CUDA_R_32F &&
               compute == CUBLAS_COMPUTE_32F &&
               (d == CUDA_R_32F || d == CUDA_R_16F || d == CUDA_R_16BF || is_float8(d));
    if (a != b) return false;
    const bool is_exact = compute == CUBLAS_COMPUTE_32I || compute == CUBLAS_COMPUTE_32I_PEDANTIC;
    switch (scale) {
        case CUDA_R_16F:
            return a == CUDA_R_16F && d == CUDA_R_16F;
        case CUDA_R_32I:
            return a == CUDA_R_8I && d == CUDA_R_32I;
        case CUDA_R_32F:
            if (a == CUDA_R_8I) return is_exact ? d == CUDA_R_8I : d == CUDA_R_32F;
            if (a == CUDA_R_32F) return d == CUDA_R_32F;
            return (a == CUDA_R_16F || a == CUDA_R_16BF) && (d == a || d == CUDA_R_32F);
        case CUDA_R_64F:
        case CUDA_C_32F:
        case CUDA_C_64F:
            return a == scale && d == scale;
        default:
            return false;
    }
}

// visit(T()) with the type T of the numbers. Integers are exact in double: k products of 8 bits.
template <class Visit>
void with_numbers(cudaDataType_t a, cudaDataType_t scale, Visit visit) {
    if (a == CUDA_R_8I || scale == CUDA_R_64F) return visit(double());
    if (scale == CUDA_C_32F) return visit(std::complex<float>());
    if (scale == CUDA_C_64F) return visit(std::complex<double>());
    return visit(float());
}

// alpha or beta, of a type that is known only now. See Factor.
class AnyFactor {
  public:
    AnyFactor(cudaDataType_t type, const void* from, bool on_device)
        : type(type), at(on_device ? from : nullptr) {
        if (!on_device && from) __builtin_memcpy(value, from, bytes_of(type));
    }
    template <class T>
    T as() const {
        T number{};
        load(&number, type, at ? at : value, 1, 1);
        return number;
    }

  private:
    cudaDataType_t type;
    const void* at;
    alignas(16) char value[16] = {};
};

}  // namespace
}  // namespace simulator::cublas
