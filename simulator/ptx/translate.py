"""The edits of a text that replace its `asm` statements with C++."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import NamedTuple

from simulator.architectures import Architecture
from simulator.directives import directives_of, spaces
from simulator.ptx import statement
from simulator.ptx.instructions import RULES, SPECIAL_REGISTERS, known_like
from simulator.ptx.language import Block, Instruction, Label, NotPtx, Operand, read
from simulator.ptx.rules import NAMES, Rule, Use
from simulator.ptx.statement import Statement, statements
from simulator.scan import Lines
from simulator.scopes import Scopes

_WIDTHS = {"h": 16, "r": 32, "l": 64, "f": 32, "d": 64, "q": 128}
_KINDS = {"pred": "bool", "b128": "unsigned __int128"}
_SPECIAL = "special_registers.h"
_DEVICE = frozenset({"__device__", "__global__"})


class Refused(NamedTuple):
    """Why a statement cannot be translated."""

    message: str
    hint: str


class Translation(NamedTuple):
    """The replacement of one statement, from `start` to `end`.

    edits: (from, to, replacement), in order; the operands' expressions stay as they are.
    headers: of include/simulator/ptx, that it needs.
    """

    start: int
    end: int
    edits: list[tuple[int, int, str]]
    headers: frozenset[str]
    refused: Refused | None


def translations(
    text: str,
    code: str,
    of_library: bool = False,
    device: frozenset[str] = _DEVICE,
    target: Architecture | None = None,
) -> Iterator[Translation]:
    """Translates each `asm` statement of a text; `code` is it with comments and strings blank.

    of_library: an unknown instruction ends the kernel that reaches it; most are never used.
    device: the words that mark a device function. In other functions, assembly that is not PTX is
        the host's, and stays as it is.
    target: the architecture; the compiler refuses instructions that it lacks. None has them all.
    """
    context = _Context(Scopes(code), Lines(text), target)
    for found in statements(text, code):
        translator = _Translator(text, code, found, context)
        try:
            if translator.has_branches:
                yield _of_branches(text, code, found, context)
            else:
                yield translator.translation()
        except NotPtx as error:
            if not of_library and _is_of_host(context.scopes, found.start, device):
                continue
            message, hint = f"inline PTX that the simulator does not know: {error}", _hint(found)
            if of_library or _is_in_macro(text, found.start):
                yield translator.failure(message)
            elif _is_in_template(context.scopes, found.start):
                yield translator.error_of_instances(f"{message}. {hint}")
            else:
                refused = Refused(message, hint)
                yield Translation(found.start, found.end, [], frozenset(), refused)


def _of_branches(text: str, code: str, found: Statement, context: _Context) -> Translation:
    """Translates a statement with directives in it, once for each of their branches."""
    start, end = found.start, found.end
    headers: set[str] = set()

    def chosen(text: str, code: str) -> str:
        """Of the statement alone, which begins at 0."""
        words = ("if", "elif", "else", "endif")
        directives = [d for d in directives_of(text, code) if d.word in words]
        if not directives:
            only = next(statements(text, code))
            translator = _Translator(text, code, only, context, start)
            try:
                result = translator.translation()
            except NotPtx as error:
                message = f"inline PTX that the simulator does not know: {error}"
                result = translator.error_of_instances(f"{message}. {_hint(only)}")
            headers.update(result.headers)
            return edited(text, 0, len(text), result.edits)
        depth, marks = 0, []  # the first #if, its #elif and #else, and its #endif
        for directive in directives:
            depth += (directive.word == "if") - (directive.word == "endif")
            if depth == (directive.word != "endif"):
                marks.append(directive)
            if depth == 0:
                break
        else:
            raise NotPtx("a directive within the statement has no #endif")
        if marks[0].word != "if":
            raise NotPtx("a directive within the statement has no #if")
        before, behind = (0, marks[0].start), (marks[-1].end, len(text))
        parts = []
        for mark, following in pairwise(marks):
            kept = [before, (mark.end, following.start), behind]
            parts += [text[mark.start : mark.end].strip(), chosen(*_only(text, code, kept))]
        if marks[-2].word != "else":
            parts += ["#else", chosen(*_only(text, code, [before, behind]))]
        line = f"#line {context.lines.of(start)}"
        parts = [part if part.startswith("#") else f"{line}\n{part}" for part in parts]
        return "\n".join(["", *parts, "#endif", ""])

    replacement = f"{chosen(text[start:end], code[start:end])}#line {context.lines.of(end)}\n"
    return Translation(start, end, [(start, end, replacement)], frozenset(headers), None)


def _only(text: str, code: str, kept: list[tuple[int, int]]) -> tuple[str, str]:
    """Both texts, with spaces in place of all that is not kept."""

    def of(whole: str) -> str:
        parts, position = [], 0
        for begin, stop in kept:
            parts += spaces(whole[position:begin]), whole[begin:stop]
            position = stop
        return "".join([*parts, spaces(whole[position:])])

    return of(text), of(code)


def edited(text: str, start: int, end: int, edits: Iterable[tuple[int, int, str]]) -> str:
    """A part of a text after edits (from, to, replacement)."""
    parts, position = [], start
    for begin, stop, replacement in sorted(edits):
        parts += text[position:begin], replacement
        position = stop
    return "".join([*parts, text[position:end]])


def _is_of_host(scopes: Scopes, position: int, device: frozenset[str]) -> bool:
    """Whether a position is in a function that is not marked as the device's."""
    heads = list(scopes.heads(position))
    words = {word for head in heads for word in re.findall(r"\w+", head)}
    return any(")" in head for head in heads) and not words & (device | {"define"})


