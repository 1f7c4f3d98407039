"""Reads a kernel's machine code: how often each stretch of it runs, and which units it uses.

A stretch (basic block) that accesses memory has run as often as the checker counted requests at its
line; one without accesses, as often as its neighbours in the same loop. For a loop without any
accesses, the checker counts in a second run how often its condition is evaluated.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

Key = tuple[str, int, str, str]  # file, line, access, memory: of a request

# A loop's counter, by which nvcc's unrolled copies of its body count on.
_COUNTS_ON = re.compile(r"^(?:VIADD|U?IADD3) (U?R\d+), \1(?:\.reuse)?, (-?)0x([0-9a-f]+)\b")
_MOST_COPIES = 32

_REGISTER = re.compile(r"\b(U?R|U?P)(\d+)\b")
_TARGET = re.compile(r"\bBRA(?:\.\w+)*\b.*`\(([.$\w]+)\)")
_MEMORY = {
    "LDG": ("read", "global"),
    "STG": ("write", "global"),
    "ATOMG": ("atomic", "global"),
    "ATOM": ("atomic", "global"),
    "RED": ("atomic", "global"),
    "REDG": ("atomic", "global"),
    "LDS": ("read", "shared"),
    "STS": ("write", "shared"),
    "ATOMS": ("atomic", "shared"),
    "LDSM": ("read", "shared"),
    "LDGSTS": ("read", "global"),
}
ASYNCHRONOUS = {"LDGSTS", "UTMALDG", "UBLKCP", "SYNCS", "WARPGROUP", "HGMMA", "IGMMA", "QGMMA"}

# The unit of a multiprocessor's quarter that executes an instruction, and for how many cycles.
ALU = "logic and comparisons"
FMA = "multiply-add"
XU = "special functions"
DOUBLE = "double precision"
LSU = "load and store"
TENSOR = "tensor cores"
BRANCH = "branches"


@dataclass
class Instruction:
    """opcode: without what follows its first dot. wide: registers that it writes."""

    opcode: str
    text: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    key: Key | None = None
    bytes: int = 4  # of a lane
    share: float = 1.0  # the part of its stretch's runs in which its predicate is true


@dataclass
class Stretch:
    """A basic block of instructions. loops: the loops around it, the innermost last."""

    instructions: list[Instruction] = field(default_factory=list)
    loops: tuple[int, ...] = ()
    runs: float = 0.0  # of warps, in the whole launch
    known: bool = False
    is_loop: bool = False  # it branches back to its own beginning
    is_rare: bool = False  # the slow path of a division or a root

    @property
    def copies(self) -> int:
        """How many iterations of the source's loop one of its iterations stands for."""
        for it in self.instructions:
            if match := _COUNTS_ON.match(it.text):
                step = int(match[3], 16)
                step = min(step, (1 << 32) - step)
                if step <= _MOST_COPIES and step.bit_count() == 1:
                    return step
        return 1


@dataclass
class Code:
    """A kernel's machine code.

    unknown: the part of its instructions whose runs were not counted.
    loop_lines: the user's source line of each loop's backward branch.
    uncounted: whether the unknown include such loops.
    """

    stretches: list[Stretch]
    loop_lines: list[tuple[str, int] | None] = field(default_factory=list)
    unknown: float = 0.0
    uncounted: bool = False

    @property
    def is_asynchronous(self) -> bool:
        return any(it.opcode in ASYNCHRONOUS for s in self.stretches for it in s.instructions)

    def executed(self) -> float:
        """The number of warp instructions executed."""
        return sum(len(s.instructions) * s.runs for s in self.stretches)


def pipe(opcode: str, text: str) -> tuple[str, float]:
    """The unit, and the cycles for which one warp occupies its quarter's unit."""
    if opcode in ("FFMA", "FADD", "FMUL", "HFMA2", "HADD2", "HMUL2"):
        return FMA, 1
    if opcode.startswith("IMAD"):
        return FMA, 2
    if opcode in ("MUFU", "I2F", "F2I", "F2F", "FRND", "POPC", "FLO", "BREV", "I2I"):
        return XU, 8
    if opcode in ("DFMA", "DADD", "DMUL", "DSETP"):
        return DOUBLE, 2
    if opcode in _MEMORY or opcode in ("LDL", "STL", "SHFL", "LD", "ST", "LDC", "S2R", "VOTE"):
        return (LSU, 4) if opcode not in ("LDC", "S2R", "VOTE") else (ALU, 2)
    if opcode in ("HMMA", "IMMA", "QMMA", "DMMA", "HGMMA", "IGMMA", "QGMMA"):
        return TENSOR, 0  # by its operations
    if opcode in ("BRA", "EXIT", "BSSY", "BSYNC", "CALL", "RET", "WARPSYNC", "BAR", "BREAK"):
        return BRANCH, 1
    if opcode.startswith("U") or opcode in ("NOP", "DEPBAR", "MEMBAR", "ERRBAR", "CCTL"):
        return BRANCH, 1
    return ALU, 2


