"""What the loader survives: the scenarios of docs/loop.md, and kills, crowds, forks and prunes."""

import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from jit_cases import (
    FORKS,
    LOAD,
    answer,
    compilers_in,
    files_in,
    hiding,
    in_process,
    in_script,
    killed_after,
    load,
    output_of,
    results_of,
    wait_for,
    write,
)

from jitloader import commands
from jitloader.cache import Cache
from tests.helpers.forks import Fork
from tests.helpers.scenarios import SCENARIOS, caches, edits, processes
from tests.helpers.scenarios.loaders import ours
from tests.helpers.scenarios.scene import Scene

pytestmark = pytest.mark.usefixtures("in_scratch")


# Those that take more than ten seconds.
SLOW = (
    *(processes.killed, processes.crowd, processes.spawned_workers, edits.reloads),
    *(edits.upgraded_compiler, edits.upgraded_torch, caches.shared, caches.prune),
    caches.open_to_others,
)


@pytest.mark.parametrize(
    "scenario",
    [
        pytest.param(play, id=play.__name__, marks=[pytest.mark.slow] if play in SLOW else [])
        for play in SCENARIOS
    ],
)
def test_our_loader_survives(scenario, tmp_path, cache):
    """What docs/loop.md tells; and nothing of a build under way is left, nor of its lock."""
    scene = Scene(ours(cache), tmp_path, patience=120, popen=Fork)
    scenario(scene)
    assert not list(scene.cache.glob("building/*"))
    if scenario is not caches.no_locks:
        assert not list(scene.cache.glob("locks/*"))


# ---- killed


@pytest.mark.slow
@pytest.mark.longest
def test_killed_fifty_times_at_random_moments_then_loaded_again(own):
    """The process and ninja, while the compilers run on: they lead groups of their own."""
    write("killed.cpp", "#include <torch/csrc/stable/library.h>\nint x;")
    answer(7, "killed")
    load = 'kernel = jitload.load("killed.cu", "killed.cpp", target="cpu")'
    timed = "import time; started = time.perf_counter()\n{}\nprint(time.perf_counter() - started)"
    whole = float(output_of(timed.format(load)))
    left = files_in(own)
    shutil.rmtree(own)
    moments = random.Random(3)
    # Each is a fork of one that has imported what a load needs.
    parent = in_process(f"def in_fork(line):\n    {load}\n{FORKS}", stdin=subprocess.PIPE)
    for _ in range(50):
        killed_after(moments.uniform(0, whole), parent)
        if any(own.glob("killed_*/build.json")):
            shutil.rmtree(own)
    parent.communicate()
    assert parent.returncode == 0
    wait_for(lambda: not compilers_in(own), "the last compilers to end", 300)
    assert output_of(load + "\nprint(kernel.answer())") == "7"
    assert len(files_in(own)) == len(left), files_in(own)


def test_what_a_killed_build_left_is_swept_by_the_next_build_of_anything(own):
    answer(1, "left")
    process = in_process(
        """
        from toolchain import compile as compiling
        compiling.compile_library = lambda *_: print("building", flush=True) or sys.stdin.readline()
        jitload.load("left.cu", target="cpu")
        """,
        stdin=subprocess.PIPE,
    )
    assert process.stdout.readline().strip() == "building"
    load(answer(1, "other"))
    assert len(list(own.glob("building/left_*"))) == 1, "a living build is left alone"
    process.kill()
    process.communicate()
    load(answer(2, "other"))
    assert not list(own.glob("building/*"))


# ---- at once


def test_two_processes_that_find_a_hidden_header_at_once_compile_no_more_than_one_would(own):
    hiding("hides")
    results = results_of([in_process(LOAD.format("hides.cu")) for _ in range(2)])
    assert [out for out, _ in results] == ["3"] * 2
    built = sum(err.count("building hides") for _, err in results)
    assert built == 2, "once to find the header, once with it"


def test_a_stop_while_another_process_builds_is_heard(own):
    answer(2, "waited")
    code = """
        try:
            {}
            print("loading", flush=True)
            jitload.load("waited.cu", target="cpu")
        except KeyboardInterrupt:
            print("interrupted")
    """
    slowly = (
        "from toolchain import compile as compiling; compiling.compile_library = lambda *_: "
        "print('building', flush=True) or sys.stdin.read()"
    )
    builder = in_process(code.format(slowly), stdin=subprocess.PIPE)
    assert [builder.stdout.readline().strip() for _ in range(2)] == ["loading", "building"]
    waiting = in_process(code.format("pass"))
    assert waiting.stdout.readline().strip() == "loading"
    wait_for(lambda: is_in_flock(waiting), "the second process to wait for the first")
    waiting.send_signal(signal.SIGINT)
    assert waiting.communicate(timeout=60)[0].strip() == "interrupted"
    builder.kill()
    builder.communicate()
    assert load("waited.cu").answer() == 2


