"""Kernels that no function of their file launches: from Python, with a grid and a block."""

import inspect
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from jit_cases import load, write

import jitload
import lab
from jitloader.cfunctions import Configuration
from simulator.scan import without_comments
from toolchain import launchers, machine

needs_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
TARGETS = ["cpu", pytest.param("cuda", marks=needs_gpu)]
pytestmark = pytest.mark.usefixtures("in_scratch")


@pytest.fixture
def shared(made_once) -> Path:
    """The folder of sources that several tests load and none edits, so that each is built once."""
    texts = {"unfit": UNFIT, "templates": TEMPLATES, "types": TYPES, "ranges": RANGES}
    return made_once(
        "sources of test_launchers",
        lambda folder: [write(folder / f"{name}.cu", text) for name, text in texts.items()],
    )


ADD = """
    __global__ void add(const float* x, float* y, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] += x[i];
    }
"""


@pytest.mark.parametrize("target", TARGETS)
def test_a_kernel_without_a_launcher_is_launched_with_a_grid_and_a_block(target):
    kernel = jitload.load(write("bare.cu", ADD), target=target)
    x, y = torch.arange(1000.0, device=target), torch.ones(1000, device=target)
    assert kernel.add[8, 128](x, y, 1000) is None
    assert torch.equal(y, x + 1)
    kernel.add[(2, 1), (500,), None, 64](x, y, 1000)
    kernel.at(0).add[torch.tensor(1), (1024, 1, 1), 0](x, y, 1000)
    assert torch.equal(y, 3 * x + 1)


WAYS = """
    #include <cuda_fp16.h>
    #include <cstdint>
    extern "C" __global__ void cupy(float* y) { y[threadIdx.x + 4 * threadIdx.y] = threadIdx.y; }
    extern "C" { __global__ void in_block(unsigned* y, unsigned long int n) { y[0] = n; } }
    namespace { __global__ __launch_bounds__(64) void hidden(float *y, bool b) { y[0] = b; } }
    namespace a::b {
    static __global__ void /* of a namespace */ __launch_bounds__(128, 2)
    scoped(const half *in, __half* __restrict__ out, std::int64_t lambda) {
        if (threadIdx.x < lambda) out[threadIdx.x] = in[threadIdx.x];
    }
    }
    #define MAKE(name, text) __global__ void name(float x[4]) { x[0] = text; }
    MAKE(made, 5)
    __global__ void shadow(float* shadow, const float error) { shadow[0] = error; }
    __global__ void brace(double* y, int n = (1, 2)) { const char* s = "}{"; y[0] = s[0] + n; }
    __global__ void shared(float* y) {
        extern __shared__ float buffer[];
        buffer[threadIdx.x] = threadIdx.x;
        __syncthreads();
        y[threadIdx.x] = buffer[blockDim.x - 1 - threadIdx.x];
    }
    __global__ void index(float* y, const int n) { y[0] = n; }
    __global__ void div(float* y) { y[0] = 9; }
    __global__ void axes(float* y, int dim1, int dim2, int dim3) { y[0] = dim3; }
    __global__ void nothing() {}
    #if PLAYGROUND_CUDA > 1
    __global__ void absent(float* y) {}
    #endif
"""


@pytest.mark.parametrize("target", TARGETS)
def test_every_way_of_writing_a_kernel(target):
    write("ways.cu", WAYS)
    kernel = jitload.load("ways.cu", target=target)
    y = torch.zeros(64, device=target)
    kernel.cupy[1, (4, 2)](y)
    assert y[:8].tolist() == [0, 0, 0, 0, 1, 1, 1, 1]
    count = torch.zeros(1, dtype=torch.uint32, device=target)
    kernel.in_block[1, 1](count, (1 << 32) - 1)
    assert count.tolist() == [(1 << 32) - 1]
    for function, arguments, first in [
        (kernel.hidden, (True,), 1),
        (kernel.made, (), 5),
        (kernel.shadow, (0.5,), 0.5),
    ]:
        function[1, 1](y, *arguments)
        assert y[0] == first
    half = torch.arange(4.0, device=target).half()
    kernel.scoped[1, 4](half, out := torch.zeros_like(half), 3)
    assert out.tolist() == [0, 1, 2, 0]
    kernel.brace[1, 1](wide := torch.zeros(1, dtype=torch.float64, device=target), 2)
    assert wide.tolist() == [ord("}") + 2]
    for bytes in (256, 96 << 10):  # beyond 48 KiB a kernel has to be told
        kernel.shared[1, 64, None, bytes](y)
        assert y[0] == 63
    kernel.axes[1, 1](y, 1, 2, 3)
    assert y[0] == 3
    kernel.nothing[1, 1]()
    for bytes in (0, 96 << 10):
        kernel.index[1, 1, None, bytes](y, 7 + bytes)
        assert y[0] == 7 + bytes
    kernel.div[1, 1](y)
    assert y[0] == 9
    assert not hasattr(kernel, "absent")


