// What every direction of linear_cross_entropy does: checks its arguments, multiplies by x or w
// with the ops of matmul, and launches the kernels between those products.
#pragma once

#include <utility>

#include "../matmul/matmul.h"
#include "calls.h"
#include "cross_entropy_checks.h"
#include "linear_cross_entropy.h"
#include "linear_cross_entropy_chunks.h"

constexpr int64_t kVersions = 3;  // as many as VERSIONS of linear_cross_entropy.py has

// The launchers of linear_cross_entropy.cu.
template <class T>
cudaError_t linear_cross_entropy_take(
    const T* logits, const int64_t* target, Acc<T>* max, Acc<T>* sum, Acc<T>* below, Acc<T>* hit,
    int64_t rows, int64_t width, int64_t first, bool smooths, cudaStream_t stream);
template <class T>
cudaError_t linear_cross_entropy_losses(Acc<T>* max, Acc<T>* sum, Acc<T>* below, Acc<T>* hit,
                                        const int64_t* target, LossInto<T> loss, Acc<T>* partial,
                                        int64_t rows, int64_t classes, int64_t ignore_index,
                                        double smoothing, cudaStream_t stream);
template <class T>
cudaError_t linear_cross_entropy_reduce(const Acc<T>* partial, LossInto<T> loss, Acc<T>* weight,
                                        int64_t rows, bool mean, cudaStream_t stream);
template <class T>
cudaError_t linear_cross_entropy_count(const int64_t* target, Acc<T>* weight, int64_t rows,
                                       int64_t ignore_index, cudaStream_t stream);
template <class T>
cudaError_t linear_cross_entropy_gradient(
    const Arriving<T>& g, T* logits, const int64_t* target, const Acc<T>* max, const Acc<T>* sum,
    const Acc<T>* weight, int64_t rows, int64_t width, int64_t first, int64_t classes,
    int64_t reduction, int64_t ignore_index, double smoothing, cudaStream_t stream);
template <class T>
cudaError_t linear_cross_entropy_rows(
    T* logits, const int64_t* target, Acc<T>* max, Acc<T>* sum, Acc<T>* below, Acc<T>* hit,
    Acc<T>* partial, const Acc<T>* weight, int64_t rows, int64_t classes, int64_t reduction,
    int64_t ignore_index, double smoothing, cudaStream_t stream);
template <class T>
int64_t linear_cross_entropy_by_class_numbers(int64_t rows, int64_t apart, int64_t classes);
template <class T>
cudaError_t linear_cross_entropy_take_by_class(
    const T* logits, const int64_t* target, Acc<T>* numbers, Acc<T>* max, Acc<T>* sum,
    Acc<T>* below, Acc<T>* hit, int64_t rows, int64_t apart, int64_t classes, bool smooths,
    cudaStream_t stream);
template <class T>
cudaError_t linear_cross_entropy_gradient_by_class(
    const Arriving<T>& g, T* logits, T* room, int64_t classes_of_room, const int64_t* target,
    const Acc<T>* max, const Acc<T>* sum, const Acc<T>* weight, int64_t rows, int64_t apart,
    int64_t classes, int64_t reduction, int64_t ignore_index, double smoothing,
    cudaStream_t stream);
template <class T>
int64_t linear_cross_entropy_tile_numbers(const T* x, const T* w, int64_t w_row, int64_t rows,
                                          int64_t classes, int64_t depth);
template <class T>
cudaError_t linear_cross_entropy_take_tiles(
    const T* x, const T* w, int64_t w_row, const T* bias, const int64_t* target, Acc<T>* numbers,
    Acc<T>* max, Acc<T>* sum, Acc<T>* below, Acc<T>* hit, int64_t rows, int64_t classes,
    int64_t depth, bool smooths, cudaStream_t stream);
template <class T>
cudaError_t linear_cross_entropy_add(T* dx, Acc<T>* sums, int64_t elements, bool is_first,
                                     bool is_last, cudaStream_t stream);
