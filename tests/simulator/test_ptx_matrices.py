"""ldmatrix, stmatrix, movmatrix and mma.sync.m8n8k4: which lane has which elements.

The places are those that the figures of the PTX manual show; elements are told apart by their
values.
"""

from __future__ import annotations

import itertools
import random
import re
from typing import NamedTuple

import pytest
import torch

import jitload

TARGETS = ["cpu", "cuda"] if jitload.default_target() == "cuda" else ["cpu"]
COUNTS = (1, 2, 4)
ENDS = ("", ".trans")
SHARED = 4096  # bytes


class QuadPairs(NamedTuple):
    """An mma.sync.m8n8k4, whose layouts of A and B are "row" or "col"."""

    d: str
    of_a: str
    of_b: str

    @property
    def name(self) -> str:
        return f"quad_pairs_{self.d}_{self.of_a}_{self.of_b}"

    @property
    def results(self) -> int:
        """Words of a lane of C, and of D."""
        return 4 if self.d == "f16" else 8


QUAD_PAIRS = [
    QuadPairs(d, a, b) for d in ("f16", "f32") for a in ("row", "col") for b in ("row", "col")
]

COPIES = f"""
#include <stdint.h>

__device__ unsigned start_of(const void* p) {{
    return static_cast<unsigned>(__cvta_generic_to_shared(p));
}}

__device__ void copy(const int* from, int* to) {{
    __syncthreads();
    for (int i = threadIdx.x; i < {SHARED // 4}; i += 32) to[i] = from[i];
    __syncthreads();
}}

extern "C" __global__ void transpose(const int* from, int* to) {{
    int word;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;"
                 : "=r"(word) : "r"(from[threadIdx.x]));
    to[threadIdx.x] = word;
}}

// No lane waits for another but at ldmatrix and at stmatrix.
extern "C" __global__ void at_once(const int* from, int* to) {{
    __shared__ alignas(16) int rows[32][4], back[32][4];
    const int lane = threadIdx.x;
    int words[4];
    for (int i = 0; i < 4; i++) rows[8 * i + lane / 4][lane % 4] = from[32 * i + lane];
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%0, %1, %2, %3}}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(start_of(rows[lane])) : "memory");
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {{%1, %2, %3, %4}};"
                 :: "r"(start_of(back[lane])), "r"(words[0]), "r"(words[1]), "r"(words[2]),
                    "r"(words[3]) : "memory");
    for (int i = 0; i < 4; i++) to[32 * i + lane] = back[31 - 8 * i - lane / 4][3 - lane % 4];
}}
"""


def braced(first: int, count: int) -> str:
    return "{" + ", ".join(f"%{i}" for i in range(first, first + count)) + "}"


def operands(constraint: str, array: str, count: int) -> str:
    return ", ".join(f'"{constraint}"({array}[{i}])' for i in range(count))


def name_of(what: str, count: int, end: str) -> str:
    return f"{what}_x{count}{end.replace('.', '_')}"


def load_and_store(count: int, end: str) -> str:
    shape = f"sync.aligned.m8n8.x{count}{end}.shared.b16"
    name = name_of("", count, end)
    return loads(f"load{name}", count, shape) + stores(f"store{name}", count, shape)


def loads(name: str, count: int, shape: str) -> str:
    return f"""
__global__ void {name}_kernel(const int* image, const int* rows, int* to) {{
    __shared__ alignas(16) int memory[{SHARED // 4}];
    int words[{count}];
    copy(image, memory);
    asm volatile("ldmatrix.{shape} {braced(0, count)}, [%{count}];"
                 : {operands("=r", "words", count)}
                 : "r"(start_of(memory) + rows[threadIdx.x]) : "memory");
    for (int i = 0; i < {count}; i++) to[threadIdx.x * {count} + i] = words[i];
}}
extern "C" void {name}(const int* image, const int* rows, int* to) {{
    {name}_kernel<<<1, 32>>>(image, rows, to);
}}"""


def stores(name: str, count: int, shape: str) -> str:
    return f"""
__global__ void {name}_kernel(const int* from, const int* rows, int* image) {{
    __shared__ alignas(16) int memory[{SHARED // 4}];
    int words[{count}];
    for (int i = 0; i < {count}; i++) words[i] = from[threadIdx.x * {count} + i];
    copy(image, memory);
    asm volatile("stmatrix.{shape} [%0], {braced(1, count)};"
                 :: "r"(start_of(memory) + rows[threadIdx.x]), {operands("r", "words", count)}
                 : "memory");
    copy(memory, image);
}}
extern "C" void {name}(const int* from, const int* rows, int* image) {{
    {name}_kernel<<<1, 32>>>(from, rows, image);
}}"""


