"""Host functions and variables used in device code, which nvcc refuses and a C++ compiler takes.

Only certain cases are reported: the text itself declares the name, once, outside of classes and
#ifs; no device function has that name; and the function that uses it is for the device alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

from simulator import host_members
from simulator.scan import closing, split
from simulator.scopes import Scopes

Mistake = tuple[int, str, str]

_TEMPLATE = r"(?:template\s*<[^<>(){};]*>\s*)?"
_TYPE = (
    r"(?!(?:return|else|new|delete|typedef|using|namespace|struct|class|union|enum|goto|throw|case"
    r"|extern|template|friend|public|private|protected|constexpr|operator|asm|auto)\b)"
    r"(?:(?:unsigned|signed|long|short)\s+)*[A-Za-z_][\w:]*(?:\s*<[\w\s,:*]*>)?"
)
_FUNCTION = re.compile(
    rf"(?:\A|(?<=[;{{}}]))\s*{_TEMPLATE}(?:extern\s+\"[^\"]*\"\s*)?"
    rf"(?:(?:static|inline|const|__host__)\s+)*{_TYPE}(?:\s*[*&]+\s*|\s+)(?P<name>\w+)\s*(?=\()"
)
_VARIABLE = re.compile(
    r"(?:\A|(?<=[;{}]))\s*(?P<said>(?:(?:static|inline|const|constexpr)\s+)*)"
    rf"{_TYPE}(?:\s*\*+\s*|\s+)(?P<name>\w+)\s*(?P<extent>(?:\[[^\];]*\]\s*)*)(?=[;=])"
)
_MARKS = re.compile(r"^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+[^\n]*\b__(?:device|global)__", re.M)
_WORD = re.compile(r"(?<!\d\.)\b\w+\b")  # no suffix of a number
_CALLED = re.compile(r"\b(\w+)\s*(?=\()")
_OPENING = re.compile(r"\s*\(")
_BESIDE = re.compile(r"(?:\.|->|::|~|\b(?:sizeof|decltype|noexcept)\s*\(\s*)$")
_NO_TYPE = r"(?!(?:return|else|do|case|goto|co_return|throw|not|and|or)\b)"
_DECLARES = re.compile(  # a type before a name
    rf"(?<![\w.])(?:{_NO_TYPE}[A-Za-z_][\w:]*(?:\s*<[^<>;()]*>)?\s+"
    rf"|(?:(?:^|[;{{}}(,<])\s*|\b(?:const|static|constexpr|volatile)\s+){_NO_TYPE}"
    r"[A-Za-z_][\w:]*(?:\s*<[^<>;()]*>)?\s*(?:const\s*)?[*&]+"
    r"\s*(?:const\s*|__restrict__\s*|__restrict\s*)?)$"
)
_LISTED = re.compile(r"\bfor\s*\([^;()]*$|\bauto\s*&*\s*\[[^\]]*$")
_KNOWN = re.compile(r"(?:\b(?:[A-Z0-9_]+|k[A-Z]\w*)\b|[\s+*/-])*")
_BODY = re.compile(r"\s*(?:noexcept\s*)?\{")
_NAMESPACE = re.compile(r"\s*(?:(?:inline\s+)?namespace\b|extern\s*\"[^\"]*\"\s*$)")


def functions_of_device(texts: Iterable[str]) -> frozenset[str]:
    """The names that may belong to functions marked __device__, or with a macro for it, in any of
    the texts."""
    texts = list(texts)
    marks = {"__device__", "__global__", *(name for text in texts for name in _MARKS.findall(text))}
    head = re.compile(rf"\b(?:{'|'.join(sorted(marks))})\b[^;{{}}]*")
    heads = (it[0] for text in texts for it in head.finditer(text))
    return frozenset(name for each in heads for name in _CALLED.findall(each))


def mistakes(
    plain: str,
    bodies: Iterable[tuple[int, int, int]],
    of_device: frozenset[str],
    is_unsure: Callable[[int], bool],
) -> Iterator[Mistake]:
    """The mistakes in a code without comments, strings and directives.

    bodies: where the head, body and end of each function for the device alone are.
    of_device: `functions_of_device` of all texts. is_unsure: whether a place may be left out.
    """
    bodies = list(bodies)
    scopes = Scopes(plain)
    mentions = cache(lambda: Counter(_WORD.findall(plain)))

    def is_compiled(function: tuple[int, int, int]) -> bool:
        return _is_compiled(plain, scopes, function, mentions())

    yield from host_members.mistakes(plain, bodies, scopes, is_unsure, is_compiled)
    functions = _functions(plain, scopes, of_device, is_unsure) if bodies else {}
    variables = _variables(plain, scopes, is_unsure) if bodies else {}
    names = functions.keys() | variables.keys()
    for head, body, end in bodies if names else ():
        begins = max(plain.rfind(mark, 0, head) for mark in ";{}") + 1
        used = [it for it in _WORD.finditer(plain, begins, end) if it[0] in names]
        if not used or not is_compiled((begins, body, end)):
            continue
        own = {it[0] for it in used if _declares(plain, begins, it)}
        for it in used:
            name, start = it[0], it.start()
            if start < body or name in own or is_unsure(start):
                continue
            if _BESIDE.search(plain, max(begins, start - 40), start):
                continue
            if name in variables and _reads(plain, it, variables[name]):
                yield (
                    start,
                    f"device code uses {name}, which is a variable of the host",
                    "Pass it to the kernel as a parameter. Or write __constant__ or __device__"
                    " before it, and copy to it by cudaMemcpyToSymbol.",
                )
            arguments = _arguments(plain, it.end())
            takes = arguments is not None and len(arguments) in functions.get(name, ())
            if takes and not _of_cuda(name):
                yield (
                    start,
                    f"device code calls {name}, which is a function of the host",
                    f"Write __device__ before {name}, or __host__ __device__ if the host calls it,"
                    " too.",
                )


def _functions(
    plain: str, scopes: Scopes, of_device: frozenset[str], is_unsure: Callable[[int], bool]
) -> dict[str, set[int]]:
    """The functions that the text defines for the host, outside of classes, and their numbers of
    arguments."""
    found: dict[str, list[set[int]]] = {}
    for it in _FUNCTION.finditer(plain):
        name, start = it["name"], it.start("name")
        end = closing(plain, it.end())
        if not (end and _BODY.match(plain, end)) or name in of_device or is_unsure(start):
            continue
        if _in_namespaces(scopes, start):
            parameters = _arguments(plain, it.end()) or []
            least = sum("=" not in each for each in parameters)
            found.setdefault(name, []).append(set(range(least, len(parameters) + 1)))
    definitions = Counter(
        it[1]
        for it in (_CALLED.finditer(plain) if found else ())
        if it[1] in found and (end := closing(plain, it.end())) and _BODY.match(plain, end)
    )
    return {
        name: set().union(*counts)
        for name, counts in found.items()
        if len(counts) == definitions[name]
    }


def _arguments(plain: str, position: int) -> list[str] | None:
    """The comma-separated contents of the parentheses at a position, if there are any."""
    opening = _OPENING.match(plain, position)
    end = opening and closing(plain, opening.end() - 1)
    if not end:
        return None
    found = split(plain[opening.end() : end - 1])
    return found if any(found) else []


def _variables(plain: str, scopes: Scopes, is_unsure: Callable[[int], bool]) -> dict[str, bool]:
    """The host's variables, and whether each is an array of constants. Constants that are no arrays
    are left out: device code may use their values."""
    found: dict[str, list[bool]] = {}
    for it in _VARIABLE.finditer(plain):
        start, is_constant = it.start("name"), "const" in it["said"]
        if _in_namespaces(scopes, start):
            found.setdefault(it["name"], []).append(is_constant)
            if (is_constant and not it["extent"]) or is_unsure(start):
                found[it["name"]].append(True)
    return {name: kinds[0] for name, kinds in found.items() if len(kinds) == 1}


def _in_namespaces(scopes: Scopes, position: int) -> bool:
    return all(_NAMESPACE.match(head) for head in scopes.heads(position))


def _is_compiled(
    plain: str, scopes: Scopes, function: tuple[int, int, int], mentions: Counter[str]
) -> bool:
    """Whether a function's whole body is certainly compiled: it is in no class, and if it is a
    template, the text names it elsewhere. mentions: how often the text has each word."""
    begins, body, end = function
    head = plain[begins:body]
    if not _in_namespaces(scopes, begins) or re.search(r"\bif\s+constexpr\b", plain[body:end]):
        return False
    names = _CALLED.findall(head)
    is_template = re.search(r"\btemplate\b", head)
    return not is_template or any(mentions[it] > 1 for it in names[-1:])


def _declares(plain: str, begins: int, it: re.Match) -> bool:
    """Whether a variable, parameter or function of this name may be declared here."""
    start = max(begins, it.start() - 200)
    before = plain[start : it.start()]
    if _DECLARES.search(before) or _LISTED.search(before):
        return True
    statement = re.split(r"[;{}]", before)[-1]
    return before.rstrip().endswith(",") and statement.count("(") == statement.count(")")


def _reads(plain: str, it: re.Match, of_constants: bool) -> bool:
    """Whether device code needs the variable itself; for an array of constants, an element whose
    index no compiler knows."""
    if not of_constants:
        return True
    index = re.compile(r"\s*\[([^\]]*)\]").match(plain, it.end())
    statement = re.split(r"[;{}]", plain[max(0, it.start() - 400) : it.start()])[-1]
    is_constant = re.search(r"\b(?:constexpr|static_assert|if)\b|<[^<>;]*$", statement)
    return bool(index) and not _KNOWN.fullmatch(index[1].strip()) and not is_constant


@cache
def _of_cuda(name: str) -> bool:
    """Whether one of the simulator's headers has a function of this name."""
    declared = re.compile(
        rf"^\s*(?:SIMULATOR_\w+|__device__|inline|static)\b[^;{{}}()\n]*\b{name}\s*\("
        rf"|^\s*SIMULATOR_\w+\([^)\n]*\b{name}\b",
        re.MULTILINE,
    )
    headers = Path(__file__).with_name("include").rglob("*.h")
    return any(declared.search(it.read_text()) for it in headers if it.parent.name != "ptx")