template <class T>
cudaError_t linear_cross_entropy_scale(const Gradients<T>& gradients, const Arriving<T>& g,
                                       cudaStream_t stream);

// ---- products

// The ops of matmul's newest build. linear_cross_entropy.py is asked for it once per call.
class Matmul {
  public:
    // x w^T + bias
    Tensor product(const Tensor& x, const Tensor& w, const std::optional<Tensor>& bias) const {
        const std::optional<Tensor> residual;
        return call<1>(op("infer").c_str(), x, w, bias, residual, 1.0, act, false, best)[0];
    }

    // y = x w^T, or if `adds` y += x w^T.
    void multiply_into(const Tensor& y, const Tensor& x, const Tensor& w, bool adds) const {
        call<0>(op("multiply_into").c_str(), y, x, w, adds, best);
    }

    // The gradients of x, w and bias; [0] for one that is not needed.
    std::array<Tensor, 3> gradients(const Tensor& grad, const Tensor& x, const Tensor& w,
                                    bool needs_x, bool needs_w, bool needs_bias) const {
        const Tensor z = new_of_shape(x, {0});
        return call<3>(op("backward").c_str(), grad, x, w, z, 1.0, act, needs_x, needs_w,
                       needs_bias, false, best);
    }

  private:
    std::string op(const char* name) const { return build_ + "::" + name; }

    static constexpr int64_t act = Act::kNone, best = MatmulVersion::kCount - 1;
    const std::string build_ = text_of("linear_cross_entropy::matmul");
};

// ---- what both directions check and know

// A view of t, which is contiguous, in this shape. (For a small call, torch's own checks would take
// a microsecond or two.)
inline Tensor in_shape(const Tensor& t, const Shape& shape) {
    if (has_shape(t, shape)) return t;
    return torch::stable::view(t, {shape.data(), shape.size()});
}

struct Problem {
    Tensor x, w, target;
    std::optional<Tensor> bias;
    int64_t reduction, ignore_index;
    double smoothing;
    int64_t version;
    bool float_loss = false;  // of the sums' type, not of x's

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
    void check_adds() {
        check();
        if (adds()) return;
        fail(
            "reduction is 0 (none); wanted is 1 (mean) or 2 (sum), of whose gradient one number "
            "arrives");
    }
    int64_t rows() const { return target.numel(); }
    int64_t classes() const { return w.size(0); }
    bool adds() const { return reduction != kUnreduced; }
    Tensor new_loss() const { return ::new_loss(x, target, reduction, float_loss); }
    // Whether the logits are small beside w, which matmul reads faster than tiles of 128 rows do.
    bool has_few_rows() const {
        const int64_t least = rows() <= 8 ? 4096 : 48 * rows();  // columns
        return version == kRows && rows() <= 64 && w.size(1) >= least;
    }
    Chunk in_chunks() const { return chunks_of_classes(classes(), version); }
    Tensor logits(const Matmul& matmul, const Chunk& chunk) const {
        const auto of_bias = bias ? std::optional<Tensor>(chunk.of(*bias)) : std::nullopt;
        return matmul.product(x, chunk.of(w), of_bias);
    }
    // Flattens x to a matrix, and narrows to a chunk of its rows.
    Problem flat() const {
        Problem p = *this;
        p.x = in_shape(packed(x), {rows(), x.size(-1)});
        p.target = in_shape(target, {rows()});
        return p;
    }
    Problem of(const Chunk& rows) const {
        Problem p = *this;
        p.x = rows.of(x);
        p.target = rows.of(target);
        return p;
    }
};

// The statistics of the rows, in vectors: `Statistics` in linear_cross_entropy.cu, and for a sum or
// mean the partial losses of each row, else null.
template <class T>
struct Known {
    Acc<T>*max, *sum, *below, *hit, *partial;

