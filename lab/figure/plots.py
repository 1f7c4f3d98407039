"""Figures of error and time. Each function returns a matplotlib Figure.

On a GPU a figure of time shows the copy that was measured in the same run. The simulator's time
says nothing about a GPU's, so without a GPU a figure shows the predicted time, hatched and with its
90% interval, or the bytes that kernels fetch if there is no prediction; its caption has the
published time. For work on the CPU itself the figure shows CPU time, unless other rows ran on the
simulator.
"""

import itertools
import math
import textwrap
from collections.abc import Callable, Iterable

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame, Series

import jitload
from lab.figure import histogram
from lab.measure import arguments
from lab.measure.case import Case
from lab.measure.compare import compare
from lab.measure.progress import progress
from lab.measure.timing import (
    CLOCKS,
    CPU_CLOCK,
    GPU_CLOCK,
    PREDICTED,
    SIMULATOR_CLOCK,
    environment,
)
from lab.measure.without_gpu import published
from lab.predictor.report import CERTAIN
from lab.rivals.implementation import ours
from lab.rivals.pytorch import eager
from lab.style import drawing

GPU_SHAPE = (16384, 4096)
SIMULATOR_SHAPE = (64, 1024)

CAPTION = 90  # characters in a line
WORST_ULP = 1e12  # larger errors are drawn here
LINEAR_ULP = 10  # a linear axis shows errors up to this
LOG_RATIO = 50  # beyond this ratio of times, the shorter bar would be invisible on a linear axis

TITLES = {
    GPU_CLOCK: "time",
    PREDICTED: "predicted time",
    SIMULATOR_CLOCK: "bytes fetched",
    CPU_CLOCK: "time on the CPU itself",
}
LABELS = {
    GPU_CLOCK: "time (µs)",
    PREDICTED: "predicted time (µs), 90% interval",
    SIMULATOR_CLOCK: "bytes fetched / least bytes",
    CPU_CLOCK: "the CPU's own time (µs)",
}
RATES = {GPU_CLOCK: "bandwidth", PREDICTED: "predicted bandwidth"}
PREDICTED_LINE = {"linestyle": ":", "capsize": 2, "elinewidth": 0.8}
CONDITIONS = {
    GPU_CLOCK: "median, cold L2",
    PREDICTED: "no GPU, so no measured time: predicted by lab.predict for",
    SIMULATOR_CLOCK: "no GPU, so no time: bytes in sectors of 32, counted by lab.check",
    CPU_CLOCK: "times are the CPU's own",
}


def plot_bandwidth(table: DataFrame) -> Figure:
    """Bandwidth (GB/s) against row width, with the line of the measured copy.

    One panel per direction and type. Without a GPU it is the bandwidth of the predicted time, with
    its 90% interval; without a prediction, the bytes fetched in multiples of the minimum.

    table: the result of `compare`, or a selection of its rows.
    """
    table = _timed("table", table)
    facts = table.attrs
    clocks = clocks_of(table)
    what = RATES.get(clocks[0], TITLES[clocks[0]])
    with drawing.style():
        figure, panels = _panels(table)
        for axes, clock, rows in panels:
            rows = _with_heights(rows, clock, rates=clock in RATES)
            _lines(axes, rows, "cols", clock)
            if clock == GPU_CLOCK:
                _copy_line(axes, rows["cols"], lambda cols: facts["copy_gb_per_s"], facts)
            axes.set_xscale("log", base=2)
            drawing.ticks_at(axes.xaxis, sorted(set(table["cols"])))
            axes.set_ylim(0, 1.1 * rows["height"].max())
            axes.set_xlabel("row width (columns)")
            axes.set_ylabel(f"{RATES[clock]} (GB/s)" if clock in RATES else LABELS[clock])
        return drawing.finish(figure, f"{facts['op']}: {what} against row width", _caption(table))


