"""Scale factors of a product that lie in another order than tensor memory wants."""

from pathlib import Path

import pytest
import torch

import jitload
import lab
import reference

RIGHT, BY_ROWS, OTHER_WAY, HALVES_SWAPPED, TRANSPOSED, FIRST_BLOCKS = range(6)
ROWS = 256


@pytest.fixture(scope="module")
def products():
    return jitload.load(Path(__file__).with_name("scale_order.cu"), target="cpu")


def operands(name: str, cols: int, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Elements and their scale factors by rows, of blocks that differ in size."""
    block = {"mxfp8": 32, "nvfp4": 16}[name]
    generator = torch.Generator().manual_seed(seed)
    sizes = torch.randint(-4, 5, (ROWS, cols // block), generator=generator).float().exp2()
    x = torch.randn(ROWS, cols, generator=generator) * sizes.repeat_interleave(block, 1)
    elements, scales, *_ = getattr(reference, f"quantize_{name}")(x)
    tiles = scales.view(torch.uint8).view(ROWS // 128, -1, 32, 4, 4)
    by_rows = tiles.permute(0, 3, 2, 1, 4).reshape(ROWS, -1).contiguous()
    return elements.view(torch.uint8), by_rows


def check(products, name: str, cols: int, order: int, of_b: bool = False) -> lab.Report:
    x, scales = operands(name, cols)
    y = torch.empty(ROWS, 32)
    call = getattr(products, name)
    return lab.check(call, x, scales, y, ROWS, x.shape[1], order, int(of_b), traffic=False)


@pytest.mark.parametrize(("name", "cols"), [("mxfp8", 256), ("nvfp4", 128)])
def test_the_right_order_is_right_and_silent(products, name, cols):
    x, scales = operands(name, cols)
    y = torch.full((ROWS, 32), torch.nan)
    getattr(products, name)(x, scales, y, ROWS, x.shape[1], RIGHT, 0)
    types = {
        "mxfp8": (torch.float8_e4m3fn, torch.float8_e8m0fnu),
        "nvfp4": (torch.float4_e2m1fn_x2, torch.float8_e4m3fn),
    }[name]
    tiles = reference.swizzle_scales(scales.view(types[1]))
    values = reference.dequantize_blocks(x.view(types[0]), tiles).view(-1, 128, cols)
    truth = (values @ values[:, :32].mT).view(ROWS, 32)
    assert (y - truth).norm() <= 1e-6 * truth.norm()
    assert check(products, name, cols, RIGHT).findings.empty


@pytest.mark.parametrize("of_b", [False, True], ids=["a", "b"])
@pytest.mark.parametrize("order", [BY_ROWS, OTHER_WAY, HALVES_SWAPPED, TRANSPOSED])
@pytest.mark.parametrize(("name", "cols"), [("mxfp8", 256), ("nvfp4", 256)])
def test_another_order_is_found(products, name, cols, order, of_b):
    findings = check(products, name, cols, order, of_b).findings
    assert list(findings["kind"]) == ["scale factors"]
    assert f" of {'B' if of_b else 'A'}" in findings["message"][0]


@pytest.mark.parametrize("of_b", [False, True], ids=["a", "b"])
@pytest.mark.parametrize("name", ["mxfp8", "nvfp4"])
def test_those_of_other_blocks_are_found(products, name, of_b):
    findings = check(products, name, 256, FIRST_BLOCKS, of_b).findings
    assert list(findings["kind"]) == ["scale factors"]
    assert findings["message"][0].startswith(
        f"blocks 4 to 7 of the rows of {'B' if of_b else 'A'} are multiplied with the scale factors"
        " of blocks 0 to 3 ("
    )


@pytest.mark.parametrize("order", [RIGHT, BY_ROWS])
def test_scales_that_do_not_tell_are_silent(products, order):
    """Of which all are alike: no order is wrong."""
    x, scales = operands("mxfp8", 256)
    scales.fill_(127)
    arguments = x, scales, torch.empty(ROWS, 32), ROWS, 256, order, 0
    assert lab.check(products.mxfp8, *arguments, traffic=False).findings.empty
