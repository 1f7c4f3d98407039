"""lab.live: a panel that follows a kernel's files as they are saved.

lab.live("layer_norm")                                  # an op of the project
lab.live(mine, sigmoid, inputs=x, truth=torch.sigmoid)  # a call of one's own kernel

panel = lab.live("layer_norm", shape=(64, 4096), dtype="bfloat16", backward=True)
panel                # shows it, here once more
panel.go_back(2)     # the files of version 2; the panel has a button for it
panel.close()        # or the panel's own button
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

import jitload
from lab.measure import arguments
from lab.measure.case import Results
from lab.watcher.call_subject import CallSubject
from lab.watcher.follower import SECONDS
from lab.watcher.live import Live
from lab.watcher.op_subject import OpSubject
from lab.watcher.settings import settings_for


def live(
    kernel: str | jitload.Kernel,
    call: Callable[..., Results] | None = None,
    *,
    shape: tuple[int, int] | None = None,
    dtype: torch.dtype | str = torch.float32,
    backward: bool = False,
    version: str | None = None,
    options: dict[str, object] | None = None,
    inputs: Tensor | Iterable[object] | dict[str, object] = (),
    truth: Callable[..., Results] | None = None,
    seconds: float = SECONDS,
) -> Live:
    """Follow a kernel's files: what each version that is saved gives, as a panel in a notebook.

    kernel    the name of an op in reference.OPS, or what `jitload.load` returned, or %%cu made
    call      for the latter: a function that calls it and returns a tensor or a tuple of them
    shape, dtype, backward, version, options
              of an op, on what it is measured first; all are controls of the panel. As of
              `lab.compare`; the shape by default (64, 1024) on the simulator and (8192, 4096) on a
              GPU, and (64, 64) of an op that multiplies matrices
    inputs    of `call`: a tensor, a list of what is passed in order, or a dict of it by name
    truth     the same in PyTorch's ops: in float64 it is what the results are held against, and in
              the type of the inputs it has PyTorch's own error. Without it no error is shown.
    seconds   that a call may take; one that takes longer counts as hung, and its process is ended

    The panel shows how the build goes, the error beside PyTorch's, on a GPU time and percent of a
    copy, on the simulator the bytes that `lab.check` counts against the floor, both beside earlier
    versions; registers and occupancy on a GPU; what `lab.check` finds, with its lines; and an error
    of the compiler at its line.

    All of it is built and run in a process of its own. No cell waits for it, and nothing is
    measured while a cell runs. The same op or kernel followed anew keeps its earlier versions.

    Raises TypeError or ValueError that names the argument, and ModuleNotFoundError where `call` is
    given and cloudpickle is not installed, which sends it to that process.
    """
    if not (isinstance(seconds, int | float) and seconds > 0):
        raise ValueError(f"seconds: {seconds!r}; wanted is a positive number")
    if isinstance(kernel, jitload.Kernel):
        if not callable(call):
            raise TypeError(
                f"call: {call!r}; wanted is a function that calls {kernel.name}, as in"
                " lab.live(mine, sigmoid, inputs=x, truth=torch.sigmoid)"
            )
        pickled = _pickled(call, [inputs] if isinstance(inputs, Tensor) else inputs, truth)
        return Live(CallSubject(kernel.name, kernel.recipe, pickled, backward), None, seconds)
    op = arguments.an_op(kernel)
    if call is not None:
        raise TypeError(f"call: {op.name} is an op, which is called as reference.py says")
    settings = settings_for(op, shape, dtype, backward, version, options)
    return Live(OpSubject(op.name), settings, seconds)


def _pickled(*values: Any) -> bytes:
    """Functions of a notebook with what they use: pickle itself would send their names alone."""
    try:
        import cloudpickle
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "lab.live sends a call to another process by cloudpickle: pip install cloudpickle",
            name=error.name,
        ) from None
    try:
        return cloudpickle.dumps(values)
    except Exception as error:
        raise TypeError(f"call: it cannot be sent to another process: {error}") from None