def _registers(text: str) -> list[str]:
    found = []
    for kind, number in _REGISTER.findall(text):
        found.append(f"{kind}{number}")
    return found


def _parsed(text: str, key: Key | None) -> Instruction:
    predicate, _, rest = text.partition(" ") if text.startswith("@") else ("", "", text)
    name, _, operands = rest.partition(" ")
    opcode = name.partition(".")[0]
    first, _, others = operands.partition(",")
    reads = _registers(predicate) + _registers(others)
    is_store = opcode in ("STG", "STS", "STL", "ST", "RED", "REDG", "BAR", "BRA", "EXIT")
    writes: list[str] = []
    if is_store or "[" in first:
        reads += _registers(first)
    else:
        writes = _registers(first)
        if writes and opcode.endswith("SETP"):
            writes += _registers(others.partition(",")[0])
        count = 4 if ".128" in name or opcode in ("HMMA", "IMMA") else 2 if ".64" in name else 1
        if opcode.startswith("D") or ".WIDE" in name:
            count = 2
        if writes and count > 1:
            kind, number = _REGISTER.match(writes[0]).groups()
            writes += [f"{kind}{int(number) + i}" for i in range(1, count)]
    for register in re.findall(r"\bR(\d+)\.64", text):
        reads.append(f"R{int(register) + 1}")
    width = re.search(r"\.(U8|S8|U16|S16|64|128)\b", name)
    bytes_ = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}[width[1]] if width else 4
    return Instruction(opcode, text, tuple(reads), tuple(writes), key, bytes_)


def read(function: Any, users_file: Callable[[str], str | None]) -> Code:
    """The stretches of a function of `Build.machine_code`, and the loops that they are in."""
    stretches, labels = [Stretch()], {}
    back: list[tuple[int, int]] = []
    lines: dict[tuple[int, int], tuple[str, int]] = {}
    of_library = False
    for it in function.code:
        if it.is_label:
            if stretches[-1].instructions:
                stretches.append(Stretch())
            labels[it.text] = len(stretches) - 1
            of_library |= it.text.startswith("$")
            continue
        opcode = it.text.split(" ", 1)[1] if it.text.startswith("@") else it.text
        opcode = opcode.partition(" ")[0].partition(".")[0]
        key = None
        if opcode in _MEMORY and (place := it.place(users_file)):
            key = (place.file, place.line, *_MEMORY[opcode])
        stretches[-1].instructions.append(_parsed(it.text, key))
        stretches[-1].is_rare |= of_library or opcode == "CALL"
        if match := _TARGET.search(it.text):
            here = len(stretches) - 1
            if match[1] in labels and labels[match[1]] <= here:
                back.append((labels[match[1]], here))
                if place := it.place(users_file):
                    lines[back[-1]] = place.file, place.line
            stretches.append(Stretch())
        elif opcode in ("EXIT", "RET", "BRX"):
            stretches.append(Stretch())
    back.sort(key=lambda it: it[0] - it[1])
    for number, (begin, end) in enumerate(back):
        for stretch in stretches[begin : end + 1]:
            stretch.loops += (number,)
        stretches[begin].is_loop |= begin == end
    # After the last exit come only the functions' slow paths and padding.
    return Code([s for s in stretches if s.instructions], [lines.get(it) for it in back])


