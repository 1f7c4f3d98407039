"""The GPU's counts for each line of source.

ncu counts by instruction; the build's machine code gives the line of each. An inlined line of a
header counts for the line of the .cu that uses it, as in a report of lab.check.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from pandas import DataFrame

import jitload
from lab.profiler import stalls
from lab.profiler.ncu import Launch, number

LINES = [
    *("file", "line", "samples", "share", "reason", "reason_share", "instructions"),
    *("requests", "sectors", "ideal_sectors", "shared_requests", "passes", "ideal_passes"),
]
COUNTS = ["file", "line", "memory", "count", "gpu", "checker"]

# Columns of ncu's source page, and their names here.
SAMPLES = ("Warp Stall Sampling (All Samples)", "# Samples")
INSTRUCTIONS = ("Instructions Executed",)
PREDICATED_ON = "Predicated-On Thread Instructions Executed"
SUMS = {
    "sectors": ("L2 Theoretical Sectors Global",),
    "ideal_sectors": ("L2 Theoretical Sectors Global Ideal",),
    "passes": ("L1 Wavefronts Shared",),
    "ideal_passes": ("L1 Wavefronts Shared Ideal",),
}
GLOBAL = {"LDG", "STG", "LD", "ST", "ATOM", "ATOMG", "RED", "REDG", "LDGSTS"}
SHARED = {"LDS", "STS", "ATOMS", "LDSM", "STSM", "LDGSTS"}
BYTES = 16  # of an instruction, since Volta

Line = tuple[str, int]  # a file and a line


class Lines:
    """Sums over all launches of these builds' kernels, by file and line.

    note: says why there are none, if something is missing.
    """

    def __init__(self, launches: list[Launch], builds: list[jitload.Build]):
        self.note = ""
        self.sums: dict[Line, Counter[str]] = defaultdict(Counter)
        self.stalls: dict[Line, Counter[str]] = defaultdict(Counter)
        self.inlined: dict[tuple[str, int, str], set[Line]] = defaultdict(set)
        self.any = False
        for launch in launches:
            known = self._places(launch, builds)
            if known is None:
                continue
            if not launch.instructions:
                self.note = "There are no lines of source: ncu's source page has none."
                continue
            self.any = True
            for places, row in self._with_places(launch, known):
                self._add(places, row)

    def _places(self, launch: Launch, builds: list[jitload.Build]) -> dict[int, list[Line]] | None:
        """For each offset in the launched kernel, its line and the header lines inlined there;
        None if the kernel is in none of the builds."""
        for build in builds:
            try:
                code = build.machine_code()
            except (jitload.MissingTool, RuntimeError) as error:
                self.note = f"There are no lines of source: {error}."
                return None
            wanted = [it for it in code if it.symbol == launch.symbol]
            fits = [it for it in wanted if it.architecture.rstrip("af") == launch.architecture]
            for function in fits or wanted[-1:]:
                return {
                    it.offset: _lines_of(it, build) for it in function.code if it.offset is not None
                }
        return None

    @staticmethod
    def _with_places(
        launch: Launch, known: dict[int, list[Line]]
    ) -> Iterator[tuple[list[Line], Mapping[str, str]]]:
        addresses = [_address(row) for row in launch.instructions]
        for index, row in enumerate(launch.instructions):
            is_known = addresses[index] is not None and addresses[0] is not None
            offset = addresses[index] - addresses[0] if is_known else BYTES * index
            yield known.get(offset, []), row

    def _add(self, places: list[Line], row: Mapping[str, str]) -> None:
        line = places[0] if places else ("", 0)
        sums, words = self.sums[line], row.get("Source", "").split()
        opcode = next((word for word in words if word[0] not in "@{"), "").partition(".")[0]
        executed = _of(row, INSTRUCTIONS)
        asked = executed * (row.get(PREDICATED_ON) != "0")  # a predicate may disable all lanes
        sums["samples"] += _of(row, SAMPLES)
        sums["instructions"] += executed
        sums["requests"] += asked * (opcode in GLOBAL)
        sums["shared_requests"] += asked * (opcode in SHARED)
        for name, columns in SUMS.items():
            sums[name] += _of(row, columns)
        for memory, opcodes in ("global", GLOBAL), ("shared", SHARED):
            for file, at in places[1:] if opcode in opcodes else ():
                self.inlined[file, at, memory].add(line)
                self.inlined[file, 0, memory].add(line)
        for column, value in row.items():
            if (key := stalls.reason(column)) and (count := number(value)):
                self.stalls[line][key] += int(count)

    def rows(self) -> list[dict[str, Any]]:
        """Rows with the columns of LINES; instructions of no line of the user's are left out."""
        whole = sum(sums["samples"] for sums in self.sums.values())
        rows = []
        for (file, line), sums in self.sums.items():
            if not file or not (sums["samples"] or sums["instructions"]):
                continue
            reasons = self.stalls[file, line]
            waits = Counter({k: n for k, n in reasons.items() if k not in stalls.NO_STALL})
            most = next(iter(waits.most_common(1)), ("", 0))
            rows.append(
                {name: sums[name] for name in LINES}
                | {
                    "file": file,
                    "line": line,
                    "share": sums["samples"] / whole if whole else 0.0,
                    "reason": stalls.what(most[0]) if most[1] else "",
                    "reason_share": most[1] / sums["samples"] if sums["samples"] else 0.0,
                }
            )
        return rows

    def counts(self, traffic: DataFrame) -> list[dict[str, Any]]:
        """For each line at which either counts: the memory, the GPU's count and the checker's.

        If only the GPU's compiler inlined a helper, the GPU counts it at the kernel's line and the
        checker at the helper's own: then the checker's counts are moved to the kernel's line.
        """
        checked: dict[tuple[str, int, str], Counter[str]] = defaultdict(Counter)
        for row in traffic.to_dict("records"):
            file, line = self._line_on_gpu(row["file"], row["line"], row["memory"])
            sums = checked[file, line, row["memory"]]
            for name in ("requests", "sectors", "passes", "bank_conflicts"):
                sums[name] += int(row[name])
        rows = []
        for file, line in sorted({*self.sums, *((file, line) for file, line, _ in checked)}):
            gpu = self.sums.get((file, line), Counter())
            for memory, names in _COMPARED.items():
                ours = checked.get((file, line, memory), Counter())
                for name, count in names.items():
                    value = count(gpu)
                    if file and (value or ours[name]):
                        rows.append(
                            {
                                "file": file,
                                "line": line,
                                "memory": memory,
                                "count": name,
                                "gpu": value,
                                "checker": ours[name],
                            }
                        )
        return rows

    def _line_on_gpu(self, file: str, line: int, memory: str) -> Line:
        """The line at which the GPU counts what the checker counts at a line; the same if unclear.

        The GPU may have used another line of the helper, because of an #if.
        """
        if (file, line) not in self.sums:
            for key in ((file, line, memory), (file, 0, memory)):
                if len(into := self.inlined.get(key, ())) == 1:
                    return next(iter(into))
        return file, line


# The counts that both have, by the checker's names, computed from the GPU's sums.
_COMPARED = {
    "global": {"requests": lambda it: it["requests"], "sectors": lambda it: it["sectors"]},
    "shared": {
        "requests": lambda it: it["shared_requests"],
        "passes": lambda it: it["passes"],
        "bank_conflicts": lambda it: it["passes"] - it["ideal_passes"],
    },
}


def _lines_of(instruction: jitload.Instruction, build: jitload.Build) -> list[Line]:
    """The line that an instruction counts for, and the lines of user headers inlined there."""
    if not (place := instruction.place(build.users_file)):
        return []
    users = [(build.users_file(it.file), it.line) for it in instruction.places]
    return [tuple(place), *(other for other in users if other[0] not in (None, place.file))]


def _of(row: Mapping[str, str], columns: tuple[str, ...]) -> int:
    for column in columns:
        if (value := number(row.get(column, ""))) is not None:
            return int(value)
    return 0


def _address(row: Mapping[str, str]) -> int | None:
    try:
        return int(row.get("Address", ""), 16)
    except ValueError:
        return None
