// nvcuda::wmma: products of tiles that the lanes of a warp have together.
#pragma once
#include <type_traits>

#include "cuda_bf16.h"
#include "cuda_fp16.h"
#include "simulator/ptx/conversions.h"
#include "simulator/wmma.h"

namespace nvcuda {
namespace wmma {

struct row_major;
struct col_major;
struct matrix_a;
struct matrix_b;
struct accumulator;

namespace precision {
struct tf32;
}
namespace experimental {
namespace precision {
struct u4;
struct s4;
struct b1;
}  // namespace precision
enum bmmaBitOp { bmmaBitOpXOR = 1, bmmaBitOpAND = 2 };
enum bmmaAccumulateOp { bmmaAccumulateOpPOPC = 1 };
}  // namespace experimental

enum layout_t { mem_row_major, mem_col_major };

template <class T>
struct helper_traits {
    using element_type = T;
    using storage_element_type = T;
    using fill_argument_type = T;
};
template <class T, class Storage>
struct __stored_as {
    using element_type = T;
    using storage_element_type = Storage;
    using fill_argument_type = Storage;
};
template <>
struct helper_traits<precision::tf32> : __stored_as<precision::tf32, float> {};
template <>
struct helper_traits<experimental::precision::u4>
    : __stored_as<experimental::precision::u4, unsigned> {};
template <>
struct helper_traits<experimental::precision::s4> : __stored_as<experimental::precision::s4, int> {
};
template <>
struct helper_traits<experimental::precision::b1>
    : __stored_as<experimental::precision::b1, unsigned> {};

template <class T, int size, int packed_size = size>
struct alignas(8) __frag_base {
    enum { num_elements = size };
    enum { num_storage_elements = packed_size };
    using element_type = T;
    using storage_element_type = typename helper_traits<T>::storage_element_type;
    storage_element_type x[num_storage_elements];
};

}  // namespace wmma
}  // namespace nvcuda

