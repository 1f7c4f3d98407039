"""PTX that reads and writes memory, and what the lanes of a warp and a block's barriers do.

A case is the text of an `asm` statement, and rows of what is in memory and in its operands before
and after, worked out here. All cases of one thread are one kernel, all of a warp another.
"""

from __future__ import annotations

import itertools
import random
import struct
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pytest
import torch
from simulated import SOURCES, TARGETS, Kernels, for_hopper

pytestmark = pytest.mark.slow

BYTES = 64  # of memory, of each row
WORDS = 8  # of operands
SHARED_ADDRESS, DISCARDED = 0x5EED0001, 0x5EED0002  # operands that the kernel replaces
LETTERS = {
    8: ("r", "uint32_t"),
    16: ("h", "uint16_t"),
    32: ("r", "uint32_t"),
    64: ("l", "uint64_t"),
}
FLOATS = {"f32": ("f", "float"), "f64": ("d", "double")}
BITS = {"f16x2": 32, "bf16x2": 32, "bf16": 16, "pred": 32}
TYPES = [
    f"{letter}{bits}" for bits in (8, 16, 32, 64) for letter in "busf" if bits > 16 or letter != "f"
]


def bits_of(kind: str) -> int:
    return BITS.get(kind) or int(kind[1:])


def letter_of(kind: str) -> tuple[str, str]:
    return FLOATS.get(kind) or LETTERS[bits_of(kind)]


def signed(word: int, bits: int) -> int:
    return (word & (1 << bits) - 1) - ((word & 1 << bits - 1) << 1)


# ---- One thread

SPACES = {  # what an instruction says of its space, the operand, whether the memory is shared
    "global": (".global", '"l"(g)', False),
    "shared": (".shared", '"r"(a)', True),
    "shared::cta": (".shared::cta", '"r"(a)', True),
    "generic": ("", '"l"(g)', False),
    "generic shared": ("", '"l"(&s[0])', True),
}


class Row(NamedTuple):
    before: bytes
    values: tuple[int, ...]
    outputs: tuple[int, ...]
    after: bytes


@dataclass
class Case:
    """text: with {a} for the address, {d0} and {v0} for results and operands of these kinds."""

    text: str
    space: str
    outputs: list[str]
    values: list[str]
    rows: list[Row] = field(default_factory=list)
    is_late: bool = False  # not for Hopper's GPUs

    @property
    def named(self) -> str:
        names = {f"d{i}": f"d{i}" for i in range(8)} | {f"v{i}": f"v{i}" for i in range(8)}
        return f"{self.text.format(a='a', **names)} ({self.space})"

    def cpp(self) -> str:
        n = len(self.outputs)
        names = {f"d{i}": f"%{i}" for i in range(n)} | {"a": f"%{n}"}
        names |= {f"v{i}": f"%{n + 1 + i}" for i in range(len(self.values))}
        _, address, is_shared = SPACES[self.space]
        inputs, declared, put = [address], [], []
        for i, kind in enumerate(self.values):
            letter, word = letter_of(kind)
            value = {
                "f": f"__uint_as_float(uint32_t(v[{i}]))",
                "d": f"__longlong_as_double(v[{i}])",
            }
            inputs.append(f'"{letter}"({value.get(letter, f"{word}(v[{i}])")})')
        for i, kind in enumerate(self.outputs):
            letter, word = letter_of(kind)
            declared.append(f"{word} d{i} = 0;")
            value = {"f": f"__float_as_uint(d{i})", "d": f"(uint64_t)__double_as_longlong(d{i})"}
            put.append(f"d[{i}] = {value.get(letter, f'd{i}')};")
        listed = ", ".join(f'"={letter_of(kind)[0]}"(d{i})' for i, kind in enumerate(self.outputs))
        text = self.text.format(**names)
        back = "for (int i = 0; i < 16; i++) g[i] = s[i];" if is_shared else ""
        return (
            f'{" ".join(declared)} asm volatile("{text}" : {listed} : {", ".join(inputs)} : '
            f'"memory"); {" ".join(put)} {back}'
        )


CASES: list[Case] = []
RANDOM = random.Random(20)


def some_bytes() -> bytes:
    return bytes(RANDOM.choice((0x80, 0xFF, 0x7F, RANDOM.randrange(256))) for _ in range(BYTES))


def extended(word: int, kind: str, to: int) -> int:
    bits = bits_of(kind)
    return signed(word, bits) & (1 << to) - 1 if kind[0] == "s" else word & (1 << bits) - 1


def load_case(
    text: str, kind: str, count: int, space: str, at: int = 0, to: str = "", late: bool = False
) -> None:
    """`text` ends with the type; `to`: the registers' kind, where it is wider."""
    to = to or kind
    targets = ", ".join(f"{{d{i}}}" for i in range(count))
    targets = f"{{{{{targets}}}}}" if count > 1 else targets
    address = f"[{{a}} + {at}]" if at else "[{a}]"
    case = Case(f"{text} {targets}, {address};", space, [to] * count, [], is_late=late)
    memory, size = some_bytes(), bits_of(kind) // 8
    words = [
        int.from_bytes(memory[at + i * size : at + (i + 1) * size], "little") for i in range(count)
    ]
    width = max(bits_of(to), 32) if bits_of(to) == 8 else bits_of(to)
    outputs = tuple(extended(word, kind, width) for word in words)
    case.rows.append(Row(memory, (), outputs, memory))
    CASES.append(case)


