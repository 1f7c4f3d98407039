// Binding of linear_cross_entropy: schema, checks, allocation, launches, chunk by chunk.
#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "../matmul/matmul.h"
#include "calls.h"
#include "cross_entropy_checks.h"
#include "linear_cross_entropy.h"

constexpr int64_t kVersions = 3;  // as many as VERSIONS of linear_cross_entropy.py has

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

// ---- chunks

enum Version : int64_t { kWhole, kChunks, kRows };  // as in linear_cross_entropy.py

// A chunk of `width` classes, or rows, from `first` on. It has at most `most` of all `count`, and
// if it has more than `multiple`, a multiple of that. A count of 0 yields one empty chunk.
struct Chunk {
    int64_t count, most, multiple, first, width = 0;

    Chunk(int64_t count, int64_t most, int64_t multiple = 1, int64_t first = 0)
        : count(count), most(most), multiple(multiple), first(first) {
        find_width();
    }
    bool is_first() const { return first == 0; }
    bool is_last() const { return first + width == count; }
    bool is_all() const { return width == count; }
    // Advances to the next chunk; false after the last.
    bool next() {
        first += width;
        find_width();
        return width > 0;
    }
    // Its rows of a matrix or elements of a vector, without a copy.
    Tensor of(Tensor t) const { return is_all() ? t : torch::stable::narrow(t, 0, first, width); }

  private:
    void find_width() {
        width = count - first;
        if (width > most) width = most;
        if (width > multiple) width -= width % multiple;
    }
};

// A fraction of n, rounded up to a multiple.
int64_t part_of(int64_t n, int64_t parts, int64_t multiple) {
    const int64_t part = (n + parts - 1) / parts;
    return (part + multiple - 1) / multiple * multiple;
}

// Logits of a row begin on multiples of 16 bytes, as matmul's tensor core kernels require; classes
// left over from a multiple of 8 form a chunk of their own.
Chunk whole_rows(int64_t classes) { return Chunk(classes, classes, 8); }
Chunk chunks_of_classes(int64_t classes, int64_t version) {
    if (version == kWhole) return Chunk(classes, classes);
    return Chunk(classes, std::max<int64_t>(128, part_of(classes, 16, 8)), 8);
}

// The most rows of a chunk: an eighth of all. Each chunk reads and writes dw, which is slow beside
// a product of few rows: so a sixth up to 2048 rows, a fifth up to 1024, and 1024 if that is a
// quarter; at least 512.
int64_t most_rows(int64_t rows) {
    const auto part = [&](int64_t parts) { return part_of(rows, parts, 128); };
    const int64_t least = rows >= 4 * 1024 ? 1024 : std::max<int64_t>(512, part(5));
    return std::max({part(8), std::min<int64_t>(2048, part(6)), least});
}

// Chunks of nearly equal size of the rows from `first` on.
Chunk chunks_of_rows(int64_t rows, int64_t most, int64_t first) {
    const int64_t left = rows - first, chunks = left > most ? (left + most - 1) / most : 1;
    return Chunk(rows, part_of(left, chunks, 128), 1, first);
}

