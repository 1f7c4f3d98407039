"""Processes of Python that have the loader imported from their start.

Each is a fork of one that has imported it and does nothing else: importing PyTorch takes a second
and a half of a processor, and tests start hundreds of processes.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import multiprocessing.process
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


class Fork:
    """As subprocess.Popen of [sys.executable, "-c", CODE] or [sys.executable, FILE], with text in
    pipes for its output, and for its input if `stdin` says so."""

    def __init__(
        self,
        command: list[str],
        *,
        cwd: str | Path | None = None,
        env: dict[str, str] | None = None,
        stdin: int | None = None,
        start_new_session: bool = False,
    ) -> None:
        _, file, *code = command
        request = {
            "file": str(file),
            "code": code[0] if code else Path(cwd or "", file).read_text(),
            "cwd": str(cwd or Path.cwd()),
            "env": dict(os.environ if env is None else env),
            "alone": start_new_session,
        }
        its_input, self.stdin = _pipe(writes=True) if stdin == subprocess.PIPE else (None, None)
        its_output, self.stdout = _pipe()
        its_errors, self.stderr = _pipe()
        if its_input is None:
            its_input = os.open(os.devnull, os.O_RDONLY)
        ends = [its_input, its_output, its_errors]
        self.pid: int = _asked(request, ends)
        for end in ends:
            os.close(end)
        self.args, self.returncode = command, None
        self._said = {self.stdout: "", self.stderr: ""}
        self._readers: list[threading.Thread] = []

    def poll(self) -> int | None:
        if self.returncode is None:
            status = _asked({"child": self.pid})
            self.returncode = None if status is None else os.waitstatus_to_exitcode(status)
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
        return self._said[self.stdout], self._said[self.stderr]

    def _read(self, pipe) -> None:
        with pipe:
            self._said[pipe] = pipe.read()

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _pipe(*, writes: bool = False):
    """The end of a pipe for a process, and a file of the other one."""
    ends = os.pipe()
    return ends[not writes], os.fdopen(ends[writes], "w" if writes else "r", encoding="utf-8")


fresh = functools.partial(
    subprocess.Popen, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
)
Process = Fork | subprocess.Popen


# ---- the process that forks

_lock = threading.Lock()


@functools.cache
def _forker() -> socket.socket:
    """The line to a process that has the loader imported; it ends with this process."""
    ours, its = socket.socketpair()
    subprocess.Popen(
        [sys.executable, __file__, str(its.fileno())],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=[its.fileno()],
    )
    its.close()
    return ours


def _asked(request: dict, ends: list[int] | None = None) -> int | None:
    text = json.dumps(request).encode() + b"\n"
    with _lock:
        sent = socket.send_fds(_forker(), [text], ends or [])
        _forker().sendall(text[sent:])
        return json.loads(_forker().recv(100))


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
            number, status = os.waitpid(request["child"], os.WNOHANG)
            line.send(json.dumps(status if number else None).encode())
        elif number := os.fork():
            line.send(json.dumps(number).encode())
            for end in ends:
                os.close(end)
        else:
            line.close()
            for number, end in enumerate(ends):
                os.dup2(end, number)
                os.close(end)
            return request


def _begin(request: dict) -> types.ModuleType:
    """Be what Python is when it begins with a script, or with -c and code."""
    if request["alone"]:
        os.setsid()
    os.chdir(request["cwd"])
    multiprocessing.process.ORIGINAL_DIR = request["cwd"]  # where what it spawns begins
    os.environ.clear()
    os.environ.update(request["env"])
    in_file = request["file"] != "-c"
    sys.argv = [request["file"]]
    sys.path[0] = str(Path(request["file"]).parent) if in_file else ""
    main = types.ModuleType("__main__")
    if in_file:
        main.__file__ = str(Path(request["file"]).absolute())
    sys.modules["__main__"] = main
    return main


if __name__ == "__main__":
    import jitload  # noqa: F401

    gc.freeze()  # what is never looked at again is never copied for a fork
    _request = _request_of_a_fork(socket.socket(fileno=int(sys.argv[1])))
    _name = _request["file"] if _request["file"] != "-c" else "<string>"
    exec(compile(_request["code"], _name, "exec"), _begin(_request).__dict__)
