"""One table of error and time: our kernels, PyTorch's eager op, torch.compile, in the same run."""

import itertools
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import torch

import jitload
from lab.measure import arguments, rows
from lab.measure.case import Case
from lab.measure.clocks import Held, disturbances, warn_if_disturbed
from lab.measure.error import Error
from lab.measure.progress import progress
from lab.measure.timing import Timing, copy_bandwidth, environment
from lab.measure.verdict import Judged, of_all
from lab.measure.without_gpu import predicted_for
from lab.rivals import PYTORCH, RIVALS
from lab.rivals.implementation import Implementation, ours

if TYPE_CHECKING:
    from pandas import DataFrame

GPU_WIDTHS = (1024, 4096, 8192, 16384, 65536)
GPU_ELEMENTS = 1 << 28
GPU_BYTES_PER_ELEMENT = 128  # with the float64 truth and the errors beside the result
SIMULATOR_WIDTHS = (64, 256, 1024, 4096)
SIMULATOR_ELEMENTS = 1 << 16  # milliseconds a call


def compare(
    op: str,
    *more: object,
    shapes: Iterable[tuple[int, int]] | None = None,
    dtypes: Iterable[torch.dtype | str] = (torch.float32, torch.bfloat16),
    versions: str | Iterable[str] | None = None,
    rivals: Iterable[str] | None = None,
    options: dict[str, object] | None = None,
    backward: bool = False,
    seed: int = 0,
) -> "DataFrame":
    """Error and time of an op, one row per direction, options, type, shape and implementation.

    op        a name in reference.OPS, such as "layer_norm"
    more      nothing: it is refused, with the way to compare functions (`compare_calls`)
    shapes    list of (rows, cols); default `widths()`
    dtypes    torch dtypes or their names
    versions  of our kernel: None is the best, "all" is all, else names from the op's VERSIONS
    rivals    out of "eager" (the reference in the same type), "compile" (torch.compile of it),
              other kernels of PyTorch's that have the op ("cudnn", "flash", "efficient" and "flex"
              for attention, "cublaslt" for matmul), and "liger", "quack", "deep_gemm",
              "flash_attn", "flash_attn_3", "fa3_fwd" and "flash_attn_4", where installed; None is
              the first two on a GPU, and eager alone on the simulator, where no rival is timed
    options   the op's keywords, such as {"dim": None}; None is all that reference.py lists
    backward  the backward pass as well, alone: the gradients of all differentiable inputs
    seed      of the random inputs

    The columns:

    op, direction, options, dtype, rows, cols
    implementation         "ours:VERSION" or a rival's name
    max_error, mean_error  |result - truth|; the truth is the reference in float64
    max_ulp, mean_ulp      the same in units in the last place of the result's type at the truth's
                           value (`lab.ulp`); 0.5 at most is a correctly rounded result
    torch_max_error, torch_mean_error, torch_max_ulp, torch_mean_ulp
                           PyTorch's own error (eager) on the same inputs in the same type
    time_us, spread_us     median of one call and its interquartile range, microseconds
    clock                  "GPU, cold L2", "CPU simulator", or "CPU" where ours launches no kernel,
                           as for a gradient that is a view; empty where no time was taken
    bytes                  the least that the implementation can move (`lab.bytes_moved`)
    bytes_fetched          of global memory, as `lab.check` counts them; NaN on a GPU
    predicted_us, predicted_low_us, predicted_high_us
                           without a GPU the time that `lab.predict` predicts for one (an H200, or
                           what the environment variable LAB_GPU names), and its 90% interval.
                           Figures and the table as shown have it in place of the simulator's
                           time, which says nothing
    gb_per_s               bytes / time, 1e9 bytes per second; NaN on the simulator
    percent_of_copy        gb_per_s in percent of a copy measured in this run; NaN on the simulator

    Errors of several outputs or gradients are taken together. `attrs` holds the conditions: op,
    versions (all of them), target, device, driver, torch, clock, date, copy_gb_per_s,
    predicted_for (the GPU of predicted_us; None on a GPU), disturbances
    (what those warnings say; "" if nothing), verdict (in words, which the table ends with where it
    is shown: whether our results are right, as PyTorch's own errors say).

    Warns once if the GPU lowered its clock during one of the measurements (ThrottledWarning), and
    once if it worked for another process meanwhile (SharedWarning).

    Raises ValueError or TypeError that names the argument. A run with "compile" clears what
    torch.compile keeps in this process.
    """
    from lab.measure.table import Table

    if more:
        raise TypeError(
            'op: lab.compare takes the name of one op, as in lab.compare("softmax"), and all else'
            f" by keyword; {1 + len(more)} values came without one. {arguments.OF_ONES_OWN}"
        )
    found = arguments.an_op(op)
    version_names = arguments.versions(found, versions)
    if rivals is None:
        rivals = PYTORCH if _on_gpu() else ("eager",)
    rival_names = arguments.rivals(rivals, RIVALS)
    inputs = list(
        itertools.product(
            (False, True) if backward else (False,),
            arguments.options(found, options),
            arguments.dtypes(dtypes),
            widths() if shapes is None else arguments.shapes(shapes),
        )
    )
    makers = [partial(ours, version=name) for name in version_names]
    makers += [RIVALS[name] for name in rival_names]

    measured: list[dict[str, object]] = []
    judged: list[Judged] = []
    held: list[Held | None] = []
    with progress(len(inputs) * len(makers)) as step:
        copy_gb_per_s = copy_bandwidth() if _on_gpu() else None
        for is_backward, option, dtype, shape in inputs:
            case = Case(found, shape, dtype, jitload.device(), option, is_backward, seed)
            for make in makers:
                implementation = make(found)
                step(f"{case}, {implementation.label}")
                row, timing, error = _row(case, implementation, copy_gb_per_s)
                measured.append(row)
                if implementation.ours:
                    what = f"{case}, {implementation.label}"
                    judged.append(Judged(what, error, case.torch_error))
                held.append(timing and timing.held)
    warn_if_disturbed(held)

    table = Table(measured)
    table.attrs = {
        "op": op,
        "versions": arguments.all_versions(found),
        **environment(jitload.device(), table["clock"]),
        "copy_gb_per_s": copy_gb_per_s,
        "predicted_for": None if _on_gpu() else predicted_for(),
        "disturbances": disturbances(held),
        "verdict": of_all(judged),
    }
    return table


