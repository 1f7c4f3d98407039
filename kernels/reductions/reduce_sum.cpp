// Binding of reduce_sum: schema, checks, allocation, launch. The gradient needs no kernel.
#include "binding.h"

constexpr int64_t kVersions = 3;  // as many as VERSIONS of reduce_sum.py has

int64_t reduce_sum_splits(int64_t rows, int64_t cols, int64_t version);
template <class T>
cudaError_t reduce_sum_forward(const T* x, Acc<T>* partial, T* y, int64_t rows, int64_t cols,
                               int64_t splits, int64_t version, cudaStream_t stream);

Tensor forward(Tensor x, bool over_all, int64_t version) {
    check_first(x, "x");
    check_version(version, kVersions);
    OnDeviceOf device(x);
    x = packed(x);
    if (!over_all) check_rank(x, "x");
    const Rows shape = over_all ? Rows{1, x.numel()} : Rows(x);
    Tensor y = new_tensor(x, over_all ? IntHeaderOnlyArrayRef() : but_last(x), x.scalar_type());
    if (shape.rows == 0) return y;
    const int64_t splits = reduce_sum_splits(shape.rows, shape.cols, version);
    const Scratch partial(x, splits == 1 ? 0 : shape.rows * splits);
    for_type_of(x, [&](auto zero) {
        using T = decltype(zero);
        check_launch(reduce_sum_forward<T>(in<T>(x), partial.of<T>(), out<T>(y), shape.rows,
                                           shape.cols, splits, version, device.stream));
    });
    return y;
}

STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
    m.def("forward(Tensor x, bool over_all, int version) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("forward", TORCH_BOX(&forward));
}
