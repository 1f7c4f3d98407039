"""Judges of chapter 18: numbers of eight bits, their scales, their sums, and their bytes."""

import math

import torch
from torch import Tensor

import jitload
import lab
import reference
from lab.course.exercise import Claim, answer, kernel


def noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def here(values: Tensor) -> Tensor:
    """These values where the kernel runs; of one byte, tensors have no guards."""
    return values.to(jitload.device())


@kernel(lines=18)
def int8(attempt):
    """Rows of all sizes, one of them all zeros, another without a number above 0."""
    for rows, cols in [(4, 32), (3, 1000), (5, 7), (2, 1)]:
        x = noise(rows, cols) * torch.logspace(-3, 3, rows)[:, None]
        x[0] = 0
        x[1] = -x[1].abs()
        q, scales = here(torch.empty(rows, cols, dtype=torch.int8)), attempt.empty(rows)
        attempt(attempt.tensor(x), q, scales, rows, cols)
        q, scales, case = q.cpu(), scales.cpu(), f"{rows} x {cols}"
        yield Claim(
            bool(scales.isfinite().all() and (scales > 0).all()),
            f"{case}: the scales are {scales.tolist()}, row 0 being all zeros; wanted are numbers"
            " above 0",
        )
        wanted = x.abs().amax(-1) / 127
        off = ((scales - wanted).abs()[1:] / wanted[1:]).max().item()
        yield Claim(
            off < 1e-6,
            f"{case}: the scales but for row 0 are {scales[1:].tolist()}, wanted"
            f" {wanted[1:].tolist()}",
        )
        row, col = divmod(int((q - (x / scales[:, None]).round()).abs().argmax()), cols)
        right = round((x[row, col] / scales[row]).item())
        yield Claim(
            q[row, col].item() == right,
            f"{case}: q{[row, col]} is {q[row, col].item()}, wanted {right}",
        )
    report = lab.check(attempt.launch, x, q, torch.empty(rows), rows, cols, traffic=False)
    yield Claim(report.findings.empty, f"lab.check: {report.first}")


@kernel(lines=22, bug=True)
def saturate(attempt):
    """Every float of 16 bits, and what is halfway between two e4m3."""
    every = torch.arange(1 << 16, dtype=torch.int32).to(torch.uint16).view(torch.bfloat16).float()
    numbers = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    numbers = numbers[numbers.isfinite()].sort().values
    x = torch.cat([every, (numbers[1:] + numbers[:-1]) / 2])
    q = here(torch.zeros(len(x), dtype=torch.uint8))
    attempt(attempt.tensor(x), q, len(x))
    wanted = x.clamp(-448, 448).to(torch.float8_e4m3fn)
    got = q.cpu().view(torch.float8_e4m3fn).float()
    wrong = got.nan_to_num(nan=1e9) != wanted.float().nan_to_num(nan=1e9)
    wrong |= got.signbit() != wanted.float().signbit()
    wrong &= ~x.isnan() | ~got.isnan()  # a NaN has any sign
    at = int(wrong.int().argmax())
    yield Claim(
        not wrong.any(),
        f"{int(wrong.sum())} of {len(x)} numbers are wrong: {x[at].item():g} becomes"
        f" {got[at].item():g}, wanted {wanted[at].item():g}",
    )


