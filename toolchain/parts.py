"""A build in parts: a library with the binding alone, and libraries with what the binding calls.

A binding calls launchers, functions that a .cu instantiates for each type:

    template cudaError_t square_forward<float>(const float* x, float* y, int64_t n, ...);

An edit of the .cu changes all of them, and a call needs one. So the library with the binding, which
is only linked, has a jump in the place of each launcher. The first call of one asks where it is
(`jitloader.parts`), and then it is compiled: the same source, in which this launcher is the only
explicit instantiation. Every later call takes one jump through memory.

The jumps are written in assembly, for they keep all arguments as they are, of whatever types. Here
it is that of x86-64 on Linux; elsewhere a build is whole from the start.
"""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from simulator.scan import blank
from toolchain import machine
from toolchain.errors import demangled

SUPPORTED = sys.platform == "linux" and platform.machine() == "x86_64"

# What `jitloader.parts` looks for in the libraries.
SLOTS = "jitload_slots"  # where the jumps lead, one for each launcher
FIND = "jitload_find"  # the function that is asked at a first call
LAUNCHERS = "jitload_launchers"  # in the other libraries: the addresses of their launchers

_INSTANTIATION = re.compile(
    r"(?<![.>:])(?<!extern )\btemplate\b(?!\s*(?:<|class\b|struct\b|union\b))[^;{}]*;"
)
_SIMULATORS = re.compile(r"gridDim|blockDim|blockIdx|threadIdx|simulator::\w+|DW\.ref\..*")
_SECTION = re.compile(
    r"Relocation section '\.rela\.(?:text|rodata|data(?:\.rel)?(?:\.ro)?)\.(_Z\w+)'"
)
_INTERNAL = re.compile(r"anonymous namespace|\{lambda|\[abi:|\[clone|'lambda")


class Apart(NamedTuple):
    """The launchers that the library of a build in parts lacks.

    Attributes:
        source: the position of the .cu that has them.
        launchers: the statements by which the source has each, by their symbols.
    """

    source: int
    launchers: dict[str, list[str]]


def without_instantiations(text: str) -> str:
    """A source without its explicit instantiations, also those in macros; lines stay."""
    if "template" not in text:
        return text
    pieces, done = [], 0
    for found in _INSTANTIATION.finditer(blank(text)):
        statement = text[found.start() : found.end()]
        pieces += [text[done : found.start()], re.sub(r"[^\\\n]|\\(?!\n)", " ", statement)]
        done = found.end()
    return "".join([*pieces, text[done:]])


@lru_cache(maxsize=64)
def launchers(source: Path, bindings: tuple[Path, ...], digest: str) -> dict[str, list[str]]:
    """The statements that instantiate each launcher, by the launchers' symbols.

    Those that the bindings' objects call and the source's object defines. A function that is no
    template is there without a statement.

    A compiler inlines what is called only once, and fuses its sums with the caller's products. So
    that a part does not round otherwise than the whole, in which there are more callers, there is a
    statement for each function that the object still has: it is called from elsewhere, too.

    Args:
        source, bindings: the objects; digest: of all of them.

    Returns:
        None at all where the objects cannot be taken apart: where the source has variables, which
        the parts would not share, or a launcher has no name that can be written down.
    """
    wanted = {name for binding in bindings for kind, name in _symbols(binding) if kind == "U"}
    symbols = _symbols(source)
    variables = [name for kind, name in symbols if kind in "BbDdCGgSsVu"]
    if any(not _SIMULATORS.fullmatch(name) for name in _demangled(variables)):
        return {}
    names = sorted({name for kind, name in symbols if kind in "TW"} & wanted)
    found = dict(zip(names, map(_instantiation, _demangled(names)), strict=True))
    if None in found.values():
        return {}
    calls = _calls(source)
    return {
        name: [*filter(None, [statement]), *map(_alias, _reached(name, calls))]
        for name, statement in found.items()
    }


def _calls(source: Path) -> dict[str, set[str]]:
    """The functions of an object that each part of it names that has a section of its own."""
    found: dict[str, set[str]] = {}
    names: set[str] = set()
    functions: set[str] = set()
    for line in _said_of("readelf", "-rsW", str(source)):
        words = line.split()
        if section := _SECTION.match(line):
            names = found.setdefault(section[1], set())
        elif len(words) == 8 and words[3] == "FUNC" and words[6] != "UND":
            functions |= {words[7]} if words[7].isidentifier() else set()
        elif len(words) > 4:
            names.add(words[4])
    return {name: called & functions for name, called in found.items()}


