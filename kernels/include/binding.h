// What every binding needs: checks that speak to the person at the keyboard, the stream, the types.
#pragma once

// A binding does no arithmetic. Where the CPU converts halves, torch would include all of the CPU's
// intrinsics for that, 60,000 lines.
#undef __F16C__

#include <cuda_runtime.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <cctype>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "types.h"

using torch::headeronly::IntHeaderOnlyArrayRef;
using torch::headeronly::ScalarType;
using torch::stable::Tensor;
using Shape = std::vector<int64_t>;  // of a tensor that is wanted, or to be made

// ---- messages, put together without streams, which are slow to compile

inline std::string text(const std::string& part) { return part; }
inline std::string text(int64_t part) { return std::to_string(part); }

// Raises RuntimeError in Python, with the parts joined to one message.
template <class... Parts>
[[noreturn]] void fail(const Parts&... parts) {
    throw std::runtime_error((text(parts) + ...));
}

// ---- names, as Python writes them

inline std::string shape_name(const Shape& shape) {
    std::string name;
    for (size_t i = 0; i < shape.size(); ++i) name += (i ? ", " : "") + text(shape[i]);
    return "(" + name + (shape.size() == 1 ? ",)" : ")");
}

inline Shape shape_of(const Tensor& t) { return Shape(t.sizes().begin(), t.sizes().end()); }

inline std::string shape_name(const Tensor& t) { return shape_name(shape_of(t)); }

inline std::string dtype_name(ScalarType type) {
    switch (type) {
        case ScalarType::Double:
            return "float64";
        case ScalarType::Float:
            return "float32";
        case ScalarType::Half:
            return "float16";
        case ScalarType::BFloat16:
            return "bfloat16";
        case ScalarType::Long:
            return "int64";
        case ScalarType::Int:
            return "int32";
        case ScalarType::Short:
            return "int16";
        case ScalarType::Char:
            return "int8";
        case ScalarType::Byte:
            return "uint8";
        case ScalarType::ComplexFloat:
            return "complex64";
        case ScalarType::ComplexDouble:
            return "complex128";
        case ScalarType::Bool:
            return "bool";
        default: {
            std::string name = torch::headeronly::toString(type);
            for (char& letter : name) letter = char(std::tolower(letter));
            return name;
        }
    }
}

// The type of any tensor. t.scalar_type() refuses what the stable headers do not convert, such as
// quantized types, before a check could say what is wrong.
inline ScalarType type_of(const Tensor& t) {
    int32_t type = 0;
    aoti_torch_get_dtype(t.get(), &type);
    return ScalarType(type);
}

inline std::string device_name(const Tensor& t) {
    if (t.is_cpu()) return "cpu";
    return (t.is_cuda() ? "cuda:" : "device ") + std::to_string(t.get_device_index());
}

// ---- checks: each names the argument, what it is and what is wanted

inline void check_given(const Tensor& t, const char* name) {
    if (!t.defined()) fail(name, " is None; wanted is a tensor");
    int32_t layout = aoti_torch_layout_strided();
    aoti_torch_get_layout(t.get(), &layout);
    if (layout != aoti_torch_layout_strided()) fail(name, " is sparse; wanted is a dense tensor");
}

// A dense tensor where the kernels of this build run.
inline void check_here(const Tensor& t, const char* name) {
    check_given(t, name);
    if (PLAYGROUND_CUDA ? !t.is_cuda() : !t.is_cpu()) {
        fail(name, " is on ", device_name(t), "; this kernel is built for ",
             PLAYGROUND_CUDA ? "cuda" : "cpu", ": move it with ", name,
             PLAYGROUND_CUDA ? ".cuda()" : ".cpu()");
    }
}

// The first tensor of an op decides where and in which type the op runs.
inline void check_first(const Tensor& t, const char* name) {
    check_here(t, name);
    switch (type_of(t)) {
        case ScalarType::Double:
        case ScalarType::Float:
        case ScalarType::Half:
        case ScalarType::BFloat16:
            return;
        default:
            fail(name, " is ", dtype_name(type_of(t)),
                 "; wanted is float64, float32, float16 or bfloat16");
    }
}

inline void check_device(const Tensor& t, const char* name, const Tensor& first,
                         const char* first_name) {
    check_given(t, name);
    if (t.device() != first.device()) {
        fail(name, " is on ", device_name(t), ", but ", first_name, " is on ", device_name(first),
             "; wanted is one device for all");
    }
}

// A tensor of integers beside the first one.
inline void check_integers(const Tensor& t, const char* name, const Tensor& first,
                           const char* first_name, bool may_be_long) {
    check_device(t, name, first, first_name);
    const ScalarType type = type_of(t);
    if (type == ScalarType::Int || (may_be_long && type == ScalarType::Long)) return;
    fail(name, " is ", dtype_name(type), "; wanted is int32", may_be_long ? " or int64" : "");
}

// Every other tensor is where the first one is, in the same type unless the op says otherwise.
inline void check_like(const Tensor& t, const char* name, const Tensor& first,
                       const char* first_name) {
    check_device(t, name, first, first_name);
    if (type_of(t) != type_of(first)) {
        fail(name, " is ", dtype_name(type_of(t)), ", but ", first_name, " is ",
             dtype_name(type_of(first)), "; wanted is one type for all");
    }
}