def plot_time(table: DataFrame) -> Figure:
    """Time (microseconds) against the minimum of bytes to move, on log axes.

    One panel per direction and type. On a GPU the dashed line is the time of the measured copy for
    as many bytes. Without a GPU the time is predicted, with its 90% interval; without a prediction,
    the y axis is the bytes fetched, in multiples of the minimum.

    table: the result of `compare` for several sizes, such as `shapes=lab.sizes()`, or a selection
        of its rows.
    """
    table = _timed("table", table)
    facts = table.attrs
    with drawing.style():
        figure, panels = _panels(table)
        for axes, clock, rows in panels:
            rows = _with_heights(rows, clock)
            _lines(axes, rows, "bytes", clock)
            if clock == GPU_CLOCK:
                _copy_line(axes, rows["bytes"], lambda size: _copy_time_us(size, facts), facts)
            axes.set_xscale("log")
            drawing.log_ticks(axes.xaxis, rows["bytes"], unit="B")
            if clock == SIMULATOR_CLOCK:
                axes.set_ylim(0, 1.1 * rows["height"].max())
            else:
                axes.set_yscale("log")
                drawing.log_ticks(axes.yaxis, rows["height"])
            axes.set_xlabel("least bytes to move")
            axes.set_ylabel(LABELS[clock])
        what = f"{TITLES[clocks_of(table)[0]]} against bytes"
        return drawing.finish(figure, f"{facts['op']}: {what}", _caption(table))


def plot_error(
    op: str,
    *,
    shape: tuple[int, int] | None = None,
    dtypes: Iterable[torch.dtype | str] = (torch.float32, torch.bfloat16),
    version: str | None = None,
    options: dict[str, object] | None = None,
    backward: bool = False,
    seed: int = 0,
) -> Figure:
    """Histogram of the error in ULP, ours over PyTorch's, both against the float64 truth.

    One column of panels per type; one row for the output and, with `backward`, one for each
    gradient. The first bin takes all errors up to 1/16 ULP, including exact results. Correctly
    rounded results lie left of the dotted line.

    op, dtypes, backward, seed: as for `compare`.
    shape: (rows, cols), default by target.
    version: a name, default the best.
    options: default the first that reference.py lists.
    """
    found = arguments.an_op(op)
    name = arguments.version(found, version)
    size = arguments.shape(default_shape() if shape is None else shape)
    option = arguments.options(found, options)[0]
    chosen = arguments.dtypes(dtypes)
    device = jitload.device()

    lines: dict[str, list[histogram.Shares]] = {}  # by result: one histogram per type
    with progress(len(chosen) * (2 if backward else 1)) as step:
        for is_backward in (False, True) if backward else (False,):
            for dtype in chosen:
                case = Case(found, size, dtype, device, option, is_backward, seed)
                step(f"error of {case}")
                pair = (eager(found), ours(found, name))
                for result, shares in histogram.shares_by_result(case, pair):
                    lines.setdefault(result, []).append(shares)

    with drawing.style():
        figure, axes = drawing.grid(len(lines), len(chosen), (3.8, 2.7), sharex=True, sharey=True)
        for panels, (result, per_type) in zip(axes, lines.items(), strict=True):
            panels[0].set_ylabel("elements (%)")
            for panel, dtype, shares in zip(panels, chosen, per_type, strict=True):
                histogram.draw(panel, shares, arguments.all_versions(found))
                panel.set_title(f"{result}, {arguments.dtype_name(dtype)}")
        histogram.set_axes(axes[0][0], itertools.chain(*lines.values()))
        for panel in axes[-1]:
            panel.set_xlabel("error (ULP)")
        facts = environment(device)
        what = f"{size[0]} x {size[1]}, truth: the reference in float64, {facts['date']}"
        title = f"{op}: error in units in the last place"
        return drawing.finish(figure, title, f"{machine(facts)}\n{what}")


def plot_versions(
    op: str | DataFrame,
    *,
    shape: tuple[int, int] | None = None,
    dtypes: Iterable[torch.dtype | str] = (torch.float32,),
    versions: str | Iterable[str] = "all",
    options: dict[str, object] | None = None,
    backward: bool = False,
    seed: int = 0,
) -> Figure:
    """Versions of our kernel compared: error at the left, time at the right; without a GPU the
    predicted time, or bytes fetched in multiples of the minimum.

    One row of panels per direction and type. The error is the largest (filled) and the mean
    (hollow) in ULP, with lines for PyTorch's own. On a GPU the dashed line is the time of the
    measured copy for as many bytes.

    op: a name; or the table of `compare(NAME, versions="all", ...)` for one shape, which is then
        drawn as it is.
    shape: (rows, cols), default by target. The other keywords are those of `compare`.
    """
    if isinstance(op, str):
        op = compare(
            op,
            shapes=[arguments.shape(default_shape() if shape is None else shape)],
            dtypes=dtypes,
            versions=versions,
            rivals=(),
            options=options,
            backward=backward,
            seed=seed,
        )
    table = _timed("op", op)
    table = table[table["implementation"].str.startswith("ours:")]
    if len(set(zip(table["rows"], table["cols"], strict=True))) != 1:
        raise ValueError(
            "op: a table must hold our versions at one shape; "
            "wanted is a name, or lab.compare(NAME, versions='all', shapes=[(rows, cols)])"
        )
    facts = table.attrs
    groups = list(table.groupby(["direction", "options", "dtype"], sort=False))
    clocks = clocks_of(table)
    height = 1.0 + 0.4 * table["implementation"].nunique()
    with drawing.style():
        figure, axes = drawing.grid(len(groups), 1 + len(clocks), (3.8, height), sharey=True)
        for (left, *right), (key, rows) in zip(axes, groups, strict=True):
            version_errors(left, rows, facts)
            left.set_title(f"{_listed(key)}: error")
            for panel, clock in zip(right, clocks, strict=True):
                if clock in set(rows["clock"]):
                    version_times(panel, rows, facts, clock)
                    panel.set_title(TITLES[clock])
                else:
                    panel.set_visible(False)
        axes[0][0].invert_yaxis()  # put the first version on top
        return drawing.finish(figure, f"{facts['op']}: version against version", _caption(table))


