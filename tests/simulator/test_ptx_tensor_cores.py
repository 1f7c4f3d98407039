"""mma.sync and wgmma: every shape and type, its layout and its bits.

The bits are those of tests/helpers/tensor_cores.py. On a GPU that is what the same tests hold the
GPU to, and many more tiles are computed on both.
"""

from __future__ import annotations

import functools
import random
import struct
from fractions import Fraction
from typing import NamedTuple

import pytest
import torch

import jitload
from tests.helpers.tensor_cores import (
    FORMATS,
    KINDS,
    number,
    random_word,
    random_words,
    summed,
    to_float16,
)

TARGETS = ["cpu", "cuda"] if jitload.default_target() == "cuda" else ["cpu"]


class Product(NamedTuple):
    """An mma.sync, or a wgmma of n columns with A in registers or in shared memory."""

    m: int
    n: int
    k: int
    d: str
    a: str
    b: str
    suffix: str = ""

    @property
    def name(self) -> str:
        return (
            f"m{self.m}n{self.n}k{self.k}_{self.d}_{self.a}_{self.b}{self.suffix.replace('.', '_')}"
        )

    @property
    def bits(self) -> int:
        return {"f64": 64, "tf32": 32, "f16": 16, "bf16": 16, "b1": 1}.get(
            self.a, 4 if self.a[1:] == "4" else 8
        )

    @property
    def words(self) -> tuple[int, int, int]:
        """32-bit words of a lane of A, B and C."""
        of_a = self.m * self.k * self.bits // 1024
        of_b = 8 * self.k * self.bits // 1024
        of_d = self.m * 8 * {"f16": 16, "f64": 64}.get(self.d, 32) // 1024
        return of_a, of_b, of_d


FLOATS = [
    *(Product(16, 8, k, d, "f16", "f16") for k in (8, 16) for d in ("f16", "f32")),
    *(Product(16, 8, k, "f32", "bf16", "bf16") for k in (8, 16)),
    *(Product(16, 8, k, "f32", "tf32", "tf32") for k in (4, 8)),
    *(
        Product(16, 8, k, d, a, b)
        for k in (16, 32)
        for d in ("f16", "f32")
        for a in ("e4m3", "e5m2")
        for b in ("e4m3", "e5m2")
    ),
]
DOUBLES = [Product(m, 8, k, "f64", "f64", "f64") for m, k in ((8, 4), (16, 4), (16, 8), (16, 16))]
INTEGERS = [
    Product(m, 8, k, "s32", a, b, end)
    for width, shapes in ((8, ((8, 16), (16, 16), (16, 32))), (4, ((8, 32), (16, 32), (16, 64))))
    for m, k in shapes
    for a in (f"s{width}", f"u{width}")
    for b in (f"s{width}", f"u{width}")
    for end in ("", ".satfinite")
]
BITS = [
    Product(m, 8, k, "s32", "b1", "b1", f".{op}.popc")
    for m, k in ((8, 128), (16, 128), (16, 256))
    for op in ("xor", "and")
]
ALL = [*FLOATS, *DOUBLES, *INTEGERS, *BITS]


