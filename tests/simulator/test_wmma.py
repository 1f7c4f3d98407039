"""nvcuda::wmma: every shape, type and layout against sums computed here.

Integers and doubles are exact. For other types the rule is that of the tensor cores on compute
capability 9.0, which simulator/libraries/tensor_cores.cpp tells.
"""

import itertools

import numpy as np
import pytest
import torch
from jit_cases import load, write
from simulated import fixture

import jitload

wmma = fixture("wmma", "-O0")


def truncated(x: np.ndarray) -> np.ndarray:
    """Doubles as float32, rounded toward zero."""
    nearest = x.astype(np.float32)
    return np.where(abs(nearest) > abs(x), np.nextafter(nearest, np.float32(0)), nearest)


def exponent(x: np.ndarray) -> np.ndarray:
    return np.where(x == 0, -1000, np.frexp(x)[1] - 1)


def summed(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """a b + c as doubles: all products at once, of which a part of the smaller ones is cut off."""
    a, b = a[:, :, None], b[None, :, :]
    top = np.maximum((exponent(a) + exponent(b)).max(1), exponent(c))
    kept = 25 - top
    aligned = np.trunc(np.ldexp(a * b, kept[:, None, :])).sum(1) + np.trunc(np.ldexp(c, kept))
    return np.ldexp(aligned, -kept)


def multiplied(kind: str, a: np.ndarray, b: np.ndarray, c: np.ndarray, option: int) -> np.ndarray:
    if kind == "double":
        for k in range(a.shape[1]):  # products of small integers with a few bits behind the point
            c = a[:, k, None] * b[None, k, :] + c
        return c
    if kind == "b1":
        both = a[:, :, None] & b[None] if option else a[:, :, None] ^ b[None]
        return both.sum(1) + c
    if kind in ("signed_char", "unsigned_char", "s4", "u4"):
        exact = a @ b + c
        limits = np.iinfo(np.int32)
        return exact.clip(limits.min, limits.max) if option else exact.astype(np.int32)
    if kind == "half_half_half":
        return summed(a, b, c).astype(np.float16)
    if kind == "tf32":  # four at a time
        c = truncated(summed(a[:, :4], b[:4], c)).astype(np.float64)
        return truncated(summed(a[:, 4:], b[4:], c))
    result = truncated(summed(a, b, c))
    return result.astype(np.float16) if kind == "half_float_half" else result


FLOATS = {
    "half_float_float": (torch.float16, torch.float32, torch.float32),
    "half_half_half": (torch.float16, torch.float16, torch.float16),
    "half_float_half": (torch.float16, torch.float32, torch.float16),
    "half_half_float": (torch.float16, torch.float16, torch.float32),
    "bfloat16": (torch.bfloat16, torch.float32, torch.float32),
    "tf32": (torch.float32, torch.float32, torch.float32),
    "double": (torch.float64, torch.float64, torch.float64),
}
RANGES = {
    "signed_char": (-128, 128),
    "unsigned_char": (0, 256),
    "s4": (-8, 8),
    "u4": (0, 16),
    "b1": (0, 2),
}
BITS = {"signed_char": 8, "unsigned_char": 8, "s4": 4, "u4": 4, "b1": 1}

OF_SIXTEEN = [
    kind for kind in (*FLOATS, *RANGES) if kind not in ("tf32", "double", "s4", "u4", "b1")
]
PRODUCTS = [
    *itertools.product(OF_SIXTEEN, [(16, 16, 16), (32, 8, 16), (8, 32, 16)]),
    ("tf32", (16, 16, 8)),
    ("double", (8, 8, 4)),
    ("s4", (8, 8, 32)),
    ("u4", (8, 8, 32)),
    ("b1", (8, 8, 128)),
]


def in_memory(x: torch.Tensor, by_rows: bool, padding: int) -> torch.Tensor:
    """A matrix with its rows or columns one after the other, and something between them."""
    lines = x if by_rows else x.T
    memory = torch.full((len(lines), lines.shape[1] + padding), 3, dtype=x.dtype)
    memory[:, : lines.shape[1]] = lines
    return memory


def packed(memory: torch.Tensor, bits: int) -> torch.Tensor:
    """Elements of so many bits, the first in the lowest."""
    parts = (memory & (1 << bits) - 1).reshape(len(memory), -1, 8 // bits)
    return (parts << torch.arange(0, 8, bits)).sum(2).to(torch.uint8).view(torch.int8)


def matrices(kind: str, m: int, n: int, k: int):
    """A, B and C, as torch has them in memory, and as what numpy computes with."""
    if kind in RANGES:
        low, high = RANGES[kind]
        a, b = torch.randint(low, high, (m, k)), torch.randint(low, high, (k, n))
        c = torch.randint(-1000, 1000, (m, n))
        c[0] = 2**31 - 5
        c[-1, : n // 2] = -(2**31) + 5
        return (a, b, c.int()), [x.numpy() for x in (a, b, c)]
    dtype, of_c, _ = FLOATS[kind]
    if kind == "double":
        made = [torch.randint(-1000, 1000, shape) / 8 for shape in ((m, k), (k, n), (m, n))]
        made = [x.double() for x in made]
        return made, [x.numpy() for x in made]
    shapes = ((m, k, dtype), (k, n, dtype), (m, n, of_c))
    made = [
        (torch.randn(rows, columns) * 2.0 ** torch.randint(-6, 5, (rows, columns))).to(of)
        for rows, columns, of in shapes
    ]
    exact = [x.double().numpy() for x in made]
    if kind == "tf32":  # the kernel rounds A; of B what is beyond 10 bits does not count
        bits = made[0].view(torch.int32)
        exact[0] = (bits + 0x1000 & ~0x1FFF).view(torch.float32).double().numpy()
        exact[1] = (made[1].view(torch.int32) & ~0x1FFF).view(torch.float32).double().numpy()
    return made, exact


LAYOUTS = list(itertools.product([True, False], [True, False]))


@pytest.mark.parametrize(("kind", "shape"), PRODUCTS)
def test_products(wmma, kind, shape):
    torch.manual_seed(1)
    m, n, k = shape
    run = getattr(wmma, f"{kind}_{m}_{n}_{k}")
    for step, (a_by_rows, b_by_rows) in enumerate(LAYOUTS):
        if kind in ("s4", "u4", "b1"):
            a_by_rows, b_by_rows = True, False
        c_by_rows, d_by_rows = LAYOUTS[-step]
        in_shared, option = step % 2 == 1, step // 2 if kind in RANGES else 0
        made, exact = matrices(kind, m, n, k)
        padding = {"s4": 32, "u4": 32, "b1": 128}.get(kind, 16) * (step > 0)
        a, b = in_memory(made[0], a_by_rows, padding), in_memory(made[1], b_by_rows, padding)
        c = in_memory(made[2], c_by_rows, 8)
        of_d = torch.int32 if kind in RANGES else FLOATS[kind][2]
        d = in_memory(torch.zeros(m, n, dtype=of_d), d_by_rows, 4 * padding // 16)
        lds = [x.shape[1] for x in (a, b, c, d)]
        if kind in BITS:
            a, b = packed(a, BITS[kind]), packed(b, BITS[kind])
        if kind == "unsigned_char":
            a, b = a.view(torch.uint8), b.view(torch.uint8)
        a, b, c, d = (x.contiguous().to(wmma.device) for x in (a, b, c, d))
        run(a, b, c, d, a_by_rows, b_by_rows, *lds, c_by_rows, d_by_rows, in_shared, option)
        expected = torch.from_numpy(multiplied(kind, *exact, option)).to(of_d)
        untouched = lds[3] - (n if d_by_rows else m)
        expected = in_memory(expected, d_by_rows, untouched)
        assert torch.equal(d.cpu(), expected), (a_by_rows, b_by_rows, c_by_rows, d_by_rows)


def test_elements_of_a_fragment(wmma):
    x, z = torch.randn(16, 16), torch.randn(16, 24).half()
    y = wmma.zeros(16, 16, dtype=torch.float32)
    wmma.touch(x.to(wmma.device), z.to(wmma.device), y)
    assert torch.equal(y.cpu(), (2 * x + z[:, :16].T.float()).relu())


def places(lanes_of: str, lines: int, units: int, per_unit: int) -> list[list[tuple[int, int]]]:
    """By lane, the (line, k) of its elements; `lanes_of` says what each bit of the index of a unit
    adds: 8 lines, so many units ("k") or 16 lines."""
    step = {"8": (8, 0), "k": (0, 4 * per_unit), "16": (16, 0)}
    order = [step[name] for name in lanes_of.split()]
    every = []
    for lane in range(32):
        mine = []
        for unit in range(2 ** len(order)):
            chosen = [step for bit, step in enumerate(order) if unit >> bit & 1]
            line = lane // 4 + sum(s[0] for s in chosen)
            first = lane % 4 * per_unit + sum(s[1] for s in chosen)
            mine += [(line, first + e) for e in range(per_unit)]
        every.append(mine)
    return every


@pytest.mark.parametrize(
    ("m", "n", "of_a", "of_b", "of_d"),
    [
        (16, 16, "8 k", "k 8", "8 k"),  # of D, "k" are 8 columns
        (32, 8, "8 k 16", "k", "8 16"),
        (8, 32, "k", "8 k 16", "8 16"),
    ],
)
def test_which_elements_a_lane_has(wmma, m, n, of_a, of_b, of_d):
    """As measured on an H100. What lanes have of half beyond that are copies."""
    x = torch.arange(max(m, n) * 16).half()
    sums = torch.arange(m * n).float()
    a, b = (wmma.zeros(32, 16, dtype=torch.float16) for _ in range(2))
    d = wmma.zeros(32, 8, dtype=torch.float32)
    run = getattr(wmma, f"places_{m}_{n}")
    run(x.to(wmma.device), sums.to(wmma.device), a, b, d)
    for lane, mine in enumerate(places(of_a, m, 8, 2)):
        expected = [row * 16 + k for row, k in mine]
        assert a[lane].tolist() == expected * (16 // len(expected))
    for lane, mine in enumerate(places(of_b, n, 8, 2)):
        expected = [k * n + column for column, k in mine]
        assert b[lane].tolist() == expected * (16 // len(expected))
    for lane, mine in enumerate(places(of_d, m, n // 2, 2)):
        by_columns = m == 8
        expected = [two * n + line if by_columns else line * n + two for line, two in mine]
        assert d[lane].tolist() == expected


def test_which_elements_of_tf32_a_lane_has(wmma):
    x = torch.arange(128.0)
    a, b = (wmma.zeros(32, 4, dtype=torch.float32) for _ in range(2))
    wmma.places_of_tf32(x.to(wmma.device), a, b)
    for lane, mine in enumerate(places("8 k", 16, 8, 1)):
        assert a[lane].tolist() == [row * 8 + k for row, k in mine]
    for lane, mine in enumerate(places("k 8", 16, 8, 1)):
        assert b[lane].tolist() == [k * 16 + column for column, k in mine]


def test_filling_and_rounding(wmma):
    y = wmma.zeros(3)
    x = torch.tensor([1.0, 1 + 2**-11, 1 + 2**-11 - 2**-23, -3.14159274, 1e-42, float("inf")])
    rounded = wmma.zeros(len(x), dtype=torch.float32)
    wmma.fill(y, x.to(wmma.device), rounded, len(x))
    assert [word & 0xFFFFFFFF for word in y.tolist()] == [0xDDDDDDDD, 0xBBBBBBBB, 0xFFFFFFFF]
    expected = x.view(torch.int32) + 0x1000 & ~0x1FFF
    assert torch.equal(rounded.cpu().view(torch.int32), expected)


def test_a_product_of_many_tiles(wmma):
    m, n, k = 64, 96, 80
    a, b = torch.randint(-8, 9, (m, k)).half(), torch.randint(-8, 9, (k, n)).half()
    c = wmma.zeros(m, n, dtype=torch.float32)
    wmma.gemm(a.to(wmma.device), b.to(wmma.device), c, m, n, k)
    assert torch.equal(c.cpu(), a.float() @ b.float())


def test_lanes_go_through_a_store_together(wmma):
    y = wmma.zeros(32, dtype=torch.float32)
    wmma.in_step(y, 3)
    # Rows of 16, of which two lanes read columns 0 and 8.
    owner = torch.tensor([lane // 2 % 8 * 4 for lane in range(32)])
    assert torch.equal(y.cpu(), (owner * 3 + 3).float())


def test_all_lanes_take_part(wmma):
    if wmma.device.type != "cpu":
        pytest.skip("undefined on a GPU")
    y = wmma.zeros(16, 16, dtype=torch.float32)
    with pytest.raises(RuntimeError, match="all 32 lanes"):
        wmma.few_lanes(y, 16)
    wmma.few_lanes(y, 32)
    assert y.eq(16).all()


@pytest.mark.parametrize(("offset", "ld"), [(1, 16), (0, 17)])
def test_matrices_are_aligned(wmma, offset, ld):
    if wmma.device.type != "cpu":
        pytest.skip("ends the process's use of a GPU")
    x, y = torch.zeros(512).half(), torch.zeros(32).half()
    with pytest.raises(RuntimeError, match="multiple of 32 bytes"):
        wmma.askew(x, y, offset, ld)
    wmma.askew(x, y, 16, 24)


@pytest.mark.parametrize(
    ("fragment", "what"),
    [
        ("matrix_a, 16, 16, 32, half, row_major", "no fragment"),
        ("matrix_b, 16, 16, 16, float, row_major", "no fragment"),
        ("matrix_a, 8, 8, 32, experimental::precision::s4, col_major", "no fragment"),
        ("accumulator, 16, 16, 8, half", "no fragment"),
        ("accumulator, 16, 16, 16, float, row_major", "no fragment"),
    ],
)
def test_what_there_is_not(tmp_path, monkeypatch, fragment, what):
    monkeypatch.chdir(tmp_path)
    source = f"""
        #include <mma.h>
        using namespace nvcuda::wmma;
        __global__ void kernel() {{ fragment<{fragment}> f; }}
    """
    with pytest.raises(jitload.CompileError, match=what):
        load(str(write("shape.cu", source)))
