"""Cells that run on the simulator on any machine, and so need no GPU to be published.

Such a code cell has the tag `simulator`; one that calls `lab.trace` is an example. It runs alone,
in its own process, so it imports and defines all that it uses, and no other cell uses its names.
publish.py therefore leaves it out of the digest of the code that ran on a GPU, and makes its output
on any machine. A digest in the notebook's metadata tells when that output is out of date: it covers
the cell, the CUDA files that it names, and the headers that these include.

If all code cells of a chapter have the tag, because the GPU that it is about is not available, they
run together from top to bottom and may use each other's names.
"""

import ast
import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import nbformat
from IPython.core.inputtransformer2 import TransformerManager

NOTEBOOKS = Path(__file__).resolve().parent
TAG = "simulator"
OUTPUTS = "outputs_of"  # in a notebook's metadata: {"code": the digest, "machine": a GPU's name}
DIGESTS = "simulator"  # beside these, if there are such cells: their digests, by cell id
FOLDERS = ("ladders", "exercises", "solutions", "../kernels")  # folders of a cell's CUDA files
HEADERS = NOTEBOOKS.parent / "kernels"
GENERATOR = r"torch\.Generator\(\w*\)\.manual_seed\(\d+\)"
PROGRESS = r"jitload: building|[^\n]*: built for cpu in [\d.]+ s$"
# A cell that contains one of these may change what later cells compute, so it cannot be deleted.
SIDE_EFFECTS = r"^[%!]|manual_seed|\brand\w*\(|[^\W_]_\("


def is_simulated(cell: nbformat.NotebookNode) -> bool:
    """Whether a cell is a code cell with the tag."""
    return cell.cell_type == "code" and TAG in cell.metadata.get("tags", ())


def is_whole(notebook: nbformat.NotebookNode) -> bool:
    """Whether all code cells of a chapter have the tag: they run together and share names."""
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return bool(code) and all(map(is_simulated, code))


def renew(notebook: nbformat.NotebookNode, execute: Callable[[nbformat.NotebookNode], None]) -> int:
    """Run the cells whose outputs are out of date, each as a notebook of its own.

    If all cells have the tag, all run if one is out of date. Returns how many are out of date.
    """
    noted = notebook.metadata[OUTPUTS]
    old = [cell for cell in notebook.cells if is_old(cell, noted.get(DIGESTS, {}))]
    if old and is_whole(notebook):
        execute(notebook)
    else:
        for cell in old:
            alone = nbformat.v4.new_notebook(cells=[cell])
            execute(alone)
            cell.outputs = alone.cells[0].outputs
    for cell in filter(is_simulated, notebook.cells):
        cell.outputs = [each for each in cell.outputs if not _is_progress(each)]
    noted.pop(DIGESTS, None)
    if states := {cell.id: _state(cell) for cell in notebook.cells if is_simulated(cell)}:
        noted[DIGESTS] = states
    return len(old)


def _is_progress(output: nbformat.NotebookNode) -> bool:
    """Whether an output is a build's progress, which only machines that have to build show."""
    said = output.get("data", {}).get("text/plain", output.get("text", ""))
    return output.get("name") == "stderr" or bool(re.match(PROGRESS, said))


def is_old(cell: nbformat.NotebookNode, noted: dict[str, str]) -> bool:
    """Whether the cell has the tag, and its output is not that of its present code."""
    return is_simulated(cell) and noted.get(cell.id) != _state(cell)


def _state(cell: nbformat.NotebookNode) -> str:
    """The digest, and whether the cell has no output, so that none is not taken as a lost one."""
    return digest(cell) + ("" if cell.outputs else ", no output")


def problems(notebook: nbformat.NotebookNode) -> Iterator[str]:
    """The problems that keep a chapter's simulator cells from being published."""
    noted = notebook.metadata.get(OUTPUTS, {}).get(DIGESTS, {})
    for cell in notebook.cells:
        if is_old(cell, noted):
            yield f"cell {cell.id} is not as it was published: python notebooks/publish.py --traces"
        if is_simulated(cell) and not is_whole(notebook) and (users := using(notebook, cell)):
            yield f"cell {cell.id} has the tag {TAG}, and others use what it defines: {users}"


def drop(notebook: nbformat.NotebookNode, name: str) -> None:
    """Delete a code cell that no other cell depends on, so that their outputs stay right.

    Raises ValueError if another cell may depend on it.
    """
    found = [cell for cell in notebook.cells if cell.id == name and cell.cell_type == "code"]
    if not found:
        raise ValueError(f"there is no code cell {name}")
    (cell,) = found
    source = re.sub(_drawing(cell.source), "", cell.source)
    if effect := re.search(SIDE_EFFECTS, re.sub(GENERATOR, "", source), re.M):
        raise ValueError(f"cell {name} may change what others compute: {effect[0]}")
    if changed := Names.of(cell).changed:
        raise ValueError(f"cell {name} may change what others compute: {', '.join(changed)}")
    if users := using(notebook, cell):
        raise ValueError(f"others use what cell {name} defines: {users}")
    notebook.cells.remove(cell)


