"""Instructions of PTX that work on one thread's registers, in all their types and modifiers.

Each case is the text of an `asm` statement, the types of its result and its operands, and a
function of words that gives the word expected: worked out in Python's integers and fractions, by
the definitions in the manual. All cases are one kernel, and all threads run one case each.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import pytest
import torch

import jitload
from simulator.rewrite import Unsupported, rewrite

pytestmark = pytest.mark.slow
TARGETS = ["cpu", "cuda"] if jitload.default_target() == "cuda" else ["cpu"]

# ---- Numbers


class Format(NamedTuple):
    exponent: int
    fraction: int
    nan: int

    @property
    def width(self) -> int:
        return 1 + self.exponent + self.fraction

    @property
    def infinity(self) -> int:
        return (1 << self.exponent) - 1 << self.fraction

    @property
    def least(self) -> int:
        return 2 - (1 << self.exponent - 1)


FORMATS = {
    "f16": Format(5, 10, 0x7FFF),
    "bf16": Format(8, 7, 0x7FFF),
    "f32": Format(8, 23, 0x7FFFFFFF),
    "f64": Format(11, 52, 0x7FF8000000000000),
}


def bits_of(kind: str) -> int:
    if kind.endswith("x2"):
        return 16 if kind[0] == "e" else 2 * bits_of(kind[:-2])
    return FORMATS[kind].width if kind in FORMATS else int(kind[1:])


def signed(word: int, bits: int) -> int:
    return (word & (1 << bits) - 1) - ((word & 1 << bits - 1) << 1)


def number(word: int, kind: str) -> float:
    """Python's doubles hold every number of these formats."""
    form = FORMATS[kind]
    size = word & (1 << form.width - 1) - 1
    sign = -1.0 if word >> form.width - 1 & 1 else 1.0
    if size > form.infinity:
        return math.nan
    if size == form.infinity:
        return sign * math.inf
    exponent, fraction = size >> form.fraction, size & (1 << form.fraction) - 1
    digits = fraction | (1 << form.fraction if exponent else 0)
    return sign * math.ldexp(digits, form.least + max(exponent, 1) - 1 - form.fraction)


def encoded(value: Fraction | float, kind: str, mode: str = "rn", is_negative: bool = False) -> int:
    """The word of a number, rounded once; is_negative: whether a 0 is -0."""
    form = FORMATS[kind]
    top = 1 << form.width - 1
    if isinstance(value, float):
        if math.isnan(value):
            return form.nan
        if math.isinf(value):
            return form.infinity | (top if value < 0 else 0)
        is_negative = math.copysign(1, value) < 0
        value = Fraction(value)
    if value:
        is_negative = value < 0
    sign = top if is_negative else 0
    if not value:
        return sign
    size = abs(value)
    at = size.numerator.bit_length() - size.denominator.bit_length()
    at = at if Fraction(2) ** at <= size else at - 1
    at = max(at, form.least)
    digits = size / Fraction(2) ** (at - form.fraction)
    whole = digits.numerator // digits.denominator
    rest = digits - whole
    away = {"rn": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole & 1 == 1)}
    away |= {"rz": False, "rm": rest > 0 and is_negative, "rp": rest > 0 and not is_negative}
    word = whole + away[mode] + (at - form.least << form.fraction)
    if word >= form.infinity:
        inward = (
            mode == "rz" or (mode == "rm" and not is_negative) or (mode == "rp" and is_negative)
        )
        word = form.infinity - 1 if inward else form.infinity
    return sign | word


def flushed(word: int, kind: str) -> int:
    form = FORMATS[kind]
    return word if word & form.infinity else word & 1 << form.width - 1


def negative(x: float) -> bool:
    return math.copysign(1, x) < 0


def added(x: float, y: float, kind: str, mode: str = "rn") -> int:
    if not (math.isfinite(x) and math.isfinite(y)):
        return encoded(x + y, kind)
    both = negative(x) and negative(y)
    zero = both or (mode == "rm" and (negative(x) or negative(y) or bool(x)))
    return encoded(Fraction(x) + Fraction(y), kind, mode, zero)


def multiplied(x: float, y: float, kind: str, mode: str = "rn") -> int:
    if not (math.isfinite(x) and math.isfinite(y)):
        return encoded(x * y, kind)
    return encoded(Fraction(x) * Fraction(y), kind, mode, negative(x) != negative(y))


def fused(x: float, y: float, z: float, kind: str, mode: str = "rn") -> int:
    if not (math.isfinite(x) and math.isfinite(y)):
        return encoded(x * y + z, kind)
    if not math.isfinite(z):
        return encoded(z, kind)
    product, minus = Fraction(x) * Fraction(y), negative(x) != negative(y)
    same = minus and negative(z)
    zero = same or (mode == "rm" and (minus or negative(z) or product != 0))
    return encoded(product + Fraction(z), kind, mode, zero)


def divided(x: float, y: float, kind: str, mode: str = "rn") -> int:
    minus = negative(x) != negative(y)
    if math.isnan(x) or math.isnan(y) or (x == 0 and y == 0) or (math.isinf(x) and math.isinf(y)):
        return FORMATS[kind].nan
    if math.isinf(x) or y == 0:
        return encoded(-math.inf if minus else math.inf, kind)
    if math.isinf(y):
        return encoded(Fraction(0), kind, mode, minus)
    return encoded(Fraction(x) / Fraction(y), kind, mode, minus)


def rooted(x: float, kind: str, mode: str = "rn") -> int:
    if math.isnan(x) or x < 0:
        return FORMATS[kind].nan
    if math.isinf(x) or x == 0:
        return encoded(x, kind)
    scaled = Fraction(x) * 4**1200
    root = math.isqrt(int(scaled))
    exact = root * root == scaled
    return encoded(Fraction(2 * root + (not exact), 2 * 2**1200), kind, mode)


def saturated(word: int, kind: str) -> int:
    x = number(word, kind)
    return 0 if math.isnan(x) or x <= 0 else word if x < 1 else encoded(1.0, kind)


def relu(word: int, kind: str) -> int:
    x = number(word, kind)
    return word if math.isnan(x) or x > 0 else 0


def extreme(a: int, b: int, kind: str, op: str, nan: bool = False, xorsign: bool = False) -> int:
    top = 1 << FORMATS[kind].width - 1
    sign = (a ^ b) & top if xorsign else 0
    a, b = (a & ~top, b & ~top) if xorsign else (a, b)
    x, y = number(a, kind), number(b, kind)
    if math.isnan(x) or math.isnan(y):
        if nan or (math.isnan(x) and math.isnan(y)):
            return FORMATS[kind].nan
        return (b if math.isnan(x) else a) | sign
    first = (x, not a & top) <= (y, not b & top)
    return (a if first == (op == "min") else b) | sign


# ---- Operands

RANDOM = random.Random(7)


def _pool(kind: str) -> list[int]:
    if kind == "shift":
        return [0, 1, 5, 8, 15, 16, 31, 32, 33, 40, 63, 64, 65, 255, 256, 0xFFFFFFFF]
    if kind == "byte":  # what bfe and bfi take
        return [each for each in _pool("shift") if each < 256]
    bits = bits_of(kind)
    if kind.endswith("x2"):
        if kind[0] == "e":
            return [RANDOM.getrandbits(16) for _ in range(60)] + [0x7F80, 0xFF00, 0x7C7E, 0xFCFE]
        half = bits // 2
        one = _pool(kind[:-2])
        return [one[RANDOM.randrange(len(one))] << half | each for each in one]
    top = 1 << bits - 1
    if kind not in FORMATS:
        special = [0, 1, 2, 3, top - 1, top, top + 1, 2 * top - 1, 2 * top - 2, 7, 0x7F, 0x80, 0xFF]
        return special + [RANDOM.getrandbits(RANDOM.randrange(1, bits + 1)) for _ in range(12)]
    form = FORMATS[kind]
    one = encoded(1.0, kind)
    special = [0, 1, (1 << form.fraction) - 1, 1 << form.fraction, one, one + 1, one - 1]
    special += [form.infinity, form.infinity - 1, form.infinity + 1, encoded(0.5, kind)]
    special += [encoded(x, kind) for x in (1.5, 2.5, 3.7, 100.25, 127.6, 300.0, 70000.0, 3e9, 1e19)]
    found = special + [each | top for each in special]
    for _ in range(14):
        x = encoded(RANDOM.uniform(-4, 4) * 2.0 ** RANDOM.randrange(-12, 12), kind)
        found += [x, x ^ top]
    return found