_LEFT_OUT = re.compile(r"\b(?:__global__|template|static|\w*inline\w*|constexpr|struct|class)\b")


def _may_be_left_out(scopes: Scopes, position: int) -> bool:
    """Whether a position is in a function that a compiler may drop from its output if nothing calls
    it, as nvcc drops every such `__device__` function."""
    return any(map(_LEFT_OUT.search, scopes.heads(position)))


def _is_in_macro(text: str, position: int) -> bool:
    """Whether a position is within a #define, which may never be used."""
    start = text.rfind("\n", 0, position) + 1
    while start and text.endswith(("\\\n", "\\\r\n"), 0, start):
        start = text.rfind("\n", 0, start - 1) + 1
    return re.match(r"[ \t]*#[ \t]*define\b", text[start:position]) is not None


def _is_in_template(scopes: Scopes, position: int) -> bool:
    """Whether a position is within a template, which may have no instance."""
    return any(re.search(r"\btemplate\s*<", head) for head in scopes.heads(position))


def _hint(found: Statement) -> str:
    words = re.findall(r"\b[a-z]\w*(?:\.\w+(?:::\w+)*)+", found.template)
    like = next((near for word in words if not _rule(word) and (near := known_like(word))), "")
    where = "docs/ptx.md lists the instructions that it knows"
    return f"It knows {like}; {where}." if 0 < len(like) < 300 else f"{where}."


@cache
def _rule(mnemonic: str) -> tuple[Rule, dict[str, str | None]] | None:
    """The rule for an instruction. Its qualifiers may be in any order that ptxas takes.

    The order counts only among types, among layouts, and among state spaces.
    """
    first, *qualifiers = mnemonic.split(".")
    rules = RULES.get(first, ())
    for order in (lambda _: [qualifiers], lambda rule: rule.orders(qualifiers)):
        for rule in rules:
            for parts in order(rule):
                groups = rule.match(".".join([first, *parts]))
                if groups is not None:
                    return rule, groups
    return None


class _Context(NamedTuple):
    """The state that all statements of a file share."""

    scopes: Scopes
    lines: Lines
    target: Architecture | None


