"""The playground elsewhere: containers, Binder, VS Code, and the notebook that sets itself up."""

import json
import os
import re
import subprocess
import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

from docs.programs import address

ROOT = Path(__file__).resolve().parents[2]
DEV_CONTAINERS = sorted((ROOT / ".devcontainer").rglob("devcontainer.json"))


# ---- the repository's address


def test_the_address_of_pyproject_stands_wherever_it_is_needed():
    for path, rewritten in address.WRITTEN.items():
        text = path.read_text()
        assert address.address() in text or path.name == "README.md"
        assert rewritten(text, address.address()) == text, "say python -m docs.programs.address"


def test_another_address_takes_the_place_of_the_one_that_is_there():
    for path, rewritten in address.WRITTEN.items():
        before = path.read_text()
        after = rewritten(before, "https://github.com/someone/a.fork")
        assert "OWNER/kernel-playground" not in after
        assert "someone/a.fork" in after
        lines = zip(before.splitlines(), after.splitlines(), strict=True)
        assert sum(old != new for old, new in lines) == 1
    with pytest.raises(ValueError, match=r"pyproject\.toml has 'somewhere'; wanted is https://"):
        address.badges("somewhere")


# ---- the notebook that sets itself up


def first_cell(repository: object) -> str:
    cells = json.loads((ROOT / address.NOTEBOOK).read_text())["cells"]
    code = next("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    return code.replace(address.address(), str(repository))


# No lab is found before the cell has run, however the one of this checkout is installed.
_ALONE = """
import os, sys
sys.path = [path for path in sys.path if not os.path.isfile(f"{{path}}/lab/__init__.py")]
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in str(finder)]
{cell}
import lab
print(lab.__file__, os.getcwd(), sep="\\n")
"""


def run(cell: str, folder: Path, template: str = _ALONE, path: object = "") -> list[str]:
    """The lines that a process prints which begins with this cell; path: its PYTHONPATH."""
    done = subprocess.run(
        [sys.executable, "-c", template.format(cell=cell)],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(path)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_notebook_that_is_opened_alone_clones_the_repository(tmp_path):
    published, alone = tmp_path / "published", tmp_path / "alone"
    for name in ("lab/__init__.py", "jitload.py", "notebooks/index.md"):
        (published / name).parent.mkdir(parents=True, exist_ok=True)
        (published / name).touch()
    (published / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    git = ["git", "-C", published, "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "published"]):
        subprocess.run([*git, *command], check=True)
    alone.mkdir()
    (tmp_path / "pip.py").write_text("import sys; print(*sys.argv[1:])")  # in the place of pip
    cell = first_cell(published.as_uri())
    there = alone / "kernel-playground"
    for folder in (alone, alone, there / "notebooks"):  # again, as after a restart of the kernel
        asked, *rest = run(cell, folder, path=tmp_path)
        assert rest == [str(there / "lab/__init__.py"), str(there / "notebooks")]
        assert asked.startswith("install --quiet torch>=2.11 numpy ")
        assert "jupyterlab" not in asked
    assert not (there / "notebooks/kernel-playground").exists()


def test_where_the_lab_is_there_its_first_cell_does_nothing(tmp_path):
    template = f"import sys; sys.path.insert(0, {str(ROOT)!r})\n{{cell}}\nprint(os.getcwd())"
    assert run(first_cell("nowhere"), tmp_path, template) == [str(tmp_path)]
    assert not list(tmp_path.iterdir())


# ---- containers


@pytest.mark.parametrize("path", DEV_CONTAINERS, ids=lambda path: path.parent.name)
def test_a_dev_container_builds_a_stage_of_the_dockerfile(path):
    settings = json.loads(path.read_text())
    build = settings["build"]
    dockerfile = (path.parent / build["dockerfile"]).resolve()
    assert (dockerfile, (path.parent / build["context"]).resolve()) == (ROOT / "Dockerfile", ROOT)
    text = dockerfile.read_text()
    assert build["target"] in re.findall(r"^FROM .* AS (\w+)$", text, re.MULTILINE)
    assert build["args"].keys() <= set(re.findall(r"^ARG (\w+)", text, re.MULTILINE))
    assert build["args"]["BASE"] in text, "the Dockerfile names both images"
    assert f"\nUSER {settings['remoteUser']}\n" in text
    assert f"\nEXPOSE {settings['forwardPorts'][0]}\n" in text


def test_nothing_that_git_ignores_is_put_into_a_container():
    def patterns(name: str) -> list[str]:
        lines = (ROOT / name).read_text().splitlines()
        return [line for line in lines if line and line[0] not in "#!"]

    ignored = [pattern.removeprefix("**/") for pattern in patterns(".dockerignore")]
    for pattern in patterns(".gitignore"):
        assert any(fnmatch(pattern.strip("/"), known) for known in ignored), pattern
