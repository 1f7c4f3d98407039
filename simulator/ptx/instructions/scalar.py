"""What a thread does alone with its registers: arithmetic, logic, comparisons, conversions."""

from __future__ import annotations

from collections.abc import Callable

from simulator.ptx.language import NotPtx
from simulator.ptx.rules import Rule, Use

_INTEGER = r"(?P<type>[us](?:16|32|64))"
_HALVES = ("f16", "bf16", "f16x2", "bf16x2")
_MODE = r"(?:\.(?P<mode>rn|rz|rm|rp))"
_FTZ = r"(?P<ftz>\.ftz)?"
_SAT = r"(?P<sat>\.sat)?"
_RELU = r"(?P<relu>\.relu)?"
_NAN = r"(?P<nan>\.NaN)?"
_XORSIGN = r"(?P<xorsign>\.xorsign\.abs)?"


def _sources(use: Use, count: int) -> list[str]:
    """The operands after the first, which receives the result."""
    if len(use) != count + 1:
        raise NotPtx(f"{use.instruction.text}: it takes {count + 1} operands")
    return [use[index] for index in range(1, count + 1)]


# ---- Integers

_ARITHMETIC = "arithmetic.h"
_WIDE = r"(?P<type>[us](?:16|32))"
_INTEGERS = [
    Rule(r"(?P<op>add|sub)\.sat\.s32", "{0} = ${op}_sat({1}, {2});", _ARITHMETIC),
    Rule(rf"(?P<op>add|sub)\.{_INTEGER}", "{0} = ${op}<${type}>({1}, {2});", _ARITHMETIC),
    Rule(r"add\.(?P<type>[us]16)x2", "{0} = $add_pair<${type}>({1}, {2});", _ARITHMETIC),
    Rule(
        rf"mul\.(?P<part>lo|hi)\.{_INTEGER}",
        "{0} = $mul_{part}<${type}>({1}, {2});",
        _ARITHMETIC,
    ),
    Rule(rf"mul\.wide\.{_WIDE}", "{0} = $mul_wide<${type}>({1}, {2});", _ARITHMETIC),
    Rule(r"mad\.hi\.sat\.s32", "{0} = $mad_hi_sat({1}, {2}, {3});", _ARITHMETIC),
    Rule(
        rf"mad\.(?P<part>lo|hi)\.{_INTEGER}",
        "{0} = $mad_{part}<${type}>({1}, {2}, {3});",
        _ARITHMETIC,
    ),
    Rule(rf"mad\.wide\.{_WIDE}", "{0} = $mad_wide<${type}>({1}, {2}, {3});", _ARITHMETIC),
    Rule(
        r"mul24\.(?P<part>lo|hi)\.(?P<type>[us]32)",
        "{0} = $mul24_{part}<${type}>({1}, {2});",
        _ARITHMETIC,
    ),
    Rule(r"mad24\.hi\.sat\.s32", "{0} = $mad24_hi_sat({1}, {2}, {3});", _ARITHMETIC),
    Rule(
        r"mad24\.(?P<part>lo|hi)\.(?P<type>[us]32)",
        "{0} = $mad24_{part}<${type}>({1}, {2}, {3});",
        _ARITHMETIC,
    ),
    Rule(rf"sad\.{_INTEGER}", "{0} = $sad<${type}>({1}, {2}, {3});", _ARITHMETIC),
    Rule(rf"div\.{_INTEGER}", "{0} = $quotient<${type}>({1}, {2});", _ARITHMETIC),
    Rule(rf"rem\.{_INTEGER}", "{0} = $remainder_of<${type}>({1}, {2});", _ARITHMETIC),
    Rule(r"abs\.(?P<type>s(?:16|32|64))", "{0} = $magnitude<${type}>({1});", _ARITHMETIC),
    Rule(r"neg\.(?P<type>s(?:16|32|64))", "{0} = $negative<${type}>({1});", _ARITHMETIC),
    Rule(rf"min\.{_INTEGER}", "{0} = $lesser<${type}>({1}, {2});", _ARITHMETIC),
    Rule(rf"max\.{_INTEGER}", "{0} = $greater<${type}>({1}, {2});", _ARITHMETIC),
    Rule(r"min\.(?P<type>[us]16)x2", "{0} = $lesser_pair<${type}>({1}, {2});", _ARITHMETIC),
    Rule(r"max\.(?P<type>[us]16)x2", "{0} = $greater_pair<${type}>({1}, {2});", _ARITHMETIC),
    *(
        Rule(
            rf"{op}\.relu\.{kind}",
            f"{{0}} = $greater{pair}<${one}>(${function}{pair}<${one}>({{1}}, {{2}}), 0);",
            _ARITHMETIC,
        )
        for op, function in (("min", "lesser"), ("max", "greater"))
        for kind, one, pair in (("s32", "s32", ""), ("s16x2", "s16", "_pair"))
    ),
    Rule(
        r"dp4a\.(?P<a>[us])32\.(?P<b>[us])32",
        "{0} = $dp4a<${a}8, ${b}8>({1}, {2}, {3});",
        _ARITHMETIC,
    ),
    Rule(
        r"dp2a\.(?P<part>lo|hi)\.(?P<a>[us])32\.(?P<b>[us])32",
        "{0} = $dp2a_{part}<${a}16, ${b}8>({1}, {2}, {3});",
        _ARITHMETIC,
    ),
]


