"""mbarrier, copies in bulk and of tensors, stores to the shared memory of other blocks."""

from __future__ import annotations

import re

from simulator.ptx.language import NotPtx
from simulator.ptx.rules import CTA_GROUP, Rule, Use

_SEM = r"(?:\.(?:release|acquire|relaxed))?(?:\.(?:cta|cluster))?"
_SHARED = r"(?P<space>\.shared(?:::cta|::cluster)?)?"


def _barrier(use: Use, index: int) -> str:
    function = "shared" if use.groups.get("space") else "pointer_or_shared"
    return f"${function}({use[index]})"


def _init(use: Use) -> str:
    return f"$mbarrier_init($barrier_at({_barrier(use, 0)}), {use[1]});"


def _arrive(function: str) -> object:
    """`state, [barrier], more`; there is no state if the barrier belongs to another block."""

    def code(use: Use) -> str:
        has_state = use.operand(0).kind != "address"
        at = int(has_state)
        more = "".join(f", {use[index]}" for index in range(at + 1, len(use)))
        call = f"${function}({_barrier(use, at)}{more});"
        is_narrow = "cta" in use.instruction.mnemonic.split(".")
        told = f"$narrow_arrival({_barrier(use, at)}); " if is_narrow else ""
        return told + (f"{use[0]} = {call}" if has_state else call)

    return code


def _simple(function: str) -> object:
    def code(use: Use) -> str:
        more = "".join(f", {use[index]}" for index in range(1, len(use)))
        return f"${function}({_barrier(use, 0)}{more});"

    return code


def _wait(use: Use) -> str:
    function = "wait" if use.groups["kind"] == "try_wait" else "test"
    by = "parity" if use.groups["parity"] else "state"
    barrier = f"$barrier_at({_barrier(use, 1)})"
    return f"{use[0]} = $mbarrier_{function}_{by}({barrier}, {use[2]});"


_TYPES = {
    "u32": "U32",
    "s32": "S32",
    "u64": "U64",
    "s64": "S64",
    "b32": "U32",
    "b64": "U64",
    "f16": "F16",
    "bf16": "BF16",
    "f32": "F32",
    "f64": "F64",
}


def _reduction(name: str | None) -> str:
    return f"$Reduction_{(name or 'none').capitalize()}"


def _tensor_type(name: str | None) -> str:
    return f"$TensorType_{_TYPES[name or 'u32']}"


def _mask(use: Use, index: int) -> str:
    """The mask of destination blocks: operand `index` with .multicast::cluster."""
    if not use.groups["multicast"]:
        return "0"
    if use.groups["to"] == "cta":
        raise NotPtx(f"{use.instruction.mnemonic}: .multicast::cluster goes with .shared::cluster")
    return use[index]


def _to_shared(use: Use) -> str:
    """`[to], [from], bytes, [barrier]{, mask}{, policy}`."""
    source = "generic" if use.groups["source"] == "global" else "shared"
    mask = _mask(use, 4)
    return f"$copy_bulk({use[0]}, ${source}({use[1]}), {use[2]}, {use[3]}, {mask});"


def _to_global(use: Use) -> str:
    """`[to], [from], bytes{, policy}{, mask}`."""
    groups = use.groups
    op, type_ = groups.get("op"), groups.get("type")
    hints, masks = bool(groups["hint"]), bool(groups.get("masked"))
    if len(use) != 3 + hints + masks:
        raise NotPtx(f"{use.instruction.text}: it has another number of operands")
    moving = f"uint16_t({use[-1]})" if masks else "0xffff"
    return (
        f"$copy_bulk_global($generic({use[0]}), $shared({use[1]}), {use[2]}, {_reduction(op)},"
        f" {_tensor_type(type_)}, {moving});"
    )


def _reduce_shared(use: Use) -> str:
    return (
        f"$reduce_bulk_shared({use[0]}, $shared({use[1]}), {use[2]}, {use[3]},"
        f" {_reduction(use.groups['op'])}, {_tensor_type(use.groups['type'])});"
    )


