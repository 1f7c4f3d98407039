"""The rewriting of CUDA's two spellings, on sources that are hard to read for a scanner."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.device_code import DeviceCode, Load
from simulator.rewrite import Unsupported, rewrite
from simulator.scan import blank


def rewritten(text: str) -> str:
    line, _, rest = rewrite(text, "dir/x.cu").partition("\n")
    assert line == '#line 1 "dir/x.cu"'
    return rest


LAUNCHES = {
    "k<<<1, 2>>>(x)": "SIMULATOR_KERNEL(k)(1, 2)(x)",
    "ns::k<T, N><<<g, b, n * 4, s>>>(x, y)": "SIMULATOR_KERNEL(ns::k<T, N>)(g, b, n * 4, s)(x, y)",
    "::k<int><<<g, b>>>()": "SIMULATOR_KERNEL(::k<int>)(g, b)()",
    "return ::k<<<g, b>>>()": "return SIMULATOR_KERNEL(::k)(g, b)()",
    "A<B<int>>::k<<<g, b>>>(x)": "SIMULATOR_KERNEL(A<B<int>>::k)(g, b)(x)",
    "T::template k<3><<<g, b>>>(x)": "SIMULATOR_KERNEL(T::template k<3>)(g, b)(x)",
    "k<(a > b)><<<g, b>>>(x)": "SIMULATOR_KERNEL(k<(a > b)>)(g, b)(x)",
    "k<(a >> 1), c << 2><<<g, b>>>(x)": "SIMULATOR_KERNEL(k<(a >> 1), c << 2>)(g, b)(x)",
    "k<A<B<C>>><<<g, b>>>(x)": "SIMULATOR_KERNEL(k<A<B<C>>>)(g, b)(x)",
    "k<sizeof(T) / f(1, 2)><<<g, b>>>(x)": "SIMULATOR_KERNEL(k<sizeof(T) / f(1, 2)>)(g, b)(x)",
    "k<decltype(p->x)><<<g, b>>>(x)": "SIMULATOR_KERNEL(k<decltype(p->x)>)(g, b)(x)",
    "table[i + 1]<<<g, b>>>(x)": "SIMULATOR_KERNEL(table[i + 1])(g, b)(x)",
    "pick<T>(n)<<<g, b>>>(x)": "SIMULATOR_KERNEL(pick<T>(n))(g, b)(x)",
    "self->table.kernel<<<g, b>>>(x)": "SIMULATOR_KERNEL(self->table.kernel)(g, b)(x)",
    "(k<T>)<<<g, b>>>(x)": "SIMULATOR_KERNEL((k<T>))(g, b)(x)",
    "if (n) k<<<g, b>>>(x)": "if (n) SIMULATOR_KERNEL(k)(g, b)(x)",
    "else k<<<g, b>>>(x)": "else SIMULATOR_KERNEL(k)(g, b)(x)",
    "n ? k<<<g, b>>>(x) : j<<<h, c>>>(y)": (
        "n ? SIMULATOR_KERNEL(k)(g, b)(x) : SIMULATOR_KERNEL(j)(h, c)(y)"
    ),
    "k << <g, b >> > (x)": "SIMULATOR_KERNEL(k )(g, b ) (x)",
    "k<T> << <n >> 2, f(1) << 5 >> >(x)": "SIMULATOR_KERNEL(k<T> )(n >> 2, f(1) << 5 )(x)",
    "k<<<n >> 2, 1 << 5>>>(x)": "SIMULATOR_KERNEL(k)(n >> 2, 1 << 5)(x)",
    "k<<<(n > 2), f(a < b)>>>(x)": "SIMULATOR_KERNEL(k)((n > 2), f(a < b))(x)",
    "k<<<n < 3 ? n : 3, 32>>>(x)": "SIMULATOR_KERNEL(k)(n < 3 ? n : 3, 32)(x)",
    "k<<<n<3 ? 1 : 2, 32>>>(x)": "SIMULATOR_KERNEL(k)(n<3 ? 1 : 2, 32)(x)",
    "k<<<cdiv<4>(n), b>>>(x)": "SIMULATOR_KERNEL(k)(cdiv<4>(n), b)(x)",
    "k<<<f<A<B<int>>>(n), b>>>(x)": "SIMULATOR_KERNEL(k)(f<A<B<int>>>(n), b)(x)",
    "k<<<dim3{1, 2}, {3, 4}>>>(x)": "SIMULATOR_KERNEL(k)(dim3{1, 2}, {3, 4})(x)",
    "k <<< g , b >>> (x)": "SIMULATOR_KERNEL(k )( g , b ) (x)",
    "k<<<g, /* >>>( */ b>>>(x)": "SIMULATOR_KERNEL(k)(g, /* >>>( */ b)(x)",
    "k /* <<< */ <<<g, b>>>(x)": "SIMULATOR_KERNEL(k /* <<< */ )(g, b)(x)",
    "k<<<g, // <<<1, 2>>>(\n b>>>\n(x)": "SIMULATOR_KERNEL(k)(g, // <<<1, 2>>>(\n b)\n(x)",
    "k<'<', '>'><<<g, b>>>('>')": "SIMULATOR_KERNEL(k<'<', '>'>)(g, b)('>')",
    "#define L(n, ...) n##_k<T><<<g, b>>>(__VA_ARGS__)": (
        "#define L(n, ...) SIMULATOR_KERNEL(n##_k<T>)(g, b)(__VA_ARGS__)"
    ),
    "#define L(k) \\\n  k<int, \\\n 4><<<g, \\\n b>>>(x)": (
        "#define L(k) \\\n  SIMULATOR_KERNEL(k<int, \\\n 4>)(g, \\\n b)(x)"
    ),
    "k<1'000><<<1'0, b>>>(x)": "SIMULATOR_KERNEL(k<1'000>)(1'0, b)(x)",
    "auto f = [&] { k<<<g, b>>>(x); };": "auto f = [&] { SIMULATOR_KERNEL(k)(g, b)(x); };",
    "a_##t##_k < < < g, b > > > (x)": "SIMULATOR_KERNEL(a_##t##_k )( g, b ) (x)",
    "k<<<g, b>>>([=] { j<<<1, 1>>>(2); })": (
        "SIMULATOR_KERNEL(k)(g, b)([=] { SIMULATOR_KERNEL(j)(1, 1)(2); })"
    ),
}


@pytest.mark.parametrize("source", LAUNCHES)
def test_launches(source):
    assert rewritten(source) == LAUNCHES[source]


@pytest.mark.parametrize(
    "text",
    [
        "a << b >> c",
        "A<B<C<int>>> x(1);",
        "A<B<C<int>>> f(int);\nint y = 1 << 3;",
        '"k<<<1, 2>>>(x)"',
        "// k<<<1, 2>>>(x)",
        "// continued \\\n k<<<1, 2>>>(x)",
        "/* k<<<1, 2>>>(x)\n */",
        'R"(k<<<1, 2>>>("x"))"',
        'u8R"ab(k<<<1, 2>>>(x) )" )ab"',
        r'"a \" k<<<1, 2>>>(x)"',
        "'\"' + 1; // '\"'",
        '#include "k<<<1>>>.h"',
        "<<<<<<< HEAD\n>>>>>>> branch",
        "std::cout << x << y;",
        "",
    ],
)
def test_what_is_not_a_launch_stays(text):
    assert rewritten(text) == text


@pytest.mark.parametrize(
    ("declaration", "expected"),
    [
        ("extern __shared__ float s[];", "DYNAMIC  float s[] NAME;"),
        ("extern __shared__ __align__(16) char s[];", "DYNAMIC  __align__(16) char s[] NAME;"),
        ("extern __align__(16) __shared__ T s[];", "DYNAMIC __align__(16)  T s[] NAME;"),
        ("extern volatile __shared__ int s[];", "DYNAMIC volatile  int s[] NAME;"),
        ("extern\n __shared__ A<B, 3> s[][4];", "DYNAMIC\n  A<B, 3> s[][4] NAME;"),
        ("#define S(T) extern __shared__ T s[]", "#define S(T) DYNAMIC  T s[] NAME"),
        ("namespace a::b { extern __shared__ T s[]; }", "namespace a::b { DYNAMIC  T s[] NAME; }"),
        (
            "void f() { extern __shared__ T s[][4]; }",
            "void f() { typedef  T simulator_s[][4];"
            " SIMULATOR_DYNAMIC_SHARED_HERE(simulator_s, s); }",
        ),
        (
            "void f() { extern __shared__ A<B, 3> s; }",
            "void f() { typedef  A<B, 3> simulator_s;"
            " SIMULATOR_DYNAMIC_SHARED_HERE(simulator_s, s); }",
        ),
        ("__shared__ float s[32];", "__shared__ float s[32];"),
        ("extern int x; __shared__ int y[2];", "extern int x; __shared__ int y[2];"),
        (
            'extern "C" void f() { __shared__ int y[2]; }',
            'extern "C" void f() { __shared__ int y[2]; }',
        ),
        ("// extern __shared__ float s[];", "// extern __shared__ float s[];"),
    ],
)
def test_dynamic_shared_memory(declaration, expected):
    expected = re.sub(r"\bDYNAMIC\b", "SIMULATOR_DYNAMIC_SHARED", expected)
    expected = re.sub(r"\bNAME\b", "SIMULATOR_DYNAMIC_SHARED_NAME", expected)
    assert rewritten(declaration) == expected


@pytest.mark.parametrize(
    ("declaration", "expected"),
    [
        ("__shared__ alignas(8) int a[4];", "alignas(8) __shared__  int a[4];"),
        (
            "  __shared__\n alignas(alignof(float4))\n  T a;",
            "  alignas(alignof(float4)) __shared__\n \n  T a;",
        ),
        ("alignas(8) __shared__ int a;", "alignas(8) __shared__ int a;"),
    ],
)
def test_alignment_comes_before_shared(declaration, expected):
    assert rewritten(declaration) == expected


def test_launch_bounds_are_said_again_in_the_body():
    bounds = "__launch_bounds__(max(N, 32),\n 2)"
    assert rewritten(f"void {bounds} k(int (*f)(int)) {{}}") == (
        f"void {bounds} k(int (*f)(int)) {{ SIMULATOR_LAUNCH_BOUNDS(max(N, 32), 2)}}"
    )
    for text in (f"void {bounds} k(int n);", f"{bounds} // {{"):
        assert rewritten(text) == text


@pytest.mark.parametrize(
    ("statement", "is_marked"),
    [
        ("cudaFree(p);", True),
        ("if (p) cudaFree(p);", True),
        ("if (p) {} else cudaFree(p);", True),
        ("for (;;) cudaFree(p);", True),
        ("cudaError_t e = cudaFree(p);", False),
        ("cudaError_t e{cudaFree(p)};", False),
        ("CHECK(cudaFree(p));", False),
        ("(void)cudaFree(p);", False),
        ("for (int i = 0; cudaFree(p), i < 2;) {}", False),
        ("cudaGetLastError();", False),
        ("struct cudaThing { cudaThing(int); };", False),
    ],
)
def test_a_call_whose_error_is_dropped_is_marked(statement, is_marked):
    text = rewrite(f"void f(float* p) {{ {statement} }}", "x.cu")
    assert ("Dropped" in text) == is_marked


def test_noinline_where_it_is_not_an_attribute_already():
    assert rewritten("__noinline__ int f();") == "__attribute__((noinline)) int f();"
    assert rewritten("__device__ __noinline__ int f();").endswith(
        "__attribute__((noinline)) int f();"
    )
    kept = "__attribute__((__noinline__)) int f();"
    assert rewritten(kept) == kept


def test_a_path_with_quotes():
    assert rewrite("", 'a"b\\c.cu') == '#line 1 "a\\"b\\\\c.cu"\n'


UNSUPPORTED = [
    ('asm volatile("tcgen05.wait::all.sync.aligned;");', "tcgen05.wait::all.sync.aligned"),
    ('__asm__("mov.u32 %0, %nothing;" : "=r"(x));', "nothing"),
    ('asm("ld." SPACE ".u32 %0, [%1];" : "=r"(x) : "l"(p));', "macros (SPACE)"),
    ('asm("add.s32 %0, %1, 1;" : OUT(x) : "r"(y));', "macros (OUT)"),
    ('asm("mov.u32 %0, %3;" : "=r"(x) : "r"(y));', "2 operands"),
    ('asm("bra there;");', "no such label"),
    ("cg::this_multi_grid().sync();", "one device"),
    ("#include <cub/device/device_topk.cuh>", "CUB"),
    ("#include <thrust/system/cuda/vector.h>", "Thrust"),
    ("curandCreateGenerator(&generator, CURAND_RNG_PSEUDO_MTGP32);", "cuRAND"),
    ("curandStateMtgp32 state;", "cuRAND"),
    ("cudaExternalMemory_t memory;", "among processes"),
    ("__global__ void k() { k<<<1, 1>>>(); }", "from device code"),
    ("__device__ void f() { if (x) k<int><<<1, 1, 0, 0>>>(); }", "from device code"),
    ("__global__ void k(int* x) { std::cout << x[0]; }", "C++'s streams"),
    ("__device__ inline void f() { if (x) cerr<< 1; }", "C++'s streams"),
    ("__global__ int k(int* x) { return x[0]; }", "returns void"),
    ("template <class T> __global__ static unsigned int* k(T x) { return 0; }", "returns void"),
]


@pytest.mark.parametrize(("code", "word"), UNSUPPORTED)
def test_what_cannot_run_names_its_place(code, word):
    with pytest.raises(Unsupported) as caught:
        rewrite(f"int a;\n/* asm( */ \n  {code}\n", "kernels/x.cu")
    error = caught.value
    begin = 3 + min(
        code.find(found) for found in ("asm", "__asm__", *code.split()) if found in code
    )
    assert (error.path, error.line) == ("kernels/x.cu", 3)
    assert 3 <= error.column <= begin + len(code)
    assert word in error.message
    assert error.hint
    assert str(error).startswith(f"kernels/x.cu:3:{error.column}: ")


def test_code_of_the_host_and_the_device_may_launch():
    rewrite("__host__ __device__ void f() { k<<<1, 1>>>(); }\n__global__ void k();", "x.cu")


def test_a_kernel_may_spell_void_in_other_ways():
    rewrite("__global__ __launch_bounds__(32) void k();\n__global__ static void k();", "x.cu")
    rewrite("template <class T> __global__ enable_if_t<is_same_v<T, int>> k(T);", "x.cu")
    rewrite("void __global__ f(int x); __global__ auto k(int* x) -> void;", "x.cu")


def test_the_column_is_that_of_the_code():
    with pytest.raises(Unsupported) as caught:
        rewrite('\n    int x; asm("nop");', "x.cu")
    assert (caught.value.line, caught.value.column) == (2, 12)


PTX = 'asm("nop");'


@pytest.mark.parametrize(
    "text",
    [
        f"#if PLAYGROUND_CUDA\n{PTX}\n#endif",
        f"#ifdef __CUDA_ARCH__\n{PTX}\n#else\nint x;\n#endif",
        f"#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800\n{PTX}\n#endif",
        f"#if __CUDA_ARCH__ >= 800 && FLAG\n#if OTHER\n{PTX}\n#endif\n#endif",
        f"#ifndef __CUDA_ARCH__\nint x;\n#else\n{PTX}\n#endif",
        f"#if !PLAYGROUND_CUDA\nint x;\n#elif FLAG\n{PTX}\n#else\n{PTX}\n#endif",
        f"#  if ! defined __CUDACC__\n{PTX}\n#endif",
        f"#if PLAYGROUND_CUDA \\\n  && 1\n{PTX}\n#endif",
        f"// {PTX}",
        "int masm(int); int y = masm(3);",
    ],
)
def test_what_the_preprocessor_drops_may_stand(text):
    assert rewritten(text) == text.replace("__CUDACC__", "SIMULATOR_CUDACC")


@pytest.mark.parametrize(
    "branches",
    [
        f"#if __CUDA_ARCH__ < 900\n{PTX}\n#endif",
        f"#ifndef __CUDA_ARCH__\n{PTX}\n#endif",
        f"#if PLAYGROUND_CUDA && __CUDA_ARCH__ >= 800\n{PTX}\n#endif",
        f"#if __CUDA_ARCH__ >= 800\n#else\n{PTX}\n#endif",
    ],
)
def test_what_the_preprocessor_drops_in_a_kernel_may_stand(branches):
    rewritten(f"__global__ void k() {{\n{branches}\n}}")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (f"__global__ void k() {{\n#if __CUDA_ARCH__ >= 800\n{PTX}\n#endif\n}}", 3),
        (f"__device__ int f() {{\n#ifdef __CUDA_ARCH__\n{PTX}\n#endif\n}}", 3),
        (f"#define D __device__\nD int f() {{\n#ifdef __CUDA_ARCH__\n{PTX}\n#endif\n}}", 4),
        (f"#if __CUDA_ARCH__ >= 800\n__device__ int f() {{ {PTX} }}\n#endif", 2),
        (f"#if defined(__CUDACC__)\n{PTX}\n#endif", 2),
    ],
)
def test_ptx_that_the_device_would_run_is_refused_at_its_line(text, line):
    with pytest.raises(Unsupported, match="inline PTX") as caught:
        rewrite(text, "x.cu")
    assert caught.value.line == line


def test_ptx_in_a_macro_is_refused_where_the_macro_is_used():
    text = rewrite(f"#define COPY \\\n  {PTX}\nint x;", "x.cu")
    assert '__ptx_unknown("inline PTX that the simulator does not know: nop")' in text


@pytest.mark.parametrize(
    "text",
    [
        f"#if FLAG\n{PTX}\n#endif",
        f"#ifndef __CUDA_ARCH__\n{PTX}\n#endif",
        f"#if PLAYGROUND_CUDA\nint x;\n#else\n{PTX}\n#endif",
        f"#if PLAYGROUND_CUDA || FLAG\n{PTX}\n#endif",
        f"#if PLAYGROUND_CUDA\nint x;\n#endif\n{PTX}",
    ],
)
def test_what_a_cpu_would_compile_may_not(text):
    with pytest.raises(Unsupported):
        rewrite(text, "x.cu")


def device_lines(text: str, *others: str) -> set[int]:
    return DeviceCode(text, blank(text), Load.of([text, *others])).lines


ARCH = "\n#if __CUDA_ARCH__ > 1\n#endif\n"


@pytest.mark.parametrize(
    "before",
    [
        "__device__ int f() {",
        "__global__ void __launch_bounds__(f(2, 3)) k(int (*f)(int), A<1, 2> b = {}) {",
        "struct A { __device__ A() : B<int>{1}, x(2), y{3} {",
        "__host__ __device__ bool operator==(A b) const noexcept(true) {",
        "__device__ T& operator()(int i) {",
        "auto g() -> int; __device__ auto f() -> A<B> {",
        "[=] __device__ (int i) mutable {",
        "template <int n> __device__ std::enable_if_t<(n >= 2), int> f() {",
        "__device__ int x = 1, t[] = {1, 2}; __device__ int f() {",
        "#if A\n__global__ void k(int a) {\n#else\n__global__ void k() {\n#endif",
        "__device__ void f() { if (x) {\n#if A\n if (a) {\n#else\n if (b) {\n#endif\n}",
    ],
)
def test_where_device_code_begins_and_ends(before):
    """In a function's body, and nowhere behind it."""
    line = before.count("\n") + 2
    text = f"{before}{ARCH}}} }}\nvoid host() {{{ARCH}}}"
    lines = device_lines(text)
    assert {line, line + 1, line + 2} <= lines
    assert max(lines) == line + 2