def _carrying(use: Use) -> str:
    """The translator puts the statement's carry flag for @carry@."""
    groups, kind = use.groups, use.groups["type"]
    if groups.get("part"):
        a, b, c = _sources(use, 3)
        a, b = f"$mul_{groups['part']}<${kind}>({a}, {b})", c
    else:
        a, b = _sources(use, 2)
    name = use.instruction.mnemonic.split(".")[0]
    function = "sub_carry" if name.startswith("sub") else "add_carry"
    carry_in = "@carry@" if name.endswith("c") else "false"
    carry_out = ", @carry@" if groups["writes"] else ""
    return f"{use[0]} = ${function}<${kind}>({a}, {b}, {carry_in}{carry_out});"


_WITH_CARRY = r"\.(?P<type>[us](?:32|64))"
_CARRIES = [
    Rule(rf"(?:add|sub)(?P<writes>\.cc){_WITH_CARRY}", _carrying, _ARITHMETIC),
    Rule(rf"(?:addc|subc)(?P<writes>\.cc)?{_WITH_CARRY}", _carrying, _ARITHMETIC),
    Rule(rf"mad\.(?P<part>lo|hi)(?P<writes>\.cc){_WITH_CARRY}", _carrying, _ARITHMETIC),
    Rule(rf"madc\.(?P<part>lo|hi)(?P<writes>\.cc)?{_WITH_CARRY}", _carrying, _ARITHMETIC),
]

# ---- Bits

_BITS = "bit_fields.h"
_LOGIC = {"and": "&", "or": "|", "xor": "^"}


def _logic(use: Use) -> str:
    a, b = _sources(use, 2)
    kind, sign = use.groups["type"], _LOGIC[use.groups["op"]]
    if kind == "pred":
        return f"{use[0]} = bool({a}) {sign} bool({b});"
    return f"{use[0]} = ${kind}({a}) {sign} ${kind}({b});"


def _lop3_with_predicate(use: Use) -> str:
    if use.operand(0).kind != "pair":
        raise NotPtx(f"{use.instruction.text}: its result is not d|p")
    if len(use) != 7:
        raise NotPtx(f"{use.instruction.text}: it takes 6 operands")
    sign = {"or": "||", "and": "&&"}[use.groups["op"]]
    a, b, c, table, other = (use[index] for index in range(2, 7))
    return (
        f"{{ const $b32 simulatorResult = $lop3({a}, {b}, {c}, {table}); "
        f"$put_both({use[0]}, {use[1]}, simulatorResult, "
        f"simulatorResult != 0 {sign} bool({other})); }}"
    )


