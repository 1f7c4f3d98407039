"""How long the translation of a large source takes: twice the text, twice the time.

CUTLASS's headers for sm_90 have 5000 `asm` statements in 2.8 MB. When each of these read the text
before it again, a kernel for sm_100 that includes them did not reach the compiler within minutes.
"""

import gc
import math
import time

import pytest

from simulator.architectures import Architecture
from simulator.device_code import Load
from simulator.rewrite import rewrite

# {n} is a number of its own in each repetition, {m} that of the one before.
REPEATED = {
    "PTX that the architecture lacks": """
        struct S{n} { __device__ static void f() { asm("wgmma.fence.sync.aligned;"); } };""",
    "PTX that nobody knows, in templates": """
        template <int> __device__ void f{n}(int x) { asm("nothing.s32 %0, %0;" : "+r"(x)); }""",
    "assembly of the host": 'void f{n}(int x) { asm("cpuid" : "+r"(x)); }',
    "PTX in branches of #if": """
        __device__ void f{n}(int x) { asm(
        #if N
          "add.s32 %0, %0, 1;"
        #else
          "sub.s32 %0, %0, 1;"
        #endif
          : "+r"(x)); }""",
    "PTX in a macro": '#define A{n}(x) \\\n  asm("nothing.s32 %0, %0;" \\\n  : "+r"(x))',
    "PTX that macros put together": """
        #define ADD{n}(TYPE) asm("add." #TYPE " %0, %0, 1;" : "+r"(x))
        __device__ void f{n}(int x) { ADD{n}(s32); }""",
    "dynamic shared memory": """
        __global__ void f{n}() { extern __shared__ float s{n}[]; s{n}[0] = 1; }""",
    "functions that are handed on": """
        __device__ __forceinline__ int f{n}(int x) { return x; }
        __device__ int g{n}(int x) { return apply(f{n}, x); }""",
    "aliases of their own names": """
        namespace n{n} { template <class> struct A{n}; struct B { using A{n} = A{n}<int>; }; }""",
    "variables without a value": "__device__ float f{n}() { float x[4]; return x[0]; }",
    "functions that ask for the architecture": """
        __device__ int f{n}(int x) {
        #if __CUDA_ARCH__ >= 900
          x += 1;
        #endif
          return x; }""",
    "macros by the architecture": """
        #if __CUDA_ARCH__ >= 900
        #define M{n} 1
        #endif
        __device__ int f{n}() { return M{n}; }""",
    "macros of macros": """
        #define M{n} M{m}
        __device__ int f{n}() { return M{n} + __CUDA_ARCH__; }""",
    "groups of functions for the device": """
        #if __CUDA_ARCH__ >= 900
        __device__ int f{n}(int x) { return x; }
        #endif""",
    "launches": "void f{n}(int n) { k<int, {n}><<<dim3(n), 32>>>(n < 3 ? 1 : 2); }",
    "barriers in functions that call each other": """
        __device__ void f{n}() { f{m}(); __syncthreads(); }
        __global__ void k{n}() { for (;;) { if (f{n}()) continue; f{n}(); } }""",
    "variables of the device": "__device__ float v{n}[4] = {1, 2, 3, 4};",
    "functions of the host beside kernels": """
        float f{n}(float x, int n) { return g{m}(x) + n; }
        template <class T> __global__ void k{n}(T* y) { y[0] = h{n}(y[0]); }
        void go{n}(float* y) { k{n}<<<1, 1>>>(y); f{n}(1, 2); }
        __device__ float h{n}(float f{m}) { float g{n} = f{m}; return g{n}; }""",
    "questions to tensors": """
        void f{n}(at::Tensor x) { TORCH_CHECK(x.is_cuda()); g(x.device().index()); }""",
    "addresses of kernels": "void f{n}() { cudaLaunchKernel((void*)k{n}<int>, 1, 1, args, 0, 0); }",
    "tables and comments": "const T t{n} = {1'000, 'b', \"c\"}; // of the host /* as {n} is",
}
WITHIN = {  # of one function
    "loops that go on past barriers": """
        for (int i = 0; i < n; ++i) { if (i == {n}) continue; __syncthreads(); }
        if (n == {n}) return;""",
    "rows of a table": '{{n}, 1.0f, "a"},',
}
TARGET = Architecture.of("10.0a")


# Of each pass over the text one.
QUICK = (
    *("launches", "PTX in branches of #if", "PTX that the architecture lacks", "macros of macros"),
    *("barriers in functions that call each other", "variables of the device"),
    "functions of the host beside kernels",
)
EVERY = [
    pytest.param(name, marks=[pytest.mark.slow] * (name not in QUICK))
    for name in (*REPEATED, *WITHIN)
]


def repeated(name: str, characters: int) -> str:
    one = REPEATED.get(name) or WITHIN[name]
    count = characters // len(one)
    every = (one.replace("{n}", str(n + 1)).replace("{m}", str(n)) for n in range(count))
    text = "\n".join(every)
    return f"__global__ void f(int n) {{\n{text}\n}}\n" if name in WITHIN else f"{text}\n"


def seconds(text: str) -> float:
    """Processor time without the garbage collector's, which grows with all that the tests hold."""
    gc.collect()
    gc.disable()
    try:
        started = time.process_time()
        load = Load.of([text], several=True, target=TARGET)
        rewrite(text, "x.cu", load, of_library="nothing" in text)
        return time.process_time() - started
    finally:
        gc.enable()


@pytest.mark.parametrize("name", EVERY)
def test_twice_the_text_takes_twice_the_time(name):
    """By the least of a few times each, for other programs take some of the processor's caches."""
    texts = [repeated(name, size) for size in (60_000, 120_000)]
    few = many = math.inf
    for _ in range(6):
        few, many = (
            min(least, seconds(text)) for least, text in zip((few, many), texts, strict=True)
        )
        if many <= 2.5 * few:
            return
    pytest.fail(f"{few:.3f} s, and {many:.3f} s for twice the text")