namespace simulator::wmma {

using namespace nvcuda::wmma;
using namespace nvcuda::wmma::experimental::precision;
using nvcuda::wmma::precision::tf32;
using tensor_cores::Type;

// What a type is to a tensor core, and how many bits an element has.
struct Numbers {
    Type type;
    int bits;
};

template <class T>
constexpr Numbers numbers{Type::F32, 0};  // no type of theirs
template <>
inline constexpr Numbers numbers<__half>{Type::F16, 16};
template <>
inline constexpr Numbers numbers<__nv_bfloat16>{Type::BF16, 16};
template <>
inline constexpr Numbers numbers<tf32>{Type::TF32, 32};
template <>
inline constexpr Numbers numbers<double>{Type::F64, 64};
template <>
inline constexpr Numbers numbers<signed char>{Type::S8, 8};
template <>
inline constexpr Numbers numbers<unsigned char>{Type::U8, 8};
template <>
inline constexpr Numbers numbers<s4>{Type::S4, 4};
template <>
inline constexpr Numbers numbers<u4>{Type::U4, 4};
template <>
inline constexpr Numbers numbers<b1>{Type::B1, 1};
template <>
inline constexpr Numbers numbers<float>{Type::F32, 32};
template <>
inline constexpr Numbers numbers<int>{Type::S32, 32};

template <class T, class... Types>
constexpr bool is_one_of = (std::is_same_v<T, Types> || ...);

// The fragments that there are.
template <class Use, int m, int n, int k, class T, class Layout>
constexpr bool exists() {
    constexpr bool is_accumulator = std::is_same_v<Use, accumulator>;
    constexpr bool is_small = m == 8 && n == 8;
    if (is_accumulator != std::is_void_v<Layout>) return false;
    if (!is_accumulator && !is_one_of<Use, matrix_a, matrix_b>) return false;
    if (!is_accumulator && !is_one_of<Layout, row_major, col_major>) return false;
    if (k == 16) {
        if (!(m == 16 && n == 16) && !(m == 32 && n == 8) && !(m == 8 && n == 32)) return false;
        return is_accumulator ? is_one_of<T, __half, float, int>
                              : is_one_of<T, __half, __nv_bfloat16, signed char, unsigned char>;
    }
    if (m == 16 && n == 16 && k == 8)
        return is_accumulator ? is_one_of<T, float> : is_one_of<T, tf32>;
    if (is_small && k == 4) return is_one_of<T, double>;
    if (!is_small || (k != 32 && k != 128)) return false;
    if (is_accumulator) return is_one_of<T, int>;
    if (std::is_same_v<Use, matrix_a> != std::is_same_v<Layout, row_major>) return false;
    return k == 32 ? is_one_of<T, s4, u4> : is_one_of<T, b1>;
}

// The product of such fragments: of half, accumulators of two types.
template <class T, class D, class C>
constexpr bool multiplies =
    std::is_same_v<T, __half>
        ? is_one_of<D, __half, float> && is_one_of<C, __half, float>
        : std::is_same_v<D, C> && (std::is_same_v<T, double>           ? is_one_of<D, double>
                                   : is_one_of<T, __nv_bfloat16, tf32> ? is_one_of<D, float>
                                                                       : is_one_of<D, int>);

// As CUDA has it: what each lane holds, but of half always 16, since earlier hardware had most
// elements twice. The first ones count.
template <class Use, int m, int n, int k, class T>
constexpr int size_of() {
    if (std::is_same_v<Use, accumulator>) return m * n / 32;
    if (std::is_same_v<T, __half>) return 16;
    return (std::is_same_v<Use, matrix_a> ? m : n) * k / 32;
}

template <class T>
constexpr int packed = numbers<T>.bits && numbers<T>.bits < 8 ? 32 / numbers<T>.bits : 1;

template <class Use, int m, int n, int k, class T>
constexpr int storage_of = (size_of<Use, m, n, k, T>() + packed<T> - 1) / packed<T>;

template <class T>
using Storage = typename helper_traits<T>::storage_element_type;
template <class T>  // elements of less than a byte have no address
using Memory = std::conditional_t<packed<T> == 1, Storage<T>, void>;

template <class T>
constexpr int unit_bits = numbers<T>.bits == 64 ? 64 : 32;
template <class Use, int m, int n, int k, class T>
constexpr tensor_cores::Factor factor =
    tensor_cores::factor(std::is_same_v<Use, matrix_a>, std::is_same_v<Use, matrix_a> ? m : n,
                         k* numbers<T>.bits / unit_bits<T>);

template <class Use, int m, int n, int k, class T, class Layout, class Fragment>
SIMULATOR_INLINE void load(Fragment& to, const Memory<T>* p, unsigned ldm, const char* file,
                           int line) {
    constexpr tensor_cores::Factor matrix = factor<Use, m, n, k, T>;
    constexpr int bits = numbers<T>.bits, per_unit = unit_bits<T> / bits;
    constexpr int stored = unit_bits<T> / 8 / sizeof(Storage<T>);  // in the storage of a unit
    constexpr int count = matrix.units_of_lane() * stored;
    tensor_cores::wait_to_load(file, line);
    const int lane = lane_id();
    if constexpr (std::is_same_v<Use, matrix_a> == std::is_same_v<Layout, row_major>) {
        using Unit = tensor_cores::Vector<Storage<T>, stored>;
        tensor_cores::want_aligned<Unit>(p, size_t(ldm) * bits / 8, "load_matrix_sync", file, line);
        for (int i = 0; i < matrix.units_of_lane(); i++) {
            const auto at = matrix.place(lane, i);
            const size_t first = size_t(at.line) * ldm + at.unit * per_unit;
            const auto* from = reinterpret_cast<const char*>(p) + first * bits / 8;
            const Unit unit = *reinterpret_cast<const Unit*>(from);
            for (int e = 0; e < stored; e++) to.x[i * stored + e] = unit.x[e];
        }
    } else {
        for (int i = 0; i < count; i++) {
            const auto at = matrix.place(lane, i / stored);
            to.x[i] = p[size_t(at.unit * per_unit + i % stored) * ldm + at.line];
        }
    }
    for (int i = count; i < Fragment::num_storage_elements; i++) to.x[i] = to.x[i % count];
}

// Calls visit(i, where in memory, whether i and i + 1 are neighbours there) for an accumulator.
template <int m, int n, class Visit>
SIMULATOR_INLINE void for_each_element(unsigned ldm, layout_t layout, Visit visit) {
    const bool by_rows = layout == mem_row_major;
    const int lane = lane_id();
    if (by_rows != tensor_cores::has_columns(m, n)) {
        for (int i = 0; i < m * n / 32; i += 2) {
            const auto at = tensor_cores::element(m, n, lane, i);
            visit(i, by_rows ? size_t(at.row) * ldm + at.column : size_t(at.column) * ldm + at.row,
                  std::true_type());
        }
    } else {
        for (int i = 0; i < m * n / 32; i++) {
            const auto at = tensor_cores::element(m, n, lane, i);
            visit(i, by_rows ? size_t(at.row) * ldm + at.column : size_t(at.column) * ldm + at.row,
                  std::false_type());
        }
    }
}

}  // namespace simulator::wmma

