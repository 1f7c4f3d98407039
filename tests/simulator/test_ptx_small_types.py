"""Floats of 8, 6 and 4 bits on Blackwell, with and without block scales: mma.sync and tcgen05.mma.

The truth is `mmasim`, a published model whose authors found it bit-equal to the hardware. It knows
neither registers nor memories: which lane and which byte has what is written down here.
"""

from __future__ import annotations

import os
import random
from typing import NamedTuple

import mmasim.nv_ptx
import pytest
import torch

import jitload
from lab.figure.tensor_memory import scale_place
from tests.simulator.test_ptx_tcgen05 import START, descriptor
from tests.simulator.test_ptx_wgmma import Layout, prepared

TYPES = ("e4m3", "e5m2", "e3m2", "e2m3", "e2m1")
TORCH_TYPES = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}
SCALE_TYPES = {"ue8m0": torch.float8_e8m0fnu, "ue4m3": torch.float8_e4m3fn}
LANE = torch.arange(32)


class Scaling(NamedTuple):
    kind: str
    k: int
    vectors: int  # scales of a row
    scale: str


SCALINGS = [
    Scaling("mxf8f6f4", 32, 1, "ue8m0"),
    Scaling("mxf4", 64, 2, "ue8m0"),
    Scaling("mxf4nvf4", 64, 2, "ue8m0"),
    Scaling("mxf4nvf4", 64, 4, "ue4m3"),
]


class Case(NamedTuple):
    """A product of mma.sync: without a scaling, D is of type `d`."""

    a: str
    b: str
    d: str = "f32"
    scaling: Scaling | None = None
    is_sparse: bool = False

    @property
    def name(self) -> str:
        scaling = "_".join(map(str, self.scaling)) if self.scaling else "plain"
        return f"mma_{self.a}_{self.b}_{self.d}_{scaling}{'_sparse' * self.is_sparse}"

    @property
    def k(self) -> int:
        """Of A, which has half of them if it is sparse."""
        return self.scaling.k if self.scaling else 32

    def truth(self):
        if self.scaling is None:
            shape = f"m16n8k32.kind::f8f6f4.{self.d}.{self.a}.{self.b}.{self.d}"
            return mmasim.nv_ptx.MMA("RTX Blackwell", shape)
        kind, k, vectors, scale = self.scaling
        block = k // vectors
        shape = f"m16n8k{k}.kind::{kind}.block{block}.f32.{self.a}.{self.b}.f32.{scale}"
        return mmasim.nv_ptx.MMABlockScale("RTX Blackwell", shape)


PLAIN = [Case(a, b) for a in TYPES for b in TYPES]
PLAIN += [Case(a, b, "f16") for a, b in zip(TYPES, reversed(TYPES), strict=True)]
SCALED = [Case(a, b, scaling=SCALINGS[0]) for a in TYPES for b in TYPES]
SCALED += [Case("e2m1", "e2m1", scaling=scaling) for scaling in SCALINGS[1:]]
SPARSE = [Case("e2m1", "e3m2", "f16", None, True), Case("e4m3", "e2m3", "f32", None, True)]
SPARSE += [Case("e3m2", "e5m2", "f32", SCALINGS[0], True)]
SPARSE += [Case("e2m1", "e2m1", "f32", scaling, True) for scaling in SCALINGS[1:]]
# The first byte and the lanes of A's scales, and of B's: multiples of the number of scales.
SELECTORS = {
    1: [(0, 0, 0, 0), (1, 1, 2, 3), (3, 0, 1, 1), (2, 1, 3, 2)],
    2: [(2, 1, 0, 3)],
    4: [(0, 0, 0, 1)],
}


def selectors(case: Case) -> tuple[int, int, int, int]:
    choices = SELECTORS[case.scaling.vectors]
    return choices[(SCALED + SPARSE).index(case) % len(choices)]


