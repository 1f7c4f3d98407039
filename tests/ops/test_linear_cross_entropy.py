"""linear_cross_entropy's own: its memory, chunks and their edges, options, targets out of range."""

import itertools
from collections.abc import Callable

import pytest
import torch
from op_cases import (
    DEVICE,
    Case,
    allocated_on_gpu,
    assert_as_good_as_pytorch,
    assert_close_to_pytorch,
    no_findings,
    outcome,
)
from torch import Tensor
from torch.utils.checkpoint import checkpoint

import reference
from kernels.linear_cross_entropy import VERSIONS, kernel, linear_cross_entropy

OP = reference.OPS["linear_cross_entropy"]
LEAST = 128  # classes of a chunk, see linear_cross_entropy_chunks.h
MANY = 16 * LEAST  # from here on a chunk has more
each_version = pytest.mark.parametrize("version", VERSIONS)
on_gpu = pytest.mark.skipif(DEVICE.type != "cuda", reason="the simulator has no graphs, or no time")


def case(version: str = VERSIONS[-1], **options: object) -> Case:
    return Case(OP, version, options)


def drawn(
    rows: int, classes: int, cols: int = 8, dtype: torch.dtype = torch.float32, seed: int = 0
) -> dict[str, Tensor]:
    return OP.inputs(rows, cols, dtype, DEVICE, seed, classes=classes)


# ---- options, against torch.nn.functional


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@each_version
def test_options(version: str, reduction: str):
    inputs = drawn(9, LEAST + 5, 16)
    for smoothing, ignored in itertools.product((0.0, 0.1, 1.0), (-100, int(inputs["target"][2]))):
        options = {"label_smoothing": smoothing, "ignore_index": ignored}
        assert_close_to_pytorch(case(version, reduction=reduction, **options), inputs)


def test_it_is_the_loss_of_a_linear_layer():
    linear = torch.nn.Linear(40, 24, device=DEVICE)
    x = torch.randn(2, 5, 40, device=DEVICE, requires_grad=True)
    target = torch.randint(24, (2, 5), device=DEVICE)
    leaves = x, linear.weight, linear.bias
    ours = linear_cross_entropy(x, linear.weight, target, linear.bias)
    theirs = torch.nn.functional.cross_entropy(linear(x).flatten(0, -2), target.flatten())
    torch.testing.assert_close(ours, theirs)
    for got, want in zip(*(torch.autograd.grad(y, leaves) for y in (ours, theirs)), strict=True):
        torch.testing.assert_close(got, want)


@each_version
def test_all_rows_ignored(version: str):
    inputs = drawn(4, LEAST + 8) | {"target": torch.full((4,), -100, device=DEVICE)}
    for reduction in ("none", "mean", "sum"):
        each = case(version, reduction=reduction)
        got, want = outcome(each.ours, inputs), outcome(each.theirs, inputs)
        for name in want:
            torch.testing.assert_close(got[name], want[name], rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"reduction": "max"}, "reduction is 'max'; wanted is one of none, mean, sum"),
        ({"label_smoothing": 1.5}, "label_smoothing is 1.5; wanted is a number from 0 to 1"),
        ({"label_smoothing": None}, "label_smoothing is None; wanted is a number from 0 to 1"),
        ({"label_smoothing": "x"}, "label_smoothing is 'x'; wanted is a number from 0 to 1"),
        ({"ignore_index": 1.5}, "ignore_index is 1.5; wanted is an int from"),
    ],
)
def test_options_that_there_are_not(options: dict, message: str):
    with pytest.raises(ValueError, match=message):
        linear_cross_entropy(**drawn(3, 8), **options)


@pytest.mark.parametrize("shape", [(21,), (21, 9), (2, 21, 8)], ids=str)
def test_w_that_does_not_fit(shape: tuple[int, ...]):
    inputs = drawn(3, 21) | {"w": torch.zeros(shape, device=DEVICE)}
    message = r"^w has shape \(.*\), but x has shape \(3, 8\); wanted is \(classes, 8\)$"
    with pytest.raises(RuntimeError, match=message):
        linear_cross_entropy(**inputs)


