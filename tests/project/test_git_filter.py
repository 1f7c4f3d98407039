"""What git makes of chapters that a reader has run, edited or only opened and saved."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_playground.git_filter import after_saving, cleaned

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def clone(tmp_path):
    """A repository that holds one chapter, as set-up leaves it. Gives the chapter's path."""
    path = tmp_path / "notebooks/01_copy.ipynb"
    path.parent.mkdir()
    code = {"cell_type": "code", "execution_count": None, "id": "a", "metadata": {}}
    stream = {"name": "stdout", "output_type": "stream", "text": ["H200\n"]}
    cells = [
        code | {"source": ["print(1)\n", "print(2)"], "outputs": [stream]},
        code | {"id": "b", "source": ["x"], "outputs": []},
        {"cell_type": "markdown", "id": "c", "metadata": {}, "source": ["# Über"]},
    ]
    metadata = {"outputs_of": {"code": "0", "machine": "NVIDIA H200"}}
    chapter = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(cleaned(json.dumps(chapter), ""))
    (tmp_path / ".gitattributes").write_text((ROOT / ".gitattributes").read_text())
    git(path, "init", "-q")
    make = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    (line,) = re.findall(r"git config filter\.chapters\.clean\s+'(.*?)'", make)
    line = line.replace("$(BIN)/python", sys.executable).replace(
        "kernel_playground/", f"{ROOT}/kernel_playground/"
    )
    git(path, "config", "filter.chapters.clean", line)
    git(path, "add", ".")
    git(path, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a chapter")
    return path


def git(path, *words):
    done = subprocess.run(
        ["git", "-C", path.parents[1], *words], capture_output=True, text=True, check=True
    )
    return done.stdout + done.stderr


def edit(path, change):
    chapter = json.loads(path.read_text())
    change(chapter)
    path.write_text(json.dumps(chapter))
    after_saving({"type": "notebook"}, str(path))


def run_all(chapter):
    chapter["metadata"]["language_info"] = {"name": "python", "version": "3.12.1"}
    for number, cell in enumerate(chapter["cells"]):
        if cell["cell_type"] == "code":
            cell["execution_count"] = number + 1
            cell["metadata"] = {"execution": {"iopub.status.busy": "now"}}
            cell["outputs"] = [{"name": "stdout", "output_type": "stream", "text": ["CPU\n"]}]


def test_a_run_is_no_change(clone):
    edit(clone, run_all)
    assert git(clone, "diff") == git(clone, "status", "--porcelain") == ""
    assert "CPU" in clone.read_text(), "the reader's file stays as it is"


def test_opening_and_saving_is_no_change(clone):
    edit(clone, lambda chapter: chapter["metadata"]["kernelspec"].update(display_name="kernel"))
    assert git(clone, "diff") == git(clone, "status", "--porcelain") == ""


def test_an_edited_cell_and_new_published_outputs_are_changes(clone):
    def edited(chapter):
        run_all(chapter)
        chapter["cells"][1]["source"] = ["x + 1"]

    edit(clone, edited)
    assert git(clone, "diff", "--cached") == "", "nothing of the reader's is staged"
    added = [line for line in git(clone, "diff", "-U0").splitlines() if re.match(r"[+-] ", line)]
    assert added == ['-    "x"', '+    "x + 1"']
    git(clone, "checkout", "-q", ".")

    def published(chapter):
        chapter["cells"][0]["outputs"][0]["text"] = ["B300\n"]

    edit(clone, published)
    assert "B300" in git(clone, "diff")


def test_what_is_no_notebook_and_a_clone_without_the_set_up_stay_as_they_are(clone):
    clone.write_text("{ half a")
    git(clone, "add", ".")
    assert git(clone, "show", ":notebooks/01_copy.ipynb") == "{ half a"
    git(clone, "reset", "-q", "--hard")
    git(clone, "config", "--unset", "filter.chapters.clean")
    edit(clone, run_all)
    assert "CPU" in git(clone, "diff")


def test_all_chapters_pass_unchanged():
    for path in sorted(ROOT.glob("notebooks/*.ipynb")):
        text = path.read_text()
        assert cleaned(text, text) == text, path.name
