"""PTX that is asynchronous: copies, mbarriers, clusters, tensor maps.

The simulator carries out what is asynchronous when it is waited for, so what is there before a wait
is told for the simulator alone; so is how a kernel ends that waits for what never comes.
"""

from __future__ import annotations

import itertools
import time
from typing import NamedTuple

import numpy as np
import pytest
import torch
from simulated import SOURCES, TARGETS, Kernels, for_hopper, on_simulator_alone

import jitload
from tests.helpers.interrupts import interrupted_after

SOURCE = SOURCES / "ptx_async.cu"
HALVES = {"f16": torch.float16, "bf16": torch.bfloat16}

# ---- cp.async: of 16 bytes, what each case copies, and what the rest becomes


class Copy(NamedTuple):
    text: str  # %0: to, %1: from, %2: how many bytes are read, p: whether there are none
    copied: int
    zeros: int


COPIES = [
    *(Copy(f"cp.async.ca.shared.global [%0], [%1], {n};", n, 0) for n in (4, 8, 16)),
    Copy("cp.async.cg.shared.global [%0], [%1], 16;", 16, 0),
    Copy("cp.async.cg.shared::cta.global.L2::128B [%0], [%1], 16;", 16, 0),
    Copy("cp.async.ca.shared.global.L2::256B [%0], [%1], 8, 5;", 5, 3),
    Copy("cp.async.ca.shared.global [%0], [%1], 4, 1;", 1, 3),
    Copy("cp.async.cg.shared.global [%0], [%1], 16, %2;", 12, 4),
    Copy("cp.async.ca.shared.global [%0], [%1], 16, 0;", 0, 16),
    Copy("cp.async.ca.shared.global [%0 + 4], [%1 + 4], 4;", 0, 0),  # see expected_copy
    Copy("setp.eq.u32 p, %2, 12; cp.async.cg.shared.global [%0], [%1], 16, p;", 0, 16),
    Copy("setp.ne.u32 p, %2, 12; cp.async.cg.shared.global [%0], [%1], 16, p;", 16, 0),
    Copy("setp.eq.u32 p, %2, 12; cp.async.ca.shared.global [%0], [%1], 8, p;", 0, 8),
    Copy(
        ".reg .b64 h; createpolicy.fractional.L2::evict_first.b64 h, 1.0; "
        "cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, h;",
        16,
        0,
    ),
    Copy(
        ".reg .b64 h; createpolicy.fractional.L2::evict_first.b64 h, 1.0; "
        "cp.async.ca.shared.global.L2::cache_hint.L2::128B [%0], [%1], 8, 6, h;",
        6,
        2,
    ),
]

# ---- cp.reduce.async.bulk: of 32 bytes


class Reduction(NamedTuple):
    op: str
    kind: str
    is_shared: bool


REDUCTIONS = [
    *(
        Reduction(op, kind, False)
        for op, kinds in [
            ("add", "u32 s32 u64 f32 f64 f16 bf16"),
            ("min", "u32 s32 u64 s64 f16 bf16"),
            ("max", "u32 s32 u64 s64 f16 bf16"),
            ("and", "b32 b64"),
            ("or", "b32 b64"),
            ("xor", "b32 b64"),
            ("inc", "u32"),
            ("dec", "u32"),
        ]
        for kind in kinds.split()
    ),
    *(
        Reduction(op, kind, True)
        for op, kinds in [
            ("add", "u32 s32 u64"),
            ("min", "u32 s32"),
            ("max", "u32 s32"),
            ("and", "b32"),
            ("or", "b32"),
            ("xor", "b32"),
            ("inc", "u32"),
            ("dec", "u32"),
        ]
        for kind in kinds.split()
    ),
]


def reduction_text(case: Reduction) -> str:
    if case.is_shared:
        return (
            "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes."
            f"{case.op}.{case.kind} [%0], [%1], 32, [%2];"
        )
    noftz = ".noftz" if case.op == "add" and case.kind in HALVES else ""
    return (
        f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{case.op}{noftz}.{case.kind} [%0],"
        " [%1], 32;"
    )


