"""What attention alone has: heads, masks, strides, and tensor cores at sizes of several tiles."""

from collections.abc import Callable

import pytest
import torch
from attention_bits import assert_same
from op_cases import DEVICE, converted, doubled, error, module_of, no_findings, outcome
from torch import Tensor
from torch._subclasses import FakeTensorMode

import reference

module = module_of("attention")
attention = module.attention
TENSOR_CORES = ("mma", "wgmma", "overlap")
MARKED = [
    pytest.param(v, marks=[pytest.mark.slow] * (v != module.VERSIONS[-1])) for v in module.VERSIONS
]
each_version = pytest.mark.parametrize("version", MARKED)
each_with_tensor_cores = pytest.mark.parametrize("version", MARKED[-len(TENSOR_CORES) :])
each_half = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bf16", "fp16"])

MASKS = {
    "full": {},
    "causal": {"causal": True},
    "window": {"window": (70, 9)},
    "left": {"window": (33, -1), "causal": True},
}
each_mask = pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)


def drawn(
    q_shape: tuple[int, ...], k_shape: tuple[int, ...], dtype: torch.dtype, seed: int = 0
) -> dict[str, Tensor]:
    generator = torch.Generator(DEVICE).manual_seed(seed)
    shapes = {"q": q_shape, "k": k_shape, "v": k_shape}
    return {
        name: torch.randn(shape, device=DEVICE, generator=generator).add_(0.25).to(dtype)
        for name, shape in shapes.items()
    }


def check(inputs: dict[str, Tensor], version: str, **options) -> dict[str, Tensor]:
    """Right to within twice the error of attention in the same type with float arithmetic.

    That is the formula in float32, rounded to the type: what the best attention can give. The
    tensor cores' versions round e^score and ds to the type, too: hence twice, and an ULP more.
    """
    dtype = inputs["q"].dtype

    def ours(**given: Tensor) -> Tensor:
        return attention(**given, version=version, **options)

    def theirs(**given: Tensor) -> Tensor:
        return reference.attention(**given, **options)

    generator = torch.Generator(DEVICE).manual_seed(1)
    grad = torch.randn(inputs["q"].shape, device=DEVICE, generator=generator).to(dtype)
    got = outcome(ours, inputs, (grad,))
    truth = outcome(theirs, converted(inputs, torch.float64), doubled((grad,)))
    for name, want in truth.items():
        largest = want.abs().max().item() if want.numel() else 0.0
        off = error(got[name], want)
        assert got[name].dtype == dtype
        allowed = 2 * torch.finfo(dtype).eps * largest
        if dtype in (torch.float32, torch.float64):
            allowed *= 16
        assert off <= allowed, f"{name} is off by {off:.3g}; {allowed:.3g} is allowed"
    return got


# ---- heads


@each_version
@pytest.mark.parametrize(
    ("q_shape", "k_shape"),
    [
        ((2, 4, 9, 16), (2, 2, 11, 16)),  # two heads share one
        ((2, 4, 9, 16), (2, 1, 11, 16)),  # all do
        ((2, 3, 9, 16), (3, 11, 16)),  # batches share
        ((2, 3, 9, 16), (11, 16)),
        ((2, 2, 3, 9, 16), (2, 1, 11, 16)),
        ((3, 2, 1, 16), (3, 2, 11, 16)),  # one query each
        ((2, 4, 70, 96), (2, 70, 96)),  # several tiles, of heads and batches that share
        ((16,), (11, 16)),
    ],
    ids=str,
)
def test_who_shares_keys(version: str, q_shape: tuple[int, ...], k_shape: tuple[int, ...]):
    for dtype in (torch.float64, torch.bfloat16):
        check(drawn(q_shape, k_shape, dtype), version)


@each_mask
@each_version
def test_masks(version: str, mask: dict):
    """More rows than keys, so that the first rows see none; and more keys than rows."""
    for rows, keys in ((50, 40), (40, 50), (1, 40)):
        inputs = drawn((2, rows, 16), (keys, 16), torch.float32)
        got = check(inputs, version, **mask)
        if mask.get("causal") and rows > keys:
            blind = got["y"][:, : rows - keys]
            assert not blind.any()
            assert not got["dq"][:, : rows - keys].any()


