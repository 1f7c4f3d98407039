"""CUDA on the CPU: compiles a .cu file with a C++ compiler, and runs it.

A source goes through `simulator.rewrite` and is compiled with `compile_flags` and the headers in
INCLUDE, which are named as CUDA's own. RUNTIME, the executor, is compiled once and loaded before
it, with global symbols. So are those of LIBRARIES whose headers a source includes.
include/simulator/block.h says how a block of CUDA threads runs. A kernel compiled with
check_flags() reports every access to CHECKER, which is then loaded like RUNTIME; see
checker/recorder.h. A build for lab.trace also reports each line that a thread reaches to TRACER.
"""

from __future__ import annotations

import platform
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path

__all__ = [
    "CHECKER",
    "CHECK_LINK_FLAGS",
    "GDB_COMMANDS",
    "INCLUDE",
    "LIBRARIES",
    "LIBRARY_LINK_FLAGS",
    "LINK_FLAGS",
    "RUNTIME",
    "TRACER",
    "TRACE_LINK_FLAGS",
    "check_flags",
    "compile_flags",
]

INCLUDE = Path(__file__).with_name("include")
RUNTIME = Path(__file__).with_name("runtime.cpp")
CHECKER = Path(__file__).with_name("checker.cpp")
GDB_COMMANDS = Path(__file__).with_name("gdb_commands.py")  # for `python -m jitload debug`
TRACER = Path(__file__).with_name("tracer.cpp")
_LIBRARIES = Path(__file__).with_name("libraries")
# The source that implements a header's functions, by the header's name in INCLUDE.
LIBRARIES = {
    "cublas_api.h": _LIBRARIES / "cublas.cpp",
    "curand.h": _LIBRARIES / "curand.cpp",
    "simulator/tensor_cores.h": _LIBRARIES / "tensor_cores.cpp",
}

_IS_X86 = platform.machine() in ("x86_64", "AMD64")

# CUDA code reads memory as other types than it was written, expects no errno, and has no
# floating-point traps. Two optimizations of -O2 matter beyond -O1: vectorization, and fused
# multiply-adds, which round as on a GPU. The others take a third of the compiler's time.
_GPPS_OPTIMIZATION = [
    "-O1",
    "-fexpensive-optimizations",  # fuses products with sums
    "-ftree-vectorize",
    "-fvect-cost-model=very-cheap",
]
# gnu2: the call that finds a thread_local variable, such as `__shared__` and threadIdx, clobbers
# only two registers; kernels that wait for each other take a tenth less. Before glibc 2.40 a
# thread's first such call may lose vector registers. RUNTIME makes that call for kernels
# (executor/worker.h), so it is built without, as are files with own thread_local variables.
_GPPS_THREAD_LOCAL = ["-mtls-dialect=gnu2"] if _IS_X86 and sys.platform == "linux" else []
_CLANGS_OPTIMIZATION = [
    "-O2",  # its -O1 inlines too little: kernels take up to twice as long
    "-ffp-contract=fast",
]


def compile_flags(
    clang: bool, sources: Sequence[Path] = (), has_thread_local: bool = False
) -> list[str]:
    """The flags for kernels, for clang or g++; the libraries have nearly the same.

    has_thread_local: whether their files declare something thread_local themselves.
    """
    kernels = {RUNTIME, CHECKER, TRACER, *LIBRARIES.values()}.isdisjoint(sources)
    return [
        *(_CLANGS_OPTIMIZATION if clang else _GPPS_OPTIMIZATION),
        *(["-O2"] if RUNTIME in sources and not clang else []),  # every launch runs it
        # Line numbers, because an interrupted kernel says at which line it was. The libraries have
        # no lines to show, and compile in three quarters of the time without them.
        *(["-g1"] if kernels else []),
        "-march=native" if _IS_X86 else "-mcpu=native",
        "-fno-strict-aliasing",
        "-fno-math-errno",
        "-fno-trapping-math",
        "-fno-finite-loops",  # an empty endless loop has to hang, so that a reader sees it
        "-fstack-clash-protection",  # so a frame of any size meets the end of its stack
        *(["-fstack-protector-strong"] if kernels else []),  # executor/process_ends.h tells of it
        "-Wno-unknown-pragmas",
        "-Wformat",
        *(_GPPS_THREAD_LOCAL if kernels and not clang and not has_thread_local else []),
        *(["-Wl,-undefined,dynamic_lookup"] if sys.platform == "darwin" else []),
    ]


