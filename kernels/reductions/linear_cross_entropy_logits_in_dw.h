// linear_cross_entropy with the logits in the memory of dw.
//
// Until dw is computed, its memory is free, and holds the logits of as many rows as w has columns.
// They lie by class, [classes, rows], like the rows of dw. Their gradients G are stored a sixteenth
// of the classes before the logits, those of the first sixteenth in a separate buffer. So the last
// rows of dw can be computed in place, then the rows before them, and so on: dw takes one product,
// and dx two.
//
// If these are all rows, the logits stay there until the gradient arrives.
#pragma once

#include <numeric>

#include "linear_cross_entropy_problem.h"

// The number of classes whose rows of dw, in tiles of 128 x 256, fill whole waves on an H200.
inline int64_t classes_of_round(int64_t cols) {
    constexpr int64_t kMultiprocessors = 132;
    return kMultiprocessors / std::gcd(kMultiprocessors, (cols + 255) / 256) * 128;
}

// The classes of the separate buffer: a sixteenth, in tiles of 128, or in whole waves if that is
// not too much memory.
inline int64_t classes_of_room(int64_t rows, int64_t cols, int64_t classes) {
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
inline int64_t most_rows_beside_dw(const Problem& p) {
    const int64_t rows = p.rows();
    const int64_t tenth = tenth_of_pytorchs(rows, p.w.size(1), p.classes()) / p.classes();
    const int64_t most = std::min(part_of(rows, 6, 128), tenth * 4 / 5 / 128 * 128);
    return std::min(most_rows(rows), std::max<int64_t>(512, most));
}

// The rows whose logits lie in the memory of dw: all, or as many as w has columns. 0 if the layout
// does not allow it, if they would be no more than a chunk, or if the remaining rows, which are
// chunks and add to dw, are so many that it would be slower. Chunks of 640 are faster than chunks
// of 512, whose additions are bound by memory: for those, fewer rows lie in dw.
inline int64_t rows_in_dw(const Problem& p, bool needs_w) {
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

inline bool all_wait_in_dw(const Problem& p, bool needs_w) {
    return p.rows() > 0 && rows_in_dw(p, needs_w) == p.rows();
}