def generated() -> str:
    lines = ["__global__ void copies(int* y, const int* x) {"]
    lines += ["__shared__ __align__(16) int s[32][4];", "const int i = threadIdx.x;"]
    lines += ["for (int k = 0; k < 4; k++) s[i][k] = -1;", "switch (i) {"]
    for number, case in enumerate(COPIES):
        lines.append(
            f'case {number}: asm volatile("{{ .reg .pred p; {case.text} }}" :: '
            '"r"(address_of(s[i])), "l"(x + 4 * i), "r"(12) : "memory"); break;'
        )
    lines += ["}", 'asm volatile("cp.async.wait_all;" ::: "memory");']
    lines += ["for (int k = 0; k < 4; k++) y[4 * i + k] = s[i][k];", "}"]
    lines += ['extern "C" cudaError_t run_copies(int* y, const int* x) {']
    lines += ["copies<<<1, 32>>>(y, x);", "return cudaGetLastError();", "}"]
    # To global memory by block 0, or from its shared memory to that of block 1.
    lines += ["__global__ void reduces(int* y, const int* x, int which) {"]
    lines += ["__shared__ __align__(128) int s[8], t[8];", "__shared__ uint64_t barrier;"]
    lines += ["const uint32_t at = address_of(&barrier); uint32_t to, told;"]
    lines += ["for (int i = 0; i < 8; i++) { s[i] = x[i]; t[i] = y[i]; }"]
    lines += ["init(at, 1);", 'asm volatile("fence.proxy.async;" ::: "memory");']
    lines += ["if (blockIdx.x == 1) expect(at, 32);", "cluster_sync();"]
    for name, of in (("to", "address_of(t)"), ("told", "at")):
        mapped = f'"=r"({name}) : "r"({of})'
        lines.append(f'asm("mapa.shared::cluster.u32 %0, %1, 1;" : {mapped});')
    lines += ["if (blockIdx.x == 0) {", "switch (which) {"]
    for number, case in enumerate(REDUCTIONS):
        to, told = ('"r"(to)', ', "r"(told)') if case.is_shared else ('"l"(y)', "")
        lines.append(
            f'case {number}: asm volatile("{reduction_text(case)}" :: {to}, '
            f'"r"(address_of(s)){told} : "memory"); break;'
        )
    first_shared = [case.is_shared for case in REDUCTIONS].index(True)
    lines += ["}", 'asm volatile("cp.async.bulk.commit_group;" ::: "memory");']
    lines += ['asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");']
    lines += [f"}} else if (which >= {first_shared}) {{", "wait(at, 0);"]
    lines += ["for (int i = 0; i < 8; i++) y[i] = t[i];", "}", "cluster_sync();", "}"]
    lines += ['extern "C" cudaError_t run_reduces(int* y, const int* x, int which) {']
    lines += ["return launch(2, 2, 1, 0, reduces, y, x, which);", "}", ""]
    return "\n".join(lines)


@pytest.fixture(scope="module", params=TARGETS)
def built(request, tmp_path_factory):
    with for_hopper(request.param):
        path = tmp_path_factory.mktemp("ptx") / SOURCE.name
        path.write_text(SOURCE.read_text() + generated())
        yield Kernels("ptx_async", request.param, source=path)


def is_simulated(built) -> bool:
    return built.device.type == "cpu"


# ---- cp.async


def test_copies_of_each_size(built):
    x = np.random.default_rng(1).integers(0, 256, (32, 16), np.uint8)
    y = built.zeros(32, 4)
    built.copies(y, built.tensor(x.view(np.int32)))
    got = y.cpu().numpy().view(np.uint8)
    for number, case in enumerate(COPIES):
        expected = np.full(16, 255, np.uint8)
        expected[: case.copied] = x[number, : case.copied]
        expected[case.copied : case.copied + case.zeros] = 0
        if "+ 4" in case.text:
            expected[4:8] = x[number, 4:8]
        assert got[number].tolist() == expected.tolist(), case.text
    assert (got[len(COPIES) :] == 255).all()


def test_groups_of_copies(built):
    x = torch.arange(96, dtype=torch.int32) + 10
    y = built.zeros(32, 8)
    built.groups(y, built.tensor(x))
    got = y.cpu()
    for column, k in [(1, 0), (3, 1), (5, 2), (6, 0)]:
        assert got[:, column].tolist() == x[32 * k : 32 * k + 32].tolist()
    if is_simulated(built):  # what nobody has waited for is not there
        assert got[:, 0].eq(-3).all()
        assert got[:, 2].eq(-2).all()
        assert got[:, 4].eq(-1).all()


@pytest.mark.parametrize("counts", [1, 0], ids=["noinc", "inc"])
def test_an_mbarrier_is_told_of_copies(built, counts):
    x, y = torch.arange(256, dtype=torch.int32), built.zeros(64, 4)
    built.tells(y, built.tensor(x), counts)
    assert y.tolist() == x.view(64, 4).flip(0).tolist()


