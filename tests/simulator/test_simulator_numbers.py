"""CUDA's arithmetic on the CPU: half types, floats of 8 bits, rounding modes, parts of words.

Expected numbers are PyTorch's, exact fractions rounded here, or worked out in Python's integers.
"""

import math
from bisect import bisect_left, bisect_right
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch

import jitload

SOURCE = Path(__file__).parent / "kernels/numbers.cu"
TARGETS = ["cpu", "cuda"] if jitload.default_target() == "cuda" else ["cpu"]
# PyTorch's builds take their operators and conversions from CUDA's half types; plain nvcc does not.
TAKEN = ["HALF_OPERATORS", "HALF_CONVERSIONS", "HALF2_OPERATORS", "BFLOAT16_CONVERSIONS"]


@pytest.fixture(scope="module", params=TARGETS)
def numbers(request):
    flags = [f"-U__CUDA_NO_{name}__" for name in TAKEN]
    library = jitload.load(str(SOURCE), name="test_numbers", target=request.param, flags=flags)

    def run(name: str, *arguments):
        on_device = [a.to(request.param) if isinstance(a, torch.Tensor) else a for a in arguments]
        getattr(library, f"run_{name}")(*on_device)
        return [a.cpu() if isinstance(a, torch.Tensor) else a for a in on_device]

    return run


def signed(word: int, bits: int = 32) -> int:
    return (word & (1 << bits) - 1) - ((word & 1 << bits - 1) << 1)


HALVES = [("half", torch.float16), ("bfloat16", torch.bfloat16)]
both = pytest.mark.parametrize(("name", "dtype"), HALVES)