@pytest.mark.parametrize(
    "before",
    [
        "__device__ int f();\nint g() {",
        "__device__ int x = 3, y[] = {1};\nint g() {",
        "// __device__\nint g() {",
        "#define D(x) __device__ x {\nint g() {",
        "struct S { __device__ S() = default; int g() {",
    ],
)
def test_what_is_no_device_code(before):
    assert not device_lines(f"{before}{ARCH}}}")


def test_what_marks_device_code_may_be_a_macro_of_another_file():
    text = f"HD int f() {{{ARCH}}}"
    assert not device_lines(text)
    assert device_lines(text, "#define D __device__ \\\n inline", "#  define HD __host__ D")


@pytest.mark.parametrize(
    ("code", "header"),
    [
        ("y = __fadd_rd(a, b) + __double2float_rz(c);", "rounding"),
        ("#define DOWN(f) f##_rd", "rounding"),
        ("y = __vabsdiffu4(a, b);", "simd"),
        ("y = __viaddmax_s32_relu(a, b, c);", "simd"),
        ("y = cospif(x);", "special"),
        ("sincos(x, &s, &c);", "special"),
        ("y = __float2int_rd(x); __volatile__ int norm; // sinpi", None),
    ],
)
def test_rare_functions_bring_their_headers(code, header):
    expected = f"#include <simulator/{header}.h>\n" if header else ""
    assert rewrite(code, "x.cu") == f'{expected}#line 1 "x.cu"\n{code}'