@each_version
def test_no_keys(version: str):
    got = check(drawn((1, 3, 16), (0, 16), torch.bfloat16), version)
    assert not got["y"].any()
    assert not got["dq"].any()


@each_version
def test_scale(version: str):
    inputs = drawn((2, 40, 32), (2, 50, 32), torch.bfloat16)
    for scale in (0.05, 1.0, 0.0, -0.3):
        check(inputs, version, scale=scale)


@pytest.mark.slow
@each_mask
@pytest.mark.parametrize("cols", [64, 128, 256])
def test_several_blocks_share_keys(cols: int, mask: dict):
    """Few keys and many queries: the queries are spread over blocks, whose dk and dv are added."""
    check(drawn((1, 3, 150, cols), (1, 1, 90, cols), torch.bfloat16), "overlap", **mask)
    check(drawn((2, 2, 130, cols), (60, cols), torch.bfloat16), "overlap", **mask)


# ---- strides


def from_tokens(t: Tensor) -> Tensor:
    """The same [batch, heads, rows, cols] as a view of [batch, rows, heads, cols]."""
    return t.transpose(1, 2).contiguous().transpose(1, 2)


@each_version
def test_heads_side_by_side(version: str):
    """Every result lies as its input does, and the gradient of y may lie in either way."""
    inputs = drawn((2, 4, 70, 64), (2, 2, 90, 64), torch.bfloat16)
    grad = torch.randn_like(inputs["q"])
    want = outcome(lambda **given: attention(**given, version=version), inputs, (grad,))
    views = {name: from_tokens(t) for name, t in inputs.items()}
    for arriving in (grad, from_tokens(grad)):
        got = outcome(lambda **given: attention(**given, version=version), views, (arriving,))
        for name in want:
            assert want[name].is_contiguous()
            assert got[name].transpose(1, 2).is_contiguous(), name
            assert torch.equal(got[name], want[name]), name


@each_version
@pytest.mark.parametrize(
    ("views", "lie_so"),
    [({"q"}, {"y", "dq"}), ({"k"}, {"dk"}), ({"v"}, {"dv"}), ({"y"}, set())],
    ids=["q", "k", "v", "gradient"],
)
def test_some_heads_side_by_side(version: str, views: set[str], lie_so: set[str]):
    """No tensor's strides are taken for another one's."""
    inputs = drawn((2, 4, 70, 64), (2, 2, 90, 64), torch.bfloat16)
    grad = torch.randn_like(inputs["q"])
    want = outcome(lambda **given: attention(**given, version=version), inputs, (grad,))
    some = {name: from_tokens(t) if name in views else t for name, t in inputs.items()}
    arriving = from_tokens(grad) if "y" in views else grad
    got = outcome(lambda **given: attention(**given, version=version), some, (arriving,))
    assert {name for name, t in got.items() if not t.is_contiguous()} == lie_so
    for name in want:
        assert torch.equal(got[name], want[name]), name


