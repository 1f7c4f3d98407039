"""Beginners' mistakes that nvcc refuses and a C++ compiler takes, or blames on another line."""

import os
import re
import shutil
import subprocess

import pytest
import torch

import jitload
from simulator.rewrite import Unsupported, rewrite

MISTAKES = {
    "an inner brace": (
        "__global__ void k(int* y) {\n    if (y) {\n        y[0] = 1;\n}\n\n"
        "__global__ void two(int* y) { y[0] = 2; }\n",
        (2, 12, "is never closed"),
    ),
    "an outer brace, and comments and strings": (
        "__global__ void k(int* y) { // }\n    if (*y) { /* } */ y[0] = '}'; }\n\n"
        "__global__ void two(int* y) { y[0] = 2; }\n",
        (1, 27, "is never closed"),
    ),
    "a brace of the host": (
        '__global__ void k() {}\nextern "C" void go() {\n    k<<<1, 1>>>();\n',
        (2, 22, "is never closed"),
    ),
    "a call": (
        '__global__ void k(int* y) {}\nextern "C" void go(int* y) {\n    k(y);\n}\n',
        (3, 5, "k is a kernel: it is launched, and not called"),
    ),
    "a call of an instance": (
        "template <class T>\n__global__ void k(T* y) {}\nvoid go(int* y) { k<int>(y); }\n",
        (3, 19, "k is a kernel"),
    ),
    "a call in a kernel": (
        "__global__ void k(int* y);\n__global__ void two(int* y) {\n  *y = 2; k(y);\n}\n",
        (3, 11, "k is a kernel"),
    ),
    "an array with values": (
        "__global__ void k() {\n    __shared__ float row[32] = {0};\n}\n",
        (2, 30, "takes no initial value"),
    ),
    "a variable with a value": (
        "__global__ void k() { __shared__ alignas(8) unsigned long long count = 0; }\n",
        (1, 70, "takes no initial value"),
    ),
    "an array that is too large": (
        "__global__ void k() {\n    __shared__ float tile[100][1000];\n}\n",
        (2, 22, "tile takes 400,000 bytes of __shared__ memory, and a block may have 49,152"),
    ),
    "one of a constant's size": (
        "constexpr int N = 2 * 64;\n__global__ void k() { __shared__ double t[N][N + 1]; }\n",
        (2, 41, "t takes 132,096 bytes"),
    ),
    "the second of two": (
        "__global__ void k() { __shared__ volatile float a[8], b[100][1000]; }\n",
        (1, 55, "b takes 400,000 bytes"),
    ),
}

INNOCENT = {
    "an extent in parentheses": "__global__ void k(int* y) { __shared__ int a[2 * (4 + 1)]; }\n",
    "arrays that fit, or whose sizes are not known": "#define N 64\nconstexpr int M = N;\n"
    "template <int K> __global__ void k() {\n    extern __shared__ float all[100000];\n"
    "    __shared__ double a[N * N];\n    __shared__ float b[12288], c[K * 100000], d[M];\n"
    "}\n",
    "an instance and a declaration": "template <class T> __global__ void k(T* y) {}\n"
    "template __global__ void k<int>(int*);\n__global__ void two(int* y);\n"
    "__global__ void __launch_bounds__(32)\ntwo(int* y);\n",
    "a function of the same name": "__global__ void add(int* y) {}\n"
    "void add(int* y, int n) { add<<<1, n>>>(y); }\nvoid go(int* y) { add(y, 1); }\n",
    "a method": "__global__ void add(int* y) {}\n"
    "void go(Sum s, int* y) { s.add(y); Sum::add(y); }\n",
    "a macro": "__global__ void add_kernel(int* y) {}\n#define add_kernel(y) launch(y)\n"
    "void go(int* y) {\n  add_kernel(y);\n}\n",
    "a variable": "__global__ void k(int* y) {}\nvoid go(int* y) { auto k = other; k(y); }\n",
    "branches": "void f() {\n#if A\n  if (a) {\n#else\n  if (b) {\n#endif\n  }\n}\n",
    "a dropped one": "#if PLAYGROUND_CUDA\n__global__ void k() { __shared__ int n = 0; }\n#endif\n",
    "a comparison": "__global__ void k() { __shared__ int n; if (n == 0) n = 1; }\n",
}

