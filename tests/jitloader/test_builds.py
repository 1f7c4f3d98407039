"""What stands between an edit and its build: is it seen, is it told, what did it change?"""

import os
import subprocess
import sysconfig
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from jit_cases import answer, load, write

import jitload
import simulator
from jitloader import building, runtime
from jitloader.building import readings
from tests.helpers.counted import calls_in
from toolchain.code import is_systems, systems_folders
from toolchain.compile import stage_of

pytestmark = pytest.mark.usefixtures("in_scratch")


def test_loaded_lists_every_kernel_that_was_opened(monkeypatch):
    monkeypatch.setattr("jitloader.handle._kernels", {})
    kernels = [load(answer(1, "first")), load(answer(1, "second"))]
    with pytest.raises(jitload.CompileError):
        load(answer("oops", "third"))
    load("first.cu")
    assert jitload.loaded() == kernels


# ---- is_current


def test_the_simulators_libraries_are_compiled_side_by_side(monkeypatch):
    """One lock for all of them had the checker wait for the runtime, on an idle processor."""
    both = threading.Barrier(2, timeout=20)
    monkeypatch.setattr(building, "cached", lambda inputs: None)
    monkeypatch.setattr(building, "_build", lambda inputs, alone: both.wait() + 1)
    recipes = runtime.recipe("one"), runtime.recipe("other", simulator.CHECKER)
    with ThreadPoolExecutor(2) as threads:
        assert sorted(threads.map(building.ensure, recipes)) == [1, 2]


def test_a_kernel_is_current_until_a_file_of_it_changes():
    header = write("h.h", "#define H 1")
    source = write("current.cu", '#include "h.h"\nextern "C" int answer() { return H; }')
    kernel = load("current.cu")
    assert kernel.is_current()
    for path in (header, source):
        path.write_text(path.read_text() + "\n")
        assert not kernel.is_current()
        kernel.reload()
        assert kernel.is_current()


def answers(kernel: jitload.Kernel) -> object:
    """After a reload, which the handle itself must have found wanting."""
    assert not kernel.is_current()
    kernel.reload()
    assert kernel.is_current()
    return kernel.answer()


def test_a_header_that_is_only_asked_for_is_seen_to_appear_and_to_vanish():
    write(
        "asks.cu",
        """
        #if __has_include("perhaps.h") && ! __has_include ( <sure/not.h> )
        #define ANSWER 2
        #else
        #define ANSWER 1
        #endif
        extern "C" int answer() { return ANSWER; }
        """,
    )
    kernel = load("asks.cu", include=["folder"])
    assert kernel.answer() == 1
    perhaps = write("perhaps.h", "")
    assert answers(kernel) == 2
    not_it = write("folder/sure/not.h", "")
    assert answers(kernel) == 1
    not_it.unlink()
    assert answers(kernel) == 2
    perhaps.unlink()
    assert answers(kernel) == 1


@pytest.mark.parametrize("apart", [False, True])
def test_a_header_in_the_folder_of_a_flag_is_as_one_in_a_folder_of_include(apart):
    """Relative to the working directory, translated for the CPU, and seen when it is shadowed."""
    kernel = "__global__ void set(int* out) {{ *out = {}; }}\ninline void run(int* out) {{"
    kernel += " set<<<1, 1>>>(out); }}"
    write("second/h.h", kernel.format(2))
    write(
        "flagged.cu",
        """
        #include <h.h>
        __device__ int out;
        extern "C" int answer() {
            int* at;
            int value;
            cudaGetSymbolAddress((void**)&at, out);
            run(at);
            cudaMemcpyFromSymbol(&value, out, sizeof value);
            return value;
        }
        """,
    )
    folders = ("first", "second")
    flags = [part for f in folders for part in (("-I", f) if apart else (f"-I{f}",))]
    kernels = load("flagged.cu", flags=flags)
    assert kernels.answer() == 2
    shadow = write("first/h.h", kernel.format(1))
    assert answers(kernels) == 1
    write("first/h.h", kernel.format(3))
    assert answers(kernels) == 3
    shadow.unlink()
    assert answers(kernels) == 2


