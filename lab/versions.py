"""Builds of one kernel against each other: error and time, before an edit and after."""

from collections.abc import Callable, Iterable

import torch
from matplotlib.figure import Figure
from pandas import DataFrame
from torch import Tensor

import jitload
from lab import arguments, measure, plots
from lab import figure as drawing
from lab.case import in_float64, tensors_in
from lab.error import summarize
from lab.progress import Progress

Results = Tensor | tuple[Tensor, ...]


def compare_versions(
    kernel: jitload.Kernel,
    versions: Iterable[jitload.Version | str | int] = (1, 0),
    *,
    call: Callable[..., Results],
    reference: Callable[..., Results] | None = None,
    inputs: Iterable[Tensor] | None = None,
) -> Figure:
    """Error (left) and time (right) of two or more builds of a kernel, on the same inputs.

        lab.compare_versions(kernel, call=lambda build, x: build.forward(x, 0))

    The error is the largest (filled) and the mean (hollow) in ULP against `reference` in float64,
    with the reference's own in the type of the inputs as lines. On a GPU the dashed line is the
    time in which a measured copy moves as many bytes.

    kernel    what `jitload.load` returned
    versions  as `kernel.at` takes them; by default the build before the newest, and the newest
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

    wanted, rows = list(versions), []
    if not wanted:
        raise ValueError("versions: the list is empty")
    device = torch.device(kernel.target)
    with Progress(len(wanted)) as progress:
        for version in wanted:
            build = kernel.at(version)
            label = f"{build.version.digest[:8]}, {build.version.when:%d %b %H:%M:%S}"
            progress.step(f"{kernel.name}, the build {label}")
            results = tensors_in(call(build, *inputs))
            if len(results) != len(truth):
                raise ValueError(
                    f"call: returned {len(results)} tensors, the reference {len(truth)};"
                    " wanted are the same results, in the same order"
                )
            error = summarize(results, truth)
            timing = measure.time_call(lambda build=build: call(build, *inputs), device)
            rows.append(
                {
                    "implementation": f"ours:{label}",
                    "max_ulp": error.max_ulp,
                    "mean_ulp": error.mean_ulp,
                    "torch_max_ulp": own.max_ulp,
                    "torch_mean_ulp": own.mean_ulp,
                    "time_us": 1e6 * timing.median,
                    "spread_us": 1e6 * timing.spread,
                    "clock": timing.clock,
                    "bytes": measure.bytes_moved(inputs, results),
                }
            )
    table = DataFrame(rows)
    facts = {
        **measure.environment(device, table["clock"]),
        "versions": [row["implementation"].removeprefix("ours:") for row in rows],
        "copy_gb_per_s": measure.copy_bandwidth() if device.type == "cuda" else None,
    }
    return _drawn(kernel.name, table, facts, inputs)


def _drawn(name: str, rows: DataFrame, facts: dict, inputs: list[Tensor]) -> Figure:
    shapes = ", ".join(
        f"{arguments.dtype_name(x.dtype)} {' x '.join(map(str, x.shape))}" for x in inputs
    )
    clocks = plots.clocks_of(rows)
    with drawing.style():
        panel = 3.8, 1.0 + 0.4 * len(rows)
        figure, ((left, *right),) = drawing.grid(1, 1 + len(clocks), panel, sharey=True)
        plots.version_errors(left, rows, facts)
        left.set_title("error")
        for axes, clock in zip(right, clocks, strict=True):
            plots.version_times(axes, rows, facts, clock)
            axes.set_title("time")
        left.invert_yaxis()  # the first version on top
        caption = f"{plots.machine(facts)}\n{shapes}, {facts['clock']}, {facts['date']}"
        return drawing.finish(figure, f"{name}: build against build", caption)
