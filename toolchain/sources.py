"""Source files as text: their includes, bindings and exports."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from playground_folder import place
from simulator import scan
from simulator.scan import blank, without_comments

# Patterns are compiled when they are used, because it would slow every import.
ROOT = place.root()  # with the ops' kernels/
LIBRARY = ROOT / "kernels/include"  # headers for all kernels, without an op of its own

INCLUDE = r'#[ \t]*include(?:_next)?[ \t]*(["<])([^">\n]+)[">]'
_HAS_INCLUDE = r'__has_include(?:_next)?[ \t]*\([ \t]*(["<])([^">\n]+)[">]'
_DIRECTIVE = r"(?m)^[ \t]*#(?:.*\\\r?\n)*.*"
_NO_TYPE = r"\b(?:inline|__inline__|__forceinline__|__host__)\b"  # before the return type
_NOT_FOR_PYTHON = r"\b(?:static|__device__|__global__)\b"
_DEFINITION = (
    r"\s*(?P<returns>\w[\w\s:]*?[\s*&]+)(?P<name>\w+)"
    r"\s*\((?P<parameters>(?:[^()]|\([^()]*\))*)\)\s*\{"
)


def label(path: Path) -> str:
    """The name of a file in messages, in #line directives and in digests.

    The project's own files have the same label in every clone, so that clones share builds.
    """
    for folder in (place.LIBRARY, ROOT):
        if path.is_relative_to(folder):
            name = path.relative_to(folder).as_posix()
            if labelled(name) == path:
                return name
    return str(path)


def labelled(name: str) -> Path:
    """The file with this label."""
    return (place.LIBRARY if name.partition("/")[0] in place.OF_LIBRARY else ROOT) / name


def file_in(folder: str | os.PathLike[str], name: str) -> str:
    """The path without `..` that a system opens for `name` in a folder.

    After a symbolic link `..` is the parent of what the link points to.
    """
    path = os.path.join(folder, name)  # noqa: PTH118 - a Path takes twice the time
    if ".." in name:
        parent, last = (path, "") if path.endswith("..") else os.path.split(path)
        real = os.path.realpath(parent)
        if real != os.path.realpath(os.path.normpath(parent)):
            path = os.path.join(real, last)  # noqa: PTH118
    return os.path.normpath(path)


def line_of(path: Path | None, line: int | None) -> str | None:
    """A line of a file as it is now; None if there is none."""
    if path is None or line is None:
        return None
    try:
        text = path.read_text(encoding="utf-8-sig", errors="replace")
        return text.splitlines()[line - 1]
    except (OSError, IndexError):
        return None


def included(text: str) -> list[tuple[str, str]]:
    """What a text includes: (quote, name) pairs, the quote being '"' or '<'.

    Comments and untaken #if branches count, too: for a digest, additional headers are harmless.
    """
    return re.findall(INCLUDE, text)


def asked_for(text: str) -> list[tuple[str, str]]:
    """What a text includes, and what it only tests with __has_include."""
    return included(text) + re.findall(
        _HAS_INCLUDE, text
    )  # a single expression takes ten times as long


def values_of(flags: Iterable[str], option: str) -> list[str]:
    """The values of an option in flags, given as `-Ifolder` or as `-I` and `folder`."""
    values, left = [], iter(flags)
    for flag in left:
        if flag.startswith(option):
            values.append(flag.removeprefix(option) or next(left, ""))
    return [value for value in values if value]


def folders_in(flags: Iterable[str], option: str) -> list[Path]:
    """The folders that are values of an option in flags."""
    return list(map(Path, values_of(flags, option)))


def without_directives(text: str) -> str:
    """`text` with preprocessor directives replaced by spaces; offsets and lines stay the same."""
    return re.sub(_DIRECTIVE, lambda directive: re.sub(r"[^\n]", " ", directive[0]), text)


def includes_within_braces(text: str) -> bool:
    """Whether a text has an #include inside of a class, a namespace or a function."""
    if "#" not in text.partition("{")[2]:
        return False
    depth = 0
    for match in re.finditer(r"[{}]|^[ \t]*#[ \t]*include\b", blank(text), re.MULTILINE):
        if match[0] == "{":
            depth += 1
        elif match[0] == "}":
            depth -= 1
        elif depth > 0:
            return True
    return False


def includes_torch(text: str) -> bool:
    """Whether a text includes torch's C++ API, beyond its stable ABI and header-only part."""
    ours = re.compile(r"torch/(headeronly|csrc/stable|csrc/inductor/aoti_torch/c)/")
    return any(re.match(r"(torch|ATen|c10)/", n) and not ours.match(n) for _, n in included(text))


def includes_all_of_torch(text: str) -> bool:
    """Whether it includes one of the headers that include nearly all others."""
    whole = {f"torch/{name}.h" for name in ("all", "extension", "python", "script", "torch")}
    return not whole.isdisjoint(name for _, name in included(text))


