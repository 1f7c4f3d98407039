"""Lines of the bench's table that belong together, and Markdown table rows."""

import pandas
from pandas import DataFrame

LEVEL = 1.02  # times within this ratio count as equal


def runs_of(table: DataFrame) -> list[str]:
    """The runs that the lines come from, earliest first."""
    return sorted(set(table["run"]), key=lambda run: run.replace("by ", ""))


def row(texts: list[str]) -> str:
    return "| " + " | ".join(texts) + " |"


def untimed(cell: DataFrame) -> list[str]:
    """The rivals of a cell that were not compiled in time and could have been the fastest."""
    late = cell["failure"].str.startswith("TimeoutError")
    return cell[late]["implementation"].tolist()


def ours_and_best(cell: DataFrame) -> tuple[pandas.Series, pandas.Series | None]:
    """Our line of a cell, and the line of the fastest rival with a time."""
    is_ours = cell["implementation"] == "ours"
    others = cell[~is_ours & cell["time_us"].notna()]
    best = None if others.empty else others.loc[others["time_us"].idxmin()]
    return cell[is_ours].iloc[0], best


def titled(op: str, options: str) -> str:
    return f"{op}, {options}" if options else op
