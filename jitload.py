"""Compile CUDA kernels when they are imported, cache them, and swap them while you edit.

    import jitload
    kernel = jitload.load("layer_norm")            # kernels/layer_norm.cu and .cpp, by name
    kernel = jitload.load("my.cu", "binding.cpp")  # anybody's sources, by path
    y, mean, rstd = kernel.forward(x, weight, bias, 1e-5)

The first load compiles (through `torch.utils.cpp_extension.load`); every later one, in any
process, opens the cached library within milliseconds. After an edit

    kernel.reload()             # True: something changed, and kernel.forward is the new build
    kernel.is_current()         # are the files still those of the newest build? some 0.1 ms
    kernel.versions()           # a table of the builds still in the cache, newest first
    kernel.diff(1, 0)           # what the newest edit changed, in sources and headers
    kernel.at(1).forward(x)     # the build before this one, beside the new one
    kernel.resources()          # registers, spills, shared memory and occupancy of its kernels

`kernel.forward` is one long-lived callable: a name taken from the handle before an edit follows
too, and so do copies of both, deep ones and pickled ones. A broken edit raises `CompileError` with
your file, line and column, and so does every call until the file changes again: an old build never
runs in place of a broken new one.

Targets. "cuda" compiles with nvcc for the GPUs of this machine; "cpu" compiles the very same .cu
with the C++ compiler through the simulator (simulator/), so that no GPU is needed. The default is
cuda where torch sees a GPU and nvcc is found, else cpu. nvcc is looked for in CUDA_HOME, on PATH,
in the nvidia-cuda-nvcc wheel and in /usr/local/cuda.

Bindings. A .cpp beside the kernels may bind them in any of these ways; TORCH_EXTENSION_NAME stands
where the name goes, because every build has a name of its own.

    STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m)   the stable ABI, 0.7 s to compile: prefer it
    TORCH_LIBRARY(TORCH_EXTENSION_NAME, m)          ATen; same use, several times slower to compile
    PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)        a Python module
    no binding at all                               the .cu's extern "C" functions take tensors

Without a binding, `float*` takes a float32 tensor (and so on for every type), numbers are passed as
declared, a `cudaStream_t` is filled in, and a returned cudaError_t other than 0 raises. Kernels
that no function of theirs launches are launched from Python, with a grid and a block in brackets:

    kernel.add[(n + 255) // 256, 256](x, y, n)       # of __global__ void add(float* x, ...)
    kernel.add[grid, block, stream, shared](x, y, n)  # shared: bytes of dynamic shared memory

Formulas. `kernel.register_fake(name)` and `kernel.register_autograd(name, backward, ...)` are
`torch.library`'s, replayed for every new build; the gradient works under torch.func too. A graph
keeps the build and the formulas that it began with: in its backward pass `kernel.backward` is that
build's, whatever was edited meanwhile.
`kernel.register_autocast(name)` lets an op take mixed types inside torch.autocast. Register them
before the op is first used.

What decides a build. The digest in its name covers the sources, every header they include or ask
for, flags, target and architecture, the compilers and what they read from the environment (CPATH
and the like), torch and Python, and the formulas in kernels/NAME.py. The compiler's own depfile is
the judge of what was included. So an edited header is seen, two versions never share a name, and a
cached library is never a stale one.

Errors. A traceback shows your frames and leaves out the loader's: in notebooks, and in plain Python
by sys.excepthook (python -X dev shows all). A build that is stopped says so in one line.

Settings, from the environment:

    JITLOAD_CACHE          where builds are kept            (default: the user's cache folder);
                           more folders after it, with a colon between, are only looked into;
                           relative ones count from where the process was when it imported jitload
    JITLOAD_TARGET         cuda or cpu                      (default: as above)
    JITLOAD_DEBUG          1 compiles with -O0 -g, and -G for device code
    TORCH_CUDA_ARCH_LIST   "8.0 9.0+PTX", "Ampere;Hopper"   (default: the GPUs present, or 8.0 9.0)
    CUDA_HOME, CXX         which CUDA toolkit and which C++ compiler: g++, or clang 16 and later

From the shell: `python -m jitload build [NAME...]`, `python -m jitload resources NAME`,
`python -m jitload doctor`, `python -m jitload prune`.
"""

from __future__ import annotations

import argparse
import builtins
import contextlib
import ctypes
import errno
import functools
import hashlib
import importlib
import inspect
import os
import platform
import re
import shutil
import sys
import sysconfig
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch

import simulator
from toolchain import autocast, gradients, machine, stops, tracebacks
from toolchain.cache import Cache
from toolchain.cfunctions import Launch
from toolchain.command_line import check_path, checked_flags
from toolchain.errors import CompileError, MissingTool
from toolchain.inputs import Inputs, Recipe, formulas_of
from toolchain.machine import default_target, device
from toolchain.notes import digest_of, write_note
from toolchain.opening import functions_of
from toolchain.sources import file_in, folders_in, label
from toolchain.versions import Diff, Version, Versions

__all__ = [
    "BuildEvent",
    "CompileError",
    "Diff",
    "Kernel",
    "MissingTool",
    "Version",
    "Versions",
    "default_target",
    "device",
    "listeners",
    "load",
    "loaded",
]

KERNELS = Path(__file__).resolve().parent / "kernels"
LONGEST_NAME = 100  # of a kernel; its builds are folders, whose names have at most 255 bytes


# ---------------------------------------------------------------------------------------------
# Building
# ---------------------------------------------------------------------------------------------

