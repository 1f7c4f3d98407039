"""wmma: products of tiles as nvcuda::wmma has them, with fragments in registers."""

from __future__ import annotations

from simulator.ptx.instructions.matrices import array
from simulator.ptx.instructions.memory import pointer
from simulator.ptx.language import NotPtx
from simulator.ptx.rules import Rule, Use

# In C++, and the bits of an element.
_TYPES = {
    "f16": ("__half", 16),
    "bf16": ("__nv_bfloat16", 16),
    "tf32": ("$tf32", 32),
    "f64": ("double", 64),
    "s8": ("signed char", 8),
    "u8": ("unsigned char", 8),
    "s4": ("$s4", 4),
    "u4": ("$u4", 4),
    "b1": ("$b1", 1),
    "f32": ("float", 32),
    "s32": ("int", 32),
}
_OF_SIXTEEN = ((16, 16, 16), (32, 8, 16), (8, 32, 16))
_SHAPES = {
    **dict.fromkeys(("f16", "bf16", "s8", "u8"), _OF_SIXTEEN),
    **dict.fromkeys(("s4", "u4"), ((8, 8, 32),)),
    "tf32": ((16, 16, 8),),
    "f64": ((8, 8, 4),),
    "b1": ((8, 8, 128),),
}
# The types of C and D, by the type of A.
_RESULTS = {"f16": ("f16", "f32"), "bf16": ("f32",), "tf32": ("f32",), "f64": ("f64",)}


def _shape(use: Use) -> tuple[int, int, int]:
    m, n, k = (int(use.groups[name]) for name in "mnk")
    return m, n, k


def _is_there(use: Use, a: str, result: str) -> bool:
    return _shape(use) in _SHAPES[a] and result in _RESULTS.get(a, ("s32",))


def _fragment(use: Use, part: str, type_: str, layout: str | None) -> tuple[str, str, int]:
    """The fragment in C++, the type of its registers, and how many registers a lane has."""
    m, n, k = _shape(use)
    name, bits = _TYPES[type_]
    parts = {"a": ("matrix_a", m * k), "b": ("matrix_b", k * n)}
    which, size = parts.get(part, ("accumulator", m * n))
    word = 64 if type_ == "f64" else 32
    count = 8 if type_ == "f16" and part in "ab" else size * bits // (32 * word)
    ending = f", ${layout}_major" if layout else ""
    cpp = f"$fragment<${which}, {m}, {n}, {k}, {name}{ending}>"
    return cpp, f"uint{word}_t", count


def _registers(use: Use, index: int, count: int) -> list[str]:
    registers = use.vector(index)
    if len(registers) != count:
        mnemonic, given = use.instruction.mnemonic, len(registers)
        raise NotPtx(f"{mnemonic} has {count} registers where {given} are given")
    return registers


def _in_memory(use: Use) -> tuple[str, str]:
    """An accumulator's layout argument, and the stride between two rows or columns."""
    m, n, k = _shape(use)
    part, layout = use.groups["part"], use.groups["layout"]
    lines = {"a": (k, m), "b": (n, k)}.get(part, (n, m))
    stride = use[2] if len(use) > 2 else str(lines[layout == "col"])
    return "" if part in "ab" else f", $mem_{layout}_major", stride


def _load(use: Use) -> str:
    part, type_ = use.groups["part"], use.groups["type"]
    of_result = part == "c" and any(_is_there(use, a, type_) for a in _SHAPES)
    if not of_result and (part == "c" or _shape(use) not in _SHAPES.get(type_, ())):
        raise NotPtx(use.instruction.mnemonic)
    fragment, word, count = _fragment(
        use, part, type_, None if part == "c" else use.groups["layout"]
    )
    targets = _registers(use, 0, count)
    layout, stride = _in_memory(use)
    code = f"{{ {word} simulator_words[{count}]; "
    code += f"$load_fragment<{fragment}>(simulator_words, {pointer(use, 1)}, {stride}{layout}); "
    code += "".join(f"{target} = simulator_words[{i}]; " for i, target in enumerate(targets))
    return code + "}"


