// Binding of cross_entropy: schema, checks, allocation, launch.
#include <vector>

#include "binding.h"

constexpr int64_t kVersions = 4;  // as many as VERSIONS of cross_entropy.py has

cudaError_t cross_entropy_check(const int64_t* target, int64_t rows, int64_t cols,
                                int64_t ignore_index, int* bad, cudaStream_t stream);
template <class T>
int64_t cross_entropy_partials(const T* x, int64_t rows, int64_t cols, int64_t version);
template <class T>
cudaError_t cross_entropy_forward(const T* x, const int64_t* target, T* loss, Acc<T>* partial,
                                  Acc<T>* max, Acc<T>* sum, Acc<T>* weight, int64_t rows,
                                  int64_t cols, int64_t reduction, int64_t ignore_index,
                                  double smoothing, int64_t version, cudaStream_t stream);
template <class T>
cudaError_t cross_entropy_backward(const T* g, const T* x, const int64_t* target, const Acc<T>* max,
                                   const Acc<T>* sum, const Acc<T>* weight, T* dx, int64_t rows,
                                   int64_t cols, int64_t reduction, int64_t ignore_index,
                                   double smoothing, int64_t version, cudaStream_t stream);

constexpr int64_t kNone = 0, kMean = 1, kSum = 2;  // reductions

// The shape of what has an element for each row of x.
std::string rows_name(const Tensor& x) {
    std::string name;
    for (int64_t i = 0; i + 1 < x.dim(); ++i) name += (i ? ", " : "") + text(x.size(i));
    return "(" + name + (x.dim() == 2 ? ",)" : ")");
}

// A class for each row of x [..., cols].
void check_target(const Tensor& target, const Tensor& x) {
    check_given(target, "target");
    if (target.device() != x.device()) {
        fail("target is on ", device_name(target), ", but x is on ", device_name(x),
             "; wanted is one device for all");
    }
    if (type_of(target) != ScalarType::Long) {
        fail("target is ", dtype_name(type_of(target)), "; wanted is int64");
    }
    bool fits = target.dim() == x.dim() - 1;
    for (int64_t i = 0; fits && i < target.dim(); ++i) fits = target.size(i) == x.size(i);
    if (!fits) {
        fail("target has shape ", shape_name(target), ", but x has shape ", shape_name(x),
             "; wanted is ", rows_name(x), ", an element for each row of x");
    }
}

void check_options(int64_t reduction, double label_smoothing) {
    if (reduction != kNone && reduction != kMean && reduction != kSum) {
        fail("reduction is ", reduction, "; wanted is 0 (none), 1 (mean) or 2 (sum)");
    }
    if (!(label_smoothing >= 0 && label_smoothing <= 1)) {
        fail("label_smoothing is ", std::to_string(label_smoothing),
             "; wanted is a number from 0 to 1");
    }
}

// Elements of forward's last result.
int64_t weights(int64_t reduction) { return reduction == kMean ? 1 : 0; }

void check_weight(const Tensor& weight, const Tensor& x, int64_t reduction) {
    check_given(weight, "weight");
    if (weight.device() != x.device() || type_of(weight) != sums_type(x) || weight.dim() != 1 ||
        weight.size(0) != weights(reduction)) {
        fail("weight is ", dtype_name(type_of(weight)), " of shape ", shape_name(weight), " on ",
             device_name(weight), "; wanted is what forward returned, ", dtype_name(sums_type(x)),
             " of shape (", weights(reduction), ",) on ", device_name(x));
    }
}