_BIT_FIELDS = [
    Rule(r"(?P<op>and|or|xor)\.(?P<type>pred|b16|b32|b64)", _logic, "values.h"),
    Rule(r"not\.pred", "{0} = !({1});", "values.h"),
    Rule(r"not\.(?P<type>b16|b32|b64)", "{0} = ~${type}({1});", "values.h"),
    Rule(r"cnot\.(?P<type>b16|b32|b64)", "{0} = ${type}({1}) == 0;", "values.h"),
    Rule(r"lop3\.b32", "{0} = $lop3({1}, {2}, {3}, {4});", _BITS),
    Rule(r"lop3\.(?P<op>or|and)\.b32", _lop3_with_predicate, _BITS),
    Rule(r"shl\.(?P<type>b16|b32|b64)", "{0} = $shift_left<${type}>({1}, {2});", _BITS),
    Rule(r"shr\.(?P<type>[bus](?:16|32|64))", "{0} = $shift_right<${type}>({1}, {2});", _BITS),
    Rule(r"shf\.(?P<to>[lr])\.clamp\.b32", "{0} = ::__funnelshift_{to}c({1}, {2}, {3});", _BITS),
    Rule(r"shf\.(?P<to>[lr])\.wrap\.b32", "{0} = ::__funnelshift_{to}({1}, {2}, {3});", _BITS),
    Rule(r"prmt\.b32", "{0} = ::__byte_perm({1}, {2}, {3});", _BITS),
    Rule(
        r"prmt\.b32\.(?P<mode>f4e|b4e|rc8|ecl|ecr|rc16)",
        "{0} = $prmt_{mode}({1}, {2}, {3});",
        _BITS,
    ),
    Rule(r"popc\.(?P<type>b32|b64)", "{0} = $population<${type}>({1});", _BITS),
    Rule(r"clz\.(?P<type>b32|b64)", "{0} = $leading_zeros<${type}>({1});", _BITS),
    Rule(r"brev\.(?P<type>b32|b64)", "{0} = $reversed<${type}>({1});", _BITS),
    Rule(r"bfind\.(?P<type>[us](?:32|64))", "{0} = $bfind<${type}>({1});", _BITS),
    Rule(
        r"bfind\.shiftamt\.(?P<type>[us](?:32|64))", "{0} = $bfind_shiftamt<${type}>({1});", _BITS
    ),
    Rule(r"fns\.b32", "{0} = ::__fns({1}, {2}, {3});", _BITS),
    Rule(r"bfe\.(?P<type>[us](?:32|64))", "{0} = $bfe<${type}>({1}, {2}, {3});", _BITS),
    Rule(r"bfi\.(?P<type>b32|b64)", "{0} = $bfi<${type}>({1}, {2}, {3}, {4});", _BITS),
    Rule(r"bmsk\.(?P<mode>clamp|wrap)\.b32", "{0} = $bmsk_{mode}({1}, {2});", _BITS),
    Rule(
        r"szext\.(?P<mode>clamp|wrap)\.(?P<type>[us]32)",
        "{0} = $szext_{mode}<${type}>({1}, {2});",
        _BITS,
    ),
]

# ---- Floating point


def _floating(name: str, count: int, is_template: bool = True) -> Callable[[Use], str]:
    """A call of `name` with the operands; modifiers are applied before and after it."""

    def code(use: Use) -> str:
        groups, kind = use.groups, use.groups["type"]
        family = "half_" if kind in _HALVES else "float_"
        prefix = "half_" if kind in _HALVES else ""
        sources = _sources(use, count)
        if groups.get("ftz"):
            sources = [f"${prefix}flush<${kind}>({source})" for source in sources]
        arguments = [] if "mode" not in groups else [f"$Round_{groups['mode'] or 'rn'}"]
        arguments += [f"${kind}"] if is_template else []
        listed = f"<{', '.join(arguments)}>" if arguments else ""
        result = f"${family}{name}{listed}({', '.join(sources)})"
        if groups.get("ftz"):
            result = f"${prefix}flush<${kind}>({result})"
        if groups.get("sat"):
            result = f"${prefix}saturated<${kind}>({result})"
        if groups.get("relu"):
            result = f"$half_relu<${kind}>({result})"
        return f"{use[0]} = {result};"

    return code


def _pairwise(name: str, count: int) -> Callable[[Use], str]:
    """Two f32 in a register."""

    def code(use: Use) -> str:
        sources = _sources(use, count)
        is_flushed = use.groups["ftz"]
        if is_flushed:
            sources = [f"$flush_pair({source})" for source in sources]
        mode = use.groups["mode"] or "rn"
        result = f"$float_{name}_pair<$Round_{mode}>({', '.join(sources)})"
        return f"{use[0]} = {f'$flush_pair({result})' if is_flushed else result};"

    return code


def _extreme(use: Use) -> str:
    """min or max of two operands; for f32 also of three, or of the magnitudes of three."""
    groups, kind = use.groups, use.groups["type"]
    is_half = kind in _HALVES
    has_three = kind == "f32" and len(use) == 4 and not groups["xorsign"]
    sources = _sources(use, 3 if has_three else 2)
    if groups.get("abs"):
        if not has_three:
            raise NotPtx(f"{use.instruction.text}: it takes 4 operands")
        sources = [f"$float_abs<${kind}>({source})" for source in sources]
    flush = f"${'half_' if is_half else ''}flush<${kind}>"
    if groups.get("ftz"):
        sources = [f"{flush}({source})" for source in sources]
    name = ("half_" if is_half else "") + "extreme" + ("_xorsign" if groups.get("xorsign") else "")
    is_greatest = "true" if groups["op"] == "max" else "false"
    keeps_nan = "true" if groups.get("nan") else "false"
    result, *others = sources
    for other in others:
        result = f"${name}<${kind}, {is_greatest}, {keeps_nan}>({result}, {other})"
    return f"{use[0]} = {result};"


