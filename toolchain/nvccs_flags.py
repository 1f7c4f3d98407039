"""nvcc's flags translated for a C++ compiler, and those that have no meaning for it.

-Xcompiler -fPIC,-Wall        -fPIC -Wall
--include-path=folder         -Ifolder
-fmad=false                   -ffp-contract=off
--use_fast_math               nothing: the simulator computes as exactly as C++ does
-gencode arch=...,code=...    nothing: there is no GPU to compile for
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple


class Translated(NamedTuple):
    """flags: for the C++ compiler. links: for the linker. dropped: unused ones, as written."""

    flags: list[str]
    links: list[str]
    dropped: list[str]


def _host(value: str) -> list[str]:
    """The options of -Xcompiler, which commas separate; `\\,` is part of an option."""
    return [part.replace("\\,", ",") for part in re.split(r"(?<!\\),", value) if part]


# nvcc's options as a C++ compiler's; the functions of options without a value get "".
_SAME: dict[str, Callable[[str], list[str]]] = {
    "-Xcompiler": _host,
    "--compiler-options": _host,
    "--include-path": lambda value: [f"-I{value}"],
    "--system-include": lambda value: ["-isystem", value],
    "--pre-include": lambda value: ["-include", value],
    "--define-macro": lambda value: [f"-D{value}"],
    "--undefine-macro": lambda value: [f"-U{value}"],
    "--optimize": lambda value: [f"-O{value}"],
    "--std": lambda value: [f"-std={value}"],
    "-std": lambda value: [f"-std={value}"],
    "-fmad": lambda value: ["-ffp-contract=off"] if value == "false" else [],
    "--fmad": lambda value: ["-ffp-contract=off"] if value == "false" else [],
    "--debug": lambda _: ["-g"],
    "--disable-warnings": lambda _: ["-w"],
    "--Werror": lambda value: ["-Werror"] if "all-warnings" in value else [],
    "--machine": lambda value: [f"-m{value}"],
}
_VALUES = _SAME.keys() - {"--debug", "--disable-warnings"}

# nvcc's other options: those with a value, which may be the next argument, and those without.
_DROPPED_WITH_VALUE = re.compile(
    r"--?(?:gencode|generate-code|gpu-architecture|gpu-code|code|Xptxas|ptxas-options|Xnvlink"
    r"|nvlink-options|Xarchive|archive-options|Xcudafe|cudafe-options|Xfatbin|fatbin-options"
    r"|maxrregcount|rdc|relocatable-device-code|ftz|prec-div|prec-sqrt|ccbin|compiler-bindir"
    r"|cudart|cudadevrt|default-stream|threads|t|split-compile(?:-extended)?|diag-suppress"
    r"|diag-error|diag-warn|dopt|Ofast-compile|Ofc|keep-dir|odir|target-dir|libdevice-directory"
    r"|ldir|optf|options-file|brief-diagnostics|jump-table-density|jtd|opt-info"
    r"|device-stack-protector|time|frandom-seed|fdevice-time-trace|compress-mode)"
)
_DROPPED = re.compile(
    r"--?(?:use[_-]fast[_-]math|expt-relaxed-constexpr|expt-extended-lambda|extended-lambda"
    r"|extra-device-vectorization|lineinfo|generate-line-info|G|device-debug|dc|device-c|dlto"
    r"|lto|allow-unsupported-compiler|keep|restrict|res-usage|resource-usage|src-in-ptx"
    r"|source-in-ptx|dryrun|verbose|Wno-deprecated-gpu-targets|no-host-device-\w[\w-]*"
    r"|forward-unknown-(?:to-host-compiler|opts|to-host-linker)|disable-optimizer-constants"
    r"|gen-opt-lto|std-kernel|static-global-template-stub|display-error-number|no-display-error-number"
    r"|Wreorder-device|Wdefault-stream-launch|Wext-lambda-captures-this)"
)
_ARCHITECTURE = re.compile(r"(?:sm|compute|lto)_\w+|native|all|all-major")
_LINKERS = {"-l": "-l", "--library": "-l", "-L": "-L", "--library-path": "-L"}
_LINKERS |= {"-Xlinker": "", "--linker-options": ""}
# The libraries that the simulator or PyTorch replaces.
_CUDAS_LIBRARY = re.compile(
    r"-l(?:cuda|cudart(?:_static)?|cudadevrt|cublas(?:Lt)?|curand|nvToolsExt|nvrtc|c10_cuda"
    r"|torch_cuda|nvidia-ml|cusparse|cusolver|cufft|cudnn|nccl)(?:_static)?"
)


def for_cpp(flags: Iterable[str], standard: str | None = None) -> Translated:
    """nvcc's flags for g++ or clang; their own flags stay as they are.

    standard: the C++ standard that the headers need. An older one is dropped.
    """
    result = Translated([], [], [])
    left = list(flags)[::-1]
    while left:
        flag = left.pop()
        name, equals, value = flag.partition("=")
        given = [flag]

        def take(equals: str = equals, value: str = value, given: list[str] = given) -> str:
            if equals or not left:
                return value
            given.append(left.pop())
            return given[-1]

        if name in _SAME:
            made = _SAME[name](value := take() if name in _VALUES else "")
            if name in ("-std", "--std") and _is_older(value, standard):
                result.dropped.append(f"{' '.join(given)} (PyTorch's headers need {standard})")
            else:
                result.flags.extend(made)
        elif _takes_a_value(name, equals, left):
            take()
            result.dropped.append(" ".join(given))
        elif _DROPPED.fullmatch(flag) or _CUDAS_LIBRARY.fullmatch(flag):
            result.dropped.append(flag)
        elif name in _LINKERS:
            value = take()
            if short := _LINKERS[name]:
                left.append(short + value)
            else:
                result.links.extend(f"-Wl,{part}" for part in _host(value))
        elif flag.startswith(("-l", "-L", "-Wl,")):
            result.links.append(flag)
        elif flag == "-x" and left[-1:] == ["cu"]:
            take()
            result.dropped.append(" ".join(given))
        else:
            result.flags.append(flag)
            if flag in ("-D", "-U", "-I", "-include", "-isystem") and left:  # it may have any value
                result.flags.append(left.pop())
    return result


def takes_the_next(flag: str) -> bool:
    """Whether a flag that only nvcc has takes the next argument as its value."""
    known = flag in _VALUES or flag in _LINKERS or _DROPPED_WITH_VALUE.fullmatch(flag)
    return bool(known) or flag in ("-arch", "--arch")


def _takes_a_value(name: str, equals: str, left: list[str]) -> bool:
    """Whether it is one of those dropped. Apple's clang has -arch, too, with other values."""
    if name in ("-arch", "--arch"):
        return bool(equals) or bool(left and _ARCHITECTURE.fullmatch(left[-1]))
    return _DROPPED_WITH_VALUE.fullmatch(name) is not None


def _is_older(standard: str, wanted: str | None) -> bool:
    """Whether a standard is older, as "c++14" than "c++20"; drafts, such as c++2a, count, too."""
    if wanted is None:
        return False
    drafts = {"0x": "11", "1y": "14", "1z": "17", "2a": "20", "2b": "23", "2c": "26"}
    numbers = []
    for name in (standard, wanted):
        digits = name.rpartition("+")[2]
        digits = drafts.get(digits, digits)
        numbers.append(int(digits) if digits.isdigit() and digits != "98" else 0)
    return numbers[0] < numbers[1]
