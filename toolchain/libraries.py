"""Further libraries that a whole program is linked with: CUDA's own."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from toolchain import machine, sources
from toolchain.code import Code

# CUDA's libraries by their headers. If a program includes a header but does not use the library,
# the linker leaves it out.
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
    """Further linker flags for a program; `home` is CUDA's folder, None for the CPU.

    A program calls its own functions, even if the process that opens it has some of the same names.
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
    """Flags for headers of those libraries that are in a wheel and not in CUDA's folder."""
    include = []
    for header in _headers(code):
        if not (home / "include" / header).is_file():
            include += [
                folder for folder in machine.in_wheels("*/include") if (folder / header).is_file()
            ][:1]
    return [word for folder in dict.fromkeys(include) for word in ("-isystem", str(folder))]


def wanted(code: Code) -> list[str]:
    """The libraries whose headers a program includes."""
    headers = _headers(code)
    return [
        library
        for pattern, library in _OF_HEADERS.items()
        if any(re.fullmatch(pattern, header) for header in headers)
    ]


def _headers(code: Code) -> list[str]:
    """The libraries' headers that a program includes."""
    names = {name for path in code.files for _, name in sources.included(code.text(path))}
    return sorted(n for n in names if any(re.fullmatch(way, n) for way in _OF_HEADERS))


def folders(home: Path) -> list[Path]:
    """The folders of CUDA's libraries: the toolkit's, and those of the wheels.

    The system's dynamic loader searches them, too, when a program is started.
    """
    places = [home / "lib64", home / "lib", *machine.in_wheels("*/lib")]
    return [place for place in places if place.is_dir()]


def _found(name: str, home: Path) -> Path | None:
    """A library of this name; the driver's is only a stub on machines without a GPU."""
    places = folders(home)
    for place in [*places, *(place / "stubs" for place in places)]:
        if files := sorted(place.glob(f"lib{name}.so*")):
            return files[0]
    return None
