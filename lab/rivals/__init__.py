"""What our kernels are held against: PyTorch, and other people's kernels where they are installed.

Each library has a file here, with a function, named after our op, for each op that it has a kernel
for. A library is no rival if it is not installed or has no such function. Some of PyTorch's own
kernels are separate rivals (`backends`), if the reference runs several kernels or PyTorch has a
choice of them.
"""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import importlib.util
import inspect
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from lab.rivals.backends import BACKENDS
from lab.rivals.implementation import Implementation
from lab.rivals.pytorch import compiled, eager, keep_buffers

if TYPE_CHECKING:
    from reference import Op

# By the name of the file here: the module that it imports, and the package to install.
LIBRARIES = {
    "liger": ("liger_kernel", "liger-kernel"),
    "quack": ("quack", "quack-kernels"),
    "deep_gemm": ("deep_gemm", "deep-gemm"),
    "flash_attn": ("flash_attn.flash_attn_interface", "flash-attn"),
    "flash_attn_3": ("flash_attn_interface", "flash-attn-3"),
    "fa3_fwd": ("fa3_fwd_interface", "fa3-fwd"),
    "flash_attn_4": ("flash_attn.cute", "flash-attn-4"),
}

# How to install those that need more than one wheel.
NEEDS = {
    "quack": "it comes with nvidia-cutlass-dsl, one of whose wheels has 92 MB",
    "deep_gemm": (
        "the one release on PyPI, 1.0.0, is source that lacks the CUTLASS headers it compiles, and"
        " knows no bfloat16; later ones are built from DeepGEMM's repository"
    ),
}


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # the package that would contain it
        return False


def _functions(name: str) -> dict[str, Callable]:
    """A library's kernels, by our op's name and with its arguments."""
    file = importlib.import_module(f"{__name__}.{name}")
    own = inspect.getmembers(file, inspect.isfunction)
    return {op: function for op, function in own if function.__module__ == file.__name__}


def _in_forward(name: str, op: Op) -> bool:
    """Whether a library's forward pass of the op computes the gradients."""
    file = importlib.import_module(f"{__name__}.{name}")
    return op.name in getattr(file, "GRADIENTS_IN_FORWARD", ())


def _of_library(op: Op, name: str) -> Implementation:
    module, package = LIBRARIES[name]
    if not _is_installed(module):
        raise ModuleNotFoundError(f"rival {name}: pip install {package}", name=module)
    if op.name not in (known := _functions(name)):
        raise ValueError(f"rival {name}: {package} has no {op.name}; it has {', '.join(known)}")
    return Implementation(name, known[op.name], gradients_in_forward=_in_forward(name, op))


def _of_backend(op: Op, name: str) -> Implementation:
    if op.name not in (known := BACKENDS[name]):
        raise ValueError(f"rival {name}: PyTorch has no {op.name} there; it has {', '.join(known)}")
    compiles = name == "flex"
    return Implementation(
        name, known[op.name], first_call=keep_buffers if compiles else nullcontext
    )


RIVALS: dict[str, Callable[[Op], Implementation]] = {
    "eager": eager,
    "compile": compiled,
    **{name: partial(_of_backend, name=name) for name in BACKENDS},
    **{name: partial(_of_library, name=name) for name in LIBRARIES},
}
PYTORCH = ("eager", "compile")


def rivals_of(op: Op) -> list[str]:
    """The names of all rivals that are here and have a kernel for the op."""
    there = [*PYTORCH, *(name for name, known in BACKENDS.items() if op.name in known)]
    for name, (module, _) in LIBRARIES.items():
        if _is_installed(module) and _may_have(name, op):
            there.append(name)
    return there


def _may_have(name: str, op: Op) -> bool:
    """Whether a library has a kernel for the op; true if its import fails, to report that."""
    try:
        return op.name in _functions(name)
    except Exception:
        return True


def libraries_of(op: str) -> list[str]:
    """The libraries that have a kernel for the op by their files here, installed or not."""
    found = []
    for name in LIBRARIES:
        tree = ast.parse(Path(__file__).with_name(f"{name}.py").read_text())
        if any(isinstance(node, ast.FunctionDef) and node.name == op for node in tree.body):
            found.append(name)
    return found


def versions() -> dict[str, str | None]:
    """The version of each library, None where it is not installed."""
    found: dict[str, str | None] = {}
    for name, (_, package) in LIBRARIES.items():
        try:
            found[name] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found
