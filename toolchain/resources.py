"""The multiprocessor's resources that each kernel uses, from ptxas' output in a build's log."""

from __future__ import annotations

import re
from dataclasses import dataclass

from toolchain.errors import demangled
from toolchain.tables import html_table, text_table

# A multiprocessor's threads, blocks, bytes of shared memory, by architecture. (CUDA programming
# guide, "Technical specifications per compute capability".) All have 65536 registers.
LIMITS = {
    "sm_80": (2048, 32, 164 << 10),
    "sm_86": (1536, 16, 100 << 10),
    "sm_87": (1536, 16, 164 << 10),
    "sm_89": (1536, 24, 100 << 10),
    "sm_90": (2048, 32, 228 << 10),
    "sm_100": (2048, 32, 228 << 10),
    "sm_103": (2048, 32, 228 << 10),
    "sm_120": (1536, 24, 100 << 10),
    "sm_121": (1536, 24, 100 << 10),
}
REGISTERS = 65536
WARP = 32
REGISTERS_AT_ONCE = 256  # the unit in which a warp's registers are allocated
SHARED_OF_A_BLOCK = 1024  # bytes that the system reserves for each block

_ENTRY = re.compile(
    r"Compiling entry function '(?P<name>\w+)' for '(?P<architecture>\w+)'\n"
    r".*Function properties for (?P=name)\n"
    r"\s*(?P<stack>\d+) bytes stack frame, (?P<stores>\d+) bytes spill stores,"
    r" (?P<loads>\d+) bytes spill loads\n"
    r".*Used (?P<registers>\d+) registers(?:.*?(?P<shared>\d+) bytes smem)?"
)


@dataclass(frozen=True)
class Use:
    """The resources of one kernel, compiled for one architecture.

    Attributes:
        kernel: its name, with template arguments.
        architecture: as in "sm_90".
        registers: per thread.
        spilled: bytes of spills per thread, stores and loads together.
        shared: bytes of static shared memory per block; a launch's dynamic ones are added.
        stack: bytes of local memory per thread, spills included.
    """

    kernel: str
    architecture: str
    registers: int
    spilled: int
    shared: int
    stack: int = 0

    def occupancy(self, threads: int, shared: int = 0) -> float | None:
        """The occupancy with blocks of `threads` threads, from 0 to 1.

        shared: bytes of dynamic shared memory per block. None for an unknown architecture.
        """
        if self.architecture.rstrip("af") not in LIMITS:
            return None
        most, blocks, memory = LIMITS[self.architecture.rstrip("af")]
        warps = -(-threads // WARP)
        of_warp = -(-self.registers * WARP // REGISTERS_AT_ONCE) * REGISTERS_AT_ONCE
        fit = min(
            blocks,
            most // (warps * WARP),
            REGISTERS // of_warp // warps,
            memory // (self.shared + shared + SHARED_OF_A_BLOCK),
        )
        return fit * warps * WARP / most


class Resources(list[Use]):
    """The resources of a build's kernels, shown as a table; `note` says why it is empty.

    threads: threads per block, for the occupancy in the table.
    """

    def __init__(self, uses: list[Use], threads: int, note: str = ""):
        super().__init__(uses)
        self.threads, self.note = threads, note

    def rows(self) -> list[tuple[str, ...]]:
        head = ("kernel", "for", "registers", "spilled bytes", "shared bytes")
        rows = [(*head, f"occupancy, {self.threads} threads a block")]
        for use in self:
            part = use.occupancy(self.threads)
            numbers = map(str, (use.registers, use.spilled, use.shared))
            rows.append(
                (use.kernel, use.architecture, *numbers, "" if part is None else f"{part:.0%}")
            )
        return rows

    def __str__(self) -> str:
        return text_table(self.rows()) if self else self.note

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from html import escape

        return html_table(self.rows()) if self else f"<p>{escape(self.note)}</p>"


def uses(log: str) -> list[Use]:
    """The resources of the kernels in a build's log, in the order of their names."""
    entries = list(_ENTRY.finditer(log))
    names = plain_names(list(dict.fromkeys(match["name"] for match in entries)))
    return sorted(
        (
            Use(
                names[match["name"]],
                match["architecture"],
                int(match["registers"]),
                int(match["stores"]) + int(match["loads"]),
                int(match["shared"] or 0),
                int(match["stack"]),
            )
            for match in entries
        ),
        key=lambda use: (use.kernel, use.architecture),
    )


def plain_names(mangled: list[str]) -> dict[str, str]:
    """Demangled names, without return types and parameters."""
    lines = demangled("\n".join(mangled)).splitlines()
    return {
        name: re.sub(r"\(.*", "", line.replace("(anonymous namespace)::", "")).removeprefix("void ")
        for name, line in zip(mangled, lines, strict=True)
    }
