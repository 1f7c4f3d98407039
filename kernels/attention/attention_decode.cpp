// Binding of attention_decode: schema, checks, allocation, launch.
#include "attention_decode_call.cuh"
#include "binding.h"

constexpr int64_t kVersions = 3;  // as many as VERSIONS of attention_decode.py has
constexpr int64_t kCols = 4096;   // the most: sums of a row find room in 48 KiB of shared memory

template <class T>
int64_t attention_decode_scratch(const Decode& d, const T* q, const T* k, const T* v,
                                 int64_t version);
template <class T>
cudaError_t attention_decode(const Decode& d, const T* q, const T* k, const T* v, T* y,
                             Acc<T>* parts, int64_t version, cudaStream_t stream);

// ---- checks

void check_four(const Tensor& t, const char* name, const char* wanted) {
    if (t.dim() != 4) fail(name, " has shape ", shape_name(t), "; wanted is ", wanted);
}

void check_cache(const Tensor& t, const char* name, const Tensor& q, bool in_pages) {
    check_like(t, name, q, "q");
    check_four(t, name,
               in_pages ? "[pages, page_size, kv_heads, cols], as there is a block_table"
                        : "[batch, kv_heads, tokens, cols]");
    const int64_t kv_heads = t.size(in_pages ? 2 : 1), heads = q.size(1);
    if (divides(kv_heads, heads) && t.size(3) == q.size(3) && (in_pages || t.size(0) == q.size(0)))
        return;
    const std::string first =
        in_pages ? "(pages, page_size, kv_heads, " : "(" + text(q.size(0)) + ", kv_heads, tokens, ";
    fail(name, " has shape ", shape_name(t), ", but q has shape ", shape_name(q), "; wanted is ",
         first, q.size(3), ") with a number of heads that ", heads, " is a multiple of");
}

void check_inputs(const Tensor& q, const Tensor& k, const Tensor& v,
                  const std::optional<Tensor>& lengths, const std::optional<Tensor>& table) {
    check_first(q, "q");
    check_four(q, "q", "[batch, heads, queries, cols]");
    if (q.size(3) > kCols) fail("q has head size ", q.size(3), "; wanted are at most ", kCols);
    if (q.size(0) * q.size(1) * q.size(2) > 0x7fffffff)
        fail("q has shape ", shape_name(q), "; wanted are fewer than 2**31 rows");
    check_cache(k, "k", q, table.has_value());
    check_cache(v, "v", q, table.has_value());
    check_same_shape(v, "v", k, "k");
    if (lengths) {
        check_integers(*lengths, "lengths", q, "q", true);
        if (lengths->dim() != 1 || lengths->size(0) != q.size(0)) {
            fail("lengths has shape ", shape_name(*lengths), ", but q has shape ", shape_name(q),
                 "; wanted is (", q.size(0), ",), a length for each sequence");
        }
    }
    if (table) {
        check_integers(*table, "block_table", q, "q", false);
        if (table->dim() != 2 || table->size(0) != q.size(0)) {
            fail("block_table has shape ", shape_name(*table), ", but q has shape ", shape_name(q),
                 "; wanted is (", q.size(0), ", max_pages)");
        }
    }
}

// ---- tensors as the kernels take them

// The strides of t, which has four dimensions. head, row: the dimensions of the heads and the rows.
// Packs t if the elements of a row are not contiguous.
Strides strides_of(Tensor& t, int64_t head, int64_t row) {
    if (t.size(3) > 1 && t.stride(3) != 1) t = packed(t);
    const auto of = [&](int64_t dim) { return t.size(dim) > 1 ? t.stride(dim) : 0; };
    return {of(0), of(head), of(row)};
}

Decode describe(Tensor& q, Tensor& k, Tensor& v, std::optional<Tensor>& lengths,
                std::optional<Tensor>& table, int64_t left, double scale) {
    const int64_t head = table ? 2 : 1, row = table ? 1 : 2;
    Decode d = {};
    d.batches = q.size(0), d.heads = q.size(1), d.queries = q.size(2), d.cols = q.size(3);
    d.kv_heads = k.size(head), d.tokens = k.size(row);
    if (table) {
        table = packed(*table);
        d.table = in<int32_t>(*table);
        d.pages = k.size(0), d.page_size = k.size(1), d.max_pages = table->size(1);
        d.tokens = d.page_size * d.max_pages;
    }
    if (d.tokens > 0x7fffffff) {
        fail(table ? "block_table" : "k", " has room for ", d.tokens,
             " tokens of a sequence; wanted are fewer than 2**31");
    }
    if (lengths) {
        lengths = packed(*lengths);
        d.lengths = lengths->const_data_ptr();
        d.has_long_lengths = type_of(*lengths) == ScalarType::Long;
    }
    d.left = left < 0 || left > d.tokens ? d.tokens + d.queries : left;
    d.scale = scale;
    d.q = strides_of(q, 1, 2), d.k = strides_of(k, head, row), d.v = strides_of(v, head, row);
    return d;
}

// ---- the op. left: how many tokens a query sees before its own, -1 for all.

Tensor forward(Tensor q, Tensor k, Tensor v, std::optional<Tensor> lengths,
               std::optional<Tensor> block_table, int64_t left, double scale, int64_t version) {
    check_inputs(q, k, v, lengths, block_table);
    if (left < -1) fail("left is ", left, "; wanted is a number of tokens, or -1 for all");
    check_version(version, kVersions);
    OnDeviceOf device(q);
    Tensor y = new_like(q);
    const Decode d = describe(q, k, v, lengths, block_table, left, scale);
    for_type_of(q, [&](auto zero) {
        using T = decltype(zero);
        const Scratch parts(
            q, attention_decode_scratch<T>(d, in<T>(q), in<T>(k), in<T>(v), version));
        check_launch(attention_decode<T>(
            d, in<T>(q), in<T>(k), in<T>(v), out<T>(y), parts.of<T>(), version, device.stream));
    });
    return y;
}

STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
    m.def(
        "forward(Tensor q, Tensor k, Tensor v, Tensor? lengths, Tensor? block_table, int left,"
        " float scale, int version) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("forward", TORCH_BOX(&forward));
}
