"""Figures of a prediction: the roofline with the call on it, and a bar of where the time goes."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from lab.style import drawing

if TYPE_CHECKING:
    from lab.predictor.report import Prediction

FLOPS = {"FFMA": 64, "FADD": 32, "FMUL": 32, "HFMA2": 128, "DFMA": 64, "DADD": 32, "DMUL": 32}
LANES = 128  # fused multiply-adds of a multiprocessor in a cycle
SHOWN = 6  # parts of the bar that have their own label


def operations(prediction: Prediction) -> float:
    """Floating-point operations that the call's kernels execute, including tensor cores'."""
    total = 0.0
    for launch in prediction.counts.launches:
        total += sum(launch.products.values())
        for stretch in launch.code.stretches if launch.code else ():
            total += stretch.runs * sum(FLOPS.get(it.opcode, 0) for it in stretch.instructions)
    return total


def plot(prediction: Prediction) -> Figure:
    with drawing.style():
        figure = Figure(figsize=(9.5, 3.6), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1, 1.1))
        _roofline(left, prediction)
        _bar(right, prediction)
        what = "predicted" if prediction.gpu.measured else "predicted from published figures"
        figure.suptitle(f"{prediction.what} on {prediction.gpu.name}, {what}", fontsize=11)
    return figure


def _roofline(axes: object, prediction: Prediction) -> None:
    gpu = prediction.gpu
    moved = max(sum(terms.dram_bytes for terms in prediction.launches), 1.0)
    done = max(operations(prediction), 1.0)
    peak = 2e9 * LANES * gpu.multiprocessors * gpu.clock_ghz
    if any(launch.products for launch in prediction.counts.launches):
        peak = 1e12 * gpu.warpgroup_tflops
    bandwidth = 1e9 * gpu.copy_gb_per_s
    ridge = peak / bandwidth
    here = done / moved
    ends = sorted([min(here, ridge) / 8, ridge, 8 * max(here, ridge)])
    axes.loglog(ends, [min(peak, bandwidth * it) for it in ends], color="0.35")
    rate = done / prediction.seconds
    below, above = done / prediction.upper, done / prediction.lower
    axes.errorbar(
        *([here], [rate]),
        yerr=[[rate - below], [above - rate]],
        fmt="o",
        mfc="white",
        color=drawing.BLUE,
        capsize=3,
    )
    axes.set_xlabel("operations a byte of DRAM")
    axes.set_ylabel("operations a second")
    axes.set_title("roofline", fontsize=10)


def _bar(axes: object, prediction: Prediction) -> None:
    parts = list(prediction.parts.items())
    shown, rest = parts[:SHOWN], sum(seconds for _, seconds in parts[SHOWN:])
    names = [name for name, _ in shown] + ["other"] * (rest > 0)
    seconds = [value for _, value in shown] + [rest] * (rest > 0)
    axes.barh(
        names[::-1],
        [1e6 * it for it in seconds[::-1]],
        color="white",
        edgecolor=drawing.BLUE,
        hatch="///",
    )
    axes.set_xlabel("microseconds, predicted")
    axes.set_title("where the time goes", fontsize=10)


def as_image(figure: Figure) -> str:
    """The figure as an HTML image."""
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=110)
    return f'<img src="data:image/png;base64,{base64.b64encode(data.getvalue()).decode()}"/>'
