"""What the loader survives: kills, crowds, bad caches, full disks, lost compilers, forks."""

import concurrent.futures
import contextlib
import errno
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
import warnings
from datetime import datetime
from pathlib import Path

import pytest
import torch
from jit_cases import answer, compilers_in, in_process, in_script, load, output_of, wait_for, write

import jitload
from toolchain import inputs, machine
from toolchain.cache import Cache
from toolchain.errors import first_error

pytestmark = pytest.mark.usefixtures("in_scratch")

LOAD = 'print(jitload.load("{}", target="cpu").answer())'


@pytest.fixture
def own(tmp_path, cache, monkeypatch):
    """An empty cache of this test's own, the simulator's runtime beside it."""
    folder = tmp_path / "own cache"
    monkeypatch.setenv("JITLOAD_CACHE", os.pathsep.join([str(folder), str(cache)]))
    monkeypatch.setattr(jitload, "_kernels", {})
    return folder


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def results_of(processes: list[subprocess.Popen]) -> list[tuple[str, str]]:
    """What each printed, and what it said of its builds."""
    results = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), results
    return [(out.strip(), err) for out, err in results]


# ---- killed


@pytest.mark.parametrize("kills", [3, pytest.param(50, marks=pytest.mark.slow)])
def test_killed_at_random_moments_then_loaded_again(own, kills):
    """The process and ninja, while the compilers run on: they lead groups of their own."""
    write("killed.cpp", "#include <torch/csrc/stable/library.h>\nint x;")
    answer(7, "killed")
    load = 'kernel = jitload.load("killed.cu", "killed.cpp", target="cpu")'
    timed = "import time; started = time.perf_counter()\n{}\nprint(time.perf_counter() - started)"
    whole = float(output_of(timed.format(load)))
    left = files_in(own)
    shutil.rmtree(own)
    moments = random.Random(3)
    told = "print(flush=True)\nsys.stdin.readline()\nprint(flush=True)\n" + load
    ready = in_process(told, stdin=subprocess.PIPE)
    for _ in range(kills):
        process, ready = ready, in_process(told, stdin=subprocess.PIPE)  # which starts meanwhile
        process.stdout.readline()
        process.stdin.write("\n")
        process.stdin.flush()
        process.stdout.readline()
        time.sleep(moments.uniform(0, whole))
        kill_with_children(process)
        if any(own.glob("killed_*/manifest.json")):
            shutil.rmtree(own)
    ready.kill()
    ready.communicate()
    wait_for(lambda: not compilers_in(own), "the last compilers to end")
    assert output_of(load + "\nprint(kernel.answer())") == "7"
    assert len(files_in(own)) == len(left), files_in(own)