def _mixed(name: str, count: int) -> Callable[[Use], str]:
    """f32 operations on f16 or bf16 operands, which convert exactly; the last operand is f32."""

    def code(use: Use) -> str:
        groups = use.groups
        *halves, last = _sources(use, count)
        sources = [f"$float_of_half<$f32, ${groups['of']}>({half})" for half in halves]
        result = f"$float_{name}<$Round_{groups['mode'] or 'rn'}, $f32>"
        result += f"({', '.join([*sources, last])})"
        return f"{use[0]} = {f'$saturated<$f32>({result})' if groups['sat'] else result};"

    return code


_FLOAT, _HALF = "floating_point.h", "half_arithmetic.h"
_FLOATING = [
    *(
        rule
        for name, count in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3))
        for rule in (
            Rule(
                rf"{name}{_MODE}{'' if name == 'fma' else '?'}{_FTZ}{_SAT}\.(?P<type>f32)",
                _floating(name, count),
                _FLOAT,
            ),
            Rule(
                rf"{name}{_MODE}{'' if name == 'fma' else '?'}\.(?P<type>f64)",
                _floating(name, count),
                _FLOAT,
            ),
            Rule(
                rf"{name}{_MODE}{'' if name == 'fma' else '?'}{_FTZ}\.(?P<type>f32)x2",
                _pairwise(name, count),
                _FLOAT,
            ),
        )
    ),
    Rule(rf"mad{_MODE}?{_FTZ}{_SAT}\.(?P<type>f32)", _floating("fma", 3), _FLOAT),
    Rule(rf"mad{_MODE}\.(?P<type>f64)", _floating("fma", 3), _FLOAT),
    *(
        rule
        for name, count, approximate in (
            ("div", 2, "approx|full"),
            ("rcp", 1, "approx"),
            ("sqrt", 1, "approx"),
        )
        for rule in (
            Rule(
                rf"{name}\.(?:{approximate}|(?P<mode>rn|rz|rm|rp)){_FTZ}\.(?P<type>f32)",
                _floating(name, count),
                _FLOAT,
            ),
            Rule(rf"{name}{_MODE}\.(?P<type>f64)", _floating(name, count), _FLOAT),
        )
    ),
    Rule(r"(?P<op>rcp|rsqrt)\.approx\.ftz\.f64", "{0} = $float_{op}_gross({1});", _FLOAT),
    Rule(rf"rsqrt\.approx{_FTZ}\.(?P<type>f32)", _floating("rsqrt", 1), _FLOAT),
    Rule(r"rsqrt\.approx\.(?P<type>f64)", _floating("rsqrt", 1), _FLOAT),
    *(
        Rule(rf"{name}\.approx{_FTZ}\.(?P<type>f32)", _floating(name, 1, is_template=False), _FLOAT)
        for name in ("sin", "cos", "lg2", "ex2")
    ),
    Rule(r"tanh\.approx\.(?P<type>f32)", _floating("tanh", 1, is_template=False), _FLOAT),
    *(
        rule
        for name in ("abs", "neg")
        for rule in (
            Rule(rf"{name}{_FTZ}\.(?P<type>f32)", _floating(name, 1), _FLOAT),
            Rule(rf"{name}\.(?P<type>f64)", _floating(name, 1), _FLOAT),
            Rule(rf"{name}{_FTZ}\.(?P<type>f16|f16x2)", _floating(name, 1), _HALF),
            Rule(rf"{name}\.(?P<type>bf16|bf16x2)", _floating(name, 1), _HALF),
        )
    ),
    Rule(
        rf"(?P<op>min|max){_FTZ}{_NAN}(?:{_XORSIGN}|(?P<abs>\.abs))\.(?P<type>f32)",
        _extreme,
        _FLOAT,
    ),
    *(
        Rule(
            rf"{name}{_MODE}{'' if name == 'fma' else '?'}{_SAT}\.f32\.(?P<of>b?f16)",
            _mixed(name, count),
            "half_conversions.h",
        )
        for name, count in (("add", 2), ("sub", 2), ("fma", 3))
    ),
    Rule(r"(?P<op>min|max)\.(?P<type>f64)", _extreme, _FLOAT),
    Rule(rf"(?P<op>min|max){_FTZ}{_NAN}{_XORSIGN}\.(?P<type>f16|f16x2)", _extreme, _HALF),
    Rule(rf"(?P<op>min|max){_NAN}{_XORSIGN}\.(?P<type>bf16|bf16x2)", _extreme, _HALF),
    Rule(
        r"testp\.(?P<class>finite|infinite|number|notanumber|normal|subnormal)\.(?P<type>f32|f64)",
        "{0} = $testp_{class}<${type}>({1});",
        _FLOAT,
    ),
    Rule(r"copysign\.(?P<type>f32|f64)", "{0} = $copysign<${type}>({1}, {2});", _FLOAT),
    *(
        rule
        for name in ("add", "sub", "mul")
        for rule in (
            Rule(rf"{name}(?:\.rn)?{_FTZ}{_SAT}\.(?P<type>f16|f16x2)", _floating(name, 2), _HALF),
            Rule(rf"{name}(?:\.rn)?\.(?P<type>bf16|bf16x2)", _floating(name, 2), _HALF),
        )
    ),
    Rule(rf"fma\.rn{_FTZ}(?:{_SAT}|{_RELU})\.(?P<type>f16|f16x2)", _floating("fma", 3), _HALF),
    Rule(rf"fma\.rn{_RELU}\.(?P<type>bf16|bf16x2)", _floating("fma", 3), _HALF),
    Rule(r"tanh\.approx\.(?P<type>f16|f16x2|bf16|bf16x2)", _floating("tanh", 1), _HALF),
    Rule(r"ex2\.approx\.(?P<type>f16|f16x2)", _floating("ex2", 1), _HALF),
    Rule(r"ex2\.approx(?P<ftz>\.ftz)\.(?P<type>bf16|bf16x2)", _floating("ex2", 1), _HALF),
]

