"""What the library that was built of a submission's source may not contain.

It tells what a source can hide: what it calls under another name, what it keeps from call to call,
and code that runs when it is loaded.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import jitload
from lab.judge.gate import CALLS, WITH_TENSORS, is_op, takes_tensors

# C++'s and PyTorch's own headers wait by system calls, tell the time, and end a process by abort().
_OF_THE_SYSTEM = [
    name
    for called, named, _ in CALLS.values()
    for name in f"{called} {named}".split()
    if name not in ("syscall", "time", "abort")
]
# What an op has no use for. PyTorch's headers bring in much of the C++ library, so that what it
# needs of that cannot be listed; but PyTorch's own ops are none of it, nor files and threads.
_NOT_OF_OPS = re.compile(
    r"^((aoti_)?torch_(call_\w+|\w*(aten_|cpu_|dispatcher|cuda_(?!stream)|get_current_\w*handle)\w*)"
    r"|Py[A-Z_]\w*|(at|c10|torch)::.*|(std|__gnu_cxx)::.*(\bthread|fstream|filebuf|chrono|filesystem"
    r"|random_device|set_(terminate|unexpected|new_handler))\b.*"
    rf"|(__wrap_)?({'|'.join(_OF_THE_SYSTEM)}|pipe))$"
)
# But of C's functions those that it needs, besides kernels', can: errors' texts, locks, exceptions.
_C_OF_OPS = re.compile(
    r"^(str(len|n?cmp|r?chr|str|to[a-z]+)|mem\w+|v?snprintf|localtime(_r)?|time|syscall|abort|bcmp"
    r"|__v?snprintf_chk|__libc_single_threaded|__errno_location|__tls_get_addr|__assert_fail"
    r"|__cxa_\w+|_Unwind_Resume(_or_Rethrow)?|__dynamic_cast|(aoti_)?torch_\w+"
    r"|pthread_(mutex|once|rwlock|cond|self)\w*|__pthread_key_create)$"
)
# What a library of kernels needs from elsewhere.
_IMPORTS = re.compile(
    r"^(simulator(::|_).*|(__)?cuda[A-Z]\w+|cuTensorMap\w+|__gmon_start__"
    r"|__cxa_(finalize|atexit|guard_\w+|throw_bad_array_new_length)"
    r"|_ITM_\w+|mem(cpy|set|move|cmp)(_chk)?|__mem\w+_chk|__stack_chk_fail"
    r"|operator (new|delete)(\[\])?\(.*|__wrap_(malloc|free|printf|memcpy|memset|memmove|calloc)"
    r"|__(add|sub|mul|div|trunc|extend|float|fix)\w+[fi]\w*|__gxx_personality_v0|_Unwind_Resume"
    r"|std::__throw_\w+\(.*|std::terminate\(\)"
    r"|(f?abs|a?(sin|cos|tan)h?|atan2|exp|exp2|exp10|expm1|log|log2|log10|log1p|pow|sqrt|cbrt|r?hypot"
    r"|erf|erfc|[lt]gamma|floor|ceil|round|trunc|l?l?rint|nearbyint|l?l?round|fmod|remainder|fma|fmin"
    r"|fmax|fdim|ldexp|frexp|modf|copysign|scalbn?|logb|ilogb|nextafter|sincos|j[01n]|y[01n]|nan)[fl]?)$"
)


# What an op that takes at::Tensor needs of PyTorch: tensors, registration, errors. Whatever
# computes is an at::_ops, or found by the dispatcher.
_OF_TENSORS = re.compile(
    r"(at::(TensorBase::|_ops::empty(_memory_format|_like)::|cuda::get(Current)?DeviceProperties)"
    r"|c10::(?!Dispatcher|\w*OperatorHandle|impl::OperatorEntry)"
    r"|torch::(Library::|CppFunction::|jit::parse|headeronly::|detail::)|caffe2::TypeMeta::).*"
)
_OF_PYTORCH = re.compile(r"(?:^|[\s*&])((?:at|c10|torch|caffe2)::[^(]*)")


def library(path: Path, text: str) -> list[dict]:
    """Findings, as lab.judge.gate.source has them, of a library for the CPU."""
    op = is_op(text)
    found = asked(path, text)
    sections = _said(["readelf", "-SW", str(path)])
    if hit := re.search(r"\.init_array\s+\w+\s+\w+\s+\w+\s+(\w+)", sections):
        count = int(hit[1], 16) // 8
        if count > (2 if op else 1):  # g++'s own; one more registers an op
            found.append(_of_library("constructors", "it runs code when it is loaded"))
    found += [_of_library("state", f"{name}: kept from call to call") for name in _kept(path, text)]
    code = _said(["objdump", "-d", "--no-show-raw-insn", str(path)])
    if hit := _INSTRUCTION.search(code):
        found.append(_of_library("assembly", f"its machine code has {hit[1]}"))
    if hit := next(filter(_holds_one, _NUMBER.finditer(code)), None):
        found.append(_of_library("assembly", f"a number in its machine code holds one: {hit[0]}"))
    return found


_INSTRUCTION = re.compile(r"\t(syscall|sysenter|rdtscp?|rdpmc|rdrand|rdseed|int\s+\$0x80)\b")
_NUMBER = re.compile(r"\$0x([0-9a-f]{4,16})\b|\b0x([0-9a-f]{4,8})\((?!%rip)")


def _holds_one(number: re.Match) -> bool:
    """Whether a number in machine code has the bytes of syscall, sysenter or int 0x80: who jumps
    into the middle of its instruction executes them."""
    digits = number[1] or number[2]
    data = bytes.fromhex(digits.zfill(len(digits) + len(digits) % 2))[::-1]
    return any(it in data for it in (b"\x0f\x05", b"\x0f\x34", b"\xcd\x80"))


# What a compiler, the simulator and PyTorch's headers keep.
_OWN_STATE = re.compile(
    r"(guard variable for )?(simulator|c10|at|torch)::|std::__ioinit$|\w*TORCH_LIBRARY\w*_init_"
    r"|(blockIdx|threadIdx|blockDim|gridDim|warpSize)$|completed\.\d+$|DW\.ref\."
    r"|_(DYNAMIC|GLOBAL_OFFSET_TABLE_|TLS_MODULE_BASE_|_TMC_END__|_dso_handle|_bss_start|edata|end)$"
)


def _declared(text: str, qualifier: str) -> set[str]:
    """Names of variables; one declaration may have several: __shared__ float a[8], b[8];"""
    names = set()
    for declaration in re.findall(rf"\b{qualifier}\b([^;]*);", text):
        count = 1
        while count:  # from the innermost brackets outwards
            inner = r"\[[^\[\]]*\]|\{[^{}]*\}|\([^()]*\)|<[^<>]*>"
            declaration, count = re.subn(inner, " ", declaration)
        for declarator in declaration.split(","):
            if words := re.findall(r"\w+", declarator.partition("=")[0]):
                names.add(words[-1])
    return names


def _kept(path: Path, text: str) -> list[str]:
    """Variables of a library that may be written, and are neither __constant__ nor __shared__."""
    blank = jitload.blank(text)
    constant, shared = (_declared(blank, it) for it in ("__constant__", "__shared__"))
    found = []
    for line in _said(["objdump", "-tC", str(path)]).splitlines():
        symbol, _, rest = line.partition("\t")
        if " d " in symbol or not (hit := re.search(r" \.(t?)(?:data|bss)$", symbol)):
            continue
        name = re.sub(r"^\w+\s+(\.hidden )?", "", rest)
        declared = shared if hit[1] else constant  # the simulator gives each thread a block's own
        if not _OWN_STATE.match(name) and name.rpartition("::")[2] not in declared:
            found.append(name)
    return found


def asked(path: Path, text: str) -> list[dict]:
    """What a library asks of the system and of PyTorch.

    One for a GPU may ask more than one for the CPU: a source can tell their compilers apart.
    """
    op, tensors = is_op(text), takes_tensors(text)

    def refused(name: str) -> bool:
        if tensors and _OF_PYTORCH.search(name):
            return False  # ops_called tells
        if not op or (name.isidentifier() and not _C_OF_OPS.match(name)):
            return not _IMPORTS.match(name)
        return bool(_NOT_OF_OPS.match(name))

    names = filter(refused, _undefined(path))
    return [_of_library("imports", f"it calls {it}") for it in names] + ops_called(path, text)


def ops_called(path: Path, text: str) -> list[dict]:
    """What a library that takes at::Tensor has PyTorch compute, with the lines that may call it."""
    found = []
    for name in _undefined(path) if takes_tensors(text) else ():
        if (called := computes(name)) is None:
            continue
        op = _of_library("PyTorch", f"it calls {called}: {WITH_TENSORS[1]}")
        words = called.removeprefix("at::_ops::").partition("::")[0].split("_")
        for count in range(len(words), 0, -1):  # mul_Tensor is mul
            hit = re.search(rf"\b{'_'.join(words[:count])}_?\s*\(", jitload.blank(text))
            if hit and words[0]:
                op["line"] = text.count("\n", 0, hit.start()) + 1
                break
        found.append(op)
    return found


def computes(name: str) -> str | None:
    """The function of PyTorch's that a demangled name stands for, where it may compute."""
    hit = _OF_PYTORCH.search(name)
    if not hit or name.startswith(("vtable ", "typeinfo ", "VTT ")) or _OF_TENSORS.match(hit[1]):
        return None
    return hit[1]


def _undefined(path: Path) -> list[str]:
    """What a library asks of others, as C++ names it."""
    lines = _said(["nm", "-DC", "--undefined-only", str(path)]).splitlines()
    names = (it.strip().partition(" ")[2].partition("@")[0].strip() for it in lines)
    return [it for it in names if it]


def _of_library(kind: str, message: str) -> dict:
    return {"stage": "gate", "kind": kind, "line": 0, "message": message}


def _said(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
