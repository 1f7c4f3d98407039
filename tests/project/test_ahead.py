"""What JupyterLab has built beside it: in the order of the chapters, and giving way to readers."""

import json
import os
import select
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import jitload
from jitloader import ahead, building, events, runtime
from jitloader.cache import Cache
from kernel_playground import jupyter
from notebooks import publish

ROOT = Path(__file__).resolve().parents[2]
KERNEL = "__global__ void {name}(float* x) {{ x[threadIdx.x] += {add}; }}\n"


def kernel(folder: Path, name: str, add: object = 1) -> Path:
    path = folder / f"{name}.cu"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(KERNEL.format(name=name, add=add))
    return path


def notebook(path: Path, source: object) -> None:
    path.write_text(json.dumps({"cells": [{"cell_type": "code", "source": source}]}))


def built(cache: Path) -> set[str]:
    """The names of the kernels of which a cache holds builds."""
    return {path.parent.name.rpartition("_")[0] for path in cache.glob("*_*/build.json")}


@pytest.fixture
def own(tmp_path, cache, monkeypatch) -> Path:
    """An empty cache, the simulator's runtime beside it."""
    monkeypatch.setenv("JITLOAD_CACHE", os.pathsep.join([str(tmp_path / "own"), str(cache)]))
    return tmp_path / "own"


# ---- the order


def test_kernels_come_in_the_order_of_the_chapters():
    ops = jupyter.ops(ROOT)
    assert ops[0] == "square"
    assert len(ops) == len(set(ops))
    texts = [path.read_text() for path in publish.chapters()]
    first = [next(n for n, text in enumerate(texts) if f"from kernels.{op} " in text) for op in ops]
    assert first == sorted(first)


def test_a_folder_without_chapters_has_nothing_built(tmp_path, monkeypatch):
    monkeypatch.setattr(subprocess, "Popen", None)
    jupyter.build_ahead(tmp_path)
    (tmp_path / "notebooks").mkdir()
    (tmp_path / "notebooks/index.md").write_text("[One](00_one.ipynb)")  # which is not there
    jupyter.build_ahead(tmp_path)


# Runs ninja, and writes down what it builds with which priority. The loader's own libraries, which
# compile for long, fail at once.
NINJA = """\
#!/bin/sh
echo "$(basename "$PWD") $(nice)" >> "{log}"
case "$(basename "$PWD")" in derivatives*|simulator*) exit 1;; esac
PATH="{path}" exec ninja "$@"
"""


@pytest.fixture
def ninjas(tmp_path, monkeypatch) -> Path:
    """The file in which each run of ninja is noted."""
    log, program = tmp_path / "ninjas", tmp_path / "bin" / "ninja"
    program.parent.mkdir()
    path = os.pathsep.join([os.environ["PATH"], str(Path(sys.executable).parent)])
    program.write_text(NINJA.format(log=log, path=path))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{path}")
    return log