@pytest.mark.parametrize("variable", ["CPATH", "CPLUS_INCLUDE_PATH", "-isystem"])
def test_folders_of_the_environment_and_of_the_system_decide_a_build(monkeypatch, variable):
    name = f"environs_{variable.strip('-')}"
    for number in (1, 2):
        write(f"folder{number}/env.h", f"#define ANSWER {number}")
    write(f"{name}.cu", '#include <env.h>\nextern "C" int answer() { return ANSWER; }')
    first, second, none = (str(Path(f).absolute()) for f in ("folder1", "folder2", "none"))
    if variable == "-isystem":
        kernel = load(f"{name}.cu", flags=["-isystem", none, "-isystem", second])
    else:
        monkeypatch.setenv(variable, first)
        kernel = load(f"{name}.cu")
        assert kernel.answer() == 1
        monkeypatch.setenv(variable, os.pathsep.join([none, second]))
        assert not kernel.is_current()
        kernel.reload()
    assert kernel.answer() == 2
    shadow = write("none/env.h", "#define ANSWER 3")
    assert answers(kernel) == 3
    shadow.unlink()
    assert answers(kernel) == 2


def test_what_compilers_read_from_the_environment_decides_a_build(monkeypatch):
    recipe = jitload.recipe_of([answer(1, "environs")], target="cpu")
    digests = {next(readings(recipe)).digest}
    for name in ("LIBRARY_PATH", "COMPILER_PATH", "NVCC_APPEND_FLAGS"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "/nowhere")
            digests.add(next(readings(recipe)).digest)
    assert len(digests) == 4


MACRO_NAMES_HEADER = """
    #define HEADER <seen.h>
    #include HEADER
    extern "C" int answer() { return ANSWER; }
"""


def seen(number: int, folder: str = "seen") -> None:
    write(f"{folder}/seen.h", f"#define ANSWER {number}")


def archive(number: int) -> None:
    source = write("seen/answer.cpp", f'extern "C" int answer_of_library() {{ return {number}; }}')
    archived = Path("seen/libseen.a").absolute()
    archived.unlink(missing_ok=True)
    subprocess.run(["c++", "-c", "-fPIC", source, "-o", "seen/answer.o"], check=True)
    subprocess.run(["ar", "rcs", archived, "seen/answer.o"], check=True)


OF_LIBRARY = """
    extern "C" int answer_of_library();
    extern "C" int answer() { return answer_of_library(); }
"""
PLAIN = 'extern "C" int answer() { return ANSWER; }'


@pytest.mark.parametrize(
    ("edit", "text", "flags"),
    [
        (seen, MACRO_NAMES_HEADER, ["-isystem", "{}"]),
        (seen, MACRO_NAMES_HEADER, ["-idirafter", "{}"]),
        (seen, f"#include <seen.h>\n{PLAIN}", ["-idirafter", "{}"]),
        (seen, PLAIN, ["-include", "{}/seen.h"]),
        (archive, OF_LIBRARY, ["-L{}", "-lseen"]),
        (archive, OF_LIBRARY, ["-Xlinker", "{}/libseen.a"]),
        (archive, OF_LIBRARY, ["-Wl,{}/libseen.a"]),
    ],
    ids=range(7),
)
def test_whatever_a_flag_has_compilers_read_decides_a_build(edit, text, flags, request):
    name = f"seen{request.node.callspec.indices['edit']}"
    write(f"{name}.cu", text)
    folder = Path("seen").absolute()
    flags = [flag.format(folder) for flag in flags]
    edit(1)
    kernel = load(f"{name}.cu", flags=flags)
    assert kernel.is_current()
    assert kernel.answer() == 1
    for number in (2, 1):
        edit(number)
        assert answers(kernel) == number


def test_only_headers_of_the_system_are_not_a_users():
    """A project may lie below /usr, and a library may be installed to /usr/local."""
    assert not is_systems(Path("/usr/src/app/kernels/h.h"))
    assert not is_systems(Path("/usr/local/include/eigen3/Eigen/Core"))
    for folder in ("/usr/include", sysconfig.get_path("include"), torch.__path__[0]):
        assert is_systems(Path(folder, "x.h"))


def test_headers_of_an_environment_that_is_reached_by_a_link_are_the_systems(tmp_path, monkeypatch):
    """g++ names them by where they are, and as the user's they would be rewritten."""
    (tmp_path / "environment/torch").mkdir(parents=True)
    (tmp_path / "link").symlink_to("environment")
    place = SimpleNamespace(__file__=str(tmp_path / "link/torch/__init__.py"))
    monkeypatch.setattr("toolchain.code.torch", place)
    monkeypatch.setattr("toolchain.code.systems_folders", systems_folders.__wrapped__)
    for name in ("link", "environment"):
        assert is_systems(tmp_path / name / "torch/include/ATen/ATen.h")