_building = threading.Lock()  # cpp_extension keeps its state in its module: one build at a time
_failures: dict[str, CompileError] = {}  # by digest: the same sources fail the same way


def _ensure(recipe: Recipe, read: Callable[[Recipe, Cache], Inputs] = Inputs.read) -> Version:
    """The build of what the recipe's files hold now: from the cache, or compiled.

    The last inputs that `read` returned are those of the result, or of the CompileError.
    """
    for _ in range(10):
        inputs = read(recipe, Cache.here())
        if version := _cached(inputs):
            return version
        if inputs.digest in _failures:
            raise _failures[inputs.digest].with_traceback(None)
        try:
            inputs.refuse_fixed_names()
            inputs.require_compilers()
            with _building, inputs.cache.lock(inputs.name) as alone:
                # Else another process has just built it, or found in doing so what more it reads.
                if not _cached(inputs) and _are_current(inputs):
                    _build(inputs, alone)
        except KeyboardInterrupt as stop:
            tracebacks.in_one_line(stop, f"the build of {recipe.name} was interrupted")
            raise
        except CompileError as error:
            if error.of_machine:
                raise
            if _are_current(inputs):
                _failures[inputs.digest] = error
                raise
        # Once more round: a file may have changed meanwhile, or the compiler have read a header
        # that only its depfile told of. Nearly always this finds the build just made.
    raise RuntimeError(f"the sources of {recipe.name} change faster than they compile: load again")


def _are_current(inputs: Inputs) -> bool:
    """Whether what was compiled is still what the files hold."""
    return Inputs.read(inputs.recipe, inputs.cache).digest == inputs.digest


def _cached(inputs: Inputs) -> Version | None:
    for folder in inputs.cache.folders:
        version = Version.read(folder / inputs.name)
        if version and inputs.cache.trusts(version.folder) and version.is_whole():
            with contextlib.suppress(OSError):
                os.utime(version.folder / "manifest.json")  # when it was last used, for prune
            return version
    return None


def _build(inputs: Inputs, alone: bool) -> None:
    """Compile in a private folder, then let the result appear in the cache at once."""
    try:
        with inputs.cache.workplace(inputs.name, alone) as work:
            _build_in(work, inputs)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise OSError(
            error.errno,
            f"the disk of the cache folder is full while building {inputs.recipe.name}: free some"
            " space (`python -m jitload prune`), or set JITLOAD_CACHE to a folder on another disk",
            str(inputs.cache.own),
        ) from error


def _build_in(work: Path, inputs: Inputs) -> None:
    from toolchain.compile import compile_library  # late: a warm load does without

    recipe, name = inputs.recipe, inputs.name
    started = time.perf_counter()
    with _announced(recipe) as progress:
        log = inputs.cache.own / "logs" / f"{name}.log"
        output, read = compile_library(inputs, work, log, progress)
    if unknown := read - inputs.files.keys():
        inputs.note(unknown)
    if not _are_current(inputs):
        return  # it would stand in the cache under a digest that is not its own
    result = work / "result"
    (result / "sources").mkdir(parents=True)
    library = result / f"{name}.so"
    shutil.move(work / library.name, library)
    (result / "log").write_text(output, "utf-8")
    kept = {path: f"{n}_{path.name[-50:]}" for n, path in enumerate(inputs.in_order())}
    for path, file in kept.items():
        (result / "sources" / file).write_bytes(inputs.files[path])
    manifest = {
        "digest": inputs.digest,
        "recipe": recipe.key,
        "target": recipe.target,
        "binding": inputs.binding,
        "exports": inputs.exports,
        "built": time.time(),
        "order": 1 + max((v.order for v in _versions(recipe)), default=0),
        "seconds": round(time.perf_counter() - started, 3),
        "torch": torch.__version__,
        "sources": {label(path): file for path, file in kept.items()},
        "inputs": {label(p): digest_of(data) for p, data in sorted(inputs.files.items())},
        "library_sha256": hashlib.sha256(library.read_bytes()).hexdigest(),
    }
    write_note(result / "manifest.json", manifest)
    inputs.cache.place(result, name)


def _versions(recipe: Recipe) -> Versions:
    """Every build of a recipe in the cache, newest first."""
    found: dict[str, Version] = {}
    for folder in Cache.here().folders:
        for version in map(Version.read, folder.glob(f"{recipe.identifier}_*/")):
            if version and version.manifest["recipe"] == recipe.key:
                found.setdefault(version.name, version)
    return Versions(sorted(found.values(), key=lambda v: (v.order, v.when), reverse=True))


@dataclass(frozen=True)
class BuildEvent:
    """What `listeners` are told.

    Attributes:
        name, target: of the kernel; the name says so of a build that lab.check asks for.
        stage: "starting", then what is being compiled, as in "1 of 3: layer_norm.cu".
        seconds: since the build began.
        state: "building" (at once, and four times a second), then "done" or "failed".
    """

    name: str
    target: str
    stage: str
    seconds: float
    state: str


# Called by the thread that builds, so they must not load kernels. Where there are none, a build
# prints a line.
listeners: list[Callable[[BuildEvent], None]] = []
announce = True  # whether it does; `python -m jitload build` says it in its own way