def _store(use: Use) -> str:
    type_ = use.groups["type"]
    if not any(_is_there(use, a, type_) for a in _SHAPES):
        raise NotPtx(use.instruction.mnemonic)
    fragment, word, count = _fragment(use, "d", type_, None)
    layout, stride = _in_memory(use)
    code = "{ " + array("simulator_words", _registers(use, 1, count), word)
    given = f"{pointer(use, 0)}, simulator_words, {stride}{layout}"
    return f"{code}$store_fragment<{fragment}>({given}); }}"


def _multiply(use: Use) -> str:
    groups = use.groups
    a, d, c = groups.get("a") or "f16", groups["d"], groups["c"]
    if (
        (groups.get("b") or "f16") != a
        or not _is_there(use, a, d)
        or not _is_there(use, a, c)
        or (d != c and a != "f16")
        or (groups["satfinite"] and d != "s32")
        or (bool(groups["bits"]) != (a == "b1"))
        or (bool(groups["rounding"]) and a != "f64")
        or (a in ("s4", "u4", "b1") and (groups["x"], groups["y"]) != ("row", "col"))
    ):
        raise NotPtx(use.instruction.mnemonic)
    parts = [("d", d, None), ("a", a, groups["x"]), ("b", a, groups["y"]), ("c", c, None)]
    made = [_fragment(use, *each) for each in parts]
    lists = [_registers(use, index, count) for index, (_, _, count) in enumerate(made)]
    code = "{ "
    for (name, _, _), (_, word, _), registers in zip(parts[1:], made[1:], lists[1:], strict=True):
        code += array(f"simulator_of_{name}", registers, word)
    _, word, count = made[0]
    code += f"{word} simulator_of_d[{count}]; "
    code += f"$multiply_fragments<{', '.join(cpp for cpp, _, _ in made)}>("
    code += ", ".join(f"simulator_of_{name}" for name in "dabc")
    options = (groups["satfinite"], groups["bits"] == "and")
    code += "".join(f", {'true' if option else 'false'}" for option in options) + "); "
    code += "".join(f"{target} = simulator_of_d[{i}]; " for i, target in enumerate(lists[0]))
    return code + "}"


_SYNC = r"\.sync(?:\.aligned)?"
_LAYOUT = r"\.(?P<layout>row|col)"
_SHAPE = r"\.m(?P<m>8|16|32)n(?P<n>8|16|32)k(?P<k>4|8|16|32|128)"
_SPACE = r"(?:\.(?P<space>global|shared(?:::cta)?))?"
_FACTOR = "f16|bf16|tf32|f64|[su][48]|b1"
_SUM = "f16|f32|f64|s32"
_OF_TYPE = rf"\.(?P<type>{_FACTOR}|f32|s32)"
_BEGIN = rf"{_SYNC}\.(?P<x>row|col)\.(?P<y>row|col){_SHAPE}(?:\.(?P<rounding>rn))?"
_OP = r"(?:\.(?P<bits>xor|and)\.popc)?"

RULES = [
    Rule(
        rf"wmma\.load\.(?P<part>[abc]){_SYNC}{_LAYOUT}{_SHAPE}{_SPACE}{_OF_TYPE}", _load, "wmma.h"
    ),
    Rule(
        rf"wmma\.store\.(?P<part>d){_SYNC}{_LAYOUT}{_SHAPE}{_SPACE}\.(?P<type>{_SUM})",
        _store,
        "wmma.h",
    ),
    Rule(
        rf"wmma\.mma{_OP}{_BEGIN}\.(?P<d>f16|f32)\.(?P<c>f16|f32)(?P<satfinite>\.satfinite)?",
        _multiply,
        "wmma.h",
    ),
    Rule(
        rf"wmma\.mma{_OP}{_BEGIN}\.(?P<d>{_SUM})\.(?P<a>{_FACTOR})\.(?P<b>{_FACTOR})\.(?P<c>{_SUM})"
        r"(?P<satfinite>\.satfinite)?",
        _multiply,
        "wmma.h",
    ),
]
