"""What an import costs, and a load of what is in the cache: in modules, patterns and files."""

import json
import os
import subprocess
import sys

import pytest

import jitload
from jitloader import inputs, remembered
from jitloader.building import cached, readings
from jitloader.cache import Cache
from tests.helpers.jit_cases import LOAD, answer, hiding, load, output_of, write

pytestmark = pytest.mark.usefixtures("in_scratch")

# What only a build needs, or somebody who asks for it.
_OF_BUILDS = [
    *("toolchain.compile", "toolchain.launchers", "toolchain.registrations", "simulator.rewrite"),
    *("simulator.ptx", "toolchain.nvccs_flags", "toolchain.signatures", "jitloader.lazy_launchers"),
    *("jitloader.programs", "jitloader.gradient_text", "jitloader.cfunctions", "difflib"),
    *("sysconfig", "shlex", "ninja", "filelock", "torch.utils.cpp_extension"),
]
_COUNTED = """
    import json, os, re, sys, torch
    before = set(sys.modules)
    compiled, opened, asked = [], [], []
    parse = re._compiler.compile
    re._compiler.compile = lambda *given, **more: compiled.append(given) or parse(*given, **more)
    import jitload
    modules = sorted(set(sys.modules) - before)
    patterns, re._compiler.compile = [str(each[0]) for each in compiled], parse
    jitload.load("square", target="cpu")  # which looks at the loader's own files, once
    stat = os.stat
    os.stat = lambda *given, **more: asked.append(str(given[0])) or stat(*given, **more)
    sys.addaudithook(lambda event, args: opened.append(str(args[0])) if event == "open" else None)
    jitload.load("relu", target="cpu")
    os.stat = stat
    print(json.dumps([modules, patterns, opened[:], asked]))
"""


@pytest.fixture
def settled(monkeypatch):
    """Files whose content counts as read, however shortly before it was written."""
    monkeypatch.setattr(inputs, "COARSEST_CLOCK", 0)


def test_an_import_and_a_warm_load_do_without_what_a_build_needs(monkeypatch, settled):
    root = os.path.dirname(jitload.__file__)  # noqa: PTH120
    for name in ("square", "relu"):
        jitload.load(name, target="cpu")  # which builds it, if need be
        recipe = jitload.recipe_of([name], target="cpu")
        assert cached(inputs.Inputs.read(recipe, Cache.here()))  # and remembers it
    code = "\n".join(line.removeprefix("    ") for line in _COUNTED.splitlines())
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root)
    assert run.returncode == 0, run.stderr
    modules, patterns, opened, asked = json.loads(run.stdout)
    assert sorted(set(_OF_BUILDS) & set(modules)) == []
    assert len(modules) < 35
    assert len(patterns) < 5, patterns
    texts = [path for path in opened if path.endswith((".cu", ".cuh", ".cpp", ".h"))]
    assert texts == [], "a warm load reads no source"
    assert len(opened) < 15, opened  # notes, the manifest, the library, the op's Python file
    assert len(asked) < 150, asked  # once for each file and each place where a header might be


def test_no_garbage_is_looked_for_during_an_import():
    code = """
        import gc, torch
        gc.set_threshold(10)  # new objects, of which each module makes hundreds
        before = gc.get_stats()[0]["collections"]
        import jitload
        print(gc.get_stats()[0]["collections"] - before, gc.isenabled())
    """
    collections, enabled = output_of(code).split()
    assert int(collections) < 100
    assert enabled == "True"


def test_a_second_load_goes_by_what_is_remembered(settled, own):
    answer(7)
    assert load("answer.cu").answer() == 7
    recipe = jitload.recipe_of(["answer.cu"], target="cpu")
    assert cached(next(readings(recipe)))
    found = next(readings(recipe))
    assert found.build
    assert found.are_current()
    assert found.digest == inputs.Inputs.read(recipe, Cache.here()).digest
    assert dict(found.files) == inputs.Inputs.read(recipe, Cache.here()).files


def _is_remembered(*sources: str, **options: object) -> bool:
    recipe = jitload.recipe_of(sources, target="cpu", **options)
    cached(inputs.Inputs.read(recipe, Cache.here()))
    return remembered.remembered(recipe, Cache.here()) is not None


def test_whatever_decides_a_build_is_looked_at(settled, own, monkeypatch):
    write("sub/value.h", "#define VALUE 2")
    write("answer.cu", '#include "value.h"\nextern "C" int answer() { return VALUE; }\n')
    options = {"include": ["first", "sub"]}
    os.makedirs("first")  # noqa: PTH103
    assert load("answer.cu", **options).answer() == 2
    recipe = jitload.recipe_of(["answer.cu"], target="cpu", **options)
    assert _is_remembered("answer.cu", **options)

    def changes(what: str) -> None:
        assert remembered.remembered(recipe, Cache.here()) is None, what

    with monkeypatch.context() as patch:
        patch.setenv("CXX", "g++ -DWHATEVER")
        changes("the compiler's command")
    with monkeypatch.context() as patch:
        patch.setenv("CPATH", "/nowhere")
        changes("the environment")
    with monkeypatch.context() as patch:
        patch.setattr("torch.__version__", "2.99")
        changes("torch")
    with monkeypatch.context() as patch:
        patch.setattr(remembered, "_own_state", lambda: "another simulator")
        changes("the simulator")
    assert remembered.remembered(recipe, Cache.here())
    kept = next(readings(recipe)).build
    write("first/value.h", "#define VALUE 3")
    changes("a header in a folder that comes first")
    assert load("answer.cu", **options).answer() == 3
    os.unlink("first/value.h")  # noqa: PTH108
    assert load("answer.cu", **options).answer() == 2
    assert _is_remembered("answer.cu", **options)
    write("sub/value.h", "#define VALUE 5")
    changes("a header")
    assert load("answer.cu", **options).answer() == 5
    write("sub/value.h", "#define VALUE 2")
    assert _is_remembered("answer.cu", **options)
    short = write("short.so", "")
    short.write_bytes(kept.library.read_bytes()[:-100])
    short.replace(kept.library)  # the old file is open here
    changes("a library that was cut short")


def test_a_header_that_another_process_finds_is_looked_at(settled, own):
    """Whose name a macro has: only the compiler's depfile tells of it."""
    hiding("answer")
    assert load("answer.cu").answer() == 3
    assert _is_remembered("answer.cu")
    assert output_of(LOAD.format("answer.cu")) == "3"
    write("hidden.h", "#define HIDDEN 4")
    assert output_of(LOAD.format("answer.cu")) == "4"
    assert load("answer.cu").answer() == 4


def test_nothing_is_remembered_of_a_file_that_may_change_without_a_sign(own):
    answer(7)
    assert load("answer.cu").answer() == 7
    answer(7)  # the build may have taken longer than the two seconds after which it counts as read
    assert not _is_remembered("answer.cu")
