"""See what a kernel does, line by line, without a GPU.

    report = lab.check(kernel.forward, x, weight, bias, 1e-5)   # or kernels.layer_norm.layer_norm
    report                  # what is wrong, and what each line costs: text, or HTML in a notebook
    report.findings         # the same as pandas DataFrames
    report.traffic
    report.plot_lanes(42)   # which lane of a warp touches which sector, at line 42
    report.plot_bytes()     # bytes moved against each byte once

The kernel is recompiled with a hook before every memory access, and runs on the CPU simulator,
block after block, on copies of the tensors: whatever it does, nothing here is harmed.

Findings: races, accesses outside every tensor and shared array, reads of uninitialised memory,
outputs that are never written, misaligned vectors, barriers that threads of a block reach at
different lines, deadlocks, shuffles from inactive lanes, launches that CUDA refuses or that a
kernel's __launch_bounds__ do not allow.

Traffic is counted as the hardware does: the accesses of a warp's lanes at one instruction form one
request; global memory moves sectors of 32 bytes, shared memory serves 32 banks of 4 bytes at once.
"""

from __future__ import annotations

import ctypes
import inspect
import json
import re
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from functools import cache, partial
from math import ceil
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map

import jitload
from lab.checker import symbols
from lab.checker.captured import captured, without_partial
from lab.checker.elements import Layout
from lab.checker.report import Report

SECONDS = 60.0
MOST = 1 << 40  # upper limit for seconds and for threads


def check(
    function: Callable,
    *args: object,
    thread_order: int = 0,
    sample_threads: int | None = None,
    traffic: bool = True,
    seconds: float = SECONDS,
    **kwargs: object,
) -> Report:
    """Call `function(*args, **kwargs)` with instrumented kernels, and report what they do.

    function: of a loaded kernel (`kernel.forward`), or any Python function that calls kernels.
    args, kwargs: tensors are copied to the CPU, so the caller's stay unchanged. Tensors that the
        function captures (a module's parameters, a closure's variables) are used directly, and the
        call may write to them within their bounds.
    thread_order: the order of threads and blocks: 0 is ascending, others are shuffles.
    sample_threads: in a larger launch, only the blocks of about this many threads are recorded in
        full: neighbours, spread evenly, including the first and the last; the others are only kept
        within bounds. By default launches are recorded whole up to a million threads of 16 accesses
        each, or fewer threads of more accesses; larger ones have some 2^17 threads recorded, or
        2^15 if these make many accesses.
    traffic: False looks only for errors, which takes less time.
    seconds: limit for all kernels together. When it is exceeded, the report says where each thread
        stood, and what was found until then.

    Raises:
        CompileError: the kernel does not compile.
        Exception: what the function raised, unless a kernel caused it.
        RuntimeError: no kernel ran, or the machine lacks what the checker needs (Linux, binutils).
    """
    call = without_partial(function, args, kwargs)
    what = getattr(call[0], "__qualname__", None) or type(call[0]).__qualname__
    options = {
        "thread_order": thread_order,
        "sample_threads": sample_threads,
        "seconds": seconds,
    }
    report = checked(what, call, jitload.instrumented, traffic=traffic, **options)
    report.again = again(what, call, **options)
    return report


def again(what: str, call: tuple[Callable, tuple, dict], **options: Any) -> Callable[..., Report]:
    """A function that repeats the check for lab.trace; it calls `traced` with each build."""
    watching = partial(jitload.instrumented, trace=True)
    return partial(checked, what, call, watching, traffic=False, **options)


Watching = Callable[[Callable[[jitload.OpenBuild], None]], AbstractContextManager]


def checked(
    what: str,
    call: tuple[Callable, tuple, dict],
    watching: Watching,
    *,
    thread_order: int = 0,
    sample_threads: int | None = None,
    traffic: bool = True,
    seconds: float = SECONDS,
    processors: int = 0,
    skips: bool = False,
    device_tensors: bool = False,
    traced: Callable[[jitload.Build], None] | None = None,
) -> Report:
    """As `check`, for a call with its arguments; `what` is its name in the report.

    watching: runs instrumented builds meanwhile, and passes each to a function.
    processors: the number of multiprocessors that kernels see; cache reuse is counted for each
        launch, too. skips: blocks that are not recorded in full do not run.
    device_tensors: the arguments stand for GPU tensors: host code may not touch them.
    traced: the builds are for lab.trace; it is called with each, too.
    """
    if sys.platform != "linux":
        raise RuntimeError(f"lab.check runs on Linux; this is {sys.platform}")
    if sample_threads is not None:
        sample_threads = ceil(_positive("sample_threads", sample_threads))
    seconds = _positive("seconds", seconds)
    if not _checking.acquire(blocking=False):
        raise RuntimeError("a check is under way: one at a time")
    try:
        options = (thread_order, sample_threads or 0, traffic, seconds), (skips, processors)
        said, builds, raised, layouts = _run(*call, options, watching, traced, device_tensors)
    finally:
        _checking.release()
    report = Report(what, json.loads(said), builds, raised, thread_order, layouts)
    if raised is not None and list(report.findings["kind"]) == ["raised"]:
        raise raised  # not caused by a kernel
    if not builds:
        raise RuntimeError(f"{what} called no kernel that jitload has loaded: nothing to check")
    return report


