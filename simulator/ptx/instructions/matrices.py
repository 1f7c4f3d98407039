"""Matrices of a warp: ldmatrix, stmatrix, movmatrix, and mma.sync."""

from __future__ import annotations

import re

from simulator.ptx.language import NotPtx
from simulator.ptx.rules import Rule, Use

_MATRICES = r"(?P<rest>(?:\.(?:sync|aligned|m\d+n\d+|x[124]|trans|shared(?:::cta)?|b\w+))+)"
# For each shape: a lane's registers for one matrix, whether it is transposed (None: either), and
# the bits that an element of each type takes in memory.
_PACKED = {"b8x16.b6x16_p32": 6, "b8x16.b4x16_p64": 4}
_LOADED = {"m8n8": (1, None, {"b16": 16}), "m8n16": (1, False, _PACKED)}
_LOADED["m16n16"] = (2, True, {"b8": 8, **_PACKED})
_STORED = {"m8n8": (1, None, {"b16": 16}), "m16n8": (1, True, {"b8": 8})}


def _template(use: Use, shapes: dict, registers: int) -> str:
    """The template arguments: registers per lane, whether transposed, bits per element."""
    words = use.groups["rest"].split(".")
    shape = next((word for word in words if word in shapes), "")
    count = next((int(word[1]) for word in words if re.fullmatch("x[124]", word)), 0)
    if not ({"sync", "aligned"} <= set(words) and shape):
        raise NotPtx(use.instruction.mnemonic)
    if count == 0:
        raise NotPtx(f"{use.instruction.mnemonic}, which says x1, x2 or x4")
    each, transposed, types = shapes[shape]
    bits = types.get(".".join(word for word in words if re.fullmatch(r"b\d\w*", word)))
    is_transposed = "trans" in words
    if bits is None or count * each > 4 or transposed not in (None, is_transposed):
        raise NotPtx(use.instruction.mnemonic)
    if registers != count * each:
        raise NotPtx(f"{registers} registers in {use.instruction.text}")
    return f"<{registers}, {'true' if is_transposed else 'false'}, {bits}>"


def _load(use: Use) -> str:
    targets = use.vector(0)
    how = _template(use, _LOADED, len(targets))
    code = f"{{ const auto simulator_rows = $load_matrices{how}({use[1]}); "
    code += "".join(f"{t} = $word_of(simulator_rows, {i}); " for i, t in enumerate(targets))
    return code + "}"


def _store(use: Use) -> str:
    values = use.vector(1)
    how = _template(use, _STORED, len(values))
    code = "{ $MatrixRows simulator_rows; "
    code += "".join(f"$word_of(simulator_rows, {i}) = {value}; " for i, value in enumerate(values))
    return code + f"$store_matrices{how}({use[0]}, simulator_rows); }}"


_BITS = {"b1": 1, "s4": 4, "u4": 4, "f64": 64, "tf32": 32, "f16": 16, "bf16": 16}
# The tile sizes (m, k) that PTX has, by the bits of an element.
_TILES = {
    1: {(8, 128), (16, 128), (16, 256)},
    4: {(8, 32), (16, 32), (16, 64)},
    8: {(8, 16), (16, 16), (16, 32)},
    16: {(8, 4), (16, 8), (16, 16)},
    32: {(16, 4), (16, 8)},
    64: {(8, 4), (16, 4), (16, 8), (16, 16)},
}


# The same for a sparse A, where m is 16.
_SPARSE_K = {4: (64, 128), 8: (32, 64), 16: (16, 32), 32: (8, 16)}


def array(name: str, values: list[str], word: str) -> str:
    return f"{word} {name}[] = {{{', '.join(f'{word}({value})' for value in values)}}}; "


