"""What a line of code costs, as a report's text and its HTML both show it, in the same columns."""

from __future__ import annotations

from typing import NamedTuple

from pandas import DataFrame

COLUMNS = {  # for each memory: of the global one the bytes that were moved, too
    "global": ("bytes", "sectors (ideal)"),
    "shared": ("passes (ideal)",),
}
WASTEFUL = 1.25  # times the fewest sectors, or passes, from which on a line is red


class Cost(NamedTuple):
    """Of all requests to one memory: sectors or passes, and the fewest that would do."""

    taken: int
    ideal: int
    requests: int

    @property
    def wasteful(self) -> bool:
        return self.taken > WASTEFUL * self.ideal

    def __str__(self) -> str:
        """Of one request on average."""
        if not self.requests:
            return ""
        return f"{self.taken / self.requests:.1f} ({self.ideal / self.requests:.1f})"


def memories(traffic: DataFrame) -> list[str]:
    """Those of which something was counted: the others have no columns."""
    return [memory for memory in COLUMNS if (traffic["memory"] == memory).any()]


def titles(shown: list[str]) -> list[str]:
    """Of the columns of these memories."""
    return [title for memory in shown for title in COLUMNS[memory]]


def moved(traffic: DataFrame) -> str:
    """What stands in the column of bytes: nothing where none were moved."""
    count = int(traffic["bytes_moved"].sum())
    return f"{count:,}" if count else ""


def cost(traffic: DataFrame, memory: str) -> Cost:
    """What these rows of a report's traffic cost in one memory."""
    rows = traffic[traffic["memory"] == memory]
    if memory == "global":
        taken, ideal = rows["sectors"].sum(), rows["ideal_sectors"].sum()
    else:
        taken, ideal = rows["passes"].sum(), (rows["passes"] - rows["bank_conflicts"]).sum()
    return Cost(int(taken), int(ideal), int(rows["requests"].sum()))


def cells(traffic: DataFrame, shown: list[str]) -> list[str]:
    """What stands in the columns of these memories."""
    costs = {memory: str(cost(traffic, memory)) for memory in shown}
    return [
        text
        for memory in shown
        for text in ((moved(traffic), costs[memory]) if memory == "global" else (costs[memory],))
    ]
