"""CUDA on the CPU: each feature against what CUDA defines, worked out here in Python.

Where there is a GPU, the same sources are compiled by nvcc too and must pass there as well: what
these tests expect is what the hardware does.
"""

import math

import numpy as np
import pytest
import torch
from random123 import PHILOX
from simulated import Kernels, fixture

LANES = range(32)

threads, warp, atomics = fixture("threads"), fixture("warp"), fixture("atomics")
language, halves, groups = fixture("language"), fixture("halves"), fixture("groups")


# ---- threads, blocks, shared memory, barriers


@pytest.mark.parametrize(
    ("grid", "block"),
    [
        ((1, 1, 1), (1, 1, 1)),
        ((2, 3, 4), (3, 2, 5)),
        ((7, 1, 2), (64, 4, 4)),
        ((1, 5, 1), (1, 33, 1)),
    ],
)
def test_coordinates(threads, grid, block):
    out = threads.zeros(math.prod(grid), math.prod(block), 12)
    threads.coordinates(out, *grid, *block)
    expected = [
        [
            [
                t % block[0],
                t // block[0] % block[1],
                t // block[0] // block[1],
                b % grid[0],
                b // grid[0] % grid[1],
                b // grid[0] // grid[1],
                *block,
                *grid,
            ]
            for t in range(math.prod(block))
        ]
        for b in range(math.prod(grid))
    ]
    assert out.tolist() == expected


def test_coordinates_survive_a_barrier(threads):
    out = threads.zeros(60)
    threads.coordinates_after_wait(out)
    expected = [
        x + 100 * y + 10000 * z + 1000000 * (z + 1)
        for z in range(3)
        for y in range(4)
        for x in range(5)
    ]
    assert out.tolist() == expected


def test_static_shared_memory_of_two_instances(threads):
    x = torch.randn(384, device=threads.device)
    u = torch.randn(384, dtype=torch.float64, device=threads.device)
    y, v = torch.zeros_like(x), torch.zeros_like(u)
    threads.reverse_static(x, y, u, v)
    assert torch.equal(y.view(3, 128), x.view(3, 128).flip(1))
    assert torch.equal(v.view(6, 64), u.view(6, 64).flip(1))


@pytest.mark.parametrize("count", [1, 31, 33, 1024])
def test_dynamic_shared_memory(threads, count):
    x = torch.arange(count, dtype=torch.int32, device=threads.device)
    y, z = torch.zeros_like(x), threads.zeros(32)
    threads.dynamic(x, y, z, count)
    assert torch.equal(y, x.flip(0))
    assert z.tolist() == list(range(31, -1, -1))


def test_dynamic_shared_memory_in_a_template(threads):
    x, y = threads.tensor(range(96)), threads.zeros(96)
    u, v = x.double(), y.double()
    threads.dynamic_in_template(x, y, u, v, 96)
    assert y.tolist() == v.tolist() == list(range(95, -1, -1))


def test_large_dynamic_shared_memory_after_asking(threads):
    y = threads.zeros(1)
    threads.large(y)
    assert y.item() == 24999


def test_votes_at_a_barrier(threads):
    y = threads.zeros(5, 100)
    threads.barrier_votes(y)
    expected = [len(range(0, 100, 3)), 1, 0, 1, 0]
    assert y.tolist() == [[value] * 100 for value in expected]


def test_threads_that_returned_are_not_waited_for(threads):
    y = threads.zeros(100)
    threads.early_return(y)
    assert y.tolist() == [50 + 25 if i % 4 == 0 else 0 for i in range(100)]


@pytest.mark.parametrize(("blocks", "count"), [(1, 1), (3, 32), (50, 100), (9, 1024)])
def test_scan_with_two_barriers_a_step(threads, blocks, count):
    x = torch.randint(-9, 9, (blocks, count), dtype=torch.int32, device=threads.device)
    y = torch.zeros_like(x)
    threads.scan(x, y, blocks, count)
    assert torch.equal(y, x.cumsum(1, dtype=torch.int32))


# ---- warps


def shuffled(way: str, lane: int, argument: int, width: int) -> int:
    """The lane that is read: by the programming guide, and as the hardware does beyond it."""
    first, argument = lane // width * width, argument % 32
    match way:
        case "idx":
            return first + argument % width
        case "up":
            return lane - argument if lane - argument >= first else lane
        case "down":
            return lane + argument if lane + argument < first + width else lane
        case "xor":
            return lane ^ argument if lane ^ argument < first + width else lane


