// Binding of matmul: schema, checks, allocation, launch.
#include "matmul.h"
#include "binding.h"

template <class T>
int64_t matmul_workspace(const Product<T>& p, int64_t version);
template <class T>
int64_t matmul_copies(const Product<T>& p, int64_t version);
template <class T>
cudaError_t matmul_forward(const Product<T>& p, int64_t version, cudaStream_t stream);
template <class T>
cudaError_t matmul_gradient_of_z(const T* g, const T* z, T* dz, int64_t rows, int64_t units,
                                 int64_t act, cudaStream_t stream);
cudaError_t matmul_align_rows(const RowsToAlign& of, cudaStream_t stream);
bool matmul_prefers_unaligned(int64_t rows, int64_t wide);
int64_t matmul_shares(int64_t rows, int64_t cols);
template <class T>
cudaError_t matmul_column_sums(const T* t, T* sums, Acc<T>* parts, int64_t rows, int64_t cols,
                               int64_t shares, cudaStream_t stream);

// The shape of t with another number of columns.
Shape with_cols(const Tensor& t, int64_t cols) {
    Shape shape = shape_of(t);
    shape.back() = cols;
    return shape;
}

// ---- checks

void check_act(int64_t act) {
    if (act < kNone || act > kSwiglu) {
        fail("act is ", act, "; wanted is an int from ", int64_t(kNone), " (none) to ",
             int64_t(kSwiglu), " (swiglu)");
    }
}

// One w [wide, cols] is for all rows of x [..., cols]; or there is one for each matrix of x.
bool is_for_all(const Tensor& w) { return w.dim() == 2; }

void check_w(const Tensor& x, const Tensor& w, int64_t act) {
    bool fits = w.dim() >= 2 && (is_for_all(w) || w.dim() == x.dim()) && w.size(-1) == x.size(-1);
    for (int64_t i = 0; fits && i + 2 < w.dim(); ++i) fits = w.size(i) == x.size(i);
    if (!fits) {
        fail("w has shape ", shape_name(w), ", but x has shape ", shape_name(x),
             "; wanted is (units, ", x.size(-1), "), or one such for each matrix of x");
    }
    if (act == kSwiglu && w.size(-2) % 2 != 0) {
        fail("w has shape ", shape_name(w),
             "; wanted is an even number of rows, for swiglu takes "
             "half of them");
    }
}

void check_inputs(const Tensor& x, const Tensor& w, int64_t act) {
    check_first(x, "x");
    check_rank(x, "x");
    check_like(w, "w", x, "x");
    check_act(act);
    check_w(x, w, act);
}

int64_t units_of(const Tensor& w, int64_t act) {
    return act == kSwiglu ? w.size(-2) / 2 : w.size(-2);
}

// Where act is none, y has all that backward needs of z.
Shape shape_of_z(const Tensor& x, const Tensor& w, int64_t act) {
    return act == kNone ? Shape{0} : with_cols(x, w.size(-2));
}

// ---- matrices in memory

// Whether tensor cores have products of its type. (Floats are rounded to tf32 for them.)
bool has_tensor_cores(const Tensor& t) { return t.scalar_type() != ScalarType::Float; }

// The stride of the first dimensions of t counted as one, of which those of size 1 have none; or
// nothing if they cannot be counted so.
std::optional<int64_t> flat_stride(const Tensor& t, int64_t dims) {
    std::optional<int64_t> stride;
    int64_t elements = 1;
    for (int64_t i = dims - 1; i >= 0; --i) {
        if (t.size(i) == 1) continue;
        if (!stride) stride = t.stride(i);
        if (t.stride(i) != *stride * elements) return std::nullopt;
        elements *= t.size(i);
    }
    return stride.value_or(0);
}

// t [..., rows, cols] as matrices, or as one of all its rows. What has no neighbours in memory
// along rows nor along columns is copied.
struct Matrices {
    Tensor t;
    bool one;
    int64_t batch = 1, rows = 1, cols, matrix_stride = 0, row_stride = 1, col_stride = 1;

    Matrices(const Tensor& given, bool one) : t(given), one(one), cols(given.size(-1)) {
        const int64_t leading = t.dim() - (one ? 1 : 2);
        int64_t many = 1;
        for (int64_t i = 0; i < leading; ++i) many *= t.size(i);
        batch = one ? 1 : many;
        rows = one ? many : t.size(-2);
        if (t.numel() == 0) return;
        if (!find_strides()) {
            t = torch::stable::contiguous(torch::stable::clone(t));
            find_strides();
        }
    }

    // Copies what has rows, or columns, that do not begin on multiples of 16 bytes, as most kernels
    // with tensor cores read them.
    void align(cudaStream_t stream) {
        if (t.numel() == 0 || begins_on_vectors()) return;
        t = spread(stream);
        find_strides();
    }