def test_a_file_may_launch_some_kernels_itself_and_leave_others():
    write(
        "mixed.cu",
        ADD
        + """
    __global__ void twice(float* y) { y[threadIdx.x] *= 2; }
    template <class T> __global__ void of_type(T* y) { y[threadIdx.x] -= 1; }
    extern "C" void minus(float* y, int n) { of_type<float><<<1, n>>>(y); }
    extern "C" void both(float* y, int n) { twice<<<1, n>>>(y); minus(y, n); }
    """,
    )
    kernel = load("mixed.cu")
    y = torch.ones(8)
    kernel.add[1, 8](torch.ones(8), y, 8)
    kernel.both(y, 8)
    assert y.tolist() == [3] * 8
    with pytest.raises(AttributeError, match=r"twice is a kernel that .*mixed.cu launches itself"):
        _ = kernel.twice
    with pytest.raises(TypeError, match=r"both is a function and no kernel: .*both\(y, n\)"):
        kernel.both[1, 8](y, 8)


def test_what_main_launches_can_be_launched_from_python():
    write("program.cu", ADD + "int main() { add<<<1, 1>>>(nullptr, nullptr, 0); }")
    kernel = load("program.cu")
    kernel.add[1, 4](torch.ones(4), y := torch.zeros(4), 4)
    assert y.sum() == 4


@pytest.mark.parametrize(
    ("configuration", "kind", "message"),
    [
        (1, TypeError, r"add\[1\]: wanted add\[grid, block\]"),
        ((1, 32, 0, 0, 0), TypeError, r"wanted add\[grid, block\] or"),
        ((0, 32), ValueError, "its x is at least 1, and at most 2147483647: for a tensor without"),
        (((1, 65536), 32), ValueError, r"grid is \(1, 65536\); its y .* at most 65535"),
        ((1 << 31, 1), ValueError, "grid is 2147483648"),
        ((1, 1025), ValueError, "block is 1025; its x .* at most 1024"),
        ((1, (1, 1, 65)), ValueError, "its z is at least 1, and at most 64"),
        ((1, (32, 33)), ValueError, r"block is \(32, 33\), 1056 threads"),
        ((1, -1), ValueError, "block is -1"),
        ((1000 / 32, 32), TypeError, r"grid is 31.25; wanted a whole number: divide with //"),
        ((1, (1, 1, 1, 1)), TypeError, "a tuple of up to three"),
        ((1, ()), TypeError, "a tuple of up to three"),
        ((1, "32"), TypeError, "block is '32'; wanted a whole number"),
        ((1, 32, "fast"), TypeError, r"stream is 'fast'; wanted a torch.cuda.Stream"),
        ((1, 32, 1024), TypeError, r"stream is 1024; .*: add\[grid, block, None, bytes\]"),
        ((1, 32, None, -4), ValueError, "shared memory is -4 bytes"),
        ((1, 32, None, 1.5), TypeError, "shared memory is 1.5"),
    ],
)
def test_a_configuration_that_cuda_would_refuse_is_refused_by_name(configuration, kind, message):
    with pytest.raises(kind, match=message):
        Configuration.of("add", configuration)