# ---- mbarriers


def test_the_phases_of_an_mbarrier(built):
    y = built.zeros(32)
    built.phases(y)
    first = [3, 0, 1, 2, 1, 1, 0]
    second = [0, 0, 1, 1]
    third = [1, 2, 0, 1, 1, 1, 0]
    expected = first + second + third
    assert y[: len(expected)].tolist() == expected
    assert not y[len(expected) :].any()


@pytest.mark.parametrize("rounds", [1, 2, 7])
def test_a_ring_of_copies(built, rounds):
    x = torch.arange(64 * rounds, dtype=torch.int32).view(rounds, 64)
    y = built.zeros(64)
    built.ring(y, built.tensor(x), rounds)
    assert y.tolist() == x.sum(0).flip(0).tolist()


# ---- Copies in bulk


def test_copies_in_bulk(built):
    x, y = torch.arange(128, dtype=torch.int32), built.zeros(133)
    built.bulk(y, built.tensor(x))
    assert y[:128].tolist() == (x + 1000).tolist()
    assert y[130].item() == 1000
    assert y[132].item() == 1064
    if is_simulated(built):
        assert y[128].item() == -1
        assert y[129].item() == 0
        assert y[131].item() == 0


def test_addresses_of_shared_memory_of_64_bits(built):
    y = built.zeros(2)
    built.wide(y, built.tensor(torch.tensor([5, 6, 7, 8], dtype=torch.int32)))
    assert y.tolist() == [8, 6]


