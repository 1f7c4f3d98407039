"""On what a kernel that is followed is measured."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import jitload
from lab.measure import arguments

if TYPE_CHECKING:
    import reference

SIMULATOR_ELEMENTS = 1 << 16  # milliseconds a call, and less than a second under the checker
GPU_ELEMENTS = 1 << 25  # 128 MiB of float32, more than any L2
SIMULATOR_WIDTHS = (1024, 64, 256, 4096)  # the default first
GPU_WIDTHS = (4096, 1024, 16384, 65536)
# An op with sizes of its own multiplies them with rows and cols, or has cols of one head.
PRODUCT_SHAPES = [(64, 64), (256, 64), (64, 128)]


@dataclass(frozen=True)
class Settings:
    """Shape (rows, cols), type, direction, version and options of the op.

    version: None is the best one.
    """

    shape: tuple[int, int] = (1, 1)
    dtype: str = "float32"
    backward: bool = False
    version: str | None = None
    options: dict[str, object] = field(default_factory=dict)

    def __str__(self) -> str:
        rows, cols = self.shape
        direction = "backward" if self.backward else "forward"
        parts = [f"{rows} x {cols}", self.dtype, direction, self.version or "the best version"]
        return ", ".join([*parts, *filter(None, [told(self.options)])])

    def for_check(self) -> Settings:
        """The same on as few rows as the checker, on the CPU, gets through in about a second."""
        rows, cols = self.shape
        fewer = max(1, min(rows, SIMULATOR_ELEMENTS // cols))
        return Settings((fewer, cols), self.dtype, self.backward, self.version, self.options)


def told(options: dict[str, object]) -> str:
    """Keywords as one writes them: "dim=None"."""
    return ", ".join(f"{name}={value}" for name, value in options.items())


def shapes_for(op: reference.Op, target: str) -> list[tuple[int, int]]:
    """The shapes that the control offers, the default first."""
    if op.sizes:
        return PRODUCT_SHAPES
    on_gpu = target == "cuda"
    elements = GPU_ELEMENTS if on_gpu else SIMULATOR_ELEMENTS
    return [(elements // cols, cols) for cols in (GPU_WIDTHS if on_gpu else SIMULATOR_WIDTHS)]


def settings_for(
    op: reference.Op,
    shape: tuple[int, int] | None,
    dtype: object,
    backward: bool,
    version: str | None,
    options: dict[str, object] | None,
) -> Settings:
    """The user's arguments, checked, with defaults for this machine. Nothing is built for it."""
    return Settings(
        arguments.shape(shape) if shape else shapes_for(op, jitload.default_target())[0],
        arguments.dtype_name(arguments.dtype(dtype)),
        bool(backward),
        arguments.written_version(op, version),
        arguments.options(op, options)[0],
    )
