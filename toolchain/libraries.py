"""What a whole program is linked with, besides what every kernel is: CUDA's own libraries."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from toolchain import machine, sources
from toolchain.code import Code

# The libraries of CUDA by the headers that ask for them. Of one that a program does not use after
# all, the linker leaves no trace.
_OF_HEADERS = {
    r"cublas(_v2|XT)?\.h": "cublas",
    r"cublasLt\.h": "cublasLt",
    r"curand\.h": "curand",
    r"cufft\w*\.h": "cufft",
    r"cusparse(_v2)?\.h": "cusparse",
    r"cusolver\w*\.h": "cusolver",
    r"nvrtc\.h": "nvrtc",
    r"nvml\.h": "nvidia-ml",
    r"nvJitLink\.h": "nvJitLink",
    r"cuda\.h|cudaTypedefs\.h": "cuda",
}


def link_flags(code: Code, home: Path | None, work: Path) -> list[str]:
    """What the linker needs for a program, besides; `home` is CUDA's folder, None on the CPU.

    A program calls its own functions, also where the process that opens it has some of their names.
    """
    if sys.platform != "linux":
        return []
    flags = ["-Wl,--as-needed", "-Wl,-Bsymbolic"]
    if any("-fopenmp" in flag for flag in code.recipe.flags):
        flags.append("-fopenmp")
    if home is None:
        return flags
    links = work / "libraries"
    links.mkdir()
    flags.append(f"-L{links}")
    for name in wanted(code):
        if library := _found(name, home):
            (links / f"lib{name}.so").symlink_to(library)
            flags.append(f"-l{name}")
    return flags


def include_flags(code: Code, home: Path) -> list[str]:
    """Where the headers of those libraries are which CUDA's own folder lacks: a wheel has them."""
    include = []
    for header in _headers(code):
        if not (home / "include" / header).is_file():
            include += [
                folder for folder in machine.in_wheels("*/include") if (folder / header).is_file()
            ][:1]
    return [word for folder in dict.fromkeys(include) for word in ("-isystem", str(folder))]


def wanted(code: Code) -> list[str]:
    """The libraries for whose headers a program asks."""
    headers = _headers(code)
    return [
        library
        for pattern, library in _OF_HEADERS.items()
        if any(re.fullmatch(pattern, header) for header in headers)
    ]


def _headers(code: Code) -> list[str]:
    """The headers of libraries that a program includes."""
    names = {name for path in code.files for _, name in sources.included(code.text(path))}
    return sorted(n for n in names if any(re.fullmatch(way, n) for way in _OF_HEADERS))


def folders(home: Path) -> list[Path]:
    """Where CUDA's libraries lie: in the toolkit's folder, and in those of the wheels.

    The system's loader looks there, too, when a program is started.
    """
    places = [home / "lib64", home / "lib", *machine.in_wheels("*/lib")]
    return [place for place in places if place.is_dir()]


def _found(name: str, home: Path) -> Path | None:
    """A library of this name; the driver's is on machines without a GPU but a stub."""
    places = folders(home)
    for place in [*places, *(place / "stubs" for place in places)]:
        if files := sorted(place.glob(f"lib{name}.so*")):
            return files[0]
    return None
