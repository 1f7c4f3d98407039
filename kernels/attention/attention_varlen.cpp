// Binding of attention_varlen: schema, checks, allocation, launch.
#include "attention_binding.h"

template <class T, class Index>
cudaError_t attention_set_up(const PackedAttention& a, const Index* row_begins,
                             const Index* key_begins, int32_t* checked, T* of_rows, T* of_k,
                             T* of_v, Acc<T>* stats, cudaStream_t stream);

// ---- checks

void check_tokens(const Tensor& t, const char* name) {
    if (t.dim() != 3) fail(name, " has shape ", shape_name(t), "; wanted is [tokens, heads, cols]");
    if (t.size(0) > 0x7fffffff)
        fail(name, " has ", t.size(0), " tokens; wanted are fewer than 2**31");
}

void check_begins(const Tensor& t, const char* name, const Tensor& q) {
    check_integers(t, name, q, "q", true);
    if (t.dim() != 1 || t.size(0) == 0)
        fail(name, " has shape ", shape_name(t), "; wanted is (sequences + 1,)");
}

void check_inputs(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& cu_seqlens_q,
                  const Tensor& cu_seqlens_k) {
    check_first(q, "q");
    check_tokens(q, "q");
    check_like(k, "k", q, "q");
    check_tokens(k, "k");
    if (k.size(2) != q.size(2) || !divides(k.size(1), q.size(1))) {
        fail("k has shape ", shape_name(k), ", but q has shape ", shape_name(q),
             "; wanted is (tokens, heads, ", q.size(2), ") with a number of heads that ", q.size(1),
             " is a multiple of");
    }
    check_like(v, "v", q, "q");
    check_same_shape(v, "v", k, "k");
    check_begins(cu_seqlens_q, "cu_seqlens_q", q);
    check_begins(cu_seqlens_k, "cu_seqlens_k", q);
    check_same_shape(cu_seqlens_k, "cu_seqlens_k", cu_seqlens_q, "cu_seqlens_q");
    if (type_of(cu_seqlens_k) != type_of(cu_seqlens_q)) {
        fail("cu_seqlens_k is ", dtype_name(type_of(cu_seqlens_k)), ", but cu_seqlens_q is ",
             dtype_name(type_of(cu_seqlens_q)), "; wanted is one type for both");
    }
}

void check_most(int64_t most, const char* name) {
    if (most < -1) fail(name, " is ", most, "; wanted is a number of tokens, or -1 for all");
}

// What is not a tensor. max_seqlen_q, max_seqlen_k: the most tokens of a sequence, -1 for all.
struct Options {
    int64_t max_seqlen_q, max_seqlen_k, left, right;
    double scale;
    int64_t version;
    void check() const {
        check_most(max_seqlen_q, "max_seqlen_q");
        check_most(max_seqlen_k, "max_seqlen_k");
        check_options(left, right, version);
    }
};

// ---- tensors as the kernels take them

// The strides of t [tokens, heads, cols]. Packs t if the elements of a row are not contiguous.
Strides strides_of(Tensor& t) {
    if (t.size(2) > 1 && t.stride(2) != 1) t = packed(t);
    const int64_t head = t.size(1) > 1 ? t.stride(1) : t.size(2);
    const int64_t row = t.size(0) > 1 ? t.stride(0) : t.size(1) * t.size(2);
    return {row, head, row};  // of one batch, whose stride counts for nothing
}

PackedAttention describe(Tensor& q, Tensor& k, Tensor& v, const Options& options) {
    PackedAttention a = {};
    a.batches = a.kv_batches = 1;
    a.heads = q.size(1), a.kv_heads = k.size(1), a.cols = q.size(2);
    a.tokens = q.size(0), a.kv_tokens = k.size(0);
    const auto most = [](int64_t given, int64_t tokens) {
        return given < 0 || given > tokens ? tokens : given;
    };
    a.rows = most(options.max_seqlen_q, a.tokens);
    a.keys = most(options.max_seqlen_k, a.kv_tokens);
    a.left = a.limit(options.left), a.right = a.limit(options.right);
    a.scale = options.scale;
    a.q = strides_of(q), a.k = strides_of(k), a.v = strides_of(v);
    return a;
}

