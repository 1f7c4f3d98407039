"""User functions compared with PyTorch's: the error and time of each, as a table and a figure."""

import textwrap
from collections.abc import Callable, Iterable
from typing import NamedTuple

from matplotlib.figure import Figure
from pandas import DataFrame
from torch import Tensor

from lab.figure import plots
from lab.measure.calls import is_pytorchs, measure_calls
from lab.measure.case import Results
from lab.measure.timing import GPU_CLOCK, PREDICTED, SIMULATOR_CLOCK
from lab.style import drawing

LONGEST_TITLE = 50
SHOWN = ("call", "direction", "max_ulp")  # the columns that fit beside an editor
COSTS = {
    GPU_CLOCK: ("time_us", "percent_of_copy"),
    PREDICTED: ("predicted_us", "bytes_fetched", "bytes"),
    SIMULATOR_CLOCK: ("bytes_fetched", "bytes"),
}


class Comparison(NamedTuple):
    """The result of `compare_calls`; a notebook shows the figure and the most important columns.

    `table` has all of them.
    """

    table: DataFrame
    figure: Figure

    def __repr__(self) -> str:
        return f"{self.table.to_string()}\n{self.table.attrs['verdict']}".rstrip()

    def _ipython_display_(self) -> None:
        from IPython.display import display

        several = self.table["direction"].nunique() > 1
        clocks = plots.clocks_of(plots.with_predictions(self.table))
        costs = COSTS.get(clocks[0], ("time_us",))
        shown = [name for name in (*SHOWN, *costs) if several or name != "direction"]
        display(self.table[shown].round(2))
        display(self.figure)
        if verdict := self.table.attrs["verdict"]:
            print(verdict)


def compare_calls(
    calls: dict[str, Callable[..., Results | None]],
    *,
    inputs: Tensor | Iterable[object] | dict[str, object] = (),
    truth: Callable[..., Results] | str | Results | None = None,
    outputs: int | str | Iterable[int | str] = (),
    backward: bool = False,
    bytes: int | None = None,
    seed: int = 0,
) -> Comparison:
    """Error and time of functions on the same inputs: a table, and a figure that shows both.

        lab.compare_calls({"mine": f, "torch": torch.sigmoid}, inputs=x)
        table, figure = lab.compare_calls({"mine": f, "torch": g}, inputs=[x, weight], truth=h)

    calls     functions by the names that table and figure show. Each is called with the inputs, and
              returns a tensor or a tuple of tensors.
    inputs    a tensor; or a list of positional arguments; or a dict of keyword arguments. Writes to
              them are undone before the next call.
    truth     what the results are compared with: a function, called with the inputs in float64; or
              the name of one of the calls, used likewise; or the true tensors, in float64. By
              default the call named "torch" ("pytorch", "eager", "reference").
    outputs   for calls that return None: the inputs to which they write their results, by position
              or name, as in outputs=1.
    backward  also measure the backward pass, alone: the gradients of all inputs that require one,
              from one random gradient of the results, the same for all calls.
    bytes     the minimum that a call must move, forward. By default each input tensor is read once
              (except `outputs`) and each result written once. Backward, the inputs and the arriving
              gradients are read, and the gradients written.
    seed      for the random gradient

    The table has a row for each direction and call:

    call, direction        its name; "forward" or "backward"
    max_ulp, mean_ulp      |result - truth| in units in the last place of the result's type at the
                           truth's value (`lab.ulp`); those of integers are 1
    max_error, mean_error  |result - truth| itself
    time_us, spread_us     median of one call and its interquartile range, microseconds
    clock                  "GPU, cold L2"; without a GPU "CPU simulator" where the call launched
                           kernels, else "CPU", as for PyTorch's own ops: such times say
                           nothing about each other, nor about a GPU's
    bytes, gb_per_s        and the rate: 1e9 bytes per second; NaN for times that are not a GPU's
    percent_of_copy        gb_per_s in percent of a copy measured in this run; NaN likewise
    bytes_fetched          global bytes of kernels on the simulator, as `lab.check` counts them
    predicted_us, predicted_low_us, predicted_high_us
                           as in `compare`; table and figure show it in place of the simulator's

    Several results are judged together. `attrs` holds the conditions, as `compare`'s does, and the
    verdict shown at the end of the table: whether each call is right.

    Raises TypeError or ValueError that names the argument. Exceptions of a call propagate, with a
    note that names the call.
    """
    table = measure_calls(
        calls,
        inputs=inputs,
        truth=truth,
        outputs=outputs,
        backward=backward,
        bytes=bytes,
        seed=seed,
    )
    return Comparison(table, _figure(table))