def test_an_error_is_current_until_a_file_changes():
    kernel = load(answer(1, "erring"))
    answer("oops", "erring")
    assert not kernel.is_current()
    with pytest.raises(jitload.CompileError):
        kernel.reload()
    assert kernel.is_current()
    answer(1, "erring")
    assert not kernel.is_current()


def test_a_deleted_source_is_not_current_however_often_one_asks():
    path = answer(1, "deleted")
    kernel = load("deleted.cu")
    path.unlink()
    for _ in range(2):
        assert not kernel.is_current()
        with pytest.raises(FileNotFoundError):
            kernel.reload()
    answer(1, "deleted")
    kernel.reload()
    assert kernel.is_current()


@pytest.mark.parametrize("age", [0, 10, -1000], ids=["just now", "settled", "the clock went back"])
def test_an_edit_of_the_same_length_and_date_is_seen(monkeypatch, age):
    path = answer(1, "dated")
    now = time.time_ns() - age * 10**9
    os.utime(path, ns=(now, now))
    with monkeypatch.context() as patch:
        # The file's st_ctime cannot be set: instead of it, our own clock is.
        patch.setattr(time, "time_ns", lambda real=time.time_ns: real() + age * 10**9)
        kernel = load("dated.cu")
        assert kernel.is_current()
        answer(2, "dated")
        os.utime(path, ns=(now, now))
        assert not kernel.is_current()


def test_a_touched_file_is_current_and_read_once(monkeypatch):
    path = answer(1, "touched")
    then = time.time() - 100
    kernel = load("touched.cu")
    with monkeypatch.context() as patch:
        patch.setattr(time, "time_ns", lambda real=time.time_ns: real() + 100 * 10**9)
        os.utime(path, (then, then))
        assert kernel.is_current()
        patch.setattr(Path, "read_bytes", lambda path: pytest.fail(f"{path} was read"))
        assert kernel.is_current()


@pytest.mark.usefixtures("users_cache")
def test_asking_costs_less_than_a_reader_of_ten_kernels_notices(monkeypatch):
    """0.1 ms a kernel: each place where a file may be is looked at once, and none is read."""
    kernel = jitload.load("layer_norm", target="cpu")
    monkeypatch.setattr(time, "time_ns", lambda real=time.time_ns: real() + 100 * 10**9)
    assert kernel.is_current()
    calls = calls_in(kernel.is_current)
    assert calls["open"] == 0, calls
    assert calls["stat"] < 150, calls
    assert calls.total() < 1000, calls


# ---- listeners


@pytest.fixture
def events(monkeypatch):
    heard = []
    monkeypatch.setattr("jitloader.events.listeners", [heard.append])
    return heard


def test_listeners_hear_a_build_instead_of_the_line(events, capfd):
    load(answer(1, "heard"))
    assert "building" not in capfd.readouterr().err
    assert {(e.name, e.target) for e in events} == {("heard", "cpu")}
    assert [e.state for e in events] == ["building"] * (len(events) - 1) + ["done"]
    assert events[0].stage == "starting"
    assert events[1].stage == "1 of 2: heard.cu"
    assert events[0].seconds <= events[-1].seconds
    heard = len(events)
    load("heard.cu")
    assert len(events) == heard, "nothing was built"


def test_a_build_is_told_of_under_the_name_that_was_written(events):
    """Also where that begins with a digit, which C++ has to have otherwise; and once for each."""
    kernel = load(write("00_answer.cu", 'extern "C" int answer() { return 7; }'))
    assert kernel.answer() == 7
    assert kernel.name == "00_answer"
    assert [version.digest for version in kernel.builds()] == [kernel.digest]
    kernel.instrumented()
    load("00_answer.cu", flags=["-DX=1"])
    ended = [event.name for event in events if event.state == "done"]
    assert ended == ["00_answer", "00_answer (for lab.check)", "00_answer (-DX=1)"]
    with pytest.raises(AttributeError, match="kernel '00_answer' has no function 'launch'"):
        kernel.launch()