_MODES = {
    None: "Box",
    "gather4": "Rows",
    "scatter4": "Rows",
    "im2col": "Im2col",
    "im2col_no_offs": "Im2col",
    "im2col::w": "Im2colWide",
    "im2col::w::128": "Im2colWide128",
}


def _mode(use: Use) -> str:
    return _MODES[use.groups["mode"] or use.groups["im2col"]]


def _box(use: Use, index: int, offsets: str = "") -> str:
    """`[map, {coordinates}]`; offsets: the im2col offsets."""
    rank, mode = int(use.groups["rank"]), _mode(use)
    operand = use.operand(index)
    if len(operand.parts) != 2:
        raise NotPtx(f"the tensor's coordinates in {use.instruction.text}")
    count = len(operand.parts[1].parts) if operand.parts[1].kind == "vector" else 1
    if count != (5 if mode == "Rows" else rank) or (mode == "Rows" and rank != 2):
        raise NotPtx(f"{count} coordinates in {use.instruction.text}")
    if mode.startswith("Im2col") and rank < 3:
        raise NotPtx(f"im2col of {rank} dimensions in {use.instruction.text}")
    return f"$Box{{{use[index]}{offsets}}}, {rank}, $Mode_{mode}"


def _box_to_shared(use: Use) -> str:
    mode, offsets, mask = _mode(use), "", 3
    if mode.startswith("Im2col"):
        wanted = int(use.groups["rank"]) - 2 if mode == "Im2col" else 2
        listed, mask = use.vector(3), 4
        if len(listed) != wanted:
            raise NotPtx(f"{len(listed)} offsets in {use.instruction.text}, not {wanted}")
        offsets = ", {" + ", ".join(f"int16_t({each})" for each in listed) + "}"
    pairs = f"{use.groups['cta'] or 1} == 2"
    return f"$copy_box({use[0]}, {_box(use, 1, offsets)}, {use[2]}, {_mask(use, mask)}, {pairs});"


def _box_to_global(use: Use) -> str:
    return (
        f"$copy_box_global({_box(use, 0)}, $shared({use[1]}), {_reduction(use.groups.get('op'))});"
    )


_FIELDS = {
    "global_address": "Address",
    "rank": "Rank",
    "box_dim": "Box",
    "global_dim": "Extent",
    "global_stride": "Stride",
    "element_stride": "Step",
    "elemtype": "Type",
    "interleave_layout": "Interleave",
    "swizzle_mode": "Swizzle",
    "swizzle_atomicity": "Atom",
    "fill_mode": "Fill",
}


def _replace(use: Use) -> str:
    """`[map], value`, or `[map], dimension, value`."""
    field = use.groups["field"]
    has_dimension = field in ("box_dim", "global_dim", "global_stride", "element_stride")
    if len(use) != 2 + has_dimension:
        raise NotPtx(f"{len(use)} operands in {use.instruction.text}")
    at = f"${'shared' if use.groups['space'] == 'shared::cta' else 'generic'}({use[0]})"
    dimension = use[1] if has_dimension else "0"
    return f"$replace_in_map({at}, $Field_{_FIELDS[field]}, {dimension}, {use[-1]});"


def _store(use: Use) -> str:
    values = use.vector(1)
    type_ = re.sub("^[fs]", "b", use.groups["type"])
    listed = ", ".join(f"${type_}({value})" for value in values)
    op = use.groups.get("op")
    return (
        f"$store_async({use[0]}, $Vector<${type_}, {len(values)}>{{{{{listed}}}}}, {use[2]},"
        f" {_reduction(op)}, {_tensor_type(use.groups['type'] if op else None)});"
    )


def _first_block(use: Use) -> str:
    """`{x, y, z, _}, answer`."""
    targets = use.vector(0)
    if len(targets) != 4:
        raise NotPtx(f"{len(targets)} registers in {use.instruction.text}")
    return " ".join(f"{to} = $first_block({use[1]}, {i});" for i, to in enumerate(targets[:3]))


