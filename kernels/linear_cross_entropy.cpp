// Binding of linear_cross_entropy: schema, checks, allocation, launches, chunk by chunk.
#include <utility>
#include <vector>

#include "calls.h"
#include "cross_entropy_checks.h"

constexpr int64_t kVersions = 3;  // as many as VERSIONS of linear_cross_entropy.py has

template <class T>
cudaError_t linear_cross_entropy_take(
    const T* logits, const int64_t* target, Acc<T>* max, Acc<T>* sum, Acc<T>* below, Acc<T>* hit,
    int64_t rows, int64_t width, int64_t first, bool smooths, cudaStream_t stream);
template <class T>
cudaError_t linear_cross_entropy_losses(Acc<T>* max, Acc<T>* sum, Acc<T>* below, Acc<T>* hit,
                                        const int64_t* target, T* loss, Acc<T>* partial,
                                        int64_t rows, int64_t classes, int64_t ignore_index,
                                        double smoothing, cudaStream_t stream);
template <class T>
cudaError_t linear_cross_entropy_reduce(const Acc<T>* partial, T* loss, Acc<T>* weight,
                                        int64_t rows, bool mean, cudaStream_t stream);
template <class T>
cudaError_t linear_cross_entropy_count(const int64_t* target, Acc<T>* partial, int64_t rows,
                                       int64_t ignore_index, cudaStream_t stream);
template <class T>
cudaError_t linear_cross_entropy_gradient(
    const T* g, T* logits, const int64_t* target, const Acc<T>* max, const Acc<T>* sum,
    const Acc<T>* weight, int64_t rows, int64_t width, int64_t first, int64_t classes,
    int64_t reduction, int64_t ignore_index, double smoothing, cudaStream_t stream);
template <class T>
cudaError_t linear_cross_entropy_add(T* dx, Acc<T>* sums, int64_t elements, bool is_first,
                                     bool is_last, cudaStream_t stream);
template <class T>
cudaError_t linear_cross_entropy_scale(T* t, const T* g, int64_t elements, cudaStream_t stream);

// ---- chunks

enum Version : int64_t { kWhole, kChunks, kRows };  // as in linear_cross_entropy.py

// `width` classes, or rows, from `first` on. A chunk has at most `most` of the `count` that there
// are, and if it has more than `multiple`, a multiple of that. Of none there is one chunk, of none.
struct Chunk {
    int64_t count, most, multiple, first = 0, width = 0;

    Chunk(int64_t count, int64_t most, int64_t multiple = 1)
        : count(count), most(most), multiple(multiple) {
        find_width();
    }
    bool is_first() const { return first == 0; }
    bool is_last() const { return first + width == count; }
    bool is_all() const { return width == count; }
    // Goes on to the next one; false after the last.
    bool next() {
        first += width;
        find_width();
        return width > 0;
    }
    // Its rows of a matrix or elements of a vector, without a copy.
    Tensor of(Tensor t) const { return torch::stable::narrow(t, 0, first, width); }

  private:
    void find_width() {
        width = count - first;
        if (width > most) width = most;
        if (width > multiple) width -= width % multiple;
    }
};

// A part of n, rounded up to a multiple.
int64_t part_of(int64_t n, int64_t parts, int64_t multiple, int64_t least) {
    const int64_t part = ((n + parts - 1) / parts + multiple - 1) / multiple * multiple;
    return part > least ? part : least;
}

// But for those left over from a multiple of 8, which have a chunk of their own, a row's logits
// begin on multiples of 16 bytes: matmul's kernels for tensor cores ask for that.
Chunk chunks_of_classes(int64_t classes, int64_t version) {
    if (version == kWhole) return Chunk(classes, classes);
    return Chunk(classes, version == kChunks ? part_of(classes, 16, 8, 128) : classes, 8);
}

// For each of them dw is read and written: with fewer rows that would take longer than a product.
Chunk chunks_of_rows(int64_t rows) { return Chunk(rows, part_of(rows, 8, 128, 512)); }

// ---- products, by the kernels of matmul: linear_cross_entropy.py has defined these ops

// x w^T + bias
Tensor product(const Tensor& x, const Tensor& w, const std::optional<Tensor>& bias) {
    return call<1>("linear_cross_entropy::product", x, w, bias)[0];
}

// y = x w^T, or if `adds` y += x w^T.
void multiply_into(const Tensor& y, const Tensor& x, const Tensor& w, bool adds) {
    call<0>("linear_cross_entropy::multiply_into", y, x, w, adds);
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
    bool adds() const { return reduction != kNone; }
    Chunk in_chunks() const { return chunks_of_classes(classes(), version); }
    Tensor logits(const Chunk& chunk) const {
        const auto of_bias = bias ? std::optional<Tensor>(chunk.of(*bias)) : std::nullopt;
        return product(x, chunk.of(w), of_bias);
    }
    // With x as one matrix; and then some of its rows alone.
    Problem flat() const {
        Problem p = *this;
        p.x = torch::stable::view(packed(x), {rows(), x.size(-1)});
        p.target = torch::stable::view(target, {rows()});
        return p;
    }
    Problem of(const Chunk& rows) const {
        Problem p = *this;
        p.x = rows.of(x);
        p.target = rows.of(target);
        return p;
    }
};