def _figure(table: DataFrame) -> Figure:
    """Errors at the left; at the right times, or their substitute without a GPU."""
    facts = table.attrs
    names = list(dict.fromkeys(table["call"]))
    pytorchs = [name for name in names if name == facts["truth"] or is_pytorchs(name)]
    kinds = {name: "torch" if name in pytorchs else "ours" for name in names}
    rows = plots.with_predictions(table)
    rows = rows.assign(implementation=[f"{kinds[name]}:{name}" for name in table["call"]])
    facts = facts | {"versions": [name for name in names if name not in pytorchs]}
    groups = list(rows.groupby("direction", sort=False))
    clocks = plots.clocks_of(rows)
    panel = (3.0, 1.0 + 0.4 * len(names))  # the width of a notebook beside an editor
    with drawing.style():
        figure, axes = drawing.grid(len(groups), 1 + len(clocks), panel, legend=0, sharey=True)
        for (left, *right), (direction, group) in zip(axes, groups, strict=True):
            before = f"{direction}: " if len(groups) > 1 else ""
            plots.version_errors(left, group, facts)
            left.set_title(f"{before}error (● largest, ○ mean)")
            for times, clock in zip(right, clocks, strict=True):
                plots.version_times(times, group, facts, clock, percents=True)
                dashed = ", ".join(times.get_legend_handles_labels()[1])
                what = plots.TITLES[clock] + f" (dashed: {dashed})" * bool(dashed)
                times.set_title(f"{before}{what}")
        axes[0][0].set_ylim(len(names) - 0.3, -0.7)  # put the first call on top
        what = f"Error and {plots.TITLES[clocks[0]]}"
        title = f"{what} of {', '.join(names)}"
        if len(title) > LONGEST_TITLE:
            title = f"{what} of {len(names)} functions"
        truth = f"truth: {facts['truth']} in float64" if facts["truth"] else "truth in float64"
        conditions = f"{facts['inputs']}; {truth}; {plots.conditions(rows)}, {facts['date']}"
        caption = f"{plots.machine(facts)}\n{textwrap.fill(conditions, plots.CAPTION)}"
        return drawing.finish(figure, title, caption, legend=False)


def plot_calls(table: "DataFrame", title: str) -> Figure:
    """The time of each version from `time_calls` as a bar, with the time of an equally large copy.

    Without a GPU there is no copy; the bars are predicted times, or bytes fetched.
    """
    facts = table.attrs
    rows = plots.with_predictions(table).assign(implementation="ours:" + table["version"])
    clocks = plots.clocks_of(rows)
    with drawing.style():
        panel = 5.4 if len(clocks) == 1 else 3.8, 0.6 + 0.36 * len(rows)
        figure, (panels,) = drawing.grid(1, len(clocks), panel, sharey=True)
        for axes, clock in zip(panels, clocks, strict=True):
            plots.version_times(axes, rows, facts, clock)
        panels[0].invert_yaxis()
        size = f"{rows['bytes'].iloc[0] / 1e6:.1f} MB"
        caption = f"{plots.machine(facts)}\n{size}, {plots.conditions(rows)}, {facts['date']}"
        return drawing.finish(figure, title, caption)