def test_listeners_hear_of_a_failed_build(events):
    with pytest.raises(jitload.CompileError):
        load(answer("oops", "heard_failing"))
    assert events[-1].state == "failed"


def test_listeners_hear_four_times_a_second(events, monkeypatch):
    """Of a compiler that takes two seconds on any machine; now and then one may be late."""
    compiler = write(
        "slow-c++", '#!/bin/sh\ncase " $* " in *" -c "*) sleep 2;; esac\nexec c++ "$@"'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler.absolute()))
    load(answer(1, "long"))
    stage = events[1].stage
    heard = [event.seconds for event in events[1:] if event.stage == stage]
    gaps = [after - before for before, after in pairwise(heard)]
    assert len(gaps) > 4
    assert sorted(gaps)[len(gaps) // 4] == pytest.approx(0.25, abs=0.1)


@pytest.mark.parametrize(
    ("output", "stage"),
    [
        ("", "1 of 3: a.cu, b.cpp"),
        ("[1/3] c++ -c /x/b.cpp -o 1.o\n", "2 of 3: a.cu"),
        ("[1/3] c++ -c '/x y/a.cu' -o 0.o\n[2/3] c++ -c /x/b.cpp -o 1.o\n", "3 of 3: linking"),
        ("[1/3] nvcc -c /x/a.cu -o 0.cuda.o\n", "2 of 3: b.cpp"),
    ],
)
def test_the_stage_is_read_from_ninjas_lines(output, stage):
    assert stage_of(output, {0: "a.cu", 1: "b.cpp"}) == stage


def test_the_stage_speaks_of_what_is_compiled_alone():
    assert stage_of("", {1: "b.cpp"}) == "1 of 2: b.cpp"
    assert stage_of("[1/2] c++ -c /x/b.cpp -o 1.o\n", {1: "b.cpp"}) == "2 of 2: linking"


# ---- versions and their differences


@pytest.fixture(scope="module")
def edited(cache, tmp_path_factory):
    """Three builds: an edit of the header, then one of the source."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("edited"))
        patch.setenv("JITLOAD_CACHE", str(cache))
        source = '#include "n.h"\nextern "C" int answer() {{ return {}; }}\n'
        write("n.h", "#define N 1\n")
        write("table.cu", source.format("N"))
        kernel = load("table.cu")
        write("n.h", "#define N 2\n")
        kernel.reload()
        write("table.cu", source.format("N < 3 ? N : 3") + "// <b>\n")
        kernel.reload()
        return kernel


def test_builds_are_a_table_of_when_what_and_how_long(edited):
    newest, *_ = builds = edited.builds()
    head, *rows = str(builds).splitlines()
    assert head.split() == ["when", "digest", "target", "lines", "seconds"]
    assert [row.split()[0] for row in rows] == ["0", "1", "2"]
    assert rows[0].split()[3:] == [newest.digest, "cpu", "+2", "−1", f"{newest.seconds:.2f}"]
    assert rows[1].split()[5:7] == ["+1", "−1"]
    assert "+" not in rows[2], "nothing came before the first"
    table = builds._repr_html_()
    assert table.count("<tr>") == 4
    assert f"<td>{newest.digest}</td>" in table


def test_a_difference_is_told_by_file_and_line(edited):
    diff = edited.diff(2, 0)
    assert (diff.added, diff.removed) == (3, 2)
    lines = str(diff).splitlines()
    old, new = (edited.builds()[i].digest[:8] for i in (2, 0))
    source, header = Path("table.cu"), Path("n.h")
    assert lines[0].endswith(f"{source} ({old})")
    assert lines[1].endswith(f"{source} ({new})")
    assert any(line.endswith(f"{header} ({new})") for line in lines)
    assert "-#define N 1" in lines
    assert "+#define N 2" in lines
    assert repr(diff).endswith("+3 −2>")
    assert str(edited.diff(0, 0)) == ""


def test_a_difference_is_coloured_in_a_notebook_and_escaped(edited):
    page = edited.diff(1, 0)._repr_html_()
    assert page.count("background") == 3
    assert "+// &lt;b&gt;" in page
    assert "no difference" in edited.diff(0, 0)._repr_html_()


def test_a_build_that_is_not_there_has_no_difference(edited):
    with pytest.raises(LookupError, match="build 7 of table"):
        edited.diff(7, 0)
