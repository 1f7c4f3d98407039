"""What is known of one version of a kernel: plain data, which one process sends to another."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lab.measure.error import Error
from lab.measure.verdict import is_right
from lab.watcher.settings import Settings


@dataclass(frozen=True)
class Failure:
    """Why there is no result.

    kind: "compile", "raised", "hung" or "crashed".
    text: all that is known, as it is shown.
    file, line: where, if that is known; the line counts from 1.
    ends_process: whether its process can do nothing more.
    """

    kind: str
    text: str
    file: str = ""
    line: int = 0
    ends_process: bool = False


@dataclass(frozen=True)
class Opened:
    """A build that was opened. seconds: that this took; built: whether compilers took part.

    versions: all versions that the op has; () for a call of the user's.
    recipes: what decides the builds of the kernels that take part.
    """

    seconds: float
    built: bool
    versions: tuple[str, ...] = ()
    recipes: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Measured:
    """Error and time of a call.

    error, torch_error: against float64, and PyTorch's own; None where nobody gave a truth.
    time_us, clock: as in the tables of `lab.compare`.
    percent_of_copy: of the bandwidth of a copy on this GPU; NaN without one.
    disturbed: how the GPU was slowed down meanwhile, or shared; "" if it was not.
    """

    error: Error | None
    torch_error: Error | None
    time_us: float
    clock: str
    percent_of_copy: float
    disturbed: str = ""

    @property
    def is_right(self) -> bool:
        """Whether the largest error is about PyTorch's. True where there is no truth."""
        if self.error is None or self.torch_error is None:
            return True
        return is_right(self.error, self.torch_error)


@dataclass(frozen=True)
class Use:
    """What one kernel that ran takes of a multiprocessor.

    threads: of a block as it was launched. registers, spilled: as `kernel.resources()` has them.
    occupancy: that so many threads, with the shared memory that they have, permit; None for a GPU
        whose limits are not known.
    """

    kernel: str
    threads: int
    registers: int
    spilled: int
    occupancy: float | None


@dataclass(frozen=True)
class Finding:
    """One thing that `lab.check` found, with its line and what stands there."""

    kind: str
    is_error: bool
    file: str
    line: int
    source: str
    message: str


@dataclass(frozen=True)
class Checked:
    """What `lab.check` counted: bytes of global memory fetched, and the least that there can be.

    what: the shape that was checked, where it is not the one that is measured.
    """

    findings: tuple[Finding, ...]
    bytes_fetched: int
    bytes_floor: int
    what: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether all kernels ran to their ends, so that their bytes can be compared."""
        return not {"timeout", "deadlock", "raised"} & {it.kind for it in self.findings}

    @property
    def times_floor(self) -> float:
        return self.bytes_fetched / self.bytes_floor if self.bytes_floor else math.nan


@dataclass(frozen=True)
class Predicted:
    """What `lab.predict` says of the time on a GPU that is not there: microseconds, and its 90%
    interval. gpu: its name. certain: whether that is narrow enough for an answer.
    """

    time_us: float
    low_us: float
    high_us: float
    percent_of_copy: float
    gpu: str
    certain: bool


@dataclass(frozen=True)
class Version:
    """What the files held at one time.

    number: counts up with every new content. changes: which files changed, and by how many lines.
    edited: the functions that changed. reached: those, and all that name one of them.
    """

    number: int
    when: datetime
    changes: str = ""
    edited: frozenset[str] = frozenset()
    reached: frozenset[str] = frozenset()

    def of_others(self, measured: str, choices: tuple[str, ...]) -> list[str]:
        """The op's versions that were edited, where the measured one was not touched."""
        if not self.edited or measured not in choices or "" in self.edited:
            return []  # nothing is known, or an edit outside of all functions
        named = {name: re.compile(rf"(?:^|_){name}(?:_|$)") for name in choices}
        if any(named[measured].search(function) for function in self.reached):
            return []
        own = [{it for it in choices if named[it].search(one)} for one in self.edited]
        return [it for it in choices if it in set().union(*own)] if all(own) else []


@dataclass(frozen=True)
class Result:
    """One version under some settings, as far as it is known by now."""

    version: Version
    settings: Settings | None
    opened: Opened | None = None
    measured: Measured | None = None
    checked: Checked | None = None
    failure: Failure | None = None
    uses: tuple[Use, ...] = ()
    notes: tuple[str, ...] = ()
    predicted: Predicted | None = None