def _reached(name: str, calls: dict[str, set[str]]) -> list[str]:
    """The functions that are called from one, and from those, and so on."""
    found = [name]
    for each in found:  # which grows meanwhile
        found += calls.get(each, set()).difference(found)
    return sorted(found[1:])


def _alias(name: str) -> str:
    return f'extern "C" void {name}_is_called() __attribute__((alias("{name}")));'


def without_aliases(statements: Iterable[str], said: str) -> tuple[str, ...]:
    """Statements but for those of functions that an edit has taken out.

    said: the compiler's output, in which they are errors.
    """
    gone = set(re.findall(r"_is_called\(\)\W+ aliased to undefined symbol \W(\w+)\W", said))
    return tuple(each for each in statements if each not in set(map(_alias, gone)))


def _symbols(path: Path) -> list[tuple[str, str]]:
    """The kind and the name of each symbol in an object; none where it cannot be read."""
    lines = (line.split() for line in _said_of("nm", "-P", str(path)))
    return [(words[1], words[0]) for words in lines if len(words) > 1]


def _said_of(*command: str) -> list[str]:
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=machine.PATIENCE)
    except (OSError, subprocess.SubprocessError):
        return []
    return run.stdout.splitlines()


def _demangled(names: list[str]) -> list[str]:
    return demangled("\n".join(names)).split("\n") if names else []


def _instantiation(declaration: str) -> str | None:
    """The explicit instantiation of a function; None where that cannot be written.

    declaration: demangled; only a template's begins with the type of the result.
    """
    if _INTERNAL.search(declaration):
        return None
    if re.fullmatch(r"[\w:]+(\(.*\))?", declaration):
        return ""
    head = declaration
    while (shorter := re.sub(r"<[^<>]*>|\([^()]*\)", "", head)) != head:
        head = shorter
    return f"template {declaration};" if " " in head.strip() else None


def table(names: Iterable[str]) -> str:
    """A C++ source with the table LAUNCHERS of these symbols."""
    lines = [*_global(LAUNCHERS), *(f".quad {name}" for name in names)]
    return _assembly('.section .data.rel,"aw"', ".balign 8", *lines)


def jumps(names: Iterable[str]) -> str:
    """A C++ source with functions of these symbols that jump to where SLOTS says.

    At first that is a call of FIND with the symbol's number and the address of the registers that
    hold the first six arguments: then to the address that it returns.
    """
    names = list(names)
    data = [f".quad .Lfirst_{number}" for number in range(len(names))]
    code = [
        line
        for number, name in enumerate(names)
        for line in (
            *(f".globl {name}", f".hidden {name}", f".type {name}, @function"),
            f"{name}: jmp *.Lslots+{8 * number}(%rip)",
            f".Lfirst_{number}: pushq ${number}",
            "jmp .Lfind",
        )
    ]
    return _assembly(
        '.section .data.rel,"aw"',
        ".balign 8",
        *(*_global(FIND), ".Lfind_is_at: .quad 0"),
        *(*_global(SLOTS), ".Lslots:", *data),
        ".text",
        *code,
        ".Lfind:",  # the number is on the stack, and before it where the launcher returns to
        *(f"pushq %{register}" for register in reversed(_WHOLE)),
        "subq $136, %rsp",  # 8 more than they take: the stack is to be a multiple of 16
        *(f"movups %xmm{n}, {16 * n}(%rsp)" for n in range(8)),
        f"movq {136 + 8 * len(_WHOLE)}(%rsp), %rdi",
        "leaq 136(%rsp), %rsi",
        "call *.Lfind_is_at(%rip)",
        "movq %rax, %r11",
        *(f"movups {16 * n}(%rsp), %xmm{n}" for n in range(8)),
        "addq $136, %rsp",
        *(f"popq %{register}" for register in _WHOLE),
        "addq $8, %rsp",
        "jmp *%r11",
    )


_WHOLE = ("rdi", "rsi", "rdx", "rcx", "r8", "r9", "rax")  # of arguments that are whole numbers


def _global(name: str) -> tuple[str, ...]:
    return f".globl {name}", f"{name}:"


def _assembly(*lines: str) -> str:
    return 'asm(R"(\n' + "\n".join(lines) + '\n)");\n'
