"""A build in parts: a library with only the binding, and libraries with what the binding calls.

A binding calls launchers, which are functions that a .cu instantiates for each type:

    template cudaError_t square_forward<float>(const float* x, float* y, int64_t n, ...);

An edit of the .cu changes all of them, but a call needs only one. So the library with the binding,
which is only linked, has a jump in place of each launcher. The first call of a launcher asks for
its address (`jitloader.lazy_launchers`), and then it is compiled: from the same source, with this
launcher as the only explicit instantiation. Every later call takes one jump through memory.

The kernels of a launcher, of which a call launches few, are handled alike: the library with the
launcher declares them `extern template`, and has jumps in their places. The simulator asks for a
kernel's address when it is launched (simulator/include/simulator/launch.h).

A library with only launchers is compiled from texts with empty kernels (`toolchain.host_code`). So
an edit of a kernel does not change it; its jumps then lead to the new kernels.

The jumps are written in assembly, to pass on arguments of all types unchanged. There is code for
x86-64 on Linux; elsewhere a build is whole from the start.
"""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from simulator.needs import launches_by_address
from simulator.scan import blank
from toolchain import host_code, machine
from toolchain.code import Part
from toolchain.errors import demangled

SUPPORTED = sys.platform == "linux" and platform.machine() == "x86_64"

# Symbols in the libraries, for `jitloader.lazy_launchers`.
SLOTS = "jitload_slots"  # the targets of the jumps, one for each function
FIND = "jitload_find"  # the function that first calls ask for the address
HELD = "jitload_held"  # the addresses of a part's launchers, and of the sites of its kernels

_INSTANTIATION = re.compile(
    r"(?<![.>:])(?<!extern )\btemplate\b(?!\s*(?:<|class\b|struct\b|union\b))[^;{}]*;"
)
_SIMULATORS = re.compile(
    r"gridDim|blockDim|blockIdx|threadIdx|simulator::\w+|DW\.ref\..*|.*::simulator_\w+"
)
_OWN_SECTION = re.compile(
    r"\.(?:text(?:\.(?:unlikely|exit|startup|hot))?|rodata|data(?:\.rel)?(?:\.ro)?(?:\.local)?)\.(?=_Z)"
)
_INLINING = re.compile(
    r"void simulator::run_threads<simulator::Code<&\(?(.+?)\)?>::bind\(.*\)::\{lambda\(\)#1\}>"
    r"\(simulator::Block&\)"
)
_RUNS_THREADS = re.compile(r"void simulator::run_threads?<")
_RUNS_POINTER = re.compile(r"void simulator::run_threads?<simulator::Pointer<")
_CALL = "start_call"  # launch.h
_EXTERN = 'extern "C" __attribute__((visibility("hidden")))'
_INTERNAL = re.compile(r"anonymous namespace|\{lambda|\[abi:|\[clone|'lambda")


class DeferredFunction(NamedTuple):
    """A launcher or a kernel, instantiated from a template.

    Attributes:
        statement: its explicit instantiation; "" if the source needs none.
        calls: the symbols of functions that it calls, and that are compiled with it.
        launches: the symbols of kernels that it launches.
        site: for a kernel, the C++ expression for its `Site` in the simulator; "" for a launcher.
        inlines: for a function that runs a kernel, the kernel's symbol; else "".
    """

    statement: str
    calls: list[str]
    launches: list[str]
    site: str = ""
    inlines: str = ""


class Deferred(NamedTuple):
    """The functions that the library of a build in parts lacks.

    Attributes:
        source: the position of the .cu that has it.
        functions: launchers, and the kernels that they launch, by their symbols.
    """

    source: int
    functions: dict[str, DeferredFunction]


def without_instantiations(text: str) -> str:
    """A source without explicit instantiations, also those in macros; lines keep their numbers."""
    if "template" not in text:
        return text
    pieces, done = [], 0
    for match in _INSTANTIATION.finditer(blank(text)):
        statement = text[match.start() : match.end()]
        pieces += [text[done : match.start()], re.sub(r"[^\\\n]|\\(?!\n)", " ", statement)]
        done = match.end()
    return "".join([*pieces, text[done:]])


