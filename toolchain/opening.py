"""From a library to its functions: ops, a Python module's, or plain C functions."""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import inspect
import shutil
import subprocess
from collections.abc import Callable, Iterator
from types import ModuleType

import torch

from toolchain.cfunctions import CFunction, KernelFunction
from toolchain.errors import CompileError, hint_for
from toolchain.versions import Version

Check = Callable[[], None]


def functions_of(version: Version, check: Check | None) -> Iterator[tuple[str, Callable]]:
    """Open the library and find its functions, each with its name.

    After every call `check` is called: it raises what a kernel did wrong and nobody asked about.

    Raises:
        CompileError: the library cannot be opened, as where a symbol is undefined.
    """
    binding, exported = version.manifest["binding"], version.manifest["exports"]
    try:
        if binding == "c":
            library = ctypes.CDLL(str(version.library))
            for name, signature in exported.items():
                kind = KernelFunction if "kernel" in signature else CFunction
                try:
                    function = kind(library, name, signature, version.target, check)
                except AttributeError:
                    continue  # the library has no such symbol: `toolchain.launchers` says why
                yield name, function
            return
        if binding == "module":
            for name, value in vars(_import(version)).items():
                if not name.startswith("__"):
                    yield name, _checked(value, check) if inspect.isroutine(value) else value
        else:
            torch.ops.load_library(str(version.library))
        namespace = getattr(torch.ops, version.name)
        for name in exported:
            if packet := getattr(namespace, name, None):
                overloads = packet.overloads()
                op = getattr(packet, overloads[0]) if len(overloads) == 1 else packet
                yield name, _checked(op, check)
    except (OSError, ImportError) as error:
        said = str(error.__cause__ or error)
        raise CompileError(
            _demangled(said), hint=hint_for(said), log=version.folder / "log"
        ) from None


def _import(version: Version) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader(version.name, str(version.library))
    spec = importlib.util.spec_from_loader(version.name, loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _demangled(text: str) -> str:
    filt = shutil.which("c++filt")
    if not filt:
        return text
    return subprocess.run([filt], input=text, capture_output=True, text=True).stdout.strip()


def _checked(function: Callable, check: Check | None) -> Callable:
    if check is None:
        return function

    def checked(*args: object, **kwargs: object) -> object:
        result = function(*args, **kwargs)
        if not torch.compiler.is_compiling():
            check()
        return result

    return checked