def _mma(use: Use) -> str:
    groups = use.groups
    a, b, d = groups["a"], groups["b"], groups["d"]
    m, k, sparse = int(groups["m"]), int(groups["k"]), bool(groups.get("sparse"))
    has_kind = "kind" in groups  # of compute capability 12.0
    bits = _BITS.get(a, 8)
    eight = a.startswith("e")
    if sparse:
        exists = m == 16 and k in _SPARSE_K.get(bits, ()) and not (eight and k != 64)
        exists = exists and not groups.get("bits")
    else:
        exists = (m, k) in _TILES[bits]
    result = {"f": ("f16", "f32"), "b": ("f32", "s32"), "t": ("f32",), "e": ("f16", "f32")}
    allowed = ("f64",) if a == "f64" else ("s32",) if a[0] in "su" else result[a[0]]
    if (
        not exists
        or _BITS.get(b, 8) != bits
        or (b != a and not (eight or a[0] in "su"))
        or d not in allowed
        or groups["c"] != d
        or (m == 8 and (eight or a == "bf16"))
        or (a == "bf16" and d != "f32")
        or ((groups["x"], groups["y"]) != ("row", "col") and not (a == "f16" and k == 4))
    ):
        raise NotPtx(use.instruction.mnemonic)
    word = "uint64_t" if a == "f64" else "uint32_t"
    k_of_a = k // 2 if sparse else k
    names = [eight_bit_type(each) if eight else f"$Type_{each.upper()}" for each in (a, b)]
    types = ", ".join([*names, f"$Type_{d.upper()}"])
    sum_ = "Blackwell" if has_kind else "TwoHalves" if eight else "Exact25"
    flags = [
        f"$Sum_{sum_}",
        "true" if groups.get("satfinite") else "false",
        "true" if groups.get("bits") == ".and.popc" else "false",
        "1, 1",
        "true" if groups["x"] == "col" else "false",
        "true" if groups["y"] == "row" else "false",
    ]
    vectors = [use.vector(index) for index in range(4)]
    rows = m // 8
    of_a, units = (each * bits // (4 * (64 if bits == 64 else 32)) for each in (k_of_a, k))
    of_d = rows * (1 if d == "f16" else 2)
    counts = [of_d, rows * of_a, units, of_d]
    if (m, k, bits) == (8, 4, 16):
        counts = [4 if d == "f16" else 8, 2, 2, 4 if d == "f16" else 8]
    if [len(vector) for vector in vectors] != counts:
        raise NotPtx(
            f"{use.instruction.mnemonic} has {', '.join(map(str, counts))} registers, and here"
            f" {', '.join(str(len(vector)) for vector in vectors)}"
        )
    code = "{ "
    for name, vector in zip("abd", (vectors[1], vectors[2], vectors[3]), strict=True):
        code += array(f"simulator_of_{name}", vector, word)
    tile = ", ".join([types, str(m), "8", str(k_of_a), *flags])
    code += f"static constexpr $Tile simulator_tile{{{tile}}}; "
    given = "simulator_tile, simulator_of_a, simulator_of_b, simulator_of_d"
    if sparse:
        words = k_of_a * bits // (8 * max(8, min(bits, 16)))  # of metadata, of four lanes
        code += f"$mma_sparse({given}, {use[4]}, {use[5]}, {4 // words}); "
    else:
        code += f"$mma({given}); "
    code += "".join(f"{t} = simulator_of_d[{i}]; " for i, t in enumerate(vectors[0]))
    return code + "}"


# For each kind: k, and the scale types that ptxas accepts for each scale vector size.
_SCALED = {
    "mxf8f6f4": (32, {"1X": ("ue8m0",)}),
    "mxf4": (64, {"2X": ("ue8m0",)}),
    "mxf4nvf4": (64, {"2X": ("ue8m0",), "4X": ("ue4m3",)}),
}


def eight_bit_type(name: str) -> str:
    """The simulator's type for a float that is stored in one byte."""
    return "$Type_" + ("ByteE2M1" if name == "e2m1" else name.upper())


def _mma_scaled(use: Use) -> str:
    """`d, a, b, c{, metadata, 0}, scale-a, {byte, lanes}, scale-b, {byte, lane}`."""
    groups = use.groups
    is_sparse = groups["sparse"] is not None
    kind, k = groups["kind"], int(groups["k"]) // (2 if is_sparse else 1)
    of_kind, sizes = _SCALED[kind]
    size = groups["vec"] or (None if len(sizes) > 1 else next(iter(sizes)))
    is_packed = kind != "mxf8f6f4"
    if (
        k != of_kind
        or groups["scale"] not in sizes.get(size, ())
        or (is_packed and {groups["a"], groups["b"]} != {"e2m1"})
    ):
        raise NotPtx(use.instruction.mnemonic)
    at = 6 if is_sparse else 4
    vectors = [use.vector(index) for index in (*range(4), *range(at, at + 4))]
    counts = [len(vector) for vector in vectors]
    if is_sparse and use[5] != "0":
        raise NotPtx(f"the sparsity selector of {use.instruction.mnemonic} is 0")
    if counts != [4, 4, 4 if is_sparse else 2, 4, 1, 2, 1, 2]:
        raise NotPtx(f"{', '.join(map(str, counts))} registers in {use.instruction.mnemonic}")
    types = ["$Type_E2M1" if is_packed else eight_bit_type(groups[name]) for name in "ab"]
    code = "{ "
    for name, vector in zip("abd", vectors[1:4], strict=True):
        code += array(f"simulator_of_{name}", vector, "uint32_t")
    code += "static constexpr $Tile simulator_tile{"
    code += f"{', '.join(types)}, $Type_F32, 16, 8, {k}}}; "
    is_ue4m3 = "true" if groups["scale"] == "ue4m3" else "false"
    scales = ", ".join(value for vector in vectors[4:] for value in vector)
    code += "$mma_scaled(simulator_tile, simulator_of_a, simulator_of_b, simulator_of_d,"
    metadata = f"true, {use[4]}" if is_sparse else "false, 0"
    code += f" {{{is_ue4m3}, {size[0]}}}, {scales}, {metadata}); "
    code += "".join(f"{t} = simulator_of_d[{i}]; " for i, t in enumerate(vectors[0]))
    return code + "}"


_SMALL = "e4m3|e5m2|e2m3|e3m2|e2m1"
_SPARSE = r"mma(?P<sparse>\.sp::ordered_metadata)?\.sync\.aligned"


RULES = [
    Rule(rf"ldmatrix{_MATRICES}", _load, "matrices.h"),
    Rule(rf"stmatrix{_MATRICES}", _store, "matrices.h"),
    Rule(
        r"movmatrix\.sync\.aligned\.m8n8\.trans\.b16", "{0} = $transpose_matrix({1});", "matrices.h"
    ),
    Rule(
        r"mma(?P<sparse>\.sp(?:::ordered_metadata)?)?\.sync\.aligned"
        r"\.m(?P<m>8|16)n8k(?P<k>\d+)\.(?P<x>row|col)\.(?P<y>row|col)"
        r"(?P<satfinite>\.satfinite)?\.(?P<d>f16|f32|f64|s32)"
        r"\.(?P<a>b1|[su][48]|f16|bf16|tf32|f64|e4m3|e5m2)\.(?P<b>b1|[su][48]|f16|bf16|tf32|f64|e4m3|e5m2)"
        r"\.(?P<c>f16|f32|f64|s32)(?P<bits>\.(?:xor|and)\.popc)?",
        _mma,
        "mma.h",
    ),
    Rule(
        rf"{_SPARSE}\.m(?P<m>16)n8k(?P<k>32|64)\.(?P<x>row)\.(?P<y>col)\.kind::(?P<kind>f8f6f4)"
        rf"\.(?P<d>f16|f32)\.(?P<a>{_SMALL})\.(?P<b>{_SMALL})\.(?P<c>f16|f32)",
        _mma,
        "mma.h",
    ),
    Rule(
        rf"{_SPARSE}\.m16n8k(?P<k>32|64|128)\.row\.col"
        r"\.kind::(?P<kind>mxf8f6f4|mxf4|mxf4nvf4)\.block_scale(?:\.scale_vec::(?P<vec>[124]X))?"
        rf"\.f32\.(?P<a>{_SMALL})\.(?P<b>{_SMALL})\.f32\.(?P<scale>ue8m0|ue4m3)",
        _mma_scaled,
        "mma.h",
    ),
]