def _positive(name: str, value: object) -> float:
    """Check a numeric option; numbers above MOST are replaced by it."""
    if not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ValueError(f"{name}: {value!r}; wanted is a positive number")
    return min(value, MOST)


_checking = threading.Lock()


def _run(
    function: Callable,
    args: tuple,
    kwargs: dict,
    options: tuple[tuple[int, int, bool, float], tuple[bool, int]],
    watching: Watching,
    traced: Callable[[jitload.Build], None] | None,
    device_tensors: bool,
) -> tuple[bytes, list[jitload.Build], Exception | None, dict[str, Layout]]:
    """The recorder's report, the builds that ran, the call's exception, and its tensors' layouts.

    options: those of simulator_check_begin and, with processors, of simulator_check_reuse.
    """
    checker, memory = _checker(), _memory()
    builds: list[jitload.Build] = []
    layouts: dict[str, Layout] = {}

    def told(named: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
        for name, tensor in named:
            layouts.setdefault(name, Layout.of_tensor(tensor))
            yield name, tensor

    def used(opened: jitload.OpenBuild) -> None:
        if opened.build not in builds:
            opened.tell_libraries(opened_library)

    def opened_library(build: jitload.Build) -> None:
        builds.append(build)
        _tell_symbols(checker, build)
        if traced:
            traced(build)

    def names() -> Iterator[tuple[str, torch.Tensor]]:
        return _names(function, args, kwargs, traced is not None)

    result = raised = None
    memory.watch()
    try:
        originals = _regions(names())
        on_cpu = all(leaf.is_cpu for _, leaf in names())
        args, kwargs = _copied(args, kwargs)
        checker.simulator_check_begin(*options[0])
        if options[1][1]:
            checker.simulator_check_reuse(*options[1])
        if device_tensors:
            checker.simulator_check_device_tensors()
        copies = _regions(told(names()))
        for (name, begin, size), (_, original, _) in zip(copies, originals, strict=True):
            same = original if on_cpu else None
            checker.simulator_check_tensor(begin, size, memory.pad(), name.encode(), same)
        for name, begin, size in _regions(told(_here(captured(function)))):
            checker.simulator_check_tensor(begin, size, 0, name.encode(), None)
        with watching(used):
            try:
                result = function(*args, **kwargs)
            except jitload.CompileError:
                raise
            except Exception as error:
                raised = error
        for name, tensor in told(_named("result", result)):
            checker.simulator_check_name(tensor.data_ptr(), name.encode(), True)
    finally:
        said = checker.simulator_check_end()
        memory.unwatch()
    return said, builds, raised, layouts


@cache
def _checker() -> ctypes.CDLL:
    checker = jitload.simulator_checker()
    size, text, place, yes = ctypes.c_size_t, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_bool
    checker.simulator_check_begin.argtypes = [
        *(ctypes.c_uint, ctypes.c_ulong, yes, ctypes.c_double)
    ]
    checker.simulator_check_reuse.argtypes = [yes, ctypes.c_int]
    checker.simulator_check_variable.argtypes = [
        *(text, size, size, yes, yes, text, text, ctypes.c_int)
    ]
    checker.simulator_check_kernel.argtypes = [text, size, text]
    checker.simulator_check_tensor.argtypes = [place, size, size, text, place]
    checker.simulator_check_name.argtypes = [place, text, yes]
    checker.simulator_check_end.restype = text
    return checker


_MEMORY = Path(__file__).with_name("check_memory.cpp")


def prepare() -> None:
    """Compile what every check loads besides its kernels, unless it is cached."""
    jitload.ensure_simulator_checker()
    jitload.ensure(_MEMORY, target="cpu")


@cache
def _memory() -> jitload.Kernel:
    """The lab's own kernel: `jitload.loaded` does not list it, and it is not rebuilt on edits."""
    jitload.simulator_checker()
    kernel = jitload.Kernel(jitload.recipe_of([_MEMORY], target="cpu"))
    kernel.reload()
    return kernel


# The name before the parameters of a kernel definition: __launch_bounds__ and user macros with
# parentheses may precede it, and the former may also follow.
_IN_PARENTHESES = r"\((?:[^;{}()]|\([^;{}()]*\))*\)"
_KERNEL = re.compile(
    rf"\b__global__\b[^;{{]*?\b(?!__)(\w+)\s*{_IN_PARENTHESES}(?:\s*__\w+\s*{_IN_PARENTHESES})*\s*\{{"
)


_DEVICE, _MANAGED = 2, 3  # cudaMemoryType


def device_variables(code: str) -> dict[str, int]:
    """The names of a blanked code's __device__, __constant__ and __managed__ variables, and whose
    memory each is. Constants are left out: the host may have their values, too."""
    found: dict[str, int] = {}
    for qualifier in ("__device__", "__constant__", "__managed__"):
        for it in jitload.declared(code, qualifier):
            said = re.split(r"[;{}]", code[max(0, it.name_at - 400) : it.name_at])[-1]
            if not re.search(r"\b(?:const|constexpr|using|typedef|template)\b", said):
                found[it.name] = _MANAGED if "__managed__" in said else _DEVICE
    return found


@cache
def _tell_symbols(checker: ctypes.CDLL, build: jitload.Build) -> None:
    """Register a build's kernels, shared arrays and device variables: addresses and declarers."""
    folder = build.folder / "sources"
    text = jitload.blank("\n".join(f.read_text(errors="replace") for f in folder.iterdir()))
    kernels = set(_KERNEL.findall(text))
    of_device = device_variables(text)
    library = str(build.library).encode()
    for function in symbols.functions(str(build.library)):
        if function.name.partition("<")[0].rpartition(":")[2] in kernels:
            checker.simulator_check_kernel(library, function.offset, function.name.encode())
    variables = symbols.variables(str(build.library))
    named = Counter(it.name.rpartition("::")[2] for it in variables if not it.thread_local)
    for name, *where in variables:
        if name == "simulator::static_shared":  # the empty symbol for the others' addresses
            continue
        *_, owner, own_name = ["", *re.sub(r"<.*>|\[.*?\]", "", name).split("::")]
        owner = owner.rpartition(" ")[2].partition("(")[0]
        # Symbols of the compiler and the C library: `guard variable for k()::tile`, `completed.0`.
        if name.startswith("guard variable") or re.search(r"^__|\.", own_name):
            owner = own_name = ""
        is_alone = owner not in kernels and named[own_name] == 1  # no variable of the host's, too
        of = of_device.get(own_name, 0) if is_alone else 0
        known = owner in kernels, owner.encode(), own_name.encode(), of
        checker.simulator_check_variable(library, *where, *known)


def _copied(args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """The arguments with copied tensors; tensors that share memory still do."""
    storages: dict[int, torch.UntypedStorage] = {}

    def copy(value: object) -> object:
        if not isinstance(value, torch.Tensor):
            return value
        original = value.untyped_storage()
        if original.data_ptr() not in storages:
            bytes_ = torch.empty(original.nbytes(), dtype=torch.uint8)  # from the watched allocator
            storages[original.data_ptr()] = bytes_.untyped_storage().copy_(original)
        storage = storages[original.data_ptr()]
        new = torch.empty(0, dtype=value.dtype)
        new.set_(storage, value.storage_offset(), value.shape, value.stride())
        return new.requires_grad_(value.requires_grad)

    return tree_map(copy, (args, kwargs))


def _here(tensors: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
    """The non-empty tensors in CPU memory."""
    for name, tensor in tensors:
        if tensor.device.type == "cpu" and tensor.layout == torch.strided and tensor.numel():
            yield name, tensor


def _names(
    function: Callable, args: tuple, kwargs: dict, trace: bool
) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors among the arguments, each with its parameter's name."""
    names = _parameters(function, trace)
    for i, value in enumerate(args):
        yield from _named(names[i] if i < len(names) else f"argument {i + 1}", value)
    for name, value in kwargs.items():
        yield from _named(name, value)


def _parameters(function: Callable, trace: bool) -> list[str]:
    for kernel in jitload.loaded():
        for name, candidate in vars(kernel).items():
            if candidate is function:
                opened = kernel.instrumented(trace)
                if kernel.build.binding == "c":
                    return [parameter.name for parameter in opened.functions[name].wanted]
                if packet := getattr(getattr(torch.ops, opened.build.name), name, None):
                    schema = getattr(packet, packet.overloads()[0])._schema
                    return [argument.name for argument in schema.arguments]
    if isinstance(function, torch.nn.Module):
        function = function.forward
    try:
        parameters = inspect.signature(function).parameters.values()
        return [it.name for it in parameters if it.kind not in (it.VAR_POSITIONAL, it.VAR_KEYWORD)]
    except (TypeError, ValueError):
        return []


def _named(name: str, value: object) -> Iterator[tuple[str, torch.Tensor]]:
    """The tensors in a value: the value itself, or a tuple's members."""
    leaves, _ = tree_flatten(value)
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor) and leaf.numel():
            yield (name if len(leaves) == 1 else f"{name}[{i}]"), leaf


def _regions(tensors: Iterable[tuple[str, torch.Tensor]]) -> list[tuple[str, int, int]]:
    """Name, address and bytes of the memory that the tensors cover, in their order.

    Overlapping views form one region.
    """
    regions: list[list[Any]] = []
    by_address = sorted(enumerate(tensors), key=lambda item: item[1][1].data_ptr())
    for place, (name, tensor) in by_address:
        begin = tensor.data_ptr()
        last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
        end = begin + (last + 1) * tensor.element_size()
        if regions and begin < regions[-1][3]:
            regions[-1][0] = min(place, regions[-1][0])
            regions[-1][1] += f", {name}"
            regions[-1][3] = max(end, regions[-1][3])
        else:
            regions.append([place, name, begin, end])
    return [(name, begin, end - begin) for _, name, begin, end in sorted(regions)]