_TELLS = r"\.mbarrier::complete_tx::bytes"
_OP = r"\.(?P<op>add|min|max|inc|dec|and|or|xor)"
_HINT = r"(?P<hint>\.L2::cache_hint)?"
_MULTICAST = r"(?P<multicast>\.multicast::cluster)?"
_B64 = r"\.b64"
_RANK = r"(?P<rank>[1-5])d"
_LOADED = r"(?:\.(?:tile(?:::(?P<mode>gather4))?|(?P<im2col>im2col(?:::w(?:::128)?)?)))?"
_STORED = r"(?:\.(?:tile(?:::(?P<mode>scatter4))?|(?P<im2col>im2col_no_offs)))?"
_H = "mbarriers.h"
_BULK = "bulk_copies.h"
_CONTROL = "cluster_launch_control.h"

RULES = [
    Rule(rf"mbarrier\.init{_SHARED}{_B64}", _init, _H),
    Rule(rf"mbarrier\.inval{_SHARED}{_B64}", _simple("mbarrier_inval"), _H),
    Rule(rf"mbarrier\.expect_tx{_SEM}{_SHARED}{_B64}", _simple("mbarrier_expect"), _H),
    Rule(rf"mbarrier\.complete_tx{_SEM}{_SHARED}{_B64}", _simple("mbarrier_complete"), _H),
    Rule(
        rf"mbarrier\.arrive(?:\.noComplete)?{_SEM}{_SHARED}{_B64}", _arrive("mbarrier_arrive"), _H
    ),
    Rule(
        rf"mbarrier\.arrive\.expect_tx{_SEM}{_SHARED}{_B64}", _arrive("mbarrier_arrive_expect"), _H
    ),
    Rule(
        rf"mbarrier\.arrive_drop(?:\.noComplete)?{_SEM}{_SHARED}{_B64}",
        _arrive("mbarrier_arrive_drop"),
        _H,
    ),
    Rule(
        rf"mbarrier\.arrive_drop\.expect_tx{_SEM}{_SHARED}{_B64}",
        _arrive("mbarrier_drop_expect"),
        _H,
    ),
    Rule(
        rf"mbarrier\.(?P<kind>test_wait|try_wait)(?P<parity>\.parity)?{_SEM}{_SHARED}{_B64}",
        _wait,
        _H,
    ),
    Rule(r"mbarrier\.pending_count\.b64", "{0} = $mbarrier_pending({1});", _H),
    Rule(
        rf"cp\.async\.mbarrier\.arrive\.noinc{_SHARED}{_B64}",
        lambda use: f"$arrive_after_copies({_barrier(use, 0)}, true);",
        "cp_async_mbarrier.h",
    ),
    Rule(
        rf"cp\.async\.mbarrier\.arrive{_SHARED}{_B64}",
        lambda use: f"$arrive_after_copies({_barrier(use, 0)}, false);",
        "cp_async_mbarrier.h",
    ),
    Rule(
        rf"cp\.async\.bulk\.shared::(?P<to>cluster|cta)\.(?P<source>global|shared::cta){_TELLS}"
        rf"{_MULTICAST}{_HINT}",
        _to_shared,
        _BULK,
    ),
    Rule(
        rf"cp\.async\.bulk\.global\.shared::cta\.bulk_group{_HINT}(?P<masked>\.cp_mask)?",
        _to_global,
        _BULK,
    ),
    Rule(
        rf"cp\.reduce\.async\.bulk\.global\.shared::cta\.bulk_group{_HINT}{_OP}(?:\.noftz)?"
        rf"\.(?P<type>[usb](?:32|64)|b?f16|f32|f64)",
        _to_global,
        _BULK,
    ),
    Rule(
        rf"cp\.reduce\.async\.bulk\.shared::cluster\.shared::cta{_TELLS}{_OP}"
        rf"\.(?P<type>[usb](?:32|64))",
        _reduce_shared,
        _BULK,
    ),
    Rule(r"cp\.async\.bulk\.commit_group", "$commit_group();", _BULK),
    Rule(r"cp\.async\.bulk\.wait_group", "$wait_for_groups({0}, false);", _BULK),
    Rule(r"cp\.async\.bulk\.wait_group\.read", "$wait_for_groups({0}, true);", _BULK),
    Rule(r"cp\.async\.bulk\.prefetch(?:\.[\w:]+)+", ";", "values.h"),
    Rule(
        rf"cp\.async\.bulk\.tensor\.{_RANK}\.shared::(?P<to>cluster|cta)\.global"
        rf"{_LOADED}{_TELLS}{_MULTICAST}(?:{CTA_GROUP})?{_HINT}",
        _box_to_shared,
        _BULK,
    ),
    Rule(
        rf"cp\.async\.bulk\.tensor\.{_RANK}\.global\.shared::cta{_STORED}\.bulk_group{_HINT}",
        _box_to_global,
        _BULK,
    ),
    Rule(
        rf"cp\.reduce\.async\.bulk\.tensor\.{_RANK}\.global\.shared::cta{_OP}{_STORED}"
        rf"\.bulk_group{_HINT}",
        _box_to_global,
        _BULK,
    ),
    Rule(
        rf"tensormap\.replace\.tile\.(?P<field>{'|'.join(_FIELDS)})"
        r"(?:\.(?P<space>global|shared::cta))?\.b1024\.b(?:32|64)",
        _replace,
        _BULK,
    ),
    Rule(
        r"tensormap\.cp_fenceproxy\.global\.shared::cta\.tensormap::generic\.release"
        r"\.(?:cta|cluster|gpu|sys)\.sync\.aligned",
        "$copy_map($generic({0}), $shared({1}));",
        _BULK,
    ),
    Rule(
        rf"st\.async(?:\.weak)?(?:\.shared::cluster)?{_TELLS}(?:\.v[24])?\.(?P<type>[busf](?:32|64))",
        _store,
        _BULK,
    ),
    Rule(
        rf"red\.async\.relaxed\.cluster(?:\.shared::cluster)?{_TELLS}{_OP}\.(?P<type>[usb](?:32|64))",
        _store,
        _BULK,
    ),
    Rule(
        rf"clusterlaunchcontrol\.try_cancel\.async(?:\.shared::cta)?{_TELLS}"
        r"(?P<all>\.multicast::cluster::all)?\.b128",
        lambda use: f"$try_cancel({use[0]}, {use[1]}, {str(bool(use.groups['all'])).lower()});",
        _CONTROL,
    ),
    Rule(
        r"clusterlaunchcontrol\.query_cancel\.is_canceled\.pred\.b128",
        "{0} = $is_canceled({1});",
        _CONTROL,
    ),
    Rule(
        r"clusterlaunchcontrol\.query_cancel\.get_first_ctaid\.v4\.b32\.b128",
        _first_block,
        _CONTROL,
    ),
    Rule(
        r"clusterlaunchcontrol\.query_cancel\.get_first_ctaid::(?P<dimension>[xyz])\.b32\.b128",
        lambda use: f"{use[0]} = $first_block({use[1]}, {'xyz'.index(use.groups['dimension'])});",
        _CONTROL,
    ),
    Rule(
        r"mapa(?P<space>\.shared::cluster)\.u(?:32|64)",
        "{0} = $mapa({1}, {2});",
        "clusters.h",
    ),
    Rule(r"mapa\.u64", "{0} = $mapa_generic({1}, {2});", "clusters.h"),
    Rule(r"getctarank\.shared::cluster\.u(?:32|64)", "{0} = {1} >> 24;", "clusters.h"),
    Rule(
        r"getctarank\.u(?:32|64)",
        "{0} = $shared_address({1}) >> 24;",
        "clusters.h",
    ),
]
