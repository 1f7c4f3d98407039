"""The ladders of the chapters: versions of a kernel that one climbs and no op needs.

sums = lab.ladder("03_sum")                   # notebooks/ladders/03_sum.cu
steps = {"atomic": lambda: sums.atomic(x, y, n)}
lab.plot_calls(lab.time_calls(steps, bytes=x.nbytes), "Sum of all")
"""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

import jitload
from lab import figure as drawing
from lab import measure, plots

if TYPE_CHECKING:
    from pandas import DataFrame

LADDERS = Path(__file__).resolve().parent.parent / "notebooks" / "ladders"


def ladder(name: str) -> jitload.Kernel:
    """The kernel of notebooks/ladders/NAME.cu.

    Raises ValueError if there is none, CompileError if it does not compile.
    """
    path = LADDERS / f"{name}.cu"
    if not path.is_file():
        there = ", ".join(sorted(each.stem for each in LADDERS.glob("*.cu")))
        raise ValueError(f"name: there is no ladder {name!r}; there is {there}")
    return jitload.load(path)


def time_calls(calls: dict[str, Callable[[], object]], bytes: int) -> "DataFrame":
    """Time of each call, and its rate if `bytes` is what it has to move.

    Columns: version, time_us, spread_us, clock, bytes, gb_per_s, percent_of_copy. Without a GPU
    the last two are NaN, and clock is "CPU simulator" where the call launched kernels, "CPU" where
    it did not, as PyTorch's own. `attrs` holds the conditions, as `compare`'s does.
    """
    import pandas

    device = jitload.device()
    rows = []
    for name, call in calls.items():
        timing = measure.time_call(call, device)
        rows.append(
            {
                "version": name,
                "time_us": 1e6 * timing.median,
                "spread_us": 1e6 * timing.spread,
                "clock": timing.clock,
                "bytes": bytes,
                "gb_per_s": timing.gb_per_s(bytes),
            }
        )
    copy = measure.copy_bandwidth() if device.type == "cuda" else None
    table = pandas.DataFrame(rows)
    table["percent_of_copy"] = 100 * table["gb_per_s"] / (copy or 1)
    table.attrs = {
        **measure.environment(device, table["clock"]),
        "versions": list(calls),
        "copy_gb_per_s": copy,
    }
    return table


def plot_calls(table: "DataFrame", title: str) -> Figure:
    """Time of each version of `time_calls` as a bar, with the time of a copy of as many bytes.

    Without a GPU there is no copy, and what ran on the simulator and what ran on the CPU itself
    have an axis each.
    """
    facts = table.attrs
    rows = table.assign(implementation="ours:" + table["version"])
    clocks = plots.clocks_of(rows)
    with drawing.style():
        panel = 5.4 if len(clocks) == 1 else 3.8, 0.6 + 0.36 * len(rows)
        figure, (panels,) = drawing.grid(1, len(clocks), panel, sharey=True)
        for axes, clock in zip(panels, clocks, strict=True):
            plots.version_times(axes, rows, facts, clock)
        panels[0].invert_yaxis()
        size = f"{rows['bytes'].iloc[0] / 1e6:.1f} MB"
        caption = f"{plots.machine(facts)}\n{size}, {facts['clock']}, {facts['date']}"
        return drawing.finish(figure, title, caption)
