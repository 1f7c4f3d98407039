"""What cross_entropy alone has: targets out of range, rows to ignore, other shapes and losses."""

import pytest
import torch
from op_cases import DEVICE, Calls, Case, assert_as_good_as_pytorch, module_of, outcome
from torch import Tensor

import reference

cross_entropy = module_of("cross_entropy").cross_entropy
each_version = pytest.mark.parametrize("version", module_of("cross_entropy").VERSIONS)
on_gpu = pytest.mark.skipif(DEVICE.type != "cuda", reason="the simulator has no graphs")


def drawn(rows: int, cols: int) -> tuple[Tensor, Tensor]:
    inputs = reference.OPS["cross_entropy"].inputs(rows, cols, torch.float32, DEVICE)
    return inputs["x"], inputs["target"]


@pytest.mark.parametrize("bad", [-1, 24, -101, 2**40, -(2**63)])
@each_version
def test_a_target_out_of_range_is_named(version: str, bad: int):
    x, target = drawn(5, 24)
    target[3] = bad
    message = (
        rf"^target\[3\] is {bad}; wanted is a class from 0 to 23, or ignore_index, which is -7$"
    )
    with pytest.raises(RuntimeError, match=message):
        cross_entropy(x, target, ignore_index=-7, version=version)
    cross_entropy(x, target, ignore_index=bad, version=version)  # and the GPU goes on


@each_version
def test_of_no_classes(version: str):
    x, target = drawn(5, 24)
    target[:3] = -7
    message = r"^target\[3\] is .*; wanted is ignore_index, which is -7, for there are no classes$"
    with pytest.raises(RuntimeError, match=message):
        cross_entropy(x[:, :0], target, ignore_index=-7, version=version)


@each_version
def test_its_position_is_that_of_python(version: str):
    x, target = drawn(6, 8)
    target[4:] = 8
    with pytest.raises(RuntimeError, match=r"^target\[1, 1, 0\] is 8;"):
        cross_entropy(x.view(2, 3, 1, 8), target.view(2, 3, 1), version=version)
    with pytest.raises(RuntimeError, match=r"^target is 8;"):
        cross_entropy(x[0], target[4], version=version)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_few_wide_rows_are_shared(reduction: str, smoothing: float):
    """Forward by the blocks of a cluster, where there are any, backward by blocks."""
    options = {"reduction": reduction, "label_smoothing": smoothing}
    case = Case(reference.OPS["cross_entropy"], "warp", options)
    for dtype, cols in ((torch.bfloat16, 70001), (torch.float32, 40000)):
        assert_as_good_as_pytorch(
            case, lambda seed, dtype=dtype, cols=cols: case.inputs(1, cols, dtype, seed)
        )


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("cols", [24, 33])
@each_version
def test_unchecked_it_makes_nan_of_its_row_alone(version: str, cols: int, reduction: str):
    x, target = drawn(5, cols)
    want = cross_entropy(x, target, "none", version=version)
    target[2], target[4] = cols, -1
    x.requires_grad_()
    loss = cross_entropy(x, target, reduction, check=False, version=version)
    (dx,) = torch.autograd.grad(loss.sum(), x)
    bad = torch.tensor([False, False, True, False, True], device=DEVICE)
    assert torch.equal(dx.isnan(), bad[:, None].expand(dx.shape))
    assert loss.isnan().all() if reduction != "none" else torch.equal(loss.isnan(), bad)
    if reduction == "none":
        assert torch.equal(loss[~bad], want[~bad])


@on_gpu
@pytest.mark.gpu
def test_in_a_cuda_graph_nothing_is_checked():
    x, target = drawn(5, 24)
    cross_entropy(x, target)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = cross_entropy(x, target)
    graph.replay()
    assert torch.equal(loss, cross_entropy(x, target))
    target[1] = 24
    graph.replay()
    assert loss.isnan()


def test_the_check_stays_when_compiled():
    x, target = drawn(5, 24)
    torch.compiler.reset()
    compiled = torch.compile(cross_entropy, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, target), cross_entropy(x, target))
    target[0] = 24
    with pytest.raises(RuntimeError, match=r"target\[0\] is 24"):
        compiled(x, target)


