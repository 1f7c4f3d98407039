"""Members of classes that only the host has, used in device code: nvcc refuses a method, an
operator or a constructor that is not marked __device__, and a C++ compiler takes it.

Only certain cases are reported: the text defines the class once, outside of templates and #ifs; the
class defines what is called in its own body, in all overloads of that name for the host; and the
object is one that the function declares, under a name that it declares once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from simulator.scan import closing, split
from simulator.scopes import Scopes

_CLASS = re.compile(
    r"(?:\A|(?<=[;{}]))\s*(?:struct|class)\s+(?P<name>\w+)\s*(?:final\s*)?(?::[^;{}()]*)?(?=\{)"
)
_NAMESPACE = re.compile(r"\s*(?:(?:inline\s+)?namespace\b|extern\s*\"[^\"]*\"\s*$)")
_OPERATOR = r"operator\s*(?:\(\s*\)|\[\s*\]|[-+*/%&|^<>=!]=?)"
_TYPE = (
    r"(?!(?:template|friend|using|typedef|constexpr|virtual|operator|explicit|return|auto|__\w+)\b)"
    r"(?:const\s+)?(?:(?:unsigned|signed|long|short)\s+)*[A-Za-z_][\w:]*(?:\s*<[\w\s,:*]*>)?"
)
_MEMBER = re.compile(
    rf"\s*(?:(?:public|private|protected)\s*:\s*)*(?:(?:static|inline|explicit|__host__)\s+)*"
    rf"(?P<type>{_TYPE}(?:\s*[*&]+\s*|\s+))??(?P<name>{_OPERATOR}|\w+)\s*(?=\()"
)
_BODY = re.compile(r"\s*(?:(?:const|noexcept)\b\s*)*(?:\{|:(?!:))")
_NOT_COMPILED = re.compile(r"\b(?:sizeof|decltype|noexcept)\s*\(\s*$|(?:\.|->|::)$")
_BEFORE = r"(?:^|[;{}(,]|\b(?:const|for)\b)\s*"


def mistakes(
    plain: str,
    bodies: list[tuple[int, int, int]],
    scopes: Scopes,
    is_unsure: Callable[[int], bool],
    is_compiled: Callable[[tuple[int, int, int]], bool],
) -> Iterator[tuple[int, str, str]]:
    """The mistakes in the bodies (head, begin, end) of functions for the device alone."""
    classes = _classes(plain, scopes, is_unsure) if bodies else {}
    for head, body, end in bodies if classes else ():
        begins = max(plain.rfind(mark, 0, head) for mark in ";{}") + 1
        text = plain[begins:end]
        for name, members in classes.items():
            if not re.search(rf"\b{name}\b", text) or not is_compiled((begins, body, end)):
                continue
            for start, member, called in _uses(text, body - begins, name, members):
                if not is_unsure(begins + start):
                    what = "constructor" if member == name else "member function"
                    yield (
                        begins + start,
                        f"device code calls {called}, a {what} that only the host has",
                        f"Write __host__ __device__ before {member} in {name}.",
                    )


def _classes(
    plain: str, scopes: Scopes, is_unsure: Callable[[int], bool]
) -> dict[str, dict[str, set[int]]]:
    """For each class, its members that are the host's alone, and their numbers of arguments."""
    found: dict[str, list[dict[str, set[int]]]] = {}
    for it in _CLASS.finditer(plain):
        name, end = it["name"], closing(plain, it.end())
        heads = scopes.heads(it.start("name"))
        is_known = end and not is_unsure(it.start("name")) and all(map(_NAMESPACE.match, heads))
        found.setdefault(name, []).append(
            _members(name, plain[it.end() + 1 : end - 1]) if is_known else {}
        )
    return {name: all_[0] for name, all_ in found.items() if len(all_) == 1 and all_[0]}