LAYOUTS = {
    "contiguous": lambda: torch.zeros(2, 4, 5, 8),
    "tokens": lambda: torch.zeros(2, 5, 4, 8).transpose(1, 2),
    "tokens of one batch": lambda: torch.zeros(5, 4, 8).transpose(0, 1),
    "sequence first": lambda: torch.zeros(5, 2, 4, 8).permute(1, 2, 0, 3),
    "batch last": lambda: torch.zeros(5, 4, 2, 8).permute(2, 1, 0, 3),
    "a part": lambda: torch.zeros(2, 5, 3, 4, 8)[:, :, 1].transpose(1, 2),
    "one token": lambda: torch.zeros(2, 1, 4, 8).transpose(1, 2),
    "one head": lambda: torch.zeros(2, 5, 1, 8).transpose(1, 2),
    "no token": lambda: torch.zeros(2, 0, 4, 8).transpose(1, 2),
    "expanded": lambda: torch.zeros(2, 1, 5, 8).expand(2, 4, 5, 8),
    "columns first": lambda: torch.zeros(2, 4, 8, 5).mT,
    "every second column": lambda: torch.zeros(2, 5, 4, 16)[..., ::2].transpose(1, 2),
    "two dimensions": lambda: torch.zeros(5, 8),
    "one dimension": lambda: torch.zeros(8),
    "five dimensions": lambda: torch.zeros(3, 2, 5, 4, 8).transpose(2, 3),
    "batches transposed": lambda: torch.zeros(3, 2, 4, 5, 8).transpose(0, 1),
    "five, and no token": lambda: torch.zeros(3, 2, 4, 0, 8).transpose(0, 1),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_fakes_lie_as_the_results_do(layout: Callable[[], Tensor]):
    q = layout().to(DEVICE)
    k, v = (t if q.dim() > 1 else t[None] for t in (layout().to(DEVICE), layout().to(DEVICE)))
    kernel, options = module.kernel, (-1, -1, 1.0, len(module.VERSIONS) - 1)

    def strides(q: Tensor, k: Tensor, v: Tensor) -> list[tuple[int, ...]]:
        y, stats = kernel.forward(q, k, v, *options)
        gradients = kernel.backward(y, q, k, v, y, stats, *options)
        return [t.stride() for t in (kernel.infer(q, k, v, *options), y, stats, *gradients)]

    with FakeTensorMode() as fakes:
        wanted = strides(*(fakes.from_tensor(t) for t in (q, k, v)))
    assert strides(q, k, v) == wanted


@pytest.mark.parametrize("name", [*LAYOUTS][:6])
def test_results_lie_as_what_pytorch_makes_like_their_inputs(name: str):
    q = LAYOUTS[name]().to(DEVICE).requires_grad_()
    y = attention(q, q, q)
    (dq,) = torch.autograd.grad(y.sum(), q)
    assert y.stride() == dq.stride() == torch.empty_like(q).stride()


@each_version
def test_heads_of_one_product(version: str):
    """q, k and v as parts of the [batch, rows, 3, heads, cols] that a linear layer has made."""
    both = drawn((2, 50, 3, 2, 64), (1, 1), torch.bfloat16)["q"]
    parts = dict(zip("qkv", both.unbind(2), strict=True))
    got = attention(**{n: t.transpose(1, 2) for n, t in parts.items()}, version=version)
    want = attention(
        **{n: t.transpose(1, 2).contiguous() for n, t in parts.items()}, version=version
    )
    assert torch.equal(got, want)


@each_version
def test_no_heads_and_no_batches(version: str):
    """No number of heads or batches is divided by that is 0, as a GPU would do without a word."""
    for q_shape, k_shape in (
        ((0, 9, 64), (40, 64)),
        ((0, 9, 64), (2, 40, 64)),
        ((0, 9, 64), (0, 40, 64)),
        ((2, 0, 9, 64), (2, 1, 40, 64)),
        ((2, 0, 9, 64), (40, 64)),
        ((0, 2, 9, 64), (0, 1, 40, 64)),
        ((0, 2, 9, 64), (2, 40, 64)),
    ):
        inputs = drawn(q_shape, k_shape, torch.bfloat16)
        got = outcome(lambda **given: attention(**given, version=version), inputs)
        assert got["y"].shape == got["dq"].shape == q_shape
        for name in ("dk", "dv"):
            assert got[name].shape == k_shape
            assert not got[name].any()


# ---- tensor cores, over several tiles of rows and of keys, with tails


@each_mask
@pytest.mark.parametrize("cols", [64, pytest.param(128, marks=pytest.mark.slow)])
@each_with_tensor_cores
def test_several_tiles(version: str, cols: int, mask: dict):
    check(drawn((1, 1, 203, cols), (1, 1, 277, cols), torch.bfloat16), version, **mask)


@each_half
@pytest.mark.parametrize("cols", [8, 72, 96, 256])
@each_with_tensor_cores
def test_head_sizes(version: str, cols: int, dtype: torch.dtype):
    check(drawn((1, 1, 150, cols), (1, 1, 170, cols), dtype), version, causal=True)


# A type decides nothing of a mask: on the simulator, where these take minutes, one has the mask
# alone that has both edges of the others.
TILED = [
    pytest.param(mask, dtype, id=f"{name}-{str(dtype).removeprefix('torch.')}")
    for name, mask in MASKS.items()
    for dtype in (torch.bfloat16, torch.float16)
    if DEVICE.type == "cuda" or dtype == torch.bfloat16 or name == "left"
]


@pytest.mark.slow
@pytest.mark.parametrize(("mask", "dtype"), TILED)
@pytest.mark.parametrize("cols", [40, 64, 128, 200, 256])
@each_with_tensor_cores
def test_many_tiles(version: str, cols: int, mask: dict, dtype: torch.dtype):
    for rows, keys in ((450, 450), (129, 650), (650, 129), (1, 777)):
        check(drawn((1, 2, rows, cols), (1, 1, keys, cols), dtype), version, **mask)


@each_with_tensor_cores
def test_rows_that_see_nothing_beside_others(version: str):
    """Whole tiles of rows, and of other tiles the first rows; a block has several of either."""
    got = check(drawn((4, 300, 64), (4, 70, 64), torch.bfloat16), version, causal=True)
    assert not got["y"][:, :230].any()


@each_with_tensor_cores
def test_rising_scores(version: str):
    """Each tile has larger scores than all before: what was summed is scaled down every time."""
    inputs = drawn((1, 1, 64, 64), (1, 1, 400, 64), torch.bfloat16)
    inputs["k"] *= torch.linspace(0.1, 8, 400, device=DEVICE)[:, None].bfloat16()
    check(inputs, version)


@each_with_tensor_cores
def test_scores_past_whole_numbers_beside_none(version: str):
    """Rows of a warp begin to see keys in different steps, and scores have no digits for less."""
    inputs = drawn((1, 1, 300, 64), (1, 1, 300, 64), torch.bfloat16)
    inputs["q"] *= 30000
    inputs["k"] *= 30000
    got = attention(**inputs, window=(4, 0), version=version)
    want = attention(**inputs, window=(4, 0), version="naive")
    torch.testing.assert_close(got, want, rtol=0, atol=0.05)


@pytest.mark.parametrize("cols", [64, 128, 256])
@each_with_tensor_cores
def test_gradients_of_scores_that_float_cannot_tell_apart(version: str, cols: int):
    """No weight is more than 1, though scores of 10^9 have other last digits in backward."""
    dice = torch.Generator().manual_seed(cols)
    q, k, v = (1e4 * (torch.randn(rows, cols, generator=dice) + 0.25) for rows in (70, 90, 90))
    q, k, v = (t.bfloat16().to(DEVICE).requires_grad_() for t in (q, k, v))
    g = torch.randn(70, cols, generator=dice).bfloat16().to(DEVICE)
    (dv,) = torch.autograd.grad(attention(q, k, v, version=version), v, g)
    assert (dv.float().abs() <= 1.01 * g.float().abs().sum(0)).all()


@pytest.mark.parametrize("cols", [64, 128])
@each_with_tensor_cores
def test_the_same_bits_beside_other_batches(version: str, cols: int):
    one = drawn((1, 2, 200, cols), (1, 1, 300, cols), torch.bfloat16)
    more = {name: torch.cat((torch.zeros_like(t), t)) for name, t in one.items()}
    want = outcome(lambda **given: attention(**given, causal=True, version=version), one)
    got = outcome(lambda **given: attention(**given, causal=True, version=version), more)
    for name in want:
        assert_same(name, got[name][1:], want[name], version)


@pytest.mark.parametrize("cols", [64, pytest.param(128, marks=pytest.mark.slow)])
@each_with_tensor_cores
def test_the_same_bits_whatever_a_block_has_besides(version: str, cols: int):
    """With few batches each tile has a block; with many a block has one tile after the other."""
    one = drawn((1, 1, 250, cols), (1, 1, 250, cols), torch.bfloat16)
    most = 4  # the simulator has as many multiprocessors as there are cores
    if DEVICE.type == "cuda":
        most = torch.cuda.get_device_properties(0).multi_processor_count
    many = {name: t.repeat(most, 1, 1, 1) for name, t in one.items()}
    want = outcome(lambda **given: attention(**given, causal=True, version=version), one)
    got = outcome(lambda **given: attention(**given, causal=True, version=version), many)
    for name in want:
        assert_same(name, got[name], want[name].expand_as(got[name]), version)


@pytest.mark.parametrize("cols", [64, 96])
@each_with_tensor_cores
def test_the_same_bits_on_every_run(version: str, cols: int):
    """Also of dq, to which all tiles of keys add where backward has five products."""
    heads, runs = (4, 20) if DEVICE.type == "cuda" else (1, 1)
    inputs = drawn((heads, 2, 200, cols), (heads, 1, 300, cols), torch.bfloat16)
    want = outcome(lambda **given: attention(**given, version=version), inputs)
    for _ in range(runs):
        got = outcome(lambda **given: attention(**given, version=version), inputs)
        for name in want:
            assert torch.equal(got[name], want[name]), name


@each_with_tensor_cores
def test_a_gradient_of_keys_that_are_not_there(version: str):
    """Scores far below 0: beyond the last key a score of 0 would have an infinite power."""
    inputs = drawn((1, 1, 70, 128), (1, 1, 150, 128), torch.bfloat16)
    inputs = {"q": -inputs["q"].abs() * 4, "k": inputs["k"].abs() * 4, "v": inputs["v"]}
    assert check(inputs, version)["dq"].isfinite().all()


# ---- errors


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"k": (2, 3, 9, 16), "v": (2, 3, 9, 16)},
            r"k has shape \(2, 3, 9, 16\), but q has shape \(2, 4, 5, 16\); wanted is \(keys, 16\)"
            r" or \(2, heads, keys, 16\) with a number of heads that 4 is a multiple of",
        ),
        (
            {"k": (3, 4, 9, 16), "v": (3, 4, 9, 16)},
            r"k has shape \(3, 4, 9, 16\), but q has shape \(2, 4, 5, 16\); wanted is",
        ),
        ({"k": (16,)}, r"k has shape \(16,\), but q has shape \(2, 4, 5, 16\); wanted is"),
        (
            {"v": (2, 4, 8, 16)},
            r"v has shape \(2, 4, 8, 16\), but k has shape \(2, 4, 9, 16\); wanted are equal",
        ),
    ],
)
def test_shapes_that_do_not_fit(changes: dict, message: str):
    inputs = drawn((2, 4, 5, 16), (2, 4, 9, 16), torch.float32)
    inputs |= {name: torch.zeros(shape, device=DEVICE) for name, shape in changes.items()}
    with pytest.raises(RuntimeError, match=f"^{message}"):
        attention(**inputs)


