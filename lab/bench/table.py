"""The table of `make bench` on disk, docs/bench.csv."""

from pathlib import Path
from typing import TYPE_CHECKING

import jitload
import reference
from lab import rivals
from lab.bench import products
from lab.measure.timing import GPU_CLOCK, HOST_CLOCK, TURNS_CLOCK

if TYPE_CHECKING:
    from pandas import DataFrame, Series

    from lab.bench.cells import Cell
    from lab.bench.product import Product

CSV = jitload.KERNELS.parent / "docs" / "bench.csv"
MACHINE = ("device", "driver", "cuda", "torch", "triton")
CONDITIONS = (*MACHINE, *rivals.LIBRARIES)
CELL = ("op", "options", "direction", "dtype", "cols", "rows", "clock")
KEY = (*CELL, "implementation")
FIGURES = (
    *("version", "time_us", "spread_us", "bytes", "gb_per_s", "percent_of_copy"),
    *("operations", "tflops", "mhz", "throttled", "turn", "peak_bytes", "plain_us", "failure"),
)
COLUMNS = [*KEY, *FIGURES, "run", *CONDITIONS, "copy_gb_per_s"]
_NUMBERS_OF_KEY = ("cols", "rows")
TEXTS = [
    *(name for name in KEY if name not in _NUMBERS_OF_KEY),
    *("version", "throttled", "turn", "failure", "run", *CONDITIONS),
]


def join(path: Path, lines: list[dict[str, object]]) -> None:
    """Write the lines to the CSV, replacing those with the same key and conditions.

    A cell that was measured with one more rival installed replaces the old one, too.

    Lines with the same conditions stand together, the newest set last; within a set the ops are in
    the order of reference.py.
    """
    import pandas

    table = pandas.DataFrame(lines, columns=COLUMNS)
    if path.exists():
        table = pandas.concat([read(path), table], ignore_index=True)
    texts = table.astype(object).fillna("").astype(str)
    latest = ~texts.duplicated([*KEY, *CONDITIONS], keep="last")
    table, texts = table[latest], texts[latest]
    now = texts.groupby([*CELL, *MACHINE])[[*rivals.LIBRARIES]].transform("last")
    before = texts[[*rivals.LIBRARIES]]
    fewer = ((before == now) | (before == "")).all(axis=1) & (before != now).any(axis=1)
    table, texts = table[~fewer], texts[~fewer]
    of_last_run = texts["run"] == texts.groupby([*CELL, *CONDITIONS])["run"].transform("last")
    table, texts = table[of_last_run], texts[of_last_run]
    conditions = texts[[*CONDITIONS]].agg("\n".join, axis=1)
    turn = {text: place for place, text in enumerate(dict.fromkeys(reversed(conditions.tolist())))}
    table = in_order(table.assign(options=texts["options"]), -conditions.map(turn))
    table = table.astype(dict.fromkeys(("bytes", "operations", "peak_bytes"), "Int64"))
    for name, digits in {"time_us": 2, "spread_us": 2, "plain_us": 2, "gb_per_s": 1}.items():
        table[name] = table[name].astype(float).round(digits)
    for name in ("percent_of_copy", "copy_gb_per_s", "tflops", "mhz"):
        table[name] = table[name].astype(float).round(1)
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(path, index=False)


def in_order(table: "DataFrame", turn: "Series | int" = 0) -> "DataFrame":
    """The lines sorted by turn, then by op in the order of reference.py."""
    orders = {
        "op": [*dict.fromkeys([*reference.OPS, *products.NAMES])],
        "direction": ["forward", "backward", "both"],
        "clock": [GPU_CLOCK, TURNS_CLOCK, HOST_CLOCK],
        "implementation": ["ours", *rivals.RIVALS],
    }
    order = table.assign(turn=turn)
    for name, values in orders.items():
        order[name] = order[name].map({value: place for place, value in enumerate(values)})
    return table.loc[order.sort_values(["turn", "clock", *KEY], kind="stable").index]


def longest_ago(todo: "list[Cell | Product]", path: Path) -> "list[Cell | Product]":
    """The cells sorted by their last run in the CSV, those without lines first.

    So a series of runs, each too short for all cells, measures all of them in the end.
    """
    if not path.exists():
        return todo
    table = read(path)
    names = [name for name in CELL if name != "clock"]
    runs = table["run"].str.replace("by ", "").groupby([table[name] for name in names]).max()
    last = runs.to_dict()
    return sorted(todo, key=lambda cell: last.get(tuple(cell.columns()[it] for it in names), ""))


def read(path: Path) -> "DataFrame":
    """The CSV as `join` wrote it; empty and missing texts are ""."""
    import pandas

    table = pandas.read_csv(path, dtype=dict.fromkeys([*TEXTS, "date"], str))
    if "run" not in table:  # an earlier release recorded only the day
        table = table.rename(columns={"date": "run"})
    return _with_texts(table)


def _with_texts(table: "DataFrame") -> "DataFrame":
    """The table with all columns; missing texts become ""."""
    absent = dict.fromkeys([name for name in TEXTS if name not in table], "")
    return table.assign(**absent).reindex(columns=COLUMNS).fillna(dict.fromkeys(TEXTS, ""))
