"""Traps found in the source: those that need a GPU, two GPUs, or more memory than the machine has.

Line numbers are those of the user's files. Comments and strings are blanked before the search.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import jitload
from lab.auditor import checks
from lab.auditor.subject import Found, NotRun, Subject
from lab.auditor.variables import variables

_LAUNCH = re.compile(r"<<<")
_BINDS = re.compile(r"\b(?:STABLE_)?TORCH_LIBRARY(?:_FRAGMENT|_IMPL)?\s*\(|\bPYBIND11_MODULE\s*\(")
_GUARD = re.compile(
    r"\b(?:Optional)?(?:CUDA|Device)Guard\b|\bOnDeviceOf\b|\bcudaSetDevice\s*\(|\bdevice_guard\b"
    r"|\bDeviceGuard\w*|\b(?:Maybe)?(?:SetDevice|ExchangeDevice)\b"
    r"|\b(?:CUDA)?(?:Multi)?StreamGuard\b"
)
_INCLUDE = re.compile(r"^\s*#\s*include.*$", re.M)
_CHECKS = re.compile(
    r"\bcuda(?:Get|Peek)\w*LastError\b|\w*KERNEL_LAUNCH_CHECK\b|\bcuda\w*Synchronize\s*\("
)
_DEFAULT = {"0", "NULL", "nullptr", "cudaStreamDefault", "cudaStreamLegacy", "cudaStreamPerThread"}
_DEFAULT |= {"(cudaStream_t)0", "cudaStream_t(0)", "{}", "cudaStream_t{}", "cudaStream_t()"}
# Runtime calls, and their number of arguments when the stream, the last one, is given; cudaMemset
# takes none.
_ON_A_STREAM = {"cudaMemcpyAsync": 5, "cudaMemsetAsync": 4, "cudaMemset": 4}
_ON_A_STREAM |= {"cudaLaunchKernel": 6, "cudaLaunchCooperativeKernel": 6}
_DEVICE = re.compile(
    r"\bcudaSetDevice\s*\(\s*\d+\s*\)|\bkCUDA\s*,\s*\d+|\bset_index\s*\(\s*\d+|cuda:\d"
    r"|\bCUDAGuard\s+\w*\s*[({]\s*\d+\s*[)}]|\bgetDefaultCUDAStream\s*\(|\bset_device\s*\(\s*\d+"
)
_WAITS = re.compile(
    r"\b(cudaDeviceSynchronize|cudaStreamSynchronize|cudaMalloc|cudaMallocManaged|cudaFree"
    r"|cudaMemcpy|cudaMemcpy(?:To|From)Symbol)\s*\("
    r"|(\.(?:item\s*(?:<[\w:\s]*>)?|cpu)\s*\(\s*\)|\.to\s*\(\s*(?:\w+\s*::\s*)*kCPU\b)"
)
_NARROW = re.compile(
    r"\b(?:unsigned\s+int|unsigned|int|int32_t|uint32_t|auto)\s+(?:const\s+)?\w+\s*=\s*"
    r"(?:\(int\)\s*|static_cast<\s*(?:unsigned\s+)?int(?:32_t)?\s*>\s*\(\s*|int\s*\(\s*)?"
    r"[\w\[\]>.-]*?(?:\.|->)numel\s*\(\s*\)"
    r"|(?:\(\s*int\s*\)|static_cast<\s*(?:unsigned\s+)?int(?:32_t)?\s*>\s*\(|\bint\s*\()\s*"
    r"[\w\[\]]+(?:\.|->)numel\s*\(\s*\)"
)
_AUTO = re.compile(r"\bauto\s+(?:const\s+)?\w+\s*=\s*[\w\[\]]+(?:\.|->)numel")
# A grid has at most 65,535 blocks in y and in z, so times blockDim alone they stay below 2^26.
_BLOCKS = (
    r"\bblockIdx\.(?:x\s*\*\s*(?:blockDim\.\w|\w+)"
    r"|[yz]\s*\*\s*(?:(?!blockDim)\w+|blockDim\.\w\s*\*))"
)
_INDEX = re.compile(
    r"\b(?:unsigned\s+int|unsigned|int|int32_t|uint32_t)\s+(?:const\s+)?(\w+)\s*=\s*"
    rf"[^;]*{_BLOCKS}[^;]*\bthreadIdx\.\w|"
    r"\b(?:unsigned\s+int|unsigned|int|int32_t|uint32_t)\s+(?:const\s+)?(\w+)\s*=\s*"
    rf"[^;]*\bthreadIdx\.\w\s*\+\s*{_BLOCKS}"
)
# The product is a 32-bit unsigned value, whatever type it is assigned to.
_PRODUCT = re.compile(
    r"=\s*(?:threadIdx\.\w\s*\+\s*)?(?:blockIdx\.x\s*\*\s*blockDim\.\w"
    r"|blockDim\.\w\s*\*\s*blockIdx\.x)\s*[+;]"
)
_WIDE = re.compile(
    r"\b(?:int64_t|size_t|long long|long|uint64_t|ptrdiff_t)\s*\("
    r"|\b(?:int64_t|size_t|long long|uint64_t)\b[^;]*$"
)
_LIMITED = re.compile(
    r"INT_MAX|INT32_MAX|numeric_limits<\s*int(?:32_t)?\s*>|canUse32BitIndexMath|1\s*<<\s*31|2147483647"
)
_KEPT = re.compile(
    r"^\s*(?:static|thread_local)\s+(?!constexpr|const\b|inline|__)(?:thread_local\s+)?"
    r"(?:at::|torch::|(?:std|c10|ska)::\w+<[^;()]*?(?=\bTensor\b)|std::\w+<\s*)?"
    r"(?:Tensor\b|optional<|(?:float|double|half|__half|int|char|void|unsigned\s+char)\s*\*)[^(]*;",
    re.M,
)
_NAMESPACE = re.compile(r"\bnamespace\b[\s\w:]*$|\bextern\s*\S*\s*$")
_WAITS_FOR = re.compile(r"\bcuda(?:Event|Stream|Device)Synchronize\s*\(")
_ADDS = re.compile(r"\b(?:gpuA|fastA|unsafeA|a)tomicAdd(?:_block|_system|NoReturn)?\s*\(")
_ADDS_IN_PTX = re.compile(r"\b(?:red|atom)\.[\w.:]*\badd\.[\w.:]*b?f\d")
# A guard without a name: it ends before the launch.
_ENDED_GUARD = re.compile(
    r"(?<=[;{}])\s*(?:\w+\s*::\s*)*(?:Optional)?(?:CUDA|Device)Guard\s*[({][^;{}]*[)}]\s*;"
)
_BOUND = re.compile(r"\bm\s*\.\s*(?:def|impl)\s*\([^;]*?[(,]\s*&?\s*(?:\w+\s*::\s*)*(\w+)\s*[,)]")
_HAS_TENSOR = r"[^;{}()]*\{[^{}()]*\bTensor\s+\w+\s*[;,]"
_INT = r"\b(?:unsigned\s+int|unsigned|int|int32_t|uint32_t)\s+(?:const\s+)?(\w+)\s*"


def texts(subject: Subject) -> dict[str, str]:
    """The sources of the kernels that a call of the op runs, by file name.

    Raises NotRun if there are none.
    """
    if subject.sources is None:
        found: dict[str, str] = {}
        for it in checks.reports(subject):
            found |= it.report.sources
        subject.sources = found
    if not subject.sources:
        raise NotRun("no source is known: sources= names the files")
    return {name: _blank(text) for name, text in subject.sources.items()}


def _blank(text: str) -> str:
    return jitload.blank(text)


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _inside(text: str, at: int) -> str:
    """The text between the brackets of a launch or call that open at a position."""
    opens, closes = ("<<<", ">>>") if text.startswith("<<<", at) else ("(", ")")
    depth, i = 0, at
    while i < len(text):
        if opens == "(" and text[i] in "()":
            depth += 1 if text[i] == "(" else -1
            if depth == 0:
                return text[at + 1 : i]
        if opens == "<<<" and i > at and text.startswith(closes, i):
            return text[at + 3 : i]
        i += 1
    return text[at:]


def split(text: str) -> list[str]:
    """Split arguments at commas outside brackets."""
    parts, depth, begin = [], 0, 0
    for i, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append(text[begin:i].strip())
            begin = i + 1
    return [*parts, text[begin:].strip()]


def launches(text: str) -> Iterator[tuple[int, list[str]]]:
    """Each launch in host code: its position, and the arguments between its brackets."""
    for found in _LAUNCH.finditer(text):
        if not _in_kernel(text, found.start()):
            yield found.start(), split(_inside(text, found.start()))


def _in_kernel(text: str, at: int) -> bool:
    """Whether a position is inside a kernel's body: such a launch is made on the device."""
    begin = text.rfind("__global__", 0, at)
    if begin < 0:
        return False
    body = text.find("{", begin)
    end = jitload.closing(text, body) if 0 <= body < at else None
    return end is not None and end > at