@contextlib.contextmanager
def _announced(recipe: Recipe) -> Iterator[Callable[[str], None]]:
    """Tell the listeners how a build goes; what is yielded tells them the stage."""
    started, last = time.perf_counter(), "starting"
    name = f"{recipe.name} (for lab.check)" if recipe.check else recipe.name

    def tell(stage: str, state: str = "building") -> None:
        nonlocal last
        last = stage
        seconds = time.perf_counter() - started
        event = BuildEvent(name, recipe.target, stage, seconds, state)
        for listener in list(listeners) or ([_print_line] if announce else []):
            listener(event)

    tell(last)
    outcome = "failed"
    try:
        yield tell
        outcome = "done"
    finally:
        tell(last, outcome)


def _print_line(event: BuildEvent) -> None:
    """One line a build: on stdout in a notebook, where stderr looks like a failure."""
    stream = sys.stdout if hasattr(builtins, "__IPYTHON__") else sys.stderr
    if event.state != "building":
        outcome = {"done": "done in", "failed": "failed after"}[event.state]
        print(f" {outcome} {event.seconds:.1f} s", file=stream, flush=True)
    elif event.stage == "starting":
        text = f"jitload: building {event.name} for {event.target} ..."
        print(text, end="", file=stream, flush=True)


# ---------------------------------------------------------------------------------------------
# Opening a library: ops, a Python module, or plain C functions
# ---------------------------------------------------------------------------------------------


class Build:
    """One opened version: its functions are attributes, as in `kernel.at(1).forward(x)`."""

    def __init__(self, version: Version, functions: dict[str, Callable]):
        self.version = version
        self.functions = functions
        vars(self).update(functions)

    def __repr__(self) -> str:
        names = ", ".join(self.functions)
        return f"<Build {self.version.name} for {self.version.target}: {names}>"

    def __copy__(self) -> Build:
        return self

    def __deepcopy__(self, memo: dict) -> Build:
        return self

    def __reduce__(self) -> tuple:
        raise TypeError(
            f"the build {self.version.name} cannot be pickled, since its library is this machine's:"
            " pickle the handle or one of its functions, which are loaded where they are unpickled"
        )


T = TypeVar("T")


def _ensure_open(
    recipe: Recipe,
    opens: Callable[[Version], T],
    read: Callable[[Recipe, Cache], Inputs] = Inputs.read,
) -> T:
    """What `opens` makes of the build of the files as they are now."""
    while True:
        version = _ensure(recipe, read)
        try:
            return opens(version)
        except (CompileError, OSError):
            if version.library.exists():
                raise
            # Another process has just pruned it. What this one builds is in use from the start.


_opened: dict[str, Build] = {}  # by name: one namespace registered twice would end the process
_opening = threading.Lock()


def _open(version: Version) -> Build:
    with _opening:
        if version.name not in _opened:
            check = None
            if version.target == "cpu":
                _start_simulator()
                check = _simulator_check
            Cache.here().use(version.folder)
            _opened[version.name] = Build(version, dict(functions_of(version, check)))
        return _opened[version.name]


# The simulator's runtime: one instance a process, opened before any kernel that needs it.

_take_error: Callable[[], bytes | None] | None = None


def _runtime_recipe() -> Recipe:
    return Recipe(
        name="simulator",
        sources=(simulator.RUNTIME,),
        include=(simulator.INCLUDE,),
        flags=("-O2", "-fvisibility=hidden"),  # it marks what kernels call
        target="cpu",
        debug=False,
    )


@functools.cache
def simulator_runtime() -> ctypes.CDLL:
    """The library on which kernels for the CPU run."""

    def opens(version: Version) -> ctypes.CDLL:
        Cache.here().use(version.folder)
        return ctypes.CDLL(str(version.library), mode=ctypes.RTLD_GLOBAL)

    return _ensure_open(_runtime_recipe(), opens)


def _start_simulator() -> None:
    global _take_error
    if _take_error is None:
        stops.listen(simulator_runtime())
        _take_error = simulator_runtime().simulator_take_error
        _take_error.restype = ctypes.c_char_p


def _simulator_check() -> None:
    """Raise what a kernel did wrong (a deadlock, a refused launch) and nobody asked about."""
    message = _take_error()
    if message:
        raise RuntimeError(message.decode(errors="replace"))


def simulated_launches() -> int:
    """How many kernels the simulator has launched in this process.

    Asked before a call and after it, this tells whether the call ran on the simulator.
    """
    if _take_error is None:  # nothing has been opened that could launch
        return 0
    launches = simulator_runtime().simulator_launches
    launches.restype = ctypes.c_uint64
    return launches()


# ---------------------------------------------------------------------------------------------
# The handle
# ---------------------------------------------------------------------------------------------


class Function:
    """One name of a kernel's: always the newest build's, however long ago it was taken.

    A copy is the same function, and so is what is unpickled: in another process, that of its
    kernel there.
    """

    def __init__(self, kernel: Kernel, name: str):
        self._kernel = kernel
        self.__name__ = name
        self.__qualname__ = f"{kernel.recipe.name}.{name}"
        self._call: Callable = kernel._unknown(name)

    def __call__(self, *args: object, **kwargs: object) -> object:
        try:
            return self._call(*args, **kwargs)
        except Exception as error:
            tracebacks.hide(error)
            raise

    def __getitem__(self, configuration: object) -> Launch:
        """Of a kernel: `kernel.add[grid, block]`, which waits for the arguments."""
        return Launch(self, configuration)

    @property
    def __signature__(self) -> inspect.Signature | None:
        """In the words of C, where it is a C function's or a kernel's."""
        return getattr(self._call, "__signature__", None)

    def point_at(self, call: Callable) -> None:
        self._call, self.__doc__ = call, call.__doc__
        if self.__signature__:
            self.__call__ = call  # whose signature IPython would show besides
        else:
            vars(self).pop("__call__", None)  # torch.compile traces none of an instance's own

    def __repr__(self) -> str:
        return f"<Function {self.__qualname__}>"

    def __copy__(self) -> Function:
        return self

    def __deepcopy__(self, memo: dict) -> Function:
        return self

    def __reduce__(self) -> tuple:
        return getattr, (self._kernel, self.__name__)


