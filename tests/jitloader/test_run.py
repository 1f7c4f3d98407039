"""Whole programs: python -m jitload run, in a process of their own."""

import os
import re
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from jit_cases import write

import jitload
from jitloader import commands, programs
from tests.helpers import forks

pytestmark = pytest.mark.usefixtures("in_scratch")

# What it does is its first argument. It is built once.
SOURCE = r"""
    #include <cstdio>
    #include <cstdlib>
    #include <cstring>
    #include <unistd.h>
    #include <stdexcept>

    int inflate(int n) { return n + 1; }  // a name that Python's own libraries may have, too

    __global__ void add(int* x, int n) { if (threadIdx.x < n) x[threadIdx.x] += 1; }

    __global__ void part() {
        if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;");
        else asm volatile("bar.sync 2, 64;");
    }

    struct AtEnd { ~AtEnd() { std::puts("destroyed"); } } at_end;

    int main(int argc, char** argv) {
        const char* what = argc > 1 ? argv[1] : "";
        auto is = [&](const char* word) { return !std::strcmp(what, word); };
        if (is("arguments")) {
            for (int i = 0; i < argc; i++) std::printf("[%s]", argv[i]);
            std::printf(" %d %s\n", inflate(argc), std::getenv("HOME_OF_TESTS"));
            return 7;
        }
        if (is("kernel")) {
            int* x;
            int y[4];
            cudaMalloc(&x, sizeof y);
            cudaMemset(x, 0, sizeof y);
            add<<<1, 32>>>(x, 4);
            cudaMemcpy(y, x, sizeof y, cudaMemcpyDeviceToHost);
            std::printf("%d %d %d %d\n", y[0], y[1], y[2], y[3]);
            std::exit(0);
        }
        if (is("file")) {
            std::FILE* file = std::fopen("numbers.txt", "r");
            int number = 0;
            if (!file || std::fscanf(file, "%d", &number) != 1) return 1;
            std::printf("%d\n", number);
        }
        if (is("stdin")) {
            int number = -1;
            std::printf("%d\n", std::scanf("%d", &number) + number);
        }
        if (is("addresses")) {  // of a kernel, and of its arguments
            int* x;
            int y[4], n = 4;
            cudaMalloc(&x, sizeof y);
            cudaMemset(x, 0, sizeof y);
            void* arguments[] = {(void*)&x, reinterpret_cast<void*>(&n)};
            cudaLaunchKernel((void*)&add, dim3(1), dim3(32), arguments, 0, nullptr);
            cudaMemcpy(y, x, sizeof y, cudaMemcpyDeviceToHost);
            std::printf("%d %d\n", y[0], y[3]);
        }
        if (is("refused")) add<<<1, 5000>>>(nullptr, 0);
        if (is("dropped") || is("asked for")) {
            int* x;
            cudaMalloc(&x, 4);
            if (x) cudaMemcpy(x, argv,
                              8, cudaMemcpyHostToDevice);
            if (is("asked for")) std::printf("%d\n", cudaGetLastError() != cudaSuccess);
        }
        if (is("deadlock")) part<<<1, 64>>>();
        if (is("illegal")) add<<<1, 4>>>(nullptr, 4);
        if (is("asked")) {
            add<<<1, 5000>>>(nullptr, 0);
            std::printf("%d\n", cudaGetLastError() != cudaSuccess);
        }
        if (is("returned")) {
            add<<<1, 4>>>(nullptr, 4);
            std::printf("%d\n", cudaDeviceSynchronize() == cudaErrorIllegalAddress);
        }
        if (is("shown") || is("past the end")) {
            int* x;
            cudaMalloc(&x, 100 * sizeof(int));
            add<<<1, 101>>>(x, 101);
            const cudaError_t error = cudaDeviceSynchronize();
            if (is("shown")) std::printf("%d\n", std::strlen(cudaGetErrorString(error)) > 9);
        }
        if (is("unrelated")) std::printf("%d\n", cudaSetDevice(99) != cudaSuccess);
        if (is("segfault")) *reinterpret_cast<volatile int*>(8) = 1;
        if (is("abort")) throw std::runtime_error("nobody catches this");
        if (is("endless")) {
            const int child = fork();
            if (child == 0) for (;;) sleep(1);
            std::printf("child %d\n", child);
            for (;;) sleep(1);
        }
        return 0;
    }
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory, cache):
    path = tmp_path_factory.mktemp("program") / "sample.cu"
    path.write_text(SOURCE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JITLOAD_CACHE", str(cache))
        return jitload.Program(path, target="cpu")


class Heard:
    """What a program printed."""

    def __init__(self):
        self.out, self.errors = b"", b""
        self.something = threading.Event()

    def __call__(self, stream, printed):
        if stream == 1:
            self.out += printed
        else:
            self.errors += printed
        self.something.set()


@pytest.fixture
def run(program):
    def run_it(*arguments, **options):
        heard = Heard()
        ran = program.run(arguments, output=heard, **options)
        return ran, heard.out.decode(), heard.errors.decode()

    return run_it


def test_main_gets_its_arguments_and_says_its_status(run, monkeypatch):
    monkeypatch.setenv("HOME_OF_TESTS", "here")
    began = time.monotonic()
    ran, out, errors = run("arguments", "a b", "--c")
    took = time.monotonic() - began
    assert out == "[./sample][arguments][a b][--c] 5 here\ndestroyed\n"
    assert (ran.status, ran.exit_status, errors) == (7, 7, "")
    assert str(ran).startswith(f"ended with exit status 7 after {ran.seconds:.2f}")
    assert 0.001 < ran.seconds <= took


def test_its_kernels_run_and_exit_ends_it(run):
    ran, out, errors = run("kernel")
    assert (ran.status, out, errors) == (0, "1 1 1 1\ndestroyed\n", "")


def test_a_kernel_and_its_arguments_are_given_by_their_addresses(run):
    ran, out, errors = run("addresses")
    assert (ran.status, out, errors) == (0, "1 1\ndestroyed\n", "")


def test_files_are_those_of_the_working_directory(run, tmp_path):
    Path("numbers.txt").write_text("11")
    assert run("file")[1].startswith("11\n")
    (tmp_path / "elsewhere").mkdir()
    Path("elsewhere/numbers.txt").write_text("12")
    assert run("file", cwd="elsewhere")[1].startswith("12\n")


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("refused", "a block of (5000, 1, 1) threads"),
        ("dropped", "sample.cu:61: cudaMemcpy: invalid argument: a copy of 8 bytes"),
        ("illegal", "illegal memory access"),
        ("returned", "illegal memory access"),
        ("past the end", "thread (100, 0, 0): illegal memory access"),
    ],
)
def test_an_error_of_cuda_that_the_program_does_not_show_is_told_at_the_end(run, what, said):
    ran, _, errors = run(what)
    assert ran.status == 0
    assert "an error of CUDA that the program does not show: " in errors
    assert said in errors
    assert what in ("refused", "dropped") or re.search(r", at /\S+\.cu:10\n$", errors)
    assert errors.count("\n") == 1


def test_a_deadlock_that_the_program_does_not_show_is_told_with_all_places(run):
    ran, _, errors = run("deadlock")
    assert ran.status == 0
    first, *places, last = errors.split("\n")
    assert first.startswith(
        "an error of CUDA that the program does not show: kernel part, launched"
    )
    assert first.endswith("block (0, 0, 0): 64 of 64 threads wait for others that never come")
    said = (
        r"  \S+sample\.cu:%d: bar\.sync"
        r" \(barrier %d: 32 of 64 threads have come\): 32 threads \(%s\)"
    )
    for place, expected in zip(places, [(13, 1, "0-31"), (14, 2, "32-63")], strict=True):
        assert re.fullmatch(said % expected, place)
    assert last == ""


@pytest.mark.parametrize("what", ["asked", "asked for", "shown", "unrelated"])
def test_an_error_that_the_program_was_told_of_is_its_own(run, what):
    assert run(what)[1:] == ("1\ndestroyed\n", "")


@pytest.mark.parametrize(
    ("what", "number", "said"),
    [
        ("segfault", signal.SIGSEGV, "SIGSEGV after "),
        ("abort", signal.SIGABRT, "an exception that nobody catches"),
    ],
)
def test_a_crash_is_told_in_one_line(run, what, number, said):
    ran, _, errors = run(what)
    assert (ran.status, ran.exit_status) == (-number, 128 + number)
    assert said in str(ran)
    assert "\n" not in str(ran)
    assert what != "abort" or "nobody catches this" in errors


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def is_gone(pid):
    """It would never end by itself."""
    for _ in range(1000):
        if not is_alive(pid):
            return True
        time.sleep(0.02)
    return False


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


@needs_proc
def test_what_takes_too_long_is_ended_with_its_children(run):
    out = ""
    for seconds in (0.5, 5, 50):
        if not out:  # it has had no time to begin
            ran, out, _ = run("endless", timeout=seconds)
    assert ran.timed_out
    assert ran.exit_status == programs.TIMED_OUT
    assert "its time was over" in str(ran)
    assert is_gone(int(out.split()[1]))


@needs_proc
def test_an_interrupt_ends_it_with_its_children(program):
    heard = Heard()

    def interrupt():
        heard.something.wait(60)  # it is told what is printed at once
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in the background
    try:
        threading.Thread(target=interrupt).start()
        with pytest.raises(KeyboardInterrupt, match=r"sample.cu was stopped after \d+\.\d\d s"):
            program.run(["endless"], output=heard, timeout=60)
    finally:
        signal.signal(signal.SIGINT, before)
    assert is_gone(int(heard.out.split()[1]))


# ---- from the shell


def test_the_command_runs_it_where_it_is_called(program, cache):
    command = [sys.executable, "-m", "jitload", "run", str(program.recipe.sources[0])]
    command += ["--target", "cpu", "stdin"]
    done = forks.run(command, "41")
    assert (done.returncode, done.stdout) == (0, "42\ndestroyed\n")
    assert done.stderr.startswith("sample.cu ended with exit status 0 after ")


def test_what_stands_in_the_line_goes_where_it_belongs():
    words = [
        "a.cu",
        "-I",
        "inc",
        "-DN=2",
        "b.cpp",
        "--target",
        "cpu",
        "--timeout=3",
        "8",
        "--",
        "-v",
        "c.cu",
    ]
    line = programs.ProgramLine.parse(words)
    assert line.sources == ["a.cu", "b.cpp"]
    assert line.flags == ["-I", "inc", "-DN=2"]
    assert line.arguments == ["8", "-v", "c.cu"]
    assert (line.target, line.timeout) == ("cpu", 3)


TWO = """
    int twice(int);
    extern "C" int half(int);
    int main() { return half(twice(twice(THREE))); }
