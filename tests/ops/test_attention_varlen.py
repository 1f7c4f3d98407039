"""attention_varlen: packed sequences against attention of each, and what must not leak or break."""

import pytest
import torch
from attention_bits import assert_same
from hypothesis import given, settings
from hypothesis import strategies as st
from op_cases import DEVICE, converted, doubled, error, module_of, no_findings, outcome
from torch import Tensor

import reference

module = module_of("attention_varlen")
attention_varlen = module.attention_varlen
attention = module_of("attention").attention
BEST = module.VERSIONS[-1]
each_version = pytest.mark.parametrize(
    "version", [pytest.param(v, marks=[pytest.mark.slow] * (v != BEST)) for v in module.VERSIONS]
)
ROWS, KEYS = (5, 0, 70, 1, 33), (7, 3, 65, 0, 150)
MASKS = {"full": {}, "causal": {"causal": True}, "window": {"window": (20, 9)}}
each_mask = pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)


def begins(lengths: tuple[int, ...], before: int = 0, dtype: torch.dtype = torch.int32) -> Tensor:
    return torch.tensor((before, *lengths), device=DEVICE).cumsum(0).to(dtype)


def drawn(
    rows: tuple[int, ...] = ROWS,
    keys: tuple[int, ...] = KEYS,
    cols: int = 64,
    dtype: torch.dtype = torch.bfloat16,
    heads: tuple[int, int] = (2, 1),
    outside: tuple[int, int] = (0, 0),
    seed: int = 0,
) -> dict[str, Tensor]:
    """q, k and v, and where sequences begin; outside: so many tokens before and after them."""
    generator = torch.Generator(DEVICE).manual_seed(seed)
    before, after = outside
    inputs = {}
    for name, lengths, count in (("q", rows, 0), ("k", keys, 1), ("v", keys, 1)):
        shape = (before + sum(lengths) + after, heads[count], cols)
        inputs[name] = torch.randn(shape, device=DEVICE, generator=generator).add_(0.25).to(dtype)
    return inputs | {"cu_seqlens_q": begins(rows, before), "cu_seqlens_k": begins(keys, before)}


def both_ways(function, inputs: dict[str, Tensor], grad: Tensor) -> dict[str, Tensor]:
    """y and the gradients of q, k and v."""
    tensors = {name: inputs[name] for name in "qkv"}
    lengths = {name: t for name, t in inputs.items() if name not in tensors}
    return outcome(lambda **given: function(**given, **lengths), tensors, (grad,))


def gradient_like(q: Tensor) -> Tensor:
    generator = torch.Generator(DEVICE).manual_seed(1)
    return torch.randn(q.shape, device=DEVICE, generator=generator).to(q.dtype)


def check(inputs: dict[str, Tensor], version: str, **options) -> dict[str, Tensor]:
    """Right to within twice the error of the formula in float32, rounded to the type, as in
    test_attention.py; and what sums lose of terms that cancel, as those of dq do where a row sees
    one key. Or, where few rows see few keys and nearly all cancels, at most three times as far off
    as PyTorch's in the same type, as flash-attn's own tests allow for gradients."""
    grad, dtype = gradient_like(inputs["q"]), inputs["q"].dtype
    got = both_ways(
        lambda **given: attention_varlen(**given, version=version, **options), inputs, grad
    )
    floats = {name: inputs[name] for name in "qkv"}
    truth = both_ways(
        lambda **given: reference.attention_varlen(**given, **options),
        inputs | converted(floats, torch.float64),
        doubled((grad,))[0],
    )
    largest_of = {name: t.abs().max().item() if t.numel() else 0.0 for name, t in floats.items()}
    of_sums = torch.finfo(torch.promote_types(dtype, torch.float32)).eps
    terms = max(largest_of["q"], largest_of["k"]) * largest_of["v"]
    terms *= grad.abs().max().item() if grad.numel() else 0.0
    for name, want in truth.items():
        largest = want.abs().max().item() if want.numel() else 0.0
        allowed = 2 * torch.finfo(dtype).eps * largest + 2 * of_sums * terms
        if dtype in (torch.float32, torch.float64):
            allowed *= 16
        off = error(got[name], want)
        assert got[name].dtype == dtype
        if off > allowed:
            pytorchs = both_ways(
                lambda **given: reference.attention_varlen(**given, **options), inputs, grad
            )
            allowed = max(allowed, 3 * error(pytorchs[name], want))
        assert off <= allowed, f"{name} is off by {off:.3g}; {allowed:.3g} is allowed"
    return got