@kernel(lines=24, bug=True)
def blocks(attempt):
    """Blocks whose scales differ by orders of magnitude, and one of fewer than 128."""
    for rows, units, depth in [(3, 5, 128), (4, 6, 256), (2, 7, 200), (3, 4, 700)]:
        x, w = noise(rows, depth), noise(units, depth)
        x *= 10.0 ** (torch.arange(depth) // 128 % 3)
        (x, x_scale), (w, w_scale) = (reference.quantize(each, "1x128") for each in (x, w))
        y = attempt.empty(rows, units)
        floats = [attempt.tensor(scale) for scale in (x_scale, w_scale)]
        bytes_ = [here(each.view(torch.uint8)) for each in (x, w)]
        attempt(*bytes_, *floats, y, rows, units, depth)
        truth = reference.dequantize(x, x_scale) @ reference.dequantize(w, w_scale).T
        error = (y.cpu().double() - truth).abs().nan_to_num(nan=math.inf)
        at = divmod(int(error.argmax()), units)
        yield Claim(
            error[at].item() < 1e-5 * truth.abs().max().item(),
            f"depth {depth}: y{list(at)} is {y[at].item():.6g}, wanted {truth[at].item():.6g}",
        )


@answer
def worst(given):
    """The largest error of rounding to so many bits of fraction, as a part of the number."""
    for fraction in (3, 2, 7, 10):
        steps = 2**fraction  # between a power of two and the next
        wanted = 1 / (2 * steps + 1)
        got = given(fraction)
        yield Claim(
            got is not ... and math.isclose(got, wanted),
            f"{fraction} bits: got {got}. Which number between 1 and its next neighbour is furthest"
            " from both, and how far?",
        )


@answer
def break_outlier(given):
    """A row of 128 numbers between 1 and 10^6, of which one is left when it is quantised."""
    yield Claim(
        isinstance(given, torch.Tensor) and given.dtype == torch.float32 and given.shape == (128,),
        "wanted is a float32 tensor of 128 numbers",
    )
    outside = ((given.abs() < 1) | (given.abs() > 1e6)).sum().item()
    yield Claim(
        outside == 0 and bool(given.isfinite().all()),
        f"{outside} numbers are smaller than 1 or larger than 10^6",
    )
    q, scale = here(torch.zeros(128, dtype=torch.uint8)), here(torch.empty(1))
    lab.ladder("18_eight_bits").quantize(here(given), q, scale, 1, 128)
    left = int((q % 128).count_nonzero())  # -0 is 0, too
    yield Claim(left == 1, f"{left} of the 128 numbers are not 0 when they are quantised")


@answer
def stall(given):
    """The sum of equal products, added up 32 at a time with so many bits behind the largest."""
    for depth, product, bits in [(256, 1, 13), (65536, 1, 13), (65536, 0.25, 13), (8192, 8, 9)]:
        total, unit = 0.0, 0.0
        for _ in range(depth // 32):
            unit = 2.0 ** (math.floor(math.log2(max(total, product))) - bits)
            total = unit * (math.floor(total / unit) + 32 * math.floor(product / unit))
        got = given(depth, product, bits)
        yield Claim(
            got is not ... and math.isclose(got, total),
            f"{depth} products of {product}, {bits} bits: got {got}, wanted {total:g}. At which sum"
            " is a product smaller than the last bit that is kept?",
        )


@answer
def bytes(given):
    """What rms_norm and quantize move for each element, in two kernels or in one."""
    for itemsize, residual in [(2, False), (2, True), (4, False), (4, True)]:
        norm = itemsize * (2 + 2 * residual)  # x and y; the other addend and the sum
        wanted = (norm + itemsize + 1, norm - itemsize + 1)
        got = given(itemsize, residual)
        yield Claim(
            got is not ... and tuple(got) == wanted,
            f"{itemsize} bytes, {'with' if residual else 'without'} a residual: got {got}, wanted"
            " (apart, fused). Which tensors are read, which written, by each kernel?",
        )


@answer
def rows(given):
    """The rows from which on a product is no longer bound by reading its weights."""
    for rate, bandwidth, size in [(1000e12, 4e12, 2), (1000e12, 4e12, 1), (60e12, 3e12, 1)]:
        wanted = rate * size / (2 * bandwidth)
        got = given(rate, bandwidth, size)
        yield Claim(
            got is not ... and math.isclose(got, wanted),
            f"{rate:.0e} operations and {bandwidth:.0e} bytes a second, weights of {size} bytes:"
            f" got {got}. How many operations does a weight serve in each row?",
        )
