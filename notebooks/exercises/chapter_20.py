"""Judges of chapter 20: tensor memory, its barriers and fences, pairs of blocks and scales."""

import torch

import lab
from lab.course.exercise import Attempt, Claim, Judgement, answer, kernel

# Fields of an instruction descriptor of kind::f16: what stands in it, its first bit, its bits.
FIELDS = {
    "the type of the sums (1 for float32)": (4, 2),
    "the type of a (0 for float16, 1 for bfloat16)": (7, 3),
    "the type of b (0 for float16, 1 for bfloat16)": (10, 3),
    "n / 8": (17, 6),
    "m / 16": (24, 5),
}


def product(attempt: Attempt, hint: str = "") -> Judgement:
    """`launch(a, b, c, depth)`: nothing is found, whichever threads run first, and c is right."""
    for depth in (64, 192, 320):
        generator = torch.Generator().manual_seed(depth)
        a, b = (torch.randn(rows, depth, generator=generator).bfloat16() for rows in (128, 16))
        for order in (0, 1):
            c = torch.empty(128, 16)
            report = lab.check(attempt.launch, a, b, c, depth, traffic=False, thread_order=order)
            yield Claim(report.findings.empty, f"depth {depth}: {hint}lab.check: {report.first}")
        c = attempt.empty(128, 16)
        attempt(attempt.tensor(a), attempt.tensor(b), c, depth)
        error = (c.double() - a.double() @ b.double().T).abs().max().item()
        yield Claim(error < 1e-5 * depth, f"depth {depth}: a sum is off by {error:.3g}")


@kernel(lines=56, target="cpu")
def phase(attempt):
    """Every stage is read when it is full, and filled when it has been read."""
    yield from product(attempt, "in which round of the ring is the stage used? ")


@kernel(lines=50, bug=True, target="cpu")
def fence(attempt):
    """The sums are read after a fence."""
    yield from product(attempt)


@kernel(lines=50, bug=True, target="cpu")
def freed(attempt):
    """The columns are freed when all warps have read them."""
    yield from product(attempt)


@answer
def instruction(given):
    """The instruction descriptor of a product of 16-bit floats."""
    for m, n, a, b in [(128, 256, 1, 1), (128, 16, 1, 1), (64, 128, 0, 0), (256, 256, 0, 1)]:
        bits = (1, a, b, n // 8, m // 16)
        got, case = given(m, n, a, b), f"m {m}, n {n}, types {a} and {b}"
        yield Claim(isinstance(got, int), f"{case}: got {got}; wanted is a number of 32 bits")
        for (what, (first, count)), wanted in zip(FIELDS.items(), bits, strict=True):
            found = got >> first & (1 << count) - 1
            yield Claim(
                found == wanted,
                f"{case}: bits {first} to {first + count - 1} hold {found}, wanted is {wanted}: "
                f"{what}",
            )
        rest = got - sum(
            value << first for value, (first, _) in zip(bits, FIELDS.values(), strict=True)
        )
        yield Claim(rest == 0, f"{case}: other bits are set, too: {rest:#x}")


@answer
def allocate(given):
    """The columns to allocate: a power of two, 32 at least; None if there are not so many."""
    for accumulators, columns, scales in [
        (1, 16, 0),
        (1, 128, 0),
        (2, 256, 0),
        (2, 96, 0),
        (2, 128, 32),
        (2, 256, 32),
    ]:
        needed = accumulators * columns + scales
        wanted = max(32, 1 << (needed - 1).bit_length())
        wanted = wanted if wanted <= 512 else None
        got = given(accumulators, columns, scales)
        yield Claim(
            got == wanted,
            f"{accumulators} x {columns} columns and {scales} of scales are {needed}: got {got}. "
            "What counts does tcgen05.alloc take, and how many columns has a multiprocessor?",
        )


@answer
def scale(given):
    """The byte at which tensor memory's copy expects a scale."""
    for row, block, blocks, about in [
        (0, 0, 4, "the first byte"),
        (0, 3, 4, "the four scales of a row are neighbours"),
        (1, 0, 4, "rows of one quarter are 16 bytes apart"),
        (32, 0, 4, "a tile has 32 rows of 16 bytes: row 32 stands behind row 0's four bytes"),
        (127, 3, 4, "the last byte of the first tile"),
        (0, 4, 8, "the next 512 bytes have the next four blocks of the same 128 rows"),
        (128, 0, 8, "tiles follow each other along k first, then along the rows"),
        (300, 13, 16, "all of these together"),
    ]:
        unit = row // 128 * (blocks // 4) + block // 4
        wanted = unit * 512 + row % 32 * 16 + row % 128 // 32 * 4 + block % 4
        got = given(row, block, blocks)
        yield Claim(
            got == wanted, f"row {row}, block {block} of {blocks}: got {got}. Hint: {about}"
        )


@answer
def pair(given):
    """Arrivals that the leader of a pair expects at `full`, `empty` and `tmem_empty`."""
    for pairs, warps in [(2, 4), (1, 4), (4, 4), (2, 8)]:
        got = given(pairs, warps)
        case = f"{pairs} pairs, {warps} epilogue warps in a block: got {got}"
        yield Claim(
            isinstance(got, tuple) and len(got) == 3,
            f"{case}; wanted is a tuple of three counts",
        )
        full, empty, drained = got
        yield Claim(full == 1, f"{case}. At `full` one thread says how many bytes will come")
        yield Claim(
            empty == pairs,
            f"{case}. `empty`: whose products read what this block has fetched, and how often does"
            " a commit arrive?",
        )
        yield Claim(
            drained == 2 * warps,
            f"{case}. `tmem_empty`: the leader's MMAs overwrite the sums of both blocks",
        )


@answer
def step(given):
    """The trace of `product_tile`: the lane and the column that thread 96 hands to `load`."""
    yield Claim(
        tuple(given) == (96, 0),
        f"{given}: the upper 16 bits of the address are the lane, the lower 16 the column; which "
        "lanes does warp 3 reach?",
    )
