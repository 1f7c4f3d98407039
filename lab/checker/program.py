"""Checks a whole program: its main() is called in this process, which it may end."""

from __future__ import annotations

import atexit
import ctypes
import os
import platform
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import jitload
from lab.checker.findings import Crashed, NotEnded
from lab.checker.report import Report
from lab.checker.run import SECONDS, checked

PATIENCE = 5  # seconds in which a waiting program must make progress


def check_program(
    sources: Iterable[str | os.PathLike[str]],
    flags: Iterable[str] = (),
    arguments: Sequence[str] = (),
    **options: object,
) -> Report:
    """Build sources with a main(), call it, and report what its kernels do.

    flags: for the compilers. arguments: those of main. options: as for `lab.check`.

    Do not rely on the process afterwards: a program that calls exit() leaves its thread in the
    middle of it.

    Raises:
        CompileError: it does not compile.
        FileNotFoundError: there is no such source.
        ValueError: no source has a main().
    """
    sources, flags = list(sources), list(flags)
    recipe = jitload.recipe_of(sources, target="cpu", flags=flags, program=True)
    jitload.require_main(recipe)
    opened = jitload.Kernel(recipe).instrumented(trace=bool(options.get("traced")))
    name = recipe.sources[0].name

    @contextmanager
    def watching(told: Callable[[jitload.OpenBuild], None]) -> Iterator[None]:
        told(opened)
        yield

    program = ctypes.CDLL(str(opened.build.library))
    argv = [os.fsencode(word) for word in (f"./{recipe.sources[0].stem}", *arguments)]

    called = jitload.surviving(program, program.main, 3)

    def main() -> str:
        return called(len(argv), (ctypes.c_char_p * (len(argv) + 1))(*argv, None))

    seconds = float(options.get("seconds", SECONDS))
    call = (_until_it_ends, (main, seconds), {})
    report = checked(name, call, watching, **options)
    options |= {"traffic": False}
    report.again = partial(check_program, sources, flags, arguments, **options)
    return report


def _until_it_ends(main: Callable[[], str], seconds: float) -> None:
    """Call it in a separate thread: a call of exit() blocks there, and this thread goes on.

    main: returns the event that would have ended the process, if any.
    seconds: the limit for its kernels, and again for its host code.

    Raises:
        Crashed: its host code did something that ends a process.
        NotEnded: it is still running, but no kernel is.
    """
    ended = threading.Event()

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def exits(_: object) -> None:
        if not ended.is_set():
            ended.set()
            threading.Event().wait()  # for ever

    why: list[str] = []
    thread = threading.Thread(target=lambda: (why.append(main()), ended.set()), daemon=True)

    def forget() -> None:  # before Python shuts down, even if the program still runs
        ended.set()
        libc.__cxa_finalize(own)

    libc, own = ctypes.CDLL(None), ctypes.create_string_buffer(1)
    _kept.append(exits)
    libc.__cxa_atexit(exits, None, own)
    atexit.register(forget)
    thread.start()
    is_running = jitload.simulator_runtime().simulator_is_running
    is_running.restype = ctypes.c_bool
    due, idle, used = time.monotonic() + 2 * seconds, 0, 0.0
    while not ended.wait(0.01 if time.monotonic() > due else min(1.0, 2 * seconds)):
        if is_running():
            continue
        if time.monotonic() > due:
            break
        is_idle = time.process_time() - used < 0.02 and _waits_for_a_lock(thread)
        idle, used = idle + 1 if is_idle else 0, time.process_time()
        if idle >= PATIENCE:
            break
    libc.fflush(None)
    if not ended.is_set():
        said = (
            f"the program waits in its own code for a lock or a thread, and has done nothing for"
            f" {idle} seconds: so does one that has damaged the host's memory"
            if idle >= PATIENCE
            else f"the program had not ended after {2 * seconds:g} seconds, and no kernel was"
            " running"
        )
        raise NotEnded(
            f"{said}: what its launches did until then is told; give it smaller sizes or --seconds"
        )
    if any(why):
        raise Crashed(f"{why[0]}: the program ended here")


def _waits_for_a_lock(thread: threading.Thread) -> bool:
    """Whether a thread is blocked in the system call for waiting on a lock."""
    try:
        called = Path(f"/proc/self/task/{thread.native_id}/syscall").read_text().split()[0]
    except OSError:
        return False
    return called == {"x86_64": "202", "aarch64": "98"}.get(platform.machine())


_kept: list[object] = []  # called by libc at process exit
