"""Which build a call uses, if tuning tables have constants for single classes of shapes.

The first tensor of a call determines its class (`toolchain.tuning.ShapeClass`). Each class has a
build of its own. Calls outside of all classes use the newest build.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from toolchain.errors import CompileError

if TYPE_CHECKING:
    from jitloader.functions import Functions
    from jitloader.handle import Kernel
    from jitloader.inputs import Inputs
    from jitloader.opening import OpenBuild
    from toolchain.tuning import ShapeClass


class OfClass(NamedTuple):
    """A class of shapes, and the build for it."""

    shapes: ShapeClass
    build: OpenBuild


def opened_for(inputs: Inputs, opened: Callable[..., OpenBuild]) -> list[OfClass]:
    """The builds for the shape classes in the inputs' tuning tables; most tables have none.

    opened: opens the build of the same sources with more flags.

    Raises:
        CompileError: one does not compile; a note names it.
    """
    builds = []
    for shapes, constants in inputs.tuned_by_shape:
        try:
            from toolchain.tuning import tuning_flags  # late: a warm load without does not need it

            builds.append(OfClass(shapes, opened(tuning_flags(constants))))
        except CompileError as error:
            settings = ", ".join(f"{name} = {value}" for name, value in constants.items())
            error.add_note(f"with {settings}, which a table of tuned constants has for {shapes}")
            raise
    return builds


def by_shape(classes: Sequence[OfClass], name: str, otherwise: Callable) -> Callable:
    """A function that calls function `name` of the build for the call's class, or `otherwise`."""
    known = [
        (shapes.dtype, shapes.least, shapes.most, function)
        for shapes, build in classes
        if (function := build.functions.get(name))
    ]

    def call(*args: Any, **kwargs: Any) -> Any:
        if (x := _first_tensor(args, kwargs)) is not None:
            cols = _columns(x)
            for dtype, least, most, function in known:
                if x.dtype is dtype and least <= cols <= most:
                    return function(*args, **kwargs)
        return otherwise(*args, **kwargs)

    if signature := getattr(otherwise, "__signature__", None):
        call.__signature__ = signature
    call.__doc__ = inspect.getdoc(otherwise)
    return call if known else otherwise


@contextmanager
def shapes_of_calls(kernel: Kernel) -> Iterator[list[ShapeClass]]:
    """In this block, collect the shape classes of all calls of the kernel's functions."""
    functions: Functions = kernel._functions
    classes: list[ShapeClass] = []

    def noting(call: Callable) -> Callable:
        def noted(*args: Any, **kwargs: Any) -> Any:
            if (x := _first_tensor(args, kwargs)) is not None:
                from toolchain.tuning import ShapeClass

                shapes = ShapeClass.around(x.dtype, _columns(x))
                if shapes not in classes:
                    classes.append(shapes)
            return call(*args, **kwargs)

        return noted

    functions.around = noting
    functions.redirect()
    try:
        yield classes
    finally:
        functions.around = None
        functions.redirect()


def _first_tensor(args: tuple, kwargs: dict[str, Any]) -> torch.Tensor | None:
    for given in (*args, *kwargs.values()):
        if isinstance(given, torch.Tensor):
            return given
    return None


def _columns(x: torch.Tensor) -> int:
    return x.shape[-1] if x.ndim else 1
