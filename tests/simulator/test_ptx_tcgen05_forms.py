"""tcgen05.mma beyond the dense product: .sp, .ws, .ws.sp and .ashift, for every kind that has them.

A sparse product is held to `mmasim`'s dense one of the elements that A has with those of B that its
metadata chooses. Places in tensor memory are those of the PTX manual's data path layouts, and of
CUTLASS for the metadata, whose figures the manual has as pictures.
"""

from __future__ import annotations

import itertools
import os
import random
from typing import NamedTuple

import mmasim.nv_ptx
import pytest
import torch

from lab.figure.tensor_memory import accumulator_place
from tests.simulator.test_ptx_small_types import (
    CODES,
    SCALE_TYPES,
    TORCH_TYPES,
    bits,
    load,
    packed,
    random_bytes,
    random_c,
    random_scales,
)
from tests.simulator.test_ptx_tcgen05 import START, descriptor
from tests.simulator.test_ptx_wgmma import Layout, junk, put

N = 64
A_AT, SCALES_A_AT, SCALES_B_AT, METADATA_AT = 256, 300, 308, 320  # columns; D begins at 0


class Form(NamedTuple):
    """ws, sp, shift: .ws, .sp, .ashift. parts: of the columns of D, each in lanes of its own."""

    kind: str
    a: str
    b: str
    m: int = 128
    n: int = N
    sp: bool = False
    ws: bool = False
    in_memory: bool = False
    shift: bool = False
    flags: str = ""
    selector: int = 0
    swizzle: int = 64

    @property
    def asm(self) -> str:
        scales = "[%6], [%7], " if "mx" in self.kind else ""
        name = f"tcgen05.mma{'.ws' * self.ws}{'.sp' * self.sp}.cta_group::1.kind::{self.kind}"
        return (
            f"{name}{'.ashift' * self.shift}{self.flags} [%0], {'[%2]' if self.in_memory else '%1'}"
            f", %3, {'[%4], ' * self.sp}%5, {scales}p{', %8' * self.ws};"
        )

    @property
    def parts(self) -> int:
        return 128 // self.m if self.ws else 1

    @property
    def unit(self) -> int:
        """Bytes of what two bits of metadata choose."""
        return 2 if self.kind in ("f16", "tf32") else 1

    def lane(self, row: int) -> int:
        return row // 16 * 32 + row % 16 if self.m == 64 and not self.ws else row


SHARED = [
    Form("f16", "f16", "f16", sp=True),
    Form("f16", "bf16", "bf16", m=64, n=72, sp=True, selector=2, flags=".collector::a::fill"),
    Form("tf32", "tf32", "tf32", sp=True, selector=1, swizzle=0),
    Form("f8f6f4", "e4m3", "e2m3", sp=True, swizzle=128),
    Form("f8f6f4", "e2m1", "e5m2", m=64, sp=True),
    Form("i8", "s8", "u8", sp=True),
    Form("mxf8f6f4.block_scale", "e3m2", "e4m3", sp=True),
    Form("mxf4.block_scale.block32", "e2m1", "e2m1", sp=True),
    Form("mxf4nvf4.block_scale.scale_vec::4X", "e2m1", "e2m1", sp=True, n=24),
    *(Form("f16", "f16", "f16", m=m, ws=True) for m in (32, 64, 128)),
    Form("f16", "bf16", "bf16", m=32, n=256, ws=True, flags=".collector::b3::lastuse"),
    Form("tf32", "tf32", "tf32", m=64, n=128, ws=True),
    Form("f8f6f4", "e5m2", "e3m2", m=32, ws=True),
    Form("i8", "u8", "s8", m=64, ws=True, flags=".collector::b2::use"),
    *(Form("f16", "f16", "f16", m=m, ws=True, sp=True, selector=3) for m in (32, 64, 128)),
    Form("i8", "s8", "s8", m=32, ws=True, sp=True),
]
MEMORY = [
    Form("f16", "f16", "f16", m=64, sp=True),
    Form("f8f6f4", "e4m3", "e4m3", sp=True),
    *(Form("f16", "f16", "f16", m=m, ws=True) for m in (32, 64)),
    Form("f8f6f4", "e2m3", "e4m3", m=64, ws=True, sp=True),
    Form("f16", "bf16", "bf16", shift=True, flags=".collector::a::lastuse"),
    Form("i8", "s8", "s8", shift=True, sp=True),
]
FORMS = SHARED + [form._replace(in_memory=True) for form in MEMORY]

