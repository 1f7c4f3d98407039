"""The Python files of a package: the op's own kernels/NAME.py, its helpers and its reference.

Their imports from this project are replaced by files of the package, so that the text of the
formulas stays as it was tested here.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import jitload

TEMPLATES = Path(__file__).with_name("templates")
LIBRARY = Path(jitload.__file__).resolve().parent  # of this project; the user's ops may lie apart
REFERENCE = jitload.KERNELS.parent / "reference.py"
# Files of ours that need nothing but PyTorch, by their names in a package.
COPIES = {
    "gradient_text.py": "jitloader/gradient_text.py",
    "error.py": "lab/measure/error.py",
}
COPIES_FOR_C = {
    "c_calls.py": "jitloader/cfunctions.py",
    "c_declarations.py": "toolchain/signatures.py",
    "guards.py": "jitloader/guards.py",  # a package has none: its calls are not guarded
}
_IN_COPIES = {"toolchain.signatures": "PACKAGE.c_declarations", "jitloader": "PACKAGE"}


def template(name: str, package: str) -> str:
    """A file of templates/, with the package's name in it."""
    return within(re.sub(r"\bPACKAGE\b", package, (TEMPLATES / name).read_text()), package)


def copy(source: str, package: str) -> str:
    """A file of the project's, whose imports are the package's."""
    text = (LIBRARY / source).read_text()
    for ours, theirs in _IN_COPIES.items():
        text = text.replace(f"from {ours} import", f"from {theirs} import")
    return within(re.sub(r"\bPACKAGE\b", package, text), package)


def within(text: str, package: str) -> str:
    """A module's text with relative imports of the package: it may be loaded under any name."""
    text = re.sub(rf"(?m)^from {package} import ", "from . import ", text)
    return re.sub(rf"(?m)^from {package}\.(\w+) import ", r"from .\1 import ", text)


# ---- an op's own file


def op_file(path: Path, handle: str) -> str:
    """The text of kernels/NAME.py, where `handle` stands for what jitload.load returns there.

    Raises:
        ValueError: it uses more of jitload than load.
    """
    text = path.read_text()
    tree = ast.parse(text)
    edits: list[tuple[int, int, str]] = []
    lines = Lines(text)
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=[ast.alias(name="jitload", asname=None)]):
                start, stop = lines.span(node)
                edits.append((start, stop + 1, ""))  # with the end of the line
            case ast.ImportFrom(module="kernels", names=names):
                edits.append((*lines.span(node), _import_of(names)))
            case ast.Call(func=ast.Attribute(value=ast.Name(id="jitload"), attr="load")):
                edits.append((*lines.span(node), handle))
            case ast.Attribute(value=ast.Name(id="jitload"), attr=attribute) if attribute != "load":
                raise ValueError(
                    f"{path}:{node.lineno}: a package has no jitload.{attribute}; of jitload its"
                    " Python may use load alone"
                )
    made, home = home_of(handle)
    return _with_import(edited(text, edits), f"from {home} import {made}")


def home_of(handle: str) -> tuple[str, str]:
    """The class of a handle, and the module that an op's own file imports it from."""
    made = handle.partition("(")[0]
    return made, {"Kernel": "..kernel", "Functions": "..functions", "Module": "..modules"}[made]


def _import_of(names: list[ast.alias]) -> str:
    """The imports that replace `from kernels import ...`: modules of ops, and helpers."""
    known = jitload.op_files(".py")
    ops = [it.name for it in names if it.name in known]
    helpers = [it.name for it in names if it.name not in ops]
    found = [f"from . import {', '.join(ops)}"] if ops else []
    found += [f"from ..helpers import {', '.join(helpers)}"] if helpers else []
    return "\n".join(found)


def helpers_of(path: Path) -> set[str]:
    """The names that a file imports from kernels/__init__.py, without modules of ops."""
    return _from_kernels(path) - ops_of(path)


def ops_of(path: Path) -> set[str]:
    """The other ops that a file imports."""
    return _from_kernels(path) & jitload.op_files(".py").keys()


def _from_kernels(path: Path) -> set[str]:
    found = (node for node in ast.walk(ast.parse(path.read_text())))
    return {
        it.name
        for node in found
        if isinstance(node, ast.ImportFrom) and node.module == "kernels"
        for it in node.names
    }


def _with_import(text: str, line: str) -> str:
    """The text with one more import after its others."""
    body = ast.parse(text).body
    imports = [it for it in body if isinstance(it, ast.Import | ast.ImportFrom)]
    if not imports:
        docstring = ast.get_docstring(ast.parse(text)) is not None
        place = body[0].end_lineno if docstring else 0
        return _inserted(text, place, f"\n{line}\n")
    return _inserted(text, imports[-1].end_lineno, f"{line}\n")


def _inserted(text: str, line: int, what: str) -> str:
    lines = text.splitlines(keepends=True)
    return "".join([*lines[:line], what, *lines[line:]])


# ---- parts of a file


class Lines:
    """Converts `ast`'s lines and UTF-8 columns to offsets in a text."""

    def __init__(self, text: str) -> None:
        self.text = text.encode()
        self.starts = [0]
        for line in self.text.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))

    def span(self, node: ast.AST) -> tuple[int, int]:
        begin = self.starts[node.lineno - 1] + node.col_offset
        end = self.starts[node.end_lineno - 1] + node.end_col_offset
        return len(self.text[:begin].decode()), len(self.text[:end].decode())


def edited(text: str, edits: Iterable[tuple[int, int, str]]) -> str:
    parts, end = [], 0
    for start, stop, instead in sorted(edits):
        parts += text[end:start], instead
        end = stop
    return "".join(parts) + text[end:]