# ---- targets out of range


@each_version
def test_a_target_out_of_range_is_named(version: str):
    inputs = drawn(6, LEAST + 8)
    for bad in (-1, LEAST + 8, 2**40):
        inputs["target"][4] = bad
        message = (
            rf"^target\[4\] is {bad}; wanted is a class from 0 to {LEAST + 7}, or ignore_index"
        )
        with pytest.raises(RuntimeError, match=message):
            linear_cross_entropy(**inputs, version=version)
        linear_cross_entropy(**inputs, ignore_index=bad, version=version)


@pytest.mark.parametrize("reduction", ["none", "mean"])
@each_version
def test_unchecked_it_makes_nan_of_its_row(version: str, reduction: str):
    """And of all rows of w, for each of which every row of x has a part."""
    inputs = drawn(5, LEAST + 8)
    want = linear_cross_entropy(**inputs, reduction="none", version=version)
    inputs["target"][1], inputs["target"][3] = LEAST + 8, -1

    def unchecked(**given: Tensor) -> Tensor:
        return linear_cross_entropy(**given, reduction=reduction, check=False, version=version)

    got = outcome(unchecked, inputs)
    bad = torch.tensor([False, True, False, True, False], device=DEVICE)
    assert torch.equal(got["dx"].isnan(), bad[:, None].expand(got["dx"].shape))
    assert got["dw"].isnan().all()
    if reduction == "mean":
        assert got["y"].isnan()
    else:
        assert torch.equal(got["y"].isnan(), bad)
        assert torch.equal(got["y"][~bad], want[~bad])


@on_gpu
@pytest.mark.gpu
def test_in_a_cuda_graph():
    """Forward and backward; nothing is checked there."""
    inputs = drawn(32, MANY, 64, torch.bfloat16)
    want = outcome(linear_cross_entropy, inputs)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = outcome(linear_cross_entropy, inputs)
    graph.replay()
    for name in want:
        assert torch.equal(got[name], want[name]), name


# ---- chunks


# Fewer classes than a chunk has, whole chunks, and classes left over from a multiple of 8.
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "classes", [1, 7, LEAST - 1, LEAST, LEAST + 1, 2 * LEAST, 2 * LEAST + 7, MANY + 9]
)
def test_edges_of_chunks(classes: int, dtype: torch.dtype):
    """Where targets are the first and the last class of a chunk, and of all."""
    inputs = drawn(11, classes, 16, dtype)
    edges = (0, LEAST - 1, LEAST, 2 * LEAST - 1, classes - 8, classes - 1)
    inputs["target"][: len(edges)] = torch.tensor([min(max(e, 0), classes - 1) for e in edges])
    assert_close_to_pytorch(case(reduction="none", label_smoothing=0.1), inputs)


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str
)
@pytest.mark.parametrize(
    "rows", [pytest.param(64, id="64"), pytest.param(513, id="513", marks=pytest.mark.slow)]
)
def test_error_of_the_sums_of_chunks(rows: int, dtype: torch.dtype):
    """The error is about PyTorch's, which adds up dx in one product and rounds it once."""
    for classes in (3 * LEAST, MANY + 9):
        each = case(reduction="none", label_smoothing=0.1)
        assert_as_good_as_pytorch(
            each, lambda seed, classes=classes: drawn(rows, classes, 40, dtype, seed)
        )


@each_version
def test_the_largest_logit_comes_first_or_last(version: str):
    """What the chunks before have found is scaled down, or what this one has."""
    for chunk, offset in itertools.product((slice(LEAST), slice(-4, None)), (30.0, 1e4)):
        inputs = drawn(6, 2 * LEAST + 4)
        inputs["bias"][chunk] += offset
        for smoothing in (0.0, 0.25):
            each = case(version, reduction="none", label_smoothing=smoothing)
            assert_close_to_pytorch(each, inputs)