@each_version
def test_all_rows_ignored(version: str):
    x, _ = drawn(4, 24)
    target = torch.full((4,), -100, device=DEVICE)
    for reduction in ("none", "mean", "sum"):
        case = Case(reference.OPS["cross_entropy"], version, {"reduction": reduction})
        inputs = {"x": x, "target": target}
        got, want = outcome(case.ours, inputs), outcome(case.theirs, inputs)
        for name in want:
            torch.testing.assert_close(got[name], want[name], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("smoothing", [0.1, 1.0])
@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize("cols", [40, 33, 5000])
@each_version
def test_far_from_zero(version: str, cols: int, offset: float, smoothing: float):
    """Where the max is large beside the differences, log(sum of e^x) alone would lose digits."""
    options = {"reduction": "none", "label_smoothing": smoothing}
    case = Case(reference.OPS["cross_entropy"], version, options)

    def draw(seed: int) -> dict[str, Tensor]:
        inputs = case.inputs(6, cols, torch.float32, seed)
        inputs["x"] += offset
        return inputs

    assert_as_good_as_pytorch(case, draw)


@pytest.mark.parametrize("power", [20, 24, 40, 100])
@each_version
def test_logits_of_any_size(version: str, power: int):
    """On a GPU those of 16 bits times log2(e) are rounded: by more than 1 from 2^24 on."""
    case = Case(reference.OPS["cross_entropy"], version, {"reduction": "none"})
    x = 2.0**power * torch.linspace(-0.89, 0.89, 300, device=DEVICE).repeat(2, 1)
    inputs = {"x": x.bfloat16(), "target": torch.tensor([7, 299], device=DEVICE)}
    got, want = (
        outcome(case.ours, inputs),
        outcome(case.theirs, inputs | {"x": inputs["x"].double()}),
    )
    for name in want:
        torch.testing.assert_close(got[name].double(), want[name], rtol=2**-8, atol=2**-8)


# ---- autocast


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@each_version
def test_in_autocast_the_loss_is_float32(version: str, reduction: str, dtype: torch.dtype):
    """As PyTorch's is there. The logits are not cast for it, and their gradient has their type.

    What arrives may be more than float16 has: 65536 is what a GradScaler begins with.
    """
    case = Case(reference.OPS["cross_entropy"], version, {"reduction": reduction})
    for rows, cols in [(37, 40), (2100, 33)]:  # sums of one block, and of several
        inputs = case.inputs(rows, cols, dtype)
        inputs["x"] *= 8
        arrives = torch.tensor(65536.0 if reduction == "mean" else 65536 / rows, device=DEVICE)
        if reduction == "none":
            arrives = arrives.expand(rows)
        with torch.autocast(DEVICE.type, dtype):
            got, theirs = (outcome(f, inputs, arrives) for f in (case.ours, case.theirs))
            alone = case.ours(**inputs)
        assert torch.equal(alone, got["y"])
        assert {n: t.dtype for n, t in got.items()} == {n: t.dtype for n, t in theirs.items()}
        want = outcome(case.theirs, inputs | {"x": inputs["x"].double()}, arrives.double())
        torch.testing.assert_close(got["y"].double(), want["y"], rtol=1e-5, atol=1e-5)
        half_a_step = torch.finfo(dtype).eps / 2
        torch.testing.assert_close(
            got["dx"].double(), want["dx"], rtol=1.01 * half_a_step, atol=1e-4
        )


def test_compiled_in_autocast_it_has_the_same_bits():
    x, target = drawn(5, 24)
    inputs = {"x": x.bfloat16(), "target": target}
    torch.compiler.reset()
    compiled = torch.compile(cross_entropy, fullgraph=True, backend="aot_eager")
    for is_enabled in (True, False):
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=is_enabled):
            got, want = (outcome(f, inputs) for f in (compiled, cross_entropy))
        assert got["y"].dtype == (torch.float32 if is_enabled else torch.bfloat16)
        for name in want:
            assert torch.equal(got[name], want[name]), name


def test_opcheck_of_a_float32_loss():
    x, target = drawn(5, 24)
    kernel = module_of("cross_entropy").kernel
    inputs = {"x": x.bfloat16(), "target": target}
    with Calls(kernel.build.name) as calls, torch.autocast(DEVICE.type, torch.bfloat16):
        outcome(cross_entropy, inputs)
        cross_entropy(**inputs)
    assert {op._opname for op, _ in calls.noted} == {"infer", "forward", "backward"}
    for op, arguments in calls.noted:
        torch.library.opcheck(op, arguments)


# ---- options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reduction": "max"}, "reduction is 'max'; wanted is one of none, mean, sum"),
        ({"label_smoothing": 1.5}, "label_smoothing is 1.5; wanted is a number from 0 to 1"),
        ({"label_smoothing": float("nan")}, "label_smoothing is nan; wanted is a number"),
    ],
)
def test_options_that_there_are_not(options: dict, message: str):
    with pytest.raises(ValueError, match=message):
        cross_entropy(*drawn(3, 8), **options)


@pytest.mark.slow
@each_version
def test_the_largest_vocabulary(version: str):
    case = Case(reference.OPS["cross_entropy"], version, {})
    for dtype in (torch.float32, torch.bfloat16):
        assert_as_good_as_pytorch(
            case, lambda seed, dtype=dtype: case.inputs(2, 262144, dtype, seed)
        )
