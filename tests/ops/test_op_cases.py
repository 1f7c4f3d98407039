"""The tests' own judgement of an op and the lab's table of it, on small made-up ops.

Each made-up op is declared as in reference.py, and "our kernel" of it is a function in PyTorch that
is right, or wrong in one way: then the judgement must say so.
"""

import math
import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from op_cases import DEVICE, Case, assert_as_good_as_pytorch, outcome
from torch import Tensor

from lab.measure import case as lab_cases
from lab.rivals.implementation import Implementation
from lab.rivals.pytorch import eager
from reference import Op

# ---- integers among the inputs, an option that decides the shape of the output


def pick(x: Tensor, target: Tensor, reduction: str = "mean") -> Tensor:
    """y[r] = x[r, target[r]]^2, and their mean or sum"""
    y = x.gather(-1, target[..., None])[..., 0].square()
    return {"none": lambda: y, "mean": y.mean, "sum": y.sum}[reduction]()


PICK = Op(
    "pick",
    pick,
    {"x": "rows cols", "target": "rows"},
    ({"reduction": "none"}, {"reduction": "mean"}, {"reduction": "sum"}),
    {"target": "cols"},
)

# ---- several outputs, a tensor that may be left out


def add_scale(x: Tensor, weight: Tensor, residual: Tensor | None) -> Tensor | tuple[Tensor, Tensor]:
    """(y, sum): sum = x + residual, y = sum^2 * weight; y alone without a residual"""
    if residual is None:
        return x.square() * weight
    total = x + residual
    return total.square() * weight, total


ADD_SCALE = Op(
    "add_scale",
    add_scale,
    {"x": "rows cols", "weight": "cols", "residual": "rows cols"},
    ({}, {"residual": None}),
)

# ---- several outputs, one of them integers


def top(x: Tensor) -> tuple[Tensor, Tensor]:
    """(y, index): the largest of each row, and where it stands"""
    return tuple(x.max(-1))


TOP = Op("top", top, {"x": "rows cols"})

# ---- a result that depends on a seed; without one PyTorch draws


def mask(x: Tensor, seed: int | None) -> Tensor:
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    return torch.rand(x.shape, generator=generator).to(x.device) < 0.5


def drop(x: Tensor, weight: Tensor, seed: int | None) -> Tensor:
    """y = x * mask * weight"""
    return x * mask(x, seed) * weight


DROP = Op("drop", drop, {"x": "rows cols", "weight": "cols"}, ({"seed": 3}, {"seed": 4}))


# ---- the judgement


@pytest.fixture
def case_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[Op, dict, Callable], Case]:
    """Makes a case of an op whose kernel is the given function."""

    def make(op: Op, options: dict, kernel: Callable) -> Case:
        def ours(*, version: str, **arguments):
            return kernel(**arguments)

        module = SimpleNamespace(**{op.name: ours}, VERSIONS=("only",))
        monkeypatch.setitem(sys.modules, f"kernels.{op.name}", module)
        return Case(op, "only", options)

    return make


EACH = [(op, options) for op in (PICK, ADD_SCALE, DROP) for options in op.options]
each_op = pytest.mark.parametrize(
    ("op", "options"), EACH, ids=[str(Case(op, "", options)) for op, options in EACH]
)
each_dtype = pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str
)


def judge(case: Case, dtype: torch.dtype = torch.float32) -> None:
    assert_as_good_as_pytorch(case, lambda seed: case.inputs(5, 24, dtype, seed))


@each_dtype
@each_op
def test_a_right_kernel_passes(case_of, op: Op, options: dict, dtype: torch.dtype):
    judge(case_of(op, options, op.function), dtype)


def pick_neighbour(x: Tensor, target: Tensor, reduction: str) -> Tensor:
    return pick(x, (target - 1) % x.shape[-1], reduction)


def forget_gradient_of_sum(x: Tensor, weight: Tensor, residual: Tensor | None):
    result = add_scale(x, weight, residual)
    return result if residual is None else (result[0], result[1].detach().requires_grad_())


def wrong_sum(x: Tensor, weight: Tensor, residual: Tensor | None):
    result = add_scale(x, weight, residual)
    return result if residual is None else (result[0], result[1] * (1 + 1e-5))


def forget_residual(x: Tensor, weight: Tensor, residual: Tensor | None):
    return add_scale(x, weight, None if residual is None else residual.detach())


def one_nan(x: Tensor, weight: Tensor, seed: int):
    return torch.where(x == x.max(), math.nan, drop(x, weight, seed))


@pytest.mark.parametrize(
    ("op", "options", "kernel", "name"),
    [
        (PICK, {"reduction": "none"}, pick_neighbour, "y"),
        (PICK, {"reduction": "mean"}, pick_neighbour, "y"),
        (ADD_SCALE, {}, forget_gradient_of_sum, "dx"),
        (ADD_SCALE, {}, wrong_sum, "y1"),
        (ADD_SCALE, {}, forget_residual, "dresidual"),
        (DROP, {"seed": 3}, lambda x, weight, seed: drop(x, weight, seed + 1), "y"),
        (DROP, {"seed": 3}, one_nan, "y"),
    ],
)
def test_a_wrong_kernel_fails(case_of, op: Op, options: dict, kernel: Callable, name: str):
    with pytest.raises(AssertionError, match=f"^{name} is wrong by"):
        judge(case_of(op, options, kernel))