@pytest.mark.parametrize("width", [1, 2, 8, 16, 32])
@pytest.mark.parametrize(
    ("kind", "dtype"),
    list(enumerate([torch.int32] * 2 + [torch.int64] * 2 + [torch.float32, torch.float64])),
    ids=["int", "unsigned", "long", "unsigned long long", "float", "double"],
)
def test_shuffles(warp, kind, dtype, width):
    y = warp.zeros(64, 4, 32, dtype=dtype)
    warp.shuffles(y, kind, width)
    expected = [
        [
            [3 * shuffled(way, lane, argument, width) + 1 for lane in LANES]
            for way, argument in [("idx", i - 16), ("up", i), ("down", i), ("xor", i)]
        ]
        for i in range(64)
    ]
    assert y.tolist() == expected


def test_shuffles_in_divergent_branches(warp):
    y = warp.zeros(3, 2, 16)
    warp.divergent(y)
    expected = [[[sum(range(32 * w, 32 * w + 16))] * 16, [32 * w + 31] * 16] for w in range(3)]
    assert y.tolist() == expected


def test_warps_that_are_not_full(warp):
    y = warp.zeros(40)
    warp.partial(y)
    assert y.tolist() == [8 + 1000] * 20 + [8] * 20


def test_syncwarp_orders_shared_memory(warp):
    y = warp.zeros(64)
    warp.through_shared(y)
    assert y.tolist() == [(i ^ 31) ** 2 for i in range(64)]


def signed(word: int) -> int:
    return (word & 0xFFFFFFFF) - ((word & 0x80000000) << 1)


def lanes_where(condition) -> int:
    return signed(sum(1 << lane for lane in LANES if condition(lane)))


def test_votes_and_matches(warp):
    y = warp.zeros(12, 32)
    warp.votes(y)
    expected = [
        [lanes_where(lambda k: k % 3 == 0)] * 32,
        [1] * 32,
        [0] * 32,
        [1] * 32,
        [0] * 32,
        [lanes_where(lambda k: k % 2 and k > 20) if lane % 2 else 0 for lane in LANES],
        [lanes_where(lambda k, lane=lane: k % 5 == lane % 5) for lane in LANES],
        [-1] * 32,
        [1] * 32,
        [0] * 32,
        [0] * 32,
        [lanes_where(lambda k, lane=lane: k % 2 == lane % 2) for lane in LANES],
    ]
    assert y.tolist() == expected


def test_reductions(warp):
    y = warp.zeros(8, 32)
    warp.reductions(y)
    x = [lane * 7919 % 101 - 50 for lane in LANES]
    xor = 0
    for lane in LANES:
        xor ^= lane * lane
    expected = [sum(x), min(x), max(x), signed(max(v & 0xFFFFFFFF for v in x)), 64, 127, xor]
    assert y[:7].tolist() == [[value] * 32 for value in expected]
    assert y[7].tolist() == [28] * 8 + [0] * 24


def test_activemask(warp):
    """Eight lanes of each warp take one branch, 24 the other; each warp counts with one atomic."""
    y, counter = warp.zeros(2, 32), warp.zeros(1)
    warp.active(y, counter)
    assert counter.item() == 16
    assert sorted(y[:, 1::4].flatten().tolist()) == list(range(16))
    others = y[:, [lane for lane in LANES if lane % 4 != 1]]
    assert (others == -24).all()


# ---- atomics


@pytest.mark.parametrize(
    ("name", "bits"), [("int", 32), ("unsigned", 32), ("unsigned_long_long", 64)]
)
def test_atomics_of_many_blocks(atomics, name, bits):
    dtype = torch.int64 if bits == 64 else torch.int32
    n, ones = 40 * 96, -1
    y = atomics.tensor([0, 0, 1 << 30, ones, 0, 0, 0, 0, 5], dtype)
    getattr(atomics, f"totals_{name}")(y)
    # Each of 40 blocks flips bit t % 30 once for each of its 96 threads: an even number of times.
    assert y.tolist() == [n, n - 1, 0, ~0xFF, (1 << 20) - 1, 0, 2 * n, 5, 77]


