"""Access patterns of one warp, with what each costs as worked out by hand.

Lanes whose atomics change one address take turns there.

A lane touches element (stride * lane + offset) % modulus. A sector of global memory has 32 bytes,
8 floats. Shared memory has 32 banks of 4 bytes and serves 128 bytes in a pass: 4 bytes of each lane
of the warp, 8 of each lane of a half, 16 of each lane of a quarter.
"""

from pathlib import Path
from typing import NamedTuple

import torch

import jitload

SOURCE = Path(__file__).with_name("checker_patterns.cu")
ALL = 1 << 20  # a modulus that changes nothing


# What a kind of atomic on shared memory costs for each of SHARED_INDICES: requests, passes, and the
# passes were there no conflicts.
NATIVE = [(1, 1, 1), (1, 32, 1), (1, 4, 1), (1, 2, 1), (1, 16, 1), (1, 32, 1)]
COUNT = [(1, 1, 1), (1, 1, 1), (1, 1, 1), (1, 2, 1), (1, 2, 1), (1, 32, 1)]
CAS = [(1, 2, 2), (1, 64, 33), (1, 8, 5), (1, 4, 3), (1, 32, 17), (1, 64, 33)]
LOOP = [(1, 2, 2), (32, 64, 64), (4, 8, 8), (2, 4, 4), (16, 32, 32), (32, 64, 64)]
LONG_LOOP = [(1, 4, 4), (32, 96, 96), (4, 12, 12), (2, 8, 8), (17, 66, 66), (16, 64, 64)]
SHARED_INDICES = [
    ("neighbours", (1, ALL)),
    ("one for all", (0, ALL)),
    ("4 at each of 8", (1, 8)),
    ("every second", (2, ALL)),
    ("8 at each of 4, all in one bank or two", (16, 64)),
    ("a column of a tile 32 wide", (32, ALL)),
]
SHARED_ATOMICS = {
    "add_shared_ints": NATIVE,
    "fetch_shared_ints": NATIVE,
    "count_shared_ints": COUNT,
    "swap_shared_ints": NATIVE,
    "cas_shared_ints": CAS,
    "add_shared_floats": LOOP,
    "fetch_shared_floats": LOOP,
    "add_shared_longs": LONG_LOOP,
    "add_shared_doubles": LONG_LOOP,
}


class Pattern(NamedTuple):
    """A kernel's only access of a kind.

    cost: sectors of global memory, or passes through the banks of shared memory.
    ideal: as few as hold the same bytes, or pass them on where no banks conflict.
    requests: more than one where the access is a loop.
    """

    what: str
    function: str
    numbers: tuple[int, ...]
    cost: int
    ideal: int
    requests: int = 1

    @property
    def memory(self) -> str:
        return "shared" if "shared" in self.function else "global"

    @property
    def access(self) -> str:
        word = self.function.partition("_")[0]
        return word if word in ("read", "write") else "atomic"

    @property
    def size(self) -> int:
        """Bytes of each lane."""
        kinds = {"halves": 2, "doubles": 8, "longs": 8, "vectors": 16}
        return kinds.get(self.function.rpartition("_")[2], 4)

    @property
    def lanes(self) -> int:
        return self.numbers[3] if self.memory == "global" and self.access != "atomic" else 32

    @property
    def addresses(self) -> int:
        """Of atomics: those that lanes change."""
        stride, modulus = self.numbers if self.memory == "shared" else (1, *self.numbers)
        return len({stride * lane % modulus for lane in range(32)})

    def __str__(self) -> str:
        return f"{self.function}: {self.what}"