@lru_cache(maxsize=64)
def functions(
    source: Path, bindings: tuple[Path, ...], named: Named, digest: str
) -> dict[str, DeferredFunction]:
    """The launchers of a source, and the kernels that they launch, by their symbols.

    Launchers are what the bindings' objects call and the source's object defines.

    Args:
        source, bindings: the objects; digest: that of all of them.
        named: facts on names from the source's text.

    Returns:
        An empty dict if the objects cannot be taken apart: if the source has variables that change,
        which the parts would not share, or if a launcher's name cannot be written in C++.
    """
    wanted = {name for binding in bindings for kind, name in symbols_of(binding) if kind == "U"}
    symbols = symbols_of(source)
    variables = [name for kind, name in symbols if kind in "BbDdCGgSsVu"]
    for name in demangled_names(variables):
        if not _SIMULATORS.fullmatch(name) and name.rpartition("::")[2] not in named.constants:
            return {}
    launchers = sorted({name for kind, name in symbols if kind in "TW"} & wanted)
    statements = dict(zip(launchers, map(_instantiation, demangled_names(launchers)), strict=True))
    if None in statements.values():
        return {}
    templates = sorted({name for kind, name in symbols if kind == "W"} - wanted)
    declared = dict(zip(templates, demangled_names(templates), strict=True))
    launched = {name: _kernel(name, each, named.kernels) for name, each in declared.items()}
    launched = {name: kernel for name, kernel in launched.items() if kernel}
    symbol_of = {each: name for name, each in declared.items()}
    calls = _calls(source)
    deferred = {
        name: DeferredFunction(statement or "", [], []) for name, statement in statements.items()
    }
    for name, (statement, site, inlined) in launched.items():
        deferred[name] = DeferredFunction(statement, [], [], site, symbol_of.get(inlined, ""))
    named_alone = {
        name for name in launched if _name_of(_expression(declared[name])) in named.named_alone
    }
    for name, function in deferred.items():
        separate = launched.keys()
        reached = _reached(name, calls, separate)
        if any(_CALL in each for each in reached):  # it may call one of these
            separate = separate - named_alone
            reached = _reached(name, calls, separate)
        named = filter(str.isidentifier, reached)  # a compiler's clone of a function is not
        function.calls.extend(each for each in named if each not in separate)
        function.launches.extend(each for each in reached if each in separate)
    of_launchers = {each for name in launchers for each in deferred[name].launches}
    return {
        name: each for name, each in deferred.items() if name in statements or name in of_launchers
    }


def _kernel(name: str, declaration: str, kernels: frozenset[str]) -> tuple[str, str, str] | None:
    """The statement and the site of a kernel, as in DeferredFunction, and the kernel that it
    inlines.

    None if the function is no kernel, or its name cannot be written in C++.
    """
    if inlining := _INLINING.fullmatch(declaration):
        inlined = inlining[1]
        kernel = _expression(inlined)
        if _INTERNAL.search(inlined):
            return None
        body = f"simulator::Code<{kernel}>"
        statement = f"template void simulator::run_threads<{body}::Body>(simulator::Block&);"
        return statement, f"simulator::held<{body}>({_alias_of(name)})", inlined
    kernel = _expression(declaration)
    if _name_of(kernel) not in kernels:
        return None
    statement = _instantiation(declaration)
    return statement and (
        statement,
        f"simulator::held<decltype(simulator::pointer({kernel}))>({_alias_of(name)})",
        "",
    )


def _expression(declaration: str) -> str:
    """A kernel's name with its template arguments, from its whole declaration."""
    depth, end = 0, len(declaration)
    for end in reversed(range(len(declaration))):
        depth += {")": 1, "(": -1}.get(declaration[end], 0)
        if depth == 0:
            break
    return declaration[:end].removeprefix("void ")


def _name_of(kernel: str) -> str:
    """A kernel's name without namespaces and template arguments."""
    return re.sub(r".*::|<.*", "", re.sub(r"<.*", "", kernel))


def without_calls(deferred: Deferred) -> Deferred:
    """The functions without aliases; so they may round otherwise than in the whole build."""
    functions = {name: each._replace(calls=[]) for name, each in deferred.functions.items()}
    return deferred._replace(functions=functions)