def is_in_flock(process: subprocess.Popen) -> bool:
    return f"-> FLOCK  ADVISORY  WRITE {process.pid} " in Path("/proc/locks").read_text()


# ---- forked


LOADER = """
    import jitload
    import torch

    class Answers(torch.utils.data.Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            out = torch.zeros(1)
            jitload.load("worker.cu", target="cpu").fill(out)
            return out

    if __name__ == "__main__":
        assert Answers()[0].item() == 5
        loader = torch.utils.data.DataLoader(
            Answers(), num_workers=2, multiprocessing_context="fork", timeout=60
        )
        print(*[batch.item() for batch in loader])
"""


def test_forked_workers_of_a_data_loader_run_kernels(own):
    """The kernel ran before they came."""
    write(
        "worker.cu",
        """
        __global__ void set(float* out) { *out = 5; }
        extern "C" void fill(float* out) { set<<<1, 1>>>(out); }
        """,
    )
    script = write("loader.py", LOADER)
    [(out, err)] = results_of([in_script(script)])
    assert out.split() == ["5.0"] * 4
    assert err.count("building worker") == 1


def test_a_process_forked_while_a_thread_builds_is_not_locked(own):
    answer(1, "before")
    answer(2, "during")
    code = """
        import os, threading
        kernel = jitload.load("before.cu", target="cpu")
        building, go_on = threading.Event(), threading.Event()
        from toolchain import compile as compiling
        compile_library = compiling.compile_library

        def slowly(*arguments):
            building.set()
            go_on.wait()
            return compile_library(*arguments)

        compiling.compile_library = slowly
        thread = threading.Thread(target=jitload.load, args=["during.cu"], kwargs={"target": "cpu"})
        thread.start()
        building.wait()
        if (child := os.fork()) == 0:
            compiling.compile_library = compile_library
            open("third.cu", "w").write(open("during.cu").read().replace("2", "3"))
            kernel.reload()
            ok = jitload.load("third.cu", target="cpu").answer() == 3
            os._exit(0 if ok else 1)
        print(os.waitpid(child, 0)[1])
        go_on.set()
        thread.join()
        print(jitload.load("during.cu", target="cpu").answer())
    """
    [(out, _)] = results_of([in_process(code)])
    assert out.split() == ["0", "2"]


# ---- pruned


def test_what_a_fork_uses_after_its_parents_end_is_left(own):
    answer(1, "inherited")
    process = in_process(
        """
        import os
        jitload.load("inherited.cu", target="cpu")
        if os.fork():
            print("loaded", flush=True)
            os._exit(0)
        sys.stdin.readline()
        """,
        stdin=subprocess.PIPE,
    )
    assert process.stdout.readline().strip() == "loaded"
    process.wait(60)
    commands.prune(gigabytes=0, days=0)
    assert len(list(own.glob("inherited_*"))) == 1
    process.stdin.close()
    wait_for(lambda: not Cache.here().used(), "the fork to end")
    commands.prune(gigabytes=0, days=0)
    assert not list(own.glob("inherited_*"))


def test_prune_leaves_what_another_process_builds(own):
    """It waits in the compiler, with its folder in building/ and nothing placed."""
    answer(7, "unborn")
    process = in_process(
        """
        from toolchain import compile as compiling
        compile_library = compiling.compile_library

        def slowly(*arguments):
            print("building", flush=True)
            sys.stdin.readline()
            return compile_library(*arguments)

        compiling.compile_library = slowly
        print(jitload.load("unborn.cu", target="cpu").answer())
        """,
        stdin=subprocess.PIPE,
    )
    assert process.stdout.readline().strip() == "building"
    commands.prune(gigabytes=0, days=0)
    assert len(list(own.glob("building/unborn_*"))) == 1
    [(out, _)] = results_of_told(process, "\n")
    assert out == "7"


def results_of_told(process: subprocess.Popen, said: str) -> list[tuple[str, str]]:
    process.stdin.write(said)
    process.stdin.flush()
    return results_of([process])


@pytest.mark.slow
def test_processes_build_and_load_while_others_prune_all_the_time(own):
    """Between its build and its opening, or between finding and opening it, a build may go."""
    names = [f"pruned{n}" for n in range(3)]
    for number, name in enumerate(names):
        answer(number, name)
    code = """
        from jitloader import handle
        for _ in range(2):
            print(jitload.load("{0}.cu", target="cpu").answer())
            handle._kernels.clear()
    """
    processes = [in_process(code.format(name)) for name in names for _ in range(2)]
    while any(process.poll() is None for process in processes):
        Cache.here().prune(gigabytes=0, days=0)
        time.sleep(0.005)
    results = [out.split() for out, _ in results_of(processes)]
    assert results == [[str(n)] * 2 for n in range(3) for _ in range(2)]
