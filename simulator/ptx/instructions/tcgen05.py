"""tcgen05: tensor memory, and the products of compute capability 10.0 that are summed there."""

from __future__ import annotations

import re
from collections.abc import Iterable

from simulator.ptx.instructions.matrices import array
from simulator.ptx.language import NotPtx, Operand
from simulator.ptx.rules import CTA_GROUP, Rule, Use

# For each shape of a load or store: its C++ name, and the registers of one repetition.
_SHAPES = {
    "32x32b": ("Lanes32x32", 1),
    "16x64b": ("Lanes16x64", 1),
    "16x128b": ("Lanes16x128", 2),
    "16x256b": ("Lanes16x256", 4),
    "16x32bx2": ("Lanes16x32x2", 1),
}


def _shape(use: Use, registers: int, operands: int = 2) -> str:
    """The shape as an argument. registers: the index of the operand that is loaded or stored.
    operands: how many there are besides a split.

    Raises: NotPtx if the number of registers or operands is wrong.
    """
    name, each = _SHAPES[use.groups["shape"]]
    count, there = int(use.groups["num"]) * each, len(use.vector(registers))
    if count > 128 or there != count:
        raise NotPtx(
            f"{use.instruction.mnemonic} has {count} registers of at most 128, and here {there}"
        )
    if use.operand(registers).kind != "vector":
        raise NotPtx(f"{use.instruction.text}: its registers stand in braces")
    if len(use) != operands + (use.groups["shape"] == "16x32bx2"):
        raise NotPtx(f"{use.instruction.text}: it has another number of operands")
    return f"$Shape_{name}, {'true' if use.groups.get('packed') else 'false'}"


def _split(use: Use, index: int) -> str:
    return use[index] if use.groups["shape"] == "16x32bx2" else "0"


def _waits(use: Use, operands: Iterable[Operand]) -> str:
    """Whether a later instruction waits for a load, as an argument: registers that the statement
    declares end with it."""
    waits = any(mnemonic.startswith("tcgen05.wait::ld") for mnemonic in use.later)
    parts = [part for each in operands for part in (each.parts or (each,))]
    return "true" if waits or all(part.kind == "operand" for part in parts) else "false"


def _places(registers: Iterable[str]) -> str:
    places = ", ".join(f"&{register}" for register in registers)
    return f"void* const simulator_registers[] = {{{places}}};"


def _load(use: Use) -> str:
    """`registers, [address]{, split}`."""
    targets = use.vector(0)
    shape, split = _shape(use, 0), _split(use, 2)
    late = _waits(use, [use.operand(0)])
    return (
        f"{{ {_places(targets)}"
        f" $tensor_load({shape}, {late}, {use[1]}, {split}, simulator_registers); }}"
    )


def _load_reduced(use: Use) -> str:
    """`registers, result, [address]{, split}`."""
    targets, groups = use.vector(0), use.groups
    shape, split = _shape(use, 0, operands=3), _split(use, 3)
    late = _waits(use, [use.operand(0), use.operand(1)])
    if kind := groups.get("integer"):
        function = f"{'greater' if groups['op'] == 'max' else 'lesser'}<${kind}>"
    else:
        is_greatest, keeps_nan = (
            "true" if it else "false" for it in (groups["op"] == "max", groups["nan"])
        )
        function = f"extreme<$f32, {is_greatest}, {keeps_nan}>"
    kept = "0x7fffffffu" if groups.get("abs") else "~0u"
    return (
        f"{{ {_places([*targets, use[1]])} $tensor_load_reduced<${function}>({shape}, {late},"
        f" {use[2]}, {split}, {kept}, simulator_registers); }}"
    )


def _store(use: Use) -> str:
    """`[address]{, split}, registers`."""
    values = use.vector(-1)
    code = array("simulator_values", values, "uint32_t")
    shape = _shape(use, -1)
    return f"{{ {code}$tensor_store({shape}, {use[0]}, {_split(use, 1)}, simulator_values); }}"


# The members of the simulator's TensorOperation, in their order, after its kind.
_MEMBERS = re.findall(
    r"\w+",
    """
    blocks to a b a_in_memory product instruction accumulates scale disabled scales scales_of_a
    scales_of_b is_sparse metadata is_stationary zero_columns shifts_a lanes bytes quarters
    unpacking
    """,
)


def _operation(kind: str, members: dict[str, str]) -> str:
    values = ", ".join(members.pop(name, "{}") for name in _MEMBERS)
    assert not members, members
    return f"$tensor_operation($TensorOperation{{$TensorOperation_{kind}, {values}}});"


def _array(values: Iterable[object]) -> str:
    return "{" + ", ".join(map(str, values)) + "}"


# For each kind with scales: the scales per row, by scale vector name; the first is the default.
_VECTORS = {
    "mxf8f6f4": {"scale_vec::1X": 1, "block32": 1},
    "mxf4": {"scale_vec::2X": 2, "block32": 2},
    "mxf4nvf4": {"scale_vec::2X": 2, "block32": 2, "scale_vec::4X": 4, "block16": 4},
}


