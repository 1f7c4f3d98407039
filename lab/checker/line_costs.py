"""The cost of a line of code, in the same columns in a report's text and HTML."""

from __future__ import annotations

from typing import NamedTuple

from pandas import DataFrame

COLUMNS = {  # by memory; global memory also has a column for bytes moved
    "global": ("bytes", "sectors (ideal)"),
    "shared": ("passes (ideal)",),
}
WASTEFUL = 1.25  # a line is red from this multiple of the fewest sectors or passes


class Cost(NamedTuple):
    """All requests to one memory: sectors or passes, and the fewest possible."""

    taken: int
    ideal: int
    requests: int

    @property
    def wasteful(self) -> bool:
        return self.taken > WASTEFUL * self.ideal

    def __str__(self) -> str:
        """The average for one request."""
        if not self.requests:
            return ""
        return f"{self.taken / self.requests:.1f} ({self.ideal / self.requests:.1f})"


def memories(traffic: DataFrame) -> list[str]:
    """The memories with requests; the others have no columns."""
    return [memory for memory in COLUMNS if (traffic["memory"] == memory).any()]


def titles(shown: list[str]) -> list[str]:
    """The column titles for these memories."""
    return [title for memory in shown for title in COLUMNS[memory]]


def moved(traffic: DataFrame) -> str:
    """The text of the bytes column: empty if no bytes were moved."""
    count = int(traffic["bytes_moved"].sum())
    return f"{count:,}" if count else ""


def cost(traffic: DataFrame, memory: str) -> Cost:
    """The cost of these traffic rows in one memory."""
    rows = traffic[traffic["memory"] == memory]
    if memory == "global":
        taken, ideal = rows["sectors"].sum(), rows["ideal_sectors"].sum()
    else:
        taken, ideal = rows["passes"].sum(), (rows["passes"] - rows["bank_conflicts"]).sum()
    return Cost(int(taken), int(ideal), int(rows["requests"].sum()))


def cells(traffic: DataFrame, shown: list[str]) -> list[str]:
    """The cells for these memories."""
    costs = {memory: str(cost(traffic, memory)) for memory in shown}
    return [
        text
        for memory in shown
        for text in ((moved(traffic), costs[memory]) if memory == "global" else (costs[memory],))
    ]