FUNCTION = "inline float halved(float x, int times = 1) { return x / 2; }\n"
KERNEL = "__global__ void k(float* y) { y[0] = halved(y[0]); }\n"
SCALE = "float scale = 2;\n"
OF_THE_HOST = {  # nvcc refuses these, too
    "a function": (FUNCTION + KERNEL, (2, 38, "calls halved, which is a function of the host")),
    "a function template": (
        "template <class T> T halved(T x) { return x / 2; }\n" + KERNEL,
        (2, 38, "calls halved"),
    ),
    "one called by another": (
        f"namespace mine {{\n{FUNCTION}__device__ float g(float x) {{ return halved(x, 2); }}\n}}",
        (3, 38, "calls halved"),
    ),
    "in a kernel's template": (
        FUNCTION + "template <class T> __global__ void k(T* y) { *y = halved(*y); }\n"
        "void go(float* y) { k<<<1, 1>>>(y); }\n",
        (2, 51, "calls halved"),
    ),
    "a variable": (
        SCALE + "__global__ void k(float* y) { *y *= scale; }\n",
        (2, 37, "uses scale, which is a variable of the host"),
    ),
    "an array of constants": (
        "constexpr float row[2] = {1, 2};\n"
        "__global__ void k(float* y) { *y = row[threadIdx.x]; }\n",
        (2, 36, "uses row, which is a variable of the host"),
    ),
    "random numbers": (
        "#include <cstdlib>\n__global__ void k(float* y) { *y = rand(); }\n",
        (2, 36, "uses rand, which C..'s library has for the host alone"),
    ),
    "a container": (
        "#include <vector>\n__global__ void k(float* y) { std::vector<float> v(3); *y = v[0]; }\n",
        (2, 31, "uses std::vector, which C..'s library has"),
    ),
}
OF_BOTH = {  # and takes these
    "constexpr": FUNCTION.replace("inline", "constexpr") + KERNEL,
    "both": FUNCTION.replace("inline", "__host__ __device__") + KERNEL,
    "an overload": FUNCTION + "__device__ float halved(float* y) { return *y; }\n"
    "__global__ void k(float* y) { *y = halved(y); }\n",
    "in another branch": FUNCTION + "__global__ void k(float* y) {\n#ifndef __CUDA_ARCH__\n"
    "  *y = halved(*y);\n#endif\n}\n",
    "a size": FUNCTION + "__global__ void k(float* y) { *y = sizeof(halved(*y)); }\n",
    "a function's parameter": SCALE + "__global__ void k(float* y, float scale) { *y = scale; }\n",
    "a variable within": SCALE
    + "__global__ void k(float* y) { float a = 1, scale = a; *y = scale; }\n",
    "a pointer": SCALE
    + "__global__ void k(float* y, const float* __restrict__ scale) { *y = *scale; }\n",
    "a member": SCALE
    + "struct S { float scale; __device__ float of(float x) { return scale * x; } };\n"
    "__global__ void k(S s, float* y) { *y = s.scale + s.of(1); }\n",
    "a lambda": FUNCTION + "__global__ void k(float* y) {\n"
    "  auto halved = [](float x) { return x / 2; };\n  *y = halved(*y);\n}\n",
    "a constant": "const float scale = 2;\n__global__ void k(float* y) { *y *= scale; }\n",
    "a table of both": "__constant__ float row[2] = {1, 2};\n"
    "__global__ void k(float* y) { *y = row[threadIdx.x]; }\n",
    "a template without an instance": FUNCTION
    + "template <class T> __global__ void k(T* y) { *y = halved(1); }\n",
    "a function of the device by that name": "__device__ int rand(int seed) { return 5 * seed; }\n"
    "__global__ void k(float* y) { *y = rand(3); }\n",
}
PAIR = "struct Pair { float x, y; %s };\n"
SUMS = PAIR % (
    "float sum() const { return x + y; } static float one() { return 1; }"
    " Pair operator+(const Pair& o) const { return {x + o.x, y}; }"
)
IN_KERNEL = "__global__ void k(float* y) { %s }\n"
OF_THE_HOST |= {
    "a constructor": (
        PAIR % "Pair(float a, float b = 1) : x(a), y(b) {}"
        + IN_KERNEL % "Pair p(*y, 2); *y = p.x;",
        (2, 36, "calls Pair::Pair, a constructor that only the host has"),
    ),
    "a constructor without arguments": (
        "class Zero { float x; public: Zero() { x = 0; } __device__ float of() { return x; } };\n"
        + IN_KERNEL % "Zero zero; *y = zero.of();",
        (2, 36, "calls Zero::Zero"),
    ),
    "a temporary": (
        PAIR % "Pair(float a, float b) : x(a), y(b) {}" + IN_KERNEL % "*y = Pair(*y, 2).x;",
        (2, 36, "calls Pair::Pair"),
    ),
    "a method": (
        SUMS + IN_KERNEL % "Pair p{*y, 2}; *y = p.sum();",
        (2, 53, "calls Pair::sum, a member function that only the host has"),
    ),
    "a method of a parameter": (
        SUMS + "__device__ float of(const Pair& p) { return p.sum(); }\n",
        (2, 47, "calls Pair::sum"),
    ),
    "a method by a pointer": (
        SUMS + IN_KERNEL % "Pair p{*y, 2}; Pair* q = &p; *y = q->sum();",
        (2, 68, "calls Pair::sum"),
    ),
    "a static method": (SUMS + IN_KERNEL % "*y = Pair::one();", (2, 36, "calls Pair::one")),
    "an operator": (
        SUMS + IN_KERNEL % "Pair p{*y, 2}, q{*y, 1}; *y = (p + q).x;",
        (2, 62, r"calls Pair::operator\+"),
    ),
}
OF_BOTH |= {
    "the constructors of a class that has none": (
        SUMS + IN_KERNEL % "Pair p{*y, 2}; Pair q = p; Pair r(q); *y = r.x;"
    ),
    "a constructor by default": (
        PAIR % "Pair() = default; Pair(float a) : x(a), y(a) {}"
        + IN_KERNEL % "Pair p; p.x = *y; *y = p.x;"
    ),
    "a constructor of the device": (
        PAIR % "__device__ Pair(float a, float b) : x(a), y(b) {}"
        + IN_KERNEL % "Pair p(*y, 2); *y = p.x;"
    ),
    "a constexpr constructor": (
        PAIR % "constexpr Pair(float a, float b) : x(a), y(b) {}"
        + IN_KERNEL % "Pair p(*y, 2); *y = p.x;"
    ),
    "a constructor's template": (
        PAIR % "template <class T> __device__ Pair(T a, T b) : x(a), y(b) {}"
        + IN_KERNEL % "Pair p(*y, 2.f); *y = p.x;"
    ),
    "a method marked by a macro": (
        "#define BOTH __host__ __device__\n"
        + PAIR % "BOTH float sum() const { return x + y; }"
        + IN_KERNEL % "Pair p{*y, 2}; *y = p.sum();"
    ),
    "an overload of a method": (
        PAIR % "float sum() const { return x; } __device__ float sum() { return x + y; }"
        + IN_KERNEL % "Pair p{*y, 2}; *y = p.sum();"
    ),
    "a method of another class": (
        SUMS
        + "struct Other { float x; __device__ float sum() { return x; } };\n"
        + IN_KERNEL % "if (*y) { Pair p{*y, 2}; *y = p.x; } else { Other p{*y}; *y = p.sum(); }"
    ),
    "a method's size": SUMS + IN_KERNEL % "Pair p{*y, 2}; *y = p.x + sizeof(p.sum());",
    "a method in another branch": (
        SUMS + IN_KERNEL % "Pair p{*y, 2};\n#ifndef __CUDA_ARCH__\n*y = p.sum();\n#endif\n"
    ),
    "a method in a template without an instance": (
        SUMS + "template <class T> __device__ float of(T x) { Pair p{x, x}; return p.sum(); }\n"
    ),
    "members in a sum": SUMS + IN_KERNEL % "Pair p{*y, 2}; *y = +p.x + p.y;",
    "a template without an instance, with a name like a suffix": FUNCTION
    + "template <class T> __device__ T f(T x) { return halved(x) * 1.f; }\n",
    "an operator of the device": (
        SUMS
        + "__device__ Pair operator*(const Pair& a, float b) { return {a.x * b, a.y * b}; }\n"
        + IN_KERNEL % "Pair p{*y, 2}; *y = (p * 2.f).x;"
    ),
}
MISTAKES |= OF_THE_HOST
INNOCENT |= OF_BOTH


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("nvcc"), reason="nvcc is not there")
def test_nvcc_says_the_same_of_the_host_in_device_code(tmp_path):
    """Of all texts with one call: each is a namespace, and a file by what its first line says."""
    texts = {name: text for name, (text, _) in OF_THE_HOST.items()} | OF_BOTH
    includes, parts = [], []
    for number, text in enumerate(texts.values()):
        first, _, rest = text.partition("\n")
        if first.startswith("#include"):
            includes.append(first)
            text = rest
        parts.append(f'namespace n{number} {{\n#line 1 "text{number}"\n{text}\n}}')
    source = tmp_path / "x.cu"
    source.write_text("\n".join([*includes, *parts, ""]))
    options = ["-std=c++17", "--expt-relaxed-constexpr", "-ptx", "-o", os.devnull]
    ended = subprocess.run(["nvcc", *options, source], capture_output=True, text=True)
    refused = {int(number) for number in re.findall(r"text(\d+)\(\d+\): error", ended.stderr)}
    assert refused == {*range(len(OF_THE_HOST))}, ended.stderr


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_at_its_place(name):
    text, (line, column, message) = MISTAKES[name]
    with pytest.raises(Unsupported, match=message) as caught:
        rewrite(text, "x.cu")
    assert (caught.value.line, caught.value.column) == (line, column)
    assert caught.value.hint


