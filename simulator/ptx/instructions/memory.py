"""Loads and stores in all state spaces, addresses, hints for caches."""

from __future__ import annotations

import re

from simulator.ptx.language import NotPtx
from simulator.ptx.rules import Rule, Use

SPACE = r"(?:\.(?P<space>global|shared(?:::cta|::cluster)?|const|local|param(?:::entry|::func)?))?"
_WEAK = r"(?:\.(?P<order>weak))?"
_ORDER = r"(?:\.mmio)?\.(?P<order>volatile|relaxed|acquire|release)"
SCOPE = r"(?:\.(?:cta|cluster|gpu|sys))?"
_CACHE = r"(?:\.(?:ca|cg|cs|lu|cv|wb|wt|nc|L1::\w+|L2::evict_\w+|L2::cache_hint|L2::\d+B|unified))*"
_TYPE = r"(?:\.(?P<vector>v[248]))?\.(?P<type>[busf](?:8|16|32|64)|b128)"


def pointer(use: Use, index: int) -> str:
    """The address in operand `index`, as a pointer."""
    space = use.groups.get("space") or ""
    return f"${'shared' if space.startswith('shared') else 'generic'}({use[index]})"


def announcement(use: Use) -> str:
    """Tells the checker an instruction's scope, and whether it acquires or releases."""
    parts = set(use.instruction.mnemonic.split("."))
    scope = f"$Scope_{'Block' if 'cta' in parts else 'Device'}"
    told = "$announce_acquire(); " if parts & {"acquire", "acq_rel"} else ""
    if parts & {"release", "acq_rel"}:
        return f"{told}$before_release({scope}); "
    return told + (f"$announce({scope}); " if "cta" in parts else "")


def _fence(use: Use) -> str:
    scope = "Block" if "cta" in use.instruction.mnemonic.split(".") else "Device"
    return f"$fence($Scope_{scope});"


def _load(use: Use) -> str:
    targets, type_ = use.vector(0), use.groups["type"]
    count = int((use.groups["vector"] or "v1")[1:])
    if len(targets) != count:
        raise NotPtx(f"{len(targets)} registers in {use.instruction.text}")
    order = use.groups["order"]
    function = "load" if order in (None, "weak") else "load_ordered"
    call = f"${function}<${type_}, {count}>({pointer(use, 1)})"
    code = f"{{ {announcement(use)}const auto simulator_values = {call}; "
    for index, target in enumerate(targets):
        value = f"$at(simulator_values, {index})"
        if type_[0] == "f":
            value = f"$word({value})"
        code += f"{target} = {value}; "
    return code + "}"


def _store_zeros(use: Use) -> str:
    """`[to], bytes, 0`."""
    return f"$store_zeros({pointer(use, 0)}, {use[1]});"


def _store(use: Use) -> str:
    values, type_ = use.vector(1), use.groups["type"]
    count = int((use.groups["vector"] or "v1")[1:])
    if len(values) != count:
        raise NotPtx(f"{len(values)} registers in {use.instruction.text}")
    type_ = re.sub(r"^[fs]", "b", type_)
    listed = ", ".join(f"${type_}({value})" for value in values)
    order = use.groups["order"]
    function = "store" if order in (None, "weak") else "store_ordered"
    call = f"${function}({pointer(use, 0)}, $Vector<${type_}, {count}>{{{{{listed}}}}});"
    return announcement(use) + call


RULES = [
    Rule(rf"ld{_WEAK}{SPACE}{_CACHE}{_TYPE}", _load, "memory.h"),
    Rule(rf"ld{_ORDER}{SCOPE}{SPACE}{_CACHE}{_TYPE}", _load, "memory_order.h"),
    Rule(rf"ld{SPACE}{_ORDER}{SCOPE}{_CACHE}{_TYPE}", _load, "memory_order.h"),
    Rule(rf"ldu(?:\.(?P<order>weak))?{SPACE}{_TYPE}", _load, "memory.h"),
    Rule(rf"st{_WEAK}{SPACE}{_CACHE}{_TYPE}", _store, "memory.h"),
    Rule(r"st\.bulk(?:\.weak)?(?:\.(?P<space>shared::cta))?", _store_zeros, "memory.h"),
    Rule(rf"st{_ORDER}{SCOPE}{SPACE}{_CACHE}{_TYPE}", _store, "memory_order.h"),
    Rule(rf"st{SPACE}{_ORDER}{SCOPE}{_CACHE}{_TYPE}", _store, "memory_order.h"),
    Rule(
        r"cvta\.shared(?:::cta|::cluster)?\.u(?:32|64)",
        "{0} = uint64_t(uintptr_t($shared({1})));",
        "memory.h",
    ),
    Rule(
        r"cvta\.to\.shared(?:::cta|::cluster)?\.u(?:32|64)",
        "{0} = $shared_address({1});",
        "memory.h",
    ),
    Rule(r"cvta(?:\.to)?\.(?:global|const|local|param)\.u(?:32|64)", "{0} = {1};", "values.h"),
    Rule(
        r"isspacep\.shared(?:::cta)?",
        "{0} = $is_own_shared({1});",
        "memory.h",
    ),
    Rule(
        r"isspacep\.shared::cluster",
        "{0} = $is_shared({1});",
        "memory.h",
    ),
    Rule(
        r"isspacep\.global",
        "{0} = !$is_shared({1});",
        "memory.h",
    ),
    # Qualifiers that say how to cache and do not change what is read.
    Rule(r"prefetchu\.L1", ";", "values.h"),
    Rule(
        r"prefetch(?:\.(?:global|local|const|param(?:::entry)?))?(?:\.tensormap|\.L[12](?:::\w+)?)",
        ";",
        "values.h",
    ),
    Rule(r"(?:discard|applypriority)(?:\.global)?\.L2(?:::\w+)?", ";", "values.h"),
    Rule(
        r"createpolicy\.(?:fractional|range|cvt)(?:\.(?:global|L2(?:::\w+)?))*\.b64",
        "{0} = 0;",
        "values.h",
    ),
    # Fences: they order operations that the simulator carries out in order anyway.
    Rule(r"membar\.(?:cta|gl|sys)", _fence, "values.h"),
    Rule(
        r"fence(?:\.(?:sc|acq_rel|acquire|release))?(?:\.sync_restrict::shared::\w+)?"
        r"\.(?:cta|cluster|gpu|sys)",
        _fence,
        "values.h",
    ),
    Rule(
        r"fence\.proxy(?:\.alias|\.tensormap::generic(?:\.(?:acquire|release|cta|cluster|gpu|sys)){2})",
        "__atomic_thread_fence(__ATOMIC_SEQ_CST);",
        "values.h",
    ),
    Rule(
        r"fence\.mbarrier_init\.release\.cluster",
        "$proxy_fence($ProxyFence_MbarrierInit);",
        "fences.h",
    ),
    Rule(
        r"fence\.proxy(?:\.async(?:\.(?:global|shared(?:::\w+)?))?"
        r"|\.async::generic(?:\.acquire\.sync_restrict::shared::cluster"
        r"|\.release\.sync_restrict::shared::cta)\.cluster)",
        "$proxy_fence($ProxyFence_Async);",
        "fences.h",
    ),
]
