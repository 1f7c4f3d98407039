"""Gradients of the ops by PyTorch's own checkers, and the ops inside torch.compile."""

import pytest
import torch
from op_cases import BEST, CASES, DEVICE, Case, module_of, outcome
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

import reference

each_case = pytest.mark.parametrize("case", CASES, ids=str)
each_best = pytest.mark.parametrize("case", BEST, ids=str)


def leaves(case: Case, rows: int, cols: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    return [tensor.requires_grad_() for tensor in case.inputs(rows, cols, dtype).values()]


def positional(case: Case):
    """The op of its tensors alone, in the order of its shapes."""
    return lambda *tensors: case.ours(**dict(zip(case.op.shapes, tensors, strict=True)))


@pytest.mark.parametrize("shape", [(3, 8), (5, 3)], ids=str)
@each_case
def test_first_derivative(case: Case, shape: tuple[int, int]):
    assert gradcheck(positional(case), leaves(case, *shape))


@pytest.mark.parametrize("shape", [(3, 8), (2, 3)], ids=str)
@pytest.mark.parametrize("case", [c for c in CASES if c.op.name != "layer_norm"], ids=str)
def test_second_derivative(case: Case, shape: tuple[int, int]):
    assert gradgradcheck(positional(case), leaves(case, *shape))


@pytest.mark.parametrize("version", module_of("scale_bias_relu").VERSIONS)
def test_derivatives_with_a_number_as_scale(version: str):
    case = Case(reference.OPS["scale_bias_relu"], version, {})
    x, _, bias = leaves(case, 3, 8)

    def function(x: Tensor, bias: Tensor) -> Tensor:
        return case.ours(x=x, scale=-0.7, bias=bias)

    assert gradcheck(function, (x, bias))
    assert gradgradcheck(function, (x, bias))


@pytest.mark.parametrize("version", module_of("scale_bias_relu").VERSIONS)
def test_second_derivative_of_a_single_row(version: str):
    case = Case(reference.OPS["scale_bias_relu"], version, {})
    x, scale, bias = leaves(case, 1, 8)
    assert gradgradcheck(positional(case), (x.detach()[0].requires_grad_(), scale, bias))


@pytest.mark.parametrize("version", module_of("layer_norm").VERSIONS)
def test_layer_norm_refuses_a_second_derivative(version: str):
    case = Case(reference.OPS["layer_norm"], version, {})
    x, weight, bias = leaves(case, 3, 8)
    y = case.ours(x=x, weight=weight, bias=bias)
    (dx,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"layer_norm has no second derivative.*torch\.nn"):
        torch.autograd.grad(dx.sum(), x)


@each_case
def test_only_what_is_asked_for_gets_a_gradient(case: Case):
    for wanted in case.op.shapes:
        inputs = case.inputs(3, 8, torch.float32)
        inputs[wanted].requires_grad_()
        case.ours(**inputs).sum().backward()
        assert [name for name, t in inputs.items() if t.grad is not None] == [wanted]


def test_no_graph_without_a_gradient():
    case = BEST[0]
    assert not case.ours(**case.inputs(3, 8, torch.float32)).requires_grad


# ---- the ops below the public functions, as torch.library sees them

OPERATORS = {
    "square": {"forward": "x", "backward": "xx"},
    "relu": {"forward": "x", "backward": "xx"},
    "scale_bias_relu": {"forward": "xv1v", "backward": "xxv1v"},
    "reduce_sum": {"forward": "xb"},
    "layer_norm": {"forward": "xvv1", "backward": "xxvss"},
}


def operators_of(name: str):
    """torch.ops' namespace of the op's build, which is named like its library."""
    return getattr(torch.ops, module_of(name).kernel.library.stem)


def arguments(letters: str, version: int, differentiable: bool = True) -> list:
    """x: [5, 24], v: [24], s: [5], not to be differentiated; 1: a number; b: a bool."""
    sizes = {"x": (5, 24), "v": (24,), "s": (5,)}
    made = {"1": 1e-5, "b": False}
    tensors = iter(torch.randn(len(letters), 120).double().to(DEVICE))
    values = []
    for letter in letters:
        if letter in made:
            values.append(made[letter])
        else:
            size = sizes[letter]
            part = next(tensors)[: torch.Size(size).numel()].view(size).clone()
            values.append(part.requires_grad_(differentiable and letter != "s"))
    return [*values, version]


@pytest.mark.parametrize("version", [0, -1], ids=["naive", "best"])
@pytest.mark.parametrize(
    ("name", "function"), [(name, f) for name, fs in OPERATORS.items() for f in fs]
)
def test_opcheck(name: str, function: str, version: int):
    operator = getattr(operators_of(name), function).default
    number = range(len(module_of(name).VERSIONS))[version]
    differentiable = (name, function) != ("layer_norm", "backward")
    torch.library.opcheck(operator, arguments(OPERATORS[name][function], number, differentiable))


def test_opcheck_without_a_scale():
    operators = operators_of("scale_bias_relu")
    grad, x, bias = arguments("xxv", 1)[:3]
    torch.library.opcheck(operators.forward.default, (x, None, 0.5, bias, 1))
    torch.library.opcheck(operators.backward.default, (grad, x, None, 0.5, bias, 1))


# ---- torch.compile


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@each_best
def test_compiles_without_a_graph_break(case: Case, dynamic: bool):
    op = getattr(module_of(case.op.name), case.op.name)

    def ours(**inputs: Tensor) -> Tensor:
        return op(**inputs, **case.options, version=case.version)

    torch.compiler.reset()
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for rows, cols in [(4, 24), (7, 33)]:
        inputs = case.inputs(rows, cols, torch.float32)
        inputs["x"] = inputs["x"].mT.contiguous().mT  # the graph must not rely on strides
        got, want = outcome(compiled, inputs), outcome(case.ours, inputs)
        for name in want:
            assert torch.equal(got[name], want[name]), name


def test_compiles_with_inductor():
    ops = {name: getattr(module_of(name), name) for name in reference.OPS}

    def block(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        y = ops["layer_norm"](x, weight, bias) + 1
        y = ops["scale_bias_relu"](y, weight, bias) + ops["scale_bias_relu"](y, 0.5, bias)
        return ops["reduce_sum"](ops["square"](ops["relu"](y)) * 2, dim=None)

    torch.compiler.reset()
    inputs = Case(reference.OPS["layer_norm"], "", {}).inputs(6, 40, torch.float32)
    got = outcome(torch.compile(block, fullgraph=True), inputs)
    want = outcome(block, inputs)
    for name in want:
        torch.testing.assert_close(got[name], want[name])
