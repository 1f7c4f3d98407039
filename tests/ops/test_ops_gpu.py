"""What only a GPU can show: more than 2^31 elements, other streams, a second device."""

import inspect

import pytest
import torch
from op_cases import (
    BEST,
    CASES,
    DEVICE,
    Case,
    assert_close_to_pytorch,
    assert_same_but_for_order,
    by_name,
    converted,
    module_of,
    outcome,
    skip_unless_free,
)
from torch import Tensor

import reference

if DEVICE.type != "cuda":
    pytest.skip("the simulator has one stream and one device", allow_module_level=True)
pytestmark = pytest.mark.gpu

each_best = pytest.mark.parametrize("case", BEST, ids=str)
NEEDED = 90 << 30  # bytes, at most: twenty tensors of 2^31 bfloat16, and room to move
# With a seed a row alone is not what it is among others.
SEEDLESS = [case for case in CASES if "seed" not in case.options]


def one_row(case: Case, cols: int) -> dict[str, Tensor]:
    """bfloat16; letters such as units are 2 where cols is 1, so that rows may be 2^31, too."""
    sizes = dict.fromkeys(case.op.sizes, 2) if cols == 1 else {}
    return case.op.inputs(1, cols, torch.bfloat16, DEVICE, without=case.options, **sizes)


