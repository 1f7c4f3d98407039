"""Renews the source listings in chapters without running their cells.

publish.py compares these outputs with the sources, because whoever edits a kernel does not run the
chapters that list it. An output names its files, and its call of lab.source names what it lists.
Files that a chapter writes itself, to what publish.py calls tmp/, are left alone.
"""

import ast
import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import nbformat

import jitload
from lab.notebook.source import Source, definition, listing

ROOT = Path(__file__).resolve().parent.parent
# Folders to which a function may have moved.
SOURCES = ("kernels/**/*.cu*", "kernels/**/*.h", "notebooks/ladders/*.cu")
MARKDOWN = "text/markdown"  # no other output has it


@dataclass(frozen=True)
class Listing:
    """What a call of lab.source shows in a chapter, and what it would show now."""

    cell: str  # its id
    call: str
    shown: nbformat.NotebookNode  # the output's data, by type
    source: Source | None = None
    trouble: str = ""  # why there is no source

    @property
    def data(self) -> dict[str, str]:
        """The output's data for the sources as they are now."""
        return {MARKDOWN: self.source._repr_markdown_(), "text/plain": repr(self.source)}

    @property
    def is_old(self) -> bool:
        return self.source is not None and self.shown != self.data


def listings(notebook: nbformat.NotebookNode) -> Iterator[Listing]:
    """The listings of a chapter, in order."""
    for cell in notebook.cells:
        if cell.cell_type != "code":
            continue
        calls = calls_in(cell.source)
        outputs = [each.data for each in cell.outputs if files_of(each.get("data", {}))]
        if len(calls) != len(outputs):
            trouble = f"{len(outputs)} listings of {len(calls)} calls; wanted is one of each"
            yield Listing(cell.id, "lab.source", nbformat.NotebookNode(), trouble=trouble)
            continue
        for call, shown in zip(calls, outputs, strict=True):
            files = files_of(shown)
            if files[0].is_relative_to(ROOT / "tmp"):
                continue
            try:
                made, trouble = source_of(call, files), ""
            except (OSError, ValueError) as error:
                made, trouble = None, str(error)
            yield Listing(cell.id, ast.unparse(call), shown, made, trouble)


def files_of(data: nbformat.NotebookNode) -> list[Path]:
    """The files that a listing of `lab.source` names; empty if the output is no listing."""
    named = re.match(r"`([^`\n]+)`\n\n```", data.get(MARKDOWN, ""))
    return [ROOT / label for label in named[1].split(", ")] if named else []


def calls_in(source: str) -> list[ast.Call]:
    """The calls of lab.source in a cell, in the order in which they are written."""
    if "lab.source(" not in source:
        return []
    tree = ast.parse(re.sub(r"^[%!].*", "", source, flags=re.MULTILINE))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    calls = [call for call in calls if ast.unparse(call.func) == "lab.source"]
    return sorted(calls, key=lambda call: (call.lineno, call.col_offset))


def source_of(call: ast.Call, files: list[Path]) -> Source:
    """What a call, whose output was taken from these files, lists now."""
    of, *arguments = call.args
    names = [each.value for each in arguments if isinstance(each, ast.Constant)]
    if len(names) != len(arguments):
        raise ValueError("not all names are written as strings")
    if names:
        places = [place_of(name, files) for name in names]
        texts = {jitload.label(place): place.read_text() for place in places}
        return listing(places[0], names, texts)
    if files[0].suffix == ".py" and isinstance(of, ast.Attribute | ast.Name):
        return python_source(of.attr if isinstance(of, ast.Attribute) else of.id, files[0])
    return listing(files[0], names)


def place_of(name: str, files: list[Path]) -> Path:
    """The first of these files that defines a name. If it has moved: the only file that defines
    it, or that has the file's name in another folder."""
    if places := [path for path in files if defines(path, name)]:
        return places[0]
    moved = [path for where in SOURCES for path in sorted(ROOT.glob(where)) if defines(path, name)]
    renamed = [path for path in moved if path.name in {file.name for file in files}]
    for found in (moved, renamed):
        if len(found) == 1:
            return found[0]
    there = ", ".join(map(jitload.label, moved)) or "no file"
    raise ValueError(f"{jitload.label(files[0])} defines no {name!r}; {there} does")


def defines(path: Path, name: str) -> bool:
    with contextlib.suppress(ValueError, FileNotFoundError):
        text = path.read_text()
        return name in text and bool(definition(text, name, ""))
    return False


def python_source(name: str, path: Path) -> Source:
    """The source of a module's function or class."""
    text = path.read_text()
    for node in ast.parse(text).body:
        if getattr(node, "name", None) == name:
            first = min(each.lineno for each in (node, *node.decorator_list))
            lines = text.splitlines()[first - 1 : node.end_lineno]
            return Source("\n".join(lines), "python", jitload.label(path))
    raise ValueError(f"{jitload.label(path)} defines no {name!r}")
