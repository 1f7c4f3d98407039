"""A build for a GPU whose kernels are compiled one by one, as they are launched.

An edit of a .cu changes the code of all its kernels, but a call launches one or two of forty. So
the .cu is compiled twice, in parallel. The compilation for the host has kernels without bodies: its
results are the launchers, and nvcc's host stub of each kernel. The compilation for the GPU
instantiates only the wanted kernels: its result is a fat binary. `kernel_fatbins.h` is compiled
with the host code, and wraps calls of CUDA's runtime: before a kernel is first launched, or its
attributes are first read, it makes `jitloader.lazy_kernels` register the fat binary that has it.

A kernel is identified by its symbol, and instantiated by a pointer to it:

    static void (*const jitload_kernel_0)(Forward<float>) = forward_vector<float, true>;
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from simulator.scan import blank, without_comments
from toolchain import host_code
from toolchain.launchers import parameters
from toolchain.parts import demangled_names, symbols_of, without_instantiations
from toolchain.registrations import UNIQUE
from toolchain.signatures import obstacle
from toolchain.sources import includes_all_of_torch

if TYPE_CHECKING:
    from toolchain.code import Code

SUPPORTED = sys.platform == "linux"
HEADER = Path(__file__).with_name("kernel_fatbins.h")
NAMED = "jitload_unnamed"  # the name for unnamed namespaces
WANTED = "jitload_kernels"  # the file name, for compilers, of lines that instantiate kernels

# CUDA's functions that take a kernel; the linker replaces them by those of kernel_fatbins.h.
_WRAPPED = re.findall(r"JITLOAD_BEFORE\((\w+)", HEADER.read_text())
_WRAPPED += ["__cudaRegisterFatBinary", "__cudaRegisterFatBinaryEnd", "__cudaUnregisterFatBinary"]
_WRAPPED += ["__cudaRegisterFunction"]
LINK_FLAGS = [f"-Wl,--wrap={name}" for name in _WRAPPED]

_VARIABLE = re.compile(
    r"\b__(?:device|constant|managed)__\b"
    r"(?:(?!\b(?:operator|constexpr)\b)(?:(?:__align__|alignas)\s*\([^()]*\)|[^;{}()=[]))*[;=[]"
)
_OTHERS = re.compile(  # further functions of CUDA that take a kernel or a variable
    r"__cudaRegister\w*(?:Var|Texture|Surface)|cuda\w*(?:Symbol|Graph|Library|Texture|Surface)\w*"
    r"|cudaFunc\w+|cudaOccupancy\w+|cuda(?:_*|Get)Kernel\w*|cudaLaunch\w+"
)
_LINKED_LATER = re.compile(r"--?(rdc|relocatable-device-code|dc|device-c|dlto|lto)\b")
_HEAD = re.compile(
    r'(?:extern\s*"C"\s+)?__global__\s+void\s+(?:__launch_bounds__\s*\([\d\s,]*\)\s*)?'
    r"\w+\s*\(([^(){};#]*)\)\s*\{"
)
_INSTANCE = re.compile(r"void (?P<name>.*[\w>])(?P<parameters>\(.*\))", re.DOTALL)
_INTERNAL = re.compile(r"_GLOBAL__N_|_INTERNAL_|\{lambda|'lambda|\[abi:")


class OnDemand(NamedTuple):
    """A build with some kernels; its others are compiled at their first launch.

    source: the position of the .cu.
    wanted: the symbols of the kernels that are compiled with it; None means all.
    """

    source: int
    wanted: tuple[str, ...] | None


def on_demand(code: Code, wanted: Iterable[str]) -> OnDemand | None:
    """How to compile code kernel by kernel; None if it has to be compiled whole.

    wanted: the symbols of the kernels that are likely to be launched.
    """
    recipe = code.recipe
    kernels = [n for n, path in enumerate(recipe.sources) if path.suffix == ".cu"]
    plain = recipe.target == "cuda" and not (recipe.program or recipe.debug or recipe.part)
    if not (SUPPORTED and plain and len(kernels) == 1) or code.registrations.fixed:
        return None
    if any(map(_LINKED_LATER.match, recipe.flags)):
        return None
    texts = [without_comments(code.text(path)) for path in code.files if path.suffix != ".cpp"]
    if any(UNIQUE in text or has_variable(text) for text in texts):
        return None
    # PyTorch's headers include those of CUDA's C++ library, whose constants are variables.
    if any(map(includes_all_of_torch, texts)):
        return None
    # Without a binding a kernel's error could not be raised when it is launched.
    return OnDemand(kernels[0], None if code.binding == "c" else tuple(wanted))


def has_variable(text: str) -> bool:
    """Whether a text without comments has a GPU variable. Kernels that are compiled apart would
    each have their own."""
    return _VARIABLE.search(blank(text)) is not None


def for_host(code: Code, texts: Mapping[Path, str]) -> dict[Path, str]:
    """The texts that are compiled for the host: kernels have no bodies."""
    alone = heads(code)
    if alone is not None:
        return dict.fromkeys(texts, alone)
    flags = " ".join(code.recipe.flags)
    return host_code.texts_of(
        texts, flags, lambda text: host_code.without_bodies(with_named_namespaces(text))
    )


def heads(code: Code) -> str | None:
    """The heads of the kernels in code of which Python calls nothing else.

    So an edit of anything but the heads does not change the host code. None if the heads alone
    are not enough: if a kernel's parameter has a type that the file defines, if it is a template,
    or if the preprocessor may choose between two heads.
    """
    exports = code.exports.values()
    if code.binding != "c" or len(code.files) > 1 or not all("kernel" in e for e in exports):
        return None
    text = without_comments(code.text(code.recipe.sources[0]))
    kernels, plain = list(_HEAD.finditer(text)), blank(text)
    words = {word for head in kernels for word in re.findall(r"\w+", head[0])}
    chosen = re.search(r'#[ \t]*if|#[ \t]*include[ \t]*[^< \t]|\bextern\s*"C"\s*\{', text)
    if chosen or not words.isdisjoint(re.findall(r"#[ \t]*define[ \t]+(\w+)", text)):
        return None
    if len(kernels) != len(re.findall(r"\b__global__\b", plain)):
        return None
    for head in kernels:
        before = re.sub(r"(?m)^[ \t]*#.*", "", plain[: head.start()]).rstrip()
        outside = before.count("{") == before.count("}") and before[-1:] in ("", ";", "}")
        if not outside or obstacle(parameters(head[1]), "void"):
            return None
    includes = re.findall(r"(?m)^[ \t]*#[ \t]*include\b.*", text)
    return "\n".join([*includes, *(f"{head[0]}}}" for head in kernels), ""])


def for_gpu(texts: Mapping[Path, str], wanted: Iterable[str] | None) -> dict[Path, str]:
    """Texts without their explicit instantiations, unless all kernels are wanted."""
    named = {path: with_named_namespaces(text) for path, text in texts.items()}
    if wanted is None:
        return named
    return {path: without_instantiations(text) for path, text in named.items()}


def instantiates(text: str) -> bool:
    """Whether a text has explicit instantiations."""
    return without_instantiations(text) != text


def with_named_namespaces(text: str) -> str:
    """A file's text with a name for its unnamed namespaces, because a kernel's symbol there would
    differ between compilations. Names inside are still found without it."""
    plain, pieces, done = blank(text), [], 0
    for word in re.finditer(r"\bnamespace(?=\s*\{)", plain):
        pieces += [text[done : word.start()], f"inline namespace {NAMED}"]
        done = word.end()
    return "".join([*pieces, text[done:]])


def instantiations(wanted: Iterable[str]) -> str:
    """Lines that make a source compile kernels, one for each; empty for one that is no template."""
    lines = [f'\n#line 1 "{WANTED}"']
    for number, declaration in enumerate(demangled_names(list(wanted))):
        instance = _INSTANCE.fullmatch(declaration)
        lines.append(
            f"static void (*const jitload_kernel_{number}){instance['parameters']}"
            f" = {instance['name']};"
            if instance
            else ""
        )
    return "\n".join([*lines, ""])


def without_unknown(wanted: Iterable[str], output: str) -> tuple[str, ...]:
    """The kernels without those that an edit has removed; output: the compiler's."""
    unknown = {int(line) for line in re.findall(rf"{WANTED}\((\d+)\): error", output)}
    return tuple(name for number, name in enumerate(wanted, 1) if number not in unknown)


