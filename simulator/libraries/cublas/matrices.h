// Matrices of numbers where they lie, and their product, which PyTorch's routines for the CPU take
// through its stable C interface.
#pragma once
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>
#include "elements.h"

namespace simulator::cublas {
namespace {

// A view of a matrix, or of a batch of them: so many elements from one to the next.
template <class T>
struct Strided {
    T* data;
    int64_t row, column, matrix = 0;

    T& operator()(int64_t i, int64_t j) const { return data[i * row + j * column]; }
    Strided at(int64_t i, int64_t j) const {
        return {data + i * row + j * column, row, column, matrix};
    }
    Strided transposed() const { return {data, column, row, matrix}; }
    operator Strided<const T>() const { return {data, row, column, matrix}; }
};

template <class T>
int32_t dtype();
template <>
int32_t dtype<float>() {
    return aoti_torch_dtype_float32();
}
template <>
int32_t dtype<double>() {
    return aoti_torch_dtype_float64();
}
template <>
int32_t dtype<std::complex<float>>() {
    return aoti_torch_dtype_complex64();
}
template <>
int32_t dtype<std::complex<double>>() {
    return aoti_torch_dtype_complex128();
}

void require(AOTITorchError error) {
    if (error != AOTI_TORCH_SUCCESS) throw Failed();
}

// A tensor of memory that is somebody else's: [batches,] rows, columns.
class Tensor {
  public:
    template <class T>
    Tensor(Strided<T> it, int64_t rows, int64_t columns, int64_t batches, bool is_batch) {
        const int64_t sizes[] = {batches, rows, columns};
        // Where there is one only, torch takes it for what it likes to.
        const int64_t strides[] = {it.matrix, rows > 1 ? it.row : std::max(it.row, columns),
                                   columns > 1 ? it.column : std::max(it.column, rows)};
        using Plain = std::remove_const_t<T>;
        require(aoti_torch_create_tensor_from_blob(
            const_cast<Plain*>(it.data), 2 + is_batch, sizes + !is_batch, strides + !is_batch, 0,
            dtype<Plain>(), aoti_torch_device_type_cpu(), 0, &handle));
    }
    ~Tensor() { aoti_torch_delete_tensor_object(handle); }
    Tensor(const Tensor&) = delete;
    Tensor& operator=(const Tensor&) = delete;
    operator AtenTensorHandle() const { return handle; }

  private:
    AtenTensorHandle handle = nullptr;
};

// C = beta * C. Where beta is 0, C is not read.
template <class T>
void scale(int64_t m, int64_t n, T beta, Strided<T> c) {
    if (beta == T(1)) return;
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < m; i++) c(i, j) = beta == T(0) ? T(0) : beta * c(i, j);
}

// C = A B; where T is real, C = alpha A B + beta C. A [m, k], B [k, n], C [m, n].
template <class T>
void torch_product(int64_t m, int64_t n, int64_t k, int64_t batches, T alpha, Strided<const T> a,
                   Strided<const T> b, T beta, Strided<T> c) {
    if (c.row == 1 && c.column != 1)  // torch likes rows that are contiguous
        return torch_product<T>(
            n, m, k, batches, alpha, b.transposed(), a.transposed(), beta, c.transposed());
    const bool is_batch = batches > 1;
    const Tensor left(a, m, k, batches, is_batch), right(b, k, n, batches, is_batch);
    const Tensor result(c, m, n, batches, is_batch);
    if constexpr (is_complex<T>)
        require(is_batch ? aoti_torch_cpu_bmm_out(result, left, right)
                         : aoti_torch_cpu_mm_out(result, left, right));
    else
        require(is_batch ? aoti_torch_cpu_baddbmm_out(result, result, left, right, beta, alpha)
                         : aoti_torch_cpu_addmm_out(result, result, left, right, beta, alpha));
}

// C = alpha A B + beta C. Where beta is 0, C is not read, and where alpha is, neither A nor B is.
template <class T>
void multiply(int64_t m, int64_t n, int64_t k, int64_t batches, T alpha, Strided<const T> a,
              Strided<const T> b, T beta, Strided<T> c) {
    if (m == 0 || n == 0) return;
    const int64_t extent = (m - 1) * c.row + (n - 1) * c.column;
    if (batches > 1 && c.matrix <= extent) {  // they overlap: one after another
        for (int64_t i = 0; i < batches; i++)
            multiply<T>(m, n, k, 1, alpha, {a.data + i * a.matrix, a.row, a.column},
                        {b.data + i * b.matrix, b.row, b.column}, beta,
                        {c.data + i * c.matrix, c.row, c.column});
        return;
    }
    if (k == 0 || alpha == T(0)) {
        for (int64_t i = 0; i < batches; i++)
            scale<T>(m, n, beta, {c.data + i * c.matrix, c.row, c.column});
        return;
    }
    if constexpr (!is_complex<T>) return torch_product<T>(m, n, k, batches, alpha, a, b, beta, c);
    Numbers<T> product(m * n * batches);
    torch_product<T>(m, n, k, batches, T(1), a, b, T(0), {product, 1, m, m * n});
    for (int64_t l = 0; l < batches; l++)
        for (int64_t j = 0; j < n; j++)
            for (int64_t i = 0; i < m; i++) {
                T& element = c.data[l * c.matrix + i * c.row + j * c.column];
                const T value = alpha * product[(l * n + j) * m + i];
                element = beta == T(0) ? value : value + beta * element;
            }
}

// op(A) of a column-major matrix; its conjugate is left to the caller.
template <class T>
Strided<T> operand(cublasOperation_t op, T* data, int64_t ld, int64_t matrix = 0) {
    const Strided<T> it{data, 1, ld, matrix};
    return op == CUBLAS_OP_N ? it : it.transposed();
}

// A contiguous copy, made by element(i, j).
template <class T, class Element>
Numbers<T> matrix_of(int64_t rows, int64_t columns, Element element) {
    Numbers<T> result(rows * columns);
    for (int64_t j = 0; j < columns; j++)
        for (int64_t i = 0; i < rows; i++) result[j * rows + i] = element(i, j);
    return result;
}

}  // namespace
}  // namespace simulator::cublas
