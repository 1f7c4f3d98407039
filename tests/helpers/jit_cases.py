"""Small sources and processes for the loader's tests."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import jitload
from tests.helpers.forks import Fork, Process

# Minutes of work for a compiler, of which none ends by itself while one waits for it to be ended:
# Slow<T, 400>::value, where T is double.
ENDLESS = """
template <class T>
constexpr int slow(int sum) {
    for (int i = 0; i < (sizeof(T) == sizeof(double) ? 200000 : 0); ++i) sum += i & sum;
    return sum & 1;
}
template <class T, int N>
struct Slow { static constexpr int value = slow<T>(N) + Slow<T, N - 1>::value; };
template <class T>
struct Slow<T, 0> { static constexpr int value = 0; };
"""
LOAD = 'print(jitload.load("{}", target="cpu").answer())'


def write(path: str, text: str) -> Path:
    path = Path(path).absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text).lstrip("\n"))
    return path


def answer(value: object, name: str = "answer") -> Path:
    """A source whose function returns `value`."""
    return write(f"{name}.cu", f'extern "C" int answer() {{ return {value}; }}\n')


def hiding(name: str, value: object = "HIDDEN") -> Path:
    """A source whose header, where HIDDEN is 3, is named by a macro: only a compiler finds it."""
    write("hidden.h", "#define HIDDEN 3")
    include = '#define NAME "hidden.h"\n#include NAME\n'
    return write(f"{name}.cu", f'{include}extern "C" int answer() {{ return {value}; }}\n')


def load(*sources, **options):
    return jitload.load(*sources, target="cpu", **options)


def in_process(code: str, **options) -> Fork:
    """A Python that imports the loader, runs in this folder and hears interrupts, which a job in
    the background leaves to nobody."""
    begin = (
        "import signal, sys, jitload\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    )
    return Fork([sys.executable, "-c", begin + textwrap.dedent(code)], **options)


def in_script(path: Path) -> Fork:
    """A Python that runs a file: what it spawns imports that file again."""
    return Fork([sys.executable, str(path)])


def results_of(processes: list[Process]) -> list[tuple[str, str]]:
    """What each printed, and what it said of its builds."""
    results = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), results
    return [(out.strip(), err) for out, err in results]


def output_of(code: str, **options) -> str:
    process = in_process(code, **options)
    out, err = process.communicate(timeout=600)  # the background has only what other tests leave
    assert process.returncode == 0, err
    return out.strip()


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def compilers_in(folder: Path) -> list[str]:
    """Command lines of running compilers that name a folder."""
    found = []
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = line.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        by_compiler = any(name in command for name in ("cc1plus", "cudafe++", "cicc", "nvcc"))
        if by_compiler and str(folder) in command:
            found.append(command)
    return found


def wait_for(condition, what: str, seconds: float = 60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"waited {seconds} s for {what}"
        time.sleep(0.02)


# What makes a process call its function in_fork with each line that it reads, in a fork.
FORKS = """
import os
for line in sys.stdin:
    if child := os.fork():
        print(child, flush=True)
        os.waitpid(child, 0)
        print(flush=True)
    else:
        try:
            in_fork(line.strip())
        finally:
            os._exit(0)
"""


def killed_after(seconds: float, parent: subprocess.Popen, line: str = "") -> None:
    """Have a process that runs FORKS fork for a line, and kill the fork."""
    parent.stdin.write(f"{line}\n")
    parent.stdin.flush()
    child = int(parent.stdout.readline())
    time.sleep(seconds)
    _kill_with_children(child)
    parent.stdout.readline()


def _kill_with_children(process: int) -> None:
    children: list[str] = []
    with contextlib.suppress(OSError):  # it has ended already
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    for number in (process, *map(int, children)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(number, signal.SIGKILL)