inline bool has_shape(const Tensor& t, const Shape& shape) {
    bool same = t.dim() == int64_t(shape.size());
    for (int64_t i = 0; same && i < t.dim(); ++i) same = t.size(i) == shape[i];
    return same;
}

inline void check_same_shape(const Tensor& t, const char* name, const Tensor& first,
                             const char* first_name) {
    bool same = t.dim() == first.dim();
    for (int64_t i = 0; same && i < t.dim(); ++i) same = t.size(i) == first.size(i);
    if (!same) {
        fail(name, " has shape ", shape_name(t), ", but ", first_name, " has shape ",
             shape_name(first), "; wanted are equal shapes");
    }
}

// Any other shape that follows from the first tensor's.
inline void check_shape(const Tensor& t, const char* name, const Tensor& first,
                        const char* first_name, const Shape& wanted) {
    if (!has_shape(t, wanted)) {
        fail(name, " has shape ", shape_name(t), ", but ", first_name, " has shape ",
             shape_name(first), "; wanted is ", shape_name(wanted));
    }
}

inline void check_rank(const Tensor& t, const char* name) {
    if (t.dim() == 0) fail(name, " has no dimension; wanted is [..., cols]");
}

// Sums over rows are kept in this type.
inline ScalarType sums_type(const Tensor& t) {
    return type_of(t) == ScalarType::Double ? ScalarType::Double : ScalarType::Float;
}

// A number for each row of x [..., cols], in the type of sums.
inline void check_sums(const Tensor& t, const char* name, const Tensor& x) {
    check_given(t, name);
    bool fits = t.device() == x.device() && type_of(t) == sums_type(x);
    fits = fits && t.dim() == x.dim() - 1;
    for (int64_t i = 0; fits && i < t.dim(); ++i) fits = t.size(i) == x.size(i);
    if (!fits) {
        fail(name, " is ", dtype_name(type_of(t)), " of shape ", shape_name(t), " on ",
             device_name(t), "; wanted is ", dtype_name(sums_type(x)),
             " with an element for each row of x, which has shape ", shape_name(x), " on ",
             device_name(x));
    }
}

// A vector with an element for each of x's columns.
inline void check_per_column(const Tensor& t, const char* name, const Tensor& x) {
    if (t.dim() != 1 || t.size(0) != x.size(-1)) {
        fail(name, " has shape ", shape_name(t), ", but x has shape ", shape_name(x),
             "; wanted is (", x.size(-1), ",), an element for each column of x");
    }
}

// A buffer to which backward adds the gradient of a vector over x's columns, in the type of sums.
inline void check_buffer(const Tensor& t, const char* name, const Tensor& x) {
    check_device(t, name, x, "x");
    if (type_of(t) != sums_type(x)) {
        fail(name, " is ", dtype_name(type_of(t)), ", but x is ", dtype_name(type_of(x)),
             "; wanted is ", dtype_name(sums_type(x)), ", in which its gradients are added up");
    }
    check_per_column(t, name, x);
    if (!t.is_contiguous()) fail(name, " is not contiguous; wanted is a buffer that is");
}

// Which of an op's kernels runs, counted from the naive one.
inline void check_version(int64_t version, int64_t count) {
    if (version < 0 || version >= count) {
        fail("version is ", version, "; wanted is an int from 0 to ", count - 1);
    }
}

// ---- from tensors to the launcher's arguments

// All dimensions of t but the last.
inline IntHeaderOnlyArrayRef but_last(const Tensor& t) {
    return {t.sizes().data(), size_t(t.dim() - 1)};
}

// t [..., cols] seen as [rows, cols].
struct Rows {
    int64_t rows, cols;
    explicit Rows(const Tensor& t) : rows(1), cols(t.size(-1)) {
        for (int64_t i = 0; i + 1 < t.dim(); ++i) rows *= t.size(i);
    }
    Rows(int64_t rows, int64_t cols) : rows(rows), cols(cols) {}
};

template <class T>
const T* in(const Tensor& t) {
    return static_cast<const T*>(t.const_data_ptr());
}
template <class T>
T* out(const Tensor& t) {
    return static_cast<T*>(t.mutable_data_ptr());
}
template <class T>
T* out(const Tensor* t) {
    return t ? out<T>(*t) : nullptr;
}

// What backward adds to, or writes to.
template <class T>
Into<T> into(const Tensor& t, bool adds) {
    return adds ? Into<T>{nullptr, out<Acc<T>>(t)} : Into<T>{out<T>(t)};
}

// t itself if it is contiguous, else a contiguous copy.
inline Tensor packed(const Tensor& t) {
    return t.is_contiguous() ? t : torch::stable::contiguous(t);
}

