"""What docs/bench.md shows of products: a table for each op, from the lines of `make bench`."""

import re
import statistics

import pandas
from pandas import DataFrame, Series

from lab.bench.cell_lines import LEVEL, ours_and_best, row, runs_of, untimed
from lab.bench.table import CELL

HEAD = ("rows x cols", "", "", "ours", "of the best rival", "clock", "rivals")
DEARER = "dearer than plain"  # a column of the tables in which something is fused
WITH_MEMORY = ("linear_cross_entropy",)  # the ops that are there for the memory's sake
NOTE = (
    "Ours and its rivals take turns, in CUDA graphs, or `by calls` where no graph captures them and"
    " the host may be what takes the time; medians. TFLOPS are 10^12 operations a second;"
    " where traffic counts, the figure is the percent of the bandwidth of a copy. The percent of"
    " the best rival is that of its speed, in the same turns; bold: ours is level with it, to 2%,"
    " or faster. The clock is the one that held in the turns of ours, and what held it down, if"
    " anything did. What is fused takes turns with our plain product of the same x and w, too: it"
    " takes so much more time."
)


def product_tables(in_turns: DataFrame, runs: list[str]) -> list[str]:
    """Markdown: a heading, what the figures are, and a table for each op and direction.

    in_turns: the lines of products. runs: those of the whole page.
    """
    lines = ["## Products, in turns", "", NOTE]
    for (op, direction), group in in_turns.groupby(["op", "direction"], sort=False):
        fused = bool(group["plain_us"].notna().any())
        head = [*HEAD[:5], *[DEARER] * fused, *HEAD[5:], *["run"] * (len(runs) > 1)]
        numbers = 3 if fused else 2
        sides = [*["---"] * 3, *["---:"] * numbers, *["---"] * (len(head) - 3 - numbers)]
        lines += ["", f"### {op}, {'both passes' if direction == 'both' else direction}"]
        lines += ["", row(head), f"|{'|'.join(sides)}|"]
        lines += [_line(cell, runs, fused) for cell in _cells(group)]
        if op in WITH_MEMORY:
            lines += ["", *_memory_table(group)]
    return lines


def _memory_table(group: DataFrame) -> list[str]:
    """The most memory that a call has beside its inputs: a line for each shape, by everybody."""
    labels = list(dict.fromkeys(group["implementation"]))
    lines = ["Peak memory of a call beside its inputs, results included, in MB:", ""]
    lines += [row(["rows x cols", "", *labels]), "|---|---|" + "---:|" * len(labels)]
    for cell in _cells(group):
        first = cell.iloc[0]
        peaks = cell.set_index("implementation")["peak_bytes"]
        known = peaks.notna()
        texts = [f"{1e-6 * peaks[it]:.0f}" if known.get(it, False) else "" for it in labels]
        sizes = first["options"].partition(": ")[2]
        lines.append(row([f"{first['rows']} x {first['cols']}", sizes, *texts]))
    return lines


def product_score(in_turns: DataFrame) -> str:
    """How fast ours are beside the best rival of each: in the middle, and at their worst."""
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
    """The percent of the best rival's speed, of each cell that a rival has a time of."""
    shares = []
    for cell in _cells(in_turns):
        own, best = ours_and_best(cell)
        if best is not None:
            shares.append(100 * best["time_us"] / own["time_us"])
    return shares


def _cells(lines: DataFrame) -> list[DataFrame]:
    """The lines of each cell: kind by kind, in it from small shapes to large ones."""
    return sorted((cell for _, cell in lines.groupby([*CELL], sort=False)), key=_place)


def _place(cell: DataFrame) -> tuple[object, ...]:
    line = cell.iloc[0]
    kind, _, sizes = line["options"].partition(": ")
    numbers, words = [*map(int, re.findall(r"\d+", sizes))], re.sub(r"\d+", "", sizes)
    return kind, line["dtype"], words, line["cols"], line["rows"], numbers


def _line(cell: DataFrame, runs: list[str], fused: bool) -> str:
    own, best = ours_and_best(cell)
    kind, _, sizes = own["options"].partition(": ")
    if own["dtype"] != "bfloat16":
        kind = f"{kind}, {own['dtype']}"
    share = ""
    if best is not None:
        share = f"{100 * best['time_us'] / own['time_us']:.1f}% ({best['implementation']})"
        if own["time_us"] <= LEVEL * best["time_us"] and not untimed(cell):
            share = f"**{share}**"
    shape = f"{own['rows']} x {own['cols']}"
    dearer = 100 * (own["time_us"] / own["plain_us"] - 1)
    dearer_text = f"{dearer:+.1f}%" if pandas.notna(dearer) else ""
    shown = [shape, kind, sizes, _speed(own), share, *[dearer_text] * fused]
    shown += [_clock(own), _rivals(cell)]
    if len(runs) > 1:
        (run,) = runs_of(cell)
        shown.append(str(runs.index(run) + 1))
    return row(shown)


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