def kill_with_children(process: subprocess.Popen):
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for number in (process.pid, *map(int, children)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
    process.communicate()


def test_what_a_killed_build_left_is_swept_by_the_next_build_of_anything(own):
    answer(1, "left")
    process = in_process(
        """
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


# ---- crowds


def test_eight_processes_that_load_one_cold_kernel_build_it_once(own):
    answer(8, "crowd")
    results = results_of([in_process(LOAD.format("crowd.cu")) for _ in range(8)])
    assert [out for out, _ in results] == ["8"] * 8
    assert sum("building crowd" in err for _, err in results) == 1
    assert not list(own.glob("locks/*"))
    assert not list(own.glob("building/*"))


def test_two_processes_that_find_a_hidden_header_at_once_compile_no_more_than_one_would(own):
    write("hidden.h", "#define HIDDEN 3")
    write(
        "hides.cu",
        '#define NAME "hidden.h"\n#include NAME\nextern "C" int answer() { return HIDDEN; }',
    )
    results = results_of([in_process(LOAD.format("hides.cu")) for _ in range(2)])
    assert [out for out, _ in results] == ["3"] * 2
    built = sum(err.count("building hides") for _, err in results)
    assert built == 2, "once to find the header, once with it"


def test_two_processes_with_different_flags_build_one_each(own):
    write("flagged.cu", 'extern "C" int answer() { return N; }')
    code = 'print(jitload.load("flagged.cu", target="cpu", flags=["-DN={}"]).answer())'
    results = results_of([in_process(code.format(n)) for n in (1, 2)])
    assert [out for out, _ in results] == ["1", "2"]
    assert all("building flagged" in err for _, err in results)


def test_threads_that_load_at_once_share_one_build_and_one_handle(own, capfd):
    answer(9, "threaded")
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        kernels = list(pool.map(lambda _: load("threaded.cu"), range(8)))
    assert len(set(map(id, kernels))) == 1
    assert kernels[0].answer() == 9
    assert capfd.readouterr().err.count("building threaded") == 1


# ---- locks


@pytest.mark.parametrize("foreign", ["a stale file", "a folder"])
def test_a_lock_that_nobody_holds_stops_nobody(own, foreign):
    path = answer(4, "locked")
    name = jitload.Inputs.read(jitload._recipe([path], target="cpu"), Cache.here()).name
    lock = own / "locks" / f"{name}.lock"
    lock.parent.mkdir(parents=True)
    lock.mkdir() if foreign == "a folder" else lock.write_text("4711")
    assert load("locked.cu").answer() == 4


def test_a_file_system_without_locks_is_worked_with(own, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("fcntl.flock", no_locks)
    assert load(answer(5, "lockless")).answer() == 5
    assert not list(own.glob("in_use/*"))
    jitload.prune(gigabytes=0)
    assert load("lockless.cu").answer() == 5


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
        "compiling.compile_library = lambda *_: print('building', flush=True) or sys.stdin.read()"
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


# ---- bad cache folders


@pytest.fixture
def ordinary():
    """A folder of an ordinary user, and the rights of one: root may do everything."""
    folder = Path(tempfile.mkdtemp())
    if os.geteuid() != 0:
        yield folder
    else:
        folder.chmod(0o755)
        os.chown(folder, 65534, 65534)
        os.seteuid(65534)
        yield folder
        os.seteuid(0)
    shutil.rmtree(folder)


def test_a_cache_folder_is_made_private(ordinary, monkeypatch):
    own = ordinary / "a" / "b"
    monkeypatch.setenv("JITLOAD_CACHE", str(own))
    assert Cache.here() == Cache(own)
    assert own.stat().st_mode & 0o777 == 0o700


def test_a_read_only_cache_folder_is_read_and_a_temporary_one_written(ordinary, monkeypatch):
    monkeypatch.setenv("JITLOAD_CACHE", str(ordinary))
    ordinary.chmod(0o555)
    with pytest.warns(RuntimeWarning, match=rf"{ordinary} cannot be used \(it is read-only\)"):
        cache = Cache.here()
    assert cache.shared == (ordinary,)
    assert cache.own.stat().st_mode & 0o777 == 0o700
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Cache.here() == cache, "said once"
    shutil.rmtree(cache.own)


def test_a_cache_folder_that_cannot_be_made_is_done_without(tmp_path, monkeypatch):
    """A file stands in its way, in a process of its own, which leaves nothing behind."""
    answer(6, "homeless")
    write("file", "")
    monkeypatch.setenv("JITLOAD_CACHE", str(tmp_path / "file/cache"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    code = LOAD.format("homeless.cu") + '\njitload.load("homeless.cu", target="cpu")'
    [(out, err)] = results_of([in_process(code)])
    assert out == "6"
    assert err.count("cannot be used (Not a directory)") == 1
    assert err.count("building homeless") == 1
    assert not list(tmp_path.glob("jitload-*"))


def test_a_user_without_a_home_has_a_temporary_cache(monkeypatch):
    def no_home(path):
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("JITLOAD_CACHE")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "expanduser", no_home)
    with pytest.warns(RuntimeWarning, match="builds go to"):
        cache = Cache.here()
    assert cache.own.name.startswith("jitload-")
    shutil.rmtree(cache.own)


def test_what_a_umask_of_000_makes_in_an_older_folder_is_closed_to_others(own):
    own.mkdir()
    own.chmod(0o755)
    before = os.umask(0)
    try:
        write("hidden.h", "#define HIDDEN 3")
        write(
            "masked.cu",
            '#define NAME "hidden.h"\n#include NAME\nextern "C" int answer() { return HIDDEN; }',
        )
        assert load("masked.cu").answer() == 3
        with pytest.raises(jitload.CompileError):
            load(answer("oops", "masked_broken"))
    finally:
        os.umask(before)
    open_to_others = {path for path in own.rglob("*") if path.stat().st_mode & 0o022}
    assert not open_to_others
    assert {path.name for path in own.iterdir()} >= {"headers", "compilers", "logs", "in_use"}


def test_folders_above_the_cache_folder_are_closed_to_others(tmp_path, monkeypatch):
    monkeypatch.setenv("JITLOAD_CACHE", str(tmp_path / "a/b/c"))
    before = os.umask(0)
    try:
        Cache.here()
    finally:
        os.umask(before)
    assert [(tmp_path / p).stat().st_mode & 0o777 for p in ("a", "a/b", "a/b/c")] == [
        0o755,
        0o755,
        0o700,
    ]


@pytest.mark.parametrize("part", ["", "manifest.json", "library"])
def test_a_build_that_others_could_have_replaced_is_built_again(own, part, capfd):
    """As an earlier release left it, made with a umask of 000."""
    name = f"replaced_{part[:3]}"
    answer(5, name)
    kernel = load(f"{name}.cu")
    folder = kernel.library.parent
    (kernel.library if part == "library" else folder / part).chmod(0o777)
    with pytest.raises(LookupError, match="open to others"):
        kernel.at(0)
    capfd.readouterr()
    jitload._kernels.clear()
    assert load(f"{name}.cu").answer() == 5
    assert f"building {name}" in capfd.readouterr().err
    assert not folder.stat().st_mode & 0o022
    assert load(f"{name}.cu").at(0).answer() == 5


@pytest.mark.parametrize("set_in", ["the environment", "the process"])
def test_a_relative_cache_folder_stays_where_it_was_named(tmp_path, cache, monkeypatch, set_in):
    """Also for a child process, whose working directory is another."""
    answer(5, "related")
    (tmp_path / "elsewhere").mkdir()
    named = os.pathsep.join(["own", str(cache)])
    code = f"""
        import os, subprocess
        os.environ["JITLOAD_CACHE"] = {named!r}
        jitload.load("related.cu", target="cpu")
        os.chdir("elsewhere")
        kernel = jitload.load("../related.cu", target="cpu")
        child = "import jitload; print(jitload.load('../related.cu', target='cpu').library)"
        print(kernel.library)
        print(subprocess.check_output([sys.executable, "-c", child], text=True))
    """
    if set_in == "the environment":
        monkeypatch.setenv("JITLOAD_CACHE", named)
        code = code.replace('os.environ["JITLOAD_CACHE"] =', "_ =")
        code = code.replace('jitload.load("related.cu", target="cpu")\n', "\n", 1)
    [(out, err)] = results_of([in_process(code)])
    first, second = out.split()
    assert first == second
    assert Path(first).is_relative_to(tmp_path / "own")
    assert err.count("building related") == 1
    assert not (tmp_path / "elsewhere/own").exists()


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o1777])
def test_a_cache_folder_that_others_can_write_to_is_refused(tmp_path, monkeypatch, mode, capfd):
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(mode)
    monkeypatch.setenv("JITLOAD_CACHE", str(folder))
    with pytest.raises(PermissionError, match=r"open can be written to by other users.*chmod go-w"):
        load(answer(1, "open_cache"))
    assert jitload.main(["doctor"]) == 1
    assert "written to by other users" in capfd.readouterr().out
    folder.chmod(mode & ~0o022)
    assert Cache.here().own == folder


def test_a_cache_folder_of_another_user_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("JITLOAD_CACHE", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(PermissionError, match=r"belongs to another user.*name it second"):
        Cache.here()


def test_a_class_shares_builds_below_a_layer_of_each_ones_own(tmp_path, monkeypatch, capfd):
    teacher, student = tmp_path / "teacher", tmp_path / "student"
    answer(1, "lesson")
    write("named.h", "#define NAMED 3")
    write("macro.cu", '#define N "named.h"\n#include N\nextern "C" int answer() { return NAMED; }')
    monkeypatch.setenv("JITLOAD_CACHE", str(teacher))
    assert output_of(LOAD.format("lesson.cu")) == "1"
    assert output_of(LOAD.format("macro.cu")) == "3"
    before = files_in(teacher)
    teacher.chmod(0o777)  # named on purpose, it may be anybody's
    monkeypatch.setenv("JITLOAD_CACHE", os.pathsep.join([str(student), str(teacher)]))
    capfd.readouterr()
    assert load("lesson.cu").answer() == 1
    assert load("macro.cu").answer() == 3
    assert "building" not in capfd.readouterr().err
    answer(2, "lesson")
    kernel = load("lesson.cu")
    assert kernel.answer() == 2
    assert kernel.library.is_relative_to(student)
    assert [v.folder.parent for v in kernel.versions()] == [student, teacher]
    assert kernel.at(1).answer() == 1
    jitload.prune(gigabytes=0, days=0)
    assert files_in(teacher) == before


# ---- full disks


@pytest.mark.parametrize("method", ["write_text", "write_bytes", "replace"])
def test_a_full_disk_is_named_and_leaves_nothing_half_done(own, monkeypatch, method):
    """Simulated, at each kind of step that follows the compilers."""
    real = getattr(Path, method)

    def full(path, *arguments):
        if "result" in path.parts:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path, *arguments)

    answer(1, "filling")
    with monkeypatch.context() as patch:
        patch.setattr(Path, method, full)
        with pytest.raises(OSError, match=r"disk of the cache folder is full.*jitload prune"):
            load("filling.cu")
    assert not list(own.glob("filling_*"))
    assert not list(own.glob("building/*"))
    assert load("filling.cu").answer() == 1


def test_a_disk_that_fills_while_compiling_is_told_by_a_hint(own, monkeypatch, tmp_path):
    """The real compiler, its object file sent to a device that is always full."""
    script = write(
        "full-c++",
        """
        #!/usr/bin/env bash
        arguments=("$@")
        for i in "${!arguments[@]}"; do
            [[ ${arguments[i]} == *.o && ${arguments[i-1]} == -o ]] && arguments[i]=/dev/full
        done
        exec c++ "${arguments[@]}"
        """,
    )
    script.chmod(0o755)
    monkeypatch.setenv("CXX", str(script))
    with pytest.raises(jitload.CompileError) as caught:
        load(answer(1, "full"))
    assert "No space left on device" in caught.value.log.read_text()
    assert "JITLOAD_CACHE" in caught.value.hint
    assert not list(own.glob("full_*"))
    monkeypatch.delenv("CXX")  # the digest stays: both call themselves the same
    assert load("full.cu").answer() == 1, "the machine's failure is not remembered as the source's"


def test_a_compiler_that_the_system_killed_is_tried_again(own, monkeypatch):
    said = "c++: fatal error: Killed signal terminated program cc1plus"
    kernel = load(answer(1, "memory"))
    answer(2, "memory")
    with monkeypatch.context() as patch:

        def killed(inputs, work, log, progress):
            raise first_error(said, set(inputs.files), log)

        patch.setattr("toolchain.compile.compile_library", killed)
        with pytest.raises(jitload.CompileError, match="ran out of memory"):
            kernel.reload()
    assert not kernel.is_current()
    assert kernel.reload()
    assert kernel.answer() == 2


# ---- headers


def test_a_removed_header_is_missed_and_its_return_compiles_nothing(own, capfd):
    header = write("removed.h", "#define N 1")
    write("headed.cu", '#include "removed.h"\nextern "C" int answer() { return N; }')
    kernel = load("headed.cu")
    header.unlink()
    for attempt in (kernel.reload, kernel.answer):
        with pytest.raises(jitload.CompileError, match=r"headed.cu:1:.*removed.h"):
            attempt()
    capfd.readouterr()
    write("removed.h", "#define N 1")
    kernel.reload()
    assert kernel.answer() == 1
    assert "building" not in capfd.readouterr().err


# ---- clocks


def test_versions_keep_their_order_when_the_clock_goes_back(own, monkeypatch):
    answer(1, "clock")
    load("clock.cu")
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 86400)
    answer(2, "clock")
    kernel = load("clock.cu")
    newest, first = kernel.versions()
    assert newest.when < first.when
    assert newest.digest == kernel.digest
    assert datetime.now() > newest.when


# ---- compilers and torch


def test_a_cached_kernel_outlives_its_compiler(own, monkeypatch):
    compiler = write("my-c++", f'#!/bin/sh\nexec {machine.cxx()} "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    answer(3, "orphan")
    assert output_of(LOAD.format("orphan.cu")) == "3"
    compiler.unlink()
    assert output_of(LOAD.format("orphan.cu")) == "3"
    answer(4, "orphan")
    process = in_process(LOAD.format("orphan.cu"))
    assert f"no C++ compiler: {str(compiler)!r} is not" in process.communicate(timeout=60)[1]


@pytest.mark.parametrize(
    ("does", "says"), [("exec sleep 60", "timed out after 1 seconds"), ("exit 3", "exit status 3")]
)
def test_a_compiler_that_does_not_answer_is_named(own, monkeypatch, does, says):
    compiler = write("my-c++", f"#!/bin/sh\n{does}\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setattr(machine, "PATIENCE", 1)
    with pytest.raises(jitload.MissingTool, match=rf"my-c\+\+ does not work: .*{says}"):
        load(answer(1, "unanswered"))


def test_an_upgraded_compiler_builds_anew(own, monkeypatch, capfd):
    answer(1, "upgraded")
    script, real, digests = Path("my-c++").absolute(), machine.cxx(), []
    monkeypatch.setenv("CXX", str(script))
    for version in ("1.0", "2.0.1"):
        says_so = f'[ "$1" = --version ] && echo my-c++ {version} && exit'
        script.write_text(f'#!/bin/sh\n{says_so}\nexec {real} "$@"\n')
        script.chmod(0o755)
        digests.append(load("upgraded.cu").digest)
    assert digests[0] != digests[1]
    assert capfd.readouterr().err.count("building upgraded") == 2


def test_an_upgraded_torch_builds_anew(monkeypatch):
    recipe = jitload._recipe([answer(1, "torched")], target="cpu")
    digest = inputs.Inputs.read(recipe, Cache.here()).digest
    monkeypatch.setattr(torch, "__version__", "99.0")
    assert inputs.Inputs.read(recipe, Cache.here()).digest != digest


# ---- damaged files of the cache

DAMAGES = {
    "emptied": lambda data: b"",
    "cut": lambda data: data[: len(data) // 2],
    "garbled": lambda data: bytes(byte ^ 0xA5 for byte in data),
    "foreign": lambda data: b'{"digest": "beef"}',
    "a folder": None,
}


def damage(path: Path, how: str) -> None:
    if path.is_dir():
        shutil.rmtree(path)
        path.write_text("a file where a folder was")
    elif DAMAGES[how] is None:
        path.unlink()
        write(str(path / "inside"), "")
    else:
        data = DAMAGES[how](path.read_bytes())
        path.unlink()  # a library that this process has open must not change under it
        path.write_bytes(data)


@pytest.mark.parametrize("how", DAMAGES)
def test_damaged_files_of_the_cache_are_made_again(own, tmp_path, monkeypatch, how, capfd):
    """Every file in turn, with each folder replaced by a file: all goes on, and is then as before.

    Two builds, an error, a header that only a note tells of: every kind of file is there.
    """
    name = f"damaged_{how[-3:]}"
    write("hidden.h", "#define HIDDEN 3")
    text = '#define NAME "hidden.h"\n#include NAME\nextern "C" int answer() { return %s; }'

    def load_it() -> jitload.Kernel:
        for memory in (jitload._kernels, jitload._failures):
            memory.clear()
        monkeypatch.setattr(jitload, "_opened", {})  # for this test alone: ops stay open
        return load(write(f"{name}.cu", text % "HIDDEN"))

    def broken() -> jitload.CompileError:
        jitload._failures.clear()
        write(f"{name}.cu", text % "oops")
        with pytest.raises(jitload.CompileError, match="oops") as caught:
            load(f"{name}.cu")
        return caught.value

    load(write(f"{name}.cu", text % 2))
    load_it()
    broken()
    whole = files_in(own)
    kinds = {path.split("/")[0].split("_")[0] for path in whole}
    assert kinds == {"damaged", "headers", "compilers", "logs", "in", "locks", "building"}
    paths = [own / path for path in sorted(whole)]
    for path in [path for path in paths if how == "emptied" or path.is_file()]:
        if not path.exists():
            continue  # a lock, or this process's line in in_use/, which was swept
        damage(path, how)
        kernel = load_it()
        assert kernel.answer() == 3, path
        assert "damaged" not in str(kernel.versions()), "a table, whatever is gone"
        if path.is_relative_to(own / "logs"):
            assert "oops" in broken().log.read_text(), path
            load_it()
    capfd.readouterr()
    load_it()
    assert "building" not in capfd.readouterr().err, "nothing is left to be mended"
    assert jitload.prune(gigabytes=0, days=0) == 0


@pytest.mark.parametrize("key", ["digest", "binding", "exports", "recipe", "sources", "built"])
def test_a_manifest_without_a_key_is_written_again(own, key):
    name = f"lacking_{key}"
    answer(5, name)
    manifest = load(f"{name}.cu").library.with_name("manifest.json")
    facts = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({k: v for k, v in facts.items() if k != key}))
    jitload._kernels.clear()
    kernel = load(f"{name}.cu")
    assert kernel.answer() == 5
    assert len(kernel.versions()) == 1
    assert json.loads(manifest.read_text())["digest"] == facts["digest"]


# ---- forks and many reloads


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
        before = {before}  # whether the kernel ran before the workers came
        if before:
            assert Answers()[0].item() == 5
        loader = torch.utils.data.DataLoader(
            Answers(), num_workers=2, multiprocessing_context="{method}", timeout=60
        )
        print(*[batch.item() for batch in loader])
"""


@pytest.mark.parametrize(("method", "before"), [("fork", True), ("fork", False), ("spawn", True)])
def test_workers_of_a_data_loader_run_kernels(own, method, before):
    write(
        "worker.cu",
        """
        __global__ void set(float* out) { *out = 5; }
        extern "C" void fill(float* out) { set<<<1, 1>>>(out); }
        """,
    )
    script = write("loader.py", LOADER.format(before=before, method=method))
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


def test_two_hundred_reloads_cost_the_memory_of_their_libraries(own):
    """One is compiled; the others are copies of it, each built and opened as a version."""
    answer(0, "often")
    code = """
        import ctypes, os, shutil
        from pathlib import Path

        def resident():
            return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

        def compile_library(inputs, work, log, progress):
            shutil.copy(first, work / f"{inputs.name}.so")
            return "", set()

        def reload(number):
            source.write_text(f"{text}// {number}")
            assert kernel.reload() and kernel.answer() == 0

        source = Path("often.cu")
        text = source.read_text()
        kernel = jitload.load(source, target="cpu")
        first = kernel.library
        compiling.compile_library, jitload.announce = compile_library, False
        for number in range(20):
            reload(number)
        before = resident()
        for number in range(20, 220):
            reload(number)
        print(resident() - before)
        libraries = []
        for number in range(20):
            libraries.append(ctypes.CDLL(shutil.copy(first, f"./warm{number}.so")))
        before = resident()
        for number in range(200):
            libraries.append(ctypes.CDLL(shutil.copy(first, f"./copy{number}.so")))
            libraries[-1].answer()
        print(resident() - before)
    """
    ours, bare = map(int, output_of(code).split())
    assert ours < 2 * bare, "what Python knows of a version takes less than its library"


# ---- prune


def test_prune_leaves_what_a_living_process_uses(own, capfd):
    answer(1, "alive")
    process = in_process(
        """
        kernel = jitload.load("alive.cu", target="cpu")
        print(kernel.answer(), flush=True)
        sys.stdin.readline()
        print(kernel.at(0).answer())
        """,
        stdin=subprocess.PIPE,
    )
    assert process.stdout.readline().strip() == "1"
    answer(2, "dead")
    output_of(LOAD.format("dead.cu"))
    assert len(list(own.glob("in_use/*"))) == 2, "one of a living process, one of a dead one"
    jitload.prune(gigabytes=0, days=0)
    assert not list(own.glob("dead_*"))
    assert process.communicate("\n", timeout=60)[0].strip() == "1"
    jitload.prune(gigabytes=0, days=0)
    assert not list(own.glob("alive_*"))
    assert not list(own.glob("in_use/*"))


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
    jitload.prune(gigabytes=0, days=0)
    assert len(list(own.glob("inherited_*"))) == 1
    process.stdin.close()
    wait_for(lambda: not Cache.here().used(), "the fork to end")
    jitload.prune(gigabytes=0, days=0)
    assert not list(own.glob("inherited_*"))


def test_prune_leaves_what_another_process_builds(own):
    """It waits in the compiler, with its folder in building/ and nothing placed."""
    answer(7, "unborn")
    process = in_process(
        """
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
    jitload.prune(gigabytes=0, days=0)
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
        for _ in range(2):
            print(jitload.load("{0}.cu", target="cpu").answer())
            jitload._kernels.clear()
    """
    processes = [in_process(code.format(name)) for name in names for _ in range(2)]
    while any(process.poll() is None for process in processes):
        Cache.here().prune(gigabytes=0, days=0)
        time.sleep(0.005)
    results = [out.split() for out, _ in results_of(processes)]
    assert results == [[str(n)] * 2 for n in range(3) for _ in range(2)]


def test_a_build_that_vanishes_before_it_is_opened_is_built_again(own, monkeypatch):
    path = answer(3, "vanishing")
    load(path)
    functions_of, vanish = jitload.functions_of, [True]

    def pruned_meanwhile(version, check):
        if vanish:
            vanish.pop()
            shutil.rmtree(version.folder)
        return functions_of(version, check)

    monkeypatch.setattr(jitload, "functions_of", pruned_meanwhile)
    monkeypatch.setattr(jitload, "_kernels", {})
    monkeypatch.setattr(jitload, "_opened", {})
    assert load(path).answer() == 3
    assert not vanish