    bool find_strides() {
        const std::optional<int64_t> stride = flat_stride(t, t.dim() - (one ? 1 : 2));
        if (!stride) return false;
        // The stride of a single row or column means nothing.
        col_stride = cols == 1 ? 1 : t.stride(-1);
        row_stride = one ? *stride : t.stride(-2);
        if (rows == 1) row_stride = (cols + 15) / 16 * 16;
        matrix_stride = one || batch == 1 ? 0 : *stride;
        return row_stride > 0 && col_stride > 0 && (row_stride == 1 || col_stride == 1);
    }

    int64_t vector() const { return 16 / int64_t(t.element_size()); }  // elements in 16 bytes

    bool begins_on_vectors() const {
        const int64_t apart = col_stride == 1 ? row_stride : col_stride;
        return apart % vector() == 0 && matrix_stride % vector() == 0 &&
               reinterpret_cast<uintptr_t>(t.data_ptr()) % 16 == 0;
    }

    // A copy with an aligned stride. It keeps the order of the elements in memory: transposing
    // costs more than copying.
    Tensor spread(cudaStream_t stream) const {
        const bool by_column = col_stride != 1 && (!one || t.dim() == 2);
        const Tensor from = by_column ? transposed(t) : t;
        const int64_t length = from.size(-1), whole = (length + vector() - 1) / vector() * vector();
        Tensor room = new_of_shape(t, with_cols(from, whole));
        Tensor copy = torch::stable::narrow(room, -1, 0, length);
        if (col_stride == 1 || by_column) {
            const int64_t size = t.element_size();
            check_launch(matmul_align_rows(
                {in<uint8_t>(t), out<uint8_t>(room), batch, by_column ? cols : rows, length * size,
                 matrix_stride * size, (by_column ? col_stride : row_stride) * size, whole * size},
                stream));
        } else {
            torch::stable::copy_(copy, from);
        }
        return by_column ? transposed(copy) : copy;
    }

    template <class T>
    Operand<T> operand() const {
        return {in<T>(t), matrix_stride, row_stride, col_stride};
    }
};

// Whether a kernel reads w, and x, wherever their rows begin.
bool is_read_unaligned(const Matrices& x, const Matrices& w, int64_t version) {
    return version == MatmulVersion::kStores && x.t.element_size() == 2 && x.col_stride == 1 &&
           w.col_stride == 1 && w.t.numel() > 0 && !w.begins_on_vectors() &&
           matmul_prefers_unaligned(x.rows, w.rows);
}

// ---- forward

// z: null, or where scale * x w^T + bias goes. into: null, or what is to become y.
Tensor run_forward(const Tensor& x, const Tensor& w, std::optional<Tensor> bias,
                   std::optional<Tensor> residual, double scale, int64_t act, bool tf32,
                   int64_t version, Tensor* z, const Tensor* into = nullptr) {
    check_inputs(x, w, act);
    const int64_t wide = w.size(-2), units = units_of(w, act);
    if (bias) {
        check_like(*bias, "bias", x, "x");
        check_shape(*bias, "bias", x, "x", {wide});
        bias = packed(*bias);
    }
    if (residual) {
        check_like(*residual, "residual", x, "x");
        check_shape(*residual, "residual", x, "x", with_cols(x, units));
        residual = packed(*residual);
    }
    check_version(version, MatmulVersion::kCount);
    OnDeviceOf device(x);
    Tensor y = into ? *into : new_of_shape(x, with_cols(x, units));
    if (z) *z = new_of_shape(x, shape_of_z(x, w, act));
    if (y.numel() == 0) return y;
    const bool tensor_cores = version >= MatmulVersion::kMma && has_tensor_cores(x),
               one = is_for_all(w);
    Matrices of_x(x, one), of_w(w, one);
    if (tensor_cores && !is_read_unaligned(of_x, of_w, version)) {
        of_x.align(device.stream);
        of_w.align(device.stream);
    }
    for_type_of(x, [&](auto zero) {
        using T = decltype(zero);
        Product<T> product = {
            of_x.operand<T>(),
            of_w.operand<T>(),
            bias ? in<T>(*bias) : nullptr,
            residual ? in<T>(*residual) : nullptr,
            out<T>(y),
            z && act != kNone ? out<T>(*z) : nullptr,
            of_x.batch,
            of_x.rows,
            units,
            of_x.cols,
            Acc<T>(scale),
            Act(act),
            nullptr,
            nullptr,
            tf32};
        Tensor workspace, copies;
        const auto make_room = [&](Tensor& room, int64_t floats) -> float* {
            if (floats == 0) return nullptr;
            room = new_tensor(x, {floats}, ScalarType::Float);
            return out<float>(room);
        };
        product.workspace = make_room(workspace, matmul_workspace<T>(product, version));
        product.copies = make_room(copies, matmul_copies<T>(product, version));
        check_launch(matmul_forward<T>(product, version, device.stream));
    });
    return y;
}

Tensor infer(Tensor x, Tensor w, std::optional<Tensor> bias, std::optional<Tensor> residual,
             double scale, int64_t act, bool tf32, int64_t version) {
    return run_forward(x, w, bias, residual, scale, act, tf32, version, nullptr);
}

