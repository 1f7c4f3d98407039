"""What `make bench` writes about products: totals for bench.md, and a line for each shape."""

import re
import statistics

import pandas
from pandas import DataFrame, Series

from lab.bench.cell_lines import LEVEL, ours_and_best, row, untimed
from lab.bench.table import CELL

COLUMNS = (
    *("op", "direction", "rows x cols", "kind", "sizes", "ours", "percent of the best rival"),
    *("best rival", "slower than plain", "clock", "rivals", "run"),
)
DIRECTIONS = {"forward": "forward", "backward": "backward", "both": "both passes"}
WITH_MEMORY = ("linear_cross_entropy",)  # ops whose purpose is to save memory
NOTE = (
    "Each kernel and its rivals take turns; the figures are medians. The table gives the percent of"
    " the best rival's speed: its time divided by ours. Faster and slower mean by more than 2%. The"
    " worst shape is the one with the lowest percent."
)
OF_FILE = (
    "has a line for each shape: TFLOPS (10^12 operations a second), or the percent of the bandwidth"
    " of a copy where traffic counts; every rival's figure; and our clock, with what"
    " limited it. `by calls` marks what CUDA graphs cannot capture, so that the host's time counts."
    " `slower than plain` compares a fused product with our plain product of the same x and w."
)


def product_tables(in_turns: DataFrame, file: str) -> list[str]:
    """Markdown: a heading, what the figures mean, and a line for each op, direction and kind.

    in_turns: the lines of products. file: the name of the CSV that `product_lines` is written to.
    """
    head = ["op", "kind", "shapes", "faster", "level", "slower", "median", "lowest", "worst shape"]
    lines = ["## Products, in turns", "", NOTE, "", f"[{file}]({file}) {OF_FILE}", ""]
    lines += [row(head), "|---|---|" + "---:|" * 6 + "---|"]
    for (op, direction), group in in_turns.groupby(["op", "direction"], sort=False):
        for kind, cells in group.groupby(group["options"].str.partition(": ")[0], sort=False):
            lines.append(row([f"{op}, {DIRECTIONS[direction]}", kind, *_totals(_cells(cells))]))
    for op in WITH_MEMORY:
        group = in_turns[in_turns["op"] == op]
        if not group.empty:
            lines += ["", *_memory_table(group)]
    return lines


def _totals(cells: list[DataFrame]) -> list[str]:
    """The number of cells, in how many ours is faster, level or slower, and by how much."""
    faster = level = slower = 0
    shares = []
    for cell in cells:
        own, best = ours_and_best(cell)
        if best is None:
            continue
        sizes = own["options"].partition(": ")[2]
        dtype = "" if own["dtype"] == "bfloat16" else f", {own['dtype']}"
        shape = f"{own['rows']} x {own['cols']}, {sizes}{dtype}"
        shares.append(
            (100 * best["time_us"] / own["time_us"], f"{shape} ({best['implementation']})")
        )
        if own["time_us"] > LEVEL * best["time_us"]:
            slower += 1
        elif untimed(cell):
            continue
        elif own["time_us"] * LEVEL < best["time_us"]:
            faster += 1
        else:
            level += 1
    if not shares:
        return [str(len(cells)), *[""] * 6]
    middle, (lowest, worst) = statistics.median(share for share, _ in shares), min(shares)
    counts = (len(cells), faster, level, slower)
    return [*map(str, counts), f"{middle:.1f}%", f"{lowest:.1f}%", worst]


def product_lines(in_turns: DataFrame) -> DataFrame:
    """A line for each shape, with the columns of COLUMNS."""
    groups = in_turns.groupby(["op", "direction"], sort=False)
    lines = [_line(cell) for _, group in groups for cell in _cells(group)]
    return DataFrame(lines, columns=COLUMNS)


