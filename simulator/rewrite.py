"""Rewrites CUDA C++ to C++: the syntax that no header can define for a C++ compiler.

    k<T><<<grid, block, bytes>>>(x, n)
    SIMULATOR_KERNEL(k<T>)(grid, block, bytes)(x, n)

    asm("add.u32 %0, %1, 1;" : "=r"(y) : "r"(x));
    do { ... } while (0);  // simulator.ptx

    extern __shared__ float tile[];
    SIMULATOR_DYNAMIC_SHARED float tile[] SIMULATOR_DYNAMIC_SHARED_NAME;

    __global__ __launch_bounds__(128) void k(int n) {
    __global__ __launch_bounds__(128) void k(int n) { SIMULATOR_LAUNCH_BOUNDS(128)

    cudaMemcpy(y, x, n, cudaMemcpyDefault);
    ::simulator::api::Dropped{"cudaMemcpy"}, cudaMemcpy(y, x, n, cudaMemcpyDefault);

    #ifdef __CUDACC__
    #ifdef SIMULATOR_CUDACC

It also defines `__CUDA_ARCH__` in device code alone (`simulator.device_code`). Everything else,
line breaks included, stays as it is, so the compiler's line numbers are the user's.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from simulator import host_only, needs, ptx, torch_rewrite, unset
from simulator.device_code import DeviceCode, Load, body_of, variables
from simulator.directives import (
    Directive,
    directives_of,
    dropped_lines,
    without_pragmas_in_macros,
)
from simulator.mistakes import mistakes
from simulator.scan import Lines, blank, closing
from simulator.scopes import Functions, Scopes


class Unsupported(Exception):
    """CUDA that the simulator does not run.

    `path`, `line` and `column` (from 1) say where, `message` what, `hint` what to do.
    """

    def __init__(self, path: str, line: int, column: int, message: str, hint: str):
        super().__init__(f"{path}:{line}:{column}: {message}\n{hint}")
        self.path, self.line, self.column = path, line, column
        self.message, self.hint = message, hint


def rewrite(text: str, path: str, load: Load | None = None, of_library: bool = False) -> str:
    """The C++ for the `text` of a .cu, .cuh or .h file; errors are reported under the name `path`.

    load: what is known of all files that are compiled together; by default this is the only one.
    of_library: the text is a library's, and most of it is never used. Unknown PTX ends a kernel
        that reaches it, and the compiler reports whatever else is missing.

    Raises Unsupported for PTX that is not known, launches and C++'s streams in device code,
    libraries that need NVIDIA's compiler and some mistakes (simulator.mistakes), unless they stand
    where the preprocessor drops them here
    (`#if PLAYGROUND_CUDA`, `#if __CUDA_ARCH__ < 900` in a kernel).
    """
    text = text.removeprefix("\ufeff")  # it is a byte order mark only at the very beginning
    text = without_pragmas_in_macros(text)
    code = blank(text)
    load = Load.of([text]) if load is None else load
    if (expanded := load.macros.expanded(text, code)) != text:
        text, code = expanded, blank(expanded)
    device = DeviceCode(text, code, load)
    launches = list(_launches(code))
    assembly = list(ptx.translations(text, code, of_library, load.device, load.target))
    if not of_library:
        _refuse(code, path, load, device, launches, assembly)
    edits = [
        *launches,
        *(edit for each in assembly for edit in each.edits),
        *_dynamic_shared(text, code),
        *_launch_bounds(code),
        *_noinline(code),
    ]
    edits += [*_nvccs_names(code), *_shared_alignment(code), *device.edits]
    of_unset = list(unset.edits(device))
    edits += of_unset
    edits += [*_called_through_pointers(code), *_called_by_each_other(device, load)]
    edits += _own_aliases(code)
    if not of_library:
        edits += _dropped_errors(device.plain, code, directives_of(text, code))
    addresses = list(needs.kernel_addresses(code)) if load.by_address else []
    edits += addresses
    edits += variables(text, code, load, is_header=not path.endswith(".cu"))
    edits += torch_rewrite.edits(text, code)
    headers = needs.headers(code) + needs.brought(code)
    headers += ["simulator/kernel_address.h"] if addresses else []
    if of_unset and not path.endswith(".cu"):  # a host file may include it, too
        headers.append("simulator/unset.h")
    headers += sorted({f"simulator/ptx/{name}" for each in assembly for name in each.headers})
    parts, end = [f"#include <{header}>\n" for header in headers], 0
    parts += torch_rewrite.header(code), line_one(path)
    for start, stop, replacement in sorted(edits):
        if start < end:  # within a statement that has been replaced as a whole
            continue
        parts += text[end:start], replacement
        end = stop
    return "".join(parts) + text[end:]


# An edit: from, to, replacement.
_Edit = tuple[int, int, str]


class _Token(NamedTuple):
    text: str
    start: int


def _tokens(code: str) -> list[_Token]:
    pattern = r"[A-Za-z_]\w*|\d[\w.']*|::|->|##|[^\s\w]"
    return [_Token(match[0], match.start()) for match in re.finditer(pattern, code)]


def _launches(code: str) -> Iterator[_Edit]:
    if not re.search(r"<\s*<\s*<", code):
        return
    tokens = _tokens(code)
    for i in range(len(tokens)):
        if not _is_triple(tokens, i, "<"):
            continue
        callee = _callee(tokens, i)
        closing = _configuration_end(tokens, i + 3)
        if callee is None or closing is None:
            continue  # not a launch: the compiler will say what it is
        yield tokens[callee].start, tokens[callee].start, "SIMULATOR_KERNEL("
        yield tokens[i].start, tokens[i + 2].start + 1, ")("
        yield tokens[closing].start, tokens[closing + 2].start + 1, ")"


def _is_triple(tokens: list[_Token], i: int, bracket: str) -> bool:
    """Whether a `<<<` or `>>>` of exactly three begins at token `i`. nvcc also takes `<< <`, and
    formatters write `< < <`, which has no meaning in C++."""
    run = 0
    while i + run < len(tokens) and tokens[i + run] == (bracket, tokens[i].start + run):
        run += 1
    starts_here = i == 0 or tokens[i - 1] != (bracket, tokens[i].start - 1)
    apart = run == 2 and [token.text for token in tokens[i + 2 : i + 3]] == [bracket]
    spread = run == 1 and [token.text for token in tokens[i + 1 : i + 4]][:2] == [bracket] * 2
    if spread:
        spread = tokens[i + 2].start > tokens[i + 1].start + 1
        spread = spread and (i < 2 or tokens[i - 1].text != bracket)
        spread = spread and [token.text for token in tokens[i + 3 : i + 4]] != [bracket]
    return starts_here and (run == 3 or apart or spread)


_WORDS = {
    "return",
    "else",
    "do",
    "case",
    "throw",
    "goto",
    "if",
    "while",
    "for",
    "switch",
    "template",
}


def _is_name(token: _Token) -> bool:
    return (token.text[0].isalpha() or token.text[0] == "_") and token.text not in _WORDS


def _callee(tokens: list[_Token], end: int) -> int | None:
    """The first token of the expression that ends before `end`: `ns::k<T, 4>`, `t[i]`, `(k<T>)`."""
    i = _operand(tokens, end)
    while i is not None and i > 0 and tokens[i - 1].text in ("::", ".", "->"):
        qualifier = _operand(tokens, i - 1)
        if qualifier is None:  # ::k, in the global namespace
            return i - 1 if tokens[i - 1].text == "::" else None
        i = qualifier
    return i


def _operand(tokens: list[_Token], end: int) -> int | None:
    """The first token of a name with its template arguments, indices and calls, or of a `(...)`."""
    i = end
    while i > 0 and tokens[i - 1].text in ("]", ")"):
        bracket = _opening(tokens, i - 1)
        if bracket is None:
            return None
        i = bracket
        if i == 0 or not (_is_name(tokens[i - 1]) or tokens[i - 1].text in ("]", ">")):
            return i
    if i > 0 and tokens[i - 1].text == ">":
        arguments = _template_arguments(tokens, i - 1)
        if arguments is None:
            return None
        i = arguments
    if i == 0 or not _is_name(tokens[i - 1]):
        return None
    i -= 1
    while i > 1 and tokens[i - 1].text == "##":
        i -= 2
    return i - 1 if i > 0 and tokens[i - 1].text == "template" else i


_PAIRS = {")": "(", "]": "[", "}": "{"}


def _opening(tokens: list[_Token], closing: int) -> int | None:
    """The opening bracket that matches token `closing`."""
    depth = 0
    for i in range(closing, -1, -1):
        if tokens[i].text in _PAIRS:
            depth += 1
        elif tokens[i].text in _PAIRS.values():
            depth -= 1
            if depth == 0:
                return i
    return None


def _template_arguments(tokens: list[_Token], closing: int) -> int | None:
    """The `<` that matches the `>` at token `closing`."""
    depth, i = 0, closing
    while i >= 0:
        text = tokens[i].text
        if text in _PAIRS:
            bracket = _opening(tokens, i)
            if bracket is None:
                return None
            i = bracket
        elif text == ">":
            depth += 1
        elif text == "<" and i > 0 and tokens[i - 1] == ("<", tokens[i].start - 1):
            i -= 1  # a shift
        elif text == "<":
            depth -= 1
            if depth == 0:
                return i
        elif text in (";", "{"):
            return None
        i -= 1
    return None


def _configuration_end(tokens: list[_Token], begin: int) -> int | None:
    """The `>>>` before the arguments, not that of a template in `<<<f<A<B<int>>>(n), 256>>>`."""
    first, depth, angles, i = None, 0, 0, begin
    while i < len(tokens):
        text = tokens[i].text
        if text in _PAIRS.values():
            depth += 1
        elif text in _PAIRS:
            depth -= 1
        elif text == ";":
            break
        elif depth == 0 and text == "<" and _opens_template(tokens, i):
            angles += 1
        elif depth == 0 and text == ">":
            if _is_triple(tokens, i, ">") and tokens[i + 3 : i + 4] and tokens[i + 3].text == "(":
                if angles == 0:
                    return i
                first = i if first is None else first
            angles = max(0, angles - 1)
        if depth < 0:
            break
        i += 1
    return first


def _opens_template(tokens: list[_Token], i: int) -> bool:
    """Whether `<` directly follows a name, as in `cdiv<4>`; comparisons are written with spaces."""
    name = tokens[i - 1]
    return _is_name(name) and name.start + len(name.text) == tokens[i].start


_DYNAMIC_SHARED = re.compile(
    r"\b(?P<extern>extern)\b[^;{}=]*?\b(?P<shared>__shared__)\b[^;{}=]*?"
    r"\b(?P<name>\w+)(?:(?:\s*\[[^\]]*\])+|(?=\s*;))(?P<end>)"  # an array, or a struct
)


def _dynamic_shared(text: str, code: str) -> Iterator[_Edit]:
    matches = list(_DYNAMIC_SHARED.finditer(code))
    functions = Functions(code, list(directives_of(text, code)) if matches else [])
    for match in matches:
        yield *match.span("shared"), ""
        if functions.hold(match.start()):
            name = match["name"]
            yield *match.span("extern"), "typedef"
            yield *match.span("name"), f"simulator_{name}"
            yield *match.span("end"), f"; SIMULATOR_DYNAMIC_SHARED_HERE(simulator_{name}, {name})"
        else:
            yield *match.span("extern"), "SIMULATOR_DYNAMIC_SHARED"
            yield *match.span("end"), " SIMULATOR_DYNAMIC_SHARED_NAME"


def _shared_alignment(code: str) -> Iterator[_Edit]:
    """`__shared__ alignas(16) T x[4]`: a C++ compiler wants alignas first.

    The dynamic shared memory is aligned for all types.
    """
    pattern = r"(?P<extern>\bextern\s+)?(?P<shared>__shared__\s+)alignas\s*(?=\()"
    for match in re.finditer(pattern, code):
        end = closing(code, match.end())
        if end is None:
            continue
        alignas = code[match.end("shared") : end]
        yield match.end("shared"), end, "\n" * alignas.count("\n")
        if not match["extern"]:
            yield match.start("shared"), match.start("shared"), f"{' '.join(alignas.split())} "


def _launch_bounds(code: str) -> Iterator[_Edit]:
    """Moves the launch bounds from before a kernel's parameters to the start of its body."""
    for match in re.finditer(r"\b__(?P<what>launch_bounds|cluster_dims)__\s*(?=\()", code):
        end = bounds_end = closing(code, match.end())
        while end and (opening := re.compile(r"[^();{}]*?(\b__\w+__\s*)?\(").match(code, end)):
            end = closing(code, opening.end() - 1)
            if not opening[1]:  # the parameters: no other attribute
                break
        body = end and re.compile(r"\s*\{").match(code, end)
        if body:
            bounds = " ".join(code[match.end() : bounds_end].split())
            yield body.end(), body.end(), f" SIMULATOR_{match['what'].upper()}{bounds}"


