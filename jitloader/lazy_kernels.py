"""The kernels of a `toolchain.kernel_fatbins` build, each compiled when a call asks for it.

Like a build in parts for the CPU (`jitloader.lazy_launchers`) it takes the place of a whole one:
after an edit, and in an empty cache if a source instantiates kernels for types that may never be
called. `load` compiles the bindings and the host code, unless they are unchanged, and in parallel
the kernels that were launched before the edit. Any other kernel is compiled when it is launched.
The whole build follows in the background.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace

from jitloader import kept_objects
from jitloader.building import build_of, linked
from jitloader.builds import Build
from jitloader.events import reported_as_one
from jitloader.inputs import Inputs
from jitloader.lazy_launchers import Launchers, called_before, output_of
from toolchain import kernel_fatbins
from toolchain.code import Part
from toolchain.errors import CompileError

_Find = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int)
_FEW = 6  # kernels, most of them templates


def begun(inputs: Inputs) -> Build | None:
    """A build of these inputs kernel by kernel, with those compiled that were launched before.

    None if `build_of` has to compile them whole, or has to say why they do not compile.
    """
    wanted = tuple(called_before(inputs))
    while on_demand := kernel_fatbins.on_demand(inputs, wanted):
        if not (_follows_a_build(inputs) or _instantiates(inputs, on_demand)):
            return None
        try:
            build = linked(inputs, on_demand)
            return build if build and (on_demand.wanted is not None or _has_all(build)) else None
        except CompileError as error:
            left = kernel_fatbins.without_unknown(wanted, output_of(error))
            if on_demand.wanted is None or left == wanted:
                return None
            wanted = left
    return None


def _follows_a_build(inputs: Inputs) -> bool:
    """Whether this kernel was built before, with the same bindings as far as this can be known."""
    if len(inputs.recipe.sources) == 1:
        return any(inputs.cache.own.glob(f"{inputs.recipe.identifier}_*"))
    known = kept_objects.earlier(inputs).objects
    return all(
        number in known for number, path in enumerate(inputs.recipe.sources) if path.suffix != ".cu"
    )


def _instantiates(inputs: Inputs, on_demand: kernel_fatbins.OnDemand) -> bool:
    """Whether a source instantiates enough kernels for types to compile some of them later.

    Kernels that are no templates are compiled at once, so that their errors are shown at once. A
    few kernels take less time compiled whole than in two runs of nvcc, one after the other.
    """
    texts = list(map(inputs.text, inputs.files))
    kernels = sum(text.count("__global__") for text in texts)
    listed = any(map(kernel_fatbins.instantiates, texts))
    return on_demand.wanted is not None and listed and kernels > _FEW


def _has_all(build: Build) -> bool:
    held = kernel_fatbins.compiled_in(build.image.read_bytes(), build.launchers)
    return len(held) == len(build.launchers)


class Kernels(Launchers):
    """The kernels of an open build whose kernels are compiled on demand."""

    def _open_library(self) -> None:
        self._library = ctypes.CDLL(str(self._build.library))
        self._library.jitload_kernel.restype = ctypes.c_char_p
        self._names: list[str] = []  # in the order in which the library registered them
        while name := self._library.jitload_kernel(len(self._names)):
            self._names.append(name.decode())
        self._images: dict[int, ctypes.Array] = {}  # by the kernels' numbers; CUDA reads them late
        self._give(self._build)
        self._find_for_c = _Find(self._have)
        address = ctypes.cast(self._find_for_c, ctypes.c_void_p).value
        ctypes.c_void_p.in_dll(self._library, "jitload_find").value = address

    def calling(self, functions: dict[str, Callable]) -> dict[str, Callable]:
        """As in Launchers; without a binding all kernels are included."""
        return functions if self._build.binding == "c" else super().calling(functions)

    def _give(self, build: Build) -> None:
        """Register the kernels in a build's image with CUDA, except those that it has already."""
        data = build.image.read_bytes()
        numbers = set(kernel_fatbins.compiled_in(data, self._names)) - self._images.keys()
        image = ctypes.create_string_buffer(data, len(data))
        self._images |= dict.fromkeys(numbers, image)
        self._library.jitload_give(image, (ctypes.c_int * len(numbers))(*numbers), len(numbers))

    def _have(self, number: int) -> int | None:
        """Compile a kernel if it is missing, at its first launch. Returns an error text or None."""
        try:
            with self._finding:
                if number not in self._images:
                    self._compile(number)
                self._note(self._names[number])
                return None
        except BaseException as error:  # C++ throws it in place of the launch
            self._raised.error = error
            self._raised.message = ctypes.create_string_buffer(str(error).encode())
            return ctypes.addressof(self._raised.message)

    def _compile(self, number: int) -> None:
        """Compile a kernel, or all kernels if its symbol does not tell how to name it in C++."""
        name = self._names[number]
        with reported_as_one():
            try:
                self._add(self._compiled(name))
            except CompileError as error:
                if kernel_fatbins.without_unknown([name], output_of(error)):
                    raise
            if number not in self._images:
                self._add(self._compiled())

    def _compiled(self, *names: str) -> Build:
        sources = tuple(path for path in self._inputs.recipe.sources if path.suffix == ".cu")
        wanted = Part(self._build.name, tuple((name, "") for name in names), (), (), "")
        recipe = replace(self._inputs.recipe, sources=sources, part=wanted)
        if part := build_of(replace(self._inputs, recipe=recipe)):
            return part
        name = self._inputs.recipe.name
        raise RuntimeError(f"what the compilers read for {name} has changed: load it again")

    def _add(self, part: Build) -> None:
        self.parts.append(part)
        self._give(part)
