"""Builds of one kernel compared: error and time, before and after an edit."""

from collections.abc import Callable, Iterable

import torch
from matplotlib.figure import Figure
from pandas import DataFrame
from torch import Tensor

import jitload
from lab.figure import plots
from lab.measure import arguments, rows
from lab.measure.case import Results, in_float64, tensors_in
from lab.measure.clocks import disturbances, warn_if_disturbed
from lab.measure.error import summarize
from lab.measure.progress import progress
from lab.measure.timing import SIMULATOR_CLOCK, bytes_moved, copy_bandwidth, environment, take_time
from lab.style import drawing


def compare_builds(
    kernel: jitload.Kernel,
    builds: Iterable[jitload.Build | str | int] = (1, 0),
    *,
    call: Callable[..., Results],
    reference: Callable[..., Results] | None = None,
    inputs: Iterable[Tensor] | None = None,
) -> Figure:
    """Error (left) and on a GPU time (right) of two or more builds of a kernel, on the same inputs.

        lab.compare_builds(kernel, call=lambda build, x: build.forward(x, 0))

    The error is the largest (filled) and the mean (hollow) in ULP against `reference` in float64,
    with lines for the reference's own error in the type of the inputs. On a GPU the dashed line is
    the time of a measured copy of as many bytes.

    kernel    what `jitload.load` returned
    builds    as `kernel.at` takes them; by default the build before the newest, and the newest
    call      call(build, *inputs) returns the results of one build
    reference reference(*inputs) returns as many; by default reference.py's op of the kernel's name
    inputs    tensors; by default the op's, of the shape that `plot_versions` takes
    """
    if not isinstance(kernel, jitload.Kernel):
        raise TypeError(
            f"kernel: {kernel!r} is of type {type(kernel).__name__}; wanted is what jitload.load"
            f" returned, or %%cu made. {arguments.OF_ONES_OWN}"
        )
    if reference is None or inputs is None:
        op = arguments.an_op(kernel.name)
        reference = reference or op.function
        if inputs is None:
            inputs = op.inputs(*plots.default_shape(), device=kernel.target).values()
    inputs = list(inputs)
    truth = tensors_in(reference(*map(in_float64, inputs)))
    own = summarize(tensors_in(reference(*inputs)), truth)

    wanted, measured, held = list(builds), [], []
    if not wanted:
        raise ValueError("builds: the list is empty")
    device = torch.device(kernel.target)
    with progress(len(wanted)) as step:
        for each in wanted:
            opened = kernel.at(each)
            label = f"{opened.build.digest[:8]}, {opened.build.when:%d %b %H:%M:%S}"
            step(f"{kernel.name}, the build {label}")
            results = tensors_in(call(opened, *inputs))
            if len(results) != len(truth):
                raise ValueError(
                    f"call: returned {len(results)} tensors, the reference {len(truth)};"
                    " wanted are the same results, in the same order"
                )
            error = summarize(results, truth)
            timing = take_time(lambda opened=opened: call(opened, *inputs), device)
            held.append(timing.held)
            measured.append(
                {
                    "implementation": f"ours:{label}",
                    **rows.in_ulp(error),
                    **rows.in_ulp(own, "torch_"),
                    **rows.time(timing),
                    "bytes": bytes_moved(inputs, results),
                }
            )
    warn_if_disturbed(held)
    table = DataFrame(measured)
    facts = {
        **environment(device, table["clock"]),
        "versions": [row["implementation"].removeprefix("ours:") for row in measured],
        "copy_gb_per_s": copy_bandwidth() if device.type == "cuda" else None,
        "disturbances": disturbances(held),
    }
    return _drawn(kernel.name, table, facts, inputs)


def _drawn(name: str, rows: DataFrame, facts: dict, inputs: list[Tensor]) -> Figure:
    clocks = [clock for clock in plots.clocks_of(rows) if clock != SIMULATOR_CLOCK]
    with drawing.style():
        panel = 3.8, 1.0 + 0.4 * len(rows)
        figure, ((left, *right),) = drawing.grid(1, 1 + len(clocks), panel, sharey=True)
        plots.version_errors(left, rows, facts)
        left.set_title("error")
        for axes, clock in zip(right, clocks, strict=True):
            plots.version_times(axes, rows, facts, clock)
            axes.set_title(plots.TITLES[clock])
        left.invert_yaxis()  # put the first build on top
        how = plots.conditions(rows) if clocks else "no GPU, so no time"
        given = f"{arguments.described(inputs)}, {how}, {facts['date']}"
        caption = f"{plots.machine(facts)}\n{given}"
        return drawing.finish(figure, f"{name}: build against build", caption)
