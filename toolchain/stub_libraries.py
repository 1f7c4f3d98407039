"""Stubs that a kernel is linked with in place of PyTorch's libraries.

A linker takes a quarter of a second to read the libraries' hundred thousand symbols, longer than a
small kernel takes to compile. It needs none of them, because a kernel's calls are resolved when it
is opened. The kernel needs only the libraries' names, which stubs without symbols have, too.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import torch

from toolchain import machine
from toolchain.notes import digest_of, publish_folder, read_note, write_note

# The libraries that torch.utils.cpp_extension links with.
_LIBRARIES = ("c10", "c10_cuda", "torch", "torch_cpu", "torch_cuda", "torch_python")
_SYMBOLS_WANTED = re.compile(r"-z,?defs|--no-undefined")  # by a user's flag


def flags(
    folders: Sequence[Path], work: Path, link_flags: list[str], are_noted: bool = True
) -> list[str]:
    """Flags that make the linker find stubs before PyTorch's libraries.

    Args:
        folders: where they may be, once for each compiler and PyTorch; new ones are kept in the
            first.
        work: the folder in which they are made.
        link_flags: the user's. If they make the linker resolve every symbol, no stubs are used.
        are_noted: whether the kernel calls PyTorch. If not, a process without it can open it.

    Returns:
        An empty list if no stub can be made.
    """
    wanted = any(map(_SYMBOLS_WANTED.search, link_flags))
    if sys.platform != "linux" or wanted or not (names := _names()):
        return []
    command = machine.found_cxx()
    key = digest_of(*command, *machine.cxx_command()[1], *names, *names.values())[:16]
    places = [folder / key for folder in folders]
    place = next(filter(_are_whole, places), places[0])
    if not _are_whole(place):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            _make(place, work / "stub_libraries", command, names)
        if not _are_whole(place):
            return []
    # By default some linkers record a library only if it has a needed symbol.
    return [f"-Wl,--{'no-' * are_noted}as-needed", f"-L{place}"]


@cache
def _names() -> dict[str, str]:
    """The sonames of PyTorch's libraries, by their names for the linker.

    Only of libraries that are open in this process, as they are after PyTorch is imported; empty if
    a soname cannot be read.
    """
    folder = Path(torch.__file__).parent / "lib"
    opened = Path("/proc/self/maps").read_text()
    libraries = {name: folder / f"lib{name}.so" for name in _LIBRARIES}
    libraries = {name: library for name, library in libraries.items() if library.exists()}
    if not all(f"{library.resolve()}\n" in opened for library in libraries.values()):
        return {}
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        outputs = _run_all([["readelf", "-d", str(library)] for library in libraries.values()])
        sonames = [re.search(r"\(SONAME\).*\[(.+)\]", each) for each in outputs]
        return {name: it[1] for name, it in zip(libraries, sonames, strict=True) if it}
    return {}


_NOTE = "made.json"  # the digest of each


def _are_whole(place: Path) -> bool:
    digests = read_note(place / _NOTE)
    with contextlib.suppress(OSError):
        return digests is not None and digests == _digests(place)
    return False


def _digests(place: Path) -> dict[str, str]:
    return {path.name: digest_of(path.read_bytes()) for path in sorted(place.glob("*.so"))}


def _make(place: Path, work: Path, command: list[str], names: dict[str, str]) -> None:
    """Make all stubs, and move them to the folder `place` atomically."""
    work.mkdir()
    empty = ["-x", "c", os.devnull]
    _run_all(
        [*command, "-shared", f"-Wl,-soname,{soname}", "-o", str(work / f"lib{name}.so"), *empty]
        for name, soname in names.items()
    )
    write_note(work / _NOTE, _digests(work))
    publish_folder(work, place)


def _run_all(commands: Iterable[list[str]]) -> list[str]:
    """The outputs of commands, run in parallel, or one after the other without threads."""
    commands = list(commands)
    try:
        with ThreadPoolExecutor() as threads:
            return list(threads.map(_run, commands))
    except RuntimeError:  # a limit on processes counts threads, too
        return list(map(_run, commands))


def _run(command: list[str]) -> str:
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=machine.PATIENCE
    ).stdout