class Kernel:
    """What `load` returns: the newest build of some sources, and the way to newer and older ones.

    Every function of the binding is an attribute (`kernel.forward`). Handles are made by `load`,
    one for each set of sources, target and flags in a process. So a copy is the same handle, and
    so is what is unpickled; another process that unpickles it loads the kernel.
    """

    def __init__(self, recipe: Recipe):
        self.recipe = recipe
        self._build: Build | None = None
        self._error: Exception | None = None
        self._inputs: Inputs | None = None  # what the newest build, or its error, is of
        self._instrumented: tuple[Recipe, Inputs, Build] | None = None  # for lab.check
        self._functions: dict[str, Function] = {}
        self._fakes: dict[str, Callable] = {}
        self._autograd: dict[str, tuple[Callable, Callable | None]] = {}
        self._autocast: dict[str, tuple[str, ...]] = {}
        self._registered: set[tuple[str, str, str]] = set()
        self._formulas_of: dict[int, Build] = {}  # by thread: whose formula it is running
        self._by_thread = False  # whether functions have to look there
        self._instead: Callable[[Kernel, str], Callable] | None = None  # what runs for a function
        self._lock = threading.RLock()
        self._redirecting = threading.Lock()

    def reload(self) -> bool:
        """Make the files as they are now the ones that run.

        Returns:
            True if that changed anything, False if the newest build is already theirs.

        Raises:
            CompileError: they do not compile; until they do, calls of this kernel raise it too.
        """
        with tracebacks.hidden(), self._lock:
            try:
                build = _ensure_open(self.recipe, _open, self._read)
                if build is not self._build:
                    self._register_all(build)
            except BaseException as error:
                # Broken or interrupted: whatever runs next must not be the old kernel.
                interrupted = RuntimeError(
                    f"the build of {self.name} was interrupted: load it again"
                )
                self._error = error if isinstance(error, Exception) else interrupted
                if not isinstance(error, CompileError) or error.of_machine:  # try again
                    self._inputs = None
                self._redirect()
                raise
            changed = build is not self._build
            swapped = changed and self._build is not None
            recovered, self._error = self._error is not None, None
            self._build = build
            if changed or recovered:
                self._redirect()
            if swapped:
                _tell_dynamo()
            return changed

    def _read(self, recipe: Recipe, cache: Cache) -> Inputs:
        self._inputs = Inputs.read(recipe, cache)
        return self._inputs

    def is_current(self) -> bool:
        """Whether the files are still those of the newest build, or of the error in its place.

        Where nothing changed this asks for the files' dates alone: some 0.1 ms.
        """
        with self._lock:
            return self._inputs is not None and self._inputs.are_current()

    def versions(self) -> Versions:
        """Every build of these sources for this target in the cache, newest first.

        A list of Version, shown as a table; `lines` are those added and removed since the version
        before, in sources and headers.
        """
        return _versions(self.recipe)

    def at(self, version: Version | str | int | None = None) -> Build:
        """One build, to be called beside the newest: `kernel.at(1).forward(x)`.

        Args:
            version: one of `versions()`, its position there (0 is the newest), or the first
                characters of its digest. None is the build that runs now: what a
                torch.autograd.Function of your own should keep for its backward pass.

        Raises:
            LookupError: the cache holds no such version.
            CompileError: version is None, and the files do not compile.
        """
        if version is None:
            build = self._formulas_of.get(threading.get_ident())
            if self._error and not build:
                raise self._error.with_traceback(None)
            return build or self._build
        version = self._version(version)
        if not (Cache.here().trusts(version.folder) and version.is_whole()):
            raise LookupError(
                f"version {version.digest} in {version.folder} is damaged, gone, or open to others"
            )
        with self._lock:
            build = _open(version)
            self._register_all(build)
            return build

    def instrumented(self) -> Build:
        """The newest build of the same files for `lab.check`: on the CPU, telling every access.

        Raises:
            CompileError: they do not compile.
        """
        recipe = replace(self.recipe, target="cpu", debug=False, check=True)
        with self._lock:
            known = self._instrumented
            if known is None or known[0] != recipe or not known[1].are_current():
                read_last: list[Inputs] = []

                def read(recipe: Recipe, cache: Cache) -> Inputs:
                    read_last[:] = [Inputs.read(recipe, cache)]
                    return read_last[0]

                build = _ensure_open(recipe, _open, read)
                self._instrumented = known = recipe, read_last[0], build
            build = known[2]
        self._register_all(build)
        return build

    def diff(self, before: Version | str | int, after: Version | str | int) -> Diff:
        """What changed between two builds in sources and headers, named as for `at`.

        `print(kernel.diff(1, 0))` shows the newest edit.

        Raises:
            LookupError: the cache holds no such version.
        """
        return Diff(self._version(before), self._version(after))

    def resources(self, threads: int = 256) -> list:
        """What each kernel of the newest build takes: registers, spills, shared memory, occupancy.

        A list with an item for each kernel and architecture, shown as a table. `spilled` are the
        bytes of registers that a thread has to keep in memory; `occupancy(threads, shared)` of an
        item is the part of a multiprocessor's threads that such blocks can fill. For a build
        without registers, the simulator's or one of JITLOAD_DEBUG, it is empty and says so.

        Args:
            threads: of a block, for the occupancy that the table shows.
        """
        from toolchain.resources import Resources, uses  # late: a warm load does without

        note = (
            f"{self.name} is built for {self.target}"
            f"{' without optimisation' if self.recipe.debug else ''}: it has no registers to count."
        )
        if self.target == "cpu":
            note += f" With nvcc, `python -m jitload resources {self.name}` shows those of a GPU."
        return Resources(uses(self.version.log()), threads, note)

    def _version(self, version: Version | str | int) -> Version:
        if isinstance(version, Version):
            return version
        known = self.versions()
        if isinstance(version, int):
            found = known[version : version + 1 or None]
        else:
            found = [v for v in known if v.digest.startswith(version)]
        if len(found) != 1:
            listed = ", ".join(f"{i}: {v.digest}" for i, v in enumerate(known))
            raise LookupError(
                f"version {version!r} of {self.recipe.name} is"
                f" {'ambiguous' if found else 'not in the cache'}; there are {listed}"
            )
        return found[0]

    def register_fake(self, name: str) -> Callable[[Callable], Callable]:
        """Decorator: the shape formula of op `name`, as `torch.library.register_fake` takes it."""

        def decorate(formula: Callable) -> Callable:
            self._fakes[name] = self._known(formula)
            self._register_all(self._build)
            return formula

        return decorate

    def register_autograd(
        self, name: str, backward: Callable, *, setup_context: Callable | None = None
    ) -> None:
        """The gradient of op `name`, as `torch.library.register_autograd` takes it.

        Under torch.func too; forward-mode differentiation of the op raises NotImplementedError.
        """
        self._autograd[name] = (
            self._known(backward),
            self._known(setup_context) if setup_context else None,
        )
        self._register_all(self._build)
        self._redirect()

    def register_autocast(self, name: str, keep: tuple[str, ...] = ()) -> None:
        """Let op `name` take tensors of several floating types inside torch.autocast.

        It then runs in the widest of them, as PyTorch's own ops do.

        keep: arguments that stay as they are and have no say, such as a buffer of sums.
        """
        self._autocast[name] = keep
        self._register_all(self._build)

    def _known(self, formula: Callable) -> Callable:
        """Where the digest does not cover a formula, no compiled gradient may come from disk.

        AOTAutograd's cache takes an op of the same name for the same op, whatever its formulas.
        """
        home = KERNELS / f"{self.recipe.name}.py"
        if not (self.recipe.formulas and Path(formula.__code__.co_filename) == home):
            import torch._functorch.config as functorch

            functorch.enable_autograd_cache = False
        return formula

    def _register_all(self, build: Build) -> None:
        """Give a build's ops the formulas; a new graph takes those that were registered last."""
        namespace = build.version.name
        for name in self._fakes.keys() & build.functions.keys():
            if (key := (namespace, name, "fake")) not in self._registered:
                torch.library.register_fake(f"{namespace}::{name}", self._fake_of(name))
                self._registered.add(key)
        for name in self._autograd.keys() & build.functions.keys():
            if (key := (namespace, name, "autograd")) not in self._registered:
                op = getattr(getattr(torch.ops, namespace), name).default
                label = f"{self.recipe.name}.{name}"
                formulas = functools.partial(self._autograd.__getitem__, name)
                run = functools.partial(self._run_with, build)
                call = gradients.register(op, label, formulas, run)
                build.functions[name] = vars(build)[name] = call
                self._registered.add(key)
        for name in self._autocast.keys() & build.functions.keys():
            if (key := (namespace, name, "autocast")) not in self._registered:
                op = getattr(getattr(torch.ops, namespace), name).default
                autocast.register(op, self._autocast[name])
                self._registered.add(key)

    def _fake_of(self, name: str) -> Callable:
        def fake(*args: object, **kwargs: object) -> object:
            devices = {arg.device.type for arg in args if isinstance(arg, torch.Tensor)}
            if "meta" in devices and len(devices) > 1:
                # PyTorch comes here for one meta tensor; the result would be uninitialised.
                raise RuntimeError(
                    f"{self.recipe.name}.{name} got tensors on {' and '.join(sorted(devices))};"
                    " wanted is one device for all"
                )
            return self._fakes[name](*args, **kwargs)

        return fake

    def _run_with(self, build: Build, formula: Callable, *arguments: object) -> object:
        """Call a formula. Meanwhile, in this thread, the handle's functions are those of `build`.

        A formula calls `kernel.backward`, and a graph may be older than the newest build.
        """
        outer = self._formulas_of.get(threading.get_ident())
        self._runs_formula_of(build)
        try:
            return formula(*arguments)
        finally:
            self._runs_formula_of(outer)

    def _runs_formula_of(self, build: Build | None) -> None:
        thread = threading.get_ident()
        if build:
            self._formulas_of[thread] = build
        else:
            self._formulas_of.pop(thread, None)
        if self._by_thread or (build and (self._error or build is not self._build)):
            self._redirect()

    def _redirect(self) -> None:
        """Point every function at what it stands for now.

        That is the newest build, the error in its place, or what `instrumented` puts there; in a
        thread that runs a formula of another build, that build.
        """
        with self._redirecting:
            for name in self._build.functions if self._build else ():
                if name not in self._functions:
                    self._functions[name] = vars(self)[name] = Function(self, name)
            newest = [None if self._error else self._build]
            if self._instead and self._instrumented:
                newest.append(self._instrumented[2])
            self._by_thread = any(b not in newest for b in list(self._formulas_of.values()))
            for name, function in self._functions.items():
                call = self._now(name)
                function.point_at(self._for_each_thread(name, call) if self._by_thread else call)

    def _now(self, name: str) -> Callable:
        if self._instead:
            return self._instead(self, name)
        if self._error:
            return _raiser(self._error)
        return self._build.functions.get(name, self._unknown(name))

    def _for_each_thread(self, name: str, call: Callable) -> Callable:
        def by_thread(*args: object, **kwargs: object) -> object:
            build = self._formulas_of.get(threading.get_ident())
            function = build.functions.get(name, self._unknown(name)) if build else call
            return function(*args, **kwargs)

        return by_thread

    def _unknown(self, name: str) -> Callable:
        def unknown(*_: object, **__: object) -> None:
            raise AttributeError(self._no_such(name))

        return unknown

    def _no_such(self, name: str) -> str:
        from toolchain.launchers import explanations  # late: a warm load does without

        names = ", ".join(self._build.functions) if self._build else ""
        said = f"kernel {self.recipe.name!r} has no function {name!r}; it has: {names or 'none'}"
        why = explanations(self._build.version).get(name) if self._build else None
        return f"{said}\n{why}" if why else said

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise AttributeError(self._no_such(name))

    @property
    def name(self) -> str:
        return self.recipe.name

    @property
    def target(self) -> str:
        return self.recipe.target

    @property
    def sources(self) -> tuple[Path, ...]:
        return self.recipe.sources

    @property
    def version(self) -> Version:
        return self._build.version

    @property
    def digest(self) -> str:
        return self.version.digest

    @property
    def library(self) -> Path:
        return self.version.library

    @property
    def seconds(self) -> float:
        """How long the newest build took to compile."""
        return self.version.seconds

    def __copy__(self) -> Kernel:
        return self

    def __deepcopy__(self, memo: dict) -> Kernel:
        return self

    def __reduce__(self) -> tuple:
        """What loads it elsewhere, and the modules that gave it formulas."""
        formulas = [*self._fakes.values(), *(backward for backward, _ in self._autograd.values())]
        modules = {formula.__module__ for formula in formulas} - {"__main__", "__mp_main__"}
        return _unpickled, (*_arguments_for(self.recipe), sorted(modules))

    def __repr__(self) -> str:
        state = "broken" if self._error else self.digest
        return f"<Kernel {self.name} for {self.target}, {state}: {', '.join(self._functions)}>"