POOLS: dict[str, list[int]] = {}


def pool(kind: str) -> list[int]:
    if kind not in POOLS:
        POOLS[kind] = _pool(kind)
    return POOLS[kind]


@dataclass(frozen=True)
class Case:
    """tolerance: relative and absolute, of a result that is a number of `to`; 0: exact.

    rows: operands in place of those from the pools.
    """

    asm: str
    to: str
    of: tuple[str, ...]
    expected: Callable[..., int | float]
    tolerance: float = 0
    runs_on_hopper: bool = True

    @property
    def rows(self) -> list[tuple[int, ...]]:
        pools = [pool(kind) for kind in self.of]
        if len(pools) <= 1:
            return [(x,) for x in pools[0]] if pools else [()]
        everything = list(itertools.islice(itertools.product(*pools), 200_000))
        return everything if len(everything) <= 120 else RANDOM.sample(everything, 120)


CASES: list[Case] = []


def case(asm: str, types: str, expected: Callable[..., int | float], **more) -> None:
    """An asm text without braces is an instruction without its operands."""
    to, *of = types.split()
    if "%" not in asm:
        asm += " " + ", ".join(f"%{i}" for i in range(len(of) + 1)) + ";"
    CASES.append(Case(asm, to, tuple(of), expected, **more))


def pairwise(function: Callable[..., int], half: int = 16) -> Callable[..., int]:
    mask = (1 << half) - 1

    def both(*words: int) -> int | None:
        low = function(*(word & mask for word in words))
        high = function(*(word >> half for word in words))
        return None if low is None or high is None else low | high << half

    return both


# ---- Integers


def clamped(value: int, bits: int, is_signed: bool) -> int:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    return min(max(value, low), high)


def integer(word: int, kind: str) -> int:
    bits = bits_of(kind)
    return signed(word, bits) if kind[0] == "s" else word & (1 << bits) - 1


def truncated_quotient(x: int, y: int) -> int:
    return abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1) if y else -1


def truncated_remainder(x: int, y: int) -> int:
    return x - y * truncated_quotient(x, y) if y else x


def on_integers(kind: str, function: Callable[..., int]) -> Callable[..., int]:
    return lambda *words: function(*(integer(word, kind) for word in words))


for kind in ("u16", "s16", "u32", "s32", "u64", "s64"):
    bits = bits_of(kind)
    two, three = f"{kind} {kind} {kind}", f"{kind} {kind} {kind} {kind}"
    binary = {
        "add": lambda x, y: x + y,
        "sub": lambda x, y: x - y,
        "mul.lo": lambda x, y: x * y,
        "mul.hi": lambda x, y, bits=bits: x * y >> bits,
        "div": truncated_quotient,
        "min": min,
        "max": max,
    }
    for op, function in binary.items():
        case(f"{op}.{kind}", two, on_integers(kind, function))
    case(
        f"{{ .reg .pred p; .reg .{kind} one; setp.eq.{kind} p, %2, 0; mov.{kind} one, 1; "
        f"selp.{kind} one, one, %2, p; rem.{kind} %0, %1, one; }}",
        two,
        on_integers(kind, lambda x, y: truncated_remainder(x, y or 1)),
    )
    case(f"mad.lo.{kind}", three, on_integers(kind, lambda x, y, z: x * y + z))
    case(f"mad.hi.{kind}", three, on_integers(kind, lambda x, y, z, bits=bits: (x * y >> bits) + z))
    case(f"sad.{kind}", three, on_integers(kind, lambda x, y, z: abs(x - y) + z))
    if bits < 64:
        wide = f"{kind[0]}{2 * bits}"
        case(f"mul.wide.{kind}", f"{wide} {kind} {kind}", on_integers(kind, lambda x, y: x * y))
        case(
            f"mad.wide.{kind}",
            f"{wide} {kind} {kind} {wide}",
            lambda a, b, c, kind=kind: integer(a, kind) * integer(b, kind) + c,
        )
    if kind[0] == "s":
        case(f"abs.{kind}", f"{kind} {kind}", on_integers(kind, abs))
        case(f"neg.{kind}", f"{kind} {kind}", on_integers(kind, lambda x: -x))

# CUTLASS writes to an input, which ptxas allows: it is a register of the statement.
case(
    "{ add.s32 %1, %1, %2; mov.b32 %0, %1; }", "s32 s32 s32", on_integers("s32", lambda x, y: x + y)
)
case("add.sat.s32", "s32 s32 s32", on_integers("s32", lambda x, y: clamped(x + y, 32, True)))
case("sub.sat.s32", "s32 s32 s32", on_integers("s32", lambda x, y: clamped(x - y, 32, True)))
case(
    "mad.hi.sat.s32",
    "s32 s32 s32 s32",
    on_integers("s32", lambda x, y, z: clamped((x * y >> 32) + z, 32, True)),
)
for kind in ("u32", "s32"):

    def of_24(word: int, kind: str = kind) -> int:
        return signed(word, 24) if kind[0] == "s" else word & 0xFFFFFF

    for part, by in (("lo", 0), ("hi", 16)):
        case(
            f"mul24.{part}.{kind}",
            f"{kind} {kind} {kind}",
            lambda a, b, by=by, of_24=of_24: of_24(a) * of_24(b) >> by,
        )
        case(
            f"mad24.{part}.{kind}",
            f"{kind} {kind} {kind} {kind}",
            lambda a, b, c, by=by, of_24=of_24: (of_24(a) * of_24(b) >> by) + c,
        )
case(
    "mad24.hi.sat.s32",
    "s32 s32 s32 s32",
    lambda a, b, c: clamped(
        signed(signed(a, 24) * signed(b, 24) >> 16, 32) + signed(c, 32), 32, True
    ),
)
for kind in ("u16", "s16"):
    for op, function in (("add", lambda x, y: x + y), ("min", min), ("max", max)):
        each = on_integers(kind, function)
        case(
            f"{op}.{kind}x2",
            f"{kind}x2 {kind}x2 {kind}x2",
            pairwise(lambda a, b, each=each: each(a, b) & 0xFFFF),
        )
for op, function in (("min", min), ("max", max)):
    each = on_integers("s32", lambda x, y, function=function: max(function(x, y), 0))
    case(f"{op}.relu.s32", "s32 s32 s32", each)
    each = on_integers("s16", lambda x, y, function=function: max(function(x, y), 0))
    case(f"{op}.relu.s16x2", "s16x2 s16x2 s16x2", pairwise(each))


def dot(a: int, b: int, c: int, x: str, y: str, count: int, first: int) -> int:
    wide = 32 // (4 if count == 4 else 2)
    parts = [integer(a >> wide * i, f"{x}{wide}") for i in range(count)]
    return c + sum(p * integer(b >> 8 * (first + i), f"{y}8") for i, p in enumerate(parts))


for x, y in itertools.product("us", "us"):
    for name, count, first in (("dp4a", 4, 0), ("dp2a.lo", 2, 0), ("dp2a.hi", 2, 2)):
        case(
            f"{name}.{x}32.{y}32",
            "u32 u32 u32 u32",
            lambda a, b, c, how=(x, y, count, first): dot(a, b, c, *how),
        )

# 128 bits from two registers each, whose lower or upper half is the result.
for part in (0, 1):
    low, high = ("%0", "t") if part == 0 else ("t", "%0")
    for op, sign in (("add", 1), ("sub", -1)):
        case(
            f"{{ .reg .u64 t; {op}.cc.u64 {low}, %1, %3; {op}c.u64 {high}, %2, %4; }}",
            "u64 u64 u64 u64 u64",
            lambda a, b, c, d, s=sign, p=part: (a | b << 64) + s * (c | d << 64) >> 64 * p,
        )
