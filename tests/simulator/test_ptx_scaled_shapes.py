"""tcgen05.mma with block scales in shapes of few GPUs: M = 128 on a pair of blocks, and K = 96.

A pair is held to `mmasim`. That has no K = 96, which is held to sums in float64 of numbers that
are exact. Where the manual has pictures (scales in the words of the next tile), it is as CUTLASS
has it.
"""

from __future__ import annotations

import functools
import itertools

import mmasim.nv_ptx
import pytest
import torch

from lab.figure.tensor_memory import accumulator_place, scale_place
from tests.simulator.test_ptx_small_types import (
    SCALE_TYPES,
    bits,
    load,
    outer,
    random_bytes,
    random_c,
    random_scales,
    typed,
)
from tests.simulator.test_ptx_tcgen05 import START

KINDS = {
    "mxf8f6f4": "mxf8f6f4.block_scale",
    "mxf4": "mxf4.block_scale.block32",
    "mxf4nvf4": "mxf4nvf4.block_scale.block16",
}
SCALES_A_AT, SCALES_B_AT = 300, 320  # columns; D begins at 0

KERNEL = """
// One product by one block or a pair. Descriptors count from where shared memory begins.
template <int group>
__global__ void __cluster_dims__(group, 1, 1) __launch_bounds__(128)
NAME_kernel(const int* images, int words, const long long* descriptors, int instruction, int* D) {
    extern __shared__ char dynamic[];
    __shared__ unsigned memory;
    __shared__ alignas(8) uint64_t barrier;
    char* const here = prepare(dynamic, images + blockIdx.x * words, words, &barrier);
    if (threadIdx.x < 32)
        asm volatile("tcgen05.alloc.cta_group::%2.sync.aligned.shared::cta.b32 [%0], %1;"
                     :: "r"(at(&memory)), "r"(512), "n"(group) : "memory");
    __syncthreads();
    int* const mine = D + blockIdx.x * 128 * 512;
    fill(memory, mine, 512);
    before();
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        after();
        const long long start = (at(here) & 0x3ffff) >> 4;
        const auto whole = [&](long long descriptor) {  // bit 52: the leading offset is an address
            return descriptor + start + (descriptor >> 52 & 1 ? start << 16 : 0);
        };
        asm volatile("{ .reg .pred p; setp.eq.b32 p, 0, 0;"
                     " tcgen05.mma.cta_group::%6.kind::KIND [%0], %1, %2, %3, [%4], [%5], p; }"
                     :: "r"(memory), "l"(whole(descriptors[0])), "l"(whole(descriptors[1])),
                        "r"(instruction), "r"(memory + SCALES_A), "r"(memory + SCALES_B),
                        "n"(group));
        asm volatile("tcgen05.commit.cta_group::%2.mbarrier::arrive::one.shared::cluster"
                     ".multicast::cluster.b64 [%0], %1;"
                     :: "r"(at(&barrier)), "h"(short(group == 2 ? 3 : 1)), "n"(group) : "memory");
    }
    wait_for(at(&barrier), 0);
    after();
    read(memory, mine, 512);
    before();
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
    if (threadIdx.x < 32)
        asm volatile("tcgen05.dealloc.cta_group::%2.sync.aligned.b32 %0, %1;"
                     :: "r"(memory), "r"(512), "n"(group));
}
extern "C" void NAME(int group, const int* images, int words, const long long* descriptors,
                     int instruction, int* D) {
    const int bytes = words * 4 + 1024;
    const auto run = [&](auto kernel) {
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
        kernel<<<group, 128, bytes>>>(images, words, descriptors, instruction, D);
    };
    group == 1 ? run(NAME_kernel<1>) : run(NAME_kernel<2>);
}
"""


def source(kinds: dict[str, str]) -> str:
    parts = [START]
    for name, kind in kinds.items():
        text = KERNEL.replace("NAME", name).replace("KIND", kind)
        parts.append(
            text.replace("SCALES_A", str(SCALES_A_AT)).replace("SCALES_B", str(SCALES_B_AT))
        )
    return "\n".join(parts)


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return load(tmp_path_factory, "scaled_shapes", source(KINDS), "10.3a")


class Memory:
    """The images of what blocks have: shared memory, and tensor memory of 128 lanes x 512."""

    def __init__(self, blocks: int, size: int):
        self.shared = torch.full((blocks, size), 0x5A, dtype=torch.uint8)
        self.tensor = torch.zeros(blocks, 128, 512, dtype=torch.int32)

    def put(self, block: int, first: int, rows: torch.Tensor, at: int, second: int) -> None:
        """Rows of bytes along k from byte `at` of lines of 128 on, swizzled; the rest is at
        `second`."""
        for row, bytes_ in enumerate(rows):
            for unit, part in enumerate(bytes_.view(-1, 16)):
                place = at // 16 + unit
                start = first if place < 8 else second
                place = start + row * 128 + (place % 8 ^ row % 8) * 16
                self.shared[block, place : place + 16] = part

    def put_scales(self, block: int, first: int, rows: torch.Tensor) -> None:
        """Rows of bytes, of which four each fill the words of a tile."""
        for row, bytes_ in enumerate(rows):
            at = scale_place(row, 0)
            for word, value in enumerate(bytes_.contiguous().view(torch.int32)):
                tile = word * (8 if len(rows) > 128 else 4)
                self.tensor[block, at.lane :: 32, first + at.column + tile] = value


