"""What `make bench` publishes from the CSV: README totals, docs/bench.md and its pictures.

    python -m lab.bench.report [CSV ...]     writes them without a GPU; default docs/bench.csv

All figures come from one machine, that of the newest run: the same GPU, driver and releases of
CUDA, PyTorch and Triton. Cells may be of earlier runs: bench.csv and bench_cells.csv name the run.
"""

import math
import statistics
import sys
from pathlib import Path

from matplotlib.figure import Figure
from pandas import DataFrame

from lab.bench.cell_lines import LEVEL, ours_and_best, row, runs_of, titled, untimed
from lab.bench.product_picture import TITLE as PRODUCTS_TITLE
from lab.bench.product_picture import product_picture
from lab.bench.product_tables import product_lines, product_score, product_tables, shares_of
from lab.bench.table import CELL, CSV, MACHINE, in_order, read
from lab.measure.timing import GPU_CLOCK, HOST_CLOCK, TURNS_CLOCK
from lab.rivals import LIBRARIES, NEEDS, RIVALS, libraries_of
from lab.style import drawing

BEGIN, END = "<!-- make bench writes from here -->", "<!-- to here -->"
SHAPE = ("rows", "cols", "dtype")
PANELS = 4  # side by side
PRODUCTS, PRODUCT_LINES = "bench_products.svg", "bench_products.csv"
CELLS = "bench_cells.csv"
CELL_COLUMNS = (
    *("op", "options", "direction", "dtype", "rows", "cols", "clock", "microseconds"),
    *("percent of a copy", "best rival", "percent of the best rival", "not timed", "run"),
)


def write(csv: Path) -> list[Path]:
    """Write the README's totals, bench.md, its pictures and tables; return the paths.

    csv: the table of `make bench`; its folder gets all files but the README, which is the one in
    the parent folder, if any. Raises ValueError if that README has no markers.
    """
    table = newest(read(csv))
    readme = csv.parent.parent / "README.md"
    text = readme.read_text() if readme.is_file() else None
    if text is not None and (text.count(BEGIN) != 1 or text.count(END) != 1):
        raise ValueError(f"{readme}: wanted are the two lines {BEGIN} and {END}, once each")
    pictures = {}
    for dtype in dict.fromkeys(of_clock(table, GPU_CLOCK)["dtype"]):
        for direction in directions_of(table, dtype):
            name = f"bench_{direction}_{dtype}.svg"
            pictures[name] = picture(table, direction, dtype)
    if drawn := product_picture(of_clock(table, TURNS_CLOCK)):
        pictures[PRODUCTS] = drawn
    for name, drawn in pictures.items():
        with drawing.style():
            drawn.savefig(csv.parent / name, metadata={"Date": None})
    page = csv.with_suffix(".md")
    page.write_text(full_page(table, list(pictures)))
    written = [page, *(csv.parent / name for name in pictures)]
    apart = table[table["clock"] != TURNS_CLOCK]
    if not apart.empty:
        written.append(csv.with_name(CELLS))
        cell_lines(apart).to_csv(written[-1], index=False)
    if not (in_turns := of_clock(table, TURNS_CLOCK)).empty:
        written.append(csv.with_name(PRODUCT_LINES))
        product_lines(in_turns).to_csv(written[-1], index=False)
    if text is None:  # as in a folder of chapters and kernels
        return written
    head, rest = text.split(BEGIN)
    tail = rest.split(END)[1]
    readme.write_text(f"{head}{BEGIN}\n\n{readme_part(table, csv.parent.name)}\n\n{END}{tail}")
    return [readme, *written]


def newest(table: DataFrame) -> DataFrame:
    """The lines with the conditions of the last line, which are the newest run's.

    If a cell has several sets, because a rival came or went, the newest.
    """
    libraries = [*LIBRARIES]
    table = table[(table[[*MACHINE]] == table[[*MACHINE]].iloc[-1]).all(axis=1)]
    versions = table[libraries].where(table[libraries] != "")
    table = table[(versions.isna() | (versions == versions.ffill().iloc[-1])).all(axis=1)]
    now = table.groupby([*CELL])[libraries].transform("last")
    return in_order(table[(table[libraries] == now).all(axis=1)])