def _called_through_pointers(code: str) -> Iterator[_Edit]:
    """Drops `__forceinline__` of functions that are passed on, as in `cg::reduce(warp, x, larger)`.

    g++ refuses a function that it must inline and that is called through a pointer.
    """
    handed_on = set(re.findall(r"(?<![\w.>:])(\w+)\s*[,)]", code))
    for match in re.finditer(r"\b__forceinline__\b[^;{}()#]*?\b(?P<name>\w+)\s*\(", code):
        if match["name"] in handed_on:
            begin = match.start()
            yield begin, begin + len("__forceinline__"), "inline"


def _called_by_each_other(device: DeviceCode, load: Load) -> Iterator[_Edit]:
    """Drops `__forceinline__` of two functions that call each other, as CuTe's rotl and rotr do.

    nvcc treats `__forceinline__` as a hint, but g++ refuses what it cannot inline.
    """
    forced = (load.device - {"__device__", "__global__"}) | {"__forceinline__"}
    if not re.search(rf"\b(?:{'|'.join(sorted(forced))})\b", device.plain):
        return
    called: dict[str, set[str]] = {}
    for start, opened, end in device.bodies:
        if name := re.search(r"\b(?!__)(\w+)\s*\(", device.plain[start : opened[0]]):
            words = re.findall(r"\b(\w+)\s*[<(]", device.plain[opened[0] : end])
            called.setdefault(name[1], set()).update(words)
    pairs = {(a, b) for a, names in called.items() for b in names if a in called.get(b, ())}
    mutual = {a for a, b in pairs if a != b}
    if not mutual:
        return
    for word in re.finditer(rf"\b(?:{'|'.join(sorted(forced))})\b", device.plain):
        name = re.compile(r"[^;{}()]*?\b(?!__)(\w+)\s*\(").match(device.plain, word.end())
        if name and name[1] in mutual:
            yield *word.span(), "inline"


