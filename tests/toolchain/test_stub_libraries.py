"""Linking without reading PyTorch's symbols."""

import shutil
import subprocess
import sys

import pytest

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


def test_a_library_notes_the_names_of_those_that_are_stood_in_for(made, tmp_path):
    source, library = tmp_path / "a.cpp", tmp_path / "a.so"
    source.write_text("int defined_elsewhere(); int f() { return defined_elsewhere(); }")
    command = ["c++", "-shared", "-fPIC", str(source), *made(), "-lc10", "-ltorch_cpu"]
    subprocess.run([*command, "-o", str(library)], check=True)
    assert needed(library)[:2] == ["libc10.so", "libtorch_cpu.so"]


def test_they_are_small_and_made_once(made, tmp_path, monkeypatch):
    first = made()
    libraries = list(tmp_path.glob("stub_libraries/*/*.so"))
    assert {"libc10.so", "libtorch_cpu.so"} <= {library.name for library in libraries}
    assert max(library.stat().st_size for library in libraries) < 50_000
    monkeypatch.setattr(stub_libraries, "_make", lambda *_: pytest.fail("made again"))
    assert made() == first == made(own="another folder")


def test_they_are_made_where_no_thread_can_be_started(made, monkeypatch):
    def refuse(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(stub_libraries.ThreadPoolExecutor, "submit", refuse)
    assert made()


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["cut", "gone", "a file in the folder's place"])
def test_damaged_ones_are_made_again(made, tmp_path, damage):
    flags = made()
    [library] = tmp_path.glob("stub_libraries/*/libc10.so")
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
    monkeypatch.setattr(
        stub_libraries, "_run", lambda command: subprocess.run(["false"], check=True)
    )
    stub_libraries._names.cache_clear()
    assert made() == []
    monkeypatch.undo()
    stub_libraries._names.cache_clear()
    (tmp_path / "stub_libraries").write_text("a file in the place of the folder")
    (tmp_path / "work").mkdir()
    stub_libraries.flags([tmp_path / "stub_libraries"], tmp_path / "work", [])
