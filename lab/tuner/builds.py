"""Builds many variants in parallel, in several processes.

PyTorch's extension loader keeps state in its module, so a process builds one variant at a time.
The processes share the cache, where their builds are found.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import jitload

Recipe = Any  # the loader's own


def processors() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Builders:
    """Build processes, started when they are needed and ended with the block:

        with Builders() as builders:
            said = builders.build(recipes, done=lambda: ...)

    They also end when this process ends, in whatever way.
    """

    def __init__(self, count: int | None = None) -> None:
        self.count = processors() if count is None else count
        self._idle: queue.SimpleQueue[subprocess.Popen] = queue.SimpleQueue()
        self._started: list[subprocess.Popen] = []
        self._starting = threading.Lock()

    def __enter__(self) -> Builders:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()

    def build(self, recipes: Iterable[Recipe], done: Callable[[], None]) -> dict[Recipe, str]:
        """What went wrong with each recipe, "" for nothing. `done` is called after each build."""
        said: dict[Recipe, str] = {}
        todo = list(dict.fromkeys(recipes))
        with ThreadPoolExecutor(max(1, min(self.count, len(todo)))) as pool:
            running = {pool.submit(self._build, recipe): recipe for recipe in todo}
            try:
                for future in as_completed(running):
                    said[running[future]] = future.result()
                    done()
            except BaseException:  # for example by Ctrl-C: do not wait for the others
                pool.shutdown(wait=False, cancel_futures=True)
                self.__exit__()
                raise
        return said

    def _build(self, recipe: Recipe) -> str:
        process = self._process()
        process.stdin.write(base64.b64encode(pickle.dumps(recipe)) + b"\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process that built {recipe.name} has ended: {process.wait()}")
        self._idle.put(process)
        return json.loads(answer)

    def _process(self) -> subprocess.Popen:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            pass
        process = subprocess.Popen(
            [sys.executable, "-m", "lab.tuner.build_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=jitload.environment(MAX_JOBS="1"),
        )
        with self._starting:
            self._started.append(process)
        return process