def directions_of(table: DataFrame, dtype: str) -> list[str]:
    """The directions with a measured traffic, each of which has a picture."""
    timed = of_clock(table, GPU_CLOCK)
    there = set(timed[timed["dtype"] == dtype]["direction"])
    return [direction for direction in ("forward", "backward") if direction in there]


def of_clock(table: DataFrame, clock: str) -> DataFrame:
    return table[table["clock"] == clock]


# ---- tables


def readme_part(table: DataFrame, folder: str) -> str:
    timed, in_turns = of_clock(table, GPU_CLOCK), of_clock(table, TURNS_CLOCK)
    page = f"[{folder}/bench.md]({folder}/bench.md)"
    scores = [] if timed.empty else [score(timed)]
    scores += [] if in_turns.empty else [product_score(in_turns)]
    lines = [*scores, machine_text(table), f"All figures of `make bench` are in {page}."]
    dtype = "bfloat16" if "bfloat16" in set(timed["dtype"]) else timed["dtype"].min()
    for direction in directions_of(table, dtype)[:1]:
        name = f"bench_{direction}_{dtype}.svg"
        lines.append(f"![Bandwidth against row width, {direction}]({folder}/{name})")
    if timed.empty and shares_of(in_turns):
        lines.append(f"![{PRODUCTS_TITLE}]({folder}/{PRODUCTS})")
    return "\n\n".join(lines)


def full_page(table: DataFrame, pictures: list[str]) -> str:
    timed, in_turns = of_clock(table, GPU_CLOCK), of_clock(table, TURNS_CLOCK)
    summary = condition_text(table)
    if not timed.empty:
        summary = f"{score(timed)} {summary}"
    lines = [f"# What `make bench` measured on an {table['device'].iloc[-1]}", "", summary]
    if not timed.empty:
        lines += ["", "## Ops that are bound by traffic", "", *width_totals(timed)]
    for name in pictures:
        if name != PRODUCTS:
            lines += ["", f"![{name.removesuffix('.svg').replace('_', ' ')}]({name})"]
    if not in_turns.empty:
        lines += ["", *product_tables(in_turns, PRODUCT_LINES)]
        if PRODUCTS in pictures:
            lines += ["", f"![{PRODUCTS_TITLE}]({PRODUCTS})"]
    host = of_clock(table, HOST_CLOCK)
    if not host.empty:
        rows, cols = host["rows"].iloc[0], host["cols"].iloc[0]
        dtype = host["dtype"].iloc[0]
        lines += ["", f"## The host's time for a call at {rows} x {cols}, {dtype}", ""]
        lines += host_table(host)
    failures = table[table["failure"] != ""]
    if not failures.empty:
        lines += ["", "## Rivals without a time", ""]
        for (label, failure), group in failures.groupby(["implementation", "failure"]):
            ops = ", ".join(dict.fromkeys(group["op"]))
            lines.append(f"- {label}, {ops}, {len(group)} cells: {failure}")
    if absent := absent_libraries(table):
        lines += ["", f"Not installed: {'; '.join(absent)}."]
    return "\n".join([*lines, ""])


def absent_libraries(table: DataFrame) -> list[str]:
    """Each library that was missing in all runs of an op for which it has a kernel."""
    ops: dict[str, list[str]] = {}
    for op, group in table.groupby("op", sort=False):
        for name in libraries_of(op):
            if (group[name] == "").all():
                ops.setdefault(name, []).append(op)
    needs = {name: f" ({text})" for name, text in NEEDS.items()}
    return [f"{name} for {', '.join(of)}{needs.get(name, '')}" for name, of in ops.items()]


def width_totals(timed: DataFrame) -> list[str]:
    """Markdown: a line for each op, options and direction, with its figures over all widths."""
    types = list(dict.fromkeys(timed["dtype"]))
    lines = [
        "Medians over the row widths, and the lowest with its width. Percent of the bandwidth of a"
        f" copy, and percent of the best rival's speed. [{CELLS}]({CELLS}) has each width.",
        "",
        row(
            ["", "", *(f"{it}, {of}" for it in types for of in ("of a copy", "of the best rival"))]
        ),
        "|---|---|" + "---|" * 2 * len(types),
    ]
    for (op, options, direction), group in timed.groupby(
        ["op", "options", "direction"], sort=False
    ):
        shown = [titled(op, options), direction]
        for dtype in types:
            shown += _width_texts(group[group["dtype"] == dtype])
        lines.append(row(shown))
    return lines