# A word after the brackets of a lambda, and after its parameters if there are any: it may stand
# for __device__.
_ATTRIBUTE = r"\[\[[^][]*\]\]"
_ANNOTATED_LAMBDA = (
    r"\]\s*(?:\((?:[^()]|\([^()]*\))*\))?\s*"
    r"(?!(?:const|constexpr|mutable|noexcept)\b)(?:[A-Za-z_]\w*\s*)+(?:[({]|->)"
)
_HAVE_SUCH_LAMBDAS = r"(?:thrust|cub|cuda|cute|cutlass)/"


def may_have_device_lambda(text: str) -> bool:
    """Whether a lambda of a text, or of a library that it includes, may say `__device__`."""
    if any(re.match(_HAVE_SUCH_LAMBDAS, name) for _, name in included(text)):
        return True
    code = re.sub(_ATTRIBUTE, "", blank(text)) if "]" in text else ""
    return re.search(_ANNOTATED_LAMBDA, code) is not None


def binding_of(text: str) -> str:
    """How Python reaches the kernels: "module" (pybind11), "ops" (torch.ops) or "c"."""
    for word, binding in (("PYBIND11_MODULE", "module"), ("TORCH_LIBRARY", "ops")):
        if word in text and word in blank(text):  # searching the text first is fast
            return binding
    return "c"


_TYPEDEF = r"\btypedef\s+([\w\s:]+?)\s+(\w+)\s*;|\busing\s+(\w+)\s*=\s*([\w\s:]+?)\s*;"


def with_plain_types(declarations: Iterable[str], code: str) -> list[str]:
    """Declarations of parameters, with the code's typedefs replaced by their types."""
    types: dict[str, str | None] = {}
    for of_typedef, name, by_using, of_using in re.findall(_TYPEDEF, code):
        alias, kind = name or by_using, of_typedef or of_using
        types[alias] = kind if types.get(alias, kind) == kind else None  # differs by scope

    def plain(declaration: str) -> str:
        for _ in range(len(types)):
            first = re.search(r"\b(?!(?:const|volatile|struct)\b)\w+", declaration)
            if first is None or not (kind := types.get(first[0])):
                break
            declaration = declaration[: first.start()] + kind + declaration[first.end() :]
        return declaration

    return [plain(each) for each in declarations] if types else list(declarations)


def exports(text: str, binding: str | None = None) -> dict[str, Any]:
    """The names that a binding registers; for C functions also return types and parameters.

    Kernels are left out, `extern "C"` or not: see `toolchain.launchers`. So are functions without a
    symbol in a library, such as static ones.

    binding: how Python reaches them, if the text alone does not tell.
    """
    code, plain = without_comments(text), blank(text)

    def in_code(pattern: str) -> Iterator[re.Match]:
        """Matches of a pattern that contains a string, except those inside of a string."""
        return (match for match in re.finditer(pattern, code) if plain[match.start()] != " ")

    if (binding or binding_of(text)) != "c":
        return dict.fromkeys(match[1] for match in in_code(r'\.\s*def\s*\(\s*"(?:\w+::)?(\w+)'))
    definitions = []
    for extern in in_code(r'extern\s*"C"\s*(\{)?'):
        if extern[1]:
            definitions += re.finditer(_DEFINITION, _block(plain, extern.end()))
        elif match := re.compile(_DEFINITION).match(plain, extern.end()):
            definitions.append(match)
    return {
        match["name"]: {
            "returns": with_plain_types(
                [" ".join(re.sub(_NO_TYPE, "", match["returns"]).split())], plain
            )[0],
            "parameters": with_plain_types(
                (p for p in split(match["parameters"]) if p not in ("", "void")), plain
            ),
        }
        for match in definitions
        if not re.search(_NOT_FOR_PYTHON, match["returns"])
    }


def split(text: str) -> list[str]:
    """The parts of a text between commas that are not in brackets, also not in a template's."""
    return scan.split(text, "()[]{}<>")


def _block(code: str, start: int) -> str:
    """The text from `start` to the closing brace, without functions' bodies."""
    depth, kept = 1, []
    for char in code[start:]:
        depth += {"{": 1, "}": -1}.get(char, 0)
        if depth == 0:
            break
        if depth == 1 or (depth == 2 and char == "{"):
            kept.append(";" if char == "}" else char)
    return "".join(kept)


def read_depfile(depfile: Path) -> list[Path]:
    """The files in a depfile, which is a Makefile rule that a compiler wrote."""
    text = depfile.read_text(errors="replace").replace("\\\n", " ")
    _, _, prerequisites = text.partition(": ")
    names = re.findall(r"(?:\\ |\\#|\$\$|\S)+", prerequisites)
    names = [re.sub(r"\\([ #])", r"\1", name).replace("$$", "$") for name in names]
    return [Path(file_in(depfile.parent, name)) for name in names]
