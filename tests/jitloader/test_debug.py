"""`python -m jitload debug`: gdb on a program that runs on the simulator."""

import contextlib
import json
import os
import pty
import re
import select
import shlex
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

import jitload

ROOT = Path(__file__).resolve().parents[2]
SOURCE = """\
#include <cassert>
#include <cstdio>
#include <cuda_fp16.h>
__device__ float twice(float v) {
    float w = 2 * v;
    return w;
}
__global__ void kernel(float* y, int n) {
    __shared__ float tile[32];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    __half h = __float2half(i / 4.0f);
    tile[threadIdx.x] = twice(i);
    __syncthreads();
    float other = tile[31 - threadIdx.x];
    dim3 extent(1, 2, 3);
    assert(i < n);
    y[i] = other + float(h) + extent.x;
}
int main(int count, char** arguments) {
    float* y;
    cudaMallocManaged(&y, 1024);
    kernel<<<2, 32>>>(y, count > 1 ? 60 : 64);
    printf("ended: %s\\n", cudaGetErrorString(cudaDeviceSynchronize()));
}
"""

needs_gdb = pytest.mark.skipif(
    not shutil.which("gdb") or sys.platform != "linux", reason="needs gdb, which Debian has"
)


@pytest.fixture
def source(tmp_path) -> Path:
    place = tmp_path / "mine.cu"
    place.write_text(SOURCE)
    return place