def part(
    build: str, functions: Mapping[str, DeferredFunction], wanted: Iterable[str], kept: str
) -> Part:
    """The library with some of a build's functions."""
    chosen = {name: functions[name] for name in wanted}
    kernels = [name for name, each in chosen.items() if each.site]
    inlined = {each.inlines for each in chosen.values()}
    called = {name for each in chosen.values() for name in each.calls}
    launched = {name for each in chosen.values() for name in each.launches} - inlined - called
    called.update(kernels)
    statements = [
        *(each.statement for each in chosen.values() if each.statement),
        *(f"extern {functions[name].statement}" for name in sorted(launched - chosen.keys())),
        *map(_alias, sorted(called)),
        *(f"{_EXTERN} const auto {_site_of(name)} = {chosen[name].site};" for name in kernels),
    ]
    held = ((name, _site_of(name) if each.site else name) for name, each in chosen.items())
    kept = "" if kernels else kept  # the whole object exports no kernels' addresses
    return Part(build, tuple(held), tuple(statements), tuple(sorted(launched)), kept)


def for_host(texts: Mapping[Path, str], flags: str) -> dict[Path, str]:
    """The texts from which a library with only launchers is compiled."""
    return host_code.texts_of(texts, flags, host_code.without_bodies)


def has_kernels(path: Path, texts: Iterable[str]) -> bool:
    """Whether an object that should have no kernels has one that would run."""
    defined = [name for kind, name in symbols_of(path) if kind not in "Uwv"]
    return not defined or bool(_kernels_in(defined, texts))


def lacks_kernels(path: Path, jumps: Iterable[str], texts: Iterable[str]) -> bool:
    """Whether an object needs kernels that it does not have and that have no jumps: an edit may
    have renamed kernels."""
    lacked = {name for kind, name in symbols_of(path) if kind == "U"}.difference(jumps)
    return bool(_kernels_in(sorted(lacked), texts))


def _kernels_in(symbols: Iterable[str], texts: Iterable[str]) -> list[str]:
    """The symbols of kernels and of functions that run one, by kernels' heads in texts."""
    kernels = frozenset().union(*map(host_code.kernels_of, texts))
    likely = [s for s in symbols if "run_thread" in s or any(name in s for name in kernels)]
    return [
        each
        for each in demangled_names(likely)
        if (_RUNS_THREADS.match(each) and not _RUNS_POINTER.match(each))
        or _name_of(_expression(each) if each.endswith(")") else each) in kernels
    ]


def without_kernels(functions: Mapping[str, DeferredFunction], called: Iterable[str]) -> list[str]:
    """The launchers, among functions that were called, whose library can be without kernels.

    A launcher may launch a kernel by name without template arguments, which are deduced from the
    call. Then its library needs the kernel.
    """
    launchers = [name for name in called if name in functions and not functions[name].site]
    return [n for n in launchers if not any(_CALL in each for each in functions[n].calls)]


def calls_one_of(path: Path, kernels: Collection[str]) -> bool:
    """Whether an object calls one of these kernels, which it lacks.

    A launch needs only a kernel's address. A call, for example of a kernel that was not inlined
    into the function that runs its threads, would reach the jump.
    """
    relocations = _relocations(path) if kernels else ()
    return any(kind.endswith("PLT32") and name in kernels for _, kind, name in relocations)


def with_kernels(functions: Mapping[str, DeferredFunction]) -> dict[str, DeferredFunction]:
    """The launchers among functions, each to be compiled with all of its kernels."""
    launchers = {}
    for name, each in functions.items():
        if not each.site:
            kernels = {name: functions[name] for name in each.launches}
            inlined = {kernel.inlines for kernel in kernels.values()}
            calls = {call for kernel in kernels.values() for call in kernel.calls}
            calls = calls.union(each.calls, kernels) - inlined
            launchers[name] = DeferredFunction(each.statement, sorted(calls), [])
    return launchers