// A tenth of PyTorch's peak memory besides the gradients of x and w, in elements. The peak is three
// times the logits before these gradients exist, and the logits once while they are made.
int64_t tenth_of_pytorchs(int64_t rows, int64_t cols, int64_t classes) {
    const double logits = double(rows) * classes, gradients = double(rows + classes) * cols;
    return int64_t(std::max(3 * logits - gradients, logits) / 10);
}

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
Tensor in_shape(const Tensor& t, const Shape& shape) {
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

Tensor room_for_others(const Problem& p) { return new_sums(p.x, {p.rows() * (p.adds() ? 4 : 2)}); }

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

// ---- the same with the logits in the memory of dw
//
// Until dw is computed, its memory is free, and holds the logits of as many rows as w has columns.
// They lie by class, [classes, rows], like the rows of dw. Their gradients G are stored a sixteenth
// of the classes before the logits, those of the first sixteenth in a separate buffer. So the last
// rows of dw can be computed in place, then the rows before them, and so on: dw takes one product,
// and dx two.
//
// If these are all rows, the logits stay there until the gradient arrives.

// The number of classes whose rows of dw, in tiles of 128 x 256, fill whole waves on an H200.
int64_t classes_of_round(int64_t cols) {
    constexpr int64_t kMultiprocessors = 132;
    return kMultiprocessors / std::gcd(kMultiprocessors, (cols + 255) / 256) * 128;
}

// The classes of the separate buffer: a sixteenth, in tiles of 128, or in whole waves if that is
// not too much memory.
int64_t classes_of_room(int64_t rows, int64_t cols, int64_t classes) {
    const int64_t part = part_of(classes, 16, 128);
    const int64_t in_rounds = part_of(part, 1, classes_of_round(cols));
    const bool fits = in_rounds * rows <= tenth_of_pytorchs(rows, cols, classes);
    return std::min(fits ? in_rounds : part, classes);
}

class LogitsInDw {
  public:
    static constexpr int64_t kMultiple = 8;  // elements, of which columns are one

    LogitsInDw(const Tensor& dw, int64_t rows)
        : dw_(dw),
          rows_(rows),
          apart_(part_of(rows, 1, kMultiple)),
          logits_(part_of_dw(0, classes())) {}

    // Computes the losses of p's rows, of which there are `rows`.
    template <class T>
    void find_losses(const Problem& p, const Matmul& matmul, const Known<T>& known,
                     const Tensor& loss, cudaStream_t stream) const {
        matmul.multiply_into(logits_, p.w, filled_up(p.x, stream), false);
        const Scratch numbers(
            p.x, linear_cross_entropy_by_class_numbers<T>(rows_, apart_, classes()));
        check_launch(linear_cross_entropy_take_by_class<T>(
            in<T>(logits_), in<int64_t>(p.target), numbers.of<T>(), known.max, known.sum,
            known.below, known.hit, rows_, apart_, classes(), p.smoothing > 0, stream));
        ::find_losses<T>(p, known, loss, stream);
    }

    // Computes dx, unless it is null, and dw, if needed.
    template <class T>
    void find_gradients(const Problem& p, const Matmul& matmul, const Acc<T>* max,
                        const Acc<T>* sum, const Tensor& weight, const Arriving<T>& arriving,
                        const Tensor* dx, bool needs_w, cudaStream_t stream) const {
        const int64_t of_room = classes_of_room(rows_, cols(), classes()),
                      others = classes() - of_room;
        const Tensor room = new_of_shape(dw_, {of_room, apart_});
        check_launch(linear_cross_entropy_gradient_by_class<T>(
            arriving, out<T>(logits_), out<T>(room), of_room, in<int64_t>(p.target), max, sum,
            in<Acc<T>>(weight), rows_, apart_, classes(), p.reduction, p.ignore_index, p.smoothing,
            stream));
        if (dx != nullptr) {
            const auto multiply = [&](const Tensor& g, int64_t first, bool adds) {
                const Tensor of_w = part(p.w, first, g.size(0));
                matmul.multiply_into(*dx, transposed(without_fill(g)), transposed(of_w), adds);
            };
            if (others > 0) multiply(part_of_dw(0, others), of_room, false);
            multiply(room, 0, others > 0);
        }
        if (!needs_w) return;
        const int64_t round = classes_of_round(cols());
        for (int64_t end = classes(), first; end > 0; end = first) {
            first = end > of_room ? std::max(behind_g_of(end - of_room), of_room) : 0;
            if (first > 0 && end - first > round) first = end - (end - first) / round * round;
            const Tensor g = first > 0 ? part_of_dw(first - of_room, end - first) : room;
            const Tensor to = part(dw_, first, end - first);
            matmul.multiply_into(to, without_fill(g), transposed(p.x), false);
        }
    }

  private:
    int64_t classes() const { return dw_.size(0); }
    int64_t cols() const { return dw_.size(1); }

    static Tensor part(Tensor t, int64_t first, int64_t count) {
        return torch::stable::narrow(t, 0, first, count);
    }
    // A view of the memory of dw, [count, apart], from row `first` of that shape on.
    Tensor part_of_dw(int64_t first, int64_t count) const {
        const Tensor all = in_shape(dw_, {dw_.numel()});
        return in_shape(part(all, first * apart_, count * apart_), {count, apart_});
    }

    // x padded with zero rows to a multiple.
    Tensor filled_up(const Tensor& x, cudaStream_t stream) const {
        if (rows_ == apart_) return x;
        const Tensor all = new_of_shape(x, {apart_, cols()});
        const int64_t bytes = x.numel() * x.element_size();
        check_launch(cudaMemcpyAsync(
            out<char>(all), x.const_data_ptr(), bytes, cudaMemcpyDeviceToDevice, stream));
        check_launch(cudaMemsetAsync(
            out<char>(all) + bytes, 0, all.numel() * all.element_size() - bytes, stream));
        return all;
    }
    Tensor without_fill(Tensor g) const {
        return rows_ == apart_ ? g : torch::stable::narrow(g, 1, 0, rows_);
    }

    // The first row of dw behind the G of `others` classes, rounded up to whole tiles.
    int64_t behind_g_of(int64_t others) const {
        const int64_t first = (others * apart_ + cols() - 1) / cols();
        return apart_ == cols() ? first : part_of(first, 1, 128);
    }

    const Tensor dw_;
    const int64_t rows_, apart_;
    const Tensor logits_;
};

// The most rows of a chunk beside rows in the memory of dw: a sixth of all, and at most four fifths
// of a tenth of PyTorch's memory, because split-K of dx needs a workspace; at least 512.
int64_t most_rows_beside_dw(const Problem& p) {
    const int64_t rows = p.rows();
    const int64_t tenth = tenth_of_pytorchs(rows, p.w.size(1), p.classes()) / p.classes();
    const int64_t most = std::min(part_of(rows, 6, 128), tenth * 4 / 5 / 128 * 128);
    return std::min(most_rows(rows), std::max<int64_t>(512, most));
}

// The rows whose logits lie in the memory of dw: all, or as many as w has columns. 0 if the layout
// does not allow it, if they would be no more than a chunk, or if the remaining rows, which are
// chunks and add to dw, are so many that it would be slower. Chunks of 640 are faster than chunks
// of 512, whose additions are bound by memory: for those, fewer rows lie in dw.
int64_t rows_in_dw(const Problem& p, bool needs_w) {
    constexpr int64_t kLargeW = 125'000'000, kWell = 640;
    const int64_t cols = p.w.size(1), rows = std::min(p.rows(), cols), left = p.rows() - rows;
    if (!needs_w || p.bias || p.x.scalar_type() == ScalarType::Double) return 0;
    if (cols % LogitsInDw::kMultiple != 0 || p.classes() == 0) return 0;
    if (rows <= most_rows(p.rows())) return 0;
    if (left == 0) return rows;
    const bool in_rounds = classes_of_room(rows, cols, p.classes()) % classes_of_round(cols) == 0;
    if (!in_rounds || left > (cols * p.classes() < kLargeW ? rows / 2 : rows)) return 0;
    const int64_t most = most_rows_beside_dw(p), chunks = (left + most - 1) / most;
    const bool are_small = chunks > 1 && left < chunks * kWell && kWell <= most;
    return are_small ? p.rows() - chunks * kWell : rows;
}

bool all_wait_in_dw(const Problem& p, bool needs_w) {
    return p.rows() > 0 && rows_in_dw(p, needs_w) == p.rows();
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
