"""Functions of a .cu without a binding, called with tensors and numbers: its extern "C" functions,
and the kernels that it does not launch itself (`toolchain.launchers`)."""

from __future__ import annotations

import contextlib
import ctypes
import inspect
import math
import operator
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.autograd.graph import increment_version

from jitloader import guards
from toolchain.signatures import (
    ERROR,
    NUMBERS,
    POINTERS,
    RETURNS,
    STREAM,
    VECTORS,
    Parameter,
    launcher_of,
)

LARGEST_GRID = (0x7FFFFFFF, 65535, 65535)  # the same for every GPU that this torch knows
LARGEST_BLOCK = (1024, 1024, 64)
MOST_THREADS = 1024  # of a block
LEAST_HANDLE = 1 << 16  # of a stream: streams are pointers, except CUDA's 1 and 2


def _range(number: type) -> tuple[int, int] | None:
    """The least and the greatest value of an integer type; None for others."""
    if number in (ctypes.c_float, ctypes.c_double):
        return None
    bits = 8 * ctypes.sizeof(number)
    if number is ctypes.c_bool:
        return 0, 1
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if number(-1).value < 0 else (0, (1 << bits) - 1)


_RANGES = {kind: _range(number) for kind, number in NUMBERS.items()}
_PLAIN = (bool, int, float)
_LARGE = 3.4e38  # numbers below it are finite as floats


