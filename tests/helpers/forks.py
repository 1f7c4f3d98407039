"""Processes of Python that have PyTorch, IPython and matplotlib imported from their start.

Each is a fork of one that has imported them and does nothing else: that takes three seconds of a
processor, and tests start hundreds of processes. The project's own modules are imported by each
itself, in the environment that it is given.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import json
import multiprocessing.process
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any, TextIO

ROOT = Path(__file__).resolve().parents[2]
_INLINE = "module://matplotlib_inline.backend_inline"  # ipykernel sets it before matplotlib looks


class Fork:
    """As subprocess.Popen of Python with -c and code, with -m and a module, or with a file.

    Its text goes through pipes, into files, or to where this process's goes for None; its input is
    empty, but for subprocess.PIPE.
    """

    def __init__(
        self,
        command: list[str],
        *,
        cwd: str | Path | None = None,
        env: dict[str, str] | None = None,
        stdin: int | None = None,
        stdout: int | TextIO | None = subprocess.PIPE,
        stderr: int | TextIO | None = subprocess.PIPE,
        start_new_session: bool = False,
    ) -> None:
        request = {
            "words": [word for word in map(str, command[1:]) if not word.startswith("-X")],
            "cwd": str(cwd or Path.cwd()),
            "env": dict(os.environ if env is None else env),
            "alone": start_new_session,
        }
        its_input, self.stdin = _pipe(writes=True) if stdin else (os.open(os.devnull, 0), None)
        its_output, self.stdout = _end(stdout, 1)
        its_errors, self.stderr = _end(stderr, its_output if stderr == subprocess.STDOUT else 2)
        ends = [its_input, its_output, its_errors]
        self.pid: int = _asked(request, ends)
        for end in ends:
            os.close(end)
        self.args, self.returncode = command, None
        self._said = {it: "" for it in (self.stdout, self.stderr) if it}
        self._readers: list[threading.Thread] = []

    def poll(self) -> int | None:
        if self.returncode is None:
            status, seconds = _asked({"child": self.pid})
            if status is not None:
                self.returncode = os.waitstatus_to_exitcode(status)
                _ended.append(seconds)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        end = time.monotonic() + (float("inf") if timeout is None else timeout)
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(self.args, timeout)
            time.sleep(0.005)
        return self.returncode

    def communicate(self, text: str = "", timeout: float | None = None) -> tuple[str, str]:
        end = time.monotonic() + (threading.TIMEOUT_MAX / 2 if timeout is None else timeout)
        if self.stdin and not self.stdin.closed:
            with contextlib.suppress(BrokenPipeError):
                self.stdin.write(text)
                self.stdin.close()
        if not self._readers:
            self._readers = [threading.Thread(target=self._read, args=(it,)) for it in self._said]
            for reader in self._readers:
                reader.start()
        for reader in self._readers:
            reader.join(max(0, end - time.monotonic()))
            if reader.is_alive():
                raise subprocess.TimeoutExpired(self.args, timeout)
        self.wait(max(0, end - time.monotonic()))
        return self._said.get(self.stdout, ""), self._said.get(self.stderr, "")

    def _read(self, pipe: TextIO) -> None:
        with pipe:
            self._said[pipe] = pipe.read()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run(command: list[str], text: str = "", **options: Any) -> subprocess.CompletedProcess:
    """As subprocess.run, with what is written to it, and what it says captured."""
    process = Fork(command, stdin=subprocess.PIPE, **options)
    try:
        said = process.communicate(text, timeout=300)
    finally:
        process.kill()
    return subprocess.CompletedProcess(command, process.returncode, *said)


def _pipe(*, writes: bool = False) -> tuple[int, TextIO]:
    """The end of a pipe for a process, and a file of the other one."""
    ends = os.pipe()
    return ends[not writes], os.fdopen(ends[writes], "w" if writes else "r", encoding="utf-8")


def _end(of: int | TextIO | None, ours: int) -> tuple[int, TextIO | None]:
    """As `_pipe`, or what a file or our own descriptor is, of which we keep no end."""
    if of == subprocess.PIPE:
        return _pipe()
    return os.dup(of.fileno() if hasattr(of, "fileno") else ours), None


fresh = functools.partial(
    subprocess.Popen, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
)
Process = Fork | subprocess.Popen


def kernel(command: list[str], env: dict[str, str], cwd: str | None = None, **options: Any) -> Fork:
    """As jupyter_client's launch_kernel."""
    own = {"JPY_PARENT_PID": str(os.getpid()), "MPLBACKEND": env.get("MPLBACKEND") or _INLINE}
    kept = {"cwd": cwd, "env": {**env, **own}}
    return Fork(command, stdout=None, stderr=None, start_new_session=True, **kept)


