"""Autograd graphs that span a reload: each keeps the build, and the formulas, it began with."""

import threading

import pytest
import torch
from jit_cases import load, write
from torch.utils.checkpoint import checkpoint

import jitload

pytestmark = pytest.mark.usefixtures("in_scratch")

POWER = """
#include <cmath>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
using torch::stable::Tensor;
template <class F>
Tensor map(const Tensor& grad, const Tensor& x, F f) {
    Tensor y = torch::stable::empty_like(x);
    auto g = static_cast<const double*>(grad.data_ptr());
    auto from = static_cast<const double*>(x.data_ptr());
    auto to = static_cast<double*>(y.data_ptr());
    for (int64_t i = 0; i < x.numel(); ++i) to[i] = f(g[i], from[i]);
    return y;
}
Tensor forward(const Tensor& x) {
    return map(x, x, [](double, double x) { return std::pow(x, N); });
}
Tensor backward(const Tensor& grad, const Tensor& x) {
    return map(grad, x, [](double g, double x) { return g * N * std::pow(x, N - 1); });
}
Tensor second(const Tensor& grad, const Tensor& x) {
    return map(grad, x, [](double g, double x) { return g * N * (N - 1) * std::pow(x, N - 2); });
}
STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
    m.def("forward(Tensor x) -> Tensor");
    m.def("backward(Tensor grad, Tensor x) -> Tensor");
    m.def("second(Tensor grad, Tensor x) -> Tensor");
}
STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("forward", TORCH_BOX(&forward));
    m.impl("backward", TORCH_BOX(&backward));
    m.impl("second", TORCH_BOX(&second));
}
"""  # x^N, N being the edit of these tests; at x = 2 the gradient is 4 of x^2, and 12 of x^3


def edit(n: object) -> None:
    write("power.cpp", POWER.replace("N)", f"{n})").replace("N ", f"{n} "))


