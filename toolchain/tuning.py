"""Constants that a source declares as tunable, and the values that were best on a GPU.

    constexpr int kThreads = TUNABLE(kThreads, 256);     kernels/include/tunable.h

A table NAME.tuned.toml beside NAME.cu has a section for each GPU that was measured:

    ["NVIDIA H200"]
    kThreads = 128

    ["NVIDIA H200".measured]     # microseconds before, and with these constants
    "float32 8192 x 4096" = [91.4, 88.0]

    ["NVIDIA H200"."bfloat16, 4097 to 8192 columns"]    # only for calls with such tensors
    kThreads = 512

A build for that GPU takes its constants from the table; every other build takes the source's. Calls
of a class of shapes with a section use a build of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from simulator.scan import without_comments

_DECLARED = re.compile(r"=\s*TUNABLE\s*\(\s*(\w+)\s*,\s*(.*?)\s*\)\s*;", re.DOTALL)
_FLAG = "-DTUNE_"
MEASURED = "measured"  # the section of measured times


@dataclass(frozen=True)
class ShapeClass:
    """Tensors of one type whose last dimension has `least` to `most` elements."""

    dtype: torch.dtype
    least: int
    most: int

    @classmethod
    def around(cls, dtype: torch.dtype, columns: int) -> ShapeClass:
        """The class of a tensor: more columns than one power of two, up to the next."""
        most = 1 << (columns - 1).bit_length() if columns > 1 else 1
        return cls(dtype, most // 2 + 1 if columns else 0, most)

    @classmethod
    def read(cls, text: str) -> ShapeClass:
        """The class from a text that `str` wrote; raises ValueError for other texts."""
        match = _CLASS.fullmatch(text)
        dtype = getattr(torch, match[1], None) if match else None
        if not isinstance(dtype, torch.dtype):
            raise ValueError(
                f"a table of tuned constants has a section {text!r};"
                ' wanted is "measured", or a class such as "bfloat16, 4097 to 8192 columns"'
            )
        return cls(dtype, int(match[2]), int(match[3]))

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}, {self.least} to {self.most} columns"


_CLASS = re.compile(r"(\w+), (\d+) to (\d+) columns")


def tunables(texts: Iterable[str]) -> dict[str, str]:
    """The constants that sources declare as tunable, with their values as written."""
    return dict(pair for text in texts for pair in _DECLARED.findall(without_comments(text)))


def tuning_flags(constants: dict[str, int]) -> tuple[str, ...]:
    """The flags that give the constants these values."""
    return tuple(f"{_FLAG}{name}=TUNED({value})" for name, value in constants.items())


def sets_constants(flags: Iterable[str]) -> bool:
    """Whether flags of `tuning_flags` are among these."""
    return any(flag.startswith(_FLAG) for flag in flags)


def tuning_table(source: Path) -> Path:
    """The path of a source's table, which need not exist."""
    return source.with_suffix(".tuned.toml")


def tuned_constants(table: str, gpu: str) -> dict[str, int]:
    """A table's constants for the GPU of this name; {} if it has none."""
    import tomllib  # late: only a table needs it

    section = tomllib.loads(table).get(gpu, {})
    return {name: value for name, value in section.items() if isinstance(value, int)}


def tuned_by_shape(table: str, gpu: str) -> dict[ShapeClass, dict[str, int]]:
    """A table's constants for each class of shapes on the GPU of this name."""
    import tomllib

    sections = tomllib.loads(table).get(gpu, {})
    return {
        ShapeClass.read(name): {it: value for it, value in section.items() if it != MEASURED}
        for name, section in sections.items()
        if isinstance(section, dict) and name != MEASURED
    }


def this_gpu() -> str | None:
    """The name of the current GPU, as in tables; None without a GPU."""
    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def with_section(
    table: str,
    gpu: str,
    constants: dict[str, int],
    measured: dict[str, tuple[float, float]],
    shapes: ShapeClass | None = None,
) -> str:
    """The table with these constants for a GPU added.

    measured: by the name of a call, microseconds before and with the constants.
    shapes: the class of shapes that the constants are for; None for all.
    """
    import tomllib

    sections = tomllib.loads(table)
    section = sections.setdefault(gpu, {})
    if shapes:
        section = section.setdefault(str(shapes), {})
    section |= constants
    section[MEASURED] = section.get(MEASURED, {}) | {k: list(pair) for k, pair in measured.items()}
    lines = ["# Constants by GPU, measured by lab.tune (docs/tune.md)."]
    for name, of_gpu in sorted(sections.items()):
        lines += _section(_quoted(name), of_gpu)
        for shapes_of, of_class in of_gpu.items():
            if isinstance(of_class, dict) and shapes_of != MEASURED:
                lines += _section(f"{_quoted(name)}.{_quoted(shapes_of)}", of_class)
    return "\n".join(lines) + "\n"


def _section(name: str, section: dict) -> list[str]:
    """The lines of a section, without its classes."""
    constants = {it: value for it, value in section.items() if not isinstance(value, dict)}
    lines = ["", f"[{name}]"] * bool(constants)
    lines += [f"{it} = {value}" for it, value in constants.items()]
    if times := section.get(MEASURED):
        lines += ["", f"[{name}.{MEASURED}]  # microseconds before, and with these"]
        lines += [f"{_quoted(call)} = [{a:.2f}, {b:.2f}]" for call, (a, b) in times.items()]
    return lines


def _quoted(text: str) -> str:
    """The text as a basic string of TOML."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + re.sub(r"[\x00-\x1f\x7f]", " ", escaped) + '"'