// Returns y and, for backward, z [..., wide], which is empty if act is none.
std::tuple<Tensor, Tensor> forward(Tensor x, Tensor w, std::optional<Tensor> bias,
                                   std::optional<Tensor> residual, double scale, int64_t act,
                                   bool tf32, int64_t version) {
    Tensor z;
    Tensor y = run_forward(x, w, bias, residual, scale, act, tf32, version, &z);
    return {y, z};
}

// ---- backward

// The gradient of z [..., wide] from that of act(z) [..., units].
Tensor gradient_of_z(Tensor grad, Tensor z, int64_t act) {
    grad = packed(grad);
    z = packed(z);
    OnDeviceOf device(z);
    Tensor dz = new_like(z);
    const Rows shape(grad);
    for_type_of(z, [&](auto zero) {
        using T = decltype(zero);
        check_launch(matmul_gradient_of_z<T>(
            in<T>(grad), in<T>(z), out<T>(dz), shape.rows, shape.cols, act, device.stream));
    });
    return dz;
}

// The sums of t [..., cols] over all but the last dimension: [cols].
Tensor column_sums(Tensor t) {
    t = packed(t);
    OnDeviceOf device(t);
    const Rows shape(t);
    Tensor sums = new_of_shape(t, {shape.cols});
    const int64_t shares = matmul_shares(shape.rows, shape.cols);
    const Scratch parts(t, shares > 1 ? shares * shape.cols : 0);
    for_type_of(t, [&](auto zero) {
        using T = decltype(zero);
        check_launch(matmul_column_sums<T>(
            in<T>(t), out<T>(sums), parts.of<T>(), shape.rows, shape.cols, shares, device.stream));
    });
    return sums;
}

// t [..., cols] as one matrix.
Tensor all_rows(const Tensor& t) {
    return torch::stable::view(packed(t), {Rows(t).rows, t.size(-1)});
}

// The gradients of x, w and bias; no elements where one is not needed. z: of forward.
std::tuple<Tensor, Tensor, Tensor> backward(Tensor grad, Tensor x, Tensor w, Tensor z, double scale,
                                            int64_t act, bool needs_x, bool needs_w,
                                            bool needs_bias, bool tf32, int64_t version) {
    check_inputs(x, w, act);
    check_version(version, MatmulVersion::kCount);
    check_like(grad, "grad", x, "x");
    check_shape(grad, "grad", x, "x", with_cols(x, units_of(w, act)));
    check_like(z, "z", x, "x");
    check_shape(z, "z", x, "x", shape_of_z(x, w, act));
    const Tensor dz = act == kNone ? grad : gradient_of_z(grad, z, act);
    const auto product = [&](const Tensor& a, const Tensor& b) {
        return run_forward(a, b, std::nullopt, std::nullopt, scale, kNone, tf32, version, nullptr);
    };
    const Tensor none = new_of_shape(grad, {0});
    Tensor dw = none;
    if (needs_w && is_for_all(w)) dw = product(transposed(all_rows(dz)), transposed(all_rows(x)));
    if (needs_w && !is_for_all(w)) dw = product(transposed(dz), transposed(x));
    return {needs_x ? product(dz, transposed(w)) : none, dw, needs_bias ? column_sums(dz) : none};
}

// ---- into a matrix that there is

// y = x w^T, or if `adds` y += x w^T. Each element of y is read and written by one thread, or by
// TMA, which adds what has been rounded.
void multiply_into(Tensor y, Tensor x, Tensor w, bool adds, int64_t version) {
    check_inputs(x, w, kNone);
    check_like(y, "y", x, "x");
    check_shape(y, "y", x, "x", with_cols(x, w.size(-2)));
    if (!y.is_contiguous()) fail("y is not contiguous; wanted is a matrix without gaps");
    const auto residual = adds ? std::optional<Tensor>(y) : std::nullopt;
    run_forward(x, w, std::nullopt, residual, 1, kNone, false, version, nullptr, &y);
}

STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
    m.def(
        "infer(Tensor x, Tensor w, Tensor? bias, Tensor? residual, float scale, int act,"
        " bool tf32, int version) -> Tensor");
    m.def(
        "forward(Tensor x, Tensor w, Tensor? bias, Tensor? residual, float scale, int act,"
        " bool tf32, int version) -> (Tensor y, Tensor z)");
    m.def(
        "backward(Tensor grad, Tensor x, Tensor w, Tensor z, float scale, int act, bool needs_x,"
        " bool needs_w, bool needs_bias, bool tf32, int version) -> (Tensor dx, Tensor dw, Tensor "
        "dbias)");
    m.def("multiply_into(Tensor(a!) y, Tensor x, Tensor w, bool adds, int version) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("infer", TORCH_BOX(&infer));
    m.impl("forward", TORCH_BOX(&forward));
    m.impl("backward", TORCH_BOX(&backward));
    m.impl("multiply_into", TORCH_BOX(&multiply_into));
}
