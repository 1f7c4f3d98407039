"""Local variables of device code that are declared without a value: the checker gives them one.

    float sum, kept[4];
    float sum, kept[4]; SIMULATOR_UNSET(sum) SIMULATOR_UNSET(kept)

Outside of a check the macro is empty. In one it gives the variable a value of the checker's
choice, which reveals results that depend on it (checker/undefined.h). The checker is also told
which threads skip a barrier by a `continue`:

    if (i >= n) continue;
    if (i >= n) { SIMULATOR_SKIPS_BARRIER continue; }

and which return early. Any other thread that ends while others wait for it has skipped a barrier or
a shuffle by a branch or a loop:

    if (i >= n) return;
    if (i >= n) __quit;
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator

from simulator.device_code import DeviceCode
from simulator.directives import spaces
from simulator.ptx.macros import that_lead_to
from simulator.scan import closing

# Words that begin no declaration of a variable without a value.
_OTHER = re.compile(
    r"alignas|asm|auto|break|case|class|const|constexpr|continue|co_\w+|default|delete|do|else|enum"
    r"|extern|for|friend|goto|if|namespace|new|operator|private|protected|public|return|static"
    r"|static_assert|struct|switch|template|thread_local|throw|try|typedef|union|using|while"
    r"|__shared__|__constant__|__device__|__asm__"
)
_PREFIX = re.compile(r"\s*(?:(?:alignas|__align__|__attribute__)\s*(?=\()|\[\[[^][]*\]\]\s*)")
_BUILT_IN = r"(?:(?:unsigned|signed|long|short|int|char|float|double)\s+)+"
_TYPE = re.compile(
    rf"\s*(?:(?:volatile|typename|register)\s+)*(?:{_BUILT_IN}|(?:::\s*)?[A-Za-z_]\w*)"
)
_ARRAY = re.compile(r"\s*([A-Za-z_]\w*)\s*((?:\[[^][]*\]\s*)*)")


def edits(device: DeviceCode) -> Iterator[tuple[int, int, str]]:
    """The edits (from, to, replacement) of a text's device functions."""
    barriers = _barriers(device)
    for function, opened, end in device.bodies:
        head = re.split(r"[;{}]", device.plain[max(0, function - 400) : function])[-1]
        head += device.plain[function : opened[0]]
        if re.search(r"\bconst(?:expr|eval)\b", head):
            continue
        yield from _skips(device.plain, opened[0], end, barriers)
        yield from _returns(device.plain, opened[0], end, "__global__" in head)
        for begin, semicolon in _statements(device.plain, opened[0], end - 1):
            names = _unset(device.plain[begin:semicolon])
            if not names:
                continue
            behind = semicolon + 1
            text = "".join(f" SIMULATOR_UNSET({name})" for name in names)
            line_end = device.plain.find("\n", behind)
            if "[" in device.plain[behind:line_end]:  # what is indexed there keeps its column
                if device.in_condition(behind):  # which may drop only the #line
                    continue
                begins = device.plain.rfind("\n", 0, behind) + 1
                text += f"\n#line {device.line(behind)}\n{spaces(device.plain[begins:behind])}"
            yield behind, behind, text


_CALL = re.compile(r"\b(\w+)\s*[<(]")


def _barriers(device: DeviceCode) -> list[int]:
    """The offsets of barriers, and of calls of functions of the text that reach one."""
    if "__syncthreads" not in device.plain:
        return []
    callers: dict[str, set[str]] = {}  # for each function, its callers
    for function, opened, end in device.bodies:
        name = re.search(r"\b(?!__)(\w+)\s*\(", device.plain[function : opened[0]])
        if name is None:
            continue
        body = device.plain[opened[0] : end]
        for called in {"__syncthreads"} if "__syncthreads" in body else ():
            callers.setdefault(called, set()).add(name[1])
        for called in set(_CALL.findall(body)):
            callers.setdefault(called, set()).add(name[1])
    known = that_lead_to({"__syncthreads"}, callers)
    found = {barrier.start() for barrier in re.finditer("__syncthreads", device.plain)}
    found |= {call.start() for call in _CALL.finditer(device.plain) if call[1] in known}
    return sorted(found)


