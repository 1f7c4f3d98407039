"""What the threads of a block did, step by step: `lab.trace`."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from lab.checker import findings as told
from lab.checker.report import Report
from lab.tracer import windows
from lab.tracer.record import OTHER, Recorded, Window
from lab.tracer.text import WARP, at_line, overview, short
from lab.tracer.values import leaves, member_at, value_of

RETURNED = 1 << 15  # of a step's depth: its line goes on after a call
MOST_BLOCKS = 16
Blocks = int | tuple[int, ...] | list[int | tuple[int, ...]]


class Trace:
    """What a block did. In a notebook it is a page on which to step; `print` shows a time line.

    A step is what a warp does from the beginning of a line to the beginning of the next, with all
    lanes that are there; in a step every warp of a block does one line. Values are those after the
    step. Steps are numbered from 0 on among those that are recorded; `number_of` says which of the
    block's own one is.

    Attributes:
        what: the call.
        kernel, blocks, grid, threads_per_block: whose steps these are; (x, y, z), of blocks a list.
        steps: how many were recorded.
        is_cut: whether there are more.
        report: what `lab.check` says of the same run.
        finding: the finding of the report that this is about, by its position; or None.
    """

    def __init__(
        self,
        what: str,
        recorded: Recorded,
        report: Report,
        window: Window,
        finding: int | None = None,
    ):
        facts = recorded.facts
        self.what, self.report, self.window, self.finding = what, report, window, finding
        self.kernel: str = facts["kernel"]
        self.blocks: list[tuple[int, int, int]] = [tuple(it["index"]) for it in facts["blocks"]]
        self.grid: tuple[int, int, int] = tuple(facts["grid"])
        self.threads_per_block: tuple[int, int, int] = tuple(facts["extent"])
        self.stride = recorded.stride
        self.regions: list[dict[str, Any]] = facts["regions"]
        self.words: list[str] = facts["words"]
        self.tables, self.bytes = recorded.tables, recorded.bytes
        self.steps = len(self.tables["rounds"])
        most = [it["rounds"] for it in facts["blocks"]]
        self.is_cut = any(count >= window.spans[-1][1] for count in most) or self.steps < sum(most)
        self._join(recorded)
        functions = {function for _, _, function in self.lines}
        if self.kernel.partition("<")[0] not in functions and self.steps:
            self.kernel = self.lines[self.tables["steps"]["place"][0]][2]  # launched by a pointer

    def _join(self, recorded: Recorded) -> None:
        """One numbering of places, variables and types for all libraries."""
        self.lines: list[tuple[str, int, str]] = []
        self.scopes: list[list[int]] = []  # of each place, its variables
        self.variables: list[tuple[str, int, int]] = []  # name, type, line of its declaration
        self.types: list[list[Any]] = []
        self.left_out: dict[str, str] = {}
        known: dict[tuple, int] = {}
        row_to_variable: list[int] = []
        for number, it in enumerate(recorded.places):
            first_type = len(self.types)
            self.types += [_moved(kind, first_type) for kind in it.types]
            self.lines += it.lines
            self.left_out |= it.left_out
            of_rows = []
            owner = np.repeat(it.places["function"], it.places["count"])
            for row, (name, kind) in enumerate(it.names):
                variable = it.variables[row]
                key = (number, int(owner[row]), int(variable["kept_at"]), name)
                if key not in known:
                    known[key] = len(self.variables)
                    self.variables.append((name, kind + first_type, int(variable["line"])))
                of_rows.append(known[key])
            row_to_variable += of_rows
            for place in it.places:
                first = int(place["first"])
                self.scopes.append(of_rows[first : first + int(place["count"])])
        changes = self.tables["changes"]
        self.changed = np.array(row_to_variable, "u4")[changes["variable"]]
        self._name_regions()

    def _name_regions(self) -> None:
        """Memory without a name is named after the first pointer to its beginning."""
        for it in self.regions:
            if it["shared"] and it["name"] and it["block"] < 0:
                it["of"] = f"{it['name']} of another block of the cluster"
            elif it["shared"] and it["name"] and len(self.blocks) > 1:  # each has its own
                it["of"] = f"{it['name']} of block {self.blocks[it['block']]}"
        nameless = {it["begin"]: it for it in self.regions if not it["name"]}
        for number, it in enumerate(nameless.values(), 1):
            it["name"] = f"memory {number}"
        pointers = [kind for kind, it in enumerate(self.types) if it[0] == "ptr"]
        kinds = np.array([kind for _, kind, _ in self.variables] or [0])
        for row in np.flatnonzero(np.isin(kinds[self.changed], pointers)) if nameless else ():
            at = int(self.tables["changes"]["at"][row])
            address = int.from_bytes(self.bytes[at : at + 8].tobytes(), "little")
            if region := nameless.pop(address, None):
                region["name"] = self.variables[self.changed[row]][0]
            if not nameless:
                break

    # ---- Questions

    @property
    def block(self) -> tuple[int, int, int]:
        """The first, or only, block that is traced."""
        return self.blocks[0]

    def number_of(self, step: int) -> int:
        """Which of its block's own steps a recorded one is."""
        return int(self.tables["rounds"]["number"][step])

    def thread_of(self, block: tuple[int, int, int], thread: int) -> int:
        """The number here of a thread of one of the blocks: those of the first have their own."""
        return self.blocks.index(block) * self.stride + thread

    @cached_property
    def _of_thread(self) -> dict[int, np.ndarray]:
        """For each thread, the positions of its steps in the table."""
        threads = self.tables["steps"]["thread"]
        order = np.argsort(threads, kind="stable")
        found, starts = np.unique(threads[order], return_index=True)
        return dict(zip(found.tolist(), np.split(order, starts[1:]), strict=True))

    @cached_property
    def _histories(self) -> dict[tuple[int, int], tuple[list[int], list[int]]]:
        """For each thread and variable: the steps that changed it, and where its bytes are."""
        histories: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
        steps, changes = self.tables["steps"], self.tables["changes"]
        threads, rounds = steps["thread"][changes["step"]], steps["round"][changes["step"]]
        columns = threads, self.changed, rounds, changes["at"]
        for thread, variable, round_, at in zip(*(it.tolist() for it in columns), strict=True):
            when, where = histories.setdefault((thread, variable), ([], []))
            when.append(round_)
            where.append(at)
        return histories

    def step_of(self, thread: int, step: int) -> np.void | None:
        """The line that a thread has run last at a step; None before its first."""
        mine = self._of_thread.get(thread)
        if mine is None:
            return None
        at = bisect_right(self.tables["steps"]["round"][mine], step)
        return self.tables["steps"][mine[at - 1]] if at else None

    def values(self, thread: int, step: int) -> dict[str, Any]:
        """The variables that a thread can name, after a step: numbers, lists and dicts."""
        last = self.step_of(thread, step)
        if last is None:
            return {}
        found = {}
        line = self.lines[last["place"]][1]
        for variable in self.scopes[last["place"]]:
            name, kind, declared = self.variables[variable]
            when, where = self._histories.get((thread, variable), ([], []))
            at = bisect_right(when, step)
            if at and declared <= line and self.types[kind][3:] != [[]]:  # a struct of nothing
                size = self.types[kind][1]
                data = self.bytes[where[at - 1] : where[at - 1] + size].tobytes()
                found[name] = value_of(data, kind, self.types, self.pointer)
        return found

    def pointer(self, address: int, size: int = 8) -> str:
        """An address as the name of its memory and the index of the element of `size` bytes."""
        for room in (-1, 0):  # first memory that contains it, then memory that ends just before it
            for region in self.regions:
                offset = address - region["begin"]
                if 0 <= offset <= region["size"] + room:
                    element = f" + {offset // size}" if size and offset else ""
                    return f"{region['name']}{element}"
        return hex(address)

    @cached_property
    def _structures(self) -> dict[tuple[int, int], str]:
        """Address and type of the structures that variables point to, with the variable's name."""
        found: dict[tuple[int, int], str] = {}
        is_structure = {
            kind: it[2]
            for kind, it in enumerate(self.types)
            if it[0] == "ptr" and self.types[it[2]][0] == "struct" and self.types[it[2]][1]
        }
        kinds = np.array([kind for _, kind, _ in self.variables] or [0])
        rows = np.flatnonzero(np.isin(kinds[self.changed], list(is_structure)))
        for row in rows.tolist():
            name, kind, _ = self.variables[self.changed[row]]
            if name == "this":  # the object has a name of its own
                continue
            at = int(self.tables["changes"]["at"][row])
            address = int.from_bytes(self.bytes[at : at + 8].tobytes(), "little")
            found.setdefault((address, is_structure[kind]), name)
        return found

    def member(self, address: int, size: int = 8) -> str:
        """The name of the array element or structure member at an address."""
        best = None  # the largest structure
        for (begin, kind), name in self._structures.items():
            bytes_ = self.types[kind][1]
            if begin <= address < begin + bytes_ and (best is None or bytes_ > best[0]):
                best = bytes_, kind, begin, name
        if best is None:
            name, _, number = self.pointer(address, size).partition(" + ")
            return f"{name}[{number}]" if number else name
        _, kind, begin, name = best
        return name + member_at(address - begin, kind, self.types, size)

    def element_of(self, region: dict[str, Any]) -> tuple[str, int] | None:
        """The most frequent type in a structure in memory, and that type's size in bytes."""
        counts: dict[tuple[str, int], int] = {}
        for begin, kind in self._structures:
            if 0 <= begin - region["begin"] < region["size"]:
                for leaf, bytes_ in leaves(kind, self.types):
                    key = self.types[leaf][0], self.types[leaf][1]
                    counts[key] = counts.get(key, 0) + bytes_
        return max(counts, key=counts.__getitem__, default=None)

    def runs_of(self, line: int, thread: int | None = None, file: str | None = None) -> list[int]:
        """The steps in which a line is run, in order; by one thread, if one is given: then where
        the line calls a function, the step in which that has returned."""
        here = [
            number
            for number, (name, at, _) in enumerate(self.lines)
            if at == line and (file is None or Path(name).name == Path(file).name)
        ]
        steps = self.tables["steps"]
        if thread is None:
            chosen = np.isin(steps["place"], here) & (steps["depth"] < RETURNED)
            return np.unique(steps["round"][chosen]).tolist()
        ends: dict[int, int] = {}  # of the runs by their positions
        running: dict[int, int] = {}  # by the depth of their functions
        for at in self._of_thread.get(thread, ()):
            step = steps[at]
            if step["depth"] < RETURNED:
                running[int(step["depth"])] = at
            run = running.get(int(step["depth"]) % RETURNED)
            if run is not None and steps[run]["place"] in here:
                ends[run] = int(step["round"])
        return sorted(ends.values())

    def line_of(self, thread: int, step: int) -> int:
        """The number of the line that a thread has run last at a step; 0 before its first."""
        last = self.step_of(thread, step)
        return 0 if last is None else self.lines[last["place"]][1]

    def groups(self, warp: int, step: int) -> list[tuple[int, str, int, int]]:
        """Of each line that lanes of a warp run in a step: its number, the lanes, how many they
        are, and how many the warp has."""
        steps = self._steps_of_round.get(step, self.tables["steps"][:0])
        steps = steps[steps["thread"] // WARP == warp]
        x, y, z = self.threads_per_block
        most = min(WARP, x * y * z - WARP * warp % self.stride)
        found = []
        for place in np.unique(steps["place"]):
            lanes = (steps["thread"][steps["place"] == place] % WARP).tolist()
            found.append((self.lines[place][1], _ranges(lanes), len(lanes), most))
        return found

    @cached_property
    def _steps_of_round(self) -> dict[int, np.ndarray]:
        steps = self.tables["steps"]
        order = np.argsort(steps["round"], kind="stable")
        rounds, starts = np.unique(steps["round"][order], return_index=True)
        return dict(zip(rounds.tolist(), np.split(steps[order], starts[1:]), strict=True))

    def waits(self, warp: int, step: int) -> list[str]:
        """What the lanes of a warp wait for after a step, and where."""
        waits = self.tables["waits"]
        mine = waits[(waits["warp"] == warp) & (waits["round"] <= step)]
        mine = mine[mine["round"] == mine["round"].max()] if len(mine) else mine
        return [short(self.words[it["word"]]) for it in mine if self.words[it["word"]]]

    def findings(self) -> list[dict[str, Any]]:
        """What `lab.check` found in the same run: title, message, and for each access of it file,
        line, thread and, where it is among those recorded, step."""
        found = []
        for row in self.report.findings.to_dict("records"):
            ends = windows.ends_of(row)
            steps: list[list[int]] = []
            for end in ends:
                if "thread" in end and end["block"] in self.blocks:
                    end["thread"] = self.thread_of(end["block"], end["thread"])
                    steps.append(self._steps_of_access(end, row["address"]))
                else:
                    steps.append([])
            for end, step in zip(ends, windows.nearest(steps, self._opened), strict=True):
                if end.get("block") in self.blocks:
                    end["step"] = step
                else:
                    end.pop("thread", None)
            found.append({"title": told.title(row), "message": row["message"], "ends": ends})
        return found

    @cached_property
    def _opened(self) -> np.ndarray:
        """The steps up to which threads of the block had not passed a barrier; of one block."""
        if len(self.blocks) > 1:
            return np.zeros(0)
        numbers = self.tables["rounds"]["number"]
        return np.searchsorted(numbers, self.tables["opened"]["number"], "right") - 1

    @property
    def opened(self) -> list[int]:
        """The recorded steps in which all threads of a block have come to a barrier."""
        at = {tuple(it): step for step, it in enumerate(self.tables["rounds"].tolist())}
        return sorted({at[it] for it in self.tables["opened"].tolist() if it in at})

    def _steps_of_access(self, end: dict[str, Any], address: int) -> list[int]:
        """The steps in which a thread touches an address at a line; or, if in none, runs it."""
        steps, touches, thread = self.tables["steps"], self.tables["touches"], end["thread"]
        touches = touches[touches["how"] != OTHER]
        begins = np.array([region["begin"] for region in self.regions] or [0], "u8")
        at = begins[touches["region"]] + touches["offset"]
        hits = touches["step"][(at <= address) & (address < at + touches["size"])]
        if address == 0:  # that of no memory: out of bounds
            hits = self.tables["outside"]["step"]
        hits = np.unique(hits[steps["thread"][hits] == thread])
        places = steps["place"]
        is_here = {
            place: windows.is_at(self.report, *self.lines[place][:2], end)
            for place in np.unique(places[steps["thread"] == thread]).tolist()
        }
        here = [int(steps["round"][hit]) for hit in hits if is_here[int(places[hit])]]
        if here:
            return here
        mine = self._of_thread.get(thread, np.zeros(0, int))
        return [int(steps["round"][at]) for at in mine if is_here[int(places[at])]]

    @cached_property
    def start(self) -> tuple[int, int]:
        """The step and the thread with which the page begins: the first access of its finding."""
        if self.finding is not None:
            ends = self.findings()[self.finding]["ends"]
            there = [(it["step"], it["thread"]) for it in ends if it.get("step") is not None]
            if there:
                return min(there)
        return 0, 0

    # ---- Shown

    def __str__(self) -> str:
        return overview(self)

    def at(self, line: int, threads: Sequence[int] = (0,)) -> str:
        """The values of threads each time that they have run a line, as text."""
        return at_line(self, line, list(threads))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        from lab.tracer.page import framed

        return framed(self)

    def save(self, path: str | Path) -> Path:
        """Write the page into a file, which any browser opens."""
        from lab.tracer.page import page

        path = Path(path)
        path.write_text(page(self))
        return path


def _ranges(lanes: list[int]) -> str:
    """ "0-15, 31" of lanes in any order."""
    found: list[list[int]] = []
    for lane in sorted(lanes):
        if found and lane == found[-1][1] + 1:
            found[-1][1] = lane
        else:
            found.append([lane, lane])
    return ", ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in found)


def _moved(kind: list[Any], by: int) -> list[Any]:
    """A type's description, with the positions of the types it refers to shifted."""
    match kind:
        case ["ptr", size, of]:
            return ["ptr", size, of + by]
        case ["array", size, of, count]:
            return ["array", size, of + by, count]
        case ["struct", size, name, members]:
            return ["struct", size, name, [[it, at, of + by] for it, at, of in members]]
    return kind


def indices_of(blocks: Blocks, grid: tuple[int, int, int]) -> tuple[int, ...]:
    """The numbers of blocks, each given by its number or by (x, y, z); one, or a list.

    Raises ValueError where there is none such, or where they are too many.
    """
    listed = blocks if isinstance(blocks, list) else [blocks]
    if not 0 < len(listed) <= MOST_BLOCKS:
        raise ValueError(f"block: {len(listed)} of them; wanted are 1 to {MOST_BLOCKS}")
    return tuple(dict.fromkeys(index_of(it, grid, "block") for it in listed))


def index_of(at: int | tuple[int, ...], extent: tuple[int, ...], what: str) -> int:
    """The number of a block or a thread that is given by its number or by (x, y, z).

    Raises ValueError, where there is none such.
    """
    x, y, z = extent
    if isinstance(at, int):
        number = at
    else:
        place = (*at, 0, 0, 0)[:3]
        if any(not 0 <= i < n for i, n in zip(place, extent, strict=True)):
            raise ValueError(f"{what}: {at} is not in {extent}")
        number = place[0] + x * (place[1] + y * place[2])
    if not 0 <= number < x * y * z:
        raise ValueError(f"{what}: {at}; there are {x * y * z}, from 0 on")
    return number
