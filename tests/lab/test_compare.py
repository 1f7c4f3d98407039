"""The table of error and time, on real ops at small sizes."""

import math
import subprocess
import sys

import pandas
import pytest
import torch

import jitload
import lab
import reference
from kernels import scale_bias_relu as scale_bias_relu_module
from kernels import square as square_module
from lab.measure.case import Case
from lab.measure.error import summarize
from lab.rivals.implementation import Implementation

ON_GPU = jitload.device().type == "cuda"
SMALL = [(5, 33), (8, 64)]
ERRORS = ["max_error", "mean_error", "max_ulp", "mean_ulp"]
COLUMNS = [
    *("op", "direction", "options", "dtype", "rows", "cols", "implementation"),
    *(*ERRORS, *(f"torch_{name}" for name in ERRORS)),
    *("time_us", "spread_us", "clock", "bytes", "gb_per_s", "percent_of_copy"),
    "bytes_fetched",
    "predicted_us",
    "predicted_low_us",
    "predicted_high_us",
]


@pytest.fixture(scope="module")
def table():
    """Both directions, two types, two shapes, all versions, PyTorch's eager op."""
    return lab.compare(
        "scale_bias_relu", shapes=SMALL, versions="all", rivals=["eager"], backward=True, seed=3
    )


def test_one_row_per_direction_type_shape_and_implementation(table):
    assert isinstance(table, pandas.DataFrame)
    assert list(table.columns) == COLUMNS
    keys = ["direction", "options", "dtype", "rows", "cols", "implementation"]
    labels = [f"ours:{version}" for version in scale_bias_relu_module.VERSIONS] + ["eager"]
    assert not table.duplicated(keys).any()
    assert len(table) == 2 * 2 * 2 * len(labels)
    assert list(dict.fromkeys(table["implementation"])) == labels
    assert list(dict.fromkeys(table["direction"])) == ["forward", "backward"]
    assert list(dict.fromkeys(table["dtype"])) == ["float32", "bfloat16"]
    assert sorted(set(zip(table["rows"], table["cols"], strict=True))) == SMALL


def test_errors_are_ours_and_pytorchs_against_float64(table):
    op = reference.OPS["scale_bias_relu"]
    inputs = op.inputs(8, 64, dtype=torch.bfloat16, device=jitload.device(), seed=3)
    truth = op.function(**{name: value.double() for name, value in inputs.items()})
    best = scale_bias_relu_module.VERSIONS[-1]
    ours = summarize([scale_bias_relu_module.scale_bias_relu(**inputs)], [truth])
    torchs = summarize([op.function(**inputs)], [truth])

    of_case = (table["direction"] == "forward") & (table["dtype"] == "bfloat16")
    rows = table[of_case & (table["cols"] == 64)].set_index("implementation")
    shown = rows.loc[f"ours:{best}", [*ERRORS, *(f"torch_{name}" for name in ERRORS)]]
    assert list(shown) == [
        *(ours.max, ours.mean, ours.max_ulp, ours.mean_ulp),
        *(torchs.max, torchs.mean, torchs.max_ulp, torchs.mean_ulp),
    ]
    assert list(rows.loc["eager", ERRORS]) == list(shown)[4:]


def test_backward_is_held_against_the_float64_gradients():
    device, options = jitload.device(), {}
    case = Case(reference.OPS["square"], (5, 33), torch.float32, device, options, backward=True)
    (truth,) = case.truth
    (grad_output,) = case.arriving
    torch.testing.assert_close(truth, 2 * case.inputs["x"].double() * grad_output.double())
    assert case.names == ["gradient of x"]


@pytest.mark.parametrize("backward", [False, True])
def test_a_wrong_kernel_shows(backward):
    op = reference.OPS["square"]
    case = Case(op, (5, 33), torch.float32, jitload.device(), {}, backward)
    wrong = Implementation("wrong", lambda x: op.function(x) * (1 + 2**-8))
    assert case.measure(wrong, timed=False).error.mean_ulp > 2**14
    assert case.torch_error.max_ulp <= 1


def test_bytes_are_inputs_and_outputs_once(table):
    rows = table[(table["rows"] == 8) & (table["implementation"] == "eager")]
    size = rows.set_index(["direction", "dtype"])["bytes"]
    assert size["forward", "float32"] == 4 * (8 * 64 + 64 + 64 + 8 * 64)
    # grad_output, x, weight, bias in; the gradients of x, weight, bias out
    assert size["backward", "bfloat16"] == 2 * (8 * 64 * 2 + 64 * 2 + 8 * 64 + 64 * 2)


def test_the_backward_of_a_sum_reads_grad_output_alone():
    op = reference.OPS["reduce_sum"]
    case = Case(op, (8, 64), torch.float32, jitload.device(), {"dim": -1}, backward=True)
    dense = Implementation("dense", lambda x, dim: x @ x.new_ones(64))
    assert case.measure(dense, timed=False).bytes == 4 * (8 + 8 * 64)


def test_options_go_through_all_variants():
    table = lab.compare("reduce_sum", shapes=[(5, 33)], dtypes="float32", rivals=())
    assert list(table["options"]) == ["dim=-1", "dim=None"]
    one = lab.compare("reduce_sum", shapes=[(5, 33)], dtypes="float32", options={"dim": None})
    assert set(one["options"]) == {"dim=None"}


def test_an_option_may_replace_an_input():
    op = reference.OPS["scale_bias_relu"]
    case = Case(op, (5, 33), torch.float32, jitload.device(), {"scale": 2.0}, backward=True)
    assert case.names == ["gradient of x", "gradient of bias"]
    assert case.torch_error.max_ulp < 1e6


