// Binding of linear_cross_entropy: schema, checks, allocation, launches, chunk by chunk.
#include <vector>

#include "linear_cross_entropy_logits_in_dw.h"

// ---- forward

// The loss; in max and sum, [rows], and in weight, if there is one, what backward needs.
Tensor run_forward(const Problem& p, const Tensor& max, const Tensor& sum, const Tensor* weight,
                   bool check) {
    const OnDeviceOf device(p.x);
    Check targets(p.target, p.classes(), p.ignore_index, check, device.stream);
    const Tensor others = room_for_others(p), loss = p.new_loss();
    for_type_of(p.x, [&](auto zero) {
        using T = decltype(zero);
        const Known<T> known(p, max, sum, others);
        if (p.has_few_rows()) {
            take_chunks<T>(p, known, whole_rows(p.classes()), device.stream);
        } else if (!take_tiles<T>(p, known, device.stream)) {
            take_chunks<T>(p, known, p.in_chunks(), device.stream);
        }
        find_losses<T>(p, known, loss, device.stream);
        if (p.adds()) reduce<T>(p, known, loss, weight, device.stream);
    });
    if (targets.failed()) report(p.target, p.classes(), p.ignore_index);
    return loss;
}

// The loss alone, for where no gradient is wanted.
Tensor infer(Tensor x, Tensor w, Tensor target, std::optional<Tensor> bias, int64_t reduction,
             int64_t ignore_index, double label_smoothing, bool check, bool float_loss,
             int64_t version) {
    Problem p = {x, w, target, bias, reduction, ignore_index, label_smoothing, version, float_loss};
    p.check();
    return run_forward(p, new_sums(x, target.sizes()), new_sums(x, target.sizes()), nullptr, check);
}

// Besides the loss, for backward: the max and the sum of e^(logit - max) of each row, [...], and
// for a mean 1 / (rows that count), [1], else [0].
std::tuple<Tensor, Tensor, Tensor, Tensor> forward(
    Tensor x, Tensor w, Tensor target, std::optional<Tensor> bias, int64_t reduction,
    int64_t ignore_index, double label_smoothing, bool check, bool float_loss, int64_t version) {
    Problem p = {x, w, target, bias, reduction, ignore_index, label_smoothing, version, float_loss};
    p.check();
    const Tensor max = new_sums(x, target.sizes()), sum = new_sums(x, target.sizes());
    const Tensor weight = new_sums(x, {weights(reduction)});
    return {run_forward(p, max, sum, &weight, check), max, sum, weight};
}

// ---- backward

// A gradient summed over chunks in float; each summand has been rounded to T.
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

// Copies a chunk of a tensor [count, ...] to its place.
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

// dx, dw and db; [0] for those that are not needed.
std::tuple<Tensor, Tensor, Tensor> backward(
    Tensor grad, Tensor x, Tensor w, Tensor target, std::optional<Tensor> bias, Tensor max,
    Tensor sum, Tensor weight, int64_t reduction, int64_t ignore_index, double label_smoothing,
    bool needs_x, bool needs_w, bool needs_bias, int64_t version) {
    Problem p = {x, w, target, bias, reduction, ignore_index, label_smoothing, version};
    p.check();
    check_grad(grad, x, target, reduction);
    check_sums(max, "max", x);
    check_sums(sum, "sum", x);
    check_weight(weight, x, reduction);
    const OnDeviceOf device(x);
    grad = packed(grad);
    max = packed(max);
    sum = packed(sum);
    SumOfChunks dx = {new_of_shape(x, {0})};
    Tensor dw = new_of_shape(x, {0}), db = new_of_shape(x, {0});
    const Matmul matmul;
    Chunk chunk = p.in_chunks();
    do {
        const Tensor logits = p.logits(matmul, chunk);
        for_type_of(x, [&](auto zero) {
            using T = decltype(zero);
            find_gradient<T>(p, logits, chunk, in<Acc<T>>(max), in<Acc<T>>(sum), weight,
                             arriving<T>(grad, x), device.stream);
        });
        const auto [of_x, of_w, of_bias] =
            matmul.gradients(logits, x, chunk.of(w), needs_x, needs_w, needs_bias);
        if (needs_x) dx.add(chunk, of_x, device.stream);
        if (needs_w) place(dw, of_w, chunk, device.stream);
        if (needs_bias) place(db, of_bias, chunk, device.stream);
    } while (chunk.next());
    return {dx.all, dw, db};
}

// ---- both directions at once

// The logits of some rows, in one or more chunks of the classes.
using Logits = std::vector<std::pair<Chunk, Tensor>>;