def _width_texts(group: DataFrame) -> list[str]:
    """Percent of a copy and of the best rival's speed, each like "98, 94 at 262144"."""
    of_copy, of_rival = [], []
    for cols, cell in group.groupby("cols"):
        own, rival = ours_and_best(cell)
        of_copy.append((own["percent_of_copy"], cols))
        if rival is not None:
            of_rival.append((100 * rival["time_us"] / own["time_us"], cols))
    return [_with_lowest(of_copy), _with_lowest(of_rival)]


def _with_lowest(shares: list[tuple[float, int]]) -> str:
    if not shares:
        return ""
    middle, (lowest, cols) = statistics.median(share for share, _ in shares), min(shares)
    return f"{middle:.0f}, {lowest:.0f} at {cols}"


def cell_lines(table: DataFrame) -> DataFrame:
    """A line for each cell, with the columns of CELL_COLUMNS."""
    lines = []
    for _, cell in table.groupby([*CELL], sort=False):
        own, rival = ours_and_best(cell)
        name = share = ""
        if rival is not None:
            name = rival["implementation"]
            share = f"{100 * rival['time_us'] / own['time_us']:.1f}"
        known = [own[column] for column in CELL_COLUMNS[:7]]
        figures = [own["time_us"], own["percent_of_copy"], name, share]
        lines.append([*known, *figures, ", ".join(untimed(cell)), own["run"]])
    return DataFrame(lines, columns=CELL_COLUMNS)


def score(timed: DataFrame) -> str:
    """In how many cells ours is faster, level or slower, and at which widths it is slower."""
    won = level = unknown = 0
    lost = []
    for (*_, cols), cell in timed.groupby(
        ["op", "options", "direction", "dtype", "cols"], sort=False
    ):
        own, rival = ours_and_best(cell)
        if untimed(cell):
            unknown += 1
        elif rival is None or own["time_us"] * LEVEL < rival["time_us"]:
            won += 1
        elif own["time_us"] <= LEVEL * rival["time_us"]:
            level += 1
        else:
            lost.append(cols)
    *most, last = map(str, sorted(set(lost))) if lost else [""]
    widths = f"{', '.join(most)} and {last}" if most else last
    where = f" (at {widths} columns)" if lost else ""
    text = (
        f"In {won} of {won + level + len(lost)} cells ours is faster than the best rival by more"
        f" than 2%, in {level} level, in {len(lost)} slower{where}."
    )
    return f"{text} Not counted: {unknown}, where a rival was not timed." if unknown else text


def host_table(host: DataFrame) -> list[str]:
    """Markdown: microseconds of ours and of the fastest rival."""
    common = host.iloc[0][[*SHAPE]]
    lines = ["Microseconds: ours (the fastest rival). Both: forward and backward.", ""]
    directions = list(dict.fromkeys(host["direction"]))
    lines += [row(["", *directions]), "|---|" + "---|" * len(directions)]
    for (op, options), group in host.groupby(["op", "options"], sort=False):
        first = group.iloc[0]
        if (first[[*SHAPE]] != common).any():
            shape = f"{first['rows']} x {first['cols']}, {first['dtype']}"
            options = f"{shape}, {options.partition(': ')[2] or options}".removesuffix(", ")
        cells = [host_text(group[group["direction"] == it]) for it in directions]
        lines.append(row([titled(op, options), *cells]))
    return lines


def host_text(cell: DataFrame) -> str:
    """Ours and the fastest rival of one cell: "12.8 (7.3 eager)"."""
    if cell.empty:
        return ""
    own, rival = ours_and_best(cell)
    best = "" if rival is None else f" ({rival['time_us']:.1f} {rival['implementation']})"
    return f"{own['time_us']:.1f}{best}"


def machine_text(table: DataFrame) -> str:
    """The hardware and software of the measurement, and its date, in a sentence or two."""
    last = table.iloc[-1]
    machine = (
        f"{last['device']}, driver {last['driver']}, CUDA {last['cuda']}, torch {last['torch']},"
        f" triton {last['triton']}"
    )
    first, *others = runs_of(table)
    if not others:
        return f"{machine}, {details(table)}. Medians, cold L2."
    first, newest_run = first.replace("by ", ""), others[-1].replace("by ", "")
    when = f"{len(others) + 1} runs, {first} to {newest_run} UTC"
    return f"{machine}; {when}. Medians, cold L2."


