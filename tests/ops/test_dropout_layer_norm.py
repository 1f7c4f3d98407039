"""What dropout_layer_norm alone has: which elements it drops, how many, where its seed is from."""

import math

import pytest
import torch
from op_cases import BEST, DEVICE, DTYPES, Case, assert_as_good_as_pytorch, module_of, outcome
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

import reference
from lab.measure import case as lab_cases
from lab.rivals.pytorch import eager

dropout_layer_norm = module_of("dropout_layer_norm").dropout_layer_norm
VERSIONS = module_of("dropout_layer_norm").VERSIONS
each_version = pytest.mark.parametrize("version", VERSIONS)
on_gpu = pytest.mark.skipif(DEVICE.type != "cuda", reason="the simulator has no graphs")


def drop(*shape: int, dtype: torch.dtype = torch.float32, **options) -> Tensor:
    """What ones become: 0 or 1 / (1 - p)."""
    x = torch.ones(shape, dtype=dtype, device=DEVICE)
    return dropout_layer_norm(x, torch.zeros_like(x), x[0], x[0], **options)[1]


# ---- the mask


def factor(i: int, p: float, seed: int, offset: int) -> float:
    """What element i is multiplied by, as the docstring says it, by Python's own integers."""
    word = 2**32 - 1
    c0, c1, c2, c3 = i // 8 & word, i // 8 >> 32, offset & word, offset >> 32
    k0, k1 = seed & word, seed >> 32
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = p1 >> 32 ^ c1 ^ k0, p1 & word, p0 >> 32 ^ c3 ^ k1, p0 & word
        k0, k1 = (k0 + 0x9E3779B9) & word, (k1 + 0xBB67AE85) & word
    bits = (c0, c1, c2, c3)[i % 8 // 2] >> 16 * (i % 2) & 0xFFFF
    dropped = round(p * 65536)
    return 65536 / (65536 - dropped) if bits >= dropped else 0.0


@pytest.mark.parametrize(("seed", "offset"), [(0, 0), (3, 1), (2**63 - 1, 2**62 + 9)])
def test_the_reference_is_what_is_documented(seed: int, offset: int):
    x = torch.empty(3, 21, dtype=torch.float64)
    got = reference.factors(x, 0.3, seed, offset).flatten().tolist()
    assert got == [factor(i, 0.3, seed, offset) for i in range(63)]


@pytest.mark.parametrize("first", [8, 13, 40])
def test_a_part_of_the_reference_is_that_of_the_whole(first: int):
    x = torch.empty(50, dtype=torch.float64)
    whole = reference.factors(x, 0.3, seed=3)
    assert torch.equal(reference.factors(x[first:], 0.3, seed=3, first=first), whole[first:])


# Whole vectors of every type, vectors of float32 alone, none; more rows or columns than fit.
@pytest.mark.parametrize("shape", [(3, 8), (5, 12), (4, 33), (2, 4100), (1, 65544), (2049, 16)])
@pytest.mark.parametrize("options", [{"seed": 1}, {"p": 0.7, "seed": 2**63 - 1, "offset": 2**40}])
def test_the_mask_depends_on_nothing_else(shape: tuple[int, int], options: dict):
    """The same in all versions and types, and in the gradient."""
    p = options.get("p", 0.1)
    given = {"seed": options["seed"], "offset": options.get("offset", 0)}
    want = reference.factors(torch.empty(shape, dtype=torch.float64, device=DEVICE), p, **given)
    for version in VERSIONS:
        for dtype in DTYPES:
            x = torch.ones(shape, dtype=dtype, device=DEVICE, requires_grad=True)
            residual = torch.zeros_like(x, requires_grad=True)
            _, total = dropout_layer_norm(x, residual, x[0], x[0], **options, version=version)
            assert torch.equal(total, want.to(dtype)), (version, dtype)
            dx, dresidual = torch.autograd.grad(total, (x, residual), torch.ones_like(total))
            assert torch.equal(dresidual, torch.ones_like(dx)), (version, dtype)
            assert torch.equal(dx, want.to(dtype)), (version, dtype)


def test_a_seed_in_a_tensor_is_the_same():
    want = drop(5, 40, seed=2**40 + 1, offset=3)
    for shape in ((), (1,), (1, 1)):
        seed = torch.full(shape, 2**40 + 1, device=DEVICE)
        assert torch.equal(drop(5, 40, seed=seed, offset=3), want)
        assert not torch.equal(drop(5, 40, seed=seed + 1, offset=3), want)
    assert not torch.equal(drop(5, 40, seed=2**40 + 1, offset=4), want)
    assert not torch.equal(drop(5, 40, seed=1, offset=3), want)  # the upper words count, too
    assert not torch.equal(drop(5, 40, seed=2**40 + 1, offset=3 + 2**32), want)


@pytest.mark.parametrize("p", [0, 1, 0.0, 1.0, 0.25])
@pytest.mark.parametrize("cols", [40, 33])
@each_version
def test_nothing_and_everything_dropped(version: str, cols: int, p: float):
    case = Case(reference.OPS["dropout_layer_norm"], version, {"p": p, "seed": 5})
    for dtype in (torch.float32, torch.bfloat16):
        assert_as_good_as_pytorch(case, lambda seed, dtype=dtype: case.inputs(6, cols, dtype, seed))
    inputs = case.inputs(6, cols, torch.float32)
    got = outcome(case.ours, inputs)
    if p == 0:
        assert torch.equal(got["y1"], inputs["x"] + inputs["residual"])
        assert torch.equal(got["dx"], got["dresidual"])
    if p == 1:
        assert torch.equal(got["y1"], inputs["residual"])
        assert not got["dx"].any()


def test_p_counts_in_steps_of_a_65536th():
    assert drop(64, 64, p=2**-18, seed=1).unique().tolist() == [1]
    assert drop(64, 64, p=1 - 2**-18, seed=1).unique().tolist() == [0]
    kept = drop(64, 64, p=0.1, dtype=torch.float64, seed=1).max().item()
    assert kept == 65536 / (65536 - 6554)
    assert kept == pytest.approx(1 / 0.9, rel=1e-5)
    assert drop(1024, 1024, p=2**-16, seed=1).min() == 0


def test_the_sum_that_is_returned_is_the_one_that_is_normalised():
    case = BEST[[c.op.name for c in BEST].index("dropout_layer_norm")]
    inputs = case.inputs(40, 64, torch.bfloat16)
    y, total = case.ours(**inputs)
    again = module_of("layer_norm").layer_norm(total, inputs["weight"], inputs["bias"])
    assert torch.equal(y, again)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@each_version
def test_the_sum_has_the_bits_of_pytorchs(version: str, dtype: torch.dtype):
    case = Case(reference.OPS["dropout_layer_norm"], version, {"seed": 3})
    inputs = case.inputs(40, 64, dtype)
    assert torch.equal(case.ours(**inputs)[1], case.theirs(**inputs)[1])


def test_no_mask_is_stored():
    """Of the size of x, backward keeps the sum alone, which is a result anyway."""
    case = BEST[[c.op.name for c in BEST].index("dropout_layer_norm")]
    inputs = {n: t.requires_grad_() for n, t in case.inputs(40, 64, torch.float32).items()}
    kept: list[Tensor] = []
    with saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        _, total = case.ours(**inputs)
    large = {t.data_ptr() for t in kept if t.numel() >= total.numel() // 8}
    assert large == {total.data_ptr()}


# ---- how many are dropped


@pytest.mark.parametrize("p", [0.001, 0.1, 0.5, 0.9])
def test_the_rate(p: float):
    """Within five standard errors, of all elements and of each of the eight of a draw."""
    kept = drop(1024, 1024, p=p, seed=11) != 0
    rate = 1 - round(p * 65536) / 65536

    def check(share: Tensor, n: int) -> None:
        assert ((share - rate).abs() < 5 * math.sqrt(rate * (1 - rate) / n)).all()

    check(kept.double().mean(), kept.numel())
    check(kept.view(-1, 8).double().mean(0), kept.numel() // 8)


def test_elements_are_independent():
    """Of neighbours, rows, seeds and offsets: no correlation beyond five standard errors."""
    shape, p = (1024, 1024), 0.5
    base = drop(*shape, p=p, seed=11) - 1  # -1 or 1
    flat = base.flatten()
    for shift in (*range(1, 20), 31, 32, 33, 64, 128, 255, 256, 1024, 8192):
        assert abs((flat[shift:] * flat[:-shift]).mean()) < 5 / math.sqrt(flat.numel() - shift)
    for other in ({"seed": 12}, {"seed": 11, "offset": 1}, {"seed": 11 + 2**32}):
        again = drop(*shape, p=p, **other) - 1
        assert abs((base * again).mean()) < 5 / math.sqrt(base.numel())


def test_the_expectation_is_x():
    total = sum(drop(64, 64, p=0.3, seed=seed, dtype=torch.float64) for seed in range(256)) / 256
    deviation = math.sqrt(0.3 / 0.7)
    assert abs(total.mean() - 1) < 5 * deviation / math.sqrt(256 * total.numel())
    assert (total - 1).abs().max() < 6 * deviation / math.sqrt(256)


# ---- where the seed is from


def test_manual_seed_repeats_what_is_drawn():
    torch.manual_seed(5)
    first, second = drop(40, 64), drop(40, 64)
    assert not torch.equal(first, second)
    torch.manual_seed(5)
    assert torch.equal(drop(40, 64), first)
    assert torch.equal(drop(40, 64), second)


def test_forward_and_backward_draw_the_same():
    case = Case(reference.OPS["dropout_layer_norm"], VERSIONS[-1], {"p": 0.5})
    inputs = case.inputs(40, 64, torch.float32)
    inputs["x"].fill_(1)
    inputs["residual"].fill_(0)
    got = outcome(case.ours, inputs)
    assert torch.equal(got["dx"] == 0, got["y1"] == 0)


@pytest.mark.slow
def test_compiled_it_draws_anew():
    def op(x: Tensor, residual: Tensor) -> tuple[Tensor, Tensor]:
        return dropout_layer_norm(x, residual, x[0], x[0], p=0.5)

    torch.compiler.reset()
    compiled = torch.compile(op, fullgraph=True)
    x = torch.ones(40, 64, device=DEVICE, requires_grad=True)
    masks = []
    for _ in range(2):
        _, total = compiled(x, torch.zeros_like(x))
        (dx,) = torch.autograd.grad(total, x, torch.ones_like(total))
        assert torch.equal(dx, total)
        masks.append(total.detach())
    assert not torch.equal(*masks)


@on_gpu
@pytest.mark.gpu
def test_a_replayed_graph_draws_anew():
    x = torch.ones(40, 64, device=DEVICE, requires_grad=True)

    def run(seed: Tensor | None) -> tuple[Tensor, Tensor]:
        _, total = dropout_layer_norm(x, torch.zeros_like(x), x[0], x[0], p=0.5, seed=seed)
        return total, torch.autograd.grad(total, x, torch.ones_like(total))[0]

    for seed in (None, torch.tensor(1, device=DEVICE)):
        with torch.cuda.stream(torch.cuda.Stream()):
            run(seed)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            total, dx = run(seed)
        masks = []
        for turn in range(3):
            if seed is not None:
                seed.fill_(turn)
            graph.replay()
            assert torch.equal(dx, total)
            masks.append(total.clone())
            if seed is not None:
                assert torch.equal(total, drop(40, 64, p=0.5, seed=turn))
        assert not torch.equal(masks[0], masks[1])
        assert not torch.equal(masks[1], masks[2])


# ---- what is refused


@pytest.mark.parametrize("p", [-0.1, 1.5, float("nan")])
def test_a_p_that_is_no_probability(p: float):
    with pytest.raises(ValueError, match=f"^p is {p!r}; wanted is a probability from 0 to 1$"):
        drop(3, 8, p=p)


@pytest.mark.parametrize(
    ("seed", "message"),
    [
        (torch.zeros(()), r"seed is float32 of shape \(\) on "),
        (torch.zeros(2, dtype=torch.int64), r"seed is int64 of shape \(2,\) on "),
        (torch.zeros((), dtype=torch.int32), r"seed is int32 of shape \(\) on "),
    ],
)
def test_a_seed_of_another_kind(seed: Tensor, message: str):
    message += rf".*; wanted is an int, or one int64 on {DEVICE}"
    with pytest.raises(RuntimeError, match=message):
        drop(3, 8, seed=seed.to(DEVICE))


# ---- the lab


@pytest.mark.parametrize("backward", [False, True])
def test_a_rival_draws_its_own_numbers_and_is_judged_with_ours(backward: bool):
    op = reference.OPS["dropout_layer_norm"]
    case = lab_cases.Case(op, (40, 64), torch.float32, DEVICE, {"p": 0.5, "seed": 3}, backward)
    rival = eager(op)
    step, results = case.start(rival)
    for got, want in zip(results, case.truth, strict=True):
        torch.testing.assert_close(got.double(), want, rtol=1e-4, atol=1e-4)
    if not backward:
        assert not torch.equal(step()[1], results[1])
        assert not torch.equal(step()[1], step()[1])
    x, v = 4 * 40 * 64, 4 * 64  # bytes: 4 or 5 tensors as large as x; backward 2 vectors each way
    size = 5 * x + 4 * v if backward else 4 * x + 2 * v
    assert case.measure(rival, timed=False).bytes == size