@pytest.mark.parametrize("target", TARGETS)
def test_arguments_are_checked(target):
    kernel = jitload.load(write("checked.cu", ADD), target=target)
    x, y = torch.ones(8, device=target), torch.ones(8, device=target)
    for arguments, kind, message in [
        ((x, y), TypeError, r"add takes 3 arguments \(x, y, n\), 2 were given"),
        ((x.double(), y, 8), TypeError, r"add: x is torch.float64; wanted torch.float32"),
        (([1.0], y, 8), TypeError, r"add: x is a list; wanted a tensor$"),
        ((1, y, 8), TypeError, r"add: x is an int; wanted a tensor$"),
        ((y.cpu().numpy(), y, 8), TypeError, r"an ndarray; wanted a tensor: torch.from_numpy\(x\)"),
        ((x, y, 8.0), TypeError, r"add: n is 8.0; wanted a whole number"),
        ((x, y, 1 << 31), ValueError, r"add: n is 2147483648; wanted -2147483648 to 2147483647"),
        ((x[::2], y, 4), ValueError, r"add: x is not contiguous"),
        ((x.to("meta"), y, 8), ValueError, rf"add: x is on meta; this build is for {target}"),
    ]:
        with pytest.raises(kind, match=message):
            kernel.add[1, 8](*arguments)
    with pytest.raises(TypeError, match=r"add is a kernel: .* as in add\[grid, block\]\(x, y, n\)"):
        kernel.add(x, y, 8)
    with pytest.raises(RuntimeError, match=r"add: cudaErrorInvalid"):
        kernel.add[1, 8, None, 1 << 20](x, y, 8)
    for wrong in (lambda: kernel[1, 8](x, y, 8), lambda: kernel(x, y, 8)):
        with pytest.raises(
            TypeError, match=r"one of these: checked.add\[grid, block\]\(const float"
        ):
            wrong()
    kernel.add[1, 8](x, y, 8)  # and no error is left behind
    assert y.eq(2).all()


RANGES = """
    #include <cstdint>
    extern "C" {
    void take_unsigned(unsigned n) {}
    void take_int8_t(int8_t n) {}
    void take_size_t(size_t n) {}
    void take_bool(bool n) {}
    void take_float(float n) {}
    void take_double(double n) {}
    }
"""


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("unsigned", -1, "wanted 0 to 4294967295"),
        ("int8_t", 128, "wanted -128 to 127"),
        ("size_t", 1 << 64, "wanted 0 to 18446744073709551615"),
        ("bool", 2, r"wanted 0 to 1 \(bool\)"),
        ("float", 1e39, "1e\\+39, which is too large for float"),
        pytest.param("double", 10**400, "too large for double", id="huge"),
    ],
)
def test_numbers_are_held_to_their_types_range(shared, kind, value, message):
    take = getattr(load(shared / "ranges.cu"), f"take_{kind}")
    take(1)
    with pytest.raises(ValueError, match=message):
        take(value)


def test_a_launch_taken_before_an_edit_follows_it():
    source = write("edited.cu", ADD)
    kernel = load(source)
    launch, y = kernel.add[1, 4], torch.zeros(4)
    source.write_text(source.read_text().replace("+=", "-="))
    kernel.reload()
    launch(torch.ones(4), y, 4)
    assert y.tolist() == [-1] * 4
    source.write_text(source.read_text().replace("-=", "-= oops"))
    with pytest.raises(jitload.CompileError, match=r"edited.cu:3:24: error: .*oops"):
        kernel.reload()
    with pytest.raises(jitload.CompileError, match="oops"):
        launch(torch.ones(4), y, 4)


def test_the_signature_is_the_one_in_c():
    write(
        "signed.cu", ADD + 'extern "C" int sum(const int* in, float, cudaStream_t s) { return 0; }'
    )
    kernel = load("signed.cu")
    for add in (kernel.add, kernel.add[1, 32], kernel.at(0).add):
        assert str(inspect.signature(add)) == "(x: const float*, y: float*, n: int, /) -> None"
        assert add.__doc__.startswith(
            "__global__ void add(const float* x, float* y, int n)\n\nadd["
        )
    assert str(inspect.signature(kernel.sum)) == "(in: const int*, argument_2: float, /) -> int"
    shown = pydoc.plain(pydoc.render_doc(kernel.sum))
    assert 'extern "C" int sum(const int* in, float, cudaStream_t s)' in shown


UNFIT = """
    #include <cuda_fp16.h>
    struct Pair { int a, b; };
    using real = float;
    template <int... N> __global__ void of_many(const float* x, float* y) { y[0] = x[0]; }
    __global__ void of_struct(Pair pair, float4* v, const real* r, half h, int n) { v[n].x = *r; }
    __global__ void same(float* y, int n) {}
    __global__ void same(int* y, int n) {}
"""


