// Binding of linear_cross_entropy: schema, checks, allocation, launches, chunk by chunk.
#include <array>

#include "cross_entropy_checks.h"

constexpr int64_t kVersions = 2;  // as many as VERSIONS of linear_cross_entropy.py has

template <class T>
cudaError_t linear_cross_entropy_take(
    const T* logits, const int64_t* target, Acc<T>* max, Acc<T>* sum, Acc<T>* below, Acc<T>* hit,
    int64_t rows, int64_t width, int64_t first, bool smooths, cudaStream_t stream);
template <class T>
cudaError_t linear_cross_entropy_losses(
    Acc<T>* max, Acc<T>* sum, Acc<T>* below, Acc<T>* hit, const int64_t* target, T* loss,
    Acc<T>* partial, Acc<T>* weight, int64_t rows, int64_t classes, int64_t reduction,
    int64_t ignore_index, double smoothing, cudaStream_t stream);
template <class T>
cudaError_t linear_cross_entropy_gradient(
    const T* g, T* logits, const int64_t* target, const Acc<T>* max, const Acc<T>* sum,
    const Acc<T>* weight, int64_t rows, int64_t width, int64_t first, int64_t classes,
    int64_t reduction, int64_t ignore_index, double smoothing, cudaStream_t stream);
template <class T>
cudaError_t linear_cross_entropy_add(T* dx, Acc<T>* sums, int64_t elements, bool is_first,
                                     bool is_last, cudaStream_t stream);

// ---- the classes, in chunks

constexpr int64_t kWhole = 0;     // the version with one chunk
constexpr int64_t kChunks = 16;   // of the classes, in the other one, and one more of the rest
constexpr int64_t kMultiple = 8;  // rows of so many logits begin on multiples of 16 bytes
constexpr int64_t kLeast = 128;   // classes of a chunk: as many as a tile of the products has

// A chunk is `width` classes from `first` on. The classes that are left over from a multiple of
// kMultiple have a chunk of their own: matmul's kernels for tensor cores take the others. Of no
// classes there is one chunk, of none.
struct Chunk {
    int64_t classes, most, first = 0, width = 0;

    Chunk(int64_t classes, int64_t version) : classes(classes), most(classes) {
        if (version != kWhole) {
            most = (classes + kChunks - 1) / kChunks;
            most = (most + kMultiple - 1) / kMultiple * kMultiple;
            if (most < kLeast) most = kLeast;
        }
        find_width();
    }
    bool is_first() const { return first == 0; }
    bool is_last() const { return first + width == classes; }
    bool is_all() const { return width == classes; }
    // Goes on to the next one; false after the last.
    bool next() {
        first += width;
        find_width();
        return width > 0;
    }
    // Its rows of w or elements of bias, without a copy.
    Tensor of(Tensor t) const { return torch::stable::narrow(t, 0, first, width); }

  private:
    void find_width() {
        width = classes - first;
        if (width > most) width = most;
        if (most < classes && width > kMultiple) width -= width % kMultiple;
    }
};

// ---- products, by the kernels of matmul: linear_cross_entropy.py has defined these two ops

template <size_t results, class... Arguments>
std::array<Tensor, results> call(const char* op, const Arguments&... arguments) {
    StableIValue stack[] = {torch::stable::detail::from(arguments)...};
    static_assert(results <= sizeof...(arguments), "results take the places of arguments");
    if (torch_call_dispatcher(op, "", stack, TORCH_ABI_VERSION) != TORCH_SUCCESS) {
        fail(std::string(op), " failed, a call of matmul: call that by itself to see why");
    }
    std::array<Tensor, results> made;
    for (size_t i = 0; i < results; ++i) made[i] = torch::stable::detail::to<Tensor>(stack[i]);
    return made;
}

// x w^T + bias
Tensor product(const Tensor& x, const Tensor& w, const std::optional<Tensor>& bias) {
    return call<1>("linear_cross_entropy::product", x, w, bias)[0];
}

// The gradients of x, w and bias; [0] where one is not needed.
struct Needs {
    bool x, w, bias;
};
std::array<Tensor, 3> gradients(const Tensor& grad, const Tensor& x, const Tensor& w,
                                const Needs& needs) {
    return call<3>("linear_cross_entropy::gradients", grad, x, w, needs.x, needs.w, needs.bias);
}