@pytest.mark.parametrize(
    "window", [(-2, 3), (3, -5), 3, (1, 2, 3), ("x", 1), (2.5, 1), "11", (0, 2**63)], ids=str
)
def test_a_window_that_is_none(window: object):
    inputs = drawn((5, 16), (9, 16), torch.float32)
    with pytest.raises(ValueError, match=r"^window is .*; wanted are two ints of 64 bits, -1"):
        attention(**inputs, window=window)


def test_a_mask_is_not_taken_for_causal():
    """It is the fourth argument of PyTorch's scaled_dot_product_attention."""
    q, k, v = drawn((5, 16), (9, 16), torch.float32).values()
    mask = torch.ones(5, 9, dtype=torch.bool, device=DEVICE)
    with pytest.raises(ValueError, match=r"^causal is a tensor \(5, 9\); wanted is True or False"):
        attention(q, k, v, mask)
    with pytest.raises(ValueError, match=r"^causal is None; wanted is True or False"):
        attention(q, k, v, None)


@pytest.mark.slow
@pytest.mark.parametrize("cols", [64, 128])
@pytest.mark.parametrize("version", TENSOR_CORES)
def test_the_checker_finds_nothing(version: str, cols: int):
    """Forward and backward, over several tiles and tails, with the heads of a row side by side."""

    def both(*inputs: Tensor) -> None:
        leaves = [t.detach().requires_grad_() for t in inputs]
        y = attention(*leaves, causal=True, version=version)
        torch.autograd.grad(y, leaves, torch.ones_like(y))

    q, k, v = (torch.randn(rows, 2, cols).bfloat16().transpose(0, 1) for rows in (150, 170, 170))
    for inputs in ((q, k, v), (q[:0], k[0], v[0])):  # of no heads there are gradients, too: 0
        no_findings(both, *inputs, traffic=False)
