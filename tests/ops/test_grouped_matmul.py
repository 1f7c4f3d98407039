"""grouped_matmul: each expert's rows against a product of their own; what must not leak."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from op_cases import (
    DEVICE,
    converted,
    doubled,
    error,
    half_ulp,
    in_pairs,
    largest,
    module_of,
    no_findings,
    outcome,
)
from torch import Tensor

import reference

module = module_of("grouped_matmul")
grouped_matmul = module.grouped_matmul
each_version = pytest.mark.parametrize("version", module.VERSIONS)
each_type = pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str
)
GROUPS = (5, 0, 130, 1, 33, 0)


def ends(groups: tuple[int, ...]) -> Tensor:
    return torch.tensor(groups, device=DEVICE).cumsum(0).int()


def drawn(
    groups: tuple[int, ...] = GROUPS,
    units: int = 72,
    cols: int = 136,
    dtype: torch.dtype = torch.bfloat16,
    outside: int = 0,
    act: str = "none",
) -> dict[str, Tensor]:
    """units: of the result. outside: rows of no expert, behind the last one's."""
    generator = torch.Generator(DEVICE).manual_seed(0)
    wide = units * (2 if act == "swiglu" else 1)
    like = {"device": DEVICE, "generator": generator}
    return {
        "x": torch.randn((sum(groups) + outside, cols), **like).add_(0.25).to(dtype),
        "w": torch.randn((len(groups), wide, cols), **like).div_(max(cols, 1) ** 0.5).to(dtype),
        "offsets": ends(groups),
        "act": act,
    }


def gradient_like(inputs: dict[str, Tensor]) -> Tensor:
    generator = torch.Generator(DEVICE).manual_seed(1)
    shape = len(inputs["x"]), inputs["w"].shape[1] // (2 if inputs["act"] == "swiglu" else 1)
    return torch.randn(shape, device=DEVICE, generator=generator).to(inputs["x"].dtype)


def both_ways(function, inputs: dict[str, Tensor], grad: Tensor, **options) -> dict[str, Tensor]:
    """y and the gradients of x and w."""
    tensors = {name: inputs[name] for name in "xw"}
    options |= {name: inputs[name] for name in ("offsets", "act")}
    return outcome(lambda **its: function(**its, **options), tensors, (grad,))


def check(inputs: dict[str, Tensor], version: str) -> dict[str, Tensor]:
    """Each result and gradient is at most twice as far from the truth as PyTorch's in the same
    type, or as half an ULP of the largest: any rounding costs so much. In float64, where the truth
    is rounded, too, sums of n terms may lose the square root of n roundings more."""
    grad, dtype = gradient_like(inputs), inputs["x"].dtype
    got = both_ways(grouped_matmul, inputs, grad, version=version)
    wide = inputs | converted({name: inputs[name] for name in "xw"}, torch.float64)
    truth = both_ways(reference.grouped_matmul, wide, doubled((grad,))[0])
    theirs = both_ways(reference.grouped_matmul, inputs, grad)
    sizes = {name: inputs[name].double().abs() for name in "xw"}
    terms = both_ways(reference.grouped_matmul, inputs | sizes, grad.double().abs())
    for name, want in truth.items():
        assert got[name].dtype == dtype
        assert got[name].shape == want.shape
        allowed = 2 * max(error(theirs[name], want), half_ulp(largest(want), dtype))
        if dtype == torch.float64:
            roundings = max(1, *inputs["x"].shape) ** 0.5
            allowed += roundings * torch.finfo(dtype).eps / 2 * largest(terms[name])
        off = error(got[name], want)
        assert off <= allowed, f"{name} is off by {off:.3g}; {allowed:.3g} is allowed"
    return got


@each_type
@each_version
def test_types(version: str, dtype: torch.dtype):
    check(drawn(dtype=dtype), version)


@each_version
@pytest.mark.parametrize(
    ("groups", "units", "cols"),
    [
        ((128, 128), 128, 128),
        ((64, 0, 200), 264, 80),
        ((1, 1, 1, 1), 8, 16),
        ((0, 0, 40), 24, 64),
        ((3, 70), 35, 135),
        ((17,), 129, 8),
    ],
    ids=str,
)
def test_shapes(version: str, groups: tuple[int, ...], units: int, cols: int):
    check(drawn(groups, units, cols), version)


@pytest.mark.parametrize("act", ["relu", "gelu", "silu", "swiglu"])
@each_version
def test_acts(version: str, act: str):
    check(drawn(act=act, outside=3), version)


@in_pairs(
    version=module.VERSIONS,
    shape=[(264, 80), (72, 136), (35, 135)],
    dtype=(torch.float32, torch.float16),
)
def test_swiglu(version: str, shape: tuple[int, int], dtype: torch.dtype):
    units, cols = shape
    check(drawn(units=units, cols=cols, dtype=dtype, act="swiglu"), version)


@settings(max_examples=10, deadline=None)
@given(data=st.data())
@each_version
def test_any_shape(version: str, data: st.DataObject):
    draw = data.draw
    groups = tuple(draw(st.lists(st.integers(0, 70), min_size=1, max_size=6)))
    each = draw(st.sampled_from((1, 8)))
    units, cols = draw(st.integers(1, 20)) * each, draw(st.integers(1, 20)) * each
    check(drawn(groups, units, cols, outside=draw(st.integers(0, 9))), version)


