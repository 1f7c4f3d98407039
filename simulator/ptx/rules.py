"""Rules that map an instruction to C++.

    Rule(r"(?:add|sub)\\.(?P<type>u32)", "{0} = $add<${type}>({1}, {2});", "arithmetic.h")

A rule is for all mnemonics that its pattern matches as a whole. Its code is C++ with the operands
as {0}, {1} and so on, the pattern's groups by their names, and `$name` for `simulator::ptx`'s
`__ptx_name`; its header is one of include/simulator/ptx. Where one template is not enough, the code
is a function that takes a `Use` and returns the C++. It uses no other names, because a user's
macros may have any name that is not reserved; `$Kind_Value` stands for an enumerator.

Every register is a word of plain bits of its width (bool for a predicate). The functions take and
return such words, and their type arguments say what the bits mean.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from simulator.ptx.language import Instruction, NotPtx, Operand

# A part of a mnemonic may be an operand that the statement receives as a number: `%5`.
_OR_OPERAND = r"|%\d+|%\[\w+\]"
NAMES = "::simulator::__ptx::__ptx_"
CTA_GROUP = rf"\.cta_group::(?P<cta>[12]{_OR_OPERAND})"


@dataclass(frozen=True)
class Use:
    """An instruction where it is used.

    groups: those of the rule's pattern; an operand among them is given in C++.
    rendered: each operand in C++; a vector is a list.
    later: the mnemonics of what follows in the statement.
    """

    instruction: Instruction
    groups: dict[str, str | None]
    rendered: list[str | list[str]]
    later: tuple[str, ...] = ()

    def __getitem__(self, index: int) -> str:
        """The C++ of operand `index`; negative from the end."""
        try:
            value = self.rendered[index]
        except IndexError:
            raise NotPtx(f"an operand is missing in {self.instruction.text}") from None
        return value if isinstance(value, str) else ", ".join(value)

    def vector(self, index: int) -> list[str]:
        """The parts of operand `index`; an operand that is no vector is its own only part."""
        value = self.rendered[index]
        return [value] if isinstance(value, str) else value

    def operand(self, index: int) -> Operand:
        return self.instruction.operands[index]

    def __len__(self) -> int:
        return len(self.rendered)


class Rule(NamedTuple):
    pattern: str
    code: str | Callable[[Use], str]
    header: str

    @property
    def firsts(self) -> list[str]:
        """The first parts of the mnemonics that the rule matches."""
        first = re.match(r"(?:\(\?(?:P<\w+>|:))?([\w|]+)", self.pattern)
        return first[1].split("|")

    @property
    def shown(self) -> str:
        """The pattern for people, as in `(add|sub).([us]32)`."""
        plain = re.sub(r"\(\?(?:P<\w+>|:)", "(", self.pattern.replace(_OR_OPERAND, ""))
        plain = (
            plain.replace("(?P=to)", "(the same)").replace(r"\d+", "N").replace(r"[\w.:]*", "...")
        )
        plain = plain.replace(r"[\w.:]+", "...").replace(r"\w+", "...").replace("\\.", ".")
        return re.sub(r"\(([\w.]+)\)(?![?*+])", r"\1", plain)

    def match(self, mnemonic: str) -> dict[str, str | None] | None:
        found = re.fullmatch(self.pattern, mnemonic)
        return None if found is None else found.groupdict()

    def orders(self, qualifiers: list[str]) -> Iterator[list[str]]:
        """The qualifiers in the pattern's order, where they are written in another.

        For each part of the pattern one that fits, the first that is left; then again, with all
        that fit, for a part may stand in a repetition.
        """
        for takes_all in (False, True):
            left, order = list(qualifiers), []
            for part in _parts(self.pattern):
                while left:
                    at = _first_fitting(part, left)
                    if at is None:
                        break
                    order.append(left.pop(at))
                    if not takes_all:
                        break
            if not left:
                yield order

    def cpp(self, use: Use) -> str:
        code = self.code if isinstance(self.code, str) else self.code(use)
        if isinstance(self.code, str):
            code = re.sub(r"\{(\d+)\}", lambda m: use[int(m[1])], code)
            code = re.sub(r"\{([a-z]\w*)\}", lambda m: use.groups[m[1]] or "", code)
        return code.replace("$", NAMES)


# Of these those that are written first stand first in every order: types, layouts, state spaces.
_IN_ORDER = (
    re.compile(r"[busf]\d+(?:x\d)?|(?:bf|tf)\d+(?:x\d)?|u?e\dm\d\w*|pred"),
    re.compile(r"row|col"),
    re.compile(r"(?:global|shared|local|const|param)(?:::\w+)?"),
)


def _first_fitting(part: re.Pattern[str], qualifiers: list[str]) -> int | None:
    """The index of the first qualifier that a part of a pattern fits and that no other of its kind,
    whose order counts, stands before."""
    seen = set()
    for index, qualifier in enumerate(qualifiers):
        kind = next((kind for kind in _IN_ORDER if kind.fullmatch(qualifier)), None)
        if kind not in seen and part.fullmatch(qualifier):
            return index
        if kind is not None:
            seen.add(kind)
    return None


@cache
def _parts(pattern: str) -> list[re.Pattern[str]]:
    """What a pattern has between the dots of a mnemonic, each as a pattern of its own."""
    pattern = re.sub(r"\(\?P<\w+>", "(?:", pattern)
    pattern = re.sub(r"\(\?P=\w+\)", r"\\w+", pattern)
    return [re.compile(_balanced(part)) for part in pattern.split(r"\.")[1:]]


def _balanced(part: str) -> str:
    """A piece of a pattern without what closes a group that it has not opened, and with the groups
    closed that it opens: `sp)?` is `sp`, and `block_scale(?:` is `block_scale(?:)`."""
    depth = 0
    for token in re.finditer(r"\\.|\[.[^\]]*\]|[()]", part):
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        if depth < 0:
            return part[: token.start()]
    return part.removesuffix("|") + ")" * depth
