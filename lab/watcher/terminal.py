"""`python -m lab watch OP`: a line for each version of an op, as its files are saved."""

from __future__ import annotations

import argparse
import shutil
import sys
import threading
import time

from lab.measure import arguments
from lab.watcher import text
from lab.watcher.follower import SECONDS, Follower, State
from lab.watcher.op_subject import OpSubject
from lab.watcher.result import Result
from lab.watcher.settings import settings_for

BOLD, RED, YELLOW, GREEN, GREY = "1", "31", "33", "32", "90"
HELP = "p and Enter: pin this version; b 2 and Enter: go back to version 2; Ctrl-C: end."


class Lines:
    """Writes states to a stream: the current activity on the last line, each version once above."""

    def __init__(self, stream: object) -> None:
        self._stream, self._written = stream, None
        self._is_terminal = stream.isatty()

    def __call__(self, state: State) -> None:
        result = state.result
        if state.doing:
            if self._is_terminal:
                known = text.summary(result)
                self._replace(f"{result.version.number:3}  {state.doing}  {known}")
        elif result != self._written:
            self._written = result
            self._replace("")
            lines = self._version(result)
            if said := text.untouched(state):
                lines.append(self._in_colour(_indented(said), YELLOW))
            print(*lines, sep="\n", file=self._stream, flush=True)

    def _replace(self, line: str) -> None:
        """Replace the last line."""
        if self._is_terminal:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r\x1b[K{line[:width]}", end="", file=self._stream, flush=True)

    def _version(self, result: Result) -> list[str]:
        number, when = result.version.number, f"{result.version.when:%H:%M:%S}"
        is_wrong = result.failure or (result.measured and not result.measured.is_right)
        head = self._in_colour(f"{number:3}  {when}", f"{BOLD};{RED if is_wrong else GREEN}")
        lines = [f"{head}  {text.summary(result)}"]
        if result.failure:
            lines.append(self._in_colour(_indented(result.failure.text), RED))
        if result.checked:
            for finding in result.checked.findings:
                colour = YELLOW if finding.is_error else GREY
                lines.append(self._in_colour(_indented(text.finding(finding)), colour))
        lines += [_indented(text.use(use)) for use in result.uses]
        return lines + [self._in_colour(_indented(note), GREY) for note in result.notes]

    def _in_colour(self, line: str, colour: str) -> str:
        return f"\x1b[{colour}m{line}\x1b[0m" if self._is_terminal else line


def _indented(lines: str) -> str:
    return "\n".join(f"     {line}" for line in lines.splitlines())


def watch(given: list[str] | None = None) -> int:
    """Follow an op until the user ends it; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m lab watch", description=__doc__, epilog=HELP)
    parser.add_argument("op", help='a name in reference.OPS, such as "layer_norm"')
    parser.add_argument("--shape", nargs=2, type=int, metavar=("ROWS", "COLS"))
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--backward", action="store_true")
    parser.add_argument("--version", help="of the kernel; default: the best")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="that a call may take")
    chosen = parser.parse_args(given)
    try:
        op = arguments.an_op(chosen.op)
        settings = settings_for(
            op, chosen.shape, chosen.dtype, chosen.backward, chosen.version, None
        )
    except (TypeError, ValueError) as error:
        parser.error(str(error))
    print(f"{op.name}, {settings}. {HELP}", flush=True)
    follower = Follower(OpSubject(op.name), settings, Lines(sys.stdout), chosen.seconds)
    follower.start()
    threading.Thread(target=_obey, args=(follower,), daemon=True).start()
    try:
        while follower.is_alive():  # an interrupted join considers the thread ended
            time.sleep(0.2)
    except KeyboardInterrupt:
        print()
    finally:
        follower.close()
        follower.join()
    return 0


def _obey(follower: Follower) -> None:
    """Carry out what the user types."""
    for line in sys.stdin:
        match line.split():
            case ["p"]:
                follower.pin()
            case ["b", number] if number.isdecimal():
                try:
                    follower.go_back(int(number))
                except (LookupError, OSError) as error:
                    print(error, flush=True)
            case _:
                print(HELP, flush=True)
