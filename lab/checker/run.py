"""See what a kernel does, line by line, without a GPU.

    report = lab.check(kernel.forward, x, weight, bias, 1e-5)   # or kernels.layer_norm.layer_norm
    report                  # what is wrong, and what each line costs: text, or HTML in a notebook
    report.findings         # the same as pandas DataFrames
    report.traffic
    report.plot_lanes(42)   # which lane of a warp touches which sector, at line 42
    report.plot_bytes()     # bytes moved against each byte once

The kernel is compiled once more with a hook before every access to memory, and runs on the CPU's
simulator, block after block, on copies of the tensors: whatever it does, nothing here is harmed.

Findings: races, accesses outside of every tensor and shared array, reads of memory that nobody has
written, outputs that nobody has written, misaligned vectors, barriers that threads of a block reach
at different lines, deadlocks, shuffles from lanes that take no part, launches that CUDA refuses or
that a kernel's __launch_bounds__ do not allow.

Traffic is counted as the hardware does: what the lanes of a warp ask for at one instruction is one
request; global memory moves sectors of 32 bytes, shared memory serves 32 banks of 4 bytes at once.
"""

from __future__ import annotations

import ctypes
import inspect
import json
import re
import sys
import threading
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
MOST = 1 << 40  # seconds, or threads


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

    function: of a loaded kernel (`kernel.forward`), or any Python function that calls some.
    args, kwargs: tensors are copied to the CPU; the caller's own stay as they are. Those that the
        function captures (a module's parameters, a closure's variables) are used themselves, and
        within their bounds the call may write to them.
    thread_order: in which threads and blocks run: 0 is ascending, others are shuffles.
    sample_threads: of a larger launch, only the blocks of about so many threads are recorded in
        full: neighbours, spread evenly, the first and the last among them; the others are kept
        within bounds. By default all are recorded of up to a million threads that make 16 accesses
        each, or fewer that make more; of a larger launch some 2^17, or 2^15 of those that make many
        accesses.
    traffic: False looks for errors alone, in less time.
    seconds: that the kernels may take in all. When they are over the report says where each thread
        stood, and what was found until then.

    Raises:
        CompileError: the kernel does not compile.
        Exception: what the function raised, unless a kernel was to blame for it.
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
    """Checks the call on builds for lab.trace: `traced` is told of each."""
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
    """As `check`, of a call with its arguments; `what` is its name in the report.

    watching: has instrumented builds run meanwhile, and tells a function of each.
    processors: of a GPU, which kernels are told; what its caches would answer is counted for each
        launch, too. skips: blocks that are not recorded in full do not run.
    device_tensors: the arguments stand for a GPU's tensors: the host's code may not touch them.
    traced: the builds are for lab.trace, and it is told of each, too.
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
        raise raised  # not of the kernels' making
    if not builds:
        raise RuntimeError(f"{what} called no kernel that jitload has loaded: nothing to check")
    return report


def _positive(name: str, value: object) -> float:
    """A number that was given as an option; larger ones than MOST stand for it."""
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
    """The recorder's report, the builds that ran, what the call raised, and its tensors' layouts.

    options: as of simulator_check_begin and, where there are processors, simulator_check_reuse.
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
    checker.simulator_check_variable.argtypes = [text, size, size, yes, yes, text, text]
    checker.simulator_check_kernel.argtypes = [text, size, text]
    checker.simulator_check_tensor.argtypes = [place, size, size, text, place]
    checker.simulator_check_name.argtypes = [place, text, yes]
    checker.simulator_check_end.restype = text
    return checker


_MEMORY = Path(__file__).with_name("check_memory.cpp")


def prepare() -> None:
    """Compile what every check loads besides its kernels, where the cache has none."""
    jitload.ensure_simulator_checker()
    jitload.ensure(_MEMORY, target="cpu")


@cache
def _memory() -> jitload.Kernel:
    """Of the lab's own: `jitload.loaded` does not name it, and nobody rebuilds it."""
    jitload.simulator_checker()
    kernel = jitload.Kernel(jitload.recipe_of([_MEMORY], target="cpu"))
    kernel.reload()
    return kernel


# The name before the parameters of a kernel that is defined: __launch_bounds__ and macros of one's
# own may stand before it with parentheses, too, and the former behind it.
_IN_PARENTHESES = r"\((?:[^;{}()]|\([^;{}()]*\))*\)"
_KERNEL = re.compile(
    rf"\b__global__\b[^;{{]*?\b(?!__)(\w+)\s*{_IN_PARENTHESES}(?:\s*__\w+\s*{_IN_PARENTHESES})*\s*\{{"
)


@cache
def _tell_symbols(checker: ctypes.CDLL, build: jitload.Build) -> None:
    """Where a build's kernels, shared arrays and device variables lie, and who declares those."""
    folder = build.folder / "sources"
    text = jitload.blank("\n".join(f.read_text(errors="replace") for f in folder.iterdir()))
    kernels = set(_KERNEL.findall(text))
    library = str(build.library).encode()
    for function in symbols.functions(str(build.library)):
        if function.name.partition("<")[0].rpartition(":")[2] in kernels:
            checker.simulator_check_kernel(library, function.offset, function.name.encode())
    for name, *where in symbols.variables(str(build.library)):
        if name == "simulator::static_shared":  # it stands for the others' addresses, and is empty
            continue
        *_, owner, own_name = ["", *re.sub(r"<.*>|\[.*?\]", "", name).split("::")]
        owner = owner.rpartition(" ")[2].partition("(")[0]
        # The compiler's and the C library's own: `guard variable for k()::tile`, `completed.0`.
        if name.startswith("guard variable") or re.search(r"^__|\.", own_name):
            owner = own_name = ""
        known = owner in kernels, owner.encode(), own_name.encode()
        checker.simulator_check_variable(library, *where, *known)


def _copied(args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """The arguments with copies for tensors; those that share memory still do."""
    storages: dict[int, torch.UntypedStorage] = {}

    def copy(value: object) -> object:
        if not isinstance(value, torch.Tensor):
            return value
        original = value.untyped_storage()
        if original.data_ptr() not in storages:
            bytes_ = torch.empty(original.nbytes(), dtype=torch.uint8)  # by the watched allocator
            storages[original.data_ptr()] = bytes_.untyped_storage().copy_(original)
        storage = storages[original.data_ptr()]
        new = torch.empty(0, dtype=value.dtype)
        new.set_(storage, value.storage_offset(), value.shape, value.stride())
        return new.requires_grad_(value.requires_grad)

    return tree_map(copy, (args, kwargs))


def _here(tensors: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
    """Those with elements in the CPU's memory."""
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
    """The tensors in a value: itself, or the members of a tuple."""
    leaves, _ = tree_flatten(value)
    for i, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor) and leaf.numel():
            yield (name if len(leaves) == 1 else f"{name}[{i}]"), leaf


def _regions(tensors: Iterable[tuple[str, torch.Tensor]]) -> list[tuple[str, int, int]]:
    """Name, address and bytes of what the tensors cover, in the tensors' order.

    Views that overlap are one region.
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
