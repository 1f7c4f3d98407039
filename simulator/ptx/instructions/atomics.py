"""red and atom."""

from __future__ import annotations

from simulator.ptx.instructions.memory import SCOPE, SPACE, announcement, pointer
from simulator.ptx.rules import Rule, Use

_ORDER = r"(?:\.(?:relaxed|acquire|release|acq_rel))?"
_HALF = {"f16": "__half", "bf16": "__nv_bfloat16", "f16x2": "__half2", "bf16x2": "__nv_bfloat162"}
_HINT = r"(?:\.noftz)?(?:\.L2::cache_hint)?"


def _atomic(use: Use) -> str:
    groups = use.groups
    returns = use.instruction.mnemonic.startswith("atom")
    op, type_ = groups["op"], groups["type"]
    at = int(returns)
    count = int((groups.get("vector") or "v1")[1:])
    if type_ in _HALF:
        kind = "pair" if type_.endswith("x2") else "half"
        function, of = f"atomic_{op}_{kind}", _HALF[type_]
    else:
        function, of = f"atomic_{op}", f"${type_}"
    values = use.vector(at + 1)
    targets = use.vector(0) if returns else []
    place = pointer(use, at)
    announced = announcement(use)
    if op == "cas":
        return f"{announced}{targets[0]} = $atomic_cas<{of}>({place}, {values[0]}, {use[at + 2]});"
    code = ""
    for index in range(count):
        where = place if index == 0 else f"{place} + {index} * sizeof({of})"
        call = f"${function}<{of}>({where}, {values[index]})"
        code += f"{announced}{targets[index]} = {call}; " if returns else f"{announced}{call}; "
    return code


def _rules(first: str) -> list[Rule]:
    start = rf"{first}(?:\.async)?{_ORDER}{SCOPE}{SPACE}".replace(r"(?:\.async)?", "")
    operations = [
        (r"(?P<op>add)", r"(?P<type>[us]32|u64|f32|f64|s64)", ""),
        (r"(?P<op>min|max)", r"(?P<type>[us](?:32|64))", ""),
        (r"(?P<op>and|or|xor|exch)", r"(?P<type>b(?:32|64|128))", ""),
        (r"(?P<op>inc|dec)", r"(?P<type>u32)", ""),
        (r"(?P<op>cas)", r"(?P<type>b(?:16|32|64|128))", ""),
        (r"(?P<op>add)", r"(?P<type>f32)", r"\.(?P<vector>v[248])"),
    ]
    rules = [
        Rule(rf"{start}\.{op}{_HINT}{vector}\.{type_}", _atomic, "memory_order.h")
        for op, type_, vector in operations
    ]
    half = r"\.(?P<type>b?f16(?:x2)?)"
    rules.append(
        Rule(
            rf"{start}\.(?P<op>add|min|max){_HINT}(?:\.(?P<vector>v[248]))?{half}",
            _atomic,
            "half_atomics.h",
        )
    )
    return rules


RULES = _rules("atom") + _rules("red")
