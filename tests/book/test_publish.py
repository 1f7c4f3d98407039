"""What is fit to publish, and that a reader's work breaks neither the tests nor the book."""

import copy
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import nbformat
import pytest

import jitload
import lab
import reference
from lab.notebook.source import Source
from notebooks import publish
from notebooks.site import book

ROOT = publish.ROOT
START = publish.NOTEBOOKS / "00_start.ipynb"

code, text = nbformat.v4.new_code_cell, nbformat.v4.new_markdown_cell


def as_saved(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """What JupyterLab saves of a notebook that has been run."""
    notebook.metadata.language_info = {"name": "python", "version": "3.13.1"}
    number = 0
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.execution_count = number = number + 1
            cell.metadata.execution = {"iopub.execute_input": "2030-01-02T03:04:05Z"}
    return notebook


def take_for_published(notebook: nbformat.NotebookNode) -> None:
    made = {"code": publish.code_digest(notebook), "machine": "a GPU"}
    notebook.metadata[publish.OUTPUTS] = made
    publish.with_note(notebook)


def rewrite(path: Path, change: Callable) -> None:
    """Change a notebook in place, or write what `change` returns."""
    notebook = nbformat.read(path, as_version=4)
    nbformat.write(change(notebook) or notebook, path)


@pytest.fixture
def chapter(tmp_path, monkeypatch) -> Path:
    """A book of one chapter, as published, in which a test may edit."""
    monkeypatch.setattr(publish, "chapters", lambda: [tmp_path / "07_own.ipynb"])
    path = tmp_path / "07_own.ipynb"
    output = nbformat.v4.new_output("execute_result", {"text/plain": "07_sum: not yet: no answer"})
    cells = [text("# 7", id="a"), code('check("07_sum", ...)', id="b", outputs=[output])]
    nbformat.write(publish.tidy(nbformat.v4.new_notebook(cells=cells)), path)
    rewrite(path, take_for_published)
    return path


# ---------------------------------------------------------------------------- the digest


def test_digest_is_that_of_the_code_alone():
    def digest(*cells):
        return publish.code_digest(nbformat.v4.new_notebook(cells=list(cells)))

    assert digest(code("x = 1"), text("one")) == digest(text("two"), code("x = 1"))
    assert digest(code("x = 1")) != digest(code("x = 2"))
    assert digest(code("a"), code("b")) != digest(code("b"), code("a"))


# ---------------------------------------------------------------------------- fit to publish?


def test_the_chapters_are_those_of_the_index(tmp_path, monkeypatch):
    monkeypatch.setattr(publish, "NOTEBOOKS", tmp_path)
    monkeypatch.setattr(publish, "INDEX", tmp_path / "index.md")
    publish.INDEX.write_text(
        "| [Model](primer.ipynb) | [Start](00_start.ipynb) | [terms](glossary.md)\n"
        "[Model](primer.ipynb), [site](https://example.org/07_x.ipynb), [own](mine/08_x.ipynb)\n"
    )
    (tmp_path / "99_mine.ipynb").touch()
    assert publish.chapters() == [tmp_path / "primer.ipynb", tmp_path / "00_start.ipynb"]
    assert publish.pages() == [tmp_path / "glossary.md"]


def test_a_published_chapter_is_fit(chapter):
    assert publish.problems_of(chapter) == []
    assert not publish.edited(chapter)


def solved(notebook):
    notebook.cells[1].outputs[0].data["text/plain"] = "07_sum: passed"


def changed(notebook):
    notebook.cells[1].source += "\nprint(1)"


def cleared(notebook):
    notebook.cells[1].outputs = []


def unpublished(notebook):
    del notebook.metadata[publish.OUTPUTS]


@pytest.mark.parametrize(
    ("change", "told", "by_a_reader"),
    [
        (as_saved, "it holds traces of an editor or of a machine", True),
        (changed, "the code has changed since it was published: on a machine with a GPU", True),
        (cleared, "the outputs are gone", False),
        (unpublished, "nobody has published it", False),
        (solved, "cell b shows an exercise that is not unsolved", False),
    ],
)
def test_what_is_not_fit_is_told(chapter, change, told, by_a_reader):
    rewrite(chapter, change)
    (problem,) = publish.problems_of(chapter)
    assert problem.startswith(told)
    assert publish.edited(chapter) == by_a_reader


@pytest.mark.filterwarnings("ignore:Non-unique cell id")
def test_two_cells_of_one_id_are_not_fit(chapter):
    chapter.write_text(chapter.read_text().replace('"id": "b"', '"id": "a"'))
    assert publish.problems_of(chapter) == ["several cells have the id a"]


def test_a_path_of_this_machine_is_not_fit_and_tidying_removes_it(chapter, monkeypatch):
    monkeypatch.setattr(Path, "home", lambda: Path("/home/somebody"))

    def name_home(notebook):
        notebook.cells[1].outputs[0].data["text/plain"] += " /home/somebody/x.cu"

    rewrite(chapter, name_home)
    (problem,) = publish.problems_of(chapter)
    assert "traces" in problem
    rewrite(chapter, publish.tidy)
    assert "not yet: no answer ~/x.cu" in chapter.read_text()
    assert publish.problems_of(chapter) == []


def test_a_cell_has_no_number_of_a_process(chapter):
    def warn(notebook):
        warned = f"{tempfile.gettempdir()}/ipykernel_13/2941.py:10: UserWarning: hot"
        notebook.cells[1].outputs[0].data["text/plain"] += f"\n{warned}"

    rewrite(chapter, warn)
    rewrite(chapter, publish.tidy)
    assert "cell:10: UserWarning: hot" in chapter.read_text()


def test_what_is_no_notebook_is_told(chapter):
    chapter.write_text("<<<<<<< HEAD\n")
    assert len(publish.problems_of(chapter)) == 1
    chapter.unlink()
    assert "No such file" in publish.problems_of(chapter)[0]


# ---------------------------------------------------------------------------- listings


@pytest.fixture
def listing(chapter) -> Path:
    """The same with listings: of Python, of a kernel, a header, a ladder, a file of its own."""
    from kernels.square import kernel  # late: importing it may build it

    ladder = publish.NOTEBOOKS / "ladders/01_copy.cu"
    mine = Source("void f() {}", "c++", "tmp/mine.cu")
    cells = [
        listing_cell("lab.source(reference.relu)", lab.source(reference.relu)),
        listing_cell(
            'lab.source(project, "square", "load_once")',
            lab.source(kernel, "square", "load_once"),
        ),
        listing_cell(
            'ways = {"copy": lab.ladder("01_copy")}\n'
            'display(lab.source(folder / "vec.cuh", "Vec"), lab.source(ways["copy"], "copy_run"))',
            lab.source(jitload.KERNELS / "include/vec.cuh", "Vec"),
            lab.source(ladder, "copy_run"),
        ),
        listing_cell('lab.source(Path(temporary, "mine.cu"))', mine),
    ]
    rewrite(chapter, lambda notebook: notebook.cells.extend(cells))
    rewrite(chapter, take_for_published)
    return chapter


def listing_cell(source: str, *listed: Source) -> nbformat.NotebookNode:
    data = ({"text/markdown": it._repr_markdown_(), "text/plain": repr(it)} for it in listed)
    return code(source, outputs=[nbformat.v4.new_output("display_data", each) for each in data])


def test_listings_are_those_of_the_sources(listing):
    assert publish.problems_of(listing) == []
    before = listing.read_text()
    assert publish.renew_listings(listing) == 0
    assert listing.read_text() == before


@pytest.mark.parametrize(
    ("call", "now", "old"),
    [
        ("lab.source(project, 'square', 'load_once')", "x * x", "x + x"),
        ("lab.source(reference.relu)", "torch.relu(", "relu("),
        (
            "lab.source(folder / 'vec.cuh', 'Vec')",
            "`kernels/include/vec.cuh`",
            "`kernels/elementwise/relu.cu`",
        ),
    ],
    ids=["edited", "Python", "moved"],
)
def test_an_old_listing_is_told_and_renewed(listing, call, now, old):
    before = listing.read_text()
    assert now in before
    listing.write_text(before.replace(now, old))
    (problem,) = publish.problems_of(listing)
    assert re.fullmatch(
        rf"cell \w+ shows what {re.escape(call)} was: "
        rf"python notebooks/publish.py --listings {re.escape(str(listing))}",
        problem,
    )
    assert publish.renew_listings(listing) == 1
    assert listing.read_text() == before


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ('lab.source(project, "cube")', "kernels/square.cu defines no 'cube'; no file does"),
        ("for name in names:\n    lab.source(project, name)", "not all names are written as str"),
        ("show()", "1 listings of 0 calls; wanted is one of each"),
    ],
)
def test_a_listing_of_which_nobody_can_tell_is_told(listing, source, told):
    cell = listing_cell(source, lab.source(jitload.KERNELS / "square.cu", "square"))
    rewrite(listing, lambda notebook: notebook.cells.append(cell))
    rewrite(listing, take_for_published)
    (problem,) = publish.problems_of(listing)
    assert problem.startswith(f"cell {cell.id}: nobody can tell what lab.source")
    assert told in problem
    assert publish.renew_listings(listing) == 0


