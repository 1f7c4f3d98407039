"""Judges of chapter 11: rows that one block keeps."""

import torch

import lab
from jitload import LIMITS, Use
from lab.course.exercise import Attempt, Claim, answer, kernel

SHAPES = ((1, 1), (3, 31), (9, 32), (2, 33), (5, 1000))
HOPPER = "sm_90"
ILLNESSES = {"a": "banks", "b": "twice", "c": "blocks", "d": "sectors"}


def noise(rows: int, cols: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rows + cols)
    return 3 * torch.randn(rows, cols, generator=generator)


def close(got: torch.Tensor, truth: torch.Tensor, case: str) -> Claim:
    """To 5 digits of what is not below 0.001; beyond them every machine's exp is its own."""
    got, want = got.cpu().double().flatten(), truth.flatten()
    error = ((got - want).abs() / want.abs().clamp(min=1e-3)).nan_to_num(nan=torch.inf)
    at = int(error.argmax())
    return Claim(
        error[at].item() < 1e-5,
        f"{case}: element {at} is {got[at].item():.7g}, wanted {want[at].item():.7g}",
    )


def unharmed(attempt: Attempt, rows: int, cols: int, **options: bool) -> tuple[lab.Report, Claim]:
    """What the checker has seen of `launch(x, y, rows, cols)`, and that it finds nothing wrong."""
    x, y = noise(rows, cols), torch.empty(rows, cols)
    report = lab.check(attempt.launch, x, y, rows, cols, **options)
    return report, Claim(report.findings.empty, f"lab.check: {report.first}")


@kernel(lines=27)
def kept(attempt):
    """Each byte once, also where a row takes more than 48 KiB."""
    for rows, cols in (*SHAPES, (2, 16384), (1, 32768)):
        x, y = noise(rows, cols), attempt.empty(rows, cols)
        attempt(attempt.tensor(x), y, rows, cols)
        yield close(y, x.double().softmax(-1), f"{rows} x {cols}")
    report, nothing_found = unharmed(attempt, 2, 1000)
    yield nothing_found
    times = report.bytes_fetched / report.bytes_floor
    yield Claim(
        times < 1.05,
        f"2 x 1000: right, but memory has to give or take {times:.2f} times the bytes of x and y."
        " Which are moved twice?",
    )


def unharmed_softmax(attempt):
    """The checker finds nothing; and right, of course."""
    yield unharmed(attempt, 2, 1000, traffic=False)[1]
    for rows, cols in SHAPES:
        x, y = noise(rows, cols), attempt.empty(rows, cols)
        attempt(attempt.tensor(x), y, rows, cols)
        yield close(y, x.double().softmax(-1), f"{rows} x {cols}")


@kernel(lines=41, bug=True)
def reused(attempt):
    """No two accesses of one place without an order; and right, of course."""
    yield from unharmed_softmax(attempt)


@answer
def occupancy(given):
    """Threads of such blocks that a multiprocessor of an H200 runs at the same time."""
    most = LIMITS[HOPPER][0]
    for threads, registers, shared in [
        (256, 32, 0),
        (1024, 32, 128 << 10),
        (256, 40, 34 << 10),
        (512, 128, 0),
        (96, 16, 0),
        (32, 32, 0),
        (1024, 65, 0),
    ]:
        wanted = round(most * Use("", HOPPER, registers, 0, 0).occupancy(threads, shared))
        got = given(threads, registers, shared)
        yield Claim(
            got is not ... and got == wanted,
            f"blocks of {threads} threads, {registers} registers each, {shared} bytes: got {got}."
            " Four things are limited; which of them is used up first, and by how many blocks?",
        )


@answer
def suspects(given):
    """The illness of each kernel in ladders/11_suspects.cu."""
    yield Claim(
        isinstance(given, dict) and given.keys() == ILLNESSES.keys(),
        f"wanted is a dict with an illness for each of {', '.join(ILLNESSES)}",
    )
    for name, illness in given.items():
        yield Claim(illness is not ..., f"no illness yet for {name}")
        yield Claim(
            illness in ILLNESSES.values(),
            f"{name}: {illness!r} is none; there is {', '.join(sorted(ILLNESSES.values()))}",
        )
    wrong = [name for name, illness in given.items() if illness != ILLNESSES[name]]
    yield Claim(not wrong, f"{len(wrong)} of them have another illness")
