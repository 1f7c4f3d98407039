"""The simulator's headers, parsed once."""

import os
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import simulator
from jitloader.arguments import recipe_of
from jitloader.cache import Cache
from jitloader.inputs import Inputs
from toolchain import machine, precompiled, sources
from toolchain.notes import read_note, write_note

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or "clang" in machine.cxx(), reason="made by g++ on Linux alone"
)
NINJA = f"cxx = c++\ncflags = -I{simulator.INCLUDE} -fPIC -x c++ -std=c++17 -O1 -DN=1\n"
KERNEL = 'extern "C" __global__ void add(float* x) { x[threadIdx.x] += N * expf(2); }\n'


class Scene:
    """A kernel without a binding, and what is parsed for it."""

    def __init__(self, folder: Path):
        self.kernel, self.kept = folder / "add.cu", folder / "precompiled"
        self.kernel.write_text(KERNEL)
        self.shared: list[Path] = []
        self.works = 0

    def added(self, text: str = NINJA, check: bool = False, **options: object) -> str:
        self.works += 1
        work = self.kernel.with_name(f"{self.works}")
        recipe = replace(recipe_of([self.kernel], target="cpu", **options), check=check)
        code = Inputs.read(recipe, Cache.here())
        return precompiled.added_to(text, code, [self.kept, *self.shared], work)

    @property
    def place(self) -> Path:
        [place] = self.kept.iterdir()
        return place


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A scene, and the text that has the parsed headers found."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JITLOAD_CACHE", str(tmp_path_factory.mktemp("cache")))
        scene = Scene(tmp_path_factory.mktemp("precompiled"))
        text = scene.added()
        with pytest.MonkeyPatch.context() as no_more:
            no_more.setattr(precompiled, "_make", lambda *_: pytest.fail("made again"))
            assert scene.added() == text != NINJA
        yield scene, text


@pytest.fixture
def scene(made):
    return made[0]


def compiled(text: str, folder: Path) -> tuple[bytes, set[Path]]:
    """The machine code that g++ makes of a kernel, and the headers that it says it has read."""
    folder.mkdir()
    source = folder / "add.cpp"
    source.write_text(f"#include <{precompiled.HEADER}>\n{KERNEL}")
    flags = shlex.split(re.search(r"cflags = (.*)", text)[1])
    command = ["c++", *flags, "-Winvalid-pch", "-Werror", "-MMD", "-MF", folder / "d", "-c", source]
    subprocess.run([*command, "-o", folder / "add.o"], check=True)
    code = ["objcopy", "-O", "binary", "-j", ".text*", folder / "add.o", folder / "code"]
    subprocess.run(code, check=True)
    read = {Path(os.path.normpath(path)) for path in sources.read_depfile(folder / "d")}
    return (folder / "code").read_bytes(), read - {source}


def test_a_kernel_is_compiled_to_the_same_bits_and_names_the_same_headers(made, tmp_path):
    code, read = compiled(made[1], tmp_path / "with")
    assert (code, read) == compiled(NINJA, tmp_path / "without")
    assert simulator.INCLUDE / precompiled.HEADER in read
    assert code


def test_so_is_one_that_is_checked(scene, tmp_path, monkeypatch):
    monkeypatch.setattr(scene, "kept", tmp_path / "kept")
    text = NINJA.replace("-O1", " ".join(simulator.CHECK_FLAGS))
    code = compiled(scene.added(text, check=True), tmp_path / "with")
    assert list(scene.place.glob("**/*.gch"))
    assert code == compiled(text, tmp_path / "without")


@pytest.mark.parametrize("flag", ["-include x.h", "-imacros x.h", "-iquote there"])
def test_what_comes_before_the_headers_keeps_g_from_beginning_with_them(scene, flag):
    text = NINJA.replace("-O1", flag)
    assert scene.added(text) == text


def test_a_users_header_under_the_name_of_one_of_those_is_read(scene, tmp_path):
    assert scene.added(include=[tmp_path]) != NINJA
    (tmp_path / "stdio.h").write_text("")
    assert scene.added(include=[tmp_path]) == NINJA


def test_they_are_parsed_again_when_one_has_changed_or_the_file_is_damaged(scene, monkeypatch):
    remade = []
    monkeypatch.setattr(precompiled, "_make", lambda place, *_: remade.append(place))
    note = read_note(scene.place / "made.json")
    changed = [[path, size, when + 1] for path, size, when in note["read"]]
    write_note(scene.place / "made.json", {**note, "read": changed})
    scene.added()
    write_note(scene.place / "made.json", note)
    assert remade == [scene.place]
    monkeypatch.undo()
    parsed = scene.place / f"{precompiled.HEADER}.gch"
    whole = parsed.stat().st_size
    parsed.write_bytes(parsed.read_bytes()[: whole // 2])
    assert scene.added() != NINJA
    assert parsed.stat().st_size > whole // 2


def test_those_of_a_shared_cache_are_used(made, tmp_path, monkeypatch):
    scene, text = made
    monkeypatch.setattr(scene, "shared", [scene.kept])
    monkeypatch.setattr(scene, "kept", tmp_path)
    assert scene.added() == text
    assert not list(tmp_path.iterdir())


def test_where_they_make_the_compiler_fail_they_are_not_used_again(scene):
    text = scene.added()
    assert precompiled.without(text, "error: 'oops' was not declared") is None
    assert precompiled.without(text, "fatal error: had to relocate PCH") == (NINJA, scene.place)
    precompiled.refuse(scene.place)
    assert scene.added() == NINJA
    assert not list(scene.place.glob("**/*.gch"))