def each_sequence(inputs: dict[str, Tensor]):
    """(its tokens of q, its tokens of k and v), one sequence after the other."""
    rows, keys = (inputs[f"cu_seqlens_{name}"].tolist() for name in "qk")
    for i in range(len(rows) - 1):
        yield slice(rows[i], rows[i + 1]), slice(keys[i], keys[i + 1])


# ---- right


@each_mask
@each_version
def test_against_the_formula(version: str, mask: dict):
    check(drawn(), version, **mask)


@each_version
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16], ids=str)
def test_types(version: str, dtype: torch.dtype):
    check(drawn(cols=16, heads=(4, 2), dtype=dtype), version, causal=True, scale=0.3)


def check_bits(inputs: dict[str, Tensor], version: str, **options) -> None:
    """Each sequence has the same bits as by itself: what stands beside it changes nothing.

    By itself several blocks may share a tile of keys: dk and dv are then added in other parts.
    """
    grad = gradient_like(inputs["q"])
    options |= {"version": version}
    got = both_ways(lambda **given: attention_varlen(**given, **options), inputs, grad)
    for rows, keys in each_sequence(inputs):
        its = {name: inputs[name][rows if name == "q" else keys].transpose(0, 1) for name in "qkv"}
        alone = outcome(
            lambda **given: attention(**given, **options), its, (grad[rows].transpose(0, 1),)
        )
        for name, want in alone.items():
            of = rows if name in ("y", "dq") else keys
            assert_same(name, got[name][of], want.transpose(0, 1), version)


@each_version
@pytest.mark.parametrize("cols", [16, 128, pytest.param(256, marks=pytest.mark.slow)])
def test_the_bits_of_attention(version: str, cols: int):
    check_bits(drawn(cols=cols, heads=(4, 2), outside=(3, 40)), version, causal=True)


@each_version
@pytest.mark.parametrize("cols", [64, pytest.param(128, marks=pytest.mark.slow)])
def test_several_tiles(version: str, cols: int):
    """The largest tiles have 192 rows."""
    inputs = drawn((200, 3, 250), (270, 150, 66), cols)
    check_bits(inputs, version, window=(180, 70))


@settings(max_examples=12, deadline=None)
@given(data=st.data())
@each_version
def test_any_lengths(version: str, data: st.DataObject):
    lengths = st.sampled_from((0, 1, 2, 7, 31, 32, 33, 63, 64, 65, 128, 130))
    sequences = data.draw(st.lists(st.tuples(lengths, lengths), max_size=5))
    rows, keys = (tuple(pair[side] for pair in sequences) for side in (0, 1))
    outside = data.draw(st.sampled_from(((0, 0), (1, 0), (5, 70))))
    inputs = drawn(rows, keys, 8, heads=(2, 2), outside=outside)
    options = {"causal": data.draw(st.booleans()), "version": version}
    if data.draw(st.booleans()):
        options["window"] = (data.draw(st.integers(-1, 70)), data.draw(st.integers(-1, 70)))
    if not sequences:
        assert not attention_varlen(**inputs, **options).any()
        return
    check(inputs, **options)


@each_version
def test_strides(version: str):
    """q, k and v as parts of the [tokens, 3, heads, cols] that a linear layer has made."""
    parts = drawn(ROWS, ROWS, heads=(6, 6))["q"].unflatten(1, (3, 2)).unbind(1)
    inputs = dict(zip("qkv", parts, strict=True))
    inputs |= {f"cu_seqlens_{name}": begins(ROWS) for name in "qk"}
    grad = gradient_like(inputs["q"])
    packed = {name: t.contiguous() for name, t in inputs.items()}
    columns_first = packed | {"q": packed["q"].mT.contiguous().mT}
    want = both_ways(lambda **given: attention_varlen(**given, version=version), packed, grad)
    for strided in (inputs, columns_first):
        got = both_ways(lambda **given: attention_varlen(**given, version=version), strided, grad)
        assert all(torch.equal(got[name], want[name]) for name in want)


