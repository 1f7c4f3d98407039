"""The simulator's headers, parsed once."""

import json
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
from jitloader.building import ensure
from jitloader.cache import Cache
from jitloader.inputs import Inputs
from jitloader.runtime import parse_for_bindings
from toolchain import machine, precompiled, sources, torch_headers
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
    text = NINJA.replace("-O1", " ".join(simulator.check_flags()))
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
    monkeypatch.setattr(precompiled, "_make", lambda parsed, *_: remade.append(parsed.place))
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
    assert precompiled.without(text, "fatal error: had to relocate PCH") == (NINJA, [scene.place])
    precompiled.refuse(scene.place)
    assert scene.added() == NINJA
    assert not list(scene.place.glob("**/*.gch"))


# ---- PyTorch's


def code_of(folder: Path, text: str, **headers: str) -> Inputs:
    for name, content in headers.items():
        (folder / f"{name}.h").write_text(content)
    (folder / "op.cu").write_text(text)
    return Inputs.read(recipe_of([folder / "op.cu"], target="cpu"), Cache.here())


TORCH = "#include <torch/extension.h>\n"


@pytest.mark.parametrize(
    ("text", "come_first"),
    [
        (f"// a comment\n{TORCH}", precompiled.WITH_TORCH),
        (f"#include <cuda.h>\n#include <vector>\n\n{TORCH}#define N 4", precompiled.WITH_TORCH),
        ("#pragma once\n#include <torch/torch.h>", precompiled.WITH_TORCH),
        ('#include "guarded.h"\n', precompiled.WITH_TORCH),
        ("#include <torch/types.h>\nint x;", precompiled.WITH_TYPES),
        ("#include <cuda.h>\n#include <ATen/ATen.h>\nint x;", precompiled.WITH_TYPES),
        ("#include <ATen/core/Tensor.h>\nint x;", None),
        (f"#define Tensor mine\n{TORCH}", None),
        (f"#ifdef WITH_TORCH\n{TORCH}#endif", None),
        (f'#include "other.h"\n{TORCH}', None),
        ("int x;", None),
    ],
)
def test_headers_of_pytorch_count_that_a_source_begins_with(tmp_path, text, come_first):
    guarded = f"#ifndef OP_H\n#define OP_H\n{TORCH}#endif\n"
    code = code_of(tmp_path, text, guarded=guarded, other="#define Tensor mine\n")
    in_cu, in_cpp = come_first or (None, None)
    assert precompiled.come_first(code, tmp_path / "op.cu") == in_cu
    assert precompiled.first(code, tmp_path / "op.cu") == (in_cu or precompiled.HEADER)
    (tmp_path / "op.cpp").write_text(text)
    code = Inputs.read(recipe_of([tmp_path / "op.cpp"], target="cpu"), Cache.here())
    assert precompiled.first(code, tmp_path / "op.cpp") == in_cpp


@pytest.mark.parametrize(
    ("use", "all_of_them"),
    [
        ("at::Tensor f(at::Tensor x) { return x.data(); }", False),
        ("int nn = 3, data = 4;  // torch::nn::Linear", False),
        ("auto layer = torch::nn::Linear(1, 2);", True),
        ("using namespace torch::nn;", True),
        ("void f(at::Tensor x) { torch::save(x, name); }", True),
    ],
)
def test_all_of_pytorchs_headers_are_for_those_who_name_the_rest(tmp_path, use, all_of_them):
    code = code_of(tmp_path, f"{TORCH}{use}\n")
    assert (torch_headers.ALL in code.flags[0]) == all_of_them


@pytest.mark.parametrize(
    ("said", "may_lack"),
    [
        ("op.cu:3:9: error: 'OrderedDict' is not a member of 'torch'", True),
        ("op.cu:3:9: error: 'nn' has not been declared", True),
        ("/home/torch/op.cu:3:9: error: expected ';' before '}' token", False),
        ("op.cu:3:9: error: 'x' was not declared in this scope", False),
    ],
)
def test_a_mistake_of_ones_own_is_not_compiled_twice(said, may_lack):
    assert torch_headers.may_lack(NINJA, said) == may_lack
    assert not torch_headers.may_lack(precompiled.with_all_of_torch(NINJA), said)
    assert torch_headers.ALL in precompiled.with_all_of_torch(NINJA)