class Named(NamedTuple):
    """Facts on names from the text of a source and its headers.

    Attributes:
        kernels: possible kernels that can be found at their launch. There are none if kernels are
            launched by address, because then the code may take a kernel's address by its name.
        named_alone: those of them that are launched without template arguments.
        constants: static variables of functions that are computed once and do not change.
    """

    kernels: frozenset[str]
    named_alone: frozenset[str]
    constants: frozenset[str]

    @classmethod
    def of(cls, texts: Collection[str]) -> Named:
        text = "\n".join(texts)
        heads = [] if launches_by_address(text) else re.findall(r"\b__global__\b([^;{]*)", text)
        heads = [head for head in heads if "=" not in head]  # a parameter's default
        kernels = {name for head in heads for name in host_code.names_in(head)}
        named_alone = kernels.intersection(re.findall(r"(\w+)\s*<<\s*<", text))
        statics = re.findall(r"\bstatic\s+(const\b)?[^;=(){}]*?(\w+)\s*(?:[\[={]|;)", text)
        changing = {name for const, name in statics if not const}
        constants = {name for const, name in statics if const} - changing
        return cls(frozenset(kernels), frozenset(named_alone), frozenset(constants))


def _calls(source: Path) -> dict[str, set[str]]:
    """For each function with a section of its own, the object's functions that it refers to."""
    calls: dict[str, set[str]] = {}
    for section, _, name in _relocations(source):
        if function := _OWN_SECTION.match(section):
            calls.setdefault(section[function.end() :], set()).add(name)
    functions = {row[0] for row in _symbol_table(source) if row[2] != "U" and row[3] == "FUNC"}
    return {name: named & functions for name, named in calls.items()}


def _relocations(path: Path) -> Iterator[tuple[str, str, str]]:
    """An object's relocations: the section, the kind and the symbol of each."""
    section = ""  # of objdump, because readelf truncates long names
    for line in _output_of("objdump", "--reloc", "--wide", str(path)):
        words = line.split()
        if line.startswith("RELOCATION RECORDS FOR ["):
            section = line.partition("[")[2].removesuffix("]:")
        elif len(words) == 3:
            name = re.sub(r"[-+]0x[0-9a-f]+$", "", words[2])
            yield section, words[1], _OWN_SECTION.sub("", name)  # a local function's section


def _reached(name: str, calls: dict[str, set[str]], kernels: Collection[str]) -> list[str]:
    """The functions that a function calls, directly or through others, up to kernels."""
    reached = [name]
    for each in reached:  # it grows during the loop
        if each == name or each not in kernels:
            reached += calls.get(each, set()).difference(reached)
    return sorted(reached[1:])


def _alias(name: str) -> str:
    """A statement that gives a function a second name.

    A compiler inlines a function with one caller, and fuses its additions with the caller's
    products. The whole build has more callers, and so may round otherwise. The second name makes
    the compiler keep the function separate in a part, too, if the whole build does.
    """
    return f'extern "C" void {_alias_of(name)}() __attribute__((alias("{name}")));'


def _alias_of(name: str) -> str:
    return f"{name}_is_called"


def _site_of(name: str) -> str:
    return f"{name}_site"


def without_aliases(statements: Iterable[str], output: str) -> tuple[str, ...]:
    """The statements without those of functions that an edit has removed.

    output: the compiler's, with errors for them.
    """
    gone = set(re.findall(r"_is_called\(\)\W+ aliased to undefined symbol \W(\w+)\W", output))
    return tuple(each for each in statements if each not in set(map(_alias, gone)))


def symbols_of(path: Path) -> list[tuple[str, str]]:
    """The kind and the name of each symbol in an object; empty if it cannot be read.

    Constants of inline functions and templates are weak, like variables; if their section is
    read-only, they get the kind "R".
    """
    return [
        ("R" if row[2] in "Vu" and row[6].startswith(_READ_ONLY) else row[2], row[0])
        for row in _symbol_table(path)
        if len(row[2]) == 1
    ]


def _symbol_table(path: Path) -> list[list[str]]:
    """Name, value, kind, type, size, line and section of each symbol in an object."""
    # The empty plugin keeps GNU's nm from first opening the plugins of each installed LLVM, which
    # takes twenty times as long as the rest; another nm may not have the option.
    asked = ["-f", "sysv", str(path)]
    lines = _output_of("nm", "--plugin=", *asked) or _output_of("nm", *asked)
    rows = [[word.strip() for word in line.split("|")] for line in lines]
    return [row for row in rows if len(row) == 7]


