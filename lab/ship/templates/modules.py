"""The functions of a module of pybind11's, which each part of the package is.

That for the device of the first tensor among the arguments is called; where there is none, that for
GPUs if there is a GPU. PyTorch knows them as Python's functions, not as operators: torch.compile
leaves its graph to call them, and a gradient is what torch::autograd::Function has made of it.
"""

from __future__ import annotations

import ctypes
import importlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from PACKAGE.libraries import error_check, has_gpu_part, opened, why_no_gpu


class Module:
    """One kernel's module: its functions as attributes, its classes and constants as they are.

    name: as the package's libraries have it.
    """

    def __init__(self, name: str) -> None:
        parts = opened(name, _imported)
        first = parts["cuda" if "cuda" in parts and torch.cuda.is_available() else "cpu"]
        check = error_check(ctypes.CDLL(parts["cpu"].__file__))
        for each, value in vars(first).items():
            if inspect.isroutine(value):
                calls = {part: getattr(module, each) for part, module in parts.items()}
                value = _Function(name, calls, check)
            if not each.startswith("__"):
                setattr(self, each, value)


def _imported(path: str) -> ModuleType:
    return importlib.import_module(f"PACKAGE.{Path(path).name.partition('.')[0]}")


class _Function:
    """One function of both modules."""

    def __init__(self, kernel: str, calls: dict[str, Callable], check: Callable[[], None]) -> None:
        self._kernel, self._calls, self._check = kernel, calls, check
        self.__name__, self.__doc__ = calls["cpu"].__name__, calls["cpu"].__doc__

    @torch.compiler.disable
    def __call__(self, *arguments: Any, **named: Any) -> Any:
        part = next(_devices((arguments, named)), "cuda" if has_gpu_part() else "cpu")
        if part == "cuda" and part not in self._calls:
            reason = why_no_gpu(self._kernel) or "PyTorch here has no CUDA"
            raise RuntimeError(f"{self.__name__} got tensors on a GPU, and {reason}")
        if part == "cuda":
            return self._calls[part](*arguments, **named)
        result = self._calls["cpu"](*arguments, **named)
        self._check()
        return result


def _devices(given: Any) -> Iterator[str]:
    """Of the tensors among arguments, and in lists and dicts of them."""
    if isinstance(given, Tensor):
        yield given.device.type
    elif isinstance(given, dict):
        yield from _devices(tuple(given.values()))
    elif isinstance(given, list | tuple):
        for each in given:
            yield from _devices(each)