def _skips(code: str, begin: int, end: int, barriers: list[int]) -> Iterator[tuple[int, int, str]]:
    """Each `continue;` that skips a barrier later in its loop."""

    def next_barrier(position: int) -> int:
        index = bisect_left(barriers, position)
        return barriers[index] if index < len(barriers) else len(code)

    if next_barrier(begin) >= end:
        return
    ends: list[int] = []  # the ends of the open loops, the innermost last
    words = r"\b(?:(?P<loop>for|while)\s*(?=\()|(?P<do>do)\s*(?=\{)|(?P<skip>continue)\s*;)"
    for word in re.compile(words).finditer(code, begin, end):
        while ends and ends[-1] <= word.start():
            ends.pop()
        if word["skip"]:
            if ends and next_barrier(word.end()) < ends[-1]:
                yield *word.span(), "{ SIMULATOR_SKIPS_BARRIER continue; }"
            continue
        body = closing(code, word.end()) if word["loop"] else word.end()
        opening = body and re.compile(r"\s*(?=\{)").match(code, body)
        if opening:
            ends.append(closing(code, opening.end()) or end)


def _returns(code: str, begin: int, end: int, is_kernel: bool) -> Iterator[tuple[int, int, str]]:
    """Each return of a kernel, and other functions' returns that skip a barrier or shuffle."""
    last = code.rfind("sync", begin, end)
    for word in re.compile(r"\breturn\b").finditer(code, begin, end):
        if is_kernel or word.end() <= last:
            yield *word.span(), "__quit"


def _statements(code: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Each statement outside of parentheses and classes: from the end of what precedes it to its
    semicolon."""
    scopes: list[tuple[bool, int]] = [(True, 0)]  # (may hold statements, open parentheses)
    for mark in re.compile(r"[;{}()]").finditer(code, begin, end):
        is_code, depth = scopes[-1]
        match mark[0]:
            case "(":
                scopes[-1] = is_code, depth + 1
            case ")":
                scopes[-1] = is_code, depth - 1
            case "{":
                before = code[begin : mark.start()]
                opens = re.search(r"(?:^|[):]|\b(?:else|do|try|mutable|noexcept))\s*\Z", before)
                is_class = re.search(r"\b(?:struct|class|union|enum)\b", before)
                scopes.append((bool(is_code and opens and not is_class), 0))
                begin = mark.end()
            case "}":
                if len(scopes) > 1:
                    is_code_inside, _ = scopes.pop()
                    begin = mark.end() if is_code_inside or not scopes[-1][1] else begin
            case ";" if is_code and depth == 0:
                yield begin, mark.start()
                begin = mark.end()
            case ";":
                begin = mark.end() if depth == 0 else begin


def _unset(statement: str) -> list[str]:
    """The names that a statement declares without a value, but for pointers and references."""
    first = re.match(r"\s*(\w+)", statement)
    while prefix := _PREFIX.match(statement):
        rest = prefix.end()
        if statement[rest : rest + 1] == "(":
            rest = closing(statement, rest) or len(statement)
        statement = statement[rest:]
        first = re.match(r"\s*(\w+)", statement)
    if first is None or _OTHER.fullmatch(first[1]) or not (type_ := _TYPE.match(statement)):
        return []
    position = type_.end()
    while step := re.compile(r"\s*(?:(<)|::\s*(?:template\s+)?[A-Za-z_]\w*)").match(
        statement, position
    ):
        position = step.end()
        if step[1] and (position := _behind_angles(statement, step.start(1))) is None:
            return []
    declarators = statement[position:]  # else it is an expression, as in part.finish<T, kRows>(y)
    return _declared(declarators) if re.match(r"[\s*&]*[A-Za-z_]", declarators) else []


def _behind_angles(text: str, opening: int) -> int | None:
    """The offset after the > of template arguments; None if they are none."""
    depth = 0
    for mark in re.compile(r"[<>()]").finditer(text, opening):
        depth += {"<": 1, ">": -1}.get(mark[0], 0)
        if depth == 0:
            return mark.end()
    return None


def _declared(declarators: str) -> list[str]:
    found, begin, depth = [], 0, 0
    for mark in re.finditer(r"[][(){},]|\Z", declarators):
        depth += (mark[0] in tuple("[({")) - (mark[0] in tuple("])}"))
        if mark[0] not in (",", "") or (depth and mark[0]):
            continue
        if "<" in declarators[begin : mark.start()]:
            break  # the commas behind it may be those of template arguments
        name = _ARRAY.fullmatch(declarators, begin, mark.start())
        if name:
            found.append(name[1])
        begin = mark.end()
    return found
