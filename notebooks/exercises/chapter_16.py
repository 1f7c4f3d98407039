"""Judges of chapter 16: descriptors, phases, fences, rings, clusters and TMA's limits."""

import torch

import lab
from lab.course.exercise import Attempt, Claim, Judgement, answer, kernel

REGISTERS = 65536  # of a multiprocessor


def product(
    attempt: Attempt, columns: int, hint: str = "", dtype: torch.dtype = torch.float32
) -> Judgement:
    """`launch(a, b, c, depth)`: nothing is found, whichever threads run first, and c is right."""
    for depth in (64, 192, 320):
        generator = torch.Generator().manual_seed(depth)
        sizes = (64, depth), (columns, depth)
        a, b = (torch.randint(-2, 3, size, generator=generator).bfloat16() for size in sizes)
        for order in (0, 1):
            c = torch.empty(64, columns, dtype=dtype)
            report = lab.check(attempt.launch, a, b, c, depth, traffic=False, thread_order=order)
            yield Claim(report.findings.empty, f"depth {depth}: {hint}lab.check: {report.first}")
        c = attempt.empty(64, columns, dtype=dtype)
        attempt(attempt.tensor(a), attempt.tensor(b), c, depth)
        off = (c.double() - (a.double() @ b.double().T).to(dtype)).abs().max().item()
        yield Claim(off == 0, f"depth {depth}: {hint}a sum of whole numbers is off by {off:.3g}")


@kernel(lines=45, target="cpu")
def descriptor(attempt):
    """The matrix descriptor of a tile in the 128-byte swizzle."""
    yield from product(attempt, 16, "which field has which bits, in units of how many bytes? ")


@kernel(lines=55, target="cpu")
def phase(attempt):
    """Every stage is read when it is full, and filled when it has been read."""
    yield from product(attempt, 16, "in which round of the ring is the stage used? ")


@kernel(lines=55, bug=True, target="cpu")
def release(attempt):
    """A stage is released when the products that read it are complete."""
    yield from product(attempt, 16)


@kernel(lines=60, bug=True, target="cpu")
def fence(attempt):
    """TMA sees what threads have written."""
    yield from product(attempt, 64, dtype=torch.bfloat16)


@answer
def mask(given):
    """The blocks of a cluster that need a block's tile of a, and those that need its tile of b."""
    for height, width, rank in [(2, 1, 0), (2, 1, 1), (1, 2, 1), (2, 2, 0), (2, 2, 3), (4, 2, 5)]:
        row, column = divmod(rank, width)
        of_a = sum(1 << row * width + other for other in range(width))
        of_b = sum(1 << other * width + column for other in range(height))
        got = given(height, width, rank)
        yield Claim(
            isinstance(got, tuple) and got == (of_a, of_b),
            f"block {rank} of {height} x {width}: got {got}. A tile of a serves a row of blocks, a"
            " tile of b a column; bit r stands for the block of rank r",
        )


@answer
def registers(given):
    """What setmaxnreg can give each thread of the consumers."""
    for consumers, producer in [(2, 40), (3, 24), (2, 24), (4, 40)]:
        wanted = min(255, (REGISTERS // 128 - producer) // consumers) // 8 * 8
        got = given(consumers, producer)
        yield Claim(
            got is not ... and got == wanted,
            f"{consumers} consumers, {producer} registers for a thread of the producer: got {got}."
            " How many registers are there for 128 threads in all? setmaxnreg takes multiples of 8",
        )


@answer
def break_stride(given):
    """A matrix of full vectors that begins on 16 bytes, and that TMA still cannot read."""
    yield Claim(
        isinstance(given, torch.Tensor) and given.dtype == torch.bfloat16 and given.dim() == 2,
        "wanted is a bfloat16 matrix",
    )
    yield Claim(given.shape[0] > 1 and given.shape[1] % 8 == 0, "wanted are 8, 16, .. columns")
    yield Claim(given.stride(1) == 1, "the elements of a row must be neighbours")
    yield Claim(given.data_ptr() % 16 == 0, "it must begin on a multiple of 16 bytes")
    yield Claim(
        given.stride(0) * 2 % 16 != 0,
        f"its rows are {given.stride(0) * 2} bytes apart, a multiple of 16, and TMA can read them",
    )


@answer
def step(given):
    """The trace of `specialized`: (step, parity) of the producer's first wait for the consumers."""
    yield Claim(
        tuple(given) == (4, 0),
        f"{given}: how many stages are empty at the beginning, and which phase of `empty` ends "
        "when the first one has been read?",
    )