def widths() -> list[tuple[int, int]]:
    """Shapes (rows, cols) of one size and growing row width, to fit this machine's target."""
    elements = _elements()
    return [(elements // cols, cols) for cols in (GPU_WIDTHS if _on_gpu() else SIMULATOR_WIDTHS)]


def sizes(cols: int = 4096) -> list[tuple[int, int]]:
    """Shapes (rows, cols) of one row width and growing size, to fit this machine's target."""
    most = max(_elements() // cols, 1)
    return [(most >> shift, cols) for shift in range(12, -1, -2) if most >> shift]


def _on_gpu() -> bool:
    return jitload.device().type == "cuda"


def _elements() -> int:
    """A power of two: large enough that a GPU's memory is what limits, and within its memory."""
    if not _on_gpu():
        return SIMULATOR_ELEMENTS
    free, _ = torch.cuda.mem_get_info()
    return min(GPU_ELEMENTS, 1 << (free // GPU_BYTES_PER_ELEMENT).bit_length() - 1)


def _row(
    case: Case, implementation: Implementation, copy_gb_per_s: float | None
) -> tuple[dict[str, object], Timing | None, Error]:
    """One row of the table, and the time and the error in it; copy_gb_per_s is None on the
    simulator."""
    on_gpu = copy_gb_per_s is not None
    try:
        measured = case.measure(implementation, timed=on_gpu or implementation.ours)
    except Exception as failure:
        failure.add_note(f"raised while lab measured {case}, {implementation.label}")
        raise
    error, own = measured.error, case.torch_error
    row = {
        "op": case.op.name,
        "direction": case.direction,
        "options": ", ".join(f"{name}={value}" for name, value in case.options.items()),
        "dtype": arguments.dtype_name(case.dtype),
        "rows": case.shape[0],
        "cols": case.shape[1],
        "implementation": implementation.label,
        **rows.absolute(error),
        **rows.in_ulp(error),
        **rows.absolute(own, "torch_"),
        **rows.in_ulp(own, "torch_"),
        **rows.time(measured.timing),
        **rows.rate(measured.timing, measured.bytes, copy_gb_per_s),
        "bytes_fetched": measured.fetched,
        **rows.prediction(measured.predicted),
    }
    return row, measured.timing, error
