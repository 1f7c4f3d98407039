// Binding of rope: schema, checks, allocation, launch.
#include "rope.h"

#include "heads_binding.h"

constexpr int64_t kVersions = 2;  // as many as VERSIONS of rope.py has

void check_heads(int64_t heads, int64_t kv_heads) {
    constexpr int64_t most = 1 << 20;
    if (heads < 1 || heads > most) {
        fail("heads is ", heads, "; wanted is an int from 1 to ", most);
    }
    if (kv_heads < 1 || kv_heads > most) {
        fail("kv_heads is ", kv_heads, "; wanted is an int from 1 to ", most);
    }
}

// What is counted: t, beside the tables cos [..., tokens, pairs] or, for all batches, [tokens,
// pairs], perhaps with leading sizes of 1. The last `own` sizes of t, tokens among them, are those
// of one batch.
struct Counts {
    int64_t batch = 1, tokens = 1, heads, kv_heads, pairs, table_batch = 1;
    Shape leading;  // the batches
    bool has_tokens;

    Counts(const Tensor& t, int64_t own, const Tensor& cos, int64_t heads, int64_t kv_heads)
        : heads(heads), kv_heads(kv_heads), pairs(cos.size(-1)), has_tokens(cos.dim() > 1) {
        const int64_t batches_of_t = t.dim() - own, batches_of_cos = cos.dim() - 2;
        int64_t tables = 1;
        for (int64_t i = 0; i < batches_of_cos; ++i) tables *= cos.size(i);
        const bool is_for_all = has_tokens && tables == 1 && batches_of_t >= batches_of_cos;
        const Tensor& batches = is_for_all ? t : cos;
        const int64_t count = is_for_all ? batches_of_t : batches_of_cos;
        for (int64_t i = 0; i < count; ++i) leading.push_back(batches.size(i));
        for (int64_t size : leading) batch *= size;
        if (has_tokens) tokens = cos.size(-2);
        if (!is_for_all) table_batch = batch;
    }

    Shape of_qkv() const {
        Shape shape = leading;
        if (has_tokens) shape.push_back(tokens);
        shape.push_back((heads + 2 * kv_heads) * 2 * pairs);
        return shape;
    }

    Shape of_heads(int64_t count) const {
        Shape shape = leading;
        shape.push_back(count);
        if (has_tokens) shape.push_back(tokens);
        shape.push_back(2 * pairs);
        return shape;
    }

    // A new tensor with this many heads, in which the heads of a token are contiguous.
    Tensor new_of_heads(const Tensor& qkv, int64_t count) const {
        const Shape shape = of_heads(count);
        Shape order;
        for (size_t i = 0; i < shape.size(); ++i) order.push_back(i);
        if (has_tokens) std::swap(order[leading.size()], order[leading.size() + 1]);
        return new_permuted(qkv, shape, order);
    }

    Strides strides(Tensor& t) const {
        Strides strides = strides_of(t);
        if (!has_tokens) strides.head = strides.row;  // t is [heads, cols]
        return strides;
    }

    // Packs what needs it of q, k and v, or of their gradients. v may be null.
    Rope call(Tensor& q, Tensor& k, Tensor* v, bool interleaved) const {
        Rope call = {batch, tokens, int(heads), int(kv_heads), pairs, table_batch, interleaved};
        call.q = strides(q), call.k = strides(k);
        if (v) call.v = strides(*v);
        return call;
    }
};

void check_tables(const Tensor& cos, const Tensor& sin) {
    check_first(cos, "cos");
    check_rank(cos, "cos");
    check_like(sin, "sin", cos, "cos");
    check_same_shape(sin, "sin", cos, "cos");
}

// Tables for rotate_half(x) * sin have each angle twice, and so a column for each of a head.
void check_width(const Tensor& qkv, const Tensor& cos, const Counts& counts) {
    const Shape wanted = counts.of_qkv();
    if (!has_shape(qkv, wanted) && qkv.dim() && 2 * qkv.size(-1) == wanted.back()) {
        fail("qkv has shape ", shape_name(qkv), ", but cos has shape ", shape_name(cos),
             "; wanted is ", shape_name(wanted), ", or tables with a column for each pair: of ",
             "those with each angle twice give cos[..., :", counts.pairs / 2, "]");
    }
    check_shape(qkv, "qkv", cos, "cos", wanted);
}

// By qkv [..., tokens, width].
Counts counted(const Tensor& qkv, const Tensor& cos, int64_t heads, int64_t kv_heads) {
    check_like(qkv, "qkv", cos, "cos");
    check_heads(heads, kv_heads);
    const Counts counts(qkv, 2, cos, heads, kv_heads);
    check_width(qkv, cos, counts);
    return counts;
}

