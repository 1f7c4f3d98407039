"""What `lab.tune` returns: the table, the best configuration, figures, and the way to keep it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pandas import DataFrame

import jitload
from lab.tuner import pictures
from lab.tuner.candidate import Candidate
from lab.tuner.space import Configuration

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

ALIKE = 0.02  # smaller differences between predicted costs mean nothing
LEAST_GAIN = 0.02  # smaller gains are not kept


class Tuning:
    """What was tried, and what came of it; a notebook shows it as text and a figure.

    table: a row for each configuration that was built, the best first: the constants; `cost`, the
        geometric mean over the calls of what each costs relative to the kernel as it stands;
        `refused`, why it was not run or not used; `registers` and bytes `spilled` and `shared` of
        the kernel that takes most; and for each call its cost (`CALL`) and interquartile range
        (`CALL spread`), in `attrs["unit"]`. `attrs` holds the conditions, as `lab.compare`'s does.
    best: the constants of the best configuration; {} where none is better than the kernel as it is.
    gain: the part of its time that the kernel saves so, by the geometric mean over the calls.
    configurations: how many there were; of which `runs` were timed.
    """

    def __init__(
        self,
        kernel: jitload.Kernel,
        standing: Candidate,
        candidates: list[Candidate],
        names: list[str],
        facts: dict[str, object],
    ) -> None:
        self._kernel, self._standing, self._candidates = kernel, standing, candidates
        self._shapes: dict[str, list[jitload.ShapeClass]] = facts["shapes"]
        self._best = min([standing, *candidates], key=lambda it: it.rank)
        self.best: Configuration = self._best.constants
        self.gain = 1 - self._best.cost / standing.cost
        self.configurations = int(facts["configurations"])
        self.runs = sum(bool(it.ratios) for it in candidates)
        self.table = _table(sorted([standing, *candidates], key=lambda it: it.rank), names, facts)

    def keep(self, least: float = LEAST_GAIN, by_shape: bool = False) -> Path | None:
        """Write the best configuration to NAME.tuned.toml beside the kernel's source.

        From then on a build for GPUs of this name has these constants; those of the file that were
        not tuned stay.

        least: the gain below which nothing is written.
        by_shape: write the best for each class of shapes of the calls, for such calls alone: the
            type of the kernel's first tensor, and its columns up to the next power of two.

        Returns the file, or None if every gain is smaller.

        Raises RuntimeError where no GPU was measured.
        """
        if self._kernel.target != "cuda":
            raise RuntimeError(
                "there is nothing to keep: times were predicted, and a table has the constants"
                " that a GPU was measured to be the fastest with"
            )
        path = jitload.tuning_table(self._kernel.sources[0])
        before = path.read_text("utf-8") if path.is_file() else ""
        table = before
        for shapes, calls in self._classes(by_shape):
            best = min([self._standing, *self._candidates], key=lambda it: it.cost_of(calls))
            if (
                not best.constants
                or 1 - best.cost_of(calls) / self._standing.cost_of(calls) < least
            ):
                continue
            us = {name: self._standing.median(name) for name in calls}
            measured = {name: (us[name], us[name] * best.ratios[name]) for name in calls}
            gpu = jitload.this_gpu()
            table = jitload.with_section(table, gpu, best.constants, measured, shapes)
        if table == before:
            return None
        path.write_text(table, "utf-8")
        self._kernel.reload()
        return path

    def _classes(self, by_shape: bool) -> list[tuple[jitload.ShapeClass | None, list[str]]]:
        """The classes to keep constants for, each with its calls; None for everything."""
        if not by_shape:
            return [(None, list(self._standing.samples))]
        found: dict[jitload.ShapeClass, list[str]] = {}
        for name, classes in self._shapes.items():
            for shapes in classes:
                found.setdefault(shapes, []).append(name)
        return list(found.items())

    def plot(self, rows: str | None = None, columns: str | None = None) -> Figure:
        """A heat map of two constants, each cell the best over all others, and beside it a line for
        each configuration through the values of all constants.

        rows, columns: names of constants; by default those on which the cost depends most.
        """
        return pictures.plot_tuning(self.table, rows, columns)

    def __repr__(self) -> str:
        return f"{self._summary()}\n{self.table.head(10).to_string(index=False)}"

    def _summary(self) -> str:
        """The result in words, without the table."""
        facts, predicted = self.table.attrs, self.table.attrs["predicted_for"]
        kernel = f"{self._kernel.name} on {facts['device']}"
        if predicted:
            kernel = f"{self._kernel.name}, predicted for {predicted}"
        tried = f"{self.runs} of {self.configurations} configurations run"
        if predicted and self._are_alike():
            said = (
                f"{kernel}: all {self.runs} configurations take as long, within {ALIKE:.0%}; only a"
                " GPU's time can tell them apart"
            )
        elif not self.best:
            said = f"{kernel}: none is better than the kernel as it stands; {tried}"
        else:
            said = f"{kernel}: {self._best}, {self.gain:.1%} less time; {tried}"
        if predicted and self._best.missing:
            said += f"\nMeasure this: not known is {'; '.join(self._best.missing)}."
        return said

    def _ipython_display_(self) -> None:
        from IPython.display import display

        print(self._summary())
        display(self.table)
        if not (self.table.attrs["predicted_for"] and self._are_alike()):
            display(self.plot())

    def _are_alike(self) -> bool:
        """Whether a figure would show nothing."""
        costs = self.table["cost"][self.table["refused"] == ""]
        return costs.max() <= (1 + ALIKE) * costs.min()


def _table(candidates: list[Candidate], names: list[str], facts: dict[str, object]) -> DataFrame:
    constants = list(facts["constants"])
    rows = []
    for it in candidates:
        row: dict[str, object] = {name: it.constants.get(name) for name in constants}
        row |= {"cost": it.cost, "refused": it.refused}
        row |= {"registers": it.registers, "spilled": it.spilled, "shared": it.shared}
        for name in names:
            row |= {name: it.median(name), f"{name} spread": it.spread(name)}
        rows.append(row)
    table = DataFrame(rows)
    whole = [*constants, "registers", "spilled", "shared"]
    table = table.astype(dict.fromkeys(whole, "Int64"))
    table.attrs = facts
    return table
