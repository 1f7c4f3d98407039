"""matmul_fp8: tiles and tails, scales of all shapes, digits of sums, what is refused."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from op_cases import DEVICE, error, half_ulp, in_pairs, largest, module_of, no_findings
from torch import Tensor

import reference
from kernels.quantize import quantize

module = module_of("matmul_fp8")
matmul_fp8 = module.matmul_fp8
each_version = pytest.mark.parametrize("version", module.VERSIONS)
SCALINGS = [("tensor", "tensor"), ("row", "row"), ("row", "tensor"), ("1x128", "128x128")]
each_scaling = pytest.mark.parametrize("scalings", SCALINGS, ids="-".join)
FP8 = torch.float8_e4m3fn


def drawn(
    rows: int | tuple[int, ...],
    units: int,
    cols: int,
    scalings: tuple[str, str] = ("row", "row"),
    bias: torch.dtype | None = None,
    seed: int = 0,
) -> dict[str, Tensor]:
    """Numbers whose size differs from row to row and from block to block, as scales want it."""
    generator = torch.Generator(DEVICE).manual_seed(seed)
    inputs = {}
    leading = (rows,) if isinstance(rows, int) else rows
    for name, shape, scaling in zip("xw", ((*leading, cols), (units, cols)), scalings, strict=True):
        t = torch.randn(shape, device=DEVICE, generator=generator)
        t *= 2 ** torch.randint(-2, 3, (*shape[:-1], 1), device=DEVICE, generator=generator)
        t[..., 128:] *= 3
        scale = {"scale": torch.tensor(0.05, device=DEVICE)} if scaling == "tensor" else {}
        inputs[name], inputs[f"{name}_scale"] = quantize(t, scaling, **scale)
    if bias is not None:
        inputs["bias"] = torch.randn(units, device=DEVICE, generator=generator).to(bias)
    return inputs


def check(inputs: dict[str, Tensor], version: str, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """At most twice as far from the truth as a float32 product rounded to the type, or as half an
    ULP of the largest result: any rounding costs so much."""
    got = matmul_fp8(**inputs, dtype=dtype, version=version)
    truth = reference.matmul_fp8(**inputs)
    bar = error(truth.float().to(dtype), truth)
    allowed = 2 * max(bar, half_ulp(largest(truth), dtype))
    assert got.dtype == dtype
    assert got.is_contiguous()
    off = error(got, truth)
    assert off <= allowed, f"off by {off:.3g}; {allowed:.3g} is allowed"
    return got


# ---- shapes: tiles and their tails, more k than there are stages


TILES = [(128, 128, 128), (200, 136, 272), (1, 8, 16)]


@in_pairs(version=module.VERSIONS, scalings=SCALINGS, shape=TILES)
def test_tiles(version: str, scalings: tuple[str, str], shape: tuple[int, int, int]):
    check(drawn(*shape, scalings), version)


@each_version
@pytest.mark.parametrize("scalings", SCALINGS[2:], ids="-".join)
def test_more_k_than_stages(version: str, scalings: tuple[str, str]):
    check(drawn(65, 264, 1040, scalings), version)


def test_more_blocks_of_k_than_lanes():
    """With wgmma a lane has the scale of w of one step in 32."""
    check(drawn(40, 130, 4240, SCALINGS[3]), "wgmma")


@in_pairs(version=module.VERSIONS, scalings=SCALINGS, dtype=(torch.bfloat16, torch.float16))
def test_bias_and_types(version: str, scalings: tuple[str, str], dtype: torch.dtype):
    check(drawn(70, 150, 144, scalings, bias=dtype), version, dtype)


@in_pairs(version=module.VERSIONS, scalings=SCALINGS, shape=[(130, 77, 65), (9, 131, 7), (1, 1, 1)])
def test_rows_that_are_no_multiple_of_16_bytes(
    version: str, scalings: tuple[str, str], shape: tuple[int, int, int]
):
    check(drawn(*shape, scalings, bias=torch.bfloat16), version)


# Rows of x of each kernel for few, with all k in a block, split over those of a cluster, or with
# several tiles of a block; an odd number of units is stored element by element.
FEW_ROWS = [
    (1, 64, 2064),
    (15, 200, 1040),
    (17, 64, 1552),
    (31, 130, 400),
    (33, 77, 656),
    (64, 64, 528),
]


@each_scaling
@pytest.mark.parametrize("shape", FEW_ROWS, ids=str)
def test_few_rows(scalings: tuple[str, str], shape: tuple[int, int, int]):
    check(drawn(*shape, scalings, bias=torch.bfloat16), "wgmma")


@pytest.mark.parametrize("shape", FEW_ROWS, ids=str)
def test_few_rows_with_fast_sums(shape: tuple[int, int, int]):
    check_fast(drawn(*shape[:2], 272, bias=torch.bfloat16), "wgmma")


@pytest.mark.parametrize(
    ("rows", "units", "scalings"),
    [(1100, 1000, SCALINGS[1]), (1100, 1000, SCALINGS[3])],
    ids=str,
)
def test_tiles_of_128_columns(rows: int, units: int, scalings: tuple[str, str]):
    """wgmma has them where all fit on the multiprocessors of an H100, and narrower ones do not."""
    check(drawn(rows, units, 144, scalings), "wgmma")


@pytest.mark.slow
@each_version
def test_more_tiles_than_multiprocessors(version: str):
    check(drawn(1500, 2000, 272, ("1x128", "128x128")), version)


@each_version
@pytest.mark.parametrize("leading", [(2, 3), ()], ids=str)
def test_other_ranks(version: str, leading: tuple[int, ...]):
    for scalings in SCALINGS:
        check(drawn(leading, 24, 300, scalings), version)


@in_pairs(version=module.VERSIONS, scalings=SCALINGS, shape=[(0, 5, 16), (5, 0, 16), (5, 3, 0)])
def test_empty(version: str, scalings: tuple[str, str], shape: tuple[int, int, int]):
    got = check(drawn(*shape, scalings, bias=torch.bfloat16), version)
    assert got.shape == shape[:2]


@settings(max_examples=15, deadline=None)
@given(data=st.data())
@each_version
def test_any_shape(version: str, data: st.DataObject):
    draw = data.draw
    shape = draw(st.integers(1, 140)), draw(st.integers(1, 140)), draw(st.integers(1, 300))
    bias = draw(st.sampled_from((None, torch.bfloat16)))
    check(drawn(*shape, draw(st.sampled_from(SCALINGS)), bias), version)


# ---- numbers


@each_version
def test_sums_keep_their_digits(version: str):
    """Of 4096 products behind a large one each 32 are too small for a sum of 14 bits, which would
    lose 1792 of them; a bfloat16 of that size has steps of 1024."""
    x, w = torch.ones(2, 4096, device=DEVICE), torch.full((8, 4096), 0.4375, device=DEVICE)
    x[:, 0], w[:, 0] = 448, 448
    one = torch.ones((), device=DEVICE)
    check({"x": x.to(FP8), "w": w.to(FP8), "x_scale": one, "w_scale": one}, version, torch.bfloat16)


def check_fast(inputs: dict[str, Tensor], version: str):
    """Of no more than 300 products that are not all positive, 14 bits are enough for bfloat16."""
    got = matmul_fp8(**inputs, use_fast_accum=True, version=version)
    truth = reference.matmul_fp8(**inputs)
    assert error(got, truth) <= 2**-7 * largest(truth)


@each_version
@pytest.mark.parametrize("shape", [(130, 77, 272), (3, 300, 48), (70, 150, 135)], ids=str)
def test_fast_sums(version: str, shape: tuple[int, int, int]):
    check_fast(drawn(*shape, bias=torch.bfloat16), version)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [(1100, 1000, 272), (1500, 2000, 272)], ids=str)
def test_fast_sums_in_wide_tiles(shape: tuple[int, int, int]):
    check_fast(drawn(*shape, bias=torch.bfloat16), "wgmma")


@each_version
def test_fast_sums_may_lose_digits(version: str):
    """Here wgmma loses 1792 of each sum, or less where blocks split it, which the others keep, as
    all do without the option."""
    x, w = torch.ones(2, 4096, device=DEVICE), torch.full((8, 4096), 0.4375, device=DEVICE)
    x[:, 0], w[:, 0] = 448, 448
    one = torch.ones((), device=DEVICE)
    inputs = {"x": x.to(FP8), "w": w.to(FP8), "x_scale": one, "w_scale": one}
    got = matmul_fp8(**inputs, use_fast_accum=True, version=version)
    assert (got == got[0, 0]).all()
    exact = matmul_fp8(**inputs, version=version)[0, 0]
    assert got[0, 0] == exact or (version == "wgmma" and 448**2 <= got[0, 0] < exact)


def test_no_fast_sums_with_scales_of_blocks():
    with pytest.raises(RuntimeError, match="use_fast_accum is True, but scales differ along k"):
        matmul_fp8(**drawn(3, 5, 256, ("1x128", "128x128")), use_fast_accum=True)


@each_version
def test_blocks_of_very_different_sizes(version: str):
    """Each block's sum gets its own scale: the small ones are not lost beside their factor."""
    x, w = torch.ones(3, 512, device=DEVICE), torch.ones(130, 512, device=DEVICE)
    x_scale = torch.tensor([1e-6, 1.0, 1e-3, 0.0], device=DEVICE).expand(3, 4)
    w_scale = torch.tensor([[1e6, 1.0, 1e3, 7.0], [0.0, 2.0, 0.0, torch.inf]], device=DEVICE)
    got = matmul_fp8(x.to(FP8), w.to(FP8), x_scale, w_scale, version=version)
    assert (got[:, :128] == 384).all()
    assert got[:, 128:].isnan().all(), "0 * inf of the last block"