def _without_stream(text: str) -> Iterator[tuple[int, str]]:
    for at, given in launches(text):
        if len(given) < 4 or re.sub(r"\s+", "", given[3]) in _DEFAULT:
            yield at, "a launch without a stream"
        elif given[3].isidentifier():
            yield from _another_stream(text, at, given[3])
    for found in re.finditer(r"\bcudaLaunchKernelEx(?:C)?\s*\(\s*&\s*(\w+)", text):
        _, begin, _ = _function(text, found.start())
        before = text[begin : found.start()]
        empty = r"\s*(?:=\s*)?(?:\{\s*0?\s*\}\s*)?;"
        made = re.search(rf"\bcudaLaunchConfig_t\s+{found[1]}{empty}", before)
        if made and not re.search(rf"\b{found[1]}\s*\.\s*stream\s*=", before):
            yield found.start(), "a launch without a stream"
    for call, count in _ON_A_STREAM.items():
        for found in re.finditer(rf"\b{call}\s*\(", text):
            given = split(_inside(text, found.end() - 1))
            if len(given) < count or re.sub(r"\s+", "", given[-1]) in _DEFAULT:
                yield found.start(), f"{call} without a stream"


def _another_stream(text: str, at: int, name: str) -> Iterator[tuple[int, str]]:
    """What is wrong with the variable from which a launch takes its stream."""
    begin = text.find("{", _function(text, at)[1])
    value = re.compile(rf"(?<![.>\w]){name}\s*(?:=\s*([^;=]*)|[({{]([^;]*)[)}}])\s*;")
    set_to = {
        re.sub(r"\s+", "", it[1] or it[2]): it.start() for it in value.finditer(text, begin, at)
    }
    if set_to and set_to.keys() <= _DEFAULT:
        yield min(set_to.values()), "a launch without a stream"
    made = re.compile(rf"\bcudaStreamCreate\w*\s*\(\s*&\s*{name}\b").search(text, begin, at)
    pool = [place for it, place in set_to.items() if "getStreamFromPool" in it]
    if (made or pool) and not re.search(r"\bcudaStreamWaitEvent\b|\.\s*block\s*\(", text):
        why = "a launch on a stream of its own, which waits for no other"
        yield made.start() if made else pool[0], why


