"""The ops under torch.func and autocast: right as PyTorch's own ops are, or a clear error."""

import pytest
import torch
from op_cases import (
    BEST,
    DEVICE,
    Case,
    by_name,
    cast_by_hand,
    has_second_derivative,
    module_of,
    outcome,
)
from torch import Tensor, func
from torch.utils._python_dispatch import TorchDispatchMode

each_best = pytest.mark.parametrize("case", BEST, ids=str)

ROWS, COLS = 3, 5


def scalar(case: Case, op, inputs: dict[str, Tensor]):
    """A function of the differentiable inputs that no derivative of is a constant."""
    names = case.differentiable

    def function(*tensors: Tensor) -> Tensor:
        ends = by_name(op(**inputs | dict(zip(names, tensors, strict=True)))).values()
        return sum(y.sum() * y.square().sum() for y in ends if y.is_floating_point())

    return function, tuple(inputs[name] for name in names)


@each_best
def test_grad_and_vjp(case: Case):
    inputs = case.inputs(ROWS, COLS, torch.float64)
    ours, leaves = scalar(case, case.ours, inputs)
    theirs, _ = scalar(case, case.theirs, inputs)
    everything = tuple(range(len(leaves)))
    want = func.grad(theirs, everything)(*leaves)
    torch.testing.assert_close(func.grad(ours, everything)(*leaves), want)
    y, pull = func.vjp(ours, *leaves)
    torch.testing.assert_close(pull(torch.ones_like(y)), want)


@each_best
def test_reverse_over_reverse(case: Case):
    inputs = case.inputs(ROWS, COLS, torch.float64)
    ours, leaves = scalar(case, case.ours, inputs)
    theirs, _ = scalar(case, case.theirs, inputs)

    def hessian(function):
        return func.jacrev(func.jacrev(function))(*leaves)

    if has_second_derivative(case):
        torch.testing.assert_close(hessian(ours), hessian(theirs))
    else:
        with pytest.raises(RuntimeError, match=f"{case.op.name} has no second derivative"):
            hessian(ours)


@each_best
def test_vmap(case: Case):
    """Over the first tensor alone, over all tensors, and over the gradient of one example."""
    batches = [case.inputs(ROWS, COLS, torch.float64, seed) for seed in range(3)]
    inputs, name = batches[0], case.first
    stacked = {name: torch.stack([batch[name] for batch in batches]) for name in inputs}

    got = func.vmap(lambda t: case.ours(**inputs | {name: t}))(stacked[name])
    want = [case.ours(**inputs | {name: batch[name]}) for batch in batches]
    check_batch(got, want)

    got = func.vmap(lambda given: case.ours(**given))(stacked)
    check_batch(got, [case.ours(**batch) for batch in batches])

    def example(t: Tensor) -> Tensor:
        return scalar(case, case.ours, inputs)[0](t, *leaves[1:])

    leaves = scalar(case, case.ours, inputs)[1]
    got = func.vmap(func.grad(example))(stacked[name])
    want = torch.stack([func.grad(example)(batch[name]) for batch in batches])
    torch.testing.assert_close(got, want)


def check_batch(got: Tensor | tuple[Tensor, ...], want: list) -> None:
    for name, batch in by_name(got).items():
        torch.testing.assert_close(batch, torch.stack([by_name(one)[name] for one in want]))


@each_best
def test_forward_mode_is_refused(case: Case):
    """There is no formula for it: never a tangent of 0."""
    inputs = case.inputs(ROWS, COLS, torch.float64)
    ours, leaves = scalar(case, case.ours, inputs)
    message = rf"{case.op.name}\.\w*forward has no forward-mode derivative .*torch.func.vjp"
    with pytest.raises(NotImplementedError, match=message):
        func.jvp(ours, leaves, leaves)
    with pytest.raises(NotImplementedError, match=message):
        func.jvp(lambda t: ours(t, *leaves[1:]), leaves[:1], leaves[:1])
    with pytest.raises(NotImplementedError, match="no forward-mode derivative"):
        func.hessian(ours)(*leaves)
    with torch.autograd.forward_ad.dual_level():
        x = torch.autograd.forward_ad.make_dual(leaves[0], leaves[0])
        with pytest.raises(NotImplementedError, match=message):
            ours(x, *leaves[1:])


