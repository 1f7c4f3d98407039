"""What `lab.profile` found: tables, text and HTML."""

from __future__ import annotations

from collections import Counter
from functools import cache, cached_property
from typing import Any

from pandas import DataFrame

import jitload
from lab.checker.report import Report
from lab.profiler import stalls, text
from lab.profiler.kernels import COLUMNS as KERNELS
from lab.profiler.kernels import row_of
from lab.profiler.lines import COUNTS, LINES, Lines
from lab.profiler.ncu import Launch


class Profile:
    """What the GPU's counters say of a call.

    kernels: a row for each launch: `microseconds`; percent of the peak of memory (`memory`; of
        DRAM alone, `dram`), of the arithmetic units (`compute`) and of the tensor cores
        (`tensor`); the `occupancy` that the launch permits and that was `achieved`, in percent,
        and what it is `limited_by`; and a column for each of the `metrics` that were asked for.
    lines: a row for each line of the kernels that jitload has built: `samples` of warps that were
        at this line, and their `share` of all; what most of them wait for (`reason`);
        `instructions` of warps; of global memory `requests`, `sectors` and the `ideal_sectors`
        that would do; of shared memory `passes` and the `ideal_passes`.
    stalls: a row for each line and reason: the `samples`.
    counts: where lab.check counted the same call, a row for each line and memory with its counts
        and the GPU's; else empty.
    note: what is missing, and why; mostly empty.
    """

    def __init__(
        self,
        what: str,
        launches: list[Launch],
        builds: list[jitload.Build],
        device: str,
        most: int,
        metrics: tuple[str, ...] = (),
    ):
        self.what, self.device, self.note = what, device, ""
        self.launches, self._most, self._metrics = launches, most, metrics
        self._lines = Lines(launches, builds)
        self._builds = builds
        self._checked: Report | None = None
        self.note = self._lines.note

    @cached_property
    def kernels(self) -> DataFrame:
        rows = [
            row_of(launch) | {name: launch.number(name) for name in self._metrics}
            for launch in self.launches
        ]
        return DataFrame(rows, columns=[*KERNELS, *self._metrics])

    @cached_property
    def lines(self) -> DataFrame:
        table = DataFrame(self._lines.rows(), columns=LINES)
        return table.sort_values(["file", "line"], ignore_index=True, kind="stable")

    @cached_property
    def stalls(self) -> DataFrame:
        rows: list[dict[str, Any]] = [
            {"file": file, "line": line, "reason": stalls.what(key), "samples": samples}
            for (file, line), reasons in sorted(self._lines.stalls.items())
            for key, samples in reasons.most_common()
        ]
        return DataFrame(rows, columns=["file", "line", "reason", "samples"])

    def reasons(self, file: str, line: int) -> Counter[str]:
        """The number of samples at a line for each reason, a key of stalls.REASONS."""
        return self._lines.stalls[file, line]

    @property
    def counts(self) -> DataFrame:
        rows = self._lines.counts(self._checked.traffic) if self._checked else []
        return DataFrame(rows, columns=COUNTS)

    @property
    def microseconds(self) -> float:
        """The time of all kernels, one after another."""
        return float(self.kernels["microseconds"].sum())

    @property
    def has_lines(self) -> bool:
        """Whether a kernel that jitload built ran; other kernels have no source here."""
        return self._lines.any

    def beside(self, checked: Report) -> Profile:
        """Show what lab.check counts of the same call beside the GPU's counts."""
        self._checked = checked
        return self

    @property
    def headline(self) -> str:
        count = len(self.kernels)
        first = "the first " if count == self._most and count > 1 else ""
        plural = "es" if count != 1 else ""
        return (
            f"{self.what}: {first}{count} launch{plural},"
            f" {self.microseconds:.1f} µs on {self.device}"
        )

    def __str__(self) -> str:
        return text.report(self)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from lab.profiler import view

        return view.page(self)

    @cache  # noqa: B019 - only a few reports live at a time
    def source(self, file: str) -> list[str]:
        """The lines of a source or header, as it was built."""
        for build in self._builds:
            if file in build.kept:
                return build.sources()[file]
        return []