def store_case(
    text: str, kind: str, count: int, space: str, at: int = 0, late: bool = False
) -> None:
    sources = ", ".join(f"{{v{i}}}" for i in range(count))
    sources = f"{{{{{sources}}}}}" if count > 1 else sources
    address = f"[{{a}} + {at}]" if at else "[{a}]"
    case = Case(f"{text} {address}, {sources};", space, [], [kind] * count, is_late=late)
    memory, size = some_bytes(), bits_of(kind) // 8
    values = tuple(RANDOM.randrange(1 << bits_of(kind)) for _ in range(count))
    stored = b"".join(value.to_bytes(size, "little") for value in values)
    after = memory[:at] + stored + memory[at + len(stored) :]
    case.rows.append(Row(memory, values, (), after))
    CASES.append(case)


for space in ("shared", "generic shared"):
    name = "st.bulk.weak.shared::cta" if space == "shared" else "st.bulk"
    zeroed = Case(f"{name} [{{a}}], {{v0}}, 0;", space, [], ["u64"], is_late=True)
    for size in (0, 8, 48):
        memory = some_bytes()
        zeroed.rows.append(Row(memory, (size,), (), bytes(size) + memory[size:]))
    CASES.append(zeroed)
for kind, count, space in itertools.product(TYPES, (1, 2, 4), ("global", "shared")):
    if count * bits_of(kind) > 128:
        continue
    vector = f".v{count}" if count > 1 else ""
    for make, name in ((load_case, "ld"), (store_case, "st")):
        make(f"{name}.{space}{vector}.{kind}", kind, count, space, at=16)
for kind, to in [("s8", "b32"), ("s16", "b32"), ("u16", "b32"), ("s32", "b64"), ("u32", "b64")]:
    load_case(f"ld.shared.{kind}", kind, 1, "shared", to=to)
for space in ("generic", "generic shared", "shared::cta"):
    said = SPACES[space][0]
    for kind, count in [("b32", 1), ("u8", 1), ("f64", 2), ("b32", 4)]:
        vector = f".v{count}" if count > 1 else ""
        load_case(f"ld{said}{vector}.{kind}", kind, count, space, at=32)
        store_case(f"st{said}{vector}.{kind}", kind, count, space, at=32)
for kind, count in [("b32", 8), ("f32", 8), ("b64", 4), ("f64", 4)]:
    load_case(f"ld.global.v{count}.{kind}", kind, count, "global", 32, late=True)
    store_case(f"st.global.v{count}.{kind}", kind, count, "global", 32, late=True)
for how in ["weak.global", "global.ca", "global.cg", "global.cs", "global.lu", "global.cv"]:
    load_case(f"ld.{how}.u32", "u32", 1, "global", 4)
for how in [
    "nc",
    "nc.L1::no_allocate",
    "nc.L1::no_allocate.L2::256B",
    "L1::evict_last",
    "L2::128B",
    "ca.L2::64B",
]:
    load_case(f"ld.global.{how}.v4.f32", "f32", 4, "global", 16)
load_case("ldu.global.u32", "u32", 1, "global", 8)
for how in ["weak.global", "global.wb", "global.cg", "global.cs", "global.wt"]:
    store_case(f"st.{how}.u32", "u32", 1, "global", 4)
store_case("st.global.L1::no_allocate.v4.b32", "b32", 4, "global", 16)
for space in ("global", "shared", "generic"):
    said = SPACES[space][0]
    for order, store in [
        ("volatile", "volatile"),
        ("relaxed.cta", "relaxed.cta"),
        ("relaxed.sys", "relaxed.gpu"),
        ("acquire.gpu", "release.gpu"),
        ("acquire.cluster", "release.cluster"),
        ("acquire.sys", "release.sys"),
    ]:
        for kind, count in [("u32", 1), ("b64", 1), ("f32", 2), ("b32", 4), ("u16", 1), ("s8", 1)]:
            if kind != "u32" and (order != "volatile" or space != "global"):
                continue
            vector = f".v{count}" if count > 1 else ""
            load_case(f"ld.{order}{said}{vector}.{kind}", kind, count, space, 16)
            store_case(f"st.{store}{said}{vector}.{kind}", kind, count, space, 16)
load_case("ld.mmio.relaxed.sys.global.u32", "u32", 1, "global", 4)
store_case("st.mmio.relaxed.sys.global.u32", "u32", 1, "global", 4)


def plain_case(
    text: str, space: str, outputs: str, values: str, row: tuple, late: bool = False
) -> None:
    """row: operands, results, and the memory's first words before and after."""
    given, results, before, after = row
    rest = bytes(range(BYTES))
    old, new = (b"".join(w.to_bytes(4, "little") for w in words) for words in (before, after))
    case = Case(text, space, outputs.split(), values.split(), is_late=late)
    case.rows.append(Row(old + rest[len(old) :], given, results, new + rest[len(new) :]))
    CASES.append(case)