def descriptor(start: int, second: int | None = None) -> int:
    """Of lines of 128 swizzled bytes, eight of which make 1024."""
    bits = start >> 4 | 64 << 32 | 1 << 46 | 2 << 61
    return bits if second is None else bits | second >> 4 << 16 | 1 << 52


@functools.cache
def places(m: int, n: int, group: int) -> tuple[torch.Tensor, ...]:
    found = [[accumulator_place(m, n, i, j, cta_group=group) for j in range(n)] for i in range(m)]
    found = torch.tensor(found).movedim(-1, 0)
    return tuple(found) if len(found) == 3 else (torch.zeros_like(found[0]), *found)


def signed(instruction: int) -> int:
    return instruction - (instruction >> 31 << 32)


def multiplied(library, kind, group, memory, descriptors, instruction) -> torch.Tensor:
    image, d = memory.shared.view(torch.int32), memory.tensor.clone()
    arguments = image, image.shape[1], torch.tensor(descriptors), signed(instruction), d
    getattr(library, kind)(group, *arguments)
    return d


# ---- M = 128 on a pair


def most_are_slow(few: int, *sets: list) -> list:
    """Every combination, of which one in `few` is of `make test`."""
    combinations = itertools.product(*sets)
    return [
        pytest.param(
            *each, marks=[pytest.mark.slow] if i % few else [], id="-".join(map(str, each))
        )
        for i, each in enumerate(combinations)
    ]


SCALED = [
    ("mxf8f6f4", "e4m3", "ue8m0", 1),
    ("mxf4", "e2m1", "ue8m0", 2),
    ("mxf4nvf4", "e2m1", "ue4m3", 4),
]


