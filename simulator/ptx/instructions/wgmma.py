"""wgmma: products of a warpgroup, which it waits for."""

from __future__ import annotations

from simulator.ptx.instructions.matrices import array
from simulator.ptx.language import NotPtx
from simulator.ptx.rules import Rule, Use

_K = {"f16": 16, "bf16": 16, "tf32": 8, "e4m3": 32, "e5m2": 32, "s8": 32, "u8": 32}
_RESULTS = {
    "f16": ("f16", "f32"),
    "bf16": ("f32",),
    "tf32": ("f32",),
    "e4m3": ("f16", "f32"),
    "e5m2": ("f16", "f32"),
    "s8": ("s32",),
    "u8": ("s32",),
}


def _product(use: Use) -> str:
    """`d, a, b{, metadata, selector}, scale-d{, scale-a, scale-b{, trans-a, trans-b}}`.

    a: a descriptor or registers.
    """
    groups = use.groups
    sparse = bool(groups["sparse"])
    n, a, b, d = int(groups["n"]), groups["a"], groups["b"], groups["d"]
    eight = a in ("e4m3", "e5m2")
    integers = a in ("s8", "u8")
    kinds = {"f16": 1, "bf16": 2, "tf32": 3, "e4m3": 4, "e5m2": 4, "s8": 5, "u8": 5}
    many = n % 16 == 0 or n in (8, 24)
    if (
        int(groups["k"]) != _K[a] * (2 if sparse else 1)
        or kinds[a] != kinds[b]
        or d not in _RESULTS[a]
        or n % 8
        or not 8 <= n <= 256
        or (integers and not many)
    ):
        raise NotPtx(use.instruction.mnemonic)
    accumulators = [part for part in use.operand(0).parts if part.kind == "operand"]
    count = n // (4 if d == "f16" else 2)
    if len(accumulators) != len(use.operand(0).parts) or len(accumulators) != count:
        raise NotPtx(
            f"{use.instruction.mnemonic} has {count} accumulators, which are operands of the"
            " statement"
        )
    in_registers = use.operand(1).kind == "vector"
    scale_d = 5 if sparse else 3
    metadata, selector = (use[3], use[4]) if sparse else ("0", "0")
    rest = [use[index] for index in range(scale_d + 1, len(use))]
    scale_a, scale_b = ("1", "1") if integers else (rest[0], rest[1])
    transposes = rest[2:]
    wanted = 0 if a not in ("f16", "bf16") else 1 if in_registers else 2
    if len(transposes) != wanted:
        raise NotPtx(f"{len(use)} operands of {use.instruction.mnemonic}")
    trans_b = transposes[-1] if transposes else "0"
    trans_a = transposes[0] if wanted == 2 else "0"
    sum_ = "Exact13" if eight else "Exact25"
    saturate = "true" if groups["satfinite"] else "false"
    tile = (
        f"$Type_{a.upper()}, $Type_{b.upper()}, $Type_{d.upper()}, 16, {n}, {_K[a]},"
        f" $Sum_{sum_}, {saturate}, false,"
        f" int8_t({scale_a}), int8_t({scale_b})"
    )
    code = (
        "{ static const $WarpgroupTile simulator_tile{"
        f"{{{tile}}}, {'true' if in_registers else 'false'}, bool({trans_a}), bool({trans_b}),"
        f" {'true' if sparse else 'false'}, unsigned({selector})}}; "
    )
    places = ", ".join(f"&@{part.value}@" for part in accumulators)
    code += f"void* const simulator_of_d[] = {{{places}}}; "
    registers, descriptor, of_a = "nullptr", use[1], "nullptr"
    if in_registers:
        values = use.vector(1)
        if len(values) != 4:
            raise NotPtx(f"{len(values)} registers of A in {use.instruction.mnemonic}")
        code += array("simulator_of_a", values, "uint32_t")
        parts = use.operand(1).parts
        places = ", ".join(
            f"@place {it.value}@" if it.kind == "operand" else "nullptr" for it in parts
        )
        code += f"const void* const simulator_at_a[] = {{{places}}}; "
        registers, descriptor, of_a = "simulator_of_a", "0", "simulator_at_a"
    return code + (
        f"$wgmma(simulator_tile, {registers}, {descriptor}, {use[2]}, {metadata},"
        f" bool({use[scale_d]}), simulator_of_d, {count}, {of_a}); }}"
    )


_TYPES = r"(?:f16|bf16|tf32|e4m3|e5m2|s8|u8)"
RULES = [
    Rule(
        r"wgmma\.mma_async(?P<sparse>\.sp)?\.sync\.aligned"
        r"\.m64n(?P<n>\d+)k(?P<k>\d+)(?P<satfinite>\.satfinite)?"
        rf"\.(?P<d>f16|f32|s32)\.(?P<a>{_TYPES})\.(?P<b>{_TYPES})",
        _product,
        "wgmma.h",
    ),
    Rule(r"wgmma\.fence\.sync\.aligned", "$warpgroup_fence();", "wgmma.h"),
    Rule(r"wgmma\.commit_group\.sync\.aligned", "$wgmma_commit();", "wgmma.h"),
    Rule(r"wgmma\.wait_group\.sync\.aligned", "$wgmma_wait({0});", "wgmma.h"),
]