@each_version
def test_nan_stays_in_its_row(version: str):
    inputs = drawn(70, 140, 300)
    want = matmul_fp8(**inputs, version=version)
    inputs["x"].view(torch.uint8)[3, 290] = 0x7F
    inputs["w"].view(torch.uint8)[130, 5] = 0xFF
    got = matmul_fp8(**inputs, version=version)
    nan = torch.zeros_like(got, dtype=torch.bool)
    nan[3], nan[:, 130] = True, True
    assert torch.equal(got.isnan(), nan)
    assert torch.equal(got[~nan], want[~nan])


@each_version
def test_every_byte(version: str):
    """A product with one 1 in a row gives every e4m3 as it is, wherever it stands among 32 of k."""
    codes = torch.arange(256, dtype=torch.uint8, device=DEVICE).view(8, 32)
    one = torch.ones((), device=DEVICE)
    got = matmul_fp8(
        codes.view(FP8), torch.eye(32, device=DEVICE).to(FP8), one, one, version=version
    )
    numbers = codes.view(FP8).float()
    nan = numbers.isnan().any(1, keepdim=True)  # times 0 it is NaN, too
    want = numbers.masked_fill(nan, torch.nan).bfloat16()
    torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)


def test_beside_pytorch():
    """At most twice as far from the truth as torch._scaled_mm, where that is."""
    inputs = drawn(64, 48, 256, ("tensor", "tensor"))
    try:
        theirs = torch._scaled_mm(
            inputs["x"],
            inputs["w"].t(),
            inputs["x_scale"],
            inputs["w_scale"],
            out_dtype=torch.bfloat16,
        )
    except (RuntimeError, NotImplementedError) as refusal:
        pytest.skip(f"this PyTorch has none here: {refusal}")
    truth = reference.matmul_fp8(**inputs)
    for version in module.VERSIONS:
        got = matmul_fp8(**inputs, version=version)
        assert error(got, truth) <= 2 * error(theirs, truth), version