@each_version
@pytest.mark.parametrize("hidden", [slice(LEAST), slice(LEAST, None), slice(None)], ids=str)
def test_logits_of_minus_infinity(version: str, hidden: slice):
    """Classes that are masked out: a chunk of them, or all."""
    inputs = drawn(5, 2 * LEAST)
    inputs["bias"][hidden] = -torch.inf
    inputs["target"][:] = LEAST - 1 if hidden.start else LEAST
    for smoothing in (0.0, 0.25):
        each = case(version, reduction="none", label_smoothing=smoothing)
        got, want = outcome(each.ours, inputs), outcome(each.theirs, inputs)
        for name in want:
            torch.testing.assert_close(got[name], want[name], equal_nan=True)


def test_of_no_classes():
    inputs = drawn(3, 0) | {"target": torch.zeros(3, dtype=torch.int64, device=DEVICE)}
    message = r"^target\[0\] is 0; wanted is ignore_index, which is -100, for there are no classes$"
    with pytest.raises(RuntimeError, match=message):
        linear_cross_entropy(**inputs)
    inputs["target"][:] = -100
    got = outcome(case(reduction="sum").ours, inputs)
    assert got["y"] == 0
    assert torch.equal(got["dx"], torch.zeros_like(inputs["x"]))
    assert got["dw"].shape == (0, 8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_the_same_bits_on_every_run_and_for_any_layout(dtype: torch.dtype):
    inputs = drawn(20, 2 * LEAST + 5, 16, dtype)
    transposed = {n: t.mT.contiguous().mT if t.dim() > 1 else t for n, t in inputs.items()}
    want = outcome(case().ours, inputs)
    for given in (inputs, transposed):
        got = outcome(case().ours, given)
        for name in want:
            assert torch.equal(got[name], want[name]), name


@pytest.mark.parametrize("how", ["eager", "compiled"])
@each_version
def test_gradients_twice_through_one_graph(version: str, how: str):
    """Of which `rows` has the first ones at hand, and computes the second ones."""
    inputs = {n: t.requires_grad_(n != "target") for n, t in drawn(4, LEAST + 8).items()}
    leaves = [t for t in inputs.values() if t.requires_grad]

    def loss_of(**given: Tensor) -> Tensor:
        return linear_cross_entropy(**given, version=version)

    if how == "compiled":
        loss_of = torch.compile(loss_of, fullgraph=True, backend="aot_eager")
    loss = loss_of(**inputs)
    first = torch.autograd.grad(loss, leaves, torch.full_like(loss, 3.0), retain_graph=True)
    kept = [t.clone() for t in first]
    second = torch.autograd.grad(loss, leaves, torch.full_like(loss, 6.0))
    for once, twice, before in zip(first, second, kept, strict=True):
        torch.testing.assert_close(2 * once, twice)
        assert torch.equal(once, before)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(loss, leaves)


# ---- forward alone, of floats of 16 bits: few rows at once, and tiles of 128 rows and 256 classes,
# of which no logit gets to memory

TILE = 256  # classes


@pytest.mark.parametrize("classes", [TILE - 1, TILE + 1, 2 * TILE + 8])
def test_edges_of_tiles(classes: int):
    """Where targets are the first and the last class of a tile, and of all."""
    inputs = drawn(130, classes, 40, torch.bfloat16)
    edges = torch.tensor([0, TILE - 1, TILE, 2 * TILE - 1, 2 * TILE, classes - 1]).clamp(
        max=classes - 1
    )
    inputs["target"][: len(edges)] = inputs["target"][-len(edges) :] = edges
    for smoothing in (0.0, 0.1):
        each = case(reduction="none", label_smoothing=smoothing)
        assert_close_to_pytorch(each, inputs)


@pytest.mark.parametrize(("rows", "cols"), [(20, 960), (70, 16)], ids=["few rows", "tiles"])
@pytest.mark.parametrize("hidden", [slice(TILE), slice(TILE, None), slice(None)], ids=str)
def test_few_rows_and_tiles_with_logits_of_minus_infinity(hidden: slice, rows: int, cols: int):
    """And with a NaN: the same as of chunks."""
    inputs = drawn(rows, TILE + 40, cols, torch.bfloat16)
    inputs["bias"][hidden] = -torch.inf
    inputs["x"][3, 5] = torch.nan
    for smoothing in (0.0, 0.25):
        got, want = (
            linear_cross_entropy(
                **inputs, reduction="none", label_smoothing=smoothing, version=version
            )
            for version in ("rows", "chunks")
        )
        torch.testing.assert_close(got, want, equal_nan=True)


@pytest.mark.skipif(
    DEVICE.type == "cuda" and torch.cuda.get_device_capability() != (9, 0), reason="needs wgmma"
)
def test_peak_memory_of_tiles():
    """Three floats for each row of a tile, and a few for each row, with which no product is asked
    for; where rows of w have gaps, too."""
    rows, classes, cols = 256, 9 * TILE, 32
    inputs = drawn(rows, classes, cols, torch.bfloat16)
    want = linear_cross_entropy(**inputs, version="chunks")
    gaps = torch.zeros(classes, 2 * cols, dtype=torch.bfloat16, device=DEVICE)
    gaps[:, :cols] = inputs["w"]
    for w in (inputs["w"], gaps[:, :cols]):
        given = inputs | {"w": w}
        torch.testing.assert_close(linear_cross_entropy(**given), want)
        assert (
            peak(lambda given=given: linear_cross_entropy(**given)) < rows * (9 * 12 + 4 * 8) + 4096
        )


# ---- chunks of rows, whose gradients are there before one arrives

ROWS = 512  # of a chunk, see linear_cross_entropy_chunks.h


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("rows", "classes"),
    [(ROWS + 3, 11), pytest.param(4 * ROWS + 7, 40, marks=pytest.mark.slow)],
)
def test_error_of_the_gradients_of_chunks_of_rows(rows: int, classes: int, dtype: torch.dtype):
    """That of w is rounded once for each chunk, and once more where another gradient arrives."""
    each = case(reduction="mean", label_smoothing=0.1)
    assert_as_good_as_pytorch(each, lambda seed: drawn(rows, classes, 16, dtype, seed))


