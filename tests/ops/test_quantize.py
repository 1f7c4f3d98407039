"""quantize: floats of one byte and their scales, bit for bit."""

from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from op_cases import DEVICE, in_pairs, module_of, no_findings
from torch import Tensor

import jitload
import reference
from kernels import SCALINGS

module = module_of("quantize")
quantize = module.quantize
each_version = pytest.mark.parametrize("version", module.VERSIONS)
each_scaling = pytest.mark.parametrize("scaling", SCALINGS)
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def drawn(shape: tuple[int, ...], dtype: torch.dtype = torch.bfloat16, seed: int = 0) -> Tensor:
    generator = torch.Generator(DEVICE).manual_seed(seed)
    return torch.randn(shape, device=DEVICE, generator=generator).mul_(3).to(dtype)


def options(scaling: str, scale: float = 0.01) -> dict:
    given = {"scale": torch.tensor(scale, device=DEVICE)} if scaling == "tensor" else {}
    return given | {"scaling": scaling}


def bits(q: Tensor) -> Tensor:
    assert q.dtype == torch.float8_e4m3fn
    assert q.is_contiguous()
    return q.view(torch.uint8)


def check(x: Tensor, version: str, **given) -> tuple[Tensor, Tensor]:
    """The bits of the reference, but for the sign and digits of a NaN."""
    q, scale = quantize(x, version=version, **given)
    want, wanted_scale = reference.quantize(x.cpu(), **{n: cpu(v) for n, v in given.items()})
    assert scale.dtype == torch.float32
    torch.testing.assert_close(scale.cpu(), wanted_scale, rtol=0, atol=0, equal_nan=True)
    nan = want.float().isnan()
    assert torch.equal(q.cpu().float().isnan(), nan)
    assert torch.equal(bits(q).cpu().masked_fill(nan, 0), bits(want).masked_fill(nan, 0))
    return q, scale


def cpu(value: object) -> object:
    return value.cpu() if isinstance(value, Tensor) else value


SHAPES = [(130, 257), (5, 128), (200, 384), (1, 1), (2, 3000)]


@in_pairs(version=module.VERSIONS, scaling=SCALINGS, dtype=DTYPES, shape=SHAPES)
def test_shapes(version: str, scaling: str, dtype: torch.dtype, shape: tuple[int, int]):
    check(drawn(shape, dtype), version, **options(scaling))


@each_version
@pytest.mark.parametrize("scaling", ["tensor", "row", "1x128"])
@pytest.mark.parametrize("shape", [(2, 3, 40), (200,)], ids=str)
def test_other_ranks(version: str, scaling: str, shape: tuple[int, ...]):
    check(drawn(shape), version, **options(scaling))


@in_pairs(version=module.VERSIONS, scaling=SCALINGS, shape=[(0, 200), (3, 0), (0, 0)])
def test_empty(version: str, scaling: str, shape: tuple[int, int]):
    check(drawn(shape), version, **options(scaling))


@settings(max_examples=25, deadline=None)
@given(data=st.data())
@each_version
def test_any_shape(version: str, data: st.DataObject):
    draw = data.draw
    shape = draw(st.integers(0, 140)), draw(st.integers(0, 300))
    dtype = draw(st.sampled_from(DTYPES))
    x = drawn(shape, dtype) * 10.0 ** draw(st.integers(-6, 4))
    check(x, version, **options(draw(st.sampled_from(SCALINGS))))


