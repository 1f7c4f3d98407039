"""mma.sp and wgmma.mma_async.sp: products of a matrix of which half the elements are there.

The places of the metadata are those that the figures of the PTX manual show. That sparse products
round as dense ones of half their k is assumed; on a GPU the same tests say whether it is so.
"""

from __future__ import annotations

import random
from typing import NamedTuple

import pytest
import torch

import jitload
from tests.helpers.tensor_cores import FORMATS, KINDS, random_word, summed
from tests.simulator.test_ptx_tensor_cores import eight_bits, integer, tensor
from tests.simulator.test_ptx_wgmma import START, Layout, accumulators, junk, put, registers_of_a

TARGETS = ["cpu", "cuda"] if jitload.default_target() == "cuda" else ["cpu"]


class Product(NamedTuple):
    """An mma.sp of m16n8, or a wgmma of m64."""

    n: int
    k: int
    d: str
    a: str
    b: str
    selector: int = 0
    suffix: str = ""
    in_registers: bool = False
    trans_b: int = 0

    @property
    def name(self) -> str:
        words = [f"n{self.n}k{self.k}", self.d, self.a, self.b, f"{self.selector}{self.suffix}"]
        words += ["registers"] * self.in_registers + ["trans_b"] * self.trans_b
        return "_".join(words).replace(".", "_").replace("::", "_")

    @property
    def bits(self) -> int:
        return FORMATS[self.a].width if self.a in FORMATS else int(self.a[1:])

    @property
    def unit(self) -> int:
        """Elements that the metadata does not tell apart: those of 4 bits come in pairs."""
        return 2 if self.bits == 4 else 1

    @property
    def group(self) -> int:
        """Elements of which half are there: 2 of 4, 4 of 8, or 1 of 2 of tf32."""
        return {4: 8, 32: 2}.get(self.bits, 4)

    @property
    def lanes(self) -> int:
        """Of four, which have metadata: 16 rows with two bits for each 16, or at most 8, bits."""
        return self.k // 2 * self.bits // max(8, min(self.bits, 16)) // 8


def sparse_products() -> list[Product]:
    found = [
        Product(8, k, d, kind, kind, selector)
        for kind, ks, results in (
            ("f16", (16, 32), ("f16", "f32")),
            ("bf16", (16, 32), ("f32",)),
            ("tf32", (8, 16), ("f32",)),
        )
        for k in ks
        for d in results
        for selector in range(4)
    ]
    found += [Product(8, 64, "f32", a, b) for a, b in (("e4m3", "e5m2"), ("e5m2", "e4m3"))]
    found += [
        Product(8, k, "s32", f"{a}{width}", f"{b}{width}", selector, end)
        for width, k in ((8, 32), (8, 64), (4, 64), (4, 128))
        for a, b in (("s", "u"), ("u", "s"), ("s", "s"))
        for selector in (0, 1)
        for end in ("", ".satfinite")
    ]
    found += [Product(8, 32, "f32", "bf16", "bf16", 1, "::ordered_metadata")]
    return [it for it in found if (it.selector + 1) * it.lanes <= 4]


PRODUCTS = sparse_products()


# ---- Elements, and the metadata that says where they are


class Sparse(NamedTuple):
    """rows: of each the k and the word of every element that is there, in order."""

    rows: list[list[tuple[int, int]]]