# ---- Comparisons

_ORDERED = "eq|ne|lt|le|gt|ge"
_UNORDERED = "equ|neu|ltu|leu|gtu|geu|num|nan"
_UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_BOOLEAN = r"(?:\.(?P<op>and|or|xor))?"
_COMPARE, _HALF_COMPARE = "comparisons.h", "half_comparisons.h"
_ANY = f"{_ORDERED}|{_UNORDERED}"
# Each comparison as two patterns: what precedes its type, and the type.
_COMPARED = [
    (rf"(?P<cmp>eq|ne){_BOOLEAN}", "b16|b32|b64"),
    (rf"(?P<cmp>{_ORDERED}){_BOOLEAN}", "s16|s32|s64"),
    (rf"(?P<cmp>{_ORDERED}|lo|ls|hi|hs){_BOOLEAN}", "u16|u32|u64"),
    (rf"(?P<cmp>{_ANY}){_BOOLEAN}{_FTZ}", "f32"),
    (rf"(?P<cmp>{_ANY}){_BOOLEAN}", "f64"),
    (rf"(?P<cmp>{_ANY}){_BOOLEAN}{_FTZ}", "f16|f16x2"),
    (rf"(?P<cmp>{_ANY}){_BOOLEAN}", "bf16|bf16x2"),
]


def _compared(use: Use, a: str, b: str, kind: str) -> str:
    cmp = _UNSIGNED.get(use.groups["cmp"], use.groups["cmp"])
    if use.groups.get("ftz"):
        flush = f"${'half_' if kind in _HALVES else ''}flush<${kind}>"
        a, b = f"{flush}({a})", f"{flush}({b})"
    kind = f"u{kind[1:]}" if kind.startswith("b") and not kind.startswith("bf") else kind
    return f"$compare_{cmp}<${kind}>({a}, {b})"


def _comparisons(use: Use, first: int) -> tuple[list[str], str]:
    """Comparisons of the operands from `first` on, and the ` && p` or the like appended to each."""
    if len(use) != first + 2 + bool(use.groups["op"]):
        raise NotPtx(f"{use.instruction.text}: the number of its operands")
    kind, a, b = use.groups["type"], use[first], use[first + 1]
    if kind.endswith("x2"):
        one = kind[:-2]
        halves = [(f"${part}({a})", f"${part}({b})") for part in ("low", "high")]
        found = [_compared(use, x, y, one) for x, y in halves]
    else:
        found = [_compared(use, a, b, kind)]
    if not use.groups["op"]:
        return found, ""
    sign = {"and": "&&", "or": "||", "xor": "!="}[use.groups["op"]]
    return found, f" {sign} bool({use[-1]})"


def _setp(use: Use) -> str:
    is_pair = use.operand(0).kind == "pair"
    found, rest = _comparisons(use, 2 if is_pair else 1)
    if len(found) == 2:
        if not is_pair:
            raise NotPtx(f"{use.instruction.text}: its result is not p|q")
        return f"$put_both({use[0]}, {use[1]}, {found[0]}{rest}, {found[1]}{rest});"
    if not is_pair:
        return f"{use[0]} = {found[0]}{rest};"
    return (
        f"{{ const bool simulatorResult = {found[0]}; $put_both({use[0]}, {use[1]}, "
        f"simulatorResult{rest}, !simulatorResult{rest}); }}"
    )


# The value that `set` writes for true.
_TRUE = {"u32": "~0u", "s32": "~0u", "u16": "0xffff", "s16": "0xffff"}
_TRUE |= {"f32": "0x3f800000u", "f16": "0x3c00", "bf16": "0x3f80"}