namespace nvcuda {
namespace wmma {

template <class Use, int m, int n, int k, class T, class Layout = void>
class fragment : public __frag_base<T, simulator::wmma::size_of<Use, m, n, k, T>(),
                                    simulator::wmma::storage_of<Use, m, n, k, T>> {
    static_assert(simulator::wmma::exists<Use, m, n, k, T, Layout>(),
                  "nvcuda::wmma has no fragment of this shape, type and layout");
};

inline float __float_to_tf32(float in) {
    namespace ptx = simulator::ptx;
    return __uint_as_float(
        ptx::__ptx_tf32_of_f32<ptx::Tf32Round::rna, false, false>(__float_as_uint(in)));
}

template <class T, int size, int packed_size>
SIMULATOR_INLINE void fill_fragment(__frag_base<T, size, packed_size>& f,
                                    const typename helper_traits<T>::fill_argument_type& in) {
    auto value = in;
    if constexpr (simulator::wmma::packed<T> == 8) value = (in & 15) * 0x11111111u;
    if constexpr (simulator::wmma::packed<T> == 32) value = in & 1 ? ~0u : 0;
    for (auto& x : f.x) x = value;
}

template <int m, int n, int k, class T, class Layout>
SIMULATOR_INLINE void load_matrix_sync(fragment<matrix_a, m, n, k, T, Layout>& a,
                                       const simulator::wmma::Memory<T>* p, unsigned ldm,
                                       SIMULATOR_CALLER) {
    simulator::wmma::load<matrix_a, m, n, k, T, Layout>(a, p, ldm, file, line);
}

template <int m, int n, int k, class T, class Layout>
SIMULATOR_INLINE void load_matrix_sync(fragment<matrix_b, m, n, k, T, Layout>& b,
                                       const simulator::wmma::Memory<T>* p, unsigned ldm,
                                       SIMULATOR_CALLER) {
    simulator::wmma::load<matrix_b, m, n, k, T, Layout>(b, p, ldm, file, line);
}

template <int m, int n, int k, class T>
SIMULATOR_INLINE void load_matrix_sync(fragment<accumulator, m, n, k, T>& c,
                                       const simulator::wmma::Memory<T>* p, unsigned ldm,
                                       layout_t layout, SIMULATOR_CALLER) {
    using Two = simulator::tensor_cores::Vector<T, 2>;
    simulator::tensor_cores::wait_to_load(file, line);
    simulator::wmma::for_each_element<m, n>(
        ldm, layout, [&](int i, size_t at, auto are_neighbours) SIMULATOR_ALWAYS_INLINE {
            if constexpr (are_neighbours) {
                simulator::tensor_cores::want_aligned<Two>(
                    p, ldm * sizeof(T), "load_matrix_sync", file, line);
                const Two two = *reinterpret_cast<const Two*>(p + at);
                c.x[i] = two.x[0];
                c.x[i + 1] = two.x[1];
            } else {
                c.x[i] = p[at];
            }
        });
}

template <int m, int n, int k, class T>
SIMULATOR_INLINE void store_matrix_sync(simulator::wmma::Memory<T>* p,
                                        const fragment<accumulator, m, n, k, T>& d, unsigned ldm,
                                        layout_t layout, SIMULATOR_CALLER) {
    using Two = simulator::tensor_cores::Vector<T, 2>;
    simulator::tensor_cores::wait_to_store(file, line);
    simulator::wmma::for_each_element<m, n>(
        ldm, layout, [&](int i, size_t at, auto are_neighbours) SIMULATOR_ALWAYS_INLINE {
            if constexpr (are_neighbours) {
                simulator::tensor_cores::want_aligned<Two>(
                    p, ldm * sizeof(T), "store_matrix_sync", file, line);
                const Two two{{d.x[i], d.x[i + 1]}};
                *reinterpret_cast<Two*>(p + at) = two;
            } else {
                p[at] = d.x[i];
            }
        });
    simulator::tensor_cores::wait_to_store(file, line);
}

}  // namespace wmma
}  // namespace nvcuda