# ---------------------------------------------------------------------------- a reader's work


@pytest.fixture(scope="module")
def original(made_once) -> Path:
    """The project's files, taken for published as they are."""
    return made_once("original", copied) / "project"


def copied(folder: Path) -> None:
    project = folder / "project"
    for path in publish.tracked(".") or files_here():
        place = project / path.relative_to(ROOT)
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, place)
    for path in publish.chapters():
        rewrite(project / "notebooks" / path.name, take_for_published)
    python(project, "notebooks/publish.py", "--tidy")
    (folder / "told").write_text("\n".join(checked(project)))


@pytest.fixture(scope="module")
def before(original) -> list[str]:
    """What is told of those files before anybody works in them."""
    return (original.parent / "told").read_text().splitlines()


@pytest.fixture
def checkout(original, tmp_path) -> Path:
    """A checkout of them for a reader to work in."""
    return shutil.copytree(original, tmp_path / "project")


def checked(project: Path) -> list[str]:
    """What `--check` says there is."""
    result = python(project, "notebooks/publish.py", "--check")
    lines = [line for line in result.stdout.splitlines() if line.startswith("notebooks/")]
    assert bool(lines) == result.returncode, result.stderr
    return lines


def files_here() -> list[Path]:
    paths = (path.relative_to(ROOT) for path in ROOT.rglob("*"))
    paths = [path for path in paths if all(part[0] not in "._" for part in path.parts)]
    return [ROOT / path for path in paths if (ROOT / path).is_file()]