class CFunction:
    """Calls one function of an opened library.

    Pointers take contiguous tensors of the pointer's type on the target's device, numbers are
    converted as declared, and a stream parameter gets the current stream. For autograd, a write
    through a pointer is a write in place; the result has no gradient, which a warning says once.
    TypeError and ValueError name the parameter. RuntimeError has the message of CUDA (or, through
    `check`, the simulator), or says that a leaf which requires a gradient would be written to.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        name: str,
        signature: dict,
        target: str,
        check: guards.Check | None,
    ):
        instance = signature.get("instance_of")
        self.__name__ = f"{instance[0]}[{', '.join(instance[1:])}]" if instance else name
        self.library, self.target, self.check = library, target, check
        self.declared = signature["parameters"]
        self.parameters = [Parameter.parse(text, i) for i, text in enumerate(self.declared, 1)]
        self.wanted = [p for p in self.parameters if p.type != STREAM]
        read = {self.parameters[i].name for i in signature.get("read", ())}
        self._written = [
            i for i, p in enumerate(self.wanted) if p.pointer and not (p.const or p.name in read)
        ]
        self._has_warned = False
        self.returns = signature["returns"]
        if self.returns not in RETURNS:
            raise TypeError(f"{name} returns {self.returns}; wanted void, {ERROR} or a number")
        self.function = self._symbol(name)
        if target == "cpu":
            count = len(self._before) + len(self.parameters)
            self.function = guards.entry(library, self.function, count)
        self.function.restype = ctypes.c_int if self.returns == ERROR else NUMBERS.get(self.returns)
        types = [ctypes.c_void_p if p.pointer else NUMBERS.get(p.type) for p in self.parameters]
        self.function.argtypes = [*self._before, *(kind or ctypes.c_void_p for kind in types)]
        self._pointers = [len(self._before) + i for i, p in enumerate(self.parameters) if p.pointer]
        self.__doc__ = self._doc()

    _before: tuple[type, ...] = ()  # arguments before those of its parameters

    def _symbol(self, name: str) -> Any:
        return self.library[name]

    def __call__(self, *arguments: object) -> object:
        if arguments and isinstance(arguments[0], Configuration):
            raise TypeError(
                f"{self.__name__} is a function and no kernel: call it without a grid and a block,"
                f" as in {self.__name__}({self._names()})"
            )
        return self._call(arguments)

    def _call(self, arguments: tuple, configuration: Configuration | None = None) -> object:
        if len(arguments) != len(self.wanted):
            raise TypeError(
                f"{self.__name__} takes {len(self.wanted)} arguments ({self._names()}),"
                f" {len(arguments)} were given"
            )
        place, tracked = None, False
        for parameter, value in zip(self.wanted, arguments, strict=True):
            if isinstance(value, torch.Tensor):
                tracked = tracked or value.requires_grad
                if place is None and parameter.pointer:
                    place = value.device
        place = place or torch.device(self.target)
        values = self._values(arguments, configuration, place)
        around = self._around(place, arguments, values)
        if around is None:
            return self._run(arguments, values, tracked)
        with around:
            if place.type == "cpu":  # `around` has made copies at other addresses
                values = self._values(arguments, configuration, place)
            return self._run(arguments, values, tracked)

    def call_through(self, wrapper: Callable[[Callable], Callable]) -> None:
        """From now on, make each call through what `wrapper` returns for it."""
        self._call = wrapper(self._call)

    def _values(
        self, arguments: tuple, configuration: Configuration | None, place: torch.device
    ) -> list[object]:
        """The values for the function's parameters."""
        given = iter(arguments)
        values = [
            self._stream(place) if p.type == STREAM else self._value(p, next(given), place)
            for p in self.parameters
        ]
        return [*configuration.values(self._stream(place)), *values] if configuration else values

    def _run(self, arguments: tuple, values: list[object], tracked: bool) -> object:
        if tracked and torch.is_grad_enabled():
            self._warn_of_gradients(arguments)
        if self._written:
            increment_version([arguments[i] for i in self._written])
        result = self.function(*values)
        self._raise_pending(result if self.returns == ERROR else 0, arguments)
        return None if self.returns == ERROR else result

    def _around(
        self, place: torch.device, arguments: tuple, values: list[object]
    ) -> AbstractContextManager | None:
        """The context of a call: its GPU, or guards for tensors without; None if it needs none."""
        if place.type == "cuda":
            return torch.cuda.device(place)
        if all(map(guards.lies_within, [values[i] for i in self._pointers])):
            return None
        bare = [value for _, value in self._tensors(arguments) if not guards.is_guarded(value)]
        return guards.guarded(bare) if bare else None

    def _warn_of_gradients(self, arguments: tuple) -> None:
        """Warn once that autograd does not record this call. Raise, as PyTorch does, if it would
        write to a leaf that requires a gradient."""
        for i in self._written:
            value, name = arguments[i], self.wanted[i].name
            base = value._base if value._is_view() else value
            if value.requires_grad and base.is_leaf:
                raise RuntimeError(
                    f"{self.__name__}: {name} is {'' if base is value else 'a view of '}a leaf that"
                    " requires a gradient, and would be written to in place. Pass another tensor,"
                    f" write under torch.no_grad(), or declare {name} const if it is only read"
                )
        if refusal := getattr(_wanted, "refusal", None):
            raise RuntimeError(refusal)
        if self._has_warned:
            return
        self._has_warned = True
        names = [
            parameter.name
            for parameter, value in zip(self.wanted, arguments, strict=True)
            if isinstance(value, torch.Tensor) and value.requires_grad
        ]
        warnings.warn(
            f"{self.__name__}: {' and '.join(names)} require{'s' * (len(names) == 1)} a gradient,"
            " and autograd does not record what a kernel does: this part of the gradient is lost."
            " Make it an op with a gradient: @lab.op(backward=...) above the Python function that"
            " calls it; lab.op? shows how. Where no gradient is wanted, call it under"
            " torch.no_grad()",
            stacklevel=callers_level(),
        )

    def __deepcopy__(self, memo: dict) -> CFunction:
        return self  # functions are not copied

    def _names(self) -> str:
        return ", ".join(p.name for p in self.wanted)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.__name__}{self.__signature__}>"

    @property
    def __signature__(self) -> inspect.Signature:
        """The parameters that Python passes, with their C types."""
        parameters = []
        for position, (parameter, text) in enumerate(
            zip(self.parameters, self.declared, strict=True), 1
        ):
            if parameter.type != STREAM:
                name = parameter.name if parameter.name.isidentifier() else f"argument_{position}"
                kind = re.sub(rf"\b{re.escape(parameter.name)}\b", "", text).strip()
                parameters.append(
                    inspect.Parameter(
                        name, inspect.Parameter.POSITIONAL_ONLY, annotation=_CType(kind)
                    )
                )
        returns = None if self.returns in ("void", ERROR) else _CType(self.returns)
        return inspect.Signature(parameters, return_annotation=returns)

    def _doc(self) -> str:
        """The declaration in C, which `help` and Shift-Tab show."""
        return (
            f'extern "C" {self.returns} {self.__name__}({", ".join(self.declared)})\n\n'
            "Pointers take contiguous tensors of their type on one device. A stream is filled in,"
            " and an error of CUDA's raises."
        )

    def _value(self, parameter: Parameter, value: object, place: torch.device) -> object:
        if parameter.pointer:
            return self._pointer(parameter, value, place)
        kind = parameter.type
        if not isinstance(value, _PLAIN):
            value = _number(self._what(parameter), kind, value)
        number, limits = NUMBERS[kind], _RANGES[kind]
        if limits is None:
            if -_LARGE < value < _LARGE:
                return value
            with contextlib.suppress(OverflowError):
                converted = number(value)
                # As in PyTorch's fill_, a finite number must not become infinite.
                if math.isfinite(converted.value) or not math.isfinite(value):
                    return converted
            raise ValueError(f"{self._what(parameter)} is {value!r}, which is too large for {kind}")
        if isinstance(value, float):
            raise TypeError(f"{self._what(parameter)} is {value!r}; wanted a whole number ({kind})")
        if not limits[0] <= value <= limits[1]:
            raise ValueError(
                f"{self._what(parameter)} is {value!r}; wanted {limits[0]} to {limits[1]} ({kind})"
            )
        return value

    def _what(self, parameter: Parameter) -> str:
        """How errors name a parameter."""
        return f"{self.__name__}: {parameter.name}"

    def _pointer(self, parameter: Parameter, value: object, place: torch.device) -> int:
        kind = parameter.type
        dtype, count = VECTORS.get(kind) or (POINTERS[kind], 1)
        boundary = min(dtype.itemsize * count, 16) if count in (2, 4) else 1
        if (
            isinstance(value, torch.Tensor)
            and (dtype is None or value.dtype == dtype)
            and value.device == place
            and place.type == self.target
            and value.is_contiguous()
            and not value.numel() % count
        ):
            address = guards.address(value)
            if not address % boundary:
                return address
        raise self._unfit(parameter, value, place, dtype, count, boundary)

    def _unfit(
        self,
        parameter: Parameter,
        value: object,
        place: torch.device,
        dtype: torch.dtype | None,
        count: int,
        boundary: int,
    ) -> Exception:
        """The error for a value that cannot be a pointer to `count` elements of `dtype`, aligned
        to `boundary` bytes."""
        what, kind = self._what(parameter), parameter.type
        back = "" if parameter.const else ", and copy_() back what the kernel writes there"
        if not isinstance(value, torch.Tensor):
            is_array = type(value).__module__ == "numpy" and hasattr(value, "shape")
            how = f": torch.from_numpy({parameter.name})" if is_array and parameter.name else ""
            return TypeError(f"{what} is {_kind(value)}; wanted a tensor{how}")
        if dtype is not None and value.dtype != dtype:
            how = f": pass .to({dtype})" if parameter.const else ""
            return TypeError(f"{what} is {value.dtype}; wanted {dtype} ({kind}*){how}")
        if value.device.type != self.target:
            return ValueError(
                f"{what} is on {value.device}; this build is for {self.target}:"
                f" move it with .to({self.target!r})"
            )
        if value.device != place:
            return ValueError(f"{what} is on {value.device}; the first tensor is on {place}")
        if not value.is_contiguous():
            return ValueError(
                f"{what} is not contiguous (strides {value.stride()}), and a pointer cannot say so:"
                f" pass .contiguous(){back}"
            )
        if value.numel() % count:
            return ValueError(
                f"{what} has {value.numel()} elements; wanted a multiple of {count} ({kind}*)"
            )
        return ValueError(
            f"{what} begins beside a multiple of {boundary} bytes, and {kind}* cannot:"
            f" pass .clone(){back}"
        )

    @staticmethod
    def _stream(place: torch.device) -> int | None:
        # Not torch.cuda.current_stream: torch.compile makes that a stream without an address.
        if place.type != "cuda":
            return None
        index = torch.cuda.current_device() if place.index is None else place.index
        return torch._C._cuda_getCurrentRawStream(index)

    def _raise_pending(self, code: int, arguments: tuple) -> None:
        if self.check:
            self.check(lambda: self._tensors(arguments))
        else:
            pending = self.library.cudaGetLastError()  # clears it, or PyTorch would raise it
            code = code or pending
        if code:
            message = f"{self.__name__}: {self._say(code)}"
            raise RuntimeError(guards.explained(message, self._tensors(arguments)))

    def _tensors(self, arguments: tuple) -> list[tuple[str, torch.Tensor]]:
        pairs = zip(self.wanted, arguments, strict=True)
        return [(p.name, value) for p, value in pairs if isinstance(value, torch.Tensor)]

    def _say(self, code: int) -> str:
        try:
            says = self.library.cudaGetErrorName, self.library.cudaGetErrorString
        except AttributeError:
            return f"cudaError_t {code}"
        for function in says:
            function.restype = ctypes.c_char_p
        name, text = (function(code).decode() for function in says)
        return text if text.startswith(name) else f"{name}: {text}"