# Compressed: line numbers would triple a library, which is read whole whenever it is opened.
# Printing functions check whether the kernel has to stop: executor/stops.h. clock(): clocks.h.
LINK_FLAGS = [
    "-Wl,--compress-debug-sections=zlib",
    "-Wl,--wrap=printf,--wrap=puts,--wrap=putchar,--wrap=__printf_chk,--wrap=clock",
    "-Wl,--wrap=__stack_chk_fail",
]
# In a library, a function that would end the process ends only the call (executor/process_ends.h).
LIBRARY_LINK_FLAGS = [
    "-Wl,--wrap=exit,--wrap=_exit,--wrap=_Exit,--wrap=quick_exit,--wrap=abort,--wrap=pthread_exit",
    "-Wl,--wrap=raise,--wrap=kill,--wrap=killpg,--wrap=pthread_kill",
]
if sys.platform != "linux":
    LINK_FLAGS = LIBRARY_LINK_FLAGS = []

# A hook before every access, and line numbers. The sanitizer's own runtime is not linked. A vector
# access stays one access (no sra); scalar accesses are not vectorized; unused reads are kept (no
# dce, dse or sink); and a statement is not compiled twice for two paths that lead to it (no thread
# jumps). All calls in a kernel are inlined, also of exported functions (no interposition), because
# arguments passed by value have no hook. Indices and pointers are compared with the types that the
# source declares: checker/declared_types.h. Launches have a GPU's sizes, because a GPU's accesses
# are what is counted.
_CHECK_FLAGS = [
    "-DSIMULATOR_GPU_SIZES",
    "-D_GLIBCXX_ASSERTIONS",  # an index past the end of the host's std::vector
    "-O1",
    "-g",
    "-fno-var-tracking",  # locals' places are not needed: a fifth of the compiler's time
    "-fno-tree-sra",
    "-fno-tree-dce",
    "-fno-tree-dse",
    "-fno-tree-sink",
    "-fno-tree-vectorize",
    "-fno-thread-jumps",
    "-fno-semantic-interposition",
    "-fno-plt",
    "-fsanitize=thread,bounds,alignment,object-size",
    "--param=tsan-instrument-func-entry-exit=0",
    "--param=tsan-distinguish-volatile=1",
]
_NEW, _DELETE = ("_Znwm", "_Znam"), ("_ZdlPv", "_ZdlPvm", "_ZdaPv", "_ZdaPvm")
_ASSERTION = "_ZSt21__glibcxx_assert_failPKciS0_S0_"
_WRAPPED = ("memcpy", "memmove", "memset", "malloc", "calloc", "realloc", "free")
_WRAPPED += (*_NEW, *_DELETE, _ASSERTION)
CHECK_LINK_FLAGS = [f"-Wl,--wrap={name}" for name in _WRAPPED]


_INSERT_CALLS = Path(__file__).parent / "tracer/insert_calls.sh"
# A call of the tracer at each line, with every variable in memory. Only functions that must be
# inlined (`__forceinline__` is always_inline) are.
_TRACE_FLAGS = [
    "-O0",
    "-mno-red-zone" if _IS_X86 else "-fno-omit-frame-pointer",
    "-fno-omit-frame-pointer",
    "-gno-statement-frontiers",  # templates have none
    "-gdwarf-4",  # in version 5 insert_calls.sh would have to read the abbreviations, too
    *("-wrapper", f"sh,{_INSERT_CALLS}"),
    f"-DSIMULATOR_TRACE={zlib.crc32(_INSERT_CALLS.read_bytes())}",  # a new script: a new build
]
_ACCESSES = ["read", "write", "unaligned_read", "unaligned_write"]
_ACCESSES += ["volatile_read", "volatile_write", "unaligned_volatile_read"]
_ACCESSES += ["unaligned_volatile_write"]
_UPDATES = ["exchange", "compare_exchange_strong", "compare_exchange_weak"]
_UPDATES += [f"fetch_{name}" for name in ("add", "sub", "and", "or", "xor")]
_TRACED = ["read_range", "write_range"]
_TRACED += [f"{name}{size}" for name in _ACCESSES for size in (1, 2, 4, 8, 16)]
_TRACED += [f"atomic{bits}_{name}" for name in _UPDATES for bits in (8, 16, 32, 64)]
TRACE_LINK_FLAGS = [f"-Wl,--wrap=__tsan_{name}" for name in _TRACED]


def check_flags(trace: bool = False) -> list[str]:
    """The compiler flags of kernels for lab.check, or for lab.trace."""
    return [*_CHECK_FLAGS, *(_TRACE_FLAGS if trace else [])]
