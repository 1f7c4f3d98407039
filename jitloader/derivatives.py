"""Gradients recorded without Python.

jitloader/gradient_text.py reads a gradient from text, and derivatives.cpp records and computes it,
because recording in Python takes longer than a small call. In other cases (torch.compile,
torch.func, forward mode, autocast, hooks for saved tensors), and if derivatives.cpp does not
compile, `Derivative` does the same in Python.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from jitloader.building import ensure
from jitloader.cache import Cache
from jitloader.gradient_text import Derivative
from toolchain.code import Recipe
from toolchain.errors import CompileError, MissingTool

__all__ = ["recipe", "recorder", "redirected", "saved_for"]


def recorder(
    derivative: Derivative, infer: torch._ops.OpOverload | None
) -> Callable[..., Any] | None:
    """A function that calls an op and records it; None if derivatives.cpp does not compile.

    infer: the op to call if nothing is recorded, and every given argument is one that it takes.
        Then its number of results is returned.
    """
    library = _library()
    if library is None:
        return None
    called = infer or derivative.op
    overload = f"recorded_{next(_count)}"
    text = "".join(map(str, derivative.calls))
    given = derivative.op._schema.name, called._schema.name, overload, derivative.label, text
    error = library.define_recorder(*(it.encode() for it in given))
    if error:
        raise RuntimeError(error.decode(errors="replace"))
    # The C++ function itself: OpOverload would pass the arguments through Python once more.
    return getattr(called.overloadpacket, overload)._op


_count = itertools.count()


# ---- the library

SOURCE = Path(__file__).with_suffix(".cpp")


def recipe() -> Recipe:
    # PyTorch's asserts and the stack protector would call the simulator, which is not there with a
    # GPU.
    flags = ("-O1", "-fvisibility=hidden", "-DNDEBUG", "-fno-stack-protector")
    return Recipe("derivatives", (SOURCE,), (), flags, "cpu", debug=False)


@functools.cache
def _library() -> ctypes.CDLL | None:
    try:
        build = ensure(recipe())
        Cache.here().use(build.folder)
        library = ctypes.CDLL(str(build.library))
    except (CompileError, MissingTool, OSError) as error:
        warnings.warn(
            f"gradients are recorded by Python, which takes longer: {error}", stacklevel=2
        )
        return None
    library.define_recorder.restype = ctypes.c_char_p
    library.define_saved_for()
    return library


def _loaded() -> ctypes.CDLL | None:
    """The library, if this process has opened it; without, nothing was recorded."""
    return _library() if _library.cache_info().currsize else None


def saved_for(result: Tensor) -> list[Tensor]:
    """The tensors that derivatives.cpp saved for the backward pass of a result."""
    return torch.ops.jitload_graphs.saved_for(result) if _loaded() else []


_Redirect = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t)


@contextlib.contextmanager
def redirected(instead: Callable[[str], str]) -> Iterator[None]:
    """In this block, backward passes that were recorded here call functions of other builds.

    instead: given a build's name, returns that of the build to call instead, or raises.
    """

    def find(function: bytes, to: int, size: int) -> None:
        build, name = function.decode().split("::")
        try:
            answer = f"{instead(build)}::{name}"
        except Exception as error:
            answer = f"!{error}"
        answer = answer.encode()[:size]
        ctypes.memmove(to, answer, len(answer))

    library = _loaded()
    if library is None:
        yield
        return
    callback = _Redirect(find)
    library.set_redirect(callback)
    try:
        yield
    finally:
        library.set_redirect(None)