def default_shape() -> tuple[int, int]:
    return GPU_SHAPE if jitload.device().type == "cuda" else SIMULATOR_SHAPE


def clocks_of(table: DataFrame) -> list[str]:
    """The clocks whose rows a figure shows: times of different clocks do not compare. CPU times are
    omitted beside the simulator's.
    """
    there = [clock for clock in CLOCKS if clock in set(table["clock"])]
    of_kernels = {PREDICTED, SIMULATOR_CLOCK} & {*there}
    return [clock for clock in there if clock != CPU_CLOCK or not of_kernels]


def with_predictions(table: DataFrame) -> DataFrame:
    """The table as figures show it: simulator rows have their predicted time, if any."""
    if "predicted_us" not in table:
        return table
    known = table["predicted_us"].notna() & (table["clock"] == SIMULATOR_CLOCK)
    return table.assign(
        clock=table["clock"].mask(known, PREDICTED),
        time_us=table["time_us"].mask(known, table["predicted_us"]),
    )


def conditions(table: DataFrame) -> str:
    """How the times of a figure were taken, or what it shows instead."""
    clocks, gpu = clocks_of(table), table.attrs.get("predicted_for")
    return ", ".join(CONDITIONS[it] + f" {gpu}" * (it == PREDICTED) for it in clocks)


def _costs(rows: DataFrame, clock: str) -> Series:
    """Time, µs; or bytes fetched in multiples of the minimum. NaN for other clocks."""
    if clock != SIMULATOR_CLOCK:
        costs = rows["time_us"]
    else:
        costs = rows["bytes_fetched"] / rows["bytes"].where(rows["bytes"] > 0)
    return costs.where(rows["clock"] == clock)


def _timed(argument: str, table: object) -> DataFrame:
    """The rows with a time in a table of `compare`; raises if it is no such table."""
    wanted = "wanted is what lab.compare returns, or a selection of its rows"
    if not isinstance(table, DataFrame):
        raise TypeError(f"{argument}: a {type(table).__name__}; {wanted}")
    missing = {"direction", "implementation", "time_us", "clock", "bytes"} - set(table.columns)
    if missing:
        raise ValueError(f"{argument}: has no column {', '.join(sorted(missing))}; {wanted}")
    if "copy_gb_per_s" not in table.attrs:
        raise ValueError(
            f"{argument}: its attrs, the conditions of the run, are gone, "
            f"as after pandas.concat of two runs; {wanted}"
        )
    timed = with_predictions(table[table["time_us"].notna()])
    if timed.empty:
        raise ValueError(f"{argument}: no row has a time; {wanted}")
    return timed


def _panels(table: DataFrame) -> tuple[Figure, list[tuple[Axes, str, DataFrame]]]:
    """A figure, and its panels with their clock and rows.

    Types go across; directions, options and clocks go down.
    """
    table = table[table["clock"].isin(clocks_of(table))]
    lines = list(table.groupby(["direction", "options", "clock"], sort=False))
    dtypes = list(dict.fromkeys(table["dtype"]))
    figure, axes = drawing.grid(len(lines), len(dtypes), (3.8, 2.9))
    panels = []
    for y, ((direction, options, clock), line) in enumerate(lines):
        for x, dtype in enumerate(dtypes):
            axes[y][x].set_title(_listed((direction, options, dtype)))
            panels.append((axes[y][x], clock, line[line["dtype"] == dtype]))
    return figure, panels


def _listed(words: Iterable[str]) -> str:
    return ", ".join(word for word in words if word)


