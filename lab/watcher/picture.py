"""A version beside those before it: error and cost, as SVG.

Drawn as text, for a picture is wanted milliseconds after its numbers, by a thread that must not
touch matplotlib's global state while a cell may be using it.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

from lab.measure.verdict import spoken
from lab.watcher.result import Result, Version

BLUE, ORANGE, VERMILLION = "#0072B2", "#E69F00", "#D55E00"  # as lab.style.drawing has them
ROW, TOP, BOTTOM = 20, 22, 22  # pixels: of a version, and of what is above and below them
LEFT, PANEL, GAP = 52, 290, 66
FAINTEST, BOLDEST = 0.35, 0.65  # opacity of the oldest ghost, and of the newest
# Around a number, so that a line behind it does not cross it out.
HALO = 'paint-order="stroke" stroke="var(--jp-layout-color0, white)" stroke-width="3"'


@dataclass(frozen=True)
class Scale:
    """Where a value lies between the edges of a panel, 0 to PANEL pixels."""

    low: float
    high: float
    is_log: bool

    def at(self, value: float) -> float:
        if not math.isfinite(value):
            return PANEL
        if self.is_log:
            value = math.log10(value) if value > 0 else -math.inf
        part = (value - self.low) / (self.high - self.low)
        return PANEL * min(max(part, 0), 1)

    def ticks(self) -> list[float]:
        """At most six round numbers."""
        if self.is_log:
            low, high = math.ceil(self.low), math.floor(self.high)
            return [10.0**power for power in range(low, high + 1, -(-(high - low + 1) // 6))]
        step = 10 ** math.floor(math.log10(self.high / 2))
        while self.high / step > 6:
            step *= 2.5 if f"{step:e}"[0] == "2" else 2
        return [step * count for count in range(int(self.high / step) + 1)]


def log_scale(values: Sequence[float]) -> Scale:
    """A decade at least, around the values that have a logarithm."""
    positive = [value for value in values if 0 < value < math.inf] or [1.0]
    low, high = math.log10(min(positive)) - 0.3, math.log10(max(positive)) + 0.3
    return Scale(math.floor(low), max(math.ceil(high), math.floor(low) + 2), True)


def linear_scale(values: Sequence[float], least: float) -> Scale:
    """From 0 to a little more than the largest, and `least` at least."""
    return Scale(
        0, 1.08 * max([least, *(value for value in values if math.isfinite(value))]), False
    )


def picture(result: Result, ghosts: Sequence[Result], pinned: Version | None = None) -> str:
    """The result on top, below it those before, the newest first and the older the fainter.

    On the left the error beside PyTorch's; on the right on a GPU the percent of a copy, else the
    bytes of the checker in multiples of the floor.
    """
    shown = [result, *reversed(ghosts)]
    parts = [_names(shown, pinned), _errors(shown), _costs(shown)]
    height = TOP + ROW * len(shown) + BOTTOM
    width = LEFT + 2 * PANEL + GAP + 100
    return (
        f'<svg viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
        ' style="display: block; max-width: 100%; height: auto;'
        ' color: var(--jp-ui-font-color1, currentColor)"'
        ' font-family="var(--jp-ui-font-family, sans-serif)" font-size="12" fill="currentColor">'
        f"{''.join(parts)}</svg>"
    )


def _opacity(row: int, rows: int) -> float:
    """1 for the version in hand; ghosts fade with age."""
    if row == 0:
        return 1.0
    return BOLDEST - (BOLDEST - FAINTEST) * (row - 1) / max(rows - 2, 1)


def _y(row: int) -> float:
    return TOP + ROW * (row + 0.5)


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{html.escape(text)}</text>'


def _names(shown: Sequence[Result], pinned: Version | None) -> str:
    texts = []
    for row, result in enumerate(shown):
        bold = ' font-weight="bold"' if row == 0 else ""
        look = f'text-anchor="end" opacity="{_opacity(row, len(shown)):.2f}"{bold}'
        mark = "★ " if result.version == pinned else ""
        texts.append(_text(LEFT - 12, _y(row) + 4, f"{mark}{result.version.number}", look))
    return "".join(texts)


def _errors(shown: Sequence[Result]) -> str:
    measured = [(row, it.measured) for row, it in enumerate(shown) if it.measured]
    measured = [(row, it) for row, it in measured if it.error and it.torch_error]
    values = [error.max_ulp for _, it in measured for error in (it.error, it.torch_error)]
    scale = log_scale(values)
    title = "largest error against float64, in ULP (orange: PyTorch's)"
    marks = [_frame(LEFT, title, scale, len(shown))]
    for row, it in measured:
        ours, theirs = (LEFT + scale.at(error.max_ulp) for error in (it.error, it.torch_error))
        color = BLUE if it.is_right else VERMILLION
        said = _text(max(ours, theirs) + 9, _y(row) + 4, spoken(it.error.max_ulp))
        marks.append(
            f'<g opacity="{_opacity(row, len(shown)):.2f}">'
            f'<line x1="{theirs:.1f}" x2="{ours:.1f}" y1="{_y(row)}" y2="{_y(row)}"'
            f' stroke="{color}" stroke-width="2"/>'
            f'<rect x="{theirs - 2.5:.1f}" y="{_y(row) - 8}" width="5" height="16"'
            f' fill="{ORANGE}"/><circle cx="{ours:.1f}" cy="{_y(row)}" r="5" fill="{color}"/>'
            f"{said}</g>"
        )
    return "".join(marks)


def _costs(shown: Sequence[Result]) -> str:
    left = LEFT + PANEL + GAP
    on_gpu = any(it.measured and not math.isnan(it.measured.percent_of_copy) for it in shown)
    costs = [(row, cost) for row, it in enumerate(shown) if (cost := _cost(it, on_gpu)) is not None]
    title = "percent of copy" if on_gpu else "bytes fetched, in multiples of the floor"
    whole = 100.0 if on_gpu else 1.0
    scale = linear_scale([cost for _, (cost, _) in costs], whole)
    marks = [_frame(left, title, scale, len(shown))]
    x, bottom = left + scale.at(whole), TOP + ROW * len(shown)
    marks.append(
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}" stroke="currentColor"'
        ' stroke-dasharray="4 3" opacity="0.7"/>'
    )
    for row, (cost, said) in costs:
        end = scale.at(cost)
        marks.append(
            f'<g opacity="{_opacity(row, len(shown)):.2f}"><rect x="{left}" y="{_y(row) - 6}"'
            f' width="{end:.1f}" height="12" fill="{BLUE}"/>'
            f"{_text(left + end + 5, _y(row) + 4, said, HALO)}</g>"
        )
    return "".join(marks)


def _cost(result: Result, on_gpu: bool) -> tuple[float, str] | None:
    """The length of a bar, and what is written behind it."""
    if on_gpu:
        if not result.measured:
            return None
        said = f"{result.measured.percent_of_copy:.1f}%, {result.measured.time_us:.4g} µs"
        return result.measured.percent_of_copy, said
    if not (result.checked and result.checked.is_whole and result.checked.bytes_floor):
        return None
    said = f"{result.checked.times_floor:.2f}"
    if result.predicted and result.predicted.certain:
        said += f", predicted {result.predicted.time_us:.3g} µs"
    return result.checked.times_floor, said


def _frame(left: float, title: str, scale: Scale, rows: int) -> str:
    """The title, the axis below, and a faint line at each tick."""
    bottom = TOP + ROW * rows
    parts = [_text(left, TOP - 8, title, 'font-size="11" opacity="0.8"')]
    for tick in scale.ticks():
        x = left + scale.at(tick)
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{bottom}" stroke="currentColor"'
            ' opacity="0.15"/>'
        )
        look = 'text-anchor="middle" font-size="11" opacity="0.7"'
        parts.append(_text(x, bottom + 15, f"{tick:g}", look))
    parts.append(
        f'<line x1="{left}" x2="{left + PANEL}" y1="{bottom}" y2="{bottom}" stroke="currentColor"'
        ' opacity="0.5"/>'
    )
    return "".join(parts)