def _members(of: str, text: str) -> dict[str, set[int]]:
    """The members that a class's text defines for the host alone, in all their overloads."""
    found: dict[str, set[int]] = {}
    others: set[str] = set()
    position = 0
    while position < len(text):
        end = _statement_end(text, position)
        statement = text[position:end]
        position = end
        member = _MEMBER.match(statement)
        close = member and closing(statement, member.end())
        is_host = member and bool(member["type"]) != (member["name"] == of)
        if is_host and close and _BODY.match(statement, close):
            parameters = [it for it in split(statement[member.end() + 1 : close - 1]) if it]
            least = sum("=" not in it for it in parameters)
            name = re.sub(r"\s", "", member["name"])
            found.setdefault(name, set()).update(range(least, len(parameters) + 1))
            variadic = any("..." in it for it in parameters)
            others |= {name} if variadic else set()
        else:
            others |= {re.sub(r"\s", "", it) for it in re.findall(rf"{_OPERATOR}|\w+", statement)}
            others |= {"operator"} if re.search(r"\boperator\b", statement) else set()
    if "operator" in others:  # a conversion, or one of those that are the device's
        found = {name: it for name, it in found.items() if not name.startswith("operator")}
    return {name: it for name, it in found.items() if name not in others}


def _statement_end(text: str, begin: int) -> int:
    """Where a class's member ends: behind its semicolon, or its body."""
    position = begin
    while mark := re.compile(r"[;({]").search(text, position):
        if mark[0] == ";":
            return mark.end()
        position = closing(text, mark.start()) or len(text)
        if mark[0] == "{" and not re.compile(r"\s*[,{;=]").match(text, position):
            return position
    return len(text)


def _uses(
    text: str, body: int, of: str, members: dict[str, set[int]]
) -> Iterator[tuple[int, str, str]]:
    """Where a function calls such members: offset, member, and the call's name."""
    constructed = members.get(of, set())
    declared: dict[str, int] = {}
    for it in re.finditer(rf"{_BEFORE}{of}\s*(?P<mark>[*&]*)\s*(?P<name>\w+)\s*", text):
        if it["name"] in ("const", "operator"):
            continue
        declared[it["name"]] = declared.get(it["name"], 0) + 1
        statement = re.split(r"[;{}(]", text[: it.start("name")])[-1]
        if it.start() < body or it["mark"] or re.search(r"__shared__|extern|static", statement):
            continue
        count = _arguments(text, it.end())
        if count in constructed and count != 1:  # one may be another of the class, to be copied
            yield it.start("name"), of, f"{of}::{of}"
    for it in re.finditer(
        rf"(?<![\w.>:~])(?<!struct )(?<!class ){of}\s*(::\s*\w+\s*)?(?=[({{])", text
    ):
        if it.start() < body or _NOT_COMPILED.search(text[max(0, it.start() - 40) : it.start()]):
            continue
        member = re.sub(r"\W", "", it[1]) if it[1] else of
        count = _arguments(text, it.end())
        if count in members.get(member, ()) and (it[1] or count != 1):
            yield it.start(), member, f"{of}::{member}"
    for name, times in declared.items():
        named = len(re.findall(rf"(?<![\w.>:])[A-Za-z_][\w:>]*[\s*&]+{name}\s*[;,=({{\[:)]", text))
        returned = len(re.findall(rf"\b(?:return|else|do|case|in)\s+{name}\b", text))
        if times != 1 or named - returned > 1:
            continue
        for it in re.finditer(rf"\b{name}\s*(?:(?:\.|->)\s*(?P<member>\w+)\s*(?=\())?", text):
            before = text[max(0, it.start() - 40) : it.start()]
            if it.start() < body or _NOT_COMPILED.search(before):
                continue
            if member := it["member"]:
                if _arguments(text, it.end()) in members.get(member, ()):
                    yield it.start("member"), member, f"{of}::{member}"
            elif operator := re.compile(r"([-+*/%])(=?)\s*(?=[\w(])").match(text, it.end()):
                member = f"operator{operator[1]}{operator[2]}"
                is_pointer = re.search(rf"\b{of}\s*\*[\s\w]*\b{name}\b", text)
                if 1 in members.get(member, ()) and not is_pointer:
                    yield it.start(), member, f"{of}::{member}"


def _arguments(text: str, position: int) -> int | None:
    """How many arguments stand in the brackets at a position; 0 at a semicolon."""
    if text[position : position + 1] == ";":
        return 0
    if text[position : position + 1] not in ("(", "{"):
        return None
    end = closing(text, position)
    given = text[position + 1 : end - 1] if end else ""
    return len([it for it in split(given) if it]) if end else None
