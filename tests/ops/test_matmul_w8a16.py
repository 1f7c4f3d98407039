"""matmul_w8a16: tiles and tails, few rows, scales of rows and of groups, what is refused."""

import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from op_cases import DEVICE, error, half_ulp, in_pairs, largest, module_of, no_findings
from torch import Tensor

import reference

module = module_of("matmul_w8a16")
matmul_w8a16 = module.matmul_w8a16
each_version = pytest.mark.parametrize("version", module.VERSIONS)
DTYPES = (torch.bfloat16, torch.float16)
each_type = pytest.mark.parametrize("dtype", DTYPES, ids=str)
by_group = pytest.mark.parametrize("groups", [False, True], ids=["rows", "groups"])


def drawn(
    rows: int | tuple[int, ...],
    units: int,
    cols: int,
    groups: bool = False,
    dtype: torch.dtype = torch.bfloat16,
    seed: int = 0,
) -> dict[str, Tensor]:
    generator = torch.Generator(DEVICE).manual_seed(seed)
    leading = (rows,) if isinstance(rows, int) else rows
    like = {"device": DEVICE, "generator": generator}
    return {
        "x": torch.randn((*leading, cols), **like).to(dtype),
        "w": torch.randint(-128, 128, (units, cols), dtype=torch.int8, **like),
        "w_scale": torch.rand((units, -(-cols // 128) if groups else 1), **like) / 64,
        "bias": torch.randn(units, **like).to(dtype),
    }


def of_rounded_weights(inputs: dict[str, Tensor]) -> Tensor:
    """The truth, but for the rounding of each weight times its scale."""
    weights = reference.dequantize(inputs["w"], inputs["w_scale"]).to(inputs["x"].dtype)
    ones = torch.ones_like(inputs["w_scale"])
    return reference.matmul_w8a16(**inputs | {"w": weights, "w_scale": ones})


def check(inputs: dict[str, Tensor], version: str) -> Tensor:
    """At most twice as far from the truth as that is when it is rounded, or as half an ULP of the
    largest result: any rounding costs so much. Or twice as far as rounded weights are, which the
    best version has of some shapes with more than 64 rows."""
    got, truth = matmul_w8a16(**inputs, version=version), reference.matmul_w8a16(**inputs)
    dtype = inputs["x"].dtype
    costs = [error(truth.to(dtype), truth), half_ulp(largest(truth), dtype)]
    rows = inputs["x"].shape[:-1].numel()
    if version == module.VERSIONS[-1] and rows > 64 and inputs["w"].shape[-1] % 16 != 0:
        costs.append(error(of_rounded_weights(inputs), truth))
    allowed = 2 * max(costs)
    assert got.dtype == dtype
    assert got.is_contiguous()
    off = error(got, truth)
    assert off <= allowed, f"off by {off:.3g}; {allowed:.3g} is allowed"
    return got


SHAPES = [
    *[(128, 128, 128), (150, 136, 272), (1, 130, 1040)],
    *[(8, 40, 528), (9, 8, 16), (60, 72, 400)],
]


@in_pairs(version=module.VERSIONS, shape=SHAPES, groups=(False, True), dtype=DTYPES)
def test_shapes(version: str, groups: bool, dtype: torch.dtype, shape: tuple[int, int, int]):
    check(drawn(*shape, groups, dtype), version)


def multiprocessors() -> int:
    if DEVICE.type == "cuda":
        return torch.cuda.get_device_properties(DEVICE).multi_processor_count
    return max(2, os.cpu_count())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "units", "cols", "dtype"),
    [(500, 48, 272, torch.bfloat16), (400, 96, 144, torch.float16)],
    ids=str,
)
def test_tiles_of_256_rows(rows: int, units: int, cols: int, dtype: torch.dtype):
    """Units for each multiprocessor. Most have one tile of the first shape; on a GPU most have two
    of the second."""
    check(drawn(rows, units * multiprocessors() + 4, cols, dtype=dtype), "wgmma")


def test_tiles_of_256_rows_below_one_another_with_odd_units():
    """Every multiprocessor has a tile; results of an odd width are stored element by element."""
    check(drawn(400, multiprocessors() // 2 * 128 - 1, 144), "wgmma")


@pytest.mark.slow
def test_tiles_of_256_rows_have_exact_weights():
    """Where weights are converted first, as with scales of groups and so many units, each is
    rounded: what is left of 127 / 3 - 126 / 3 is then wrong."""
    pairs = multiprocessors() // 2
    check(nearly_equal_weights(pairs * 128), "wgmma")
    inputs = nearly_equal_weights(pairs * 512)
    inputs["w_scale"] = inputs["w_scale"].repeat(1, 2)
    with pytest.raises(AssertionError, match="off by"):
        check(inputs, "wgmma")


def nearly_equal_weights(units: int) -> dict[str, Tensor]:
    inputs = drawn(500, units, 144)
    inputs["x"] = (torch.arange(500, device=DEVICE) % 7 + 1).bfloat16()[:, None].repeat(1, 144)
    inputs["w"] = torch.tensor([127, -126], dtype=torch.int8, device=DEVICE).repeat(units, 72)
    inputs["w_scale"] = (torch.arange(units, device=DEVICE) % 11 + 1)[:, None] / 3
    return inputs


ODD = [(30, 77, 65), (3, 5, 135), (16, 33, 1057), (8, 19, 130), (1, 1, 1)]


@in_pairs(version=module.VERSIONS, shape=ODD, groups=(False, True))
def test_rows_that_are_no_multiple_of_16_bytes(
    version: str, groups: bool, shape: tuple[int, int, int]
):
    check(drawn(*shape, groups), version)


@pytest.mark.parametrize("cols", [65, 1057])
def test_few_rows_that_begin_anywhere_have_exact_weights(cols: int):
    """Rounded first, what is left of 127 / 3 - 126 / 3 would be wrong."""
    inputs = drawn(9, 40, cols)
    inputs["x"] = (torch.arange(9, device=DEVICE) % 7 + 1).bfloat16()[:, None].repeat(1, cols)
    inputs["w"] = torch.tensor([127, -126], dtype=torch.int8, device=DEVICE).repeat(40, cols)
    inputs["w"] = inputs["w"][:, :cols].contiguous()
    inputs["w_scale"] = (torch.arange(40, device=DEVICE) % 11 + 1)[:, None] / 3
    check(inputs, "wgmma")


@each_version
@pytest.mark.parametrize("leading", [(2, 3), ()], ids=str)
def test_other_ranks_and_no_bias(version: str, leading: tuple[int, ...]):
    inputs = drawn(leading, 24, 304)
    del inputs["bias"]
    check(inputs, version)


@in_pairs(version=module.VERSIONS, shape=[(0, 5, 16), (5, 0, 16), (5, 3, 0)], groups=(False, True))
def test_empty(version: str, groups: bool, shape: tuple[int, int, int]):
    assert check(drawn(*shape, groups), version).shape == shape[:2]


@settings(max_examples=15, deadline=None)
@given(data=st.data())
@each_version
def test_any_shape(version: str, data: st.DataObject):
    draw = data.draw
    shape = draw(st.integers(1, 20)), draw(st.integers(1, 140)), draw(st.integers(1, 40)) * 8
    check(drawn(*shape, draw(st.booleans())), version)


@each_type
@each_version
def test_every_weight(version: str, dtype: torch.dtype):
    """With one 1 in each row of x, y is the weights, exactly."""
    w = torch.arange(-128, 128, device=DEVICE, dtype=torch.int8).view(16, 16)
    for rows in (16, 4):  # of few rows, other kernels
        x = torch.eye(16, device=DEVICE, dtype=dtype)[:rows]
        got = matmul_w8a16(x, w, torch.ones(16, 1, device=DEVICE), version=version)
        assert torch.equal(got, w.T[:rows].to(dtype))


@each_version
def test_what_is_not_finite_stays_in_its_row(version: str):
    inputs = drawn(6, 140, 304)
    want = matmul_w8a16(**inputs, version=version)
    inputs["x"][3, 290] = torch.inf
    got = matmul_w8a16(**inputs, version=version)
    assert not got[3].isfinite().any()
    assert torch.equal(got[:3], want[:3])
    assert torch.equal(got[4:], want[4:])


@each_version
def test_strides_and_misaligned(version: str):
    inputs = drawn(20, 40, 272, True)
    want = matmul_w8a16(**inputs, version=version)
    transposed = {n: t.mT.contiguous().mT if t.dim() > 1 else t for n, t in inputs.items()}
    assert torch.equal(matmul_w8a16(**transposed, version=version), want)
    moved = {n: t.new_empty(t.numel() + 1)[1:].view(t.shape).copy_(t) for n, t in inputs.items()}
    check(moved, version)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": torch.zeros(3, 300)}, "x is float32; wanted is float16 or bfloat16"),
        ({"w": torch.zeros(200, 300).byte()}, "w is uint8; wanted is int8"),
        ({"w": torch.zeros(200, 299).char()}, r"w has shape \(200, 299\), but x .* \(units, 300\)"),
        ({"w_scale": torch.ones(200, 1).half()}, "w_scale is float16; wanted is float32"),
        (
            {"w_scale": torch.ones(200)},
            r"w_scale has shape \(200,\), but w has shape \(200, 300\); wanted is \(200, 1\) for "
            r"one of each row, or \(200, 3\) for one of each 128 neighbours",
        ),
        ({"bias": torch.ones(200).half()}, "bias is float16, but x is bfloat16; wanted is one ty"),
        ({"bias": torch.ones(3).bfloat16()}, r"bias has shape \(3,\); wanted is \(200,\)"),
    ],
    ids=str,
)
def test_refused(changes: dict[str, Tensor], message: str):
    inputs = drawn(3, 200, 300) | {n: t.to(DEVICE) for n, t in changes.items()}
    with pytest.raises(RuntimeError, match=message):
        matmul_w8a16(**inputs)


@pytest.mark.slow
@pytest.mark.skipif(DEVICE.type != "cpu", reason="the checker runs on the simulator")
@by_group
@each_version
def test_checker(version: str, groups: bool):
    """In two orders of the threads, with steps of k for every stage of shared memory, and more."""
    ways = ((264, 272), (100, 528), (60, 1168), (5, 272))  # many, and few of each
    if version == "naive":
        ways = ((33, 40), (5, 272))
    for number, (rows, cols) in enumerate(ways):
        inputs = drawn(rows, 136, cols, groups)
        order = (number + groups) % 2
        report = no_findings(
            matmul_w8a16, **inputs, version=version, traffic=False, thread_order=order
        )
        names = [kernel.split("<")[0] for kernel in report.launches["kernel"]]
        assert names in kernels_of(version, rows)


def kernels_of(version: str, rows: int) -> list[list[str]]:
    """What may run; of many rows, the number of multiprocessors decides."""
    if version in ("naive", "mma"):
        return [[f"matmul_w8a16_{version}"]]
    if rows <= 16:
        return [["matmul_few_rows_mma"]]
    if version == "few_rows":
        return [["matmul_w8a16_mma"]]
    tiles = ["matmul_few_rows"]
    return [tiles] if rows <= 128 else [tiles, ["matmul_w8a16_widen", "matmul_specialized"]]