def _set(use: Use) -> str:
    found, rest = _comparisons(use, 1)
    to = use.groups["to"]
    if len(found) == 1:
        return f"{use[0]} = {found[0]}{rest} ? {_TRUE[to]} : 0;"
    true = _TRUE[to[:-2]] if to.endswith("x2") else "0xffff"
    low, high = (f"({each}{rest} ? {true}u : 0)" for each in found)
    return f"{use[0]} = {low} | {high} << 16;"


def _results_of(kind: str) -> str:
    """The allowed result types depend on the type that is compared."""
    if kind.endswith("x2"):
        return f"u32|s32|{kind}"
    if kind in _HALVES:
        return f"u16|s16|u32|s32|f32|{kind}"
    return "u32|s32|f32|f16|bf16"


def _header_of(kinds: str) -> str:
    return _HALF_COMPARE if "f16" in kinds else _COMPARE


_SELECTED = r"(?P<type>[bus](?:16|32|64)|f32|f64)"
_COMPARISONS = [
    *(
        Rule(rf"setp\.{before}\.(?P<type>{kinds})", _setp, _header_of(kinds))
        for before, kinds in _COMPARED
    ),
    *(
        Rule(
            rf"set\.{before}\.(?P<to>{_results_of(kind)})\.(?P<type>{kind})",
            _set,
            _header_of(kind),
        )
        for before, kinds in _COMPARED
        for kind in kinds.split("|")
    ),
    Rule(
        rf"selp\.{_SELECTED}", "{0} = {3} ? $Word<${type}>({1}) : $Word<${type}>({2});", "values.h"
    ),
    Rule(
        rf"slct\.{_SELECTED}\.s32",
        "{0} = $compare_ge<$s32>({3}, 0) ? $Word<${type}>({1}) : $Word<${type}>({2});",
        _COMPARE,
    ),
    Rule(
        rf"slct\.{_SELECTED}\.f32",
        "{0} = $compare_ge<$f32>({3}, 0) ? $Word<${type}>({1}) : $Word<${type}>({2});",
        _COMPARE,
    ),
    Rule(
        rf"slct\.ftz\.{_SELECTED}\.f32",
        "{0} = $compare_ge<$f32>($flush<$f32>({3}), 0) ? $Word<${type}>({1}) "
        ": $Word<${type}>({2});",
        _COMPARE,
    ),
]

# ---- Moves and conversions


def _mov(use: Use) -> str:
    kind, operands = use.groups["type"], use.instruction.operands
    if len(operands) != 2:
        raise NotPtx(f"{use.instruction.text}: it takes 2 operands")
    vectors = [index for index in (0, 1) if operands[index].kind == "vector"]
    if not vectors:
        return f"{use[0]} = {use[1]};"
    if len(vectors) == 2 or len(use.vector(vectors[0])) not in (2, 4) or kind[0] != "b":
        raise NotPtx(f"{use.instruction.text}: its vectors")
    if vectors == [1]:
        return f"{use[0]} = $pack<${kind}>({use[1]});"
    return f"$unpack<${kind}>({use[1]}, {use[0]});"


_WHOLE = r"(?:\.(?P<mode>rni|rzi|rmi|rpi))"
_SATFINITE = r"(?P<satfinite>\.satfinite)?"
_ANY_INTEGER = "[us](?:8|16|32|64)"


def _cvt(function: str) -> Callable[[Use], str]:
    """function: a call that names its arguments by the pattern's groups and lacks its operand."""

    def code(use: Use) -> str:
        groups = use.groups
        (source,) = _sources(use, 1)
        to, of, mode = groups["to"], groups.get("of", groups["to"]), groups.get("mode") or ""
        if groups.get("ftz") and of == "f32":
            source = f"$flush<$f32>({source})"
        chosen = function.format(to=f"${to}", of=f"${of}", mode=f"$Round_{mode[:2]}")
        result = f"{chosen}({source})"
        if groups.get("ftz") and to == "f32":
            result = f"$flush<$f32>({result})"
        prefix = "half_" if to in _HALVES else ""
        if groups.get("relu"):
            result = f"$half_relu<${to}>({result})"
        if groups.get("satfinite"):
            result = f"$half_finite<${to}>({result})"
        if groups.get("sat") and to[0] not in "us":
            result = f"${prefix}saturated<${to}>({result})"
        return f"{use[0]} = {result};"

    return code


def _cvt_pair(use: Use) -> str:
    """The first source becomes the upper half."""
    groups, one = use.groups, use.groups["to"]
    halves = []
    for source in _sources(use, 2):
        half = f"$half_of_float<$Round_{groups['mode']}, ${one}, $f32>({source})"
        half = f"$half_relu<${one}>({half})" if groups["relu"] else half
        halves.append(f"$half_finite<${one}>({half})" if groups["satfinite"] else half)
    return f"{use[0]} = $join({', '.join(halves)});"