def quad_pairs(it: QuadPairs) -> str:
    of_d = it.results
    mnemonic = f"mma.sync.aligned.m8n8k4.{it.of_a}.{it.of_b}.{it.d}.f16.f16.{it.d}"
    value = "int" if it.d == "f16" else "float"
    constraint = "r" if it.d == "f16" else "f"
    vectors = ", ".join(
        braced(first, count) for first, count in ((0, of_d), (of_d, 2), (of_d + 2, 2), (0, of_d))
    )
    return f"""
__global__ void {it.name}_kernel(const int* a, const int* b, {value}* c) {{
    a += threadIdx.x * 2;
    b += threadIdx.x * 2;
    c += threadIdx.x * {of_d};
    {value} d[{of_d}];
    for (int i = 0; i < {of_d}; i++) d[i] = c[i];
    asm volatile("{mnemonic} {vectors};"
                 : {operands("+" + constraint, "d", of_d)}
                 : {operands("r", "a", 2)}, {operands("r", "b", 2)});
    for (int i = 0; i < {of_d}; i++) c[i] = d[i];
}}
extern "C" void {it.name}(const int* a, const int* b, {value}* c) {{
    {it.name}_kernel<<<1, 32>>>(a, b, c);
}}"""


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    parts = [COPIES, *(load_and_store(count, end) for count in COUNTS for end in ENDS)]
    parts += map(quad_pairs, QUAD_PAIRS)
    path = tmp_path_factory.mktemp("matrices") / "matrices.cu"
    path.write_text("\n".join(parts))
    return path


@pytest.fixture(scope="module", params=TARGETS)
def target(request):
    return request.param


@pytest.fixture(scope="module")
def library(path, target):
    return jitload.load(str(path), name="test_ptx_matrices", target=target)


# ---- 8 x 8 elements of 16 bits: a lane has two neighbours of a row, four lanes have a row