def stream(subject: Subject) -> str:
    """Each launch names a stream that is not the default one."""
    said = 0
    for name, text in texts(subject).items():
        for at, what in _without_stream(text):
            raise Found(
                f"{what}: it does not run on PyTorch's current one; a CUDA"
                " graph does not capture it",
                line=f"{name}:{_line(text, at)}",
            )
        said += len(list(launches(text)))
    return f"{said} launches in the source" if said else "PyTorch's current one, from Python"


def guard(subject: Subject) -> str:
    """A binding makes its tensors' device current."""
    known = texts(subject)
    binds = [(n, m) for n, text in known.items() if (m := _BINDS.search(text))]
    if not binds:
        return "jitload's: there is no binding"
    own = {n: text for n, text in known.items() if _GUARD.search(_INCLUDE.sub("", text))}
    if not own:
        name, found = binds[0]
        raise Found(
            "no device guard: tensors of a second GPU meet a launch on the first",
            line=f"{name}:{_line(known[name], found.start())}",
        )
    for name, text in own.items():
        if ended := _ENDED_GUARD.search(text):
            raise Found(
                "a device guard without a name: it ends at once, before the launch",
                line=f"{name}:{_line(text, ended.end() - 1)}",
            )
    bound = {it for text in known.values() for it in _BOUND.findall(text)}
    guards = rf"\b(?:{'|'.join(_guarding(known))})\b|{_GUARD.pattern}"
    for name, text in known.items():
        for at, _ in launches(text):
            of, begin, end = _function(text, at)
            if of in bound and not re.search(guards, text[text.find("{", begin) : end]):
                raise Found(
                    f"no device guard in {of}: tensors of a second GPU meet a launch on the first",
                    line=f"{name}:{_line(text, at)}",
                )
    return ""