def _cvt_tf32(use: Use) -> str:
    groups = use.groups
    (source,) = _sources(use, 1)
    is_finite, relu = ("true" if groups[name] else "false" for name in ("satfinite", "relu"))
    mode = f"$Tf32Round_{groups['mode']}"
    return f"{use[0]} = $tf32_of_f32<{mode}, {is_finite}, {relu}>({source});"


def _cvt_four_stochastic(use: Use) -> str:
    """`d, {a, b, e, f}, random`."""
    if len(use.vector(1)) != 4:
        raise NotPtx(f"{len(use.vector(1))} numbers in {use.instruction.text}")
    relu = str(bool(use.groups["relu"])).lower()
    return f"{use[0]} = $four_stochastic<${use.groups['to']}, {relu}>({use[1]}, {use[2]});"


def _cvt_stochastic(use: Use) -> str:
    of_bfloat, relu, finite = (
        str(bool(each)).lower()
        for each in (use.groups["to"] == "bf16", use.groups["relu"], use.groups["satfinite"])
    )
    call = f"$halves_stochastic<{of_bfloat}, {relu}, {finite}>"
    return f"{use[0]} = {call}({use[1]}, {use[2]}, {use[3]});"


def _cvt_small(use: Use) -> str:
    groups = use.groups
    relu = "true" if groups["relu"] else "false"
    sources = _sources(use, 2 if groups["of"] == "f32" else 1)
    return f"{use[0]} = $small_of_{groups['of']}<${groups['to']}, {relu}>({', '.join(sources)});"


def _cvt_from_small(use: Use) -> str:
    (source,) = _sources(use, 1)
    result = f"$f16x2_of_small<${use.groups['of']}>({source})"
    return f"{use[0]} = {f'$half_relu<$f16x2>({result})' if use.groups['relu'] else result};"


def _cvt_scales(use: Use) -> str:
    groups = use.groups
    is_up, is_finite = groups["mode"] == "rp", bool(groups["satfinite"])
    flags = ", ".join("true" if flag else "false" for flag in (is_up, is_finite))
    sources = _sources(use, 2 if groups["of"] == "f32" else 1)
    return f"{use[0]} = $scales_of_{groups['of']}<{flags}>({', '.join(sources)});"


def _cvt_pack(use: Use) -> str:
    to = use.groups["to"]
    a, b, *rest = _sources(use, 3 if use.groups["with"] else 2)
    bits = int(to[1:])
    kind = f"{to[0]}{max(8, bits)}"
    return f"{use[0]} = $pack_saturated<${kind}, {bits}>({a}, {b}, {rest[0] if rest else '0'});"