def _raiser(error: Exception) -> Callable:
    def fail(*_: object, **__: object) -> None:
        raise error.with_traceback(None)

    return fail


def _tell_dynamo() -> None:
    """Functions compiled around the old build must be traced again.

    Dynamo's guards would notice, but after eight recompilations of a function it gives up.
    """
    if "torch._dynamo" in sys.modules:
        torch._dynamo.reset()


_kernels: dict[Recipe, Kernel] = {}
_loading = threading.RLock()


def _renew_locks() -> None:
    """In a forked process nobody else is left to release them."""
    global _building, _opening, _loading
    _building, _opening, _loading = threading.Lock(), threading.Lock(), threading.RLock()
    for kernel in _kernels.values():
        kernel._lock, kernel._redirecting = threading.RLock(), threading.Lock()
        kernel._formulas_of.clear()


os.register_at_fork(after_in_child=_renew_locks)


def load(
    *sources: str | os.PathLike[str],
    name: str | None = None,
    target: str | None = None,
    flags: Iterable[str] = (),
    include: Iterable[str | os.PathLike[str]] = (),
    debug: bool | None = None,
) -> Kernel:
    """Compile (or take from the cache) and open kernels.

    Args:
        sources: the name of an op in kernels/ ("layer_norm"), or the paths of one or more .cu and
            .cpp files.
        name: what to call the kernel; by default its first source's name.
        target: "cuda" or "cpu"; by default `default_target()`.
        flags: for the compilers, each of them one argument, as in ["-DROWS=4", "-DT=unsigned int"].
        include: folders of headers, besides the sources' own and kernels/include.
        debug: -O0 -g (and -G); by default JITLOAD_DEBUG says.

    Returns:
        The kernel's handle. The same sources, target and flags give the same handle, reloaded.

    Raises:
        CompileError: the sources do not compile.
        FileNotFoundError: there is no such op or file.
        MissingTool: no compiler for that target; the message says how to get one.
        RuntimeError: target is "cuda", and torch sees no GPU to open the build on.
    """
    with tracebacks.hidden():
        recipe = _recipe(sources, name, target, flags, include, debug)
        if recipe.target == "cuda" and not torch.cuda.is_available():
            raise RuntimeError(
                'target="cuda" needs a GPU, and torch sees none here. Leave target out to run on'
                " the CPU's simulator; `python -m jitload build --target cuda` only compiles"
            )
        with _loading:
            kernel = _kernels.setdefault(replace(recipe, formulas=""), Kernel(recipe))
            kernel.recipe = recipe  # its formulas change when kernels/NAME.py is imported anew
        kernel.reload()
        return kernel