def test_a_gradient_that_arrives_multiplies_what_is_there():
    inputs = {n: t.requires_grad_(n != "target") for n, t in drawn(2 * ROWS + 3, 21).items()}
    leaves = [t for t in inputs.values() if t.requires_grad]
    for arrives in (1.0, -0.37, 0.0):
        losses = [linear_cross_entropy(**inputs, version=v) for v in ("rows", "chunks")]
        grads = [torch.autograd.grad(y, leaves, torch.full_like(y, arrives)) for y in losses]
        for got, want in zip(*grads, strict=True):
            torch.testing.assert_close(got, want)


@pytest.mark.parametrize("wanted", ["x", "w", "bias"])
def test_only_what_is_asked_for_is_computed(wanted: str):
    inputs = {n: t.requires_grad_(n == wanted) for n, t in drawn(ROWS + 5, 21).items()}
    (got,) = torch.autograd.grad(linear_cross_entropy(**inputs), [inputs[wanted]])
    (want,) = torch.autograd.grad(reference.linear_cross_entropy(**inputs), [inputs[wanted]])
    torch.testing.assert_close(got, want)
    needs = [name == wanted for name in ("x", "w", "bias")]
    results = kernel.forward_backward(*inputs.values(), 1, -100, 0.0, True, False, *needs)
    assert [t.numel() > 0 for t in results[4:]] == needs


