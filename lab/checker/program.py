"""A whole program under the checker: its main() is called in this process, which it may end."""

from __future__ import annotations

import atexit
import ctypes
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import jitload
from lab.checker.findings import NotEnded
from lab.checker.report import Report
from lab.checker.run import SECONDS, checked


def check_program(
    sources: Iterable[str | os.PathLike[str]],
    flags: Iterable[str] = (),
    arguments: Sequence[str] = (),
    **options: object,
) -> Report:
    """Build sources with a main(), call it, and report what its kernels do.

    flags: of the compilers. arguments: main's. options: as of `lab.check`.

    Of the process nothing should be expected afterwards: a program that calls exit() leaves its
    thread in the middle of that.

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

    def main() -> None:
        program.main(len(argv), (ctypes.c_char_p * (len(argv) + 1))(*argv, None))

    seconds = float(options.get("seconds", SECONDS))
    call = (_until_it_ends, (main, seconds), {})
    report = checked(name, call, watching, **options)
    options |= {"traffic": False}
    report.again = partial(check_program, sources, flags, arguments, **options)
    return report


def _until_it_ends(main: Callable[[], None], seconds: float) -> None:
    """Call it in a thread of its own: one that calls exit() is kept there, and we go on.

    seconds: that its kernels may take, and as much again for what the host does.

    Raises:
        NotEnded: it goes on; no kernel is running.
    """
    ended = threading.Event()

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def exits(_: object) -> None:
        if not ended.is_set():
            ended.set()
            threading.Event().wait()  # for ever

    def run() -> None:
        main()
        ended.set()

    def forget() -> None:  # before Python is gone, also of a program that has not ended
        ended.set()
        libc.__cxa_finalize(own)

    libc, own = ctypes.CDLL(None), ctypes.create_string_buffer(1)
    _kept.append(exits)
    libc.__cxa_atexit(exits, None, own)
    atexit.register(forget)
    threading.Thread(target=run, daemon=True).start()
    is_running = jitload.simulator_runtime().simulator_is_running
    is_running.restype = ctypes.c_bool
    if not ended.wait(2 * seconds):
        while is_running() and not ended.wait(0.01):
            pass
    if not ended.is_set():
        libc.fflush(None)
        raise NotEnded(
            f"the program had not ended after {2 * seconds:g} seconds, and no kernel was running:"
            " what its launches did until then is told; give it smaller sizes or --seconds"
        )
    libc.fflush(None)


_kept: list[object] = []  # which libc calls when the process ends
