"""Cells with the tag `simulator`: published without a GPU, and apart from what ran on one."""

import nbformat
import pytest

from notebooks import publish, simulated

TAGS = {"tags": ["simulator"]}


def code(name: str, source: str, **more) -> nbformat.NotebookNode:
    return nbformat.v4.new_code_cell(source, id=name, **more)


@pytest.fixture
def chapter(tmp_path, monkeypatch):
    """A published chapter, to which a cell that runs on the simulator has been added."""
    path = tmp_path / "07_own.ipynb"
    monkeypatch.setattr(publish, "chapters", lambda: [path])
    shown = nbformat.v4.new_output("stream", name="stdout", text="a GPU's")
    notebook = nbformat.v4.new_notebook(cells=[code("a", "x = 1\nprint(x)", outputs=[shown])])
    notebook.metadata[publish.OUTPUTS] = {"code": publish.code_digest(notebook), "machine": "a GPU"}
    notebook.cells.append(code("b", "import sys\nprint('x' in globals())\n6 * 7", metadata=TAGS))
    nbformat.write(publish.tidy(notebook), path)
    return path


def read(path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def change(path, name: str, source: str) -> None:
    notebook = read(path)
    next(cell for cell in notebook.cells if cell.id == name).source = source
    nbformat.write(notebook, path)


def test_its_output_is_made_alone_and_the_gpus_are_kept(chapter):
    (problem,) = publish.problems_of(chapter)
    assert "cell b is not as it was published: python notebooks/publish.py --traces" in problem
    noted = read(chapter).metadata[publish.OUTPUTS]["code"]

    assert publish.renew_traces(chapter) == 1
    gpus, own = read(chapter).cells
    assert [output.get("text") for output in gpus.outputs] == ["a GPU's"]
    assert own.outputs[0].text == "False\n"  # in a process of its own
    assert own.outputs[1].data["text/plain"] == "42"
    assert read(chapter).metadata[publish.OUTPUTS]["code"] == noted
    assert publish.problems_of(chapter) == []
    assert not publish.edited(chapter)

    before = chapter.read_text()
    assert publish.renew_traces(chapter) == 0
    assert chapter.read_text() == before
    change(chapter, "b", "6 * 8")
    assert publish.edited(chapter)
    (problem,) = publish.problems_of(chapter)
    assert "cell b is not as" in problem
    change(chapter, "a", "x = 2")
    assert any("the code has changed" in problem for problem in publish.problems_of(chapter))


def test_a_chapter_of_nothing_else_runs_as_a_whole(chapter, monkeypatch):
    monkeypatch.setattr(publish, "require_gpu", lambda: pytest.fail("no GPU is needed"))
    cells = [nbformat.v4.new_markdown_cell("# 7", id="intro")]
    cells += [
        code(name, source, metadata=TAGS) for name, source in (("a", "x = 6"), ("b", "x * 7"))
    ]
    nbformat.write(publish.tidy(nbformat.v4.new_notebook(cells=cells)), chapter)
    (problem, *_) = publish.problems_of(chapter)
    assert problem.startswith("nobody has published it: python notebooks/publish.py")

    assert publish.renew_traces(chapter) == 2
    intro, first, last = read(chapter).cells
    assert "made by the simulator, without a GPU" in intro.source
    assert first.outputs == []
    assert last.outputs[0].data["text/plain"] == "42"
    assert publish.problems_of(chapter) == []
    assert not publish.edited(chapter)
    assert publish.renew_traces(chapter) == 0
    change(chapter, "a", "x = 5")
    assert publish.edited(chapter)
    monkeypatch.setattr(publish, "note_exercises", lambda: None)
    monkeypatch.setattr("sys.argv", ["publish.py", str(chapter)])
    assert publish.main() == 0
    assert read(chapter).cells[2].outputs[0].data["text/plain"] == "35"
    assert read(chapter).cells[0].source.count("The outputs in this notebook") == 1
    cleared = read(chapter)
    cleared.cells[2].outputs = []
    nbformat.write(cleared, chapter)
    assert publish.edited(chapter)


def test_publishing_runs_it_once_and_alone(chapter, tmp_path):
    runs = tmp_path / "runs"
    change(chapter, "b", f"print('x' in globals(), file=open({str(runs)!r}, 'a'))")
    notebook = read(chapter)
    publish.run(notebook, tmp_path, "another GPU")
    assert notebook.cells[0].outputs[0].text == "1\n"
    assert notebook.metadata[publish.OUTPUTS]["machine"] == "another GPU"
    publish.run(notebook, tmp_path, "another GPU")
    assert runs.read_text() == "False\n"


def test_an_error_in_it_leaves_the_chapter_as_it_was(chapter):
    change(chapter, "b", "print(x)")  # another cell's
    before = chapter.read_text()
    with pytest.raises(Exception, match="name 'x' is not defined"):
        publish.renew_traces(chapter)
    assert chapter.read_text() == before


def test_no_other_cell_uses_what_it_defines(chapter):
    notebook = read(chapter)
    notebook.cells[1].source = "import math\nfound, lost = 1, 2"
    notebook.cells.append(code("c", "found = found + 1"))
    notebook.cells.append(code("d", "print(found, math.pi, [lost for lost in (1, 2)])"))
    told = [each for each in simulated.problems(notebook) if "has the tag" in each]
    assert told == [
        "cell b has the tag simulator, and others use what it defines: found in c, math in d"
    ]


def test_its_digest_is_that_of_the_files_that_it_names(tmp_path, monkeypatch):
    monkeypatch.setattr(simulated, "NOTEBOOKS", tmp_path)
    monkeypatch.setattr(simulated, "HEADERS", tmp_path / "kernels")
    for name in ("ladders/03_own.cu", "kernels/include/rows.cuh", "kernels/include/vec.cuh"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "ladders/03_own.cu").write_text('#include "rows.cuh"\n')
    (tmp_path / "kernels/include/rows.cuh").write_text('#include "vec.cuh"\n#include "no.cuh"\n')
    cell = code("b", "lab.trace(lab.ladder('03_own').tree)", metadata=TAGS)
    digests = {simulated.digest(cell)}
    for name in ("ladders/03_own.cu", "kernels/include/vec.cuh"):
        with (tmp_path / name).open("a") as file:
            file.write("// more\n")
        digests.add(simulated.digest(cell))
    assert len(digests) == 3


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("y = 1", "others use what cell a defines: y in c"),
        ("def y():\n    pass", "others use what cell a defines: y in c"),
        ("import y", "others use what cell a defines: y in c"),
        ("%%cu y\nvoid f() {}", "may change what others compute"),
        ("torch.manual_seed(1)", "may change what others compute"),
        ("v = torch.randn(3)", "may change what others compute"),
        ("v = torch.randn(3, generator=x)", "may change what others compute"),
        ("torch.manual_seed(1)\ntorch.rand(3, generator=y)", "may change what others compute"),
        ("x.zero_()", "may change what others compute"),
        ("x[0] = 1", "may change what others compute"),
        ("x.all()[0] = 1", "may change what others compute"),
        ("x.y = 1", "may change what others compute"),
    ],
)
def test_a_cell_that_others_need_is_not_deleted(source, told):
    cells = [code("x", "import torch"), code("a", source), code("c", "print(y)")]
    notebook = nbformat.v4.new_notebook(cells=cells)
    with pytest.raises(ValueError, match=told):
        simulated.drop(notebook, "a")
    assert len(notebook.cells) == 3


def test_a_cell_that_no_other_needs_is_deleted(chapter):
    notebook = read(chapter)
    function = "def f(v):\n    v[0] = 1\n    v.all()[0] = 1\n    super().__init__(v)\n\n\n"
    source = function + (
        "g = torch.Generator().manual_seed(0)\ny = torch.randint(2, (3, 4), generator=g)\n"
        "y = torch.rand(3, generator=torch.Generator().manual_seed(0))"
    )
    notebook.cells.insert(0, code("d", source))
    notebook.cells.append(code("e", "for y in (1, 2):\n    print(y)"))
    notebook.metadata[publish.OUTPUTS]["code"] = publish.code_digest(notebook)
    nbformat.write(notebook, chapter)
    publish.drop(chapter, "d")
    assert [cell.id for cell in read(chapter).cells] == ["a", "b", "e"]
    assert not any("code has changed" in problem for problem in publish.problems_of(chapter))
    change(chapter, "a", "x = 3")
    with pytest.raises(SystemExit, match="is not as it was published"):
        publish.drop(chapter, "e")