@pytest.mark.parametrize("name", ["of_many", "of_struct", "same"])
def test_a_kernel_that_cannot_be_launched_is_told_with_the_launcher_it_needs(shared, name):
    kernel = load(shared / "unfit.cu")
    with pytest.raises(AttributeError) as caught:
        getattr(kernel, name)
    said = str(caught.value)
    why = {"of_struct": "parameter 'Pair pair'", "same": "more than once"}
    assert why.get(name, "it is a template") in said
    assert f'extern "C" void launch_{name}(..., cudaStream_t stream) {{ {name}<<<' in said


TEMPLATES = """
    template <typename T>
    __global__ void scale(const T* __restrict__ x, T* y, T by, int n) {
        if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x] * by;
    }
    template <class T = double, int N = 2, bool up = true>
    __global__ void times(T* x) { x[threadIdx.x] *= up ? T(N) : T(1); }
    namespace in { template <int A, unsigned B> __global__ void put(int* x) { x[0] = A * B; } }
    template <typename T> __global__ void shared(T* y) {
        extern __shared__ char buffer[];
        T* own = reinterpret_cast<T*>(buffer);
        own[threadIdx.x] = threadIdx.x;
        y[threadIdx.x] = own[threadIdx.x];
    }
"""


@pytest.mark.parametrize("target", TARGETS)
def test_a_template_is_launched_for_types_that_are_given_or_deduced(shared, target):
    kernel = jitload.load(shared / "templates.cu", target=target)
    for dtype in (torch.float32, torch.half, torch.int64):
        x = torch.arange(4, device=target).to(dtype)
        kernel.scale[1, 32](x, y := torch.zeros_like(x), 3, 4)
        assert torch.equal(y, x * 3)
        kernel.scale[dtype][1, 32](x, y, 2, 4)
        assert torch.equal(y, x * 2)
    x = torch.ones(4, device=target)
    for launch, total in [
        (kernel.times[float], 2),
        (kernel.times[torch.float32, 5], 10),
        (kernel.times["float", 5, False], 10),
        (kernel.times["float", 3, True], 30),
    ]:
        launch[1, 4](x)
        assert x.tolist() == [total] * 4
    kernel.put[-3, 4][1, 1](number := torch.zeros(1, dtype=torch.int32, device=target))
    assert number.item() == -12
    kernel.shared[1, 4, None, 96 << 10](x)
    assert x.tolist() == [0, 1, 2, 3]


def test_a_templates_instances_follow_edits_and_are_checked_line_by_line():
    source = write("templates.cu", TEMPLATES)
    kernel = load(source)
    launch, x = kernel.scale[float][1, 8], torch.ones(8)
    launch(x, y := torch.zeros(8), 2, 8)
    source.write_text(source.read_text().replace("x[threadIdx.x] * by", "x[threadIdx.x + 1] + by"))
    kernel.reload()
    launch(x, y, 2, 7)
    assert y.tolist() == [3] * 7 + [2]
    again = lab.check(lambda: kernel.scale[float][1, 8](x, y, 2, 8))
    assert [*again.findings["line"]] == [3]
    (finding,) = lab.check(launch, x, y, 2, 8).findings.to_dict("records")
    assert finding["line"] == 3
    assert "x" in finding["message"]
    source.write_text(source.read_text().replace("+ by", "+ by oops"))
    with pytest.raises(jitload.CompileError, match=r"templates.cu:3"):
        kernel.reload()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda k, x: k.scale(x, x, 2, 4), r"as in scale\[float\]\[grid, block\]\(x, y, by, n\)"),
        (lambda k, x: k.scale[1, 8](x.double(), x, 2, 4), "T may be double or float .*: say it"),
        (
            lambda k, x: k.scale[float][1, 8](x.double(), x, 2, 4),
            r"\[float\]: x is torch.float64",
        ),
        (lambda k, x: k.times[1.5][1, 8](x), "T is 1.5; wanted a type, such as float"),
        (lambda k, x: k.times[1, 8](x), r"T is 1; .* the launch: times\[float, 4, 4\]\[grid"),
        (lambda k, x: k.times[float, 2.5][1, 8](x), r"N is 2.5; wanted a whole number \(int\)"),
        (
            lambda k, x: k.put[1, 2, 3],
            "put is template <int A, unsigned B>: 3 arguments",
        ),
    ],
)
def test_what_does_not_fit_a_template_is_told(shared, call, message):
    kernel = load(shared / "templates.cu")
    with pytest.raises(TypeError, match=message):
        call(kernel, torch.ones(8))


