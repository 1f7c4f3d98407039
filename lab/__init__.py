"""The notebook's instruments: how wrong a kernel is, how fast, and both as figures.

A kernel of one's own beside PyTorch, in three cells of any notebook:

    %load_ext lab
    import lab, torch

    %%cu mine
    __global__ void sigmoid(const float* x, float* y, int n) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) y[i] = 1 / (1 + expf(-x[i]));
    }

    def sigmoid(x):
        y = torch.empty_like(x)
        mine.sigmoid[(x.numel() + 255) // 256, 256](x, y, x.numel())
        return y
    x = torch.randn(1 << 20, device=mine.target)
    lab.compare_calls({"mine": sigmoid, "torch": torch.sigmoid}, inputs=x)

shows a table and a figure of error and time. The other instruments, most of them for the project's
own ops:

    table = lab.compare("layer_norm", versions="all", backward=True)   # a pandas DataFrame
    lab.plot_bandwidth(table)                                          # a matplotlib Figure
    lab.plot_time(lab.compare("layer_norm", shapes=lab.sizes()))
    lab.plot_error("layer_norm")
    lab.plot_versions("layer_norm")
    lab.compare_builds(kernel, call=lambda build, x: build.forward(x, 0))  # before and after
    lab.live("layer_norm")                                             # follows what is saved
    lab.trial(kernel.forward, x, 0)                                    # in a process of its own
    lab.audit(softplus, x, reference=F.softplus)                       # every trap, tried on an op
    lab.source(kernel, "forward_naive")                                # from its file, in colours
    lab.ladder("03_sum"), lab.time_calls(...), lab.plot_calls(...)     # versions of a chapter
    lab.plot_access({"pattern": reads}, threads=8, steps=4)            # who reads what
    lab.plot_tensor_access("16x256b.x1"), lab.plot_accumulator(128), lab.plot_scales(4)
    lab.plot_lines({"loss": losses}, title=..., xlabel=..., ylabel=...)  # what a cell computed
    lab.explore(draw, width=[64, 256])                                 # a figure with sliders
    @lab.op(backward=softplus_grad)                                    # an op with a gradient
    lab.check(kernel.forward, x, 0)                                    # what is wrong, line by line
    lab.predict(kernel.forward, x, 0)                                  # how fast on an H200?
    lab.trace(kernel.forward, x, 0)                                    # step through it
    lab.profile(kernel.forward, x, 0)                                  # on a GPU: where it waits
    lab.tune(lambda: f(x), kThreads=[128, 256])                        # which constants are fastest

Errors are measured against the reference in float64, ours beside PyTorch's own. Times are GPU times
with a cold L2. A ThrottledWarning says that the GPU lowered its clock, a SharedWarning that another
process used it; the captions of figures repeat both. Without a GPU, tables name the clock (the CPU
simulator's or the CPU's own), and figures show predicted times, labelled as such.

The lab's packages. Each uses only those above it in this list:

    rivals     what an op is compared with: ours, PyTorch's, other libraries'
    style      how every figure looks
    gpus       the constants of each GPU, measured or published
    checker    what is wrong with a call: `check`, `trial`
    tracer     what its threads do, step by step: `trace`, `python -m lab trace`
    predictor  how fast a call would be on a GPU that is not there: `predict`, lab.calibrate
    measure    error, time, and the tables of both
    figure     figures of both
    custom_ops a function that calls kernels, as an op of PyTorch's: `op`
    auditor    which traps an op falls into: `audit`
    judge      kernels that others wrote, in a sandbox: `python -m lab judge`
    profiler   what the GPU's counters say about a call: `profile`
    tuner      values of a kernel's constants: `tune`
    watcher    follows a kernel as its files are saved: `live`, `python -m lab watch`
    notebook   %load_ext lab: builds before a cell, %%cu, %%check; sources and sliders
    course     the chapters' exercises and ladders
    bench      make bench
    ship       packages of kernels: `python -m jitload ship`

Beside them, lab.scaffold makes the files of a new op, and lab.calibrate measures a GPU for
`predict`.
"""

import importlib

# Each instrument and its module, which is imported on first use: matplotlib and pandas are slow to
# import.
_HOMES = {
    "Prediction": "predictor.report",
    "Profile": "profiler.report",
    "Report": "checker.report",
    "SharedWarning": "measure.clocks",
    "ThrottledWarning": "measure.clocks",
    "Timing": "measure.timing",
    "Trial": "checker.trial",
    "Tuning": "tuner.tuning",
    "Audit": "auditor.report",
    "audit": "auditor.run",
    "bytes_moved": "measure.timing",
    "check": "checker.run",
    "compare": "measure.compare",
    "compare_builds": "figure.builds",
    "compare_calls": "figure.calls",
    "copy_bandwidth": "measure.timing",
    "explore": "notebook.sliders",
    "ladder": "course.ladder",
    "live": "watcher.run",
    "op": "custom_ops.op",
    "load_ipython_extension": "notebook.extension",
    "plot_access": "figure.access",
    "plot_accumulator": "figure.tensor_memory",
    "plot_bandwidth": "figure.plots",
    "plot_calls": "figure.calls",
    "plot_error": "figure.plots",
    "plot_lines": "figure.lines",
    "plot_scales": "figure.tensor_memory",
    "plot_tensor_access": "figure.tensor_memory",
    "plot_time": "figure.plots",
    "plot_versions": "figure.plots",
    "predict": "predictor.run",
    "profile": "profiler.run",
    "sizes": "measure.compare",
    "source": "notebook.source",
    "Trace": "tracer.trace",
    "time_call": "measure.timing",
    "time_calls": "measure.calls",
    "trace": "tracer.run",
    "trial": "checker.trial",
    "tune": "tuner.run",
    "ulp": "measure.error",
    "ulp_error": "measure.error",
    "unload_ipython_extension": "notebook.extension",
    "widths": "measure.compare",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    if home := _HOMES.get(name):
        return getattr(importlib.import_module(f"lab.{home}"), name)
    raise AttributeError(f"module 'lab' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