def mma_kernel(case: Case) -> str:
    results = 2 if case.d == "f16" else 4
    d, a, b = (
        "{" + ", ".join(f"%{i}" for i in range(first, first + count)) + "}"
        for first, count in ((0, results), (results, 4), (results + 4, 4))
    )
    of_b = 4 if case.is_sparse else 2
    b = b if case.is_sparse else f"{{%{results + 4}, %{results + 5}}}"
    name, inputs = case.name, [f'"r"(a[{i}])' for i in range(4)]
    inputs += [f'"r"(b[{i % of_b}])' for i in range(4)] + [f'"r"(scale[{i}])' for i in range(3)]
    if case.scaling is None:
        mnemonic = f"kind::f8f6f4.{case.d}.{case.a}.{case.b}.{case.d}"
        scales = ""
    else:
        kind, _, vectors, scale = case.scaling
        mnemonic = (
            f"kind::{kind}.block_scale.scale_vec::{vectors}X.f32.{case.a}.{case.b}.f32.{scale}"
        )
        byte_a, lane_a, byte_b, lane_b = selectors(case)
        scales = f", {{%12}}, {{{byte_a}, {lane_a}}}, {{%13}}, {{{byte_b}, {lane_b}}}"
    outputs = ", ".join(f'"+r"(d[{i}])' for i in range(results))
    sparse = ".sp::ordered_metadata" if case.is_sparse else ""
    scales = (f", %{results + 10}, 0" if case.is_sparse else "") + scales
    shape = f"m16n8k{2 * case.k if case.is_sparse else case.k}"
    return f"""
__global__ void {name}_kernel(const int* A, const int* B, const int* S, int* D) {{
    const int at = blockIdx.x * 32 + threadIdx.x;
    const int *a = A + at * 4, *b = B + at * {of_b}, *scale = S + at * 3;
    int* const d = D + at * {results};
    asm volatile("mma{sparse}.sync.aligned.{shape}.row.col.{mnemonic} {d}, {a}, {b}, {d}{scales};"
                 : {outputs} : {", ".join(inputs)});
}}
extern "C" void {name}(const int* A, const int* B, const int* S, int* D, int tiles) {{
    {name}_kernel<<<tiles, 32>>>(A, B, S, D);
}}"""


def load(tmp_path_factory, name: str, text: str, architecture: str):
    path = tmp_path_factory.mktemp("small") / f"{name}.cu"
    path.write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_CUDA_ARCH_LIST", architecture)
        return jitload.load(str(path), name=f"test_{name}", target="cpu")


@pytest.fixture(scope="module")
def of_warps(tmp_path_factory):
    return load(
        tmp_path_factory, "small_mma", "\n".join(map(mma_kernel, PLAIN + SCALED + SPARSE)), "12.0a"
    )


# ---- Numbers: any bits; mostly zeros; sizes that cancel


def random_bytes(shape: tuple[int, ...], style: int, generator: torch.Generator) -> torch.Tensor:
    some = torch.randint(0, 256, shape, generator=generator, dtype=torch.int32)
    chance = torch.rand(shape, generator=generator)
    if style == 1:
        some[chance < 0.6] = 0
    elif style == 2:
        some = torch.where(chance < 0.5, some & 0x83, some)
    return some.to(torch.uint8)


def random_c(shape: tuple[int, ...], style: int, generator: torch.Generator) -> torch.Tensor:
    numbers = torch.randn(shape, generator=generator)
    spread = torch.randint(-10, 10, shape, generator=generator).float()
    if style == 1:
        spread = torch.randint(-148, 100, shape, generator=generator).float()
    return torch.zeros(shape) if style == 2 else numbers * spread.exp2()


def random_scales(rows: tuple[int, ...], style: int, generator: torch.Generator) -> torch.Tensor:
    """Four bytes for each: any, with those that are no number, or powers near one."""
    low, high = (0, 256) if style else (110, 140)
    return torch.randint(low, high, (*rows, 4), generator=generator).to(torch.uint8)


def typed(words: torch.Tensor, name: str) -> torch.Tensor:
    return words.view(TORCH_TYPES[name]) if name in TORCH_TYPES else words


def outer(truth, a, b, c, scales_a=None, scales_b=None) -> torch.Tensor:
    """D of every tile, by `truth`: a [tiles, m, bytes], b [tiles, n, bytes], c [tiles, m, n]."""
    m, n = c.shape[1:]
    rows, columns = (
        lambda x: x[:, :, None].expand(-1, -1, n, -1).contiguous(),
        lambda x: (x if x.dim() == 4 else x[:, None].expand(-1, m, -1, -1)).contiguous(),
    )
    given = [rows(a), columns(b), c]
    if scales_a is not None:
        given += [rows(scales_a), columns(scales_b)]
    return truth.dpa(*given)