def _memory_table(group: DataFrame) -> list[str]:
    """The peak memory of a call beside its inputs: a line for each shape and direction."""
    labels = list(dict.fromkeys(group["implementation"]))
    lines = ["Peak memory of a call beside its inputs, results included, in MB:", ""]
    lines += [row(["rows x cols", "", "", *labels]), "|---|---|---|" + "---:|" * len(labels)]
    for cell in _cells(group):
        first = cell.iloc[0]
        peaks = cell.set_index("implementation")["peak_bytes"]
        known = peaks.notna()
        texts = [f"{1e-6 * peaks[it]:.0f}" if known.get(it, False) else "" for it in labels]
        sizes = first["options"].partition(": ")[2]
        shape, direction = f"{first['rows']} x {first['cols']}", DIRECTIONS[first["direction"]]
        lines.append(row([shape, sizes, direction, *texts]))
    return lines


def product_score(in_turns: DataFrame) -> str:
    """Our speed relative to the best rival: the median and the worst."""
    texts = []
    for op, group in in_turns.groupby("op", sort=False):
        shares = shares_of(group)
        if shares:
            middle, lowest = statistics.median(shares), min(shares)
            texts.append(f"{op} {middle:.0f}% (at the lowest {lowest:.0f}%, {len(shares)} shapes)")
    if not texts:
        return "Of products there is no rival's time."
    return f"Products, in percent of the speed of the best rival, medians: {'; '.join(texts)}."


def shares_of(in_turns: DataFrame) -> list[float]:
    """Percent of the best rival's speed, for each cell in which a rival has a time."""
    shares = []
    for cell in _cells(in_turns):
        own, best = ours_and_best(cell)
        if best is not None:
            shares.append(100 * best["time_us"] / own["time_us"])
    return shares


def _cells(lines: DataFrame) -> list[DataFrame]:
    """The lines of each cell, sorted by kind, then from small shapes to large ones."""
    return sorted((cell for _, cell in lines.groupby([*CELL], sort=False)), key=_place)


def _place(cell: DataFrame) -> tuple[object, ...]:
    line = cell.iloc[0]
    kind, _, sizes = line["options"].partition(": ")
    numbers, words = [*map(int, re.findall(r"\d+", sizes))], re.sub(r"\d+", "", sizes)
    return kind, line["dtype"], words, line["cols"], line["rows"], numbers


def _line(cell: DataFrame) -> list[str]:
    own, best = ours_and_best(cell)
    kind, _, sizes = own["options"].partition(": ")
    if own["dtype"] != "bfloat16":
        kind = f"{kind}, {own['dtype']}"
    share = name = ""
    if best is not None:
        share, name = f"{100 * best['time_us'] / own['time_us']:.1f}", best["implementation"]
    slower = 100 * (own["time_us"] / own["plain_us"] - 1)
    shown = [own["op"], own["direction"], f"{own['rows']} x {own['cols']}", kind, sizes]
    shown += [_speed(own), share, name, f"{slower:+.1f}%" if pandas.notna(slower) else ""]
    return [*shown, _clock(own), _rivals(cell), own["run"]]


def _speed(line: Series) -> str:
    """ "782 TFLOPS", "91% of a copy" or, where neither is known, "12.3 µs"."""
    if pandas.notna(line["tflops"]):
        return f"{line['tflops']:.0f} TFLOPS"
    if pandas.notna(line["percent_of_copy"]):
        return f"{line['percent_of_copy']:.0f}% of a copy"
    return f"{line['time_us']:.1f} µs"


def _clock(line: Series) -> str:
    if pandas.isna(line["mhz"]):
        return ""
    return ", ".join(filter(None, [f"{line['mhz']:.0f} MHz", line["throttled"]]))


def _rivals(cell: DataFrame) -> str:
    """All rivals with a time, the fastest first, in the unit of ours."""
    others = cell[(cell["implementation"] != "ours") & cell["time_us"].notna()]
    shown = []
    for it in others.sort_values("time_us", kind="stable").to_dict("records"):
        how = " by calls" if it["turn"] == "calls" else ""
        shown.append(f"{it['implementation']} {_speed(it).split()[0]}{how}")
    return ", ".join(shown)
