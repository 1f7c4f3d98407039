"""Guards that protect the process from a kernel's errors on the simulator, and locate the errors.

A tensor that PyTorch allocates while the runtime is open has inaccessible memory around it
(simulator/executor/guarded_memory.h). An older tensor, or one of NumPy's, does not: a C function
gets a guarded copy of it.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

Named = Iterable[tuple[str, torch.Tensor]]
Check = Callable[..., None]  # raises unreported errors: jitloader.runtime.check

MOST = 64 << 20  # bytes of the largest tensor that is copied
FAR = 256 << 20  # bytes: the width of guards
# Whether a host function runs on a stack of its own. A lazy build calls Python from one, and from
# Python 3.14 on the interpreter ends the process if it runs on a stack other than its thread's.
OWN_STACKS = sys.version_info < (3, 14)

_begin = _end = 0  # addresses of guarded memory
_runtime: ctypes.CDLL | None = None
_line_of: Callable[[Path, int], str]


def start(runtime: ctypes.CDLL, line_of: Callable[[Path, int], str]) -> None:
    """Guard PyTorch's tensors from now on, if its allocator supports that.

    line_of: returns the source line of an offset into a library; "" if unknown.
    """
    global _begin, _end, _runtime, _line_of
    _runtime, _line_of = runtime, line_of
    runtime.simulator_take_fault.restype = ctypes.c_char_p
    runtime.simulator_entry.restype = ctypes.c_void_p
    runtime.simulator_entry.argtypes = [ctypes.c_void_p, ctypes.c_int]
    if runtime.simulator_guard_tensors():
        bounds = (ctypes.c_uint64 * 2)()
        runtime.simulator_guarded_range(bounds)
        _begin, _end = bounds


def entry(library: ctypes.CDLL, function: Any, arguments: int) -> Any:
    """A wrapper of a library's function: the process survives the function's errors.

    arguments: how many the function takes, each of at most 16 bytes.
    """
    if not _runtime:
        return function
    address = ctypes.cast(function, ctypes.c_void_p).value
    words = 2 * arguments if OWN_STACKS else -1
    return library._FuncPtr(_runtime.simulator_entry(address, words))


def explained(message: str, tensors: Named = ()) -> str:
    """A kernel's failure, with the line that failed and, for an access, the tensor and the index.

    message: the runtime's. tensors: those of the call, each with its parameter's name.
    """
    fault = _runtime.simulator_take_fault().decode(errors="replace") if _runtime else ""
    if "past the end of its dynamic shared memory" in message:
        message += (
            "\nhint: a launch gives it, in bytes: kernel.name[grid, block, stream, bytes] in"
            " Python, <<<grid, block, bytes>>> in C++"
        )
    if not fault:
        return message
    access, address, library, offset = fault.split("\n")
    place = _line_of(Path(library), int(offset, 16)) if library else ""
    what = _element(access, int(address, 16), tensors) if access else ""
    if not place and what:
        what += "; lab.check says at which line and in which thread"
    details = ": ".join(filter(None, (place and f"at {place}", what)))
    return f"{message}\n{details}" if details else message


def _element(access: str, address: int, tensors: Named) -> str:
    """The element that an access meant: of the nearest tensor, unless that is far away."""
    nearest, least = "", FAR
    for name, tensor in tensors:
        if tensor.device.type != "cpu" or tensor.layout != torch.strided or not tensor.numel():
            continue
        begin = _moved.get(tensor.untyped_storage().data_ptr(), 0)
        begin = begin + tensor.storage_offset() * tensor.itemsize if begin else tensor.data_ptr()
        size = sum((n - 1) * abs(s) for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1
        index = (address - begin) // tensor.itemsize
        distance = tensor.itemsize * (-index if index < 0 else index - size + 1)
        if distance < least:
            least = distance
            dtype = str(tensor.dtype).removeprefix("torch.")
            nearest = f"it {access} index {index} of {name}, which has {size} elements ({dtype})"
    return nearest


# During a call, the addresses of guarded copies, by the address of the unguarded storage.
_moved: dict[int, int] = {}


@contextmanager
def guarded(tensors: Iterable[torch.Tensor]) -> Iterator[None]:
    """In this block `address` returns addresses of guarded copies, which are copied back unless
    the call fails."""
    copies = []
    for tensor in tensors:
        storage = tensor.untyped_storage()
        at = storage.data_ptr()
        if not at or lies_within(at) or at in _moved or storage.nbytes() > MOST:
            continue
        original = torch.empty(0, dtype=torch.uint8).set_(storage)
        skew = at % 64  # keeps the alignment of vectors
        copy = torch.empty(skew + storage.nbytes(), dtype=torch.uint8)[skew:].copy_(original)
        if lies_within(copy.data_ptr()):
            _moved[at] = copy.data_ptr()
            copies.append((original, copy))
    try:
        yield
        for original, copy in copies:
            original.copy_(copy)
    finally:
        for original, _ in copies:
            del _moved[original.data_ptr()]


def lies_within(address: int) -> bool:
    """Whether an address is in guarded memory."""
    return _begin <= address < _end


def is_guarded(tensor: torch.Tensor) -> bool:
    """Whether its memory is guarded, or is of a kind that cannot be."""
    is_none = not _end or tensor.device.type != "cpu" or tensor.layout != torch.strided
    return is_none or lies_within(tensor.data_ptr()) or not tensor.numel()


def address(tensor: torch.Tensor) -> int:
    """The address of a tensor in a call."""
    at = tensor.data_ptr()
    if not _moved:
        return at
    storage = tensor.untyped_storage().data_ptr()
    return _moved.get(storage, storage) + at - storage
