"""Rewrites a PyTorch extension written for CUDA to run on the CPU, where its tensors are: "CUDA"
becomes the CPU in all that it asks or says about tensors.

    TORCH_CHECK(x.is_cuda())                     TORCH_CHECK(::simulator::is_cuda(x))
    torch::empty({n}, torch::kCUDA)              torch::empty({n}, torch::kCPU)
    TORCH_LIBRARY_IMPL(ops, CUDA, m) {           TORCH_LIBRARY_IMPL(ops, CPU, m) {
    at::Device("cuda:0")                         at::Device("cpu")
    at::checkAllSameGPU(c, {x, y})               ::simulator::same_gpu(c, {x, y})

Only the user's own files are rewritten, none of PyTorch's. Questions about the CPU keep their
answers: for a tensor there, both `is_cuda()` and `is_cpu()` are true.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

# An edit: from, to, replacement.
Edit = tuple[int, int, str]

# Headers to include first if the code matches a pattern: the edits call their functions, or
# PyTorch's own headers for CUDA would have declared them.
_HEADERS = [
    (
        r"\b(?:is_cuda|cuda|get_device(?:_index)?)\s*\(\s*\)|\bRestrictPtrTraits\b"
        r"|\bdevice\s*\(\s*\)\s*\.\s*index\s*\(\s*\)|\bsimulator::set_aside\b"
        r"|\bcheck(?:All)?SameGPU\b",
        "torch_cuda.h",
    ),
    (r"\baccelerator\s*::|\baoti_torch_get_current_cuda_stream\b", "torch_stable.h"),
    (
        r"\bgetCurrentCUDABlas(?:Lt)?Handle\b"
        r"|<ATen/cuda/CUDAContext(?:Light)?\.h>[\s\S]*\bcublas(?:Lt)?[A-Z]",
        "torch_cublas.h",
    ),
    (r"<(?:torch/(?!headeronly/|csrc/)|ATen/|c10/)[^>]*>", "torch_halves.h"),
]

# Names that have no CPU build in PyTorch, or need a library that the simulator lacks.
_LIBRARIES = "Write it in plain CUDA C++, or call PyTorch's own operator from the binding."
UNSUPPORTED = [
    (
        r"<ATen/cuda/cub[\w-]*\.(?:cuh|h)>",
        "the simulator does not run PyTorch's wrappers of CUB",
        _LIBRARIES,
    ),
    (
        r"<ATen/(?:native/cuda(?!/KernelUtils\.cuh)|cudnn|cuda/tunable|cuda/detail/LazyNVRTC)[^>]*>"
        r"|<ATen/cuda/(?:CUDABlas\.h|CUDAGraph\.h|CUDASparse\w*\.h"
        r"|jiterator\w*\.h|MemPool\.h|Sleep\.h|ThrustAllocator\.h|PeerToPeerAccess\.h)>",
        "the simulator does not run PyTorch's own CUDA kernels and libraries",
        _LIBRARIES,
    ),
]


def edits(text: str, code: str) -> Iterator[Edit]:
    """The edits of a `text` whose comments and strings are blank in `code`."""
    yield from _dispatches(code)
    if not _MENTIONS.search(text):
        return
    yield from _questions(text, code)
    yield from _constants(code)
    yield from _names_of_devices(text, code)
    for match in _SAME_GPU.finditer(code):
        yield *match.span(), "::simulator::same_gpu("
    for match in _REGISTRATION.finditer(code):
        yield *match.span("cuda"), "CPU"
    for match in _ACCELERATOR.finditer(code):
        yield match.end(), match.end(), "cpu::"


def header(code: str) -> str:
    """The #includes that the rewritten text needs first, a line each."""
    found = (f"#include <simulator/{name}>\n" for asks, name in _HEADERS if re.search(asks, code))
    return "".join(found)


