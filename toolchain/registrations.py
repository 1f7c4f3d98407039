"""Registrations with PyTorch under fixed names in sources, and a build's names for them.

    TORCH_LIBRARY(my_ops, m) {                 TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {
    TORCH_LIBRARY_IMPL(my_ops, CPU, m) {       TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CPU, m) {
    PYBIND11_MODULE(my_module, m) {            PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {

A name can be registered only once in a process, but the next build of the same sources registers it
again. So a build has a name of its own, and `jitloader.aliases` maps the fixed name to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.directives import dropped_lines
from simulator.scan import blank, closing, without_comments
from toolchain.errors import CompileError
from toolchain.sources import values_of, without_directives

if TYPE_CHECKING:
    from toolchain.code import Code

# An edit: start, end, replacement.
Edit = tuple[int, int, str]

UNIQUE = "TORCH_EXTENSION_NAME"  # torch.utils.cpp_extension defines it as the build's name

_MACROS = ("TORCH_LIBRARY", "PYBIND11_MODULE")
_REGISTRATION = re.compile(
    r"\b(?P<macro>(?:STABLE_)?TORCH_LIBRARY(?:_FRAGMENT|_IMPL)?|PYBIND11_MODULE)"
    r"\s*\(\s*(?P<name>[A-Za-z_]\w*)\s*,(?:\s*(?P<key>\w+)\s*,)?[^()]*\)"
)
_DEFINE = re.compile(r"[ \t]*#[ \t]*define[ \t]+\w+\((?P<parameters>[^()]*)\)")
_DEF = re.compile(r'\.\s*def\s*\(\s*(?:[\w:]+\s*\(\s*)*"(?:\w+::)?(\w+)')
_IMPL = re.compile(
    r'\b(\w+)\s*\.\s*impl\s*\(\s*(?:TORCH_SELECTIVE_NAME\s*\(\s*)?"(?:\w+::)?([\w.]+)"'
)
_QUALIFIED = re.compile(r'"(?P<name>[A-Za-z_]\w*)::(?P<op>\w+(?:\.\w+)?)(?P<end>["(])')

# PyTorch's own namespaces, in which an operator's name is taken or has a meaning.
_PYTORCHS = {"_", "aten", "c10d", "inductor", "prim", "prims", "profiler", "quantized"}


@dataclass(frozen=True)
class Registration:
    """One of PyTorch's macros with a name in it.

    Attributes:
        name: as written; it may be the name of a macro.
        key: the dispatch key of an implementation, else "".
        start, end: those of the macro's call in the text of `path`.
        name_start: where the name begins.
        ops: the operators that its block defines or implements.
    """

    path: Path
    macro: str
    name: str
    key: str
    start: int
    end: int
    name_start: int
    ops: tuple[str, ...]

    @property
    def defines(self) -> bool:
        return self.macro != "PYBIND11_MODULE" and not self.is_implementation

    @property
    def is_implementation(self) -> bool:
        return self.macro.endswith("_IMPL")

    @property
    def cpu_key(self) -> str:
        """The dispatch key on the CPU: "AutogradCPU" for "AutogradCUDA"."""
        return re.sub("CUDA$", "CPU", self.key)


class Registrations:
    """The registrations in all files of one load's sources.

    Attributes:
        aliases: the fixed names, and the operators that are defined under each.
    """

    def __init__(self, code: Code):
        self.code = code
        self.all: list[Registration] = []
        for path in code.own:
            text = code.text(path)
            if path not in code.recipe.sources:  # a header's macro binds where it is used
                text = without_directives(text)
            if any(macro in text for macro in _MACROS):
                self.all += self._compiled(path, _found(path, text))
        self._refuse()

    def _compiled(self, path: Path, every: Iterator[Registration]) -> Iterator[Registration]:
        """The registrations that remain after preprocessing for the CPU."""
        text = self.code.text(path)
        if self.code.recipe.target != "cpu" or "PLAYGROUND_CUDA" not in text:
            return every
        dropped = dropped_lines(blank(text), set())
        return (r for r in every if text.count("\n", 0, r.start) + 1 not in dropped)

    @cached_property
    def fixed(self) -> list[Registration]:
        """The registrations that have to be renamed."""
        names = {r.name for r in self.all if r.defines and r.name != UNIQUE}
        return [
            r
            for r in self.all
            if r.name in names or (r.macro == "PYBIND11_MODULE" and r.name != UNIQUE)
        ]

    @cached_property
    def aliases(self) -> dict[str, list[str]]:
        aliases: dict[str, list[str]] = {}
        for registration in self.fixed:
            name = self._value(registration.name)
            if registration.defines and name != UNIQUE:
                ops = aliases.setdefault(name, [])
                ops += (op for op in registration.ops if op not in ops)
        return aliases

    @cached_property
    def set_aside(self) -> list[str]:
        """The operators whose CUDA implementation runs on the CPU in place of that for the CPU.

        Loading a kernel should run the kernel.
        """
        if self.code.recipe.target != "cpu":
            return []
        ops = (op for r in self.all for op in r.ops if self._gives_way(r, op))
        return list(dict.fromkeys(ops))

    @cached_property
    def _for_cuda(self) -> set[tuple[str, str, str]]:
        return {
            (r.name, r.cpu_key, op)
            for r in self.all
            if r.is_implementation and r.key != r.cpu_key
            for op in r.ops
        }

    def _gives_way(self, registration: Registration, op: str) -> bool:
        given = (registration.name, registration.key, op) in self._for_cuda
        return given and registration.is_implementation

    def text(self, path: Path) -> str:
        """A file with the build's name, and on the CPU with one implementation for each op."""
        text = self.code.text(path)
        return edited(text, self._edits(path, text))

    def _edits(self, path: Path, text: str) -> list[Edit]:
        result: list[Edit] = []
        whole = [r for r in self.all if r.macro in ("TORCH_LIBRARY", "STABLE_TORCH_LIBRARY")]
        whole.sort(key=lambda r: r.name != UNIQUE)
        for registration in self.fixed:
            if registration.path == path:
                start = registration.name_start
                result.append((start, start + len(registration.name), UNIQUE))
                if registration in whole[1:]:  # the first defines the name, the others extend it
                    end = registration.start + len(registration.macro)
                    result.append((end, end, "_FRAGMENT"))
        if self.aliases and path in self.code.own:
            result += self._qualified(text)
        if self.set_aside:
            plain, code = blank(text), without_comments(text)
            for registration in self.all:
                if registration.path == path:
                    block = _block(plain, registration.end)
                    for match in _IMPL.finditer(code, *block):
                        if self._gives_way(registration, match[2]):
                            library, opening = match[1], match[0].index("(") + 1
                            call = f"::simulator::set_aside({library}, "
                            result.append((match.start(), match.start() + opening, call))
        return result

    def _qualified(self, text: str) -> Iterator[Edit]:
        """Edits of names and schemas with a namespace, such as "my_ops::add"."""
        plain, code = blank(text), without_comments(text)
        for match in _QUALIFIED.finditer(code):
            if match["name"] not in self.aliases or plain[match.start()] == code[match.start()]:
                continue
            before = code[max(match.start() - 60, 0) : match.start()]
            start, end = match.start() + 1, match.start("op")
            if re.search(r"\.\s*(?:def|impl)\s*\(\s*(?:\w+\s*\(\s*)*\Z", before):
                yield start, end, ""
            elif match["end"] == '"':
                yield match.start(), end, f'C10_STRINGIZE({UNIQUE}) "::'

    def _value(self, name: str) -> str:
        """The definition of a name that is a macro; else the name."""
        for flag in values_of(self.code.callers_flags, "-D"):
            if flag.partition("=")[0] == name:
                return flag.partition("=")[2]
        for path in self.code.own:
            define = rf"(?m)^[ \t]*#[ \t]*define[ \t]+{name}[ \t]+(\w+)"
            if value := re.search(define, self.code.text(path)):
                return value[1]
        return name

    def _refuse(self) -> None:
        """Refuse what cannot be renamed.

        Raises:
            CompileError: it has the place, and what to do.
        """
        seen: dict[str, str] = {}
        for registration in self.all:
            if not registration.defines:
                continue
            name = self._value(registration.name)
            if name in _PYTORCHS:
                raise self._error(
                    registration,
                    f"{registration.macro} defines operators in PyTorch's own namespace {name!r}: a"
                    " second build of them in one process would abort that process",
                    f"write {registration.macro}({UNIQUE}, m): every build gets a name of its own,"
                    " and the handle reaches its functions under any",
                )
            for op in registration.ops:
                if seen.setdefault(op, name) != name:
                    raise self._error(
                        registration,
                        f"two operators {op!r}, of {seen[op]!r} and of {name!r}, in one load",
                        "the handle has one function of a name: load the sources of each by"
                        " themselves, or rename one",
                    )

        if UNIQUE not in seen.values():
            for registration in self.all:
                lost = [op for op in registration.ops if op in seen]
                if registration.is_implementation and registration.name == UNIQUE and lost:
                    raise self._error(
                        registration,
                        f"{registration.macro} implements {lost[0]!r} under {UNIQUE}, the build's"
                        f" own name, and it is defined under {seen[lost[0]]!r}: as they stand, the"
                        " operator has no implementation",
                        "write the same name in both: a fixed one, too, becomes the build's own",
                    )

    def _error(self, at: Registration, message: str, hint: str) -> CompileError:
        text = self.code.text(at.path)
        line = text.count("\n", 0, at.name_start) + 1
        column = at.name_start - text.rfind("\n", 0, at.name_start)
        return CompileError(message, path=at.path, line=line, column=column, hint=hint)