// What is known of the rows, in vectors: `Statistics` in linear_cross_entropy.cu, and what they
// leave for the sum of all.
struct Known {
    Tensor max, sum, below, hit, partial;

    Known(const Problem& p, const Tensor& max, const Tensor& sum)
        : max(max),
          sum(sum),
          below(new_sums(p.x, {p.rows()})),
          hit(new_sums(p.x, {p.rows()})),
          partial(new_sums(p.x, {p.adds() ? p.rows() : 0, 2})) {}
    Known of(const Chunk& rows) const {
        Known part = *this;
        for (Tensor* each : {&part.max, &part.sum, &part.below, &part.hit, &part.partial})
            if (each->numel() > 0) *each = rows.of(*each);
        return part;
    }
};

// ---- what lies between the products

template <class T>
void take(const Problem& p, const Tensor& logits, const Chunk& chunk, const Known& known,
          cudaStream_t stream) {
    using A = Acc<T>;
    check_launch(linear_cross_entropy_take<T>(
        in<T>(logits), in<int64_t>(p.target), out<A>(known.max), out<A>(known.sum),
        out<A>(known.below), out<A>(known.hit), p.rows(), chunk.width, chunk.first, p.smoothing > 0,
        stream));
}

// The loss of each row: in `loss`, or in what is known for their sum.
template <class T>
void find_losses(const Problem& p, const Known& known, const Tensor& loss, cudaStream_t stream) {
    using A = Acc<T>;
    check_launch(linear_cross_entropy_losses<T>(
        out<A>(known.max), out<A>(known.sum), out<A>(known.below), out<A>(known.hit),
        in<int64_t>(p.target), out<T>(loss), p.adds() ? out<A>(known.partial) : nullptr, p.rows(),
        p.classes(), p.ignore_index, p.smoothing, stream));
}

// weight: null, or for a mean 1 / (rows that count).
template <class T>
void reduce(const Problem& p, const Known& known, const Tensor& loss, const Tensor* weight,
            cudaStream_t stream) {
    using A = Acc<T>;
    check_launch(linear_cross_entropy_reduce<T>(
        in<A>(known.partial), out<T>(loss), weight ? out<A>(*weight) : nullptr, p.rows(),
        p.reduction == kMean, stream));
}

// Of the logits of a chunk, in their place. grad: null for 1.
template <class T>
void find_gradient(const Problem& p, const Tensor& logits, const Chunk& chunk, const Tensor& max,
                   const Tensor& sum, const Tensor& weight, const Tensor* grad,
                   cudaStream_t stream) {
    using A = Acc<T>;
    check_launch(linear_cross_entropy_gradient<T>(
        grad ? in<T>(*grad) : nullptr, out<T>(logits), in<int64_t>(p.target), in<A>(max),
        in<A>(sum), in<A>(weight), p.rows(), chunk.width, chunk.first, p.classes(), p.reduction,
        p.ignore_index, p.smoothing, stream));
}

// ---- forward

Tensor new_loss(const Problem& p) {
    return new_tensor(
        p.x, p.adds() ? IntHeaderOnlyArrayRef{} : p.target.sizes(), p.x.scalar_type());
}