// By the gradient of q, [..., heads, tokens, 2 * pairs].
Counts counted_by_q(const Tensor& dq, const Tensor& cos, int64_t heads, int64_t kv_heads) {
    check_like(dq, "dq", cos, "cos");
    check_heads(heads, kv_heads);
    const Counts counts(dq, 3, cos, heads, kv_heads);
    check_shape(dq, "dq", cos, "cos", counts.of_heads(heads));
    return counts;
}

std::tuple<Tensor, Tensor, Tensor> forward(Tensor qkv, Tensor cos, Tensor sin, int64_t heads,
                                           int64_t kv_heads, bool interleaved, int64_t version) {
    check_tables(cos, sin);
    const Counts n = counted(qkv, cos, heads, kv_heads);
    check_version(version, kVersions);
    OnDeviceOf device(cos);
    qkv = packed(qkv);
    cos = packed(cos);
    sin = packed(sin);
    Tensor q = n.new_of_heads(qkv, heads);
    Tensor k = n.new_of_heads(qkv, kv_heads), v = n.new_of_heads(qkv, kv_heads);
    const Rope call = n.call(q, k, &v, interleaved);
    for_type_of(qkv, [&](auto zero) {
        using T = decltype(zero);
        check_launch(rope_forward<T>(call, in<T>(qkv), out<T>(q), out<T>(k), out<T>(v), in<T>(cos),
                                     in<T>(sin), version, device.stream));
    });
    return {q, k, v};
}

Tensor backward(Tensor dq, Tensor dk, Tensor dv, Tensor cos, Tensor sin, int64_t heads,
                int64_t kv_heads, bool interleaved, int64_t version) {
    check_tables(cos, sin);
    const Counts n = counted_by_q(dq, cos, heads, kv_heads);
    check_like(dk, "dk", cos, "cos");
    check_shape(dk, "dk", cos, "cos", n.of_heads(kv_heads));
    check_like(dv, "dv", cos, "cos");
    check_shape(dv, "dv", cos, "cos", n.of_heads(kv_heads));
    check_version(version, kVersions);
    OnDeviceOf device(cos);
    const Rope call = n.call(dq, dk, &dv, interleaved);
    cos = packed(cos);
    sin = packed(sin);
    Tensor dqkv = new_of_shape(dq, n.of_qkv());
    for_type_of(dq, [&](auto zero) {
        using T = decltype(zero);
        check_launch(rope_backward<T>(call, in<T>(dq), in<T>(dk), in<T>(dv), out<T>(dqkv),
                                      in<T>(cos), in<T>(sin), version, device.stream));
    });
    return dqkv;
}

// The gradients of cos and sin; `cos` says what shape they have.
std::tuple<Tensor, Tensor> table_gradients(Tensor dq, Tensor dk, Tensor qkv, Tensor cos,
                                           int64_t heads, int64_t kv_heads, bool interleaved) {
    check_first(cos, "cos");
    check_rank(cos, "cos");
    const Counts n = counted(qkv, cos, heads, kv_heads);
    check_like(dq, "dq", cos, "cos");
    check_shape(dq, "dq", cos, "cos", n.of_heads(heads));
    check_like(dk, "dk", cos, "cos");
    check_shape(dk, "dk", cos, "cos", n.of_heads(kv_heads));
    OnDeviceOf device(cos);
    const Rope call = n.call(dq, dk, nullptr, interleaved);
    qkv = packed(qkv);
    Tensor dcos = new_like(cos), dsin = new_like(cos);
    for_type_of(cos, [&](auto zero) {
        using T = decltype(zero);
        check_launch(rope_table_gradients<T>(
            call, in<T>(dq), in<T>(dk), in<T>(qkv), out<T>(dcos), out<T>(dsin), device.stream));
    });
    return {dcos, dsin};
}

STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
    m.def(
        "forward(Tensor qkv, Tensor cos, Tensor sin, int heads, int kv_heads, bool interleaved,"
        " int version) -> (Tensor q, Tensor k, Tensor v)");
    m.def(
        "backward(Tensor dq, Tensor dk, Tensor dv, Tensor cos, Tensor sin, int heads,"
        " int kv_heads, bool interleaved, int version) -> Tensor dqkv");
    m.def(
        "table_gradients(Tensor dq, Tensor dk, Tensor qkv, Tensor cos, int heads, int kv_heads,"
        " bool interleaved) -> (Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("forward", TORCH_BOX(&forward));
    m.impl("backward", TORCH_BOX(&backward));
    m.impl("table_gradients", TORCH_BOX(&table_gradients));
}
