"""Errors of a build, told for the person who wrote the source."""

from __future__ import annotations

import re
from pathlib import Path

from toolchain.sources import label, line_of


class MissingTool(RuntimeError):
    """A program that a build needs is not on this machine; the message says how to get it."""


class CompileError(RuntimeError):
    """A source that does not compile, told for the person who wrote it.

    Attributes:
        path, line, column: where, in the user's own file (line and column count from 1; None
            where the compiler gave none).
        message: what the compiler said, one line.
        hint: what to do about it, or None where we know nothing better than the compiler.
        log: Path of the compiler's full output.
        others: how many further errors the log holds.
    """

    __module__ = "jitload"  # where people find it

    def __init__(
        self,
        message: str,
        *,
        path: Path | None = None,
        line: int | None = None,
        column: int | None = None,
        hint: str | None = None,
        log: Path | None = None,
        others: int = 0,
    ):
        self.message, self.path, self.line, self.column = message, path, line, column
        self.hint, self.log, self.others = hint, log, others
        self.source = line_of(path, line)  # now: by the time it is shown the file may differ
        super().__init__(message)

    def __str__(self) -> str:
        place = [label(self.path)] if self.path else []
        place += [str(n) for n in (self.line, self.column) if n]
        text = [": ".join(filter(None, [":".join(place), f"error: {self.message}"]))]
        if self.source is not None:
            gutter = f"{self.line:>5} | "
            text.append(gutter + self.source)
            if self.column:
                indent = re.sub(r"[^\t]", " ", self.source[: self.column - 1])
                text.append(" " * (len(gutter) - 2) + "| " + indent + "^")
        if self.hint:
            text.append(f"hint: {self.hint}")
        if self.others:
            text.append(f"({self.others} more error{'s' * (self.others > 1)} in the log)")
        if self.log:
            text.append(f"full log: {self.log}")
        return "\n".join(text)

    def _render_traceback_(self) -> list[str]:
        """What a notebook shows: the error alone, none of the loader's own frames."""
        return [f"{type(self).__name__}: {self}"]


# The first of these that matches the compiler's message (and the lines about it) is its hint.
HINTS = [
    (
        r"torch/extension\.h.*No such file|Python\.h.*No such file",
        "Python's headers are missing: install python3-dev (Debian) or use conda's python",
    ),
    (
        r"No such file or directory|cannot open source file",
        "headers are looked for beside the source, in kernels/include and in load(include=[...])",
    ),
    (
        r"(__half|__nv_bfloat16|c10::Half|c10::BFloat16|half).*"
        r"(ambiguous|no operator|more than one|no suitable|no match|cannot convert)"
        r"|(ambiguous|no operator|more than one|no suitable|no match).*"
        r"(__half|__nv_bfloat16|c10::Half|c10::BFloat16)",
        "convert by hand: float(x) to compute, T(y) to store",
    ),
    (r"expected .?;", "a semicolon is missing, most often at the end of the line before"),
    (
        r"calling a __host__ function.*from a __(device|global)__",
        "mark the called function __device__ (or __host__ __device__)",
    ),
    (
        r"was not declared in this scope|is undefined|has not been declared",
        "check the spelling, that it is declared above this line, and its #include",
    ),
    (
        r"undefined symbol|undefined reference",
        "the binding declares a function that no .cu defines: compare names and parameter types",
    ),
    (
        r"uses too much shared data",
        "static __shared__ memory is limited to 48 KiB a block: use extern __shared__ for more",
    ),
    (
        r"Unsupported gpu architecture|is not defined for option 'gpu-architecture'",
        "this nvcc does not know that architecture: set TORCH_CUDA_ARCH_LIST or take a newer nvcc",
    ),
]


def hint_for(*texts: str) -> str | None:
    """The hint for a message; failing that, for the compiler's longer text around it."""
    for text in texts:
        for pattern, hint in HINTS:
            if re.search(pattern, text):
                return hint
    return None


_ERROR = re.compile(
    r"^(?P<path>[^\s(:][^(:\n]*)"
    r"(?::(?P<line>\d+)(?::(?P<column>\d+))?:|\((?P<nvline>\d+)\):)"
    r" (?:fatal |catastrophic )?error(?: #[\w-]+)?: ?(?P<message>.*)$",
    re.MULTILINE,
)
_FROM = re.compile(  # the way from an error inside a header back to the user's own line
    r"^(?P<path>[^\s(:][^(:\n]*):(?P<line>\d+):(?:(?P<column>\d+):)?\s+(?:required|recursively)"
    r'|at line (?P<nvline>\d+) of "?(?P<nvpath>[^"\n]+?)"?$'
    r"|In file included from (?P<inpath>[^:\n]+):(?P<inline>\d+)",
    re.MULTILINE,
)
_ELSE = re.compile(
    r"^(?:ptxas (?:error|fatal)\s*: |nvcc (?:error|fatal)\s*: |.*(?=undefined reference to )"
    r"|.*(?=multiple definition of )|nvlink error\s*: )(?P<message>.*)$",
    re.MULTILINE,
)


def first_error(output: str, users: set[Path], log: Path) -> CompileError:
    """The first error, at the user's own line wherever the output tells it."""
    by_label = {name: p for p in users for name in (label(p), str(p))}
    found = list(_ERROR.finditer(output))
    here: list[tuple[re.Match, Path, int, int | None]] = []
    for i, match in enumerate(found):
        path = by_label.get(match["path"])
        if path:
            line = int(match["line"] or match["nvline"])
            here.append((match, path, line, _column(match, output, path, line)))
            continue
        before = found[i - 1].end() if i else 0
        after = found[i + 1].start() if i + 1 < len(found) else len(output)
        for way in _FROM.finditer(output, before, after):
            path = by_label.get(way["path"] or way["nvpath"] or way["inpath"])
            if path:
                line = int(way["line"] or way["nvline"] or way["inline"])
                here.append((match, path, line, int(way["column"]) if way["column"] else None))
                break
    if here:
        match, path, line, column = here[0]
        around = output[match.start() : match.end() + 400]
        return CompileError(
            match["message"],
            path=path,
            line=line,
            column=column,
            hint=hint_for(match["message"], around),
            log=log,
            others=len(found) - 1,
        )
    other = found[0] if found else _ELSE.search(output)
    message = other["message"] if other else "the build failed; the log says why"
    others = max(len(found) - 1, 0)
    return CompileError(message, hint=hint_for(message, output), log=log, others=others)


def _column(match: re.Match, output: str, path: Path, line: int) -> int | None:
    """g++ says the column; nvcc only draws a caret below the line it quotes."""
    if match["column"]:
        return int(match["column"])
    source = line_of(path, line)
    quoted, _, rest = output[match.end() + 1 :].partition("\n")
    caret = rest.partition("\n")[0]
    if source is None or caret.strip() != "^" or quoted.strip() not in source:
        return None
    shift = source.index(quoted.strip()) - (len(quoted) - len(quoted.lstrip()))
    return max(caret.index("^") + shift + 1, 1)
