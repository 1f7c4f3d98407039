"""rms_norm_fp8 and swiglu_fp8: what quantize makes of the ops' results, in one kernel."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from op_cases import DEVICE, in_pairs, no_findings
from torch import Tensor

import reference
from kernels.quantize import quantize
from kernels.rms_norm import rms_norm, rms_norm_fp8
from kernels.swiglu import swiglu, swiglu_fp8

each_scaling = pytest.mark.parametrize("scaling", ["row", "1x128"])
AXES = {
    "shape": [(5, 128), (3, 1000), (2, 3, 257), (40,), (2, 9000), (0, 64), (3, 0)],
    "scaling": ("row", "1x128"),
    "dtype": (torch.float32, torch.float16, torch.bfloat16),
}


def drawn(op: str, shape: tuple[int, ...], dtype: torch.dtype = torch.bfloat16) -> dict:
    inputs = reference.OPS[op].inputs(math.prod(shape[:-1]), shape[-1], dtype, DEVICE)
    return {n: t if n == "weight" else t.view(shape) for n, t in inputs.items()}


def same_bits(got: tuple[Tensor, ...], want: tuple[Tensor, ...]) -> bool:
    as_bytes = [[t.contiguous().view(torch.uint8) for t in ts] for ts in (got, want)]
    return all(torch.equal(a, b) for a, b in zip(*as_bytes, strict=True))


@in_pairs(**AXES)
def test_swiglu(shape: tuple[int, ...], scaling: str, dtype: torch.dtype):
    inputs = drawn("swiglu", shape, dtype)
    assert same_bits(swiglu_fp8(**inputs, scaling=scaling), quantize(swiglu(**inputs), scaling))


@in_pairs(**AXES, with_residual=(False, True))
def test_rms_norm(shape: tuple[int, ...], scaling: str, dtype: torch.dtype, with_residual: bool):
    check_rms_norm(shape, scaling, dtype, with_residual)


def check_rms_norm(shape: tuple[int, ...], scaling: str, dtype: torch.dtype, with_residual: bool):
    """Squares are summed in another order. That moves the root, and elements before they are
    rounded, by an ULP or two; few of those cross over to the next float of one byte."""
    inputs = drawn("rms_norm", shape, dtype)
    if not with_residual:
        del inputs["residual"]
    q, scale, *total = rms_norm_fp8(**inputs, scaling=scaling)
    result = rms_norm(**inputs)
    y = result[0] if with_residual else result
    wanted_q, wanted_scale = quantize(y, scaling)
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(scale, wanted_scale, rtol=4 * eps, atol=0)
    steps = q.view(torch.uint8).int() - wanted_q.view(torch.uint8).int()
    assert (steps.abs() <= 1).all()
    assert steps.count_nonzero() <= 0.02 * steps.numel() + 2
    assert len(total) == with_residual
    assert same_bits(tuple(total), result[1:] if with_residual else ())


@settings(max_examples=25, deadline=None)
@given(data=st.data())
@each_scaling
def test_any_shape(scaling: str, data: st.DataObject):
    draw = data.draw
    shape = draw(st.integers(0, 9)), draw(st.integers(0, 700))
    dtype = draw(st.sampled_from((torch.float32, torch.float16, torch.bfloat16)))
    inputs = drawn("swiglu", shape, dtype)
    inputs["a"] *= 10.0 ** draw(st.integers(-6, 2))
    assert same_bits(swiglu_fp8(**inputs, scaling=scaling), quantize(swiglu(**inputs), scaling))
    check_rms_norm(shape, scaling, dtype, draw(st.booleans()))


@each_scaling
def test_misaligned(scaling: str):
    def moved(t: Tensor) -> Tensor:
        return t.new_empty(t.numel() + 1)[1:].view(t.shape).copy_(t)

    for op, function in (("swiglu", swiglu_fp8), ("rms_norm", rms_norm_fp8)):
        inputs = drawn(op, (3, 640))
        want = function(**inputs, scaling=scaling)
        got = function(**{n: moved(t) for n, t in inputs.items()}, scaling=scaling)
        assert same_bits(got, want)


@pytest.mark.parametrize(("op", "function"), [("swiglu", swiglu_fp8), ("rms_norm", rms_norm_fp8)])
def test_refused(op: str, function):
    inputs = drawn(op, (3, 64), torch.float32)
    first, *_ = inputs
    with pytest.raises(ValueError, match="scaling is '128x128'; wanted is one of row, 1x128"):
        function(**inputs, scaling="128x128")
    with pytest.raises(RuntimeError, match=f"{first} is float64; wanted is float32, float16 or bf"):
        function(**{n: t.double() for n, t in inputs.items()})
    with pytest.raises(RuntimeError, match="shape"):
        function(**(inputs | {first: inputs[first][:, :8]}))


@pytest.mark.slow
@pytest.mark.skipif(DEVICE.type != "cpu", reason="the checker runs on the simulator")
@each_scaling
def test_checker(scaling: str):
    for op, function in (("swiglu", swiglu_fp8), ("rms_norm", rms_norm_fp8)):
        for cols in (700, 1024):
            given = drawn(op, (3, cols))
            no_findings(function, **given, scaling=scaling, traffic=False)