def work(project: Path) -> None:
    """Run and edit a chapter, do exercises, keep notebooks beside the chapters and apart."""

    def try_out(notebook):
        cell = next(cell for cell in notebook.cells if cell.cell_type == "code")
        cell.source += "\nimport my_own_module\nassert x==3,'wrong'"
        notebook.cells.append(text("### my notes\n\n![a picture](of_mine.png)"))
        return as_saved(notebook)

    notebooks = project / "notebooks"
    rewrite(notebooks / START.name, try_out)
    tail = notebooks / "exercises/00_tail.cu"
    tail.write_text(f"{tail.read_text()}\n\n\n  int  mine ;\n")
    (notebooks / "exercises/01_nan.cu").write_text("__global__ void relu(float*x {\n")
    own = nbformat.v4.new_notebook(cells=[code("import my_own_module\nx=1"), text("### mine")])
    for name in ("99_mine.ipynb", "mine.ipynb", "mine/tried.ipynb", "exercises/tried.ipynb"):
        nbformat.write(own, notebooks / name)
    (notebooks / "notes.md").write_text("### mine\n\n[nowhere](nowhere.md)\n")
    (notebooks / "mine/own.cu").write_text("__global__ void  k(){}\n")


def python(project: Path, *arguments: str) -> subprocess.CompletedProcess:
    environment = os.environ | {"PYTHONPATH": str(project)}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True)


TESTS = (
    *(
        "tests/book/test_chapters.py",
        "tests/book/test_exercises.py",
        "tests/project/test_setup.py",
        "-k",
    ),
    "00_start or unsolved and (00_tail or 01_nan) or verdict_tells or files_are"
    " or style or imported",
)


