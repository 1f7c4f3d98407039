"""Whole programs: built as a kernel is, and each run in a process of its own."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from jitloader import runtime, tracebacks
from jitloader.arguments import recipe_of
from jitloader.building import ensure
from jitloader.builds import Build
from jitloader.cache import Cache
from jitloader.inputs import Inputs
from simulator.scan import blank, without_comments
from toolchain import libraries, machine
from toolchain.code import Recipe
from toolchain.command_line import awaits_value
from toolchain.errors import MissingTool

NOT_BUILT, TIMED_OUT = 125, 124  # exit statuses, as of timeout(1)
_RUNNER = Path(__file__).with_name("program.py")
_MAIN = re.compile(r"\b(?!(?:return|else|do|new|goto)\b)[a-zA-Z_]\w*\s+main\s*\(")  # int32_t main(
_SIGNALS = {
    "SIGSEGV": "the code for the CPU touched memory that is not its own (a kernel's faults are"
    " errors of CUDA instead)",
    "SIGBUS": "the code for the CPU touched memory that is not its own",
    "SIGFPE": "the code for the CPU divided an integer by zero",
    "SIGABRT": "it called abort(), as a failed assert and an exception that nobody catches do",
    "SIGKILL": "something ended it by force, as the system does where memory runs out",
}


def has_main(text: str) -> bool:
    """Whether a source defines or declares a main()."""
    return "main" in text and _MAIN.search(blank(without_comments(text))) is not None


@dataclass(frozen=True)
class Ran:
    """How a program ended.

    Attributes:
        status: its exit status; the negative number of the signal that ended it.
        seconds: from its start to its end.
        timed_out: whether it was ended because it reached the timeout.
    """

    status: int
    seconds: float
    timed_out: bool = False

    def __str__(self) -> str:
        took = f"after {self.seconds:.2f} s"
        if self.timed_out:
            return f"was stopped {took}: its time was over"
        if self.status >= 0:
            return f"ended with exit status {self.status} {took}"
        try:
            name = signal.Signals(-self.status).name
        except ValueError:
            name = f"signal {-self.status}"
        why = _SIGNALS.get(name)
        return f"was ended by {name} {took}{(why and f': {why}') or ''}"

    @property
    def exit_status(self) -> int:
        """The exit status as a shell reports it."""
        if self.timed_out:
            return TIMED_OUT
        return self.status if self.status >= 0 else 128 - self.status


class Program:
    """Sources with a main(), built for a target. `jitload.load` describes the arguments.

    check: instrumented, so that blocks run one after another.

    Raises:
        CompileError: it does not compile.
        FileNotFoundError: there is no such source.
        MissingTool: no compiler for that target, or a GPU program without a GPU.
        ValueError: no source has a main().
    """

    def __init__(
        self,
        *sources: str | os.PathLike[str],
        target: str | None = None,
        flags: Iterable[str] = (),
        include: Iterable[str | os.PathLike[str]] = (),
        debug: bool | None = None,
        check: bool = False,
    ):
        with tracebacks.hidden():
            recipe = recipe_of(sources, None, target, flags, include, debug, program=True)
            recipe = replace(recipe, check=check)
            require_main(recipe)
            if recipe.target == "cuda" and not torch.cuda.is_available():
                raise MissingTool(
                    f"{recipe.name} is to run on a GPU, and torch sees none: leave --target out, or"
                    " say --target cpu, which runs it on the simulator"
                )
            self.recipe = recipe
            if recipe.target == "cpu":
                runtime.build_beside()
            self.build: Build = ensure(recipe)
            if recipe.target == "cpu":
                runtime.libraries(self.build, check)  # builds those that are missing

    @property
    def name(self) -> str:
        return self.recipe.sources[0].name

    def command(self, arguments: Sequence[str] = ()) -> list[str]:
        """The command that starts it."""
        if not self.build.library.exists():  # another process has just pruned it
            self.build = ensure(self.recipe)
        Cache.here().use(self.build.folder)
        needed = (
            runtime.libraries(self.build, self.recipe.check) if self.recipe.target == "cpu" else []
        )
        named = f"./{self.recipe.sources[0].stem}"
        paths = [str(path) for path in (*needed, self.build.library)]
        return [sys.executable, "-I", "-S", str(_RUNNER), *paths, "--", named, *arguments]

    def environment(self) -> dict[str, str]:
        """The environment, with the folders of torch's and CUDA's libraries, which it needs."""
        home = machine.cuda_home() if self.recipe.target == "cuda" else None
        places = [Path(torch.__file__).parent / "lib", *(libraries.folders(home) if home else [])]
        known = os.environ.get("LD_LIBRARY_PATH")
        path = os.pathsep.join([*([known] if known else []), *map(str, places)])
        return {**os.environ, "LD_LIBRARY_PATH": path}

    def run(
        self,
        arguments: Sequence[str] = (),
        *,
        timeout: float | None = None,
        cwd: str | os.PathLike[str] | None = None,
        output: Callable[[int, bytes], None] | None = None,
    ) -> Ran:
        """Run it to its end. If this is ended early, the program and its children end, too.

        Args:
            arguments: those of main().
            timeout: seconds that it may take.
            cwd: its working directory, by default this process's.
            output: is called with each piece of the program's output, and with 1 for standard
                output or 2 for standard error; the program then has no input. By default it uses
                this process's standard streams.
        """
        piped = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        in_terminal = output is None and sys.stdin is not None and sys.stdin.isatty()
        command = self.command(arguments)
        started = time.monotonic()
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=self.environment(),
            start_new_session=not in_terminal,  # in a terminal it gets ^C, and can read input
            **(piped if output else {}),
        )
        due = None if timeout is None else started + timeout
        try:
            if output:
                _pass_on(process, output, due)
            process.wait(None if due is None else max(0.0, due - time.monotonic()))
        except subprocess.TimeoutExpired:
            _end(process)
            return Ran(process.returncode, time.monotonic() - started, timed_out=True)
        except KeyboardInterrupt as stop:
            if in_terminal:  # ^C has reached it, too: it may print something
                with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt):
                    process.wait(0.5)
            _end(process)
            took = time.monotonic() - started
            tracebacks.in_one_line(stop, f"{self.name} was stopped after {took:.2f} s")
            raise
        except BaseException:
            _end(process)
            raise
        if not in_terminal:
            _end_group(process)
        return Ran(process.returncode, time.monotonic() - started)


def require_main(recipe: Recipe) -> None:
    """Raises ValueError if neither a source nor a file that it includes has a main()."""

    def have_main(paths: Iterable[Path]) -> bool:
        return any(has_main(path.read_text(errors="replace")) for path in paths)

    if not have_main(recipe.sources) and not have_main(Inputs.read(recipe, Cache.here()).own):
        names = ", ".join(path.name for path in recipe.sources)
        raise ValueError(
            f"{names}: there is no main() to run. Call its functions and kernels from Python:"
            f" jitload.load({str(recipe.sources[0])!r})"
        )


def _pass_on(
    process: subprocess.Popen, output: Callable[[int, bytes], None], due: float | None
) -> None:
    """Pass on a process's output until it has ended; later output of its children is lost."""
    with process.stdout, process.stderr, selectors.DefaultSelector() as ready:
        ready.register(process.stdout, selectors.EVENT_READ, 1)
        ready.register(process.stderr, selectors.EVENT_READ, 2)
        ended = False
        while ready.get_map():
            if due is not None and time.monotonic() > due:
                raise subprocess.TimeoutExpired(process.args, 0)
            events = ready.select(0.05)
            for key, _ in events:
                if chunk := os.read(key.fd, 65536):
                    output(key.data, chunk)
                else:
                    ready.unregister(key.fileobj)
            if ended and not events:
                return  # a child holds the pipe open
            ended = process.poll() is not None


