"""Judges of chapter 16: rings of stages, tiles by TMA, clusters and the order of tiles."""

import math

import torch

import lab
from lab.course.exercise import Claim, answer, kernel

SHARED_OF_ONE_BLOCK = 227 << 10  # bytes, on a GPU of compute capability 9.0


@answer
def parities(given):
    """The parity for which each side of a ring waits at a step."""
    for step, stages in [(0, 4), (3, 4), (4, 4), (7, 4), (8, 4), (5, 1), (6, 3)]:
        full = step // stages % 2
        got = given(step, stages)
        yield Claim(
            got is not ... and tuple(got) == (1 - full, full),
            f"step {step} of {stages} stages: got {got}. In which round is its stage used, and what"
            " phase counts as complete before the first round?",
        )


@kernel(lines=35, bug=True)
def early(attempt):
    """The sums of tiles, and no stage filled again before it is read."""
    generator = torch.Generator().manual_seed(16)
    for steps in (1, 2, 7):
        x = torch.randn(steps, 256, generator=generator)
        report = lab.check(attempt.launch, x, torch.empty(steps), steps, traffic=False)
        yield Claim(report.findings.empty, f"lab.check: {report.first}")
        y = attempt.empty(steps)
        attempt(attempt.tensor(x), y, steps)
        off = (y.cpu().double() - x.double().sum(-1)).abs().max().item()
        yield Claim(off < 1e-4, f"{steps} steps: a sum is off by {off:.3g}")


@answer
def finish(given):
    """When the last step is multiplied, by the model of the chapter."""
    for steps, stages, fetch, multiply in [(1, 4, 3, 2), (8, 1, 3, 2), (8, 4, 3, 2), (9, 2, 2, 5)]:
        filled, done = 0, [0] * stages
        for step in range(steps):
            filled = max(filled, done[step]) + fetch
            done.append(max(done[-1], filled) + multiply)
        got = given(steps, stages, fetch, multiply)
        yield Claim(
            got is not ... and math.isclose(got, done[-1]),
            f"{steps} steps, {stages} stages, {fetch} to fetch, {multiply} to multiply: got {got},"
            f" wanted {done[-1]}",
        )


@answer
def stages(given):
    """Stages that fit beside so many bytes of other things."""
    cases = [(128, 256, 64, 2, 33 << 10), (128, 128, 64, 2, 33 << 10), (256, 128, 32, 4, 0)]
    for rows, columns, depth, itemsize, others in cases:
        wanted = (SHARED_OF_ONE_BLOCK - others) // ((rows + columns) * depth * itemsize)
        got = given(rows, columns, depth, itemsize, others)
        yield Claim(
            got is not ... and got == wanted,
            f"{rows} rows, {columns} columns, {depth} of k, {itemsize} bytes each, {others} of"
            f" other things: got {got}. A stage has a tile of x and a tile of w",
        )


@answer
def multicast(given):
    """Bytes that a block asks of the L2 cache at each step, where blocks share a tile of w."""
    for rows, columns, blocks in [(128, 256, 1), (128, 256, 2), (128, 128, 2), (64, 256, 4)]:
        wanted = 64 * 2 * (rows + columns / blocks)
        got = given(rows, columns, blocks)
        yield Claim(
            got is not ... and math.isclose(got, wanted),
            f"{rows} x {columns}, {blocks} blocks: got {got}. Which tile do they share?",
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
def ahead(given):
    """Of how many steps the producer waits to be read, before it fills a stage."""
    for stages_, steps in [(1, 3), (2, 6), (4, 9)]:
        got = [given(step, stages_) for step in range(steps)]
        wanted = [max(step - stages_ + 1, 0) for step in range(steps)]
        yield Claim(
            got == wanted,
            f"{stages_} stages: the producer waits for {got} steps to be read, wanted {wanted}",
        )


@answer
def step(given):
    """The trace of the ring: (step, parity) of the producer's first wait for the consumers."""
    yield Claim(
        tuple(given) == (2, 0),
        f"{given}: how many stages are empty at the beginning, and which phase of `empty` ends "
        "when the first one has been read?",
    )
