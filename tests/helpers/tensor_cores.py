"""How the tensor cores of an H100 sum, worked out in Python's integers: no line of the simulator's.

The products of a row and a column, and C, are aligned to the largest exponent among them; bits
further behind it than `kept` are cut off; what is left is summed exactly. A float32 result is cut
off to `kept_of_result` bits of fraction, a float16 result is rounded to nearest, ties to even.
"""

from __future__ import annotations

import functools
import random
from fractions import Fraction
from typing import NamedTuple

import torch


class Format(NamedTuple):
    exponent: int
    fraction: int
    width: int
    dropped: int = 0  # low bits of a word that do not count
    has_infinity: bool = True


FORMATS = {
    "f16": Format(5, 10, 16),
    "bf16": Format(8, 7, 16),
    "tf32": Format(8, 10, 32, 13),
    "e4m3": Format(4, 3, 8, 0, False),
    "e5m2": Format(5, 2, 8),
    "f32": Format(8, 23, 32),
}


class Number(NamedTuple):
    kind: str  # "finite", "infinite", "nan"
    sign: int
    magnitude: int
    exponent: int  # the value is magnitude * 2^(exponent - fraction)


@functools.lru_cache(1 << 16)
def number(word: int, name: str) -> Number:
    form = FORMATS[name]
    word >>= form.dropped
    most = (1 << form.exponent) - 1
    fraction = word & (1 << form.fraction) - 1
    exponent = word >> form.fraction & most
    sign = -1 if word >> form.exponent + form.fraction & 1 else 1
    if exponent == most and form.has_infinity:
        return Number("nan" if fraction else "infinite", sign, 0, 0)
    if exponent == most and fraction == (1 << form.fraction) - 1:
        return Number("nan", sign, 0, 0)
    magnitude = fraction | (1 << form.fraction if exponent else 0)
    return Number("finite", sign, magnitude, max(exponent, 1) - (most >> 1))


def cut_off(magnitude: int, shift: int) -> int:
    return magnitude << shift if shift >= 0 else magnitude >> -shift


def to_float32(total: int, unit: int, fraction: int) -> int:
    """total * 2^unit, cut off."""
    sign = 0x80000000 if total < 0 else 0
    size = abs(total)
    if size == 0:
        return 0
    exponent = size.bit_length() - 1 + unit
    last = max(exponent - fraction, -149)
    size = cut_off(size, unit - last) << (last - max(last, -149))
    if exponent > 127:
        return sign | 0x7F800000
    if exponent < -126:
        return sign | size
    return sign | (exponent + 127) << 23 | (size << 23 - fraction) & 0x7FFFFF


def to_float16(value: Fraction) -> int:
    size = abs(value)
    if size == 0:
        return 0
    sign = 0x8000 if value < 0 else 0
    exponent = -14
    while size >= Fraction(2) ** (exponent + 1):
        exponent += 1
    units = round(size / Fraction(2) ** (exponent - 10))  # to nearest, ties to even
    if units == 0:
        return 0
    if exponent == -14:
        return sign | units
    return sign | min((exponent + 14 << 10) + units, 0x7C00)


def summed(
    a: list[int],
    b: list[int],
    c: int,
    types: tuple[str, str, str],
    kept: int = 25,
    result: int = 23,
) -> int:
    """The word of a b + c: rows and columns are words of their types, c and the result of one."""
    of_a, of_b, of_d = types
    factors = [(number(x, of_a), number(y, of_b)) for x, y in zip(a, b, strict=True)]
    addend = number(c, of_d)
    nan, infinities = addend.kind == "nan", set()
    if addend.kind == "infinite":
        infinities.add(addend.sign)
    for x, y in factors:
        if "nan" in (x.kind, y.kind):
            nan = True
        elif "infinite" in (x.kind, y.kind):
            zero = any(each.kind == "finite" and each.magnitude == 0 for each in (x, y))
            nan |= zero
            infinities.add(x.sign * y.sign)
    is_half = of_d == "f16"
    if nan or len(infinities) == 2:
        return 0x7FFF if is_half else 0x7FFFFFFF
    if infinities:
        sign = 0 if infinities == {1} else 1 << (15 if is_half else 31)
        return sign | (0x7C00 if is_half else 0x7F800000)
    fraction = FORMATS[of_a].fraction + FORMATS[of_b].fraction
    terms = [
        (x.sign * y.sign, x.magnitude * y.magnitude, x.exponent + y.exponent, fraction)
        for x, y in factors
    ]
    terms.append((addend.sign, addend.magnitude, addend.exponent, FORMATS[of_d].fraction))
    terms = [term for term in terms if term[1]]
    if not terms:
        return 0
    unit = max(exponent for _, _, exponent, _ in terms) - kept
    total = sum(
        sign * cut_off(size, exponent - behind - unit) for sign, size, exponent, behind in terms
    )
    if is_half:
        return to_float16(Fraction(total) * Fraction(2) ** unit)
    return to_float32(total, unit, result)


KINDS = ("near", "wide", "any", "special")


def random_word(rng: random.Random, name: str, kind: str) -> int:
    """Near one, of widely spread sizes, any finite bits, or now and then a special."""
    form = FORMATS[name]
    most = (1 << form.exponent) - 1
    bias = most >> 1
    low, high = {"near": (-3, 1), "wide": (-14, 14), "any": (-bias, bias)}.get(kind, (-3, 3))
    exponent = min(max(bias + rng.randint(low, high), 0), most - 1)
    if kind == "special" and rng.random() < 0.05:
        exponent = rng.choice((0, most))
    fraction = rng.choice((0, (1 << form.fraction) - 1, rng.getrandbits(form.fraction)))
    word = (
        rng.getrandbits(1) << form.exponent + form.fraction | exponent << form.fraction | fraction
    )
    return word << form.dropped | rng.getrandbits(form.dropped or 1) * (form.dropped > 0)


def random_words(shape: tuple[int, ...], name: str, generator: torch.Generator) -> torch.Tensor:
    """Words of 32 bits, full of numbers of a format, for tiles along the first dimension.

    A quarter of the tiles each: near one, widely spread, any bits, one large among small.
    """
    form = FORMATS[name]
    per = 32 // form.width
    tiles, *rest = *shape, per
    most = (1 << form.exponent) - 1
    bias = most >> 1
    exponents = []
    for low, high in ((-3, 2), (-14, 15), (-bias, bias + 1), (-9, 1)):
        quarter = (tiles // 4, *rest)
        exponents.append(torch.randint(low, high, quarter, generator=generator) + bias)
    large = torch.rand(exponents[3].shape, generator=generator) < 0.1
    exponents[3] = torch.where(large, torch.tensor(min(bias + 9, most - 1)), exponents[3])
    exponent = torch.cat(exponents).clamp(0, most - 1)
    fraction = torch.randint(0, 1 << form.fraction, (tiles, *rest), generator=generator)
    sign = torch.randint(0, 2, (tiles, *rest), generator=generator)
    word = sign << form.exponent + form.fraction | exponent << form.fraction | fraction
    word = word << form.dropped
    total = sum(word[..., i] << i * form.width for i in range(per))
    return torch.where(total >= 1 << 31, total - (1 << 32), total).to(torch.int32)
