"""A build in parts: a library with the binding alone, and libraries with what the binding calls.

A binding calls launchers, functions that a .cu instantiates for each type:

    template cudaError_t square_forward<float>(const float* x, float* y, int64_t n, ...);

An edit of the .cu changes all of them, and a call needs one. So the library with the binding, which
is only linked, has a jump in the place of each launcher. The first call of one asks where it is
(`jitloader.lazy_launchers`), and then it is compiled: the same source, in which this launcher is
the only explicit instantiation. Every later call takes one jump through memory.

So it is with the kernels of a launcher, of which a call launches few: the library with the launcher
declares them `extern template`, and has jumps in their places. The simulator asks where a kernel is
when it is launched (simulator/include/simulator/launch.h).

Launchers alone are compiled from texts in which kernels are empty (`toolchain.host_code`). That is
the same library after an edit of a kernel, which then jumps to others.

The jumps are written in assembly, for they keep all arguments as they are, of whatever types. Here
it is that of x86-64 on Linux; elsewhere a build is whole from the start.
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

# What `jitloader.lazy_launchers` looks for in the libraries.
SLOTS = "jitload_slots"  # where the jumps lead, one for each function
FIND = "jitload_find"  # the function that is asked at a first call
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
    """A launcher or a kernel, of a template.

    Attributes:
        statement: its explicit instantiation; "" where the source has it without.
        calls: the symbols of functions that it calls, and that are compiled with it.
        launches: those of kernels that it launches.
        site: of a kernel, the C++ for the simulator's `Site` of it; "" of a launcher.
        inlines: of what runs a kernel, the kernel's symbol; else "".
    """

    statement: str
    calls: list[str]
    launches: list[str]
    site: str = ""
    inlines: str = ""


class Deferred(NamedTuple):
    """What the library of a build in parts lacks.

    Attributes:
        source: the position of the .cu that has it.
        functions: launchers, and the kernels that they launch, by their symbols.
    """

    source: int
    functions: dict[str, DeferredFunction]


def without_instantiations(text: str) -> str:
    """A source without its explicit instantiations, also those in macros; lines stay."""
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
        source, bindings: the objects; digest: of all of them.
        named: what the source's text says of names.

    Returns:
        None at all where the objects cannot be taken apart: where the source has variables that
        change, which the parts would not share, or a launcher has no name that can be written down.
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
    """The statement and the site of a kernel, as of DeferredFunction, and the kernel that it
    inlines.

    None where the function is no kernel, or one that cannot be written.
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
    """A kernel's name with its template's arguments, from its whole declaration."""
    depth, end = 0, len(declaration)
    for end in reversed(range(len(declaration))):
        depth += {")": 1, "(": -1}.get(declaration[end], 0)
        if depth == 0:
            break
    return declaration[:end].removeprefix("void ")


def _name_of(kernel: str) -> str:
    """Without namespaces and arguments."""
    return re.sub(r".*::|<.*", "", re.sub(r"<.*", "", kernel))


def without_calls(deferred: Deferred) -> Deferred:
    """Functions that need not round as in the whole: nothing of theirs is called from elsewhere."""
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
    kept = "" if kernels else kept  # the object of the whole tells nobody where its kernels are
    return Part(build, tuple(held), tuple(statements), tuple(sorted(launched)), kept)


def for_host(texts: Mapping[Path, str], flags: str) -> dict[Path, str]:
    """Texts as launchers are compiled from them whose library has no kernels."""
    return host_code.texts_of(texts, flags, host_code.without_bodies)


def has_kernels(path: Path, texts: Iterable[str]) -> bool:
    """Whether an object that is to have no kernels has one that would be run."""
    defined = [name for kind, name in symbols_of(path) if kind not in "Uwv"]
    return not defined or bool(_kernels_in(defined, texts))


def lacks_kernels(path: Path, jumps: Iterable[str], texts: Iterable[str]) -> bool:
    """Whether an object needs kernels that it has not, besides those of which there are jumps: an
    edit may have given kernels other names."""
    lacked = {name for kind, name in symbols_of(path) if kind == "U"}.difference(jumps)
    return bool(_kernels_in(sorted(lacked), texts))


def _kernels_in(symbols: Iterable[str], texts: Iterable[str]) -> list[str]:
    """Those of kernels, and of what runs one, by the heads of kernels in texts."""
    kernels = frozenset().union(*map(host_code.kernels_of, texts))
    likely = [s for s in symbols if "run_thread" in s or any(name in s for name in kernels)]
    return [
        each
        for each in demangled_names(likely)
        if (_RUNS_THREADS.match(each) and not _RUNS_POINTER.match(each))
        or _name_of(_expression(each) if each.endswith(")") else each) in kernels
    ]


def without_kernels(functions: Mapping[str, DeferredFunction], called: Iterable[str]) -> list[str]:
    """Of functions that were called, the launchers whose library can be without kernels.

    A launcher may call a kernel by its name where it launches it, for the arguments decide which
    one that is. Then it has to have it.
    """
    launchers = [name for name in called if name in functions and not functions[name].site]
    return [n for n in launchers if not any(_CALL in each for each in functions[n].calls)]