def _end(process: subprocess.Popen) -> None:
    """End a process, and all processes that it has started."""
    own = _descendants(process.pid)
    _end_group(process)
    for pid in (process.pid, *own):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if pid != process.pid or process.poll() is None:
                os.kill(pid, signal.SIGKILL)
    process.wait()


def _end_group(process: subprocess.Popen) -> None:
    """End the remaining processes of the session that a process leads, if it leads one."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if process.returncode is not None or os.getpgid(process.pid) == process.pid:
            os.killpg(process.pid, signal.SIGKILL)


def _descendants(pid: int) -> list[int]:
    """The processes that a process has started, directly or indirectly."""
    program = shutil.which("ps")
    if program is None:
        return []
    command = [program, "-A", "-o", "pid=,ppid="]
    processes = subprocess.run(command, capture_output=True, text=True, timeout=5).stdout
    children: dict[int, list[int]] = {}
    for line in processes.splitlines():
        child, parent = map(int, line.split())
        children.setdefault(parent, []).append(child)
    descendants = [pid]
    for each in descendants:  # it grows during the loop
        descendants += children.get(each, [])
    return descendants[1:]


# ---- from the shell


_SOURCES = (".cu", ".cpp", ".cc", ".cxx", ".c")


@dataclass
class ProgramLine:
    """The words after `run`: sources, compiler flags, and arguments of the program.

    Words after -- are arguments of the program; so are other words that are no source or flag.
    """

    sources: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    target: str | None = None
    timeout: float | None = None

    @classmethod
    def parse(cls, words: Sequence[str]) -> ProgramLine:
        """Raises: ValueError, if an option has no value or an invalid one."""
        line, left = cls(), iter(words)
        for word in left:
            option, equals, value = word.partition("=")
            if word == "--":
                line.arguments += left
            elif option in ("--target", "--timeout"):
                value = value if equals else next(left, "")
                if option == "--target":
                    line.target = machine.checked_target(value, option)
                else:
                    line.timeout = _seconds(value)
            elif word.startswith("-") and word != "-":
                line.flags.append(word)
                if awaits_value(word):
                    line.flags += [next(left, "")]
            elif not line.arguments and Path(word).suffix in _SOURCES:
                line.sources.append(word)
            else:
                line.arguments.append(word)
        return line


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise ValueError(f"--timeout is {value!r}; wanted is a number of seconds, as in 60")
    return seconds