# ---- the first rows, whose logits lie where the gradient of w will be


def drawn_without_bias(
    rows: int, classes: int, cols: int, dtype: torch.dtype = torch.float32
) -> dict[str, Tensor]:
    return OP.inputs(rows, cols, dtype, DEVICE, without={"bias": None}, classes=classes)


# As many rows as w has columns, and fewer, which are no multiple of a vector; classes of three
# rooms, and of two. Rows of dw in rounds of tiles, and more rows, of which the others are one chunk
# or two of 640, take many classes.
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("rows", "classes", "cols"),
    [
        (ROWS + 16, 300, ROWS + 16),
        (ROWS + 19, 131, ROWS + 40),
        pytest.param(ROWS + 88, 20_011, 2 * ROWS, marks=(on_gpu, pytest.mark.gpu)),
        pytest.param(ROWS + 43, 70_001, ROWS + 24, marks=(on_gpu, pytest.mark.gpu)),
        pytest.param(4090, 32_000, 3072, marks=(on_gpu, pytest.mark.gpu)),
    ],
)
def test_error_where_logits_lie_in_dw(rows: int, classes: int, cols: int, dtype: torch.dtype):
    """dx is two products, and dw one, or two: their error is PyTorch's."""
    inputs = drawn_without_bias(rows, classes, cols, dtype)
    assert_close_to_pytorch(case(reduction="mean", label_smoothing=0.1, bias=None), inputs)


def test_rows_of_their_own_where_logits_lie_in_dw():
    """Ignored, with a target out of range, with one logit far above the others, or with a NaN."""
    inputs = drawn_without_bias(ROWS + 16, 200, ROWS + 16)
    inputs["target"][:40] = -100
    inputs["x"][50] = 1e4 * inputs["w"][199]
    inputs["x"][51] = 1e4 * inputs["w"][0]
    assert_close_to_pytorch(case(reduction="sum", bias=None), inputs)
    inputs["x"][60, 3] = torch.nan
    inputs["target"][61] = 200
    unchecked = case(reduction="sum", bias=None, check=False)
    bad = outcome(unchecked.ours, inputs)["dx"].isnan().all(dim=1)
    assert bad.nonzero().flatten().tolist() == [60, 61]


@pytest.mark.parametrize("classes", [300, 301])
def test_logits_wait_in_dw_for_the_gradient_that_arrives(classes: int):
    """It need not be 1, and what was there is not spoilt by a second backward pass."""
    inputs = drawn_without_bias(ROWS + 16, classes, ROWS + 16)
    leaves = [inputs[name].requires_grad_() for name in ("x", "w")]
    loss = linear_cross_entropy(**inputs)
    arrives = torch.full_like(loss, -3.0)
    once = torch.autograd.grad(loss, leaves, arrives, retain_graph=True)
    kept = [t.clone() for t in once]
    twice = torch.autograd.grad(loss, leaves, 2 * arrives)
    want = torch.autograd.grad(linear_cross_entropy(**inputs, version="chunks"), leaves, arrives)
    for got, before, of_second, of_chunks in zip(once, kept, twice, want, strict=True):
        assert torch.equal(got, before)
        torch.testing.assert_close(got, of_chunks)
        torch.testing.assert_close(2 * got, of_second)
    for leaf, of_both in zip(leaves, once, strict=True):
        (alone,) = torch.autograd.grad(linear_cross_entropy(**inputs), [leaf], arrives)
        assert torch.equal(alone, of_both)