def _arguments_for(recipe: Recipe) -> tuple[list[str], dict[str, Any]]:
    """The sources and options with which `load` gives this recipe, here and on other machines.

    So an op goes by its name, and the default target of this process by none.
    """
    options = {
        "name": recipe.name,
        "target": None if recipe.target == default_target() else recipe.target,
        "flags": recipe.flags,
        "debug": recipe.debug,
    }
    by_name = [recipe.sources[0].stem]
    further = [str(p) for p in recipe.include if not p.is_relative_to(KERNELS)]
    with contextlib.suppress(FileNotFoundError):
        named = _recipe(by_name, include=further, **options)
        if replace(named, formulas=recipe.formulas) == recipe:
            return by_name, {**options, "include": further}
    return list(map(str, recipe.sources)), {**options, "include": list(map(str, recipe.include))}


def _unpickled(sources: list[str], options: dict[str, Any], modules: list[str]) -> Kernel:
    """A kernel that this process has is left as it is; another is loaded, its formulas with it."""
    for module in modules:
        importlib.import_module(module)
    with _loading:
        kernel = _kernels.get(replace(_recipe(sources, **options), formulas=""))
    return kernel if kernel and kernel._build else load(*sources, **options)


@contextlib.contextmanager
def instrumented(opened: Callable[[Build], None]) -> Iterator[None]:
    """Meanwhile every function of every loaded kernel is that of its instrumented build.

    A build is made when its kernel is first called; `opened` is told of it before each call.
    """

    def of(kernel: Kernel, name: str) -> Callable:
        def call(*args: object, **kwargs: object) -> object:
            build = kernel.instrumented()
            opened(build)
            return build.functions[name](*args, **kwargs)

        return call

    kernels = loaded()
    try:
        for kernel in kernels:
            kernel._instead = of
            kernel._redirect()
        yield
    finally:
        for kernel in kernels:
            kernel._instead = None
            kernel._redirect()