// Row by row, the first target that is neither a class nor ignore_index, as Python finds it.
[[noreturn]] void report(const Tensor& target, int64_t cols, int64_t ignore_index) {
    std::vector<int64_t> values(target.numel());
    const size_t bytes = values.size() * sizeof(int64_t);
    check_launch(cudaMemcpy(values.data(), target.const_data_ptr(), bytes, cudaMemcpyDefault));
    int64_t row = 0;
    while (values[row] == ignore_index || (values[row] >= 0 && values[row] < cols)) ++row;
    std::string position;
    int64_t rest = row;
    for (int64_t i = target.dim() - 1; i >= 0; rest /= target.size(i), --i) {
        position = text(rest % target.size(i)) + (position.empty() ? "" : ", " + position);
    }
    fail("target", position.empty() ? "" : "[" + position + "]", " is ", values[row],
         "; wanted is a class from 0 to ", cols - 1, ", or ignore_index, which is ", ignore_index);
}

// A stream of the current device for work beside the caller's, and before it where both wait for
// room.
cudaStream_t stream_beside() {
    static thread_local std::vector<cudaStream_t> streams;  // of each device
    int device = 0, least = 0, greatest = 0;
    check_launch(cudaGetDevice(&device));
    if (device >= int(streams.size())) streams.resize(device + 1);
    if (streams[device] == nullptr) {
        check_launch(cudaDeviceGetStreamPriorityRange(&least, &greatest));
        check_launch(
            cudaStreamCreateWithPriority(&streams[device], cudaStreamNonBlocking, greatest));
    }
    return streams[device];
}

// Finds out whether all targets are in range, beside the loss, which does not wait for that. It
// asks before the loss is launched and looks at the answer after that, so the GPU has work while
// the host waits. A graph that is being captured has no answer yet: there is no question either.
class Check {
  public:
    Check(const Tensor& target, int64_t cols, int64_t ignore_index, bool wanted,
          cudaStream_t stream) {
        cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
        check_launch(cudaStreamIsCapturing(stream, &capture));
        wanted = wanted && capture == cudaStreamCaptureStatusNone;
        if (!wanted) return;
        // The GPU writes to this memory of the host. One call at a time uses a thread's.
        static thread_local int* shared = nullptr;
        if (shared == nullptr) {
            check_launch(cudaHostAlloc(&shared, sizeof(int), cudaHostAllocDefault));
        }
        bad_ = shared;
        *bad_ = 0;
        check_launch(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming));
        const cudaStream_t beside = stream_beside();
        check_launch(cudaEventRecord(done_, stream));  // the targets are there
        check_launch(cudaStreamWaitEvent(beside, done_, 0));
        check_launch(cross_entropy_check(
            in<int64_t>(target), target.numel(), cols, ignore_index, bad_, beside));
        check_launch(cudaEventRecord(done_, beside));
    }
    ~Check() {
        if (done_ == nullptr) return;
        cudaEventSynchronize(done_);  // on the way out with an error, too: the targets may go
        cudaEventDestroy(done_);
    }
    Check(const Check&) = delete;

    bool failed() {
        if (bad_ == nullptr) return false;
        check_launch(cudaEventSynchronize(done_));
        return *static_cast<volatile int*>(bad_) != 0;
    }

  private:
    int* bad_ = nullptr;
    cudaEvent_t done_ = nullptr;
};

// Returns the loss: [...] for x [..., cols], or [] for a mean or a sum. max, sum, weight: null, or
// where goes what backward needs.
Tensor run_forward(Tensor x, Tensor target, const Tensor* max, const Tensor* sum,
                   const Tensor* weight, int64_t reduction, int64_t ignore_index,
                   double label_smoothing, bool check, int64_t version) {
    check_version(version, kVersions);
    OnDeviceOf device(x);
    x = packed(x);
    target = packed(target);
    const Rows shape(x);
    Check targets(target, shape.cols, ignore_index, check, device.stream);
    Tensor loss = new_tensor(
        x, reduction == kNone ? target.sizes() : IntHeaderOnlyArrayRef{}, x.scalar_type());
    for_type_of(x, [&](auto zero) {
        using T = decltype(zero);
        const int64_t count =
            reduction == kNone
                ? 0
                : cross_entropy_partials<T>(in<T>(x), shape.rows, shape.cols, version);
        Tensor partial = new_sums(x, {count, 2});
        check_launch(cross_entropy_forward<T>(
            in<T>(x), in<int64_t>(target), out<T>(loss), out<Acc<T>>(partial), out<Acc<T>>(max),
            out<Acc<T>>(sum), out<Acc<T>>(weight), shape.rows, shape.cols, reduction, ignore_index,
            label_smoothing, version, device.stream));
    });
    if (targets.failed()) report(target, shape.cols, ignore_index);
    return loss;
}

