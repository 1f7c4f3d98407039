// What the bindings of cross_entropy and linear_cross_entropy have in common: checks of targets and
// options, and the type of the loss.
#pragma once

#include <vector>

#include "binding.h"
#include "cross_entropy.h"

// Each op's .cu has one: *bad becomes 1 if a target is neither one of `cols` classes nor ignored.
cudaError_t cross_entropy_check(const int64_t* target, int64_t rows, int64_t cols,
                                int64_t ignore_index, int* bad, cudaStream_t stream);

constexpr int64_t kUnreduced = 0, kMean = 1, kSum = 2;  // reductions

// The shape of what has an element for each row of x.
inline std::string rows_name(const Tensor& x) {
    std::string name;
    for (int64_t i = 0; i + 1 < x.dim(); ++i) name += (i ? ", " : "") + text(x.size(i));
    return "(" + name + (x.dim() == 2 ? ",)" : ")");
}

// A class for each row of x [..., cols].
inline void check_target(const Tensor& target, const Tensor& x) {
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

inline void check_options(int64_t reduction, double label_smoothing) {
    if (reduction != kUnreduced && reduction != kMean && reduction != kSum) {
        fail("reduction is ", reduction, "; wanted is 0 (none), 1 (mean) or 2 (sum)");
    }
    if (!(label_smoothing >= 0 && label_smoothing <= 1)) {
        fail("label_smoothing is ", std::to_string(label_smoothing),
             "; wanted is a number from 0 to 1");
    }
}

// Elements of forward's last result.
inline int64_t weights(int64_t reduction) { return reduction == kMean ? 1 : 0; }

inline void check_weight(const Tensor& weight, const Tensor& x, int64_t reduction) {
    check_given(weight, "weight");
    if (weight.device() != x.device() || type_of(weight) != sums_type(x) || weight.dim() != 1 ||
        weight.size(0) != weights(reduction)) {
        fail("weight is ", dtype_name(type_of(weight)), " of shape ", shape_name(weight), " on ",
             device_name(weight), "; wanted is what forward returned, ", dtype_name(sums_type(x)),
             " of shape (", weights(reduction), ",) on ", device_name(x));
    }
}

// The loss: of each row, or one. float_loss: of the sums' type, not of x's.
inline Tensor new_loss(const Tensor& x, const Tensor& target, int64_t reduction, bool float_loss) {
    return new_tensor(x, reduction == kUnreduced ? target.sizes() : IntHeaderOnlyArrayRef{},
                      float_loss ? sums_type(x) : x.scalar_type());
}

// x is of T.
template <class T>
LossInto<T> loss_into(const Tensor& loss, const Tensor& x) {
    if (type_of(loss) == type_of(x)) return {out<T>(loss), nullptr};
    return {nullptr, out<Acc<T>>(loss)};
}

// What arrives at the loss has its type and shape.
inline void check_grad(const Tensor& grad, const Tensor& x, const Tensor& target,
                       int64_t reduction) {
    check_device(grad, "grad", x, "x");
    if (type_of(grad) != sums_type(x)) check_like(grad, "grad", x, "x");
    if (reduction == kUnreduced) check_same_shape(grad, "grad", target, "target");
    if (reduction != kUnreduced && grad.dim() != 0) {
        fail("grad has shape ", shape_name(grad), "; wanted is (), as the loss has");
    }
}

// x is of T.
template <class T>
Arriving<T> arriving(const Tensor& grad, const Tensor& x) {
    if (type_of(grad) == type_of(x)) return {in<T>(grad), nullptr};
    return {nullptr, in<Acc<T>>(grad)};
}

// Row by row, the first target that is neither a class nor ignore_index, as Python finds it.
[[noreturn]] inline void report(const Tensor& target, int64_t cols, int64_t ignore_index) {
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
         "; wanted is ", cols > 0 ? "a class from 0 to " + text(cols - 1) + ", or " : "",
         "ignore_index, which is ", ignore_index, cols > 0 ? "" : ", for there are no classes");
}

// A stream of the current device for work beside the caller's, and before it where both wait for
// room.
inline cudaStream_t stream_beside() {
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
