"""Which element of a tensor or array a byte belongs to, in source notation: s[1][0], x[3, 17]."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

import jitload
from lab.checker import symbols

_WORDS = {"float32": "float", "float64": "double", "float16": "half", "int32": "int"}


@dataclass(frozen=True)
class Layout:
    """How elements of `itemsize` bytes lie in memory; `strides` counts in elements.

    address, offset: for a tensor, its first element's address, and its byte offset in its storage.
    """

    type: str
    size: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    is_tensor: bool
    address: int = 0
    offset: int = 0

    @classmethod
    def of_tensor(cls, tensor: torch.Tensor) -> Layout:
        name = str(tensor.dtype).removeprefix("torch.")
        shape, strides, size = tuple(tensor.shape), tensor.stride(), tensor.element_size()
        where = tensor.data_ptr(), size * tensor.storage_offset()
        return cls(_WORDS.get(name, name), size, shape, strides, True, *where)

    @classmethod
    def of_array(cls, array: symbols.Array) -> Layout:
        strides = [1]
        for extent in array.shape[:0:-1]:
            strides.insert(0, strides[0] * extent)
        return cls(array.type, array.size, array.shape, tuple(strides), False)

    def at(self, byte: int) -> str:
        """The element's indices, in brackets; "" if the byte belongs to no element."""
        rest, found = byte // self.size, [0] * len(self.shape)
        by_stride = sorted(range(len(self.shape)), key=lambda i: -self.strides[i])
        for i in by_stride:
            if self.strides[i] > 0:
                found[i], rest = divmod(rest, self.strides[i])
        is_inside = all(0 <= i < extent for i, extent in zip(found, self.shape, strict=True))
        if byte < 0 or rest or not found or not is_inside:
            return ""
        if self.is_tensor:
            return f"[{', '.join(map(str, found))}]"
        return "".join(f"[{i}]" for i in found)


class Elements:
    """The layouts of a call's tensors, by name, and of the arrays in its builds."""

    def __init__(self, tensors: dict[str, Layout], builds: Iterable[jitload.Build]):
        self._tensors, self._builds = tensors, list(builds)

    def layout(self, region: dict[str, Any]) -> Layout | None:
        """The layout of one of the recorder's regions."""
        if known := self._tensors.get(region["name"]):
            return known
        for build in self._builds:
            for array in symbols.arrays(str(build.library)):
                if (array.name, array.bytes) == (region["name"], region["bytes"]):
                    return Layout.of_array(array)
        return None

    def view(self, region: dict[str, Any], address: int, size: int) -> tuple[str, Layout] | None:
        """The tensor that an access refers to, with its name, among those that share a region: a
        misaligned one, if there is one."""
        views = [(name, self._tensors.get(name)) for name in region["name"].split(", ")]
        found = [
            (name, view)
            for name, view in views
            if view and view.address and view.at(address - view.address)
        ]
        found.sort(key=lambda it: it[1].address % max(size, 1) == 0)
        return found[0] if found else None

    def name(self, region: dict[str, Any], byte: int) -> str:
        """The element that a byte of a region belongs to; "" if unknown."""
        layout = self.layout(region)
        indices = layout.at(byte) if layout else ""
        return region["name"] + indices if indices else ""