// The loss; in max and sum, [rows], and in weight, if there is one, what backward needs.
Tensor run_forward(const Problem& p, const Tensor& max, const Tensor& sum, const Tensor* weight,
                   bool check) {
    const OnDeviceOf device(p.x);
    Check targets(p.target, p.classes(), p.ignore_index, check, device.stream);
    const Known known(p, max, sum);
    const Tensor loss = new_loss(p);
    for_type_of(p.x, [&](auto zero) {
        using T = decltype(zero);
        Chunk chunk = p.in_chunks();
        do {
            take<T>(p, p.logits(chunk), chunk, known, device.stream);
        } while (chunk.next());
        find_losses<T>(p, known, loss, device.stream);
        if (p.adds()) reduce<T>(p, known, loss, weight, device.stream);
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

// The sum of what the chunks give to a gradient, in float; each of them has been rounded to T.
struct SumOfChunks {
    Tensor all, sums;

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
        if (chunk.is_last()) all = part;
    }
};

// Puts what a chunk has of a tensor [count, ...] where it belongs in it.
void place(Tensor& all, const Tensor& part, const Chunk& chunk, cudaStream_t stream) {
    if (chunk.is_all()) {
        all = part;
        return;
    }
    if (chunk.is_first()) {
        Shape shape = shape_of(part);
        shape[0] = chunk.count;
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
    Chunk chunk = p.in_chunks();
    do {
        const Tensor logits = p.logits(chunk);
        for_type_of(x, [&](auto zero) {
            find_gradient<decltype(zero)>(p, logits, chunk, max, sum, weight, &grad, device.stream);
        });
        const auto [of_x, of_w, of_bias] =
            gradients(logits, x, chunk.of(w), {needs_x, needs_w, needs_bias});
        if (needs_x) dx.add(chunk, of_x, device.stream);
        if (needs_w) place(dw, of_w, chunk, device.stream);
        if (needs_bias) place(db, of_bias, chunk, device.stream);
    } while (chunk.next());
    return {dx.all, dw, db};
}

// ---- both directions at once

Tensor transposed(const Tensor& t) { return torch::stable::transpose(t, 0, 1); }

// The results of forward, and then the gradients of x, w and bias for an arriving 1; those that are
// not wanted are [0]. For each chunk of the rows all logits are in memory at once, so that they
// need not be computed again.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> forward_backward(
    Tensor x, Tensor w, Tensor target, std::optional<Tensor> bias, int64_t reduction,
    int64_t ignore_index, double label_smoothing, bool check, bool needs_x, bool needs_w,
    bool needs_bias) {
    Problem given = {x, w, target, bias, reduction, ignore_index, label_smoothing, kRows};
    given.check();
    if (reduction == kNone) {
        fail(
            "reduction is 0 (none); wanted is 1 (mean) or 2 (sum), of whose gradient one number "
            "arrives");
    }
    const OnDeviceOf device(x);
    Check targets(given.target, given.classes(), ignore_index, check, device.stream);
    const Problem p = given.flat();
    const Tensor max = new_sums(x, {p.rows()}), sum = new_sums(x, {p.rows()});
    const Tensor weight = new_sums(x, {weights(reduction)}), loss = new_loss(p);
    const Tensor dx = new_of_shape(x, needs_x ? shape_of(p.x) : Shape{0});
    const Tensor dw = new_of_shape(x, needs_w ? shape_of(w) : Shape{0});
    const Known known(p, max, sum);
    SumOfChunks db = {new_of_shape(x, {0})};
    for_type_of(x, [&](auto zero) {
        using T = decltype(zero);
        if (reduction == kMean) {
            check_launch(linear_cross_entropy_count<T>(
                in<int64_t>(p.target), out<Acc<T>>(known.partial), p.rows(), ignore_index,
                device.stream));
            reduce<T>(p, known, loss, &weight, device.stream);
        }
        Chunk rows = chunks_of_rows(p.rows());
        do {
            const Problem part = p.of(rows);
            const Known here = known.of(rows);
            std::vector<std::pair<Chunk, Tensor>> logits;
            Chunk classes = p.in_chunks();
            do {
                logits.emplace_back(classes, part.logits(classes));
                take<T>(part, logits.back().second, classes, here, device.stream);
            } while (classes.next());
            find_losses<T>(part, here, loss, device.stream);
            Tensor db_of_rows;
            for (const auto& [chunk, g] : logits) {
                find_gradient<T>(
                    part, g, chunk, here.max, here.sum, weight, nullptr, device.stream);
                if (needs_x) {
                    multiply_into(rows.of(dx), g, transposed(chunk.of(w)), !chunk.is_first());
                }
                if (needs_w) {
                    multiply_into(
                        chunk.of(dw), transposed(g), transposed(part.x), !rows.is_first());
                }
                if (needs_bias) {
                    const Tensor sums = gradients(g, part.x, chunk.of(w), {false, false, true})[2];
                    place(db_of_rows, sums, chunk, device.stream);
                }
            }
            if (needs_bias) db.add(rows, db_of_rows, device.stream);
        } while (rows.next());
        reduce<T>(p, known, loss, nullptr, device.stream);
    });
    if (targets.failed()) report(p.target, p.classes(), ignore_index);
    const auto as_target = [&](const Tensor& t) { return torch::stable::view(t, target.sizes()); };
    return {loss,
            as_target(max),
            as_target(sum),
            weight,
            needs_x ? torch::stable::view(dx, x.sizes()) : dx,
            dw,
            db.all};
}

// A gradient of forward_backward, for the gradient that has arrived.
void scale_(Tensor t, Tensor grad) {
    check_given(t, "t");
    check_like(grad, "grad", t, "t");
    if (grad.dim() != 0) fail("grad has shape ", shape_name(grad), "; wanted is ()");
    if (!t.is_contiguous()) fail("t is not contiguous; wanted is a gradient of forward_backward");
    const OnDeviceOf device(t);
    for_type_of(t, [&](auto zero) {
        using T = decltype(zero);
        check_launch(
            linear_cross_entropy_scale<T>(out<T>(t), in<T>(grad), t.numel(), device.stream));
    });
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
    m.def(
        "forward_backward(Tensor x, Tensor w, Tensor target, Tensor? bias, int reduction,"
        " int ignore_index, float label_smoothing, bool check, bool needs_x, bool needs_w,"
        " bool needs_bias)"
        " -> (Tensor loss, Tensor max, Tensor sum, Tensor weight, Tensor dx, Tensor dw, Tensor "
        "db)");
    m.def("scale_(Tensor(a!) t, Tensor grad) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("infer", TORCH_BOX(&infer));
    m.impl("forward", TORCH_BOX(&forward));
    m.impl("backward", TORCH_BOX(&backward));
    m.impl("forward_backward", TORCH_BOX(&forward_backward));
    m.impl("scale_", TORCH_BOX(&scale_));
}