// Completes `a` with begins that are checked, and a tile counter, in the memory that is
// returned; and writes what belongs to no sequence (attention_varlen.cu). Each of the last four may
// be null.
Tensor set_up(PackedAttention& a, const Tensor& q, const Tensor& cu_seqlens_q,
              const Tensor& cu_seqlens_k, const Tensor* of_rows, const Tensor* of_k,
              const Tensor* of_v, const Tensor* stats, cudaStream_t stream) {
    const Tensor rows = packed(cu_seqlens_q), keys = packed(cu_seqlens_k);
    const int64_t count = rows.size(0);
    const Tensor checked = new_tensor(q, {2 * count + 1}, ScalarType::Int);
    a.sequences = count - 1;
    int32_t* const at = out<int32_t>(checked);
    a.row_begins = at, a.key_begins = at + count, a.tile_counter = at + 2 * count;
    for_type_of(q, [&](auto zero) {
        using T = decltype(zero);
        const auto launch = [&](auto index) {
            using Index = decltype(index);
            check_launch(attention_set_up<T, Index>(
                a, in<Index>(rows), in<Index>(keys), at, out<T>(of_rows), out<T>(of_k),
                out<T>(of_v), out<Acc<T>>(stats), stream));
        };
        type_of(rows) == ScalarType::Long ? launch(int64_t()) : launch(int32_t());
    });
    return checked;
}

// ---- ops

Tensor run_forward(Tensor q, Tensor k, Tensor v, const Tensor& cu_seqlens_q,
                   const Tensor& cu_seqlens_k, const Tensor* stats, const Options& options) {
    OnDeviceOf device(q);
    Tensor y = new_like(q);
    PackedAttention a = describe(q, k, v, options);
    a.y = strides_of(y);
    const Tensor checked =
        set_up(a, q, cu_seqlens_q, cu_seqlens_k, &y, nullptr, nullptr, stats, device.stream);
    if (a.sequences) launch_forward(a, q, k, v, y, stats, options.version, device.stream);
    return y;
}

// y alone, for where no gradient is wanted.
Tensor infer(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q, Tensor cu_seqlens_k,
             int64_t max_seqlen_q, int64_t max_seqlen_k, int64_t left, int64_t right, double scale,
             int64_t version) {
    const Options options = {max_seqlen_q, max_seqlen_k, left, right, scale, version};
    check_inputs(q, k, v, cu_seqlens_q, cu_seqlens_k);
    options.check();
    return run_forward(q, k, v, cu_seqlens_q, cu_seqlens_k, nullptr, options);
}

// Returns y and, for backward, stats [tokens, heads, 2].
std::tuple<Tensor, Tensor> forward(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q,
                                   Tensor cu_seqlens_k, int64_t max_seqlen_q, int64_t max_seqlen_k,
                                   int64_t left, int64_t right, double scale, int64_t version) {
    const Options options = {max_seqlen_q, max_seqlen_k, left, right, scale, version};
    check_inputs(q, k, v, cu_seqlens_q, cu_seqlens_k);
    options.check();
    const Shape shape = stats_shape(q);
    const Tensor stats = new_sums(q, {shape.data(), shape.size()});
    return {run_forward(q, k, v, cu_seqlens_q, cu_seqlens_k, &stats, options), stats};
}

std::tuple<Tensor, Tensor, Tensor> backward(
    Tensor grad, Tensor q, Tensor k, Tensor v, Tensor y, Tensor stats, Tensor cu_seqlens_q,
    Tensor cu_seqlens_k, int64_t max_seqlen_q, int64_t max_seqlen_k, int64_t left, int64_t right,
    double scale, int64_t version) {
    const Options options = {max_seqlen_q, max_seqlen_k, left, right, scale, version};
    check_inputs(q, k, v, cu_seqlens_q, cu_seqlens_k);
    check_outputs(grad, y, stats, q);
    options.check();
    OnDeviceOf device(q);
    stats = packed(stats);
    Tensor dq = new_like(q), dk = new_like(k), dv = new_like(v);
    PackedAttention a = describe(q, k, v, options);
    a.y = strides_of(y), a.g = strides_of(grad);
    a.dq = strides_of(dq), a.dk = strides_of(dk), a.dv = strides_of(dv);
    const Tensor checked =
        set_up(a, q, cu_seqlens_q, cu_seqlens_k, &dq, &dk, &dv, nullptr, device.stream);
    if (a.sequences)
        launch_backward(a, grad, q, k, v, y, stats, dq, dk, dv, options.version, device.stream);
    return {dq, dk, dv};
}

STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
    m.def(
        "infer(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q, Tensor cu_seqlens_k,"
        " int max_seqlen_q, int max_seqlen_k, int left, int right, float scale, int version)"
        " -> Tensor");
    m.def(
        "forward(Tensor q, Tensor k, Tensor v, Tensor cu_seqlens_q, Tensor cu_seqlens_k,"
        " int max_seqlen_q, int max_seqlen_k, int left, int right, float scale, int version)"
        " -> (Tensor y, Tensor stats)");
    m.def(
        "backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor y, Tensor stats,"
        " Tensor cu_seqlens_q, Tensor cu_seqlens_k, int max_seqlen_q, int max_seqlen_k, int left,"
        " int right, float scale, int version) -> (Tensor, Tensor, Tensor)");
}

STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("infer", TORCH_BOX(&infer));
    m.impl("forward", TORCH_BOX(&forward));
    m.impl("backward", TORCH_BOX(&backward));
}