@each_version
def test_misaligned(version: str):
    inputs = drawn(cols=16)
    for name in "qkv":
        room = inputs[name].new_empty(inputs[name].numel() + 1)
        inputs[name] = room[1:].view(inputs[name].shape).copy_(inputs[name])
    check(inputs, version)


@each_version
def test_the_most_tokens_change_nothing(version: str):
    inputs = drawn(outside=(0, 9))
    grad = gradient_like(inputs["q"])
    most = {"max_seqlen_q": 70, "max_seqlen_k": 150, "version": version}
    got = both_ways(lambda **given: attention_varlen(**given, **most), inputs, grad)
    longs = inputs | {name: t.long() for name, t in inputs.items() if "cu" in name}
    want = both_ways(lambda **given: attention_varlen(**given, version=version), longs, grad)
    assert all(torch.equal(got[name], want[name]) for name in want)


@pytest.mark.parametrize(
    "shape", [((), ()), ((0, 0), (0, 0)), ((3,), (0,)), ((0,), (3,)), ((1,), (1,))], ids=str
)
@each_version
def test_empty(version: str, shape: tuple):
    inputs = drawn(*shape, outside=(0, 0) if sum(shape[0]) else (2, 1))
    grad = gradient_like(inputs["q"])
    got = both_ways(lambda **given: attention_varlen(**given, version=version), inputs, grad)
    if 0 in (sum(shape[0]), sum(shape[1])):
        assert not any(t.any() for t in got.values())
    for nothing in ((0, 2, 64), (4, 0, 64), (4, 2, 0)):
        q = torch.zeros(nothing, device=DEVICE, dtype=torch.bfloat16)
        y = attention_varlen(q, q, q, begins((0,)), begins((0,)), version=version)
        assert y.shape == nothing
    none = {
        "q": torch.zeros(4, 0, 64, device=DEVICE, dtype=torch.bfloat16),
        "k": torch.ones(5, 2, 64, device=DEVICE, dtype=torch.bfloat16),
    }
    none |= {"v": none["k"], "cu_seqlens_q": begins((1, 3)), "cu_seqlens_k": begins((2, 3))}
    got = both_ways(lambda **given: attention_varlen(**given, version=version), none, none["q"])
    assert not any(t.any() for t in got.values())


# ---- nothing leaks


@pytest.mark.parametrize("cols", [64, 128])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@each_version
def test_neighbours_that_are_not_finite(version: str, value: float, cols: int):
    """The others have the bits that they have beside finite ones, forward and backward."""
    inputs = drawn((70, 40, 3, 90), (33, 100, 70, 20), cols, outside=(4, 30))
    grad = gradient_like(inputs["q"])
    options = {"version": version, "causal": True}
    want = both_ways(lambda **given: attention_varlen(**given, **options), inputs, grad)
    sequences = list(each_sequence(inputs))
    wrong_rows, wrong_keys = sequences[1]
    for name, of in (("q", wrong_rows), ("k", wrong_keys), ("v", wrong_keys)):
        inputs[name][of] = inputs[name][:4] = inputs[name][-30:] = value
    grad[wrong_rows] = grad[:4] = grad[-30:] = value
    got = both_ways(lambda **given: attention_varlen(**given, **options), inputs, grad)
    assert got["y"][wrong_rows].isnan().all()
    for rows, keys in (sequences[0], *sequences[2:]):
        for name in want:
            of = rows if name in ("y", "dq") else keys
            assert torch.equal(got[name][of], want[name][of]), name
    for name in want:
        assert not got[name][:4].any()
        assert not got[name][-30:].any()


