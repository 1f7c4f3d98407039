"""The figures: what is drawn, what the axes say, and what is left out without a GPU."""

import itertools

import matplotlib
import matplotlib.figure
import pandas
import pytest
import torch
from op_cases import mostly_slow
from tables import SHAPES, as_if

import jitload
import lab
import reference
from kernels import square as square_module
from lab.figure import histogram
from lab.style import drawing

ON_GPU = jitload.device().type == "cuda"


def labels(axes):
    return axes.get_legend_handles_labels()[1]


def line(axes, label):
    handles, names = axes.get_legend_handles_labels()
    return handles[names.index(label)]


def caption(figure):
    return figure.get_supxlabel()


EVERY_PLOT = pytest.mark.parametrize(
    "plot",
    [
        lab.plot_bandwidth,
        lab.plot_time,
        lambda table: lab.plot_versions(table[table["cols"] == 32]),
    ],
    ids=["bandwidth", "time", "versions"],
)


@EVERY_PLOT
def test_the_copy_is_drawn_on_a_gpu_alone(plot, measured):
    on_gpu = plot(as_if(measured, "cuda"))
    assert any("copy, 4253 GB/s" in labels(axes) for axes in on_gpu.axes)
    assert "NVIDIA H200, driver 580.1, torch" in caption(on_gpu)
    assert "cold L2" in caption(on_gpu)

    simulated = plot(as_if(measured, "cpu"))
    assert not any("copy" in label for axes in simulated.axes for label in labels(axes))
    assert not any("eager" in labels(axes) for axes in simulated.axes)
    assert "no GPU, so no time" in caption(simulated)
    assert "published, NVIDIA H" in caption(simulated)
    assert any("bytes fetched" in text for axes in simulated.axes for text in axis_labels(axes))
    assert not any("µs" in text for axes in simulated.axes for text in axis_labels(axes))


def axis_labels(axes):
    return axes.get_xlabel(), axes.get_ylabel()


def test_bandwidth_on_a_gpu(measured):
    table = as_if(measured, "cuda")
    figure = lab.plot_bandwidth(table)
    assert isinstance(figure, matplotlib.figure.Figure)
    assert figure.get_suptitle() == "square: bandwidth against row width"
    assert [axes.get_title() for axes in figure.axes] == ["", ""]
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    assert titles == ["forward, float32", "forward, bfloat16"]
    axes = figure.axes[0]
    assert axis_labels(axes) == ("row width (columns)", "bandwidth (GB/s)")
    assert axes.get_xscale() == "log"
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["32", "128", "512"]
    assert axes.get_ylim()[0] == 0
    rows = table[(table["dtype"] == "float32") & (table["implementation"] == "eager")]
    x, y = line(axes, "eager").get_data()
    assert list(x) == [32, 128, 512]
    assert list(y) == list(rows["gb_per_s"])
    assert list(line(axes, "copy, 4253 GB/s").get_ydata()) == [4253.2, 4253.2]


@pytest.mark.parametrize("plot", [lab.plot_bandwidth, lab.plot_time])
def test_figures_of_the_simulator_show_the_bytes_fetched(plot, measured):
    axes = plot(as_if(measured, "cpu")).axes[0]
    assert axes.get_ylabel() == "bytes fetched / least bytes"
    assert list(line(axes, f"ours:{square_module.VERSIONS[0]}").get_ydata()) == [2.0] * len(SHAPES)


def test_predicted_times_are_drawn_apart_with_their_intervals(measured):
    table = as_if(measured, "cpu", predicted=True)
    name = f"ours:{square_module.VERSIONS[0]}"
    first = table[(table["implementation"] == name) & (table["dtype"] == "float32")]
    for plot, ylabel, heights in (
        (lab.plot_time, "predicted time (µs), 90% interval", first["predicted_us"]),
        (
            lab.plot_bandwidth,
            "predicted bandwidth (GB/s)",
            1e-3 * first["bytes"] / first["predicted_us"],
        ),
    ):
        figure = plot(table)
        axes = figure.axes[0]
        assert axes.get_ylabel() == ylabel
        drawn = axes.containers[0]
        assert drawn.get_label() == name
        assert sorted(drawn[0].get_ydata()) == pytest.approx(sorted(heights))
        (bars,) = drawn[2]
        ends = sorted(max(y / x, x / y) for (_, x), (_, y) in bars.get_segments())
        assert ends == pytest.approx([1.1**2] * len(heights))
        assert "predicted by lab.predict for H200" in caption(figure)


