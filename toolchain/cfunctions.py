"""The extern "C" functions of a .cu without a binding, called with tensors and numbers."""

from __future__ import annotations

import contextlib
import ctypes
import re
from collections.abc import Callable
from dataclasses import dataclass

import torch

POINTERS = {
    "float": torch.float32,
    "double": torch.float64,
    "int": torch.int32,
    "int32_t": torch.int32,
    "long": torch.int64,
    "long long": torch.int64,
    "int64_t": torch.int64,
    "short": torch.int16,
    "int16_t": torch.int16,
    "signed char": torch.int8,
    "int8_t": torch.int8,
    "unsigned char": torch.uint8,
    "uint8_t": torch.uint8,
    "bool": torch.bool,
    "half": torch.float16,
    "__half": torch.float16,
    "c10::Half": torch.float16,
    "nv_bfloat16": torch.bfloat16,
    "__nv_bfloat16": torch.bfloat16,
    "c10::BFloat16": torch.bfloat16,
    "void": None,  # any type
}
NUMBERS = {
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "int": ctypes.c_int,
    "int32_t": ctypes.c_int32,
    "unsigned": ctypes.c_uint,
    "unsigned int": ctypes.c_uint,
    "uint32_t": ctypes.c_uint32,
    "long": ctypes.c_long,
    "long long": ctypes.c_longlong,
    "int64_t": ctypes.c_int64,
    "unsigned long": ctypes.c_ulong,
    "unsigned long long": ctypes.c_ulonglong,
    "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_size_t,
    "short": ctypes.c_short,
    "bool": ctypes.c_bool,
}
STREAM = "cudaStream_t"  # filled in with the current one
ERROR = "cudaError_t"  # a returned one raises unless it is 0


@dataclass(frozen=True)
class Parameter:
    """One parameter of a C function, from its declaration, as in `const float* x`."""

    name: str
    type: str
    pointer: bool

    @classmethod
    def parse(cls, declaration: str, position: int) -> Parameter:
        text = declaration.replace("[]", "*")
        text = re.sub(r"\b(const|struct|__restrict__|__restrict)\b|std::", " ", text)
        words, stars = re.findall(r"[\w:]+", text.split("=")[0]), text.count("*")
        wanted = {STREAM, *(POINTERS if stars else NUMBERS)}
        name = f"argument {position}"
        if " ".join(words) not in wanted and len(words) > 1:
            name = words.pop()
        kind = " ".join(words)
        if stars > 1 or kind not in wanted:
            raise TypeError(
                f"Python cannot pass the parameter {declaration!r}; wanted a pointer to"
                f" {', '.join(POINTERS)}; a number ({', '.join(NUMBERS)}); or {STREAM}."
                " For anything else write a binding"
            )
        return cls(name, kind, bool(stars))


class CFunction:
    """Calls one function of an opened library.

    Pointers take contiguous tensors of the pointer's type on the target's device, numbers are
    converted as declared, a stream is filled in. Errors: TypeError and ValueError name the
    parameter; RuntimeError holds what CUDA (or, through `check`, the simulator) reports.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        name: str,
        signature: dict,
        target: str,
        check: Callable[[], None] | None,
    ):
        self.__name__, self.library, self.target, self.check = name, library, target, check
        declared = enumerate(signature["parameters"], 1)
        self.parameters = [Parameter.parse(text, i) for i, text in declared]
        self.wanted = [p for p in self.parameters if p.type != STREAM]
        self.returns = signature["returns"]
        if self.returns not in ("void", ERROR, *NUMBERS):
            raise TypeError(f"{name} returns {self.returns}; wanted void, {ERROR} or a number")
        self.function = library[name]
        self.function.restype = ctypes.c_int if self.returns == ERROR else NUMBERS.get(self.returns)

    def __call__(self, *arguments: object) -> object:
        if len(arguments) != len(self.wanted):
            names = ", ".join(p.name for p in self.wanted)
            raise TypeError(
                f"{self.__name__} takes {len(self.wanted)} arguments ({names}),"
                f" {len(arguments)} were given"
            )
        tensors = [value for value in arguments if isinstance(value, torch.Tensor)]
        place = tensors[0].device if tensors else torch.device(self.target)
        given = iter(arguments)
        values = [
            self._stream(place) if p.type == STREAM else self._value(p, next(given), place)
            for p in self.parameters
        ]
        with torch.cuda.device(place) if place.type == "cuda" else contextlib.nullcontext():
            result = self.function(*values)
            self._raise_pending(result if self.returns == ERROR else 0)
        return None if self.returns == ERROR else result

    def __deepcopy__(self, memo: dict) -> CFunction:
        return self  # a library's function is copied as little as any other

    def _value(self, parameter: Parameter, value: object, place: torch.device) -> object:
        what, kind = f"{self.__name__}: {parameter.name}", parameter.type
        if parameter.pointer:
            return self._pointer(what, kind, value, place)
        if not isinstance(value, bool | int | float):
            raise TypeError(f"{what} is a {type(value).__name__}; wanted a number ({kind})")
        if isinstance(value, float) and NUMBERS[kind] not in (ctypes.c_float, ctypes.c_double):
            raise TypeError(f"{what} is {value!r}; wanted a whole number ({kind})")
        return NUMBERS[kind](value)

    def _pointer(self, what: str, kind: str, value: object, place: torch.device) -> ctypes.c_void_p:
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{what} is a {type(value).__name__}; wanted a tensor")
        dtype = POINTERS[kind]
        if dtype is not None and value.dtype != dtype:
            raise TypeError(f"{what} is {value.dtype}; wanted {dtype} ({kind}*)")
        if value.device.type != self.target:
            raise ValueError(
                f"{what} is on {value.device}; this build is for {self.target}:"
                f" move it with .to({self.target!r})"
            )
        if value.device != place:
            raise ValueError(f"{what} is on {value.device}; the first tensor is on {place}")
        if not value.is_contiguous():
            raise ValueError(
                f"{what} is not contiguous (strides {value.stride()}), and a pointer cannot say so:"
                " pass .contiguous()"
            )
        return ctypes.c_void_p(value.data_ptr())

    @staticmethod
    def _stream(place: torch.device) -> ctypes.c_void_p:
        # not torch.cuda.current_stream, of which torch.compile makes a stream without an address
        on_gpu = place.type == "cuda"
        return ctypes.c_void_p(torch._C._cuda_getCurrentRawStream(place.index) if on_gpu else None)

    def _raise_pending(self, code: int) -> None:
        if self.check:
            self.check()
        else:
            code = code or self.library.cudaGetLastError()
        if code:
            raise RuntimeError(f"{self.__name__}: {self._say(code)}")

    def _say(self, code: int) -> str:
        try:
            says = self.library.cudaGetErrorName, self.library.cudaGetErrorString
        except AttributeError:
            return f"cudaError_t {code}"
        for function in says:
            function.restype = ctypes.c_char_p
        return ": ".join(function(code).decode() for function in says)