_CONVERT, _HALF_CONVERT = "conversions.h", "half_conversions.h"
_SMALL_CONVERT = "small_conversions.h"
_TO_INTEGER = rf"\.(?P<to>{_ANY_INTEGER})"
_OF_INTEGER = rf"\.(?P<of>{_ANY_INTEGER})"
_CONVERSIONS = [
    Rule(r"mov\.(?P<type>pred|[bus](?:16|32|64)|b128|f32|f64)", _mov, "moves.h"),
    Rule(rf"cvt{_TO_INTEGER}{_OF_INTEGER}", _cvt("$convert<{to}, {of}>"), _CONVERT),
    Rule(rf"cvt\.sat{_TO_INTEGER}{_OF_INTEGER}", _cvt("$convert_saturated<{to}, {of}>"), _CONVERT),
    Rule(
        rf"cvt{_MODE}{_FTZ}{_SAT}\.(?P<to>f32|f64){_OF_INTEGER}",
        _cvt("$float_of_integer<{mode}, {to}, {of}>"),
        _CONVERT,
    ),
    Rule(
        rf"cvt{_MODE}{_SAT}\.(?P<to>f16|bf16){_OF_INTEGER}",
        _cvt("$half_of_integer<{mode}, {to}, {of}>"),
        _HALF_CONVERT,
    ),
    Rule(
        rf"cvt{_WHOLE}{_FTZ}{_SAT}{_TO_INTEGER}\.(?P<of>f32|f64)",
        _cvt("$integer_of_float<{mode}, {to}, {of}>"),
        _CONVERT,
    ),
    Rule(
        rf"cvt{_WHOLE}{_SAT}{_TO_INTEGER}\.(?P<of>f16|bf16)",
        _cvt("$integer_of_half<{mode}, {to}, {of}>"),
        _HALF_CONVERT,
    ),
    Rule(
        rf"cvt{_WHOLE}{_FTZ}{_SAT}\.(?P<to>f32|f64)\.(?P=to)",
        _cvt("$integral<{mode}, {to}>"),
        _CONVERT,
    ),
    Rule(
        rf"cvt{_WHOLE}{_SAT}\.(?P<to>f16)\.f16", _cvt("$half_integral<{mode}, {to}>"), _HALF_CONVERT
    ),
    Rule(rf"cvt{_FTZ}{_SAT}\.(?P<to>f32|f64)\.(?P=to)", _cvt("$Word<{to}>"), _CONVERT),
    Rule(rf"cvt{_SAT}\.(?P<to>f16)\.f16", _cvt("$Word<{to}>"), _HALF_CONVERT),
    Rule(rf"cvt{_FTZ}{_SAT}\.(?P<to>f64)\.(?P<of>f32)", _cvt("$f64_of_f32"), _CONVERT),
    Rule(
        rf"cvt{_MODE}{_FTZ}{_SAT}\.(?P<to>f32)\.(?P<of>f64)", _cvt("$f32_of_f64<{mode}>"), _CONVERT
    ),
    Rule(
        rf"cvt{_FTZ}{_SAT}\.(?P<to>f32|f64)\.(?P<of>f16|bf16)",
        _cvt("$float_of_half<{to}, {of}>"),
        _HALF_CONVERT,
    ),
    Rule(
        rf"cvt{_MODE}{_FTZ}{_RELU}{_SATFINITE}{_SAT}\.(?:(?P<to>f16|bf16)\.(?P<of>f32|f64))",
        _cvt("$half_of_float<{mode}, {to}, {of}>"),
        _HALF_CONVERT,
    ),
    *(
        Rule(
            rf"cvt{_MODE}{_SAT}\.(?P<to>{to})\.(?P<of>{of})",
            _cvt("$half_of_float<{mode}, {to}, {of}>"),
            _HALF_CONVERT,
        )
        for to, of in (("f16", "bf16"), ("bf16", "f16"), ("bf16", "bf16"))
    ),
    Rule(
        rf"cvt\.(?P<mode>rn|rz){_RELU}{_SATFINITE}\.(?P<to>f16|bf16)x2\.f32",
        _cvt_pair,
        _HALF_CONVERT,
    ),
    Rule(rf"cvt\.(?P<mode>rna|rn|rz){_SATFINITE}{_RELU}\.tf32\.f32", _cvt_tf32, _CONVERT),
    Rule(
        rf"cvt\.rn\.satfinite{_RELU}\.(?P<to>e4m3x2|e5m2x2|e2m1x2)\.(?P<of>f32|f16x2)",
        _cvt_small,
        _SMALL_CONVERT,
    ),
    Rule(
        rf"cvt\.rn\.satfinite{_RELU}\.(?P<to>e2m3x2|e3m2x2)\.(?P<of>f32)",
        _cvt_small,
        _SMALL_CONVERT,
    ),
    Rule(
        rf"cvt\.rn{_RELU}\.f16x2\.(?P<of>e4m3x2|e5m2x2|e2m3x2|e3m2x2|e2m1x2)",
        _cvt_from_small,
        _SMALL_CONVERT,
    ),
    Rule(
        rf"cvt\.(?P<mode>rz|rp){_SATFINITE}\.ue8m0x2\.(?P<of>f32|bf16x2)",
        _cvt_scales,
        _SMALL_CONVERT,
    ),
    Rule(
        rf"cvt\.rs{_RELU}\.satfinite\.(?P<to>(?:e4m3|e5m2|e2m3|e3m2|e2m1)x4)\.f32",
        _cvt_four_stochastic,
        _SMALL_CONVERT,
    ),
    Rule(
        rf"cvt\.rs{_RELU}{_SATFINITE}\.(?P<to>f16|bf16)x2\.f32",
        _cvt_stochastic,
        _SMALL_CONVERT,
    ),
    Rule(r"cvt\.rn\.bf16x2\.ue8m0x2", "{0} = $bf16x2_of_scales({1});", _SMALL_CONVERT),
    Rule(r"cvt\.pack\.sat\.(?P<to>[us]16)\.s32(?P<with>)", _cvt_pack, _CONVERT),
    Rule(r"cvt\.pack\.sat\.(?P<to>[us][248])\.s32(?P<with>\.b32)", _cvt_pack, _CONVERT),
]

# ---- Control

_CONTROL = [
    Rule(r"nanosleep\.u32", "::__nanosleep({0});", "values.h"),
    Rule(r"trap", "::__trap();", "values.h"),
    Rule(r"brkpt", "::__brkpt();", "values.h"),
    Rule(r"pmevent(?:\.mask)?", "", "values.h"),
]

RULES = [
    *_INTEGERS,
    *_CARRIES,
    *_BIT_FIELDS,
    *_FLOATING,
    *_COMPARISONS,
    *_CONVERSIONS,
    *_CONTROL,
]
