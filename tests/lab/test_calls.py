"""lab.compare_calls: functions of one's own beside PyTorch's, in one table and one figure."""

import math
import re
from functools import partial

import pandas
import pytest
import torch
from jit_cases import write
from matplotlib.figure import Figure

import jitload
import lab
from lab.figure.calls import _figure
from lab.measure.calls import _arriving
from lab.measure.error import summarize

ON_GPU = jitload.device().type == "cuda"
DEVICE = jitload.device()

SOURCE = """
    __global__ void kernel(const float* x, float* y, int n) {
        const int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = x[i] * (2 + 1e-6f);
    }
    extern "C" void twice(const float* x, float* y, int n, cudaStream_t stream) {
        kernel<<<(n + 63) / 64, 64, 0, stream>>>(x, y, n);
    }
"""


@pytest.fixture
def kernel(in_scratch):
    return jitload.load(write("twice.cu", SOURCE))


@pytest.fixture
def mine(kernel):
    """Wrong by a few ULP."""

    def twice(x):
        y = torch.empty_like(x)
        kernel.twice(x, y, x.numel())
        return y

    return twice


@pytest.fixture
def x():
    return torch.rand(1000, device=DEVICE) + 1


def double(x):
    return 2 * x


def test_error_time_and_rate_of_every_call_stand_in_one_table(mine, x):
    table, figure = lab.compare_calls({"mine": mine, "torch": double}, inputs=x)
    assert isinstance(table, pandas.DataFrame)
    assert isinstance(figure, Figure)
    assert list(table["call"]) == ["mine", "torch"]
    truth = 2 * x.double()
    for row, result in zip(table.itertuples(), (mine(x), double(x)), strict=True):
        error = summarize([result], [truth])
        shown = (row.max_ulp, row.mean_ulp, row.max_error, row.mean_error)
        assert shown == (error.max_ulp, error.mean_ulp, error.max, error.mean)
    assert table["max_ulp"][0] > 1
    assert table["max_ulp"][1] == 0
    assert (table["time_us"] > 0).all()
    assert list(table["bytes"]) == [8000, 8000]
    clocks = ["GPU, cold L2"] * 2 if ON_GPU else ["CPU simulator", "CPU"]
    assert list(table["clock"]) == clocks
    assert table["percent_of_copy"].notna().all() == ON_GPU
    if not ON_GPU:
        assert table["bytes_fetched"][0] == 8000
        assert math.isnan(table["bytes_fetched"][1]), "PyTorch's launches no kernel"
        assert table["predicted_low_us"][0] < table["predicted_us"][0] < 10
        assert math.isnan(table["predicted_us"][1])
    assert table.attrs["truth"] == "torch"


def test_the_figure_shows_error_and_time_of_every_call(mine, x):
    figure = lab.compare_calls({"mine": mine, "torch": double}, inputs=x).figure
    error, cost = figure.axes
    assert [text.get_text() for text in error.get_yticklabels()] == ["mine", "torch"]
    largest = error.collections[0].get_offsets()[:, 0]
    assert largest[0] > 1
    assert largest[1] == 0
    assert not any(line.get_xdata().size for line in error.get_lines()), "a row and no line"
    bars = [bar.get_width() > 0 for bar in cost.patches]
    if ON_GPU:
        assert bars == [True, True]
        assert "% of copy" in cost.texts[0].get_text()
    else:
        assert bars == [True, False]
        assert cost.get_title("left") == "predicted time"
        it = lab.predict(mine, x, compile=None)
        form = r"(\S+) \((\S+) to (\S+)\)" if it.certain else r"measure: (\S+) to (\S+)"
        shown = re.fullmatch(form, cost.texts[0].get_text())
        times = [1e6 * time for time in (it.seconds, it.lower, it.upper)]  # of a small kernel
        told = [float(time) for time in shown.groups()]
        assert told == pytest.approx(times[-len(told) :], rel=0.01)
    assert "float32 1000; truth: torch in float64" in figure.get_supxlabel()


