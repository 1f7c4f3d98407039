"""Sends requests to a process and reads its answers, with limits on time and memory."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import threading
import time

from lab.judge.sandbox import Limit, memory_of


class Pipe:
    """Requests to a process and its answers, with limits."""

    def __init__(self, process: subprocess.Popen, memory: int) -> None:
        self.process, self.memory = process, memory
        self.kept = b""

    def send(self, data: bytes) -> None:
        def write() -> None:
            with contextlib.suppress(OSError, ValueError):  # the process has ended
                self.process.stdin.write(data)
                self.process.stdin.flush()

        threading.Thread(target=write, daemon=True).start()

    def _more(self, until: float) -> bool:
        """Wait for some bytes; False where the process has ended."""
        end_of = self.process.stdout.fileno()
        while True:
            ready, _, _ = select.select([end_of], [], [], 0.05)
            if ready:
                some = os.read(end_of, 1 << 20)
                self.kept += some
                return bool(some)
            if (held := memory_of(self.process.pid)) > self.memory:
                limit = self.memory >> 20
                raise Limit(f"it holds {held >> 20} MiB of memory; {limit} are allowed")
            if time.monotonic() > until:
                raise Limit("it did not return within its time")

    def line(self, until: float) -> bytes:
        while b"\n" not in self.kept:
            if len(self.kept) > 1 << 22 or not self._more(until):
                return b""
        found, _, self.kept = self.kept.partition(b"\n")
        return found

    def bytes(self, count: int, until: float) -> bytes:
        while len(self.kept) < count and self._more(until):
            pass
        found, self.kept = self.kept[:count], self.kept[count:]
        return found