def kernels_of(host: Path) -> list[str] | None:
    """The symbols of the kernels that an object of the host code launches.

    None if it has something that cannot be in parts: variables, kernels that other files cannot
    name, or calls with a kernel that `kernel_fatbins.h` does not wrap.
    """
    symbols = symbols_of(host)
    called = {name for kind, name in symbols if kind == "U"}
    kernels = [
        stub[: int(length)].removeprefix("__device_stub_")
        for _, name in symbols
        for length, stub in re.findall(r"^_ZL?(\d+)(__device_stub__\w+)$", name)
    ]
    others = {name for name in called if _OTHERS.fullmatch(name)} - set(_WRAPPED)
    if others or not kernels or any(map(_INTERNAL.search, kernels)):
        return None
    # The host stub of an extern "C" kernel has a C++ name, but the kernel does not. The host's name
    # of a static kernel has one more L.
    defined = {name for kind, name in symbols if kind != "U"}
    defined |= {re.sub(r"L(?=\d)", "", name) for name in defined}
    in_c = [name for name in kernels if name not in defined]
    plain = (re.sub(r"\(.*", "", name).rpartition("::")[2] for name in demangled_names(in_c))
    return sorted({*kernels} - {*in_c} | {*plain})


def compiled_in(image: bytes, kernels: Iterable[str]) -> list[int]:
    """The positions of the kernels that a fat binary contains."""
    return [n for n, name in enumerate(kernels) if f".text.{name}\0".encode() in image]
