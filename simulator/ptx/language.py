"""Parses the PTX in the template of an `asm` statement into instructions."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import NamedTuple


class NotPtx(Exception):
    """The template cannot be parsed; the message says why."""


class Register(NamedTuple):
    """A register or a predicate that a statement declares, under a name of C++."""

    kind: str  # of PTX, without the dot: "b32", "pred"
    name: str


@dataclass(frozen=True)
class Operand:
    """One operand of an instruction.

    kind: "register", "operand" (of the statement: %0), "special" (%laneid), "number", "address",
        "vector", "pair" (p|q), "sink" (_), "label" or "name".
    value: the name in C++, the operand's index, the special register, or the number as written.
    parts: the parts of a vector or a pair, or an address's base.
    offset: what an address adds to its base; negative if it subtracts.
    negated: whether `!` or `-` stands before it.
    """

    kind: str
    value: str = ""
    parts: tuple[Operand, ...] = ()
    offset: tuple[Operand, ...] = ()
    negated: bool = False


@dataclass(frozen=True)
class Instruction:
    """mnemonic: with all its suffixes. guard: the predicate's operand, or None."""

    mnemonic: str
    operands: tuple[Operand, ...]
    guard: Operand | None
    text: str


class Label(NamedTuple):
    name: str


@dataclass
class Block:
    """The contents of a template.

    steps: instructions and labels in their order; a name is unique, whatever its scope.
    """

    registers: list[Register] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    steps: list[Instruction | Label] = field(default_factory=list)


