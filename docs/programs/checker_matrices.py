"""Matrices of a warp and copies in bulk, with what each costs as worked out by hand.

ldmatrix and stmatrix give 8 lanes for each matrix the address of a row of 16 bytes: 128 bytes,
which the 32 banks of 4 bytes serve in one pass if no two rows are in the same banks. Copies move
sectors of 32 bytes of global memory, whatever lies in between, in pieces of 128 bytes: where the
copy begins within a sector, the sector between two pieces moves for both.
"""

from pathlib import Path
from typing import NamedTuple

import torch

import jitload

SOURCE = Path(__file__).with_name("checker_matrices.cu")
COUNTS = {"one": 1, "two": 2, "four": 4, "transposed": 4}


class MatrixPattern(NamedTuple):
    """A kernel's only matrix instruction, or its only copy.

    cost: passes through the banks of shared memory, or sectors of global memory.
    ideal: as few as would do.
    """

    what: str
    function: str
    numbers: tuple[int, ...]
    cost: int
    ideal: int

    @property
    def access(self) -> str:
        first, _, last = self.function.partition("_")
        if first in ("load", "store"):
            return "ldmatrix" if first == "load" else "stmatrix"
        return f"{last} {first}"

    @property
    def direction(self) -> str:
        return "read" if self.function.startswith(("load", "read")) else "write"

    @property
    def memory(self) -> str:
        return "shared" if self.access.endswith("matrix") else "global"

    @property
    def size(self) -> int:
        """Bytes of each lane; of a copy, none."""
        return 16 if self.memory == "shared" else 0

    @property
    def lanes(self) -> int:
        return 8 * COUNTS[self.function.rpartition("_")[2]] if self.memory == "shared" else 0

    def __str__(self) -> str:
        return f"{self.function}: {self.what}"


def _matrices(function: str) -> list[MatrixPattern]:
    """Passes of one matrix of 8 rows, by the bytes from one row to the next."""
    matrices = COUNTS[function.rpartition("_")[2]]
    cases = [
        ("rows side by side", (16, 0), 1),
        ("rows of 32 bytes: two in the same banks", (32, 0), 2),
        ("rows of 64 bytes: four in the same banks", (64, 0), 4),
        ("rows of 128 bytes: all in the same banks", (128, 0), 8),
        ("rows of 128 bytes and 16 of padding", (144, 0), 1),
        ("rows of 128 bytes, swizzled by 128", (128, 128), 1),
        ("rows of 64 bytes, swizzled by 64", (64, 64), 1),
        ("rows of 32 bytes, swizzled by 32", (32, 32), 1),
        ("rows of 128 bytes, swizzled by 64", (128, 64), 2),
    ]
    return [
        MatrixPattern(what, function, numbers, passes * matrices, matrices)
        for what, numbers, passes in cases
    ]


MATRIX_PATTERNS = [
    *_matrices("load_one"),
    *_matrices("load_two"),
    *_matrices("load_four"),
    *_matrices("load_four_transposed"),
    *_matrices("store_one"),
    *_matrices("store_two"),
    *_matrices("store_four"),
    MatrixPattern("4096 bytes", "read_bulk", (4096, 0), 128, 128),
    MatrixPattern("4096 bytes from byte 16 on", "read_bulk", (4096, 16), 160, 128),
    MatrixPattern("4096 bytes from byte 48 on", "read_bulk", (4096, 48), 160, 128),
    MatrixPattern("4096 bytes from byte 64 on", "read_bulk", (4096, 64), 128, 128),
    MatrixPattern("1024 bytes from byte 16 on", "read_bulk", (1024, 16), 40, 32),
    MatrixPattern("240 bytes from byte 16 on", "read_bulk", (240, 16), 9, 8),
    MatrixPattern("16 bytes", "read_bulk", (16, 0), 1, 1),
    MatrixPattern("4096 bytes", "write_bulk", (4096, 0), 128, 128),
    MatrixPattern("4096 bytes from byte 16 on", "write_bulk", (4096, 16), 160, 128),
    MatrixPattern("4096 bytes from byte 48 on", "write_bulk", (4096, 48), 160, 128),
    MatrixPattern("4096 bytes from byte 64 on", "write_bulk", (4096, 64), 128, 128),
    MatrixPattern("1024 bytes from byte 16 on", "write_bulk", (1024, 16), 40, 32),
    MatrixPattern("32 rows of 128 bytes", "read_tensor", (32, 32, 0, 0), 128, 128),
    MatrixPattern("32 rows of 128 bytes from byte 16 on", "read_tensor", (32, 32, 4, 0), 160, 128),
    MatrixPattern("32 rows of 128 bytes, swizzled", "read_tensor", (32, 32, 0, 128), 128, 128),
    MatrixPattern("64 rows of 64 bytes, swizzled", "read_tensor", (64, 16, 0, 64), 128, 128),
    MatrixPattern("64 rows of 32 bytes, swizzled", "read_tensor", (64, 8, 0, 32), 64, 64),
    MatrixPattern("64 rows of 32 bytes in 2 sectors", "read_tensor", (64, 8, 4, 0), 128, 64),
    MatrixPattern("32 rows, of which half is outside", "read_tensor", (32, 32, 48, 0), 64, 64),
]


def matrix_call(pattern: MatrixPattern, device: str) -> tuple:
    """The function that makes the pattern's request, and arguments for it."""
    y = torch.zeros(4096, device=device)
    x = (torch.zeros(4096, device=device),) if pattern.memory == "global" else ()
    function = getattr(jitload.load(SOURCE), pattern.function)
    return function, *x, y, *pattern.numbers
