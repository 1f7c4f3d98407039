// Binding of attention: schema, checks, allocation, launch.
#include <algorithm>

#include "attention_binding.h"
#include "heads_binding.h"

// ---- checks

// k or v beside q.
void check_keys(const Tensor& t, const char* name, const Tensor& q) {
    check_like(t, name, q, "q");
    bool fits = t.dim() >= 2 && t.dim() <= (q.dim() > 2 ? q.dim() : 2);
    fits = fits && from_end(t, 1) == from_end(q, 1);
    fits = fits && (t.dim() < 3 || divides(from_end(t, 3), from_end(q, 3)));
    for (int64_t n = 4; fits && n <= t.dim(); ++n) fits = from_end(t, n) == from_end(q, n);
    if (fits) return;
    const std::string cols = text(q.size(-1));
    std::string wanted = "(keys, " + cols + ")";
    if (q.dim() > 2) {
        std::string leading;
        for (int64_t i = 0; i + 3 < q.dim(); ++i) leading += text(q.size(i)) + ", ";
        wanted += " or (" + leading + "heads, keys, " + cols + ") with a number of heads that " +
                  text(from_end(q, 3)) + " is a multiple of";
    }
    fail(name, " has shape ", shape_name(t), ", but q has shape ", shape_name(q), "; wanted is ",
         wanted);
}

void check_inputs(const Tensor& q, const Tensor& k, const Tensor& v) {
    check_first(q, "q");
    check_rank(q, "q");
    check_keys(k, "k", q);
    check_keys(v, "v", q);
    check_same_shape(v, "v", k, "k");
}

// ---- tensors as the kernels take them

int64_t batches(const Tensor& t) {
    int64_t count = 1;
    for (int64_t i = 0; i + 3 < t.dim(); ++i) count *= t.size(i);
    return count;
}

// Packs what needs it.
Attention describe(Tensor& q, Tensor& k, Tensor& v, int64_t left, int64_t right, double scale) {
    Attention a = {};
    a.batches = batches(q), a.heads = from_end(q, 3), a.rows = from_end(q, 2);
    a.kv_batches = batches(k), a.kv_heads = from_end(k, 3), a.keys = from_end(k, 2);
    a.cols = q.size(-1);
    a.left = a.limit(left), a.right = a.limit(right);
    a.scale = scale;
    a.q = strides_of(q), a.k = strides_of(k), a.v = strides_of(v);
    return a;
}

// One of t's shape and type, whose dimensions lie in the order of t's strides, the last innermost;
// empty_lying_as of attention.py says the same.
Tensor new_lying_as(const Tensor& t) {
    if (t.dim() > 4) return new_like(t);  // its batches need one stride
    Shape order, large;
    for (int64_t i = 0; i < t.dim(); ++i) {
        order.push_back(i);
        if (i + 1 < t.dim() && t.size(i) > 1) large.push_back(i);  // others may have any stride
    }
    Shape sorted = large;
    std::stable_sort(sorted.begin(), sorted.end(),
                     [&](int64_t i, int64_t j) { return t.stride(i) > t.stride(j); });
    for (size_t i = 0; i < large.size(); ++i) order[large[i]] = sorted[i];
    return new_permuted(t, shape_of(t), order);
}

// ---- ops

Tensor run_forward(Tensor q, Tensor k, Tensor v, const Tensor* stats, int64_t left, int64_t right,
                   double scale, int64_t version) {
    OnDeviceOf device(q);
    Tensor y = new_lying_as(q);
    Attention a = describe(q, k, v, left, right, scale);
    a.y = strides_of(y);
    launch_forward(a, q, k, v, y, stats, version, device.stream);
    return y;
}

// y alone, for where no gradient is wanted.
Tensor infer(Tensor q, Tensor k, Tensor v, int64_t left, int64_t right, double scale,
             int64_t version) {
    check_inputs(q, k, v);
    check_options(left, right, version);
    return run_forward(q, k, v, nullptr, left, right, scale, version);
}

// Returns y and, for backward, stats [..., 2] for q [..., cols].
std::tuple<Tensor, Tensor> forward(Tensor q, Tensor k, Tensor v, int64_t left, int64_t right,
                                   double scale, int64_t version) {
    check_inputs(q, k, v);
    check_options(left, right, version);
    const std::vector<int64_t> shape = stats_shape(q);
    const Tensor stats = new_sums(q, {shape.data(), shape.size()});
    return {run_forward(q, k, v, &stats, left, right, scale, version), stats};
}

std::tuple<Tensor, Tensor, Tensor> backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor y,
                                            Tensor stats, int64_t left, int64_t right, double scale,
                                            int64_t version) {
    check_inputs(q, k, v);
    check_outputs(grad, y, stats, q);
    check_options(left, right, version);
    OnDeviceOf device(q);
    stats = packed(stats);
    Tensor dq = new_lying_as(q), dk = new_lying_as(k), dv = new_lying_as(v);
    Attention a = describe(q, k, v, left, right, scale);
    a.y = strides_of(y), a.g = strides_of(grad);
    a.dq = strides_of(dq), a.dk = strides_of(dk), a.dv = strides_of(dv);
    launch_backward(a, grad, q, k, v, y, stats, dq, dk, dv, version, device.stream);
    return {dq, dk, dv};
}

STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
    m.def(
        "infer(Tensor q, Tensor k, Tensor v, int left, int right, float scale, int version)"
        " -> Tensor");
    m.def(
        "forward(Tensor q, Tensor k, Tensor v, int left, int right, float scale, int version)"
        " -> (Tensor y, Tensor stats)");
    m.def(
        "backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor y, Tensor stats, int left,"
        " int right, float scale, int version) -> (Tensor, Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("infer", TORCH_BOX(&infer));
    m.impl("forward", TORCH_BOX(&forward));
    m.impl("backward", TORCH_BOX(&backward));
}