# ---- autocast


class Multiplied(TorchDispatchMode):
    """Notes the types of matrices that PyTorch multiplies."""

    def __init__(self) -> None:
        super().__init__()
        self.types: set[torch.dtype] = set()

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if op._opname in ("mm", "bmm", "addmm", "baddbmm"):
            self.types |= {a.dtype for a in args if isinstance(a, Tensor)}
        return op(*args, **(kwargs or {}))


def assert_cast_as_by_hand(case: Case, inputs: dict[str, Tensor]) -> None:
    """Autocast's results and gradients are those of the tensors that it makes of the inputs."""
    with torch.autocast(DEVICE.type, torch.bfloat16):
        got = outcome(case.ours, inputs)
    given = cast_by_hand(module_of(case.op.name).kernel, inputs, torch.bfloat16)
    stays = len({given[name].dtype for name in case.differentiable}) > 1  # in another type
    with torch.autocast(DEVICE.type, torch.bfloat16, enabled=stays):
        want = outcome(case.ours, given)
    for name in case.differentiable:
        gradient = want.pop(f"d{name}").to(inputs[name].dtype)
        assert got[f"d{name}"].dtype == gradient.dtype, name
        assert torch.equal(got[f"d{name}"], gradient), name
    for name, y in want.items():
        assert torch.equal(got[name].to(y.dtype), y), name  # a loss may be float32


@each_best
def test_autocast_casts_what_pytorch_multiplies(case: Case):
    """And nothing else of one type: elsewhere a cast would cost time and give nothing."""
    inputs = case.inputs(ROWS, 64, torch.float32)
    with Multiplied() as multiplied, torch.autocast(DEVICE.type, torch.bfloat16):
        case.theirs(**inputs)
    given = cast_by_hand(module_of(case.op.name).kernel, inputs, torch.bfloat16)
    is_cast = torch.bfloat16 in {t.dtype for t in given.values()}
    assert is_cast == (torch.bfloat16 in multiplied.types)
    assert_cast_as_by_hand(case, inputs)


@each_best
def test_autocast_leaves_its_own_type_alone(case: Case):
    assert_cast_as_by_hand(case, case.inputs(ROWS, 64, torch.bfloat16))


@pytest.mark.parametrize("case", [c for c in BEST if len(c.differentiable) > 1], ids=str)
def test_autocast_takes_several_types(case: Case):
    """As where x comes out of a matrix product, and the weights are float32."""
    inputs = case.inputs(ROWS, 64, torch.float32)
    inputs[case.first] = inputs[case.first].bfloat16()
    with pytest.raises(RuntimeError, match="wanted is one type for all"):
        case.ours(**inputs)
    assert_cast_as_by_hand(case, inputs)


@each_best
def test_autocast_leaves_float64_alone(case: Case):
    inputs = case.inputs(ROWS, COLS, torch.float64)
    want = outcome(case.ours, inputs)
    with torch.autocast(DEVICE.type, torch.bfloat16):
        got = outcome(case.ours, inputs)
    for name in want:
        assert got[name].dtype == want[name].dtype, name
        assert torch.equal(got[name], want[name]), name


@pytest.mark.parametrize("case", [case for case in BEST if case.is_product], ids=str)
def test_autocast_of_a_compiled_product(case: Case):
    inputs, op = (
        case.inputs(ROWS, 64, torch.float32),
        getattr(module_of(case.op.name), case.op.name),
    )
    torch.compiler.reset()
    compiled = torch.compile(
        lambda **given: op(**given, **case.options), fullgraph=True, backend="aot_eager"
    )
    with torch.autocast(DEVICE.type, torch.bfloat16):
        want, got = outcome(case.ours, inputs), outcome(compiled, inputs)
    for name in want:
        assert got[name].dtype == want[name].dtype, name
        assert torch.equal(got[name], want[name]), name


def test_a_policy_of_autocast_that_there_is_not():
    with pytest.raises(ValueError, match="policy is 'widest'; wanted is one of 'promote', 'lower"):
        module_of("matmul").kernel.register_autocast("forward", policy="widest")