namespace simulator::wmma {

template <int m, int n, int k, class T, class La, class Lb, class D, class C>
SIMULATOR_INLINE void multiply(
    fragment<accumulator, m, n, k, D>& d, const fragment<matrix_a, m, n, k, T, La>& a,
    const fragment<matrix_b, m, n, k, T, Lb>& b, const fragment<accumulator, m, n, k, C>& c,
    bool saturate, bool is_and, const char* what, const char* file, int line) {
    static_assert(multiplies<T, D, C>, "nvcuda::wmma has no product of these types");
    constexpr bool is_half = std::is_same_v<D, __half> && std::is_same_v<C, __half>;
    // Half and float: computed in float.
    using Sum = std::conditional_t<std::is_same_v<D, C>, D, float>;
    constexpr int count = m * n / 32;
    Sum sums[count];
    for (int i = 0; i < count; i++) sums[i] = c.x[i];
    tensor_cores::Tile tile{numbers<T>.type, numbers<T>.type, numbers<Sum>.type, m, n, k};
    static_assert(is_half == (numbers<Sum>.type == Type::F16));
    tile.saturate = saturate;
    tile.is_and = is_and;
    tensor_cores::WarpFragments mine;
    mine.run = tensor_cores::multiply_warp_fragments;
    mine.tile = &tile;
    mine.a = a.x;
    mine.b = b.x;
    mine.d = sums;
    mine.file = file;
    mine.line = line;
    tell_product(tile, what, file, line);
    ptx::meet(mine, what, file, line);
    for (int i = 0; i < count; i++) d.x[i] = sums[i];
}

}  // namespace simulator::wmma

namespace nvcuda {
namespace wmma {

template <int m, int n, int k, class T, class La, class Lb, class D, class C>
SIMULATOR_INLINE void mma_sync(fragment<accumulator, m, n, k, D>& d,
                               const fragment<matrix_a, m, n, k, T, La>& a,
                               const fragment<matrix_b, m, n, k, T, Lb>& b,
                               const fragment<accumulator, m, n, k, C>& c, SIMULATOR_CALLER) {
    simulator::wmma::multiply(d, a, b, c, false, false, "mma_sync", file, line);
}

template <int m, int n, int k, class T, class La, class Lb>
SIMULATOR_INLINE void mma_sync(
    fragment<accumulator, m, n, k, int>& d, const fragment<matrix_a, m, n, k, T, La>& a,
    const fragment<matrix_b, m, n, k, T, Lb>& b, const fragment<accumulator, m, n, k, int>& c,
    bool satf = false, SIMULATOR_CALLER) {
    simulator::wmma::multiply(d, a, b, c, satf, false, "mma_sync", file, line);
}

using __bits = experimental::precision::b1;

SIMULATOR_INLINE void bmma_sync(
    fragment<accumulator, 8, 8, 128, int>& d,
    const fragment<matrix_a, 8, 8, 128, __bits, row_major>& a,
    const fragment<matrix_b, 8, 8, 128, __bits, col_major>& b,
    const fragment<accumulator, 8, 8, 128, int>& c,
    experimental::bmmaBitOp bits = experimental::bmmaBitOpXOR,
    experimental::bmmaAccumulateOp = experimental::bmmaAccumulateOpPOPC, SIMULATOR_CALLER) {
    simulator::wmma::multiply(
        d, a, b, c, false, bits == experimental::bmmaBitOpAND, "bmma_sync", file, line);
}

}  // namespace wmma
}  // namespace nvcuda