KERNEL = """
__global__ void form_kernel(int which, const int* image, int words, const int* memory_image,
                            const long long* descriptors, int instruction, long long mask, int* D) {
    extern __shared__ char dynamic[];
    __shared__ unsigned memory;
    __shared__ alignas(8) uint64_t barrier;
    char* const here = prepare(dynamic, image, words, &barrier);
    if (threadIdx.x < 32) allocate(&memory, 512);
    __syncthreads();
    fill(memory, memory_image, 512);
    before();
    __syncthreads();
    if (threadIdx.x == 0) {
        after();
        const long long start = (at(here) & 0x3ffff) >> 4;
        ISSUE
        asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];"
                     :: "r"(at(&barrier)) : "memory");
    }
    wait_for(at(&barrier), 0);
    after();
    read(memory, D, 256);
    __syncthreads();
    if (threadIdx.x < 32) deallocate(memory, 512);
}
extern "C" void form(int which, const int* image, int words, const int* memory_image,
                     const long long* descriptors, int instruction, long long mask, int* D) {
    const int bytes = words * 4 + 1024;
    cudaFuncSetAttribute(form_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
    form_kernel<<<1, 128, bytes>>>(which, image, words, memory_image, descriptors, instruction,
                                   mask, D);
}"""


def issue(which: int, form: Form) -> str:
    return f"""if (which == {which})
            asm volatile("{{ .reg .pred p; setp.eq.b32 p, 0, 0; {form.asm} }}"
                         :: "r"(memory), "l"(start + descriptors[0]), "r"(memory + {A_AT}),
                            "l"(start + descriptors[1]), "r"(memory + {METADATA_AT}),
                            "r"(instruction), "r"(memory + {SCALES_A_AT}),
                            "r"(memory + {SCALES_B_AT}), "l"(mask));"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    issues = "\n        ".join(issue(i, form) for i, form in enumerate(FORMS))
    return load(tmp_path_factory, "tcgen05_forms", START + KERNEL.replace("ISSUE", issues), "10.0a")


def instruction_of(form: Form) -> int:
    codes = CODES | {"f16": 0, "bf16": 1, "tf32": 2, "u8": 0, "s8": 1}
    a, b = (1, 1) if "mxf4" in form.kind else (codes[form.a], codes[form.b])
    word = form.selector | form.sp << 2 | a << 7 | b << 10 | form.n >> 3 << 17 | form.m >> 4 << 24
    if "mx" in form.kind:
        return word | ("4X" not in form.kind) << 23
    return word | (2 if form.kind == "i8" else 1) << 4 | (3 << 30) * form.ws


def typed(words: torch.Tensor, name: str) -> torch.Tensor:
    plain = {"f16": torch.float16, "bf16": torch.bfloat16, "tf32": torch.float32}
    plain |= {"s8": torch.int8, "u8": torch.uint8} | TORCH_TYPES
    return words.contiguous().view(plain.get(name, torch.uint8))


def random_metadata(form: Form, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """The chosen unit of each four, [..., units of A]: values that the manual has a meaning for."""
    known = (0b1110, 0b0100) if form.kind == "tf32" else (4, 8, 12, 9, 13, 6, 14)
    count = 32 // form.unit // 2
    chosen = torch.tensor(random.Random(seed).choices(known, k=count * shape[0] * shape[1]))
    return torch.stack([chosen & 3, chosen >> 2], -1).view(*shape, 2 * count)


def put_metadata(form: Form, chosen: torch.Tensor, part_lane: int, memory: torch.Tensor) -> None:
    """chosen: [m, units]."""
    for row, units in enumerate(chosen.tolist()):
        word = sum(unit << 2 * i for i, unit in enumerate(units))
        if form.unit == 1:
            for half in range(2):
                put_word(memory, part_lane + form.lane(row), METADATA_AT + half, word >> 32 * half)
            continue
        for half in range(2):  # of 16 lanes eight have the first half of the metadata of 16 rows
            lane = part_lane + form.lane(row // 16 * 16 + half * 8 + row % 8)
            at, shift = METADATA_AT + form.selector, row // 8 % 2 * 16
            before = int(memory[lane, at]) & 0xFFFF << (16 - shift)
            put_word(memory, lane, at, before | (word >> 16 * half & 0xFFFF) << shift)


def put_word(memory: torch.Tensor, lane: int, column: int, word: int) -> None:
    word &= 0xFFFFFFFF
    memory[lane, column] = word - (word >> 31 << 32)


def truth(form: Form):
    if "mx" not in form.kind:
        k = 32 // typed(torch.zeros(32, dtype=torch.uint8), form.a).element_size()
        shape = f"m128n64k{k}.kind::{form.kind}.f32.{form.a}.{form.b}"
        return mmasim.nv_ptx.TCGen05MMA("Blackwell", shape)
    kind, k, count, scale = scaling(form)
    shape = f"m128n64k{k}.kind::{kind}.block{k // count}.f32.{form.a}.{form.b}.{scale}"
    return mmasim.nv_ptx.TCGen05MMABlockScale("Blackwell", shape)


def scaling(form: Form) -> tuple[str, int, int, str]:
    """The kind, k of the elements that A has, scales of a row, and their type."""
    kind = form.kind.split(".")[0]
    k, count = {"mxf8f6f4": (32, 1), "mxf4": (64, 2), "mxf4nvf4": (64, 4)}[kind]
    return kind, k, count, "ue4m3" if "4X" in form.kind else "ue8m0"


def image_of(form: Form, rows: torch.Tensor, name: str) -> torch.Tensor:
    return rows if "mxf4" in form.kind or name not in CODES else packed(rows, name)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.asm.split(" ")[0][8:])
@pytest.mark.parametrize("style", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_products_are_those_of_the_model(library, form, style):
    """PRODUCTS says how many of each form and style."""
    for seed in range(int(os.environ.get("PRODUCTS", "1"))):
        run(library, form, style, mask=0, seed=seed)


@pytest.mark.parametrize(("m", "n", "ws"), sorted({(form.m, form.n, form.ws) for form in FORMS}))
def test_accumulators_are_drawn_where_products_put_them(m, n, ws):
    form = Form("f16", "f16", "f16", m=m, n=n, ws=ws)
    for row, column in itertools.product(range(m), range(n)):
        part, at = divmod(column, n // form.parts)
        assert accumulator_place(m, n, row, column, ws=ws) == (0, part * m + form.lane(row), at)


# First zeros or columns of B by part; then three columns of B and two of zeros by turns.
MASK = 1 << 39 | (2 - 1) << 40 | (3 - 1) << 48 | 0b0101 << 32 | 1 | 2 << 8 | 1 << 24


@pytest.mark.parametrize("form", [f for f in FORMS if f.ws][::2], ids=lambda f: f"{f.m}x{f.n}")
@pytest.mark.parametrize("shift", [pytest.param(0, marks=pytest.mark.slow), 16])
def test_columns_of_b_may_be_zeros_and_moved(library, form, shift):
    run(library, form, 0, MASK | shift << 56, shift)


def source_of(form: Form, column: int, mask: int, shift: int) -> int | None:
    """The row of B, or none for zeros."""
    part, at = divmod(column, form.n // form.parts)
    spans = [True] * 2 + [False] * 3 if mask >> 32 + part & 1 else [False] * 3 + [True] * 2
    at += mask >> 8 * part & 255
    return None if mask and spans[at % 5] else column + shift


def run(library, form: Form, style: int, mask: int, shift: int = 0, seed: int = 0) -> None:
    generator = torch.Generator().manual_seed(1000 * seed + FORMS.index(form) + style)
    ks, lines = (2 if form.sp else 1), form.n + shift
    b = random_bytes((lines, 32 * ks), style, generator)
    differ = form.parts if form.in_memory else 1
    a = random_bytes((differ, form.m, 32), style, generator).expand(form.parts, -1, -1)
    c = random_c((form.m, form.n), style, generator)
    c = c.clamp(-1e6, 1e6).int() if form.kind == "i8" else c
    chosen = random_metadata(form, (form.parts, form.m), 1000 * seed + style)
    sources = [source_of(form, j, mask & 0xFFFFFFFFFFFFFF, shift) for j in range(form.n)]
    columns = torch.stack([torch.zeros_like(b[0]) if j is None else b[j] for j in sources])
    memory = torch.zeros(128, 512, dtype=torch.int32)
    of_part = form.n // form.parts
    given = []
    if "mx" in form.kind:
        _, _, count, scale = scaling(form)
        for rows, first in ((form.m, SCALES_A_AT), (form.n, SCALES_B_AT)):
            words = random_scales((rows,), style, generator)
            for row in range(0, rows, 32):
                part = words[row : row + 32].view(torch.int32)[:, 0]
                for quarter in range(4):
                    memory[quarter * 32 : quarter * 32 + len(part), first + row // 32] = part
            given.append(words[:, :count].contiguous().view(SCALE_TYPES[scale]))
    wanted = []
    for part in range(form.parts):
        lane = part * form.m
        of_d = c[:, part * of_part : (part + 1) * of_part]
        for row in range(form.m):
            memory[lane + form.lane(row), :of_part] = of_d[row].view(torch.int32)
            words = a[part, row].contiguous().view(torch.int32)
            memory[lane + form.lane(row), A_AT : A_AT + 8] = words
        if form.sp:
            put_metadata(form, chosen[part], lane, memory)
        some = columns[part * of_part : (part + 1) * of_part].view(of_part, -1, form.unit)
        of_b = some[:, None].expand(-1, form.m, -1, -1)
        if form.sp:
            at = chosen[part] + torch.arange(chosen.shape[-1]) // 2 * 4
            of_b = some[:, at]
        of_b = of_b.reshape(of_part, form.m, 32).transpose(0, 1)
        of_a = torch.cat([a[part, :1], a[part, :-1]]) if form.shift else a[part]
        of_a = of_a[:, None].expand(-1, of_part, -1)
        x, y = typed(of_a, form.a), typed(of_b, form.b)
        if form.kind == "i8":
            wanted.append((of_d + (x.int() * y.int()).sum(-1)).int())
            continue
        scales = (
            [given[0][:, None].expand(-1, of_part, -1), given[1].expand(form.m, -1, -1)]
            if given
            else []
        )
        result = truth(form).dpa(
            x[None], y[None], of_d[None].contiguous(), *(s[None].contiguous() for s in scales)
        )
        wanted.append(bits(result[0]))
    of = Layout(form.swizzle)
    start = -(-of.offsets(form.m, 1)[2] // 1024) * 1024
    image = junk(start + of.offsets(lines, ks)[2])
    put(image, 0, image_of(form, a[0].contiguous(), form.a), of, 1)
    put(image, start, image_of(form, b, form.b), of, ks)
    # B's steps of 32 bytes lie one behind the other, as an instruction of twice the k reads them.
    descriptors = torch.tensor(
        [descriptor(of, form.m, 1, 0, 0), descriptor(of, lines, ks, 0, start)]
    )
    word = instruction_of(form)
    d = torch.zeros(128, 256, dtype=torch.int32)
    library.form(
        FORMS.index(form), image.view(torch.int32), len(image) // 4, memory, descriptors,
        word - (word >> 31 << 32), mask, d,
    )  # fmt: skip
    for part, expected in enumerate(wanted):
        rows = [part * form.m + form.lane(row) for row in range(form.m)]
        wrong = d[rows, :of_part] != expected
        assert not wrong.any(), (part, int(wrong.sum()), wrong.nonzero()[:3].tolist())


# ---- What there is not

SPARSE = Form("f16", "f16", "f16", sp=True)
STATIONARY = Form("f16", "f16", "f16", m=64, ws=True)
SHIFTED = next(form for form in FORMS if form.shift)


@pytest.mark.parametrize(
    ("form", "word", "mask", "message"),
    [
        (SPARSE, instruction_of(SPARSE._replace(sp=False)), 0, "bit 2 is 0: it says that A is not"),
        (STATIONARY, instruction_of(STATIONARY) | 4, 0, r"bit 2 is 1: .* needs \.sp"),
        (STATIONARY, instruction_of(STATIONARY._replace(n=96)), 0, "N is 96: with .ws it is 64"),
        (STATIONARY, instruction_of(STATIONARY._replace(m=16)), 0, "M is 16: with .ws it is 32"),
        (SPARSE, instruction_of(SPARSE._replace(m=32)), 0, "M is 32: it is 64 or 128 with cta_g"),
        (SPARSE, instruction_of(SPARSE) | 5 << 7 | 5 << 10, 0, "are 5 and 5; with this kind they"),
        (SPARSE, instruction_of(SPARSE._replace(n=264)), 0, "N is 264: it is a multiple of 8 to"),
        (SHIFTED, instruction_of(SHIFTED._replace(m=64)), 0, r"M is 64: with \.ashift it is 128"),
        (STATIONARY, instruction_of(STATIONARY), 33 << 56, "moves columns by 33: .* allow 32"),
        (STATIONARY, instruction_of(STATIONARY) & 0x3FFFFFFF, 1 << 56, "by 1: .* allow 0"),
        (STATIONARY, instruction_of(STATIONARY), 1 << 36, "bits 36 to 38, 62 and 63 are 0"),
    ],
)  # fmt: skip
def test_wrong_descriptors_are_errors_that_say_what_is_wrong(library, form, word, mask, message):
    image = junk(65536).view(torch.int32)
    memory, d = torch.zeros(128, 512, dtype=torch.int32), torch.zeros(128, 256, dtype=torch.int32)
    word = word & 0xFFFFFFFF
    with pytest.raises(RuntimeError, match=r"tcgen05\.mma: its .*" + message):
        library.form(
            FORMS.index(form), image, len(image), memory, torch.zeros(2, dtype=torch.int64),
            word - (word >> 31 << 32), mask, d,
        )  # fmt: skip