def test_those_are_asked_for_once_a_build_has_read_them_and_never_made_in_its_time(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(precompiled, "_make", lambda *_: pytest.fail("made"))
    code = code_of(tmp_path, TORCH)
    assert precompiled.added_to(NINJA, code, [tmp_path], tmp_path) == NINJA
    [missing] = precompiled.missing(NINJA, code, [tmp_path])
    assert missing.header == precompiled.WITH_TORCH[0]
    assert not precompiled.missing(precompiled.with_all_of_torch(NINJA), code, [tmp_path])
    assert not precompiled.missing(NINJA, code_of(tmp_path, KERNEL), [tmp_path])
    monkeypatch.setattr(precompiled, "LEAST_FREE", 1e18)
    precompiled.make_aside(missing, tmp_path, 0)


# ---- for a GPU

FOR_A_GPU = pytest.mark.skipif(machine.cuda_home() is None, reason="no nvcc here")


TINY = """
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>
int three();
int64_t called(torch::stable::Tensor) { return three(); }
STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) { m.def("called(Tensor x) -> int"); }
STABLE_TORCH_LIBRARY_IMPL(TORCH_EXTENSION_NAME, CompositeExplicitAutograd, m) {
    m.impl("called", TORCH_BOX(&called));
}
"""


@FOR_A_GPU
def test_a_binding_for_a_gpu_finds_parsed_what_set_up_has_parsed_and_becomes_the_same(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("jitloader.cache.ENVIRONMENT", tmp_path / "that of no other")
    environment = Cache(tmp_path / "environment")
    parse_for_bindings(environment)
    [parsed] = environment.own.glob("precompiled/*/stable_torch.h.gch")
    (tmp_path / "tiny.cu").write_text("int three() { return 3; }\n")
    (tmp_path / "tiny.cpp").write_text(TINY)
    sources = [tmp_path / "tiny.cu", tmp_path / "tiny.cpp"]
    objects = []
    for shared in (), (environment.own,):
        cache = Cache(tmp_path / f"with {len(shared)}", shared)
        build = ensure(recipe_of(sources, target="cuda"), cache)
        assert (str(parsed.parent) in build.log()) == bool(shared)
        assert not list(cache.own.glob("precompiled"))
        [of_binding] = [
            folder
            for folder in cache.own.glob("objects/*")
            if str(sources[1]) in json.loads((folder / "build.json").read_text())["read"]
        ]
        objects.append((of_binding / "object").read_bytes())
    assert objects[0] == objects[1]


@FOR_A_GPU
@pytest.mark.parametrize(
    ("text", "begins"),
    [
        ("#include <torch/csrc/stable/library.h>\n", True),
        ("#undef __F16C__\n#include <vector>\n#include <torch/csrc/stable/tensor.h>\n", True),
        ('#include "first.h"\n', True),
        ("#define NDEBUG\n#include <torch/csrc/stable/library.h>\n", False),
        (TORCH, False),
    ],
)
def test_only_a_binding_that_begins_with_the_stable_abi_has_it_parsed_ahead(tmp_path, text, begins):
    (tmp_path / "first.h").write_text("#include <torch/csrc/stable/library.h>\n")
    (tmp_path / "op.cpp").write_text(text)
    code = Inputs.read(recipe_of([tmp_path / "op.cpp"], target="cuda"), Cache.here())
    ninja = NINJA.replace(" -x c++", "")
    assert bool(precompiled.missing(ninja, code, [tmp_path])) == begins
    assert precompiled.added_to(ninja, code, [tmp_path], tmp_path) == ninja


def test_flags_that_have_them_found_are_taken_out_again(tmp_path):
    there = f"cflags = -I{tmp_path} -fpch-deps -include stable_torch.h -O1\n"
    assert precompiled.without(there, "error: PCH file") == ("cflags = -O1\n", [tmp_path])