// t with its last two dimensions in turn, without a copy. PyTorch's stable way looks an op up by
// name, which takes a small call several times as long.
inline Tensor transposed(const Tensor& t) {
    Shape sizes = shape_of(t), strides(t.strides().begin(), t.strides().end());
    const size_t last = sizes.size() - 1;
    std::swap(sizes[last - 1], sizes[last]);
    std::swap(strides[last - 1], strides[last]);
    AtenTensorHandle turned;
    if (aoti_torch__reinterpret_tensor(
            t.get(), t.dim(), sizes.data(), strides.data(), 0, &turned) != TORCH_SUCCESS) {
        return torch::stable::transpose(t, -2, -1);  // which has the words for what is wrong
    }
    return Tensor(turned);
}

// An uninitialised tensor beside t. Every element of it must be written.
// PyTorch's stable way to one looks an op up by name and boxes six arguments, which takes three
// times as long as the allocation. Where the short way fails, that one has the words for it.
inline Tensor new_strided(const Tensor& t, IntHeaderOnlyArrayRef shape, const int64_t* strides,
                          ScalarType type) {
    namespace stable = torch::stable::detail;
    AtenTensorHandle made;
    int32_t device_type;
    if (aoti_torch_get_device_type(t.get(), &device_type) != TORCH_SUCCESS ||
        aoti_torch_empty_strided(
            int64_t(shape.size()), shape.data(), strides, stable::to<int32_t>(stable::from(type)),
            device_type, t.get_device_index(), &made) != TORCH_SUCCESS) {
        torch::stable::new_empty(t, shape, type);
        fail(
            "PyTorch allocated no tensor of shape ", shape_name(Shape(shape.begin(), shape.end())));
    }
    return Tensor(made);
}

// One whose dimensions lie in memory in this order, the outermost first.
inline Tensor new_permuted(const Tensor& t, const Shape& shape, const Shape& order) {
    Shape strides(shape.size());
    int64_t elements = 1;
    for (size_t i = shape.size(); i-- > 0;) {
        strides[order[i]] = elements;
        elements *= shape[order[i]] > 1 ? shape[order[i]] : 1;
    }
    return new_strided(t, {shape.data(), shape.size()}, strides.data(), t.scalar_type());
}

// A contiguous one.
inline Tensor new_tensor(const Tensor& t, IntHeaderOnlyArrayRef shape, ScalarType type) {
    constexpr size_t most = 16;  // dimensions
    int64_t strides[most];
    int64_t elements = 1;
    if (shape.size() > most) return torch::stable::new_empty(t, shape, type);
    for (size_t i = shape.size(); i-- > 0;) {
        strides[i] = elements;
        elements *= shape[i] > 1 ? shape[i] : 1;
    }
    return new_strided(t, shape, strides, type);
}

inline Tensor new_of_shape(const Tensor& t, const Shape& shape) {
    return new_tensor(t, {shape.data(), shape.size()}, t.scalar_type());
}

// One of t's shape and type.
inline Tensor new_like(const Tensor& t) { return new_tensor(t, t.sizes(), t.scalar_type()); }

// One of sums: float, double for double.
inline Tensor new_sums(const Tensor& t, IntHeaderOnlyArrayRef shape) {
    return new_tensor(t, shape, sums_type(t));
}

// Room for so many sums that launches leave for each other. For none nothing is allocated: that
// would take a tenth of the host's time of a small call.
class Scratch {
  public:
    Scratch(const Tensor& t, int64_t count) {
        if (count > 0) sums_ = new_sums(t, {count});
    }
    template <class T>
    Acc<T>* of() const {
        return sums_ ? out<Acc<T>>(*sums_) : nullptr;
    }

  private:
    std::optional<Tensor> sums_;
};

// Calls f(T()) with the C++ type of t's elements; check_first has refused every other type.
template <class F>
void for_type_of(const Tensor& t, F f) {
    switch (t.scalar_type()) {
        case ScalarType::Double:
            return f(double());
        case ScalarType::Float:
            return f(float());
        case ScalarType::Half:
            return f(Half());
        default:
            return f(BFloat16());
    }
}

#if PLAYGROUND_CUDA
// torch's own, in every build for CUDA; its header declares it only where USE_CUDA is defined.
extern "C" int32_t aoti_torch_get_current_cuda_stream(int32_t device_index, void** stream);
#endif

// While it lives, t's device is the current one; `stream` is what PyTorch works on there.
class OnDeviceOf {
  public:
#if PLAYGROUND_CUDA
    explicit OnDeviceOf(const Tensor& t) : guard_(t.get_device_index()) {
        void* current = nullptr;
        if (aoti_torch_get_current_cuda_stream(t.get_device_index(), &current) != 0) {
            fail("PyTorch gave no CUDA stream for ", device_name(t));
        }
        stream = static_cast<cudaStream_t>(current);
    }
#else
    explicit OnDeviceOf(const Tensor&) {}
#endif
    cudaStream_t stream = nullptr;

#if PLAYGROUND_CUDA
  private:
    torch::stable::accelerator::DeviceGuard guard_;
#endif
};

inline void check_launch(cudaError_t error) {
    if (error != cudaSuccess) {
        fail("kernel launch failed: ", cudaGetErrorString(error), " (", cudaGetErrorName(error),
             ")");
    }
}
