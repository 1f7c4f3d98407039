"""C declarations for calls from Python: which parameters take tensors, and which numbers."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable
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
    "unsigned short": torch.uint16,
    "uint16_t": torch.uint16,
    "unsigned": torch.uint32,
    "unsigned int": torch.uint32,
    "uint32_t": torch.uint32,
    "unsigned long": torch.uint64,
    "unsigned long long": torch.uint64,
    "uint64_t": torch.uint64,
    "size_t": torch.uint64,
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
    "int16_t": ctypes.c_int16,
    "unsigned short": ctypes.c_ushort,
    "uint16_t": ctypes.c_uint16,
    "char": ctypes.c_int8,
    "signed char": ctypes.c_int8,
    "int8_t": ctypes.c_int8,
    "unsigned char": ctypes.c_uint8,
    "uint8_t": ctypes.c_uint8,
    "bool": ctypes.c_bool,
}
# CUDA's vector types: float4* takes a float32 tensor whose size is a multiple of four.
VECTORS = {
    f"{name}{count}": (dtype, count)
    for name, dtype in {
        "char": torch.int8,
        "uchar": torch.uint8,
        "short": torch.int16,
        "ushort": torch.uint16,
        "int": torch.int32,
        "uint": torch.uint32,
        "long": torch.int64,
        "longlong": torch.int64,
        "float": torch.float32,
        "double": torch.float64,
    }.items()
    for count in (1, 2, 3, 4)
}
VECTORS |= {"half2": (torch.float16, 2), "__half2": (torch.float16, 2)}
VECTORS |= {"nv_bfloat162": (torch.bfloat16, 2), "__nv_bfloat162": (torch.bfloat16, 2)}
# Other names of these types in C's and CUDA's headers.
_ALIASES = {
    "uchar": "unsigned char",
    "ushort": "unsigned short",
    "uint": "unsigned int",
    "ulong": "unsigned long",
    "ptrdiff_t": "long",
    "ssize_t": "long",
    "intptr_t": "long",
    "uintptr_t": "unsigned long",
    "u_int8_t": "uint8_t",
    "u_int16_t": "uint16_t",
    "u_int32_t": "uint32_t",
    "u_int64_t": "uint64_t",
    "float_t": "float",
    "double_t": "double",
    "_Bool": "bool",
    "CUstream": "cudaStream_t",
}
_INTEGER_WORDS = {"signed", "unsigned", "char", "short", "int", "long"}
STREAM = "cudaStream_t"  # gets the current stream
ERROR = "cudaError_t"  # a returned value other than 0 raises

RETURNS = ("void", ERROR, *NUMBERS)

_QUALIFIERS = (
    r"\b(?:const|volatile|struct|restrict|__restrict__|__restrict|__grid_constant__)\b|std::"
)


def launcher_of(kernel: str) -> str:
    """The C function that launches a kernel; `toolchain.launchers` writes it."""
    return f"jitload_launch_{kernel}"


@dataclass(frozen=True)
class Parameter:
    """One parameter of a C function, from its declaration, as in `const float* x`.

    const: for a pointer, whether it points to a const type.
    """

    name: str
    type: str
    pointer: bool
    const: bool = False

    @classmethod
    def parse(cls, declaration: str, position: int) -> Parameter:
        text = re.sub(_QUALIFIERS, " ", declaration.partition("=")[0])
        text = re.sub(r"\[\w*\]", "*", text)
        words, stars = re.findall(r"[\w:]+", text), text.count("*")
        wanted = {*POINTERS, *VECTORS} if stars else {STREAM, *NUMBERS}
        name = f"argument {position}"
        if _plain(words) not in wanted and len(words) > 1:
            name = words.pop()
        kind = _plain(words)
        if stars > 1 or kind not in wanted or re.search(r"[&()<]", text):
            raise TypeError(
                f"Python cannot pass the parameter {declaration!r}; wanted a pointer to"
                f" {', '.join(POINTERS)}; a number ({', '.join(NUMBERS)}); or {STREAM}."
                " For anything else write a binding"
            )
        const = bool(stars) and re.search(r"\bconst\b", re.split(r"[*\[]", declaration)[0])
        return cls(name, kind, bool(stars), bool(const))


def _plain(words: list[str]) -> str:
    """A type's name in the tables above: "unsigned long" for long unsigned int."""
    kind = " ".join(words)
    if not set(words) <= _INTEGER_WORDS or kind in NUMBERS:
        return _ALIASES.get(kind, kind)
    sign = [word for word in words if word == "unsigned" or (word == "signed" and "char" in words)]
    size = [word for word in words if word in ("char", "short", "long")]
    return " ".join([*sign, *(size or ["int"])])


def obstacle(parameters: Iterable[str], returns: str = "void") -> str | None:
    """Why Python cannot call a C function with these declarations; None if it can."""
    try:
        for position, text in enumerate(parameters, 1):
            Parameter.parse(text, position)
    except TypeError as error:
        return str(error).partition(";")[0]
    return None if returns in RETURNS else f"it returns {returns}"