_NAME = r"[A-Za-z_$][\w$]*"
_TOKEN = re.compile(
    rf"""\s*(?:(?P<number>0[fF][0-9a-fA-F]{{8}}|0[dD][0-9a-fA-F]{{16}}|0[xX][0-9a-fA-F]+U?
        |0[bB][01]+U?|\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+U?)
      |(?P<operand>%\d+|%\[\w+\])
      |(?P<percent>%%?{_NAME}(?:\.[xyzw])?)
      |(?P<name>{_NAME}(?:<\d+>)?)
      |(?P<mark>[{{}}\[\],|!+\-()])
      |(?P<odd>\S))""",
    re.VERBOSE,
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def read(template: str) -> Block:
    """Raises: NotPtx."""
    return _Reader(template).block


class _Reader:
    def __init__(self, template: str):
        self.block = Block()
        self._scopes: list[dict[str, str]] = [{}]
        self._names: set[str] = set()
        text = _COMMENT.sub(" ", template)
        statements = list(self._split(text))
        self._declare_labels(statements)
        for statement in statements:
            self._statement(statement)
        if len(self._scopes) != 1:
            raise NotPtx("a { is not closed")

    @staticmethod
    def _split(text: str) -> list[str]:
        """Splits a text into statements and the braces of scopes, but not the braces of vectors."""
        found, start, depth = [], 0, 0
        for position, char in enumerate(text):
            before = text[start:position].strip()
            if char == "{" and not before:
                found.append("{")
                start = position + 1
            elif char == "{":
                depth += 1
            elif char == "}" and depth:
                depth -= 1
            elif char == "}":
                if before:
                    found.append(before)  # its semicolon is missing
                found.append("}")
                start = position + 1
            elif char == ";":
                if before:
                    found.append(before)
                start = position + 1
            elif char == ":" and re.fullmatch(_NAME, before):
                found.append(before + ":")
                start = position + 1
        if rest := text[start:].strip():
            found.append(rest)
        return found

    def _declare_labels(self, statements: list[str]) -> None:
        """Declares all labels first, because a branch may jump forward."""
        scopes, open_scopes = [{}], [0]
        self._labels_of_scope: list[dict[str, str]] = scopes
        for statement in statements:
            if statement == "{":
                scopes.append(dict(scopes[open_scopes[-1]]))
                open_scopes.append(len(scopes) - 1)
            elif statement == "}":
                if len(open_scopes) > 1:
                    open_scopes.pop()
            elif statement.endswith(":"):
                name = self._unique(statement[:-1])
                self.block.labels.append(name)
                for scope in scopes[open_scopes[-1] :]:
                    scope.setdefault(statement[:-1], name)
                scopes[open_scopes[-1]][statement[:-1]] = name
        self._scope_numbers, self._scopes_seen = [0], 0

    def _unique(self, name: str) -> str:
        plain = "simulator_" + re.sub(r"\W", "_", name.lstrip("%"))
        unique, number = plain, 1
        while unique in self._names:
            number += 1
            unique = f"{plain}_{number}"
        self._names.add(unique)
        return unique

    def _label(self, name: str) -> str | None:
        return self._labels_of_scope[self._scope_numbers[-1]].get(name)

    def _statement(self, text: str) -> None:
        if text == "{":
            self._scopes.append({})
            self._scopes_seen += 1
            self._scope_numbers.append(self._scopes_seen)
        elif text == "}":
            if len(self._scopes) == 1:
                raise NotPtx("a } closes nothing")
            self._scopes.pop()
            self._scope_numbers.pop()
        elif text.endswith(":") and re.fullmatch(_NAME, text[:-1]):
            self.block.steps.append(Label(self._label(text[:-1])))
        elif text.startswith(".reg"):
            self._declare(text)
        elif text.startswith("."):
            directive = text.split()[0]
            if directive in (".pragma", ".loc"):
                return
            raise NotPtx(f"{directive} in an asm statement")
        else:
            self._instruction(text)

    def _declare(self, text: str) -> None:
        match = re.match(r"\.reg\s+(?:\.v[24]\s+)?\.(\w+)\s+(.*)", text, re.DOTALL)
        if match is None or ".v2" in text or ".v4" in text:
            raise NotPtx(f"the declaration {text}")
        for name in match[2].split(","):
            name = name.strip()
            several = re.fullmatch(r"(%{0,2}[\w$]+)<(\d+)>", name)
            names = [f"{several[1]}{i}" for i in range(int(several[2]))] if several else [name]
            for each in names:
                unique = self._unique(each)
                self._scopes[-1][each.lstrip("%")] = unique
                self.block.registers.append(Register(match[1], unique))

    def _instruction(self, text: str) -> None:
        guard = None
        if text.startswith("@"):
            match = re.match(rf"@\s*(!?)\s*(%{{0,2}}{_NAME}|%\d+|%\[\w+\])\s+(.*)", text, re.DOTALL)
            if match is None:
                raise NotPtx(f"the guard of {text}")
            guard = self._named(match[2], negated=bool(match[1]))
            text = match[3]
        mnemonic = re.match(r"[A-Za-z][\w.]*(?:::(?:[\w.]|%\d+|%\[\w+\])+)*", text)
        if mnemonic is None:
            raise NotPtx(f"the instruction {text}")
        tokens = self._tokens(text[mnemonic.end() :])
        operands = []
        while tokens:
            operands.append(self._operand(tokens))
            if tokens and tokens.pop(0) != ("mark", ","):
                raise NotPtx(f"the operands of {text}")
        step = Instruction(mnemonic[0], tuple(operands), guard, " ".join(text.split()))
        self.block.steps.append(step)

    @staticmethod
    def _tokens(text: str) -> list[tuple[str, str]]:
        found = []
        for token in _TOKEN.finditer(text.rstrip()):
            if token.lastgroup == "odd":
                raise NotPtx(f"{token[0].strip()!r} in {text.strip()}")
            found.append((token.lastgroup, token[token.lastgroup]))
        return found

    def _operand(self, tokens: list[tuple[str, str]]) -> Operand:
        first = self._single(tokens)
        if tokens and tokens[0] == ("mark", "|"):
            tokens.pop(0)
            return Operand("pair", parts=(first, self._single(tokens)))
        return first

    def _single(self, tokens: list[tuple[str, str]]) -> Operand:
        if not tokens:
            raise NotPtx("an operand is missing")
        kind, text = tokens.pop(0)
        if (kind, text) in (("mark", "!"), ("mark", "-")):
            inner = self._single(tokens)
            return replace(inner, negated=not inner.negated)
        if (kind, text) == ("mark", "{"):
            parts = []
            while tokens and tokens[0] != ("mark", "}"):
                parts.append(self._single(tokens))
                if tokens and tokens[0] == ("mark", ","):
                    tokens.pop(0)
            if not tokens:
                raise NotPtx("a vector is not closed")
            tokens.pop(0)
            return Operand("vector", parts=tuple(parts))
        if (kind, text) == ("mark", "["):
            return self._address(tokens)
        if kind == "number":
            return Operand("number", text)
        if kind in ("operand", "percent", "name"):
            return self._named(text)
        raise NotPtx(f"{text!r} where an operand is expected")

    def _address(self, tokens: list[tuple[str, str]]) -> Operand:
        parts: list[Operand] = []
        offset: list[Operand] = []
        while tokens and tokens[0] != ("mark", "]"):
            if tokens[0] in (("mark", "+"), ("mark", "-")) and parts:
                negated = tokens.pop(0)[1] == "-"
                term = self._single(tokens)
                offset.append(replace(term, negated=term.negated != negated))
            elif tokens[0] == ("mark", ","):
                tokens.pop(0)
            else:
                parts.append(self._single(tokens))
        if not tokens or not parts:
            raise NotPtx("an address is not closed")
        tokens.pop(0)
        return Operand("address", parts=tuple(parts), offset=tuple(offset))

    def _named(self, text: str, negated: bool = False) -> Operand:
        if re.fullmatch(r"%\d+|%\[\w+\]", text):
            return Operand("operand", text[1:].strip("[]"), negated=negated)
        plain = text.lstrip("%")
        if plain == "_":
            return Operand("sink")
        for scope in reversed(self._scopes):
            if plain in scope:
                return Operand("register", scope[plain], negated=negated)
        if text.startswith("%"):
            return Operand("special", plain, negated=negated)
        if (label := self._label(plain)) is not None:
            return Operand("label", label)
        return Operand("name", plain, negated=negated)