def debugged(source: Path, *commands: str, arguments: tuple[str, ...] = ()) -> str:
    """What gdb says to these commands, from the program's start on."""
    ran = subprocess.run(
        [sys.executable, "-m", "jitload", "debug", str(source), *arguments],
        input="\n".join([*commands, "kill", "quit", ""]),
        capture_output=True,
        text=True,
        timeout=240,
        cwd=ROOT,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@needs_gdb
def test_one_thread_of_one_block_stops_and_goes_on_by_itself(source):
    said = debugged(
        source,
        "break mine.cu:12 block 1,0,0 thread 3,0,0",
        "run",
        *("print threadIdx.x", "print blockIdx.x * 100 + blockDim.x", "print h", "print i"),
        *("next", "print tile[3]", "next", "print threadIdx.x", "next", "print other"),
        *("next", "print extent", "info breakpoints"),
    )
    printed = re.findall(r"\$\d+ = (.*)", said)
    assert printed[:7] == ["3", "132", "8.75", "35", "70", "3", "120"]
    assert "y = 2" in said
    assert "breakpoint already hit 1 time\n" in said
    assert "block (1, 0, 0), thread (3, 0, 0)" in said


@needs_gdb
def test_an_assertion_stops_at_its_line_with_the_users_frames_alone(source):
    said = debugged(source, "run", "bt", "print i", arguments=("--", "more"))
    assert "block (1, 0, 0), thread (31, 0, 0)" in said
    (frame,) = re.findall(r"#\d+ .*(?:\n +at .*)?", said)
    assert "kernel" in frame
    assert "mine.cu:16" in frame
    assert "$1 = 63" in said


CALLED = """\
#include <cassert>
#include <cuda_bf16.h>
__global__ void kernel(const float* x, float* y, int n) {
    __shared__ float tile[32];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    __nv_bfloat16 b = __float2bfloat16(x[i]);
    tile[threadIdx.x] = 2 * x[i];
    __syncthreads();
    float other = tile[31 - threadIdx.x];
    assert(i < n);
    if (n == 65 && i == 40) __trap();
    y[i] = other + float(b);
}
extern "C" void run(const float* x, float* y, int n) { kernel<<<2, 32>>>(x, y, n); }
"""


@needs_gdb
def test_a_call_from_python_stops_in_one_thread(tmp_path):
    (tmp_path / "called.cu").write_text(CALLED)
    kernel = jitload.load(tmp_path / "called.cu", target="cpu")
    x, y = torch.arange(64.0), torch.zeros(64)
    stop = "break called.cu:9 block 1,0,0 thread 3,0,0"
    commands = [stop, "run", "print threadIdx.x", "print b", "print tile[3]", "next"]
    commands += ["print threadIdx.x", "print other", "bt", "delete", "continue", "bt"]
    said = kernel.debug(lambda: kernel.run(x, y, 65), commands=commands)
    assert re.findall(r"\$\d+ = (.*)", said) == ["3", "35", "70", "3", "120"]
    assert "block (1, 0, 0), thread (3, 0, 0)" in said
    stopped, failed = re.findall(r"^#\d+ .*", said, re.MULTILINE)
    assert re.search(r"kernel\(.*called\.cu:10$", stopped)
    assert re.search(r"kernel\(.*called\.cu:11$", failed)  # what fails stops, too
    assert not y.any()
    with pytest.raises(RuntimeError, match=r"needs a terminal.*commands=\["):
        kernel.debug("run", x, y, 64)  # pytest has none


@needs_gdb
def test_a_condition_holds_for_a_kernel_that_is_not_loaded_yet(source):
    """gdb disables a breakpoint with a condition of its own when the library is not there."""
    said = debugged(
        source,
        *("break mine.cu:12 block 1,0,0 if i == 40 && threadIdx.x == 8", "run", "print i", "next"),
        *("delete", "break mine.cu:14 if nothing == 3", "continue"),
    )
    assert "$1 = 40\n" in said
    assert "block (1, 0, 0), thread (8, 0, 0)" in said
    assert 'cannot evaluate the condition nothing == 3: No symbol "nothing"' in said


@needs_gdb
@pytest.mark.slow
def test_vs_codes_configuration_stops_in_one_thread(source):
    """Its program, arguments and commands, as the extension gives them to gdb's machine interface:
    a breakpoint has the whole path, and its condition by -c."""
    (it,) = json.loads((ROOT / ".vscode/launch.json").read_text())["configurations"]

    def filled(text: str) -> str:
        return text.replace("${workspaceFolder}", str(ROOT)).replace("${file}", str(source))

    assert (ROOT / ".venv/bin/python").name == Path(filled(it["program"])).name
    setup = [filled(each["text"]) for each in it["setupCommands"]]
    gdb = subprocess.Popen(
        ["gdb", "-q", "--interpreter=mi", *shlex.split(it["miDebuggerArgs"])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    limit = threading.Timer(240, gdb.kill)
    limit.start()

    def done(command: str, until: str = "^done") -> str:
        gdb.stdin.write(command + "\n")
        gdb.stdin.flush()
        for line in gdb.stdout:
            assert not line.startswith(("^error", '*stopped,reason="exited')), (command, line)
            if line.startswith(until):
                return line
        raise AssertionError(f"gdb ended at {command}")

    for text in setup:
        done(text if text[0] == "-" else f'-interpreter-exec console "{text}"')
    done(f"-file-exec-and-symbols {sys.executable}")
    done("-exec-arguments " + shlex.join(filled(each) for each in it["args"]))
    done(f'-break-insert -f -c "threadIdx.x == 3" {source}:12')
    done("-exec-run", "*stopped")
    frames = done("-stack-list-frames")
    assert re.findall(r'func="(.*?)".*?file="(.*?)",.*?line="(\d+)"', frames) == [
        ("kernel(float*, int)", str(source), "12")
    ]
    assert 'value="3"' in done('-var-create - * "threadIdx.x"')
    assert 'line="13"' in done("-exec-next", "*stopped")
    assert 'value="6"' in done('-data-evaluate-expression "tile[3]"')
    gdb.stdin.write("-gdb-exit\n")
    gdb.stdin.close()
    assert gdb.wait() == 0
    limit.cancel()


def at_terminal(command: list[str], *typed: str) -> str:
    """What stands on a terminal after these lines have been typed, each at gdb's prompt."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execvpe(command[0], command, {**os.environ, "TERM": "dumb", "COLUMNS": "200"})
    said = b""
    lines = iter([*typed, "kill", "quit"])
    with contextlib.suppress(OSError):  # EIO: the program has ended
        while select.select([terminal], [], [], 240)[0] and (read := os.read(terminal, 1 << 16)):
            said += read
            if said.endswith((b"(gdb) ", b"(y or n) ")):
                line = "y" if said.endswith(b"(y or n) ") else next(lines)
                os.write(terminal, line.encode() + b"\n")
    os.close(terminal)
    assert os.waitpid(pid, 0)[1] == 0, said
    return said.decode().replace("\r", "")


@needs_gdb
def test_at_a_terminal_a_program_is_stepped_thread_by_thread(source):
    said = at_terminal(
        [sys.executable, "-m", "jitload", "debug", str(source)],
        *("break mine.cu:12 block 1,0,0 thread 3,0,0", "run", "print threadIdx", "print h"),
        *("next", "next", "print threadIdx.x", "print tile", "bt"),
    )
    printed = re.findall(r"^\$\d+ = ([^$]*?)\n\(gdb\)", said, re.MULTILINE)
    assert re.findall(r"\d+", printed[0]) == ["3", "0", "0"]
    assert printed[1:3] == ["8.75", "3"]
    assert printed[3].startswith("{64, 66, 68, 70, 72, ")  # all threads have come to the barrier
    (frame,) = re.findall(r"^#\d+ .*", said, re.MULTILINE)
    assert re.search(r"kernel.*mine\.cu:14$", frame)


@needs_gdb
@pytest.mark.slow
def test_at_a_terminal_a_call_from_python_stops_in_one_thread(tmp_path):
    (tmp_path / "called.cu").write_text(CALLED)
    (tmp_path / "call.py").write_text(
        "import jitload, torch\n"
        f"kernel = jitload.load({str(tmp_path / 'called.cu')!r}, target='cpu')\n"
        "kernel.debug('run', torch.arange(64.0), torch.zeros(64), 64)\n"
        "print('back in Python')\n"
    )
    stop = "break called.cu:9 block 1,0,0 thread 3,0,0"
    said = at_terminal(
        [sys.executable, str(tmp_path / "call.py")],
        *(stop, "run", "print b", "next", "print threadIdx.x", "print other", "bt"),
    )
    assert re.findall(r"^\$\d+ = (.*)", said, re.MULTILINE) == ["35", "3", "120"]
    (frame,) = re.findall(r"^#\d+ .*", said, re.MULTILINE)
    assert re.search(r"kernel\(.*called\.cu:10$", frame)
    assert said.endswith("back in Python\n")


def test_without_gdb_one_line_says_how_to_get_it(source, tmp_path):
    (tmp_path / "bin").mkdir()
    ran = subprocess.run(
        [sys.executable, "-m", "jitload", "debug", str(source)],
        env={**os.environ, "PATH": str(tmp_path / "bin")},
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert ran.returncode == 125
    assert ran.stderr == "gdb is not found, which the debugger is: Debian: apt install gdb\n"