def test_a_template_shows_itself(shared):
    kernel = load(shared / "templates.cu")
    said = "template <typename T> __global__ void scale(const T* __restrict__ x, T* y, T by, int n)"
    assert kernel.scale.__doc__.startswith(said)
    assert str(inspect.signature(kernel.scale[float])) == "(x, y, by, n, /)"
    assert "scale" in dir(kernel)
    assert set(jitload.ensure(shared / "templates.cu").exports) == {
        "scale",
        "times",
        "put",
        "shared",
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("void go(float* y) { y[0] = 1; }", 'before go if it is a kernel, and extern "C" if'),
        ("__device__ void go(float* y) { y[0] = 1; }", "in place of __device__ before go if it"),
        (
            "#ifdef NEVER\n__global__ void go(float* y) {}\n#endif",
            "bare.cu:2 is compiled depends on the #if",
        ),
    ],
)
def test_why_a_name_is_missing(text, says):
    kernel = load(write("bare.cu", text))
    with pytest.raises(AttributeError, match=f"no function 'go'; it has: none\n.*{says}"):
        _ = kernel.go


def test_a_function_that_a_macro_makes_is_found(monkeypatch):
    write("macros.h", '#define EXPORT extern "C"\n')
    write(
        "macros.cu",
        """
        #include "macros.h"
        #define ANSWER(name, value) \\
            EXPORT int name(int n) { \\
                return n + value; \\
            }
        ANSWER(one, 1)
        ANSWER(two, 2)
        #ifdef THREE
        EXPORT int three(int n) { return 3; }
        #endif
        """,
    )
    kernel = load("macros.cu")
    assert (kernel.one(1), kernel.two(1)) == (2, 3)
    assert not hasattr(kernel, "three")
    assert load("macros.cu", flags=["-DTHREE"]).three(1) == 3
    assert load("macros.cu", flags=["-D", "THREE"]).three(1) == 3
    monkeypatch.setenv("CXX", "env g++ -DTHREE")
    assert load("macros.cu", name="by_cxx").three(1) == 3


OTHER = """
    __global__ void k2(float* x, float by) { x[threadIdx.x] += by; }
    __global__ void left(float* x) { x[threadIdx.x] *= 10; }
    extern "C" int go2(float* x, int n) { k2<<<1, n>>>(x, 1); return n; }
"""


@pytest.mark.parametrize("name", ["other.cu", "other.cuh", "sub/other.h"])
def test_what_an_included_file_defines_is_called_as_if_it_stood_in_the_source(name):
    write(name, OTHER)
    source = write("includes.cu", f'#include "{name}"')
    kernel = load(source)
    x = torch.zeros(4)
    assert kernel.go2(x, 4) == 4
    kernel.left[1, 2](x)
    assert x.tolist() == [10, 10, 1, 1]
    with pytest.raises(AttributeError, match=rf"k2 is a kernel that .*{name} launches itself"):
        _ = kernel.k2
    source.write_text(f"{source.read_text()}\n__global__ void own(float* x) {{ x[0] = 7; }}\n")
    write(name, OTHER.replace("x[threadIdx.x] *= 10", "x[1] = left"))
    with pytest.raises(jitload.CompileError, match=rf"{name}:2:\d+: error"):
        kernel.reload()
    write(name, OTHER.partition("extern")[0])
    kernel.reload()
    kernel.own[1, 1](x)
    kernel.k2[1, 4](x, 2)
    assert x.tolist() == [9, 12, 3, 3]