def test_other_atomics(atomics):
    y = atomics.tensor([0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 5, 0, 0])
    y[4:6] = atomics.tensor([-(2**62)], torch.int64).view(torch.int32)
    f = atomics.zeros(3, dtype=torch.float32)
    d = atomics.zeros(1, dtype=torch.float64)
    f[2] = 1.5
    atomics.others(y, f, d)
    n = 20 * 50
    decremented = 0
    for _ in range(n):
        decremented = 6 if decremented == 0 or decremented > 6 else decremented - 1
    assert y[:3].tolist() == [-3 * n, n % 7, decremented]
    assert y[4:8].view(torch.int64).tolist() == [-5, -4 - n]
    assert y[8:].tolist() == [5, 6, 5, 5, n, 2 * n]
    assert f.tolist() == [n / 2, 1.5, 3.5]
    assert d.item() == n / 4


def test_a_lock_within_a_block(atomics):
    lock, counter = atomics.zeros(1), atomics.zeros(1)
    atomics.locked(lock, counter)
    assert (lock.item(), counter.item()) == (0, 128)


def test_the_last_block_adds_up(atomics):
    x = torch.arange(500, dtype=torch.int32, device=atomics.device)
    partial, y, finished = torch.zeros_like(x), atomics.zeros(1), atomics.tensor([99])
    atomics.last_block(x, partial, y, finished)
    assert y.item() == 2 * sum(range(500))


# ---- language and library


def test_constants_globals_and_loads_with_hints(language):
    x = torch.linspace(-2, 2, 1001, device=language.device)
    y, count = torch.zeros_like(x), language.zeros(1)
    language.evaluate(x, y, count, 1001)
    x = x.double()
    expected = 2 * (1 + 2 * x + 3 * x**2 + 4 * x**3 + x)
    assert count.item() == 1001
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-5)


def test_templates_lambdas_overloads_and_macros(language):
    y, z = language.zeros(8, 32, dtype=torch.float32), language.zeros(3, 32)
    language.templates(y, z)
    i = np.arange(64)
    assert y[:2].flatten().tolist() == np.where(i < 40, 3 * i, 0).tolist()
    assert y[2].tolist() == np.where(i < 20, 2 * i + 1, 0)[:32].tolist()
    assert y[4].tolist() == (-(4 * i + 0.5))[:32].tolist()
    assert y[6].tolist() == [2] * 32
    assert y[7].tolist() == [11] * 32
    assert z.tolist() == [[1] * 32, [3] * 32, [3] * 16 + [0] * 16]


def test_printf_comes_out_whole(language, capfd):
    language.say(40)
    lines = capfd.readouterr().out.splitlines()
    assert sorted(lines) == sorted(f"thread {i} of 40: half is 0.50" for i in range(40))


def test_vector_types(language):
    x = torch.arange(32, dtype=torch.float32, device=language.device).view(8, 4)
    y, z, sizes = torch.zeros_like(x), language.zeros(8, 2, dtype=torch.float32), language.zeros(12)
    language.vectors(x, y, z, sizes)
    assert torch.equal(y, x.flip(1))
    assert torch.equal(z, x.view(8, 2, 2).sum(2))
    assert sizes.tolist() == [12, 4, 16, 16, 4, 4, 8, 8, 16, 16, 8, 8]


def test_float_functions(language):
    x = torch.tensor([-3.7, -1.0, -0.3, 0.2, 0.5, 1.0, 2.5, 7.25])
    y = language.zeros(20, len(x), dtype=torch.float32)
    language.floats(x.to(language.device), y, len(x))
    v = x.double()
    pi = math.pi
    expected = torch.stack(
        [
            v.exp(),
            v.abs().log(),
            v.abs().rsqrt(),
            1 / v,
            v.clamp(0, 1),
            1 / v,
            10 ** (v / 4),
            (pi * v).sin(),
            (pi * v).cos(),
            torch.special.ndtr(v),
            2**v,
            v.abs().sqrt(),
            v.sign() * v.abs() ** (-1 / 3),
            v.sin(),
            v.cos(),
            v.clamp(max=0.5),
            v.clamp(min=0.5),
            v * v + 1,
            pi * v,
            1 / (v * v + 1).sqrt(),
        ]
    )
    # The fast functions are accurate to an absolute 2^-20 or so on the GPU.
    torch.testing.assert_close(y.cpu().double(), expected, rtol=3e-6, atol=2e-6)


