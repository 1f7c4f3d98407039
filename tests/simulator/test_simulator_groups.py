"""Cooperative groups against what CUDA's own headers do, worked out here in Python."""

from functools import reduce

import numpy as np
import pytest
import torch
from simulated import fixture

LANES = range(32)
cooperative = fixture("cooperative")


def members(size: int, rank: int) -> int:
    return size * 1000 + rank


def test_groups_convert_as_cudas_do(cooperative):
    y = cooperative.zeros(80, 16)
    # 80 threads: the last warp is half empty, and a sum over it is not defined.
    cooperative.types(y)
    warps = [sum(range(first, first + 32)) for first in (0, 32)]
    for i, row in enumerate(y.tolist()[:64]):
        block = members(80, i)
        assert row[:6] == [
            block,
            members(32, i % 32),
            members(8, i % 8),
            block,
            members(16, i % 16),
            members(4, i % 4),
        ]
        assert row[6:9] == [i // 32 * 100 + 3, i % 32 // 8 * 100 + 4, warps[i // 32]]
        assert row[9:11] == [32 * 100 + i % 32, members(1, 0)]
        assert row[11] in (5, 15)
        assert row[12] == i % 16 + 10 * (i // 16)


def butterfly(values, add):
    """What shfl_xor from far to near gives the first of a power of two of lanes."""
    step = len(values) // 2
    while step:
        values = [add(x, values[i ^ step]) for i, x in enumerate(values)]
        step //= 2
    return values[0]


@pytest.mark.parametrize("size", [64, 256, 1024])
def test_tiles_of_several_warps(cooperative, size):
    y, z = cooperative.zeros(1024, 10), cooperative.zeros(1024, dtype=torch.float64)
    cooperative.wide(y, z, size)
    expected, sums = [], []
    for i in range(1024):
        first, rank = i // size * size, i % size
        tile = range(first, first + size)
        expected.append(
            [
                first + size - 1 - rank,
                size * 10000 + rank,
                i // size * 100 + 1024 // size,
                first + 37,
                (70 in tile) * 10 + (tile[-1] < 512),
                sum(tile),
                tile[-1],
                sum(range(first + 1, i + 2)),
                i - 1 if rank else 0,
                rank // 32 * 100 + size // 32,
            ]
        )
        if rank == 0:
            values = [1 / (j + 1) for j in tile]
            warps = [butterfly(values[k : k + 32], lambda a, b: a + b) for k in range(0, size, 32)]
            sums += [butterfly(warps, lambda a, b: a + b)] * size
    assert y.tolist() == expected
    assert z.tolist() == sums


def bits(ranks) -> int:
    return sum(1 << k for k in ranks)


def test_coalesced_threads_and_partitions(cooperative):
    y = cooperative.zeros(32, 16)
    cooperative.lanes(y)
    group = [i for i in LANES if i % 3 != 1]
    count = len(group)
    labels = sorted({3 - i // 8 for i in group}, reverse=True)  # by their first lane
    for rank, i in enumerate(group):
        parity = [j for j in group if j % 2 == i % 2]
        eight = [j for j in group if j // 8 == i // 8]
        before = [j for j in parity if j < i]
        whole = rank // 4 * 4 + 4 <= count
        expected = [
            rank * 100 + count,
            group[2],
            group[max(rank - 1, 0)] * 100 + (group[rank + 2] if rank + 2 < count else i),
            bits(k for k, j in enumerate(group) if j % 2),
            (5 in group) * 10,
            bits(k for k, j in enumerate(group) if j // 8 == i // 8),
            (1 << count) - 1 + (1 << 24),
            rank // 4 * 10000 + (4 if whole else count % 4) * 100 + rank % 4,
            i % 2 * 10000 + len(parity) * 100 + parity.index(i),
            sum(parity),
            labels.index(3 - i // 8) * 10000 + len(eight) * 100 + eight.index(i),
            len(labels) * 100 + -(-count // 4),
            sum(j for j in eight if j <= i),
            before[-1] if before else 0,
            1,
            i % 2 + 40,
        ]
        assert y[i].tolist() == expected


def then(first, second):
    return first[0] * second[0], first[1] * second[0] + second[1]


def rightmost(values, combine):
    """An inclusive scan by shfl_up, near to far: the newer value stands left."""
    step = 1
    while step < len(values):
        values = [combine(x, values[i - step]) if i >= step else x for i, x in enumerate(values)]
        step *= 2
    return values


@pytest.mark.parametrize("count", [5, 21, 31])
def test_collectives_in_cudas_order(cooperative, count):
    x = torch.randn(32, generator=torch.Generator().manual_seed(count)) * 100
    y, z = cooperative.zeros(225, dtype=torch.float32), cooperative.zeros(192)
    cooperative.collectives(x.to(cooperative.device), y, z, count)
    numbers = [np.float32(v) for v in x.tolist()]

    def add(a, b):
        return a + b

    total, scanned = butterfly(numbers, add), rightmost(numbers, add)
    y = y.cpu()
    assert y[:32].tolist() == [total] * 32
    assert y[32:64].tolist() == [max(numbers)] * 32
    assert y[64:96].tolist() == [total] * 32
    assert y[96:128].tolist() == [34] * 32
    assert y[128:160].tolist() == scanned
    assert y[160:192].tolist() == [0, *scanned[:-1]]
    # Of a group that is no power of two, the last of a scan.
    assert y[192 : 192 + count].tolist() == [rightmost(numbers[:count], add)[-1]] * count
    assert y[224] == min(numbers[:count])

    lines, z = [(-1, i) for i in LANES], z.tolist()
    slope, offset = rightmost(lines[:count], then)[-1]
    assert z[:count] == [slope * 1000 + offset] * count
    for i in range(0, 32, 8):
        expected = rightmost(lines[i : i + 8], then)
        assert z[32 + i : 40 + i] == [a * 1000 + b for a, b in expected]
        total = reduce(lambda a, b: (a + b) % 256, range(200 + i, 208 + i))
        assert z[64 + i : 72 + i] == [total] * 8
    assert z[96:128] == [-31] * 32
    assert z[128:160] == [1] * 32
    assert z[160:192] == [1] * 32


@pytest.mark.parametrize("n", [1, 64, 300])
def test_a_group_copies_asynchronously(cooperative, n):
    x, y = cooperative.tensor(range(2 * n)), cooperative.zeros(2 * n)
    cooperative.copies(x, y, n)
    assert torch.equal(y.view(2, n), x.view(2, n).flip(1))


@pytest.mark.parametrize(("n", "start"), [(61, 0), (64, 0), (62, 2), (256, 16), (7, 9)])
def test_bytes_are_copied_whatever_their_alignment(cooperative, n, start):
    x = torch.arange(n + start, dtype=torch.uint8, device=cooperative.device)
    y = torch.zeros(n, dtype=torch.uint8, device=cooperative.device)
    cooperative.bytes(x, y, n, start)
    assert torch.equal(y, x[start:])


def test_a_pipeline_waits_for_its_batches(cooperative):
    x = torch.randn(64, 4, device=cooperative.device)
    y, early = torch.zeros_like(x), cooperative.zeros(32)
    cooperative.pipeline(x, y, early)
    expected = x.clone()
    expected[32:, 2:] = 0  # filled with zeros
    assert torch.equal(y, expected)
    if cooperative.device.type == "cpu":  # as late as may be; a GPU is nearly always faster
        assert early.tolist() == [1] * 32
