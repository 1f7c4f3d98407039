"""The norms' backward into buffers: gradients of many micro-batches add up in float32."""

import inspect
from collections.abc import Callable

import pytest
import torch
from op_cases import BEST, CASES, DEVICE, Calls, Case, by_name, module_of
from torch import Tensor, func


def takes_buffers(case: Case) -> bool:
    function = getattr(module_of(case.op.name), case.op.name)
    return "dweight" in inspect.signature(function).parameters


each_norm = pytest.mark.parametrize("case", [*filter(takes_buffers, CASES)], ids=str)
each_best = pytest.mark.parametrize("case", [*filter(takes_buffers, BEST)], ids=str)

COLS = 136


def vectors(case: Case) -> list[str]:
    return [name for name in case.shapes if case.shapes[name] == "cols"]


def buffers(case: Case, cols: int = COLS, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    """Zeros by the name of the argument: dweight and, where there is a bias, dbias."""
    return {f"d{name}": torch.zeros(cols, dtype=dtype, device=DEVICE) for name in vectors(case)}


def loss_of(function: Callable, inputs: dict[str, Tensor], seed: int) -> Tensor:
    """A random linear function of all results."""
    generator = torch.Generator(DEVICE).manual_seed(seed)
    return sum(
        (y * torch.randn(y.shape, device=DEVICE, generator=generator).to(y.dtype)).sum()
        for y in by_name(function(**inputs)).values()
    )


def batches(case: Case, dtype: torch.dtype, count: int) -> list[dict[str, Tensor]]:
    """Micro-batches with the same weights."""
    weights = case.inputs(1, COLS, dtype)
    return [
        case.inputs(37, COLS, dtype, seed) | {name: weights[name] for name in vectors(case)}
        for seed in range(count)
    ]


def accumulated(case: Case, function: Callable, given: list[dict[str, Tensor]], **more) -> dict:
    """The gradients of the vectors over all micro-batches, by autograd: what .grad then holds."""
    leaves = {name: given[0][name].detach().clone().requires_grad_() for name in vectors(case)}
    for seed, inputs in enumerate(given):
        loss_of(lambda **all_: function(**all_, **more), inputs | leaves, seed).backward()
    return {f"d{name}": leaf.grad for name, leaf in leaves.items()}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@each_norm
def test_micro_batches_add_up_in_float32(case: Case, dtype: torch.dtype):
    """Far better than .grad in a small type; and than PyTorch's gradients added up in float32,
    which are rounded once a micro-batch, at most k = 3 times worse, as weights' gradients anywhere.
    """
    given = batches(case, dtype, 32)
    into = buffers(case)
    assert all(grad is None for grad in accumulated(case, case.ours, given, **into).values())
    wide = [{name: t.double() for name, t in inputs.items()} for inputs in given]
    truth = accumulated(case, case.theirs, wide)
    each = [accumulated(case, case.theirs, [inputs]) for inputs in given]
    small = accumulated(case, case.ours, given)
    for name, want in truth.items():
        error = (into[name] - want).abs().max()
        bar = sum(grads[name].float() for grads in each)
        assert error <= 3 * (bar - want).abs().max(), name
        if dtype != torch.float32:
            assert 4 * error <= (small[name] - want).abs().max(), name


@each_norm
def test_float64(case: Case):
    given = batches(case, torch.float64, 3)
    into = buffers(case, dtype=torch.float64)
    accumulated(case, case.ours, given, **into)
    torch.testing.assert_close(into, accumulated(case, case.theirs, given))


@each_norm
def test_the_other_gradients_are_the_same(case: Case):
    (inputs,) = batches(case, torch.bfloat16, 1)
    leaves = {n: t.requires_grad_() for n, t in inputs.items() if case.shapes[n] != "cols"}
    want = torch.autograd.grad(loss_of(case.ours, inputs, 0), leaves.values())
    into = buffers(case)
    loss = loss_of(lambda **given: case.ours(**given, **into), inputs, 0)
    for got, d in zip(torch.autograd.grad(loss, leaves.values()), want, strict=True):
        assert torch.equal(got, d)


@pytest.mark.parametrize("rows", [37, 3000])
@each_best
def test_same_bits_on_every_run(case: Case, rows: int):
    inputs = case.inputs(rows, COLS, torch.bfloat16)
    runs = []
    for _ in range(3):
        into = {name: buffer + 0.1 for name, buffer in buffers(case).items()}
        for _ in range(3):
            accumulated(case, case.ours, [inputs], **into)
        runs.append(into)
    assert all(torch.equal(run[name], runs[0][name]) for run in runs for name in run)


@each_norm
def test_what_is_there_stays(case: Case):
    """A buffer gets the gradient on top of what it holds; what lies beside it gets nothing."""
    (inputs,) = batches(case, torch.float32, 1)
    want = accumulated(case, case.ours, [inputs])
    whole = torch.full((3 * COLS + 2,), 2.0, device=DEVICE)
    # Parts of one buffer of all weights, as a model has it; one element off a 16-byte boundary.
    parts = dict(zip(want, (whole[1 : COLS + 1], whole[COLS + 1 : 2 * COLS + 1]), strict=False))
    accumulated(case, case.ours, [inputs], **parts)
    for name, part in parts.items():
        assert torch.equal(part, 2 + want[name])
    assert whole[0] == 2
    assert (whole[len(parts) * COLS + 1 :] == 2).all()
    before = whole.clone()
    weights = {name: inputs[name] for name in vectors(case)}
    accumulated(case, case.ours, [case.inputs(0, COLS, torch.float32) | weights], **parts)
    assert torch.equal(whole, before)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@each_best
def test_compiled(case: Case, backend: str):
    given = batches(case, torch.bfloat16, 2)
    want, got = buffers(case), buffers(case)
    accumulated(case, case.ours, given, **want)
    op = getattr(module_of(case.op.name), case.op.name)
    torch.compiler.reset()
    compiled = torch.compile(
        lambda **inputs: op(**inputs, **case.options), fullgraph=True, backend=backend
    )
    assert all(grad is None for grad in accumulated(case, compiled, given, **got).values())
    assert all(torch.equal(got[name], want[name]) for name in want)


@each_best
def test_autocast_leaves_the_buffer_alone(case: Case):
    """It is float32; that must not make float32 of everything."""
    (inputs,) = batches(case, torch.bfloat16, 1)
    with torch.autocast(DEVICE.type, dtype=torch.bfloat16):
        results = by_name(case.ours(**inputs, **buffers(case))).values()
    assert all(y.dtype == torch.bfloat16 for y in results)


@pytest.mark.slow
@each_norm
def test_opcheck(case: Case):
    """The op below: it writes to its buffers and to nothing else, and its fake is right."""
    inputs, into = case.inputs(5, 24, torch.float64), buffers(case, 24, torch.float64)
    with Calls(module_of(case.op.name).kernel.build.name) as calls:
        accumulated(case, case.ours, [inputs], **into)
    made = {op._opname: (op, tuple(arguments)) for op, arguments in calls.noted}
    torch.library.opcheck(*made["backward_into"])


# ---- what is refused


def refusal(case: Case, change: Callable[[Tensor], Tensor | None], error: type[Exception]) -> str:
    inputs, into = case.inputs(3, 8, torch.bfloat16), buffers(case, 8)
    with pytest.raises(error) as raised:
        case.ours(**inputs, **into | {"dweight": change(into["dweight"])})
    return str(raised.value)


@each_norm
def test_a_buffer_that_does_not_fit(case: Case):
    """Said by forward: backward is too late for the person at the keyboard."""
    x = f"{DEVICE.type}:0" if DEVICE.type == "cuda" else "cpu"
    for change, message in {
        Tensor.bfloat16: "dweight is bfloat16, but x is bfloat16; wanted is float32, in which its"
        " gradients are added up",
        Tensor.double: "dweight is float64, but x is bfloat16; wanted is float32, in which its"
        " gradients are added up",
        lambda t: t[
            :7
        ]: "dweight has shape (7,), but x has shape (3, 8); wanted is (8,), an element"
        " for each column of x",
        lambda t: t.repeat(2)[::2]: "dweight is not contiguous; wanted is a buffer that is",
        Tensor.to_sparse: "dweight is sparse; wanted is a dense tensor",
    }.items():
        assert refusal(case, change, RuntimeError) == message
    if DEVICE.type == "cuda":
        message = f"dweight is on cpu, but x is on {x}; wanted is one device for all"
        assert refusal(case, Tensor.cpu, RuntimeError) == message


@pytest.mark.parametrize("case", [c for c in BEST if "bias" in c.shapes and takes_buffers(c)])
def test_one_buffer_of_two(case: Case):
    message = refusal(case, lambda _: None, ValueError)
    assert message == "dweight is None, but dbias is given; wanted are both or neither"


@each_best
def test_what_would_differentiate_the_buffer(case: Case):
    inputs, into = case.inputs(3, 8, torch.float32), buffers(case, 8)
    message = rf"^{case.op.name}\.\w+ cannot write to dweight\b.* its backward pass is recorded"

    def loss(x: Tensor) -> Tensor:
        return loss_of(lambda **given: case.ours(**given, **into), inputs | {"x": x}, 0)

    x = inputs["x"].requires_grad_()
    with pytest.raises(RuntimeError, match=message):
        torch.autograd.grad(loss(x), x, create_graph=True)
    with pytest.raises(RuntimeError, match=message):
        func.grad(loss)(inputs["x"].detach())
    assert not any(buffer.any() for buffer in into.values())
