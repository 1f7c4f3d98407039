"""Beginners' mistakes that nvcc refuses and a C++ compiler takes, or blames on another line."""

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
    "free_twice": r"cudaFree\(0x\w+\), which is none .* or has been freed before",
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