def condition_text(table: DataFrame) -> str:
    """`machine_text` and, if there are several runs, their common conditions."""
    runs = runs_of(table)
    if len(runs) == 1:
        return machine_text(table)
    libraries = [
        f"{name} {', '.join(versions)}"
        for name in LIBRARIES
        if (versions := sorted(set(table[name]) - {""}))
    ]
    had = ", ".join([*libraries, copy_text(table)])
    return (
        f"{machine_text(table)} {had[0].upper()}{had[1:]}. Within a cell, our figure and its"
        " rivals' are of the same run."
    )


def details(run: DataFrame) -> str:
    """The conditions of a run apart from the machine, and its date."""
    last = run.iloc[-1]
    libraries = [f"{name} {last[name]}" for name in LIBRARIES if last[name]]
    return ", ".join([f"{last['run']} UTC", *libraries, copy_text(run)])


def copy_text(run: DataFrame) -> str:
    """The bandwidth of a copy in the run, as in "copy 4270 to 4272 GB/s"."""
    copies = run["copy_gb_per_s"]
    least, most = copies.min(), copies.max()
    return f"copy {least:.0f}{f' to {most:.0f}' if most - least >= 1 else ''} GB/s"


# ---- pictures


def picture(table: DataFrame, direction: str, dtype: str) -> Figure:
    """Bandwidth against row width, a small panel for each op, with a line for the copy."""
    timed = of_clock(table, GPU_CLOCK)
    timed = timed[(timed["direction"] == direction) & (timed["dtype"] == dtype)]
    groups = list(timed.groupby(["op", "options"], sort=False))
    columns = min(PANELS, len(groups))
    rows = -(-len(groups) // columns)
    widths = sorted(set(timed["cols"]))
    ticks = [cols for cols in widths if math.log(cols / widths[0], 4).is_integer()]
    copy = timed["copy_gb_per_s"].median()
    with drawing.style():
        figure, axes = drawing.grid(rows, columns, (2.6, 2.1), sharex=True, sharey=True)
        panels = [panel for line in axes for panel in line]
        for panel in panels[len(groups) :]:
            panel.set_visible(False)
        for panel, ((op, options), lines) in zip(panels, groups, strict=False):
            for label in ("ours", *RIVALS):
                points = lines[lines["implementation"] == label].dropna(subset="time_us")
                if not points.empty:
                    look = drawing.look("ours:ours" if label == "ours" else label, ["ours"])
                    points = points.sort_values("cols")
                    on_top = 3 if label == "ours" else 2
                    panel.plot(
                        points["cols"], points["gb_per_s"], label=label, zorder=on_top, **look
                    )
            panel.axhline(copy, label=f"copy, {copy:.0f} GB/s", **drawing.COPY_LINE)
            panel.set_title(titled(op, options))
            panel.set_xscale("log", base=2)
            panel.set_xticks(ticks, [drawing.short(cols) for cols in ticks])
            panel.set_xticks([], minor=True)
            panel.set_ylim(0, 1.12 * max(copy, timed["gb_per_s"].max()))
        for line in axes:
            line[0].set_ylabel("GB/s")
        for place, panel in enumerate(panels[: len(groups)]):
            if place + columns >= len(groups):
                panel.set_xlabel("row width (columns)")
                panel.tick_params(labelbottom=True)
        last = timed.iloc[-1]
        elements = (timed["rows"] * timed["cols"]).max()
        *earlier, newest_run = runs_of(timed)
        when = f"{len(earlier) + 1} runs, the last " if earlier else ""
        caption = (
            f"{last['device']}, driver {last['driver']}, torch {last['torch']}\n"
            f"{elements:,} elements, median, cold L2, {when}{newest_run} UTC"
        )
        return drawing.finish(figure, f"Bandwidth, {direction}, {dtype}", caption)


if __name__ == "__main__":
    for csv in map(Path, sys.argv[1:] or [CSV]):
        for path in write(csv):
            print(f"wrote {path}")
