"""cuda::ptx from NVIDIA's headers, with its PTX translated for the simulator.

They have 50 000 lines; a build uses only the functions that its sources name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from simulator.architectures import Architecture
from simulator.device_code import Load
from simulator.rewrite import rewrite

_SPOKEN_OF = re.compile(r"\bptx\s*::|\b_CUDA_V(?:PTX|STD)\b")
_USED_PLAINLY = re.compile(r"\busing\s+(?:namespace\s+)?[\w:]*\bptx\b")
_SHUFFLES = "shfl_sync"  # the only ones that are not generated lists of asm statements

# Macros for these headers, as nvcc 13 defines them for an H200, after the headers they include.
_BEFORE = """\
// cuda::ptx, as far as the sources name it.
#pragma once
#include <cuda_runtime.h>
#include <cuda/std/__bit/bit_cast.h>
#include <cuda/std/__type_traits/enable_if.h>
#include <cuda/std/__type_traits/integral_constant.h>
#include <cuda/std/cstddef>
#include <cuda/std/cstdint>
#include <nv/target>
#pragma push_macro("__cccl_ptx_isa")
#pragma push_macro("_CCCL_HAS_CUDA_COMPILER")
#undef __cccl_ptx_isa
#undef _CCCL_HAS_CUDA_COMPILER
#define __cccl_ptx_isa 870ULL
#define _CCCL_HAS_CUDA_COMPILER() 1
"""
_AFTER = """\
#pragma pop_macro("__cccl_ptx_isa")
#pragma pop_macro("_CCCL_HAS_CUDA_COMPILER")
"""


def is_spoken_of(text: str) -> bool:
    """Whether a source uses cuda::ptx, or names of libcu++ that come with it."""
    return _SPOKEN_OF.search(text) is not None


def write(
    folder: Path, texts: Iterable[str], cccl: Path, target: Architecture | None = None
) -> Path:
    """Write <cuda/ptx> for these sources into a new folder of headers, and return it.

    cccl: the folder of NVIDIA's headers. target: as in Load.
    """
    speaking = [text for text in texts if is_spoken_of(text) or _USED_PLAINLY.search(text)]
    header = folder / "cuda/ptx"
    header.parent.mkdir(parents=True)
    text = _text(speaking, cccl / "cuda/__ptx", target) if speaking else "#pragma once\n"
    header.write_text(text)
    return folder


def _text(texts: list[str], ptx: Path, target: Architecture | None) -> str:
    plainly = any(map(_USED_PLAINLY.search, texts))
    name = r"\b[a-z]\w+" if plainly else r"(?<=::)\s*[a-z]\w+"
    named = {word.strip() for text in texts for word in re.findall(name, text)}
    common = [(ptx / f"ptx_{part}.h").read_text() for part in ("dot_variants", "helper_functions")]
    shuffles = (ptx / f"instructions/{_SHUFFLES}.h").read_text()
    has_shuffles = any(word.startswith(_SHUFFLES) for word in named)
    if has_shuffles:
        named.add("get_sreg_laneid")
    lists = (path.read_text() for path in sorted((ptx / "instructions/generated").glob("*.h")))
    wanted = [text for text in lists if not named.isdisjoint(_functions(text))]
    halves = {"cuda_bf16.h": "__nv_bfloat16", "cuda_fp16.h": "__half"}
    parts = [
        _BEFORE,
        *(f"#include <{header}>\n" for header, type_ in halves.items() if type_ in str(wanted)),
        *common,
        "_LIBCUDACXX_BEGIN_NAMESPACE_CUDA_PTX\n",
        *wanted,
        "_LIBCUDACXX_END_NAMESPACE_CUDA_PTX\n",
        *([shuffles] if has_shuffles else []),
        _AFTER,
    ]
    text = "".join(parts).replace("_CCCL_DEVICE", "__device__")
    load = Load.of([text], target=target)
    return rewrite(text, "cuda/ptx", load, of_library=True)


def _functions(text: str) -> set[str]:
    return set(re.findall(r"\bstatic inline [\w:]+ (\w+)\(", text))