@pytest.mark.slow
def test_the_first_kernel_is_built_first_and_the_others_at_the_lowest_priority(
    tmp_path, own, ninjas, monkeypatch
):
    folder = tmp_path / "mine"
    for name in ("zz", "aa", "mm"):
        kernel(folder / "kernels", name)
    kernel(folder / "kernels", "broken", "no such name")
    order = ("zz", "mm", "broken", "aa")
    chapters = folder / "notebooks"
    chapters.mkdir()
    (chapters / "index.md").write_text("[](00.ipynb) [](01.ipynb) [](02.ipynb)")
    imports = [f"from kernels.{name} import {name}" for name in (*order, "gone")]
    notebook(chapters / "00.ipynb", imports[:1])
    (chapters / "01.ipynb").write_text("no notebook")
    notebook(chapters / "02.ipynb", "\n".join(imports))
    assert jupyter.ops(folder) == list(order)
    monkeypatch.setenv("KERNEL_PLAYGROUND_FOLDER", str(folder))
    monkeypatch.setenv("JITLOAD_TARGET", "cpu")
    libraries = {path.stem for path in (ROOT / "simulator/libraries").glob("*.cpp")}
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    # JupyterLab's place is taken by a process that waits for the last build, and ends.
    script = f"""
import os, pathlib, time
from kernel_playground import jupyter
jupyter.build_ahead(pathlib.Path({str(folder)!r}))
os.execv({sys.executable!r}, ["python", "-c", '''
import pathlib, time
while not list(pathlib.Path({str(own)!r}).glob("aa_*/build.json")):
    time.sleep(0.1)
'''])
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=300)
    noted = [line.split() for line in ninjas.read_text().splitlines()]
    kernels = [
        (name.partition(".")[0].removesuffix("-whole").rpartition("_")[0], int(nice))
        for name, nice in noted
    ]
    base = os.nice(0)
    mine = [(name, nice) for name, nice in kernels if name in order]
    assert mine == [("zz", base + 5), ("mm", 19), ("broken", 19), ("aa", 19)]
    others = {name for name, _ in kernels} - {*order}
    assert others <= {"derivatives", "simulator", "simulator_checker"} | {
        f"simulator_{name}" for name in libraries
    }


def test_it_ends_with_whoever_started_it(own):
    command = [sys.executable, "-P", "-m", "jitload", "build", "--ahead", "square"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, cwd=ROOT) as process:
        time.sleep(0.5)
        assert process.poll() is None
        process.stdin.close()
        assert process.wait(60) == 0


# ---- giving way


def test_a_build_that_somebody_waits_for_stops_one_ahead_which_begins_anew(
    tmp_path, own, monkeypatch
):
    recipe = jitload.recipe_of([kernel(tmp_path, "later")], target="cpu")
    cache, begun = Cache.here(), []
    completed = building.completed

    def noted(inputs, lifeline):
        begun.append(time.monotonic())
        if len(begun) == 1:  # as a long build would: until it is to stop
            others.start()
            assert select.select([lifeline], [], [], 60)[0]
            stopped.set()
            return
        completed(inputs, lifeline)

    def build() -> None:
        with cache.lock("of_a_reader"):
            assert stopped.wait(60)
            time.sleep(1)  # in which it could begin anew
            ended.append(time.monotonic())

    stopped, ended = threading.Event(), []
    others = threading.Thread(target=build)
    monkeypatch.setattr(ahead, "completed", noted)
    ahead._build(recipe, cache)
    others.join()
    assert ended[0] < begun[1]
    assert len(begun) == 2
    assert "later" in built(own)


def test_a_reader_waits_for_no_build_ahead(tmp_path, own):
    """Its lock is of another name, and it is no build that others would give way to."""
    recipe = jitload.recipe_of([kernel(tmp_path, "wanted")], target="cpu")
    cache = Cache.here()
    inputs = next(building.readings(recipe, cache))
    with cache.lock(f"{inputs.name}-whole") as held:
        assert held
        assert not cache.is_building()
        with cache.lock(inputs.name, wait=False) as free:
            assert free
            assert cache.is_building()


# ---- the simulator's runtime


def test_a_first_launch_compiles_nothing_but_the_kernel_and_the_runtime(tmp_path, own):
    """Not the checker, whose files the runtime does not read, nor a library."""
    jitload.Kernel(jitload.recipe_of([kernel(tmp_path, "alone")], target="cpu")).reload()
    assert built(own) == {"alone"}
    simulators = building.cached(next(building.readings(runtime.recipe())))
    read = {Path(name).parent.name for name in simulators.inputs}
    assert "executor" in read
    assert "checker" not in read


def test_the_runtime_is_compiled_beside_what_needs_it(tmp_path, own, monkeypatch):
    source = tmp_path / "simulator.cpp"
    source.write_text("int nothing;\n")
    slow = runtime.recipe("slow_runtime", source)
    monkeypatch.setattr(runtime, "recipe", lambda: slow)
    monkeypatch.setattr(runtime, "library", runtime.functools.cache(lambda: None))
    go_on, told = threading.Event(), []
    ensure = building.ensure

    def ensured(recipe):
        assert go_on.wait(60)
        return ensure(recipe)

    monkeypatch.setattr(runtime, "ensure", ensured)
    monkeypatch.setattr(events, "listeners", [told.append])
    runtime.build_beside()
    ensure(jitload.recipe_of([kernel(tmp_path, "beside")], target="cpu"))
    assert built(own) == {"beside"}
    assert {event.name for event in told} == {"beside"}  # one line at a time
    threading.Timer(0.5, go_on.set).start()
    assert runtime._runtime().name.startswith("slow_runtime_")
    assert {event.name for event in told} == {"beside", "slow_runtime"}