_CALL = r"(?P<name>cuda(?!GetLastError|PeekAtLastError|GetError)[A-Z]\w*)\s*\("
_STATEMENT = re.compile(rf"(?:(?<=[;{{}}])|(?<=\belse)|(?<=\bdo))\s*{_CALL}")
_CONDITION = re.compile(r"\b(?:if|for|while)\s*(?:constexpr\s*)?(?=\()")


def _dropped_errors(plain: str, code: str, directives: Iterable[Directive]) -> Iterator[_Edit]:
    """Marks calls of CUDA's runtime that are statements, so whose errors nobody looks at."""
    if not re.search(rf"[;{{}})\w]\s*{_CALL}", plain):
        return
    own = set(re.findall(r"\b(?:struct|class)\s+(cuda\w+)", plain))  # a constructor is no call
    functions = Functions(code, list(directives))
    begins = list(_STATEMENT.finditer(plain))
    for match in _CONDITION.finditer(plain):
        end = closing(plain, match.end())
        if end and (call := re.compile(rf"\s*{_CALL}").match(plain, end)):
            begins.append(call)
    for match in begins:
        before = re.split(r"[{}]", plain[max(0, match.start() - 2000) : match.start() + 1])[-1]
        if before.count("(") > before.count(")") or not functions.hold(match.start("name")):
            continue  # the condition of a `for`; a class
        end = closing(plain, match.end() - 1)
        if match["name"] in own or not end or not re.compile(r"\s*;").match(plain, end):
            continue
        start = match.start("name")
        yield start, start, f'::simulator::api::Dropped{{"{match["name"]}"}}, '