@pytest.mark.parametrize(("of", "n", "m"), most_are_slow(4, SCALED, [16, 96, 256], [128, 256]))
def test_a_pair_multiplies_with_block_scales(library, of, n, m):
    kind, numbers, scale, count = of
    generator = torch.Generator().manual_seed(m + n)
    k = 32 if kind == "mxf8f6f4" else 64
    for style in range(2):
        a, b = (random_bytes((rows, 32), style, generator) for rows in (m, n))
        c = random_c((m, n), style, generator)
        scales = [random_scales((rows,), style, generator) for rows in (m, n)]
        own = m // 2
        memory = Memory(2, 64 << 10)
        second = 32 << 10
        for block in range(2):
            memory.put(block, 0, a[block * own : (block + 1) * own], 0, 0)
            memory.put(block, second, b[block * n // 2 : (block + 1) * n // 2], 0, 0)
            memory.put_scales(block, SCALES_A_AT, scales[0][block * own : (block + 1) * own])
            memory.put_scales(block, SCALES_B_AT, scales[1])
        at = places(m, n, 2)
        memory.tensor[at] = c.view(torch.int32)
        code = {"e4m3": 0, "e2m1": 1}[numbers]
        instruction = n >> 3 << 17 | m >> 4 << 24 | code << 7 | code << 10
        instruction |= (scale == "ue8m0") << 23
        d = multiplied(library, kind, 2, memory, [descriptor(0), descriptor(second)], instruction)
        shape = f"m128n{n}k{k}.kind::{kind}.block{k // count}.f32.{numbers}.{numbers}.{scale}"
        truth = mmasim.nv_ptx.TCGen05MMABlockScale("Blackwell", shape)
        for half in range(m // 128):
            rows = slice(half * 128, half * 128 + 128)
            given = [
                s[:, :count].contiguous().view(SCALE_TYPES[scale])[None]
                for s in (scales[0][rows], scales[1])
            ]
            wanted = outer(
                truth, typed(a[rows], numbers)[None], typed(b, numbers)[None], c[rows][None], *given
            )[0]
            wrong = d[at][rows] != bits(wanted)
            assert not wrong.any(), (style, wrong.nonzero()[:3].tolist())
        d[at] = 0
        memory.tensor[at] = 0
        assert torch.equal(d, memory.tensor), "it writes beside D"


# ---- K = 96

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]).double()


def long_operands(rows: int, count: int, scale: str, first: int, generator: torch.Generator):
    """Packed numbers, rows of eight bytes of scales of which `first` is the first, and what they
    stand for."""
    numbers = torch.randint(16, (rows, 96), generator=generator)
    packed = (numbers[:, ::2] | numbers[:, 1::2] << 4).to(torch.uint8)
    # UE8M0: 2^-2 to 2^2; UE4M3: 0.5 to 7.5, all but the last with an odd digit.
    low, high = (125, 130) if scale == "ue8m0" else (0x30, 0x50)
    bytes_ = torch.randint(low, high, (rows, 8), generator=generator).to(torch.uint8)
    used = bytes_[:, first : first + count]
    if scale == "ue8m0":
        scales = torch.exp2(used.double() - 127)
    else:
        scales = used.contiguous().view(torch.float8_e4m3fn).double()
    values = E2M1[numbers] * scales.repeat_interleave(96 // count, 1)
    return packed, bytes_, values


LONG = [
    ("mxf4", "ue8m0", 3, 64),
    ("mxf4nvf4", "ue4m3", 6, 128),
    ("mxf4nvf4", "ue8m0", 6, 240),
    ("mxf4", "ue8m0", 3, 256),
]


@pytest.mark.parametrize(("of", "group", "at"), most_are_slow(5, LONG, [1, 2], [0, 48, 96, 112]))
def test_96_numbers_along_k(library, of, group, at):
    (kind, scale, count, n), m = of, 128 * group
    generator = torch.Generator().manual_seed(n + at)
    for id_a, id_b in [(0, 0), (2, 0), (0, 2), *([(1, 3), (3, 1)] if count == 3 else [])]:
        a, scales_a, x = long_operands(m, count, scale, id_a, generator)
        b, scales_b, y = long_operands(n, count, scale, id_b, generator)
        c = torch.randint(-100, 100, (m, n), generator=generator).float()
        # Four tiles of 128 rows: A, and the rest of it, B, and the rest of it.
        tile, own = 256 * 128, n // group
        memory = Memory(group, 4 * tile)
        for block in range(group):
            memory.put(block, 0, a[block * 128 :][:128], at, tile)
            memory.put(block, 2 * tile, b[block * own :][:own], at, 3 * tile)
            memory.put_scales(block, SCALES_A_AT, scales_a[block * 128 :][:128])
            memory.put_scales(block, SCALES_B_AT, scales_b)
        where = places(m, n, group)
        memory.tensor[where] = c.view(torch.int32)
        instruction = n >> 3 << 17 | m >> 4 << 24 | 1 << 7 | 1 << 10 | 1 << 31
        instruction |= (scale == "ue8m0") << 23 | id_a << 29 | id_b << 4
        descriptors = [descriptor(at, tile), descriptor(2 * tile + at, 3 * tile)]
        d = multiplied(library, kind, group, memory, descriptors, instruction)
        wanted = c.double() + x @ y.t()
        assert torch.equal(wanted.float().double(), wanted)  # so each is exact
        wrong = d[where].view(torch.float32) != wanted.float()
        assert not wrong.any(), ((id_a, id_b), wrong.nonzero()[:3].tolist())


def test_what_96_numbers_need_is_said(library, tmp_path_factory):
    memory = Memory(1, 64 << 10)
    shape = 128 >> 3 << 17 | 128 >> 4 << 24 | 1 << 7 | 1 << 10 | 1 << 23 | 1 << 31
    ends = [descriptor(96), descriptor(0)]
    with pytest.raises(RuntimeError, match="48 bytes along k pass the end of its 128"):
        multiplied(library, "mxf4", 1, memory, ends, shape)
    small = 128 >> 3 << 17 | 128 >> 4 << 24 | 1 << 23 | 1 << 31
    with pytest.raises(RuntimeError, match="K is 32 for this kind, not 96"):
        multiplied(library, "mxf8f6f4", 1, memory, [descriptor(0)] * 2, small)
    narrow = 128 >> 3 << 17 | 128 >> 4 << 24 | 1 << 7 | 1 << 10 | 1 << 23 | 1 << 31
    with pytest.raises(RuntimeError, match="M is 128: with K = 96 it is 128 for each block"):
        multiplied(library, "mxf4", 2, Memory(2, 64 << 10), [descriptor(0)] * 2, narrow)
    older = load(tmp_path_factory, "older", source({"mxf4": KINDS["mxf4"]}), "10.0a")
    with pytest.raises(RuntimeError, match="sm_103a alone has that, and this is for sm_100"):
        multiplied(older, "mxf4", 1, memory, [descriptor(0)] * 2, shape)


def test_scales_without_a_word_for_the_last_are_said(library):
    memory = Memory(1, 64 << 10)
    memory.tensor[0, 40, SCALES_A_AT + 4] = 1  # in the second tile of words, in one quarter alone
    shape = 64 >> 3 << 17 | 128 >> 4 << 24 | 1 << 7 | 1 << 10 | 1 << 23 | 1 << 31
    multiplied(library, "mxf4", 1, memory, [descriptor(0)] * 2, shape | 1 << 29)
    for last in (2, 3):
        with pytest.raises(RuntimeError, match="all four quarters of the lanes have the same"):
            multiplied(library, "mxf4", 1, memory, [descriptor(0)] * 2, shape | last << 29)
