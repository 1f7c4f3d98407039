"""Completion in a cell that begins with %%cu: CUDA's names, our headers', and the cell's own.

The names come from the simulator's headers, which have CUDA's names, so all of them also run
without a GPU. No Python names are offered. Each name is marked with its origin.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from IPython.core.completer import CompletionContext, SimpleCompletion, context_matcher
from IPython.core.completer import SimpleMatcherResult as Result

import jitload

CELL = re.compile(r"\s*%%cu(?:da)?\b")
WORD = re.compile(r"\b[A-Za-z_]\w*")
INCLUDED = re.compile(r'^\s*#\s*include\s*"([^"]*)$')
MEMBER = re.compile(r"(?:\b([A-Za-z_]\w*)|[)\]])\s*(?:\.|->)\s*\w*$")
STRING = re.compile(r'"(\\.|[^"\\\n])*"')
MACRO = re.compile(r"^#define (\w+)\(([^)]*)\)((?:.*\\\n)*.*)", re.MULTILINE)

# CUDA's naming patterns; other words in the simulator's headers are its own, or C++'s.
CUDAS = re.compile(
    r"cuda[A-Z]\w*|CUDART_\w+|atomic[A-Z]\w*|make_\w+|dim3|warpSize|(?:thread|block)Idx"
    r"|(?:block|grid)Dim|u?(?:char|short|int|long|longlong)[1-4]|(?:float|double)[1-4]"
    r"|half2?|nv_bfloat162?"
    r"|__(?!builtin|atomic|attribute|asm|is_|cplusplus|int128|fp16|thread$|x86|aarch)[a-z]\w+"
)
# A name that a header defines: a macro, a type, a constant, or a function, at the start of a line.
DEFINED = re.compile(
    r"^(?:#define|(?:struct|class|using)(?: alignas\(.*\))?) (?:\w+::)*(\w+)"
    r"|^constexpr [\w ]+ (\w+) =|^(?!static)\w[\w:<>,*& ]*[ *&](\w+)\(",
    re.MULTILINE,
)
CPLUSPLUS = """
    alignas auto bool break case char const constexpr continue decltype default do double else enum
    extern float for if inline int int8_t int16_t int32_t int64_t long namespace nullptr return
    short size_t sizeof static static_assert struct switch template typename uint8_t uint16_t
    uint32_t uint64_t unsigned using void volatile while
    assert ceilf cosf erff exp2f expf fabsf floorf fmaf fmaxf fminf log2f logf powf printf roundf
    rsqrtf sinf sqrtf tanhf
"""


@context_matcher(identifier="lab.cuda", priority=1000)
def complete(context: CompletionContext) -> Result:
    """Completions of the word before the cursor in a %%cu cell; nothing in other cells."""
    if not CELL.match(context.full_text) or context.cursor_line == 0:
        return Result(completions=[], suppress=False)
    line = context.text_until_cursor
    if include := INCLUDED.search(line):
        return _result(include[1], _headers())
    word = re.search(r"\w*$", line)[0]
    if member := MEMBER.search(line):
        return _result(word, _members(member[1] or "", context.full_text, word))
    return _result(word, {**_known(), **_own(context.full_text, word)})


def _result(fragment: str, names: dict[str, str]) -> Result:
    """The names that begin with `fragment`; if none does, itself, to keep out Python's names."""
    found = {name: origin for name, origin in names.items() if name.startswith(fragment)}
    found = {name: origin for name, origin in found.items() if name != fragment} or {fragment: ""}
    return Result(
        completions=[SimpleCompletion(text=name, type=found[name]) for name in sorted(found)],
        matched_fragment=fragment,
        suppress=True,
    )


@cache
def _known() -> dict[str, str]:
    """Names and their origins, of C++, CUDA and the headers in kernels/include."""
    names = dict.fromkeys(CPLUSPLUS.split(), "C++")
    headers = map(Path.read_text, sorted(jitload.CUDA_HEADERS.rglob("*.h")))
    words = WORD.findall(_expanded(jitload.without_comments("\n".join(headers))))
    names |= dict.fromkeys(filter(CUDAS.fullmatch, words), "CUDA")
    for path in sorted((jitload.KERNELS / "include").iterdir()):
        for found in DEFINED.finditer(jitload.without_comments(path.read_text())):
            names.setdefault(found[found.lastindex], path.name)
    return names


def _expanded(code: str) -> str:
    """The code without strings, with macros that paste names (float##4) expanded."""
    code = STRING.sub("", code)
    expanded = [MACRO.sub(r"\1", code)]
    for macro, parameters, body in MACRO.findall(code):
        for use in re.findall(rf"^\s*{macro}\(([^()]*)\)", expanded[0], re.MULTILINE):
            given = dict(zip(parameters.split(", "), use.split(", "), strict=False))
            text = WORD.sub(lambda word, given=given: given.get(word[0], word[0]), body)
            expanded.append(re.sub(r"\s*##\s*", "", text))
    return "\n".join(expanded)


def _own(cell: str, word: str) -> dict[str, str]:
    """The identifiers of the cell, except the one that is being typed."""
    words = WORD.findall(jitload.without_comments(cell.partition("\n")[2]))
    if word in words:
        words.remove(word)
    return dict.fromkeys(set(words) - _known().keys(), "cell")


def _members(owner: str, cell: str, word: str) -> dict[str, str]:
    """The members of an index or a vector, and other names that the cell has after a dot."""
    axes = "xyz" if CUDAS.fullmatch(owner) else "xyzw"
    used = re.findall(r"\.\s*([A-Za-z_]\w*)", jitload.without_comments(cell))
    if word in used:
        used.remove(word)
    return {**dict.fromkeys(axes, "CUDA"), **dict.fromkeys(used, "cell")}


def _headers() -> dict[str, str]:
    """The headers that #include finds in kernels/include and beside the notebook."""
    folders = {"kernels/include": jitload.KERNELS / "include", "beside": Path.cwd()}
    return {
        path.name: origin
        for origin, folder in folders.items()
        for path in folder.iterdir()
        if path.suffix in (".h", ".cuh")
    }
