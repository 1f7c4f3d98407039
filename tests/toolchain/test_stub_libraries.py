"""Linking without reading PyTorch's symbols."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from toolchain import stub_libraries

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="stands in on Linux alone")


@pytest.fixture
def made(tmp_path):
    """The flags, and what makes them again with other flags of the user's."""

    def flags(link_flags=(), own="stub_libraries"):
        work = tmp_path / f"work{len(list(tmp_path.iterdir()))}"
        work.mkdir()
        folders = [tmp_path / own, tmp_path / "stub_libraries"]
        return stub_libraries.flags(folders, work, list(link_flags))

    return flags


def needed(library) -> list[str]:
    said = subprocess.run(["readelf", "-d", library], capture_output=True, text=True).stdout
    return [line.split("[")[1].rstrip("]") for line in said.splitlines() if "(NEEDED)" in line]


def test_a_library_notes_the_one_that_opens_the_others(made, tmp_path):
    source, library = tmp_path / "a.cpp", tmp_path / "a.so"
    source.write_text("int defined_elsewhere(); int f() { return defined_elsewhere(); }")
    named = ["-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"]
    command = ["c++", "-shared", "-fPIC", str(source), *made(), *named]
    subprocess.run([*command, "-o", str(library)], check=True)
    assert [name for name in needed(library) if re.match("libc10|libtorch", name)] == [
        "libtorch_python.so"
    ]


def test_libtorch_python_opens_every_library_that_is_stood_in_for():
    folder = Path(torch.__file__).parent / "lib"
    reached = ["libtorch_python.so"]
    for name in reached:  # it grows during the loop
        if (folder / name).exists():
            reached += [each for each in needed(folder / name) if each not in reached]
    there = {
        f"lib{name}.so" for name in stub_libraries._OPENED if (folder / f"lib{name}.so").exists()
    }
    assert there <= set(reached)


def test_they_are_small_and_made_once(made, tmp_path, monkeypatch):
    first = made()
    libraries = list(tmp_path.glob("stub_libraries/*/*.so"))
    assert {"libc10.so", "libtorch_python.so"} <= {library.name for library in libraries}
    assert max(library.stat().st_size for library in libraries) < 50_000
    monkeypatch.setattr(stub_libraries, "_make", lambda *_: pytest.fail("made again"))
    assert made() == first == made(own="another folder")


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["cut", "gone", "a file in the folder's place"])
def test_damaged_ones_are_made_again(made, tmp_path, damage):
    flags = made()
    [library] = tmp_path.glob("stub_libraries/*/libtorch_python.so")
    before = library.read_bytes()
    if damage == "cut":
        library.write_bytes(before[:100])
    elif damage == "gone":
        library.unlink()
    else:
        shutil.rmtree(library.parent)
        library.parent.write_text("")
    assert made() == flags
    assert library.read_bytes() == before


@pytest.mark.parametrize("flag", ["-Wl,-z,defs", "-Wl,-zdefs", "-Wl,--no-undefined"])
def test_who_wants_every_symbol_looked_for_has_the_libraries_themselves(made, flag):
    assert made([flag]) == []


def test_where_they_cannot_be_made_there_are_none(made, tmp_path, monkeypatch):
    monkeypatch.setattr(stub_libraries.machine, "found_cxx", lambda: ["false"])
    assert made() == []
    monkeypatch.undo()
    (tmp_path / "stub_libraries").write_text("a file in the place of the folder")
    (tmp_path / "work").mkdir()
    stub_libraries.flags([tmp_path / "stub_libraries"], tmp_path / "work", [])