plain_case(
    "{{ .reg .b64 p; createpolicy.fractional.L2::evict_first.b64 p, 1.0; "
    "ld.global.L2::cache_hint.u32 {d0}, [{a}], p; "
    "st.global.L2::cache_hint.u32 [{a} + 4], {v0}, p; }}",
    "global",
    "b32",
    "b32",
    ((5,), (7,), [7, 8], [7, 5]),
)
plain_case(
    "{{ .reg .b64 p; createpolicy.fractional.L2::evict_last.L2::evict_unchanged.b64 p, 0.5; "
    "ld.global.nc.L2::cache_hint.v2.u32 {{{d0}, {d1}}}, [{a}], p; }}",
    "global",
    "b32 b32",
    "",
    ((), (7, 8), [7, 8], [7, 8]),
)
plain_case(
    "prefetch.global.L1 [{a}]; prefetch.global.L2 [{a}]; prefetch.L2 [{a}]; prefetchu.L1 [{a}]; "
    "prefetch.global.L2::evict_last [{a}]; applypriority.global.L2::evict_normal [{a}], 128; "
    "ld.global.u32 {d0}, [{a}];",
    "global",
    "b32",
    "",
    ((), (9,), [9], [9]),
)
plain_case(
    "{{ .reg .b128 q; ld.global.b128 q, [{a}]; st.global.b128 [{a} + 16], q; "
    "mov.b128 {{{d0}, {d1}}}, q; }}",
    "global",
    "b64 b64",
    "",
    ((), (2 << 32 | 1, 4 << 32 | 3), [1, 2, 3, 4, 0, 0, 0, 0], [1, 2, 3, 4, 1, 2, 3, 4]),
)
plain_case(
    "{{ .reg .u64 p; .reg .u32 q; cvt.u64.u32 p, %1; cvta.shared.u64 p, p; st.u32 [p + 4], {v0}; "
    "cvta.to.shared.u64 p, p; cvt.u32.u64 q, p; sub.u32 {d0}, q, %1; ld.shared.u32 q, [q + 4]; "
    "add.u32 {d0}, {d0}, q; }}".replace("%1", "{v1}"),
    "shared",
    "b32",
    "b32 b32",
    ((41, SHARED_ADDRESS), (41,), [0, 0], [0, 41]),
)
plain_case(
    "{{ .reg .u64 p; cvta.to.global.u64 p, {a}; ld.global.u32 {d0}, [p + 4]; "
    "cvta.global.u64 p, p; st.u32 [p], {d0}; }}",
    "global",
    "b32",
    "",
    ((), (6,), [5, 6], [6, 6]),
)
for space in ("generic", "generic shared"):
    told = (1, 0) if space == "generic shared" else (0, 1)
    plain_case(
        "{{ .reg .pred p, q; isspacep.shared p, {a}; isspacep.global q, {a}; "
        "selp.u32 {d0}, 1, 0, p; selp.u32 {d1}, 1, 0, q; "
        "isspacep.shared::cta p, {a}; isspacep.shared::cluster q, {a}; "
        "selp.u32 {d2}, 1, 0, p; selp.u32 {d3}, 1, 0, q; }}",
        space,
        "b32 b32 b32 b32",
        "",
        ((), (*told, told[0], told[0]), [], []),
    )
plain_case(
    "membar.cta; membar.gl; membar.sys; fence.sc.cta; fence.acq_rel.gpu; fence.acq_rel.cluster; "
    "fence.sc.sys; fence.proxy.alias; fence.proxy.async; fence.proxy.async.global; "
    "fence.proxy.async.shared::cta; fence.mbarrier_init.release.cluster; "
    "discard.global.L2 [{v0}], 128; ld.global.u32 {d0}, [{a}];",
    "global",
    "b32",
    "b64",
    ((DISCARDED,), (9,), [9], [9]),
)

# ---- Atomic operations

NUMPY = {"f16": np.float16, "f32": np.float32, "f64": np.float64}


def sample(kind: str) -> list[int]:
    """Words of a type."""
    if kind.endswith("x2"):
        words = sample(kind[:-2])
        return [high << 16 | low for high, low in zip(words, reversed(words), strict=True)]
    if kind[:2] == "bf":
        return [0x3F80, 0x4049, 0xC2F7, 0x0000, 0x7F7F, 0x3C01]
    if kind[0] == "f":
        values = [1.0, 3.140625, -123.75, 0.0, 2048.0, 1 / 3]
        size = bits_of(kind) // 8
        return [int.from_bytes(NUMPY[kind](v).tobytes()[:size], "little") for v in values]
    top = 1 << bits_of(kind) - 1
    return [0, 1, 5, top, top - 1, 2 * top - 1, 2 * top - 3]


