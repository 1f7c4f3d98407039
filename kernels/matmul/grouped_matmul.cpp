// Binding of grouped_matmul: schema, checks, allocation, launch.
#include "grouped_matmul.h"
#include "binding.h"

template <class T>
cudaError_t grouped_matmul_set_up(const int32_t* ends, int32_t* checked, int64_t count,
                                  int64_t rows, T* y, int64_t width, int64_t elements,
                                  cudaStream_t stream);
template <class T>
cudaError_t grouped_matmul(const Product<T>& p, const Groups& groups, Grouped grouped,
                           int64_t version, cudaStream_t stream);

// ---- checks

void check_inputs(const Tensor& x, const Tensor& w, const Tensor& offsets, int64_t version) {
    check_first(x, "x");
    if (x.dim() != 2) fail("x has shape ", shape_name(x), "; wanted is [rows, cols]");
    if (x.size(0) > 0x7fffffff) fail("x has ", x.size(0), " rows; wanted are fewer than 2**31");
    check_like(w, "w", x, "x");
    if (w.dim() != 3 || w.size(2) != x.size(1)) {
        fail("w has shape ", shape_name(w), ", but x has shape ", shape_name(x),
             "; wanted is (experts, units, ", x.size(1), ")");
    }
    check_integers(offsets, "offsets", x, "x", false);
    check_shape(offsets, "offsets", w, "w", {w.size(0)});
    check_version(version, GroupedVersion::kCount);
}

// ---- products

// w [matrices, rows, cols] as it lies in memory, or transposed there; otherwise it is copied.
template <class T>
Operand<T> operand_of(Tensor& w) {
    const int64_t rows = w.size(1), cols = w.size(2);
    if (transposed(w).is_contiguous() && !w.is_contiguous())
        return {in<T>(w), rows * cols, 1, rows};
    w = packed(w);
    return {in<T>(w), rows * cols, cols, 1};
}
template <class T>
Operand<T> transpose_of(const Operand<T>& of) {
    return {of.data, of.matrix, of.col, of.row};
}

// Writes y [rows, units], or [groups, rows, units], of a product whose operands are given. rows:
// how many are grouped.
template <class T>
void multiply(const Operand<T>& x, const Operand<T>& w, const Tensor& y, int64_t depth,
              const Tensor& offsets, int64_t rows, Grouped grouped, int64_t version,
              cudaStream_t stream) {
    const int64_t count = offsets.size(0);
    const bool by_rows = grouped == Grouped::kRows;
    if (y.numel() == 0) return;
    const Tensor checked = new_tensor(offsets, {count + 1}, ScalarType::Int);
    check_launch(grouped_matmul_set_up<T>(in<int32_t>(offsets), out<int32_t>(checked), count, rows,
                                          out<T>(y), by_rows ? y.size(-1) : 0, y.numel(), stream));
    if (count == 0) return;
    Product<T> p = {};
    p.x = x, p.w = w, p.y = out<T>(y), p.scale = 1;
    p.batch = count, p.rows = y.size(-2), p.units = y.size(-1), p.depth = depth;
    check_launch(grouped_matmul<T>(p, {in<int32_t>(checked), count}, grouped, version, stream));
}

Tensor forward(Tensor x, Tensor w, Tensor offsets, int64_t version) {
    check_inputs(x, w, offsets, version);
    OnDeviceOf device(x);
    x = packed(x), offsets = packed(offsets);
    const int64_t rows = x.size(0), cols = x.size(1);
    const Tensor y = new_of_shape(x, {rows, w.size(1)});
    for_type_of(x, [&](auto zero) {
        using T = decltype(zero);
        multiply<T>({in<T>(x), 0, cols, 1}, operand_of<T>(w), y, cols, offsets, rows,
                    Grouped::kRows, version, device.stream);
    });
    return y;
}

// The gradients of x and w; no elements where one is not needed. dx is grouped as y is; that of w
// is grouped along its depth, the rows of x.
std::tuple<Tensor, Tensor> backward(Tensor grad, Tensor x, Tensor w, Tensor offsets, bool needs_x,
                                    bool needs_w, int64_t version) {
    check_inputs(x, w, offsets, version);
    check_like(grad, "grad", x, "x");
    check_shape(grad, "grad", x, "x", {x.size(0), w.size(1)});
    OnDeviceOf device(x);
    x = packed(x), grad = packed(grad), offsets = packed(offsets);
    const int64_t rows = x.size(0), cols = x.size(1), units = w.size(1);
    const Tensor none = new_of_shape(x, {0});
    const Tensor dx = needs_x ? new_like(x) : none, dw = needs_w ? new_like(w) : none;
    for_type_of(x, [&](auto zero) {
        using T = decltype(zero);
        const Operand<T> of_x = {in<T>(x), 0, cols, 1}, of_grad = {in<T>(grad), 0, units, 1};
        if (needs_x) {
            multiply<T>(of_grad, transpose_of(operand_of<T>(w)), dx, units, offsets, rows,
                        Grouped::kRows, version, device.stream);
        }
        if (needs_w) {
            multiply<T>(transpose_of(of_grad), transpose_of(of_x), dw, rows, offsets, rows,
                        Grouped::kDepth, version, device.stream);
        }
    });
    return {dx, dw};
}

STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
    m.def("forward(Tensor x, Tensor w, Tensor offsets, int version) -> Tensor");
    m.def(
        "backward(Tensor grad, Tensor x, Tensor w, Tensor offsets, bool needs_x, bool needs_w,"
        " int version) -> (Tensor dx, Tensor dw)");
}

STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("forward", TORCH_BOX(&forward));
    m.impl("backward", TORCH_BOX(&backward));
}
