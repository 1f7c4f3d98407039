"""What autograd hears of launches and C functions, and which values they take as numbers."""

import math
import pydoc
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest
import torch
from jit_cases import load, write

import jitload
from toolchain.reads import only_read

pytestmark = pytest.mark.usefixtures("in_scratch")

SOURCE = """
__global__ void twice(const float* x, float* y, int n) {
    int i = threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}
__global__ void copy(float* x, float* y, int n) {
    int i = threadIdx.x;
    if (i < n) y[i] = x[i];
}
__global__ void fill(float* y, float value, int n, bool yes) {
    int i = threadIdx.x;
    if (yes && i < n) y[i] = value;
}
__global__ void fill_double(double* y, double value) { y[0] = value; }
extern "C" void plus(float* x, float* y, int n) { for (int i = 0; i < n; i++) y[i] += x[i]; }
"""


@pytest.fixture
def kernel():
    return load(write("told.cu", SOURCE))


def test_a_gradient_that_is_lost_is_told_once(kernel):
    x = torch.ones(4, requires_grad=True)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(3):
            kernel.twice[1, 32](x, torch.empty(4), 4)
    (warning,) = told
    assert warning.filename == __file__
    assert re.match(r"twice: x requires a gradient.*@lab\.op", str(warning.message))
    with pytest.warns(UserWarning, match="plus: x requires a gradient"):
        kernel.plus(x * 2, torch.zeros(4), 4)
    with pytest.warns(UserWarning, match="fill: value requires a gradient"):
        kernel.fill[1, 4](torch.zeros(4), torch.tensor(2.0, requires_grad=True), 4, True)


def test_torch_compile_names_what_makes_an_op_of_a_launch(kernel):
    def twice(x):
        y = torch.empty_like(x)
        kernel.twice[1, 32](x, y, 4)
        return y + 1

    with pytest.raises(torch._dynamo.exc.Unsupported, match=r"launch of a kernel.*@lab\.op"):
        torch.compile(twice, fullgraph=True, backend="eager")(torch.ones(4))
    torch._dynamo.reset()
    compiled = torch.compile(twice, backend="eager")
    assert compiled(torch.ones(4)).tolist() == [3, 3, 3, 3]


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, kernel):
        y = torch.empty_like(x)
        kernel.twice[1, 32](x, y, x.numel())
        return y

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad, None


