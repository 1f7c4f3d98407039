"""The two loaders of the comparison: ours, and plain torch.utils.cpp_extension.load."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Loader:
    """One side of the comparison.

    code: defines `load(source, *flags, include=[])`, which returns what has `answer()`.
    caches: the environment that names a cache folder, and folders below it to be read alone.
    lock: the file that the build of a cache's kernel locks.
    prune: arguments of python -m that bound the cache; None where there is no such command.
    """

    name: str
    code: str
    caches: Callable[..., dict[str, str]]
    lock: Callable[[Path], Path]
    prune: tuple[str, ...] | None


# What plain load needs to call a function: a Python module, the kind of binding that it documents.
MODULE = """
    #include <Python.h>
    extern "C" int answer();
    static PyObject* call(PyObject*, PyObject*) { return PyLong_FromLong(answer()); }
    static PyMethodDef functions[] = {{"answer", call, METH_NOARGS, nullptr}, {}};
    static PyModuleDef module = {PyModuleDef_HEAD_INIT, "answer", nullptr, -1, functions};
    #define INIT_(name) PyInit_##name
    #define INIT(name) INIT_(name)
    PyMODINIT_FUNC INIT(TORCH_EXTENSION_NAME)() { return PyModule_Create(&module); }
"""


def ours(runtime: Path) -> Loader:
    """Our loader; the simulator's runtime is in the cache `runtime`."""
    return Loader(
        name="ours",
        code="""
            import jitload

            def load(source, *flags, include=()):
                return jitload.load(source, target="cpu", flags=flags, include=include)
        """,
        caches=lambda *folders: {"JITLOAD_CACHE": os.pathsep.join(map(str, [*folders, runtime]))},
        lock=lambda cache: cache / "locks" / f"{next(cache.glob('answer_*')).name}.lock",
        prune=("jitload", "prune", "--gigabytes", "0"),
    )


def plain(folder: Path) -> Loader:
    """Plain load; MODULE goes to a file in `folder`."""
    module = folder / "module.cpp"
    module.write_text(textwrap.dedent(MODULE).lstrip("\n"))
    return Loader(
        name="plain load",
        code=f"""
            from torch.utils import cpp_extension

            def load(source, *flags, include=()):
                return cpp_extension.load(
                    "answer",
                    [source, {str(module)!r}],
                    extra_cflags=list(flags),
                    extra_include_paths=[os.path.abspath(folder) for folder in include],
                )
        """,
        caches=lambda *folders: {"TORCH_EXTENSIONS_DIR": str(folders[-1])},  # one, no layers
        lock=lambda cache: cache / "answer/lock",
        prune=None,
    )