def test_predicted_versions_are_hatched_and_what_is_too_uncertain_says_measure(measured):
    table = as_if(measured, "cpu", predicted=True)
    table = table[(table["cols"] == 32) & (table["dtype"] == "float32")]
    time = lab.plot_versions(table).axes[1]
    assert all(bar.get_hatch() for bar in time.patches)
    assert time.get_xlabel() == "predicted time (µs), 90% interval"
    texts = [text.get_text() for text in time.texts]
    assert texts[0] == "4.32 (3.93 to 4.75)"
    assert texts[1:] == ["measure: 3.32 to 5.62"] * (len(square_module.VERSIONS) - 1)


def test_time_against_bytes(measured):
    table = as_if(measured, "cuda")
    axes = lab.plot_time(table).axes[0]
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert axis_labels(axes) == ("least bytes to move", "time (µs)")
    ours = table[table["implementation"] == f"ours:{square_module.VERSIONS[-1]}"]
    x, y = line(axes, f"ours:{square_module.VERSIONS[-1]}").get_data()
    rows = ours[ours["dtype"] == "float32"]
    assert list(x) == list(rows["bytes"])
    assert list(y) == list(rows["time_us"])
    x, y = line(axes, "copy, 4253 GB/s").get_data()
    assert list(y) == pytest.approx([1e-3 * size / 4253.2 for size in x])


def test_versions_show_error_and_time(measured):
    table = as_if(measured, "cuda")
    table = table[(table["cols"] == 32) & (table["dtype"] == "float32")]
    error, time = lab.plot_versions(table).axes
    assert axis_labels(error)[0] == "error (ULP)"
    assert axis_labels(time)[0] == "time (µs)"
    names = [label.get_text() for label in error.get_yticklabels()]
    assert names == list(square_module.VERSIONS)
    assert error.yaxis_inverted()  # the first version on top
    assert {"PyTorch's largest", "PyTorch's mean", "largest", "mean"} <= set(labels(error))
    ours = table[table["implementation"] != "eager"]
    largest, mean = (points.get_offsets()[:, 0] for points in error.collections)
    assert list(largest) == list(ours["max_ulp"])
    assert list(mean) == list(ours["mean_ulp"])
    assert [bar.get_width() for bar in time.patches] == list(ours["time_us"])


@EVERY_PLOT
def test_what_ran_on_the_cpu_itself_is_not_drawn_beside_the_simulators(plot, measured):
    """As a gradient that is a view, or a version that launches no kernel."""
    table = as_if(measured, "cpu")
    naive, *others = (f"ours:{version}" for version in square_module.VERSIONS)
    table.loc[table["implementation"] == naive, "clock"] = "CPU"
    figure = plot(table)
    said = [" ".join(axis_labels(axes)) for axes in figure.axes]
    fetched = [
        drawn(axes) for axes, text in zip(figure.axes, said, strict=True) if "bytes fetch" in text
    ]
    assert fetched == [others] * len(fetched) != []
    assert not any("the CPU's own" in text for text in (*said, caption(figure)))

    table["clock"] = "CPU"
    figure = plot(table)
    assert any("the CPU's own time" in text for axes in figure.axes for text in axis_labels(axes))
    assert "times are the CPU's own" in caption(figure)


def test_what_lab_check_could_not_count_is_said(measured):
    table = as_if(measured[measured["cols"] == 32], "cpu").assign(bytes_fetched=float("nan"))
    panel = lab.plot_versions(table).axes[1]
    assert "could not count" in panel.texts[-1].get_text()


def drawn(axes):
    """The versions that a panel shows by lines or bars."""
    bars = zip(square_module.VERSIONS, axes.patches, strict=False)
    return labels(axes) or [f"ours:{version}" for version, bar in bars if bar.get_width() > 0]


def test_versions_that_return_nonsense_are_drawn_too(measured):
    table = as_if(measured, "cuda")
    table = table[(table["cols"] == 32) & (table["dtype"] == "float32")].copy()
    table[["max_ulp", "mean_ulp"]] = float("inf")
    error, _ = lab.plot_versions(table).axes
    end = error.get_xlim()[1]
    assert all((points.get_offsets()[:, 0] < end).all() for points in error.collections)