    // others: as `room_for_others` makes it.
    Known(const Problem& p, const Tensor& max, const Tensor& sum, const Tensor& others)
        : max(out<Acc<T>>(max)),
          sum(out<Acc<T>>(sum)),
          below(out<Acc<T>>(others)),
          hit(below + p.rows()),
          partial(p.adds() ? hit + p.rows() : nullptr) {}
    Known of(const Chunk& rows) const {
        Known part = *this;
        for (Acc<T>** each : {&part.max, &part.sum, &part.below, &part.hit}) *each += rows.first;
        if (partial != nullptr) part.partial += 2 * rows.first;
        return part;
    }
};

inline Tensor room_for_others(const Problem& p) {
    return new_sums(p.x, {p.rows() * (p.adds() ? 4 : 2)});
}

// ---- what lies between the products

template <class T>
void take(const Problem& p, const Tensor& logits, const Chunk& chunk, const Known<T>& known,
          cudaStream_t stream) {
    check_launch(linear_cross_entropy_take<T>(
        in<T>(logits), in<int64_t>(p.target), known.max, known.sum, known.below, known.hit,
        p.rows(), chunk.width, chunk.first, p.smoothing > 0, stream));
}

// Computes the statistics over all classes, chunk by chunk.
template <class T>
void take_chunks(const Problem& p, const Known<T>& known, Chunk chunk, cudaStream_t stream) {
    const Matmul matmul;
    do {
        take<T>(p, p.logits(matmul, chunk), chunk, known, stream);
    } while (chunk.next());
}

// The same tile by tile, without logits in memory; false if that kernel cannot run.
template <class T>
bool take_tiles(const Problem& given, const Known<T>& known, cudaStream_t stream) {
    if (given.version != kRows || given.w.stride(1) != 1) return false;
    const Problem p = given.flat();
    const int64_t rows = p.rows(), classes = p.classes(), depth = p.w.size(1);
    const int64_t w_row = classes > 1 ? p.w.stride(0) : depth;
    const auto *x = in<T>(p.x), *w = in<T>(p.w);
    if (rows == 0 || classes == 0) return false;
    const int64_t each = linear_cross_entropy_tile_numbers<T>(x, w, w_row, rows, classes, depth);
    if (each == 0) return false;
    const Scratch numbers(p.x, each * rows);
    const Tensor bias = p.bias ? packed(*p.bias) : Tensor();
    check_launch(linear_cross_entropy_take_tiles<T>(
        x, w, w_row, p.bias ? in<T>(bias) : nullptr, in<int64_t>(p.target), numbers.of<T>(),
        known.max, known.sum, known.below, known.hit, rows, classes, depth, p.smoothing > 0,
        stream));
    return true;
}

// The loss of each row: in `loss`, or in `partial` for their sum.
template <class T>
void find_losses(const Problem& p, const Known<T>& known, const Tensor& loss, cudaStream_t stream) {
    check_launch(linear_cross_entropy_losses<T>(
        known.max, known.sum, known.below, known.hit, in<int64_t>(p.target),
        loss_into<T>(loss, p.x), known.partial, p.rows(), p.classes(), p.ignore_index, p.smoothing,
        stream));
}

// weight: null, or for a mean 1 / (rows that count).
template <class T>
void reduce(const Problem& p, const Known<T>& known, const Tensor& loss, const Tensor* weight,
            cudaStream_t stream) {
    check_launch(linear_cross_entropy_reduce<T>(
        known.partial, loss_into<T>(loss, p.x), out<Acc<T>>(weight), p.rows(), p.reduction == kMean,
        stream));
}

// Replaces the logits of a chunk by their gradients.
template <class T>
void find_gradient(const Problem& p, const Tensor& logits, const Chunk& chunk, const Acc<T>* max,
                   const Acc<T>* sum, const Tensor& weight, const Arriving<T>& arriving,
                   cudaStream_t stream) {
    check_launch(linear_cross_entropy_gradient<T>(
        arriving, out<T>(logits), in<int64_t>(p.target), max, sum, in<Acc<T>>(weight), p.rows(),
        chunk.width, chunk.first, p.classes(), p.reduction, p.ignore_index, p.smoothing, stream));
}