def test_conditions_stand_beside_the_numbers(table):
    facts = table.attrs
    assert facts["op"] == "scale_bias_relu"
    assert facts["versions"] == scale_bias_relu_module.VERSIONS
    assert facts["torch"] == torch.__version__
    assert {"driver", "date"} <= facts.keys()
    assert (facts["target"] == "cuda") == ON_GPU == (facts["copy_gb_per_s"] is not None)


def test_time_is_the_clocks_and_no_rival_is_timed_by_the_simulator(table):
    ours = table["implementation"].str.startswith("ours:")
    assert (table.loc[ours, "time_us"] > 0).all()
    assert (table.loc[ours, "spread_us"] >= 0).all()
    if ON_GPU:
        assert (table["clock"] == "GPU, cold L2").all()
        expected = 1e-3 * table["bytes"] / table["time_us"]
        pandas.testing.assert_series_equal(table["gb_per_s"], expected, check_names=False)
        percent = 100 * table["gb_per_s"] / table.attrs["copy_gb_per_s"]
        pandas.testing.assert_series_equal(table["percent_of_copy"], percent, check_names=False)
    else:
        assert (table.loc[ours, "clock"] == "CPU simulator").all()
        assert (table.loc[~ours, "clock"] == "").all()
        assert table.loc[~ours, ["time_us", "spread_us"]].isna().all(axis=None)
        assert table[["gb_per_s", "percent_of_copy"]].isna().all(axis=None)
        assert (table.loc[ours, "bytes_fetched"] > 0).all()
        assert table.loc[~ours, "bytes_fetched"].isna().all()
        assert (table.loc[ours, "predicted_low_us"] < table.loc[ours, "predicted_us"]).all()
        assert (table.loc[ours, "predicted_us"] < table.loc[ours, "predicted_high_us"]).all()
        assert table.loc[~ours, "predicted_us"].isna().all()
        assert table.attrs["predicted_for"] == "H200"


@pytest.mark.skipif(not ON_GPU, reason="on the simulator torch.compile is no rival by default")
def test_torch_compile_is_a_rival():
    table = lab.compare("layer_norm", shapes=SMALL, dtypes=["float32"], backward=True)
    rows = table[table["implementation"] == "compile"]
    assert len(rows) == 4
    assert (rows["time_us"] > 0).all()
    assert (rows["max_error"] <= 4 * rows["torch_max_error"]).all()


def test_rivals_by_default():
    rivals = lab.compare("square", shapes=[(5, 33)], dtypes="float32")["implementation"][1:]
    assert list(rivals) == (["eager", "compile"] if ON_GPU else ["eager"])


def test_default_shapes_fit_the_target():
    widths, sizes = lab.widths(), lab.sizes(cols=1024)
    assert len({rows * cols for rows, cols in widths}) == 1
    assert [cols for _, cols in widths] == sorted({cols for _, cols in widths})
    assert {cols for _, cols in sizes} == {1024}
    assert [rows for rows, _ in sizes] == sorted({rows for rows, _ in sizes})
    elements = math.prod(widths[0])
    assert elements >= 1 << 24 if ON_GPU else elements == 1 << 16


VERSIONS = ", ".join(square_module.VERSIONS)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"op": "cube"}, ValueError, r"op: there is no 'cube'; there is .*layer_norm"),
        ({"op": torch.square}, TypeError, r"op: .* is of type builtin.*; wanted is one of"),
        ({"versions": "v9"}, ValueError, f"versions: there is no 'v9'; there is {VERSIONS}"),
        ({"versions": 3}, TypeError, "versions: 3 is of type int; wanted is a list"),
        ({"versions": []}, ValueError, "versions: the list is empty"),
        ({"dtypes": ["int8"]}, ValueError, "dtypes: there is no 'int8'; there is float64,"),
        ({"dtypes": [torch.int8]}, ValueError, "dtypes: there is no 'int8'; there is float64,"),
        ({"dtypes": [8]}, TypeError, "dtypes: 8 is of type int; wanted is one of float64,"),
        ({"rivals": ["jax"]}, ValueError, "rivals: there is no 'jax'; there is eager, compile"),
        ({"shapes": [64]}, ValueError, r"shapes: 64 is no pair \(rows, cols\)"),
        ({"shapes": (64, 64)}, ValueError, r"shapes: 64 is no pair \(rows, cols\)"),
        ({"shapes": [(1, 2, 3)]}, ValueError, r"shapes: \(1, 2, 3\) is no pair"),
        ({"shapes": [(0, 64)]}, ValueError, r"shapes: \(0, 64\) is no pair .*positive"),
        ({"shapes": [(1.5, 64)]}, ValueError, r"shapes: \(1.5, 64\) is no pair"),
        ({"shapes": []}, ValueError, "shapes: the list is empty"),
        ({"options": "dim"}, TypeError, "options: 'dim' is no dict of keywords"),
    ],
)
def test_bad_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=message):
        lab.compare(**{"op": "square"} | arguments)


def test_a_kernel_that_raises_says_on_which_case():
    with pytest.raises(TypeError) as caught:
        lab.compare("square", shapes=[(5, 33)], dtypes="float32", options={"nonsense": 1})
    assert "nonsense" in str(caught.value)
    assert "square forward float32 5 x 33" in caught.value.__notes__[0]


def test_importing_lab_builds_nothing_and_leaves_the_heavy_libraries_out():
    code = (
        "import sys, torch, lab; loaded = set(sys.modules); "
        "print(*({'pandas', 'matplotlib', 'IPython', 'kernels'} & loaded))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == ""
