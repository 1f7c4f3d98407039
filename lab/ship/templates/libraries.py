"""The libraries of a kernel, a part of the package each.

One is for tensors on the CPU. The other, for those on a GPU, is there where nvcc was found when the
package was built, and is opened where PyTorch is a build for CUDA. Both implement the operators
torch.ops.NAMESPACE.NAME, which the first one defines.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).resolve().parent


def library(kernel: str, part: str) -> Path | None:
    """The library of a kernel's part, "cpu" or "cuda"; None where it was not built."""
    return next(iter(sorted(HERE.glob(f"_{kernel}_{part}.*"))), None)


def why_no_gpu(kernel: str) -> str:
    """Why tensors on a GPU are refused; "" where they are not, or PyTorch has no CUDA anyway."""
    if torch.version.cuda is None:
        return ""
    if library(kernel, "cuda") is None:
        return "this build has no part for GPUs, since there was no nvcc: set CUDA_HOME, and build"
    return _failures.get(kernel, "")


def has_gpu_part() -> bool:
    """Whether all kernels of the package run on the GPU that is here."""
    return torch.cuda.is_available() and any(HERE.glob("_*_cuda.*")) and not _failures


def operators(kernel: str, namespace: str) -> str:
    """Open a kernel's libraries; the namespace under which its operators then are."""
    opened(kernel, torch.ops.load_library)
    return namespace


_failures: dict[str, str] = {}  # of opening the libraries for a GPU, by kernel


def opened(kernel: str, open_library: Callable[[str], Any]) -> dict[str, Any]:
    """What `open_library` returns of each part's path, by part; without the GPU's if that fails.

    Raises:
        ImportError: the part for the CPU cannot be opened.
    """
    path = library(kernel, "cpu")
    if path is None:
        raise ImportError(f"the library _{kernel}_cpu is not in {HERE}: build the package first")
    _check_cpu(path)
    found = {"cpu": open_library(str(path))}
    path = library(kernel, "cuda")
    if path and torch.version.cuda:
        try:
            found["cuda"] = open_library(str(path))
        except (OSError, ImportError) as error:
            _failures[kernel] = f"{path.name} cannot be opened: {error.__cause__ or error}"
    return found


def error_check(library: ctypes.CDLL) -> Callable[..., None]:
    """Of the library for the CPU: what raises an error of a kernel's that nobody has asked for."""
    take = library.simulator_take_error
    take.restype = ctypes.c_char_p

    def check(tensors: Callable[[], Any] = tuple) -> None:
        if message := take():
            raise RuntimeError(message.decode(errors="replace"))

    return check


def _check_cpu(path: Path) -> None:
    """Raises ImportError on a processor that lacks instructions of the library for the CPU."""
    info = Path("/proc/cpuinfo")
    if sys.platform != "linux" or not info.is_file():
        return
    flags = next((line for line in info.read_text().splitlines() if line.startswith("flags")), "")
    if flags and not {"avx2", "fma", "f16c"} <= set(flags.split()):
        raise ImportError(
            f"{path.name} needs a processor with AVX2, FMA and F16C, as x86-64-v3 has them: build"
            " the package on this machine, without -march=x86-64-v3 in setup.py"
        )