@pytest.fixture
def errors_panel(measured):
    """The panel of errors where our versions, and PyTorch's op, have these."""

    def panel(largest, mean, torchs=0.5):
        table = as_if(measured, "cuda")
        table = table[(table["cols"] == 32) & (table["dtype"] == "float32")].copy()
        table["max_ulp"], table["mean_ulp"] = largest, mean
        table["torch_max_ulp"], table["torch_mean_ulp"] = torchs, torchs / 2
        return lab.plot_versions(table).axes[0]

    return panel


def ticks(axes, minor=False):
    """Where they are, and what is written there."""
    low, high = axes.get_xlim()
    places, texts = axes.get_xticks(minor=minor), axes.get_xticklabels(minor=minor)
    pairs = zip(places, texts, strict=True)
    return {place: text.get_text() for place, text in pairs if low <= place <= high}


@pytest.mark.parametrize(("most", "torchs"), [(0.0, 0.0), (0.4, 0.5), (1.97, 0.5), (3.1, 9.9)])
def test_small_errors_stand_on_a_linear_axis_with_their_numbers(errors_panel, most, torchs):
    axes = errors_panel(most, most / 4, torchs)
    assert axes.get_xscale() == "linear"
    shown = ticks(axes)
    assert len(shown) >= 3
    assert all(float(text) == pytest.approx(place) for place, text in shown.items())
    assert max(shown) > 0.6 * max(most, torchs)
    versions = len(square_module.VERSIONS)
    numbers = [float(text.get_text()) for text in axes.texts]
    assert numbers == pytest.approx([most] * versions + [most / 4] * versions, abs=0.006)


@pytest.mark.parametrize(
    ("largest", "written"),
    [
        (11.0, {2: "2", 5: "5", 20: "20"}),
        (45.0, {2: "2", 5: "5", 20: "20", 50: "50", 100: "100"}),
    ],
)
def test_large_errors_stand_on_a_log_axis_with_numbers_between_the_powers_of_ten(
    errors_panel, largest, written
):
    axes = errors_panel(largest, 0.3)
    shown = ticks(axes) | ticks(axes, minor=True)
    assert {0: "0", 1: "1", 10: "10"}.items() <= shown.items()
    assert written.items() <= shown.items()


@pytest.mark.parametrize("largest", [11, 45, 95, 1e3, 3e4, 1e6, 3e8, 1e11, float("inf")])
def test_numbers_of_the_axis_of_errors_do_not_overlap(errors_panel, largest):
    axes = errors_panel(largest, 0.3)
    texts = [*axes.get_xticklabels(), *axes.get_xticklabels(minor=True)]
    low, high = axes.get_xlim()
    texts = [text for text in texts if text.get_text() and low <= text.get_position()[0] <= high]
    spans = sorted((box.x0, box.x1) for box in (text.get_window_extent() for text in texts))
    assert len(spans) >= 4
    assert all(left[1] < right[0] for left, right in itertools.pairwise(spans))


@pytest.mark.parametrize(
    ("ulp", "text"),
    [
        (0, "0"),
        (0.0004, "0.0004"),
        (0.5, "0.50"),
        (1.968, "1.97"),
        (14.04, "14.0"),
        (4546.3, "4546"),
        (3.2e8, "3e+08"),
        (float("inf"), "inf"),
    ],
)
def test_the_number_of_an_error_is_short(errors_panel, ulp, text):
    assert errors_panel(ulp, 0.0).texts[0].get_text() == text


def test_versions_measures_by_name():
    figure = lab.plot_versions("square", shape=(5, 33))
    assert len(figure.axes) == 2
    assert "5 x 33" in caption(figure)


def test_error_histogram_is_ours_over_pytorchs():
    figure = lab.plot_error("layer_norm", shape=(16, 64), backward=True)
    titles = [axes.get_title(loc="left") for axes in figure.axes]
    results = ["output", "gradient of x", "gradient of weight", "gradient of bias"]
    assert titles == [f"{what}, {dtype}" for what in results for dtype in ("float32", "bfloat16")]
    for axes in figure.axes:
        torchs, ours = axes.patches
        assert torchs.get_fill()
        assert not ours.get_fill()
        for histogram_ in (torchs, ours):
            assert sum(histogram_.get_data().values) == pytest.approx(100)
        assert labels(axes)[0] == "PyTorch"
        assert labels(axes)[1].startswith("ours:")
    assert figure.axes[-1].get_xlabel() == "error (ULP)"
    assert figure.axes[0].get_ylabel() == "elements (%)"
    assert "16 x 64" in caption(figure)