// Computes the losses of these rows, and replaces the logits by their gradients for an arriving 1.
template <class T>
void turn_into_gradients(const Problem& p, const Logits& logits, const Known<T>& known,
                         const Tensor& weight, const Tensor& loss, cudaStream_t stream) {
    if (logits.size() == 1) {
        check_launch(linear_cross_entropy_rows<T>(
            out<T>(logits[0].second), in<int64_t>(p.target), known.max, known.sum, known.below,
            known.hit, known.partial, in<Acc<T>>(weight), p.rows(), p.classes(), p.reduction,
            p.ignore_index, p.smoothing, stream));
        return;
    }
    for (const auto& [chunk, part] : logits) take<T>(p, part, chunk, known, stream);
    find_losses<T>(p, known, loss, stream);
    for (const auto& [chunk, part] : logits) {
        find_gradient<T>(p, part, chunk, known.max, known.sum, weight, {}, stream);
    }
}

// ---- all rows

// The results of forward, and then the gradients of x, w and bias for an arriving 1, or what
// `finish_` turns into them; [0] for those that are not needed. The logits may lie in the memory of
// dw; otherwise all logits of a chunk of rows are in memory at once, so that none are computed
// again.
std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> forward_backward(
    Tensor x, Tensor w, Tensor target, std::optional<Tensor> bias, int64_t reduction,
    int64_t ignore_index, double label_smoothing, bool check, bool float_loss, bool needs_x,
    bool needs_w, bool needs_bias) {
    Problem given = {
        x, w, target, bias, reduction, ignore_index, label_smoothing, kRows, float_loss};
    given.check_adds();
    const OnDeviceOf device(x);
    Check targets(given.target, given.classes(), ignore_index, check, device.stream);
    const Problem p = given.flat();
    const Tensor max = new_sums(x, target.sizes()), sum = new_sums(x, target.sizes());
    const Tensor weight = new_sums(x, {weights(reduction)}), loss = p.new_loss();
    const Tensor dx = new_of_shape(x, needs_x ? shape_of(p.x) : Shape{0});
    const Tensor dw = new_of_shape(x, needs_w ? shape_of(w) : Shape{0});
    const Tensor others = room_for_others(p);
    const Matmul matmul;
    SumOfChunks db = {new_of_shape(x, {0})};
    for_type_of(x, [&](auto zero) {
        using T = decltype(zero);
        const Known<T> known(p, max, sum, others);
        if (reduction == kMean) {
            check_launch(linear_cross_entropy_count<T>(
                in<int64_t>(p.target), out<Acc<T>>(weight), p.rows(), ignore_index, device.stream));
        }
        const int64_t in_dw = rows_in_dw(p, needs_w);
        if (in_dw > 0) {
            const Chunk rows(p.rows(), in_dw);
            const Problem part = p.of(rows);
            const LogitsInDw logits(dw, in_dw);
            logits.find_losses<T>(part, matmul, known, loss, device.stream);
            if (!all_wait_in_dw(p, needs_w)) {
                const Tensor dx_of_rows = needs_x ? rows.of(dx) : dx;
                logits.find_gradients<T>(part, matmul, known.max, known.sum, weight, {},
                                         needs_x ? &dx_of_rows : nullptr, true, device.stream);
            }
        }
        const int64_t most = in_dw > 0 ? most_rows_beside_dw(p) : most_rows(p.rows());
        Chunk rows = chunks_of_rows(p.rows(), most, in_dw);
        for (bool left = in_dw == 0 || rows.width > 0; left; left = rows.next()) {
            const Problem part = p.of(rows);
            const Known<T> here = known.of(rows);
            Logits logits;
            Chunk classes = whole_rows(p.classes());
            do {
                logits.emplace_back(classes, part.logits(matmul, classes));
            } while (classes.next());
            turn_into_gradients<T>(part, logits, here, weight, loss, device.stream);
            Tensor db_of_rows;
            for (const auto& [chunk, g] : logits) {
                if (needs_x) {
                    matmul.multiply_into(
                        rows.of(dx), g, transposed(chunk.of(w)), !chunk.is_first());
                }
                if (needs_w) {
                    matmul.multiply_into(
                        chunk.of(dw), transposed(g), transposed(part.x), !rows.is_first());
                }
                if (needs_bias) {
                    const Tensor sums =
                        matmul.gradients(g, part.x, chunk.of(w), false, false, true)[2];
                    place(db_of_rows, sums, chunk, device.stream);
                }
            }
            if (needs_bias) db.add(rows, db_of_rows, device.stream);
        }
        reduce<T>(p, known, loss, nullptr, device.stream);
    });
    if (targets.failed()) report(p.target, p.classes(), ignore_index);
    return {loss, max, sum, weight, needs_x ? in_shape(dx, shape_of(x)) : dx, dw, db.all};
}

