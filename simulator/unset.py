"""Local variables of device code that are declared without a value: the checker gives them one.

    float sum, kept[4];
    float sum, kept[4]; SIMULATOR_UNSET(sum) SIMULATOR_UNSET(kept)

Outside of a check the macro is empty. In one it gives the variable a value of the checker's
choice, so that what depends on it is seen (checker/undefined.h). The checker is also told who goes
on to a loop's next round past a barrier:

    if (i >= n) continue;
    if (i >= n) { SIMULATOR_SKIPS_BARRIER continue; }

and who returns early. A thread that ends otherwise, while others wait for it, has gone past a
barrier or a shuffle by a branch or a loop:

    if (i >= n) return;
    if (i >= n) __quit;
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from simulator.device_code import DeviceCode
from simulator.directives import spaces
from simulator.scan import closing

# What no declaration of a variable without a value begins with.
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
    """Of the device functions of a text: from, to, what to put there."""
    barrier = _barrier(device)
    for function, opened, end in device.bodies:
        head = re.split(r"[;{}]", device.plain[:function][-400:])[-1]
        head += device.plain[function : opened[0]]
        if re.search(r"\bconst(?:expr|eval)\b", head):
            continue
        yield from _skips(device.plain, opened[0], end, barrier)
        yield from _returns(device.plain, opened[0], end, "__global__" in head)
        for begin, semicolon in _statements(device.plain, opened[0], end - 1):
            names = _unset(device.plain[begin:semicolon])
            if not names:
                continue
            behind = semicolon + 1
            text = "".join(f" SIMULATOR_UNSET({name})" for name in names)
            line_end = device.plain.find("\n", behind)
            if "[" in device.plain[behind:line_end]:  # what is indexed there keeps its column
                if device.in_condition(behind):  # which may drop the #line, and not what it is for
                    continue
                begins = device.plain.rfind("\n", 0, behind) + 1
                number = device.plain.count("\n", 0, behind) + 1
                text += f"\n#line {number}\n{spaces(device.plain[begins:behind])}"
            yield behind, behind, text


def _barrier(device: DeviceCode) -> re.Pattern[str]:
    """What stands where threads come to a barrier: that, or a call of the text's own functions that
    do."""
    bodies: list[tuple[str, str]] = []
    for function, opened, end in device.bodies if "__syncthreads" in device.plain else ():
        names = re.findall(r"\b(?!__)(\w+)\s*\(", device.plain[function : opened[0]])
        bodies += [(name, device.plain[opened[0] : end]) for name in names[:1]]
    known, found = frozenset[str](), re.compile("__syncthreads")
    while more := {name for name, body in bodies if found.search(body)} - known:
        known |= more
        found = re.compile(rf"__syncthreads|\b(?:{'|'.join(sorted(known))})\s*[<(]")
    return found


def _skips(
    code: str, begin: int, end: int, barrier: re.Pattern[str]
) -> Iterator[tuple[int, int, str]]:
    """Each `continue;` of a loop that comes to a barrier behind it."""
    if not barrier.search(code, begin, end):
        return
    loops = []
    for loop in re.compile(r"\b(?:(for|while)\s*(?=\()|do\s*(?=\{))").finditer(code, begin, end):
        body = closing(code, loop.end()) if loop[1] else loop.end()
        opening = body and re.compile(r"\s*\{").match(code, body)
        if opening or not loop[1]:
            brace = opening.end() - 1 if opening else loop.end()
            loops.append((brace, closing(code, brace) or end))
    for skip in re.compile(r"\bcontinue\s*;").finditer(code, begin, end):
        within = [loop for loop in loops if loop[0] < skip.start() < loop[1]]
        if within and barrier.search(code, skip.end(), max(within)[1]):
            yield *skip.span(), "{ SIMULATOR_SKIPS_BARRIER continue; }"


def _returns(code: str, begin: int, end: int, is_kernel: bool) -> Iterator[tuple[int, int, str]]:
    """Each return of a kernel, and those of other functions that leave a barrier or shuffle out."""
    for word in re.compile(r"\breturn\b").finditer(code, begin, end):
        if is_kernel or "sync" in code[word.end() : end]:
            yield *word.span(), "__quit"


def _statements(code: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """From the end of what stands before to its semicolon, each statement outside of parentheses
    that stands in no class."""
    scopes: list[tuple[bool, int]] = [(True, 0)]  # whether statements stand there; open parentheses
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
    """Behind the > of template arguments; None where these are no such."""
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
