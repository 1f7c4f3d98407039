// Kernels that are declared, named and launched in every way that nvcc takes.
#include <cstddef>

// ---- Defaults

constexpr int four() { return 4; }

__global__ void defaults(int* y, int n = four(), float scale = 2, const int* add = nullptr);

template <class T>
__global__ void defaults_of(T* y, T value = T(3), T more = T(1)) {
    y[threadIdx.x] = value + more;
}

struct Both {
    int tens, ones;
};
__global__ void in_braces(Both given, int* y, Both more = {1, 2}, int times = 1) {
    *y = (given.tens + more.tens) * times * 10 + given.ones + more.ones;
}

extern "C" void run_defaults(int* y) {
    defaults<<<1, 1>>>(y);
    defaults<<<1, 1>>>(y + 4, 3);
    defaults<<<1, 1>>>(y + 8, 2, 0.5);
    defaults<<<1, 1>>>(y + 12, {1}, {3}, y);
    defaults_of<int><<<1, 1>>>(y + 16);
    defaults_of<<<1, 1>>>(y + 17, 5);
    defaults_of<int><<<1, 1>>>(y + 18, '\2', 5.5f);
    in_braces<<<1, 1>>>({1, 2}, y + 19);
    in_braces<<<1, 1>>>({1, 2}, y + 20, {3, 4});
    in_braces<<<1, 1>>>({1, 2}, y + 21, {3, 4}, {2});
}

// Defined after its launch; its defaults stand with the declaration.
__global__ void defaults(int* y, int n, float scale, const int* add) {
    for (int i = 0; i < n; i++) y[i] = int(scale * (i + 1)) + (add ? *add : 0);
}

// ---- Bounds

template <int kThreads>
struct Shape {
    static constexpr int threads = kThreads, blocks = 2;
};
#define MOST(shape) (shape::threads * 2)

template <class S>
__global__ void __launch_bounds__(S::threads << 1, S::blocks > 2 ? 4 : 1) bounded(int* y) {
    y[threadIdx.x] = S::threads;
}
static __global__ __launch_bounds__(MOST(Shape<16>)) void bounded_by_macro(int* y) {
    y[threadIdx.x] = 5;
}

// ---- Scopes

namespace {
__global__ void unnamed(int* y) { y[0] = 1; }
template <int n>
__global__ void unnamed_of(int* y);
}  // namespace

namespace outer {
inline namespace inner {
static __global__ void scoped(int* y) { y[0] = 2; }
}  // namespace inner
class Owner {
  public:
    void run(int* y) const;

  private:
    friend __global__ void befriended(int* y, Owner owner);
    int secret = 3;
};
__global__ void befriended(int* y, Owner owner) { y[0] = owner.secret; }
void Owner::run(int* y) const { befriended<<<1, 1>>>(y, *this); }
}  // namespace outer

namespace {
template <int n>
__global__ void unnamed_of(int* y) {
    y[0] = n;
}
}  // namespace

extern "C" void run_scopes(int* y) {
    unnamed<<<1, 1>>>(y);
    outer::scoped<<<1, 1>>>(y + 1);
    outer::Owner().run(y + 2);
    unnamed_of<4><<<1, 1>>>(y + 3);
    bounded_by_macro<<<1, 32>>>(y + 4);
    bounded<Shape<32>><<<1, 64>>>(y + 64);
}

// ---- Pointers

template <int n>
__global__ void number(int* y, int) {
    y[0] = n;
}
using Kernel = void (*)(int*, int);
struct Choice {
    Kernel kernel;
    int at;
};

template <template <class> class Holder, class T>
__global__ void held(T* y, Holder<T> holder) {
    y[0] = holder.value;
}
template <class T>
struct Holder {
    T value;
};

template <Kernel kernel>
void through_argument(int* y) {
    kernel<<<1, 1>>>(y, 0);
}
template <class K>
void through_parameter(K kernel, int* y) {
    kernel<<<dim3(1), dim3(1)>>>(y, 0);
}
template <class K, class... Arguments>
void forward(K&& kernel, int blocks, Arguments... arguments) {
    kernel<<<blocks, 1>>>(arguments...);
}

extern "C" void run_pointers(int* y) {
    Kernel kernels[] = {number<1>, number<2>, &number<3>};
    for (int i = 0; i < 3; i++) kernels[i]<<<1, 1>>>(y + i, 0);
    const Choice choice{number<4>, 3}, *pointer = &choice;
    choice.kernel<<<1, 1>>>(y + choice.at, 0);
    pointer->kernel<<<1, 1>>>(y + 4, 0);
    (*kernels)<<<1, 1>>>(y + 5, 0);
    auto kernel = y ? number<6> : number<7>;
    kernel<<<1, 1>>>(y + 6, 0);
    (y ? number<8> : number<9>)<<<1, 1>>>(y + 7, 0);
    through_argument<number<10>>(y + 8);
    through_parameter(number<11>, y + 9);
    forward(number<12>, 1, y + 10, 0);
    held<Holder><<<1, 1>>>(y + 11, Holder<int>{13});
    number<(14 > 13)><<<1, 1>>>(y + 12, 0);
}

// ---- Macros

#define LAUNCH(kernel, blocks, threads, ...) kernel<<<(blocks), (threads)>>>(__VA_ARGS__)
#define LAUNCH_OF(kernel, ...)               \
    do {                                     \
        kernel<__VA_ARGS__><<<1, 1>>>(y, 0); \
        y++;                                 \
    } while (0)
#define GRID 1, 1
#define NAME(n) number<n>
#define CASE(n)                              \
    case n:                                  \
        number<n + 1><<<1, 1, 0, 0>>>(y, n); \
        break

extern "C" void run_macros(int* y, int which) {
    LAUNCH(number<1>, 1, 1, y++, 0);
    LAUNCH((number<2>), 1, 1, y++, 0);
    LAUNCH_OF(number, 3);
    NAME(4)<<<1, 1>>>(y++, 0);
    number<5><<<GRID>>>(y++, 0);
    switch (which) {
        CASE(0);
        CASE(1);
    }
}