def test_the_figure_of_a_gpus_times_has_one_axis_percents_and_the_copy(x):
    given = {"mine": lambda x: x * 2, "torch": double}
    table = lab.compare_calls(given, inputs=x).table
    facts = table.attrs | {"target": "cuda", "device": "NVIDIA H200", "driver": "580.1"}
    facts |= {"clock": "GPU, cold L2", "copy_gb_per_s": 4250.0}
    table = table.assign(
        clock="GPU, cold L2", time_us=[20.0, 19.0], spread_us=0.4, percent_of_copy=[94.1, 99.2]
    )
    table.attrs = facts
    error, time = _figure(table).axes
    assert time.get_xlabel() == "time (µs)"
    assert [text.get_text() for text in time.texts] == ["20.0 (94% of copy)", "19.0 (99% of copy)"]
    assert time.get_legend_handles_labels()[1] == ["copy, 4250 GB/s"]
    assert error.get_xlabel() == "error (ULP)"
    right = time.get_window_extent().x1
    assert all(text.get_window_extent().x1 <= right for text in time.texts)


def test_the_figure_is_no_wider_than_a_notebook_beside_an_editor(mine, x):
    """JupyterLab would make the image smaller, and its text with it."""
    figure = lab.compare_calls({"mine": mine, "torch": double}, inputs=x).figure
    assert figure.bbox.width <= 620
    error, cost = figure.axes
    texts = [figure._suptitle, figure._supxlabel, error.title, cost.title, *cost.texts]
    assert all(text.get_window_extent().x1 <= figure.bbox.x1 for text in texts)
    bottom = error.get_window_extent().y0
    assert all(text.get_window_extent().y0 >= bottom for text in error.texts)


def test_a_notebook_shows_the_table_and_the_figure(mine, x, monkeypatch):
    display = pytest.importorskip("IPython.display")
    shown = []
    monkeypatch.setattr(display, "display", shown.append)
    comparison = lab.compare_calls({"torch": double}, inputs=x)
    comparison._ipython_display_()
    of_time = ["time_us", "percent_of_copy"] if ON_GPU else ["time_us"]
    assert list(shown[0]) == ["call", "max_ulp", *of_time], "what fits beside an editor"
    assert shown[1] is comparison.figure
    assert "max_ulp" in repr(comparison)
    lab.compare_calls({"mine": mine, "torch": double}, inputs=x)._ipython_display_()
    costs = of_time if ON_GPU else ["predicted_us", "bytes_fetched", "bytes"]
    assert list(shown[2]) == ["call", "max_ulp", *costs]


# ---- what calls take and return


def test_inputs_in_order_or_by_name_and_what_is_no_tensor():
    def scaled(x, factor, shift=0.0):
        return x * factor + shift

    x = torch.ones(8, device=DEVICE)
    for inputs in ([x, 3], (x, 3), iter([x, 3]), {"x": x, "factor": 3, "shift": x}):
        table = lab.compare_calls({"torch": scaled}, inputs=inputs).table
        assert table["max_ulp"][0] == 0


def test_several_results_are_taken_together(x):
    def wrong_second(x):
        return torch.sin(x), torch.cos(x) + 0.5

    def both(x):
        return torch.sin(x), torch.cos(x)

    table = lab.compare_calls({"mine": wrong_second, "torch": both}, inputs=x).table
    assert table["max_error"][0] == pytest.approx(0.5, rel=1e-3)
    assert table["max_error"][1] < 1e-6
    assert list(table["bytes"]) == [12000, 12000]


def test_whole_numbers_are_off_by_ones():
    x = torch.tensor([3.0, 1.0, 2.0], device=DEVICE)
    given = {"mine": lambda x: torch.argsort(x) + 2, "torch": torch.argsort}
    table = lab.compare_calls(given, inputs=x).table
    assert list(table["max_ulp"]) == [2, 0]


@pytest.mark.parametrize(("outputs", "by_name"), [(1, False), ([1], False), ("y", True)])
def test_a_call_may_write_to_an_input_which_is_put_back(kernel, x, outputs, by_name):
    def into(x, y):
        kernel.twice(x, y, x.numel())

    y = torch.full_like(x, 7)
    given = {"mine": into, "torch": lambda x, y: 2 * x}
    inputs = {"x": x, "y": y} if by_name else [x, y]
    table = lab.compare_calls(given, inputs=inputs, outputs=outputs).table
    assert 1 < table["max_ulp"][0] < 100
    assert list(table["bytes"]) == [8000, 8000], "y is written, not read"
    assert (y == 7).all()