def combined(op: str, kind: str, x: int, y: int) -> int:
    bits = bits_of(kind)
    mask = (1 << bits) - 1
    if kind.endswith("x2"):
        high, low = (combined(op, kind[:-2], x >> at & 0xFFFF, y >> at & 0xFFFF) for at in (16, 0))
        return high << 16 | low
    if kind[:2] == "bf":
        a, b = (torch.tensor(w << 16, dtype=torch.int64).int().view(torch.float32) for w in (x, y))
        a, b = a.bfloat16(), b.bfloat16()
        result = {"add": a + b, "min": torch.minimum(a, b), "max": torch.maximum(a, b)}[op]
        return int(result.view(torch.int16)) & mask
    if kind[0] == "f":
        of = NUMPY[kind]
        a, b = (np.frombuffer(w.to_bytes(bits // 8, "little"), of)[0] for w in (x, y))
        result = {"add": a + b, "min": min(a, b), "max": max(a, b)}[op]
        return int.from_bytes(of(result).tobytes(), "little")
    if kind[0] == "s":
        x, y = signed(x, bits), signed(y, bits)
    return {
        "add": x + y,
        "min": min(x, y),
        "max": max(x, y),
        "and": x & y,
        "or": x | y,
        "xor": x ^ y,
        "exch": y,
        "inc": 0 if x >= y else x + 1,
        "dec": y if x == 0 or x > y else x - 1,
    }[op] & mask


def atomic_case(name: str, op: str, kind: str, space: str, count: int = 1, late: bool = False):
    returns = name.startswith("atom")
    targets, sources = (
        ", ".join(f"{{{letter}{i}}}" for i in range(count)) for letter in ("d", "v")
    )
    if count > 1:
        targets, sources = f"{{{{{targets}}}}}", f"{{{{{sources}}}}}"
    first = f"{targets}, " if returns else ""
    size, words = bits_of(kind) // 8, sample(kind)
    text = f"{name} {first}[{{a}}], {sources};"
    case = Case(text, space, [kind] * (count * returns), [kind] * count, is_late=late)
    pairs = itertools.product(words, words)
    for x, y in itertools.islice(pairs, 0, None, 3 if count == 1 else 5):
        old = [x, y, *words, *words][:count]
        new = [y, x, *reversed(words), *words][:count]
        memory = b"".join(word.to_bytes(size, "little") for word in old)
        after = b"".join(
            combined(op, kind, a, b).to_bytes(size, "little") for a, b in zip(old, new, strict=True)
        )
        rest = bytes(BYTES - len(memory))
        outputs = tuple(old) if returns else ()
        case.rows.append(Row(memory + rest, tuple(new), outputs, after + rest))
    CASES.append(case)


OPERATIONS = [
    ("add", "u32 s32 u64 f32 f64"),
    ("min", "u32 s32 u64 s64"),
    ("max", "u32 s32 u64 s64"),
    ("and", "b32 b64"),
    ("or", "b32 b64"),
    ("xor", "b32 b64"),
    ("inc", "u32"),
    ("dec", "u32"),
    ("exch", "b32 b64"),
]
ORDERS = itertools.cycle(["", ".relaxed.cta", ".acquire.gpu", ".release.sys", ".acq_rel.cluster"])
RED_ORDERS = itertools.cycle(["", ".relaxed.gpu", ".release.cta"])
PLACES = itertools.cycle(["global", "shared", "generic", "shared::cta", "generic shared"])
for op, kinds in OPERATIONS:
    for kind in kinds.split():
        for _ in range(2):
            space = next(PLACES)
            said = SPACES[space][0]
            atomic_case(f"atom{next(ORDERS)}{said}.{op}.{kind}", op, kind, space)
            if op != "exch":
                atomic_case(f"red{next(RED_ORDERS)}{said}.{op}.{kind}", op, kind, space)
for kind, space in itertools.product(("f16", "bf16", "f16x2", "bf16x2"), ("global", "shared")):
    # In shared memory CUDA 13.0's code for an H100 adds the lower half of a pair alone.
    late = kind.endswith("x2") and space == "shared"
    atomic_case(f"atom.{space}.add.noftz.{kind}", "add", kind, space, late=late)
    atomic_case(f"red.relaxed.gpu.{space}.add.noftz.{kind}", "add", kind, space, late=late)
for name, count in itertools.product(("atom", "red"), (2, 4)):
    atomic_case(f"{name}.global.add.v{count}.f32", "add", "f32", "global", count)
    for op, kind in [("add", "f16x2"), ("max", "bf16x2"), ("min", "f16"), ("add", "bf16")]:
        atomic_case(f"{name}.global.{op}.noftz.v{count}.{kind}", op, kind, "global", count)
for name in ("atom", "red"):
    atomic_case(f"{name}.global.add.noftz.v8.f16", "add", "f16", "global", 8)
for kind, space in [("b16", "global"), ("b16", "shared"), ("b32", "shared"), ("b64", "generic")]:
    case = Case(
        f"atom{SPACES[space][0]}.cas.{kind} {{d0}}, [{{a}}], {{v0}}, {{v1}};",
        space,
        [kind],
        [kind, kind],
    )
    size = bits_of(kind) // 8
    for old, wanted, new in [(5, 5, 7), (5, 6, 7), (1 << size * 8 - 1, 1 << size * 8 - 1, 0)]:
        held = new if old == wanted else old
        before, after = (w.to_bytes(size, "little") + bytes(BYTES - size) for w in (old, held))
        case.rows.append(Row(before, (wanted, new), (old,), after))
    CASES.append(case)
for swap, written in [("{v0}, {v1}", [1, 2, 3, 4]), ("{v1}, {v1}", [9, 0, 8, 0])]:
    plain_case(
        "{{ .reg .b128 q, r, w; mov.b128 q, {{" + swap + "}}; mov.b128 w, {{{v2}, {v3}}}; "
        "atom.global.cas.b128 r, [{a}], q, w; mov.b128 {{{d0}, {d1}}}, r; }}",
        "global",
        "b64 b64",
        "b64 b64 b64 b64",
        ((9, 8, 2 << 32 | 1, 4 << 32 | 3), (9, 8), [9, 0, 8, 0], written),
    )
plain_case(
    "{{ .reg .b128 q, r; mov.b128 q, {{{v0}, {v1}}}; atom.global.exch.b128 r, [{a}], q; "
    "mov.b128 {{{d0}, {d1}}}, r; }}",
    "global",
    "b64 b64",
    "b64 b64",
    ((9, 8), (1, 2), [1, 0, 2, 0], [9, 0, 8, 0]),
)
plain_case(
    "atom.global.add.u32 _, [{a}], {v0}; atom.global.exch.b32 {d0}, [{a} + 4], {v0};",
    "global",
    "b32",
    "b32",
    ((3,), (5,), [4, 5], [7, 3]),
)

# ---- A warp

FULL = (1 << 32) - 1
LANES = range(32)


class Warp(NamedTuple):
    """text: with %0 and %1 for results, %2 for x, %3 for y of the lane. mask: who runs it."""

    text: str
    mask: int
    x: list[int]
    y: list[int]
    expected: list[tuple[int, int] | None]


WARPS: list[Warp] = []


def warp_case(text, expected, mask=FULL, x=None, y=None) -> None:
    x = x or [RANDOM.randrange(1 << 32) for _ in LANES]
    y = y or [0] * 32
    results = [expected(lane, x, y) if mask >> lane & 1 else None for lane in LANES]
    WARPS.append(Warp(text, mask, x, y, results))


def shuffled(mode: str, c: int, lane: int, x: list[int], y: list[int]) -> tuple[int, int]:
    """By the manual's pseudocode."""
    b, value, segment = y[lane] & 31, c & 31, c >> 8 & 31
    most, least = lane & segment | value & ~segment & 31, lane & segment
    match mode:
        case "up":
            j, within = lane - b, lane - b >= most
        case "down":
            j, within = lane + b, lane + b <= most
        case "bfly":
            j, within = lane ^ b, (lane ^ b) <= most
        case _:
            j = least | b & ~segment & 31
            within = j <= most
    return x[j if within else lane], int(within)


SHUFFLE = (
    "{{ .reg .pred p; shfl.sync.{mode}.b32 %0|p, %2, {b}, {c}, {mask}; selp.u32 %1, 1, 0, p; }}"
)
for mode in ("up", "down", "bfly", "idx"):
    for width, b in [(32, 1), (32, 9), (16, 3), (8, 5), (4, 1), (2, 1)]:
        c = (32 - width) << 8 | (0 if mode == "up" else 31)
        text = SHUFFLE.format(mode=mode, b=b, c=c, mask=FULL)
        warp_case(text, lambda i, x, y, m=mode, c=c, b=b: shuffled(m, c, i, x, [b] * 32))
    # Each lane its own source, in segments that end early.
    c = 0x1800 | (1 if mode == "up" else 5)
    text = SHUFFLE.format(mode=mode, b="%3", c=c, mask="-1")
    steps = [i * 3 % 8 for i in LANES]
    if mode == "up":
        steps = [i % 4 for i in LANES]
    warp_case(text, lambda i, x, y, m=mode, c=c: shuffled(m, c, i, x, y), y=steps)
    half = 0x0000FFFF
    c = 0x1000 | (0 if mode == "up" else 31)
    text = f"shfl.sync.{mode}.b32 %0, %2, 2, {c}, {half}; mov.u32 %1, 0;"
    warp_case(text, lambda i, x, y, m=mode, c=c: (shuffled(m, c, i, x, [2] * 32)[0], 0), mask=half)

few = [lane % 3 for lane in LANES]
SOME = 0x0F0F00FF


def bits(lanes) -> int:
    return sum(1 << lane for lane in lanes)


def of_mask(mask: int) -> list[int]:
    return [lane for lane in LANES if mask >> lane & 1]


def random_float() -> int:
    odd = [0, 0x80000000, 0x7F800000, 0xFF800000, 0x7FC00000, 0xFFC00001, 1, 0x80000001]
    return RANDOM.choice([*odd, *(RANDOM.randrange(1 << 32) for _ in odd)])


def extreme_float(words: list[int], op, keeps_nan: bool) -> int:
    """min or max of words of f32. -0 is less than 0; a NaN gives way or, with .NaN, does not."""
    numbers = [word for word in words if word & 0x7FFFFFFF <= 0x7F800000]
    if not numbers or (keeps_nan and len(numbers) < len(words)):
        return 0x7FFFFFFF
    return op(numbers, key=lambda w: (struct.unpack("f", struct.pack("I", w))[0], not w >> 31))


PREDICATE = "{{ .reg .pred p, q; setp.ne.u32 p, %2, 0; {vote}; {put} mov.u32 %1, 0; }}"
for mask in (FULL, SOME):
    lanes = of_mask(mask)
    ballot = bits(lane for lane in lanes if few[lane])
    for form, word in (("p", ballot), ("!p", mask & ~ballot)):
        text = PREDICATE.format(vote=f"vote.sync.ballot.b32 %0, {form}, {mask}", put="")
        warp_case(text, lambda i, x, y, word=word: (word, 0), mask=mask, x=few)
    for values in (few, [1] * 32, [0] * 32):
        all_, any_ = all(values[i] for i in lanes), any(values[i] for i in lanes)
        for op, result in [("all", all_), ("any", any_), ("uni", all_ or not any_)]:
            text = PREDICATE.format(
                vote=f"vote.sync.{op}.pred q, p, {mask}", put="selp.u32 %0, 1, 0, q;"
            )
            warp_case(text, lambda i, x, y, r=result: (int(r), 0), mask=mask, x=values)
    text = f"match.any.sync.b32 %0, %2, {mask}; mov.u32 %1, 0;"

    def alike(i, x, y, lanes=lanes):
        return bits(j for j in lanes if x[j] == x[i]), 0

    warp_case(text, alike, mask=mask, x=few)
    text = (
        f"{{ .reg .u64 w; cvt.u64.u32 w, %2; shl.b64 w, w, 33; match.any.sync.b64 %0, w, {mask}; "
        "mov.u32 %1, 0; }"
    )
    warp_case(text, alike, mask=mask, x=few)
    for bits_, values in itertools.product((32, 64), (few, [7] * 32)):
        same = mask if len({values[i] for i in lanes}) == 1 else 0
        text = (
            f"{{ .reg .pred p; .reg .u64 w; cvt.u64.u32 w, %2; .reg .u32 v; mov.u32 v, %2; "
            f"match.all.sync.b{bits_} %0|p, {'v' if bits_ == 32 else 'w'}, {mask}; "
            "selp.u32 %1, 1, 0, p; }"
        )
        warp_case(text, lambda i, x, y, s=same: (s, int(s != 0)), mask=mask, x=values)
    for op, kind in itertools.product(("add", "min", "max"), ("u32", "s32")):

        def reduced(i, x, y, op=op, kind=kind, lanes=lanes):
            values = [signed(x[j], 32) if kind == "s32" else x[j] for j in lanes]
            return {"add": sum, "min": min, "max": max}[op](values) & FULL, 0

        warp_case(f"redux.sync.{op}.{kind} %0, %2, {mask}; mov.u32 %1, 0;", reduced, mask=mask)
    if "cuda" not in TARGETS:  # an instruction of compute capability 10.0
        some_are_nan = [random_float() for _ in LANES]
        values = [some_are_nan, [0x7FC00001] * 32, [0x80000000, 0] * 16]
        for op, abs_, nan, x in itertools.product(("min", "max"), (0, 1), (0, 1), values):
            words = [x[i] & 0x7FFFFFFF if abs_ else x[i] for i in lanes]
            result = extreme_float(words, {"min": min, "max": max}[op], nan)
            name = f"redux.sync.{op}{'.abs' * abs_}{'.NaN' * nan}.f32"
            text = f"{name} %0, %2, {mask}; mov.u32 %1, 0;"
            warp_case(text, lambda i, x, y, r=result: (r, 0), mask=mask, x=x)
    for op in ("and", "or", "xor"):

        def logical(i, x, y, op=op, lanes=lanes):
            word = x[lanes[0]]
            for j in lanes[1:]:
                word = combined(op, "b32", word, x[j])
            return word, 0

        warp_case(f"redux.sync.{op}.b32 %0, %2, {mask}; mov.u32 %1, 0;", logical, mask=mask)
    warp_case(
        f"{{ .reg .pred p; elect.sync %0|p, {mask}; selp.u32 %1, 1, 0, p; }}",
        lambda i, x, y, lanes=lanes: (lanes[0], int(i == lanes[0])),
        mask=mask,
    )
    warp_case(
        f"{{ .reg .pred p; elect.sync _|p, {mask}; selp.u32 %1, 1, 0, p; mov.u32 %0, 3; }}",
        lambda i, x, y, lanes=lanes: (3, int(i == lanes[0])),
        mask=mask,
    )
    warp_case(
        f"bar.warp.sync {mask}; mov.u32 %0, %2; mov.u32 %1, 4;", lambda i, x, y: (x[i], 4), mask
    )
warp_case("activemask.b32 %0; mov.u32 %1, 0;", lambda i, x, y: (FULL, 0))

# ---- Barriers with numbers

SYNCS = [  # %0: the number of a pair's barrier; %1: its threads
    "bar.sync %0, %1;",
    "bar.cta.sync %0, %1;",
    "barrier.sync %0, %1;",
    "barrier.sync.aligned %0, 64;",
    "barrier.cta.sync %0, %1;",
    "barrier.cta.sync.aligned %0, %1;",
    "bar.sync 0;",
    "bar.cta.sync 15;",
    "barrier.sync.aligned 7;",
    "barrier.cta.sync 0, 128;",
]
VOTES = [  # what comes of p
    "bar.red.popc.u32 %0, 0, p;",
    "bar.red.and.pred q, 0, p; selp.u32 %0, 1, 0, q;",
    "bar.cta.red.or.pred q, 0, !p; selp.u32 %0, 1, 0, q;",
    "barrier.red.popc.u32 %0, %2, 64, !p;",
    "barrier.cta.red.and.aligned.pred q, %2, 64, p; selp.u32 %0, 1, 0, q;",
    "barrier.red.or.pred q, %2, 64, p; selp.u32 %0, 1, 0, q;",
    "barrier.red.and.pred q, %2, 64, !p; selp.u32 %0, 1, 0, q;",
    "bar.red.or.pred q, 4, 128, p; selp.u32 %0, 1, 0, q;",
]


def barriers() -> list[str]:
    """Pairs of warps, or all, put down what others read; and they vote."""
    lines = ["__global__ void pairs(int* y) {", "__shared__ int values[128];"]
    lines.append("int sum = 0; const int id = 3 + threadIdx.x / 64, count = 64;")
    for number, text in enumerate(SYNCS, 1):
        statement = f'asm volatile("{text}" :: "r"(id), "r"(count) : "memory");'
        lines.append(f"values[threadIdx.x] = {1000 * number} + threadIdx.x; {statement}")
        lines.append(f"sum += values[threadIdx.x ^ 32]; {statement}")
    lines += ["y[threadIdx.x] = sum;", "}", 'extern "C" cudaError_t run_pairs(int* y) {']
    lines += ["pairs<<<1, 128>>>(y);", "return cudaGetLastError();", "}"]
    lines += ["__global__ void votes(int* y, const int* x) {", "int d;"]
    lines.append("const int vote = x[threadIdx.x], id = 1 + threadIdx.x / 64;")
    for number, text in enumerate(VOTES):
        whole = f"{{ .reg .pred p, q; setp.ne.u32 p, %1, 0; {text} }}"
        lines.append(f'asm volatile("{whole}" : "=r"(d) : "r"(vote), "r"(id) : "memory");')
        lines.append(f"y[8 * threadIdx.x + {number}] = d;")
    lines += ["}", 'extern "C" cudaError_t run_votes(int* y, const int* x) {']
    return [*lines, "votes<<<1, 128>>>(y, x);", "return cudaGetLastError();", "}"]


# ---- One build of all


def source(cases: list[tuple[int, Case]]) -> str:
    texts = list(dict.fromkeys((case.text, case.mask) for case in WARPS))
    lines = [
        "#include <stdint.h>",
        "__global__ void one(const uint64_t* all, uint64_t* y, const int* which,",
        "uint32_t* memory) {",
        "__shared__ __align__(128) uint32_t s[16];",
        "uint32_t* g = memory + 16 * blockIdx.x;",
        "uint64_t v[8], *d = y + 8 * blockIdx.x;",
        "const uint32_t a = uint32_t(__cvta_generic_to_shared(s));",
        "for (int i = 0; i < 16; i++) s[i] = g[i];",
        "for (int i = 0; i < 8; i++) {",
        "    v[i] = all[8 * blockIdx.x + i];",
        f"    if (v[i] == {SHARED_ADDRESS}) v[i] = a;",
        f"    if (v[i] == {DISCARDED}) v[i] = uint64_t(y) - uint64_t(y) % 128 + (1 << 20);",
        "}",
        "switch (which[blockIdx.x]) {",
        *(f"case {i}: {{ {case.cpp()} break; }}" for i, case in cases),
        "}",
        "}",
        'extern "C" cudaError_t run_one(const int64_t* x, int64_t* y, const int* which,',
        "int* memory, int n) {",
        "one<<<n, 1>>>((const uint64_t*)x, (uint64_t*)y, which, (uint32_t*)memory);",
        "return cudaGetLastError();",
        "}",
        "__global__ void warp(const uint32_t* x, uint32_t* z, const int* which, int n) {",
        "const int i = threadIdx.x + 32 * blockIdx.x;",
        "const uint32_t a = x[i], b = x[32 * n + i];",
        "uint32_t d = 0, p = 0;",
        "switch (which[blockIdx.x]) {",
    ]
    for number, (text, mask) in enumerate(texts):
        statement = f'asm volatile("{text}" : "=r"(d), "=r"(p) : "r"(a), "r"(b) : "memory");'
        guard = "" if mask == FULL else f"if ({mask:#x}u >> threadIdx.x & 1) "
        lines.append(f"case {number}: {{ {guard}{statement} break; }}")
    return "\n".join(
        [
            *lines,
            "}",
            "z[2 * i] = d;",
            "z[2 * i + 1] = p;",
            "}",
            'extern "C" cudaError_t run_warp(const int* x, int* z, const int* which, int n) {',
            "warp<<<n, 32>>>((const uint32_t*)x, (uint32_t*)z, which, n);",
            "return cudaGetLastError();",
            "}",
            *barriers(),
            (SOURCES / "ptx_memory.cu").read_text(),
        ]
    )


@pytest.fixture(scope="module", params=TARGETS)
def built(request, tmp_path_factory):
    target = request.param
    with for_hopper(target):
        cases = [(i, c) for i, c in enumerate(CASES) if target == "cpu" or not c.is_late]
        path = tmp_path_factory.mktemp("ptx") / "ptx_memory.cu"
        path.write_text(source(cases))
        kernels = Kernels("ptx_memory", target, source=path)
        kernels.cases = cases
        yield kernels


def padded(words) -> list[int]:
    return [signed(word, 64) for word in (*words, *[0] * WORDS)[:WORDS]]


@pytest.fixture(scope="module")
def results(built):
    """Of each case's number: rows, each with the results and the memory after it."""
    rows = [(i, row) for i, case in built.cases for row in case.rows]
    x = built.tensor([padded(row.values) for _, row in rows], dtype=torch.int64)
    # As large as what `discard` is given, far behind the results.
    y = built.zeros((1 << 21) // 8, dtype=torch.int64)
    assert len(rows) * WORDS * 8 < 1 << 20
    before = np.frombuffer(b"".join(row.before for _, row in rows), np.int32)
    memory = built.tensor(before.copy())
    built.one(x, y, built.tensor([i for i, _ in rows]), memory, len(rows))
    words = y[: WORDS * len(rows)].cpu().numpy().view(np.uint64).reshape(-1, WORDS)
    after = memory.cpu().numpy().tobytes()
    found: dict[int, list[tuple[Row, tuple[int, ...], bytes]]] = {}
    for number, (i, row) in enumerate(rows):
        got = tuple(int(word) for word in words[number, : len(row.outputs)])
        held = after[number * BYTES : (number + 1) * BYTES]
        found.setdefault(i, []).append((row, got, held))
    return found


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case.named[:80] for case in CASES])
def test_instruction(results, number):
    if number not in results:
        pytest.skip("not for Hopper")
    for row, got, held in results[number]:
        told = f"{CASES[number].named}, of {row.values} and {row.before.hex(' ', 4)}"
        assert [hex(word) for word in got] == [hex(word) for word in row.outputs], told
        assert held.hex(" ", 4) == row.after.hex(" ", 4), told


@pytest.fixture(scope="module")
def of_warps(built):
    texts = list(dict.fromkeys((case.text, case.mask) for case in WARPS))
    words = [[case.x for case in WARPS], [case.y for case in WARPS]]
    x = built.tensor([[[signed(w, 32) for w in row] for row in each] for each in words])
    z = built.zeros(len(WARPS), 32, 2)
    which = built.tensor([texts.index((case.text, case.mask)) for case in WARPS])
    built.warp(x, z, which, len(WARPS))
    return z.cpu().numpy().view(np.uint32).tolist()


@pytest.mark.parametrize("number", range(len(WARPS)), ids=[case.text[:70] for case in WARPS])
def test_lanes(of_warps, number):
    case = WARPS[number]
    got = [
        None if expected is None else tuple(pair)
        for pair, expected in zip(of_warps[number], case.expected, strict=True)
    ]
    assert got == case.expected, case.text


# ---- Several warps


def test_atomic_operations_of_many_threads(built):
    y = built.zeros(6)
    built.counters(y, 5, 128)
    total = 5 * sum(range(128))
    assert y.tolist() == [total, 5 * 128 % 10, 0, total, 5 * (128 % 10), 5 * 128]


def test_a_message_from_warp_to_warp(built):
    y = built.zeros(3)
    built.messages(y, built.zeros(2))
    assert y.tolist() == [11, 22, 33]


def test_producers_and_consumers(built):
    y = built.zeros(7, 64)
    built.produces(y, 7)
    assert y.tolist() == [[100 * k + 63 - i for i in range(64)] for k in range(7)]


def test_pairs_of_warps_meet(built):
    y = built.zeros(128)
    built.pairs(y)
    assert y.tolist() == [
        sum(1000 * k + (i ^ 32) for k in range(1, len(SYNCS) + 1)) for i in range(128)
    ]


@pytest.mark.parametrize("votes", ["some", "all", "none", "one"])
def test_votes_of_blocks_and_of_pairs(built, votes):
    choose = {"some": lambda i: i % 3 == 0 or i > 90, "one": lambda i: i == 70}
    x = [int(choose.get(votes, lambda i: votes == "all")(i)) for i in range(128)]
    y = built.zeros(128, 8)
    built.votes(y, built.tensor(x))
    for i, row in enumerate(y.tolist()):
        pair = x[i // 64 * 64 : i // 64 * 64 + 64]
        of_block = [sum(x), all(x), not all(x)]
        of_pair = [64 - sum(pair), all(pair), any(pair), not any(pair)]
        assert row == [int(v) for v in (*of_block, *of_pair, any(x))]


def test_threads_that_return_count_with_their_warp(built):
    y = built.zeros(80)
    built.leaves(y)
    total = sum(i for i in range(80) if i < 8 or i >= 32)
    expected = [total if i < 8 else 0 if i < 32 else total + 100 * (i % 2 == 0) for i in range(80)]
    assert y.tolist() == expected
