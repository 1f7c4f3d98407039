"""Stubs that a kernel is linked with in place of PyTorch's libraries.

A linker takes a quarter of a second to read the libraries' hundred thousand symbols, longer than a
small kernel takes to compile. It needs none of them, because a kernel's calls are resolved when it
is opened. So it gets a library without symbols that has the name of libtorch_python, and an empty
linker script for each library that libtorch_python opens.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import torch

from toolchain import machine
from toolchain.notes import digest_of, publish_folder, read_note, write_note

_OPENED = ("c10", "c10_cuda", "torch", "torch_cpu", "torch_cuda")
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
    if sys.platform != "linux" or wanted or not (soname := _soname()):
        return []
    command = machine.found_cxx()
    key = digest_of(*command, *machine.cxx_command()[1], soname, *_OPENED)[:16]
    places = [folder / key for folder in folders]
    place = next(filter(_are_whole, places), places[0])
    if not _are_whole(place):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            _make(place, work / "stub_libraries", command, soname)
        if not _are_whole(place):
            return []
    # By default some linkers record a library only if it has a needed symbol.
    return [f"-Wl,--{'no-' * are_noted}as-needed", f"-L{place}"]


@cache
def _soname() -> str:
    """The name by which libtorch_python is opened; "" if this process has not opened it, or if the
    name cannot be read."""
    library = Path(torch.__file__).parent / "lib/libtorch_python.so"
    if f"{library.resolve()}\n" not in Path("/proc/self/maps").read_text():
        return ""
    output = machine.output_of(["readelf", "-d", str(library)]) or ""
    soname = re.search(r"\(SONAME\).*\[(.+)\]", output)
    return soname[1] if soname else ""


_NOTE = "made.json"  # the digest of each


def _are_whole(place: Path) -> bool:
    digests = read_note(place / _NOTE)
    with contextlib.suppress(OSError):
        return digests is not None and digests == _digests(place)
    return False


def _digests(place: Path) -> dict[str, str]:
    return {path.name: digest_of(path.read_bytes()) for path in sorted(place.glob("*.so"))}


def _make(place: Path, work: Path, command: list[str], soname: str) -> None:
    """Make all stubs, and move them to the folder `place` atomically."""
    work.mkdir()
    for name in _OPENED:
        (work / f"lib{name}.so").write_text("/* empty: libtorch_python opens it */\n")
    named = [f"-Wl,-soname,{soname}", "-o", str(work / "libtorch_python.so")]
    link = [*command, "-shared", *named, "-x", "c", os.devnull]
    subprocess.run(link, capture_output=True, check=True, timeout=machine.PATIENCE)
    write_note(work / _NOTE, _digests(work))
    publish_folder(work, place)
