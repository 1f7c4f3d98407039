"""Gradients of the ops by PyTorch's own checkers, and the ops inside torch.compile."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from op_cases import (
    BEST,
    CASES,
    Calls,
    Case,
    by_name,
    has_second_derivative,
    module_of,
    mostly_slow,
    outcome,
)
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.autograd.gradcheck import GradcheckError

import jitload
import reference

each_case = pytest.mark.parametrize("case", CASES, ids=str)
each_best = pytest.mark.parametrize("case", BEST, ids=str)


def leaves(case: Case, rows: int, cols: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    inputs = case.inputs(rows, cols, dtype).values()
    return [tensor.requires_grad_(tensor.is_floating_point()) for tensor in inputs]


def positional(case: Case):
    """The op of its tensors alone, in the order of its shapes."""
    return lambda *tensors: case.ours(**dict(zip(case.shapes, tensors, strict=True)))


def check(checker: Callable, case: Case, shape: tuple[int, int], wrong: str) -> None:
    """One of PyTorch's checkers; where it finds something `wrong` says what that is."""
    __tracebackhide__ = True
    try:
        assert checker(positional(case), leaves(case, *shape))
    except GradcheckError as error:
        found = str(error).partition(",\nnumerical:")[0]  # both Jacobians follow
        raise AssertionError(f"{wrong}. PyTorch says: {found}") from None


@pytest.mark.parametrize("shape", [(3, 8), (5, 3)], ids=str)
@each_case
def test_first_derivative(case: Case, shape: tuple[int, int]):
    source = jitload.label(jitload.op_file(case.op.name, ".cu"))
    wrong = f"The gradient in {source} is not that of the formula there"
    check(gradcheck, case, shape, wrong)


@pytest.mark.parametrize("shape", [(3, 8), (2, 3)], ids=str)
@each_case
def test_second_derivative(case: Case, shape: tuple[int, int]):
    """Right or refused: never zero or silently wrong."""
    if has_second_derivative(case):
        source = jitload.label(jitload.op_file(case.op.name, ".cu"))
        wrong = (
            f"_double_backward in {source[:-3]}.py is not the derivative of the gradient that"
            f" {source} has now: mend it, or let it raise as kernels/norms/layer_norm.py does"
        )
        check(gradgradcheck, case, shape, wrong)
        return
    for wanted in case.differentiable:
        inputs = dict(zip(case.shapes, leaves(case, *shape), strict=True))
        ends = by_name(case.ours(**inputs)).values()
        (grad,) = torch.autograd.grad(
            sum(y.square().sum() for y in ends), inputs[wanted], create_graph=True
        )
        with pytest.raises(RuntimeError, match=f"{case.op.name} has no second derivative.*torch"):
            torch.autograd.grad(grad.sum(), inputs[case.first])


@each_best
def test_backward_calls_nothing_but_ours(case: Case):
    """PyTorch would fill zeros for each statistic that forward returns beside its results."""
    inputs = case.inputs(3, 8, torch.float32)
    wanted = [inputs[name].requires_grad_() for name in case.differentiable]
    ends = [y for y in by_name(case.ours(**inputs)).values() if y.is_floating_point()]
    arriving = [torch.ones_like(y) for y in ends]
    with Calls("aten") as calls:
        torch.autograd.grad(ends, wanted, arriving)
    assert [op for op, _ in calls.noted if not op.is_view] == []


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


@each_case
def test_only_what_is_asked_for_gets_a_gradient(case: Case):
    for wanted in case.differentiable:
        inputs = case.inputs(3, 8, torch.float32)
        inputs[wanted].requires_grad_()
        sum(y.sum() for y in by_name(case.ours(**inputs)).values()).backward()
        assert [name for name, t in inputs.items() if t.grad is not None] == [wanted]


def test_no_graph_without_a_gradient():
    case = BEST[0]
    assert not case.ours(**case.inputs(3, 8, torch.float32)).requires_grad