def extract(text: str, wanted: set[str], always: set[str] = frozenset()) -> str:
    """The wanted definitions of a module, and the definitions that they use.

    Imports are kept if they are used. Definitions that are only used lose their @op, because they
    are no ops of the package. `always`: names that are kept as well.
    """
    tree = ast.parse(text)
    defined = {name: node for node in tree.body for name in _names_of(node)}
    kept: set[int] = set()
    waiting = [defined[name] for name in (*sorted(wanted), *sorted(always)) if name in defined]
    while waiting:
        node = waiting.pop()
        if id(node) in kept:
            continue
        kept.add(id(node))
        waiting += [defined[name] for name in _used(node) if name in defined]
    lines, parts = text.splitlines(keepends=True), []
    used = {name for node in tree.body if id(node) in kept for name in _used(node)}
    for before, node in zip([None, *tree.body], tree.body, strict=False):
        if isinstance(node, ast.Import | ast.ImportFrom):
            found = _import_lines(node, used)
            is_apart = before is not None and before.end_lineno < node.lineno - 1
            parts += ["\n", *found] if found and is_apart and parts else found
        elif id(node) in kept:
            if wanted.isdisjoint(_names_of(node)) and _is_op(node):
                parts += "\n\n", "".join(lines[node.lineno - 1 : node.end_lineno]), "\n"
            else:
                parts.append(_with_comments(lines, before, node))
    return _tidy("".join(parts))


def _tidy(text: str) -> str:
    return re.sub(r"\n{4,}", "\n\n\n", text).strip("\n") + "\n"


def _names_of(node: ast.stmt) -> Iterator[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            yield name
        case ast.Assign(targets=targets):
            yield from (t.id for t in targets if isinstance(t, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)):
            yield name


def _used(node: ast.AST) -> set[str]:
    return {it.id for it in ast.walk(node) if isinstance(it, ast.Name)}


def _import_lines(node: ast.Import | ast.ImportFrom, used: set[str]) -> list[str]:
    names = [it for it in node.names if (it.asname or it.name.partition(".")[0]) in used]
    if not names:
        return []
    kept = type(node)(**{**vars(node), "names": names})
    line = ast.unparse(kept)
    if len(line) > 100:
        listed = "".join(f"    {ast.unparse(it)},\n" for it in names)
        line = f"from {node.module} import (\n{listed})"
    return [f"{line}\n"]


def _is_op(node: ast.stmt) -> bool:
    decorators = getattr(node, "decorator_list", [])
    return any(ast.unparse(it).startswith("op(") for it in decorators)


def _with_comments(lines: list[str], before: ast.stmt | None, node: ast.stmt) -> str:
    """A definition, with its decorators and the comment above it."""
    first = min([node.lineno, *(it.lineno for it in getattr(node, "decorator_list", []))]) - 1
    least = before.end_lineno if before else 0
    while first > least and lines[first - 1].startswith("#"):
        first -= 1
    gap = "\n\n" if isinstance(node, ast.FunctionDef | ast.ClassDef) else ""
    apart = "\n" if not gap and (first == least or not lines[first - 1].strip()) else ""
    return gap + apart + "".join(lines[first : node.end_lineno]) + ("" if not gap else "\n")


# ---- the files that are made of parts


def helpers_file(wanted: set[str]) -> str:
    """helpers.py: those functions of kernels/__init__.py."""
    text = (jitload.KERNELS / "__init__.py").read_text()
    known = {name for node in ast.parse(text).body for name in _names_of(node)}
    if unknown := wanted - known:
        raise ValueError(f"kernels/__init__.py has no {', '.join(sorted(unknown))}")
    return '"""What the operators check, and shapes of their results."""\n\n' + extract(
        text, wanted
    )


# The machinery of reference.py: what a test, a proof and a figure find the ops by.
_MACHINERY = {"OPS", "Op", "op", "size_of"}


def reference_file(wanted: set[str], more: Path | None = None) -> str:
    """reference.py: the truth of these ops, from reference.py here or from the user's own file.

    more: the user's file, whose functions are found first.

    Raises:
        ValueError: the user's file does not define what is wanted.
    """
    ours = REFERENCE.read_text()
    head = '"""The truth: each operator in plain PyTorch, and the shapes of its inputs."""\n\n'
    if more is None:
        return head + extract(ours, wanted & _functions(ours), _MACHINERY)
    theirs = re.sub(r"(?m)^(?:from reference import .*|import reference)\n", "", more.read_text())
    theirs = theirs.replace("@reference.op", "@op")
    if missing := wanted - _functions(theirs):
        raise ValueError(
            f"{more} has no function {', '.join(sorted(missing))}, and that is where the truth of"
            " the op is wanted"
        )
    machinery = extract(ours, set(), _MACHINERY)
    tree = ast.parse(theirs)
    imports = [ast.unparse(n) for n in tree.body if isinstance(n, ast.Import | ast.ImportFrom)]
    missing = [line for line in imports if line not in machinery]
    body = re.sub(r'\A("""|\'\'\')[\s\S]*?\1', "", extract_all(theirs)).strip()
    return f"{head}{chr(10).join([*missing, ''])}{machinery}\n\n{body}\n"


def extract_all(text: str) -> str:
    """A module's text without its imports."""
    lines = Lines(text)
    nodes = (n for n in ast.parse(text).body if isinstance(n, ast.Import | ast.ImportFrom))
    return edited(text, [(*lines.span(node), "") for node in nodes])


def _functions(text: str) -> set[str]:
    return {n.name for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)}


def references(names: Iterable[str]) -> set[str]:
    """Those ops that have a function in reference.py here."""
    return set(names) & _functions(REFERENCE.read_text())