names = st.sampled_from(["k", "ns::k", "k<T>", "k<int, 4>", "k<A<B<int>>>", "A<B>::k", "t[2]"])
values = st.sampled_from(
    ["1", "n >> 2", "(a > b)", "f(x, y)", "f<3>(x)", "dim3(1, 2)", "s[1 << 2]"]
)
gaps = st.sampled_from(["", " ", "\n", "/* >>> */", "// <<<\n"])
others = st.sampled_from(
    ["int x = a << b;", '"k<<<";', "// <<<1>>>(\n", "A<B<C<D>>> y;", "if (a > b) {}", "\n", "'<';"]
)


@given(st.lists(st.tuples(others, names, values, values, gaps, gaps, values), max_size=5))
def test_launches_among_other_code(parts):
    source, expected = "", ""
    for other, name, grid, block, before, after, argument in parts:
        source += f"{other} {name}<<<{grid},{before}{block}{after}>>>{before}({argument});"
        expected += (
            f"{other} SIMULATOR_KERNEL({name})({grid},{before}{block}{after}){before}({argument});"
        )
    assert rewritten(source) == expected


@given(st.text(alphabet="k<>(),;{}[]\"'\\\n/*R#if asm01 .:", max_size=60))
def test_any_text_keeps_its_lines(text):
    """Whatever the text, nothing breaks, and each line stays where it was."""
    try:
        after = rewritten(text)
    except Unsupported:
        return
    assert after.count("\n") == text.count("\n")
    plain = re.sub(r"SIMULATOR_KERNEL\(|SIMULATOR_DYNAMIC_SHARED(_NAME)?", "", after)
    assert re.sub(r"[<>()]", "", plain) == re.sub(r"[<>()]", "", text)


