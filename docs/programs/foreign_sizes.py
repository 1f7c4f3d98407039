"""Strangers' programs whose own size would take hours here, and the numbers that make them smaller.

The code is theirs; a number in it is another, or an argument. The table says so of each.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Smaller:
    """What is other than in the source.

    Attributes:
        source: the folder's name.
        files: a pattern of the names of cases in it.
        numbers: texts of the source, and what is compiled in their place.
        flags: for the compiler.
        arguments: in place of none.
    """

    source: str
    files: str
    numbers: dict[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()

    @property
    def said(self) -> str:
        """As the table has it."""
        numbers = [f"{new} for {old}" for old, new in self.numbers.items()]
        return f"smaller, {', '.join([*numbers, *self.flags, *self.arguments])}"

    def copies(self, paths: Iterable[Path], root: Path, folder: Path) -> dict[Path, Path]:
        """Write those of a case's files that become others, and what is beside them in `paths`,
        into a folder of the same shape: by path, the copy of each."""
        made, left = {}, set(self.numbers)
        for path in paths:
            text = path.read_text(errors="replace")
            found = [old for old in self.numbers if old in text]
            left.difference_update(found)
            for old in found:
                text = text.replace(old, self.numbers[old])
            made[path] = folder / path.resolve().relative_to(root.resolve())
            made[path].parent.mkdir(parents=True, exist_ok=True)
            made[path].write_text(text)
        if left:
            raise ValueError(f"{self.source} has no {', '.join(left)} any more")
        return made


def smaller_of(source: str, name: str) -> Smaller | None:
    """How a case is made smaller, if it is."""
    fitting = (each for each in SMALLER if each.source == source and re.fullmatch(each.files, name))
    return next(fitting, None)


_ONCE = {"NUM_ITERS = 50": "NUM_ITERS = 1"}
_SAMPLES = "Samples/3_CUDA_Features"

SMALLER = [
    Smaller("SGEMM_CUDA", "sgemm", {"{128, 256, 512, 1024, 2048, 4096}": "{128, 256}"}),
    Smaller(
        "cuda-samples",
        rf"{_SAMPLES}/(bf16|tf32)TensorCoreGemm",
        {"_TILES 512": "_TILES 32"},
        flags=("-DCPU_DEBUG=1",),
    ),
    Smaller(
        "cuda-samples",
        rf"{_SAMPLES}/(cuda|imma)TensorCoreGemm",
        {"_TILES 256": "_TILES 32"},
        flags=("-DCPU_DEBUG=1",),
    ),
    Smaller(
        "cuda-samples",
        rf"{_SAMPLES}/dmmaTensorCoreGemm",
        {"_TILES 1024": "_TILES 64"},
        flags=("-DCPU_DEBUG=1",),
    ),
    Smaller(
        "cuda-samples",
        rf"{_SAMPLES}/globalToShmemAsyncCopy",
        {"int nIter = 100": "int nIter = 1"},
        arguments=("wA=256", "hA=256", "wB=256", "hB=256"),
    ),
    Smaller("code-samples", r"posts/tensor-cores/simpleTensorCoreGEMM\.cu", {"16384": "256"}),
    Smaller("wmma_tensorcore_sample", r"\w+/\w+/(main|kernel)\.cu", {"_TILES 256": "_TILES 16"}),
    Smaller(
        "tensorcore_gemm",
        r"\d+_\w+\.cu",
        {"_GLOBAL 4096": "_GLOBAL 256", "ITER 100": "ITER 1"},
    ),
    Smaller(
        "tensor-core-hgemm",
        r"src/main\.cu",
        {"{1024, 2048, 4096, 8192, 16384}": "{256}"},
    ),
    Smaller(
        "cuda-tensorcore-hgemm",
        r"gemm-tc-f16f16-128x256-public/gemm\.cu",
        {"test_num = 64": "test_num = 1", "outer_repeat = 10": "outer_repeat = 1"},
    ),
    Smaller(
        "cutlass",
        r"examples/cute/tutorial/sgemm_sm70\.cu",
        arguments=("256", "256", "128", "T", "N"),
    ),
    Smaller(
        "cutlass",
        r"examples/cute/tutorial/sgemm_[12]\.cu",
        arguments=("256", "256", "128", "N", "T"),
    ),
    Smaller("cuda-tensor-cores", r"src/mma-mul-ld-matrix-optimize\.cu", {"8192": "512"}),
    Smaller(
        "FlashAttention_Kernel_Project",
        r".*/flashattn_fused_wmma_16x16_batched_softmax_warp\.cu",
        {"NUM_ITERS = 1000": "NUM_ITERS = 1"},
    ),
    Smaller(
        "FlashAttention_Kernel_Project",
        r".*/flashattn_fused_wmma_16x16_batched\.cu",
        {"int iters = 1000": "int iters = 1"},
    ),
    Smaller("FlashAttention_Kernel_Project", r".*/flashattn_streaming_16x16_(mw|tcPV)\.cu", _ONCE),
    Smaller(
        "FlashAttention_Kernel_Project",
        r".*/flashattn_streaming_16x16_mw_(v5_warp_specialize|v7_2_dbg_hanghunt|v7_4_2stage)\.cu",
        {"NUM_ITERS=50": "NUM_ITERS=1"},
    ),
]