_READ_ONLY = (".rodata", ".data.rel.ro")


def _output_of(*command: str) -> list[str]:
    return (machine.output_of(list(command)) or "").splitlines()


def demangled_names(names: list[str]) -> list[str]:
    return demangled("\n".join(names)).split("\n") if names else []


def _instantiation(declaration: str) -> str | None:
    """The explicit instantiation of a function; None if that cannot be written.

    declaration: demangled; only a template's begins with its return type.
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
    """A C++ source with the table HELD of these symbols' addresses."""
    lines = [*_global(HELD), *(f".quad {name}" for name in names)]
    return _assembly('.section .data.rel,"aw"', ".balign 8", *lines, ".text")


def jumps(names: Iterable[str]) -> str:
    """A C++ source with functions of these symbols that jump to their addresses in SLOTS.

    At first that is code which calls FIND with the symbol's number and the address of the saved
    registers of the first six arguments, and then jumps to the result. For the launch of a kernel
    with such a function in its place, `jitload_found` returns the target. On an error FIND sets the
    first register to a message, and returns a function that throws it.
    """
    names = list(names)
    data = [f".quad .Lfirst_{number}" for number in range(len(names))]
    code = [
        line
        for number, name in enumerate(names)
        for line in (
            ".balign 16",
            *(f".globl {name}", f".hidden {name}", f".type {name}, @function"),
            f"{name}: jmp *jitload_own_slots+{8 * number}(%rip)",
            f".size {name}, .-{name}",
            f".Lfirst_{number}: pushq ${number}",
            "jmp .Lfind",
        )
    ]
    return (
        _assembly(
            '.section .data.rel,"aw"',
            ".balign 8",
            *(*_global(FIND), *_hidden("jitload_own_find"), ".quad 0"),
            *(*_global(SLOTS), *_hidden("jitload_own_slots"), *data),
            ".text",
            *(".balign 16", *_hidden("jitload_jumps"), *code, *_hidden("jitload_jumps_end")),
            ".Lfind:",  # the stack has the number, and then the launcher's return address
            *(f"pushq %{register}" for register in reversed(_WHOLE)),
            "subq $136, %rsp",  # 8 more than they take: it must stay a multiple of 16
            *(f"movups %xmm{n}, {16 * n}(%rsp)" for n in range(8)),
            f"movq {136 + 8 * len(_WHOLE)}(%rsp), %rdi",
            "leaq 136(%rsp), %rsi",
            "call *jitload_own_find(%rip)",
            "movq %rax, %r11",
            *(f"movups {16 * n}(%rsp), %xmm{n}" for n in range(8)),
            "addq $136, %rsp",
            *(f"popq %{register}" for register in _WHOLE),
            "addq $8, %rsp",
            "jmp *%r11",
        )
        + """
#pragma GCC visibility push(hidden)
extern "C" {
extern const char jitload_jumps[], jitload_jumps_end[];
extern const char* jitload_own_slots[];
extern const char* (*jitload_own_find)(unsigned long number, unsigned long* registers);

const void* jitload_found(const void* function) {
    const auto is_jump = [](const void* p) { return p >= jitload_jumps && p < jitload_jumps_end; };
    if (!is_jump(function)) return nullptr;
    const unsigned long number = (static_cast<const char*>(function) - jitload_jumps) / 16;
    if (!is_jump(jitload_own_slots[number])) return jitload_own_slots[number];
    unsigned long registers[6] = {};
    const char* const there = jitload_own_find(number, registers);
    if (registers[0]) reinterpret_cast<void (*)(unsigned long)>(there)(registers[0]);
    return there;
}
}
#pragma GCC visibility pop
"""
    )


_WHOLE = ("rdi", "rsi", "rdx", "rcx", "r8", "r9", "rax")  # registers of integer arguments


def _global(name: str) -> tuple[str, ...]:
    return f".globl {name}", f"{name}:"


def _hidden(name: str) -> tuple[str, ...]:
    return f".hidden {name}", *_global(name)


def _assembly(*lines: str) -> str:
    return 'asm(R"(\n' + "\n".join(lines) + '\n)");\n'
