"""The parts of an `asm` statement: its template, and its operands where they stand in the text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from simulator.scan import closing

_KEYWORD = re.compile(
    r"\b(?:__asm__|__asm|asm)\b\s*(?:(?:volatile|__volatile__|__volatile|inline)\b\s*)*\("
)
_BRANCH = re.compile(r"#[ \t]*(?:if|ifdef|ifndef|elif|else|endif)\b[^\n]*")
_LITERAL = re.compile(r'(?:u8|[uUL])?(R?)"')
_RAW = re.compile(r'R"(?P<mark>[^\s()\\]{0,16})\((?P<body>.*?)\)(?P=mark)"', re.DOTALL)
_PLAIN = re.compile(r'"((?:[^"\\]|\\.)*)"', re.DOTALL)


class Operand(NamedTuple):
    """One operand: `[name] "constraint"(expression)`.

    start, end: where its parenthesised expression stands, the parentheses included.
    """

    name: str
    constraint: str
    start: int
    end: int
    is_output: bool

    @property
    def letter(self) -> str:
        return self.constraint.lstrip("=+&")

    @property
    def is_read(self) -> bool:
        return not self.constraint.startswith("=")


class Statement(NamedTuple):
    """An `asm` statement of a text, from `start` to `end` (before its semicolon).

    composed: the words beside literals and operands, which macros would have to replace.
    """

    start: int
    end: int
    template: str
    composed: list[str]
    operands: list[Operand]


def statements(text: str, code: str) -> Iterator[Statement]:
    """The `asm` statements of a text; `code` is the text with comments and strings blank."""
    for keyword in _KEYWORD.finditer(code):
        end = closing(code, keyword.end() - 1)
        if end is not None:
            yield _statement(text, code, keyword.start(), keyword.end(), end)


def _statement(text: str, code: str, start: int, begin: int, end: int) -> Statement:
    sections = _sections(code, begin, end - 1)
    template, composed = _template(text, code, *sections[0])
    operands: list[Operand] = []
    for index, section in enumerate(sections[1:3]):
        operands += _operands(text, code, *section, is_output=index == 0)
        composed += _words_beside(code, *section)
    return Statement(start, end, template, composed, operands)


def _sections(code: str, begin: int, end: int) -> list[tuple[int, int]]:
    """The text between the colons that are outside of all brackets."""
    found, depth, start = [], 0, begin
    for position in range(begin, end):
        char = code[position]
        depth += (char in "([{") - (char in ")]}")
        if char == ":" and depth == 0:
            found.append((start, position))
            start = position + 1
    return [*found, (start, end)]


def _template(text: str, code: str, start: int, end: int) -> tuple[str, list[str]]:
    parts, composed, position = [], [], start
    while position < end:
        if branch := _BRANCH.match(code, position):  # translate.py makes a statement of each
            position = branch.end()
        elif code[position].strip():
            word = re.compile(r"#?\s*\w+|\S").match(code, position)[0]
            if word != "\\":  # a line that goes on, in a macro
                composed.append(word)
                parts.append(f" {word} ")
            position += len(word)
        elif text[position] in '"RuUL' and (literal := _LITERAL.match(text, position)):
            value, position = _literal(text, literal.end() - 1 - len(literal[1]))
            parts.append(value)
        elif text.startswith(("//", "/*"), position):
            comment = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL).match(text, position)
            position = comment.end() if comment else end
        else:
            position += 1
    return "".join(parts), composed


def _literal(text: str, position: int) -> tuple[str, int]:
    if raw := _RAW.match(text, position):
        return raw["body"], raw.end()
    plain = _PLAIN.match(text, position)
    if plain is None:
        return "", position + 1
    joined = re.sub(r"\\\r?\n", "", plain[1])
    try:
        return ast.literal_eval(f'"{joined}"'), plain.end()
    except (SyntaxError, ValueError):
        return joined, plain.end()


def _words_beside(code: str, start: int, end: int) -> list[str]:
    """The words of a section outside of all brackets: macros that expand to operands."""
    found, position = [], start
    while word := re.compile(r"\w+|[(\[]").search(code, position, end):
        position = word.end()
        if word[0] == "(":
            position = closing(code, word.start()) or end
        elif word[0] == "[":
            position = code.find("]", word.start(), end) + 1 or end
        else:
            found.append(word[0])
    return found


def _operands(text: str, code: str, start: int, end: int, is_output: bool) -> Iterator[Operand]:
    position = start
    while (opening := code.find("(", position, end)) != -1:
        closed = closing(code, opening)
        if closed is None:
            return
        before = text[position:opening]
        name = re.search(r"\[\s*(\w+)\s*\]", before)
        constraint = "".join(re.findall(r'"([^"]*)"', before)).replace(" ", "")
        yield Operand(name[1] if name else "", constraint, opening, closed, is_output)
        position = closed