_ended: list[float] = []


def processor_seconds() -> float:
    """What the forks took that have ended, with the processes that they started."""
    return sum(_ended)


# ---- the process that forks

_lock = threading.Lock()


@functools.cache
def _forker() -> socket.socket:
    """The line to a process that has imported what each fork has; it ends with this process."""
    ours, its = socket.socketpair()
    process = subprocess.Popen(
        [sys.executable, __file__, str(its.fileno())],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[its.fileno()],
    )
    its.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _asked(request: dict, ends: list[int] | None = None) -> Any:
    text = json.dumps(request).encode() + b"\n"
    with _lock:
        sent = socket.send_fds(_forker(), [text], ends or [])
        _forker().sendall(text[sent:])
        answer = _forker().recv(100)
    assert answer, "the process that forks has ended, and has said above why"
    return json.loads(answer)


def _request_of_a_fork(line: socket.socket) -> dict:
    """Answer requests, and return in each fork what it was asked to do."""
    while True:
        text, ends = b"", []
        while not text.endswith(b"\n"):
            some, given, _, _ = socket.recv_fds(line, 1 << 16, 3)
            if not some:
                os._exit(0)
            text += some
            ends += given
        request = json.loads(text)
        if "child" in request:
            number, status, used = os.wait4(request["child"], os.WNOHANG)
            answer = [status if number else None, used.ru_utime + used.ru_stime]
            line.send(json.dumps(answer).encode())
        elif os.fork():
            for end in ends:
                os.close(end)
        else:
            for number, end in enumerate(ends):
                os.dup2(end, number)
                os.close(end)
            if request["alone"]:
                os.setsid()
            line.send(json.dumps(os.getpid()).encode())
            line.close()
            return request


def _begin(request: dict) -> None:
    """Be what Python is when it begins with these words behind it."""
    os.chdir(request["cwd"])
    multiprocessing.process.ORIGINAL_DIR = request["cwd"]  # where what it spawns begins
    own = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ.clear()
    os.environ.update(request["env"])
    if backend := os.environ.get("MPLBACKEND"):
        matplotlib.rcParams["backend"] = backend
    first, *rest = request["words"]
    folders = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    start = str(Path(first).parent) if not first.startswith("-") else ""
    sys.path[:] = [start, *folders, *(it for it in sys.path[1:] if it not in own)]
    if first == "-m":
        sys.argv = ["-m", *rest[1:]]
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
        return
    main = types.ModuleType("__main__")
    sys.modules["__main__"] = main
    if first == "-c":
        code, *rest = rest
        sys.argv, name = [first, *rest], "<string>"
    else:
        code, name = Path(first).read_text(), first
        sys.argv, main.__file__ = [first, *rest], str(Path(first).absolute())
    try:
        exec(compile(code, name, "exec"), main.__dict__)
    except Exception as error:  # as Python shows what nobody has caught
        error.__traceback__ = error.__traceback__.tb_next  # without this file's frame
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)


if __name__ == "__main__":
    import ipykernel.kernelapp  # noqa: F401
    import IPython  # noqa: F401
    import ipywidgets  # noqa: F401
    import matplotlib.backends.backend_agg
    import matplotlib.figure
    import matplotlib.style
    import numpy  # noqa: F401
    import pandas  # noqa: F401
    import torch
    import torch.distributed.tensor  # which torch.testing imports when it first compares
    import torch.fx.experimental.symbolic_shapes  # noqa: F401

    gc.freeze()  # what is never looked at again is never copied for a fork
    _begin(_request_of_a_fork(socket.socket(fileno=int(sys.argv[1]))))
