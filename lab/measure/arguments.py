"""Checks the user's arguments: an error names the argument, its value and the valid values."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from lab.rivals.truth import truth

if TYPE_CHECKING:
    import reference

DTYPES = {
    "float64": torch.float64,
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
}

OF_ONES_OWN = (
    "For functions and kernels of your own there is"
    ' lab.compare_calls({"mine": f, "torch": g}, inputs=x)'
)


def an_op(name: str) -> reference.Op:
    """The op of reference.py called `name`."""
    ops = truth().OPS
    try:
        return ops[_one_of("op", name, ops)]
    except (TypeError, ValueError) as error:
        raise type(error)(f"{error}. {OF_ONES_OWN}") from None


def versions(op: reference.Op, wanted: str | Iterable[str] | None) -> tuple[str, ...]:
    """Versions of our kernel: None is the best, "all" is all, else one name or several."""
    existing = all_versions(op)
    if wanted is None:
        return existing[-1:]
    if wanted == "all":
        return existing
    return tuple(_one_of("versions", name, existing) for name in _several("versions", wanted))


def version(op: reference.Op, wanted: str | None) -> str:
    """One version of our kernel: None is the best."""
    existing = all_versions(op)
    return existing[-1] if wanted is None else _one_of("version", wanted, existing)


def all_versions(op: reference.Op) -> tuple[str, ...]:
    """The names of all versions of our kernel, from the naive one to the best."""
    return importlib.import_module(f"kernels.{op.name}").VERSIONS


def written_version(op: reference.Op, wanted: str | None) -> str | None:
    """One version of our kernel by its name, None for the best, without a build.

    The names are looked up in the text of kernels/NAME.py; if it does not list them, any name is
    accepted.
    """
    file = importlib.util.find_spec(f"kernels.{op.name}")
    text = Path(file.origin).read_text("utf-8") if file else ""
    found = re.search(r"^VERSIONS = (\([^()]*\))", text, re.MULTILINE)
    names = re.findall(r"[\"'](\w+)[\"']", found[1]) if found else []
    return None if wanted is None else _one_of("version", wanted, names or [str(wanted)])


def dtypes(wanted: torch.dtype | str | Iterable[torch.dtype | str]) -> list[torch.dtype]:
    """Types given as torch.float32 or "float32", one or several."""
    items = [wanted] if isinstance(wanted, torch.dtype) else _several("dtypes", wanted)
    spelled = [dtype_name(item) if isinstance(item, torch.dtype) else item for item in items]
    return [DTYPES[_one_of("dtypes", name, DTYPES)] for name in spelled]


def dtype(wanted: torch.dtype | str) -> torch.dtype:
    """One type, given as torch.float32 or "float32"."""
    name = dtype_name(wanted) if isinstance(wanted, torch.dtype) else wanted
    return DTYPES[_one_of("dtype", name, DTYPES)]


def dtype_name(dtype: torch.dtype) -> str:
    """ "float32" for torch.float32."""
    return str(dtype).removeprefix("torch.")


def described(tensors: Iterable[torch.Tensor]) -> str:
    """Type and shape of each: "float32 64 x 1024, float32 number"."""
    return ", ".join(
        f"{dtype_name(x.dtype)} {' x '.join(map(str, x.shape)) or 'number'}" for x in tensors
    )


def shapes(wanted: Iterable[Sequence[int]]) -> list[tuple[int, int]]:
    """Shapes as a list of (rows, cols), both at least 1."""
    return [shape(item, "shapes") for item in _several("shapes", wanted)]


def shape(wanted: Sequence[int], argument: str = "shape") -> tuple[int, int]:
    """One shape (rows, cols), both at least 1."""
    try:
        rows, cols = wanted
    except (TypeError, ValueError):
        rows = cols = None
    if not (isinstance(rows, int) and isinstance(cols, int) and rows > 0 and cols > 0):
        raise ValueError(
            f"{argument}: {wanted!r} is no pair (rows, cols) of positive integers, "
            "such as (4096, 1024)"
        )
    return rows, cols


def rivals(wanted: str | Iterable[str], existing: Iterable[str]) -> list[str]:
    """Rivals by name: one, several or none."""
    return [_one_of("rivals", name, existing) for name in _several("rivals", wanted, least=0)]


def options(op: reference.Op, wanted: dict[str, object] | None) -> list[dict[str, object]]:
    """The op's keyword variants to measure: None is all of them, else the given one."""
    if wanted is None:
        return list(op.options)
    if not isinstance(wanted, dict):
        raise TypeError(f"options: {wanted!r} is no dict of keywords, such as {op.options[0]}")
    return [wanted]


def _several(argument: str, wanted: object, least: int = 1) -> list:
    """The argument as a list; a single name becomes a list of one."""
    if isinstance(wanted, str):
        return [wanted]
    if not isinstance(wanted, Iterable):
        raise TypeError(
            f"{argument}: {wanted!r} is of type {type(wanted).__name__}; wanted is a list"
        )
    items = list(wanted)
    if len(items) < least:
        raise ValueError(f"{argument}: the list is empty")
    return items


def _one_of(argument: str, name: object, existing: Iterable[str]) -> str:
    listed = ", ".join(existing)
    if not isinstance(name, str):
        raise TypeError(
            f"{argument}: {name!r} is of type {type(name).__name__}; wanted is one of {listed}"
        )
    if name not in existing:
        raise ValueError(f"{argument}: there is no {name!r}; there is {listed}")
    return name