case(
    "{ .reg .u32 t; add.cc.u32 t, %1, %2; addc.cc.u32 t, %2, %3; addc.u32 %0, 0, 0; }",
    "u32 u32 u32 u32",
    lambda a, b, c: (b + c + (a + b >> 32)) >> 32,
)
case(
    "{ .reg .u32 t, carry; sub.cc.u32 t, %1, %2; subc.cc.u32 carry, %2, %3; subc.u32 %0, 0, 0; }",
    "u32 u32 u32 u32",
    lambda a, b, c: -1 if b - c - (a < b) < 0 else 0,
)
case(
    "{ .reg .u32 l, h; mad.lo.cc.u32 l, %1, %2, %3; madc.hi.u32 h, %1, %2, 5; "
    "mov.b64 %0, {l, h}; }",
    "u64 u32 u32 u32",
    lambda a, b, c: a * b + c + (5 << 32),
)
case(
    "{ .reg .s32 l, h; mad.lo.cc.s32 l, %1, %2, %3; madc.hi.cc.s32 h, %1, %2, 0; "
    "madc.lo.s32 l, 1, 1, 0; mov.b64 %0, {l, h}; }",
    "u64 s32 s32 u32",
    lambda a, b, c: (
        (((signed(a, 32) * signed(b, 32) & 2**64 - 1) + c) >> 32 & 0xFFFFFFFF) << 32
        | (1 + ((signed(a, 32) * signed(b, 32) & 2**64 - 1) + c >> 64))
    ),
)

# ---- Bits

for bits in (16, 32, 64):
    kind, mask = f"b{bits}", (1 << bits) - 1
    case(f"and.{kind}", f"{kind} {kind} {kind}", lambda a, b: a & b)
    case(f"or.{kind}", f"{kind} {kind} {kind}", lambda a, b: a | b)
    case(f"xor.{kind}", f"{kind} {kind} {kind}", lambda a, b: a ^ b)
    case(f"not.{kind}", f"{kind} {kind}", lambda a: ~a)
    case(f"cnot.{kind}", f"{kind} {kind}", lambda a: int(a == 0))
    case(f"shl.{kind}", f"{kind} {kind} shift", lambda a, b, n=bits: a << min(b, n))
    for shown in "bus":
        case(
            f"shr.{shown}{bits}",
            f"{kind} {kind} shift",
            lambda a, b, k=f"{shown}{bits}", n=bits: integer(a, k) >> min(b, n),
        )
for bits in (32, 64):
    kind = f"b{bits}"
    case(f"popc.{kind}", f"u32 {kind}", lambda a: bin(a).count("1"))
    case(f"clz.{kind}", f"u32 {kind}", lambda a, n=bits: n - a.bit_length())
    case(f"brev.{kind}", f"{kind} {kind}", lambda a, n=bits: int(f"{a:0{n}b}"[::-1], 2))
    case(
        f"bfi.{kind}",
        f"{kind} {kind} {kind} byte byte",
        lambda a, b, c, d, n=bits: b & ~(((1 << d) - 1) << c) | (a & (1 << d) - 1) << c,
    )
    for shown in "us":
        kind = f"{shown}{bits}"

        def found(a: int, kind: str = kind) -> int:
            x = integer(a, kind)
            return (x if x >= 0 else ~x).bit_length() - 1

        case(f"bfind.{kind}", f"u32 {kind}", found)
        case(
            f"bfind.shiftamt.{kind}",
            f"u32 {kind}",
            lambda a, n=bits, found=found: n - 1 - found(a) if found(a) >= 0 else -1,
        )

        def extracted(a: int, b: int, c: int, kind: str = kind, n: int = bits) -> int:
            sign = a >> min(b + c - 1, n - 1) & 1 if kind[0] == "s" and c else 0
            inside = [i < c and b + i < n for i in range(n)]
            return sum((a >> b + i & 1 if inside[i] else sign) << i for i in range(n))

        case(f"bfe.{kind}", f"{kind} {kind} byte byte", extracted)


def fns(mask: int, base: int, offset: int) -> int:
    offset = signed(offset, 32)
    if offset == 0:
        return base if mask >> base & 1 else -1
    places = range(base, 32) if offset > 0 else range(base, -1, -1)
    found = [place for place in places if mask >> place & 1]
    return found[abs(offset) - 1] if len(found) >= abs(offset) else -1


case(
    "{ .reg .b32 base, n; and.b32 base, %2, 31; and.b32 n, %3, 7; sub.s32 n, n, 4; "
    "fns.b32 %0, %1, base, n; }",
    "u32 b32 u32 u32",
    lambda a, b, c: fns(a, b & 31, (c & 7) - 4),
)
case(
    "bmsk.clamp.b32",
    "b32 shift shift",
    lambda a, b: 0 if a >= 32 else ((1 << min(b, 32)) - 1) << a,
)
case("bmsk.wrap.b32", "b32 shift shift", lambda a, b: ((1 << (b & 31)) - 1) << (a & 31))


def extended(a: int, length: int, kind: str) -> int:
    if length >= 32:
        return a
    return signed(a, length) if kind == "s32" and length else a & (1 << length) - 1


for kind in ("u32", "s32"):
    case(f"szext.clamp.{kind}", f"{kind} b32 shift", lambda a, b, k=kind: extended(a, b, k))
    case(f"szext.wrap.{kind}", f"{kind} b32 shift", lambda a, b, k=kind: extended(a, b & 31, k))