@pytest.mark.slow
@pytest.mark.longest
@pytest.mark.parametrize("by_git", [True, False], ids=["cloned", "downloaded"])
def test_a_readers_work_breaks_no_test(checkout, before, by_git):
    if by_git and not shutil.which("git"):
        pytest.skip("git is not installed")
    if by_git:
        for command in (["init", "-q"], ["add", "."]):
            subprocess.run(["git", *command], cwd=checkout, check=True)
    work(checkout)
    result = python(checkout, "-m", "pytest", "-p", "no:cacheprovider", *TESTS)
    assert result.returncode == 0, result.stdout[-3000:]
    for name in ("00_start.ipynb", "exercises/00_tail.cu", "exercises/01_nan.cu"):
        assert re.search(rf"SKIPPED.* \(pytest --edited\):.* ?notebooks/{name}", result.stdout)

    if by_git:  # one that the index does not link to
        (checkout / "notebooks/14_more.ipynb").touch()
        subprocess.run(["git", "add", "notebooks/14_more.ipynb"], cwd=checkout, check=True)
    lines = [line for line in checked(checkout) if line not in before]
    known = [line for line in lines if "index.md does not link to it" in line]
    assert [line.partition(":")[0] for line in known] == ["notebooks/14_more.ipynb"] * by_git
    told = [line.partition(":")[0] for line in lines if line not in known]
    edited = ["00_start.ipynb", "00_start.ipynb", "exercises/00_tail.cu", "exercises/01_nan.cu"]
    assert told == [f"notebooks/{name}" for name in edited]


@pytest.mark.slow
def test_edited_chapters_and_exercises_are_tested_when_asked_for(checkout):
    work(checkout)
    tests = ("tests/book/test_exercises.py", "-k", "unsolved and 01_nan", "--edited")
    result = python(checkout, "-m", "pytest", "-p", "no:cacheprovider", *tests)
    assert result.returncode == 1
    assert "1 failed" in result.stdout


@pytest.mark.slow
def test_a_chapter_says_once_whose_outputs_it_shows():
    notebook = nbformat.v4.new_notebook(cells=[text("# 7"), code("1")])
    assert publish.tidy(notebook).cells[0].source == "# 7", "nobody has published it"
    for machine in ("NVIDIA H200", "NVIDIA B300 (2)"):
        notebook.metadata[publish.OUTPUTS] = {"code": "0", "machine": machine}
        notebook = publish.tidy(notebook)
        assert notebook.cells[0].source.count("The outputs in this notebook") == 1
        assert f"on a GPU ({machine}). " in notebook.cells[0].source
    assert publish.tidy(notebook) == notebook


@pytest.mark.slow
def test_tidying_notes_the_exercises(checkout, before):
    work(checkout)
    assert python(checkout, "notebooks/publish.py", "--tidy").returncode == 0
    (checkout / "notebooks/exercises/01_nan.cu").unlink()
    changed, gone = sorted(line for line in checked(checkout) if line not in before)
    assert changed.startswith("notebooks/00_start.ipynb: the code has changed")
    assert gone == "notebooks/exercises/SHA256SUMS: 01_nan.cu is gone"


@pytest.mark.slow
@pytest.mark.longest
def test_a_readers_work_breaks_no_page(checkout, tmp_path):
    pytest.importorskip("sphinx", reason="sphinx is not installed")
    work(checkout)
    result = python(checkout, "notebooks/site/book.py", str(tmp_path / "html"))
    assert result.returncode == 0, result.stderr
    assert "of_mine.png" in result.stderr  # told, for whoever wants it mended
    page = (tmp_path / "html/notebooks/00_start.html").read_text()
    assert "Run or edited since it was published" in page
    other = (tmp_path / "html/notebooks/01_speed_of_light.html").read_text()
    assert "made on a GPU (a GPU)" in other
    assert not list((tmp_path / "html").rglob("*mine*"))


@pytest.mark.parametrize(
    ("source", "note"),
    [
        ("print(6 * 7)", "Outputs of the machine that wrote this page."),
        ("print(6 * 7)\n1 / 0", "as far as the ZeroDivisionError."),
    ],
)
def test_a_chapter_without_outputs_is_run_for_the_site(tmp_path, monkeypatch, source, note):
    path = tmp_path / "07_own.ipynb"
    cells = [text("# 7"), code(source), text("the end")]
    nbformat.write(nbformat.v4.new_notebook(cells=copy.deepcopy(cells)), path)
    _, said, run, end = book.with_outputs(path).cells
    assert note in said.source
    assert run.outputs[0].text == "42\n"
    assert end.source == "the end"


def test_notebooks_of_ones_own_find_the_project():
    try:
        distribution("kernel-playground")
    except PackageNotFoundError:
        pytest.skip("the project is not installed")
    mine = publish.NOTEBOOKS / "mine"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", "import lab, reference, jitload, kernels; print(lab.__file__)"]
    answer = subprocess.run(command, cwd=mine, env=environment, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    for page in (ROOT / "README.md", publish.INDEX):
        assert "notebooks/mine/" in page.read_text()
