"""What the GPU's own counters say of a call, by Nsight Compute (ncu).

    report = lab.profile(kernel.forward, x, weight, bias, 1e-5)
    report                 # text, or in a notebook bars and the source with a column of heat
    report.kernels         # a row a launch: time, percent of the peaks, occupancy and its limit
    report.lines           # a row a line: where warps wait, and what it asks of the memories
    report.stalls          # a row a line and reason: what they wait for

The call runs in a process of its own: once to warm up, and once under ncu, which repeats each
kernel as often as its counters need. Clocks are left as they are, and caches are cold.
"""

from __future__ import annotations

import pickle
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch.utils._pytree import tree_leaves

import jitload
from lab.checker.run import check as check_call
from lab.checker.trial import Call
from lab.measure.progress import progress
from lab.profiler import ncu
from lab.profiler.kernels import BYTES
from lab.profiler.report import Profile

SECTIONS = (
    *("SpeedOfLight", "LaunchStats", "Occupancy", "ComputeWorkloadAnalysis"),
    *("MemoryWorkloadAnalysis", "WarpStateStats", "SourceCounters"),
)
MOST_CHECKED = 64 << 20  # most bytes of tensors for which the checker counts, too
NO_GPU = (
    "lab.profile reads the counters of an NVIDIA GPU, and torch sees none here."
    " lab.check(call, ...) runs the same call on the CPU and counts what each line asks of the"
    " memories;"
    " jitload.ensure(..., target='cuda').sass() shows the machine code"
)


def profile(
    function: Callable,
    *args: object,
    launches: int = 32,
    seconds: float = 120.0,
    check: bool | None = None,
    metrics: Sequence[str] = (),
    **kwargs: object,
) -> Profile:
    """Call `function(*args, **kwargs)` under ncu, and report what the GPU's counters say.

    function: of a loaded kernel (`kernel.forward` or `kernel.add[grid, block]`), or of a module
        that can be imported: an op of kernels/, of PyTorch's, of your own.
    args, kwargs: copied into the other process; the caller's own stay as they are.
    launches: how many of the call's kernels are profiled, from the first.
    seconds: limit for the profiled call; what comes before it does not count.
    check: whether `lab.check` counts too, so that its counts stand beside the GPU's. None: where
        the call runs kernels of jitload's, on tensors of no more than 64 MB in all.
    metrics: more counters, by ncu's names (`ncu --query-metrics`); each is a column of
        `report.kernels`, empty where this GPU or this ncu does not have it.

    Raises:
        RuntimeError: there is no GPU; ncu may not read its counters, or fails; the call launches
            no kernel, fails, or takes too long. The message says what to do.
        MissingTool: there is no ncu; the message says how to get it.
        TypeError: the function or an argument cannot be sent to another process.
        KeyboardInterrupt: it is stopped meanwhile; nothing is left running.
    """
    if not seconds > 0:
        raise ValueError(f"seconds: {seconds!r}; wanted is a positive number")
    if not launches > 0:
        raise ValueError(f"launches: {launches!r}; wanted is a positive number")
    if not torch.cuda.is_available():
        raise RuntimeError(NO_GPU)
    ncu.find()
    call = Call.of(function, args, kwargs)
    with tempfile.TemporaryDirectory(prefix="profile-") as name:
        folder = Path(name)
        try:
            torch.save(call, folder / "call.pt")
        except (pickle.PicklingError, AttributeError, TypeError, RuntimeError) as error:
            raise TypeError(
                f"{call.what} or an argument of it cannot be sent to another process: {error}"
            ) from None
        builds = _run(call.what, folder, launches, seconds, metrics)
        found = ncu.launches(folder / "report.ncu-rep")
    if not found:
        raise RuntimeError(f"{call.what} launched no kernel on the GPU: nothing to profile")
    report = Profile(
        call.what, found, builds, torch.cuda.get_device_name(), launches, metrics=tuple(metrics)
    )
    _count_beside(report, check, function, args, kwargs)
    return report


def _run(
    what: str, folder: Path, launches: int, limit: float, metrics: Sequence[str]
) -> list[jitload.Build]:
    """Run the call under ncu; return the builds of the kernels that were loaded.

    Raises RuntimeError with the reason if there is no report, and KeyboardInterrupt in one line.
    """
    called: float | None = None
    shown = 0
    options = [*("--profile-from-start", "off"), *("--target-processes", "application-only")]
    options += ["--launch-count", str(launches)]
    options += [word for section in SECTIONS for word in ("--section", section)]
    options += ["--metrics", ",".join(dict.fromkeys([*BYTES, *metrics]))]
    device = str(torch.cuda.current_device())
    with progress(None) as step:

        def watch(output: str) -> bool:
            nonlocal called, shown
            if called is None and (folder / "called").exists():
                called = time.perf_counter()
            for name in ncu.profiled(output)[shown:]:
                step(f"ncu: launch {shown + 1}, {name}")
                shown += 1
            return called is not None and time.perf_counter() - called > limit

        try:
            ran = ncu.run(
                [sys.executable, "-m", "lab.profiler.profile_process", str(folder), device],
                folder / "report.ncu-rep",
                options,
                env=jitload.environment(),
                watch=watch,
            )
        except KeyboardInterrupt as stop:
            jitload.in_one_line(stop, f"the profile of {what} was stopped")
            raise
    if ran.status is None:
        raise RuntimeError(
            f"{what} was not profiled within {limit:g} s, and was ended; {shown} of its kernels"
            " had begun. Give it smaller tensors, profile fewer launches (launches=1), or more"
            " time (seconds=)"
        )
    ran.complain()
    end = folder / "end.pt"
    if not end.exists():
        said = "\n".join(filter(None, [ran.of_process, *ran.own[-5:]]))
        raise RuntimeError(
            f"{what} ended its process with status {ran.status} under ncu; lab.trial({what}, ...)"
            f" says more of a call that crashes\n{said}".rstrip()
        )
    told = torch.load(end, weights_only=False)
    if "error" in told:
        raise RuntimeError(f"{what} raised, in the process that ncu watched:\n{told['error']}")
    return [build for build in map(jitload.Build.read, told["builds"]) if build]


def _count_beside(
    report: Profile, wanted: bool | None, function: Callable, args: tuple, kwargs: dict
) -> None:
    """Have the checker count the same call, or note why it did not."""
    if wanted is None:
        tensors = [it for it in tree_leaves((args, kwargs)) if isinstance(it, torch.Tensor)]
        size = sum(tensor.untyped_storage().nbytes() for tensor in tensors)
        if report.has_lines and size > MOST_CHECKED:
            report.note = (
                f"The call's tensors have {size >> 20} MB, which would take lab.check long:"
                " check=True has it count all the same."
            )
        wanted = report.has_lines and size <= MOST_CHECKED
    if not wanted:
        return
    try:
        checked = check_call(function, *args, sample_threads=1 << 40, **kwargs)
    except Exception as error:  # a call that it does not know is no reason to lose the report
        report.note = f"lab.check could not count the same call: {error}"
    else:
        report.beside(checked)
