"""CUDA on the CPU: what it takes to compile a .cu file with a C++ compiler and to run it.

A source goes through `simulator.rewrite` and is compiled with COMPILE_FLAGS and the headers in
INCLUDE, which are named as CUDA's own. RUNTIME, the executor, is compiled once and loaded before
it, with global symbols.
include/simulator/block.h says how a block of CUDA threads runs.
"""

from __future__ import annotations

import platform
import sys
from pathlib import Path

__all__ = ["COMPILE_FLAGS", "INCLUDE", "RUNTIME"]

INCLUDE = Path(__file__).with_name("include")
RUNTIME = Path(__file__).with_name("runtime.cpp")

# CUDA code reads memory as other types than it was written, expects no errno, and has no
# floating-point traps. Of what -O2 does beyond -O1 two things matter: vectors are fast, and a
# product fused with a sum rounds as it does on a GPU. The rest is a third of the compiler's time.
COMPILE_FLAGS = [
    "-O1",
    "-fexpensive-optimizations",  # fuses products with sums
    "-ftree-vectorize",
    *(["-fvect-cost-model=very-cheap"] if sys.platform == "linux" else []),
    "-march=native" if platform.machine() in ("x86_64", "AMD64") else "-mcpu=native",
    "-fno-strict-aliasing",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-Wno-unknown-pragmas",
    *(["-Wl,-undefined,dynamic_lookup"] if sys.platform == "darwin" else []),
]