_MENTIONS = re.compile(r"cuda\b|CUDA\b|\bget_device|\bindex\s*\(\s*\)|\baccelerator\b|SameGPU\b")
_SAME_GPU = re.compile(r"(?:::\s*)?(?:\bat\s*::\s*)?\bcheck(?:All)?SameGPU\s*\(")
_REGISTRATION = re.compile(
    r"\b(?:STABLE_)?TORCH_LIBRARY_IMPL\s*\([^,()]*,\s*\w*?(?P<cuda>CUDA)\s*,"
)
_ACCELERATOR = re.compile(  # of the stable ABI
    r"\baccelerator\s*::\s*(?=(?:DeviceGuard|Stream|getCurrent(?:Stream|DeviceIndex))\b)"
)

_QUESTION = re.compile(
    r"(?P<dot>\.|->)\s*(?:(?P<device>device\s*\(\s*\))\s*\.\s*index"
    r"|(?P<name>is_cuda|cuda|get_device|get_device_index))\s*\(\s*\)"
)


def _dispatches(code: str) -> Iterator[Edit]:
    """`AT_DISPATCH_FLOATING_TYPES(x.type(), ...)`, which old releases took: uses scalar_type."""
    for match in re.finditer(r"\bAT_DISPATCH_\w+\s*\([^{}]*?\[", code):
        for call in re.finditer(r"(?:\.|->)\s*(type)\s*\(\s*\)(?=\s*,)", match[0]):
            yield match.start() + call.start(1), match.start() + call.end(1), "scalar_type"


def _questions(text: str, code: str) -> Iterator[Edit]:
    """x.is_cuda(), x.cuda(), x.get_device() and x.device().index() become functions of x."""
    calls: dict[int, str] = {}  # by where their operands begin, the outer ones first
    for match in _QUESTION.finditer(code):
        start = _operand(code, match.start(), _body_of_macro(text, code, match.start()))
        if start is None:
            continue
        if match["device"]:
            call = "::simulator::device_index("
            yield match.end("device"), match.end(), ")"
        else:
            call = f"::simulator::{match['name']}({'*' if match['dot'] == '->' else ''}"
            yield match.start(), match.end(), ")"
        calls[start] = call + calls.get(start, "")
    for start, call in calls.items():
        yield start, start, call


def _body_of_macro(text: str, code: str, position: int) -> int:
    """Where the body begins of the macro whose definition contains a position; else 0."""
    line = code.rfind("\n", 0, position)
    while line > 0 and text.endswith(("\\", "\\\r"), 0, line):
        line = code.rfind("\n", 0, line)
    define = re.compile(r"\s*#\s*define\s+\w+(?:\([^()]*\))?").match(code, line + 1)
    return define.end() if define and define.end() <= position else 0


_PAIRS = {")": "(", "]": "[", ">": "<"}
_NO_OPERAND = {"return", "else", "case", "throw", "co_return", "and", "or", "not"}


def _operand(code: str, end: int, floor: int) -> int | None:
    """Where the expression before `.` begins: `x`, `a.b(c)[d]`, `ns::f<T>(x)`, `(x)`."""
    i = end
    while True:
        i = _back(code, i, floor)
        name_is_left = False
        while i > floor and code[i - 1] in _PAIRS and code[i - 2 : i] != "->":
            opening = _opening(code, i - 1, floor)
            if opening is None:
                return None
            before = _back(code, opening, floor)
            i, name_is_left = opening, before > floor and _is_word(code[before - 1])
            if name_is_left:
                word = _word_before(code, before, floor)
                name_is_left = word not in _NO_OPERAND | {"if", "while", "switch", "for"}
            if not name_is_left and not (before > floor and code[before - 1] in ")]>"):
                return i
            i = before
        if i == floor or not _is_word(code[i - 1]):
            return None
        word = _word_before(code, i, floor)
        if word in _NO_OPERAND:
            return None
        i -= len(word)
        before = _back(code, i, floor)
        if code[max(before - 2, floor) : before] in ("::", "->"):
            link = 2
        elif code[max(before - 1, floor) : before] == ".":
            link = 1
        else:
            return i
        left = _back(code, before - link, floor)
        if link == 2 and code[before - 2 : before] == "::":
            # the global namespace's, unless a name or a template precedes it
            if left == floor or not (_is_word(code[left - 1]) or code[left - 1] == ">"):
                return before - 2
            if _word_before(code, left, floor) in _NO_OPERAND:
                return before - 2
        i = before - link