def mine(lane: int, is_transposed: bool) -> list[tuple[int, int]]:
    """The (row, column) of the low and the high half of a lane's register."""
    places = [(lane // 4, lane % 4 * 2 + half) for half in range(2)]
    return [(column, row) for row, column in places] if is_transposed else places


def random_rows(rng: random.Random, count: int) -> list[int]:
    """An address for each lane, 16-byte aligned; those of lanes that give none lead nowhere."""
    rows = [16 * place for place in rng.sample(range(SHARED // 16), 8 * count)]
    return rows + [SHARED + 10**6 + 3] * (32 - len(rows))


def random_halves(rng: random.Random, count: int) -> list[int]:
    return rng.sample(range(1 << 16), count)


def words(halves: list[int]) -> torch.Tensor:
    return torch.tensor(halves, dtype=torch.int32).to(torch.int16).view(torch.int32)


def halves(words: torch.Tensor) -> list[int]:
    return [half & 0xFFFF for half in words.cpu().view(torch.int16).tolist()]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("count", COUNTS)
def test_ldmatrix_takes_rows_from_anywhere(library, target, count, end):
    rng = random.Random(count)
    image = random_halves(rng, SHARED // 2)
    rows = random_rows(rng, count)
    rows[3] = rows[5]  # one row twice
    to = torch.zeros(32, count, dtype=torch.int32, device=target)
    device = [words(image).to(target), torch.tensor(rows, dtype=torch.int32, device=target)]
    getattr(library, name_of("load", count, end))(*device, to)
    expected = [
        image[rows[matrix * 8 + row] // 2 + column]
        for lane in range(32)
        for matrix in range(count)
        for row, column in mine(lane, bool(end))
    ]
    assert halves(to.view(-1)) == expected


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("count", COUNTS)
def test_stmatrix_puts_rows_anywhere_and_changes_nothing_else(library, target, count, end):
    rng = random.Random(count)
    image = random_halves(rng, SHARED // 2)
    given = random_halves(rng, 32 * count * 2)
    rows = random_rows(rng, count)
    memory = words(image).to(target)
    getattr(library, name_of("store", count, end))(
        words(given).to(target), torch.tensor(rows, dtype=torch.int32, device=target), memory
    )
    values = iter(given)
    for lane in range(32):
        for matrix in range(count):
            for row, column in mine(lane, bool(end)):
                image[rows[matrix * 8 + row] // 2 + column] = next(values)
    assert halves(memory) == image


# ---- Bytes, and numbers of 4 and 6 bits that become bytes: compute capability 10.0. The places are
# those of CUTLASS' Copy_Traits (copy_traits_sm100.hpp), as bits of a matrix.


def laid_out(index: int, *modes: tuple[int, int]) -> int:
    """Of a layout of CuTe: the sizes of its modes and their strides, the first counts fastest."""
    place = 0
    for size, stride in modes:
        place += index % size * stride
        index //= size
    return place


class ByteMatrices(NamedTuple):
    """lanes: where the rows of the lanes begin, as bits. is_plain: a lane has a word of a row."""

    name: str
    count: int  # of registers
    shape: str
    lanes: tuple[tuple[int, int], ...]
    bits: int = 8
    is_plain: bool = False

    def place(self, lane: int, byte: int) -> tuple[int, int]:
        """The lane that has the row of a byte of a lane's registers, and the byte's column."""
        if self.is_plain:
            bit = lane * 32 + byte % 4 * 8 + byte // 4 * 1024
        else:
            bit = laid_out(lane, (4, 256), (8, 8))
            bit += laid_out(byte, (2, 128), (2, 64), (4, 1024))
        rows = {laid_out(each, *self.lanes): each for each in reversed(range(32))}
        return rows[bit // 128 * 128], bit % 128 // 8


PAIRED = ((2, 128), (2, 1024), (4, 256))
PACKED = {4: ".b8x16.b4x16_p64", 6: ".b8x16.b6x16_p32", 8: ".b8"}
BYTE_LOADS = [
    ByteMatrices(
        f"load_{bits}_trans_x{x}", 2 * x, f"m16n16.x{x}.trans.shared{PACKED[bits]}",
        (*PAIRED, (2, 2048 if x == 2 else 0)), bits,
    )
    for bits in (4, 6, 8) for x in (1, 2)
] + [
    ByteMatrices(
        f"load_{bits}_x{x}", x, f"m8n16.x{x}.shared{PACKED[bits]}",
        ((8 * x, 128), (4 // x, 0)), bits, True,
    )
    for bits in (4, 6) for x in (1, 2, 4)
]  # fmt: skip
BYTE_STORES = [
    ByteMatrices(f"store_bytes_x{x}", x, f"m16n8.x{x}.trans.shared.b8", ((8 * x, 128), (4 // x, 0)))
    for x in (1, 2, 4)
]


@pytest.fixture(scope="module")
def of_bytes(tmp_path_factory):
    parts = [COPIES, *(loads(it.name, it.count, f"sync.aligned.{it.shape}") for it in BYTE_LOADS)]
    parts += [stores(it.name, it.count, f"sync.aligned.{it.shape}") for it in BYTE_STORES]
    path = tmp_path_factory.mktemp("matrices") / "bytes.cu"
    path.write_text("\n".join(parts))
    return jitload.load(str(path), name="test_ptx_byte_matrices", target="cpu")


def unpacked(row: bytes, bits: int) -> list[int]:
    """16 numbers: 6 bits in the lower ones of a byte, 4 bits in bits 2 to 5."""
    number = int.from_bytes(row, "little")
    each = [number >> i * bits & (1 << bits) - 1 for i in range(16)]
    return [value << 2 for value in each] if bits == 4 else each


@pytest.mark.parametrize("it", BYTE_LOADS, ids=lambda it: it.name)
def test_ldmatrix_of_bytes(of_bytes, it):
    rng = random.Random(it.count)
    image, rows = rng.randbytes(SHARED), random_rows(rng, it.count)
    to = torch.zeros(32, it.count, dtype=torch.int32)
    given = torch.frombuffer(bytearray(image), dtype=torch.int32)
    getattr(of_bytes, it.name)(given, torch.tensor(rows, dtype=torch.int32), to)
    expected = []
    for lane, byte in itertools.product(range(32), range(4 * it.count)):
        at, column = it.place(lane, byte)
        expected.append(unpacked(image[rows[at] :][:16], it.bits)[column])
    assert list(to.view(torch.uint8).flatten()) == expected


@pytest.mark.parametrize("it", BYTE_STORES, ids=lambda it: it.name)
def test_stmatrix_of_bytes(of_bytes, it):
    rng = random.Random(it.count)
    image, rows = bytearray(rng.randbytes(SHARED)), random_rows(rng, it.count)
    given = rng.randbytes(32 * it.count * 4)
    memory = torch.frombuffer(bytearray(image), dtype=torch.int32)
    registers = torch.frombuffer(bytearray(given), dtype=torch.int32)
    getattr(of_bytes, it.name)(registers, torch.tensor(rows, dtype=torch.int32), memory)
    for i, (lane, byte) in enumerate(itertools.product(range(32), range(4 * it.count))):
        at, column = it.place(lane, byte)
        image[rows[at] + column] = given[i]
    assert bytes(memory.view(torch.uint8).tolist()) == bytes(image)


def test_movmatrix_transposes(library, target):
    given = random_halves(random.Random(0), 64)
    to = torch.zeros(32, dtype=torch.int32, device=target)
    library.transpose[1, 32](words(given).to(target), to)
    matrix = dict(zip((p for lane in range(32) for p in mine(lane, False)), given, strict=True))
    assert halves(to) == [matrix[place] for lane in range(32) for place in mine(lane, True)]


def test_rows_are_loaded_and_stored_when_all_lanes_have_come(library, target):
    from_, to = (torch.arange(128, dtype=torch.int32, device=target) for _ in range(2))
    library.at_once[1, 32](from_, to)
    assert torch.equal(to, from_.flip(0))


@pytest.mark.parametrize("what", ["load", "store"])
@pytest.mark.parametrize("amount", [2, 4, 8])
def test_a_misaligned_row_is_an_error_that_says_so(path, what, amount):
    library = jitload.load(str(path), name="test_ptx_matrices", target="cpu")
    rows = torch.arange(32, dtype=torch.int32) * 16
    rows[13] += amount
    image, lanes = torch.zeros(SHARED // 4, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    given = (image, rows, lanes) if what == "load" else (lanes, rows, image)
    with pytest.raises(RuntimeError) as caught:
        getattr(library, f"{what}_x2")(*given)
    instruction = "ldmatrix" if what == "load" else "stmatrix"
    said = f"thread 13: {instruction}: the address of a row is a multiple of 16 bytes"
    assert re.search(rf"matrices\.cu:\d+: {said}", str(caught.value))


# ---- mma.sync.m8n8k4: four products, each of the eight lanes of two quads


def first_or_second(lane: int) -> int:
    """0 or 4: of the two quads of a pair, the second has the rows or columns from 4 on."""
    return 0 if lane < 16 else 4


def of_a(it: QuadPairs, lane: int, i: int) -> tuple[int, int]:
    if it.of_a == "row":
        return lane % 4 + first_or_second(lane), i
    return i + first_or_second(lane), lane % 4


def of_b(it: QuadPairs, lane: int, i: int) -> tuple[int, int]:
    if it.of_b == "row":
        return lane % 4, i + first_or_second(lane)
    return i, lane % 4 + first_or_second(lane)


def of_c(it: QuadPairs, lane: int, i: int) -> tuple[int, int]:
    if it.d == "f16":
        return lane % 4 + first_or_second(lane), i
    return (lane & 1) + (i & 2) + first_or_second(lane), (i & 4) + (lane & 2) + (i & 1)


@pytest.mark.parametrize("it", QUAD_PAIRS, ids=lambda it: it.name)
def test_quad_pairs_have_a_product_each(library, target, it):
    generator = torch.Generator().manual_seed(len(it.name))

    def integers(rows: int, columns: int, most: int) -> torch.Tensor:
        return torch.randint(-most, most + 1, (4, rows, columns), generator=generator).double()

    def registers(matrices: torch.Tensor, place, count: int, dtype: torch.dtype) -> torch.Tensor:
        values = [
            [matrices[(lane // 4 % 4, *place(it, lane, i))] for i in range(count)]
            for lane in range(32)
        ]
        return torch.tensor(values).to(dtype).to(target)

    a, b, c = integers(8, 4, 9), integers(4, 8, 9), integers(8, 8, 99)
    dtype = torch.float16 if it.d == "f16" else torch.float32
    d = registers(c, of_c, 8, dtype)
    getattr(library, it.name)(
        registers(a, of_a, 4, torch.float16).view(torch.int32),
        registers(b, of_b, 4, torch.float16).view(torch.int32),
        d.view(torch.int32) if it.d == "f16" else d,
    )
    expected = registers(a @ b + c, of_c, 8, dtype)
    assert torch.equal(d, expected)
