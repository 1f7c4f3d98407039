"""PTX, compiled again from the sources that a build keeps, with the build's flags."""

from __future__ import annotations

import re
import shlex
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from toolchain.errors import MissingTool
from toolchain.instructions import Function, Instruction, Place, functions
from toolchain.sources import labelled

_COMMAND = re.compile(r"^\[\d+/\d+\] (?P<command>\S*nvcc\b.* -o (?P<source>\d+)\.\S*o) *$", re.M)
_ARCHITECTURE = re.compile(r"code=(?:sm|compute)_(\w+)")
_TARGET = re.compile(r"\.target\s+sm_(\w+)")
_BEGIN = re.compile(r"^(?:\.(?:visible|weak|extern)\s+)*\.(?:entry|func)\b[^;]*?\b([\w$]+)\s*\(?$")
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.MULTILINE)
_LOC = re.compile(
    r"\s*\.loc\s+(\d+) (\d+) (\d+)(?:, function_name [^,]*, inlined_at (\d+) (\d+) (\d+))?"
)


@lru_cache(maxsize=8)
def ptx(build: Path, log: str, kept: tuple[tuple[str, str], ...]) -> tuple[Function, ...]:
    """Every function of a build in PTX, for each of its architectures.

    build: its folder. log: its compilers' output. kept: its sources, then its headers, as pairs of
        a name and the file in the folder sources/.

    Raises:
        MissingTool: there is no nvcc.
        RuntimeError: it does not compile any more.
    """
    by_symbol: dict[tuple[str, str], list[Instruction]] = {}
    with tempfile.TemporaryDirectory(prefix="ptx-") as name:
        tree = Path(name).resolve()
        placed = [_placed(tree, labelled(label)) for label, _ in kept]
        for place, (_, file) in zip(placed, kept, strict=True):
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes((build / "sources" / file).read_bytes())
        for command in _COMMAND.finditer(log):
            words, source = shlex.split(command["command"]), placed[int(command["source"])]
            for architecture in sorted(set(_ARCHITECTURE.findall(command["command"]))):
                text = _compiled(words, source, architecture, tree)
                by_symbol |= parsed(text.replace(f'"{tree}/', '"/'))
    return tuple(functions(by_symbol))


def _placed(tree: Path, path: Path) -> Path:
    return tree / path.relative_to(path.anchor)


def _compiled(words: list[str], source: Path, architecture: str, tree: Path) -> str:
    """nvcc's PTX of a source, restored below `tree`, with the flags of a recorded command."""
    nvcc = words[0]
    if not Path(nvcc).is_file():
        raise MissingTool(f"{nvcc} is gone, with which this was built: build it anew")
    flags = list(_flags(words[1:]))
    folders = [Path(flag[2:]) for flag in flags if flag.startswith("-I/")]
    restored = [f"-I{place}" for folder in folders if (place := _placed(tree, folder)).is_dir()]
    command = [nvcc, *restored, *flags, "-ptx", f"-arch=compute_{architecture}", str(source)]
    done = subprocess.run([*command, "-o", "-"], cwd=tree, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"nvcc makes no PTX of {source.name}:\n{done.stderr.strip()}")
    return done.stdout


def _flags(words: list[str]) -> Iterator[str]:
    """The flags that say how to compile, without files and architectures."""
    rest = iter(words)
    for word in rest:
        if word in ("-c", "-o", "-gencode", "-MF"):
            next(rest, None)
        elif not re.match(r"-gencode=|--split-compile|-Xptxas|-M|--generate-dep|-arch|-t=", word):
            yield word


def parsed(text: str) -> dict[tuple[str, str], list[Instruction]]:
    """The instructions of a PTX file, by symbol and architecture."""
    files = dict(_FILE.findall(text))
    target = _TARGET.search(text)
    architecture = f"compute_{target[1]}" if target else ""
    by_symbol: dict[tuple[str, str], list[Instruction]] = {}
    code: list[Instruction] | None = None
    symbol = ""
    outer: dict[tuple[str, ...], tuple[Place, ...]] = {}  # for each place, where it was inlined
    places: tuple[Place, ...] = ()
    for line in _statements(text.splitlines()):
        if match := _BEGIN.match(line):
            symbol = match[1]
        elif line == "{" and symbol:
            code = by_symbol.setdefault((symbol, architecture), [])
            outer, places = {}, ()
        elif line == "}":
            code, symbol = None, ""
        elif code is None:
            continue
        elif match := _LOC.match(line):
            file, number, column, *at = match.groups()
            if at[0]:
                up = _place(files, at[0], at[1])
                outer[file, number, column] = (*up, *outer.get(tuple(at), ()))
            places = (*_place(files, file, number), *outer.get((file, number, column), ()))
        elif line.endswith(":"):
            code.append(Instruction(line[:-1], (), is_label=True))
        elif not line.startswith(".pragma"):
            is_declared = line.startswith(".")
            code.append(Instruction(line.rstrip(";"), places, is_label=is_declared))
    return by_symbol


def _place(files: Mapping[str, str], file: str, line: str) -> tuple[Place, ...]:
    """A place, if the line is in the source: line 0 is not."""
    return (Place(files.get(file, ""), int(line)),) if line != "0" else ()


def _statements(lines: Iterable[str]) -> Iterator[str]:
    """A file's lines without comments, empty ones and the braces around inline assembly."""
    for line in lines:
        statement = re.sub(r"\s+", " ", line.partition("//")[0]).strip()
        if statement and (statement not in ("{", "}") or not line[:1].isspace()):
            yield statement