def _back(code: str, i: int, floor: int) -> int:
    while i > floor and code[i - 1].isspace():
        i -= 1
    return i


def _word_before(code: str, end: int, floor: int) -> str:
    begin = end
    while begin > floor and _is_word(code[begin - 1]):
        begin -= 1
    return code[begin:end]


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"


def _opening(code: str, closing: int, floor: int) -> int | None:
    """The opening bracket that matches the closing one at an offset."""
    pair = _PAIRS[code[closing]]
    depth = 0
    for i in range(closing, floor - 1, -1):
        if code[i] == code[closing] and code[i - 1 : i + 1] != "->":
            depth += 1
        elif code[i] == pair:
            depth -= 1
            if depth == 0:
                return i
        elif code[i] in ";{}":
            return None
    return None


_SCOPE = r"(?:(?:at|c10|torch|headeronly|stable)\s*::\s*)"
_CONSTANT = re.compile(
    rf"(?P<scope>{_SCOPE}*)\b"
    r"(?:k(?P<short>CUDA)"
    r"|(?:Device(?:\s*::\s*)?Type|DispatchKey|Backend)\s*::\s*\w*?(?P<long>CUDA))\b"
)
_CPU_CASE = re.compile(
    rf"\bcase\s+{_SCOPE}*(?:k(?P<short>CPU)|Device(?:\s*::\s*)?Type\s*::\s*(?P<long>CPU))\s*:"
)
_IN_SCOPE = re.compile(
    r"\busing\s+namespace\s+(?:at|c10|torch)\b|\bnamespace\s+(?:at|c10|torch)\b"
    r"|\busing\s+(?:\w+\s*::\s*)+(?:kCUDA|DeviceType|DispatchKey)\b"
)


def _constants(code: str) -> Iterator[Edit]:
    """torch::kCUDA, at::DeviceType::CUDA, at::Device::Type::CUDA, c10::DispatchKey::CUDA."""
    in_scope = _IN_SCOPE.search(code) is not None
    for match in _CONSTANT.finditer(code):
        if not match["scope"] and not in_scope:
            continue  # an enumeration of the user's
        kind = "short" if match["short"] else "long"
        yield *match.span(kind), "CPU"
        if re.search(r"\bcase\s*\Z", code[max(match.start() - 20, 0) : match.start()]):
            yield from _other_case(code, match.start())


def _other_case(code: str, position: int) -> Iterator[Edit]:
    """Edits the CPU's case beside CUDA's, if there is one, to be CUDA's: the two are swapped."""
    begin, depth = position, 0
    while begin > 0 and depth <= 0:
        begin -= 1
        depth += {"{": 1, "}": -1}.get(code[begin], 0)
    end, depth = position, 0
    while end < len(code) and depth >= 0:
        depth += {"{": 1, "}": -1}.get(code[end], 0)
        end += 1
    for match in _CPU_CASE.finditer(code, begin, end):
        yield *match.span("short" if match["short"] else "long"), "CUDA"


_NAMED_DEVICE = re.compile(
    r'\b(?:[Dd]evice(?:\s+\w+)?|to)\s*[({]\s*(?P<name>"cuda(?::0)?")\s*[)},]'
)


def _names_of_devices(text: str, code: str) -> Iterator[Edit]:
    """torch::Device("cuda:0"), x.to("cuda"): in `code` the string is blank."""
    for match in _NAMED_DEVICE.finditer(text):
        is_code = code[match.start()] == text[match.start()]
        if is_code and not code[slice(*match.span("name"))].strip():  # and the name is a string
            yield *match.span("name"), '"cpu"'