def test_where_no_gradient_is_lost_nothing_is_told(kernel):
    x, y = torch.ones(4, requires_grad=True), torch.empty(4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for context in (torch.no_grad, torch.inference_mode):
            with context():
                kernel.twice[1, 32](x, y, 4)
                kernel.fill[1, 32](torch.zeros(4), 1, 4, True)
        kernel.twice[1, 32](x.detach(), y, 4)
        (x + Twice.apply(x, kernel)).sum().backward()
    assert x.grad.tolist() == [3] * 4


@pytest.mark.parametrize("detached", [False, True])
def test_a_write_through_a_pointer_is_a_write_in_place(kernel, detached):
    w = torch.ones(4, requires_grad=True)
    h = w * 3
    z = (h * h).sum()
    with torch.no_grad():
        kernel.fill[1, 4](h.detach() if detached else h, 2, 4, True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


def test_what_is_read_only_is_no_write(kernel):
    w = torch.ones(4, requires_grad=True)
    h = w * 3
    z = (h * h).sum()
    with torch.no_grad():
        kernel.copy[1, 4](h, torch.empty(4), 4)  # declared float*, and never written to
        kernel.plus(h, torch.zeros(4), 4)
    z.backward()
    assert w.grad.tolist() == [18] * 4
    assert h._version == 0


@pytest.mark.parametrize(
    ("of", "what"), [(lambda x: x, "a leaf"), (lambda x: x[:2], "a view of a leaf")]
)
def test_a_leaf_is_not_written_to(kernel, of, what):
    x = torch.ones(4, requires_grad=True)
    with pytest.raises(RuntimeError, match=rf"fill: y is {what} that requires a gradient.*no_grad"):
        kernel.fill[1, 4](of(x), 2, 2, True)
    assert x.tolist() == [1] * 4
    with torch.no_grad():
        kernel.fill[1, 4](of(x), 2, 2, True)
    assert x[:2].tolist() == [2, 2]


READS = """
template <class T> __device__ T twice(T v) { return 2 * v; }
__device__ void put(float& r, float v) { r = v; }
__device__ float row(float* p, int i) { return p[i]; }
__device__ void store(float* p, float v) { *p = v; }
__device__ float ping(float* p, int n) { return n ? ping(p, n - 1) : p[0]; }
__global__ void guarded(float* x, float* y, int n) {
    int i = threadIdx.x;
    if (i < n && x != nullptr) y[i] = 2 * x[i] + twice(x[i + 1]) + ping(x, 3);
}
__global__ void cast(float* x, float* y) { y[0] += reinterpret_cast<const float4*>(x)[0].w; }
__global__ void alias(float* x, float* y) { float* p = x + 4; float* q = y; q[0] = p[1]; }
__global__ void call(float* x, float* y) { y[0] = row(x, 2) + __ldg(&x[0]); }
__global__ void atomic(float* x, float* y) { atomicAdd(&y[0], x[0] == 1 ? x[1] : 2); }
__global__ void member(float4* x, float4* y) { y[0].x = x[0].y; ++y[1].x; }
__global__ void count(float* x, float* y) { if (x[0] > 0) ++y[1]; }
__global__ void shift(int* x, int* y) { for (int i = 0; i < 4; i++) { auto v = x[i]; y[i] <<= v; } }
__global__ void reference(float* x, float* y) { float& r = y[0]; const float& v = x[0]; r = v; }
__global__ void stored(float* x, float* y) { store(y + 1, row(x + 1, 0)); put(y[2], x[0]); }
__global__ void elsewhere(const float* x, float* y) { unknown(y); }
extern "C" void go(float* x, float* y, cudaStream_t s) { guarded<<<1, 32, 0, s>>>(x, y, 4); }
"""


def test_what_a_kernel_only_reads_is_seen():
    names = re.findall(r"(?:__global__|extern .C.) void (\w+)\(\w+\* x", READS)
    assert len(names) == 11
    for name in names:
        assert only_read([READS], name, ["float* x", "float* y"]) == [0], name
    assert only_read([READS], "elsewhere", ["const float* x", "float* y"]) == []
    other_way = READS.replace("y[0] = row(x, 2)", "x[0] = y[2]")
    assert only_read([READS, other_way], "call", ["float* x", "float* y"]) == []


NUMBERS = [-math.inf, math.inf, math.nan, 1e308, -1e308, 0.1]


@pytest.mark.parametrize("value", NUMBERS)
def test_any_number_that_a_type_has_is_taken_as_it_is(kernel, value):
    y = torch.zeros(1, dtype=torch.float64)
    kernel.fill_double[1, 1](y, value)
    assert torch.equal(y.nan_to_num(7), torch.tensor([value], dtype=y.dtype).nan_to_num(7))
    y = torch.zeros(1)
    if abs(value) == 1e308:
        with pytest.raises(ValueError, match="too large for float"):
            kernel.fill[1, 1](y, value, 1, True)
    else:
        kernel.fill[1, 1](y, value, 1, True)
        assert torch.equal(y.nan_to_num(7), torch.tensor([value]).nan_to_num(7))


@pytest.mark.parametrize(
    ("value", "n", "yes"),
    [
        (np.float32(2), 4, True),
        (np.float16(2), np.prod((2, 2)), np.True_),
        (torch.tensor(2.0), torch.tensor(4), torch.tensor(True)),
        (np.array(2.0), np.array(4), np.array(True)),
        (np.int64(2), np.uint8(4), 1),
    ],
)
def test_scalars_of_numpy_and_pytorch_are_numbers(kernel, value, n, yes):
    y = torch.zeros(8)
    kernel.fill[np.int64(1), 32](y, value, n, yes)
    assert y.tolist() == [2] * 4 + [0] * 4


@pytest.mark.parametrize(
    ("value", "n", "message"),
    [
        (torch.ones(1), 4, r"value is a Tensor of shape \(1,\); wanted a number \(float\)"),
        (1j, 4, r"value is a complex; wanted a number"),
        (np.array([1.0, 2.0]), 4, "value is an ndarray; wanted a number"),
        (2.0, np.float32(4), "n is 4.0; wanted a whole number"),
        (2.0, "4", "n is a str; wanted a number"),
    ],
)
def test_what_is_no_number_is_refused(kernel, value, n, message):
    with pytest.raises(TypeError, match=message):
        kernel.fill[1, 4](torch.zeros(4), value, n, True)


def test_a_gradient_for_what_is_no_op_is_refused_before_anything_is_registered(kernel):
    for backward in ("x = plus(grad, x)", lambda ctx, grad: grad):
        with pytest.raises(TypeError, match=r"told.twice is no op of PyTorch's.*@lab\.op"):
            kernel.register_autograd("twice", backward)
    with pytest.raises(AttributeError, match="no function 'thrice'"):
        kernel.register_autograd("thrice", lambda ctx, grad: grad)
    kernel.reload()
    kernel.twice[1, 4](torch.ones(4), y := torch.empty(4), 4)
    assert y.tolist() == [2] * 4


def test_help_on_a_handle_begins_with_what_it_can_be_called_with(kernel):
    first = pydoc.plain(pydoc.render_doc(kernel)).partition("What `load` returns")[0]
    assert "told.twice[grid, block](const float* x, float* y, int n)" in first
    assert "told.plus(float* x, float* y, int n)" in first
    assert type(kernel).__doc__.startswith("What `load` returns")


CHOICE = """
    #include <climits>
    #include <cuda_runtime.h>
    #ifdef WIDE
    typedef long long Index;
    #elif defined(INT_MAX)
    typedef int Index;
    #else
    typedef short Index;
    #endif
    __global__ void fill(float* x, Index n, int to) { if (threadIdx.x < n) x[threadIdx.x] = to; }
    struct Pair { int a, b; };
    __global__ void of_pair(float* x, Pair pair) { x[0] = pair.b; }
"""


@pytest.mark.parametrize(("flags", "most"), [([], (1 << 31) - 1), (["-DWIDE"], (1 << 63) - 1)])
def test_a_type_that_an_if_chooses_is_the_one_that_is_compiled(flags, most):
    kernel = load(write("choice.cu", CHOICE), flags=flags)
    kernel.fill[1, 32](x := torch.zeros(32), 30, 1)
    assert x.sum() == 30
    with pytest.raises(ValueError, match=f"to {most} "):
        kernel.fill[1, 32](x, most + 1, 1)
    with pytest.raises(AttributeError, match="cannot pass the parameter 'Pair pair'"):
        _ = kernel.of_pair


def test_sources_may_be_strings():
    kernel = jitload.load_inline("inline", cuda_sources=SOURCE, target="cpu")
    kernel.twice[1, 4](torch.ones(4), y := torch.empty(4), 4)
    assert y.tolist() == [2] * 4
    cuda = 'extern "C" void twice(float* y, int n) { for (int i = 0; i < n; i++) y[i] *= TWO; }'
    cpp = "#include <pybind11/pybind11.h>\nnamespace torch { template <class F> F "
    cpp += 'wrap_pybind_function(F f) { return f; } }\nextern "C" void twice(float*, int);\n'
    cpp += "double both(double x) { float y = x; twice(&y, 1); return y; }"
    bound = jitload.load_inline(
        "inline", [cpp], [cuda], {"both": 'says "2"'}, None, ["-DTWO=2"], no_implicit_headers=True,
        target="cpu", verbose=True,
    )  # fmt: skip
    assert bound.both(3.0) == 6
    assert 'says "2"' in bound.both.__doc__
    with pytest.raises(TypeError, match="wants cpp_sources or cuda_sources"):
        jitload.load_inline("nothing")


@pytest.mark.skipif(torch.cuda.is_available(), reason="of machines without a GPU")
def test_a_missing_gpu_is_answered_with_the_device_that_there_is():
    run = subprocess.run(
        [sys.executable, "-c", "import torch, jitload; torch.ones(1, device='cuda')"],
        capture_output=True,
        text=True,
    )
    assert "device=jitload.device() is where kernels run" in run.stderr.splitlines()[-1]


NAMED_AS_THE_HANDLES = """
    __global__ void reload(float* x) { x[threadIdx.x] = 1; }
    template <class T> __global__ void at(T* x) { x[threadIdx.x] = 2; }
    __global__ void name(float* x) { x[threadIdx.x] = 3; }
    __global__ void build(float* x) { x[threadIdx.x] = 4; }
    __global__ void recipe(float* x) { x[threadIdx.x] = 7; }
    extern "C" int diff(float* x) { x[0] = 5; return 0; }
    extern "C" int whole(int n) { return n; }
"""


def test_functions_named_as_the_handles_own_hide_none_of_them():
    write("named.cu", NAMED_AS_THE_HANDLES)
    with pytest.warns(RuntimeWarning) as told:
        kernel = load("named.cu")
    of_file = [each for each in told if "has a function called" in str(each.message)]
    assert sorted(str(each.message).split()[5].rstrip(",") for each in of_file) == [
        *("build", "name", "recipe", "whole")
    ]
    x = torch.zeros(2)
    for function, value in ((kernel.reload, 1), (kernel.at, 2)):
        function[1, 2](x)
        assert x.tolist() == [value] * 2
    assert not kernel.reload()
    assert kernel.name == "named"
    opened = kernel.at()
    assert opened.build == kernel.build
    for name, value in (("name", 3), ("build", 4), ("recipe", 7)):
        opened.functions[name][1, 2](x)
        assert x.tolist() == [value] * 2
    assert opened.functions["whole"](3) == 3
    assert kernel.whole() == kernel.build
    kernel.diff(x)
    assert x.tolist() == [5, 7]
    write("named.cu", NAMED_AS_THE_HANDLES.replace("= 1;", "= 6;"))
    assert kernel.reload()
    kernel.reload[1, 2](x)
    assert x.tolist() == [6, 6]