@each_version
@pytest.mark.parametrize(
    ("groups", "units", "cols"),
    [((0, 0), 8, 16), ((3, 2), 0, 16), ((3, 2), 8, 0)],
    ids=str,
)
def test_empty(version: str, groups: tuple[int, ...], units: int, cols: int):
    check(drawn(groups, units, cols, outside=2), version)


@each_version
def test_without_experts_all_rows_are_zero(version: str):
    got = grouped_matmul(**drawn((), 8, 16, outside=3), version=version)
    assert torch.equal(got, torch.zeros_like(got))


@each_version
def test_rows_of_no_expert_are_zero_and_are_not_read(version: str):
    inputs = drawn(outside=40)
    inputs["x"][-40:] = torch.nan
    grad = gradient_like(inputs)
    grad[-40:] = torch.inf
    got = both_ways(grouped_matmul, inputs, grad, version=version)
    assert not got["y"][-40:].any()
    assert not got["dx"][-40:].any()
    assert all(each.isfinite().all() for each in got.values())


@each_version
def test_what_is_not_finite_stays_with_its_expert(version: str):
    """The tiles of an expert lie over rows of the next one."""
    inputs = drawn()
    grad = gradient_like(inputs)
    want = both_ways(grouped_matmul, inputs, grad, version=version)
    begin, end = inputs["offsets"][1], inputs["offsets"][2]
    inputs["x"][begin:end] = torch.nan
    inputs["w"][2] = torch.inf
    got = both_ways(grouped_matmul, inputs, grad, version=version)
    for name in ("y", "dx"):
        assert not got[name][begin:end].isfinite().any()
        assert torch.equal(got[name][:begin], want[name][:begin])
        assert torch.equal(got[name][end:], want[name][end:])
    assert not got["dw"][2].isfinite().any()
    others = [0, 1, 3, 4, 5]
    assert torch.equal(got["dw"][others], want["dw"][others])


@each_version
def test_an_expert_has_the_bits_of_its_product_alone(version: str):
    inputs = drawn()
    got = grouped_matmul(**inputs, version=version)
    begin, end = inputs["offsets"][1:3].tolist()
    alone = {"x": inputs["x"][begin:end], "w": inputs["w"][2:3], "offsets": ends((end - begin,))}
    assert torch.equal(got[begin:end], grouped_matmul(**alone, version=version))


@each_version
@pytest.mark.parametrize("wrong", [(3, 2, 20), (-1, 5, 20), (5, 9, 21)], ids=str)
def test_wrong_offsets_make_all_nan(version: str, wrong: tuple[int, ...]):
    inputs = drawn((5, 7, 8), 16, 24)
    inputs["offsets"] = torch.tensor(wrong, device=DEVICE, dtype=torch.int32)
    grad = gradient_like(inputs)
    got = both_ways(grouped_matmul, inputs, grad, version=version)
    assert all(each.isnan().all() for each in got.values())


@each_version
def test_strides_and_misaligned(version: str):
    inputs = drawn()
    grad = gradient_like(inputs)
    want = both_ways(grouped_matmul, inputs, grad, version=version)
    turned = inputs | {name: inputs[name].mT.contiguous().mT for name in "xw"}
    for strided in (turned, inputs | {"w": inputs["w"].repeat(1, 2, 1)[:, :72]}):
        got = both_ways(grouped_matmul, strided, grad, version=version)
        for name, each in want.items():
            assert torch.equal(got[name], each), name
    tensors = {name: inputs[name] for name in ("x", "w", "offsets")}
    moved = {n: t.new_empty(t.numel() + 1)[1:].view(t.shape).copy_(t) for n, t in tensors.items()}
    check(inputs | moved, version)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": torch.zeros(2, 3, 16)}, r"x has shape \(2, 3, 16\); wanted is \[rows, cols\]"),
        ({"w": torch.zeros(2, 8, 16)}, "w is float32, but x is bfloat16; wanted is one type"),
        (
            {"w": torch.zeros(2, 8, 15).bfloat16()},
            r"w has shape \(2, 8, 15\), but x .* \(experts, units, 16\)",
        ),
        ({"offsets": torch.zeros(2)}, "offsets is float32; wanted is int32"),
        ({"offsets": torch.zeros(2).long()}, "offsets is int64; wanted is int32"),
        ({"offsets": torch.zeros(3).int()}, r"offsets has shape \(3,\), but w .* wanted is \(2,\)"),
    ],
    ids=str,
)
def test_refused(changes: dict[str, Tensor], message: str):
    inputs = drawn((3, 4), 8, 16) | {name: t.to(DEVICE) for name, t in changes.items()}
    with pytest.raises(RuntimeError, match=message):
        grouped_matmul(**inputs)


@pytest.mark.slow
@pytest.mark.skipif(DEVICE.type != "cpu", reason="the checker runs on the simulator")
@in_pairs(version=module.VERSIONS, order=[0, 1], act=["none", "swiglu"], layout=["row", "column"])
def test_checker(version: str, order: int, act: str, layout: str):
    inputs = drawn(units=136, cols=272, outside=7, act=act)
    if layout == "column":
        inputs["w"] = inputs["w"].mT.contiguous().mT
    report = no_findings(
        both_ways,
        grouped_matmul,
        inputs,
        gradient_like(inputs),
        version=version,
        traffic=False,
        thread_order=order,
    )
    names = [launch.split("<")[0] for launch in report.launches["kernel"]]
    name = f"matmul_{version}" if version in ("registers", "mma") else f"grouped_matmul_{version}"
    of_z = ["gradient_of_z"] * (act != "none")
    assert names == ["set_up_groups", name, *of_z, *["set_up_groups", name] * 2]
