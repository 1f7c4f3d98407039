"""How long a call would take on a GPU that is not there, with an interval, and why.

    lab.predict(lambda: kernel.forward(x, w, b, 1e-5), gpu="H200")   # or "A100", or a file's path

The call runs under the checker, on the simulator: of a large launch a sample of its blocks. Its
counts, the machine code that nvcc makes where there is one, and some thirty measured constants of
the GPU go into a model of a dozen mechanisms (docs/predict.md). No measured time of an op is used.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lab.checker.captured import without_partial
from lab.gpus import gpu as gpus
from lab.predictor.counts import counts
from lab.predictor.report import Prediction

SECONDS = 60.0


def predict(
    function: Callable,
    *args: object,
    gpu: str | Path | None = None,
    seconds: float = SECONDS,
    compile: bool | None = True,
    **kwargs: object,
) -> Prediction:
    """The time of `function(*args, **kwargs)` on a GPU: of its kernels, with a cold L2.

    function: of a loaded kernel, or any Python function that calls some. PyTorch's own ops in it
        are not predicted.
    gpu: a name out of `lab.gpus.gpu.names()`, or the path of a file of lab.calibrate's; None
        is LAB_GPU in the environment, or the H200.
    seconds: that the kernels may take on the simulator, in all.
    compile: have nvcc, where it is found, make the machine code; without it the interval is wider.
        None: use what the cache has.

    Raises:
        ValueError: there is no such GPU.
        RuntimeError: no kernel ran, or the machine lacks what the checker needs (Linux, binutils).
        CompileError: a kernel does not compile for the simulator.
        Exception: what the function raised.
    """
    of = gpus.load(gpu)
    whole, positional, named = without_partial(function, args, kwargs)
    what = getattr(whole, "__qualname__", None) or type(whole).__qualname__
    found = counts((whole, positional, named), what, seconds, of.multiprocessors, compile)
    return Prediction(what, found, of)