def test_integer_functions(language):
    values = [0, 1, -1, 2, 12, 255, -4096, 0x12345678, -0x7FFFFFFF - 1, 0x7FFFFFFF]
    y = language.zeros(18, len(values))
    language.integers(language.tensor(values), y, len(values))

    def expected(v: int) -> list[int]:
        u = v & 0xFFFFFFFF
        wide = (v * 1000003 + 17) & 0xFFFFFFFFFFFFFFFF
        pool = (0x01020304 << 32 | u).to_bytes(8, "little")
        funnel = 0xDEADBEEF << 32 | u
        results = [
            u.bit_count(),
            32 - u.bit_length(),
            (u & -u).bit_length(),
            int(f"{u:032b}"[::-1], 2),
            wide.bit_count(),
            64 - wide.bit_length(),
            (wide & -wide).bit_length(),
            u * 0x9E3779B9 >> 32,
            v * 123456789 >> 32,
            int.from_bytes(bytes([pool[0], pool[4], pool[1], pool[5]]), "little"),
            funnel << 11 >> 32,
            funnel >> 11,
            min(v, 7),
            max(u, 7),
            int(np.float32(v).view(np.int32)),
            abs(v - 12) + 5,
            wide * 0x123456789ABCDEF >> 64,
            int(f"{wide:064b}"[::-1], 2) >> 32,
        ]
        return [signed(result) for result in results]

    assert y.T.tolist() == [expected(v) for v in values]


def test_conversions_saturate(language):
    x = [0.5, 1.5, 2.5, -0.5, -1.5, -2.7, 3e9, -3e9, 5e9, math.inf, -math.inf, math.nan]
    y = language.zeros(5, len(x))
    language.conversions(language.tensor(x, torch.float32), y, len(x))

    def saturated(function, v: float, low: int, high: int) -> int:
        if math.isnan(v):
            return 0
        return signed(low if v <= low else high if v >= high else function(v))

    low, high = -(2**31), 2**31 - 1
    functions = [round, math.trunc, math.floor, math.ceil]
    expected = [[saturated(function, v, low, high) for v in x] for function in functions]
    expected.append([saturated(round, v, 0, 2**32 - 1) for v in x])
    assert y.tolist() == expected


def test_rounded_arithmetic_is_not_fused(language):
    x = 1 + torch.arange(32, dtype=torch.float32) * 2**-13
    y = language.zeros(2, 32, dtype=torch.float32)
    language.unfused(x.to(language.device), y)
    assert torch.equal(y[0].cpu(), x * x - 1)
    assert torch.equal(y[1].cpu(), (x.double() ** 2 - 1).float())
    assert not torch.equal(y[0], y[1])


def test_clock_goes_forward(language):
    y = language.zeros(32, dtype=torch.int64)
    language.clocks(y)
    assert (y > 0).all()


# ---- half types


def test_every_half_to_float(halves):
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    y, z = halves.zeros(2**16, dtype=torch.float32), halves.zeros(2**16, dtype=torch.float32)
    halves.to_float(bits.to(halves.device), y, z, 2**16)
    for ours, dtype in [(y, torch.float16), (z, torch.bfloat16)]:
        torch.testing.assert_close(
            ours.cpu(), bits.view(dtype).float(), rtol=0, atol=0, equal_nan=True
        )