def test_histogram_bins():
    truth = torch.ones(4, dtype=torch.float64)
    steps = torch.tensor([0.0, 1.0, 3.0, 2.0**20])
    shares = histogram.shares(1 + steps * 2.0**-23, truth)
    filled = {histogram.EDGES[bin_]: share for bin_, share in enumerate(shares) if share}
    assert filled == {
        histogram.EDGES[0]: 25.0,  # exact
        2**-0.5: 25.0,  # up to 1
        2.0 * 2**0.5: 25.0,
        histogram.EDGES[-2]: 25.0,  # beyond the last edge
    }


@pytest.mark.parametrize("op", mostly_slow(reference.OPS), ids=str)
def test_every_op_has_its_figures(op):
    """Also where all errors are 0, and where a result is a single number."""
    lab.plot_error(op, shape=(4, 40), dtypes=["float32"])
    table = lab.compare(op, shapes=[(4, 40), (2, 80)], dtypes=["float32"], rivals=["eager"])
    for plot in (lab.plot_bandwidth, lab.plot_time):
        assert len(plot(table).axes) == len(reference.OPS[op].options)


def test_an_implementation_looks_the_same_in_every_figure():
    versions = ("naive", "warp", "vector", "best")
    looks = [drawing.look(label, versions)["color"] for label in ("eager", "compile")]
    looks += [drawing.look(f"ours:{version}", versions)["color"] for version in versions]
    assert len(set(looks)) == 6
    assert drawing.look("ours:best", versions) == drawing.look("ours:best", versions)
    lightness = [lightness_of(color) for color in looks[2:]]
    assert lightness == sorted(lightness, reverse=True)  # the better, the darker


def lightness_of(color):
    red, green, blue = matplotlib.colors.to_rgb(color)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_a_single_version_has_the_look_of_the_best():
    best = drawing.look("ours:b", ("a", "b"))["color"]
    assert drawing.look("ours:only", ("only",))["color"] == best


@EVERY_PLOT
def test_nothing_of_the_users_matplotlib_changes(plot, measured):
    with matplotlib.rc_context({"font.size": 31, "axes.grid": False, "backend": "svg"}):
        before = dict(matplotlib.rcParams)
        figure = plot(as_if(measured, "cuda"))
        assert dict(matplotlib.rcParams) == before
    assert figure.axes[0].xaxis.label.get_fontsize() == 10


@EVERY_PLOT
def test_the_legend_lies_beside_the_panels(plot, measured):
    figure = plot(as_if(measured, "cuda"))
    (legend,) = figure.legends
    left = legend.get_window_extent().x0
    assert all(axes.get_window_extent().x1 < left for axes in figure.axes)
    title, right = figure._suptitle.get_window_extent(), figure.bbox.x1
    assert not title.overlaps(legend.get_window_extent())
    assert legend.get_window_extent().x1 <= right
    assert figure._supxlabel.get_window_extent().x1 <= right


def test_a_notebook_shows_it_as_png(measured):
    png = lab.plot_time(as_if(measured, "cuda"))._repr_png_()
    assert png.startswith(b"\x89PNG")


@EVERY_PLOT
@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        (lambda table: None, TypeError, "a NoneType; wanted is what lab.compare returns"),
        (lambda table: table[:0], ValueError, "no row has a time"),
        (lambda table: table.drop(columns="time_us"), ValueError, "has no column time_us; wanted"),
        (lambda table: pandas.DataFrame(table.to_dict()), ValueError, "attrs, .*, are gone"),
    ],
    ids=["none", "empty", "column", "attrs"],
)
def test_a_wrong_table_is_refused(plot, spoil, error, message, measured, request):
    if plot not in (lab.plot_bandwidth, lab.plot_time):
        plot = lab.plot_versions
    with pytest.raises(error, match=message):
        plot(spoil(measured))


def test_versions_wants_one_shape(measured):
    with pytest.raises(ValueError, match="op: a table must hold our versions at one shape"):
        lab.plot_versions(measured)


@pytest.mark.parametrize("plot", [lab.plot_error, lab.plot_versions])
def test_bad_arguments_are_named(plot):
    with pytest.raises(ValueError, match="op: there is no 'cube'; there is"):
        plot("cube")
    with pytest.raises(ValueError, match="shape: 5 is no pair"):
        plot("square", shape=5)
