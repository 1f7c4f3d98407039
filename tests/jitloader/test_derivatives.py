"""Gradients given as text: what it may say, and that they are the same recorded by Python."""

import gc
import sys
import threading
import weakref

import pytest
import torch
from jit_cases import load, write
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from jitloader import derivatives
from jitloader.building import ensure
from simulator import torch_rewrite
from simulator.scan import blank
from tests.helpers import forks
from toolchain.errors import CompileError

pytestmark = pytest.mark.usefixtures("in_scratch")

# y = a * b + c and total = a + b. In double; backward counts what it is called with.
SOURCE = """
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
using torch::stable::Tensor;
static int64_t calls = 0;
double* of(const Tensor& t) { return static_cast<double*>(t.data_ptr()); }
template <class F>
Tensor filled(const Tensor& like, F f) {
    Tensor y = torch::stable::empty_like(like);
    for (int64_t i = 0; i < y.numel(); ++i) of(y)[i] = f(i);
    return y;
}
std::tuple<Tensor, Tensor, Tensor> forward(Tensor a, Tensor b, std::optional<Tensor> c,
                                           double scale, std::optional<Tensor> buffer) {
    return {filled(a, [&](int64_t i) { return scale * of(a)[i] * of(b)[i] + (c ? of(*c)[i] : 0); }),
            filled(a, [&](int64_t i) { return of(a)[i] + of(b)[i]; }),
            filled(a, [](int64_t i) { return i; })};
}
Tensor infer(Tensor a, Tensor b, std::optional<Tensor> c, double scale) {
    return std::get<0>(forward(a, b, c, scale, std::nullopt));
}
std::tuple<Tensor, Tensor> backward(Tensor grad, std::optional<Tensor> grad_total, Tensor a,
                                    Tensor b, double scale) {
    ++calls;
    grad = torch::stable::contiguous(grad);
    if (grad_total) grad_total = torch::stable::contiguous(*grad_total);
    const auto more = [&](int64_t i) { return grad_total ? of(*grad_total)[i] : 0; };
    return {filled(a, [&](int64_t i) { return scale * of(grad)[i] * of(b)[i] + more(i); }),
            filled(a, [&](int64_t i) { return scale * of(grad)[i] * of(a)[i] + more(i); })};
}
Tensor backward_into(Tensor grad, Tensor a, Tensor b, double scale, Tensor buffer) {
    for (int64_t i = 0; i < a.numel(); ++i) of(buffer)[i] += scale * of(grad)[i] * of(a)[i];
    return filled(a, [&](int64_t i) { return scale * of(grad)[i] * of(b)[i]; });
}
Tensor which(Tensor grad, bool needs_a, bool needs_b) {
    return filled(grad, [&](int64_t) { return needs_a + 10 * needs_b; });
}
Tensor same(Tensor a) { return a; }
std::tuple<Tensor, Tensor> early(Tensor a) {
    return {filled(a, [&](int64_t i) { return of(a)[i] * of(a)[i]; }),
            filled(a, [&](int64_t i) { return 2 * of(a)[i]; })};
}
void scale_(Tensor da, Tensor grad) {
    for (int64_t i = 0; i < da.numel(); ++i) of(da)[i] *= of(grad)[i];
}
Tensor late(Tensor grad, Tensor a, int64_t factor) {
    ++calls;
    return filled(a, [&](int64_t i) { return factor * of(a)[i] * of(grad)[i]; });
}
int64_t count() { return calls; }
STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
    m.def("forward(Tensor a, Tensor b, Tensor? c, float scale, Tensor? buffer=None)"
          " -> (Tensor y, Tensor total, Tensor index)");
    m.def("infer(Tensor a, Tensor b, Tensor? c, float scale) -> Tensor");
    m.def("backward(Tensor grad, Tensor? grad_total, Tensor a, Tensor b, float scale)"
          " -> (Tensor, Tensor)");
    m.def("backward_into(Tensor grad, Tensor a, Tensor b, float scale, Tensor(a!) buffer)"
          " -> Tensor");
    m.def("which(Tensor grad, bool needs_a, bool needs_b) -> Tensor");
    m.def("same(Tensor a) -> Tensor");
    m.def("early(Tensor a) -> (Tensor y, Tensor da)");
    m.def("scale_(Tensor(a!) da, Tensor grad) -> ()");
    m.def("late(Tensor grad, Tensor a, int factor) -> Tensor");
    m.def("count() -> int");
}
STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("forward", TORCH_BOX(&forward));
    m.impl("infer", TORCH_BOX(&infer));
    m.impl("backward", TORCH_BOX(&backward));
    m.impl("backward_into", TORCH_BOX(&backward_into));
    m.impl("which", TORCH_BOX(&which));
    m.impl("same", TORCH_BOX(&same));
    m.impl("early", TORCH_BOX(&early));
    m.impl("scale_", TORCH_BOX(&scale_));
    m.impl("late", TORCH_BOX(&late));
    m.impl("count", TORCH_BOX(&count));
}
"""
TEXT = """
a = backward_into(grad, a, b, scale, buffer)
a, b = backward(grad, grad_total, a, b, scale)
c = grad
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("derivatives")


@pytest.fixture(params=["recorded", "by Python"])
def kernel(request, folder, monkeypatch):
    """Recorded by derivatives.cpp, or by its stand-in where that does not compile."""
    monkeypatch.chdir(folder)
    if request.param == "by Python":
        monkeypatch.setattr(derivatives, "_library", lambda: None)
    write("formula.cpp", f"{SOURCE}// {request.param}\n")
    kernel = load("formula.cpp")
    kernel.register_autograd("forward", TEXT, infer="infer")
    return kernel


def test_where_it_does_not_compile_python_records(monkeypatch):
    def fails(recipe):
        raise CompileError("no compiler today")

    monkeypatch.setattr(derivatives, "ensure", fails)
    with pytest.warns(UserWarning, match="recorded by Python, .*: no compiler today"):
        assert derivatives._library.__wrapped__() is None


def leaves(requires_grad: tuple[bool, bool, bool] = (True, True, True)) -> list[torch.Tensor]:
    values = ([2.0, 3.0], [5.0, 7.0], [1.0, 1.0])
    return [
        torch.tensor(value, dtype=torch.float64, requires_grad=needs)
        for value, needs in zip(values, requires_grad, strict=True)
    ]


def gradients(y: torch.Tensor, *inputs: torch.Tensor) -> list[list[float] | None]:
    grads = torch.autograd.grad(y, inputs, torch.ones_like(y), allow_unused=True)
    return [None if grad is None else grad.tolist() for grad in grads]


def test_each_input_has_its_gradient(kernel):
    a, b, c = leaves()
    y = kernel.infer(a, b, c, 2.0)
    assert y.tolist() == [21, 43]
    assert gradients(y, a, b, c) == [[10, 14], [4, 6], [1, 1]]


def test_the_op_itself_gives_all_results_and_those_without_a_gradient_require_none(kernel):
    a, b, c = leaves()
    y, total, index = kernel.forward(a, b, c, 2.0)
    assert y.requires_grad
    assert total.requires_grad
    assert not index.requires_grad
    assert gradients(y + total, a, b) == [[11, 15], [5, 7]]


def test_an_output_that_nobody_used_has_none_or_zeros(kernel):
    a, b, c = leaves()
    _, total, _ = kernel.forward(a, b, c, 2.0)
    assert gradients(total, a, b, c) == [[1, 1], [1, 1], None]


def test_an_input_may_be_none(kernel):
    a, b, _ = leaves()
    assert gradients(kernel.infer(a, b, None, 2.0), a, b) == [[10, 14], [4, 6]]


def test_what_no_wanted_gradient_takes_is_neither_saved_nor_called(kernel):
    a, b, c = leaves((False, False, True))
    seen = weakref.ref(a)
    y = kernel.infer(a, b, c, 2.0)
    before = kernel.count()
    assert gradients(y, c) == [[1, 1]]
    assert kernel.count() == before
    y = kernel.infer(a, b, c, 2.0)
    del a
    gc.collect()
    assert seen() is None, "y holds a, which the gradient of c does not take"


def test_of_lines_for_one_input_the_first_counts_whose_tensors_are_given(kernel):
    a, b, c = leaves()
    buffer = torch.zeros_like(a)
    y = kernel.infer(a, b, c, 2.0, buffer)
    assert y.tolist() == [21, 43]
    assert gradients(y, a, b, c) == [[10, 14], None, [1, 1]]
    assert buffer.tolist() == [4, 6]


def test_what_writes_cannot_be_recorded(kernel):
    a, b, c = leaves()
    y = kernel.infer(a, b, c, 2.0, torch.zeros_like(a))
    with pytest.raises(RuntimeError, match=r"formula\.forward cannot write to .*create_graph=True"):
        torch.autograd.grad(y.sum(), a, create_graph=True)


def test_infer_runs_where_nothing_is_recorded(kernel):
    a, b, c = leaves()
    with torch.no_grad():
        assert kernel.infer(a, b, c, 2.0).grad_fn is None
        assert kernel.infer(a, b, c, 2.0, torch.zeros_like(a)).tolist() == [21, 43]
    plain = [t.detach() for t in (a, b, c)]
    assert not kernel.infer(*plain, 2.0).requires_grad
    with torch.inference_mode():
        assert kernel.infer(*plain, 2.0).tolist() == [21, 43]


@pytest.mark.parametrize("needs", [(True, False), (False, True), (True, True)])
def test_a_function_can_be_told_which_gradients_are_wanted(kernel, needs):
    kernel.register_autograd("forward", "a = b = which(grad, needs_a, needs_b)", infer="infer")
    a, b, c = leaves((*needs, False))
    wanted = [t for t in (a, b) if t.requires_grad]
    told = needs[0] + 10 * needs[1]
    assert gradients(kernel.infer(a, b, c, 2.0), *wanted) == [[told, told]] * len(wanted)
    kernel.register_autograd("forward", TEXT, infer="infer")
    assert gradients(kernel.infer(a, b, c, 2.0), *wanted)[0] in ([10, 14], [4, 6])


def test_a_gradient_may_be_expanded(kernel):
    kernel.register_autograd("forward", "c = expand(grad)", infer="infer")
    a, b, _ = leaves((False, False, False))
    for shape in [(2, 3), (2, 3, 2), (2,)]:
        c = torch.ones(shape, dtype=torch.float64, requires_grad=True)
        grad = torch.tensor([3.0, 5.0], dtype=torch.float64, requires_grad=True)
        y = kernel.infer(a, b, c, 2.0)
        (wide,) = torch.autograd.grad(y, c, grad, create_graph=True)
        assert torch.equal(wide, grad.reshape(2, *[1] * (c.dim() - 1)).expand(shape))
        assert wide.data_ptr() == grad.data_ptr()
        assert gradients(wide, grad) == [[c.numel() / 2] * 2]
    kernel.register_autograd("forward", TEXT, infer="infer")


def test_a_gradient_that_is_there_is_given_once(kernel):
    kernel.register_autograd("early", "a = scale_(da, grad)\na = late(grad, a, 2)")
    a, _, _ = leaves()
    grad = torch.tensor([3.0, 5.0], dtype=torch.float64)
    y = kernel.early(a)[0]
    before = kernel.count()
    for computed in range(3):
        (da,) = torch.autograd.grad(y, a, grad, retain_graph=True)
        assert da.tolist() == [12, 30]
        assert kernel.count() - before == computed
    y = kernel.early(a)[0]
    torch.autograd.grad(y, a, grad, create_graph=True)
    assert kernel.count() - before == 3
    assert torch.autograd.grad(y, a, grad)[0].tolist() == [12, 30]
    assert kernel.count() - before == 3


def test_an_op_may_return_its_input(kernel):
    kernel.register_autograd("same", "a = grad")
    a, _, _ = leaves()
    y = kernel.same(a)
    assert a.is_leaf
    assert not y.is_leaf
    assert gradients(y, a) == [[1, 1]]


def test_a_graph_is_freed_and_runs_once(kernel):
    a, b, c = leaves()
    y = kernel.infer(a, b, c, 2.0)
    y.sum().backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        y.sum().backward()
    y = kernel.infer(a, b, c, 2.0)
    seen = weakref.ref(a)
    del y, a
    gc.collect()
    assert seen() is None


def test_a_long_graph_is_freed_node_by_node(kernel):
    """Recursion from each node into the next would overflow the stack."""
    kernel.register_autograd("same", "a = grad")
    a, _, _ = leaves()
    y = a
    for _ in range(30000):
        y = kernel.same(y)
    seen = weakref.ref(a)
    del y, a
    gc.collect()
    assert seen() is None


def test_what_was_changed_in_place_since_raises(kernel):
    a, b, c = leaves()
    y = kernel.infer(a, b, c, 2.0)
    with torch.no_grad():
        a.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        gradients(y, b)


def test_hooks_checkpoints_and_threads(kernel):
    a, b, c = leaves()
    packed = []
    with saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        y = kernel.infer(a, b, c, 2.0)
    assert packed, "the hook sees what is saved"
    assert gradients(y, a, b, c) == [[10, 14], [4, 6], [1, 1]]
    y = checkpoint(kernel.infer, a, b, c, 2.0, use_reentrant=False)
    assert gradients(y, a) == [[10, 14]]
    found = []
    y = kernel.infer(a, b, c, 2.0)
    thread = threading.Thread(target=lambda: found.extend(gradients(y, a)))
    thread.start()
    thread.join()
    assert found == [[10, 14]]


def test_torch_func_and_forward_mode(kernel):
    a, b, c = leaves((False, False, False))
    of = torch.func.grad(lambda a: kernel.infer(a, b, c, 2.0).sum())
    assert of(a).tolist() == [10, 14]
    kernel.infer(*leaves(), 2.0)  # the recorder is there now
    assert of(a).tolist() == [10, 14]
    with pytest.raises(NotImplementedError, match="no forward-mode derivative"):
        torch.func.jvp(lambda a: kernel.infer(a, b, c, 2.0), (a,), (torch.ones_like(a),))


def test_torch_compile(kernel):
    @kernel.register_fake("forward")
    def _(a, b, c, scale, buffer=None):
        return tuple(torch.empty_like(a) for _ in range(3))

    @kernel.register_fake("backward")
    def _(grad, grad_total, a, b, scale):
        return torch.empty_like(a), torch.empty_like(a)

    a, b, c = leaves()
    compiled = torch.compile(
        lambda a: kernel.infer(a, b, c, 2.0) * 3, fullgraph=True, backend="aot_eager"
    )
    assert gradients(compiled(a), a) == [[30, 42]]


def test_errors_of_a_call_name_the_function(kernel):
    kernel.infer(*leaves(), 2.0)
    with pytest.raises(RuntimeError, match=r"::(infer|forward)\(\) is missing .*'scale'"):
        kernel.infer(*leaves())


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("a = ", "cannot be read: .*line 1"),
        ("backward(grad)", "is not of the form NAMES = FUNCTION"),
        ("a = backward(scale=scale)", "is not of the form"),
        ("a = backwards(grad)", "calls backwards, which the kernel does not have"),
        ("a = expand(grad, a)", "calls expand, which the kernel does not have"),
        ("a = which(grad)", "gives 1 arguments; which takes grad, needs_a, needs_b"),
        ("a, b = which(grad, needs_a, needs_b)", "has 2 results; which has 1"),
        ("x = which(grad, needs_a, needs_b)", "gives a gradient to x; the inputs are a, b, c,"),
        ("a = which(grad_z, needs_a, needs_b)", "names grad_z, none of a, b, c, .*grad_OUTPUT"),
        ("a = which(grad, needs_z, needs_b)", "names needs_z"),
        ("a = which(grad + 1, needs_a, needs_b)", r"names grad \+ 1"),
        ("a, b = scale_(total, grad)", "has 2 results; scale_ has 1"),
        ("a = scale_(a, grad)", "gives a; wanted are outputs of the op"),
    ],
)
def test_what_text_cannot_say(kernel, text, wrong):
    with pytest.raises(ValueError, match=f"formula.*of formula.forward.*{wrong}"):
        kernel.register_autograd("forward", text, infer="infer")
    kernel.register_autograd("forward", TEXT, infer="infer")


def test_the_library_needs_no_simulator():
    """Where kernels run on a GPU, none is loaded."""
    library = ensure(derivatives.recipe()).library
    program = "import ctypes, sys, torch; ctypes.CDLL(sys.argv[1])"
    done = forks.run([sys.executable, "-c", program, str(library)])
    assert done.returncode == 0, done.stderr


def test_the_simulator_rewrites_nothing_of_the_library():
    """Else a key of CUDA's would become the CPU's, and no tensor on a GPU would be a plain one."""
    text = derivatives.SOURCE.read_text()
    assert not list(torch_rewrite.edits(text, blank(text)))
