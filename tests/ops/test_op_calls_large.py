"""More than 2^31 elements in the ops that `reference.OPS` does not have, on a GPU.

Nearly all is zero; what the last rows, tokens or pages hold is looked for where it belongs, and is
what the op makes of it alone.
"""

import pytest
import torch
from op_calls import assert_same_bits
from op_cases import (
    DEVICE,
    assert_same_but_for_order,
    by_name,
    module_of,
    outcome,
    skip_unless_free,
)
from torch import Tensor

from kernels.attention import attention
from kernels.attention_decode import attention_decode
from kernels.attention_varlen import attention_varlen
from kernels.matmul_fp8 import matmul_fp8
from kernels.matmul_w8a16 import matmul_w8a16
from kernels.quantize import quantize
from kernels.rms_norm import rms_norm_fp8
from kernels.swiglu import swiglu_fp8

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(DEVICE.type != "cuda", reason="so much takes too long on the simulator"),
]

GIB = 1 << 30
FP8 = torch.float8_e4m3fn
BF16 = torch.bfloat16
ROWS, COLS = 2**19 + 3, 4104  # 2^31 lies in the middle of a row


def each_version(name: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("version", module_of(name).VERSIONS)


def zeros_but_for_the_end(end: Tensor, rows: int) -> Tensor:
    """[rows, ...], of which the last ones are `end`."""
    whole = torch.zeros((rows, *end.shape[1:]), dtype=end.dtype, device=DEVICE)
    whole[rows - len(end) :] = end
    return whole


def noise(*shape: int, dtype: torch.dtype = BF16) -> Tensor:
    generator = torch.Generator(DEVICE).manual_seed(0)
    return torch.randn(shape, device=DEVICE, generator=generator).to(dtype)


# ---- bytes from larger numbers


def check_end(got: dict[str, Tensor], alone: dict[str, Tensor]) -> None:
    """The last rows, or blocks of rows, of each result are those of the end alone."""
    assert_same_bits({name: y[len(y) - len(alone[name]) :] for name, y in got.items()}, alone)


@pytest.mark.parametrize("scaling", ["tensor", "row", "1x128", "128x128"])
@each_version("quantize")
def test_quantize(version: str, scaling: str):
    skip_unless_free(16 * GIB)
    end = noise(ROWS % 128, COLS)
    options = {"scaling": scaling, "version": version}
    if scaling == "tensor":
        options["scale"] = torch.full((1,), 0.01, device=DEVICE)
    q, scale = quantize(zeros_but_for_the_end(end, ROWS), **options)
    alone = quantize(end, **options)
    check_end({"q": q, "scale": scale}, {"q": alone[0], "scale": alone[1]})
    assert not q[: -len(end)].view(torch.uint8).any()


@pytest.mark.parametrize("scaling", ["row", "1x128"])
def test_rms_norm_fp8(scaling: str):
    skip_unless_free(24 * GIB)
    end, weight = noise(3, COLS), noise(COLS)
    x = zeros_but_for_the_end(end, ROWS)
    got = by_name(rms_norm_fp8(x, weight, x, scaling=scaling))
    check_end(got, by_name(rms_norm_fp8(end, weight, end, scaling=scaling)))
    assert not got["y0"][:8].float().any()


@pytest.mark.parametrize("scaling", ["row", "1x128"])
def test_swiglu_fp8(scaling: str):
    skip_unless_free(24 * GIB)
    end = noise(3, COLS)
    a = zeros_but_for_the_end(end, ROWS)
    got = by_name(swiglu_fp8(a, a, scaling=scaling))
    check_end(got, by_name(swiglu_fp8(end, end, scaling=scaling)))
    assert not got["y0"][:8].float().any()


# ---- products: more elements in x, in w and in the result. A version may add up in another order
# where there are fewer rows, so results are close, not the same bits.


def check_product(y: Tensor, alone: Tensor) -> None:
    """The end's result stands in the last rows and columns, and the first row has none of it."""
    assert_same_but_for_order(y[-len(alone) :, -alone.shape[1] :], alone)
    assert not y[0, : -alone.shape[1]].any()


SHAPES = {"x": (ROWS, 24, COLS), "w": (24, ROWS, COLS), "y": (2**16 + 5, 2**15 + 8, 16)}
each_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)


