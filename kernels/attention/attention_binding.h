// What the bindings of attention share: the launchers that they call, and checks.
#pragma once

#include "attention_call.cuh"
#include "binding.h"

constexpr int64_t kVersions = 5;  // as many as VERSIONS of attention.py has

// Call: Attention or PackedAttention.
template <class T, class Call>
int64_t attention_forward_scratch(const Call& a, int64_t version);
template <class T, class Call>
cudaError_t attention_forward(const Call& a, const T* q, const T* k, const T* v, T* y,
                              Acc<T>* stats, Acc<T>* scratch, int64_t version, cudaStream_t stream);
template <class T, class Call>
int64_t attention_backward_scratch(const Call& a, const T* g, const T* q, const T* k, const T* v,
                                   const T* y, int64_t version);
template <class T, class Call>
cudaError_t attention_backward(const Call& a, const T* g, const T* q, const T* k, const T* v,
                               const T* y, const Acc<T>* stats, T* dq, T* dk, T* dv,
                               Acc<T>* scratch, int64_t version, cudaStream_t stream);

// Two numbers for each row of q, in the type of sums.
inline Shape stats_shape(const Tensor& q) {
    Shape shape = shape_of(q);
    shape.back() = 2;
    return shape;
}

inline void check_stats(const Tensor& stats, const Tensor& q) {
    check_given(stats, "stats");
    if (stats.device() != q.device() || type_of(stats) != sums_type(q) ||
        !has_shape(stats, stats_shape(q))) {
        fail("stats is ", dtype_name(type_of(stats)), " of shape ", shape_name(stats), " on ",
             device_name(stats), "; wanted is ", dtype_name(sums_type(q)),
             " with two elements for each row of q, which has shape ", shape_name(q), " on ",
             device_name(q));
    }
}

// What backward is given besides the inputs of forward.
inline void check_outputs(const Tensor& grad, const Tensor& y, const Tensor& stats,
                          const Tensor& q) {
    check_like(grad, "grad", q, "q");
    check_same_shape(grad, "grad", q, "q");
    check_like(y, "y", q, "q");
    check_same_shape(y, "y", q, "q");
    check_stats(stats, q);
}

inline void check_limit(int64_t limit, const char* name) {
    if (limit < -1) fail(name, " is ", limit, "; wanted is a number of keys, or -1 for all");
}

// left, right: how many keys a row sees on either side, -1 for all.
inline void check_options(int64_t left, int64_t right, int64_t version) {
    check_limit(left, "left");
    check_limit(right, "right");
    check_version(version, kVersions);
}

// ---- launches, of tensors that are checked, and packed where `a` says so

template <class Call>
void launch_forward(const Call& a, const Tensor& q, const Tensor& k, const Tensor& v,
                    const Tensor& y, const Tensor* stats, int64_t version, cudaStream_t stream) {
    for_type_of(q, [&](auto zero) {
        using T = decltype(zero);
        const Scratch scratch(q, attention_forward_scratch<T>(a, version));
        check_launch(attention_forward<T>(a, in<T>(q), in<T>(k), in<T>(v), out<T>(y),
                                          out<Acc<T>>(stats), scratch.of<T>(), version, stream));
    });
}

template <class Call>
void launch_backward(const Call& a, const Tensor& grad, const Tensor& q, const Tensor& k,
                     const Tensor& v, const Tensor& y, const Tensor& stats, const Tensor& dq,
                     const Tensor& dk, const Tensor& dv, int64_t version, cudaStream_t stream) {
    for_type_of(q, [&](auto zero) {
        using T = decltype(zero);
        const Scratch scratch(q, attention_backward_scratch<T>(a, in<T>(grad), in<T>(q), in<T>(k),
                                                               in<T>(v), in<T>(y), version));
        check_launch(attention_backward<T>(
            a, in<T>(grad), in<T>(q), in<T>(k), in<T>(v), in<T>(y), in<Acc<T>>(stats), out<T>(dq),
            out<T>(dk), out<T>(dv), scratch.of<T>(), version, stream));
    });
}
