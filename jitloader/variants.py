"""Variants of a kernel: the same files with other values of their tunable constants."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from toolchain.code import Recipe
from toolchain.tuning import tuning_flags

if TYPE_CHECKING:
    from jitloader.handle import Kernel


def variant_of(
    kernel: Kernel, constants: dict[str, int], check: bool = False, for_gpu: bool = False
) -> Recipe:
    """The recipe of a variant; without constants, that of the kernel as it is.

    check: the instrumented one for lab.check. for_gpu: the one for a GPU, as for `kernel.for_gpu`.
    """
    flags = (*kernel.recipe.flags, *tuning_flags(constants))
    recipe = replace(kernel.recipe, flags=flags)
    if for_gpu:
        return replace(recipe, target="cuda", formulas="", debug=False)
    return replace(recipe, target="cpu", debug=False, check=True) if check else recipe


@contextmanager
def running_variant(
    kernel: Kernel, constants: dict[str, int], check: bool = False
) -> Iterator[None]:
    """In this block the functions of the kernel are those of the variant.

    check: only for lab.check, which needs no other build of the variant.
    """
    before = kernel.recipe
    kernel.recipe = variant_of(kernel, constants)
    try:
        with nullcontext() if check else kernel.in_place(kernel.recipe):
            yield
    finally:
        kernel.recipe = before