def _product_fields(use: Use) -> tuple[dict[str, str], int]:
    """`[d], a, b{, [metadata]}, instruction`; a or `[a]`. Also returns their number of operands."""
    groups, in_memory = use.groups, use.operand(1).kind == "address"
    fields = {
        "blocks": f"uint8_t({groups.get('cta') or 1})",
        "to": use[0],
        "a_in_memory": "true" if in_memory else "false",
        "a": use[1],
        "b": use[2],
        "product": f"$ProductKind_{groups['kind'].upper()}",
    }
    at = 3
    if groups["sparse"]:
        if use.operand(at).kind != "address":
            raise NotPtx(f"{use.instruction.text}, which has the address of its metadata in []")
        fields |= {"is_sparse": "true", "metadata": use[at]}
        at += 1
    flags = groups["flags"] or ""
    if ".ashift" in flags:
        if not in_memory or re.search("::(fill|use)", flags):
            raise NotPtx(
                f"{use.instruction.text}: .ashift is for A in tensor memory, and goes neither with"
                " .collector::a::fill nor with ::use"
            )
        fields["shifts_a"] = "true"
    return fields | {"instruction": use[at]}, at + 1


def _product(use: Use) -> str:
    """`[d], a, b{, [metadata]}, instruction{, {disabled lanes}}, accumulates{, scale}`."""
    fields, at = _product_fields(use)
    if use.operand(at).kind == "vector":
        lanes, blocks = use.vector(at), use.groups["cta"]
        if len(lanes) not in ({"1": (4,), "2": (8,)}.get(blocks, (4, 8))):
            raise NotPtx(f"{len(lanes)} masks of disabled lanes in {use.instruction.text}")
        fields["disabled"] = _array(lanes)
        at += 1
    fields["accumulates"] = f"bool({use[at]})"
    if len(use) > at + 1:
        if use.groups["kind"] not in ("f16", "tf32", "i8"):
            raise NotPtx(f"scale-input-d of {use.instruction.mnemonic}")
        if use.groups["kind"] != "i8":  # for which ptxas assembles the same without it
            fields["scale"] = f"uint8_t({use[at + 1]})"
    return _operation("Product", fields)


def _stationary_product(use: Use) -> str:
    """`[d], a, b{, [metadata]}, instruction, accumulates{, zero columns}`."""
    fields, at = _product_fields(use)
    fields |= {"is_stationary": "true", "accumulates": f"bool({use[at]})"}
    if len(use) > at + 1:
        fields["zero_columns"] = f"uint64_t({use[at + 1]})"
    return _operation("Product", fields)


def _scaled_product(use: Use) -> str:
    """`[d], a, b{, [metadata]}, instruction, [scales of a], [scales of b], accumulates`."""
    kind, found = use.groups["kind"], re.findall(r"scale_vec::\dX|block\d+", use.groups["flags"])
    if not found and kind == "mxf4nvf4":
        raise NotPtx(f"{use.instruction.mnemonic}, which says scale_vec::2X or scale_vec::4X")
    count = _VECTORS[kind].get(found[0] if found else next(iter(_VECTORS[kind])))
    fields, at = _product_fields(use)
    if count is None or len(found) > 1 or len(use) != at + 3:
        raise NotPtx(use.instruction.mnemonic)
    fields |= {"scales": str(count), "scales_of_a": use[at], "scales_of_b": use[at + 1]}
    return _operation("Product", fields | {"accumulates": f"bool({use[at + 2]})"})


# By a copy's shape: lanes, bytes, and the lane at which each quarter of the memory begins.
# For 4 lanes, each quarter is one lane high: only the first lane of each quarter has data.
_COPIES = {
    "4x256b": (4, 32, (0, 1, 2, 3)),
    "128x256b": (128, 32, (0, 32, 64, 96)),
    "128x128b": (128, 16, (0, 32, 64, 96)),
    "64x128b.warpx2::02_13": (64, 16, (0, 32, 0, 32)),
    "64x128b.warpx2::01_23": (64, 16, (0, 0, 32, 32)),
    "32x128b.warpx4": (32, 16, (0, 0, 0, 0)),
}


def _copy(use: Use) -> str:
    lanes, size, quarters = _COPIES[use.groups["shape"]]
    fields = {"blocks": f"uint8_t({use.groups['cta']})", "to": use[0], "b": use[1]}
    unpacking = {None: "None", "6x16_p32": "From6Bits", "4x16_p64": "From4Bits"}[use.groups["from"]]
    fields |= {"lanes": str(lanes), "bytes": str(size), "unpacking": f"$Unpacking_{unpacking}"}
    fields["quarters"] = _array(quarters)
    return _operation("Copy", fields)