def rounded(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Doubles, rounded once: by way of floats whose last bit says whether anything was cut off."""
    nearest = x.float()
    bits = nearest.view(torch.int32)
    too_far = nearest.double().abs() > x.abs()
    odd = torch.where(too_far, bits - 1, bits) | 1
    exact = (nearest.double() == x) | x.isnan()
    return torch.where(exact, bits, odd).view(torch.float32).to(dtype)


def operands(dtype: torch.dtype) -> list[torch.Tensor]:
    """Three of each: random numbers, and all triples of special ones."""
    special = [0.0, -0.0, 1.0, -2.5, math.inf, -math.inf, math.nan, torch.finfo(dtype).max]
    grid = torch.tensor(special).to(dtype)
    triples = torch.cartesian_prod(grid, grid, grid).T
    return [torch.cat([t, (torch.randn(1000) * 3).to(dtype)]) for t in triples]


@both
def test_pairs_of_halves(numbers, name, dtype):
    a, b, c = operands(dtype)
    n = len(a)
    *_, y, _ = numbers(name, a, b, c, torch.zeros(36, n, 2, dtype=dtype), n)
    p = torch.stack([a, b], 1).double()
    q = torch.stack([b, c], 1).double()
    r = torch.stack([c, a], 1).double()
    nothing = torch.zeros(())

    def saturated(x):
        return torch.where(x.isnan(), nothing, rounded(x, dtype).double().clamp(0, 1))

    def fused(x, y, z):
        return rounded(x * y + z, dtype).double()

    size = p.abs()
    product = rounded(p * q, dtype).double()
    exact = [p + q, p - q, p * q, p / q, p * q + r]
    exact += [saturated(p + q), saturated(p - q), saturated(p * q), saturated(p * q + r)]
    exact += [fused(p, q, r).clamp(min=0)]  # a NaN stays one
    exact += [torch.fmax(p, q), torch.fmin(p, q), torch.maximum(p, q), torch.minimum(p, q)]
    exact += [size, -p, p.floor(), p.ceil(), p.trunc(), p.round(), size.sqrt(), 1 / p]
    exact += [1 / size.sqrt(), p.exp(), 2**p, 10**p, size.log(), size.log2(), size.log10()]
    exact += [p.sin(), p.cos(), p.tanh()]
    first = fused(-p[:, 1], q[:, 1], fused(p[:, 0], q[:, 0], r[:, 0]))
    second = fused(p[:, 1], q[:, 0], fused(p[:, 0], q[:, 1], r[:, 1]))
    exact += [torch.stack([first, second], 1), p.flip(1), p + q]
    exact += [product + (p - p)]
    expected = rounded(torch.stack(exact), dtype)
    # Rounded once, all but the last are right to the last bit; so the GPU's sines and logarithms
    # need a little room.
    plain = [*range(21), 32, 33, 34, 35]
    for k in range(36):
        tolerance = 0 if k in plain else 4 * torch.finfo(dtype).eps
        torch.testing.assert_close(
            y[k].double(), expected[k].double(), rtol=tolerance, atol=tolerance, equal_nan=True,
            msg=lambda text, k=k: f"result {k}: {text}",
        )  # fmt: skip


def test_bfloat16_fma_rounds_once(numbers):
    """A product halfway between two numbers, and a tiny addend: double has not the digits."""
    dtype = torch.bfloat16
    a = torch.tensor([17 / 16] * 4, dtype=dtype)
    b = torch.tensor([17 / 16, 17 / 16, -17 / 16, 17 / 16], dtype=dtype)
    c = torch.tensor([2**-100, -(2**-100), 2**-100, 0], dtype=dtype)
    *_, y, _ = numbers("bfloat16", a, b, c, torch.zeros(36, 4, 2, dtype=dtype), 4)
    # hcmadd's inner fma of (a, b) * (b, c) + (c, a) in the first part, with -b * c after it: too
    # small to be seen.
    up = 1.125 + 2**-7
    assert y[32, :, 0].tolist() == [up, 1.125, -1.125, 1.125]


@both
def test_comparisons_of_halves(numbers, name, dtype):
    values = torch.tensor([0.0, -0.0, 1.0, -1.0, math.inf, math.nan]).to(dtype)
    a, b = torch.cartesian_prod(values, values).T.contiguous()
    n = len(a)
    _, _, y, _ = numbers(f"{name}_compare", a, b, torch.zeros(36, n, dtype=torch.int32), n)

    def compared(x: float, z: float) -> list[bool]:
        ordered = not (math.isnan(x) or math.isnan(z))
        plain = [x == z, x != z and ordered, x < z, x <= z, x > z, x >= z]
        return plain + [not ordered or result for result in plain]

    for i, (x, z) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        one, other = compared(x, z), compared(z, x)
        expected = []
        for first, second in zip(one, other, strict=True):
            mask = (0xFFFF if first else 0) | (0xFFFF0000 if second else 0)
            expected += [int(first), signed(mask), int(first and second)]
        assert y[:, i].tolist() == expected, (x, z)


@both
def test_conversions_to_halves_in_every_rounding(numbers, name, dtype):
    bits = torch.arange(2**16, dtype=torch.int32).to(torch.int16)
    every = bits.view(dtype).double()
    every = every[~every.isnan()].unique()  # ascending
    halves = every[every.isfinite()]
    middles = ((halves[1:] + halves[:-1]) / 2)[::37]
    x = torch.cat([middles, middles * (1 + 2**-20), torch.randn(500) * 1000, torch.tensor([0.0])])
    x = torch.cat([x, torch.tensor([1e6, -1e6, 3e38, -3e38, 1e-30, -1e-30, math.inf])]).double()
    n = len(x)
    integers = (torch.randn(n, dtype=torch.float64) * 2.0 ** torch.randint(0, 62, (n,))).long()
    integers[:4] = torch.tensor([2**62 + 2**54 + 1, 2**62 + 2**54, -(2**62) - 2**54 - 1, 65520])
    _, _, _, y, _ = numbers(
        f"{name}_from", x.float(), x, integers, torch.zeros(19, n, dtype=dtype), n
    )

    def down(v):
        return every[torch.searchsorted(every, v, right=True) - 1]

    def up(v):
        return every[torch.searchsorted(every, v)]

    def zero(v):
        return torch.where(v < 0, up(v), down(v))

    def nearest(v):
        return rounded(v, dtype).double()

    ladder = every.tolist()

    def from_integers(values, low_bits: int, is_signed: bool, rounding: str):
        """Each exactly: Python compares integers with floats so, and no double comes in."""
        out = []
        for value in values.tolist():
            value = signed(value, low_bits) if is_signed else value & (1 << low_bits) - 1
            low, high = ladder[bisect_right(ladder, value) - 1], ladder[bisect_left(ladder, value)]
            if low == value:
                out.append(low)
            elif rounding == "nearest":
                beyond = 2 * ladder[-2] - ladder[-3]  # where the infinities would stand
                gaps = [value - Fraction(max(low, -beyond)), Fraction(min(high, beyond)) - value]
                tie = nearest(torch.tensor((low + high) / 2).double()).item()
                out.append(low if gaps[0] < gaps[1] else high if gaps[1] < gaps[0] else tie)
            else:
                is_up = rounding == "up" or (rounding == "zero" and value < 0)
                out.append(high if is_up else low)
        return torch.tensor(out, dtype=torch.float64)

    f = x.float().double()
    expected = [nearest(f), down(f), up(f), zero(f), nearest(x)]
    expected += [from_integers(integers, 64, True, r) for r in ("nearest", "down", "up", "zero")]
    expected += [from_integers(integers, 32, True, r) for r in ("nearest", "down", "up", "zero")]
    expected += [from_integers(integers, 32, False, r) for r in ("nearest", "up")]
    expected += [from_integers(integers, 64, False, r) for r in ("nearest", "down")]
    expected += [from_integers(integers, 16, True, "zero")]
    expected += [from_integers(integers, 16, False, "up")]
    for k in range(19):
        assert torch.equal(y[k].double(), expected[k]), f"result {k}"


@both
def test_conversions_of_halves_to_integers(numbers, name, dtype):
    special = [0.5, 1.5, -0.5, -2.5, 300.0, -300.0, 70000.0, -1e10, math.inf, -math.inf, math.nan]
    x = torch.cat([torch.tensor(special), torch.randn(300) * 100]).to(dtype)
    n = len(x)
    _, y, _ = numbers(f"{name}_to", x, torch.zeros(15, n, dtype=torch.int64), n)

    def limited(v: float, function, bits: int, is_signed: bool = True) -> int:
        if math.isnan(v):
            return -(2**63) if bits == 64 else 0
        low = -(2 ** (bits - 1)) if is_signed else 0
        high = low + 2**bits - 1
        return low if v <= low else high if v >= high else min(max(function(v), low), high)

    for i, v in enumerate(x.tolist()):
        expected = [limited(v, f, 32) for f in (round, math.floor, math.ceil, math.trunc)]
        expected += [limited(v, f, 32, False) for f in (round, math.trunc)]
        expected += [limited(v, f, 16) for f in (round, math.trunc)]
        expected += [limited(v, math.floor, 16, False)]
        expected += [limited(v, f, 64) for f in (round, math.ceil)]
        expected += [signed(limited(v, math.trunc, 64, False), 64)]
        expected += [limited(v, math.trunc, 8), limited(v, math.trunc, 8, False)]
        expected += [limited(v, math.trunc, 32)]
        assert y[:, i].tolist() == expected, v


def test_pairs_constants_shuffles_and_atomics(numbers):
    y, sums, totals = numbers(
        "pairs",
        torch.zeros(32, 12),
        torch.zeros(2, dtype=torch.float16),
        torch.zeros(2, dtype=torch.bfloat16),
    )
    largest = [torch.finfo(dtype).max for _, dtype in HALVES]
    for i in range(32):
        shuffled = [i ^ 1, min(i + 1, 31)]
        assert y[i].tolist() == [1, 2, 4, 1, 1, *shuffled, math.inf, *largest, 0, -1]
    assert sums.tolist() == [32, 16]
    assert totals.tolist() == [64, 32]


# ---- floats of 8 bits

FP8 = [torch.float8_e4m3fn, torch.float8_e5m2]


def test_every_float_of_8_bits(numbers):
    (y,) = numbers("all_fp8", torch.zeros(4, 256))
    codes = torch.arange(256).to(torch.uint8)
    for k, dtype in enumerate(FP8 * 2):
        expected = codes.view(dtype).float()
        torch.testing.assert_close(y[k], expected, rtol=0, atol=0, equal_nan=True)


def test_floats_become_floats_of_8_bits(numbers):
    codes = torch.arange(256).to(torch.uint8)
    every = torch.cat([codes.view(dtype).float() for dtype in FP8])
    every = every[every.isfinite()].unique()
    middles = (every[1:] + every[:-1]) / 2
    x = torch.cat([every, middles, middles * 1.001, torch.randn(500) * 100])
    special = [447.0, 463.9, 464.0, 464.1, 61439.0, 61440.0, 1e30, 1e-30, math.inf, math.nan]
    x = torch.cat([x, torch.tensor(special), -torch.tensor(special)])
    n = len(x)
    d = x.double() * (1 + 2.0**-40)
    _, _, y, _ = numbers("to_fp8", x, d, torch.zeros(8, n, dtype=torch.uint8), n)

    def limited(v, dtype):
        most = torch.finfo(dtype).max
        return v.clamp(-most, most).to(dtype)

    to_odd = torch.where(x.isfinite(), x.view(torch.int32) | 1, x.view(torch.int32))
    expected = [limited(x, dtype) for dtype in FP8] + [x.to(dtype) for dtype in FP8]
    expected[2] = torch.where(x.abs() > 464, torch.tensor(math.nan), x).to(FP8[0])
    # Just above x: beside a float it is as the next odd float, away from zero.
    above = torch.where(d == x.double(), x, to_odd.view(torch.float32))
    expected += [limited(above, FP8[0]), limited(x.half().float(), FP8[0])]
    expected += [limited(x, FP8[1]), limited(x, FP8[0])]
    for k, wanted in enumerate(expected):
        ours = y[k].view(wanted.dtype).float()
        torch.testing.assert_close(ours, wanted.float(), rtol=0, atol=0, equal_nan=True,
                                   msg=lambda text, k=k: f"result {k}: {text}")  # fmt: skip


# ---- rounding modes


def in_all_ways(exact: Fraction, kind: type) -> list[float]:
    """An exact number rounded down, up and towards zero to a float or a double."""
    near = kind(float(exact))
    low = near if Fraction(float(near)) <= exact else np.nextafter(near, kind(-np.inf))
    high = near if Fraction(float(near)) >= exact else np.nextafter(near, kind(np.inf))
    return [float(low), float(high), float(high if exact < 0 else low)]


def root_in_all_ways(x: float, kind: type) -> list[float]:
    near = np.sqrt(kind(x))
    square = Fraction(float(near)) ** 2
    low = near if square <= Fraction(x) else np.nextafter(near, kind(0))
    high = near if square >= Fraction(x) else np.nextafter(near, kind(np.inf))
    return [float(low), float(high), float(low)]


def test_rounding_modes(numbers):
    n = 300
    a, b = torch.randn(2, n) * 10.0 ** torch.randint(-5, 5, (2, n))
    c, d = torch.randn(2, n, dtype=torch.float64) * 10.0 ** torch.randint(-9, 9, (2, n))
    integers = (torch.randn(n, dtype=torch.float64) * 2**61).long()
    _, _, y, _, _, z, _, _ = numbers(
        "rounded", a, b, torch.zeros(30, n), c, d, torch.zeros(24, n, dtype=torch.float64),
        integers, n,
    )  # fmt: skip
    for i in range(n):
        floats, doubles = [], []
        for x, v, out, kind in (
            (a[i].item(), b[i].item(), floats, np.float32),
            (c[i].item(), d[i].item(), doubles, np.float64),
        ):
            p, q = Fraction(x), Fraction(v)
            for exact in (p + q, p - q, p * q, p / q, 1 / p):
                out += in_all_ways(exact, kind)
            out += root_in_all_ways(abs(x), kind)
            out += in_all_ways(p * q + p, kind)
        whole = integers[i].item()
        for exact in (Fraction(c[i].item()), Fraction(signed(whole)), Fraction(whole)):
            floats += in_all_ways(exact, np.float32)
        doubles += in_all_ways(Fraction(whole), np.float64)
        assert y[:, i].tolist() == floats
        assert z[:, i].tolist() == doubles


# ---- parts of words


def test_parts_of_words(numbers):
    edges = [0, 0x7FFF8000, 0x80007FFF, 0xFFFF0001, 0x807F01FF, 0x7F80FF00]
    a = torch.randint(-(2**31), 2**31, (200,))
    a[:36] = torch.tensor([signed(e) for e in edges for _ in edges])
    b = torch.randint(-(2**31), 2**31, (200,))
    b[:36] = torch.tensor([signed(e) for e in edges * 6])
    a, b = a.int(), b.int()
    _, _, y, _ = numbers("parts", a, b, torch.zeros(54, 200, dtype=torch.int32), 200)

    for i, (x, v) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        expected, unary = [], []
        for bits in (16, 8):
            ones = (1 << bits) - 1
            most = ones >> 1

            def lanes(word: int, is_signed: bool, bits=bits, ones=ones) -> list[int]:
                raw = [word >> s & ones for s in range(0, 32, bits)]
                return [signed(lane, bits) for lane in raw] if is_signed else raw

            def packed(values, bits=bits, ones=ones) -> int:
                return signed(sum((value & ones) << bits * k for k, value in enumerate(values)))

            s = list(zip(lanes(x, True), lanes(v, True), strict=True))
            u = list(zip(lanes(x, False), lanes(v, False), strict=True))

            def clamped(values, is_signed: bool, most=most, ones=ones) -> list[int]:
                low, high = (-most - 1, most) if is_signed else (0, ones)
                return [min(max(value, low), high) for value in values]

            def away(total: int) -> int:  # half a sum, rounded to the nearest, away from zero
                return int(math.copysign((abs(total) + 1) // 2, total)) if total else 0

            results = [
                [p + q for p, q in s],
                clamped([p + q for p, q in s], True),
                clamped([p + q for p, q in u], False),
                [p - q for p, q in s],
                clamped([p - q for p, q in s], True),
                clamped([p - q for p, q in u], False),
                [away(p + q) for p, q in s],
                [(p + q + 1) // 2 for p, q in u],
                [(p + q) // 2 for p, q in u],
                [abs(p - q) for p, q in s],
                [abs(p - q) for p, q in u],
                [max(pair) for pair in s],
                [max(pair) for pair in u],
                [min(pair) for pair in s],
                [min(pair) for pair in u],
                [-(p == q) for p, q in u],
                [-(p > q) for p, q in s],
                [-(p > q) for p, q in u],
                [p <= q for p, q in s],
                [p < q for p, q in u],
                [p != q for p, q in u],
            ]
            expected += map(packed, results)
            expected += [sum(abs(p - q) for p, q in pairs) for pairs in (s, u)]
            unary += [
                packed([abs(p) for p, _ in s]),
                packed(clamped([abs(p) for p, _ in s], True)),
                packed([-p for p, _ in s]),
                packed(clamped([-p for p, _ in s], True)),
            ]
        assert y[:, i].tolist() == expected + unary, (hex(x), hex(v))


def test_dot_products_and_maxima_of_three(numbers):
    a, b = torch.randint(-(2**31), 2**31, (2, 200)).int()
    _, _, y, _ = numbers("dots", a, b, torch.zeros(12, 200, dtype=torch.int32), 200)

    def parts(word: int, bits: int, is_signed: bool) -> list[int]:
        raw = [word >> s & (1 << bits) - 1 for s in range(0, 32, bits)]
        return [signed(part, bits) for part in raw] if is_signed else raw

    def nth(mask: int, base: int, offset: int) -> int:
        step = 1 if offset > 0 else -1
        at = range(base, 32) if step > 0 else range(base, -1, -1)
        found = [bit for bit in at if mask >> bit & 1]
        return found[abs(offset) - 1] if len(found) >= abs(offset) else -1

    for i, (x, v) in enumerate(zip(a.tolist(), b.tolist(), strict=True)):
        u, w = x & 0xFFFFFFFF, v & 0xFFFFFFFF
        pairs = list(zip(parts(x, 16, True), parts(v, 16, True), strict=True))
        smallest = [min(*pair, limit) for pair, limit in zip(pairs, (5, 3), strict=True)]
        largest = [max(*pair, 0) for pair in pairs]
        expected = [
            7 + sum(p * q for p, q in zip(parts(x, 8, True), parts(v, 8, True), strict=True)),
            7 + sum(p * q for p, q in zip(parts(x, 8, False), parts(v, 8, False), strict=True)),
            7 + sum(p * q for p, q in zip(parts(x, 16, True), parts(v, 8, True)[:2], strict=True)),
            7
            + sum(p * q for p, q in zip(parts(x, 16, False), parts(v, 8, False)[2:], strict=True)),
            max(x, v, 5),
            sum((p & 0xFFFF) << 16 * k for k, p in enumerate(smallest)),
            max(signed(x + v), -5, 0),
            sum((p & 0xFFFF) << 16 * k for k, p in enumerate(largest)),
            nth(u, w & 31, 3),
            nth(u, w & 31, -2),
            u,
            (x + v + 1) >> 1,
        ]
        assert y[:, i].tolist() == [signed(value) for value in expected]


# ---- special functions, atomics, time


def test_special_functions(numbers):
    x = torch.cat([torch.linspace(-6, 6, 401), torch.tensor([0.25, 30.0, -30.0, 100.0, 600.0])])
    x = x.double()
    n = len(x)
    _, y, f, _ = numbers(
        "special", x, torch.zeros(13, n, dtype=torch.float64), torch.zeros(13, n), n
    )
    special, pi = torch.special, math.pi

    def expected(x, u, middle):
        turn = x - 2 * (x / 2).round()
        values = [special.erfinv(middle), -special.ndtri(u / 2) / math.sqrt(2), special.ndtri(u)]
        values += [special.ndtr(x), special.erfcx(x), special.i0(x), special.i1(x)]
        values += [(pi * turn).sin(), (pi * turn).cos(), x.sign() * x.abs() ** (-1 / 3)]
        values += [(x**2 + 13).sqrt(), 1 / (x**2 + 14).sqrt(), x.lgamma()]
        return values

    u = 1 / (1 + x.abs())
    arguments = x, u, u - 0.5
    in_float = [argument.float().double() for argument in arguments]
    for k, (wide, narrow) in enumerate(zip(expected(*arguments), expected(*in_float), strict=True)):
        named = {"equal_nan": True, "msg": lambda text, k=k: f"result {k}: {text}"}
        torch.testing.assert_close(y[k], wide, rtol=1e-12, atol=1e-13, **named)
        torch.testing.assert_close(f[k], narrow.float(), rtol=1e-5, atol=1e-6, **named)
    halves = (2 * x == (2 * x).round()) & (x.abs() < 7)
    assert set(y[7:9, halves].flatten().tolist()) == {0, 1, -1}


def test_atomics_on_vectors_and_wide_words(numbers):
    pair, four, bits, two, shorts = numbers(
        "atomics",
        torch.zeros(2),
        torch.zeros(4),
        torch.tensor([-1, 0]),
        torch.zeros(2, dtype=torch.int64),
        torch.zeros(2, dtype=torch.int16),
    )
    assert (pair.tolist(), four.tolist()) == ([128, 256], [128, 256, 384, 512])
    assert bits.tolist() == [-(2**32), 0]
    assert two.tolist() == [128, -256]
    assert shorts.tolist() == [3 * 128, 0]


def test_a_kernels_clock_counts_ticks(numbers):
    (y,) = numbers("clocks", torch.zeros(2, dtype=torch.int64))
    assert y[0] >= 1000000
    assert y[1] == 1


def test_alignment_of_long_vectors(numbers):
    (y,) = numbers("sizes", torch.zeros(4, dtype=torch.int64))
    assert y.tolist() == [16, 32, 32, 16]


def test_a_nan_gives_way_to_a_number(numbers):
    x = torch.tensor([math.nan, -math.inf, -2.0, 0.0, 1.5, math.inf])
    pairs = torch.stack([torch.fmax(x[:, None], x), torch.fmin(x[:, None], x)])
    _, _, y, z = numbers("extremes", x, len(x), torch.zeros(pairs.shape), pairs.double() - 1)
    torch.testing.assert_close(y, pairs, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(z, pairs.double(), rtol=0, atol=0, equal_nan=True)
