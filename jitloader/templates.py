"""Kernels that are templates: `kernel.scale[float][grid, block](x, y, n)`, or without the types if
the tensors' types determine them. Each instance is compiled when it is first used."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass

import torch

from jitloader.cfunctions import Configuration, Launch
from toolchain.launchers import symbol_of, template_parameters

TYPES = {
    torch.float32: "float",
    torch.float64: "double",
    torch.float16: "__half",
    torch.bfloat16: "__nv_bfloat16",
    torch.int8: "signed char",
    torch.uint8: "unsigned char",
    torch.int16: "short",
    torch.uint16: "unsigned short",
    torch.int32: "int",
    torch.uint32: "unsigned",
    torch.int64: "long long",
    torch.uint64: "unsigned long long",
    torch.bool: "bool",
    bool: "bool",
    int: "int",
    float: "float",
}
_WORDS = ("typename", "class")


@dataclass(frozen=True)
class Arguments:
    """The template arguments, in the first brackets of `kernel.scale[float, 4][grid, block]`, as
    C++ text."""

    texts: tuple[str, ...]


class Template:
    """One template of a build.

    instantiate: returns the function that launches the kernel with given template arguments.
    """

    def __init__(self, name: str, signature: dict, instantiate: Callable[[str, tuple], Callable]):
        self.__name__ = name
        self.declared: list[str] = signature["parameters"]
        self.template: str = signature["template"]
        self.parameters = template_parameters(self.template)
        self._instantiate = instantiate
        self._made: dict[tuple[str, ...], Callable] = {}
        known = ", ".join(self._names())
        self.__doc__ = (
            f"template <{self.template}> __global__ void {name}({', '.join(self.declared)})\n\n"
            f"{name}[{self._example()}][grid, block]({known}) launches it; the types may be left"
            " out where those of the tensors say them. Types are Python's or PyTorch's: float,"
            " torch.half, int; each instance is compiled when it is first asked for."
        )
        self.__signature__ = inspect.Signature(
            [
                inspect.Parameter(each, inspect.Parameter.POSITIONAL_ONLY)
                for each in self._names()
                if each.isidentifier()
            ]
        )

    def __call__(self, first: object = None, *arguments: object) -> object:
        if isinstance(first, Configuration):
            return self._of(self._deduced(arguments))(first, *arguments)
        if not isinstance(first, Arguments):
            raise TypeError(
                f"{self.__name__} is a kernel, and a template: launch it as in {self.__name__}"
                f"[{self._example()}][grid, block]({', '.join(self._names())})"
            )
        return self._of(first.texts)(*arguments)

    def chosen(self, function: Callable, given: object) -> Launch | Instance:
        """The value of `function[given]`: an instance for template arguments, else a launch."""
        parts = given if isinstance(given, tuple) else (given,)
        types = [kind in _WORDS for kind, _, _ in self.parameters]
        is_value = [isinstance(it, type | torch.dtype | str) for it in parts]
        if all(types) and not any(is_value):
            return Launch(function, given)
        return Instance(function, Arguments(self._texts(parts)), parts)

    def _texts(self, parts: tuple) -> tuple[str, ...]:
        least = sum(not default for _, _, default in self.parameters)
        if not least <= len(parts) <= len(self.parameters):
            raise TypeError(
                f"{self.__name__} is template <{self.template}>: {len(parts)} arguments were given,"
                f" as in {self.__name__}[{self._example()}][grid, block]"
            )
        return tuple(
            self._text(kind, name, it)
            for (kind, name, _), it in zip(self.parameters, parts, strict=False)
        )

    def _text(self, kind: str, name: str, given: object) -> str:
        what = f"{self.__name__}: {name} is {given!r}"
        if kind in _WORDS:
            if isinstance(given, str) and re.fullmatch(r"[A-Za-z_][\w:<>, ]*", given):
                return given
            try:
                return TYPES[given]
            except (KeyError, TypeError):
                wanted = "a type, such as float, int, torch.half, or its name in C++"
                if isinstance(given, int | tuple):  # [grid, block]
                    example = f"{self.__name__}[{self._example()}][grid, block]"
                    wanted += f", before the launch: {example}"
                raise TypeError(f"{what}; wanted {wanted}") from None
        if isinstance(given, bool):
            return "true" if given else "false"
        try:
            return str(given.__index__())
        except AttributeError:
            raise TypeError(f"{what}; wanted a whole number ({kind})") from None

    def _deduced(self, arguments: tuple) -> tuple[str, ...]:
        """The template arguments, deduced from the types of the kernel's arguments."""
        deduced: list[str] = []
        for kind, name, default in self.parameters:
            texts = {}
            for declared, it in zip(self.declared, arguments, strict=False):
                if kind in _WORDS and re.search(rf"\b{name}\b", declared):
                    of = it.dtype if isinstance(it, torch.Tensor) and it.dim() else None
                    is_pointer = "*" in declared or "[" in declared
                    of = of if is_pointer else type(it)
                    if of in TYPES:
                        texts.setdefault(is_pointer, set()).add(TYPES[of])
            types = texts.get(True) or texts.get(False) or set()
            if not types and default:
                break
            if len(types) != 1:
                several = f"may be {' or '.join(sorted(types))}" if types else "is not said"
                raise TypeError(
                    f"{self.__name__}: {name} {several} by the arguments: say it, as in"
                    f" {self.__name__}[{self._example()}][grid, block]({', '.join(self._names())})"
                )
            deduced += types
        return tuple(deduced)

    def _of(self, texts: tuple[str, ...]) -> Callable:
        if texts not in self._made:
            self._made[texts] = self._instantiate(self.__name__, texts)
        return self._made[texts]

    def _names(self) -> list[str]:
        names = (re.search(r"(\w+)\s*(?:\[[^]]*\])*$", text) for text in self.declared)
        return [name[1] if name else "_" for name in names]

    def _example(self) -> str:
        return ", ".join("float" if kind in _WORDS else "4" for kind, _, _ in self.parameters)


class Instance:
    """`kernel.scale[float]`: a template with its arguments, still without grid and block."""

    def __init__(self, function: Callable, arguments: Arguments, given: tuple):
        self.function, self.arguments = function, arguments
        shown = ", ".join(getattr(it, "__name__", str(it)) for it in given)
        name = getattr(function, "__qualname__", function.__name__)
        self.__name__ = self.__qualname__ = f"{name}[{shown}]"
        self.__doc__ = function.__doc__
        self.__signature__ = getattr(function, "__signature__", None)

    def __getitem__(self, configuration: object) -> Launch:
        return Launch(self, configuration)

    def __call__(self, *arguments: object) -> object:
        return self.function(self.arguments, *arguments)

    def __repr__(self) -> str:
        return f"<Instance {self.__qualname__}>"


def name_of(kernel: str, texts: tuple[str, ...]) -> str:
    """The name of the instance's function in its build."""
    return symbol_of(kernel, texts)
