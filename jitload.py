"""Compile CUDA kernels when they are imported, cache them, and swap them while you edit.

    import jitload
    kernel = jitload.load("layer_norm")            # kernels/norms/layer_norm.cu and .cpp, by name
    kernel = jitload.load("my.cu", "binding.cpp")  # any sources, by path
    kernel = jitload.load_inline("mine", cuda_sources=CUDA)  # as strings, with PyTorch's arguments
    y, mean, rstd = kernel.forward(x, weight, bias, 1e-5, 0)  # 0: the first of its VERSIONS

The first load compiles (through `torch.utils.cpp_extension.load`); every later one, in any
process, opens the cached library within milliseconds. After an edit, only the changed sources are
compiled, and linked with the objects of the others:

    kernel.reload()             # True: something changed, and kernel.forward is the new build
    kernel.is_current()         # are the files still those of the newest build? About 0.1 ms
    kernel.builds()             # a table of the builds still in the cache, newest first
    kernel.diff(1, 0)           # what the newest edit changed, in sources and headers
    kernel.at(1).forward(x)     # the build before this one, beside the new one
    kernel.sass("forward")      # its machine code for the GPU, line by line; kernel.ptx(): its PTX
    kernel.sass(against=1)      # what the newest edit changed in the machine code
    kernel.resources()          # registers, spills, shared memory and occupancy of its kernels

After an edit of a .cu that leaves its binding unchanged, each kernel and type is compiled on its
own: first those that were called before the edit, then every other one when it is called. The whole
build follows in the background, on an idle processor. For a GPU this holds also for the first build
of a source that instantiates more than a few kernels for a list of types. A kernel that does not
compile raises when it is called; until then a warning tells of it. kernel.sass() and others that
need the whole build wait for it; so does kernel.whole().

`kernel.forward` is one long-lived callable: a function taken from the handle before an edit follows
the edit, and so do copies and pickles of handle and function. A broken edit raises `CompileError`
with your file, line and column, and so does every call until the file changes again: an old build
never runs in place of a broken new one.

Targets. "cuda" compiles with nvcc for the GPUs of this machine; "cpu" compiles the same .cu with
the C++ compiler for the simulator (simulator/), and needs no GPU. The default is cuda where torch
sees a GPU and nvcc is found, else cpu. nvcc is searched for in CUDA_HOME, on PATH, in the
nvidia-cuda-nvcc wheel and in /usr/local/cuda.

Bindings. A .cpp beside the kernels, or a .cu, may bind them in any of these ways. Every build has a
name of its own, for which TORCH_EXTENSION_NAME stands. A fixed name works, too: with
TORCH_LIBRARY(my_ops, m), torch.ops.my_ops.add is the operator of the newest build.

    STABLE_TORCH_LIBRARY(TORCH_EXTENSION_NAME, m)   the stable ABI, 0.7 s to compile: prefer it
    TORCH_LIBRARY(TORCH_EXTENSION_NAME, m)          ATen: the same, several times slower to compile
    PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)        a Python module
    no binding at all                               the .cu's extern "C" functions take tensors

Without a binding, `float*` takes a float32 tensor (likewise for every type; `float4*` one of whole
vectors), numbers are passed as declared, a `cudaStream_t` is the current stream, and a returned
cudaError_t other than 0 raises. A function with other parameters is left out; using it raises an
error that says why. Kernels without a launcher are launched from Python, with a grid and a block in
brackets:

    kernel.add[(n + 255) // 256, 256](x, y, n)       # of __global__ void add(float* x, ...)
    kernel.add[grid, block, stream, shared](x, y, n)  # shared: bytes of dynamic shared memory

Programs. A file with a main(), such as a sample, is compiled and run in a process of its own:

    python -m jitload run FILE.cu [MORE.cu .cpp] [-I.. -D..] [-- ARGUMENTS]     in a shell
    %%cu --run [ARGUMENTS]                                                     above a cell
    jitload.Program("FILE.cu").run(["ARGUMENT"])                               in Python

Extensions written for CUDA run on "cpu" unchanged: is_cuda() is true for CPU tensors, kCUDA means
the CPU, and a CUDA implementation runs in place of a CPU one, as `kernel.notes` says. nvcc's flags
are used where they have a meaning for the C++ compiler; `kernel.notes` names the others.

Formulas. `kernel.register_fake(name)` and `kernel.register_autograd(name, backward, ...)` work as
`torch.library`'s do, and are replayed for every new build; the gradient works under torch.func too.
Where the gradient is a call of another function, give it as text:
`kernel.register_autograd("forward", "x, weight = backward(grad, x, weight)")`. That takes less of
the host's time, because no Python runs: it is C++, compiled once for a version of PyTorch. A graph
keeps the build and the formulas that it began with: in its backward pass `kernel.backward` is that
build's, whatever was edited since. A torch.autograd.Function of your own has to keep its build:
`ctx.build = kernel.at()` in its forward pass, then `ctx.build.backward(...)` in backward.
`kernel.register_autocast(name)` lets an op take mixed types inside torch.autocast: they are cast to
the widest, or with policy="lower_precision_fp" to autocast's type, as PyTorch casts the arguments
of matrix products. Register all of these before the op is first used.

What decides a build. The digest in its name covers the sources, every header they include or test
for, flags, target and architecture, the compilers and what they read from the environment (such as
CPATH), torch and Python, and the formulas in kernels/NAME.py. The compiler's depfile says which
headers were included. So an edit of a header is noticed, two builds never share a name, and a
cached library is never stale.

Errors. A traceback shows your frames and hides those of the loader, the lab and the ops: in
notebooks, and in plain Python by sys.excepthook (python -X dev shows all). A stopped build says so
in one line.

Progress. `jitload.listen(function)` calls the function with a `BuildEvent` when a build begins, and
four times a second. Builds then print no line; nor do they after `announce(False)`.
`jitload.ensure("layer_norm")` builds as `load` does, but opens nothing: for a GPU of another
machine, or ahead of time.

Settings, from the environment:

    JITLOAD_CACHE          where builds are kept            (default: the user's cache folder);
                           further folders after a colon are only read; a relative path starts at
                           the folder in which the process imported jitload
    JITLOAD_TARGET         cuda or cpu                      (default: as above)
    JITLOAD_DEBUG          1 compiles with -O0 -g, and -G for device code
    TORCH_CUDA_ARCH_LIST   "8.0 9.0+PTX", "Ampere;Hopper"   (default: the GPUs present, or 8.0 9.0)
    CUDA_HOME, CXX         which CUDA toolkit and which C++ compiler: g++, or clang 16 and later

From the shell: `python -m jitload build [NAME...]`, `python -m jitload run FILE.cu`,
`python -m jitload resources NAME`, `python -m jitload sass NAME`, `python -m jitload ptx NAME`,
`python -m jitload ship NAME --to FOLDER`, `python -m jitload doctor`, `python -m jitload prune`.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

import playground_folder
from jitloader import tracebacks
from jitloader.arguments import KERNELS, op_file, op_files, op_folders, recipe_of
from jitloader.builds import Build, Builds, Diff
from jitloader.functions import Function
from jitloader.handle import Kernel, handle_for, instrumented, loaded
from jitloader.opening import OpenBuild
from jitloader.runtime import build_beside as build_simulator_beside
from jitloader.runtime import checker as simulator_checker
from jitloader.runtime import ensure_checker as ensure_simulator_checker
from jitloader.runtime import ensure_with_runtime, simulated_launches, surviving
from jitloader.runtime import library as simulator_runtime
from jitloader.runtime import tracer as simulator_tracer
from jitloader.tracebacks import in_one_line
from simulator import INCLUDE as CUDA_HEADERS
from toolchain.errors import CompileError, MissingTool
from toolchain.machine import cuda_home, default_target, device
from toolchain.sources import binding_of, label

if TYPE_CHECKING:
    from jitloader.events import BuildEvent, announce, listen, listeners, unlisten
    from jitloader.inline import load_inline
    from jitloader.programs import Program

__all__ = [
    "Build",
    "BuildEvent",
    "Builds",
    "CompileError",
    "Diff",
    "Kernel",
    "MissingTool",
    "Program",
    "announce",
    "default_target",
    "device",
    "ensure",
    "listen",
    "listeners",
    "load",
    "load_inline",
    "loaded",
    "unlisten",
]

# Other names are for the project's ops and instruments, which import nothing below jitload.
_LATER = {  # imported on first use: a warm load does not need them
    "Launch": "jitloader.cfunctions",
    "Program": "jitloader.programs",
    "BuildEvent": "jitloader.events",
    "announce": "jitloader.events",
    "listen": "jitloader.events",
    "listeners": "jitloader.events",
    "unlisten": "jitloader.events",
    "ProgramLine": "jitloader.programs",
    "has_main": "jitloader.programs",
    "blank": "simulator.scan",
    "declared": "simulator.scan",
    "closing": "simulator.scan",
    "without_comments": "simulator.scan",
    "load_inline": "jitloader.inline",
    "saved_for": "jitloader.derivatives",
    "device_hint": "jitloader.tracebacks",
    "recording_wanted": "jitloader.cfunctions",
    "AUTOCAST_POLICIES": "jitloader.autocast",
    "register_autocast": "jitloader.autocast",
    "register_gradient": "jitloader.gradients",
    "doctor": "jitloader.commands",
    "doctors_row": "jitloader.commands",
    "main": "jitloader.commands",
    "require_main": "jitloader.programs",
    "Parameter": "toolchain.signatures",
    "environment": "jitloader.children",
    "is_for_editing": "playground_folder.place",
    "readings": "jitloader.building",
    "Shipped": "toolchain.shipped",
    "shipped_sources": "jitloader.shipping",
    "STREAM": "toolchain.signatures",
    "definitions": "toolchain.launchers",
    "linked": "toolchain.links",
    "Instruction": "toolchain.instructions",
    "LIMITS": "toolchain.resources",
    "SHARED_OF_A_BLOCK": "toolchain.resources",
    "Use": "toolchain.resources",
    "plain_names": "toolchain.resources",
    "uses": "toolchain.resources",
    "running_variant": "jitloader.variants",
    "shapes_of_calls": "jitloader.shapes",
    "ShapeClass": "toolchain.tuning",
    "variant_of": "jitloader.variants",
    "this_gpu": "toolchain.tuning",
    "tunables": "toolchain.tuning",
    "tuning_table": "toolchain.tuning",
    "with_section": "toolchain.tuning",
}


playground_folder.install()  # a clone has not installed it yet


def load(
    *sources: str | os.PathLike[str],
    name: str | None = None,
    target: str | None = None,
    flags: Iterable[str] = (),
    include: Iterable[str | os.PathLike[str]] = (),
    debug: bool | None = None,
) -> Kernel:
    """Compile kernels, or take them from the cache, and open them.

    Args:
        sources: the name of an op in kernels/ ("layer_norm"), or the paths of one or more .cu and
            .cpp files.
        name: what to call the kernel; by default its first source's name.
        target: "cuda" or "cpu"; by default `default_target()`.
        flags: for the compilers, one argument each, as in ["-DROWS=4", "-DT=unsigned int"].
        include: folders of headers, besides the sources' own and kernels/include.
        debug: compile with -O0 -g (and -G); by default as JITLOAD_DEBUG says.

    Returns:
        The kernel's handle. The same sources, target and flags give the same handle, reloaded.

    Raises:
        CompileError: the sources do not compile.
        FileNotFoundError: there is no such op or file.
        MissingTool: no compiler for that target; the message says how to get one.
        RuntimeError: target is "cuda", and torch sees no GPU to open the build on.
    """
    with tracebacks.hidden():
        return handle_for(recipe_of(sources, name, target, flags, include, debug))


def ensure(
    *sources: str | os.PathLike[str],
    name: str | None = None,
    target: str | None = None,
    flags: Iterable[str] = (),
    include: Iterable[str | os.PathLike[str]] = (),
    debug: bool | None = None,
) -> Build:
    """Compile kernels, or find them in the cache, without opening them. The target may be one of
    another machine. For the CPU the simulator's runtime is built as well.

    Args: as of `load`.

    Returns:
        The build. `load` with the same arguments opens it.

    Raises:
        CompileError, FileNotFoundError, MissingTool: as `load` does.
    """
    with tracebacks.hidden():
        return ensure_with_runtime(recipe_of(sources, name, target, flags, include, debug))


def __getattr__(name: str) -> object:
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    raise AttributeError(f"module 'jitload' has no attribute {name!r}")


if __name__ == "__main__":
    from jitloader.commands import main

    exit_status = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_status)  # an orderly exit of torch takes longer than Ctrl-C should