def test_every_way_of_including():
    """What belongs to whom; and each kernel in its namespace, once, as its macros have it."""
    write("lib/theirs.h", "#include <cstdio>\n__global__ void theirs(float* x) {}")
    write("once.h", "#pragma once\n__global__ void once(float* x) { x[0] += 1; }")
    write("twice.inc", "__global__ void NAME(float* x) { x[0] += VALUE; }")
    write("forced.h", '#define FORCED 32\nextern "C" int forced() { return FORCED; }')
    write("named.h", "__global__ void named(float* x) { x[0] += 16; }")
    write("plain.h", "int plain(int n) { return n + 1; }")
    write("odd.h", 'extern "C" int odd(const char* s) { return 0; }')
    write(
        "ways.h",
        """
        #include "once.h"
        #ifndef WAYS
        #define WAYS
        #include "ways.h"
        static __global__ void deep(float* x) { x[0] += 8; }
        #endif
        """,
    )
    write(
        "ways.cu",
        """
        #include <theirs.h>
        #include "once.h"
        #include "ways.h"
        #define NAME two
        #define VALUE 2
        #include "twice.inc"
        #undef NAME
        #undef VALUE
        #define NAME four
        #define VALUE 4
        namespace inner {
        #include "twice.inc"
        }
        #define HEADER "named.h"
        #include HEADER
        extern "C" {
        #include "plain.h"
        }
        #include "odd.h"
        #if PLAYGROUND_CUDA > 1
        #include "absent.h"
        #endif
        """,
    )
    write("absent.h", "__global__ void absent(float* x) {}")
    kernel = load("ways.cu", flags=["-include", "forced.h"], include=["lib"])
    x = torch.zeros(1)
    for name in ("once", "two", "four", "deep", "named"):
        getattr(kernel, name)[1, 1](x)
    assert x.item() == 1 + 2 + 4 + 8 + 16
    assert (kernel.plain(1), kernel.forced()) == (2, 32)
    assert not {"theirs", "absent", "odd"} & set(kernel._functions)
    with pytest.raises(AttributeError, match=r"call the function odd: .*'const char\* s'"):
        _ = kernel.odd


def test_a_static_kernel_of_a_header_is_offered_once_however_many_sources_include_it():
    write("shared.h", "#pragma once\nstatic __global__ void shared(float* x) { x[0] += 1; }")
    for name in ("first", "second"):
        write(f"{name}.cu", f'#include "shared.h"\nextern "C" int {name}() {{ return 1; }}')
    kernel = load("first.cu", "second.cu")
    kernel.shared[1, 1](x := torch.zeros(1))
    assert (x.item(), kernel.first(), kernel.second()) == (1, 1, 1)


def test_a_binding_in_an_included_file_binds():
    write(
        "bound.inc",
        """
        #include <torch/csrc/stable/library.h>
        #include <torch/csrc/stable/tensor.h>
        #include <torch/headeronly/macros/Macros.h>
        using torch::stable::Tensor;
        Tensor same(Tensor x) { return x; }
        STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) { m.def("same(Tensor(a) x) -> Tensor(a)"); }
        STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
            m.impl("same", TORCH_BOX(&same));
        }
        """,
    )
    assert load(write("binds.cpp", '#include "bound.inc"')).same(torch.ones(2)).sum() == 2
    write("bound.inc", "TORCH_LIBRARY(aten, m) {}")
    with pytest.raises(jitload.CompileError, match=r"bound\.inc:1:15: .* own namespace 'aten'"):
        load("binds.cpp")


def test_functions_without_a_symbol_are_none_of_pythons():
    write(
        "static.cu",
        """
        extern "C" {
        static int helper(const char* s) { return s[0]; }
        inline int unused() { return 1; }
        __host__ int used() { return helper("a"); }
        }
        """,
    )
    assert load("static.cu").used() == ord("a")


def test_what_depends_on_system_headers_does_not_break_the_build():
    """Kernels are looked for in the branches that are compiled."""
    write(
        "depends.cu",
        """
        #include <climits>
        #ifndef INT_MAX
        #error it is there
        #endif
        #if INT_MAX > 5
        __global__ void taken(float* y) { y[0] = 1; }
        extern "C" int seen() { return 1; }
        #else
        __global__ void not_taken(float* y) { y[0] = undeclared; }
        extern "C" int hidden() { return undeclared; }
        #endif
        __global__ void always(float* y) { y[0] = 2; }
        """,
    )
    kernel = load("depends.cu")
    assert kernel.seen() == 1
    kernel.always[1, 1](y := torch.zeros(1))
    assert y[0] == 2
    kernel.taken[1, 1](y)
    assert y[0] == 1
    with pytest.raises(AttributeError, match=r"the kernel not_taken at .* depends on the #if"):
        _ = kernel.not_taken
    with pytest.raises(AttributeError, match="hidden is in the source, but not in what was comp"):
        _ = kernel.hidden


def test_an_op_that_a_macro_defines_is_found():
    write(
        "defined.cpp",
        """
        #include <torch/csrc/stable/library.h>
        #include <torch/csrc/stable/tensor.h>
        #include <torch/headeronly/macros/Macros.h>
        using torch::stable::Tensor;
        Tensor same(Tensor x) { return x; }
        #define DEFINE(name) m.def(#name "(Tensor(a) x) -> Tensor(a)")
        #define IMPLEMENT(name) m.impl(#name, TORCH_BOX(&same))
        STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) { DEFINE(first); DEFINE(second); }
        STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
            IMPLEMENT(first);
            IMPLEMENT(second);
        }
        """,
    )
    kernel = load("defined.cpp")
    assert kernel.first(torch.ones(2)).sum() == kernel.second(torch.ones(2)).sum() == 2


