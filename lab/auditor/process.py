"""An audit in a separate process: a crash or hang becomes a row, and a new process continues."""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path
from types import ModuleType

import cloudpickle
import torch

import jitload
from lab.auditor.judging import Watched, gpu_is_lost
from lab.auditor.report import NOT_RUN, Row
from lab.auditor.rows import dumped, ended, subject, tried
from lab.auditor.traps import TRAPS
from lab.checker.trial import signal_words

LOST = 70  # exit status of a process whose GPU is unusable after a kernel's fault
START = 60.0  # seconds for a process to import PyTorch and the op, not counting builds
BUILDS = 240.0  # extra seconds for the first trap, and for traps that compile
COMPILE = ("kernel/", "source/")  # traps that compile, and traps that read those builds


def run_apart(
    request: tuple, keys: list[str], seconds: float, step: Callable[[str], None]
) -> tuple[list[Row], list[str]]:
    """The rows of the traps, and notes. step: called with each trap as it begins.

    The traps that compile kernels anew run in a second process, in parallel with the others.
    Raises TypeError, PicklingError or AttributeError where the request cannot be sent, and
    ImportError where the other process cannot read it.
    """
    parts = [[it for it in keys if it.startswith(COMPILE) == compile] for compile in (False, True)]
    under_way = [_rows(request, part, seconds, step) for part in parts if part]
    rows: dict[str, Row] = {}
    notes: dict[str, None] = {}
    try:
        while under_way:
            time.sleep(0.02)
            for it in list(under_way):
                try:
                    next(it)
                except StopIteration as end:
                    under_way.remove(it)
                    rows |= end.value[0]
                    notes |= dict.fromkeys(end.value[1])
    finally:
        for it in under_way:
            it.close()  # ends its process
    return [rows[key] for key in keys if key in rows], list(notes)


def _rows(
    request: tuple, keys: list[str], seconds: float, step: Callable[[str], None]
) -> Generator[None, None, tuple[dict[str, Row], list[str]]]:
    """Rows by trap key, and notes, from one process, and from new ones if it ends early.
    Yields while it waits."""
    by_key = {it.key: it for it in TRAPS}
    rows: dict[str, Row] = {}
    notes: list[str] = []
    with tempfile.TemporaryDirectory(prefix="audit-") as name:
        folder = Path(name)
        torch.save(request, folder / "request.pt", pickle_module=_PICKLE)
        crashes, owns = 0, []
        while missing := [key for key in keys if key not in rows]:
            (folder / "keys").write_text("\n".join(missing))
            (folder / "rows").write_text("")
            how = yield from _run(folder, seconds, step)
            for line in (folder / "rows").read_text().splitlines():
                key, _, said = line.partition("\t")
                with contextlib.suppress(ValueError):
                    rows[key] = Row(**json.loads(said))
            if (folder / "notes").exists():
                notes = json.loads((folder / "notes").read_text())
            if not how:
                break
            if not (folder / "begun").exists():
                raise ImportError(_tail(folder) or how)
            mark = folder / "reference"
            if mark.exists():  # the reference crashed, not the op: skip such calls
                with (folder / "avoid").open("a") as avoid:
                    avoid.write(mark.read_text() + "\n")
                mark.unlink()
                crashes += 1
                note = f"the reference itself ended its process on some call: {how}"
                owns += [note] if note not in owns else []
                if crashes <= 6:
                    continue
            running, _ = _running(folder)
            if running in by_key and running not in rows:
                rows[running] = ended(by_key[running], how)
                crashes += 1
            elif running not in by_key:
                raise ImportError(how)
            if crashes > 6:
                for key in keys:
                    trap = by_key[key]
                    rows.setdefault(
                        key, Row(trap.section, trap.name, NOT_RUN, "it crashed too often")
                    )
    return rows, owns + notes


class _Pickler(cloudpickle.Pickler):
    """Pickles subclasses of torch.autograd.Function that a notebook defines.

    PyTorch makes a class for the nodes of each such class, and makes it again on unpickling.
    """

    def reducer_override(self, it: object) -> object:
        if isinstance(it, type) and hasattr(it, "_forward_cls"):
            return getattr, (it._forward_cls, "_backward_cls")
        return super().reducer_override(it)


_PICKLE = ModuleType("cloudpickle")
_PICKLE.Pickler = _Pickler


def _run(folder: Path, seconds: float, step: Callable[[str], None]) -> Generator[None, None, str]:
    """Run the child until it ends; "" for a regular end, else how it ended."""
    for name in ("begun", "running"):
        (folder / name).unlink(missing_ok=True)
    with (folder / "output").open("w") as output:
        child = subprocess.Popen(
            [sys.executable, "-m", "lab.auditor.process", str(folder)],
            env=jitload.environment(PYTHONPATH=os.pathsep.join(filter(None, sys.path))),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            started = time.monotonic()
            waiting = (folder / "keys").read_text().splitlines()
            while child.poll() is None:
                yield
                now = time.monotonic()
                key, begun = _running(folder)
                while key in waiting:
                    step(waiting.pop(0))
                first = not (folder / "rows").stat().st_size
                compiles = first or key.startswith(COMPILE)
                limit = seconds + BUILDS * compiles
                if begun is None and time.monotonic() - started > START + BUILDS:
                    return "its process did not begin"
                if begun is not None and now - begun > limit:
                    return f"it did not return within {limit:g} s"
            if child.returncode == 0:
                for key in waiting:
                    step(key)
                return ""
            if child.returncode == LOST:
                return "after a kernel's fault the GPU does nothing more in its process"
            if child.returncode < 0:
                return f"it ended the process: {signal_words(-child.returncode)}"
            return f"it ended the process with status {child.returncode}"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def _running(folder: Path) -> tuple[str, float | None]:
    """The running trap, and its start on the clock that all processes share."""
    try:
        key, began = (folder / "running").read_text().split("\t")
    except (OSError, ValueError):
        return "", None
    return key, float(began)


def _runs(folder: Path, key: str) -> None:
    """Written atomically: a partial read would give the trap another one's time limit."""
    (folder / "running.part").write_text(f"{key}\t{time.monotonic()}")
    (folder / "running.part").replace(folder / "running")


def _tail(folder: Path) -> str:
    lines = (folder / "output").read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def main(folder: Path) -> None:
    """The child: appends rows to FOLDER/rows, one a line, as they are found."""
    faulthandler.enable()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    jitload.announce(False)
    keys = (folder / "keys").read_text().splitlines()
    if jitload.default_target() == "cpu":
        # The checker takes the longest to compile: begin at once where a trap needs it.
        jitload.build_simulator_beside(with_checker=any(it.startswith(COMPILE) for it in keys))
        jitload.simulator_runtime()  # tensors allocated from here on have guards
    request = torch.load(folder / "request.pt", weights_only=False)
    function, call, reference, *more = request
    avoid = folder / "avoid"
    known = set(avoid.read_text().splitlines()) if avoid.exists() else set()
    watched = Watched(reference, folder / "reference", known)
    made = subject((function, call, watched, *more))
    (folder / "begun").touch()
    by_key = {it.key: it for it in TRAPS}
    with (folder / "rows").open("a") as rows:
        for key in keys:
            _runs(folder, key)
            for row in tried(made, [by_key[key]]):
                rows.write(f"{key}\t{dumped(row)}\n")
                rows.flush()
            if gpu_is_lost():  # later rows would not be the op's fault
                os._exit(LOST)
    # Atomically: from here on the parent may kill this process for the last trap's time.
    (folder / "notes.part").write_text(json.dumps(made.notes))
    (folder / "notes.part").replace(folder / "notes")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