def _with_heights(rows: DataFrame, clock: str, rates: bool = False) -> DataFrame:
    """Add the columns height, low and high: the value drawn for a row, and its interval.

    rates: GB/s in place of the time.
    """
    drawn = {"height": _costs(rows, clock)}
    if clock == PREDICTED:
        drawn |= {"low": rows["predicted_low_us"], "high": rows["predicted_high_us"]}
    if rates:
        drawn = {name: 1e-3 * rows["bytes"] / times for name, times in drawn.items()}
    return rows.assign(**drawn)


def _lines(axes: Axes, rows: DataFrame, x: str, clock: str) -> None:
    """One line with markers per implementation; predictions are dotted, with intervals."""
    for label, points in rows.groupby("implementation", sort=False):
        points = points.sort_values([x, "rows"])
        look = drawing.look(label, rows.attrs["versions"])
        if clock == PREDICTED:
            ends = points[["low", "high"]].sub(points["height"], axis=0).abs().T.to_numpy()
            if points["low"].gt(points["high"]).any():  # of rates: the bounds are swapped
                ends = ends[::-1]
            axes.errorbar(points[x], points["height"], ends, label=label, **look, **PREDICTED_LINE)
        else:
            axes.plot(points[x], points["height"], label=label, **look)


def _copy_line(
    axes: Axes, x: Iterable[float], height: Callable[[float], float], facts: dict
) -> None:
    """The measured copy as height(x), from the smallest to the largest x."""
    ends = [min(x), max(x)]
    axes.plot(ends, [height(end) for end in ends], label=_copy_label(facts), **drawing.COPY_LINE)


def _copy_label(facts: dict) -> str:
    return f"copy, {facts['copy_gb_per_s']:.0f} GB/s"


def _copy_time_us(size: float, facts: dict) -> float:
    """Microseconds of the measured copy for `size` bytes."""
    return 1e-3 * size / facts["copy_gb_per_s"]


def version_errors(axes: Axes, rows: DataFrame, facts: dict) -> None:
    """Largest and mean error of each version in ULP, with numbers above and below the dots.

    Lines show PyTorch's own errors, if the table has them. The axis is linear if all errors are
    small (LINEAR_ULP), else linear up to 1 and logarithmic beyond. Errors beyond WORST_ULP,
    including infinite ones, are drawn there.
    """
    names, colors = _names_and_colors(rows, facts)
    largest, mean = rows["max_ulp"].clip(upper=WORST_ULP), rows["mean_ulp"].clip(upper=WORST_ULP)
    most = largest.max()
    if "torch_max_ulp" in rows:
        own = drawing.look("eager", facts["versions"])["color"]
        torch_largest, torch_mean = rows[["torch_max_ulp", "torch_mean_ulp"]].iloc[0]
        torch_largest = min(torch_largest, WORST_ULP)
        axes.axvline(torch_largest, color=own, label="PyTorch's largest")
        axes.axvline(torch_mean, color=own, linestyle=":", label="PyTorch's mean")
        most = max(most, torch_largest)
    axes.plot([], [], "o", color="0.35", label="largest")
    axes.plot([], [], "o", color="0.35", markerfacecolor="white", label="mean")
    dots = {"s": 55, "zorder": 3, "edgecolor": colors}
    axes.scatter(largest, names, facecolor=colors, **dots)
    axes.scatter(mean, names, facecolor="white", **dots)
    drawing.numbers(axes, largest, names, map(_error_text, rows["max_ulp"]), above=True)
    drawing.numbers(axes, mean, names, map(_error_text, rows["mean_ulp"]), above=False)
    if most <= LINEAR_ULP:
        drawing.set_linear_errors(axes, most)
    else:
        drawing.set_log_errors(axes, most)
    axes.set_xlabel("error (ULP)")


def _error_text(ulp: float) -> str:
    """The number of a dot: two decimals where useful, and not too many digits."""
    if ulp == 0 or 10 <= ulp < 1e6:
        return f"{ulp:.0f}" if ulp == 0 or ulp >= 100 else f"{ulp:.1f}"
    return f"{ulp:.2f}" if 0.01 <= ulp < 10 else f"{ulp:.1g}"


