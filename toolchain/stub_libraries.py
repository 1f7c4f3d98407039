"""What a kernel is linked with in the place of PyTorch's libraries.

Those have some hundred thousand symbols, which take a linker a quarter of a second to read, longer
than it takes to compile a small kernel. None is needed: what a kernel calls is looked up when it is
opened. The kernel only notes the names of the libraries, and those a stub without symbols has.
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

# What torch.utils.cpp_extension links with.
_LIBRARIES = ("c10", "c10_cuda", "torch", "torch_cpu", "torch_cuda", "torch_python")
_SYMBOLS_WANTED = re.compile(r"-z,?defs|--no-undefined")  # by a flag of the user's


def flags(
    folders: Sequence[Path], work: Path, link_flags: list[str], are_noted: bool = True
) -> list[str]:
    """Flags by which the linker finds stubs before it finds PyTorch's libraries.

    Args:
        folders: where they may be kept, once for each compiler and PyTorch; what is made is kept in
            the first.
        work: where they are made before they appear there.
        link_flags: the user's. Where they have the linker look for every symbol, nothing stands in.
        are_noted: whether the kernel calls PyTorch. Else a process without it may open the kernel.

    Returns:
        None at all where no stub can be made.
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
    # By themselves some linkers note a library only where it has a symbol that is needed.
    return [f"-Wl,--{'no-' * are_noted}as-needed", f"-L{place}"]


@cache
def _names() -> dict[str, str]:
    """What PyTorch's libraries call themselves, by their names for the linker.

    Only those that are open in this process, as they are wherever PyTorch is imported; and none at
    all where one's name cannot be read.
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
    """Let the folder `place` appear with all of them, at once."""
    work.mkdir()
    empty = ["-x", "c", os.devnull]
    _run_all(
        [*command, "-shared", f"-Wl,-soname,{soname}", "-o", str(work / f"lib{name}.so"), *empty]
        for name, soname in names.items()
    )
    write_note(work / _NOTE, _digests(work))
    publish_folder(work, place)


def _run_all(commands: Iterable[list[str]]) -> list[str]:
    """What commands say that are run side by side; one after the other where threads cannot be."""
    commands = list(commands)
    try:
        with ThreadPoolExecutor() as threads:
            return list(threads.map(_run, commands))
    except RuntimeError:  # a limit of processes counts threads, too
        return list(map(_run, commands))


def _run(command: list[str]) -> str:
    return subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=machine.PATIENCE
    ).stdout