def test_the_instruments_take_a_launch():
    kernel = load(write("tried.cu", ADD))
    x, y = torch.ones(100), torch.zeros(100)
    trial = lab.trial(kernel.add[4, 32], x, y, 100)
    assert trial.arguments[1].eq(1).all()
    assert "tried.add returned" in trial.report
    assert "no findings" in str(lab.check(kernel.add[4, 32], x, y, 100))
    short = torch.zeros(90)
    assert "past the end of short" in str(lab.check(lambda: kernel.add[4, 32](x, short, 100)))
    assert "past the end of y" in str(lab.check(kernel.add[4, 32], x, y[:90], 100))
    table = lab.time_calls({"add": lambda: kernel.add[4, 32](x, y, 100)}, bytes=1200)
    assert table["time_us"][0] > 0


@pytest.mark.slow
def test_compiled_code_launches_too():
    kernel = load(write("compiled.cu", ADD))

    @torch.compile
    def function(x):
        y = torch.zeros_like(x)
        kernel.add[1, 8](x, y, 8)
        return 2 * y

    assert function(torch.ones(8)).eq(2).all()


@pytest.mark.slow
@pytest.mark.skipif(machine.cuda_home() is None, reason="no nvcc here")
def test_nvcc_compiles_the_launchers():
    source = write("device.cu", UNFIT + WAYS + ADD)
    code = f"""
import jitload
version = jitload.ensure({str(source)!r}, target="cuda")
print(*version.exports, version.library, *version.inputs, sep="\\n")
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    *exports, library, read = run.stdout.split()
    assert read == str(source), "what is generated is no source"
    assert {"add", "cupy", "scoped", "index", "shared"} <= set(exports)
    symbols = Path(library).read_bytes()
    assert all(f"jitload_launch_{name}".encode() in symbols for name in exports)
    source.write_text(source.read_text().replace("+= x[i]", "+= z[i]"))
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    line = 1 + source.read_text()[: source.read_text().index("z[i]")].count("\n")
    assert f"device.cu:{line}:" in run.stderr
    assert 'identifier "z" is undefined' in run.stderr


@pytest.mark.slow
@pytest.mark.skipif(machine.cuda_home() is None, reason="no nvcc here")
def test_nvcc_compiles_the_launchers_of_what_is_included(monkeypatch):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    write("guarded.h", "#ifdef __CUDACC__\n__global__ void guarded(float* x) {}\n#endif")
    write("other.cuh", '#pragma once\n#include "guarded.h"\n' + OTHER)
    write("host.cpp", '#include "guarded.h"\nextern "C" int host() { return 1; }')
    write("device.cu", '#include "other.cuh"')
    build = jitload.ensure("host.cpp", "device.cu", target="cuda")
    assert set(build.exports) == {"host", "go2", "left", "guarded"}
    symbols = build.library.read_bytes()
    for name in ("jitload_launch_left", "jitload_launch_guarded", "go2"):
        assert name.encode() in symbols


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_a_launch_runs_on_the_current_stream_or_the_one_that_is_named():
    write(
        "streams.cu",
        """
        __global__ void slow(float* y, long long ticks) {
            long long begin = clock64();
            while (clock64() - begin < ticks) {}
            y[0] += 1;
        }
        """,
    )
    kernel = jitload.load("streams.cu", target="cuda")
    y, stream = torch.zeros(1, device="cuda"), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        kernel.slow[1, 1](y, 1 << 28)
    assert not stream.query(), "a launch returns before its kernel has run"
    assert torch.cuda.default_stream().query()
    kernel.slow[1, 1, stream](y, 1 << 26)
    assert torch.cuda.default_stream().query()
    stream.synchronize()
    assert y.item() == 2


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two NVIDIA GPUs")
def test_a_launch_runs_on_its_tensors_device():
    kernel = jitload.load(write("second.cu", ADD), target="cuda")
    x, y = torch.ones(8, device="cuda:1"), torch.zeros(8, device="cuda:1")
    kernel.add[1, 8](x, y, 8)
    assert y.eq(1).all()
    with pytest.raises(ValueError, match=r"y is on cuda:0; the first tensor is on cuda:1"):
        kernel.add[1, 8](x, y.to("cuda:0"), 8)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_resources_of_a_kernel_without_a_launcher():
    kernel = jitload.load(write("used.cu", ADD), target="cuda")
    kernel.add[1, 8](*(torch.ones(8, device="cuda") for _ in "xy"), 8)
    assert [use.kernel for use in kernel.resources()] == ["add"]


def test_definitions_are_read():
    code = """
        __global__ void declared(int n);
        namespace a { namespace { __global__ void one(int n, float (*f)[2]) {} } }
        // __global__ void comment() {}
        template <typename T, int N = 4>
        static __global__ void __launch_bounds__(N * (2 + 1)) two(T* x = nullptr) {}
    """
    one, two = launchers.definitions(without_comments(code))
    assert (one.name, one.scope, one.template, one.line) == ("one", "a::", None, 3)
    assert one.parameters == ("int n", "float (*f)[2]")
    assert "float (*f)[2]" in one.obstacle()
    assert (two.name, two.template, two.parameters) == ("two", "typename T, int N = 4", ("T* x",))


# What Python can pass, under other names than the tables' own, and what it cannot, beside it.
TYPES = """
    #include <stdint.h>
    typedef unsigned char byte_t;
    using real = float; typedef real element;
    struct Pair { int first, second; };
    extern "C" void integers(uint* a, byte_t* b, size_t* c, ushort* d, long unsigned int* e,
                             int8_t* f, uint n, unsigned char k, std::size_t m) {
        a[0] = n; b[0] = k; c[0] = m; d[0] = 4; e[0] = 5; f[0] = -6;
    }
    extern "C" {
    element floats(const element* x, real factor, float4* v) {
        v[1] = make_float4(x[0], x[1], factor, 1);
        return x[0];
    }
    void by_value(float* x, Pair pair) { x[0] = pair.first; }
    void callback(float* x, int (*f)(int, float), int n) { x[0] = f(n, 0); }
    float* returned(float* x) { return x; }
    void pointers(float** x) {}
    }
    __global__ void bare(element* y, uint n) { y[0] = n; }