case("shf.l.clamp.b32", "b32 b32 b32 shift", lambda a, b, c: (b << 32 | a) << min(c, 32) >> 32)
case("shf.l.wrap.b32", "b32 b32 b32 shift", lambda a, b, c: (b << 32 | a) << (c & 31) >> 32)
case("shf.r.clamp.b32", "b32 b32 b32 shift", lambda a, b, c: (b << 32 | a) >> min(c, 32))
case("shf.r.wrap.b32", "b32 b32 b32 shift", lambda a, b, c: (b << 32 | a) >> (c & 31))
for table in (0x00, 0x96, 0xE8, 0xEA, 0x40, 0xFF, 0x1B):

    def looked_up(a: int, b: int, c: int, table: int = table) -> int:
        at = [(a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1 for i in range(32)]
        return sum((table >> k & 1) << i for i, k in enumerate(at))

    case(f"lop3.b32 %0, %1, %2, %3, {table:#x};", "b32 b32 b32 b32", looked_up)
case(
    "{ .reg .pred p, q; .reg .b32 d; setp.ne.b32 q, %3, 0; "
    "lop3.or.b32 d|p, %1, %2, 0, 0xC0, q; selp.b32 %0, d, 12345, p; }",
    "b32 b32 b32 u32",
    lambda a, b, c: a & b if a & b or c else 12345,
)
case(
    "{ .reg .pred p; setp.eq.u32 p, %3, 3; lop3.and.b32 _|p, %1, %2, %3, 0xFE, p; "
    "selp.u32 %0, 1, 0, p; }",
    "b32 b32 b32 u32",
    lambda a, b, c: int(c == 3),
)


def permuted(places: Callable[[int, int], int]) -> Callable[..., int]:
    def run(a: int, b: int, c: int) -> int:
        whole = b << 32 | a
        return sum((whole >> 8 * (places(c & 3, i) & 7) & 255) << 8 * i for i in range(4))

    return run


def byte_permuted(a: int, b: int, c: int) -> int:
    result = 0
    for i in range(4):
        choice = c >> 4 * i & 15
        byte = (b << 32 | a) >> 8 * (choice & 7) & 255
        result |= (255 * (byte >> 7) if choice & 8 else byte) << 8 * i
    return result


case("prmt.b32", "b32 b32 b32 b32", byte_permuted)
for mode, places in {
    "f4e": lambda c, i: c + i,
    "b4e": lambda c, i: c - i,
    "rc8": lambda c, i: c,
    "ecl": lambda c, i: max(c, i),
    "ecr": lambda c, i: min(c, i),
    "rc16": lambda c, i: 2 * (c & 1) + (i & 1),
}.items():
    case(f"prmt.b32.{mode}", "b32 b32 b32 u32", permuted(places))

# ---- Moves

for kind in ("b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"):
    case(f"mov.{kind}", f"{kind} {kind}", lambda a: a)
case("mov.b64 %0, {%1, %2};", "b64 b32 b32", lambda a, b: a | b << 32)
case("mov.b32 %0, {%1, %2};", "b32 b16 b16", lambda a, b: a | b << 16)
case("mov.b64 %0, {%1, %2, %1, %2};", "b64 b16 b16", lambda a, b: (a | b << 16) * (1 + 2**32))
case("{ .reg .b32 l, h; mov.b64 {l, h}, %1; mov.b64 %0, {h, l}; }", "b64 b64",
     lambda a: a >> 32 | a << 32)  # fmt: skip
case("{ .reg .b16 h; mov.b32 {_, h}, %1; cvt.u32.u16 %0, h; }", "b32 b32", lambda a: a >> 16)
case(
    "{ .reg .b16 w<4>; mov.b64 {w0, w1, w2, w3}, %1; mov.b64 %0, {w3, w2, w1, w0}; }",
    "b64 b64",
    lambda a: sum((a >> 16 * i & 0xFFFF) << 16 * (3 - i) for i in range(4)),
)
case(
    "{ .reg .b128 t, u; mov.b128 t, {%1, %2}; mov.b128 u, t; mov.b128 {_, %0}, u; }",
    "b64 b64 b64",
    lambda a, b: b,
)
case(
    "{ .reg .pred p, q; setp.lt.s32 p, %1, %2; mov.pred q, p; not.pred q, q; xor.pred p, p, q; "
    "and.pred p, p, q; selp.s32 %0, %1, %2, p; }",
    "s32 s32 s32",
    lambda a, b: b if signed(a, 32) < signed(b, 32) else a,
)
case("mov.f32 %0, 0f3FC00000;", "f32", lambda: 0x3FC00000)
case("mov.f64 %0, 0d3FF8000000000000;", "f64", lambda: 0x3FF8000000000000)
case("mov.b32 %0, -1;", "b32", lambda: 0xFFFFFFFF)
case("mad.lo.s32 %0, %1, -3, 0x10;", "s32 s32", lambda a: -3 * a + 16)
case("xor.b64 %0, %1, -2;", "b64 b64", lambda a: a ^ -2)
case("or.b32 %0, %1, 0b101;", "b32 b32", lambda a: a | 5)

# ---- Floating point

MODES = ("rn", "rz", "rm", "rp")


def on_numbers(kind: str, function: Callable[..., int], *modifiers: str) -> Callable:
    """function: of numbers, to a word."""

    def run(*words: int) -> int | None:
        if "ftz" in modifiers:
            words = [flushed(word, kind) for word in words]
        result = function(*(number(word, kind) for word in words))
        form = FORMATS[kind]
        if "ftz" in modifiers and result & (1 << form.width - 1) - 1 == 1 << form.fraction:
            return None  # it may have been rounded up to the least normal number, or flushed
        result = flushed(result, kind) if "ftz" in modifiers else result
        result = saturated(result, kind) if "sat" in modifiers else result
        return relu(result, kind) if "relu" in modifiers else result

    return run


def arithmetic(kind: str, mode: str) -> dict[str, tuple[int, Callable[..., int]]]:
    return {
        "add": (2, lambda x, y: added(x, y, kind, mode)),
        "sub": (2, lambda x, y: added(x, -y, kind, mode)),
        "mul": (2, lambda x, y: multiplied(x, y, kind, mode)),
        "fma": (3, lambda x, y, z: fused(x, y, z, kind, mode)),
        "div": (2, lambda x, y: divided(x, y, kind, mode)),
        "rcp": (1, lambda x: divided(1.0, x, kind, mode)),
        "sqrt": (1, lambda x: rooted(x, kind, mode)),
    }


for kind, mode in itertools.product(("f32", "f64"), MODES):
    for op, (count, function) in arithmetic(kind, mode).items():
        types = " ".join([kind] * (count + 1))
        case(f"{op}.{mode}.{kind}", types, on_numbers(kind, function))
        if kind == "f32":
            case(f"{op}.{mode}.ftz.f32", types, on_numbers("f32", function, "ftz"))
            if op in ("add", "sub", "mul", "fma"):
                more = ("ftz", "sat")
                case(f"{op}.{mode}.ftz.sat.f32", types, on_numbers("f32", function, *more))
                case(
                    f"{op}.{mode}.ftz.f32x2",
                    " ".join(["f32x2"] * (count + 1)),
                    pairwise(on_numbers("f32", function, "ftz"), 32),
                    runs_on_hopper=False,
                )
for op, (count, function) in arithmetic("f32", "rn").items():
    if op in ("add", "sub", "mul", "fma"):
        types, name = " ".join(["f32"] * (count + 1)), "mad.rn" if op == "fma" else op
        case(f"{name}.f32", types, on_numbers("f32", function))
        case(f"{name}.sat.f32", types, on_numbers("f32", function, "sat"))
        # A register of two numbers each.
        name = "fma.rn" if op == "fma" else op
        case(
            f"{name}.f32x2",
            " ".join(["f32x2"] * (count + 1)),
            pairwise(on_numbers("f32", function), 32),
            runs_on_hopper=False,
        )
for op, (_, function) in arithmetic("f64", "rn").items():
    if op in ("add", "sub", "mul"):
        case(f"{op}.f64", "f64 f64 f64", on_numbers("f64", function))
for kind in ("f16", "bf16"):
    for op, (count, function) in arithmetic(kind, "rn").items():
        if op not in ("add", "sub", "mul", "fma"):
            continue
        forms = [(".rn", ())] + ([] if op == "fma" else [("", ())])
        if kind == "f16":
            forms += [(".rn.ftz", ("ftz",)), (".rn.sat", ("sat",)), (".rn.ftz.sat", ("ftz", "sat"))]
        if op == "fma":
            forms += [(".rn.relu", ("relu",))]
        for form, modifiers in forms:
            each = on_numbers(kind, function, *modifiers)
            case(f"{op}{form}.{kind}", " ".join([kind] * (count + 1)), each)
            case(f"{op}{form}.{kind}x2", " ".join([f"{kind}x2"] * (count + 1)), pairwise(each))

for kind in ("f16", "f32", "bf16", "f64"):
    top = 1 << bits_of(kind) - 1
    flushes = [False, True] if kind in ("f16", "f32") else [False]
    for ftz in flushes:
        form = ".ftz" if ftz else ""

        def kept(word: int, kind: str = kind, ftz: bool = ftz) -> int:
            return flushed(word, kind) if ftz else word

        # What becomes of a NaN is left open.
        def sized(word: int, kind: str = kind, top: int = top, to=kept) -> int | None:
            return None if math.isnan(number(word, kind)) else to(word) & ~top

        def turned(word: int, kind: str = kind, top: int = top, to=kept) -> int | None:
            return None if math.isnan(number(word, kind)) else to(word) ^ top

        case(f"abs{form}.{kind}", f"{kind} {kind}", sized)
        case(f"neg{form}.{kind}", f"{kind} {kind}", turned)
        if kind in ("f16", "bf16"):
            case(f"abs{form}.{kind}x2", f"{kind}x2 {kind}x2", pairwise(sized))
            case(f"neg{form}.{kind}x2", f"{kind}x2 {kind}x2", pairwise(turned))
        for op in ("min", "max"):
            for nan, xorsign in itertools.product((False, True), repeat=2):
                if kind == "f64" and (nan or xorsign):
                    continue
                name = f"{op}{form}{'.NaN' if nan else ''}{'.xorsign.abs' if xorsign else ''}"

                def pick(a, b, how=(kind, op, nan, xorsign), to=kept):
                    return extreme(to(a), to(b), *how)

                case(f"{name}.{kind}", f"{kind} {kind} {kind}", pick)
                if kind in ("f16", "bf16"):
                    case(f"{name}.{kind}x2", f"{kind}x2 {kind}x2 {kind}x2", pairwise(pick))

# Of three, and f32 of halves: compute capability 10.0.
for op, ftz, nan, abs_ in itertools.product(("min", "max"), (False, True), (False, True), (0, 1)):

    def of_three(*words, op=op, ftz=ftz, nan=nan, abs_=abs_):
        words = [flushed(word, "f32") if ftz else word for word in words]
        words = [word & 0x7FFFFFFF for word in words] if abs_ else words
        return functools.reduce(lambda a, b: extreme(a, b, "f32", op, nan), words)

    name = f"{op}{'.ftz' * ftz}{'.NaN' * nan}{'.abs' * abs_}.f32"
    case(f"{name} %0, %1, %2, %3;", "f32 f32 f32 f32", of_three, runs_on_hopper=False)
for mode, kind in itertools.product(("rn", "rz", "rm", "rp"), ("f16", "bf16")):
    for op in ("add", "sub", "fma"):
        count, function = arithmetic("f32", mode)[op]
        for sat in (False, True):

            def of_halves(*words, kind=kind, function=function, sat=sat):
                numbers = [number(word, kind) for word in words[:-1]]
                result = function(*numbers, number(words[-1], "f32"))
                return saturated(result, "f32") if sat else result

            types = " ".join(["f32", *[kind] * (count - 1), "f32"])
            name = f"{op}.{mode}{'.sat' * sat}.f32.{kind}"
            case(name, types, of_halves, runs_on_hopper=False)

case("add.f32 %0, %1, 1.5;", "f32 f32", lambda a: added(number(a, "f32"), 1.5, "f32"))
case("mul.rn.f32 %0, %1, -2.0;", "f32 f32", lambda a: multiplied(number(a, "f32"), -2.0, "f32"))
case(
    "fma.rn.f64 %0, %1, 0d3FE0000000000000, 0.25;",
    "f64 f64",
    lambda a: fused(number(a, "f64"), 0.5, 0.25, "f64"),
)

CLASSES = {
    "finite": math.isfinite,
    "infinite": math.isinf,
    "number": lambda x: not math.isnan(x),
    "notanumber": math.isnan,
}
for kind in ("f32", "f64"):
    smallest = 2.0 ** FORMATS[kind].least
    classes = {
        **CLASSES,
        "normal": lambda x, s=smallest: math.isfinite(x) and not 0 < abs(x) < s,
        "subnormal": lambda x, s=smallest: 0 < abs(x) < s,
    }
    for name, function in classes.items():
        case(
            f"{{ .reg .pred p; testp.{name}.{kind} p, %1; selp.u32 %0, 1, 0, p; }}",
            f"u32 {kind}",
            lambda a, k=kind, function=function: int(function(number(a, k))),
        )
    top = 1 << bits_of(kind) - 1
    case(
        f"copysign.{kind}",
        f"{kind} {kind} {kind}",
        lambda a, b, top=top: a & top | b & ~top,
    )


def guarded(function: Callable[..., float]) -> Callable[..., float]:
    def run(*numbers: float) -> float:
        try:
            return function(*numbers)
        except (ValueError, ZeroDivisionError):
            return math.nan
        except OverflowError:
            return math.inf

    return run


def log2(x: float) -> float:
    return math.log2(x) if x > 0 else -math.inf if x == 0 else math.nan


def inverse(x: float) -> float:
    return 1 / x if x else math.copysign(math.inf, x)


def inverse_root(x: float) -> float:
    return math.copysign(math.inf, x) if x == 0 else 1 / math.sqrt(x)


def quotient(x: float, y: float) -> float:
    return number(divided(x, y, "f64"), "f64")


def bounded(function: Callable[[float], float]) -> Callable[[float], float]:
    """The manual bounds the error within two turns only."""
    return lambda x: (
        function(x) if abs(x) <= 2 * math.pi else math.nan if abs(x) == math.inf else None
    )


for name, function, tolerance in (
    ("sin", bounded(math.sin), 2**-20),
    ("cos", bounded(math.cos), 2**-20),
    ("lg2", log2, 2**-22),
    ("ex2", lambda x: 2.0**x, 2**-21.5),
    ("tanh", math.tanh, 2**-10.9),
    ("rcp", inverse, 2**-22),
    ("sqrt", math.sqrt, 2**-22),
    ("rsqrt", inverse_root, 2**-22),
):
    for ftz in (False, True):
        if name == "tanh" and ftz:
            continue

        def approximate(a: int, function=function, ftz=ftz) -> float | None:
            a = flushed(a, "f32") if ftz else a
            value = guarded(function)(number(a, "f32"))
            if value is None:
                return None
            value = number(encoded(value, "f32"), "f32")
            return number(flushed(encoded(value, "f32"), "f32"), "f32") if ftz else value

        form = ".ftz" if ftz else ""
        case(f"{name}.approx{form}.f32", "f32 f32", approximate, tolerance=tolerance)
for form in ("approx", "full"):
    case(
        f"div.{form}.f32",
        "f32 f32 f32",
        lambda a, b: (
            number(encoded(quotient(number(a, "f32"), number(b, "f32")), "f32"), "f32")
            if 2.0**-126 <= abs(number(b, "f32")) <= 2.0**126
            and 2.0**-126 <= abs(quotient(number(a, "f32"), number(b, "f32"))) < 2.0**127
            else None
        ),
        tolerance=2**-21,
    )
case(
    "rsqrt.approx.f64",
    "f64 f64",
    lambda a: guarded(inverse_root)(number(a, "f64")),
    tolerance=2**-40,
)
for name, function in (("rcp", inverse), ("rsqrt", inverse_root)):
    case(
        f"{name}.approx.ftz.f64",
        "f64 f64",
        lambda a, function=function: (
            number(
                flushed(encoded(guarded(function)(number(flushed(a, "f64"), "f64")), "f64"), "f64"),
                "f64",
            )
            if a & 0xFFFFFFFF == 0 or math.isfinite(number(a, "f64"))
            else None
        ),
        tolerance=2**-18,
    )
for kind, tolerance in (("f16", 2**-9.5), ("bf16", 2**-6)):
    for name, function in (("tanh", math.tanh), ("ex2", lambda x: 2.0**x)):
        form = f"{name}.approx{'.ftz' if (name, kind) == ('ex2', 'bf16') else ''}.{kind}"

        def approximate(a: int, kind=kind, function=function, form=form) -> float:
            a = flushed(a, kind) if "ftz" in form else a
            result = encoded(guarded(function)(number(a, kind)), kind)
            return number(flushed(result, kind) if "ftz" in form else result, kind)

        case(form, f"{kind} {kind}", approximate, tolerance=tolerance)
        case(
            f"{{ .reg .b16 l, h; .reg .b32 t; mov.b32 t, {{0, %1}}; {form}x2 t, t; "
            "mov.b32 {l, h}, t; mov.b16 %0, h; }",
            f"{kind} {kind}",
            approximate,
            tolerance=tolerance,
        )

# ---- Comparisons

ORDERED = {
    "eq": lambda x, y: x == y,
    "ne": lambda x, y: x != y,
    "lt": lambda x, y: x < y,
    "le": lambda x, y: x <= y,
    "gt": lambda x, y: x > y,
    "ge": lambda x, y: x >= y,
}
AS_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
BOOLEAN = {
    "and": lambda p, q: p and q,
    "or": lambda p, q: p or q,
    "xor": lambda p, q: p != q,
}


def compared(relation: str, kind: str, ftz: bool = False) -> Callable[[int, int], bool]:
    def run(a: int, b: int) -> bool:
        if kind not in FORMATS:
            relation_ = AS_UNSIGNED.get(relation, relation)
            return ORDERED[relation_](integer(a, kind), integer(b, kind))
        if ftz:
            a, b = flushed(a, kind), flushed(b, kind)
        x, y = number(a, kind), number(b, kind)
        has_nan = math.isnan(x) or math.isnan(y)
        if relation in ("num", "nan"):
            return has_nan == (relation == "nan")
        if relation in ORDERED:
            return not has_nan and ORDERED[relation](x, y)
        return has_nan or ORDERED[relation[:-1]](x, y)

    return run


FLOATING = [*ORDERED, *(f"{each}u" for each in ORDERED), "num", "nan"]
for kind, relations in {
    **{f"b{bits}": ["eq", "ne"] for bits in (16, 32, 64)},
    **{f"s{bits}": [*ORDERED] for bits in (16, 32, 64)},
    **{f"u{bits}": [*ORDERED, *AS_UNSIGNED] for bits in (16, 32, 64)},
    **dict.fromkeys(["f16", "bf16", "f32", "f64"], FLOATING),
}.items():
    for relation in relations:
        holds = compared(relation, kind)
        case(
            f"{{ .reg .pred p; setp.{relation}.{kind} p, %1, %2; selp.u32 %0, 1, 0, p; }}",
            f"u32 {kind} {kind}",
            lambda a, b, holds=holds: int(holds(a, b)),
        )
for op, kind in itertools.product(BOOLEAN, ("s32", "u64", "f32", "f64", "f16", "bf16")):
    holds, join = compared("lt", kind), BOOLEAN[op]
    source = f"{kind} {kind} u32"
    # One of the results is an operand too.
    if kind in ("f16", "bf16"):
        text = f"setp.lt.{op}.{kind} p, %1, %2, !p; mov.pred q, p;"
    else:
        text = f"setp.lt.{op}.{kind} p|q, %1, %2, !p;"
    pair = kind not in ("f16", "bf16")
    case(
        "{ .reg .pred p, q; .reg .u32 a, b; setp.eq.u32 p, %3, 0; "
        + text
        + " selp.u32 a, 1, 0, p; selp.u32 b, 2, 0, q; or.b32 %0, a, b; }",
        f"u32 {source}",
        lambda a, b, c, holds=holds, join=join, pair=pair: (
            join(holds(a, b), c != 0) + 2 * join(holds(a, b) != pair, c != 0)
        ),
    )
for kind, ftz in (("f32", True), ("f16", True)):
    for relation in ("eq", "ltu"):
        holds = compared(relation, kind, ftz)
        case(
            f"{{ .reg .pred p; setp.{relation}.ftz.{kind} p, %1, %2; selp.u32 %0, 1, 0, p; }}",
            f"u32 {kind} {kind}",
            lambda a, b, holds=holds: int(holds(a, b)),
        )
for kind, relation in itertools.product(("f16", "bf16"), ("lt", "neu", "nan")):
    holds = compared(relation, kind)
    case(
        f"{{ .reg .pred p, q; .reg .u32 a, b; setp.{relation}.{kind}x2 p|q, %1, %2; "
        "selp.u32 a, 1, 0, p; selp.u32 b, 2, 0, q; or.b32 %0, a, b; }",
        f"u32 {kind}x2 {kind}x2",
        lambda a, b, holds=holds: holds(a & 0xFFFF, b & 0xFFFF) + 2 * holds(a >> 16, b >> 16),
    )
    for to, true in (("u32", 0xFFFF), (f"{kind}x2", encoded(1.0, kind))):
        case(
            f"set.{relation}.{to}.{kind}x2",
            f"u32 {kind}x2 {kind}x2",
            lambda a, b, holds=holds, true=true: (
                true * holds(a & 0xFFFF, b & 0xFFFF) + (true * holds(a >> 16, b >> 16) << 16)
            ),
        )
    for to in ("u16", "s32"):
        true = (1 << bits_of(to)) - 1
        case(
            f"set.{relation}.{to}.{kind}",
            f"{to} {kind} {kind}",
            lambda a, b, holds=holds, true=true: true * holds(a, b),
        )
    # Doubled: ptxas 13.0 has an integer 1 for a 1.0 whose bits alone are asked for.
    case(
        f"{{ .reg .b16 t; set.{relation}.{kind}.{kind} t, %1, %2; add.rn.{kind} %0, t, t; }}",
        f"{kind} {kind} {kind}",
        lambda a, b, holds=holds, kind=kind: encoded(2.0, kind) * holds(a, b),
    )
for kind, to in itertools.product(("s32", "u16", "b64", "f32", "f64"), ("u32", "s32", "f32")):
    holds, true = compared("ne", kind), 0x40000000 if to == "f32" else 0xFFFFFFFF
    end = "add.f32 %0, t, t;" if to == "f32" else f"mov.{to} %0, t;"
    case(
        f"{{ .reg .{to} t; set.ne.{to}.{kind} t, %1, %2; {end} }}",
        f"{to} {kind} {kind}",
        lambda a, b, holds=holds, true=true: true * holds(a, b),
    )
    case(
        f"{{ .reg .pred p; .reg .{to} t; setp.eq.u32 p, %3, 0; "
        f"set.ne.xor.{to}.{kind} t, %1, %2, !p; {end} }}",
        f"{to} {kind} {kind} u32",
        lambda a, b, c, holds=holds, true=true: true * (holds(a, b) != (c != 0)),
    )
for kind in ("b16", "s16", "u16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"):
    case(
        f"{{ .reg .pred p; setp.eq.u32 p, %3, 0; selp.{kind} %0, %1, %2, p; }}",
        f"{kind} {kind} {kind} u32",
        lambda a, b, c: a if c == 0 else b,
    )
    case(
        f"slct.{kind}.s32",
        f"{kind} {kind} {kind} s32",
        lambda a, b, c: a if signed(c, 32) >= 0 else b,
    )
    for ftz in (False, True):
        case(
            f"slct{'.ftz' if ftz else ''}.{kind}.f32",
            f"{kind} {kind} {kind} f32",
            lambda a, b, c, f=ftz: a if number(flushed(c, "f32") if f else c, "f32") >= 0 else b,
        )

# ---- Conversions

INTEGERS = [f"{sign}{bits}" for sign in "us" for bits in (8, 16, 32, 64)]
PLACES = {
    "rni": lambda x: Fraction(round(x)),
    "rzi": lambda x: Fraction(math.trunc(x)),
    "rmi": lambda x: Fraction(math.floor(x)),
    "rpi": lambda x: Fraction(math.ceil(x)),
}


def register(kind: str, other: str = "") -> str:
    """One of 32 bits if it may be: what a narrow result is filled up with counts too."""
    return kind if bits_of(kind) >= 32 else "b16" if other == "bf16" else "b32"


def holds(to: str, of: str) -> bool:
    """Whether all numbers of one type are in another: there .sat is refused."""
    return (bits_of(to) > bits_of(of) and (to[0] == "s" or of[0] == "u")) or to == of


for to, of in itertools.product(INTEGERS, INTEGERS):
    case(
        f"cvt.{to}.{of}",
        f"{register(to)} {register(of)}",
        lambda a, to=to, of=of: integer(integer(a, of), to),
    )
    if not holds(to, of):
        case(
            f"cvt.sat.{to}.{of}",
            f"{register(to)} {register(of)}",
            lambda a, to=to, of=of: clamped(integer(a, of), bits_of(to), to[0] == "s"),
        )


def to_integer(a: int, of: str, to: str, place: str, ftz: bool = False) -> int:
    x = number(flushed(a, of) if ftz else a, of)
    if math.isnan(x):
        return integer(1 << bits_of(to) - 1, to) if of == "f64" or bits_of(to) == 64 else 0
    if math.isinf(x):
        return clamped(int(math.copysign(1 << 70, x)), bits_of(to), to[0] == "s")
    return clamped(int(PLACES[place](Fraction(x))), bits_of(to), to[0] == "s")


for to, of in itertools.product(INTEGERS, FORMATS):
    if of == "bf16" and bits_of(to) == 8:
        continue  # it takes registers of 8 bits, which an operand cannot be
    for place in PLACES if to in ("s32", "u8", "u64") else ("rzi",):
        case(
            f"cvt.{place}.{to}.{of}",
            f"{register(to, of)} {of}",
            lambda a, how=(of, to, place): to_integer(a, *how),
        )
    for mode in MODES if to in ("s32", "u64", "s16") else ("rn",):
        case(
            f"cvt.{mode}.{of}.{to}",
            f"{of} {register(to, of)}",
            lambda a, to=to, of=of, mode=mode: encoded(Fraction(integer(a, to)), of, mode),
        )
case("cvt.rni.sat.s8.f32", "b32 f32", lambda a: to_integer(a, "f32", "s8", "rni"))
case("cvt.rpi.ftz.s32.f32", "s32 f32", lambda a: to_integer(a, "f32", "s32", "rpi", True))
case("cvt.rn.sat.f32.s32", "f32 s32", lambda a: 0x3F800000 if 0 < a < 2**31 else 0)


def rounded_whole(a: int, kind: str, place: str, *modifiers: str) -> int:
    a = flushed(a, kind) if "ftz" in modifiers else a
    x = number(a, kind)
    result = encoded(PLACES[place](Fraction(x)), kind, "rn", negative(x)) if math.isfinite(x) else (
        encoded(x, kind)
    )  # fmt: skip
    return saturated(result, kind) if "sat" in modifiers else result


for kind, place in itertools.product(("f16", "f32", "f64"), PLACES):
    case(
        f"cvt.{place}.{kind}.{kind}",
        f"{kind} {kind}",
        lambda a, how=(kind, place): rounded_whole(a, *how),
    )
case("cvt.rmi.ftz.sat.f32.f32", "f32 f32",
     lambda a: rounded_whole(a, "f32", "rmi", "ftz", "sat"))  # fmt: skip
case("cvt.sat.f32.f32", "f32 f32", lambda a: saturated(a, "f32"))
case("cvt.ftz.sat.f32.f32", "f32 f32", lambda a: saturated(flushed(a, "f32"), "f32"))


def between(a: int, to: str, of: str, mode: str = "rn", *modifiers: str) -> int:
    a = flushed(a, of) if "ftz" in modifiers and of == "f32" else a
    x = number(a, of)
    result = encoded(x if not math.isfinite(x) or x == 0 else Fraction(x), to, mode)
    result = flushed(result, to) if "ftz" in modifiers and to == "f32" else result
    result = relu(result, to) if "relu" in modifiers else result
    if (
        "satfinite" in modifiers
        and result & (1 << FORMATS[to].width - 1) - 1 == FORMATS[to].infinity
    ):
        result -= 1
    return saturated(result, to) if "sat" in modifiers else result


for to, of in itertools.permutations(FORMATS, 2):
    is_exact = bits_of(to) > bits_of(of)
    for mode in [""] if is_exact else MODES:
        form = f".{mode}" if mode else ""
        how = (to, of, mode or "rn")
        case(f"cvt{form}.{to}.{of}", f"{to} {of}", lambda a, how=how: between(a, *how))
        if "bf16" not in (to, of):
            case(
                f"cvt{form}.sat.{to}.{of}", f"{to} {of}", lambda a, how=how: between(a, *how, "sat")
            )
case("cvt.ftz.f64.f32", "f64 f32", lambda a: between(a, "f64", "f32", "rn", "ftz"))
case("cvt.rn.ftz.f32.f64", "f32 f64", lambda a: between(a, "f32", "f64", "rn", "ftz"))
for to in ("f16", "bf16"):
    for mode, relu_ in itertools.product(("rn", "rz"), (False, True)):
        how = (to, "f32", mode, *(["relu"] if relu_ else []))
        form = f"cvt.{mode}{'.relu' if relu_ else ''}"
        case(f"{form}.{to}.f32", f"{to} f32", lambda a, how=how: between(a, *how))
        case(
            f"{form}.{to}x2.f32",
            f"{to}x2 f32 f32",
            lambda a, b, how=how: between(a, *how) << 16 | between(b, *how),
        )


def tf32(a: int, mode: str, *modifiers: str) -> int:
    sign, size = a & 0x80000000, a & 0x7FFFFFFF
    if size > 0x7F800000:  # the manual leaves open which NaN; this is the hardware's
        return a & ~0x1FFF if mode == "rna" else 0x7FFFE000
    if sign and "relu" in modifiers:
        return 0
    if size < 0x7F800000:
        digits, rest = size >> 13, size & 0x1FFF
        tie = {"rna": 1, "rn": digits & 1, "rz": 0}[mode]
        digits += mode != "rz" and (rest > 0x1000 or (rest == 0x1000 and tie))
        size = digits << 13
    return sign | (0x7F7FE000 if "satfinite" in modifiers and size >= 0x7F800000 else size)


case("cvt.rna.tf32.f32", "b32 f32", lambda a: tf32(a, "rna"))
case("cvt.rna.tf32.f32 %0, %1;", "b32 b32", lambda a: tf32(a, "rna"))
for mode in ("rn", "rz"):
    case(f"cvt.{mode}.tf32.f32", "b32 f32", lambda a, mode=mode: tf32(a, mode))
    case(f"cvt.{mode}.relu.tf32.f32", "b32 f32", lambda a, mode=mode: tf32(a, mode, "relu"))
for mode in ("rna", "rn", "rz"):
    case(
        f"cvt.{mode}.satfinite.tf32.f32",
        "b32 f32",
        lambda a, mode=mode: tf32(a, mode, "satfinite"),
        runs_on_hopper=False,
    )
for to in ("f16", "bf16"):
    how = (to, "f32", "rn", "satfinite")
    case(
        f"cvt.rn.satfinite.{to}x2.f32",
        f"{to}x2 f32 f32",
        lambda a, b, how=how: between(a, *how) << 16 | between(b, *how),
        runs_on_hopper=False,
    )


def fp8(x: float, kind: str) -> int:
    """The nearest code; of two as near that which is even."""
    if math.isnan(x):
        return 0x7F
    values = fp8_values(kind)
    sign = 0x80 if negative(x) else 0
    nearest = min(
        range(len(values)), key=lambda c: (abs(Fraction(values[c]) - abs(Fraction(x))), c & 1)
    ) if math.isfinite(x) else len(values) - 1  # fmt: skip
    return sign | nearest


@functools.cache
def fp8_values(kind: str) -> list[float]:
    """Of the codes from 0 to the greatest that is finite."""
    fraction, bias = (3, 7) if kind == "e4m3x2" else (2, 15)
    count = 0x7F if kind == "e4m3x2" else 0x7C
    values = []
    for code in range(count):
        exponent, digits = code >> fraction, code & (1 << fraction) - 1
        digits |= 1 << fraction if exponent else 0
        values.append(math.ldexp(digits, max(exponent, 1) - bias - fraction))
    return values


def from_fp8(code: int, kind: str) -> int:
    values, size = fp8_values(kind), code & 0x7F
    if size >= len(values):
        return encoded(
            math.copysign(math.inf, -1 if code & 0x80 else 1)
            if kind == "e5m2x2" and size == 0x7C
            else math.nan,
            "f16",
        )
    return encoded(-values[size] if code & 0x80 else values[size], "f16")


for kind in ("e4m3x2", "e5m2x2"):
    for relu_ in (False, True):
        form = ".relu" if relu_ else ""

        def packed(x: float, kind=kind, relu_=relu_) -> int:
            return fp8(0.0 if relu_ and x <= 0 else x, kind)

        case(
            f"cvt.rn.satfinite{form}.{kind}.f32",
            "b16 f32 f32",
            lambda a, b, packed=packed: packed(number(a, "f32")) << 8 | packed(number(b, "f32")),
        )
        case(
            f"cvt.rn.satfinite{form}.{kind}.f16x2",
            "b16 f16x2",
            lambda a, packed=packed: (
                packed(number(a >> 16, "f16")) << 8 | packed(number(a & 0xFFFF, "f16"))
            ),
        )
        case(
            f"cvt.rn{form}.f16x2.{kind}",
            f"f16x2 {kind}",
            lambda a, kind=kind, f=relu_: pairwise(
                lambda c: relu(from_fp8(c, kind), "f16") if f else from_fp8(c, kind)
            )((a >> 8) << 16 | a & 0xFF),
        )
for to in ("u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"):

    def together(a: int, b: int, c: int = 0, to: str = to) -> int:
        bits = bits_of(to)
        low, high = (
            clamped(signed(word, 32), bits, to[0] == "s") & (1 << bits) - 1 for word in (b, a)
        )
        return low | high << bits | c << 2 * bits

    if bits_of(to) == 16:
        case(f"cvt.pack.sat.{to}.s32", "b32 s32 s32", lambda a, b, f=together: f(a, b))
    else:
        case(f"cvt.pack.sat.{to}.s32.b32", "b32 s32 s32 b32", together)

# ---- Control, labels and special registers

case(
    "{ .reg .pred p; .reg .u32 n; mov.u32 n, 0; mov.u32 %0, 0; "
    "AGAIN: setp.ge.u32 p, n, 10; @p bra DONE; add.u32 %0, %0, %1; add.u32 n, n, 1; "
    "bra.uni AGAIN; DONE: }",
    "u32 u32",
    lambda a: 10 * a,
)
case("nanosleep.u32 20; mov.u32 %0, %1;", "u32 u32", lambda a: a)
case(
    "{ .reg .pred p; setp.eq.u32 p, %1, %1; @!p trap; @!p brkpt; pmevent 7; mov.u32 %0, %1; }",
    "u32 u32",
    lambda a: a,
)
case("mov.u32 %0, %%ntid.x;", "u32", lambda: 64)
case("mov.u32 %0, %%ntid.y;", "u32", lambda: 1)
case("mov.u32 %0, %%ctaid.z;", "u32", lambda: 0)
case(
    "{ .reg .u32 a, b; mov.u32 a, %%ctaid.x; mov.u32 b, %%ntid.x; mul.lo.u32 a, a, b; "
    "mov.u32 b, %%tid.x; add.u32 a, a, b; "
    "and.b32 a, a, 31; mov.u32 b, %%laneid; sub.u32 %0, a, b; }",
    "u32",
    lambda: 0,
)
case(
    "{ .reg .u32 lt, le, eq, ge, gt, n; mov.u32 lt, %%lanemask_lt; mov.u32 le, %%lanemask_le; "
    "mov.u32 eq, %%lanemask_eq; mov.u32 ge, %%lanemask_ge; mov.u32 gt, %%lanemask_gt; "
    "not.b32 ge, ge; xor.b32 ge, ge, lt; not.b32 gt, gt; xor.b32 gt, gt, le; or.b32 eq, eq, lt; "
    "xor.b32 eq, eq, le; popc.b32 lt, lt; mov.u32 n, %%laneid; sub.u32 lt, lt, n; "
    "or.b32 lt, lt, eq; or.b32 lt, lt, ge; or.b32 %0, lt, gt; }",
    "u32",
    lambda: 0,
)
case(
    "{ .reg .pred p, q; .reg .u64 a, b; mov.u64 a, %%globaltimer; mov.u64 b, %%clock64; "
    ".reg .u32 c, d; mov.u32 c, %%smid; mov.u32 d, %%nsmid; "
    "setp.ne.u64 p, a, 0; setp.lt.u32 q, c, d; and.pred p, p, q; "
    "selp.u32 %0, 1, 0, p; }",
    "u32",
    lambda: 1,
)

# ---- One kernel of all

LETTERS = {16: ("h", "uint16_t"), 32: ("r", "uint32_t"), 64: ("l", "uint64_t")}


def _letter(kind: str) -> tuple[str, str]:
    if kind == "f32":
        return "f", "float"
    if kind == "f64":
        return "d", "double"
    return LETTERS[32 if kind in ("shift", "byte") else bits_of(kind)]


def _operand(kind: str, index: int) -> str:
    word = f"x[{index}]"
    if kind == "f32":
        word = f"__uint_as_float(uint32_t({word}))"
    elif kind == "f64":
        word = f"__longlong_as_double({word})"
    else:
        word = f"{_letter(kind)[1]}({word})"
    return f'"{_letter(kind)[0]}"({word})'


def source(cases: list[tuple[int, Case]]) -> str:
    lines = ["__global__ void run(const long long* all, long long* y, const int* which, int n) {"]
    lines += ["const int i = blockIdx.x * blockDim.x + threadIdx.x;", "if (i >= n) return;"]
    lines += ["const long long* x = all + 4 * i;", "switch (which[i]) {"]
    for number_, each in cases:
        letter, word = _letter(each.to)
        inputs = ", ".join(_operand(kind, i) for i, kind in enumerate(each.of))
        back = {"f": "__float_as_uint(z)", "d": "__double_as_longlong(z)"}.get(letter, "z")
        lines.append(
            f'case {number_}: {{ {word} z = 0; asm volatile("{each.asm}" : "={letter}"(z) : '
            f"{inputs}); y[i] = (long long)({back}); break; }}"
        )
    lines += ["}", "}", 'extern "C" cudaError_t run_cases(const int64_t* x, int64_t* y,']
    lines += ["const int* which, int n) {"]
    lines += ["run<<<(n + 63) / 64, 64>>>((const long long*)x, (long long*)y, which, n);"]
    lines += ["return cudaGetLastError();", "}"]
    return "\n".join(["#include <stdint.h>", *lines]) + "\n"


@pytest.fixture(scope="module", params=TARGETS)
def results(request, tmp_path_factory):
    """Of each case's number: rows of operands, and the word that each gave."""
    cases = [
        (i, each) for i, each in enumerate(CASES) if each.runs_on_hopper or request.param == "cpu"
    ]
    path = tmp_path_factory.mktemp("ptx") / "ptx_scalar.cu"
    path.write_text(source(cases))
    library = jitload.load(str(path), name="test_ptx_scalar", target=request.param)
    rows = [(i, row) for i, each in cases for row in each.rows]
    rows += [rows[-1]] * (-len(rows) % 64)
    words = [[signed(word, 64) for word in (*row, 0, 0, 0, 0)[:4]] for _, row in rows]
    x = torch.tensor(words, dtype=torch.int64, device=request.param)
    y = torch.zeros(len(rows), dtype=torch.int64, device=request.param)
    which = torch.tensor([i for i, _ in rows], dtype=torch.int32, device=request.param)
    library.run_cases(x, y, which, len(rows))
    found: dict[int, list[tuple[tuple[int, ...], int]]] = {}
    for (i, row), word in zip(rows, y.tolist(), strict=True):
        found.setdefault(i, []).append((row, word & (1 << 64) - 1))
    return found


def is_right(each: Case, row: tuple[int, ...], got: int) -> tuple[bool, object]:
    bits = 32 if each.to == "shift" else bits_of(each.to)
    expected, got = each.expected(*row), got & (1 << bits) - 1
    if expected is None:  # left open
        return True, None
    if each.tolerance:
        y = number(got, each.to)
        if not math.isfinite(expected):
            return y == expected or (math.isnan(y) and math.isnan(expected)), expected
        rest = abs(y - expected)
        smallest = math.ldexp(1, FORMATS[each.to].least - FORMATS[each.to].fraction)
        allowed = max(each.tolerance * max(abs(expected), absolute(each)), smallest)
        return rest <= allowed, expected
    expected &= (1 << bits) - 1
    if each.to in FORMATS and math.isnan(number(expected, each.to)):
        # Only arithmetic has the one NaN: conversions keep something of theirs.
        is_any = "f64" in (each.to, *each.of) or each.asm.startswith("cvt.f32.bf16")
        return math.isnan(number(got, each.to)) if is_any else got == expected, expected
    return got == expected, expected


def absolute(each: Case) -> float:
    """What is bounded absolutely is bounded so near 0."""
    return 1.0 if each.asm.startswith(("sin", "cos", "lg2")) else 0.0


@pytest.mark.parametrize("number_", range(len(CASES)), ids=[each.asm[:70] for each in CASES])
def test_instruction(results, number_):
    each = CASES[number_]
    if number_ not in results:
        pytest.skip("for later GPUs")
    wrong = []
    for row, got in results[number_]:
        right, expected = is_right(each, row, got)
        if not right:
            shown = f"{expected:#x}" if isinstance(expected, int) else expected
            wrong.append(f"{', '.join(f'{w:#x}' for w in row)}: {got:#x} for {shown}")
    assert not wrong, f"{each.asm}\n" + "\n".join(wrong[:12])


UNKNOWN = [
    "frobnicate.u32",
    "add.wrong.u32",
    "add.rn.u32",
    "mul.f8",
    "cvt.f32.s32",
    "cvt.rn.s32.f32",
    "setp.lo.s32",
    "min.NaN.f64",
    "prmt.b32.f5e",
    "fma.f32",
]


@pytest.mark.parametrize("mnemonic", UNKNOWN)
def test_an_unknown_instruction_is_named(mnemonic):
    text = f'__device__ void f(int& x) {{ asm("{mnemonic} %0, %0, %0;" : "+r"(x)); }}\n'
    with pytest.raises(Unsupported, match=rf"(?s){mnemonic}"):
        rewrite(text, "x.cu")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("add.u32 %0, %0;", "add.u32"),
        ("addc.u32 %0, %0, %0;", "carry"),
        ("mov.u32 %0, %%nothing;", "%nothing"),
        ("setp.eq.u32 p|q, %0, %0;", "not declared"),
        ("mov.b64 %0, {%0, %0, %0};", "mov.b64"),
    ],
)
def test_what_is_wrong_is_named(text, named):
    text = f'__device__ void f(int& x) {{ asm("{text}" : "+r"(x)); }}\n'
    with pytest.raises(Unsupported, match=named):
        rewrite(text, "x.cu")
