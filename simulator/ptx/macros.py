"""Expands the macros that compose PTX, because PTX is translated before the preprocessor runs.

    #define LOAD(SPACE) asm("ld." #SPACE ".u32 %0, [%1];" : "=r"(x) : "l"(p))
    LOAD(global);

An `asm` statement with macros beside its literals and operands, and the use of a macro that
contains such a statement, are replaced by what the preprocessor would make of them.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from simulator.ptx.statement import statements
from simulator.scan import blank, closing

_DEFINITION = re.compile(
    r"^[ \t]*#[ \t]*(?:(?P<undef>undef)[ \t]+(?P<gone>\w+)|define[ \t]+(?P<name>\w+)"
    r"(?:\((?P<parameters>[^)]*)\))?(?P<body>(?:\\\r?\n|[^\n])*))",
    re.MULTILINE,
)
_TOKEN = re.compile(
    r"""
    (?P<space>(?:\s|\\\r?\n|//[^\n]*|/\*.*?\*/)+)
    | (?:u8|[uUL])?R"(?P<mark>[^\s()\\]{0,16})\(.*?\)(?P=mark)"
    | (?:u8|[uUL])?"(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*'
    | (?P<word>[A-Za-z_]\w*) | \.?\d(?:[eEpP][+-]|[\w.])* | \#\# | \.\.\. | .
    """,
    re.VERBOSE | re.DOTALL,
)


class _Token(NamedTuple):
    text: str
    hidden: frozenset[str] = frozenset()  # the macros that produced it, not expanded in it again

    @property
    def is_space(self) -> bool:
        return self.text == " "


def _tokens(text: str) -> list[_Token]:
    return [_Token(" " if m["space"] else m[0]) for m in _TOKEN.finditer(text)]


class _Macro(NamedTuple):
    """parameters: None for a macro without parentheses; `...` is `__VA_ARGS__`."""

    parameters: tuple[str, ...] | None
    body: str


class _Definition(NamedTuple):
    start: int
    end: int
    name: str
    macro: _Macro | None  # None: #undef


def _definitions(text: str, code: str) -> Iterator[_Definition]:
    for match in _DEFINITION.finditer(text):
        if code[match.start() : match.end()].lstrip()[:1] != "#":
            continue  # in a comment or a string
        if match["undef"]:
            yield _Definition(match.start(), match.end(), match["gone"], None)
            continue
        parameters = match["parameters"]
        names = None if parameters is None else re.findall(r"\w+|\.\.\.", parameters)
        body = re.sub(r"\\\r?\n", " ", match["body"]).strip()
        macro = _Macro(
            None if names is None else tuple("__VA_ARGS__" if n == "..." else n for n in names),
            body,
        )
        yield _Definition(match.start(), match.end(), match["name"], macro)


@dataclass(frozen=True)
class Macros:
    """The macros of all files that are compiled together.

    everywhere: by name; None where files define one in several ways.
    composing: those that compose PTX, directly or through a macro that they use.
    """

    everywhere: Mapping[str, _Macro | None] = field(default_factory=dict)
    composing: frozenset[str] = frozenset()

    @classmethod
    def of(cls, texts: Iterable[str]) -> Macros:
        texts = list(texts)
        composing: set[str] = set()
        is_composed = False
        for text in texts:
            if not re.search(r"\basm\b|\b__asm", text):
                continue
            code = blank(text)
            defined = list(_definitions(text, code))
            for statement in statements(text, code):
                if statement.composed:
                    is_composed = True
                    composing.update(each.name for each in _around(statement.start, defined))
        if not is_composed:
            return cls()
        everywhere: dict[str, _Macro | None] = {}
        for text in texts:
            for _, _, name, macro in _definitions(text, blank(text)):
                if macro is not None:
                    known = everywhere.setdefault(name, macro)
                    everywhere[name] = macro if known == macro else None
        leading: dict[str, set[str]] = {}  # for each word, the macros whose replacement contains it
        for name, macro in everywhere.items():
            for word in re.findall(r"\w+", macro.body) if macro else ():
                leading.setdefault(word, set()).add(name)
        return cls(everywhere, that_lead_to(composing, leading))

    def expanded(self, text: str, code: str) -> str:
        """`text` with the PTX-composing macros expanded; it keeps its number of lines.

        `code` is the text with comments and strings blank. A macro whose definition depends on what
        is not known here (`#if`) is left where it is.
        """
        if not self.everywhere:
            return text
        defined = list(_definitions(text, code))
        known = _Known(self.everywhere, defined)
        parts, done = [], 0
        for start, end in sorted(self._places(text, code)):
            if start < done or _around(start, defined):
                continue
            expansion = _Expansion(known, start)
            made = "".join(token.text for token in expansion.of(_tokens(text[start:end])))
            parts += text[done:start], made, "\n" * text.count("\n", start, end)
            done = end
        return "".join(parts) + text[done:]

    def _places(self, text: str, code: str) -> Iterator[tuple[int, int]]:
        for statement in statements(text, code):
            if statement.composed:
                yield statement.start, statement.end
        if not self.composing:
            return
        for word in re.finditer(r"\b[A-Za-z_]\w*", code):
            if word[0] not in self.composing:
                continue
            macro, end = self.everywhere[word[0]], word.end()
            if macro is not None and macro.parameters is not None:
                opening = re.compile(r"\s*\(").match(code, end)
                end = closing(code, opening.end() - 1) if opening else None
            if end is not None:
                yield word.start(), end


def that_lead_to(words: Iterable[str], leading: Mapping[str, set[str]]) -> frozenset[str]:
    """These words, and all names that lead to one of them, directly or indirectly.

    leading: for each word, the names that lead directly to it, as a macro does to its replacement.
    """
    found = set(words)
    waiting = list(found)
    while waiting:
        more = leading.get(waiting.pop(), frozenset()) - found
        found |= more
        waiting += more
    return frozenset(found)


def _around(position: int, defined: list[_Definition]) -> list[_Definition]:
    """The definition that contains a position."""
    before = bisect_right(defined, position, key=lambda each: each.start) - 1
    return [each for each in defined[max(before, 0) : before + 1] if position < each.end]


class _Known:
    """What names stand for in a file: its own last definition, or else the only one elsewhere."""

    def __init__(self, everywhere: Mapping[str, _Macro | None], defined: list[_Definition]):
        self._everywhere = everywhere
        self._own: dict[str, list[tuple[int, _Macro | None]]] = {}  # from where on each is which
        for start, _, name, macro in defined:
            own = self._own.setdefault(name, [(-1, None)])
            is_first = own[-1][1] is None or macro in (None, own[-1][1])
            own.append((start, macro if is_first else None))

    def at(self, position: int, name: str) -> _Macro | None:
        if (own := self._own.get(name)) is None:
            return self._everywhere.get(name)
        return own[bisect_left(own, position, key=lambda each: each[0]) - 1][1]


class _Expansion:
    """What the preprocessor makes of tokens (ISO C++, [cpp.replace])."""

    def __init__(self, known: _Known, position: int):
        self._known, self._position = known, position

    def of(self, tokens: list[_Token]) -> list[_Token]:
        waiting, done = tokens[::-1], []
        while waiting:
            token = waiting.pop()
            text = token.text
            macro = None if text in token.hidden else self._known.at(self._position, text)
            if macro is None:
                done.append(token)
                continue
            hidden = token.hidden | {token.text}
            arguments: list[list[_Token]] = []
            if macro.parameters is not None:
                if not self._is_called(waiting):
                    done.append(token)
                    continue
                arguments = _arguments(waiting, macro.parameters)
            made = self._replaced(macro, arguments)
            waiting += [t._replace(hidden=t.hidden | hidden) for t in reversed(made)]
        return done

    @staticmethod
    def _is_called(waiting: list[_Token]) -> bool:
        return next((t.text == "(" for t in reversed(waiting) if not t.is_space), False)

    def _replaced(self, macro: _Macro, arguments: list[list[_Token]]) -> list[_Token]:
        given = dict(zip(macro.parameters or (), arguments, strict=False))
        body, made, i = _tokens(macro.body), [], 0
        while i < len(body):
            token = body[i]
            following = _after_space(body, i)
            if token.text == "#" and following < len(body) and body[following].text in given:
                made.append(_Token(_string(given[body[following].text])))
                i = following
            elif token.text == "##":
                while made and made[-1].is_space:
                    made.pop()
                right = given.get(body[following].text, [body[following]])
                left = made.pop().text if made else ""
                made += _tokens(left + "".join(t.text for t in right).strip())
                i = following
            elif token.text in given:
                is_pasted = following < len(body) and body[following].text == "##"
                argument = given[token.text]
                made += argument if is_pasted else self.of(argument)
            else:
                made.append(token)
            i += 1
        return made


def _after_space(tokens: list[_Token], i: int) -> int:
    i += 1
    while i < len(tokens) and tokens[i].is_space:
        i += 1
    return i


def _arguments(waiting: list[_Token], parameters: tuple[str, ...]) -> list[list[_Token]]:
    """Taken from what waits, from "(" to its ")"."""
    found: list[list[_Token]] = [[]]
    depth = 0
    while waiting:
        token = waiting.pop()
        depth += (token.text in ("(", "[", "{")) - (token.text in (")", "]", "}"))
        if depth == 0 and token.text == ")":
            break
        if depth == 1 and token.text == "(" and not found[0] and len(found) == 1:
            continue
        is_rest = parameters[-1:] == ("__VA_ARGS__",) and len(found) == len(parameters)
        if depth == 1 and token.text == "," and not is_rest:
            found.append([])
        else:
            found[-1].append(token)
    return [_stripped(argument) for argument in found]


def _stripped(tokens: list[_Token]) -> list[_Token]:
    while tokens and tokens[0].is_space:
        tokens = tokens[1:]
    while tokens and tokens[-1].is_space:
        tokens = tokens[:-1]
    return tokens


def _string(tokens: list[_Token]) -> str:
    """`#x`"""
    text = "".join(
        re.sub(r'(["\\])', r"\\\1", token.text) if token.text[:1] in "\"'" else token.text
        for token in tokens
    )
    return f'"{text}"'