@pytest.mark.parametrize("name", INNOCENT)
def test_the_innocent_are_not_accused(name):
    rewrite(INNOCENT[name], "x.cu")


def test_a_launch_without_its_threads_says_what_a_launch_is(tmp_path):
    source = tmp_path / "launch.cu"
    source.write_text(
        '__global__ void k(float* y) {}\nextern "C" void go(float* y) {\n    k<<<1>>>(y);\n}\n'
    )
    with pytest.raises(jitload.CompileError, match=r"a launch is <<<blocks, threads>>>") as caught:
        jitload.load(source, target="cpu")
    assert "not <<<(int)>>>" in str(caught.value)
    assert caught.value.line == 3


RUNTIME = """
    extern "C" void free_twice(float* y) {
        float* d;
        cudaMalloc(&d, 128);
        cudaFree(d);
        cudaFree(d);
    }
    extern "C" void free_tensor(float* y) { cudaFree(y); }
    extern "C" void copy_turned_round(float* y) {
        static float host[32];
        float* d;
        cudaMalloc(&d, 128);
        cudaMemcpy(host, d, 128, cudaMemcpyHostToDevice);
    }
    extern "C" void copy_too_much(float* y) {
        float* d;
        cudaMalloc(&d, 32);
        cudaMemcpy(y, d, 128, cudaMemcpyDeviceToHost);
    }
    extern "C" void set_too_much(float* y) {
        float* d;
        cudaMalloc(&d, 32);
        cudaMemset(d, 0, 128);
    }
    extern "C" void copy_to_nothing(float* y) { cudaMemcpy(nullptr, y, 4, cudaMemcpyDefault); }
"""

SAID = {
    "free_twice": r"runtime\.cu:6: cudaFree: .*cudaFree\(0x\w+\), .* or has been freed before",
    "free_tensor": r"cudaFree\(0x\w+\), which is none of the addresses that cudaMalloc has given",
    "copy_turned_round": r"cudaMemcpyHostToDevice whose source .* Say cudaMemcpyDeviceToHost",
    "copy_too_much": r"a copy of 128 bytes from memory of 32 bytes.* n \* sizeof\(float\)",
    "set_too_much": "a fill of 128 bytes of memory of 32 bytes",
    "copy_to_nothing": "a copy to the null pointer",
}


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    source = tmp_path_factory.mktemp("runtime") / "runtime.cu"
    source.write_text(RUNTIME)
    return jitload.load(source, target="cpu")


@pytest.mark.parametrize("name", SAID)
def test_a_refused_call_of_the_runtime_says_what_is_wrong(kernel, name):
    with pytest.raises(RuntimeError, match=SAID[name]):
        getattr(kernel, name)(torch.zeros(32))