def _guarding(known: dict[str, str]) -> Iterator[str]:
    """The names of functions, classes and macros of the source with a guard in them."""
    for text in known.values():
        for found in _GUARD.finditer(_INCLUDE.sub(lambda it: " " * len(it[0]), text)):
            for place in _opened(text, found.start()):
                head = text[max(text.rfind(mark, 0, place) for mark in "{};") + 1 : place]
                yield from re.findall(r"\b([A-Za-z_]\w*)\s*(?:\(|:(?!:)|$)", head)
            lines = text[: found.start()].replace("\\\n", "  ")
            if defined := re.match(r"\s*#\s*define\s+(\w+)", lines[lines.rfind("\n") + 1 :]):
                yield defined[1]


def unchecked(subject: Subject) -> str:
    """Each launch is followed by an error check, in the same function or in its caller."""
    known = texts(subject)
    asked = any(_CHECKS.search(text) for text in known.values())
    for name, text in known.items():
        for at, _ in launches(text):
            name_of, _, end = _function(text, at)
            if _CHECKS.search(text, at, end) or _macro_checks(text, at):
                continue
            if asked and _is_called(name_of, known):
                continue
            if _is_left_out(name_of, name, known):
                continue
            raise Found(
                "a launch whose error nobody asks for: a refused one is silent",
                line=f"{name}:{_line(text, at)}",
                note=True,
            )
    return ""


_HEAD = re.compile(r"(\w+)\s*\([^;{}]*\)\s*(?:const|noexcept|override|->[^;{}()]*|\s)*$")
_CONTROL = {"if", "for", "while", "switch", "catch", "constexpr"}


def _opened(text: str, at: int) -> list[int]:
    """Where the brackets around a position open, outermost first."""
    opened: list[int] = []
    for bracket in re.finditer(r"[{}]", text[:at]):
        if bracket[0] == "{":
            opened.append(bracket.start())
        elif opened:
            opened.pop()
    return opened


def _function(text: str, at: int) -> tuple[str, int, int]:
    """The name of the function around a position, the start of its head, and its end.

    Skips the brackets of if, for and lambdas; ("", 0, the text's end) outside functions.
    """
    text = re.sub(r"=\s*\{\s*\}", lambda it: " " * len(it[0]), text)  # default arguments
    for place in reversed(_opened(text, at)):
        begin = max(text.rfind(mark, 0, place) for mark in "{};") + 1
        head = _HEAD.search(text[begin:place])
        if head and head[1] not in _CONTROL and "](" not in head[0]:
            return head[1], begin, jitload.closing(text, place) or len(text)
    return "", 0, len(text)