@each_case
@pytest.mark.parametrize("cols", [24, 33, 5000, 40000])
def test_the_same_bits_with_and_without_a_gradient(case: Case, cols: int):
    inputs = case.inputs(3, cols, torch.float32)
    recorded = outcome(case.ours, inputs)
    for name, y in by_name(case.ours(**inputs)).items():
        assert torch.equal(y, recorded[name]), name


# The gradients of linear_cross_entropy's mean are there before one arrives, but only for the first
# backward pass.
@pytest.mark.parametrize("is_recorded", [False, True])
@pytest.mark.parametrize("case", [c for c in BEST if c.op.name != "linear_cross_entropy"], ids=str)
def test_no_python_stands_between_an_op_and_its_gradient(case: Case, is_recorded: bool):
    inputs = case.inputs(3, 24, torch.float32)
    outcome(case.ours, inputs)  # the first call makes ready
    leaves = {n: t.requires_grad_(t.is_floating_point()) for n, t in inputs.items()}
    seen = set()

    def note(frame, event, argument):
        seen.add((Path(frame.f_code.co_filename).stem, frame.f_code.co_name))

    with torch.set_grad_enabled(is_recorded):
        sys.setprofile(note)
        try:
            outputs = case.ours(**leaves)
            if is_recorded:
                sum(y.sum() for y in by_name(outputs).values()).backward()
        finally:
            sys.setprofile(None)
    ours = ("gradients", "derivatives", "gradient_text")
    between = {name for module, name in seen if module in ours}
    assert between <= {"call", "is_recorded"}  # of what never recorded anything


# ---- the ops below the public functions, as torch.library sees them


def differentiable(argument: object) -> object:
    if isinstance(argument, Tensor) and argument.is_floating_point():
        return argument.detach().requires_grad_()
    return argument


def opcheck_each(case: Case) -> set[str]:
    """Checks every op below the public function in both directions; returns their names."""
    inputs = case.inputs(5, 24, torch.float64)
    with Calls(module_of(case.op.name).kernel.library.stem) as calls:
        outcome(case.ours, inputs)
        case.ours(**inputs)  # without gradients some ops call another one
    forward, _ = calls.noted[0]
    twice = has_second_derivative(case)
    for operator, arguments in calls.noted:
        if operator is forward or twice:
            arguments = [differentiable(argument) for argument in arguments]
        torch.library.opcheck(operator, arguments)
    return {operator._opname for operator, _ in calls.noted}


@pytest.mark.parametrize("name", mostly_slow(reference.OPS), ids=str)
def test_opcheck(name: str):
    """The naive version and the best one call between them all that the kernel exports."""
    module = module_of(name)
    versions = module.VERSIONS[0], module.VERSIONS[-1]
    cases = [case for case in CASES if case.op.name == name and case.version in versions]
    exports = module.kernel.build.exports
    # test_gradient_buffers.py checks those that add to a buffer, test_fp8_outputs.py the others.
    wanted = {name for name in exports if not name.endswith(("_into", "_fp8"))}
    assert set().union(*map(opcheck_each, cases)) == wanted


def test_opcheck_without_a_scale():
    opcheck_each(Case(reference.OPS["scale_bias_relu"], "vector", {"scale": 0.5}))


# ---- torch.compile


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("case", mostly_slow(BEST), ids=str)
def test_compiles_without_a_graph_break(case: Case, dynamic: bool):
    op = getattr(module_of(case.op.name), case.op.name)

    def ours(**inputs: Tensor) -> Tensor:
        return op(**inputs, **case.options, version=case.version)

    torch.compiler.reset()
    compiled = torch.compile(ours, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for rows, cols in [(4, 24), (7, 33)]:
        inputs = case.inputs(rows, cols, torch.float32)
        first = inputs[case.first]
        inputs[case.first] = first.mT.contiguous().mT  # the graph must not rely on strides
        got, want = outcome(compiled, inputs), outcome(case.ours, inputs)
        for name in want:
            assert torch.equal(got[name], want[name]), name


@pytest.mark.slow
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