def edited(text: str, edits: Iterable[Edit]) -> str:
    parts, end = [], 0
    for start, stop, replacement in sorted(edits):
        parts += text[end:start], replacement
        end = stop
    return "".join(parts) + text[end:]


def _found(path: Path, text: str) -> Iterator[Registration]:
    plain, code = blank(text), without_comments(text)
    for match in _REGISTRATION.finditer(plain):
        if match["name"] in _parameters_of_macro(text, plain, match.start()):
            continue  # the macro's use gives the name
        is_implementation = match["macro"].endswith("_IMPL")
        if is_implementation != bool(match["key"]):
            continue
        block = _block(plain, match.end())
        pattern = _IMPL if is_implementation else _DEF
        ops = (op[op.re.groups] for op in pattern.finditer(code, *block))
        yield Registration(
            path=path,
            macro=match["macro"],
            name=match["name"],
            key=match["key"] or "",
            start=match.start(),
            end=match.end(),
            name_start=match.start("name"),
            ops=tuple(dict.fromkeys(ops)),
        )


def _parameters_of_macro(text: str, plain: str, position: int) -> set[str]:
    """The parameters of the macro whose definition contains a position; empty without one."""
    line = plain.rfind("\n", 0, position)
    while line > 0 and text[:line].endswith(("\\", "\\\r")):
        line = plain.rfind("\n", 0, line)
    define = _DEFINE.match(plain, line + 1)
    return {name.strip() for name in define["parameters"].split(",")} if define else set()


def _block(plain: str, end: int) -> tuple[int, int]:
    """The block in braces that follows; empty if there is none."""
    brace = re.compile(r"\s*\{").match(plain, end)
    return (brace.end(), closing(plain, brace.end() - 1) or len(plain)) if brace else (end, end)
