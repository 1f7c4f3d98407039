"""attention_decode: caches in strides and in pages, lengths, windows, what is refused."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from op_cases import DEVICE, converted, error, in_pairs, module_of, no_findings
from torch import Tensor

import reference

module = module_of("attention_decode")
attention_decode = module.attention_decode
each_version = pytest.mark.parametrize("version", module.VERSIONS)


def drawn(
    q_shape: tuple[int, int, int, int],
    kv_heads: int,
    tokens: int,
    dtype: torch.dtype = torch.bfloat16,
    seed: int = 0,
) -> dict[str, Tensor]:
    generator = torch.Generator(DEVICE).manual_seed(seed)
    batch, _, _, cols = q_shape
    shapes = {"q": q_shape, "k": (batch, kv_heads, tokens, cols)}
    shapes["v"] = shapes["k"]
    return {
        name: torch.randn(shape, device=DEVICE, generator=generator).add_(0.25).to(dtype)
        for name, shape in shapes.items()
    }


def in_pages(inputs: dict[str, Tensor], page_size: int, seed: int = 0) -> dict[str, Tensor]:
    """The same cache in pages, in an order drawn at random."""
    batch, kv_heads, tokens, cols = inputs["k"].shape
    each = tokens // page_size
    assert each * page_size == tokens
    generator = torch.Generator(DEVICE).manual_seed(seed)
    order = torch.randperm(batch * each, device=DEVICE, generator=generator)
    paged = {"q": inputs["q"], "block_table": order.view(batch, each).int()}
    for name in ("k", "v"):
        pages = inputs[name].transpose(1, 2).reshape(batch * each, page_size, kv_heads, cols)
        paged[name] = torch.empty_like(pages)
        paged[name][order] = pages
    return paged


def ints(*values: int, dtype: torch.dtype = torch.int32) -> Tensor:
    return torch.tensor(values, dtype=dtype, device=DEVICE)


def check(inputs: dict[str, Tensor], version: str, **options) -> Tensor:
    """Right to within twice the rounding of the type, and three ULPs of sums."""
    got = attention_decode(**inputs, version=version, **options)
    floats = {n: t for n, t in inputs.items() if t.is_floating_point()}
    truth = reference.attention_decode(**(inputs | converted(floats, torch.float64)), **options)
    dtype = inputs["q"].dtype
    largest = truth.abs().max().item() if truth.numel() else 0.0
    allowed = 2 * torch.finfo(dtype).eps * largest
    if dtype in (torch.float32, torch.float64):
        allowed *= 8
    off = error(got, truth)
    assert got.dtype == dtype
    assert got.is_contiguous()
    assert off <= allowed, f"off by {off:.3g}; {allowed:.3g} is allowed"
    return got


# Heads, those of k and v, queries, columns.
SHAPES = [
    *[(8, 2, 1, 128), (2, 2, 1, 64), (3, 1, 4, 40)],
    *[(6, 1, 3, 33), (2, 1, 1, 256), (1, 1, 2, 300)],
]


@in_pairs(
    version=module.VERSIONS,
    dtype=(torch.bfloat16, torch.float16, torch.float32, torch.float64),
    shape=SHAPES,
)
def test_shapes(version: str, dtype: torch.dtype, shape: tuple[int, int, int, int]):
    heads, kv_heads, queries, cols = shape
    inputs = drawn((2, heads, queries, cols), kv_heads, 200, dtype)
    check(inputs, version)
    check(inputs, version, lengths=ints(200, 77), window=30, scale=0.2)
    check(in_pages(inputs, 8), version, lengths=ints(200, 77))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(
    ("heads", "kv_heads", "queries", "cols"),
    [(20, 1, 1, 64), (14, 2, 3, 96), (4, 4, 5, 128), (8, 2, 9, 256), (1, 1, 1, 8)],
)
def test_rows_of_tensor_cores(
    dtype: torch.dtype, heads: int, kv_heads: int, queries: int, cols: int
):
    """Groups and queries that are no 16 rows together, and more than that."""
    inputs = drawn((2, heads, queries, cols), kv_heads, 528, dtype)
    lengths = ints(528, 70)
    want = check(inputs, "mma", lengths=lengths)
    paged = attention_decode(**in_pages(inputs, 16), lengths=lengths, version="mma")
    assert torch.equal(paged, want)
    check(inputs, "mma", lengths=lengths, window=50, scale=0.3)


@each_version
def test_what_no_query_sees_is_not_read(version: str):
    """NaN before the window of the first query and from the length on."""
    inputs = drawn((2, 4, 2, 64), 2, 96)
    options = {"lengths": ints(91, 40), "window": 20}
    want = attention_decode(**inputs, **options, version=version)
    for name in ("k", "v"):
        for batch, length in enumerate((91, 40)):
            inputs[name][batch, :, : length - 22] = torch.nan
            inputs[name][batch, :, length:] = torch.nan
    assert torch.equal(attention_decode(**inputs, **options, version=version), want)


@each_version
def test_large_scores(version: str):
    """Whose powers would not fit a float, and which a sum of powers has to lose against."""
    inputs = drawn((1, 2, 1, 64), 1, 300)
    inputs["k"][:, :, 200] *= 64
    check(inputs, version, scale=20.0)


@each_version
@pytest.mark.parametrize("tokens", [5, 600])
def test_a_query_whose_scores_are_all_minus_infinity(version: str, tokens: int):
    """NaN, as softmax makes of them in PyTorch; a query that sees nothing stays 0."""
    inputs = drawn((2, 2, 3, 64), 1, tokens)
    inputs["q"][0, 0, :, 0] = -torch.inf
    inputs["k"][..., 0] = 1
    got = attention_decode(**inputs, lengths=ints(2, tokens), version=version)
    wanted = reference.attention_decode(**inputs, lengths=ints(2, tokens))
    assert not got[0, :, 0].any()
    assert got[0, 0, 1:].isnan().all()
    assert torch.equal(got.isnan(), wanted.isnan())


@each_version
def test_several_splits(version: str):
    inputs = drawn((2, 4, 1, 32), 1, 1536)
    for lengths in ((1536, 1), (0, 700)):
        want = check(inputs, version, lengths=ints(*lengths))
        paged = attention_decode(**in_pages(inputs, 16), lengths=ints(*lengths), version=version)
        assert torch.equal(paged, want)


@each_version
def test_splits_of_one_head(version: str):
    """So few heads that each has several multiprocessors, of the simulator, too."""
    inputs = drawn((1, 4, 1, 64), 1, 1536)
    check(inputs, version)
    check(inputs, version, lengths=ints(1000), window=700)


@each_version
def test_fewer_tokens_than_queries(version: str):
    """The first queries stand before the sequence: they see nothing."""
    got = check(drawn((1, 2, 4, 16), 1, 32), version, lengths=ints(2))
    assert not got[:, :, :2].any()
    assert got[:, :, 2:].any()


@each_version
def test_lengths_of_both_types(version: str):
    inputs = drawn((2, 2, 1, 64), 1, 64)
    want = attention_decode(**inputs, lengths=ints(5, 60), version=version)
    longs = ints(5, 60, dtype=torch.int64)
    assert torch.equal(attention_decode(**inputs, lengths=longs, version=version), want)


@each_version
def test_wrong_lengths_and_pages_make_nan(version: str):
    """Nothing is read there; the other sequences are right."""
    inputs = drawn((4, 2, 1, 64), 1, 32)
    want = attention_decode(**inputs, version=version)
    got = attention_decode(**inputs, lengths=ints(32, 33, -1, 32), version=version)
    assert got[1:3].isnan().all()
    assert torch.equal(got[::3], want[::3])
    paged = in_pages(inputs, 8)
    for wrong in (-1, 16, 2**31 - 1):
        paged["block_table"][2, 3] = wrong
        got = attention_decode(**paged, version=version)
        assert got[2].isnan().all()
        assert torch.equal(got[:2], want[:2])
        got = attention_decode(**paged, lengths=ints(32, 32, 24, 32), version=version)
        assert not got.isnan().any(), "a page that no length reaches"


@each_version
@pytest.mark.parametrize("shape", [(0, 2, 1, 64), (2, 0, 1, 64), (2, 2, 0, 64), (2, 2, 1, 0)])
def test_empty(version: str, shape: tuple[int, int, int, int]):
    got = attention_decode(**drawn(shape, shape[1], 16), version=version)
    assert got.shape == shape


@each_version
def test_no_tokens(version: str):
    assert not attention_decode(**drawn((2, 2, 1, 64), 1, 0), version=version).any()


@each_version
def test_strides_and_misaligned(version: str):
    inputs = drawn((2, 4, 2, 64), 2, 48)
    want = attention_decode(**inputs, version=version)
    tokens_first = {n: t.transpose(1, 2).contiguous().transpose(1, 2) for n, t in inputs.items()}
    assert torch.equal(attention_decode(**tokens_first, version=version), want)
    reversed_cols = {n: t.mT.contiguous().mT for n, t in inputs.items()}
    assert torch.equal(attention_decode(**reversed_cols, version=version), want)
    shifted = {}
    for name, t in inputs.items():
        room = t.new_empty(t.numel() + 1)
        shifted[name] = room[1:].view(t.shape).copy_(t)
    check(shifted, version)


@settings(max_examples=15, deadline=None)
@given(data=st.data())
@each_version
def test_any_shape(version: str, data: st.DataObject):
    draw = data.draw
    kv_heads, group = draw(st.integers(1, 2)), draw(st.integers(1, 5))
    batch, queries = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    page_size, each = draw(st.sampled_from((1, 4, 16))), draw(st.integers(1, 6))
    inputs = drawn(
        (batch, kv_heads * group, queries, 8 * draw(st.integers(1, 9))), kv_heads, page_size * each
    )
    lengths = [draw(st.integers(0, page_size * each)) for _ in range(batch)]
    window = draw(st.none() | st.integers(0, 20))
    check(inputs, version, lengths=ints(*lengths), window=window)
    check(in_pages(inputs, page_size), version, lengths=ints(*lengths), window=window)


def test_beside_pytorch():
    """At most twice as far from the truth as PyTorch's own in the same type."""
    inputs = drawn((2, 8, 1, 128), 2, 300)
    attend = torch.nn.functional.scaled_dot_product_attention
    truth = attend(*converted(inputs, torch.float64).values(), enable_gqa=True)
    bar = error(attend(*inputs.values(), enable_gqa=True), truth)
    assert error(attention_decode(**inputs), truth) <= 2 * bar


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"q": torch.zeros(2, 4, 16)}, r"q has shape \(2, 4, 16\); wanted is \[batch"),
        ({"q": torch.zeros(2, 4, 1, 4097)}, r"q has head size 4097; wanted are at most 4096"),
        ({"k": torch.zeros(2, 3, 8, 16)}, r"k has shape .* a number of heads that 4 is a mult"),
        ({"v": torch.zeros(2, 2, 9, 16)}, r"v has shape .* wanted are equal shapes"),
        ({"k": torch.zeros(2, 2, 8, 16).double()}, r"k is float64, but q is float32"),
        ({"lengths": torch.zeros(2)}, r"lengths is float32; wanted is int32 or int64"),
        ({"lengths": torch.zeros(3).int()}, r"lengths has shape \(3,\)"),
        ({"block_table": torch.zeros(2, 4).long()}, r"block_table is int64; wanted is int32"),
        ({"block_table": torch.zeros(3, 4).int()}, r"block_table has shape \(3, 4\)"),
    ],
    ids=str,
)
def test_refused(changes: dict[str, Tensor], message: str):
    inputs = drawn((2, 4, 1, 16), 2, 8, torch.float32)
    if "block_table" in changes:
        inputs["k"] = inputs["v"] = inputs["k"].transpose(1, 2)
    with pytest.raises(RuntimeError, match=message):
        attention_decode(**(inputs | {n: t.to(DEVICE) for n, t in changes.items()}))


def test_refused_options():
    inputs = drawn((1, 1, 1, 16), 1, 8)
    for window in (-1, 2.5):
        with pytest.raises(ValueError, match="window is"):
            attention_decode(**inputs, window=window)


@pytest.mark.slow  # the op is compiled for it once more
@pytest.mark.skipif(DEVICE.type != "cpu", reason="the checker runs on the simulator")
@each_version
def test_checker(version: str):
    inputs = in_pages(drawn((2, 4, 2, 64), 2, 48), 8)
    inputs["block_table"][1, 5] = -1
    given = inputs | {"lengths": ints(48, 17), "version": version}
    no_findings(attention_decode, **given, traffic=False)