def test_a_function_that_is_handed_on_need_not_be_inlined():
    larger = "__device__ __forceinline__ float larger(float a, float b) { return a > b ? a : b; }\n"
    called = "float y = larger(a, (b));\n"
    assert rewrite(larger + called, "x.cuh").endswith(larger + called)
    handed = "y = cg::reduce(warp, y, larger);"
    assert "__device__ inline float larger" in rewrite(larger + called + handed, "x.cuh")


def test_branches_that_open_one_function_each_leave_none_open():
    branches = "#if A\nvoid f() {\n#else\nvoid g() {\n#endif\n}\n"
    shared = rewrite(f"{branches}extern __shared__ int s[];\n", "x.cu")
    assert "SIMULATOR_DYNAMIC_SHARED  int s[] SIMULATOR_DYNAMIC_SHARED_NAME;" in shared


def test_functions_that_call_each_other_may_be_inlined_and_need_not():
    """g++ refuses a function that it must inline and cannot; CuTe's rotl and rotr are such."""
    text = """\
#define BOTH __forceinline__ __host__ __device__
template <class T> BOTH constexpr T left(T x, int s);
template <class T> BOTH constexpr T right(T x, int s) { return s < 0 ? left(x, -s) : x >> s; }
template <class T> BOTH constexpr T left(T x, int s) { return s < 0 ? right(x, -s) : x << s; }
__device__ __forceinline__ int even(int n);
__device__ __forceinline__ int odd(int n) { return n ? even(n - 1) : 0; }
__device__ __forceinline__ int even(int n) { return n ? odd(n - 1) : 1; }
BOTH int other(int x) { return __CUDA_ARCH__ + left(x, even(x)); }
"""
    after = rewritten(text)
    assert after.count("BOTH") == 2  # its definition, and other
    assert after.count("__forceinline__") == 1
    assert "BOTH int other" in after