def _own_aliases(code: str) -> Iterator[_Edit]:
    """`using Atom = Atom<T>;` in a class: g++ and clang need to be told which Atom is meant."""
    scopes, declared = Scopes(code), _first_declared(code)
    for match in re.finditer(r"\busing\s+(?P<name>\w+)\s*=\s*(?P<of>(?P=name)\s*<)", code):
        innermost = next(scopes.heads(match.start()), None)
        if innermost is None or _NAMESPACE.search(innermost):
            continue
        first = declared[match["name"]]
        outer = scopes.heads(first) if first < match.start() else ()
        found = [_NAMESPACE.search(head) for head in outer]
        names = [each[1] for each in reversed(found) if each and each[1]]
        yield match.start("of"), match.start("of"), "::".join(["", *names, ""])


_NAMESPACE = re.compile(r"\bnamespace\b\s*([\w:]*)\s*$")


def _first_declared(code: str) -> dict[str, int]:
    """The offset of the first declaration of each class or alias, by its name."""
    found: dict[str, int] = {}
    for match in re.finditer(r"\b(?:struct|class|using)\s+(\w+)", code):
        found.setdefault(match[1], match.start())
    return found


def _noinline(code: str) -> Iterator[_Edit]:
    """CUDA's `__noinline__`.

    As a macro it would break the C++ library, which writes `__attribute__((__noinline__))`.
    """
    for match in re.finditer(r"(?<![(,\w])(?<![(,] )__noinline__\b", code):
        yield *match.span(), "__attribute__((noinline))"


