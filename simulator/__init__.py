"""CUDA on the CPU: what it takes to compile a .cu file with a C++ compiler and to run it.

A source goes through `simulator.rewrite` and is compiled with `compile_flags` and the headers in
INCLUDE, which are named as CUDA's own. RUNTIME, the executor, is compiled once and loaded before
it, with global symbols. So are those of LIBRARIES whose headers a source includes.
include/simulator/block.h says how a block of CUDA threads runs. With check_flags() a kernel tells
CHECKER, which is loaded like RUNTIME then, of every access it makes; checker/recorder.h says what
comes of that. A build for lab.trace tells TRACER besides, of each line that a thread comes to.
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
# What carries out the functions that a header declares, by that header's name in INCLUDE.
LIBRARIES = {
    "cublas_api.h": _LIBRARIES / "cublas.cpp",
    "curand.h": _LIBRARIES / "curand.cpp",
    "simulator/tensor_cores.h": _LIBRARIES / "tensor_cores.cpp",
}

_IS_X86 = platform.machine() in ("x86_64", "AMD64")

# CUDA code reads memory as other types than it was written, expects no errno, and has no
# floating-point traps. Of what -O2 does beyond -O1 two things matter: vectors are fast, and a
# product fused with a sum rounds as it does on a GPU. The rest is a third of the compiler's time.
_GPPS_OPTIMIZATION = [
    "-O1",
    "-fexpensive-optimizations",  # fuses products with sums
    "-ftree-vectorize",
    "-fvect-cost-model=very-cheap",
]
# What is thread_local, as `__shared__` and threadIdx are, is found by a call that changes two
# registers: kernels that wait for each other take a tenth less. But before version 2.40 of glibc a
# thread's first such call may lose vector registers. Hence not in RUNTIME, which does it for
# kernels (executor/worker.h), nor in files that have such variables of their own.
_GPPS_THREAD_LOCAL = ["-mtls-dialect=gnu2"] if _IS_X86 and sys.platform == "linux" else []
_CLANGS_OPTIMIZATION = [
    "-O2",  # its -O1 inlines too little: kernels take up to twice as long
    "-ffp-contract=fast",
]


def compile_flags(
    clang: bool, sources: Sequence[Path] = (), has_thread_local: bool = False
) -> list[str]:
    """What kernels are compiled with, by clang or by g++, and nearly what the libraries are.

    has_thread_local: whether their files declare something thread_local themselves.
    """
    kernels = {RUNTIME, CHECKER, TRACER, *LIBRARIES.values()}.isdisjoint(sources)
    return [
        *(_CLANGS_OPTIMIZATION if clang else _GPPS_OPTIMIZATION),
        *(["-O2"] if RUNTIME in sources and not clang else []),  # every launch runs it
        # An interrupted kernel says at which line it stood. The libraries have no lines to show,
        # and compile in three quarters of the time without.
        *(["-g1"] if kernels else []),
        "-march=native" if _IS_X86 else "-mcpu=native",
        "-fno-strict-aliasing",
        "-fno-math-errno",
        "-fno-trapping-math",
        "-fno-finite-loops",  # an empty loop without an end hangs, as a reader has to see
        "-fstack-clash-protection",  # so a frame of any size meets the end of its stack
        "-Wno-unknown-pragmas",
        "-Wformat",
        *(_GPPS_THREAD_LOCAL if kernels and not clang and not has_thread_local else []),
        *(["-Wl,-undefined,dynamic_lookup"] if sys.platform == "darwin" else []),
    ]


# Line numbers would triple a library, which is read whole whenever it is opened. And what prints
# looks whether it is to stop: executor/stops.h. A kernel's clock() is executor/clocks.h's.
LINK_FLAGS = [
    "-Wl,--compress-debug-sections=zlib",
    "-Wl,--wrap=printf,--wrap=puts,--wrap=putchar,--wrap=__printf_chk,--wrap=clock",
]
# Of what is no program: what would end the process ends the call alone (executor/process_ends.h).
LIBRARY_LINK_FLAGS = [
    "-Wl,--wrap=exit,--wrap=_exit,--wrap=_Exit,--wrap=quick_exit,--wrap=abort,--wrap=pthread_exit",
    "-Wl,--wrap=raise,--wrap=kill,--wrap=killpg,--wrap=pthread_kill",
]
if sys.platform != "linux":
    LINK_FLAGS = LIBRARY_LINK_FLAGS = []

# A hook before every access, and line numbers. The sanitizer's own runtime is not linked. What the
# source reads or writes as one vector stays one access (no sra), what it does one by one becomes
# no vector, what it reads and does not use is still read (no dce, nor dse and sink, which drop it,
# too), and what it says once is not compiled twice for two ways of getting there (no thread
# jumps). All calls in a kernel are inlined, exported functions too (no interposition), for what a
# call passes by value has no hook. Indices and pointers are compared with the types that the source
# declares: checker/declared_types.h. Launches have a GPU's sizes: what is counted is a GPU's.
_CHECK_FLAGS = [
    "-DSIMULATOR_GPU_SIZES",
    "-D_GLIBCXX_ASSERTIONS",  # an index past the end of the host's std::vector
    "-O1",
    "-g",
    "-fno-var-tracking",  # where locals lie nobody asks: a fifth of the compiler's time
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
_WRAPPED = ("memcpy", "memmove", "memset", "malloc", "free", *_NEW, *_DELETE, _ASSERTION)
CHECK_LINK_FLAGS = [f"-Wl,--wrap={name}" for name in _WRAPPED]


_INSERT_CALLS = Path(__file__).parent / "tracer/insert_calls.sh"
# A call of the tracer at each line, where every variable lies in memory. What a kernel may not be
# without (`__forceinline__` is always_inline) is inlined, and nothing else.
_TRACE_FLAGS = [
    "-O0",
    "-mno-red-zone" if _IS_X86 else "-fno-omit-frame-pointer",
    "-fno-omit-frame-pointer",
    "-gno-statement-frontiers",  # templates have none
    "-gdwarf-4",  # in version 5 insert_calls.sh would have to read the abbreviations, too
    *("-wrapper", f"sh,{_INSERT_CALLS}"),
    f"-DSIMULATOR_TRACE={zlib.crc32(_INSERT_CALLS.read_bytes())}",  # a build is of its script
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
    """What kernels are compiled with for lab.check, or for lab.trace."""
    return [*_CHECK_FLAGS, *(_TRACE_FLAGS if trace else [])]
