"""Source shown where it is talked about: taken from its file, never retyped."""

import contextlib
import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import jitload


@dataclass(frozen=True)
class Source:
    """A piece of a file, which a notebook shows in colours."""

    text: str
    language: str
    where: str

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return self.text

    def _repr_markdown_(self) -> str:
        return f"`{self.where}`\n\n```{self.language}\n{self.text}\n```"


def source(of: jitload.Kernel | Callable | Path | str, *names: str) -> Source:
    """The source of a Python function, or of functions and classes in a CUDA file by their names.

        lab.source(reference.relu)
        lab.source(kernel, "forward_naive")            # with the comment above
        lab.source("01_copy.cu", "copy_strided")

    of: a Python function, a path, or a kernel: its first source, and for a name that stands
        elsewhere what that includes.

    Raises ValueError if no such name is defined there.
    """
    if callable(of) and not isinstance(of, jitload.Kernel):
        path = Path(inspect.getsourcefile(inspect.unwrap(of)))
        return Source(inspect.getsource(of).rstrip(), "python", jitload.label(path))
    if not isinstance(of, jitload.Kernel):
        return listing(Path(of).absolute(), names)
    included = {label: "\n".join(lines) for label, lines in of.build.sources().items()}
    return listing(of.sources[0], names, included)


def listing(path: Path, names: Sequence[str], included: Mapping[str, str] | None = None) -> Source:
    """A whole file, or the definitions of these names in it or in an included file.

    path: a file; if kernels/ has none there, the file of that name in another folder of kernels/.
    included: texts by their files' labels.
    """
    if not path.exists() and path.is_relative_to(jitload.KERNELS):
        path = next(jitload.KERNELS.rglob(path.name), path)
    text, where = path.read_text(), jitload.label(path)
    language = "python" if path.suffix == ".py" else "c++"
    if not names:
        return Source(text.rstrip(), language, where)
    files = {where: text} | {label: t for label, t in (included or {}).items() if label != where}
    parts = [_defined(files, name) for name in names]
    places = dict.fromkeys(place for place, _ in parts)
    return Source("\n\n".join(part for _, part in parts), language, ", ".join(places))


def _defined(files: dict[str, str], name: str) -> tuple[str, str]:
    """The first file that defines a name, and its definition."""
    for where, text in files.items():
        with contextlib.suppress(ValueError):
            return where, definition(text, name, where)
    raise ValueError(f"{next(iter(files))} defines no function or struct {name!r}")


def definition(text: str, name: str, where: str) -> str:
    """The function, struct or class `name` in a C++ text, with `template` and the comment above it.

    where: the file, for the error.
    """
    code = jitload.blank(text)
    # from the beginning of a line, perhaps over indented ones
    before = r"^(?=\w)[^\n;{}]*(?:\n[ \t][^\n;{}]*)*?"
    aligned = r"(?:alignas\([^\n;{}]*\)\s*)?"
    pattern = rf"{before}\b(?:{name}\s*\(|(?:struct|class)\s+{aligned}{name}\b)"
    for match in re.finditer(pattern, code, re.MULTILINE):
        brace, semicolon = (code.find(mark, match.start()) for mark in "{;")
        if brace == -1 or -1 < semicolon < brace:
            continue  # a declaration, or a call
        end = jitload.closing(code, brace) or len(code)
        begin = match.start()
        lines = text[:begin].splitlines(keepends=True)
        while lines and lines[-1].startswith(("template", "//")):
            begin -= len(lines.pop())
        section = _section(text[:begin])
        body = text[begin:end]
        return f"{section}{body};" if code[end : end + 1] == ";" else f"{section}{body}"
    raise ValueError(f"{where} defines no function or struct {name!r}")


def _section(above: str) -> str:
    """A section's comment, `// ---- version: idea`, and the constants below it, if nothing else is
    between it and the definition."""
    found = re.search(r"(?:^|\n\n)((?://[^\n]*\n)+\n(?:(?:constexpr[^\n]*\n)+\n)*)$", above)
    return found[1] if found and found[1].startswith("// ----") else ""
