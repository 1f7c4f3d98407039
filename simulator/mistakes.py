"""Mistakes that nvcc refuses, and that a C++ compiler accepts or blames on another line.

Each function yields the offset of a mistake, with a message and a hint.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from simulator.scan import Declared, closing, declared

Mistake = tuple[int, str, str]

_KERNEL = re.compile(r"\b__global__\b[^;{}]*?\b(?P<name>(?!__)\w+)\s*\(")
_OTHERWISE = re.compile(r"\b(\w+)\s*=|\bdefine\s+(\w+)\b")
_CALL = re.compile(r"\b(\w+)\b\s*(?:<[\w\s,:*]*>\s*)?(?=\()")
_NUMBERS = re.compile(
    r"(?:alignas\s*\([^()]*\)\s*)?(?:(?:volatile|const|static)\s+)*"
    r"(?P<type>double|float4|float2|float|(?:unsigned\s+)?(?:long\s+long|long|int|short|char)"
    r"|half|__half|int64_t|u?int32_t|u?int8_t|bool)"
)
_BYTES = {"double": 8, "float4": 16, "float2": 8, "half": 2, "__half": 2, "int64_t": 8, "bool": 1}
_BYTES |= {"long": 8, "short": 2, "char": 1, "int8_t": 1, "uint8_t": 1}
MOST_SHARED = 48 << 10  # most bytes for all arrays of a block: ptxas refuses more


def mistakes(code: str, plain: str) -> Iterator[Mistake]:
    """The mistakes in blanked code. plain: the code with spaces for directives, too."""
    yield from _unclosed(code, plain)
    yield from _called(code)
    for it in declared(code, "__shared__"):
        yield from _too_large(code, it)
        if it.value_at is not None and code[it.value_at] == "=":
            yield (
                it.value_at,
                "a __shared__ array or variable takes no initial value",
                "Its threads write it: if (threadIdx.x == 0) total = 0; and then __syncthreads().",
            )


def _too_large(code: str, it: Declared) -> Iterator[Mistake]:
    """A __shared__ array larger than a block may have, if its extents are numbers or constants that
    the text defines once."""
    begins = max(code.rfind(end, 0, it.name_at) for end in ";{}")
    is_extern = re.search(r"\bextern\b", code[begins + 1 : it.name_at])
    if it.extents and not is_extern and (of := _NUMBERS.fullmatch(it.type)):
        size = _BYTES.get(of["type"].split()[-1], 4)
        for extent in it.extents:
            size *= _number(code, extent) or 0
        if size > MOST_SHARED:
            yield (
                it.name_at,
                f"{it.name} takes {size:,} bytes of __shared__ memory, and a block may have"
                f" {MOST_SHARED:,}",
                "Make it smaller; or extern __shared__, whose bytes a launch gives, up to 227 KiB"
                " after cudaFuncSetAttribute.",
            )


def _number(code: str, text: str, depth: int = 0) -> int | None:
    """The value of sums and products of numbers and constants; None where it is not known."""
    total = 0
    for sign, term in re.findall(r"([+-]?)([^+-]+)", text):
        product = 1
        for factor in map(str.strip, term.split("*")):
            if re.fullmatch(r"\d{1,7}", factor):
                value: int | None = int(factor)
            elif not re.fullmatch(r"[A-Za-z_]\w*", factor):
                return None
            else:
                pattern = (
                    rf"(?:\bdefine\s+{factor}\s+|\b{factor}\s*=(?!=)\s*)([\w\s+*-]+?)\s*(?:;|\n)"
                )
                defined = re.findall(pattern, code)
                several = len(re.findall(rf"\b{factor}\s*=|\bdefine\s+{factor}\b", code)) != 1
                is_known = len(defined) == 1 and not several and depth < 4
                value = _number(code, defined[0], depth + 1) if is_known else None
            if value is None:
                return None
            product *= value
        total += -product if sign == "-" else product
    return total


def _unclosed(code: str, plain: str) -> Iterator[Mistake]:
    """A brace that is never closed, which compilers report only at the end of the file.

    A } that is indented less than the line of the { that it closes was meant for an earlier {,
    and the later { is the unclosed one. Branches of #if may each close a brace: such code is left
    to the compiler.
    """
    if plain.count("{") <= plain.count("}") or re.search(r"^[ \t]*#[ \t]*(?:el|else)", code, re.M):
        return
    opened: list[int] = []
    suspect = None
    for brace in re.finditer(r"[{}]", plain):
        if brace[0] == "{":
            opened.append(brace.start())
        elif opened:
            opening = opened.pop()
            begins = plain.rfind("\n", 0, brace.start()) + 1
            is_first = not plain[begins : brace.start()].strip()
            if suspect is None and is_first and _indent(plain, opening) > brace.start() - begins:
                suspect = opening
    if opened:
        yield (
            opened[-1] if suspect is None else suspect,
            "this { is never closed",
            "Put its } where the block ends.",
        )


def _indent(text: str, position: int) -> int:
    begins = text.rfind("\n", 0, position) + 1
    return re.compile(r"[ \t]*").match(text, begins).end() - begins


def _called(code: str) -> Iterator[Mistake]:
    """A kernel that a statement calls like a C++ function.

    Only names that are kernels in all their declarations, and no macros or variables, count.
    """
    kernels = {match.start("name"): match["name"] for match in _KERNEL.finditer(code)}
    calls: dict[str, list[int]] = {name: [] for name in kernels.values()}
    for match in _OTHERWISE.finditer(code) if calls else ():
        calls.pop(match[1] or match[2], None)
    for call in _CALL.finditer(code) if calls else ():
        if call.start() in kernels or call[1] not in calls:
            continue
        before = code[max(0, call.start() - 80) : call.start()].rstrip()
        end = closing(code, call.end())
        if re.search(r"[>*&\w]$", before) and not re.search(r"\b(else|do|return)$", before):
            calls.pop(call[1])  # a declaration of that name, or an instantiation of the template
        elif re.search(r"[;{}]$", before) and end and re.compile(r"\s*;").match(code, end):
            calls[call[1]].append(call.start())
    for name, starts in sorted(calls.items()):
        for start in starts:
            yield (
                start,
                f"{name} is a kernel: it is launched, and not called",
                f"Write {name}<<<blocks, threads>>>(...).",
            )
