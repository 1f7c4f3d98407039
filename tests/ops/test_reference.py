"""reference.py: the formulas, the registry, the inputs."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from random123 import PHILOX

import jitload
import reference
from reference import OPS, Op, op, size_of

each_op = pytest.mark.parametrize("name", OPS)


def test_every_kernel_has_its_reference():
    """In OPS, or where it has no gradient, as attention_decode, a function of its name."""
    names = jitload.op_files(".cu").keys()
    assert set(OPS) <= names
    assert all(callable(getattr(reference, name, None)) for name in names)
    for name in OPS:
        assert jitload.op_file(name, ".cpp") == jitload.op_file(name, ".cu").with_suffix(".cpp")
        assert jitload.op_file(name, ".py") == jitload.op_file(name, ".cu").with_suffix(".py")


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
    powers = x.exp()
    torch.testing.assert_close(reference.softmax(x), powers / powers.sum())
    torch.testing.assert_close(reference.swiglu(x, scale), x / (1 + 1 / powers) * scale)
    losses = powers.sum().log() - x
    drops = {"p": 0.5, "seed": 7}
    y, total = reference.dropout_layer_norm(x, 3 * x, scale, bias, eps=0, **drops)
    torch.testing.assert_close(total, 3 * x + x * reference.factors(x, **drops))
    torch.testing.assert_close(y, reference.layer_norm(total, scale, bias, eps=0))
    target = torch.tensor([2])
    torch.testing.assert_close(reference.cross_entropy(x, target), losses[0, 2])
    got = reference.cross_entropy(x, target, "none", label_smoothing=0.3)
    torch.testing.assert_close(got, 0.7 * losses[:, 2] + 0.3 * losses.mean(1))
    assert reference.cross_entropy(x, target, "sum", ignore_index=2) == 0


def test_philox_known_answers():
    for counter, key, words in PHILOX:
        low, high, seed = (a | b << 32 for a, b in (counter[:2], counter[2:], key))
        low = torch.tensor([low - 2**64 if low >= 2**63 else low])  # int64 with the same bits
        assert reference.philox(seed, low, high).tolist() == [words]


@each_op
@given(
    rows=st.integers(0, 9),
    cols=st.integers(0, 9),
    seed=st.integers(0, 2**31),
    dtype=st.sampled_from([torch.float64, torch.float32, torch.float16, torch.bfloat16]),
)
def test_inputs_have_the_declared_shapes(name: str, rows: int, cols: int, seed: int, dtype):
    sizes = {"rows": rows, "cols": cols} | OPS[name].sizes
    inputs = OPS[name].inputs(rows, cols, dtype, seed=seed)
    assert inputs.keys() == OPS[name].shapes.keys()
    for argument, tensor in inputs.items():
        assert tensor.shape == tuple(
            size_of(each, sizes) for each in OPS[name].shapes[argument].split()
        )
        assert tensor.dtype == (torch.int64 if argument in OPS[name].limits else dtype)
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
    first = next(iter(OPS[name].shapes))
    draws = [OPS[name].inputs(64, 64, seed=seed)[first] for seed in range(20)]
    offsets = torch.stack([draw.mean() for draw in draws])
    scales = torch.stack([draw.std() for draw in draws])
    assert offsets.min() < -0.3
    assert offsets.max() > 0.3
    assert scales.min() < 1 < scales.max()
    assert all(draw.min() < 0 < draw.max() for draw in draws)


@each_op
def test_inputs_may_require_a_gradient(name: str):
    inputs = OPS[name].inputs(2, 3, requires_grad=True)
    with_gradient = {argument for argument, tensor in inputs.items() if tensor.requires_grad}
    assert with_gradient == OPS[name].shapes.keys() - OPS[name].limits.keys()
    assert all(tensor.is_leaf for tensor in inputs.values())


@each_op
def test_reference_runs_on_its_inputs_with_every_option(name: str):
    for options in OPS[name].options:
        result = OPS[name].function(**OPS[name].inputs(2, 3, without=options), **options)
        for y in result if isinstance(result, tuple) else (result,):
            assert y.isfinite().all()


# ---- declaring an op


@pytest.fixture
def ops(monkeypatch: pytest.MonkeyPatch) -> dict[str, Op]:
    """An empty registry."""
    registry: dict[str, Op] = {}
    monkeypatch.setattr(reference, "OPS", registry)
    return registry


def test_a_misspelt_argument_is_refused(ops: dict[str, Op]):
    with pytest.raises(TypeError, match="double has no argument wieght"):

        @op(x="rows cols", wieght="cols")
        def double(x, weight):
            return 2 * x

    with pytest.raises(TypeError, match="double has no argument fator"):

        @op({"fator": 2}, x="rows cols")
        def double(x, factor):
            return factor * x

    assert not ops


@pytest.mark.parametrize(
    "shape", ["rows  cols", "row cols", "rows, int64", "rows, int32 < cols", "rows < cols", "cols "]
)
def test_a_shape_in_other_letters_is_refused(ops: dict[str, Op], shape: str):
    with pytest.raises(
        ValueError, match=f"double: the shape of x is '{shape}'; wanted is one such"
    ):

        @op(x=shape)
        def double(x):
            return 2 * x

    assert not ops


def test_integers_below_a_limit(ops: dict[str, Op]):
    @op(x="rows cols", target="rows, int64 < cols")
    def pick(x, target):
        return x.gather(-1, target[:, None])

    assert ops["pick"].shapes == {"x": "rows cols", "target": "rows"}
    assert ops["pick"].limits == {"target": "cols"}
    inputs = ops["pick"].inputs(1000, 7, torch.bfloat16, requires_grad=True)
    target = inputs["target"]
    assert target.shape == (1000,)
    assert target.dtype == torch.int64
    assert not target.requires_grad
    assert inputs["x"].requires_grad
    assert target.unique().tolist() == list(range(7))
    assert ops["pick"].inputs(3, 0)["target"].tolist() == [0, 0, 0]


def test_other_letters(ops: dict[str, Op]):
    @op(sizes={"units": 5}, x="rows cols", weight="units cols", index="units, int64 < units")
    def layer(x, weight, index):
        return (x @ weight.T)[:, index]

    inputs = ops["layer"].inputs(2, 3)
    assert {name: tuple(t.shape) for name, t in inputs.items()} == {
        "x": (2, 3),
        "weight": (5, 3),
        "index": (5,),
    }
    assert inputs["index"].max() < 5
    assert ops["layer"].inputs(2, 3, units=7)["weight"].shape == (7, 3)
    with pytest.raises(ValueError, match="layer: the shape of x is 'rows units'"):

        @op(x="rows units")
        def layer(x):
            return x


def test_an_option_takes_a_tensors_place(ops: dict[str, Op]):
    @op({}, {"residual": None}, x="rows cols", residual="rows cols", weight="cols")
    def scaled(x, residual, weight):
        return (x if residual is None else x + residual) * weight

    whole = ops["scaled"].inputs(2, 3)
    assert whole.keys() == {"x", "residual", "weight"}
    rest = ops["scaled"].inputs(2, 3, without=ops["scaled"].options[1])
    assert rest.keys() == {"x", "weight"}
    assert torch.equal(rest["weight"], whole["weight"])
