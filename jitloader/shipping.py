"""The sources of kernels for packages that do not need the loader."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace

from jitloader.arguments import recipe_of
from jitloader.building import ensure, readings
from jitloader.inputs import Inputs
from toolchain.code import Recipe
from toolchain.errors import CompileError
from toolchain.shipped import Shipped, shipped
from toolchain.shipped_bindings import why_not_shipped


def shipped_sources(
    *given: str | os.PathLike[str],
    name: str | None = None,
    flags: Iterable[str] = (),
    include: Iterable[str | os.PathLike[str]] = (),
    namespace: str,
    for_hub: bool = False,
) -> Shipped:
    """The sources of a kernel, named as for `load`, with all files that compilers read for them.

    It is built for the CPU first, so that every header is known.

    namespace, for_hub: as in `toolchain.shipped`.

    Raises:
        CompileError, FileNotFoundError, MissingTool: as `load` does.
    """
    recipe = recipe_of(given, name, "cpu", flags, include, debug=False)
    if why := why_not_shipped(_read(recipe)):
        raise CompileError(f"{recipe.name} {why}")
    ensure(recipe)
    codes = (_read(recipe), _read(replace(recipe, target="cuda")))
    return shipped(*codes, namespace, for_hub)


def _read(recipe: Recipe) -> Inputs:
    return next(readings(recipe))
