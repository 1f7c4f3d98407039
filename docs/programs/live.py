"""How long it takes from a save to the changed picture of lab.live, for docs/live.md.

    python -m docs.programs.live [SAVES]

The .cu of each op is saved with a new comment at its end, and then as it was before: a build, and
one that the cache has. What counts is the time until the picture has the error and, on a GPU, the
time of the new version.
"""

import statistics
import sys
import time
from collections.abc import Iterator
from queue import Queue

import jitload
import reference
from docs.programs.page import Part, cores, table
from lab.measure.timing import environment
from lab.watcher.follower import Follower, State
from lab.watcher.op_subject import OpSubject
from lab.watcher.picture import picture
from lab.watcher.settings import settings_for

PART = Part("live.md", "docs.programs.live")
OPS = ("square", "softmax", "layer_norm")
HEAD = ["op", "build", "save to picture", "less the build", "back: save to picture"]


class Drawn:
    """Draws every state, as a panel does, and notes when it was done."""

    def __init__(self) -> None:
        self.states: Queue[tuple[float, State]] = Queue()

    def __call__(self, state: State) -> None:
        picture(state.result, state.ghosts)
        self.states.put((time.perf_counter(), state))

    def end_of_version(self) -> tuple[float, State]:
        """When the next version was measured, and the state in which all of it is known."""
        measured = None
        while True:
            at, state = self.states.get(timeout=120)
            if state.result.failure:
                raise RuntimeError(state.result.failure.text)
            if state.result.measured and measured is None:
                measured = at
            if not state.doing:
                return measured, state


def rows(saves: int) -> Iterator[list[str]]:
    """A line for each op: medians in seconds."""
    for name in OPS:
        columns = zip(*samples(name, saves), strict=True)
        row = [name, *(f"{statistics.median(column):.2f} s" for column in columns)]
        print(*row, sep="  ", flush=True)
        yield row


def samples(name: str, saves: int) -> Iterator[tuple[float, ...]]:
    """Of each save: the build, and the seconds as in HEAD."""
    drawn, source = Drawn(), jitload.op_file(name, ".cu")
    settings = settings_for(reference.OPS[name], None, "float32", False, None, None)
    follower = Follower(OpSubject(name), settings, drawn, 60.0)
    before = source.read_bytes()
    follower.start()
    try:
        drawn.end_of_version()
        for _ in range(saves):
            saved = time.perf_counter()
            source.write_bytes(before + b"// %d\n" % time.time_ns())
            measured, state = drawn.end_of_version()
            build, all_of_it = state.result.opened.seconds, measured - saved
            saved = time.perf_counter()
            source.write_bytes(before)
            measured, _ = drawn.end_of_version()
            yield build, all_of_it, all_of_it - build, measured - saved
    finally:
        source.write_bytes(before)
        follower.close()
        follower.join()


def main(saves: int = 5) -> None:
    """Measure, and write the table into the page."""
    there = environment(jitload.device())
    where = f"{there['device']}, {cores()}, torch {there['torch']}"
    measured = table(HEAD, rows(saves), "lr")
    PART.write(f"{where}, {there['date']}; medians of {saves} saves.\n\n{measured}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
