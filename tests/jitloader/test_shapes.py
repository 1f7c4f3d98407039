"""Builds for single classes of shapes: which one a call takes, and what it takes with it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from jit_cases import load, write

import jitload
from toolchain import tuning
from toolchain.code import Code

# y = N x, whose gradient is N + 0.5 to tell it from a formula of another build
SOURCE = """
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#define TUNABLE(name, value) FIRST(TUNE_##name, value)
#define FIRST(...) SECOND(__VA_ARGS__, 0)
#define SECOND(first, second, ...) second
#define TUNED(value) , value
constexpr int N = TUNABLE(N, 2);
static_assert(N < 9);
using torch::stable::Tensor;
Tensor times(const Tensor& x, double factor) {
    Tensor y = torch::stable::empty_like(x);
    auto from = static_cast<const double*>(x.data_ptr());
    auto to = static_cast<double*>(y.data_ptr());
    for (int64_t i = 0; i < x.numel(); ++i) to[i] = factor * from[i];
    return y;
}
Tensor forward(const Tensor& x) { return times(x, N); }
Tensor backward(const Tensor& grad) { return times(grad, N + 0.5); }
STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
    m.def("forward(Tensor x) -> Tensor");
    m.def("backward(Tensor grad) -> Tensor");
}
STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("forward", TORCH_BOX(&forward));
    m.impl("backward", TORCH_BOX(&backward));
}
"""
FEW = tuning.ShapeClass(torch.float64, 3, 4)


@pytest.fixture(scope="module")
def table() -> Iterator[dict[tuning.ShapeClass, dict[str, int]]]:
    """What every table has for single classes: for a CPU none is read."""
    known = {FEW: {"N": 5}}

    def by_shape(code: Code) -> list:
        return [] if tuning.sets_constants(code.recipe.flags) else list(known.items())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Code, "tuned_by_shape", property(by_shape))
        yield known


@pytest.fixture(scope="module")
def source(cache, tmp_path_factory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JITLOAD_CACHE", str(cache))
        yield write(tmp_path_factory.mktemp("shapes") / "times.cpp", SOURCE)


@pytest.fixture(scope="module")
def kernel(table, source) -> jitload.Kernel:
    kernel = load(source)

    def gradient(ctx, grad):
        return kernel.backward(grad)

    kernel.register_fake("forward")(torch.empty_like)
    kernel.register_fake("backward")(torch.empty_like)
    kernel.register_autograd("forward", gradient)
    return kernel


def ones(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.ones(shape, dtype=dtype)


def test_a_call_takes_the_build_of_its_class(kernel):
    assert [kernel.forward(ones(2, cols))[0, 0].item() for cols in (2, 3, 4, 5)] == [2, 5, 5, 2]
    assert kernel.forward(x=ones(4))[0] == 5
    assert kernel.forward(ones()).item() == 2
    assert kernel.build.digest == kernel.digest


@pytest.mark.parametrize("compiled", [False, True])
def test_a_gradient_is_of_the_build_that_ran_forward(kernel, compiled):
    forward = kernel.forward
    if compiled:
        forward = torch.compile(lambda x: kernel.forward(x), fullgraph=True, backend="aot_eager")
    for cols, gradient in ((2, 2.5), (4, 5.5), (5, 2.5)):
        x = ones(cols).requires_grad_()
        y = forward(x)
        assert y[0] == gradient - 0.5
        # it arrives with more columns than the class has, and still is of the same build
        assert torch.autograd.grad(y, x, ones(cols))[0].tolist() == [gradient] * cols


def test_the_classes_of_calls_are_noted(kernel):
    with jitload.shapes_of_calls(kernel) as found:
        kernel.forward(ones(7, 1000))
        kernel.forward(ones(513))
        kernel.backward(ones(4))
    assert list(map(str, found)) == ["float64, 513 to 1024 columns", "float64, 3 to 4 columns"]
    kernel.forward(ones(1))
    assert len(found) == 2


def test_an_edit_is_one_of_all_classes(kernel, table, source):
    write(source, SOURCE.replace("times(x, N)", "times(x, 10 * N)"))
    kernel.reload()
    assert [kernel.forward(ones(cols))[0].item() for cols in (4, 5)] == [50, 20]
    table[FEW] = {"N": 9}
    write(source, SOURCE)
    with pytest.raises(jitload.CompileError) as raised:
        kernel.reload()
    said = "with N = 9, which a table of tuned constants has for float64, 3 to 4 columns"
    assert raised.value.__notes__[-1] == said