def _nvccs_names(code: str) -> Iterator[_Edit]:
    """`__CUDACC__` and `__NVCC__`, which tell a file that nvcc compiles it: here they do, too.

    They are renamed, not defined: PyTorch's headers, which are not rewritten, would include Thrust.
    """
    for match in re.finditer(r"\b__(CUDACC|NVCC)__\b", code):
        yield *match.span(), f"SIMULATOR_{match[1]}"


_INCLUDE = Path(__file__).with_name("include")
_HAS = "|".join(
    re.escape(path.relative_to(_INCLUDE).as_posix())
    for folder in ("cub", "thrust")
    for path in sorted((_INCLUDE / folder).rglob("*.*"))
)
_UNSUPPORTED = [
    (
        r"\bthis_multi_grid\b|\bmulti_grid_group\b|\bcudaLaunchCooperativeKernelMultiDevice\b",
        "the simulator has one device, and no grid over several, which CUDA 13 has none of either",
        "Launch on one device with cudaLaunchCooperativeKernel, and use this_grid().",
    ),
    (
        r"\bcuda(?:Mipmapped|MallocMipmapped|CreateMipmapped)\w*|\bcudaResourceTypeMipmappedArray\b",
        "the simulator has no mipmaps",
        "Use a CUDA array: it has one level.",
    ),
    (
        r"\bcudaGraphCond\w*|\bcudaGraphSetConditional\b|\bcudaGraphNodeParams\b",
        "the simulator does not run conditional nodes of graphs",
        "Decide on the host which graph to launch.",
    ),
    (
        r"\bcuda(?:Graphics|GL|VDPAU|EGL|D3D\d+)[A-Z]\w*|<cuda_gl_interop\.h>",
        "the simulator does not share memory with graphics",
        "Keep the results in memory of the device, and copy them to the host.",
    ),
    (
        r"\bcuda(?:MemPool(?:Export|Import)|MemPoolPtrExport)\w+"
        r"|\bcuda(?:Import|Destroy)External\w+|\bcudaExternal(?:Memory|Semaphore)\w+",
        "the simulator does not share pools, semaphores or others' memory among processes",
        "Allocate with cudaMalloc or cudaMallocAsync; cuMemExportToShareableHandle shares memory of"
        " cuMemCreate.",
    ),
    (
        r"\bcu(?:Module|Link|Library)[A-Z]\w*|\bcuLaunchKernel\w*|\bnvrtc[A-Z]\w*|<nvrtc\.h>",
        "the simulator does not load code for a GPU (PTX, cubin)",
        "Launch a kernel of this file: kernel<<<grid, block>>>(...).",
    ),
    (
        rf"<(?!(?:{_HAS})>)(?:cub|thrust/system/cuda)/[^>]*>",
        "the simulator has none of CUB's and Thrust's headers but those that most people use",
        "It has cub/cub.cuh, with the collectives of warps and blocks and the device-wide"
        " reductions, scans, sorts, selections and histograms; and the parts of Thrust that run"
        " on the host, too.",
    ),
    (
        r"\bCURAND_RNG_PSEUDO_MTGP32\b|\bCURAND_RNG_PSEUDO_MT19937\b|\bcurandStateMtgp32\w*"
        r"|\bCURAND_RNG_QUASI_SCRAMBLED_\w+|\bcurand_discrete\w*"
        r"|\bcurandCreatePoissonDistribution\b|\bcurandGenerateBinomial\w*",
        "the simulator's cuRAND has XORWOW, Philox4x32-10, MRG32k3a and Sobol's sequences, and of"
        " the discrete distributions curand_poisson",
        "CURAND_RNG_PSEUDO_PHILOX4_32_10 and curandStatePhilox4_32_10_t run everywhere.",
    ),
]
_NESTED = (
    "the simulator does not launch kernels from device code",
    "Launch from the host, a level after the other, or have the threads of one kernel loop.",
)


