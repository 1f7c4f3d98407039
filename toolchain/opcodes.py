"""The kind of an instruction, by its name in SASS or PTX: listings use it to colour and count."""

from __future__ import annotations

import re

# An opcode, without its predicate, is of the first kind whose pattern matches.
_KINDS = {
    "tensor cores": r"[HIBDQO]?G?MMA\b|[QUO]\w*MMA\b|UTC\w*|mma\.|wgmma\.|tcgen05\.",
    "global memory": (
        r"(LDG|STG|LD|ST|ATOMG?|REDG?|LDGSTS|UBLKCP|UBLKRED|UTMA\w*|UBLKPF|CCTL\w*)\b"
        r"|(ld|st|atom|red|prefetch|applypriority|multimem)\.(?!shared|param|local|const)"
        r"|ldu|cp\.(async|reduce)\.(?!wait|commit|bulk\.(wait|commit)|mbarrier)|prefetchu"
    ),
    "shared memory": (
        r"(LDS|STS|LDSM|STSM|ATOMS|MATCH|LDAS|STAS|REDAS)\b|(ld|st|atom|red)\.shared"
        r"|ldmatrix|stmatrix|movmatrix"
    ),
    "local memory": r"(LDL|STL)\b|(ld|st)\.local",
    "barriers and branches": (
        r"(BRA|BRX|BRXU|JMP|JMX|EXIT|RET|CALL|BSSY|BSYNC|BREAK|BAR|WARPSYNC|DEPBAR|LDGDEPBAR|MEMBAR"
        r"|FENCE|ERRBAR|SYNCS|UCGABAR\w*|WARPGROUP|NANOSLEEP|YIELD|KILL|ARRIVES|UTMACMDFLUSH"
        r"|ACQBULK|PREEXIT|ELECT|USETMAXREG)\b"
        r"|(bra|brx|call|ret|exit|bar|barrier|membar|fence|mbarrier|nanosleep|trap|griddepcontrol"
        r"|setmaxnreg)\b|elect\.|cp\.async\."
    ),
    "warp": r"(SHFL|VOTE\w*|REDUX|CREDUX|MATCH)\b|(shfl|vote|redux|match|activemask)\b",
}
_PATTERNS = {kind: re.compile(pattern) for kind, pattern in _KINDS.items()}
KINDS = tuple(_KINDS)
OTHER = "arithmetic and the rest"

_OPCODE = re.compile(r"(?:\{ ?)?(?:@!?%?\w+ )?\s*([\w.:]+)")


def opcode(text: str) -> str:
    """The opcode of an instruction: "@!P0 LDG.E.128 R4, [R2]" has LDG.E.128."""
    match = _OPCODE.match(text)
    return match[1] if match else ""


def kind(text: str) -> str:
    """One of KINDS, or OTHER."""
    name = opcode(text)
    return next((kind for kind, pattern in _PATTERNS.items() if pattern.match(name)), OTHER)
