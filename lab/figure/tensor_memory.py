"""The layout of tensor memory (compute capability 10.0), as numbers and as figures.

Tensor memory has 128 lanes of 512 columns of 32 bits for each block. The `_place` functions return
where registers, accumulators and scale factors are; the simulator's tests compare them with its
behaviour. The figures draw them.
"""

import re
from typing import NamedTuple

import numpy
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from lab.style import drawing

LANES = 128
# Columns of one repetition of an access, and the lanes that it reaches.
_COLUMNS = {"32x32b": 1, "16x64b": 2, "16x128b": 4, "16x256b": 8, "16x32bx2": 1}
_REGISTERS = {"16x128b": 2, "16x256b": 4}
_TILE_ROWS, _TILE_K = 128, 4  # scale factors in a tile
_COLORS = drawing.BLUE, drawing.ORANGE, drawing.GREEN, drawing.PURPLE


class Place(NamedTuple):
    """A cell of tensor memory. block: of the pair, 0 or 1."""

    block: int
    lane: int
    column: int


class ScalePlace(NamedTuple):
    """A scale factor: its byte in a shared memory tile, and its byte in a word of tensor memory.

    lane: in the first 32 lanes; the other three groups of 32 lanes hold copies.
    """

    offset: int
    lane: int
    column: int
    byte: int