def reduced(case: Reduction, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Of 32 bytes each."""
    if case.kind in HALVES:
        a, b = (torch.from_numpy(each.copy()).view(HALVES[case.kind]) for each in (old, new))
        result = {"add": torch.add, "min": torch.minimum, "max": torch.maximum}[case.op](a, b)
        return result.view(torch.uint8).numpy()
    kind = case.kind.replace("b", "u").replace("s", "i")
    kind = f"{kind[0]}{int(kind[1:]) // 8}"
    a, b = old.view(kind), new.view(kind)
    with np.errstate(over="ignore"):
        result = {
            "add": lambda: a + b,
            "min": lambda: np.minimum(a, b),
            "max": lambda: np.maximum(a, b),
            "and": lambda: a & b,
            "or": lambda: a | b,
            "xor": lambda: a ^ b,
            "inc": lambda: np.where(a >= b, 0, a + 1),
            "dec": lambda: np.where((a == 0) | (a > b), b, a - 1),
        }[case.op]()
    return result.astype(kind).view(np.uint8)


@pytest.mark.parametrize(
    "number", range(len(REDUCTIONS)), ids=lambda n: "-".join(map(str, REDUCTIONS[n]))
)
def test_reductions_in_bulk(built, number):
    case, rng = REDUCTIONS[number], np.random.default_rng(number)
    if case.kind[0] == "f" or case.kind == "bf16":
        of = HALVES.get(case.kind) or {"f32": torch.float32, "f64": torch.float64}[case.kind]
        values = torch.from_numpy(rng.standard_normal((2, 32 // of.itemsize))).to(of)
        old, new = values.view(torch.uint8).numpy().reshape(2, 32)
    elif case.op in ("inc", "dec"):
        old, new = rng.integers(0, 4, (2, 8), np.uint32).view(np.uint8).reshape(2, 32)
    else:
        old, new = rng.integers(0, 256, (2, 32), np.uint8)
    y = built.tensor(old.view(np.int32).copy())
    built.reduces(y, built.tensor(new.view(np.int32).copy()), number)
    got = y.cpu().numpy().view(np.uint8)
    assert got.tolist() == reduced(case, old, new).tolist()


# ---- Clusters


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_a_block_sends_to_the_next(built, size):
    if size == 1 and not is_simulated(built):
        pytest.skip("no block but another may be sent to")
    y = built.zeros(2 * size, 96)
    built.sends(y, size)
    one_half = int(np.float32(1.5).view(np.int32))
    for block, row in enumerate(y.tolist()):
        rank, before = block % size, (block % size - 1) % size
        a = 10 * before
        assert row[:32] == [100 * rank + i for i in range(32)]
        assert row[32:64] == [100 * before + i for i in range(32)]
        stored = [a + k for k in range(1, 9)] + [one_half] * 2 + [50] * 6
        summed = [50 + a + 1, min(50, -a), 50, 51]
        assert row[64:80] == stored
        assert row[80:84] == summed


SHAPES = [(1, 1, 1), (2, 1, 1), (4, 2, 1), (2, 2, 2), (1, 3, 2), (1, 1, 8)]


def check_shapes(rows, grid, cluster):
    for block, row in enumerate(rows):
        at = (block % grid[0], block // grid[0] % grid[1], block // grid[0] // grid[1])
        within = [at[d] % cluster[d] for d in range(3)]
        rank = within[0] + cluster[0] * (within[1] + cluster[1] * within[2])
        size = cluster[0] * cluster[1] * cluster[2]
        expected = [
            *within,
            *cluster,
            *(at[d] // cluster[d] for d in range(3)),
            *(grid[d] // cluster[d] for d in range(3)),
            rank,
            size,
            1,
            rank,
            size,
            within[0] + 10 * within[1] + 100 * within[2],
            cluster[0] + 10 * cluster[1] + 100 * cluster[2],
            32 * rank + 5,
            32 * size,
        ]
        assert row[:21] == expected


@pytest.mark.parametrize("by_c", [0, 1], ids=["cudaLaunchKernelEx", "cudaLaunchKernelExC"])
@pytest.mark.parametrize("cluster", SHAPES)
def test_clusters_of_launches(built, cluster, by_c):
    grid = (2 * cluster[0], cluster[1], 3 * cluster[2])
    y = built.zeros(grid[0] * grid[1] * grid[2], 32)
    built.shapes(y, *cluster, by_c)
    check_shapes(y.tolist(), grid, cluster)


def test_clusters_of_a_kernel(built):
    y = built.zeros(4 * 4 * 2, 32)
    built.fixed_shapes(y, 4, 4, 2)
    check_shapes(y.tolist(), (4, 4, 2), (2, 2, 1))


@pytest.mark.parametrize(
    ("blocks", "regular", "preferred", "size"), [(8, 2, 4, 4), (6, 2, 4, 2), (8, 2, 2, 2)]
)
def test_blocks_are_in_the_preferred_clusters_where_these_fill_the_grid(
    built, blocks, regular, preferred, size
):
    y = built.zeros(blocks, 32)
    built.preferred_shapes(y, blocks, regular, preferred)
    check_shapes(y.tolist(), (blocks, 1, 1), (size, 1, 1))


def test_preferred_clusters_are_a_multiple_of_the_regular_ones(built):
    with pytest.raises(RuntimeError, match="invalid argument"):
        built.preferred_shapes(built.zeros(12, 32), 12, 2, 3)


def test_clusters_that_are_refused(built):
    codes, y = built.zeros(6), built.zeros(32, 32)
    built.sizes(codes, y)
    invalid = 912  # cudaErrorInvalidClusterSize
    assert codes.tolist() == [invalid, invalid, invalid, invalid, 0, invalid]


@pytest.mark.parametrize(("size", "blocks"), [(1, 2), (2, 6), (5, 10), (8, 8), (16, 16)])
def test_shared_memory_of_other_blocks(built, size, blocks):
    y = built.zeros(blocks, 32, 9)
    built.neighbours(y, size, blocks)
    for block, rows in enumerate(y.tolist()):
        rank, last = block % size, size - 1
        after, before = (rank + 1) % size, (rank - 1) % size
        for i, row in enumerate(rows):
            assert row == [
                1000 * after + 1,
                -(1000 * after + 31 - i),
                1000 * last + i,
                after,
                last,
                last,
                7 * before + i,
                64 * size,
                3 if last == rank else 2,  # of its own block, or of the cluster alone
            ]


def test_a_kernel_that_depends_on_another(built):
    y = built.zeros(64)
    built.dependent(y)
    assert y.tolist() == [*range(32), *(2 * (31 - i) for i in range(32))]


def test_multicast(built):
    x, y = torch.arange(128, dtype=torch.int32), built.zeros(4, 4, 32)
    built.multicast(y, built.tensor(x))
    got = {0: (0, 2), 1: (0, 1, 2), 2: (1, 3)}
    for block in range(4):
        for row in range(4):
            comes = block in got.get(row, ())
            expected = x[32 * row : 32 * row + 32].tolist() if comes else [-1] * 32
            assert y[block, row].tolist() == expected


# ---- Tensors

TYPES = ["u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16"]


def size_of(kind: str) -> int:
    return int(kind.lstrip("usbf")) // 8


class Tensor(NamedTuple):
    """All from the innermost dimension on. pitch: bytes from one index of dimension 1 to the next;
    further dimensions follow closely."""

    extent: tuple[int, ...]
    box: tuple[int, ...]
    at: tuple[int, ...]
    kind: str = "u32"
    swizzle: int = 0
    fill: int = 0
    steps: tuple[int, ...] = ()
    pitch: int = 0

    @property
    def rank(self) -> int:
        return len(self.extent)

    @property
    def strides(self) -> list[int]:
        inner = self.extent[0] * size_of(self.kind)
        found = [self.pitch or -(-inner // 16) * 16]
        for extent in self.extent[1:]:
            found.append(found[-1] * extent)
        return found

    @property
    def bytes(self) -> int:
        """Of the tensor in memory."""
        return self.strides[self.rank - 1]

    @property
    def count(self) -> list[int]:
        steps = [1, *self.steps[1:]] if self.steps else [1] * 5
        return [-(-box // step) for box, step in zip(self.box, steps, strict=False)]

    @property
    def box_bytes(self) -> int:
        return int(np.prod(self.count)) * size_of(self.kind)

    def aligned(self) -> Tensor:
        size = size_of(self.kind)
        return self._replace(at=(self.at[0] * size // 16 * 16 // size, *self.at[1:]))

    def arguments(self, how: int = 0) -> list[int]:
        one = (1,) * 5
        strides = ([*self.strides[: self.rank - 1], 0, 0, 0, 0])[:4]
        shapes = [(*each, *one)[:5] for each in (self.extent, self.box, self.steps)]
        kind = TYPES.index(self.kind)
        head = [how, kind, self.swizzle, self.fill, self.rank]
        return [*head, *shapes[0], *strides, *shapes[1], *shapes[2]]

    def places(self):
        """Of each element of the box: where in shared memory, and where in global memory, or None
        outside of the tensor."""
        steps = ([1, *self.steps[1:]] if self.steps else [1] * 5)[: self.rank]
        size, swizzle = size_of(self.kind), 16 << self.swizzle if self.swizzle else 0
        strides = [size, *self.strides]
        ranges = [range(n) for n in reversed(self.count)]
        for number, index in enumerate(itertools.product(*ranges)):
            where = [a + s * i for a, s, i in zip(self.at, steps, reversed(index), strict=True)]
            inside = all(0 <= w < e for w, e in zip(where, self.extent, strict=True))
            place = number * size
            if swizzle:
                place ^= (place >> 7 & swizzle // 16 - 1) << 4
            offset = sum(w * stride for w, stride in zip(where, strides, strict=False))
            yield place, offset if inside else None


BOXES = [
    *(Tensor((64,), (16,), (at,)) for at in (0, 48, -5, 60, -16, 64, 1000)),
    *(
        Tensor((20, 12), (8, 4), (x, y))
        for x, y in [(4, 2), (-3, 2), (17, 2), (4, -2), (4, 10), (-3, -1), (18, 11), (20, 0)]
    ),
    *(
        Tensor((12, 6, 5), (4, 3, 2), at)
        for at in [(4, 2, 1), (-2, 1, 3), (10, 4, -1), (3, -2, 4), (0, 0, 5)]
    ),
    Tensor((8, 3, 4, 5), (4, 2, 3, 2), (2, 1, 2, 3)),
    Tensor((8, 3, 4, 5), (4, 2, 3, 2), (-1, -1, -1, -1)),
    Tensor((8, 3, 4, 3, 2), (4, 2, 2, 2, 2), (4, 1, 2, 1, 0)),
    Tensor((8, 3, 4, 3, 2), (4, 2, 2, 2, 2), (6, -1, 3, 2, 1)),
    *(Tensor((40, 6), (16, 4), (20, 1), kind=kind) for kind in TYPES),
    Tensor((20, 12), (8, 4), (4, 2), pitch=128),
    *(
        Tensor((32 * width // 32, 40), (width // 2, rows), (x, y), "f16", swizzle)
        for swizzle, width in [(1, 32), (2, 64), (3, 128)]
        for rows, x, y in [(8, 0, 0), (32, 0, 3), (16, 5, 30)]
    ),
    Tensor((64, 4, 20), (32, 2, 8), (32, 1, 2), "u32", 3),
    Tensor((20, 12), (8, 4), (16, 10), "f32", fill=1),
    Tensor((20, 12), (8, 4), (-4, -2), "f16", fill=1),
    Tensor((20, 12), (8, 4), (-4, -2), "bf16", fill=1),
    Tensor((20, 24), (8, 8), (4, 3), steps=(1, 2)),
    Tensor((20, 24), (8, 7), (4, 15), steps=(1, 3)),
    Tensor((20, 24), (8, 4), (4, 2), steps=(2, 1)),  # no step in the innermost dimension
    Tensor((12, 9, 9), (8, 4, 8), (2, 3, 3), steps=(1, 2, 4)),
    Tensor((12, 9, 9), (8, 4, 8), (2, 7, -4), "f16", steps=(1, 2, 4)),
]


def memory_of(tensor: Tensor, seed: int) -> np.ndarray:
    """Finite numbers, with room before and behind."""
    of = {"f16": np.float16, "f32": np.float32, "f64": np.float64}.get(tensor.kind)
    rng = np.random.default_rng(seed)
    if of:
        count = tensor.bytes // size_of(tensor.kind)
        return rng.integers(1, 500, count).astype(of).view(np.uint8)
    return rng.integers(0, 120, tensor.bytes, np.uint8)


# An H100 ends in an illegal instruction where the innermost coordinate is no multiple of 16 bytes.
BOXES = [tensor.aligned() for tensor in BOXES]


def shown(tensor: Tensor) -> str:
    return f"{tensor.kind} at {tensor.at} of {tensor.extent} by {tensor.steps} {tensor.swizzle}"


@pytest.mark.parametrize("tensor", BOXES, ids=shown)
def test_boxes_come_and_go(built, tensor):
    memory, size = memory_of(tensor, 3), size_of(tensor.kind)
    x, y = built.tensor(memory.view(np.int32).copy()), built.zeros(tensor.box_bytes // 4)
    place = [*tensor.at, 0, 0, 0, 0][:5]
    how = 2 if is_simulated(built) else 0
    built.boxes(y, x, tensor.box_bytes, 0, *place, *tensor.arguments(how))
    got = y.cpu().numpy().view(np.uint8)
    expected = np.zeros(tensor.box_bytes, np.uint8)
    nans = []
    for to, of in tensor.places():
        if of is not None:
            expected[to : to + size] = memory[of : of + size]
        elif tensor.fill:
            nans.append(to // size)
    if tensor.fill:
        kind = {"f32": torch.float32, **HALVES}[tensor.kind]
        numbers = torch.from_numpy(got.copy()).view(kind)
        assert nans
        assert numbers.isnan().nonzero().flatten().tolist() == sorted(nans)
        for at in nans:
            expected[at * size : (at + 1) * size] = got[at * size : (at + 1) * size]
    assert got.tolist() == expected.tolist()

    # And back: what is outside is not written, and no box begins before the tensor.
    if min(tensor.at) < 0:
        if is_simulated(built):
            message = message_of(
                built.boxes, y, x, tensor.box_bytes, 1, *place, *tensor.arguments()
            )
            assert "no coordinate less than 0" in message
        return
    new = np.random.default_rng(4).integers(0, 120, tensor.box_bytes, np.uint8)
    y = built.tensor(new.view(np.int32).copy())
    built.boxes(y, x, tensor.box_bytes, 1, *place, *tensor.arguments())
    expected = memory.copy()
    for of, to in tensor.places():
        if to is not None:
            expected[to : to + size] = new[of : of + size]
    assert x.cpu().numpy().view(np.uint8).tolist() == expected.tolist()


@pytest.mark.parametrize(
    ("direction", "op", "kind"),
    [(2, "add", k) for k in ("u32", "s32", "u64", "f32", "f16", "bf16")]
    + [(d, o, k) for d, o in ((3, "max"), (4, "min")) for k in ("u32", "s32", "s64", "f16", "bf16")]
    + [(5, "xor", k) for k in ("u32", "u64")],
)
def test_boxes_are_added(built, direction, op, kind):
    tensor = Tensor((20, 12), (16, 4), (16, 9), kind)
    size, rng = size_of(kind), np.random.default_rng(5)
    if kind in HALVES or kind == "f32":
        of = HALVES.get(kind, torch.float32)
        memory, new = (
            torch.from_numpy(rng.standard_normal(n // size)).to(of).view(torch.uint8).numpy()
            for n in (tensor.bytes, tensor.box_bytes)
        )
    else:
        memory, new = (rng.integers(0, 256, n, np.uint8) for n in (tensor.bytes, tensor.box_bytes))
    x, y = (built.tensor(each.view(np.int32).copy()) for each in (memory, new))
    place = [*tensor.at, 0, 0, 0]
    built.boxes(y, x, tensor.box_bytes, direction, *place, *tensor.arguments())
    expected, got = memory.copy(), x.cpu().numpy().view(np.uint8)
    for of, to in tensor.places():
        if to is not None:
            pair = memory[to : to + size], new[of : of + size]
            expected[to : to + size] = reduced(Reduction(op, kind, False), *pair)
    if not is_simulated(built):  # an H200 writes all of the 16 bytes in which a row ends
        between_rows = np.arange(tensor.bytes) % tensor.strides[0] >= tensor.extent[0] * size
        got = np.where(between_rows, expected, got)
    assert got.tolist() == expected.tolist()


GOOD = Tensor((64, 16, 4), (32, 8, 2), (0, 0, 0), "f16")


def changed(offset: int = 0, **values: int) -> tuple[int, dict[str, int]]:
    return offset, values


NAMES = ["how", "type", "swizzle", "fill", "rank"]
NAMES += [f"{letter}{i}" for letter, first in (("e", 0), ("t", 1)) for i in range(first, 5)]
NAMES += [f"{letter}{i}" for letter in "bs" for i in range(5)]
REFUSED = {
    "rank 0": changed(rank=0),
    "rank 6": changed(rank=6),
    "address": changed(offset=8),
    "stride": changed(t1=136),
    "later stride": changed(t2=2056),
    "empty box": changed(b1=0),
    "large box": changed(b1=257),
    "inner bytes": changed(b0=12),
    "wider than 32": changed(swizzle=1),
    "wider than 64": changed(swizzle=3, b0=128),
    "no step": changed(s1=0),
    "large step": changed(s1=9),
    "no extent": changed(e1=0),
}


@pytest.mark.parametrize("how", [0, 1, 2], ids=["ByVersion", "EntryPoint", "direct"])
def test_a_tensor_map_is_encoded(built, how):
    code, x = built.zeros(1) - 1, built.zeros(4096)
    built.encode(code, x, 0, *GOOD.arguments(how))
    assert code.item() == 0


@pytest.mark.parametrize("name", REFUSED)
def test_a_tensor_map_is_refused(built, name):
    code, x = built.zeros(1) - 1, built.zeros(4096)
    offset, values = REFUSED[name]
    arguments = dict(zip(NAMES, GOOD.arguments(), strict=True)) | values
    built.encode(code, x, offset, *arguments.values())
    assert code.item() == 1  # CUDA_ERROR_INVALID_VALUE


# ---- What never ends


def line_of(code: str) -> str:
    lines = [n for n, line in enumerate(SOURCE.read_text().splitlines(), 1) if code in line]
    assert len(lines) == 1
    return f"ptx_async.cu:{lines[0]}"


def message_of(function, *arguments) -> str:
    begin = time.monotonic()
    with pytest.raises(RuntimeError) as caught:
        function(*arguments)
    assert time.monotonic() - begin < 2
    return str(caught.value)


def test_a_box_begins_at_a_multiple_of_16_bytes(built):
    on_simulator_alone(built)  # an H200 ends in an illegal instruction
    box = GOOD._replace(at=(4, 0, 0))
    place = [*box.at, 0, 0]
    message = message_of(
        built.boxes, built.zeros(256), built.zeros(4096), box.box_bytes, 0, *place, *box.arguments()
    )
    assert "a box begins at a multiple of 16 bytes" in message


@pytest.mark.parametrize(
    ("what", "told"),
    [
        (0, "phase 0: 1 of 2 arrivals are missing"),
        (1, "phase 0: 256 bytes are missing"),
        (2, "phase 0: 128 bytes have come that nobody has announced"),
    ],
)
def test_an_mbarrier_that_is_never_completed(built, what, told):
    on_simulator_alone(built)
    x = built.zeros(128)
    message = message_of(built.stuck, built.zeros(64), x, what)
    assert f"{told})" in message
    assert "mbarrier.try_wait (mbarrier at 0x" in message
    assert line_of("// in wait").split(":")[0] in message
    assert "64 of 64 threads wait" in message
    built.stuck(built.zeros(64), x, 6)


@pytest.mark.parametrize(
    ("what", "where", "name"), [(3, "// two warps of three", "64"), (5, "// of whom", "32")]
)
def test_a_named_barrier_with_too_few_warps(built, what, where, name):
    on_simulator_alone(built)
    message = message_of(built.stuck, built.zeros(64), built.zeros(128), what)
    assert f"{line_of(where)}: bar.sync" in message
    assert f"{name} threads" in message
    assert "96" in message


def test_a_cluster_barrier_that_a_block_skips(built):
    on_simulator_alone(built)
    message = message_of(built.stuck_cluster, built.zeros(64), 0)
    assert f"{line_of('// block 1 does not')}: cluster_group::sync: 32 threads" in message
    assert "block (0, 0, 0)" in message
    assert "block (1, 0, 0)" in message
    assert "1 of 1 arrivals are missing" in message


def test_a_message_that_nobody_sends(built):
    on_simulator_alone(built)
    message = message_of(built.stuck_cluster, built.zeros(64), 1)
    assert "block (1, 0, 0)" in message
    assert "block (0, 0, 0)" not in message
    assert "phase 0: 1 of 1 arrivals are missing" in message
    y = built.zeros(2, 96)
    built.sends(y, 1)


def interrupted(function, *arguments) -> str:
    with interrupted_after(0.2) as since:
        with pytest.raises(KeyboardInterrupt) as caught:
            function(*arguments)
        assert since() < 1
    return str(caught.value)


def test_an_interrupt_ends_a_loop_of_test_wait(built):
    on_simulator_alone(built)
    assert "stuck" in interrupted(built.stuck, built.zeros(64), built.zeros(128), 4)
    built.stuck(built.zeros(64), built.zeros(128), 6)


@pytest.mark.parametrize("what", [2, 3, 4], ids=["one of two", "test_wait", "no PTX"])
def test_an_interrupt_ends_a_cluster(built, what):
    on_simulator_alone(built)
    assert "was stopped" in interrupted(built.stuck_cluster, built.zeros(64), what)
    y = built.zeros(4, 96)
    built.sends(y, 2)


MASKED = """
__global__ void masked(signed char* y, const signed char* x, int bytes, int mask, int policy) {
    __shared__ alignas(16) signed char tile[256];
    for (int i = 0; i < 256; i++) tile[i] = x[i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    const unsigned from = unsigned(__cvta_generic_to_shared(tile));
    if (policy)
        asm volatile("{ .reg .b64 p; createpolicy.fractional.L2::evict_first.b64 p, 1.0;"
                     " cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint.cp_mask"
                     " [%0], [%1], %2, p, %3; }"
                     :: "l"(y), "r"(from), "r"(bytes), "h"(short(mask)) : "memory");
    else
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%0], [%1], %2, %3;"
                     :: "l"(y), "r"(from), "r"(bytes), "h"(short(mask)) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
    y[256] = *(volatile signed char*)&y[0];
    asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}
extern "C" void run(signed char* y, const signed char* x, int bytes, int mask, int policy) {
    masked<<<1, 1>>>(y, x, bytes, mask, policy);
}
"""


def test_a_mask_chooses_bytes_of_each_16(tmp_path, monkeypatch):
    """Of compute capability 10.0, so on the simulator alone."""
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "10.0a")
    (tmp_path / "masked.cu").write_text(MASKED)
    library = jitload.load(str(tmp_path / "masked.cu"), name="test_masked", target="cpu")
    x = torch.randint(1, 128, (256,), dtype=torch.int8)
    for mask, bytes_, policy in itertools.product(
        (0xFFFF, 0, 1, 0x8000, 0x8001, 0x7FFE, 0xA5C3), (0, 16, 256), (0, 1)
    ):
        y = torch.zeros(257, dtype=torch.int8)
        library.run(y, x, bytes_, mask, policy)
        chosen = torch.tensor([i < bytes_ and bool(mask >> i % 16 & 1) for i in range(256)])
        assert torch.equal(y[:256], torch.where(chosen, x, 0))
        assert y[256] == 0  # the copy is made when it is waited for


@pytest.mark.parametrize(
    "operands",
    [".cp_mask [%0], [%1], 64", " [%0], [%1], 64, h", ".L2::cache_hint.cp_mask [%0], [%1], 64, h"],
)
def test_a_mask_is_there_where_its_qualifier_is(tmp_path, operands):
    (tmp_path / "masked.cu").write_text(
        "__global__ void masked(char* y, unsigned from) {\n"
        '    asm volatile("{ .reg .b16 h; mov.b16 h, 5;'
        f' cp.async.bulk.global.shared::cta.bulk_group{operands}; }}"\n'
        '                 :: "l"(y), "r"(from));\n}\n'
        'extern "C" void run(char* y) { masked<<<1, 1>>>(y, 0); }\n'
    )
    with pytest.raises(RuntimeError, match=r"masked\.cu:2.*another number of operands"):
        jitload.load(str(tmp_path / "masked.cu"), name="test_mask_operands", target="cpu")