def loaded() -> list[Kernel]:
    """The handles of this process: every kernel that `load` has returned."""
    with _loading:
        return [kernel for kernel in _kernels.values() if kernel._build]


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # its name is too long to be one
        return False


def _absolute(path: str | os.PathLike[str]) -> Path:
    return Path(file_in("", str(Path(path).expanduser().absolute())))


def _recipe(
    sources: Iterable[str | os.PathLike[str]],
    name: str | None = None,
    target: str | None = None,
    flags: Iterable[str] = (),
    include: Iterable[str | os.PathLike[str]] = (),
    debug: bool | None = None,
) -> Recipe:
    sources = list(sources)
    if not sources:
        raise TypeError("load() wants the name of an op in kernels/, or the paths of sources")
    for source in map(str, sources):
        if source.startswith("-") and not _is_file(Path(source)):
            raise TypeError(f"{source!r} is no source; flags are given as flags=[{source!r}]")
    formulas = ""
    if len(sources) == 1 and not Path(sources[0]).suffix:
        op = str(sources[0])
        paths = [p for p in (KERNELS / f"{op}.cu", KERNELS / f"{op}.cpp") if _is_file(p)]
        if not paths:
            there = ", ".join(sorted(p.stem for p in KERNELS.glob("*.cu")))
            raise FileNotFoundError(f"no op {op!r} in {KERNELS}; there are: {there or 'none'}")
        formulas = formulas_of(KERNELS / f"{op}.py")
    else:
        paths = list(dict.fromkeys(map(_absolute, sources)))
        for path in paths:
            if not _is_file(path):
                raise FileNotFoundError(f"no source {path}")
            if path.suffix not in (".cu", ".cpp", ".cc", ".cxx"):
                raise ValueError(f"{path}: wanted a .cu or .cpp (headers are found by #include)")
    stem = re.sub(r"\W", "_", name or paths[0].stem, flags=re.ASCII)[:LONGEST_NAME]
    target = machine.checked_target(target, "target") if target else default_target()
    flags = checked_flags(flags, target)
    folders = [*map(_absolute, include), *(p.parent for p in paths), KERNELS / "include"]
    folders += map(_absolute, folders_in(flags, "-I"))  # which the compilers, too, look into last
    for path in (*paths, *folders, KERNELS):
        check_path(path, target)
    if debug is None:
        debug = os.environ.get("JITLOAD_DEBUG", "0") not in ("", "0")
    return Recipe(
        name=stem,
        sources=tuple(paths),
        include=tuple(dict.fromkeys(folders)),
        flags=flags,
        target=target,
        debug=debug,
        formulas=formulas,
    )


# ---------------------------------------------------------------------------------------------
# python -m jitload
# ---------------------------------------------------------------------------------------------


def build(names: list[str], target: str | None = None) -> int:
    """Build ops ahead of their first import, with a line for each; return the exit status."""
    target = machine.checked_target(target, "--target") if target else default_target()
    names = names or sorted(path.stem for path in KERNELS.glob("*.cu"))
    recipes = [_recipe([name], target=target) for name in names]
    if target == "cpu":
        recipes.insert(0, _runtime_recipe())
    global announce
    announce, failed = False, 0
    for number, recipe in enumerate(recipes, 1):
        started = time.perf_counter()
        print(f"[{number}/{len(recipes)}] {recipe.name:20} {target:5}", end="", flush=True)
        try:
            version = _ensure(recipe)
        except (CompileError, MissingTool) as error:
            failed += 1
            print(f"failed\n{error}", flush=True)
        else:
            taken = time.perf_counter() - started
            cached = "" if version.seconds <= taken else "  (cached)"
            print(f"{taken:6.1f} s{cached}", flush=True)
    return 1 if failed else 0