def test_what_one_call_writes_no_other_call_sees(x):
    kept = x.clone()
    given = {"first": lambda x: x.mul_(2), "second": lambda x: x.mul_(2), "torch": double}
    table = lab.compare_calls(given, inputs=x).table
    assert list(table["max_ulp"]) == [0, 0, 0]
    assert torch.equal(x, kept)


def test_inputs_stay_as_they_lie_in_memory():
    seen = []

    def noting(x):
        seen.append((x.data_ptr(), x.stride()))
        return x * 2

    x = torch.rand(8, 9, device=DEVICE)[:, 1:]
    lab.compare_calls({"mine": noting, "torch": double}, inputs=x)
    assert set(seen) == {(x.data_ptr(), x.stride())}


def test_inputs_are_put_back_after_a_call_that_raises(x):
    kept = x.clone()

    def spoils(x):
        x.zero_()
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more") as caught:
        lab.compare_calls({"spoils": spoils, "torch": double}, inputs=x)
    assert caught.value.__notes__ == ["raised when calls['spoils'], forward, was called"]
    assert torch.equal(x, kept)


def test_bytes_may_be_given(x):
    table = lab.compare_calls({"torch": double}, inputs=x, bytes=123).table
    assert list(table["bytes"]) == [123]


# ---- gradients


class Cubed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * grad * x**2  # a third is missing


def test_backward_is_judged_and_timed_alone(x):
    x.requires_grad_()
    given = {"mine": Cubed.apply, "torch": lambda x: x**3}
    table, figure = lab.compare_calls(given, inputs=x, backward=True)
    assert list(table["direction"]) == ["forward"] * 2 + ["backward"] * 2
    assert list(table["call"]) == ["mine", "torch"] * 2
    assert table["max_ulp"][0] <= 2
    assert table["max_ulp"][2] > 1e6
    assert table["max_ulp"][3] <= 4
    assert list(table["bytes"]) == [8000, 8000, 12000, 12000]
    assert len({axes.get_title("left") for axes in figure.axes}) == len(figure.axes)
    assert x.grad is None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_arriving_gradient_is_the_same_in_every_type(dtype):
    (narrow,) = _arriving([torch.empty(10000, dtype=dtype)], 0)
    (wide,) = _arriving([torch.empty(10000, dtype=torch.float64)], 0)
    assert torch.equal(narrow.double(), wide)


# ---- the truth


def test_truth_may_be_a_function_a_name_or_tensors(x):
    given = {"mine": lambda x: 2 * x + 1, "other": double}
    for truth in (double, "other", 2 * x.double(), (2 * x.double(),), [2 * x.double()]):
        table = lab.compare_calls(given, inputs=x, truth=truth).table
        assert list(table["max_error"]) == pytest.approx([1, 0], abs=1e-6)


@pytest.mark.parametrize("name", ["torch", "PyTorch", "eager", "reference"])
def test_truth_is_pytorchs_call_in_float64_by_default(name, x):
    table = lab.compare_calls({"mine": torch.exp, name: torch.exp}, inputs=x).table
    assert list(table["max_ulp"]) == [summarize([x.exp()], [x.double().exp()]).max_ulp] * 2


def test_a_module_is_a_truth_with_its_weights_in_float64(x):
    module = torch.nn.Linear(1000, 8, device=DEVICE)
    table = lab.compare_calls({"torch": module}, inputs=x).table
    truth = torch.nn.functional.linear(x.double(), module.weight.double(), module.bias.double())
    assert table["max_error"][0] == (module(x) - truth).abs().max()
    assert module.weight.dtype == torch.float32


def test_truth_in_float64_is_not_computed_in_less(x):
    with pytest.raises(ValueError, match=r"truth: it is float32; wanted is float64\. A function"):
        lab.compare_calls({"torch": lambda x: x.float() * 2}, inputs=x)
    with pytest.raises(ValueError, match="truth: it is float32; wanted is float64"):
        lab.compare_calls({"mine": double}, inputs=x, truth=2 * x)