def test_float_to_half_rounds_to_nearest_even(halves):
    """Every half, the midpoints between two, and the floats next to those."""
    bits = torch.arange(0, 2**15, dtype=torch.int32)
    x = torch.cat([bits << 13, bits << 16, (bits << 16) + 2**15])
    x = torch.cat([x, x + 1, x - 1, torch.randint(0, 2**31 - 1, (2**16,), dtype=torch.int32)])
    half = bits.to(torch.int16).view(torch.float16).float()
    middles = ((half[1:] + half[:-1]) / 2)[:-1024].view(torch.int32)
    x = torch.cat([x, middles, middles + 1, middles - 1])
    x = torch.cat([x, x ^ -(2**31)])
    x = torch.nn.functional.pad(x, (0, -len(x) % 256)).view(torch.float32).to(halves.device)
    y = halves.zeros(len(x), dtype=torch.float16)
    z = halves.zeros(len(x), dtype=torch.bfloat16)
    halves.from_float(x, y, z, len(x))
    torch.testing.assert_close(y, x.half(), rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(z, x.bfloat16(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize(("name", "dtype"), [("half", torch.float16), ("bfloat16", torch.bfloat16)])
def test_half_arithmetic_rounds_once(halves, name, dtype):
    n = 5000
    a, b = (torch.randn(2, n) * 3).to(dtype)
    y = halves.zeros(11, n, dtype=dtype)
    getattr(halves, name)(a.to(halves.device), b.to(halves.device), y, n)
    u, v = a.double(), b.double()
    exact = [u + v, u - v, u * v, u / v, u * v + u, u.maximum(v), -u, u.abs().sqrt()]
    exact += [u * u + u, v * v + v, u.minimum(v)]
    # What is exact in double is rounded once; a quotient or a root in double is off by 2^-53.
    torch.testing.assert_close(y.cpu(), torch.stack(exact).to(dtype), rtol=0, atol=0)


def test_half_shuffles_and_atomics(halves):
    y = halves.zeros(64, dtype=torch.float16)
    z = halves.zeros(64, dtype=torch.bfloat16)
    sums = [halves.zeros(1, dtype=dtype) for dtype in (torch.float16, torch.bfloat16)]
    halves.together(y, sums[0], z, sums[1])
    expected = [i ^ 1 for i in range(64)]
    assert (y.tolist(), z.tolist()) == (expected, expected)
    assert [total.item() for total in sums] == [64, 64]


def test_torch_half_shuffles_and_atomics():
    kernels = Kernels("torch_halves", "cpu")
    arguments, expected = [], [*list(range(2, 64, 2)), 62]
    for dtype in (torch.float16, torch.bfloat16):
        arguments += [torch.arange(32).to(dtype), torch.zeros(32, dtype=dtype)]
        arguments += [torch.zeros(1, dtype=dtype)]
    kernels.together(*arguments)
    assert [arguments[i].tolist() for i in (1, 4)] == [expected, expected]
    assert [arguments[i].item() for i in (2, 5)] == [32, 32]


# ---- cooperative groups and Philox


@pytest.mark.parametrize("size", [1, 4, 16, 32])
def test_tiles(groups, size):
    y = groups.zeros(64, 12)
    groups.tiles(y, size)
    expected = []
    for i in range(64):
        rank, first = i % size, i // size * size
        tile = range(first, first + size)
        expected.append(
            [
                rank,
                size,
                i // size,
                first + 1 % size,
                first + (rank ^ size // 2),
                i + 1 if rank + 1 < size else i,
                i - 1 if rank >= 1 else i,
                signed(sum(1 << k for k, j in enumerate(tile) if j % 3 == 0)),
                int(5 in tile),
                int(tile[-1] < 40),
                sum(tile),
                tile[-1],
            ]
        )
    assert y.tolist() == expected


def test_block_group(groups):
    y = groups.zeros(24)
    groups.block_group(y)
    assert y.tolist() == [(23 - i) % 2 + 300 for i in range(24)]


def test_coalesced_threads(groups):
    y = groups.zeros(32)
    groups.coalesced(y)
    assert y.tolist() == [i // 3 + 100 * 11 + 30000 if i % 3 == 0 else 0 for i in LANES]


def test_philox_known_answers(groups):
    counters, keys, words = (
        [list(map(signed, row)) for row in rows] for rows in zip(*PHILOX, strict=True)
    )
    y = groups.zeros(len(words), 4)
    groups.philox(groups.tensor(counters), groups.tensor(keys), y, len(words))
    assert y.tolist() == words


def test_uniform_numbers(groups):
    n = 2**16
    y = groups.zeros(n, dtype=torch.float32)
    groups.uniforms(y, n)
    y = y.cpu().double()
    assert y.min() >= 0
    assert y.max() < 1
    assert len(y.unique()) > 0.99 * n
    # Mean and variance within five standard errors, and so is each of 16 bins.
    assert abs(y.mean() - 1 / 2) < 5 * math.sqrt(1 / 12 / n)
    assert abs(y.var() - 1 / 12) < 5 * math.sqrt(1 / 180 / n)
    assert (torch.histc(y, 16, 0, 1) - n / 16).abs().max() < 5 * math.sqrt(n / 16)