def _number(what: str, kind: str, value: object) -> bool | int | float:
    """The number in a NumPy scalar or a zero-dimensional tensor (waiting for the GPU), or an
    object's value as an integer (__index__); grid and block accept these, too."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        value = value.item()
        if isinstance(value, bool | int | float):
            return value
    with contextlib.suppress(TypeError):
        if not isinstance(value, torch.Tensor):
            return operator.index(value)
    of = f" of shape {tuple(value.shape)}" if isinstance(value, torch.Tensor) else ""
    raise TypeError(f"{what} is {_kind(value)}{of}; wanted a number ({kind})")


def _kind(value: object) -> str:
    """The type of a value, with its article: "an int"."""
    name = type(value).__name__
    return f"{'an' if name[0] in 'aeiouAEIO' or name == 'ndarray' else 'a'} {name}"


_ROOM = str(Path(__file__).parent), str(Path(__file__).parent.with_name("jitload.py"))


def callers_level() -> int:
    """The `stacklevel` for `warnings.warn` in the calling function that names the first line
    outside of this folder and jitload.py."""
    frame, level = sys._getframe(1), 1
    while frame.f_back and frame.f_code.co_filename.startswith(_ROOM):
        frame, level = frame.f_back, level + 1
    return level


_wanted = threading.local()


@contextlib.contextmanager
def recording_wanted(refusal: str) -> Iterator[None]:
    """In this block and thread, a call that autograd would have to record raises this refusal."""
    outer, _wanted.refusal = getattr(_wanted, "refusal", None), refusal
    try:
        yield
    finally:
        _wanted.refusal = outer


class _CType(str):
    """A type in C, which a signature shows without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