def calls_one_of(path: Path, kernels: Collection[str]) -> bool:
    """Whether an object calls one of these kernels, which it lacks.

    A launch names a kernel only for its address. A call, as of a kernel that was not inlined into
    what runs its threads, would find a jump in its place.
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
    """What the text of a source and its headers says of names.

    Attributes:
        kernels: those that may be kernels which are found at their launch. That is none where
            kernels are launched by addresses, for then a name may be asked for where the kernel is.
        named_alone: those of them that stand at a launch without the arguments of a template.
        constants: those of variables of functions that are computed once, and do not change.
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
    """The functions of an object that each of its functions names that has a section of its own."""
    calls: dict[str, set[str]] = {}
    for section, _, name in _relocations(source):
        if function := _OWN_SECTION.match(section):
            calls.setdefault(section[function.end() :], set()).add(name)
    functions = {row[0] for row in _symbol_table(source) if row[2] != "U" and row[3] == "FUNC"}
    return {name: named & functions for name, named in calls.items()}


def _relocations(path: Path) -> Iterator[tuple[str, str, str]]:
    """Of an object: in which section they are, of which kind, and which symbol they name."""
    section = ""  # readelf cuts off a section's name that is long
    for line in _output_of("objdump", "--reloc", "--wide", str(path)):
        words = line.split()
        if line.startswith("RELOCATION RECORDS FOR ["):
            section = line.partition("[")[2].removesuffix("]:")
        elif len(words) == 3:
            name = re.sub(r"[-+]0x[0-9a-f]+$", "", words[2])
            yield section, words[1], _OWN_SECTION.sub("", name)  # a local function's section


def _reached(name: str, calls: dict[str, set[str]], kernels: Collection[str]) -> list[str]:
    """The functions that are called from one, and from those, and so on, up to kernels."""
    reached = [name]
    for each in reached:  # which grows meanwhile
        if each == name or each not in kernels:
            reached += calls.get(each, set()).difference(reached)
    return sorted(reached[1:])


def _alias(name: str) -> str:
    """Gives a function a second name.

    A compiler inlines what is called only once, and fuses its sums with the caller's products. So
    that a part does not round otherwise than the whole, in which there are more callers, each
    function that the whole has by itself is called from elsewhere, too.
    """
    return f'extern "C" void {_alias_of(name)}() __attribute__((alias("{name}")));'


def _alias_of(name: str) -> str:
    return f"{name}_is_called"


def _site_of(name: str) -> str:
    return f"{name}_site"


def without_aliases(statements: Iterable[str], output: str) -> tuple[str, ...]:
    """Statements but for those of functions that an edit has taken out.

    output: the compiler's, in which they are errors.
    """
    gone = set(re.findall(r"_is_called\(\)\W+ aliased to undefined symbol \W(\w+)\W", output))
    return tuple(each for each in statements if each not in set(map(_alias, gone)))


def symbols_of(path: Path) -> list[tuple[str, str]]:
    """The kind and the name of each symbol in an object; none where it cannot be read.

    Constants of inline functions and templates are weak as variables are: they have the kind "R"
    of all that lies in a section which is only read.
    """
    return [
        ("R" if row[2] in "Vu" and row[6].startswith(_READ_ONLY) else row[2], row[0])
        for row in _symbol_table(path)
        if len(row[2]) == 1
    ]


def _symbol_table(path: Path) -> list[list[str]]:
    """Name, value, kind, type, size, line and section of each symbol in an object."""
    # Without an empty plugin GNU's nm opens those of each LLVM that is installed first, which takes
    # twenty times as long as the rest; another nm may not know of plugins.
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
    """A C++ source with the table HELD of these symbols."""
    lines = [*_global(HELD), *(f".quad {name}" for name in names)]
    return _assembly('.section .data.rel,"aw"', ".balign 8", *lines, ".text")


def jumps(names: Iterable[str]) -> str:
    """A C++ source with functions of these symbols that jump to where SLOTS says.

    At first that is a call of FIND with the symbol's number and the address of the registers that
    hold the first six arguments: then to the address that it returns. For a launch of a kernel that
    has such a function in its place, `jitload_found` gives what is to be jumped to; FIND says by
    the first register that it is to be called with that instead, and throws.
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
            ".Lfind:",  # the number is on the stack, and before it where the launcher returns to
            *(f"pushq %{register}" for register in reversed(_WHOLE)),
            "subq $136, %rsp",  # 8 more than they take: the stack is to be a multiple of 16
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


_WHOLE = ("rdi", "rsi", "rdx", "rcx", "r8", "r9", "rax")  # of arguments that are whole numbers


def _global(name: str) -> tuple[str, ...]:
    return f".globl {name}", f"{name}:"


def _hidden(name: str) -> tuple[str, ...]:
    return f".hidden {name}", *_global(name)


def _assembly(*lines: str) -> str:
    return 'asm(R"(\n' + "\n".join(lines) + '\n)");\n'