def test_a_missing_output_fails(case_of):
    with pytest.raises(AssertionError, match="outputs are y0; wanted are y0, y1"):
        judge(case_of(ADD_SCALE, {}, lambda **given: add_scale(**given)[:1]))


# ---- outcome


def test_outcome_names_every_output_and_gradient(case_of):
    case = case_of(ADD_SCALE, {}, add_scale)
    got = outcome(case.ours, case.inputs(2, 3, torch.float32))
    assert list(got) == ["y0", "y1", "dx", "dweight", "dresidual"]
    case = case_of(ADD_SCALE, {"residual": None}, add_scale)
    got = outcome(case.ours, case.inputs(2, 3, torch.float32))
    assert list(got) == ["y", "dx", "dweight"]


def test_every_output_gets_its_own_gradient(case_of):
    case = case_of(ADD_SCALE, {}, add_scale)
    inputs = case.inputs(2, 3, torch.float64)
    grads = torch.randn(2, 2, 3, dtype=torch.float64, device=DEVICE).unbind()
    total = inputs["x"] + inputs["residual"]
    want = 2 * grads[0] * total * inputs["weight"] + grads[1]
    got = outcome(case.ours, inputs, grads)
    torch.testing.assert_close(got["dx"], want)
    torch.testing.assert_close(got["dresidual"], want)


def test_integers_have_no_gradient(case_of):
    case = case_of(PICK, {"reduction": "none"}, pick)
    inputs = case.inputs(2, 3, torch.float32)
    assert case.differentiable == ["x"]
    assert list(outcome(case.ours, inputs)) == ["y", "dx"]
    case = case_of(TOP, {}, top)
    got = outcome(case.ours, case.inputs(2, 3, torch.float32))
    assert list(got) == ["y0", "y1", "dx"]
    assert got["dx"].sum() == 2


@pytest.mark.parametrize("shape", [(3,), (4, 3), (2, 1, 4, 3)], ids=str)
def test_inputs_of_other_ranks(case_of, shape: tuple[int, ...]):
    case = case_of(PICK, {"reduction": "none"}, pick)
    inputs = case.inputs_of_rank(shape, torch.float32)
    assert inputs["x"].shape == shape
    assert inputs["target"].shape == shape[:-1]
    assert case.ours(**inputs).shape == shape[:-1]


# ---- the lab's table


def lab_case(op: Op, options: dict, backward: bool) -> lab_cases.Case:
    return lab_cases.Case(op, (8, 64), torch.float32, DEVICE, options, backward)


@pytest.mark.parametrize("backward", [False, True])
@each_op
def test_the_lab_measures_it(op: Op, options: dict, backward: bool):
    case = lab_case(op, options, backward)
    wrong = Implementation("wrong", lambda **given: scaled(op.function(**given)))
    assert case.measure(wrong, timed=False).error.max > 100 * case.torch_error.max


def scaled(result: Tensor | tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
    """Everything a little too large."""
    factor = 1 + 2**-10
    return result * factor if isinstance(result, Tensor) else tuple(y * factor for y in result)


X, V = 4 * 8 * 64, 4 * 64  # bytes of a float32 tensor, of a vector over the columns


@pytest.mark.parametrize(
    ("op", "options", "forward", "backward"),
    [
        # x, weight in and y out; backward grad, x, weight in and two gradients out
        (ADD_SCALE, {"residual": None}, 2 * X + V, 3 * X + 2 * V),
        # x, residual, weight in and y, sum out; backward two grads, sum, weight in, and gradients
        # out: dx and dresidual are one and the same tensor
        (ADD_SCALE, {}, 4 * X + V, 4 * X + 2 * V),
        # 8-byte targets; backward grad of y is as long
        (PICK, {"reduction": "none"}, X + 8 * 8 + 4 * 8, 4 * 8 + X + 8 * 8 + X),
        (PICK, {"reduction": "sum"}, X + 8 * 8 + 4, 4 + X + 8 * 8 + X),
        (DROP, {"seed": 3}, 2 * X + V, 3 * X + 2 * V),
    ],
)
def test_bytes_are_counted_from_the_tensors(op: Op, options: dict, forward: int, backward: int):
    for is_backward, size in ((False, forward), (True, backward)):
        case = lab_case(op, options, is_backward)
        assert case.measure(eager(op), timed=False).bytes == size


def test_the_lab_names_outputs_and_gradients():
    assert lab_case(ADD_SCALE, {}, backward=False).names == ["output 0", "output 1"]
    assert lab_case(ADD_SCALE, {}, backward=True).names == [
        *("gradient of x", "gradient of weight", "gradient of residual")
    ]
    assert lab_case(PICK, {"reduction": "mean"}, backward=True).names == ["gradient of x"]