// Turns the results of forward_backward into the gradients for the one that has arrived: dx [...,
// cols], dw [classes, cols] and db [classes], or [0] for one that is not needed. needs_x, needs_w:
// whether a gradient that forward_backward was asked for is still needed.
void finish_(Tensor grad, Tensor x, Tensor w, Tensor target, std::optional<Tensor> bias, Tensor max,
             Tensor sum, Tensor weight, Tensor dx, Tensor dw, Tensor db, int64_t reduction,
             int64_t ignore_index, double label_smoothing, bool needs_x, bool needs_w) {
    Problem given = {x, w, target, bias, reduction, ignore_index, label_smoothing, kRows};
    given.check_adds();
    check_grad(grad, x, target, reduction);
    check_sums(max, "max", x);
    check_sums(sum, "sum", x);
    check_weight(weight, x, reduction);
    max = packed(max);
    sum = packed(sum);
    const auto is_there = [&](const Tensor& t, const char* name, const Shape& shape) {
        check_like(t, name, x, "x");
        if (has_shape(t, {0})) return false;
        if (!has_shape(t, shape) || !t.is_contiguous()) {
            fail(name, " has shape ", shape_name(t), t.is_contiguous() ? "" : " and gaps",
                 "; wanted is what forward_backward returned");
        }
        return true;
    };
    const bool has_dx = is_there(dx, "dx", shape_of(x)), has_dw = is_there(dw, "dw", shape_of(w));
    is_there(db, "db", {w.size(0)});
    const OnDeviceOf device(x);
    for_type_of(x, [&](auto zero) {
        using T = decltype(zero);
        if (all_wait_in_dw(given, has_dw)) {
            const Problem p = given.flat();
            const Tensor dx_of_rows = has_dx ? in_shape(dx, shape_of(p.x)) : dx;
            LogitsInDw(dw, p.rows())
                .find_gradients<T>(
                    p, Matmul(), in<Acc<T>>(max), in<Acc<T>>(sum), weight, arriving<T>(grad, x),
                    has_dx && needs_x ? &dx_of_rows : nullptr, needs_w, device.stream);
            return;
        }
        const Gradients<T> gradients = {
            {out<T>(dx), out<T>(dw), out<T>(db)}, {dx.numel(), dw.numel(), db.numel()}};
        check_launch(linear_cross_entropy_scale<T>(gradients, arriving<T>(grad, x), device.stream));
    });
}

STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
    m.def(
        "infer(Tensor x, Tensor w, Tensor target, Tensor? bias, int reduction, int ignore_index,"
        " float label_smoothing, bool check, bool float_loss, int version) -> Tensor");
    m.def(
        "forward(Tensor x, Tensor w, Tensor target, Tensor? bias, int reduction, int ignore_index,"
        " float label_smoothing, bool check, bool float_loss, int version)"
        " -> (Tensor loss, Tensor max, Tensor sum, Tensor weight)");
    m.def(
        "backward(Tensor grad, Tensor x, Tensor w, Tensor target, Tensor? bias, Tensor max,"
        " Tensor sum, Tensor weight, int reduction, int ignore_index, float label_smoothing,"
        " bool needs_x, bool needs_w, bool needs_bias, int version) -> (Tensor, Tensor, Tensor)");
    m.def(
        "forward_backward(Tensor x, Tensor w, Tensor target, Tensor? bias, int reduction,"
        " int ignore_index, float label_smoothing, bool check, bool float_loss, bool needs_x,"
        " bool needs_w, bool needs_bias)"
        " -> (Tensor loss, Tensor max, Tensor sum, Tensor weight, Tensor dx, Tensor dw, Tensor "
        "db)");
    m.def(
        "finish_(Tensor grad, Tensor x, Tensor w, Tensor target, Tensor? bias, Tensor max,"
        " Tensor sum, Tensor weight, Tensor(a!) dx, Tensor(b!) dw, Tensor(c!) db, int reduction,"
        " int ignore_index, float label_smoothing, bool needs_x, bool needs_w) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("infer", TORCH_BOX(&infer));
    m.impl("forward", TORCH_BOX(&forward));
    m.impl("backward", TORCH_BOX(&backward));
    m.impl("forward_backward", TORCH_BOX(&forward_backward));
    m.impl("finish_", TORCH_BOX(&finish_));
}
