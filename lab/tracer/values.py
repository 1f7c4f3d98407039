"""Bytes of a variable as the value of its type."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any

_CODES = {("f", 4): "f", ("f", 8): "d", ("f16", 2): "e", ("bool", 1): "?"}
_CODES |= {("i", 1): "b", ("i", 2): "h", ("i", 4): "i", ("i", 8): "q"}
_CODES |= {("u", 1): "B", ("u", 2): "H", ("u", 4): "I", ("u", 8): "Q"}


def value_of(
    data: bytes,
    kind: int,
    types: list[list[Any]],
    pointer: Callable[[int, int], str] = lambda address, size: hex(address),
) -> Any:
    """A number, bool, string, list or dict.

    kind: the position of its type in `types`, which `Places.types` describes.
    pointer: names an address whose elements have so many bytes.
    """
    what, size, *more = types[kind]
    data = data[:size]
    match what:
        case "bf16":
            return struct.unpack("<f", b"\0\0" + data)[0]
        case "char" if size == 1:
            return chr(data[0]) if 32 <= data[0] < 127 else data[0]
        case "ptr":
            address = int.from_bytes(data, "little")
            return pointer(address, types[more[0]][1]) if address else "nullptr"
        case "enum":
            number = int.from_bytes(data, "little")
            return more[0].get(number, number)
        case "array":
            each = types[more[0]][1]
            parts = (data[i * each : (i + 1) * each] for i in range(more[1]))
            return [value_of(part, more[0], types, pointer) for part in parts]
        case "struct":
            found: dict[str, Any] = {}
            for name, at, of in more[1]:
                value = value_of(data[at : at + types[of][1]], of, types, pointer)
                if not name and isinstance(value, dict):  # a base class
                    found |= value
                else:
                    found[name] = value
            return found
    code = _CODES.get((what, size))
    return struct.unpack(f"<{code}", data)[0] if code else data.hex()


def member_at(offset: int, kind: int, types: list[list[Any]], size: int) -> str:
    """The path to the member of `size` bytes at an offset in a structure: ".full[1]"."""
    said = ""
    while types[kind][1] > size:
        match types[kind]:
            case ["struct", _, _, members]:
                inner = [it for it in members if 0 <= offset - it[1] < types[it[2]][1]]
                if not inner:
                    break
                name, at, kind = inner[-1]
                said += f".{name}" if name else ""
                offset -= at
            case ["array", _, of, _]:
                said += f"[{offset // types[of][1]}]"
                offset, kind = offset % types[of][1], of
            case _:
                break
    return said + (f" + {offset} bytes" if offset else "")


def leaves(kind: int, types: list[list[Any]], times: int = 1) -> Iterator[tuple[int, int]]:
    """The scalars that a type is made of, and the bytes that these take."""
    match types[kind]:
        case ["struct", _, _, members]:
            for _, _, of in members:
                yield from leaves(of, types, times)
        case ["array", _, of, count]:
            yield from leaves(of, types, times * count)
        case [_, size, *_]:
            yield kind, size * times