def version_times(
    axes: Axes, rows: DataFrame, facts: dict, clock: str, percents: bool = False
) -> None:
    """Median time of each version as a bar, with its interquartile range and its number; or its
    bytes fetched.

    A predicted time is a hatched bar with its 90% interval. Versions timed by another clock have an
    empty place. percents: on a GPU, show the percent of a copy beside the number. The axis is
    logarithmic if the slowest takes more than LOG_RATIO times the fastest.
    """
    names, colors = _names_and_colors(rows, facts)
    costs = _costs(rows, clock)
    if clock == PREDICTED:
        spread = (rows["predicted_high_us"] - costs) * 2
        ends = [costs - rows["predicted_low_us"], rows["predicted_high_us"] - costs]
        look = {"facecolor": "white", "edgecolor": colors, "hatch": "////", "linewidth": 1.2}
    else:
        spread = 0 * costs if clock == SIMULATOR_CLOCK else rows["spread_us"]
        ends, look = spread / 2, {"color": colors}
    bars = axes.barh(names, costs, xerr=ends, ecolor="0.35", height=0.6, **look)
    percents = percents and clock == GPU_CLOCK
    shares = rows["percent_of_copy"] if percents else [math.nan] * len(rows)
    texts = [*map(_bar_text, costs, shares)]
    if clock == PREDICTED:
        intervals = zip(costs, rows["predicted_low_us"], rows["predicted_high_us"], strict=True)
        texts = [_interval_text(*it) for it in intervals]
    axes.bar_label(bars, texts, padding=4)
    if clock == GPU_CLOCK and rows["bytes"].nunique() == 1:
        copy_time = _copy_time_us(rows["bytes"].iloc[0], facts)
        axes.axvline(copy_time, label=_copy_label(facts), **drawing.COPY_LINE)
    if costs.isna().all():
        axes.text(0, (len(rows) - 1) / 2, " lab.check could not count them", va="center")
    elif costs.max() > LOG_RATIO * costs.min() > 0:
        drawing.set_log_bars(axes, costs.dropna(), room=30 if percents else 4)
    else:
        room = 2.2 if percents or clock == PREDICTED else 1.3  # leave room for the numbers
        axes.set_xlim(0, room * (costs + spread / 2).max() or 1)
        axes.locator_params(axis="x", nbins=5)
    axes.grid(False, axis="y")
    axes.set_xlabel(LABELS[clock])


def _bar_text(cost: float, percent_of_copy: float) -> str:
    """The text beside a bar: empty if there is no time."""
    if math.isnan(cost):
        return ""
    number = _number(cost)
    return number if math.isnan(percent_of_copy) else f"{number} ({percent_of_copy:.0f}% of copy)"


def _interval_text(predicted: float, low: float, high: float) -> str:
    """A prediction with its interval; only the interval if that is too wide."""
    if math.isnan(predicted):
        return ""
    interval = f"{_number(low)} to {_number(high)}"
    if high > CERTAIN * low:
        return f"measure: {interval}"
    return f"{_number(predicted)} ({interval})"


def _number(cost: float) -> str:
    return f"{cost:.{2 if cost < 10 else 1 if cost < 100 else 0}f}"


def _names_and_colors(rows: DataFrame, facts: dict) -> tuple[list[str], list[str]]:
    labels = list(rows["implementation"])
    colors = [drawing.look(label, facts["versions"])["color"] for label in labels]
    return [label.partition(":")[2] or label for label in labels], colors


def _caption(table: DataFrame) -> str:
    """The conditions: the machine, then shapes, timing method and date; on the simulator also the
    times published for a GPU.
    """
    facts = table.attrs
    lines = [machine(facts), _listed((_shape_text(table), conditions(table), facts["date"]))]
    if GPU_CLOCK not in clocks_of(table):
        kinds = table[["direction", "dtype"]].drop_duplicates().itertuples(index=False)
        lines += [published(facts["op"], *kind) for kind in kinds]
    return "\n".join(filter(None, lines))


def machine(facts: dict) -> str:
    """GPU, driver and PyTorch; on a second line what disturbed the measurements."""
    driver = f"driver {facts['driver']}" if facts["driver"] else ""
    text = _listed((facts["device"], driver, f"torch {facts['torch']}"))
    disturbed = facts.get("disturbances")
    return f"{text}\n{textwrap.fill(disturbed, CAPTION)}" if disturbed else text


def _shape_text(table: DataFrame) -> str:
    """The shapes of a table: the only one, the common number of elements, or the range."""
    shapes = sorted(set(zip(table["rows"], table["cols"], strict=True)))
    elements = {rows * cols for rows, cols in shapes}
    if len(shapes) == 1:
        return "{} x {}".format(*shapes[0])
    if len(elements) == 1:
        return f"{elements.pop():,} elements"
    return "{} x {} to {} x {}".format(*shapes[0], *shapes[-1])