def rows_and_needed(case: Case, rows: int, cols: int) -> tuple[int, int]:
    """As many rows as give the widest tensor rows * cols elements, and the bytes that they take.

    Forward and backward hold six times the inputs and results, at most."""
    inputs = one_row(case, cols)
    results = by_name(case.theirs(**inputs)).values()
    of_rows = [inputs[n] for n, shape in case.shapes.items() if shape.startswith("rows")]
    of_rows += [y for y in results if y.dim()]
    rows = -(-rows * cols // max(t.numel() for t in of_rows))
    return rows, min(NEEDED, 6 * rows * sum(t.nbytes for t in of_rows))


def big_inputs(case: Case, rows: int, cols: int) -> dict[str, Tensor]:
    """All zero but for the last row: what leaves there must have come from there."""
    inputs = one_row(case, cols)
    for name, shape in case.shapes.items():
        if shape.startswith("rows"):
            last = inputs[name]
            inputs[name] = last.new_zeros(rows, *last.shape[1:])
            inputs[name][-1:] = last
    return inputs


def only_rows(case: Case, inputs: dict[str, Tensor], rows: slice) -> dict[str, Tensor]:
    return {
        name: tensor[rows] if case.shapes[name].startswith("rows") else tensor
        for name, tensor in inputs.items()
    }


def in_rows(y: Tensor, like: Tensor, rows: int) -> Tensor:
    """y with its rows first; they stand where the result `like` of so many rows has them."""
    return y.movedim(like.shape.index(rows), 0)


def last_rows(rows: int) -> slice:
    """The last row and those before it down to one that begins on a 16-byte boundary, as the first
    does: the order in which a row is added up depends on where it begins."""
    return slice((rows - 1) // 8 * 8, rows)


def from_halves(case: Case, inputs: dict[str, Tensor], rows: int) -> dict[str, Tensor]:
    """The reference's sum or mean over all rows; PyTorch's nll_loss cannot do 2^31 rows at once."""
    total = {}
    bound = inspect.signature(case.op.function).bind_partial(**case.options)
    bound.apply_defaults()
    is_mean = bound.arguments.get("reduction") == "mean"
    for half in (slice(0, rows // 2), slice(rows // 2, rows)):
        share = (half.stop - half.start) / rows if is_mean else 1
        for name, y in by_name(case.theirs(**only_rows(case, inputs, half))).items():
            total[name] = total.get(name, 0) + y * share
    return total


def assert_same(case: Case, got: Tensor, want: Tensor, name: str) -> None:
    """The same bits; but a product of few rows may add up in another order."""
    if case.is_product:
        assert_same_but_for_order(got, want, name)
    else:
        assert torch.equal(got, want), name


# 4104 columns pass 2^31 in the middle of a row; 4099 are no multiple of the vector.
SHAPES = [(case, 2**19 + 3, cols) for case in SEEDLESS for cols in (4104, 4099)]
# Of attention, the head size that tensor cores take.
SHAPES += [(case, 2**24 + 3, 128) for case in SEEDLESS if case.is_product]
NARROW = [(case, 2**31 + 8, 1) for case in SEEDLESS]


@pytest.mark.parametrize(("case", "rows", "cols"), SHAPES + NARROW, ids=str)
def test_more_than_two_to_the_31_elements(case: Case, rows: int, cols: int):
    rows, needed = rows_and_needed(case, rows, cols)
    skip_unless_free(needed)
    inputs = big_inputs(case, rows, cols)
    end = last_rows(rows)
    got = by_name(case.ours(**inputs))
    last = by_name(case.ours(**only_rows(case, inputs, end)))
    first = by_name(case.ours(**only_rows(case, inputs, slice(0, 1))))
    for name, y in got.items():
        if y.dim():
            assert_same(case, in_rows(y, y, rows)[end], in_rows(last[name], y, rows), name)
            if case.options.get("causal"):  # what a row sees is counted from the last one
                assert not y[:1].any(), name
            else:
                top = in_rows(y, y, rows)[:1]
                assert_same(case, top, in_rows(first[name], y, rows), name)
        else:
            # One number of all rows; its chunks are not PyTorch's, so the last bit may differ.
            want = from_halves(case, converted(inputs, torch.float32), rows)[name]
            torch.testing.assert_close(y, want.bfloat16())


# Without tensor cores a thread adds up all rows for an element of a weight's or a key's gradient,
# which takes minutes: of products only the best version is tried, at a width that they take.
BACKWARD = [
    (case, rows, cols)
    for case, rows, cols in SHAPES
    if not case.is_product or (case in BEST and cols == 128)
]


@pytest.mark.parametrize(("case", "rows", "cols"), BACKWARD, ids=str)
def test_backward_of_more_than_two_to_the_31_elements(case: Case, rows: int, cols: int):
    rows, needed = rows_and_needed(case, rows, cols)
    skip_unless_free(needed)
    inputs = big_inputs(case, rows, cols)
    end = last_rows(rows)
    alone = only_rows(case, inputs, end)
    outputs, ends = by_name(case.ours(**alone)), by_name(case.ours(**inputs))
    if any(y.dim() == 0 for y in outputs.values()):
        pytest.skip("a sum of all rows gives every row a gradient")
    grads = [y.new_zeros(y.shape) for y in ends.values()]
    of_end = []
    for grad, y in zip(grads, outputs.values(), strict=True):
        in_rows(grad, grad, rows)[-1] = 1
        axis = grad.shape.index(rows)
        of_end.append(grad.narrow(axis, end.start, y.shape[axis]))
    got = outcome(case.ours, inputs, tuple(grads))
    want = outcome(case.ours, alone, tuple(of_end))
    for name in case.differentiable:
        d = got[f"d{name}"]
        if case.shapes[name].startswith("rows"):
            assert_same(case, d[end], want[f"d{name}"], name)
            assert not d[:-1].any(), name
        else:
            assert_same(case, d, want[f"d{name}"], name)


@pytest.mark.parametrize("cols", [4104, 4099])
@pytest.mark.parametrize("version", module_of("dropout_layer_norm").VERSIONS)
def test_dropout_of_more_than_two_to_the_31_elements(version: str, cols: int):
    skip_unless_free(NEEDED)
    case = Case(reference.OPS["dropout_layer_norm"], version, {"p": 0.25, "seed": 3})
    rows = 2**19 + 3
    inputs = big_inputs(case, rows, cols)
    last = torch.empty(cols, dtype=torch.double, device=DEVICE)
    factor = reference.factors(last, 0.25, seed=3, first=(rows - 1) * cols)
    x, residual = (inputs[name].requires_grad_() for name in ("x", "residual"))

    y, s = case.ours(**inputs)
    arriving = torch.zeros_like(s)
    arriving[-1] = 1
    dx, dresidual = torch.autograd.grad(s, (x, residual), arriving)

    want = residual[-1].double() + x[-1].double() * factor
    torch.testing.assert_close(s[-1], want.bfloat16())
    truth = torch.nn.functional.layer_norm(
        s[-1].double(), (cols,), inputs["weight"].double(), inputs["bias"].double(), 1e-5
    )
    torch.testing.assert_close(y[-1], truth.bfloat16())
    assert torch.equal(dx[-1], factor.bfloat16())
    assert torch.equal(dresidual, arriving)
    assert not s[:-1].any()
    assert not dx[:-1].any()


# More rows than there are clusters at once, and fewer; clusters of two to sixteen blocks, of which
# some leave the last one short.
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize(
    ("rows", "cols"),
    [
        *[(150, cols) for cols in (10248, 20480, 28680, 40000, 49160, 57344)],
        *[(300, 65544), (7, 65536), (70, 98312), (70, 114696), (70, 131072), (70, 163840)],
        *[(40, 196616), (40, 262144), (40, 262152), (5, 1000008)],
    ],
)
@each_best
def test_wide_rows_one_after_the_other(case: Case, rows: int, cols: int, dtype: torch.dtype):
    assert_close_to_pytorch(case, case.inputs(rows, cols, dtype))


@each_best
def test_runs_on_the_current_stream(case: Case):
    inputs = case.inputs(64, 256, torch.float32)
    want = outcome(case.ours, inputs)
    late = {name: torch.zeros_like(tensor) for name, tensor in inputs.items()}
    torch.cuda.synchronize()
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(50_000_000)  # a kernel on any other stream would read the zeros
        for name, tensor in inputs.items():
            late[name].copy_(tensor)
        got = outcome(case.ours, late)
        torch.cuda.current_stream().synchronize()
    for name in want:
        assert torch.equal(got[name], want[name]), name


@each_best
def test_captured_in_a_cuda_graph(case: Case):
    """Forward and backward recorded once, then replayed on other numbers."""
    inputs = case.inputs(64, 1000, torch.float32)
    recorded = {name: tensor.clone() for name, tensor in inputs.items()}
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())  # on which the inputs are made
    with torch.cuda.stream(stream):
        outcome(case.ours, recorded)  # nothing may be set up for the first time while recording
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = outcome(case.ours, recorded)
    for seed in (1, 2):
        fresh = case.inputs(64, 1000, torch.float32, seed)
        for name, tensor in fresh.items():
            recorded[name].copy_(tensor)
        graph.replay()
        want = outcome(case.ours, fresh)
        for name in want:
            assert torch.equal(got[name], want[name]), name


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@each_best
def test_runs_where_its_input_is(case: Case):
    inputs = case.inputs(64, 256, torch.float32)
    want = outcome(case.ours, inputs)
    got = outcome(case.ours, {name: tensor.to("cuda:1") for name, tensor in inputs.items()})
    assert torch.cuda.current_device() == 0
    for name in want:
        assert got[name].device == torch.device("cuda:1")
        torch.testing.assert_close(got[name].to(DEVICE), want[name])


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
@pytest.mark.parametrize("version", module_of("layer_norm").VERSIONS)
def test_tensors_on_two_gpus_are_refused(version: str):
    case = Case(reference.OPS["layer_norm"], version, {})
    inputs = case.inputs(3, 8, torch.float32)
    inputs["bias"] = inputs["bias"].to("cuda:1")
    with pytest.raises(RuntimeError, match="bias is on cuda:1, but x is on cuda:0"):
        case.ours(**inputs)