def resources(name: str) -> int:
    """Compile an op for a GPU, which need not be here, and show what its kernels take."""
    from toolchain.resources import Resources, uses

    version = _ensure(_recipe([name], target="cuda"))
    print(Resources(uses(version.log()), threads=256))
    return 0


def doctor() -> int:
    """Say what this machine can build and run, and the remedy for each missing piece.

    Every yes is proved: a small kernel is compiled, opened and run.
    """
    home, gpu = machine.cuda_home(), torch.cuda.is_available()
    ninja = shutil.which("ninja") or shutil.which("ninja", path=sysconfig.get_path("scripts"))
    try:
        compiler, _ = machine.cxx_command()
    except MissingTool:  # said below, where it is tried
        compiler = [machine.cxx()]

    def row(what: str, found: object, remedy: str = "") -> None:
        print(f"{'ok     ' if found else 'missing'}  {what:14} {found or remedy}")

    row("python", platform.python_version())
    row("torch", torch.__version__)
    row(
        "C++ compiler",
        shutil.which(compiler[-1]),
        "Debian: apt install g++; conda: conda install cxx-compiler; macOS: xcode-select --install",
    )
    headers = Path(sysconfig.get_path("include"), "Python.h")
    row(
        "Python.h",
        headers if headers.is_file() else None,
        "wanted by pybind11 bindings alone; Debian: apt install python3-dev",
    )
    row("ninja", ninja, "pip install ninja")
    try:
        row("cache", os.pathsep.join(map(str, Cache.here().folders)))
    except PermissionError as refused:
        row("cache", None, str(refused))
    row("nvcc", home, "pip install nvidia-cuda-nvcc (see README.md), or set CUDA_HOME")
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if gpu else []
    why = "this torch is a CPU build" if torch.version.cuda is None else "check nvidia-smi"
    row("GPU", ", ".join(names), f"none that torch sees ({why}); kernels run on the simulator")
    print()
    default = default_target()
    works = {}
    for target in ("cpu", "cuda"):
        print(f"target {target:5}", end=" ", flush=True)
        builds, runs, error = _tried(target)
        works[target] = runs
        more = f"  architectures: {' '.join(machine.architectures())}" if target == "cuda" else ""
        print(f"builds: {_yes(builds)}  runs: {_yes(runs)}{more if builds else ''}")
        if error:
            print(textwrap.indent(str(error), " " * 13))
    print(f"default      {default}")
    return 0 if works[default] else 1


_TRIAL = """\
#include <cuda_runtime.h>
__global__ void add_one(float* x) { x[threadIdx.x] += 1; }
extern "C" cudaError_t run(float* x, cudaStream_t stream) {
    add_one<<<1, 32, 0, stream>>>(x);
    return cudaGetLastError();
}
"""


def _tried(target: str) -> tuple[bool, bool, object]:
    """Whether a small kernel builds for a target and runs, and what went wrong if it did not."""
    global announce
    before, announce = announce, False
    builds = False
    try:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "add_one.cu")
            source.write_text(_TRIAL)
            elsewhere = Cache(Path(folder))  # where no earlier build could prove anything
            recipe = _recipe([source], target=target)
            try:
                version = _ensure(recipe, lambda recipe, _: Inputs.read(recipe, elsewhere))
            except CompileError as error:  # its log is about to go
                log, error.log = error.log, None
                text = log.read_text()[-2000:] if log and not error.path else ""
                return False, False, f"{error}\n{text}".rstrip()
            builds = True
            if target == "cuda" and not torch.cuda.is_available():
                return builds, False, None
            x = torch.zeros(32, device=target)
            _open(version).functions["run"](x)
            if not bool((x == 1).all()):
                raise RuntimeError(f"a kernel that adds 1 to 0 gave {x.tolist()}")
            return builds, True, None
    except Exception as error:
        return builds, False, error
    finally:
        announce = before


def _yes(value: object) -> str:
    return "yes" if value else "no"


def prune(gigabytes: float = 2.0, days: float = 30.0) -> int:
    """Remove builds unused for `days`, then the longest unused until `gigabytes` are left.

    What a living process has open or builds stays.
    """
    cache = Cache.here()
    kept, freed = cache.prune(gigabytes, days)
    print(f"{cache.own}: kept {kept / 1e6:.1f} MB, freed {freed / 1e6:.1f} MB")
    return 0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m jitload", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    builder = commands.add_parser("build", help=build.__doc__)
    builder.add_argument("names", nargs="*", metavar="NAME", help="ops in kernels/; default: all")
    builder.add_argument("--target", choices=machine.TARGETS)
    shower = commands.add_parser("resources", help=resources.__doc__)
    shower.add_argument("name", metavar="NAME", help="an op in kernels/")
    commands.add_parser("doctor", help=doctor.__doc__)
    pruner = commands.add_parser("prune", help=prune.__doc__.splitlines()[0])
    pruner.add_argument("--gigabytes", type=float, default=2.0)
    pruner.add_argument("--days", type=float, default=30.0)
    options = vars(parser.parse_args(arguments))
    programs = {"build": build, "resources": resources, "doctor": doctor, "prune": prune}
    return programs[options.pop("command")](**options)


if __name__ == "__main__":
    sys.exit(main())