def test_a_kernel_for_float32_is_no_truth(mine, x):
    with pytest.raises(TypeError, match=r"x is torch\.float64; wanted torch\.float32") as caught:
        lab.compare_calls({"mine": mine}, inputs=x, truth="mine")
    assert "truth ('mine') was called with the inputs in float64" in caught.value.__notes__[0]


# ---- wrong input

ONES = torch.ones(3, device=DEVICE)


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({"calls": double}, TypeError, "calls: a function; wanted is a dict of functions by name"),
        ({"calls": [double]}, TypeError, "calls: a list; wanted is a dict"),
        ({"calls": {}}, ValueError, "calls: the dict is empty; wanted is a dict"),
        ({"calls": {3: double}}, TypeError, "calls: the name 3 is of type int"),
        (
            {"calls": {"mine": ONES}},
            TypeError,
            r"calls\['mine'\]: a Tensor; wanted is the function",
        ),
        ({"inputs": 3}, TypeError, "inputs: 3 is of type int; wanted is a tensor, a list"),
        ({"inputs": "x"}, TypeError, "inputs: 'x' is of type str; wanted is a tensor"),
        ({"inputs": [ONES[:0]]}, ValueError, "truth: it has no elements; wanted are inputs"),
        ({"outputs": 1}, ValueError, "outputs: 1 is no tensor of the inputs; those are 0"),
        ({"outputs": "y"}, ValueError, "outputs: 'y' is no tensor of the inputs; those are 0"),
        ({"truth": "numpy"}, ValueError, "truth: there is no call 'numpy'; there is torch"),
        ({"truth": 3}, TypeError, "truth: 3 is of type int; wanted is a function"),
        ({"truth": lambda x: None}, TypeError, "truth: returned None; wanted is a tensor"),
        ({"truth": lambda x: x[:2]}, ValueError, r"shape \(3,\); the truth has \(2,\)"),
        ({"truth": lambda x: (x, x)}, ValueError, "returned 1 tensors; the truth has 2"),
        (
            {"calls": {"mine": double}},
            ValueError,
            r"truth: it is missing, and none of the calls \(mine\) is named 'torch'; wanted is",
        ),
        (
            {"calls": {"mine": lambda x: None, "torch": double}},
            TypeError,
            r"calls\['mine'\]: returned None; .* as in outputs=1; else put it into a function",
        ),
        (
            {"calls": {"mine": lambda x: 2.0, "torch": double}},
            TypeError,
            r"calls\['mine'\]: returned a float; wanted is a tensor or a tuple of them",
        ),
        (
            {"calls": {"mine": lambda x: x + 1j, "torch": double}},
            TypeError,
            r"calls\['mine'\]: returned a tensor of torch.complex64",
        ),
        (
            {"calls": {"mine": lambda x: x.sum(), "torch": double}},
            ValueError,
            r"calls\['mine'\]: its result has shape \(\); the truth has \(3,\)",
        ),
        ({"backward": True}, ValueError, "backward: none of the inputs requires a gradient"),
        (
            {"backward": True, "inputs": ONES.clone().requires_grad_(), "truth": ONES.double()},
            ValueError,
            "truth: tensors say nothing of gradients",
        ),
    ],
)
def test_wrong_arguments_are_named(arguments, error, says):
    given = {"calls": {"torch": double}, "inputs": ONES} | arguments
    with pytest.raises(error, match=says):
        lab.compare_calls(given.pop("calls"), **given)


def test_a_kernel_is_no_call_and_has_no_gradient_by_itself(kernel, mine, x):
    with pytest.raises(TypeError, match=r"the kernel itself; wanted is .* one of twice\.twice"):
        lab.compare_calls({"mine": kernel, "torch": double}, inputs=x)
    x.requires_grad_()
    with pytest.raises(ValueError, match="has no gradient, though an input requires one"):
        lab.compare_calls(
            {"mine": lambda x: mine(x.detach()), "torch": double}, inputs=x, backward=True
        )