def _macro_checks(text: str, at: int) -> bool:
    """Whether the launch is an argument of a checking macro: CHECK(k<<<...>>>(x))."""
    line = text[text.rfind("\n", 0, at) + 1 : at]
    return bool(re.search(r"\b\w*(?:CHECK|check)\w*\s*\(", line))


def _is_called(name: str, known: dict[str, str]) -> bool:
    uses = sum(len(re.findall(rf"\b{name}\s*(?:<[^;()]*>)?\s*\(", it)) for it in known.values())
    return bool(name) and uses > 1


def _is_left_out(name: str, file: str, known: dict[str, str]) -> bool:
    """Whether this op never uses this function of a header: nothing does, or functions alone that
    it does not use either."""
    if not name or not file.endswith((".cuh", ".h", ".hpp")):
        return False
    others = {
        (it, of)
        for it, text in known.items()
        for use in re.finditer(rf"\b{name}\b", text)
        if (of := _function(text, use.start())[0]) not in ("", name)
    }
    rest = {it: re.sub(rf"\b{name}\b", " " * len(name), text) for it, text in known.items()}
    return all(_is_left_out(of, it, rest) for it, of in others)


def device(subject: Subject) -> str:
    """No device is named by its number, and no device's default stream is used."""
    raw = subject.sources if texts(subject) else {}
    for name, text in (raw or {}).items():
        for found in _DEVICE.finditer(jitload.without_comments(text)):
            raise Found(
                f"a device by its number: {found[0].strip()}",
                line=f"{name}:{_line(text, found.start())}",
            )
    return ""


def waits(subject: Subject) -> str:
    """Nothing synchronises with the GPU or allocates its memory, which graphs cannot capture."""
    for name, text in texts(subject).items():
        for found in _WAITS.finditer(text):
            _, begin, _ = _function(text, found.start())
            if "noreturn" in text[begin : found.start()].partition("{")[0]:
                continue  # it synchronises in order to report an error
            raise Found(
                f"{(found[1] or found[2]).strip('. (')}: it waits for the GPU, and a CUDA graph"
                " cannot capture it",
                line=f"{name}:{_line(text, found.start())}",
                note=True,
            )
    return ""


def overflow(subject: Subject) -> str:
    """Indices and element counts can hold values above 2^31."""
    known = texts(subject)
    if any(_LIMITED.search(text) for text in known.values()):
        return "the source asks for fewer than 2^31 elements"
    for name, text in known.items():
        for found in _NARROW.finditer(text):
            if not _AUTO.match(found[0]):
                raise Found(
                    f"numel() in 32 bits: {' '.join(found[0].split())}; it is negative or cut off"
                    f" from {_most(found[0])} elements on",
                    line=f"{name}:{_line(text, found.start())}",
                    note=True,
                )
        for found in _INDEX.finditer(text):
            if not _WIDE.search(found[0]):
                raise Found(
                    f"an index in 32 bits: {' '.join(found[0].split())}; it overflows from"
                    f" {_most(found[0])} threads on",
                    line=f"{name}:{_line(text, found.start())}",
                    note=True,
                )
        if found := _row_in_32_bits(text):
            at, product = found
            raise Found(
                f"{product} in 32 bits: the index of an element overflows from 2^31 elements on",
                line=f"{name}:{_line(text, at)}",
                note=True,
            )
        for found in _PRODUCT.finditer(text):
            raise Found(
                "blockIdx times blockDim in 32 bits: it begins again at 2^32 threads, whatever it"
                " is assigned to",
                line=f"{name}:{_line(text, found.start())}",
                note=True,
            )
    return ""