def statement(it: Product) -> str:
    """The asm statement, on arrays a, b and d of words."""
    wide = it.a == "f64"
    counts = [count // (2 if wide else 1) for count in it.words]
    letter = "d" if wide else "r"
    where = "reinterpret_cast<double*>({})[{}]" if wide else "{}[{}]"
    saturates = ".satfinite" if it.suffix == ".satfinite" else ""
    ends = it.suffix if it.a == "b1" else ""
    mnemonic = (
        f"mma.sync.aligned.m{it.m}n8k{it.k}.row.col{saturates}.{it.d}.{it.a}.{it.b}.{it.d}{ends}"
    )
    of_d, of_a, of_b = counts[2], counts[0], counts[1]
    names = [
        "{" + ", ".join(f"%{i}" for i in range(first, first + count)) + "}"
        for first, count in ((0, of_d), (of_d, of_a), (of_d + of_a, of_b), (0, of_d))
    ]
    outputs = ", ".join(f'"+{letter}"({where.format("d", i)})' for i in range(of_d))
    inputs = ", ".join(
        [f'"{letter}"({where.format("a", i)})' for i in range(of_a)]
        + [f'"{letter}"({where.format("b", i)})' for i in range(of_b)]
    )
    return f'asm volatile("{mnemonic} {", ".join(names)};" : {outputs} : {inputs});'


def source(products: list[Product]) -> str:
    kernels = []
    for it in products:
        of_a, of_b, of_d = it.words
        kernels.append(f"""
__global__ void {it.name}_kernel(const int* A, const int* B, const int* C, int* D, int tiles) {{
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {{
        alignas(8) int a[{of_a}], b[{of_b}], d[{of_d}];
        const int at = tile * 32 + threadIdx.x;
        for (int i = 0; i < {of_a}; i++) a[i] = A[at * {of_a} + i];
        for (int i = 0; i < {of_b}; i++) b[i] = B[at * {of_b} + i];
        for (int i = 0; i < {of_d}; i++) d[i] = C[at * {of_d} + i];
        {statement(it)}
        for (int i = 0; i < {of_d}; i++) D[at * {of_d} + i] = d[i];
    }}
}}
extern "C" void {it.name}(const int* A, const int* B, const int* C, int* D, int tiles) {{
    {it.name}_kernel<<<tiles < 512 ? tiles : 512, 32>>>(A, B, C, D, tiles);
}}""")
    return "#include <stdint.h>\n" + "\n".join(kernels)


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    path = tmp_path_factory.mktemp("mma") / "products.cu"
    path.write_text(source(ALL))
    found = {}

    def library(target: str):
        if target not in found:
            found[target] = jitload.load(str(path), name="test_mma_products", target=target)
        return found[target]

    return library


def run(library, it: Product, target: str, a, b, c) -> torch.Tensor:
    d = torch.zeros_like(c)
    on_device = [x.to(target) for x in (a, b, c, d)]
    getattr(library, it.name)(*on_device, len(a))
    return on_device[3].cpu()


# ---- Where a lane has its elements: the manual's chapter on mma


def positions(it: Product, matrix: str) -> list[list[tuple[int, int]]]:
    """For each lane the (row, k), (k, column) or (row, column) of its elements, in their order."""
    bits = {"f16": 16, "f64": 64}.get(it.d, 32) if matrix == "d" else it.bits
    together = 2 if matrix == "d" else max(1, 32 // bits)  # neighbours along a row
    found = []
    for lane in range(32):
        group, within = divmod(lane, 4)
        mine = []
        if matrix == "d":
            for half in range(it.m // 8):
                mine += [(group + 8 * half, within * 2 + i) for i in range(2)]
        else:
            rows = it.m // 8 if matrix == "a" else 1
            for block in range(it.k // (4 * together)):
                for row in range(rows):
                    for i in range(together):
                        k = (within + 4 * block) * together + i
                        mine.append((group + 8 * row, k) if matrix == "a" else (k, group))
        found.append(mine)
    return found


def packed(it: Product, matrix: str, elements: dict[tuple[int, int], int]) -> list[list[int]]:
    """Words of each lane; elements are words of their types."""
    bits = {"f16": 16, "f64": 64}.get(it.d, 32) if matrix == "d" else it.bits
    lanes = []
    for places in positions(it, matrix):
        total = 0
        for i, place in enumerate(places):
            total |= elements[place] << i * bits
        count = len(places) * bits // 32
        lanes.append([total >> 32 * i & 0xFFFFFFFF for i in range(count)])
    return lanes


def unpacked(it: Product, words: list[list[int]]) -> dict[tuple[int, int], int]:
    bits = {"f16": 16, "f64": 64}.get(it.d, 32)
    found = {}
    for places, lane in zip(positions(it, "d"), words, strict=True):
        total = sum(word << 32 * i for i, word in enumerate(lane))
        for i, place in enumerate(places):
            found[place] = total >> i * bits & (1 << bits) - 1
    return found


def tensor(tiles: list[list[list[int]]]) -> torch.Tensor:
    flat = [word - (1 << 32) if word >> 31 else word for t in tiles for lane in t for word in lane]
    return torch.tensor(flat, dtype=torch.int32).view(len(tiles), 32, -1)


def float32(word: int) -> float:
    return struct.unpack("f", struct.pack("I", word))[0]


def float16(word: int) -> float:
    return struct.unpack("e", struct.pack("H", word))[0]


@functools.cache
def as_half(word: int, name: str) -> int:
    """A number of 8 bits as float16."""
    it, form = number(word, name), FORMATS[name]
    sign = 0x8000 if it.sign < 0 else 0
    if it.kind != "finite":
        return sign | (0x7C00 if it.kind == "infinite" else 0x7FFF)
    return sign | to_float16(Fraction(it.magnitude) * Fraction(2) ** (it.exponent - form.fraction))


def eight_bits(row: list[int], column: list[int], c: int, it: Product) -> int | None:
    """mma.sync of 8-bit types, as float16: k in pairs by turns, from zero; C last."""
    row, column = [as_half(x, it.a) for x in row], [as_half(x, it.b) for x in column]
    low = [i for i in range(it.k) if i % 4 < 2]
    high = [i for i in range(it.k) if i % 4 >= 2]
    d = 0
    for ks in (low, high):
        d = summed([row[i] for i in ks], [column[i] for i in ks], d, ("f16", "f16", it.d))
    if it.d == "f16":
        total = torch.tensor(float16(d)).half() + torch.tensor(float16(c)).half()
        return 0x7FFF if total.isnan() else int(total.view(torch.int16)) & 0xFFFF
    total = torch.tensor(float32(d)) + torch.tensor(float32(c))
    return 0x7FFFFFFF if total.isnan() else int(total.view(torch.int32)) & 0xFFFFFFFF


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("it", FLOATS, ids=lambda it: it.name)
def test_floats_have_the_hardwares_bits(libraries, it, target):
    rng = random.Random(it.name)
    inputs, tiles = [], []
    for kind in KINDS:
        a = {(i, k): random_word(rng, it.a, kind) for i in range(it.m) for k in range(it.k)}
        b = {(k, j): random_word(rng, it.b, kind) for k in range(it.k) for j in range(8)}
        c = {(i, j): random_word(rng, it.d, kind) for i in range(it.m) for j in range(8)}
        inputs.append((a, b, c))
        tiles.append([packed(it, name, x) for name, x in (("a", a), ("b", b), ("d", c))])
    got = run(libraries(target), it, target, *(tensor([t[i] for t in tiles]) for i in range(3)))
    for (a, b, c), words in zip(inputs, got.tolist(), strict=True):
        found = unpacked(it, [[w & 0xFFFFFFFF for w in lane] for lane in words])
        for i in range(it.m):
            for j in range(8):
                row, column = [a[i, k] for k in range(it.k)], [b[k, j] for k in range(it.k)]
                if it.a[0] == "e":
                    expected = eight_bits(row, column, c[i, j], it)
                else:
                    expected = summed(row, column, c[i, j], (it.a, it.b, it.d))
                assert hex(found[i, j]) == hex(expected), (i, j)


def double(word: int) -> float:
    return struct.unpack("d", struct.pack("Q", word))[0]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("it", DOUBLES, ids=lambda it: it.name)
def test_doubles_are_fused_multiply_adds_one_after_another(libraries, it, target):
    rng = random.Random(it.name)

    def word() -> int:
        return struct.unpack("Q", struct.pack("d", rng.gauss(0, 1) * 2 ** rng.randint(-9, 9)))[0]

    a = {(i, k): word() for i in range(it.m) for k in range(it.k)}
    b = {(k, j): word() for k in range(it.k) for j in range(8)}
    c = {(i, j): word() for i in range(it.m) for j in range(8)}
    tile = [tensor([packed(it, n, x)]) for n, x in (("a", a), ("b", b), ("d", c))]
    got = run(libraries(target), it, target, *tile)[0].tolist()
    found = unpacked(it, [[w & 0xFFFFFFFF for w in lane] for lane in got])
    for (i, j), start in c.items():
        total = double(start)
        for k in range(it.k):
            total = float(Fraction(double(a[i, k])) * Fraction(double(b[k, j])) + Fraction(total))
        assert double(found[i, j]) == total


def integer(word: int, kind: str) -> int:
    width = int(kind[1:])
    return word - (1 << width) if kind[0] == "s" and word >> width - 1 else word


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("it", [*INTEGERS, *BITS], ids=lambda it: it.name)
def test_integers_wrap_or_saturate(libraries, it, target):
    rng = random.Random(it.name)
    inputs, tiles = [], []
    for bound in (1 << 20, 1 << 31):
        a = {(i, k): rng.getrandbits(it.bits) for i in range(it.m) for k in range(it.k)}
        b = {(k, j): rng.getrandbits(it.bits) for k in range(it.k) for j in range(8)}
        near = [bound - 1 - rng.randint(0, 4000) for _ in range(it.m * 8)]
        signs = [rng.choice((1, -1)) for _ in near]
        c = {(i, j): near[i * 8 + j] * signs[i * 8 + j] for i in range(it.m) for j in range(8)}
        inputs.append((a, b, c))
        words = {place: value & 0xFFFFFFFF for place, value in c.items()}
        tiles.append([packed(it, name, x) for name, x in (("a", a), ("b", b), ("d", words))])
    got = run(libraries(target), it, target, *(tensor([t[i] for t in tiles]) for i in range(3)))
    for (a, b, c), words in zip(inputs, got.tolist(), strict=True):
        found = unpacked(it, [[w & 0xFFFFFFFF for w in lane] for lane in words])
        for (i, j), start in c.items():
            if it.a == "b1":
                join = (lambda x, y: x & y) if "and" in it.suffix else (lambda x, y: x ^ y)
                total = start + sum(join(a[i, k], b[k, j]) for k in range(it.k))
            else:
                total = start + sum(
                    integer(a[i, k], it.a) * integer(b[k, j], it.b) for k in range(it.k)
                )
            if it.suffix == ".satfinite":
                total = min(max(total, -(1 << 31)), (1 << 31) - 1)
            assert found[i, j] == total & 0xFFFFFFFF


@pytest.mark.skipif(TARGETS == ["cpu"], reason="needs a GPU to compare with")
@pytest.mark.parametrize("it", FLOATS, ids=lambda it: it.name)
def test_a_hundred_thousand_tiles_have_the_same_bits_on_both(libraries, it, record_property):
    generator = torch.Generator().manual_seed(7)
    counts = zip((it.a, it.b, it.d), it.words, strict=True)
    a, b, c = (random_words((100_000, 32, count), name, generator) for name, count in counts)
    on_both = [run(libraries(target), it, target, a, b, c) for target in ("cpu", "cuda")]
    unequal = int((on_both[0] != on_both[1]).sum())
    record_property("unequal", unequal)
    print(f"\n{it.name}: {unequal} of {on_both[0].numel()} words unequal")
    assert unequal == 0