"""


# Of the device and of the host, which includes nothing of CUDA's.
DOUBLED = """
    #pragma once
    #ifdef __CUDACC__
    __device__
    #endif
    inline int doubled(int n) {
        int result;
        result = 2 * n;
        if (n) return result;
        return 0;
    }
"""


def test_more_sources_and_flags(capfd):
    write("main.cu", f'#include "doubled.h"\n{TWO}')
    write("twice.cpp", '#include "doubled.h"\nint twice(int n) { return doubled(n); }')
    write("doubled.h", DOUBLED)
    write("half.c", "int half(int class) { return class / 2; }")
    sources = ["main.cu", "twice.cpp", "half.c"]
    assert commands.main(["run", *sources, "-DTHREE=3", "--target", "cpu"]) == 6
    assert "main.cu ended with exit status 6" in capfd.readouterr().err
    assert commands.main(["run", "main.cu", "half.c", "-DTHREE=3", "--target=cpu"]) == 127
    assert "undefined symbol: twice(int)" in capfd.readouterr().err
    assert jitload.announce(True), "the builds of this process must still print their lines"


def test_main_may_be_in_a_file_that_is_included(capfd):
    write("main.cu", 'int doubled(int n) { return 2 * n; }\n#include "launch.cu"\n')
    write("launch.cu", "int main() { return doubled(3); }")
    assert commands.main(["run", "main.cu", "--target", "cpu"]) == 6
    assert "main.cu ended with exit status 6" in capfd.readouterr().err


def test_a_wrong_format_of_printf_is_told_with_its_line_each_time(capfd):
    write(
        "printf.cu",
        """
    #include <cstdio>
    __global__ void tell(long long n) { printf("%d", n); }
    int main() { tell<<<1, 1>>>(5); return cudaDeviceSynchronize(); }
    """,
    )
    for _ in range(2):
        assert commands.main(["run", "printf.cu", "--target", "cpu"]) == 0
        told, ended = capfd.readouterr().err.splitlines()
        assert re.match(r"printf\.cu: \S*printf\.cu:2: format .%d. expects .*long long", told)
        assert ended.startswith("printf.cu ended with exit status 0")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "wanted is python -m jitload run FILE.cu"),
        (["none.cu"], "no source"),
        (["bare.cu"], "bare.cu: there is no main() to run"),
        (["broken.cu"], "broken.cu:1:14: error"),
        (["broken.cu", "--timeout", "soon"], "--timeout is 'soon'; wanted is a number"),
        (["broken.cu", "--target", "gpu"], "--target is 'gpu'; wanted one of cuda, cpu"),
    ],
)
def test_what_cannot_be_built_is_told(capfd, monkeypatch, words, said):
    monkeypatch.setenv("JITLOAD_TARGET", "cpu")
    write("bare.cu", "__global__ void k() {} // main() is elsewhere")
    write("broken.cu", "int main() { unknown; }")
    assert commands.main(["run", *words]) == programs.NOT_BUILT
    assert said in capfd.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_a_gpus_program_is_told_so(program):
    with pytest.raises(jitload.MissingTool, match="to run on a GPU, and torch sees none"):
        jitload.Program(*program.recipe.sources, target="cuda")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_on_a_gpu(program):
    on_gpu, heard = jitload.Program(*program.recipe.sources, target="cuda"), Heard()
    assert on_gpu.run(["kernel"], output=heard).status == 0
    assert heard.out == b"1 1 1 1\ndestroyed\n"
    on_gpu.run(["refused"], output=heard)
    on_gpu.run(["illegal"], output=heard)
    assert heard.errors.count(b"CUDA's last error when the program ended") == 2


@pytest.mark.parametrize(
    ("text", "has_one"),
    [
        ("int main() {}", True),
        ("int32_t main(int32_t argc, char* argv[]) {}", True),
        ("auto main(int, char**) -> int {}", True),
        ("int f() { return main(1); } // int main()", False),
        ("int mainly(); int domain ();", False),
    ],
)
def test_a_main_is_known_whatever_its_type(text, has_one):
    assert jitload.has_main(text) == has_one