@each_version
def test_wrong_lengths_make_nan(version: str):
    good = drawn((40, 30), (50, 20))
    grad = gradient_like(good["q"])
    options = {"version": version}
    for wrong in ((0, 40, 71), (0, 40, 39), (-1, 40, 70), (0, 2**31 - 1, 70), (70, 0, 70)):
        for name in ("cu_seqlens_q", "cu_seqlens_k"):
            for dtype in (torch.int32, torch.int64):
                bad = {n: t.to(dtype) for n, t in good.items() if "cu" in n}
                bad[name] = torch.tensor(wrong, device=DEVICE, dtype=dtype)
                y = attention_varlen(**(good | bad), **options)
                assert y.isnan().all(), (name, wrong)
    bad = good | {"cu_seqlens_q": torch.tensor((0, 90, 70), device=DEVICE, dtype=torch.int32)}
    got = both_ways(lambda **given: attention_varlen(**given, **options), bad, grad)
    assert all(t.isnan().all() for t in got.values())
    for most in ({"max_seqlen_q": 39}, {"max_seqlen_k": 49}):
        assert attention_varlen(**good, **most, **options).isnan().all()


# ---- beside PyTorch


def test_beside_pytorch():
    """At most twice as far from the truth as PyTorch's own in the same type."""
    inputs = drawn((90,), (90,), heads=(2, 2))
    batch = {name: inputs[name].transpose(0, 1)[None] for name in "qkv"}
    attend = torch.nn.functional.scaled_dot_product_attention
    truth = attend(*converted(batch, torch.float64).values())
    bar = error(attend(*batch.values()), truth)
    assert error(attention_varlen(**inputs).transpose(0, 1)[None], truth) <= 2 * bar


# ---- errors


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"q": torch.zeros(5, 16)}, r"q has shape \(5, 16\); wanted is \[tokens, heads, cols\]"),
        ({"k": torch.zeros(1, 5, 2, 16)}, r"k has shape \(1, 5, 2, 16\); wanted is \[tokens"),
        ({"k": torch.zeros(5, 3, 16)}, r"k has shape .* a number of heads that 4 is a multiple"),
        ({"v": torch.zeros(4, 2, 16)}, r"v has shape .* wanted are equal shapes"),
        ({"v": torch.zeros(5, 2, 16).double()}, r"v is float64, but q is float32"),
        ({"cu_seqlens_q": torch.zeros(2)}, r"cu_seqlens_q is float32; wanted is int32 or int64"),
        ({"cu_seqlens_q": torch.zeros(0).int()}, r"cu_seqlens_q has shape \(0,\); wanted is"),
        ({"cu_seqlens_k": torch.zeros(1, 2).int()}, r"cu_seqlens_k has shape \(1, 2\); wanted is"),
        ({"cu_seqlens_k": torch.zeros(3).int()}, r"cu_seqlens_k has shape .* wanted are equal"),
        ({"cu_seqlens_k": torch.zeros(2).long()}, r"cu_seqlens_k is int64, but cu_seqlens_q is"),
    ],
    ids=str,
)
def test_refused(changes: dict[str, Tensor], message: str):
    inputs = drawn((5,), (5,), 16, torch.float32, (4, 2))
    with pytest.raises(RuntimeError, match=message):
        attention_varlen(**(inputs | {n: t.to(DEVICE) for n, t in changes.items()}))


@pytest.mark.parametrize(
    "options",
    [{"max_seqlen_q": -1}, {"max_seqlen_k": 2.5}, {"window": (1, -2)}],
    ids=str,
)
def test_refused_options(options: dict):
    with pytest.raises(ValueError, match=f"^{next(iter(options))} is"):
        attention_varlen(**drawn((5,), (5,), 16), **options)


@pytest.mark.slow
@pytest.mark.skipif(DEVICE.type != "cpu", reason="the checker runs on the simulator")
@pytest.mark.parametrize("version", module.VERSIONS)
def test_checker(version: str):
    """Forward and backward, over tiles that end in the midst of a sequence; and wrong lengths."""
    inputs = drawn((70, 5), (30, 130), outside=(0, 3))

    def both(*lengths: Tensor) -> None:
        for each in (lengths, (lengths[0], -lengths[1])):
            leaves = [inputs[name].clone().requires_grad_() for name in "qkv"]
            y = attention_varlen(*leaves, *each, version=version)
            torch.autograd.grad(y, leaves, torch.ones_like(y))

    no_findings(both, inputs["cu_seqlens_q"], inputs["cu_seqlens_k"], traffic=False)