def register(kernel: jitload.Kernel, is_text: bool) -> None:
    """The formulas name the handle, as everybody writes them; or the first is text."""
    for name in ("forward", "backward", "second"):
        kernel.register_fake(name)(lambda *tensors: torch.empty_like(tensors[-1]))

    def save(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    def backward(ctx, grad):
        return kernel.backward(grad, *ctx.saved_tensors)

    def double_backward(ctx, grad_dx):
        grad, x = ctx.saved_tensors
        return kernel.backward(grad_dx, x), grad_dx * kernel.second(grad, x)

    if is_text:
        kernel.register_autograd("forward", "x = backward(grad, x)")
    else:
        kernel.register_autograd("forward", backward, setup_context=save)
    kernel.register_autograd("backward", double_backward, setup_context=save)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One for all tests: so x^2 and x^3 are built once."""
    return tmp_path_factory.mktemp("power")


@pytest.fixture(params=[False, True], ids=["functions", "text"])
def kernel(request, folder, monkeypatch):
    monkeypatch.chdir(folder)
    edit(2)
    kernel = load("power.cpp")
    register(kernel, request.param)
    yield kernel
    edit(2)
    kernel.reload()


@pytest.fixture
def x():
    return torch.full((3,), 2.0, dtype=torch.float64, requires_grad=True)


def gradient(y: torch.Tensor, x: torch.Tensor, **options) -> torch.Tensor:
    return torch.autograd.grad(y, x, torch.ones_like(y), **options)[0]


def breaks(kernel: jitload.Kernel) -> None:
    edit("oops")
    with pytest.raises(jitload.CompileError):
        kernel.reload()


@pytest.mark.slow
def test_a_graph_keeps_its_build_through_edits_good_and_broken(kernel, x):
    first = kernel.forward(x)
    edit(3)
    kernel.reload()
    second = kernel.forward(x)
    assert gradient(first, x, retain_graph=True).tolist() == [4] * 3
    assert gradient(second, x, retain_graph=True).tolist() == [12] * 3
    assert gradient(kernel.forward(x) + first, x, retain_graph=True).tolist() == [16] * 3
    breaks(kernel)
    assert gradient(first, x).tolist() == [4] * 3
    assert gradient(second, x).tolist() == [12] * 3
    with pytest.raises(jitload.CompileError):
        kernel.forward(x)
    edit(3)
    kernel.reload()
    assert kernel.forward._call is kernel.at(0).forward, "and calls cost what they did"


def test_an_older_build_has_its_own_gradient(kernel, x):
    edit(3)
    kernel.reload()
    assert gradient(kernel.at(1).forward(x), x).tolist() == [4] * 3


@pytest.mark.parametrize("broken", [False, True])
def test_a_second_derivative_keeps_the_build_of_the_first(kernel, x, broken):
    y = kernel.forward(x)
    before = gradient(y, x, create_graph=True)
    if broken:
        breaks(kernel)
    else:
        edit(3)
        kernel.reload()
    after = gradient(y, x, create_graph=True)
    for first_order in (before, after):
        assert first_order.tolist() == [4] * 3
        assert gradient(first_order, x, retain_graph=True).tolist() == [2] * 3


@pytest.mark.parametrize("broken", [False, True])
def test_a_vjp_of_torch_func_keeps_its_build(kernel, x, broken):
    y, vjp = torch.func.vjp(kernel.forward, x.detach())
    breaks(kernel) if broken else (edit(3), kernel.reload())
    assert vjp(torch.ones_like(y))[0].tolist() == [4] * 3


@pytest.mark.parametrize("broken", [False, True])
def test_a_compiled_graph_keeps_its_build(kernel, x, broken):
    compiled = torch.compile(lambda x: kernel.forward(x) + 1, fullgraph=True, backend="aot_eager")
    y = compiled(x)
    breaks(kernel) if broken else (edit(3), kernel.reload())
    assert gradient(y, x).tolist() == [4] * 3
    if not broken:
        assert gradient(compiled(x), x).tolist() == [12] * 3


@pytest.mark.parametrize("broken", [False, True])
def test_a_checkpoint_computes_again_with_the_build_it_began_with(kernel, x, broken):
    """A multiplication's backward, outside of our formulas, is what has it compute again."""

    def twice(x):
        return 2 * kernel.forward(kernel.forward(x)) * x  # 2 x^5

    y = checkpoint(twice, x, use_reentrant=False)
    breaks(kernel) if broken else (edit(3), kernel.reload())
    assert gradient(y, x).tolist() == [160] * 3


@pytest.mark.parametrize("broken", [False, True])
def test_a_function_of_ones_own_keeps_the_build_it_asked_for(kernel, x, broken):
    class Power(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.build = kernel.at()
            ctx.save_for_backward(x)
            return ctx.build.forward(x)

        @staticmethod
        def backward(ctx, grad):
            return ctx.build.backward(grad, *ctx.saved_tensors)

    y = Power.apply(x)
    breaks(kernel) if broken else (edit(3), kernel.reload())
    assert gradient(y, x).tolist() == [4] * 3
    if not broken:
        assert gradient(Power.apply(x), x).tolist() == [12] * 3
        return
    with pytest.raises(jitload.CompileError):
        kernel.at()


def test_a_graph_keeps_the_formula_it_began_with(kernel, x):
    y = kernel.forward(x)
    kernel.register_autograd("forward", lambda ctx, grad: 100 * grad)
    assert gradient(y, x).tolist() == [4] * 3
    assert gradient(kernel.forward(x), x).tolist() == [100] * 3


def test_backward_in_one_thread_leaves_the_calls_of_others_alone(kernel, x):
    """The old graph's formula waits in its thread while this one calls, reloads and calls."""
    inside, go_on = threading.Event(), threading.Event()

    def waits(ctx, grad):
        inside.set()
        assert go_on.wait(60)
        return kernel.backward(grad, *ctx.saved_tensors)

    kernel.register_autograd(
        "forward", waits, setup_context=lambda ctx, inputs, _: ctx.save_for_backward(*inputs)
    )
    y, found = kernel.forward(x), []
    thread = threading.Thread(target=lambda: found.append(gradient(y, x)))
    thread.start()
    assert inside.wait(60)
    edit(3)
    kernel.reload()
    assert kernel.forward(x).tolist() == [8] * 3
    assert kernel.backward(x.detach(), x.detach()).tolist() == [24] * 3
    go_on.set()
    thread.join()
    assert found[0].tolist() == [4] * 3
    assert kernel.forward._call is kernel.at(0).forward


def test_a_formula_that_differentiates_a_newer_graph_goes_on_with_its_own_build(kernel, x):
    newer = []

    def backward(ctx, grad):
        before = kernel.backward(grad, *ctx.saved_tensors)
        inner = gradient(newer.pop(), x) if newer else 0
        return before + inner + kernel.backward(grad, *ctx.saved_tensors)

    def save(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    kernel.register_autograd("forward", backward, setup_context=save)
    y = kernel.forward(x)
    edit(3)
    kernel.reload()
    newer.append(kernel.forward(x))
    assert gradient(y, x).tolist() == [4 + 2 * 12 + 4] * 3


def test_a_check_within_a_graphs_life_changes_nothing(kernel, x):
    y = kernel.forward(x)
    with jitload.instrumented(lambda build: None):
        assert gradient(y, x, retain_graph=True).tolist() == [4] * 3
    edit(3)
    kernel.reload()
    with jitload.instrumented(lambda build: None):
        assert gradient(kernel.forward(x), x).tolist() == [12] * 3
        assert gradient(y, x, retain_graph=True).tolist() == [4] * 3
    assert kernel.forward(x).tolist() == [8] * 3
    assert kernel.forward._call is kernel.at(0).forward