class _Translator:
    def __init__(self, text: str, code: str, found: Statement, context: _Context, start: int = 0):
        """start: the offset at which the text begins in its file."""
        self._text, self._code, self._found = text, code, found
        self._context, self._place_in_file = context, start + found.start
        self._headers = {"values.h"}
        self._in_place: set[int] = set()  # outputs that instructions write where they are
        self._located: set[int] = set()  # inputs whose address an instruction needs
        self._named: set[int] = set()  # operands that instructions name
        self._sinks = 0
        self._has_carry = False

    @property
    def has_branches(self) -> bool:
        inner = self._inner()
        return re.search(r"^[ \t]*#[ \t]*(?:if|else|elif|endif)", inner, re.MULTILINE) is not None

    def translation(self) -> Translation:
        found = self._found
        if found.composed:
            raise NotPtx(f"its text is put together by macros ({' '.join(found.composed[:3])})")
        template = found.template if self._has_operands else found.template.replace("%%", "%")
        block = read(template.replace("%=", "0"))
        mnemonics = [step.mnemonic if isinstance(step, Instruction) else "" for step in block.steps]
        body = " ".join(
            self._step(step, tuple(mnemonics[index + 1 :]))
            for index, step in enumerate(block.steps)
        )
        body = self._refusal(block) + body
        return Translation(
            found.start, found.end, self._edits(block, body), frozenset(self._headers), None
        )

    def failure(self, message: str) -> Translation:
        """Code that ends a kernel that reaches it, and says why."""
        return self._instead(f'{NAMES}unknown("{_quoted(message)}");')

    def error_of_instances(self, message: str) -> Translation:
        """Code that the compiler accepts in a template, but refuses in its instances."""
        return self._instead(self._error(message))

    def _error(self, message: str) -> str:
        """A call that the compiler refuses, unless it is in code that is never used."""
        name = f"simulator_unknown_{self._place_in_file}"
        return f'extern void {name}() __attribute__((__error__("{_quoted(message)}"))); {name}(); '

    def _refusal(self, block: Block) -> str:
        for step in block.steps:
            if self._context.target and isinstance(step, Instruction):
                lacks = self._context.target.lacks(step.mnemonic, len(step.operands))
                if lacks and _may_be_left_out(self._context.scopes, self._place_in_file):
                    return self._error(lacks)
                if lacks:
                    return f'{NAMES}unknown("{lacks}"); '
        return ""

    def _instead(self, code: str) -> Translation:
        found = self._found
        edit = self._edit(found.start, found.end, f"do {{ {code} }} while (0)")
        return Translation(found.start, found.end, [edit], frozenset({"values.h"}), None)

    @property
    def _has_operands(self) -> bool:
        return bool(self._found.operands)

    def _inner(self) -> str:
        return self._code[self._found.start : self._found.end]

    # ---- The statement

    def _edits(self, block: Block, body: str) -> list[tuple[int, int, str]]:
        operands = self._found.operands
        edits, position = [], self._found.start
        before = "do { " + "".join(f"__label__ {label}; " for label in block.labels)
        for index, operand in enumerate(operands):
            edits.append(self._edit(position, operand.start, before + self._opening(index)))
            before, position = "; ", operand.end
        tail = before + self._tail(block, body)
        return [*edits, self._edit(position, self._found.end, tail)]

    def _edit(self, start: int, end: int, replacement: str) -> tuple[int, int, str]:
        """Adds an edit that keeps the number of lines, also within a macro."""
        breaks = "".join(re.findall(r"\\?\r?\n", self._text[start:end]))
        return start, end, f"{replacement}{breaks}"

    def _opening(self, index: int) -> str:
        operand = self._found.operands[index]
        if operand.is_output or index in self._located:
            return f"[[__maybe_unused__]] auto&& simulator_lvalue{index} = "
        if operand.letter == "n":
            return f"const auto simulator_{index} = {NAMES}immediate"
        word = self._word(operand)
        return f"{word} simulator_{index} = {NAMES}bits<{word}>"  # ptxas accepts it

    def _word(self, operand: statement.Operand) -> str:
        letter = operand.letter[:1]
        if letter not in _WIDTHS:
            raise NotPtx(f'the constraint "{operand.constraint}"')
        width = _WIDTHS[letter]
        return "unsigned __int128" if width == 128 else f"uint{width}_t"

    def _tail(self, block: Block, body: str) -> str:
        parts, put = [], []
        for index, operand in enumerate(self._found.operands):
            # A read-write operand that is not named stays: it keeps the compiler from moving it.
            if index in self._in_place or (operand.is_read and index not in self._named):
                continue
            if not operand.is_output and index not in self._located:
                continue
            word = self._word(operand)
            if index in self._located:
                value = f"{NAMES}bits<{word}>(simulator_lvalue{index})"
                parts.append(f"const {word} simulator_{index} = {value};")
                continue
            initial = (
                f"{NAMES}bits<{word}>(simulator_lvalue{index})" if operand.is_read else f"{word}()"
            )
            parts.append(f"{word} simulator_{index} = {initial};")
            put.append(f"{NAMES}put(simulator_lvalue{index}, simulator_{index});")
        for register in block.registers:
            parts.append(f"[[__maybe_unused__]] {_type_of(register.kind)} {register.name};")
        parts += [f"{NAMES}Sink simulator_sink{n};" for n in range(self._sinks)]
        parts += ["[[__maybe_unused__]] bool simulatorCarry = false;"] if self._has_carry else []
        return " ".join([*parts, body, *put, "} while (0)"])

    # ---- Its instructions

    def _step(self, step: Instruction | Label, later: tuple[str, ...]) -> str:
        if isinstance(step, Label):
            return f"{step.name}:;"
        code = self._instruction(step, later)
        if step.guard is None:
            return code
        return f"if ({self._render(step.guard, step)}) {{ {code} }}"

    def _instruction(self, step: Instruction, later: tuple[str, ...]) -> str:
        if step.mnemonic in ("bra", "bra.uni"):
            if len(step.operands) != 1 or step.operands[0].kind != "label":
                raise NotPtx(f"{step.text}: no such label in the statement")
            return f"goto {step.operands[0].value};"
        found = _rule(step.mnemonic)
        if found is None:
            raise NotPtx(step.mnemonic)
        rule, groups = found
        self._headers.add(rule.header)
        rendered: list[str | list[str]] = []
        for operand in step.operands:
            if operand.kind == "vector":
                rendered.append([self._render(part, step) for part in operand.parts])
            elif operand.kind == "pair":
                rendered += [self._render(part, step) for part in operand.parts]
            else:
                rendered.append(self._render(operand, step))
        use = Use(step, self._in_cpp(groups), rendered, later)
        try:
            code = rule.cpp(use)
        except IndexError:
            raise NotPtx(f"an operand is missing in {step.text}") from None
        code = re.sub(r"@place (\w+)@", self._place, code)
        return re.sub(r"@(\d+)@", self._lvalue, self._with_carry(code, step))

    def _in_cpp(self, groups: dict[str, str | None]) -> dict[str, str | None]:
        """Parts of a mnemonic, of which one may be an operand: `cta_group::%5`."""
        return {
            name: f"simulator_{self._index(Operand('operand', value.lstrip('%').strip('[]')))}"
            if value and value.startswith("%")
            else value
            for name, value in groups.items()
        }

    def _with_carry(self, code: str, step: Instruction) -> str:
        """Declares the statement's carry flag, which PTX does not keep between two statements."""
        if "@carry@" not in code:
            return code
        if not self._has_carry and step.mnemonic.split(".")[0] in ("addc", "subc", "madc"):
            raise NotPtx(f"{step.text}: it needs the carry flag that another statement left")
        self._has_carry = True
        return code.replace("@carry@", "simulatorCarry")

    def _lvalue(self, match: re.Match) -> str:
        """An output that an asynchronous instruction writes by the time of its wait."""
        self._in_place.add(int(match[1]))
        return f"simulator_lvalue{match[1]}"

    def _place(self, match: re.Match) -> str:
        """The address of an input that is an array's element. A plain name may be a function's
        parameter, whose memory is reused after the function returns."""
        index = self._index(Operand("operand", match[1]))
        operand = self._found.operands[index]
        expression = self._code[operand.start : operand.end].strip(" \t\r\n\\()")
        if not expression.endswith("]"):
            return "nullptr"
        self._located.add(index)
        name = f"simulator_lvalue{index}"
        return f"{NAMES}place_of(static_cast<decltype({name})>({name}))"

    def _index(self, operand: Operand) -> int:
        if operand.value.isdigit():
            index = int(operand.value)
        else:
            names = [each.name for each in self._found.operands]
            index = names.index(operand.value) if operand.value in names else len(names)
        if index >= len(self._found.operands):
            raise NotPtx(
                f"%{operand.value}: the statement has {len(self._found.operands)} operands"
            )
        return index

    def _render(self, operand: Operand, step: Instruction) -> str:
        match operand.kind:
            case "register":
                return f"!{operand.value}" if operand.negated else operand.value
            case "operand":
                index = self._index(operand)
                self._named.add(index)
                name = f"simulator_{index}"
                return f"!{name}" if operand.negated else name
            case "number":
                return _number(operand, step.mnemonic)
            case "sink":
                self._sinks += 1
                return f"simulator_sink{self._sinks - 1}"
            case "special":
                return self._special(operand.value)
            case "address":
                step = replace(step, mnemonic="")  # its numbers are always integers
                base = self._render(operand.parts[0], step)
                terms = "".join(
                    f" {'-' if term.negated else '+'} "
                    + self._render(replace(term, negated=False), step)
                    for term in operand.offset
                )
                rest = [self._coordinates(part, step) for part in operand.parts[1:]]
                return ", ".join([f"{base}{terms}", *rest])
            case "name" if operand.value == "WARP_SZ":
                return "32u"
            case "name":
                raise NotPtx(f"{operand.value} in {step.text} is not declared in the statement")
        raise NotPtx(step.text)

    def _coordinates(self, operand: Operand, step: Instruction) -> str:
        """The coordinates of a box in a tensor."""
        parts = operand.parts if operand.kind == "vector" else (operand,)
        return "{" + ", ".join(f"int32_t({self._render(part, step)})" for part in parts) + "}"

    def _special(self, name: str) -> str:
        self._headers.add(_SPECIAL)
        plain = name.replace(".", "_")
        if name not in SPECIAL_REGISTERS:
            raise NotPtx(f"the special register %{name}")
        return f"{NAMES}{plain}()"


