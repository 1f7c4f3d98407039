"""C functions and kernels of a package that has no binding, called with tensors and numbers.

They are operators of PyTorch, too, which torch.compile takes into its graph: a pointer to what is
not const is an argument that the operator changes. None of them has a gradient.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from PACKAGE.c_calls import CFunction, Configuration, KernelFunction, Launch
from PACKAGE.c_declarations import ERROR, STREAM
from PACKAGE.libraries import error_check, opened, why_no_gpu

_SCHEMA_TYPES = {"bool": "bool", "float": "float", "double": "float"}


class Functions:
    """Those of one kernel, as attributes: kernel.add(x, y, n), kernel.add[grid, block](x, y, n).

    name: as its libraries have it. namespace: of their operators. signatures: by name, as they are
        declared, with the key "kernel" for what is launched with a grid and a block.
    """

    def __init__(self, name: str, namespace: str, signatures: dict[str, dict]) -> None:
        self.name = name
        parts = opened(name, ctypes.CDLL)
        self._library = torch.library.Library(namespace, "DEF")
        for each, signature in signatures.items():
            make = KernelFunction if "kernel" in signature else CFunction
            calls = {}
            for part, library in parts.items():
                check = error_check(library) if part == "cpu" else None
                calls[part] = make(library, each, signature, part, check)
            function = _Function(name, calls)
            function.define(self._library, namespace, signature)
            setattr(self, each, function)


class _Function:
    """One function of both libraries: that for the device of its first tensor is called."""

    def __init__(self, kernel: str, calls: dict[str, CFunction]) -> None:
        self._kernel, self._calls = kernel, calls
        first = calls["cpu"]
        self.__name__, self.__doc__ = first.__name__, first.__doc__
        self.__signature__ = first.__signature__
        self._op: Callable | None = None

    def define(self, library: torch.library.Library, namespace: str, signature: dict) -> None:
        """Make an operator of it, where it takes a tensor and returns nothing."""
        first = self._calls["cpu"]
        if first.returns not in ("void", ERROR) or not any(p.pointer for p in first.parameters):
            return
        declared, mark = [], 0
        for parameter, text in zip(first.parameters, signature["parameters"], strict=True):
            if parameter.type == STREAM:
                continue
            name = parameter.name if parameter.name.isidentifier() else f"argument{len(declared)}"
            if not parameter.pointer:
                declared.append(f"{_SCHEMA_TYPES.get(parameter.type, 'int')} {name}")
            elif "const" in text.split("*")[0].split():
                declared.append(f"Tensor {name}")
            else:
                declared.append(f"Tensor({chr(ord('a') + mark)}!) {name}")
                mark += 1
        if self._is_kernel:
            declared += ["int[] grid", "int[] block", "int shared"]
        library.define(f"{self.__name__}({', '.join(declared)}) -> ()")
        for part, call in self._calls.items():
            library.impl(self.__name__, self._called(call), part.upper())
        library.impl(self.__name__, lambda *arguments: None, "Meta")
        self._op = getattr(getattr(torch.ops, namespace), self.__name__).default

    def _called(self, call: CFunction) -> Callable:
        def called(*arguments: Any) -> None:
            if self._is_kernel:
                *arguments, grid, block, shared = arguments
                call(Configuration(tuple(grid), tuple(block), None, shared), *arguments)
            else:
                call(*arguments)

        return called

    @property
    def _is_kernel(self) -> bool:
        return isinstance(self._calls["cpu"], KernelFunction)

    def __getitem__(self, configuration: object) -> Callable:
        if not self._is_kernel:
            raise TypeError(f"{self.__name__} is a function and no kernel: call it without [...]")
        if torch.compiler.is_compiling():
            grid, block, *others = configuration
            extents = [list(e) if isinstance(e, tuple) else [e] for e in (grid, block)]
            extents = [[*e, *[1] * (3 - len(e))] for e in extents]
            shared = others[1] if len(others) > 1 else 0
            return lambda *arguments: self._op(*arguments, *extents, shared)
        return Launch(self, configuration)

    def __call__(self, *arguments: Any) -> Any:
        if torch.compiler.is_compiling() and self._op is not None:
            return self._op(*arguments)
        tensors = (it for it in arguments if isinstance(it, Tensor))
        part = next((it.device.type for it in tensors), "cpu")
        if part == "cuda" and part not in self._calls:
            reason = why_no_gpu(self._kernel) or "PyTorch here has no CUDA"
            raise RuntimeError(f"{self.__name__} got tensors on a GPU, and {reason}")
        return self._calls.get(part, self._calls["cpu"])(*arguments)
