"""What changed in the machine code or the PTX between two builds.

Registers and labels get new numbers whenever anything changes, so instructions are compared without
these: a line that differs only in registers counts as the same.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from pathlib import Path
from typing import NamedTuple

from toolchain import opcodes
from toolchain.instructions import Function, Instruction
from toolchain.listing import WIDTH, Listing, ListingSource, shown
from toolchain.tables import html_lines

MOST_OPCODES = 8  # in a function's headline
AROUND = 3  # unchanged instructions shown above and below a change
_NUMBERED = re.compile(r"\b(U?R|U?P|B|SB)\d+\b|%(\w*?)\d+|(\.?\$?L_\w*?)_*\d[\d_]*")


class Step(NamedTuple):
    """mark: "-" for only the old build, "+" for only the new one, " " for both, "⋮" for a gap."""

    mark: str
    instruction: Instruction | None


class Change(NamedTuple):
    """A function in both builds; None for a build that does not have it."""

    old: Function | None
    new: Function | None

    @property
    def function(self) -> Function:
        return self.new or self.old

    @property
    def counts(self) -> tuple[int, int]:
        """Instructions before and after."""
        return tuple(len(it.instructions) if it else 0 for it in self)

    def opcodes(self) -> list[tuple[str, int, int]]:
        """Opcodes whose count changed, each with the counts before and after, largest first."""
        before, after = (
            Counter(opcodes.opcode(it.text) for it in side.instructions) if side else Counter()
            for side in self
        )
        names = sorted(before | after, key=lambda name: (-abs(after[name] - before[name]), name))
        return [(n, before[n], after[n]) for n in names if before[n] != after[n]]

    @property
    def title(self) -> str:
        before, after = self.counts
        name = f"{self.function.name}, {self.function.architecture}"
        if self.old is None:
            return f"{name}: new, {after:,} instructions"
        if self.new is None:
            return f"{name}: gone, it had {before:,} instructions"
        return f"{name}: {before:,} instructions before, {after:,} now"

    @property
    def moved(self) -> str:
        """Such as "LDG.E 4 → 0, LDG.E.128 0 → 1"; empty for a function of one build."""
        if None in self:
            return ""
        changed = self.opcodes()
        most = [f"{name} {before} → {after}" for name, before, after in changed[:MOST_OPCODES]]
        more = len(changed) - len(most)
        return ", ".join([*most, f"{more} more"] if more else most)

    def steps(self) -> Iterator[Step]:
        """Old and new instructions in one sequence, without those far from a change."""
        old, new = (tuple(side.instructions) if side else () for side in self)
        matcher = SequenceMatcher(None, _keys(old), _keys(new), autojunk=False)
        end = 0
        for group in matcher.get_grouped_opcodes(AROUND):
            for kind, i, j, k, m in group:
                if k > end:
                    yield Step("⋮", None)
                end = m
                if kind == "equal":
                    yield from (Step(" ", it) for it in new[k:m])
                else:
                    yield from (Step("-", it) for it in old[i:j])
                    yield from (Step("+", it) for it in new[k:m])
        if end < len(new):
            yield Step("⋮", None)


class ListingDiff(list[Change]):
    """The functions that differ between two builds, with added and removed instructions.

    same: the number of functions that do not differ.
    """

    def __init__(self, old: Listing, new: Listing):
        self.old_code, self.code = old.code, new.code
        self.note = new.note or old.note
        changes = _paired(list(old), list(new))
        super().__init__(change for change in changes if _differ(change))
        self.same = len(changes) - len(self)

    @property
    def headline(self) -> str:
        differ = "1 function differs" if len(self) == 1 else f"{len(self)} functions differ"
        return (
            f"{self.code.language} of {self.old_code.of} and {self.code.of}:"
            f" {differ}, {self.same} the same"
        )

    def code_of(self, mark: str) -> ListingSource:
        return self.old_code if mark == "-" else self.code

    def __str__(self) -> str:
        if self.note:
            return self.note
        return "\n\n".join([self.headline, *("\n".join(self._lines(it)) for it in self)])

    __repr__ = __str__

    def _lines(self, change: Change) -> Iterator[str]:
        yield change.title
        if change.moved:
            yield f"  {change.moved}"
        before = None
        for mark, it in change.steps():
            if it is None:
                yield "  ⋮"
                continue
            code = self.code_of(mark)
            place = code.place(it)
            left = ""
            if place and (mark, place) != before:
                left = f"{Path(place.file).name}:{place.line:<6} {code.text(place).strip()}"
            before = mark, place
            yield f"{left[:WIDTH]:<{WIDTH}} | {mark} {shown(it).strip()}"

    def _repr_html_(self) -> str:
        kinds = {" | +": "added", " | -": "removed"}
        lines = str(self).splitlines()
        return html_lines((kinds.get(it[WIDTH : WIDTH + 4], "same"), it) for it in lines)


def _paired(old: list[Function], new: list[Function]) -> list[Change]:
    """Pairs of old and new functions, by symbol, or else by a name that only one has."""
    changes, left = [], {(it.symbol, it.architecture): it for it in old}
    added = []
    for function in new:
        before = left.pop((function.symbol, function.architecture), None)
        if before:
            changes.append(Change(before, function))
        else:
            added.append(function)
    for function in added:  # the symbol has the parameters, which may have changed
        namesakes = [_same_name(function, it) for it in (left.values(), added)]
        if all(len(each) == 1 for each in namesakes):
            before = namesakes[0][0]
            del left[before.symbol, before.architecture]
            changes.append(Change(before, function))
        else:
            changes.append(Change(None, function))
    return changes + [Change(function, None) for function in left.values()]


def _same_name(function: Function, among: Iterable[Function]) -> list[Function]:
    wanted = function.name, function.architecture
    return [it for it in among if (it.name, it.architecture) == wanted]


def _differ(change: Change) -> bool:
    if None in change:
        return True
    old, new = (_keys(tuple(side.instructions)) for side in change)
    return old != new


def _keys(code: tuple[Instruction, ...]) -> list[str]:
    """The instructions without the numbers of registers and labels."""
    return [_NUMBERED.sub(lambda it: next(filter(None, it.groups()), ""), i.text) for i in code]