def _drawing(source: str) -> str:
    """A pattern of calls that draw from a random generator which the cell itself makes."""
    own = re.findall(rf"^(\w+) = {GENERATOR}$", source, re.M)
    return rf"\brand\w*\((?:[^()]|\([^()]*\))*\bgenerator=(?:{'|'.join([GENERATOR, *own])})(?!\w)"


def using(notebook: nbformat.NotebookNode, cell: nbformat.NotebookNode) -> str:
    """The cell's names that later cells use, and where: "x in sum"; "" if there are none.

    A name that another cell imports, too, does not count.
    """
    code = [each for each in notebook.cells if each.cell_type == "code"]
    at = code.index(cell)
    own = Names.of(cell)
    others = code[:at] + code[at + 1 :]
    left = own.defined | own.imported - {
        name for each in others for name in Names.of(each).imported
    }
    users = []
    for later in map(Names.of, code[at + 1 :]):
        users += [f"{name} in {later.cell}" for name in sorted(left & later.used)]
        left -= later.defined | later.imported
    return ", ".join(users)


class Names:
    """Names that a cell's code defines and imports at its top level, and uses of other cells."""

    def __init__(self, cell: str):
        self.cell = cell  # its id
        self.defined: set[str] = set()
        self.imported: set[str] = set()
        self.used: set[str] = set()
        self.changed: list[str] = []  # other cells' names whose elements or attributes it sets

    @staticmethod
    def of(cell: nbformat.NotebookNode) -> "Names":
        """The names of a code cell; %%cu NAME also defines a name."""
        found = Names(cell.id)
        found._read(ast.parse(TransformerManager().transform_cell(cell.source)).body)
        if magic := re.match(r"%%cu\s+(\w+)", cell.source):
            found.defined.add(magic[1])
        return found

    def _read(self, body: list[ast.stmt]) -> None:
        for statement in body:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                called = (each.asname or each.name for each in statement.names)
                self.imported |= {name.partition(".")[0] for name in called}
            elif isinstance(statement, ast.FunctionDef | ast.ClassDef):
                self.defined.add(statement.name)  # it may call itself
                self._use([statement], inner=True)
            else:
                bodies = [getattr(statement, name, []) for name in ("body", "orelse", "finalbody")]
                inside = {id(each) for body in bodies for each in body}
                parts = [it for it in ast.iter_child_nodes(statement) if id(it) not in inside]
                self._use(parts)
                if isinstance(statement, ast.AugAssign):
                    self.used |= _stored([statement.target]) - self.defined
                self.defined |= _stored(parts)
                for each in bodies:
                    self._read(each)

    def _use(self, nodes: list[ast.AST], inner: bool = False) -> None:
        """Note names that are read but not defined before, nor in the nodes `inner`."""
        every = [each for node in nodes for each in ast.walk(node)]
        local = {each.arg for each in every if isinstance(each, ast.arg)}
        local |= _stored([it.target for it in every if isinstance(it, ast.comprehension)])
        local |= _stored(nodes) if inner else set()
        loaded = {
            each.id
            for each in every
            if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Load)
        }
        self.used |= loaded - local - self.defined - self.imported
        for each in every:
            if isinstance(each, ast.Subscript | ast.Attribute) and isinstance(each.ctx, ast.Store):
                whole = each.value
                while isinstance(whole, ast.Subscript | ast.Attribute | ast.Call):
                    whole = whole.func if isinstance(whole, ast.Call) else whole.value
                if not isinstance(whole, ast.Name) or whole.id not in local | self.defined:
                    self.changed.append(ast.unparse(each))


def _stored(nodes: list[ast.AST]) -> set[str]:
    """The names that are assigned to in these nodes, and not in a comprehension."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif not isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            found |= _stored(list(ast.iter_child_nodes(node)))
    return found


def digest(cell: nbformat.NotebookNode) -> str:
    """The digest of the cell's code, and of the CUDA files that it names as strings."""
    text = TransformerManager().transform_cell(cell.source)
    strings = {
        node.value
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    named = (
        NOTEBOOKS / folder / f"{string.removesuffix('.cu')}.cu"
        for string in sorted(strings)
        if re.fullmatch(r"[\w/.]+", string)
        for folder in FOLDERS
    )
    said = hashlib.sha256(cell.source.encode())
    files = [path for path in named if path.is_file()]
    for path in files:  # it grows
        read = path.read_text()
        said.update(read.encode())
        for header in re.findall(r'^#include "([^"]+)"', read, re.M):
            there = [path.parent / header, *sorted(HEADERS.rglob(Path(header).name))]
            files += [each for each in there if each.is_file() and each not in files][:1]
    return said.hexdigest()[:16]
