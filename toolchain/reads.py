"""Which pointers a function only reads through, although its declaration does not say const.

    __global__ void twice(float* x, float* y) { y[threadIdx.x] = 2 * x[threadIdx.x]; }

writes only to y, and autograd has to know of this write and no other. A pointer that is not known
to be read only counts as written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cached_property

from simulator.scan import blank, closing
from toolchain.sources import split

_LOADS = {"__ldg", "__ldca", "__ldcg", "__ldcs", "__ldcv", "__ldlu"}
_ASSIGNED = re.compile(r"=(?!=)|[-+*/%&|^]=|<<=|>>=|\+\+|--|\.\w+\s*\(")
_TO_CONST = re.compile(
    r"(?:_cast\s*<\s*(?:const\b[^<>]*|[^<>]*\bconst\s*)\*\s*(?:__restrict__\s*)?>\s*\("
    r"|\(\s*const\b[^()<>*]*\*\s*\))\s*&?\s*$"
)
_ADDRESS = re.compile(r"(?<![\w)\]&])\s*&\s*$")
_REFERENCE = re.compile(r"&\s*\w+\s*=\s*[^=;]*$")
_POINTER = re.compile(r"(?:\*[\s\w]*?|\bauto\s+)\b(\w+)\s*=\s*$")
_CALLEE = re.compile(r"(\w+)\s*(?:<[^;{}()]*>\s*)?(?:<<<[^;{}]*>>>\s*)?$")


def only_read(texts: Iterable[str], function: str, parameters: list[str]) -> list[int]:
    """The positions of the pointers not declared const that `function` only reads through in all
    texts that define it."""
    pointers = [i for i, text in enumerate(parameters) if "*" in text or "[" in text]
    codes = [code for code in map(_Code, texts) if code.definitions(function)]
    for code in codes:
        pointers = [i for i in pointers if code.only_reads(function, i)]
    if not codes:
        return []
    return [i for i in pointers if not _is_to_const(parameters[i])]


def _is_to_const(parameter: str) -> bool:
    return re.search(r"\bconst\b", re.split(r"[*\[]", parameter)[0]) is not None


class _Code:
    """One text, with the functions that it defines."""

    def __init__(self, text: str):
        self.text = text
        self._found: dict[str, list[tuple[list[str], str]]] = {}

    @cached_property
    def _plain(self) -> str:
        return blank(self.text)

    def definitions(self, function: str) -> list[tuple[list[str], str]]:
        """The parameters and the body of each function of that name."""
        if function not in self._found:
            self._found[function] = list(self._definitions(function))
        return self._found[function]

    def _definitions(self, function: str) -> Iterator[tuple[list[str], str]]:
        for name in re.finditer(rf"(?<![.>])\b{function}\s*\(", self._plain):
            end = closing(self._plain, name.end() - 1)
            brace = end and re.compile(r"\s*(?:noexcept\s*)?\{").match(self._plain, end)
            if brace and (last := closing(self._plain, brace.end() - 1)):
                declared = split(self._plain[name.end() : end - 1])
                yield declared, self._plain[brace.end() : last - 1]

    def only_reads(self, function: str, position: int, above: tuple = ()) -> bool:
        """Whether a function of this text only reads through a pointer, the argument at `position`;
        above: the functions that call it, with their arguments."""
        if (function, position) in above:
            return True  # recursive: its callers decide
        above = (*above, (function, position))
        definitions = self.definitions(function)
        return bool(definitions) and all(
            position < len(declared) and self._reads_argument(declared[position], body, above)
            for declared, body in definitions
        )

    def _reads_argument(self, declared: str, body: str, above: tuple) -> bool:
        declared = declared.partition("=")[0]
        if _is_to_const(declared) and "*" in declared:
            return True
        name = re.search(r"(\w+)\s*(?:\[[^]]*\]\s*)*$", declared)
        return "&" not in declared and name is not None and self._reads(body, name[1], above)

    def _reads(self, body: str, name: str, above: tuple) -> bool:
        places = re.finditer(rf"\b{name}\b", body)
        return all(self._is_read(body, *place.span(), above) for place in places)

    def _is_read(self, body: str, start: int, end: int, above: tuple) -> bool:
        """Whether the pointer named at this place is only read through, or not used."""
        before = body[:start].rstrip()
        statement = before[max(map(before.rfind, ";{}")) + 1 :]
        if before.endswith((".", "->")) or _TO_CONST.search(before):
            return True
        rest = body[end:].lstrip()
        callee, position = _call_around(body, start)
        if not rest.startswith("["):
            if re.match(r"[!=]=", rest) or re.search(r"[!=]=$|!$", before):
                return True
            if alias := _POINTER.search(statement + " "):
                after = body[start:]
                hides = re.search(r"\bconst\b", statement.split("*")[0])
                return bool(hides) or self._reads(after[max(after.find(";"), 0) :], alias[1], above)
            return callee in _LOADS or (bool(callee) and self.only_reads(callee, position, above))
        while access := re.match(r"\s*(?:\[|\.\s*\w+(?!\w*\s*\())", rest):
            rest = rest[_bracket_end(rest) :] if access[0].endswith("[") else rest[access.end() :]
        if _ASSIGNED.match(rest.lstrip()) or before.endswith(("++", "--")):
            return False
        if _ADDRESS.search(before) and callee not in _LOADS:
            return False
        if _REFERENCE.search(statement) and not re.search(r"\bconst\b", statement):
            return False
        if callee == "swap" or not callee:
            return callee != "swap"
        parameters = [declared for declared, _ in self.definitions(callee)]
        return all(
            "&" not in (it := declared[position : position + 1] or [""])[0] or "const" in it[0]
            for declared in parameters
        )


def _call_around(body: str, place: int) -> tuple[str, int]:
    """The function with an argument at this place, and which argument it is; "" for none."""
    depth = commas = 0
    for i in range(place - 1, -1, -1):
        char = body[i]
        if char in ")]":
            depth += 1
        elif char in "([":
            if depth == 0:
                callee = _CALLEE.search(body[:i]) if char == "(" else None
                return (callee[1], commas) if callee else ("", 0)
            depth -= 1
        elif depth == 0 and char == ",":
            commas += 1
        elif char in ";{}":
            break
    return "", 0


def _bracket_end(text: str) -> int:
    """The position after the ] that closes the first [ of a text."""
    depth = 0
    for i, char in enumerate(text):
        depth += {"[": 1, "]": -1}.get(char, 0)
        if char == "]" and depth == 0:
            return i + 1
    return len(text)