def test_compare_and_compare_builds_given_functions_name_compare_calls(kernel):
    wanted = r"lab.compare_calls\(\{\"mine\": f, \"torch\": g\}, inputs=x\)"
    for op in (double, {"mine": double}, kernel, "twice"):
        with pytest.raises((TypeError, ValueError), match=wanted):
            lab.compare(op)
    for more in ((double,), (double, double), ((64, 32),)):
        with pytest.raises(TypeError, match=f"^op: .* the name of one op, .* {wanted}"):
            lab.compare(double, *more)
    for given in (double, {"mine": double}, "twice"):
        with pytest.raises(TypeError, match=f"kernel: .*{wanted}"):
            lab.compare_builds(given, call=double)
    with pytest.raises(ValueError, match=wanted):
        lab.compare_builds(kernel, call=double)


def test_each_call_ends_with_a_verdict():
    x = torch.randn(4, 64)
    softmax = partial(torch.softmax, dim=-1)
    calls = {"zeros": torch.zeros_like, "mine": lambda x: softmax(x), "torch": softmax}
    comparison = lab.compare_calls(calls, inputs=x)
    assert comparison.table.attrs["verdict"].startswith("zeros: wrong; the largest error is ")
    assert repr(comparison).endswith(comparison.table.attrs["verdict"])
    both = {"mine": calls["mine"], "torch": softmax}
    verdict = lab.compare_calls(both, inputs=x).table.attrs["verdict"]
    assert verdict.startswith("mine: right; the largest error is ")
    assert "PyTorch's is" in verdict

    for call, word in (("zeros", "wrong"), ("mine", "right")):
        alone = lab.compare_calls({call: calls[call]}, inputs=x, truth=softmax)
        assert alone.table.attrs["verdict"].startswith(f"{call}: {word}")
    assert str(alone.table).endswith(alone.table.attrs["verdict"])


@pytest.mark.skipif(ON_GPU, reason="a GPU's own times are shown")
def test_a_table_shows_predicted_times_in_the_place_of_the_simulators(mine, x):
    table = lab.compare_calls({"mine": mine}, inputs=x, truth=double).table
    shown = set(re.findall("<th>(\\w+)</th>", table._repr_html_()))
    assert "predicted_us" in shown
    assert shown.isdisjoint({"time_us", "clock", "gb_per_s"})
    assert "Times are predicted for H200, not measured." in repr(table)
    assert table["time_us"][0] > 0


def test_a_truth_that_is_a_function_is_what_a_large_error_is_held_against():
    """Near zero many ULP are lost by PyTorch, too; tensors alone do not say so."""
    x = torch.linspace(3.14, 3.15, 500)
    calls = {"mine": lambda x: torch.sin(x.clone())}
    verdict = lab.compare_calls(calls, inputs=x, truth=lambda x: x.sin())
    assert re.fullmatch(
        r"mine: right; the largest error is \S+ ULP, PyTorch's is \S+\.",
        verdict.table.attrs["verdict"],
    )
    wrong = {"mine": lambda x: torch.sin(x) + 1e-3}
    verdict = lab.compare_calls(wrong, inputs=x, truth=torch.sin).table.attrs["verdict"]
    assert verdict.startswith("mine: wrong; the largest error is ")
    of_float64_alone = lab.compare_calls(
        {"mine": torch.zeros_like}, inputs=x, truth=lambda x: x.double().sin()
    )
    assert of_float64_alone.table.attrs["verdict"].startswith("mine: wrong; ")


def test_beside_tensors_alone_the_verdict_says_how_many_digits_are_right():
    x = torch.linspace(1, 2, 500)
    calls = {"mine": lambda x: torch.sin(x) * (1 + 3e-5)}
    verdict = lab.compare_calls(calls, inputs=x, truth=x.double().sin()).table.attrs["verdict"]
    assert re.fullmatch(r"mine: right to 4 digits; the largest error is \d+ ULP\.", verdict)

    # Near 0 nothing is left of a value's digits.
    for first, off, words in ((0, 3e-7, "right; "), (0, 0.01, "wrong; "), (1, 0.01, "wrong in ")):
        x = torch.linspace(first, 6.28, 501, dtype=torch.float64)
        calls = {"mine": lambda x, off=off: (x.sin() + off).float()}
        verdict = lab.compare_calls(calls, inputs=x, truth=x.sin()).table.attrs["verdict"]
        assert verdict.startswith(f"mine: {words}")
