"""rope's own: the formula as models write it, positions, and what attention takes of it."""

import pytest
import torch
from op_cases import DEVICE
from torch import Tensor

from kernels.attention import attention
from kernels.rope import VERSIONS, rope

HEADS, KV_HEADS, COLS = 4, 2, 16
each_version = pytest.mark.parametrize("version", VERSIONS)


def tables(tokens: int, dtype: torch.dtype, first: int = 0) -> tuple[Tensor, Tensor]:
    """cos and sin [tokens, COLS / 2], of positions from `first` on."""
    frequencies = 10000 ** -(torch.arange(0, COLS, 2, device=DEVICE, dtype=torch.float64) / COLS)
    angles = torch.arange(first, first + tokens, device=DEVICE)[:, None] * frequencies
    return angles.cos().to(dtype), angles.sin().to(dtype)


def projected(batch: int, tokens: int, dtype: torch.dtype) -> Tensor:
    width = (HEADS + 2 * KV_HEADS) * COLS
    return torch.randn(batch, tokens, width, device=DEVICE, dtype=dtype)


def rotate_half(x: Tensor) -> Tensor:
    """As transformers has it for Llama."""
    return torch.cat((-x[..., COLS // 2 :], x[..., : COLS // 2]), -1)


@each_version
def test_is_llamas_formula(version: str):
    qkv = projected(3, 5, torch.float64)
    cos, sin = tables(5, torch.float64)
    q, k, v = (
        part.unflatten(-1, (-1, COLS)).transpose(1, 2)
        for part in qkv.split((HEADS * COLS, KV_HEADS * COLS, KV_HEADS * COLS), -1)
    )
    wide_cos, wide_sin = torch.cat((cos, cos), -1), torch.cat((sin, sin), -1)
    got = rope(qkv, cos, sin, HEADS, KV_HEADS, version=version)
    for ours, x in zip(got[:2], (q, k), strict=True):
        torch.testing.assert_close(ours, x * wide_cos + rotate_half(x) * wide_sin)
    assert torch.equal(got[2], v)


@each_version
def test_interleaved_is_a_product_of_complex_numbers(version: str):
    qkv = projected(2, 5, torch.float64)
    cos, sin = tables(5, torch.float64)
    q, *_ = rope(qkv, cos, sin, HEADS, KV_HEADS, interleaved=True, version=version)
    x = qkv[..., : HEADS * COLS].unflatten(-1, (HEADS, COLS)).transpose(1, 2)
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)).contiguous()) * torch.complex(cos, sin)
    torch.testing.assert_close(q, torch.view_as_real(pairs).flatten(-2))


@each_version
def test_positions_are_the_part_of_the_tables_that_is_given(version: str):
    """Tokens one by one, as a model that decodes has them, are those of one call."""
    qkv = projected(2, 7, torch.float32)
    cos, sin = tables(7, torch.float32)
    want = rope(qkv, cos, sin, HEADS, KV_HEADS, version=version)
    for n in range(7):
        at = tables(1, torch.float32, first=n)
        got = rope(qkv[:, n : n + 1], *at, HEADS, KV_HEADS, version=version)
        for ours, all_of_them in zip(got, want, strict=True):
            torch.testing.assert_close(ours, all_of_them[..., n : n + 1, :])


def test_one_table_serves_all_batches():
    """With leading dimensions of 1, as transformers has tables of [1, tokens, ...], and without."""
    cos, sin = tables(5, torch.float64)
    qkv = projected(6, 5, torch.float64).view(2, 3, 5, -1)

    def both(cos: Tensor, sin: Tensor) -> list[Tensor]:
        leaves = [t.clone().requires_grad_() for t in (qkv, cos, sin)]
        outputs = rope(*leaves, HEADS, KV_HEADS)
        gradients = torch.autograd.grad(sum(y.square().sum() for y in outputs[:2]), leaves)
        return [*outputs, *gradients]

    want = both(cos, sin)
    for shape in ((1, 5, COLS // 2), (1, 1, 5, COLS // 2)):
        got = both(cos.view(shape), sin.view(shape))
        assert [t.shape for t in got[-2:]] == [shape, shape]
        assert all(torch.equal(a, b.view_as(a)) for a, b in zip(want, got, strict=True))


def test_scores_depend_on_distances_alone():
    qkv = projected(1, 6, torch.float64)
    scores = []
    for first in (0, 1000):
        q, k, _ = rope(qkv, *tables(6, torch.float64, first), HEADS, KV_HEADS)
        scores.append(q[:, ::2] @ k.mT)
    torch.testing.assert_close(*scores)


def test_attention_takes_what_it_returns_and_gives_gradients_back():
    qkv = projected(2, 9, torch.float32).requires_grad_()
    cos, sin = tables(9, torch.float32)
    q, k, v = rope(qkv, cos, sin, HEADS, KV_HEADS)
    assert all(t.is_contiguous() for t in (q, k, v))
    y = attention(q, k, v, causal=True)
    want = torch.nn.functional.scaled_dot_product_attention(
        q, k, v, is_causal=True, enable_gqa=True
    )
    torch.testing.assert_close(y, want)
    g = torch.randn_like(y)
    got, wanted = (torch.autograd.grad(z, qkv, g, retain_graph=True)[0] for z in (y, want))
    torch.testing.assert_close(got, wanted)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"heads": 0}, "heads is 0; wanted is an int from 1"),
        ({"heads": 3}, r"qkv has shape \(2, 5, 128\), but cos .* wanted is \(2, 5, 112\)"),
        ({"cos": torch.zeros(4, 8)}, "sin has shape"),
        (
            {"cos": torch.zeros(5, 16), "sin": torch.zeros(5, 16)},
            r"qkv has .* wanted is \(2, 5, 256\), or .* each angle twice give cos\[\.\.\., :8\]",
        ),
        ({"qkv": torch.zeros(2, 5, 128).half()}, "qkv"),
    ],
)
def test_what_does_not_fit_is_named(change: dict[str, object], message: str):
    cos, sin = tables(5, torch.float32)
    given = {"qkv": projected(2, 5, torch.float32), "cos": cos, "sin": sin, "heads": HEADS}
    for name, value in change.items():
        given[name] = value.to(DEVICE) if isinstance(value, Tensor) else value
    with pytest.raises(RuntimeError, match=message):
        rope(**given, kv_heads=KV_HEADS)