def count(
    code: Code,
    requests: dict[Key, tuple[float, int]],
    warps: float,
    shuffles: float,
    barriers: float,
    ran: dict[tuple[str, int], float] | None = None,
) -> None:
    """How often each stretch has run.

    requests: of the launch at each line, and the bytes that a lane asks for in the source: the
        compiler may have joined neighbours into one.
    ran: how often warps have executed each line, if that was counted.
    """
    found: dict[int, list[float]] = defaultdict(list)
    at: dict[Key, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for index, stretch in enumerate(code.stretches):
        for it in stretch.instructions:
            if it.key:
                joined = max(1, it.bytes // requests[it.key][1]) if it.key in requests else 1
                at[it.key][index] += joined
            elif it.opcode in ("SHFL", "BAR"):
                at["", 0, it.opcode, ""][index] += 1
    known = {key: count for key, (count, _) in requests.items()}
    known |= {("", 0, "SHFL", ""): shuffles, ("", 0, "BAR", ""): barriers}
    weak: dict[int, list[float]] = defaultdict(list)
    for key, places in at.items():
        if key in known:
            into = (
                weak if key[2] == "SHFL" else found
            )  # all warps wait for a loop that few of them enter
            in_loops = {i: n for i, n in places.items() if code.stretches[i].loops}
            once = {i: n for i, n in places.items() if i not in in_loops}
            total = known[key]
            if in_loops and once:  # code outside of loops runs at most once per warp
                of_once = min(total, warps * sum(once.values()))
                for index in once:
                    into[index].append(of_once / sum(once.values()))
                total, places = total - of_once, in_loops
            for index, runs in _shared_out(total, places, code, warps).items():
                into[index].append(runs)
    for key, places in at.items():
        if key not in known and _are_whole(key, known, at):
            for index in places:
                found[index].append(0.0)
    for index, runs in weak.items():
        if index not in found:
            found[index] = runs
    if ran:
        for index, runs in _runs_in_loops(code, warps, ran, found).items():
            found[index] = [runs]
    for index, stretch in enumerate(code.stretches):
        if index in found:
            stretch.runs, stretch.known = max(found[index]), True
        for it in stretch.instructions:
            if it.key in known and stretch.runs:
                each = known[it.key] / sum(at[it.key].values())
                it.share = min(1.0, each / stretch.runs) if it.text.startswith("@") else 1.0
            elif it.text.startswith("@") and it.key and _are_whole(it.key, known, at):
                it.share = 0.0  # its predicate was true in no lane
    _fill_in(code, warps)


def _runs_in_loops(
    code: Code, warps: float, ran: dict[tuple[str, int], float], known: Iterable[int]
) -> dict[int, float]:
    """How often stretches have run that are in loops without requests.

    known: stretches whose runs requests tell.
    """
    counted = {loop for index in known for loop in code.stretches[index].loops}
    inside: dict[int, list[int]] = defaultdict(list)
    for index, stretch in enumerate(code.stretches):
        if stretch.loops and stretch.loops[-1] not in counted and not stretch.is_rare:
            inside[stretch.loops[-1]].append(index)
    unrolled: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
    for loop, places in inside.items():  # loops of one line are copies of a loop in the source
        if code.loop_lines[loop]:
            copies = max(code.stretches[index].copies for index in places)
            unrolled[code.loop_lines[loop]][places[0]] = copies
    found = {}
    for line, places in unrolled.items():
        for first, runs in _shared_out(_rounds(line, ran, warps), places, code, warps).items():
            found |= dict.fromkeys(inside[code.stretches[first].loops[-1]], runs)
    return found


def _rounds(line: tuple[str, int], ran: dict[tuple[str, int], float], warps: float) -> float:
    """The iterations of a loop: its condition runs once more than its body on the next line."""
    condition = ran.get(line, 0.0)
    behind = min((it for it in ran if it[0] == line[0] and it[1] > line[1]), default=None)
    body = ran[behind] if behind else 0.0
    if condition < 1.5 * warps or condition - warps <= body < 1.1 * condition:
        return body
    return condition - warps


def _are_whole(key: Key, known: dict[Key, float], at: dict[Key, dict[int, int]]) -> bool:
    """Whether the machine code names all lines that have requests of this kind.

    Then a line without requests was not run; otherwise the compilers' lines may differ.
    """
    return bool(key[0]) and all(it in at for it in known if it[2:] == key[2:])


def _shared_out(total: float, places: dict[int, int], code: Code, warps: float) -> dict[int, float]:
    """Distributes one line's requests to the stretches that make them, as their numbers of runs.

    If a loop was unrolled, its largest copy does all iterations but the last few.
    """
    if len(set(places.values())) == 1 or len({code.stretches[i].loops for i in places}) == 1:
        each = total / sum(places.values())
        return dict.fromkeys(places, each)
    left, runs = total / warps, {}
    ordered = sorted(places, key=lambda index: -places[index])
    for index in ordered:
        rounds = left // places[index] if index != ordered[-1] else left / places[index]
        runs[index] = rounds * warps
        left -= rounds * places[index]
    return runs


def _fill_in(code: Code, warps: float) -> None:
    """Gives stretches without requests the runs of the nearest in their loop, or one per warp."""
    unknown = total = 0.0
    for index, stretch in enumerate(code.stretches):
        total += len(stretch.instructions)
        if stretch.known or stretch.is_rare:
            continue
        for depth in range(len(stretch.loops), 0, -1):
            inner = stretch.loops[:depth]
            before, after = (
                [s.runs for s in part if s.known and s.loops == inner]
                or [s.runs for s in part if s.known and s.loops[:depth] == inner]
                for part in (code.stretches[:index], code.stretches[index + 1 :])
            )
            peers = before + after
            if peers:
                nearest = before[-1:] + after[:1]
                stretch.runs = max(nearest) if depth == len(stretch.loops) else min(peers)
                break
        else:
            stretch.runs = warps
        if (stretch.loops and depth < len(stretch.loops)) or (stretch.loops and not peers):
            unknown += len(stretch.instructions)
            line = code.loop_lines[stretch.loops[-1]] if code.loop_lines else None
            code.uncounted |= line is not None
    code.unknown = unknown / max(total, 1)