"""


@pytest.mark.parametrize("target", TARGETS)
def test_types_are_known_by_what_they_stand_for(shared, target):
    kernel = jitload.load(shared / "types.cu", target=target)
    assert set(kernel.build.exports) == {"integers", "floats", "bare"}
    if target == "cpu":  # the functions read them on the host
        types = [torch.uint32, torch.uint8, torch.uint64, torch.uint16, torch.uint64, torch.int8]
        tensors = [torch.zeros(1, dtype=dtype) for dtype in types]
        kernel.integers(*tensors, (1 << 32) - 1, 2, 1 << 40)
        assert [t.item() for t in tensors] == [(1 << 32) - 1, 2, 1 << 40, 4, 5, -6]
        v = torch.zeros(2, 4)
        assert kernel.floats(torch.tensor([7.0, 8.0]), 9, v) == 7
        assert v[1].tolist() == [7, 8, 9, 1]
    kernel.bare[1, 1](y := torch.zeros(1, device=target), 3)
    assert y.item() == 3


def test_a_vector_pointer_takes_whole_vectors_where_they_may_stand(shared):
    kernel = load(shared / "types.cu")
    with pytest.raises(ValueError, match=r"v has 6 elements; wanted a multiple of 4 \(float4\*\)"):
        kernel.floats(torch.zeros(2), 0, torch.zeros(6))
    with pytest.raises(ValueError, match=r"v begins beside a multiple of 16 bytes.*\.clone\(\)"):
        kernel.floats(torch.zeros(2), 0, torch.zeros(9)[1:])


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("by_value", "cannot pass the parameter 'Pair pair'"),
        ("callback", r"cannot pass the parameter 'int \(\*f\)\(int, float\)'"),
        ("returned", r"it returns float\*"),
        ("pointers", r"cannot pass the parameter 'float\*\* x'"),
    ],
)
def test_a_function_that_python_cannot_call_is_left_out_and_says_why(shared, name, why):
    kernel = load(shared / "types.cu")
    with pytest.raises(AttributeError, match=rf"Python cannot call the function {name}: .*{why}"):
        getattr(kernel, name)