_STREAMS = (
    "a kernel cannot write to C++'s streams, which nvcc refuses in device code",
    'Take printf: printf("%d %f\\n", i, x[i]).',
)
_INSTEAD = (
    "Compute it on the host and pass it to the kernel; arrays of a fixed size, cuRAND, clock64()"
    " and printf work in device code."
)
_STREAM = re.compile(r"(?:\bstd\s*::\s*)?\b(?:cout|cerr|clog)\s*<<")
_OF_LIBRARY = re.compile(
    r"\bstd\s*::\s*(?:vector|string|map|unordered_map|set|list|deque|function|shared_ptr"
    r"|unique_ptr|sort|stable_sort|thread|mutex|random_device|mt19937)\b"
    r"|(?<![\w.>:])(?:std\s*::\s*)?(?P<called>rand|srand|time|fprintf|puts|fopen|getenv|sleep"
    r"|usleep)\s*(?=\()"
)


def _bodies_of_device(code: str) -> Iterator[tuple[int, int, int]]:
    """Functions compiled for the device alone: the word that says so, and where the body begins and
    ends."""
    for word in re.finditer(r"\b__(?:global|device)__\b", code):
        opening = body_of(code, word.end())
        before = code[max(code.rfind(mark, 0, word.start()) for mark in ";}") + 1 : word.start()]
        end = opening and closing(code, opening)
        if end and "__host__" not in before + code[word.end() : opening]:
            yield word.start(), opening, end


def _only_for_hosts(
    code: str, launches: list[_Edit], of_device: frozenset[str]
) -> Iterator[tuple[int, str, str]]:
    """Places where device code launches a kernel, writes to a stream, or uses host functions of the
    C++ library, each with a message and a hint. of_device: names of device functions."""
    found = [(start, *_NESTED) for start, _, put in launches if put == ")("]
    found += [(match.start(), *_STREAMS) for match in _STREAM.finditer(code)]
    for it in _OF_LIBRARY.finditer(code):
        if it["called"] not in of_device:
            message = (
                f"device code uses {it[0].strip()}, which C++'s library has for the host alone"
            )
            found.append((it.start(), message, _INSTEAD))
    found.sort()
    places = [start for start, *_ in found]
    for _, start, end in _bodies_of_device(code) if found else ():
        yield from found[bisect_right(places, start) : bisect_left(places, end)]


_RETURNS = (
    r"(?<=\b__global__)\s+(?:(?:static|inline|const)\s+)*(?:unsigned|signed|long|short|int|char|float"
    r"|double|bool|half|float4)\b[\w\s]*\**\s*\w+\s*\(",
    "a __global__ function returns void",
    "Write what it computes to memory: a pointer among its parameters.",
)


def _refuse(
    code: str,
    path: str,
    load: Load,
    device: DeviceCode,
    launches: list[_Edit],
    assembly: list[ptx.Translation],
) -> None:
    """Raises Unsupported for the first unsupported construct that is compiled for a CPU."""
    found = [*_only_for_hosts(code, launches, load.of_device), *mistakes(code, device.plain)]
    bodies = _bodies_of_device(device.plain)
    found += host_only.mistakes(device.plain, bodies, load.of_device, device.in_condition)
    found += [(each.start, *each.refused) for each in assembly if each.refused]
    for pattern, message, hint in (_RETURNS, *_UNSUPPORTED, *torch_rewrite.UNSUPPORTED):
        found += [(m.start(), message, hint) for m in re.finditer(pattern, code)]
    if not found:
        return
    dropped = dropped_lines(code, device.lines, device.value)
    if device.both:
        dropped -= device.both - dropped_lines(code, device.lines | device.both, device.value)
    lines = Lines(code)
    for start, message, hint in sorted(found):
        line = lines.of(start)
        if line not in dropped:
            raise Unsupported(path, line, start - code.rfind("\n", 0, start), message, hint)


def line_one(path: str) -> str:
    """The #line directive that makes compilers report a rewritten file under its original name."""
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'#line 1 "{escaped}"\n'