void check_inputs(const Tensor& x, const Tensor& target, int64_t reduction,
                  double label_smoothing) {
    check_first(x, "x");
    check_rank(x, "x");
    check_target(target, x);
    check_options(reduction, label_smoothing);
}

// The loss alone, for where no gradient is wanted.
Tensor infer(Tensor x, Tensor target, int64_t reduction, int64_t ignore_index,
             double label_smoothing, bool check, int64_t version) {
    check_inputs(x, target, reduction, label_smoothing);
    return run_forward(x, target, nullptr, nullptr, nullptr, reduction, ignore_index,
                       label_smoothing, check, version);
}

// Besides the loss, for backward: the max and the sum of e^(x - max) of each row, [...], and for a
// mean 1 / (rows that count), [1], else [0].
std::tuple<Tensor, Tensor, Tensor, Tensor> forward(Tensor x, Tensor target, int64_t reduction,
                                                   int64_t ignore_index, double label_smoothing,
                                                   bool check, int64_t version) {
    check_inputs(x, target, reduction, label_smoothing);
    const Tensor max = new_sums(x, target.sizes()), sum = new_sums(x, target.sizes());
    const Tensor weight = new_sums(x, {weights(reduction)});
    return {run_forward(x, target, &max, &sum, &weight, reduction, ignore_index, label_smoothing,
                        check, version),
            max, sum, weight};
}

Tensor backward(Tensor grad, Tensor x, Tensor target, Tensor max, Tensor sum, Tensor weight,
                int64_t reduction, int64_t ignore_index, double label_smoothing, int64_t version) {
    check_inputs(x, target, reduction, label_smoothing);
    check_like(grad, "grad", x, "x");
    if (reduction == kNone) check_same_shape(grad, "grad", target, "target");
    if (reduction != kNone && grad.dim() != 0) {
        fail("grad has shape ", shape_name(grad), "; wanted is (), as the loss has");
    }
    check_sums(max, "max", x);
    check_sums(sum, "sum", x);
    check_weight(weight, x, reduction);
    check_version(version, kVersions);
    OnDeviceOf device(x);
    grad = packed(grad);
    x = packed(x);
    target = packed(target);
    max = packed(max);
    sum = packed(sum);
    Tensor dx = new_like(x);
    const Rows shape(x);
    for_type_of(x, [&](auto zero) {
        using T = decltype(zero);
        check_launch(cross_entropy_backward<T>(
            in<T>(grad), in<T>(x), in<int64_t>(target), in<Acc<T>>(max), in<Acc<T>>(sum),
            in<Acc<T>>(weight), out<T>(dx), shape.rows, shape.cols, reduction, ignore_index,
            label_smoothing, version, device.stream));
    });
    return dx;
}

STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
    m.def(
        "infer(Tensor x, Tensor target, int reduction, int ignore_index, float label_smoothing,"
        " bool check, int version) -> Tensor");
    m.def(
        "forward(Tensor x, Tensor target, int reduction, int ignore_index, float label_smoothing,"
        " bool check, int version) -> (Tensor loss, Tensor max, Tensor sum, Tensor weight)");
    m.def(
        "backward(Tensor grad, Tensor x, Tensor target, Tensor max, Tensor sum, Tensor weight,"
        " int reduction, int ignore_index, float label_smoothing, int version) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("infer", TORCH_BOX(&infer));
    m.impl("forward", TORCH_BOX(&forward));
    m.impl("backward", TORCH_BOX(&backward));
}