// ---- what both directions check and know

struct Problem {
    Tensor x, w, target;
    std::optional<Tensor> bias;
    int64_t reduction, ignore_index;
    double smoothing;
    int64_t version;

    void check() {
        check_first(x, "x");
        check_rank(x, "x");
        check_like(w, "w", x, "x");
        if (w.dim() != 2 || w.size(1) != x.size(-1)) {
            fail("w has shape ", shape_name(w), ", but x has shape ", shape_name(x),
                 "; wanted is (classes, ", x.size(-1), ")");
        }
        check_target(target, x);
        if (bias) {
            check_like(*bias, "bias", x, "x");
            check_shape(*bias, "bias", x, "x", {classes()});
        }
        check_options(reduction, smoothing);
        check_version(version, kVersions);
        target = packed(target);
    }
    int64_t rows() const { return target.numel(); }
    int64_t classes() const { return w.size(0); }
    Tensor logits(const Chunk& chunk) const {
        const auto of_bias = bias ? std::optional<Tensor>(chunk.of(*bias)) : std::nullopt;
        return product(x, chunk.of(w), of_bias);
    }
};

// ---- forward

// The loss; in max and sum, [rows], and in weight, if there is one, what backward needs.
Tensor run_forward(const Problem& p, const Tensor& max, const Tensor& sum, const Tensor* weight,
                   bool check) {
    const OnDeviceOf device(p.x);
    Check targets(p.target, p.classes(), p.ignore_index, check, device.stream);
    const Tensor below = new_sums(p.x, {p.rows()}), hit = new_sums(p.x, {p.rows()});
    const bool adds = p.reduction != kNone;
    const Tensor loss =
        new_tensor(p.x, adds ? IntHeaderOnlyArrayRef{} : p.target.sizes(), p.x.scalar_type());
    const Tensor partial = new_sums(p.x, {adds ? p.rows() : 0, 2});
    for_type_of(p.x, [&](auto zero) {
        using T = decltype(zero);
        using A = Acc<T>;
        Chunk chunk(p.classes(), p.version);
        do {
            const Tensor logits = p.logits(chunk);
            check_launch(linear_cross_entropy_take<T>(
                in<T>(logits), in<int64_t>(p.target), out<A>(max), out<A>(sum), out<A>(below),
                out<A>(hit), p.rows(), chunk.width, chunk.first, p.smoothing > 0, device.stream));
        } while (chunk.next());
        check_launch(linear_cross_entropy_losses<T>(
            out<A>(max), out<A>(sum), out<A>(below), out<A>(hit), in<int64_t>(p.target),
            out<T>(loss), out<A>(partial), out<A>(weight), p.rows(), p.classes(), p.reduction,
            p.ignore_index, p.smoothing, device.stream));
    });
    if (targets.failed()) report(p.target, p.classes(), p.ignore_index);
    return loss;
}

// The loss alone, for where no gradient is wanted.
Tensor infer(Tensor x, Tensor w, Tensor target, std::optional<Tensor> bias, int64_t reduction,
             int64_t ignore_index, double label_smoothing, bool check, int64_t version) {
    Problem p = {x, w, target, bias, reduction, ignore_index, label_smoothing, version};
    p.check();
    return run_forward(p, new_sums(x, target.sizes()), new_sums(x, target.sizes()), nullptr, check);
}

// Besides the loss, for backward: the max and the sum of e^(logit - max) of each row, [...], and
// for a mean 1 / (rows that count), [1], else [0].
std::tuple<Tensor, Tensor, Tensor, Tensor> forward(
    Tensor x, Tensor w, Tensor target, std::optional<Tensor> bias, int64_t reduction,
    int64_t ignore_index, double label_smoothing, bool check, int64_t version) {
    Problem p = {x, w, target, bias, reduction, ignore_index, label_smoothing, version};
    p.check();
    const Tensor max = new_sums(x, target.sizes()), sum = new_sums(x, target.sizes());
    const Tensor weight = new_sums(x, {weights(reduction)});
    return {run_forward(p, max, sum, &weight, check), max, sum, weight};
}

// ---- backward

// The sum of what the chunks give to dx, in float; each of them is a product, and so rounded to T.
struct SumOfChunks {
    Tensor dx, sums;