def test_small_gradients_of_float16_are_not_lost():
    """Where the loss is scaled before backward, as torch.amp.GradScaler does it.

    A class that is no row's target has gradients of 1 / (rows * classes), which float16 does not
    have.
    """
    inputs, scale = drawn(600, 2000, 4, torch.float16), 2.0**12
    inputs["target"] %= 1000
    exact = {n: t.double() if t.is_floating_point() else t for n, t in inputs.items()}
    pairs = (linear_cross_entropy, inputs), (reference.linear_cross_entropy, exact)
    for _, given in pairs:
        given["w"].requires_grad_()
    got, want = (
        torch.autograd.grad(scale * loss(**given), given["w"])[0][1000:] for loss, given in pairs
    )
    assert (got.double() - want).abs().max() < 0.01 * want.abs().max()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("reduction", ["none", "mean"])
@each_version
def test_in_autocast_the_loss_is_float32(version: str, reduction: str, dtype: torch.dtype):
    """As PyTorch's is there: in float16 what a GradScaler multiplies with, 65536, is infinite."""
    inputs = drawn(300, LEAST + 8, 16)
    del inputs["bias"]
    each, scale = case(version, reduction=reduction, bias=None), 65536 / 300
    arrives = torch.tensor(300 * scale if reduction == "mean" else scale, device=DEVICE)
    if reduction == "none":
        arrives = arrives.expand(300)
    with torch.autocast(DEVICE.type, dtype):
        got, want = (outcome(function, inputs, arrives) for function in (each.ours, each.theirs))
        alone = each.ours(**inputs)
    assert torch.equal(alone, got["y"])
    for name in want:
        assert got[name].dtype == torch.float32
        atol = torch.finfo(dtype).eps * want[name].abs().max().item()
        torch.testing.assert_close(got[name], want[name], rtol=0, atol=2 * atol)


@each_version
def test_backward_inside_autocast_stays_in_its_type(version: str):
    inputs = drawn(9, LEAST + 8, 16)
    want = outcome(case(version).ours, inputs)
    leaves = {n: t.requires_grad_(t.is_floating_point()) for n, t in inputs.items()}
    loss = case(version).ours(**leaves)
    with torch.autocast(DEVICE.type, torch.bfloat16):
        loss.backward(retain_graph=True)
        loss.backward()  # computes logits again
    for name in ("x", "w", "bias"):
        torch.testing.assert_close(leaves[name].grad, 2 * want[f"d{name}"])


# ---- memory


def peak(call: Callable[[], object]) -> int:
    """Bytes that a call has allocated at most, beyond what it returns."""
    if DEVICE.type == "cuda":
        allocated_on_gpu()  # waits, so that what an earlier call held does not count
        torch.cuda.reset_peak_memory_stats()
        kept = call()
        returned = allocated_on_gpu()  # and all that was there before
        del kept
        return torch.cuda.max_memory_allocated() - returned
    with torch.profiler.profile(profile_memory=True) as profile:
        kept = call()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    held = [*itertools.accumulate(event.nbytes() for event in events)]
    del kept
    return max(held) - held[-1]


def peak_of_both(function: Callable[..., Tensor], inputs: dict[str, Tensor]) -> int:
    """That of both passes."""
    return peak(lambda: outcome(function, inputs))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("with_gradients", [False, True])