# ---- memory


def misaligned(t: Tensor) -> Tensor:
    return t.new_empty(t.numel() + 1)[1:].view(t.shape).copy_(t)


@each_version
def test_strides_and_misaligned(version: str):
    inputs = drawn(40, 136, 288, ("1x128", "128x128"), bias=torch.bfloat16)
    want = matmul_fp8(**inputs, version=version)
    transposed = {n: t.mT.contiguous().mT if t.dim() > 1 else t for n, t in inputs.items()}
    assert torch.equal(matmul_fp8(**transposed, version=version), want)
    check({n: misaligned(t) for n, t in inputs.items()}, version)


@each_version
def test_a_part_of_a_larger_matrix(version: str):
    x, w = (torch.randn(140, 400, device=DEVICE).to(FP8) for _ in "xw")
    one = torch.ones((), device=DEVICE)
    for columns in (slice(64, 264), slice(3, 203), slice(None, None, 2)):
        inputs = {"x": x[:, columns], "w": w[:, columns], "x_scale": one, "w_scale": one}
        check(inputs, version)


# ---- errors


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": torch.zeros(3, 300)}, "x is float32; wanted is float8_e4m3fn: see kernels.quantize"),
        (
            {"w": torch.zeros(200, 300).to(torch.float8_e5m2)},
            "w is float8_e5m2; wanted is float8_e",
        ),
        (
            {"w": torch.zeros(200, 299).to(FP8)},
            r"w has shape \(200, 299\), but x .* \(units, 300\)",
        ),
        ({"x_scale": torch.ones(3, 1).half()}, "x_scale is float16; wanted is float32"),
        (
            {"x_scale": torch.ones(3)},
            r"x_scale has shape \(3,\), but x has shape \(3, 300\); wanted is \(\) for one scale, "
            r"\(3, 1\) for one of each row, or \(3, 3\) for one of each 1 x 128",
        ),
        ({"w_scale": torch.ones(200, 3)}, r"w_scale has .* or \(2, 3\) for one of each 128 x 128"),
        ({"w_scale": torch.ones(2, 3)}, r"x_scale has shape \(3, 1\) and w_scale \(2, 3\); wanted"),
        (
            {"x_scale": torch.ones(3, 3)},
            r"wanted are scales of blocks for both x and w, or for nei",
        ),
        ({"bias": torch.ones(200)}, "bias is float32; wanted is bfloat16, the type of the result"),
        ({"bias": torch.ones(3).bfloat16()}, r"bias has shape \(3,\); wanted is \(200,\)"),
    ],
    ids=str,
)
def test_refused(changes: dict[str, Tensor], message: str):
    inputs = drawn(3, 200, 300) | {n: t.to(DEVICE) for n, t in changes.items()}
    with pytest.raises(RuntimeError, match=message):
        matmul_fp8(**inputs)


def test_refused_options():
    with pytest.raises(ValueError, match=r"dtype is torch\.float32; wanted is torch\.bf"):
        matmul_fp8(**drawn(3, 5, 16), dtype=torch.float32)


# ---- the checker


@pytest.mark.slow
@pytest.mark.skipif(DEVICE.type != "cpu", reason="the checker runs on the simulator")
@each_version
def test_checker(version: str):
    """In two orders of the threads, by TMA, which fills every stage of shared memory twice, and
    where rows are not multiples of 16 bytes."""
    for order in (0, 1):
        for cols in (1040, 135):
            inputs = drawn(150, 136, cols, ("1x128", "128x128"), bias=torch.bfloat16)
            report = no_findings(
                matmul_fp8, **inputs, version=version, traffic=False, thread_order=order
            )
            (kernel,) = report.launches["kernel"]
            name, _, _ = kernel.partition("<")  # and its template's arguments
            fell = version == "wgmma" and cols % 16
            assert name == f"matmul_fp8_{'mma' if fell else version}"