    void add(const Chunk& chunk, const Tensor& part, cudaStream_t stream) {
        if (chunk.is_first() && !chunk.is_last()) sums = new_sums(part, part.sizes());
        if (!chunk.is_all()) {
            for_type_of(part, [&](auto zero) {
                using T = decltype(zero);
                check_launch(linear_cross_entropy_add<T>(
                    out<T>(part), out<Acc<T>>(sums), part.numel(), chunk.is_first(),
                    chunk.is_last(), stream));
            });
        }
        if (chunk.is_last()) dx = part;
    }
};

// Puts what a chunk has of a tensor [classes, ...] where it belongs in it.
void place(Tensor& all, const Tensor& part, const Chunk& chunk, cudaStream_t stream) {
    if (chunk.is_all()) {
        all = part;
        return;
    }
    if (chunk.is_first()) {
        Shape shape = shape_of(part);
        shape[0] = chunk.classes;
        all = new_of_shape(part, shape);
    }
    const size_t bytes = part.numel() * part.element_size();
    char* to = out<char>(all) + bytes / chunk.width * chunk.first;
    check_launch(
        cudaMemcpyAsync(to, part.const_data_ptr(), bytes, cudaMemcpyDeviceToDevice, stream));
}

// dx, dw and db; those that are not wanted are [0].
std::tuple<Tensor, Tensor, Tensor> backward(
    Tensor grad, Tensor x, Tensor w, Tensor target, std::optional<Tensor> bias, Tensor max,
    Tensor sum, Tensor weight, int64_t reduction, int64_t ignore_index, double label_smoothing,
    bool needs_x, bool needs_w, bool needs_bias, int64_t version) {
    Problem p = {x, w, target, bias, reduction, ignore_index, label_smoothing, version};
    p.check();
    check_like(grad, "grad", x, "x");
    if (reduction == kNone) check_same_shape(grad, "grad", target, "target");
    if (reduction != kNone && grad.dim() != 0) {
        fail("grad has shape ", shape_name(grad), "; wanted is (), as the loss has");
    }
    check_sums(max, "max", x);
    check_sums(sum, "sum", x);
    check_weight(weight, x, reduction);
    const OnDeviceOf device(x);
    grad = packed(grad);
    max = packed(max);
    sum = packed(sum);
    SumOfChunks dx = {new_of_shape(x, {0})};
    Tensor dw = new_of_shape(x, {0}), db = new_of_shape(x, {0});
    Chunk chunk(p.classes(), version);
    do {
        const Tensor logits = p.logits(chunk);
        for_type_of(x, [&](auto zero) {
            using T = decltype(zero);
            using A = Acc<T>;
            check_launch(linear_cross_entropy_gradient<T>(
                in<T>(grad), out<T>(logits), in<int64_t>(p.target), in<A>(max), in<A>(sum),
                in<A>(weight), p.rows(), chunk.width, chunk.first, p.classes(), reduction,
                ignore_index, label_smoothing, device.stream));
        });
        const auto [of_x, of_w, of_bias] =
            gradients(logits, x, chunk.of(w), {needs_x, needs_w, needs_bias});
        if (needs_x) dx.add(chunk, of_x, device.stream);
        if (needs_w) place(dw, of_w, chunk, device.stream);
        if (needs_bias) place(db, of_bias, chunk, device.stream);
    } while (chunk.next());
    return {dx.dx, dw, db};
}

STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
    m.def(
        "infer(Tensor x, Tensor w, Tensor target, Tensor? bias, int reduction, int ignore_index,"
        " float label_smoothing, bool check, int version) -> Tensor");
    m.def(
        "forward(Tensor x, Tensor w, Tensor target, Tensor? bias, int reduction, int ignore_index,"
        " float label_smoothing, bool check, int version)"
        " -> (Tensor loss, Tensor max, Tensor sum, Tensor weight)");
    m.def(
        "backward(Tensor grad, Tensor x, Tensor w, Tensor target, Tensor? bias, Tensor max,"
        " Tensor sum, Tensor weight, int reduction, int ignore_index, float label_smoothing,"
        " bool needs_x, bool needs_w, bool needs_bias, int version) -> (Tensor, Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("infer", TORCH_BOX(&infer));
    m.impl("forward", TORCH_BOX(&forward));
    m.impl("backward", TORCH_BOX(&backward));
}
