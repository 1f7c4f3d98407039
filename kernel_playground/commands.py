"""kernel-playground: lab, new, update, run, check, ship, doctor."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from kernel_playground import jupyter
from kernel_playground.copies import NEW, Change, Refused, listed, new, release, update
from playground_folder import place


def _lab(words: list[str]) -> int:
    """JupyterLab on the folder around here, or on FOLDER, with its first chapter"""
    parser = _parser("lab", _lab, usage="kernel-playground lab [FOLDER] [OPTIONS OF jupyter lab]")
    folder = Path(words.pop(0)) if words and not words[0].startswith("-") else Path.cwd()
    _, options = parser.parse_known_args(words)
    if not folder.is_dir():
        raise Refused(f"there is no folder {folder}; kernel-playground new {folder} makes it")
    found = _playground(folder)
    if not found:
        told = f"{folder} has no chapters; kernel-playground new makes a folder that has"
        print(told, file=sys.stderr)
    return jupyter.lab(found or folder.resolve(), options)


def _playground(folder: Path) -> Path | None:
    """The folder of chapters and kernels around a place: one of the user's, or the clone."""
    within = folder.resolve().is_relative_to(place.ORIGINALS)
    return place.around(folder) or (place.ORIGINALS if within else None)


def _new(words: list[str]) -> int:
    """copy chapters and kernels into a folder of your own"""
    parser = _parser("new", _new)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    folder = parser.parse_args(words).folder
    made = new(folder)
    then = shlex.join(["kernel-playground", "lab", str(folder)])
    print(f"{folder}: {len(made.write)} files, yours to edit. Open the first chapter: {then}")
    return 0


def _update(words: list[str]) -> int:
    """renew what you have not edited in a folder of your own"""
    parser = _parser("update", _update)
    parser.add_argument("folder", type=Path, nargs="?", metavar="FOLDER", default=Path.cwd())
    asked = parser.parse_args(words).folder
    folder = (place.around(asked) if asked.is_dir() else None) or asked
    told = _told(update(folder))
    print(f"{folder} is that of kernel-playground {release()} now", *told, sep="\n  ")
    return 0


def _told(change: Change) -> list[str]:
    beside = f"; the new one lies beside it, as NAME{NEW}"
    said = {
        f"renewed, which you had not edited: {len(change.renewed)}": change.renewed,
        f"new: {len(change.added)}": change.added,
        f"edited by you and left{beside}": change.edited,
        f"your own, of a name that is taken now{beside}": change.taken,
        "deleted by you, and not brought back": change.deleted,
        "no longer part of the playground; remove what you do not use": change.gone,
    }
    return [f"{what}: {listed(names, most=20)}" for what, names in said.items() if names]


def _run(words: list[str]) -> int:
    """build a program with a main(), and run it: on the GPU, or without one on the simulator"""
    return _loader("run", words)


def _ship(words: list[str]) -> int:
    """make an installable package of ops, or of kernels of your own"""
    return _loader("ship", words)


def _loader(command: str, words: list[str]) -> int:
    """Runs a command of `python -m jitload`."""
    import jitload

    return jitload.main([command, *words])


def _check(words: list[str]) -> int:
    """say what is wrong in the kernels of a program, a script or an op, without a GPU"""
    if any(word.endswith(".cu") for word in words) and (child := os.fork()):
        return _status_of(child)
    from kernel_playground.check import check

    return check(words)


def _status_of(child: int) -> int:
    """Wait for the process that checks a program; the program's own code may end it.

    Returns the exit status, and reports the signal if one has ended the process.
    """
    while True:
        try:
            _, status = os.waitpid(child, 0)
            break
        except KeyboardInterrupt:  # the child receives it, too
            continue
    if not os.WIFSIGNALED(status):
        return os.waitstatus_to_exitcode(status)
    name = signal.Signals(os.WTERMSIG(status)).name
    print(
        f"kernel-playground check: the program was ended by {name}, in code of the host: nothing of"
        " its kernels can be told. It has damaged the host's memory, as a write past what malloc"
        " gave: compile it with -fsanitize=address, or run it under valgrind",
        file=sys.stderr,
    )
    return 2


def _doctor(words: list[str]) -> int:
    """say what is there and what is missing, and how to get it"""
    from kernel_playground.doctor import doctor

    _parser("doctor", _doctor).parse_args(words)
    return doctor()


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "lab": _lab,
    "new": _new,
    "update": _update,
    "run": _run,
    "check": _check,
    "ship": _ship,
    "doctor": _doctor,
}


def _parser(name: str, command: Callable, **more: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(
        prog=f"kernel-playground {name}", description=command.__doc__, allow_abbrev=False, **more
    )


def main(words: list[str] | None = None) -> int:
    """Carry out the command line; returns the exit status."""
    words = sys.argv[1:] if words is None else words
    shown = "\n".join(f"  {name:8} {each.__doc__}" for name, each in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="kernel-playground",
        usage="kernel-playground COMMAND ...",
        description="Write CUDA kernels for PyTorch in a notebook.",
        epilog=f"{shown}\n\nkernel-playground COMMAND --help says more.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=release())
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help="one of these:")
    command = COMMANDS[parser.parse_args(words[:1]).command]
    try:
        return command(words[1:])
    except BrokenPipeError:  # as of `| head`
        return 128 + signal.SIGPIPE
    except ModuleNotFoundError as error:  # as of an install without dependencies
        get = f"{sys.executable} -m pip install {error.name}"
        print(f"kernel-playground: {error}. Get it with: {get}", file=sys.stderr)
        return 1
    except (Refused, ImportError, OSError) as error:
        print(f"kernel-playground: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("kernel-playground: stopped", file=sys.stderr)
        return 130


def script() -> None:
    """Entry point of the installed command and of `python -m kernel_playground`."""
    status = main()
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)  # torch's orderly shutdown takes longer than Ctrl-C should