def test_peak_memory_is_below_a_tenth_of_pytorchs(with_gradients: bool, dtype: torch.dtype):
    rows, classes, cols = 128, 2304, 32
    inputs = drawn(rows, classes, cols, dtype)

    def chunks(**given: Tensor) -> Tensor:
        return linear_cross_entropy(**given, version="chunks")

    def peak_of(function: Callable[..., Tensor]) -> int:
        return peak(lambda: outcome(function, inputs) if with_gradients else function(**inputs))

    peak_of(reference.linear_cross_entropy)  # has cuBLAS allocate what it keeps
    ours = peak_of(chunks)
    assert ours < peak_of(reference.linear_cross_entropy) / 10
    # The logits of a chunk of 16, and a few numbers for each row; in backward also the chunk's rows
    # of dw, and the sums of dx in float.
    predicted = rows * (classes // 16 * dtype.itemsize + 4 * 8)
    if with_gradients:
        predicted += classes // 16 * cols * dtype.itemsize + rows * cols * 4
    assert ours < predicted + 2048


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_peak_memory_of_chunks_of_rows(dtype: torch.dtype):
    """The logits of a quarter of the rows at most, and a few numbers for each row."""
    # On a GPU a product of few tiles is multiplied in parts, whose sums take 64 MiB at most.
    on_gpu = DEVICE.type == "cuda"
    rows, classes, parts = 8 * ROWS, 120 if not on_gpu else 60_000, on_gpu << 26
    inputs = drawn(rows, classes, 8, dtype)

    peak_of_both(reference.linear_cross_entropy, inputs)
    ours = peak_of_both(linear_cross_entropy, inputs)
    assert ours < peak_of_both(reference.linear_cross_entropy, inputs) / 10 + rows * 4 * 8
    assert ours < rows * (classes // 4 * dtype.itemsize + 4 * 8) + 4096 + parts


def test_peak_memory_where_logits_lie_in_dw():
    """What a chunk of 16 of the classes has of them, and a few numbers for each row."""
    rows, classes, cols = ROWS + 16, 16 * LEAST, ROWS + 16
    inputs = drawn_without_bias(rows, classes, cols)

    peak_of_both(reference.linear_cross_entropy, inputs)
    ours = peak_of_both(linear_cross_entropy, inputs)
    assert ours < peak_of_both(reference.linear_cross_entropy, inputs) / 10
    assert ours < rows * (LEAST * 4 + 4 * 8) + 4096


@on_gpu
@pytest.mark.gpu
@pytest.mark.parametrize(("rows", "cols", "classes"), [(4096, 2048, 128256), (4096, 3072, 32000)])
def test_peak_memory_of_more_rows_than_columns(rows: int, cols: int, classes: int):
    """A tenth of PyTorch's at most, with the parts in which matmul multiplies dx."""
    inputs = drawn_without_bias(rows, classes, cols, torch.bfloat16)

    peak_of_both(reference.linear_cross_entropy, inputs)
    assert (
        peak_of_both(linear_cross_entropy, inputs)
        < peak_of_both(reference.linear_cross_entropy, inputs) / 10
    )


def test_a_checkpoint_keeps_no_gradients():
    """Nor has it two of each where it computes again: the peak is that of a call without one."""
    inputs = {n: t.requires_grad_(n != "target") for n, t in drawn(8, 512, 256).items()}
    leaves = [t for t in inputs.values() if t.requires_grad]

    def plain() -> tuple[Tensor, ...]:
        return torch.autograd.grad(linear_cross_entropy(**inputs), leaves)

    def again() -> tuple[Tensor, ...]:
        options = {"use_reentrant": False, "preserve_rng_state": False}
        return torch.autograd.grad(checkpoint(linear_cross_entropy, **inputs, **options), leaves)

    for got, want in zip(again(), plain(), strict=True):
        assert torch.equal(got, want)
    assert peak(again) < peak(plain) + 4096


# ---- the checker


@pytest.mark.slow
def test_the_checker_finds_nothing_and_sees_the_kernels():
    def both(**given: Tensor) -> dict[str, Tensor]:
        return outcome(linear_cross_entropy, given)

    # With the last number of classes a row's logits are in one chunk.
    ways = ((0, LEAST + 13), (1, LEAST + 13), (1, LEAST))
    for dtype, (order, classes) in itertools.product((torch.float32, torch.bfloat16), ways):
        inputs = OP.inputs(9, 24, dtype, "cpu", classes=classes)
        report = no_findings(both, **inputs, thread_order=order)
        launched = set(report.launches["kernel"])
        assert "column_sums" in launched
        assert ("row_losses" in launched) == (classes != LEAST)
        product = "registers" if dtype == torch.float32 else "few_rows"
        assert any(kernel.startswith(f"matmul_{product}") for kernel in launched)