@dataclass(frozen=True)
class Configuration:
    """The execution configuration: what is in the brackets of `kernel.add[grid, block]`.

    stream: None is the current one of the tensors' device. shared: bytes of dynamic shared memory.
    """

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    stream: int | None = None
    shared: int = 0

    @classmethod
    def of(cls, kernel: str, given: object) -> Configuration:
        """From `grid, block`, or `grid, block, stream, shared`; grid and block are integers or
        tuples of up to three.

        Raises:
            TypeError, ValueError: they are something else, or larger than CUDA allows.
        """
        parts = given if isinstance(given, tuple) else (given,)
        if not 2 <= len(parts) <= 4:
            raise TypeError(
                f"{kernel}[{', '.join(map(repr, parts))}]: wanted {kernel}[grid, block] or"
                f" {kernel}[grid, block, stream, bytes of shared memory]"
            )
        grid = _extent(f"{kernel}: grid", parts[0], LARGEST_GRID)
        block = _extent(f"{kernel}: block", parts[1], LARGEST_BLOCK)
        if math.prod(block) > MOST_THREADS:
            raise ValueError(
                f"{kernel}: block is {parts[1]!r}, {math.prod(block)} threads; a block has at most"
                f" {MOST_THREADS}"
            )
        stream = parts[2] if len(parts) > 2 else None
        stream = getattr(stream, "cuda_stream", stream) or None
        is_handle = isinstance(stream, int) and (stream in (1, 2) or stream >= LEAST_HANDLE)
        if not (stream is None or is_handle):
            raise TypeError(
                f"{kernel}: stream is {parts[2]!r}; wanted a torch.cuda.Stream, or None or 0 for"
                f" the current one. Shared memory comes fourth: {kernel}[grid, block, None, bytes]"
            )
        shared = _whole(f"{kernel}: shared memory", parts[3]) if len(parts) > 3 else 0
        if not 0 <= shared < 1 << 31:
            raise ValueError(f"{kernel}: shared memory is {shared} bytes; wanted 0 or more")
        return cls(grid, block, stream, shared)

    def values(self, current: int | None) -> list[object]:
        """The launcher's arguments before the kernel's own."""
        stream = current if self.stream is None else self.stream
        return [*self.grid, *self.block, self.shared, stream]