def _quoted(message: str) -> str:
    return message.replace("\\", " ").replace('"', "'")


def _type_of(kind: str) -> str:
    if kind in _KINDS:
        return _KINDS[kind]
    if re.fullmatch(r"[bsuf](?:8|16|32|64)|f16x2|bf16x2", kind):
        return {"f16x2": "uint32_t", "bf16x2": "uint32_t"}.get(kind) or f"uint{kind[1:]}_t"
    raise NotPtx(f".reg .{kind}")


def _number(operand: Operand, mnemonic: str) -> str:
    text, sign = operand.value, "-" if operand.negated else ""
    if match := re.fullmatch(r"0[fF]([0-9a-fA-F]{8})", text):
        flipped = int(match[1], 16) ^ (0x80000000 if operand.negated else 0)
        return f"{flipped:#x}u"
    if match := re.fullmatch(r"0[dD]([0-9a-fA-F]{16})", text):
        flipped = int(match[1], 16) ^ (1 << 63 if operand.negated else 0)
        return f"{flipped:#x}ull"
    # What these have as a number is how many bytes, or which lanes or columns, whatever their
    # types.
    is_count = mnemonic.startswith(("cp.", "mma.", "redux.", "tcgen05."))
    kinds = [] if is_count else re.findall(r"\.([a-z]+\d+)", mnemonic)
    is_double = bool(kinds) and kinds[-1] == "f64"
    is_float = bool(kinds) and kinds[-1] == "f32"
    if "." in text or (re.search(r"[eE]", text) and not text.lower().startswith("0x")):
        suffix = "" if is_double else "f"
        word = "uint64_t" if is_double else "uint32_t"
        return f"{NAMES}bits<{word}>({sign}{text}{suffix})"
    if (is_double or is_float) and not text.lower().startswith("0x"):
        word, of = ("uint64_t", "double") if is_double else ("uint32_t", "float")
        return f"{NAMES}bits<{word}>({of}({sign}{text.rstrip('U')}))"
    plain = text.rstrip("U").lower()
    base = {"0b": 2, "0x": 16}.get(plain[:2], 10)
    value = int(plain, base) * (-1 if operand.negated else 1)
    if value < 0:
        return f"({value})"
    suffix = (
        "" if value < 1 << 31 else "u" if value < 1 << 32 else "ll" if value < 1 << 63 else "ull"
    )
    return f"{value}{suffix}"