@each_version
def test_every_rounding(version: str):
    """With a scale of 1: all ties between neighbours, floats beside them, and what overflows."""
    numbers = torch.arange(127, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    ties = torch.cat(((numbers[1:] + numbers[:-1]) / 2, torch.tensor([464.0, 1e30, torch.inf])))
    near = torch.cat((ties, ties.nextafter(ties * 0), ties.nextafter(ties * 2), numbers))
    x = torch.cat((near, -near, torch.tensor([torch.nan, 1e-45, -0.0]))).to(DEVICE)
    q, _ = check(x, version, **options("tensor", 1.0))
    assert q.float().nan_to_num().abs().max() == 448


@each_version
def test_quotients_between_two_neighbours(version: str):
    """Numbers whose quotients are about between two neighbours, where the last digit decides."""
    halves = torch.arange(17, 32, 2).double() / 2  # between 8 and 9, ... 15 and 16
    generator = torch.Generator().manual_seed(0)
    for scale in 1 + torch.rand(20, generator=generator):
        ulps = torch.arange(-3, 4, dtype=torch.int32)
        x = (halves * float(scale)).float().view(torch.int32)[:, None] + ulps
        x = torch.cat([x.view(torch.float32).flatten(), -torch.zeros(1)]).to(DEVICE)
        check(x, version, **options("tensor", float(scale)))


@each_version
def test_what_is_not_finite_stays_within_its_group(version: str):
    x = drawn((4, 384))
    want, _ = check(x, version, scaling="1x128")
    x[1, 200], x[2, 5] = torch.nan, torch.inf
    got, scale = check(x, version, scaling="1x128")
    assert scale.isfinite().logical_not().nonzero().tolist() == [[1, 1], [2, 0]]
    assert torch.equal(bits(got)[:, 256:], bits(want)[:, 256:])
    for scaling in ("row", "128x128"):
        check(x, version, scaling=scaling)


@each_scaling
@each_version
def test_zeros_and_the_smallest_numbers(version: str, scaling: str):
    """No quotient overflows, and of zeros none is NaN."""
    x = torch.zeros(3, 200, device=DEVICE)
    assert not check(x, version, **options(scaling))[0].float().any()
    x[0, 0] = 1e-45
    check(x, version, **options(scaling))


@each_scaling
@each_version
def test_strides_and_misaligned(version: str, scaling: str):
    x = drawn((40, 256))
    want, _ = quantize(x, version=version, **options(scaling))
    shifted = x.new_empty(x.numel() + 1)[1:].view(x.shape).copy_(x)
    for same in (shifted, x.mT.contiguous().mT):
        got, _ = quantize(same, version=version, **options(scaling))
        assert torch.equal(bits(got), bits(want))


def test_conversions_by_hand_and_by_the_instruction():
    """All bytes become the floats that PyTorch makes of them; all floats of 16 bits bytes."""
    here = Path(__file__).parent
    include = str(Path(reference.__file__).parent / "kernels/include")
    kernel = jitload.load(here / "kernels/float8.cu", include=[include])
    codes = torch.arange(256, dtype=torch.uint8, device=DEVICE)
    floats = torch.empty(256, device=DEVICE)
    kernel.float8_to_float(codes, floats, 256)
    torch.testing.assert_close(
        floats, codes.view(torch.float8_e4m3fn).float(), rtol=0, atol=0, equal_nan=True
    )
    x = torch.arange(2**16, device=DEVICE, dtype=torch.int32).mul(2**16).view(torch.float32)
    x = torch.cat((x, x.view(torch.int32).add(1).view(torch.float32)))
    by_hand, by_instruction = (torch.empty(x.numel(), dtype=torch.uint8) for _ in range(2))
    by_hand, by_instruction = by_hand.to(DEVICE), by_instruction.to(DEVICE)
    kernel.float_to_float8(x, by_hand, by_instruction, x.numel())
    want = x.clamp(-448, 448).to(torch.float8_e4m3fn).view(torch.uint8)
    for got in (by_hand, by_instruction):
        assert torch.equal(got.masked_fill(x.isnan(), 0x7F), want.masked_fill(x.isnan(), 0x7F))
        assert (got[x.isnan()] & 0x7F == 0x7F).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": torch.zeros(3, 4).double()}, "x is float64; wanted is float32, float16 or bf"),
        ({"x": torch.zeros(3, 4).long()}, "x is int64; wanted is"),
        ({"x": torch.tensor(1.0)}, r"x has no dimension; wanted is \[..., cols\]"),
        ({"x": torch.zeros(2, 3, 4), "scaling": "128x128"}, r"x has shape \(2, 3, 4\); wanted is"),
        ({"scaling": "tensor"}, "scale is None; wanted is that of all of x"),
        ({"scale": torch.ones(())}, "scale is given, but of each group it is made here"),
        ({"scale": torch.ones(2), "scaling": "tensor"}, r"scale has shape \(2,\); wanted is \(\)"),
        ({"scale": torch.ones(1).half(), "scaling": "tensor"}, "scale is float16; wanted is fl"),
    ],
    ids=str,
)
def test_refused(changes: dict, message: str):
    given = {"x": torch.zeros(3, 4)} | changes
    given = {n: v.to(DEVICE) if isinstance(v, Tensor) else v for n, v in given.items()}
    with pytest.raises(RuntimeError, match=message):
        quantize(**given)


def test_refused_options():
    with pytest.raises(ValueError, match="scaling is 'column'; wanted is one of tensor, row"):
        quantize(drawn((3, 4)), "column")


@pytest.mark.slow
@pytest.mark.skipif(DEVICE.type != "cpu", reason="the checker runs on the simulator")
@each_scaling
@each_version
def test_checker(version: str, scaling: str):
    no_findings(quantize, drawn((140, 260)), **options(scaling), version=version, traffic=False)