def _extent(what: str, given: object, largest: tuple[int, ...]) -> tuple[int, int, int]:
    parts = tuple(given) if isinstance(given, tuple | list) else (given,)
    if not 1 <= len(parts) <= 3:
        raise TypeError(f"{what} is {given!r}; wanted a whole number, or a tuple of up to three")
    extent = *(_whole(what, part) for part in parts), *(1,) * (3 - len(parts))
    for axis, size, most in zip("xyz", extent, largest, strict=True):
        if not 1 <= size <= most:
            empty = "" if size else ": for a tensor without elements, return before the launch"
            raise ValueError(
                f"{what} is {given!r}; its {axis} is at least 1, and at most {most}{empty}"
            )
    return extent


def _whole(what: str, given: object) -> int:
    try:
        return operator.index(given)
    except TypeError:
        hint = ": divide with //, as in (n + 255) // 256" if isinstance(given, float) else ""
        raise TypeError(f"{what} is {given!r}; wanted a whole number{hint}") from None


class Launch:
    """`kernel.add[grid, block]`: a kernel and its configuration, to call with its arguments.

    function: called with the configuration and the arguments.
    """

    def __init__(self, function: Callable, given: object):
        self.function, self.given = function, given
        self.configuration = Configuration.of(function.__name__, given)
        name = getattr(function, "__qualname__", function.__name__)
        self.__name__ = self.__qualname__ = f"{name}[{str(given).strip('()')}]"
        self.__doc__ = function.__doc__
        self.__signature__ = getattr(function, "__signature__", None)

    def __call__(self, *arguments: object) -> None:
        if torch.compiler.is_dynamo_compiling():  # with fullgraph=True this message is shown
            torch._dynamo.graph_break(
                msg="torch.compile cannot trace the launch of a kernel. Make an op of the Python"
                " function that launches it: @lab.op above it (lab.op? shows how)"
            )
        self.function(self.configuration, *arguments)

    def __repr__(self) -> str:
        return f"<Launch {self.__qualname__}>"


class KernelFunction(CFunction):
    """Launches one kernel of an opened library: called with a Configuration, then its arguments."""

    _before = (*[ctypes.c_uint] * 6, ctypes.c_int, ctypes.c_void_p)

    def __getitem__(self, configuration: object) -> Launch:
        return Launch(self, configuration)

    def _symbol(self, name: str) -> Any:
        return self.library[launcher_of(name)]

    def __call__(self, *arguments: object) -> object:
        if not arguments or not isinstance(arguments[0], Configuration):
            raise TypeError(
                f"{self.__name__} is a kernel: say how many blocks of how many threads, as in"
                f" {self.__name__}[grid, block]({self._names()})"
            )
        return self._call(arguments[1:], arguments[0])

    def _doc(self) -> str:
        return (
            f"__global__ void {self.__name__}({', '.join(self.declared)})\n\n"
            f"{self.__name__}[grid, block]({self._names()}) launches it on the current stream,"
            f" {self.__name__}[grid, block, stream, bytes of shared memory]({self._names()}) on"
            " another. Grid and block are whole numbers or tuples of up to three; pointers take"
            " contiguous tensors of their type on one device."
        )