def _shift(use: Use) -> str:
    return _operation("Shift", {"blocks": f"uint8_t({use.groups['cta']})", "to": use[0]})


def _commit(use: Use) -> str:
    mask = f"uint16_t({use[1]})" if use.groups["multicast"] else "0"
    return f"$tensor_commit({use[0]}, {mask}, {use.groups['cta']});"


def _alloc(use: Use) -> str:
    to = f"${'shared' if use.groups['space'] else 'pointer_or_shared'}({use[0]})"
    return f"$tensor_alloc({to}, {use[1]}, {use.groups['cta']});"


def _dealloc(use: Use) -> str:
    return f"$tensor_dealloc({use[0]}, {use[1]}, {use.groups['cta']});"


def _fence(use: Use) -> str:
    is_before = "true" if use.groups["kind"] == "before" else "false"
    return f"$tensor_fence({is_before});"


_ALIGNED = r"\.sync\.aligned"
_SHAPE = rf"\.(?P<shape>{'|'.join(_SHAPES)})\.x(?P<num>1|2|4|8|16|32|64|128)"
_REDUCED = r"\.(?P<shape>32x32b|16x32bx2)\.x(?P<num>2|4|8|16|32|64|128)"
_COPY = "|".join(shape.replace(".", r"\.") for shape in _COPIES)
_USAGE = r"(?:fill|use|lastuse|discard)"
_COLLECTOR = rf"\.collector::a::{_USAGE}"
_SPARSE = r"(?P<sparse>\.sp)?"
_H = "tcgen05.h"

RULES = [
    Rule(rf"tcgen05\.alloc{CTA_GROUP}{_ALIGNED}(?P<space>\.shared::cta)?\.b32", _alloc, _H),
    Rule(rf"tcgen05\.dealloc{CTA_GROUP}{_ALIGNED}\.b32", _dealloc, _H),
    Rule(rf"tcgen05\.relinquish_alloc_permit{CTA_GROUP}{_ALIGNED}", "$tensor_relinquish();", _H),
    Rule(rf"tcgen05\.ld{_ALIGNED}{_SHAPE}(?P<packed>\.pack::16b)?\.b32", _load, _H),
    Rule(
        rf"tcgen05\.ld\.red{_ALIGNED}{_REDUCED}\.(?P<op>min|max)(?P<abs>\.abs)?(?P<nan>\.NaN)?\.f32",
        _load_reduced,
        "tcgen05_ld_red.h",
    ),
    Rule(
        rf"tcgen05\.ld\.red{_ALIGNED}{_REDUCED}\.(?P<op>min|max)\.(?P<integer>[us]32)",
        _load_reduced,
        "tcgen05_ld_red.h",
    ),
    Rule(rf"tcgen05\.st{_ALIGNED}{_SHAPE}(?P<packed>\.unpack::16b)?\.b32", _store, _H),
    Rule(rf"tcgen05\.wait::ld{_ALIGNED}", "$tensor_wait(false);", _H),
    Rule(rf"tcgen05\.wait::st{_ALIGNED}", "$tensor_wait(true);", _H),
    Rule(
        rf"tcgen05\.mma{_SPARSE}{CTA_GROUP}\.kind::(?P<kind>f16|tf32|f8f6f4|i8)"
        rf"(?P<flags>(?:{_COLLECTOR})?(?:\.ashift)?|\.ashift{_COLLECTOR})",
        _product,
        _H,
    ),
    Rule(
        rf"tcgen05\.mma\.ws{_SPARSE}\.cta_group::1\.kind::(?P<kind>f16|tf32|f8f6f4|i8)"
        rf"(?P<flags>\.collector::b[0-3]::{_USAGE})?",
        _stationary_product,
        _H,
    ),
    Rule(
        rf"tcgen05\.mma{_SPARSE}{CTA_GROUP}\.kind::(?P<kind>mxf8f6f4|mxf4|mxf4nvf4)\.block_scale"
        rf"(?P<flags>(?:\.(?:scale_vec::[124]X|block16|block32)|{_COLLECTOR}){{0,2}})",
        _scaled_product,
        _H,
    ),
    Rule(
        rf"tcgen05\.cp{CTA_GROUP}\.(?P<shape>{_COPY})(?:\.b8x16\.b(?P<from>6x16_p32|4x16_p64))?",
        _copy,
        _H,
    ),
    Rule(rf"tcgen05\.shift{CTA_GROUP}\.down", _shift, _H),
    Rule(
        rf"tcgen05\.commit{CTA_GROUP}\.mbarrier::arrive::one(?P<space>\.shared::cluster)?"
        r"(?P<multicast>\.multicast::cluster)?\.b64",
        _commit,
        _H,
    ),
    Rule(
        r"tcgen05\.fence::(?P<kind>before|after)_thread_sync",
        lambda use: f"$tensor_fence({str(use.groups['kind'] == 'before').lower()});",
        _H,
    ),
]
