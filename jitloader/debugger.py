"""gdb on the simulator, for a program and for a call from Python."""

from __future__ import annotations

import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import torch

import simulator
from jitloader.children import environment
from toolchain.code import Recipe
from toolchain.errors import MissingTool


def gdb() -> str:
    """The path of gdb; raises MissingTool if there is none."""
    if path := shutil.which("gdb"):
        return path
    raise MissingTool("gdb is not found, which the debugger is: Debian: apt install gdb")


def run_gdb(
    command: list[str], environment: Mapping[str, str], commands: Sequence[str] | None = None
) -> tuple[int, str]:
    """Run gdb on a command: at the terminal, or with these commands. Returns status and output."""
    words = [gdb(), "-q", "-iex", "set auto-load python-scripts off"]
    words += ["-x", str(simulator.GDB_COMMANDS)]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # gdb handles ^C
    try:
        if commands is None:
            return subprocess.call([*words, "--args", *command], env=environment), ""
        options = [word for line in commands for word in ("-ex", line)]
        ran = subprocess.run(
            [*words, "-batch", "-ex", "set trace-commands on", *options, "--args", *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        return ran.returncode, ran.stdout
    finally:
        signal.signal(signal.SIGINT, before)


def recipe_for(recipe: Recipe) -> Recipe:
    """The recipe for gdb: blocks run one after another, and threads wait in functions."""
    return replace(recipe, target="cpu", debug=True, check=True)


def debug_call(
    function: Callable, args: tuple, kwargs: dict[str, object], commands: Sequence[str] | None
) -> str:
    """See `Kernel.debug`, which describes the arguments."""
    if commands is None and not (sys.stdin and sys.stdin.isatty() and sys.stdout.isatty()):
        name = getattr(function, "__qualname__", "function")
        raise RuntimeError(
            "gdb needs a terminal, and there is none here. Call this from Python in a terminal, or"
            f" give gdb's commands: kernel.debug({name}, ..., commands=[\"break FILE.cu:LINE thread"
            ' 0,0,0", "run", "info locals"])'
        )
    with tempfile.TemporaryDirectory(prefix="debug-") as folder:
        call = Path(folder) / "call.pt"
        try:
            torch.save((function, args, kwargs), call, pickle_module=_pickler())
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            raise TypeError(
                f"{function!r} or an argument of it cannot be sent to another process: {error}"
            ) from None
        command = [sys.executable, "-m", "jitloader.debug_process", str(call)]
        output = run_gdb(command, environment(), commands)[1]
        return output[max(0, output.find("\n+") + 1) :]  # from the first command on


def _pickler() -> object:
    """cloudpickle if it is installed, for functions of a notebook; else pickle."""
    try:
        import cloudpickle
    except ImportError:
        return pickle
    return cloudpickle
