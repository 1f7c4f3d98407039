"""Folders of one's own: what `new` and `update` do with the user's files, and what they leave."""

import json
from pathlib import Path

import pytest

from kernel_playground import copies
from kernel_playground.commands import main
from kernel_playground.copies import STAGE, Refused, new, update
from playground_folder.place import MARKER


def tree(folder: Path, **files: str) -> Path:
    """A folder with files; `__` in a name stands for /, and `_` before cu and py for a dot."""
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_cu", ".cu").replace("_py", ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def texts(folder: Path) -> dict[str, str]:
    paths = (path for path in folder.rglob("*") if path.is_file() and path.name != MARKER)
    return {path.relative_to(folder).as_posix(): path.read_text() for path in paths}


@pytest.fixture
def originals(tmp_path) -> Path:
    files = {"kernels__a_cu": "a 1", "kernels__b_cu": "b 1", "reference_py": "r 1"}
    return tree(tmp_path / "originals", **files)


@pytest.fixture
def mine(tmp_path, originals) -> Path:
    new(tmp_path / "mine", originals)
    return tmp_path / "mine"


def test_an_update_renews_what_nobody_edited_and_leaves_the_rest(originals, mine):
    tree(mine, kernels__a_cu="a mine", kernels__own_cu="own")
    (mine / "reference.py").unlink()
    tree(originals, kernels__a_cu="a 2", kernels__b_cu="b 2", reference_py="r 2", kernels__c_cu="c")
    change = update(mine, originals)
    assert texts(mine) == {
        "kernels/a.cu": "a mine",
        "kernels/a.cu.new": "a 2",
        "kernels/b.cu": "b 2",
        "kernels/c.cu": "c",
        "kernels/own.cu": "own",
    }
    told = change.edited, change.renewed, change.added, change.deleted
    assert told == (["kernels/a.cu"], ["kernels/b.cu"], ["kernels/c.cu"], ["reference.py"])
    (mine / "kernels/a.cu.new").unlink()
    before = texts(mine)
    assert not update(mine, originals).write
    assert texts(mine) == before


def test_a_newer_file_is_laid_over_an_earlier_one_unless_that_was_edited(originals, mine):
    tree(mine, kernels__a_cu="a mine", kernels__b_cu="b mine")
    tree(originals, kernels__a_cu="a 2", kernels__b_cu="b 2")
    update(mine, originals)
    (mine / "kernels/b.cu.new").write_text("b 2, mine")
    tree(originals, kernels__a_cu="a 3", kernels__b_cu="b 3")
    update(mine, originals)
    found = texts(mine)
    assert found["kernels/a.cu.new"] == "a 3"
    assert (found["kernels/b.cu.new"], found["kernels/b.cu.new2"]) == ("b 2, mine", "b 3")


def test_a_file_of_the_users_where_the_originals_gain_one_stays(originals, mine):
    tree(mine, kernels__c_cu="mine")
    tree(originals, kernels__c_cu="c")
    assert update(mine, originals).taken == ["kernels/c.cu"]
    assert (texts(mine)["kernels/c.cu"], texts(mine)["kernels/c.cu.new"]) == ("mine", "c")
    (originals / "kernels/b.cu").unlink()
    assert update(mine, originals).gone == ["kernels/b.cu"]
    assert texts(mine)["kernels/b.cu"] == "b 1"


def test_an_update_that_was_killed_is_completed_by_the_next(originals, mine, monkeypatch):
    tree(mine, kernels__own_cu="own")
    tree(originals, kernels__a_cu="a 2", kernels__b_cu="b 2", reference_py="r 2")
    moved, replace = [], Path.replace

    def killed(path: Path, to: Path) -> None:
        moved.append(to)
        if len(moved) == 3:
            raise SystemExit
        replace(path, to)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        patch.setattr(copies.shutil, "rmtree", lambda *_, **__: None)
        with pytest.raises(SystemExit):
            update(mine, originals)
    assert (mine / STAGE).is_dir()
    assert len({*texts(mine).values()} & {"a 2", "b 2", "r 2"}) >= 2
    change = update(mine, originals)
    assert not change.edited
    expected = {"kernels/a.cu": "a 2", "kernels/b.cu": "b 2", "kernels/own.cu": "own"}
    assert texts(mine) == {**expected, "reference.py": "r 2"}


def test_what_cannot_be_written_changes_nothing(originals, mine, monkeypatch):
    tree(originals, kernels__a_cu="a 2", reference_py="r 2")
    before = texts(mine)
    monkeypatch.setattr(copies, "_write", lambda path, data: 1 / 0 if "r 2" in str(data) else None)
    with pytest.raises(ZeroDivisionError):
        update(mine, originals)
    assert texts(mine) == before
    assert not (mine / STAGE).exists()


def test_new_touches_nothing_that_is_there(originals, tmp_path):
    here = tree(tmp_path / "here", kernels__a_cu="mine", other_py="o")
    with pytest.raises(Refused, match=r"files of its own .* nothing was copied: kernels/a\.cu"):
        new(here, originals)
    assert texts(here) == {"kernels/a.cu": "mine", "other.py": "o"}
    (here / "kernels/a.cu").unlink()
    new(here, originals)
    assert texts(here) == {**texts(originals), "other.py": "o"}
    with pytest.raises(Refused, match="is a playground already; kernel-playground update"):
        new(here, originals)
    with pytest.raises(Refused, match="is the clone itself"):
        new(originals, originals)


@pytest.mark.parametrize("marker", ["", "[1]", '{"files": {}, "more": 1}'])
def test_a_marker_that_cannot_be_read_is_told(mine, originals, marker):
    (mine / MARKER).write_text(marker)
    with pytest.raises(Refused, match=r"cannot be read: put it back as it was"):
        update(mine, originals)


def test_a_link_and_a_folder_in_a_files_place_stay(originals, mine, tmp_path):
    (mine / "kernels/a.cu").unlink()
    (mine / "kernels/a.cu").symlink_to(tree(tmp_path / "else", a_cu="a 1") / "a.cu")
    (mine / "reference.py").unlink()
    (mine / "reference.py").mkdir()
    tree(originals, kernels__a_cu="a 2", reference_py="r 2")
    assert update(mine, originals).edited == ["kernels/a.cu", "reference.py"]
    assert (mine / "kernels/a.cu").is_symlink()
    assert (mine / "kernels/a.cu").read_text() == "a 1"


def test_the_command_says_what_it_did(originals, mine, monkeypatch, capsys):
    monkeypatch.setattr(update, "__defaults__", (originals,))
    tree(mine, kernels__a_cu="a mine")
    tree(originals, kernels__a_cu="a 2", kernels__b_cu="b 2")
    monkeypatch.chdir(mine / "kernels")
    assert main(["update"]) == 0
    said = capsys.readouterr().out
    assert "renewed, which you had not edited: 1: kernels/b.cu\n" in said
    assert "the new one lies beside it, as NAME.new: kernels/a.cu\n" in said
    assert main(["update", str(mine / "nowhere")]) == 1
    assert "kernel-playground: there is no folder" in capsys.readouterr().err
    assert set(json.loads((mine / MARKER).read_text())) == {"version", "files", "beside"}