def sparse_matrix(rng: random.Random, it: Product, rows: int, word) -> Sparse:
    found = []
    for _ in range(rows):
        row: list[tuple[int, int]] = []
        for start in range(0, it.k, it.group):
            units = range(it.group // it.unit)
            for unit in sorted(rng.sample(units, len(units) // 2)):
                row += [(start + unit * it.unit + i, word()) for i in range(it.unit)]
        found.append(row)
    return Sparse(found)


def metadata_of(it: Product, matrix: Sparse, first: int) -> list[int]:
    """The words of 32 lanes, for 16 rows from `first` on; of lanes that have none, junk."""

    def bits(row: int) -> int:
        total, shift = 0, 0
        for k, _ in matrix.rows[first + row][:: it.unit]:
            unit = k % it.group // it.unit
            # An element of tf32 is two of 16 bits, which stay together.
            code, width = (0b1110 if unit else 0b0100, 4) if it.bits == 32 else (unit, 2)
            total |= code << shift
            shift += width
        return total

    words = [0x1B2D3E4F] * 32
    for group in range(8):
        low, high = bits(group), bits(group + 8)
        for i in range(it.lanes):
            lane = group * 4 + it.selector * it.lanes + i
            if it.bits >= 16:
                words[lane] = (low >> 16 * i & 0xFFFF) | (high >> 16 * i & 0xFFFF) << 16
            else:
                words[lane] = (high if i % 2 else low) >> 32 * (i // 2) & 0xFFFFFFFF
    return words


def expected(it: Product, row: list[tuple[int, int]], column: list[int], c: int, of_mma: bool):
    """The word of a result, from the row's elements and those of the column that they meet."""
    own, met = [word for _, word in row], [column[k] for k, _ in row]
    if it.d == "s32":
        total = integer(c, "s32") + sum(
            integer(x, it.a) * integer(y, it.b) for x, y in zip(own, met, strict=True)
        )
        if it.suffix == ".satfinite":
            total = min(max(total, -(1 << 31)), (1 << 31) - 1)
        return total & 0xFFFFFFFF
    if it.bits == 8 and of_mma:
        return eight_bits(own, met, c, it._replace(k=it.k // 2))
    kept, result = (13, 13) if it.bits == 8 else (25, 23)
    return summed(own, met, c, (it.a, it.b, it.d), kept, result)


def word_maker(rng: random.Random, name: str, kind: str):
    if name in FORMATS:
        return lambda: random_word(rng, name, kind)
    return lambda: rng.getrandbits(int(name[1:]))


# ---- mma.sp


def words_of(it: Product) -> tuple[int, int, int]:
    """32-bit words of a lane of A, B and D."""
    width = 16 if it.d == "f16" else 32
    return it.k // 2 * it.bits // 64, it.k * it.bits // 128, 4 * width // 32


def mma(it: Product) -> str:
    of_a, of_b, of_d = words_of(it)
    order = "::ordered_metadata" if "ordered" in it.suffix else ""
    saturates = it.suffix if it.suffix == ".satfinite" else ""
    types = f"{it.d}.{it.a}.{it.b}.{it.d}"
    mnemonic = f"mma.sp{order}.sync.aligned.m16n8k{it.k}.row.col{saturates}.{types}"
    firsts = ((0, of_d), (of_d, of_a), (of_d + of_a, of_b), (0, of_d))
    given = ["{" + ", ".join(f"%{i}" for i in range(a, a + n)) + "}" for a, n in firsts]
    given += [f"%{of_a + of_b + of_d}", str(it.selector)]
    outputs = ", ".join(f'"+r"(d[{i}])' for i in range(of_d))
    inputs = [f'"r"(a[{i}])' for i in range(of_a)] + [f'"r"(b[{i}])' for i in range(of_b)]
    inputs = ", ".join([*inputs, '"r"(metadata)'])
    return f"""
__global__ void {it.name}_kernel(const int* A, const int* B, const int* C, const int* M, int* D) {{
    const int lane = threadIdx.x + blockIdx.x * 32, metadata = M[lane];
    int a[{of_a}], b[{of_b}], d[{of_d}];
    for (int i = 0; i < {of_a}; i++) a[i] = A[lane * {of_a} + i];
    for (int i = 0; i < {of_b}; i++) b[i] = B[lane * {of_b} + i];
    for (int i = 0; i < {of_d}; i++) d[i] = C[lane * {of_d} + i];
    asm volatile("{mnemonic} {", ".join(given)};" : {outputs} : {inputs});
    for (int i = 0; i < {of_d}; i++) D[lane * {of_d} + i] = d[i];
}}
extern "C" void {it.name}(const int* A, const int* B, const int* C, const int* M, int* D,
                          int tiles) {{
    {it.name}_kernel<<<tiles, 32>>>(A, B, C, M, D);
}}"""


@pytest.fixture(scope="module", params=TARGETS)
def target(request):
    return request.param


@pytest.fixture(scope="module")
def library(tmp_path_factory, target):
    path = tmp_path_factory.mktemp("sparse") / "sparse.cu"
    path.write_text("\n".join(map(mma, PRODUCTS)))
    return jitload.load(str(path), name="test_mma_sparse", target=target)


def packed(lanes: list[list[int]], bits: int) -> list[list[int]]:
    """Elements of lanes as their words."""
    words = []
    for lane in lanes:
        total = sum(element << i * bits for i, element in enumerate(lane))
        words.append([total >> 32 * i & 0xFFFFFFFF for i in range(len(lane) * bits // 32)])
    return words


def of_rows(rows: list[list[int]], together: int, heights: int) -> list[list[int]]:
    """Of each lane the elements: a group of four has a row, and then the one 8 further on."""
    return [
        [
            rows[lane // 4 + 8 * height][(lane % 4 + 4 * block) * together + i]
            for block in range(len(rows[0]) // (4 * together))
            for height in range(heights)
            for i in range(together)
        ]
        for lane in range(32)
    ]


def places_of_d() -> list[list[tuple[int, int]]]:
    return [
        [(lane // 4 + 8 * half, lane % 4 * 2 + i) for half in range(2) for i in range(2)]
        for lane in range(32)
    ]


@pytest.mark.parametrize("it", PRODUCTS, ids=lambda it: it.name)
def test_a_warps_sparse_product(library, target, it):
    rng = random.Random(it.name)
    kinds = KINDS if it.d != "s32" else ("near", "any")
    together, width = 32 // it.bits, 16 if it.d == "f16" else 32
    inputs, tiles = [], []
    for kind in kinds:
        a = sparse_matrix(rng, it, 16, word_maker(rng, it.a, kind))
        make = word_maker(rng, it.b, kind)
        columns = [[make() for _ in range(it.k)] for _ in range(8)]
        make = word_maker(rng, it.d, kind)
        c = [[make() for _ in range(8)] for _ in range(16)]
        inputs.append((a, columns, c))
        rows = [[word for _, word in row] for row in a.rows]
        of_d = [[c[i][j] for i, j in lane] for lane in places_of_d()]
        tiles.append(
            (
                packed(of_rows(rows, together, 2), it.bits),
                packed(of_rows(columns, together, 1), it.bits),
                packed(of_d, width),
                [[word] for word in metadata_of(it, a, 0)],
            )
        )
    given = [tensor([tile[i] for tile in tiles]).to(target) for i in range(4)]
    result = torch.zeros_like(given[2])
    getattr(library, it.name)(*given, result, len(tiles))
    for (a, columns, c), words in zip(inputs, result.cpu().tolist(), strict=True):
        for lane, places in enumerate(places_of_d()):
            total = sum((word & 0xFFFFFFFF) << 32 * i for i, word in enumerate(words[lane]))
            for n, (i, j) in enumerate(places):
                want = expected(it, a.rows[i], columns[j], c[i][j], of_mma=True)
                assert hex(total >> n * width & (1 << width) - 1) == hex(want), (i, j)


def test_a_selector_that_names_no_lanes_is_an_error(tmp_path):
    it = Product(8, 32, "f32", "f16", "f16", 2)
    path = tmp_path / "selector.cu"
    path.write_text(mma(it))
    library = jitload.load(str(path), name="test_mma_selector", target="cpu")
    of_a, of_b, of_d = (torch.zeros(32, n, dtype=torch.int32) for n in words_of(it))
    metadata = torch.zeros(32, dtype=torch.int32)
    with pytest.raises(RuntimeError, match=r"selector\.cu:\d+.*mma\.sp: the sparsity selector"):
        getattr(library, it.name)(of_a, of_b, of_d, metadata, torch.zeros_like(of_d), 1)


# ---- wgmma.mma_async.sp

WGMMA = [
    Product(n, k, d, a, b, selector, "", registers, trans)
    for n, k, d, a, b, selector, trans in (
        (8, 32, "f16", "f16", "f16", 0, 1),
        (8, 32, "f32", "f16", "f16", 1, 0),
        (256, 32, "f32", "bf16", "bf16", 0, 0),
        (24, 32, "f32", "bf16", "bf16", 1, 1),
        (16, 16, "f32", "tf32", "tf32", 1, 0),
        (40, 64, "f32", "e4m3", "e5m2", 0, 0),
        (16, 64, "f16", "e5m2", "e4m3", 0, 0),
        (32, 64, "s32", "s8", "u8", 0, 0),
    )
    for registers in (False, True)
]


def wgmma(it: Product) -> str:
    count = it.n // (4 if it.d == "f16" else 2)
    first = count + (4 if it.in_registers else 1)
    d = ", ".join(f"%{i}" for i in range(count))
    a = f"%{count}"
    if it.in_registers:
        a = "{" + ", ".join(f"%{count + i}" for i in range(4)) + "}"
    ends = "" if it.d == "s32" else ", 1, 1"
    if it.bits == 16:
        ends += f", {it.trans_b}" if it.in_registers else f", 0, {it.trans_b}"
    outputs = ", ".join(f'"+r"(d[{i}])' for i in range(count))
    inputs = [f'"r"(a[{i}])' for i in range(4)] if it.in_registers else ['"l"(start + of_a)']
    inputs = ", ".join([*inputs, '"l"(start + of_b)', '"r"(metadata)'])
    return f"""
__global__ void {it.name}_kernel(const int* image, int words, long long of_a, long long of_b,
                                 const int* A, const int* M, int* D) {{
    extern __shared__ char dynamic[];
    char* const memory = rounded_up(dynamic);
    copy(image, memory, words);
    const long long start = start_of(memory);
    const int metadata = M[threadIdx.x];
    int a[4], d[{count}];
    for (int i = 0; i < 4; i++) a[i] = A[threadIdx.x * 4 + i];
    for (int i = 0; i < {count}; i++) d[i] = D[threadIdx.x * {count} + i];
    fence();
    asm volatile("wgmma.mma_async.sp.sync.aligned.m64n{it.n}k{it.k}.{it.d}.{it.a}.{it.b}"
                 " {{{d}}}, {a}, %{first}, %{first + 1}, {it.selector}, 1{ends};"
                 : {outputs} : {inputs});
    commit();
    wait<0>();
    for (int i = 0; i < {count}; i++) D[threadIdx.x * {count} + i] = d[i];
}}
extern "C" void {it.name}(const int* image, int words, long long of_a, long long of_b,
                          const int* A, const int* M, int* D) {{
    const int bytes = words * 4 + 1024;
    cudaFuncSetAttribute({it.name}_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    {it.name}_kernel<<<1, 128, bytes>>>(image, words, of_a, of_b, A, M, D);
}}"""


@pytest.fixture(scope="module")
def warpgroups(tmp_path_factory, target):
    if target == "cuda" and torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("needs a GPU of compute capability 9")
    path = tmp_path_factory.mktemp("sparse") / "sparse_wgmma.cu"
    path.write_text(START + "\n".join(map(wgmma, WGMMA)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_CUDA_ARCH_LIST", "9.0a")
        return jitload.load(str(path), name="test_wgmma_sparse", target=target)


def tensor_of(rows: list[list[int]], bits: int) -> torch.Tensor:
    kind = {8: torch.int8, 16: torch.int16, 32: torch.int32}[bits]
    return torch.tensor([[w - (1 << bits) if w >> bits - 1 else w for w in r] for r in rows]).to(
        kind
    )


@pytest.mark.slow
@pytest.mark.parametrize("swizzle", [0, 64, 128])
@pytest.mark.parametrize("it", WGMMA, ids=lambda it: it.name)
def test_a_warpgroups_sparse_product(warpgroups, target, it, swizzle):
    rng = random.Random(it.name)
    width = 16 if it.d == "f16" else 32
    make = word_maker(rng, it.a, "wide")
    a = sparse_matrix(rng, it, 64, make)
    make = word_maker(rng, it.b, "wide")
    columns = [[make() for _ in range(it.k)] for _ in range(it.n)]
    make = word_maker(rng, it.d, "wide")
    c = tensor_of([[make() for _ in range(it.n)] for _ in range(64)], width)
    rows = tensor_of([[word for _, word in row] for row in a.rows], it.bits)
    of_a, of_b = Layout(swizzle), Layout(swizzle, bool(it.trans_b))
    start = -(-of_a.offsets(64, 1)[2] // 1024) * 1024
    image = junk(start + -(-of_b.offsets(it.n, 2)[2] // 1024) * 1024)
    put(image, 0, rows, of_a, 1)
    put(image, start, tensor_of(columns, it.bits), of_b, 2)  # B has 64 bytes along k
    at_a, at_b = of_a.descriptors(64, 1, 0)[0], of_b.descriptors(it.n, 2, start)[0]
    metadata = [word for warp in range(4) for word in metadata_of(it, a, 16 * warp)]
    i, j = accumulators(it.n)
    d = c[i, j].contiguous().view(torch.int32).to(target)
    getattr(warpgroups, it.name)(
        image.view(torch.int32).to(target), len(image) // 4, at_a, at_b,
        registers_of_a(rows)[0].contiguous().to(target), tensor_of([metadata], 32).to(target), d,
    )  # fmt: skip
    got = torch.zeros_like(c)
    got[i, j] = d.cpu().view(c.dtype)
    mask = (1 << width) - 1
    for m in rng.sample(range(64), 6):
        for n in range(it.n):
            want = expected(it, a.rows[m], columns[n], int(c[m, n]) & mask, of_mma=False)
            assert hex(int(got[m, n]) & mask) == hex(want), (m, n)
