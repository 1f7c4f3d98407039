"""Builds ahead of their first use: `python -m jitload build --ahead NAME...`, which runs beside
JupyterLab while a reader reads.

The first op is the one that the reader will use next. It is built as a call would build it, at a
somewhat lower priority, and a call in the meantime waits for it. The others follow in their order,
one at a time, at idle priority. Such a build stops as soon as anything else is built into the
cache, and starts again when that is over. So a call never waits for a build of another op.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from jitloader import derivatives, runtime
from jitloader.arguments import recipe_of
from jitloader.building import cached, completed, ensure, readings
from jitloader.cache import Cache
from jitloader.events import announce
from toolchain import idle
from toolchain.code import Recipe
from toolchain.errors import CompileError, MissingTool

# Errors of a build that are ignored here: its first use raises them again.
_FAILURES = (CompileError, MissingTool, OSError, RuntimeError, ValueError)
_SECONDS = 0.25  # between two checks of what other processes build


def build_ahead(names: Sequence[str], target: str) -> int:
    """Build these ops in this order. The exit status is always 0: failures show at first use."""
    announce(False)
    _with_input()
    os.nice(5)
    cache = Cache.here()
    with contextlib.suppress(*_FAILURES):
        if target == "cpu":
            runtime.build_beside()
        for name in names[:1]:
            ensure(recipe_of([name], target=target))
        if target == "cpu":
            ensure(runtime.recipe())
    idle.yield_to_others()
    for make in _rest(names[1:], target):
        with contextlib.suppress(*_FAILURES):
            _build(make(), cache)
    return 0


def _rest(names: Sequence[str], target: str) -> Iterator[Callable[[], Recipe]]:
    """Functions that make the recipes of all that follows the first op."""
    yield derivatives.recipe
    if target == "cpu":
        yield runtime.checker_recipe
    for name in names:
        yield lambda name=name: recipe_of([name], target=target)
    if target == "cpu":
        yield from runtime.further_recipes()


def _build(recipe: Recipe, cache: Cache) -> None:
    """Compile what the cache lacks, again and again until no other build interrupts it."""
    for inputs in readings(recipe, cache):
        while not cached(inputs) and inputs.are_current():
            while cache.is_building():
                time.sleep(_SECONDS)
            with _stopping_for_others(cache) as (lifeline, was_stopped):
                try:
                    completed(inputs, lifeline)
                except CompileError:
                    if not was_stopped.is_set():
                        raise
            if not was_stopped.is_set():
                break
        if cached(inputs):
            return


@contextlib.contextmanager
def _stopping_for_others(cache: Cache) -> Iterator[tuple[int, threading.Event]]:
    """A pipe's end, closed as soon as another process builds; and an event set then."""
    read, write = os.pipe()
    over, stopped = threading.Event(), threading.Event()

    def watch() -> None:
        while not over.wait(_SECONDS):
            if cache.is_building():
                stopped.set()
                break
        os.close(write)

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield read, stopped
    finally:
        over.set()
        watching.join()
        os.close(read)


def _with_input() -> None:
    """End when standard input does: the parent process holds the other end of that pipe."""

    def wait() -> None:
        with contextlib.suppress(OSError):
            while os.read(0, 4096):
                pass
        os._exit(0)  # its compilers end, too

    threading.Thread(target=wait, daemon=True).start()
