// Binding of grouped_matmul: schema, checks, allocation, launch.
#include "grouped_matmul.h"
#include "binding.h"

template <class T>
cudaError_t grouped_matmul_set_up(const int32_t* ends, int32_t* checked, int64_t count,
                                  int64_t rows, T* y, int64_t width, int64_t elements, T* z,
                                  int64_t wide, cudaStream_t stream);
template <class T>
cudaError_t grouped_matmul(const Product<T>& p, const Groups& groups, Grouped grouped,
                           int64_t version, cudaStream_t stream);

template <class T>
cudaError_t grouped_matmul_gradient_of_z(const T* g, const T* z, T* dz, int64_t rows, int64_t units,
                                         int64_t act, cudaStream_t stream);

// ---- checks

void check_inputs(const Tensor& x, const Tensor& w, const Tensor& offsets, int64_t act,
                  int64_t version) {
    check_first(x, "x");
    if (x.dim() != 2) fail("x has shape ", shape_name(x), "; wanted is [rows, cols]");
    if (x.size(0) > 0x7fffffff) fail("x has ", x.size(0), " rows; wanted are fewer than 2**31");
    check_like(w, "w", x, "x");
    if (w.dim() != 3 || w.size(2) != x.size(1)) {
        fail("w has shape ", shape_name(w), ", but x has shape ", shape_name(x),
             "; wanted is (experts, units, ", x.size(1), ")");
    }
    if (act < kNone || act > kSwiglu) {
        fail("act is ", act, "; wanted is an int from ", int64_t(kNone), " (none) to ",
             int64_t(kSwiglu), " (swiglu)");
    }
    if (act == kSwiglu && w.size(1) % 2 != 0) {
        fail("w has shape ", shape_name(w),
             "; wanted is an even number of rows, for swiglu takes half of them");
    }
    check_integers(offsets, "offsets", x, "x", false);
    check_shape(offsets, "offsets", w, "w", {w.size(0)});
    check_version(version, GroupedVersion::kCount);
}

int64_t units_of(const Tensor& w, int64_t act) {
    return act == kSwiglu ? w.size(1) / 2 : w.size(1);
}

// Where act is none, y has all that backward needs of z.
Shape shape_of_z(const Tensor& x, const Tensor& w, int64_t act) {
    return act == kNone ? Shape{0} : Shape{x.size(0), w.size(1)};
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

// Writes y [rows, units], or [groups, rows, units], of a product whose operands are given, and z if
// there is one. rows: how many are grouped.
template <class T>
void multiply(const Operand<T>& x, const Operand<T>& w, const Tensor& y, const Tensor* z,
              int64_t depth, int64_t act, const Tensor& offsets, int64_t rows, Grouped grouped,
              int64_t version, cudaStream_t stream) {
    const int64_t count = offsets.size(0);
    if (y.numel() == 0) return;
    const Tensor checked = new_tensor(offsets, {count + 1}, ScalarType::Int);
    Product<T> p = {};
    p.x = x, p.w = w, p.y = out<T>(y), p.z = out<T>(z), p.scale = 1, p.act = Act(act);
    p.batch = count, p.rows = y.size(-2), p.units = y.size(-1), p.depth = depth;
    check_launch(grouped_matmul_set_up<T>(
        in<int32_t>(offsets), out<int32_t>(checked), count, rows, p.y,
        grouped == Grouped::kRows ? p.units : 0, y.numel(), p.z, z ? z->size(1) : 0, stream));
    if (count == 0) return;
    check_launch(grouped_matmul<T>(p, {in<int32_t>(checked), count}, grouped, version, stream));
}

// z: null, or where x w^T goes, unless act is none.
Tensor run_forward(Tensor x, Tensor w, Tensor offsets, int64_t act, int64_t version, Tensor* z) {
    check_inputs(x, w, offsets, act, version);
    OnDeviceOf device(x);
    x = packed(x), offsets = packed(offsets);
    const int64_t rows = x.size(0), cols = x.size(1);
    const Tensor y = new_of_shape(x, {rows, units_of(w, act)});
    if (z) *z = new_of_shape(x, shape_of_z(x, w, act));
    for_type_of(x, [&](auto zero) {
        using T = decltype(zero);
        multiply<T>({in<T>(x), 0, cols, 1}, operand_of<T>(w), y, act == kNone ? nullptr : z, cols,
                    act, offsets, rows, Grouped::kRows, version, device.stream);
    });
    return y;
}

Tensor infer(Tensor x, Tensor w, Tensor offsets, int64_t act, int64_t version) {
    return run_forward(x, w, offsets, act, version, nullptr);
}

// Returns y and, for backward, z [rows, wide], which is empty if act is none.
std::tuple<Tensor, Tensor> forward(Tensor x, Tensor w, Tensor offsets, int64_t act,
                                   int64_t version) {
    Tensor z;
    const Tensor y = run_forward(x, w, offsets, act, version, &z);
    return {y, z};
}

// The gradients of x and w; no elements where one is not needed. dx is grouped as y is; that of w
// is grouped along its depth, the rows of x.
std::tuple<Tensor, Tensor> backward(Tensor grad, Tensor x, Tensor w, Tensor z, Tensor offsets,
                                    int64_t act, bool needs_x, bool needs_w, int64_t version) {
    check_inputs(x, w, offsets, act, version);
    check_like(grad, "grad", x, "x");
    check_shape(grad, "grad", x, "x", {x.size(0), units_of(w, act)});
    check_like(z, "z", x, "x");
    check_shape(z, "z", x, "x", shape_of_z(x, w, act));
    OnDeviceOf device(x);
    x = packed(x), grad = packed(grad), z = packed(z), offsets = packed(offsets);
    const int64_t rows = x.size(0), cols = x.size(1), wide = w.size(1);
    const Tensor none = new_of_shape(x, {0});
    const Tensor dx = needs_x ? new_like(x) : none, dw = needs_w ? new_like(w) : none;
    const Tensor dz = act == kNone ? grad : new_like(z);
    for_type_of(x, [&](auto zero) {
        using T = decltype(zero);
        if (act != kNone) {
            check_launch(grouped_matmul_gradient_of_z<T>(
                in<T>(grad), in<T>(z), out<T>(dz), rows, grad.size(1), act, device.stream));
        }
        const Operand<T> of_x = {in<T>(x), 0, cols, 1}, of_z = {in<T>(dz), 0, wide, 1};
        if (needs_x) {
            multiply<T>(of_z, transpose_of(operand_of<T>(w)), dx, nullptr, wide, kNone, offsets,
                        rows, Grouped::kRows, version, device.stream);
        }
        if (needs_w) {
            multiply<T>(transpose_of(of_z), transpose_of(of_x), dw, nullptr, rows, kNone, offsets,
                        rows, Grouped::kDepth, version, device.stream);
        }
    });
    return {dx, dw};
}

STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
    m.def("infer(Tensor x, Tensor w, Tensor offsets, int act, int version) -> Tensor");
    m.def(
        "forward(Tensor x, Tensor w, Tensor offsets, int act, int version)"
        " -> (Tensor y, Tensor z)");
    m.def(
        "backward(Tensor grad, Tensor x, Tensor w, Tensor z, Tensor offsets, int act, bool needs_x,"
        " bool needs_w, int version) -> (Tensor dx, Tensor dw)");
}

STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("infer", TORCH_BOX(&infer));
    m.impl("forward", TORCH_BOX(&forward));
    m.impl("backward", TORCH_BOX(&backward));
}