def _row_in_32_bits(text: str) -> tuple[int, str] | None:
    """Where a kernel's index is a row's number times sizes in 32 bits, and the product."""
    for kernel in re.finditer(r"__global__[^;{}]*\(([^;{}]*\))\s*\{", text):
        body = text[kernel.end() : jitload.closing(text, kernel.end() - 1)]
        row = "|".join([r"blockIdx\.x", *re.findall(rf"{_INT}=\s*blockIdx\.x\s*[;,]", body)])
        size = "|".join(re.findall(rf"{_INT}[,)]", kernel[1])) or "(?!)"
        product = rf"\b((?:(?:{row})\s*\*\s*(?:{size})|(?:{size})\s*\*\s*(?:{row}))\b"
        product += rf"(?:\s*\*\s*(?:{size})\b)*)"
        if found := re.search(rf"(?:\[|\+=?)\s*{product}\s*(?:\+[^\]*;,]*)?[\];,)]", body):
            return kernel.end() + found.start(1), found[1]
    return None


def _most(declared: str) -> str:
    """The largest value of a 32-bit variable with this declaration."""
    return "2^32" if declared.startswith(("unsigned", "uint32_t")) else "2^31"


def kept(subject: Subject) -> str:
    """No tensor or buffer is kept between calls."""
    for name, text in texts(subject).items():
        kept = [
            (found[0], found.end() - 1)
            for found in _KEPT.finditer(text)
            if not _is_waited_for(text, found)
        ]
        # Of a type of the source that has a tensor.
        holders = "|".join(re.findall(rf"\b(?:struct|class)\s+(\w+){_HAS_TENSOR}", text)) or "(?!)"
        local = re.finditer(rf"\bstatic\s+(?:{holders})\s+\w+[^;()]*;", text)
        kept += [(it[0], it.end() - 1) for it in local]
        kept += [
            (words, at)
            for words, at in variables(text)
            if re.search(
                rf"\bTensor\b|^(?!.*\bchar\b)[^=]*\*|\b__device__\b|\b(?:{holders})\b", words
            )
        ]
        for words, at in kept:
            raise Found(
                f"kept from call to call: {' '.join(words.split())[:80]}; calls on two streams"
                " or two devices share it",
                line=f"{name}:{_line(text, at)}",
                note=True,
            )
    return ""


def _is_waited_for(text: str, kept: re.Match) -> bool:
    """Whether it is thread-local, and the function or class around it waits for the GPU: then one
    call at a time uses it."""
    if "thread_local" not in kept[0]:
        return False
    begin = end = kept.start()
    scopes = [it for it in _opened(text, begin) if not _NAMESPACE.search(text[:it])]
    if scopes:
        end = jitload.closing(text, scopes[0]) or len(text)
    return bool(_WAITS_FOR.search(text[begin:end]))


def atomics(subject: Subject) -> str:
    """No floating-point sum uses atomicAdd, whose order changes between runs; no result changes
    when blocks and threads run in another order."""
    known = texts(subject)
    for name, text in known.items():
        for found in _ADDS.finditer(text):
            given = split(_inside(text, found.end() - 1))
            of, begin, _ = _function(text, found.start())
            whole = rf"\bu?int\w*\s+{re.escape(given[-1])}\s*[,)=]"
            if len(given) > 1 and re.fullmatch(r"-?\d+[uU]?[lL]*", given[1]):
                continue  # it counts integers
            if re.search(whole, text[begin : found.start()]) or _is_left_out(of, name, known):
                continue
            raise Found(
                "atomicAdd: sums of floats get other bits on each run",
                line=f"{name}:{_line(text, found.start())}",
                note=True,
            )
    for name, raw in (subject.sources or {}).items():
        if found := _ADDS_IN_PTX.search(jitload.without_comments(raw)):
            raise Found(
                f"{found[0]}: sums of floats get other bits on each run",
                line=f"{name}:{_line(raw, found.start())}",
                note=True,
            )
    try:
        call = checks.of_its_threads_order(subject)
    except NotRun:  # only the source is known
        return ""
    if call:
        raise Found("other bits where blocks and threads run in another order", call, note=True)
    return ""