def bits(values: torch.Tensor) -> torch.Tensor:
    return values.contiguous().view(torch.int16 if values.dtype == torch.float16 else torch.int32)


# ---- mma.sync


def fragments(matrix: torch.Tensor, registers: int) -> torch.Tensor:
    """[tiles, rows, 32 bytes] as [tiles, 32 lanes, registers]."""
    words = matrix.contiguous().view(torch.int32)
    high = matrix.shape[1] // 8
    parts = [
        words[:, LANE // 4 + 8 * (r % high), LANE % 4 + 4 * (r // high)] for r in range(registers)
    ]
    return torch.stack(parts, -1).contiguous()


def results(d: torch.Tensor) -> torch.Tensor:
    """D [tiles, 16, 8] in the registers of lanes; its own inverse is `matrix_of`."""
    words = d.contiguous().view(torch.int32)
    if d.dtype == torch.float16:
        return torch.stack(
            [words[:, LANE // 4 + 8 * r, LANE % 4] for r in range(2)], -1
        ).contiguous()
    places = [(LANE // 4 + 8 * (r // 2), LANE % 4 * 2 + r % 2) for r in range(4)]
    return torch.stack([words[:, row, column] for row, column in places], -1).contiguous()


def sparse_columns(b: torch.Tensor, generator: torch.Generator):
    """The bytes of B's columns that each row of A has, [tiles, 16, 8, 32], and metadata, which says
    so: of four lanes two have that of a row, the first half and the second."""
    tiles = len(b)
    known = torch.tensor([4, 8, 12, 9, 13, 6, 14])
    pairs = known[torch.randint(0, 7, (tiles, 16, 16), generator=generator)]
    at = torch.stack([pairs & 3, pairs >> 2], -1).view(tiles, 16, 32)
    at = at + torch.arange(32) // 2 * 4
    chosen = b[:, None].expand(-1, 16, -1, -1).gather(3, at[:, :, None].expand(-1, -1, 8, -1))
    halves = (pairs.view(tiles, 16, 2, 8) << 4 * torch.arange(8)).sum(-1)
    lane = LANE % 4
    words = halves[:, LANE // 4 + lane % 2 * 8, lane // 2]
    return chosen, (words - (words >> 31 << 32)).int()


@pytest.mark.parametrize(
    "case", PLAIN + SCALED + SPARSE, ids=lambda case: case.name.removeprefix("mma_")
)
def test_a_warp_multiplies(of_warps, case):
    """TILES says how many of each case and style."""
    generator = torch.Generator().manual_seed(sum(map(ord, case.name)))
    tiles = int(os.environ.get("TILES", "4"))
    for style in range(3):
        a = random_bytes((tiles, 16, 32), style, generator)
        b = random_bytes((tiles, 8, 64 if case.is_sparse else 32), style, generator)
        c = random_c((tiles, 16, 8), style, generator)
        c = c.half() if case.d == "f16" else c
        scales = torch.zeros(tiles, 32, 3, dtype=torch.int32)
        given = []
        if case.scaling:
            count, (byte_a, lane_a, byte_b, lane_b) = case.scaling.vectors, selectors(case)
            of_a, of_b = (random_scales((tiles, rows), style, generator) for rows in (16, 8))
            words = [x.view(torch.int32)[..., 0] for x in (of_a, of_b)]
            for half in range(2):
                scales[:, 2 * lane_a + half :: 4, 0] = words[0][:, 8 * half : 8 * half + 8]
            scales[:, lane_b::4, 1] = words[1]
            kind = SCALE_TYPES[case.scaling.scale]
            given = [
                x[..., byte : byte + count].contiguous().view(kind)
                for x, byte in ((of_a, byte_a), (of_b, byte_b))
            ]
        chosen = b
        if case.is_sparse:
            chosen, scales[:, :, 2] = sparse_columns(b, generator)
        wanted = outer(case.truth(), typed(a, case.a), typed(chosen, case.b), c, *given)
        d = results(c)
        of_b = fragments(b, 4 if case.is_sparse else 2)
        getattr(of_warps, case.name)(fragments(a, 4), of_b, scales, d, tiles)
        assert torch.equal(d, results(wanted)), style


# ---- tcgen05.mma

N = 32
A_AT, SCALES_A_AT, SCALES_B_AT = 256, 300, 308  # columns of tensor memory; D begins at 0
SCALE_BYTES = {1: (3, 1), 2: (0, 2), 4: (0, 0)}  # by their number, the first one's of A and of B

TENSOR_KERNEL = """
__global__ void {name}_kernel(const int* image, int words, const int* memory_image,
                              const long long* descriptors, int instruction, int* D) {{
    extern __shared__ char dynamic[];
    __shared__ unsigned memory;
    __shared__ alignas(8) uint64_t barrier;
    char* const here = prepare(dynamic, image, words, &barrier);
    if (threadIdx.x < 32) allocate(&memory, 512);
    __syncthreads();
    fill(memory, memory_image, 512);
    before();
    __syncthreads();
    if (threadIdx.x == 0) {{
        after();
        const long long start = (at(here) & 0x3ffff) >> 4;
        asm volatile("{{ .reg .pred p; setp.eq.b32 p, 0, 0;"
                     " tcgen05.mma.cta_group::1.kind::{kind} [%0], {a}, %2, %3, {scales}p; }}"
                     :: "r"(memory), {given_a}, "l"(start + descriptors[1]), "r"(instruction),
                        "r"(memory + {scales_a}), "r"(memory + {scales_b}));
        asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];"
                     :: "r"(at(&barrier)) : "memory");
    }}
    wait_for(at(&barrier), 0);
    after();
    read(memory, D, {n});
    __syncthreads();
    if (threadIdx.x < 32) deallocate(memory, 512);
}}
extern "C" void {name}(const int* image, int words, const int* memory_image,
                       const long long* descriptors, int instruction, int* D) {{
    const int bytes = words * 4 + 1024;
    cudaFuncSetAttribute({name}_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    {name}_kernel<<<1, 128, bytes>>>(image, words, memory_image, descriptors, instruction, D);
}}"""


class Product(NamedTuple):
    scaling: Scaling | None
    vectors: str  # of scales, as it is written
    in_memory: bool = False

    @property
    def kind(self) -> str:
        if self.scaling is None:
            return "f8f6f4"
        return f"{self.scaling.kind}.block_scale{self.vectors}"

    @property
    def name(self) -> str:
        name = self.kind.replace(".", "_").replace("::", "_")
        return f"tensor_{name}{'_memory' if self.in_memory else ''}"

    @property
    def kernel(self) -> str:
        return TENSOR_KERNEL.format(
            name=self.name,
            kind=self.kind,
            a="[%1]" if self.in_memory else "%1",
            given_a=f'"r"(memory + {A_AT})' if self.in_memory else '"l"(start + descriptors[0])',
            scales="[%4], [%5], " if self.scaling else "",
            scales_a=SCALES_A_AT,
            scales_b=SCALES_B_AT,
            n=N,
        )


PRODUCTS = [
    Product(None, ""),
    Product(None, "", True),
    Product(SCALINGS[0], ""),
    Product(SCALINGS[0], ".block32", True),
    Product(SCALINGS[0], ".scale_vec::1X"),
    Product(SCALINGS[1], ""),
    Product(SCALINGS[1], ".scale_vec::2X"),
    Product(SCALINGS[2], ".block32"),
    Product(SCALINGS[3], ".scale_vec::4X"),
    Product(SCALINGS[3], ".block16", True),
    Product(SCALINGS[3]._replace(scale="ue8m0"), ".block16"),
]
CODES = {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5}


@pytest.fixture(scope="module")
def of_tensors(tmp_path_factory):
    kernels = {product.name: product.kernel for product in PRODUCTS}
    return load(tmp_path_factory, "small_tcgen05", START + "\n".join(kernels.values()), "10.0a")


def packed(numbers: torch.Tensor, name: str) -> torch.Tensor:
    """Rows of a byte for each number, as shared memory has them: 16 numbers in 16 bytes, of which
    those of 6 bits take the first 12, those of 4 bits the first 8."""
    if name in TORCH_TYPES:
        return numbers
    width = 4 if name == "e2m1" else 6
    value = numbers.int() >> 2 & 15 if width == 4 else numbers.int() & 63
    ones = value[..., None] >> torch.arange(width) & 1
    ones = ones.view(len(numbers), -1, 16 * width)
    bytes_ = (ones.view(*ones.shape[:2], -1, 8) << torch.arange(8)).sum(-1)
    rows = torch.full((*ones.shape[:2], 16), 0x5A)
    rows[..., : 2 * width] = bytes_
    return rows.view(len(numbers), -1).to(torch.uint8)


def of_products() -> list:
    """Each product with its pairs of types, and one swizzle after the other."""
    pairs = [("e4m3", "e2m1"), ("e3m2", "e5m2"), ("e2m3", "e3m2"), ("e2m1", "e2m3")]
    found = []
    for product in PRODUCTS:
        is_packed = product.scaling is not None and product.scaling.k == 64
        for types in [("e2m1", "e2m1")] if is_packed else pairs:
            swizzle = (0, 32, 64, 128)[len(found) % 4]
            name = f"{product.name.removeprefix('tensor_')}-{'-'.join(types)}-{swizzle}"
            found.append(pytest.param(product, types, swizzle, id=name))
    return found


def tensor_product(of_tensors, product, types, swizzle, a, b, c, scales=()) -> torch.Tensor:
    """D, from rows of bytes; scales: those of A and of B, four bytes for each row, of which
    SCALE_BYTES says the first that counts."""
    scaling, (of_a, of_b) = product.scaling, types
    layout = Layout(swizzle)
    memory = torch.zeros(128, 512, dtype=torch.int32)
    memory[:, :N] = c.view(torch.int32)
    memory[:, A_AT : A_AT + 8] = a.view(torch.int32)
    is_packed = scaling is not None and scaling.k == 64
    instruction = N >> 3 << 17 | 128 >> 4 << 24
    instruction |= (1 if is_packed else CODES[of_a]) << 7 | (1 if is_packed else CODES[of_b]) << 10
    if scaling is None:
        instruction |= 1 << 4
    else:
        byte_a, byte_b = SCALE_BYTES[scaling.vectors]
        instruction |= (scaling.scale == "ue8m0") << 23 | byte_a << 29 | byte_b << 4
        for given, first in zip(scales, (SCALES_A_AT, SCALES_B_AT), strict=True):
            words = given.view(torch.int32)[:, 0]
            for row, word in enumerate(words):
                at = scale_place(row, 0)
                memory[at.lane :: 32, first + at.column] = word
    rows = [x if is_packed else packed(x, name) for x, name in ((a, of_a), (b, of_b))]
    image, _ = prepared(*rows, layout, layout, 1)
    start = -(-layout.offsets(128, 1)[2] // 1024) * 1024
    descriptors = torch.tensor(
        [descriptor(layout, 128, 1, 0, 0), descriptor(layout, N, 1, 0, start)]
    )
    d = torch.zeros(128, N, dtype=torch.int32)
    of_product = getattr(of_tensors, product.name)
    word = instruction - (instruction >> 31 << 32)
    of_product(image, len(image), memory, descriptors, word, d)
    return d


@pytest.mark.parametrize(("product", "types", "swizzle"), of_products())
def test_tensor_memory_multiplies(of_tensors, product, types, swizzle):
    """PRODUCTS says how many of each style."""
    generator = torch.Generator().manual_seed(swizzle)
    scaling, (of_a, of_b) = product.scaling, types
    for style in (0, 1) * int(os.environ.get("PRODUCTS", "1")):
        a, b = (random_bytes((rows, 32), style, generator) for rows in (128, N))
        c = random_c((128, N), style, generator)
        scales, given = (), []
        if scaling is None:
            truth = mmasim.nv_ptx.TCGen05MMA(
                "Blackwell", f"m128n{N}k32.kind::f8f6f4.f32.{of_a}.{of_b}"
            )
        else:
            count, scale = scaling.vectors, scaling.scale
            shape = f"m128n{N}k{scaling.k}.kind::{scaling.kind}.block{scaling.k // count}.f32"
            truth = mmasim.nv_ptx.TCGen05MMABlockScale(
                "Blackwell", f"{shape}.{of_a}.{of_b}.{scale}"
            )
            scales = [random_scales((rows,), style, generator) for rows in (128, N)]
            for of_rows, byte in zip(scales, SCALE_BYTES[count], strict=True):
                part = of_rows[:, byte : byte + count].contiguous()
                given.append(part.view(SCALE_TYPES[scale])[None])
        wanted = outer(truth, typed(a, of_a)[None], typed(b, of_b)[None], c[None], *given)[0]
        d = tensor_product(of_tensors, product, types, swizzle, a, b, c, scales)
        wrong = d != bits(wanted)
        assert not wrong.any(), (style, wrong.nonzero()[:3].tolist())


class Measured(NamedTuple):
    """Results of a B200: the first element of D, of numbers that Python's random draws.

    below: the numbers are less. scales: the least one, and the first that is none; there is no C
    if `has_c` is false.
    """

    product: Product
    numbers: str
    below: int
    seed: int
    words: tuple[int, ...]
    scales: tuple[int, int] = (0, 0)
    has_c: bool = True

    def cases(self):
        """a, b, c, the scales of A, and those of B, as lists."""
        drawn, scaling = random.Random(self.seed), self.product.scaling
        k, count = (scaling.k, scaling.vectors) if scaling else (32, 0)
        for _ in self.words:
            a, b = ([drawn.randrange(self.below) for _ in range(k)] for _ in range(2))
            c = drawn.getrandbits(32) if self.has_c else 0
            if c & 0x7F800000 == 0x7F800000:
                c &= 0x807FFFFF
            yield a, b, c, *([drawn.randrange(*self.scales) for _ in range(count)] for _ in "ab")


# Published with sf-tensor's model of tcgen05 (tcgen05_model/validation.py in its repository).
MEASURED = [
    Measured(PRODUCTS[0], "e4m3", 0x7F, 104, (0xEC63D12A, 0x452AF963)),
    Measured(PRODUCTS[0], "e5m2", 0x7C, 300, (0x4D92B09A, 0x4C9C1102)),
    Measured(PRODUCTS[0], "e2m3", 0x40, 301, (0xC29DD800, 0x449D14C1)),
    Measured(PRODUCTS[0], "e3m2", 0x40, 302, (0x52C9EC63, 0xC33B7700)),
    Measured(PRODUCTS[0], "e2m1", 16, 303, (0xC1FE0000, 0xDC3B62A3)),
    Measured(PRODUCTS[2], "e2m1", 16, 910, (0x3F094000,), (115, 140), False),
    Measured(PRODUCTS[5], "e2m1", 16, 920, (0x46BA8000,), (115, 140), False),
    Measured(PRODUCTS[7], "e2m1", 16, 921, (0x40580000,), (115, 140), False),
    Measured(PRODUCTS[8], "e2m1", 16, 700, (0x4429730B, 0xC30545D3), (0, 0x77)),
    Measured(PRODUCTS[10], "e2m1", 16, 922, (0xC6A88896,), (115, 140), False),
]


def row_of(numbers: list[int], name: str) -> torch.Tensor:
    """The 32 bytes of a row: two numbers in a byte if there are 64, else one."""
    if len(numbers) == 64:
        numbers = [low | high << 4 for low, high in zip(numbers[::2], numbers[1::2], strict=True)]
    elif name == "e2m1":
        numbers = [number << 2 for number in numbers]
    return torch.tensor(numbers, dtype=torch.uint8)


@pytest.mark.parametrize("it", MEASURED, ids=lambda it: f"{it.product.name}-{it.numbers}")
def test_bits_are_those_that_a_b200_has_given(of_tensors, it):
    for (x, y, c_word, *of_rows), expected in zip(it.cases(), it.words, strict=True):
        a, b = (torch.zeros(rows, 32, dtype=torch.uint8) for rows in (128, N))
        a[0], b[0] = row_of(x, it.numbers), row_of(y, it.numbers)
        c = torch.zeros(128, N, dtype=torch.int32)
        c[0, 0] = c_word - (c_word >> 31 << 32)
        scales = [torch.zeros(rows, 4, dtype=torch.uint8) for rows in (128, N)]
        if it.product.scaling:
            firsts = SCALE_BYTES[it.product.scaling.vectors]
            for to, row, first in zip(scales, of_rows, firsts, strict=True):
                to[0, first : first + len(row)] = torch.tensor(row, dtype=torch.uint8)
        d = tensor_product(of_tensors, it.product, (it.numbers,) * 2, 32, a, b, c, scales)
        assert int(d[0, 0]) & 0xFFFFFFFF == expected
