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
    lab.compare_versions(kernel, call=lambda build, x: build.forward(x, 0))  # before and after
    lab.trial(kernel.forward, x, 0)                                    # in a process of its own
    lab.source(kernel, "forward_naive")                                # from its file, in colours
    lab.ladder("03_sum"), lab.time_calls(...), lab.plot_calls(...)     # versions of a chapter
    lab.plot_access({"pattern": reads}, threads=8, steps=4)            # who reads what
    lab.plot_lines({"loss": losses}, title=..., xlabel=..., ylabel=...)  # what a cell computed
    lab.explore(draw, width=[64, 256])                                 # a figure with sliders
    lab.check(kernel.forward, x, 0)                                    # what is wrong, line by line

Errors are taken against the reference in float64, PyTorch's own beside ours. Times are the GPU's
with a cold L2. Without a GPU kernels have the CPU simulator's time and PyTorch's ops the CPU's own:
marked as such, and never on one axis.
"""

from typing import TYPE_CHECKING

from lab.compare import compare, sizes, widths
from lab.error import ulp, ulp_error
from lab.extension import load_ipython_extension, unload_ipython_extension
from lab.measure import Timing, bytes_moved, copy_bandwidth, time_call
from lab.source import source
from lab.trial import Trial, trial

if TYPE_CHECKING:
    from lab.access import plot_access
    from lab.calls import compare_calls
    from lab.check_report import Report
    from lab.checker import check
    from lab.climb import ladder, plot_calls, time_calls
    from lab.lines import plot_levels, plot_lines
    from lab.plots import plot_bandwidth, plot_error, plot_time, plot_versions
    from lab.sliders import explore
    from lab.versions import compare_versions

__all__ = [
    "Report",
    "Timing",
    "Trial",
    "bytes_moved",
    "check",
    "compare",
    "compare_calls",
    "compare_versions",
    "copy_bandwidth",
    "explore",
    "ladder",
    "load_ipython_extension",
    "plot_access",
    "plot_bandwidth",
    "plot_calls",
    "plot_error",
    "plot_levels",
    "plot_lines",
    "plot_time",
    "plot_versions",
    "sizes",
    "source",
    "time_call",
    "time_calls",
    "trial",
    "ulp",
    "ulp_error",
    "unload_ipython_extension",
    "widths",
]


def __getattr__(name: str) -> object:
    """What needs matplotlib or pandas is imported when the first of it is asked for."""
    if name in __all__:
        from lab import access, calls, checker, climb, lines, plots, sliders, versions

        homes = (access, calls, checker, climb, lines, plots, sliders, versions)
        return next(getattr(home, name) for home in homes if hasattr(home, name))
    raise AttributeError(f"module 'lab' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
