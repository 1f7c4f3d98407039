// The plan of linear_cross_entropy: into which chunks of classes or rows each version divides the
// logits.
#pragma once

#include <algorithm>

#include "binding.h"

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
inline int64_t part_of(int64_t n, int64_t parts, int64_t multiple) {
    const int64_t part = (n + parts - 1) / parts;
    return (part + multiple - 1) / multiple * multiple;
}

// Logits of a row begin on multiples of 16 bytes, as matmul's tensor core kernels require; classes
// left over from a multiple of 8 form a chunk of their own.
inline Chunk whole_rows(int64_t classes) { return Chunk(classes, classes, 8); }
inline Chunk chunks_of_classes(int64_t classes, int64_t version) {
    if (version == kWhole) return Chunk(classes, classes);
    return Chunk(classes, std::max<int64_t>(128, part_of(classes, 16, 8)), 8);
}

// The most rows of a chunk: an eighth of all. Each chunk reads and writes dw, which is slow beside
// a product of few rows: so a sixth up to 2048 rows, a fifth up to 1024, and 1024 if that is a
// quarter; at least 512.
inline int64_t most_rows(int64_t rows) {
    const auto part = [&](int64_t parts) { return part_of(rows, parts, 128); };
    const int64_t least = rows >= 4 * 1024 ? 1024 : std::max<int64_t>(512, part(5));
    return std::max({part(8), std::min<int64_t>(2048, part(6)), least});
}

// Chunks of nearly equal size of the rows from `first` on.
inline Chunk chunks_of_rows(int64_t rows, int64_t most, int64_t first) {
    const int64_t left = rows - first, chunks = left > most ? (left + most - 1) / most : 1;
    return Chunk(rows, part_of(left, chunks, 128), 1, first);
}

// A tenth of PyTorch's peak memory besides the gradients of x and w, in elements. The peak is three
// times the logits before these gradients exist, and the logits once while they are made.
inline int64_t tenth_of_pytorchs(int64_t rows, int64_t cols, int64_t classes) {
    const double logits = double(rows) * classes, gradients = double(rows + classes) * cols;
    return int64_t(std::max(3 * logits - gradients, logits) / 10);
}
