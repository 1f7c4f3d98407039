"""reference.py: the formulas, the registry, the inputs."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import reference
from reference import OPS, op

each_op = pytest.mark.parametrize("name", OPS)


def test_ops_are_those_with_kernels():
    folder = Path(reference.__file__).with_name("kernels")
    assert set(OPS) == {path.stem for path in folder.glob("*.cu")}
    for name in OPS:
        assert (folder / f"{name}.cpp").is_file()
        assert (folder / f"{name}.py").is_file()


@each_op
def test_every_op_says_its_formula(name: str):
    assert "y" in OPS[name].function.__doc__
    assert "=" in OPS[name].function.__doc__


def test_formulas():
    x = torch.tensor([[1.0, -2.0, 4.0]], dtype=torch.float64)
    scale = torch.tensor([2.0, 1.0, -1.0], dtype=torch.float64)
    bias = torch.tensor([0.5, 3.0, 0.0], dtype=torch.float64)
    assert reference.square(x).tolist() == [[1, 4, 16]]
    assert reference.relu(x).tolist() == [[1, 0, 4]]
    assert reference.scale_bias_relu(x, scale, bias).tolist() == [[2.5, 1, 0]]
    assert reference.scale_bias_relu(x, 2, bias).tolist() == [[2.5, 0, 8]]
    assert reference.reduce_sum(x).tolist() == [3]
    assert reference.reduce_sum(x, dim=None).item() == 3
    got = reference.layer_norm(x, scale, bias, eps=0)  # the mean is 1, the variance 6
    torch.testing.assert_close(got, (x - 1) / 6**0.5 * scale + bias)


@each_op
@given(
    rows=st.integers(0, 9),
    cols=st.integers(0, 9),
    seed=st.integers(0, 2**31),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.float16, torch.bfloat16]),
)
def test_inputs_have_the_declared_shapes(name: str, rows: int, cols: int, seed: int, dtype):
    sizes = {"rows cols": (rows, cols), "cols": (cols,)}
    inputs = OPS[name].inputs(rows, cols, dtype, seed=seed)
    assert inputs.keys() == OPS[name].shapes.keys()
    for argument, tensor in inputs.items():
        assert tensor.shape == sizes[OPS[name].shapes[argument]]
        assert tensor.dtype == dtype
        assert not tensor.requires_grad


@each_op
def test_inputs_are_reproducible(name: str):
    first = OPS[name].inputs(4, 5, seed=3)
    again = OPS[name].inputs(4, 5, seed=3)
    other = OPS[name].inputs(4, 5, seed=4)
    for argument in first:
        assert torch.equal(first[argument], again[argument])
        assert not torch.equal(first[argument], other[argument])


@each_op
def test_inputs_take_either_sign_around_an_offset(name: str):
    draws = [OPS[name].inputs(64, 64, seed=seed)["x"] for seed in range(20)]
    offsets = torch.stack([draw.mean() for draw in draws])
    scales = torch.stack([draw.std() for draw in draws])
    assert offsets.min() < -0.3
    assert offsets.max() > 0.3
    assert scales.min() < 1 < scales.max()
    assert all(draw.min() < 0 < draw.max() for draw in draws)


@each_op
def test_inputs_may_require_a_gradient(name: str):
    inputs = OPS[name].inputs(2, 3, requires_grad=True)
    assert all(tensor.requires_grad and tensor.is_leaf for tensor in inputs.values())


@each_op
def test_reference_runs_on_its_inputs_with_every_option(name: str):
    for options in OPS[name].options:
        assert OPS[name].function(**OPS[name].inputs(2, 3), **options).isfinite().all()


def test_a_misspelt_argument_is_refused():
    with pytest.raises(TypeError, match="double has no argument wieght"):

        @op(x="rows cols", wieght="cols")
        def double(x, weight):
            return 2 * x

    assert "double" not in OPS