@pytest.mark.parametrize("scalings", [("row", "row"), ("1x128", "128x128")], ids="-".join)
@each_shape
@each_version("matmul_fp8")
def test_matmul_fp8(version: str, shape: tuple[int, int, int], scalings: tuple[str, str]):
    skip_unless_free(24 * GIB)
    rows, units, cols = shape
    x, x_scale = quantize(noise(3, cols), scalings[0])
    # The last blocks of units begin where they do in the whole.
    w, w_scale = quantize(noise(units % 128 or 128, cols), scalings[1])
    alone = matmul_fp8(x, w, x_scale, w_scale, version=version)
    y = matmul_fp8(
        zeros_but_for_the_end(x.view(torch.uint8), rows).view(FP8),
        zeros_but_for_the_end(w.view(torch.uint8), units).view(FP8),
        zeros_but_for_the_end(x_scale, rows),
        zeros_but_for_the_end(w_scale, units if scalings[1] == "row" else -(-units // 128)),
        version=version,
    )
    check_product(y, alone)


@each_shape
@each_version("matmul_w8a16")
def test_matmul_w8a16(version: str, shape: tuple[int, int, int]):
    skip_unless_free(24 * GIB)
    rows, units, cols = shape
    x, w_scale = noise(3, cols), noise(3, 1, dtype=torch.float32)
    w = noise(3, cols).mul(40).to(torch.int8)
    alone = matmul_w8a16(x, w, w_scale, version=version)
    y = matmul_w8a16(
        zeros_but_for_the_end(x, rows),
        zeros_but_for_the_end(w, units),
        zeros_but_for_the_end(w_scale, units),
        version=version,
    )
    check_product(y, alone)


# ---- attention


# The others take minutes backward; test_ops_gpu.py has one long sequence in place of many heads.
@pytest.mark.parametrize("cols", [64, 128, 256])
@pytest.mark.parametrize("version", ["mma", "wgmma", "overlap"])
def test_backward_of_many_heads(version: str, cols: int):
    skip_unless_free(56 * GIB)
    heads, tokens = 8, 200
    batches = 2**31 // (heads * tokens * cols) + 2

    def both(q: Tensor, k: Tensor, v: Tensor, grad: Tensor) -> dict[str, Tensor]:
        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return attention(q, k, v, causal=True, version=version)

        return outcome(attend, {"q": q, "k": k, "v": v}, (grad,))

    generator = torch.Generator(DEVICE).manual_seed(0)
    ends = [
        torch.randn(1, heads, tokens, cols, device=DEVICE, generator=generator).to(BF16)
        for _ in "qkvg"
    ]
    got = both(*(zeros_but_for_the_end(end, batches) for end in ends))
    for name, want in both(*ends).items():  # of few heads, blocks share tiles: other sums
        error = (got[name][-1:].float() - want.float()).abs().max()
        assert error <= torch.finfo(BF16).eps * want.abs().max(), name
    assert not any(result[0].any() for result in got.values())


@each_version("attention_varlen")
def test_rows_of_attention_varlen(version: str):
    skip_unless_free(48 * GIB)
    tokens, keys = 2**22 + 3, 200
    end, k, v = noise(70, 4, 128), noise(keys, 2, 128), noise(keys, 2, 128)
    arriving = noise(70, 4, 128)

    def both(q: Tensor, k: Tensor, v: Tensor, grad: Tensor, *begins: list[int]) -> dict:
        cu_seqlens = [torch.tensor(begin, device=DEVICE) for begin in begins]

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return attention_varlen(q, k, v, *cu_seqlens, max_seqlen_k=100, version=version)

        if version in ("naive", "online", "mma"):  # there one thread adds up all rows of a key
            return {"y": attend(q, k, v)}
        return outcome(attend, {"q": q, "k": k, "v": v}, (grad,))

    q, grad = (zeros_but_for_the_end(t, tokens) for t in (end, arriving))
    got = both(q, k, v, grad, [0, tokens - 70, tokens], [0, 100, keys])
    alone = both(end, k[100:], v[100:], arriving, [0, 70], [0, 100])
    check_end(got, alone)
    if "dq" in got:
        assert not got["dq"][:-70].any()
        assert not got["dk"][:100].any()


@each_version("attention_varlen")
def test_keys_of_attention_varlen(version: str):
    skip_unless_free(48 * GIB)
    keys = 2**23 + 3
    q, k, v = noise(140, 4, 128), noise(200, 2, 128), noise(200, 2, 128)
    options = {"window": (30, 0), "version": version}

    def attend(k: Tensor, v: Tensor) -> Tensor:
        middle = len(k) - 90
        begins = torch.tensor([[0, 70, 140], [0, middle, len(k)]], device=DEVICE)
        return attention_varlen(q, k, v, *begins, **options)

    got = attend(zeros_but_for_the_end(k, keys), zeros_but_for_the_end(v, keys))
    alone = attend(k, v)
    assert_same_bits({"y": got[70:]}, {"y": alone[70:]})
    assert_same_but_for_order(got[:70], alone[:70])


@each_version("attention_decode")
def test_attention_decode(version: str):
    """A window lets the last tokens alone be seen; in one cache and in pages."""
    skip_unless_free(32 * GIB)
    tokens, page = 2**22 + 64, 64
    q, k, v = noise(2, 8, 1, 128), noise(256, 2, 2, 128), noise(256, 2, 2, 128)
    whole = [zeros_but_for_the_end(t, tokens).permute(1, 2, 0, 3) for t in (k, v)]
    alone = [t.permute(1, 2, 0, 3) for t in (k, v)]
    options = {"window": 100, "version": version}
    want = attention_decode(q, *alone, **options)
    assert_same_but_for_order(attention_decode(q, *whole, **options), want)

    pages = 2 * tokens // page
    k, v = (t.permute(0, 2, 1, 3).reshape(-1, page, 2, 128) for t in alone)
    k, v = (zeros_but_for_the_end(t, pages) for t in (k, v))
    del whole
    table = torch.arange(pages - 8, pages, device=DEVICE, dtype=torch.int32).view(2, 4)
    assert_same_but_for_order(attention_decode(q, k, v, None, table, **options), want)