def register_place(shape: str, thread: int, register: int, split: int = 0) -> tuple[int, int]:
    """The lane and column of a thread's register in tcgen05.ld and tcgen05.st.

    Both are relative to the instruction's address. With .pack::16b and .unpack::16b a column stands
    for two.

    shape: "32x32b", "16x64b", "16x128b", "16x256b" or "16x32bx2".
    thread: in the warp, 0 to 31. register: from 0. split: the column offset of 16x32bx2.
    """
    low = thread // 4
    match shape:
        case "32x32b":
            return thread, register
        case "16x64b":
            return low + 8 * (thread // 2 % 2), register * 2 + thread % 2
        case "16x128b":
            return low + 8 * (register % 2), register // 2 * 4 + thread % 4
        case "16x256b":
            column = register // 4 * 8 + thread % 4 * 2 + register % 2
            return low + 8 * (register // 2 % 2), column
        case "16x32bx2":
            return thread % 16, register + split * (thread // 16)
    raise ValueError(f"shape: {shape!r} is none of {', '.join(_COLUMNS)}")


def accumulator_place(
    m: int, n: int, row: int, column: int, cta_group: int = 1, ws: bool = False
) -> Place:
    """Where tcgen05.mma puts element (row, column) of its m x n result of 32-bit elements.

    cta_group: 1, or 2 for a pair of blocks. ws: for tcgen05.mma.ws.
    """
    known = (32, 64, 128) if ws else (64, 128) if cta_group == 1 else (128, 256)
    if m not in known or (ws and cta_group == 2):
        raise ValueError(f"m: it is one of {known} here, not {m}; .ws is for cta_group::1")
    rows = m // cta_group
    block, lane = divmod(row, rows)
    if rows == 64 and cta_group == 1 and not ws:  # the first half of each lane quarter
        return Place(0, lane // 16 * 32 + lane % 16, column)
    width = n * rows // LANES  # the columns of D lie in 128 / rows parts, one below the other
    return Place(block, lane + column // width * rows, column % width)


def scale_place(row: int, k: int) -> ScalePlace:
    """Where a scale factor of a 128 x 4 tile (rows x k) is, before and after tcgen05.cp.

    The copy has the shape .32x128b.warpx4. row: of A, or column of B. k: 0 to 3.
    """
    lane, column = row % 32, row // 32
    return ScalePlace(lane * 16 + column * 4 + k, lane, column, k)


def plot_tensor_access(access: str = "16x256b.x1", packed: bool = False, warp: int = 0) -> Figure:
    """Which thread and register of a warp hold which lane and column, in tcgen05.ld and .st.

    access: shape and repetitions, as in the instruction: "32x32b.x8", "16x256b.x1".
    packed: whether a register holds 16 bits of two columns each.
    warp: in the warpgroup, 0 to 3. It reaches the 32 lanes from 32 * warp.

    Raises ValueError for an access that does not exist.
    """
    parts = re.fullmatch(r"(\w+)\.x(\d+)", access)
    if not parts or parts[1] not in _COLUMNS:
        known = ", ".join(_COLUMNS)
        raise ValueError(f"access: {access!r} is no shape ({known}) with .x and repetitions")
    shape, repetitions = parts[1], int(parts[2])
    registers = repetitions * _REGISTERS.get(shape, 1)
    lanes, width = (32 if shape == "32x32b" else 16), 2 if packed else 1
    split = repetitions if shape == "16x32bx2" else 0
    columns = _COLUMNS[shape] * repetitions * width * (2 if split else 1)
    colors = colormaps["viridis"].resampled(32)
    with drawing.style():
        panel = (min(max(5.4, 0.62 * columns), 16), 0.6 + 0.24 * lanes)
        figure, ((axes,),) = drawing.grid(1, 1, panel, legend=0)
        size = min(8.0, 72 * panel[0] / columns / 4.4)  # "t31.r3" must fit within a column
        for thread in range(32):
            for register in range(registers):
                lane, column = register_place(shape, thread, register, split)
                for half in range(width):
                    text = f"t{thread}.r{register}" + ("lh"[half] if packed else "")
                    at = column * width + half, lane
                    _cell(axes, *at, colors(thread), text if size > 2.5 else "", size)
        first = 32 * warp
        _frame(axes, columns, lanes, "column, from the address's on", "lane")
        step = max(1, columns // 16)
        axes.set_xticks([c + 0.5 for c in range(0, columns, step)], range(0, columns, step))
        axes.set_yticks([i + 0.5 for i in range(lanes)], range(first, first + lanes), fontsize=7)
        more = "" if lanes == 32 else f"\nA second instruction has lanes {first + 16} and on."
        if split:
            more += f" The split is {split} columns."
        return drawing.finish(
            figure,
            f"tcgen05.ld{'.pack::16b' * packed} {access}, warp {warp}",
            "t: thread (lane of the warp), also its colour; r: its register"
            + (", low or high half." if packed else ".")
            + more,
            legend=False,
        )


def plot_accumulator(m: int, n: int = 64, cta_group: int = 1, ws: bool = False) -> Figure:
    """Which lanes and columns hold which rows and columns of a product's m x n accumulator.

    A panel for each block of the pair; colours identify the rows.

    Raises ValueError for an m that tcgen05.mma does not have.
    """
    cells = numpy.full((cta_group, LANES, n), numpy.nan)
    parts: dict[tuple[int, int, int, int], list[int]] = {}  # each part's lanes, in order
    for row in range(m):
        for column in range(n):
            at = accumulator_place(m, n, row, column, cta_group, ws)
            cells[at] = row
            shift = at.block, at.lane - row, column - at.column, at.lane // 32
            parts.setdefault(shift, []).append(row)
    with drawing.style():
        figure, (panels,) = drawing.grid(1, cta_group, (5.4, 6.0), legend=0)
        used = int(numpy.isfinite(cells).any(axis=(0, 1)).sum())
        for block, axes in enumerate(panels):
            image = axes.imshow(
                cells[block, :, :used], cmap="viridis", vmin=0, vmax=m - 1, aspect="auto",
                extent=(0, used, LANES, 0), interpolation="nearest",
            )  # fmt: skip
            for (of, lane, first, _), rows in parts.items():
                if of != block:
                    continue
                low, high = min(rows), max(rows)
                ink = "white" if high < m * 0.7 else "black"
                text = f"rows {low} to {high}, columns {first} to {first + used - 1}"
                middle = {"ha": "center", "va": "center"}
                axes.text(used / 2, lane + (low + high + 1) / 2, text, color=ink, **middle)
            _frame(axes, used, LANES, "column of tensor memory", "lane")
            axes.set_xticks(range(0, used + 1, max(1, used // 8)))
            axes.set_yticks(range(0, LANES + 1, 16))
            for lane in range(0, LANES + 1, 32):
                axes.axhline(lane, color="0.4", linewidth=0.8)
            if cta_group == 2:
                axes.set_title(f"block {block} of the pair")
        figure.colorbar(image, ax=panels, label="row of D", shrink=0.6)
        name = f"tcgen05.mma{'.ws' * ws}, cta_group::{cta_group}, M = {m}, N = {n}"
        caption = "Lines: the quarters of the lanes, each of which one warp of four reaches."
        return drawing.finish(figure, name, caption, legend=False)


def plot_scales(scale_vec: int = 1, scale_id: int = 0) -> Figure:
    """How a tile of 128 x 4 scale factors lies in shared memory and in tensor memory.

    Dark cells are the ones that a product reads.

    scale_vec: scale factors per row in one product: 1, 2 or 4 (.scale_vec::1X, 2X, 4X).
    scale_id: the first of them in a word of 4, as in the instruction descriptor.

    Raises ValueError if the two do not fit together.
    """
    if scale_vec not in (1, 2, 4) or scale_id not in range(0, 4, scale_vec):
        raise ValueError(
            f"scale_vec is 1, 2 or 4, and scale_id a multiple of it below 4, not {scale_vec} and"
            f" {scale_id}"
        )
    is_read = range(scale_id, scale_id + scale_vec)
    with drawing.style():
        widths = {"width_ratios": [1, 1, 0.42]}
        figure, (panels,) = drawing.grid(1, 3, (5.6, 8.2), legend=0, gridspec_kw=widths)
        for row in range(_TILE_ROWS):
            for k in range(_TILE_K):
                at = scale_place(row, k)
                color = _COLORS[at.column] if k in is_read else f"{_COLORS[at.column]}40"
                text = f"{row},{k}"
                _cell(panels[0], at.offset % 16, at.offset // 16, color, text, 6)
                x = at.column * 4 + at.byte
                _cell(panels[1], x, at.lane, color, text, 6)
                for quarter in range(4):
                    panels[2].add_patch(
                        Rectangle((x, quarter * 32 + at.lane), 1, 1, color=color, linewidth=0)
                    )
        titles = "shared memory", "tensor memory, lanes 0 to 31", "its four quarters"
        for axes, title, lanes in zip(panels, titles, (32, 32, LANES), strict=True):
            _frame(axes, 16, lanes, "", "lane")
            axes.set_title(title)
            axes.set_xticks([2 + 4 * i for i in range(4)], range(4))
            axes.set_xlabel("column, of 4 bytes")
            axes.set_yticks(range(0, lanes + 1, 4 if lanes == 32 else 32))
        panels[0].set(xlabel="byte % 16", ylabel="byte / 16")
        panels[0].set_xticks([i + 0.5 for i in range(0, 16, 4)], range(0, 16, 4))
        return drawing.finish(
            figure,
            f"Scale factors, .scale_vec::{scale_vec}X, scale factor ID {scale_id}",
            "row,k of each scale factor. Dark: what one product reads of them."
            " tcgen05.cp .32x128b.warpx4 copies the tile to all four quarters.",
            legend=False,
        )


def _cell(axes: Axes, x: float, y: float, color: object, text: str, size: float) -> None:
    axes.add_patch(Rectangle((x, y), 1, 1, facecolor=color, edgecolor="white", linewidth=0.4))
    if text:
        is_dark = isinstance(color, tuple) and sum(color[:3]) < 1.5
        ink = "white" if is_dark or color == drawing.BLUE else "black"
        middle = {"ha": "center", "va": "center"}
        axes.text(x + 0.5, y + 0.5, text, color=ink, fontsize=size, **middle)


def _frame(axes: Axes, width: int, height: int, xlabel: str, ylabel: str) -> None:
    axes.grid(False)
    axes.set(xlim=(0, width), ylim=(height, 0), xlabel=xlabel, ylabel=ylabel)
    axes.tick_params(length=0)