PATTERNS = [
    Pattern("neighbours: 128 bytes", "read_floats", (1, 0, ALL, 32), 4, 4),
    Pattern("backwards: the same 128 bytes", "read_floats", (31, 31, 32, 32), 4, 4),
    Pattern("shuffled within them", "read_floats", (13, 0, 32, 32), 4, 4),
    Pattern("from element 1: a fifth sector", "read_floats", (1, 1, ALL, 32), 5, 4),
    Pattern("every second: 256 bytes", "read_floats", (2, 0, ALL, 32), 8, 4),
    Pattern("every eighth: a sector each", "read_floats", (8, 0, ALL, 32), 32, 4),
    Pattern("a column: a sector each", "read_floats", (32, 0, ALL, 32), 32, 4),
    Pattern("one for all", "read_floats", (0, 5, ALL, 32), 1, 1),
    Pattern("two for all", "read_floats", (1, 0, 2, 32), 1, 1),
    Pattern("9 lanes: 36 bytes", "read_floats", (1, 0, ALL, 9), 2, 2),
    Pattern("8 lanes from element 7: 2 sectors", "read_floats", (1, 7, ALL, 8), 2, 1),
    Pattern("10 lanes from element 7: 3 sectors", "read_floats", (1, 7, ALL, 10), 3, 2),
    Pattern("neighbours: 64 bytes", "read_halves", (1, 0, ALL, 32), 2, 2),
    Pattern("every 16th: a sector each", "read_halves", (16, 0, ALL, 32), 32, 2),
    Pattern("neighbours: 512 bytes", "read_vectors", (1, 0, ALL, 32), 16, 16),
    Pattern("every second: half a sector each", "read_vectors", (2, 0, ALL, 32), 32, 16),
    Pattern("neighbours: 128 bytes", "write_floats", (1, 0, ALL, 32), 4, 4),
    Pattern("every second: 256 bytes", "write_floats", (2, 0, ALL, 32), 8, 4),
    Pattern("a column: a sector each", "write_floats", (32, 0, ALL, 32), 32, 4),
    Pattern("neighbours: 512 bytes", "write_vectors", (1, 0, ALL, 32), 16, 16),
    Pattern("all at one address: 32 turns", "add_to", (1,), 32, 1),
    Pattern("8 at each of 4 addresses: 8 turns", "add_to", (4,), 8, 1),
    Pattern("at 32 addresses", "add_to", (32,), 4, 4),
    Pattern("a word in each bank", "read_shared_floats", (1, ALL), 1, 1),
    Pattern("16 banks with 2 words", "read_shared_floats", (2, ALL), 2, 1),
    Pattern("an odd stride", "read_shared_floats", (3, ALL), 1, 1),
    Pattern("a column of a tile 32 wide", "read_shared_floats", (32, ALL), 32, 1),
    Pattern("a column of a tile 33 wide", "read_shared_floats", (33, ALL), 1, 1),
    Pattern("one word for all", "read_shared_floats", (0, ALL), 1, 1),
    Pattern("neighbours", "read_shared_doubles", (1, ALL), 2, 2),
    Pattern("every second: 16 lanes on 64 words", "read_shared_doubles", (2, ALL), 4, 2),
    Pattern("neighbours", "read_shared_vectors", (1, ALL), 4, 4),
    Pattern("every second: 8 lanes on 64 words", "read_shared_vectors", (2, ALL), 8, 4),
    Pattern("a word in each bank", "write_shared_floats", (1, ALL), 1, 1),
    Pattern("16 banks with 2 words", "write_shared_floats", (2, ALL), 2, 1),
    Pattern("a column of a tile 32 wide", "write_shared_floats", (32, ALL), 32, 1),
    Pattern("every second: 8 lanes on 64 words", "write_shared_vectors", (2, ALL), 8, 4),
    *(
        Pattern(
            f"{function.replace('_shared_', ' ')}: {what}", function, numbers, *passes, requests
        )
        for function, costs in SHARED_ATOMICS.items()
        for (what, numbers), (requests, *passes) in zip(SHARED_INDICES, costs, strict=True)
    ),
]


def kernel() -> jitload.Kernel:
    return jitload.load(SOURCE)


def call(pattern: Pattern, device: str) -> tuple:
    """The function that makes the pattern's request, and arguments for it."""
    x = torch.zeros(4096, dtype=torch.int16 if pattern.size == 2 else torch.float32, device=device)
    y = torch.zeros(4096, device=device)
    reads_global = pattern.memory == "global" and pattern.access == "read"
    tensors = (x, y) if reads_global else (y,)
    return getattr(kernel(), pattern.function), *tensors, *pattern.numbers
